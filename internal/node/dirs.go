package node

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
)

// identity is what the log directories say of this node.
type identity struct {
	clusterID string
	dirs      map[string]kafka.DirectoryID // by path
}

// checkDirs reads meta.properties of every log directory and compares them with each other and with node.id. It changes
// nothing. The texts are Kafka's, followed by the way out.
func checkDirs(fsys vfs.FS, c *config.Broker) (identity, error) {
	id := identity{dirs: make(map[string]kafka.DirectoryID)}
	owner := make(map[kafka.DirectoryID]string)
	var missing []string
	for _, dir := range allDirs(c) {
		name := dir + "/meta.properties"
		m, err := storage.ReadMeta(fsys, dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, dir)
			continue
		case err != nil:
			return id, fmt.Errorf("read %s: %w", name, err)
		case m.NodeID != kafka.BrokerID(c.NodeID):
			return id, fmt.Errorf("Stored node id %d doesn't match previous node id %d in %s. If you moved your data, make sure your configured node id matches. "+
				"If you intend to create a new node, you should remove all data in your data directories.", c.NodeID, m.NodeID, name)
		case id.clusterID != "" && m.ClusterID != id.clusterID:
			return id, fmt.Errorf("Invalid cluster.id in: %s. Expected %s, but read %s", name, id.clusterID, m.ClusterID)
		}
		id.clusterID = m.ClusterID
		if !m.DirectoryID.IsZero() {
			if other, twice := owner[m.DirectoryID]; twice {
				return id, fmt.Errorf("Duplicate directory ID Optional[%v] found. It was the ID of %s, but also of %s", m.DirectoryID, other, dir)
			}
			owner[m.DirectoryID] = dir
		}
		id.dirs[dir] = m.DirectoryID
	}
	switch {
	case len(id.dirs) == 0:
		return id, fmt.Errorf("No readable meta.properties files found.\n"+
			"%s is not formatted. Make an id with `kafka-storage.sh random-uuid`, then run `kafka-storage.sh format -t ID -c server.properties`.", missing[0])
	case len(missing) > 0:
		return id, fmt.Errorf("No `meta.properties` found in %s (have you run `kafka-storage.sh` to format the directory?)\n"+
			"Run `kafka-storage.sh format --ignore-formatted -t %s -c server.properties` to format it, or take it out of log.dirs.", missing[0], id.clusterID)
	case id.clusterID == "":
		return id, errors.New("No cluster.id in meta.properties of any log directory: it was written by a version before KRaft")
	}
	return id, nil
}

// allDirs are the log directories and the metadata log's, each once.
func allDirs(c *config.Broker) []string {
	dirs := append([]string(nil), c.LogDirs...)
	for _, d := range dirs {
		if d == c.MetadataLogDir {
			return dirs
		}
	}
	return append(dirs, c.MetadataLogDir)
}

// lockError says who is in the way.
func lockError(dir string, err error) error {
	if errors.Is(err, vfs.ErrLocked) {
		return fmt.Errorf("Failed to acquire lock on file .lock in %s. A Kafka instance in another process or thread is using this directory.\n"+
			"Stop the process that holds %s/.lock, or give this node log.dirs of its own.", dir, dir)
	}
	return fmt.Errorf("open log directory %s: %w", dir, err)
}
