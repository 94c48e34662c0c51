package metadata

import (
	"fmt"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/schema"
)

// UnregisterBrokerRecord: a broker is forgotten.
func (d *Delta) replayUnregisterBroker(r *schema.UnregisterBrokerRecord) error {
	if _, err := d.broker(r.BrokerID, r.BrokerEpoch, "unregister"); err != nil {
		return err
	}
	d.img.brokers.Delete(kafka.BrokerID(r.BrokerID))
	d.changes.brokers.Insert(kafka.BrokerID(r.BrokerID))
	return nil
}

// broker is a copy of a registration, which must have this epoch.
func (d *Delta) broker(id int32, epoch int64, action string) (*Broker, error) {
	b := d.img.Broker(kafka.BrokerID(id))
	if b == nil {
		return nil, fmt.Errorf("tried to %s broker %d, but that broker is not registered", action, id)
	}
	if b.Epoch != kafka.BrokerEpoch(epoch) {
		return nil, fmt.Errorf("tried to %s broker %d, but the given epoch %d is not its epoch %d", action, id, epoch, b.Epoch)
	}
	c := *b
	return &c, nil
}
