package metadata

import "github.com/highwater/highwater/internal/schema"

// ZkMigrationStateRecord: how far the migration from ZooKeeper is. Kafka 4 forgets it; we keep it for a cluster that
// still is at a metadata.version of 3.x and may go back to that software.
func (d *Delta) replayZkMigrationState(r *schema.ZkMigrationStateRecord) error {
	d.img.zkMigration = r.ZkMigrationState
	d.changes.zkMigration = true
	return nil
}
