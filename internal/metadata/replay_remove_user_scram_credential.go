package metadata

import (
	"fmt"

	"github.com/highwater/highwater/internal/schema"
)

// RemoveUserScramCredentialRecord: a user's credential of one mechanism goes.
func (d *Delta) replayRemoveUserScramCredential(r *schema.RemoveUserScramCredentialRecord) error {
	m, err := scramMechanism(r.Mechanism)
	if err != nil {
		return err
	}
	if _, ok := d.img.scram.Delete(scramKey(m, r.Name)); !ok {
		return fmt.Errorf("user %s has no SCRAM credential of mechanism %d", r.Name, m)
	}
	d.changes.scram.Set(scramKey(m, r.Name), ScramID{m, r.Name})
	return nil
}
