package metadata

import (
	"fmt"

	"github.com/highwater/highwater/internal/schema"
)

// BeginTransactionRecord: what follows is visible to nobody before EndTransactionRecord.
func (d *Delta) replayBeginTransaction(r *schema.BeginTransactionRecord) error {
	if d.transaction != nil {
		return fmt.Errorf("metadata transaction %q is still open", d.transaction.name)
	}
	name := ""
	if r.Name != nil {
		name = *r.Name
	}
	// The record before this one ends the image: a snapshot of it must not claim to contain the begin.
	d.transaction = &transaction{name: name, changes: d.changes}
	d.transaction.img = d.freeze(d.at)
	d.changes = new(Changes)
	return nil
}
