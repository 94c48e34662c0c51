package metadata

import (
	"fmt"

	"github.com/highwater/highwater/internal/schema"
)

// TopicRecord: a topic without partitions yet; they follow.
func (d *Delta) replayTopic(r *schema.TopicRecord) error {
	if t := d.img.Topic(r.Name); t != nil {
		return fmt.Errorf("topic %s exists already, with id %s", r.Name, t.ID)
	}
	if t := d.img.TopicByID(r.TopicID); t != nil {
		return fmt.Errorf("topic id %s belongs to topic %s already", r.TopicID, t.Name)
	}
	t := &Topic{Name: r.Name, ID: r.TopicID, owner: d.token}
	d.put(t)
	d.last = t
	d.changes.topicCreated(t.ID, t.Name)
	return nil
}
