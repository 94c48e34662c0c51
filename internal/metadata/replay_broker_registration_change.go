package metadata

import (
	"fmt"

	"github.com/highwater/highwater/internal/schema"
)

// BrokerRegistrationChangeRecord: 1 and -1 in Fenced fence and unfence, 1 in InControlledShutdown begins that; log
// directories replace what was unless there are none, cordoned ones unless null.
func (d *Delta) replayBrokerRegistrationChange(r *schema.BrokerRegistrationChangeRecord) error {
	b, err := d.broker(r.BrokerID, r.BrokerEpoch, "change")
	if err != nil {
		return err
	}
	switch r.Fenced {
	case 0:
	case 1:
		b.Fenced = true
	case -1:
		b.Fenced = false
	default:
		return fmt.Errorf("unknown value %d of fenced", r.Fenced)
	}
	switch r.InControlledShutdown {
	case 0:
	case 1:
		b.ShuttingDown = true
	default:
		return fmt.Errorf("unknown value %d of inControlledShutdown", r.InControlledShutdown)
	}
	if len(r.LogDirs) > 0 {
		b.LogDirs = sortedIDs(r.LogDirs)
	}
	if r.CordonedLogDirs != nil {
		b.CordonedDirs = cordoned(r.CordonedLogDirs)
	}
	d.setBroker(b)
	return nil
}
