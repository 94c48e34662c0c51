package metadata

import (
	"fmt"

	"github.com/highwater/highwater/internal/schema"
)

// RemoveTopicRecord: the topic goes with its partitions and its configs.
func (d *Delta) replayRemoveTopic(r *schema.RemoveTopicRecord) error {
	t := d.img.TopicByID(r.TopicID)
	if t == nil {
		return fmt.Errorf("there is no topic with id %s", r.TopicID)
	}
	d.last = nil
	d.img.topicsByID.Delete(keyOf(t.ID))
	d.img.topics.Delete(t.Name)
	d.img.partitions -= t.count
	d.changes.topicDeleted(t.ID, t.Name)
	if res := (Resource{ResourceTopic, t.Name}); d.img.Config(res) != nil {
		d.img.configs.Delete(res.key())
		d.changes.configs.Set(res.key(), res)
	}
	return nil
}
