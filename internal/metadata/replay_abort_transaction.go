package metadata

import (
	"errors"

	"github.com/highwater/highwater/internal/schema"
)

// AbortTransactionRecord: all is as it was before the transaction.
func (d *Delta) replayAbortTransaction(*schema.AbortTransactionRecord) error {
	if d.transaction == nil {
		return errors.New("no metadata transaction is open")
	}
	d.begin(d.transaction.img)
	d.changes = d.transaction.changes
	d.transaction = nil
	return nil
}
