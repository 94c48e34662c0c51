package metadata

import (
	"fmt"

	"github.com/highwater/highwater/internal/schema"
)

// RemoveDelegationTokenRecord: a token goes.
func (d *Delta) replayRemoveDelegationToken(r *schema.RemoveDelegationTokenRecord) error {
	if _, ok := d.img.tokens.Delete(r.TokenID); !ok {
		return fmt.Errorf("there is no delegation token %s", r.TokenID)
	}
	d.changes.tokens.Insert(r.TokenID)
	return nil
}
