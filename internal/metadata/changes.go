package metadata

import (
	"iter"

	"github.com/tidwall/btree"

	"github.com/highwater/highwater/internal/kafka"
)

// Changes says what differs between two Images, in a fixed order: it names things; what they are now stands in the new
// Image and what they were in the old one.
type Changes struct {
	topics      btree.Map[idKey, *TopicChange]
	brokers     btree.Set[kafka.BrokerID]
	controllers btree.Set[kafka.BrokerID]
	features    btree.Set[string]
	configs     btree.Map[string, Resource]
	quotas      btree.Map[string, []QuotaEntity]
	acls        btree.Map[idKey, kafka.UUID]
	scram       btree.Map[string, ScramID]
	tokens      btree.Set[string]
	producerIDs bool
	zkMigration bool

	last *TopicChange // of topics: records of one topic come together
}

// TopicChange is what happened to one topic. A topic that was deleted and created again is two topics with one name.
type TopicChange struct {
	ID      kafka.TopicID
	Name    string
	Created bool // all its partitions are new
	Deleted bool

	partitions btree.Set[int32]
}

// Partitions goes through the numbers of the partitions that are new or changed, ascending. It is empty if the topic as a
// whole was created or deleted.
func (t *TopicChange) Partitions() iter.Seq[int32] { return keys(&t.partitions) }

// ScramID names a SCRAM credential.
type ScramID struct {
	Mechanism ScramMechanism
	User      string
}

func keys[K interface {
	~int8 | ~int32 | ~string
}](s *btree.Set[K]) iter.Seq[K] {
	return func(yield func(K) bool) { s.Scan(yield) }
}

// Topics goes through the topics that were created, deleted or have changed partitions, deleted ones first, then by id.
func (c *Changes) Topics() iter.Seq[*TopicChange] {
	return func(yield func(*TopicChange) bool) {
		for _, deleted := range []bool{true, false} {
			more := true
			c.topics.Scan(func(_ idKey, t *TopicChange) bool {
				if t.Deleted == deleted {
					more = yield(t)
				}
				return more
			})
			if !more {
				return
			}
		}
	}
}

// Topic is what happened to a topic, or nil.
func (c *Changes) Topic(id kafka.TopicID) *TopicChange {
	t, _ := c.topics.Get(keyOf(id))
	return t
}

// Brokers goes through the brokers that were registered, unregistered or changed.
func (c *Changes) Brokers() iter.Seq[kafka.BrokerID] { return keys(&c.brokers) }

// Controllers goes through the controllers that were registered, unregistered or changed.
func (c *Changes) Controllers() iter.Seq[kafka.BrokerID] { return keys(&c.controllers) }

// Features goes through the features whose level was finalized anew, metadata.version among them.
func (c *Changes) Features() iter.Seq[string] { return keys(&c.features) }

// MetadataVersion tells whether metadata.version was finalized anew.
func (c *Changes) MetadataVersion() bool { return c.features.Contains(MetadataVersionFeature) }

// Configs goes through the resources whose dynamic configs changed.
func (c *Changes) Configs() iter.Seq[Resource] { return values(&c.configs) }

// ClientQuotas goes through the entities whose quotas changed.
func (c *Changes) ClientQuotas() iter.Seq[[]QuotaEntity] { return values(&c.quotas) }

// ACLs goes through the ids of the entries that were added or removed.
func (c *Changes) ACLs() iter.Seq[kafka.UUID] { return values(&c.acls) }

// Scrams goes through the credentials that were set or removed.
func (c *Changes) Scrams() iter.Seq[ScramID] { return values(&c.scram) }

// DelegationTokens goes through the ids of the tokens that were made, changed or removed.
func (c *Changes) DelegationTokens() iter.Seq[string] { return keys(&c.tokens) }

// ProducerIDs tells whether a block of producer ids was given out.
func (c *Changes) ProducerIDs() bool { return c.producerIDs }

// Empty tells whether nothing changed.
func (c *Changes) Empty() bool {
	return c.topics.Len() == 0 && c.brokers.Len() == 0 && c.controllers.Len() == 0 && c.features.Len() == 0 && c.configs.Len() == 0 &&
		c.quotas.Len() == 0 && c.acls.Len() == 0 && c.scram.Len() == 0 && c.tokens.Len() == 0 && !c.producerIDs && !c.zkMigration
}

func (c *Changes) topicCreated(id kafka.TopicID, name string) {
	c.topics.Set(keyOf(id), &TopicChange{ID: id, Name: name, Created: true})
}

func (c *Changes) topicDeleted(id kafka.TopicID, name string) {
	c.last = nil
	if t, ok := c.topics.Get(keyOf(id)); ok && t.Created {
		c.topics.Delete(keyOf(id)) // nobody ever saw it
		return
	}
	c.topics.Set(keyOf(id), &TopicChange{ID: id, Name: name, Deleted: true})
}

func (c *Changes) partitionChanged(topic *Topic, partition int32) {
	t := c.last
	if t == nil || t.ID != topic.ID {
		var ok bool
		if t, ok = c.topics.Get(keyOf(topic.ID)); !ok {
			t = &TopicChange{ID: topic.ID, Name: topic.Name}
			c.topics.Set(keyOf(topic.ID), t)
		}
		c.last = t
	}
	if !t.Created {
		t.partitions.Insert(partition)
	}
}

// add appends what happened after c.
func (c *Changes) add(later *Changes) {
	later.topics.Scan(func(_ idKey, t *TopicChange) bool {
		switch {
		case t.Created:
			c.topicCreated(t.ID, t.Name)
		case t.Deleted:
			c.topicDeleted(t.ID, t.Name)
		default:
			t.partitions.Scan(func(p int32) bool {
				c.partitionChanged(&Topic{ID: t.ID, Name: t.Name}, p)
				return true
			})
		}
		return true
	})
	addSet(&c.brokers, &later.brokers)
	addSet(&c.controllers, &later.controllers)
	addSet(&c.features, &later.features)
	addMap(&c.configs, &later.configs)
	addMap(&c.quotas, &later.quotas)
	addMap(&c.acls, &later.acls)
	addMap(&c.scram, &later.scram)
	addSet(&c.tokens, &later.tokens)
	c.producerIDs = c.producerIDs || later.producerIDs
	c.zkMigration = c.zkMigration || later.zkMigration
}

func addSet[K interface {
	~int8 | ~int32 | ~string
}](to, from *btree.Set[K]) {
	from.Scan(func(k K) bool { to.Insert(k); return true })
}

func addMap[V any](to, from *btree.Map[string, V]) {
	from.Scan(func(k string, v V) bool { to.Set(k, v); return true })
}
