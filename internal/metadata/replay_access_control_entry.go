package metadata

import (
	"fmt"

	"github.com/highwater/highwater/internal/schema"
)

// AccessControlEntryRecord: an entry is added under its id.
func (d *Delta) replayAccessControlEntry(r *schema.AccessControlEntryRecord) error {
	if d.img.ACL(r.ID) != nil {
		return fmt.Errorf("an ACL with id %s exists already", r.ID)
	}
	d.img.acls.Set(keyOf(r.ID), &ACL{
		ID: r.ID, ResourceType: r.ResourceType, ResourceName: r.ResourceName, PatternType: r.PatternType,
		Principal: r.Principal, Host: r.Host, Operation: r.Operation, Permission: r.PermissionType,
	})
	d.changes.acls.Set(keyOf(r.ID), r.ID)
	return nil
}
