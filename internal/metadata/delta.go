package metadata

import (
	"errors"
	"fmt"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/schema"
)

// Delta replays records onto a working copy of an Image. After an error it must be dropped.
type Delta struct {
	img     *Image   // the working copy
	changes *Changes // since the last Apply, or since the open transaction began
	at      Provenance
	token   *token   // marks what this Delta made since the last freeze
	dirty   []*Topic // the topics among that
	last    *Topic   // one of them: records of one topic come together

	transaction *transaction

	partition schema.PartitionRecord // to decode into
}

// transaction is what stood before an open metadata transaction.
type transaction struct {
	name    string
	img     *Image
	changes *Changes
}

// ReplayError says which record could not be replayed.
type ReplayError struct {
	Offset kafka.Offset
	Record string // type, "" if it could not even be told
	Err    error
}

func (e *ReplayError) Error() string {
	what := e.Record
	if what == "" {
		what = "record"
	}
	return fmt.Sprintf("replay %s at offset %d: %v", what, e.Offset, e.Err)
}

func (e *ReplayError) Unwrap() error { return e.Err }

// NewDelta begins at an image.
func NewDelta(base *Image) *Delta {
	return &Delta{img: base.fork(), changes: new(Changes), at: base.provenance, token: new(token)}
}

// Image is the working copy, with all that was replayed, an open transaction's records too. It is for the active
// controller, which must see what it decided itself; it may be read until the next call of any other method.
func (d *Delta) Image() *Image { return d.img }

// InTransaction tells whether a metadata transaction is open.
func (d *Delta) InTransaction() bool { return d.transaction != nil }

// At is the position of the last record or Skip.
func (d *Delta) At() Provenance { return d.at }

// Skip says that the log has something at this position that is no metadata record: a control record.
func (d *Delta) Skip(at Provenance) { d.at = at }

// ReplayBytes replays a record's value as it stands in the log.
func (d *Delta) ReplayBytes(at Provenance, value []byte) error {
	id, version, body, err := schema.ReadFrameHeader(value)
	if err != nil {
		return &ReplayError{at.Offset, "", err}
	}
	if id == schema.IDPartitionRecord { // by far the most frequent: no allocation for the record itself
		if err := schema.ReadAll(&d.partition, body, version); err != nil {
			return &ReplayError{at.Offset, "PartitionRecord", err}
		}
		return d.Replay(at, &d.partition)
	}
	t := schema.Lookup(schema.LogMetadata, "record", id)
	if t == nil {
		return &ReplayError{at.Offset, "", &schema.VersionError{Log: schema.LogMetadata, ID: id, Version: version}}
	}
	r := t.New()
	if err := schema.ReadAll(r, body, version); err != nil {
		return &ReplayError{at.Offset, t.Name, err}
	}
	return d.Replay(at, r)
}

// Replay replays one record. It keeps nothing of r.
func (d *Delta) Replay(at Provenance, r schema.Record) error {
	if err := d.replay(r); err != nil {
		return &ReplayError{at.Offset, r.Info().Name, err}
	}
	d.at = at
	return nil
}

func (d *Delta) replay(r schema.Record) error {
	switch r := r.(type) {
	case *schema.PartitionRecord:
		return d.replayPartition(r)
	case *schema.PartitionChangeRecord:
		return d.replayPartitionChange(r)
	case *schema.TopicRecord:
		return d.replayTopic(r)
	case *schema.RemoveTopicRecord:
		return d.replayRemoveTopic(r)
	case *schema.ClearElrRecord:
		return d.replayClearElr(r)
	case *schema.ConfigRecord:
		return d.replayConfig(r)
	case *schema.RegisterBrokerRecord:
		return d.replayRegisterBroker(r)
	case *schema.UnregisterBrokerRecord:
		return d.replayUnregisterBroker(r)
	case *schema.BrokerRegistrationChangeRecord:
		return d.replayBrokerRegistrationChange(r)
	case *schema.FenceBrokerRecord:
		return d.replayFenceBroker(r)
	case *schema.UnfenceBrokerRecord:
		return d.replayUnfenceBroker(r)
	case *schema.RegisterControllerRecord:
		return d.replayRegisterController(r)
	case *schema.UnregisterControllerRecord:
		return d.replayUnregisterController(r)
	case *schema.FeatureLevelRecord:
		return d.replayFeatureLevel(r)
	case *schema.ClientQuotaRecord:
		return d.replayClientQuota(r)
	case *schema.ProducerIdsRecord:
		return d.replayProducerIds(r)
	case *schema.AccessControlEntryRecord:
		return d.replayAccessControlEntry(r)
	case *schema.RemoveAccessControlEntryRecord:
		return d.replayRemoveAccessControlEntry(r)
	case *schema.UserScramCredentialRecord:
		return d.replayUserScramCredential(r)
	case *schema.RemoveUserScramCredentialRecord:
		return d.replayRemoveUserScramCredential(r)
	case *schema.DelegationTokenRecord:
		return d.replayDelegationToken(r)
	case *schema.RemoveDelegationTokenRecord:
		return d.replayRemoveDelegationToken(r)
	case *schema.NoOpRecord:
		return d.replayNoOp(r)
	case *schema.ZkMigrationStateRecord:
		return d.replayZkMigrationState(r)
	case *schema.BeginTransactionRecord:
		return d.replayBeginTransaction(r)
	case *schema.EndTransactionRecord:
		return d.replayEndTransaction(r)
	case *schema.AbortTransactionRecord:
		return d.replayAbortTransaction(r)
	}
	return errors.New("no such metadata record")
}

// Apply gives the image of all that was replayed and is whole, and what changed since the last Apply (or NewDelta). In
// an open transaction that is the state before its begin. The Delta goes on from there.
func (d *Delta) Apply() (*Image, *Changes) {
	if t := d.transaction; t != nil {
		c := t.changes
		t.changes = new(Changes)
		return t.img, c
	}
	img, c := d.freeze(d.at), d.changes
	d.changes = new(Changes)
	return img, c
}

// freeze makes the working copy an Image that never changes again, and begins a new working copy.
func (d *Delta) freeze(at Provenance) *Image {
	for _, t := range d.dirty {
		for _, c := range t.chunks {
			if c != nil && c.owner == d.token {
				c.trim()
			}
		}
	}
	img := d.img
	img.provenance = at
	d.begin(img)
	return img
}

func (d *Delta) begin(img *Image) {
	d.img, d.token, d.dirty, d.last = img.fork(), new(token), nil, nil
}

// topic is a topic that may be changed in place.
func (d *Delta) topic(id kafka.TopicID) (*Topic, error) {
	if d.last != nil && d.last.ID == id {
		return d.last, nil
	}
	t := d.img.TopicByID(id)
	if t == nil {
		return nil, fmt.Errorf("there is no topic with id %s", id)
	}
	return d.own(t), nil
}

func (d *Delta) own(t *Topic) *Topic {
	if t.owner != d.token {
		n := *t
		n.owner = d.token
		n.chunks = append(make([]*chunk, 0, len(t.chunks)), t.chunks...)
		d.put(&n)
		t = &n
	}
	d.last = t
	return t
}

// put makes t, which this Delta owns, the topic of its name and id.
func (d *Delta) put(t *Topic) {
	d.img.topics.Set(t.Name, t)
	d.img.topicsByID.Set(keyOf(t.ID), t)
	d.dirty = append(d.dirty, t)
}

// setPartition stores the state of a partition.
func (d *Delta) setPartition(t *Topic, id int32, p *Partition) error {
	n := t.count
	if err := t.set(id, p, d.token); err != nil {
		return err
	}
	d.img.partitions += t.count - n
	d.changes.partitionChanged(t, id)
	return nil
}
