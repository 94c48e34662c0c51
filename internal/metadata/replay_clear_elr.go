package metadata

import (
	"fmt"

	"github.com/highwater/highwater/internal/schema"
)

// ClearElrRecord: forget the eligible and the last known leader replicas of a topic, or of all if it names none.
func (d *Delta) replayClearElr(r *schema.ClearElrRecord) error {
	if r.TopicName != "" {
		t := d.img.Topic(r.TopicName)
		if t == nil {
			return fmt.Errorf("there is no topic %s", r.TopicName)
		}
		return d.clearElr(t)
	}
	var affected []*Topic
	for t := range d.img.Topics() {
		affected = append(affected, t)
	}
	for _, t := range affected {
		if err := d.clearElr(t); err != nil {
			return err
		}
	}
	return nil
}

func (d *Delta) clearElr(t *Topic) error {
	var ids []int32
	for id, p := range t.Partitions() {
		if len(p.ELR) > 0 || len(p.LastKnownELR) > 0 {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	t = d.own(t)
	for _, id := range ids {
		p, _ := t.Partition(id)
		p.ELR, p.LastKnownELR = nil, nil
		p.PartitionEpoch++ // it counts as a change of the partition
		if err := d.setPartition(t, id, &p); err != nil {
			return err
		}
	}
	return nil
}
