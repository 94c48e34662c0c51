package metadata

import (
	"fmt"

	"github.com/highwater/highwater/internal/schema"
)

// ProducerIdsRecord: a block of producer ids was given out; the next begins at NextProducerID.
func (d *Delta) replayProducerIds(r *schema.ProducerIdsRecord) error {
	if r.NextProducerID < d.img.producer {
		return fmt.Errorf("next producer id %d is below %d, which was given out already", r.NextProducerID, d.img.producer)
	}
	d.img.producer = r.NextProducerID
	d.changes.producerIDs = true
	return nil
}
