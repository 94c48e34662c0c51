package metadata

import (
	"fmt"

	"github.com/highwater/highwater/internal/schema"
)

// RemoveAccessControlEntryRecord: an entry goes.
func (d *Delta) replayRemoveAccessControlEntry(r *schema.RemoveAccessControlEntryRecord) error {
	if _, ok := d.img.acls.Delete(keyOf(r.ID)); !ok {
		return fmt.Errorf("there is no ACL with id %s", r.ID)
	}
	d.changes.acls.Set(keyOf(r.ID), r.ID)
	return nil
}
