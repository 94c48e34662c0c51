package metadata

import "github.com/highwater/highwater/internal/schema"

// FenceBrokerRecord: the form of 3.0 for what BrokerRegistrationChangeRecord says now.
func (d *Delta) replayFenceBroker(r *schema.FenceBrokerRecord) error {
	b, err := d.broker(r.ID, r.Epoch, "fence")
	if err != nil {
		return err
	}
	b.Fenced = true
	d.setBroker(b)
	return nil
}
