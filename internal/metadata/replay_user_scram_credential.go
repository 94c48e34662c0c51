package metadata

import (
	"bytes"
	"fmt"

	"github.com/highwater/highwater/internal/schema"
)

// UserScramCredentialRecord: a user's credential of one mechanism is set.
func (d *Delta) replayUserScramCredential(r *schema.UserScramCredentialRecord) error {
	m, err := scramMechanism(r.Mechanism)
	if err != nil {
		return err
	}
	c := &ScramCredential{
		User: r.Name, Mechanism: m, Iterations: r.Iterations,
		Salt: bytes.Clone(r.Salt), StoredKey: bytes.Clone(r.StoredKey), ServerKey: bytes.Clone(r.ServerKey),
	}
	d.img.scram.Set(scramKey(m, c.User), c)
	d.changes.scram.Set(scramKey(m, c.User), ScramID{m, c.User})
	return nil
}

func scramMechanism(n int8) (ScramMechanism, error) {
	m := ScramMechanism(n)
	if m != ScramSHA256 && m != ScramSHA512 {
		return 0, fmt.Errorf("unknown SCRAM mechanism %d", n)
	}
	return m, nil
}
