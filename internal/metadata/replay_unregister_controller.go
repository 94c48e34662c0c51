package metadata

import (
	"fmt"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/schema"
)

// UnregisterControllerRecord: a controller is forgotten.
func (d *Delta) replayUnregisterController(r *schema.UnregisterControllerRecord) error {
	id := kafka.BrokerID(r.ControllerID)
	if d.img.Controller(id) == nil {
		return fmt.Errorf("tried to unregister controller %d, but that controller is not registered", id)
	}
	d.img.controllers.Delete(id)
	d.changes.controllers.Insert(id)
	return nil
}
