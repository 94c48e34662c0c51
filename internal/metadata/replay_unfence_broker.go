package metadata

import "github.com/highwater/highwater/internal/schema"

// UnfenceBrokerRecord: the form of 3.0 for what BrokerRegistrationChangeRecord says now.
func (d *Delta) replayUnfenceBroker(r *schema.UnfenceBrokerRecord) error {
	b, err := d.broker(r.ID, r.Epoch, "unfence")
	if err != nil {
		return err
	}
	b.Fenced = false
	d.setBroker(b)
	return nil
}
