package metadata

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/tidwall/btree"

	"github.com/highwater/highwater/internal/kafka"
)

// Diff says what changed from one Image to another, whatever lies between them. It costs a walk over both, but what they
// share topic by topic is skipped; it is for loading a snapshot.
func Diff(from, to *Image) *Changes {
	c := new(Changes)
	if from.version != to.version {
		c.features.Insert(MetadataVersionFeature)
	}
	diff(&from.features, &to.features, func(a, b int16) bool { return a == b }, func(k string, _, _ *int16) { c.features.Insert(k) })
	c.zkMigration = from.zkMigration != to.zkMigration
	c.producerIDs = from.producer != to.producer
	diff(&from.brokers, &to.brokers, (*Broker).equal, func(id kafka.BrokerID, _, _ **Broker) { c.brokers.Insert(id) })
	diff(&from.controllers, &to.controllers, (*Controller).equal, func(id kafka.BrokerID, _, _ **Controller) { c.controllers.Insert(id) })
	diff(&from.topicsByID, &to.topicsByID, func(a, b *Topic) bool { return a == b }, func(_ idKey, a, b **Topic) {
		switch {
		case a == nil:
			c.topicCreated((*b).ID, (*b).Name)
		case b == nil:
			c.topicDeleted((*a).ID, (*a).Name)
		default:
			diffTopic(c, *a, *b)
		}
	})
	diff(&from.configs, &to.configs, (*Config).equal, func(k string, a, b **Config) { c.configs.Set(k, either(a, b).Resource) })
	diff(&from.quotas, &to.quotas, (*ClientQuota).equal, func(k string, a, b **ClientQuota) { c.quotas.Set(k, either(a, b).Entity) })
	diff(&from.acls, &to.acls, func(a, b *ACL) bool { return *a == *b }, func(k idKey, a, b **ACL) { c.acls.Set(k, either(a, b).ID) })
	diff(&from.scram, &to.scram, (*ScramCredential).equal, func(k string, a, b **ScramCredential) {
		x := either(a, b)
		c.scram.Set(k, ScramID{x.Mechanism, x.User})
	})
	diff(&from.tokens, &to.tokens, (*DelegationToken).equal, func(k string, _, _ **DelegationToken) { c.tokens.Insert(k) })
	return c
}

// Equal tells whether two Images say the same, whatever their provenance.
func Equal(a, b *Image) bool { return Diff(a, b).Empty() }

func either[T any](a, b **T) *T {
	if b != nil {
		return *b
	}
	return *a
}

// diff walks two maps together and calls changed for each key whose values differ; a missing one is nil.
func diff[K cmp.Ordered, V any](from, to *btree.Map[K, V], same func(a, b V) bool, changed func(k K, a, b *V)) {
	a, b := from.Iter(), to.Iter()
	inA, inB := a.First(), b.First()
	for inA || inB {
		switch {
		case inA && (!inB || a.Key() < b.Key()):
			v := a.Value()
			changed(a.Key(), &v, nil)
			inA = a.Next()
		case inB && (!inA || b.Key() < a.Key()):
			v := b.Value()
			changed(b.Key(), nil, &v)
			inB = b.Next()
		default:
			v, w := a.Value(), b.Value()
			if !same(v, w) {
				changed(a.Key(), &v, &w)
			}
			inA, inB = a.Next(), b.Next()
		}
	}
}

// diffTopic finds the partitions that differ between two states of one topic, and its recreation under another name.
func diffTopic(c *Changes, a, b *Topic) {
	if a.Name != b.Name { // no record renames a topic, but two snapshots of different clusters may
		c.topicDeleted(a.ID, a.Name)
		c.topicCreated(b.ID, b.Name)
		return
	}
	chunkOf := func(t *Topic, n int) *chunk {
		if n < len(t.chunks) {
			return t.chunks[n]
		}
		return nil
	}
	for n := range max(len(a.chunks), len(b.chunks)) {
		if chunkOf(a, n) == chunkOf(b, n) {
			continue
		}
		for i := range chunkSize {
			id := int32(n<<chunkBits | i)
			p, inA := a.Partition(id)
			q, inB := b.Partition(id)
			if inA != inB || !p.Equal(&q) {
				c.partitionChanged(b, id)
			}
		}
	}
}

func (b *Broker) equal(o *Broker) bool {
	return b == o || b.ID == o.ID && b.Epoch == o.Epoch && b.Incarnation == o.Incarnation && equalText(b.Rack, o.Rack) &&
		b.Fenced == o.Fenced && b.ShuttingDown == o.ShuttingDown && b.MigratingZk == o.MigratingZk &&
		slices.Equal(b.Endpoints, o.Endpoints) && slices.Equal(b.Features, o.Features) &&
		slices.Equal(b.LogDirs, o.LogDirs) && slices.Equal(b.CordonedDirs, o.CordonedDirs) && (b.CordonedDirs == nil) == (o.CordonedDirs == nil)
}

func equalText(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }

func (c *Controller) equal(o *Controller) bool {
	return c == o || c.ID == o.ID && c.Incarnation == o.Incarnation && c.ZkMigrationReady == o.ZkMigrationReady &&
		slices.Equal(c.Endpoints, o.Endpoints) && slices.Equal(c.Features, o.Features)
}

func (c *Config) equal(o *Config) bool {
	return c == o || c.Resource == o.Resource && slices.Equal(c.Entries, o.Entries)
}

func (q *ClientQuota) equal(o *ClientQuota) bool {
	return q == o || slices.EqualFunc(q.Entity, o.Entity, func(a, b QuotaEntity) bool { return a.Type == b.Type && equalText(a.Name, b.Name) }) &&
		slices.EqualFunc(q.Values, o.Values, func(a, b QuotaValue) bool {
			return a.Key == b.Key && math.Float64bits(a.Value) == math.Float64bits(b.Value)
		})
}

func (c *ScramCredential) equal(o *ScramCredential) bool {
	return c == o || c.User == o.User && c.Mechanism == o.Mechanism && c.Iterations == o.Iterations &&
		bytes.Equal(c.Salt, o.Salt) && bytes.Equal(c.StoredKey, o.StoredKey) && bytes.Equal(c.ServerKey, o.ServerKey)
}

func (t *DelegationToken) equal(o *DelegationToken) bool {
	return t == o || t.ID == o.ID && t.Owner == o.Owner && t.Requester == o.Requester && slices.Equal(t.Renewers, o.Renewers) &&
		t.Issued == o.Issued && t.MaxTime == o.MaxTime && t.Expiration == o.Expiration
}
