package metadata

import (
	"errors"

	"github.com/highwater/highwater/internal/schema"
)

// EndTransactionRecord: all of the transaction is visible now.
func (d *Delta) replayEndTransaction(*schema.EndTransactionRecord) error {
	if d.transaction == nil {
		return errors.New("no metadata transaction is open")
	}
	d.transaction.changes.add(d.changes)
	d.changes = d.transaction.changes
	d.transaction = nil
	return nil
}
