package controller

import (
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/schema"
)

// MaxRecords bounds what one operation may write: Kafka's maxRecordsPerBatch. Results that aren't atomic may have more;
// the loop cuts them.
const MaxRecords = 10000

// Rand is where random comes from: topic ids, and where replicas begin. *rand.Rand of math/rand/v2 is one.
type Rand interface {
	IntN(n int) int // in [0, n)
	Uint64() uint64
}

// Options are a controller's constants, named after Kafka's properties.
type Options struct {
	NodeID    kafka.BrokerID
	ClusterID string
	Rand      Rand
	// Config is the node's own file: it gives topics their defaults and groups their bounds.
	Config *config.Broker

	SessionTimeout                time.Duration // broker.session.timeout.ms
	MaxIdleInterval               time.Duration // metadata.max.idle.interval.ms; 0: no NoOpRecords
	LeaderImbalanceCheckInterval  time.Duration // leader.imbalance.check.interval.seconds; 0: auto.leader.rebalance.enable is off
	UncleanElectionCheckInterval  time.Duration // unclean.leader.election.interval.ms; 0: off
	DefaultReplicationFactor      int16
	NumPartitions                 int32
	DeleteTopicEnable             bool
	UnstableFeatureVersionsEnable bool
	// QuorumNodes are the ids of the voters, for the check that controllers know a feature; nil for this node alone.
	QuorumNodes []kafka.BrokerID
	// KRaftVersion is the level of kraft.version, which stands in the quorum's own records; nil: 0.
	KRaftVersion func() int16
	// CheckKRaftVersion tells whether the quorum would take a higher one; nil: it would not.
	CheckKRaftVersion func(level int16) error
}

// OptionsOf reads the options out of a node's configuration. ClusterID, Rand and QuorumNodes are the caller's.
func OptionsOf(b *config.Broker) Options {
	o := Options{
		NodeID: kafka.BrokerID(b.NodeID), Config: b,
		SessionTimeout:                b.Millis("broker.session.timeout.ms"),
		MaxIdleInterval:               b.Millis("metadata.max.idle.interval.ms"),
		UncleanElectionCheckInterval:  b.Millis("unclean.leader.election.interval.ms"),
		DefaultReplicationFactor:      int16(b.Int("default.replication.factor")),
		NumPartitions:                 int32(b.Int("num.partitions")),
		DeleteTopicEnable:             b.Bool("delete.topic.enable"),
		UnstableFeatureVersionsEnable: b.Bool("unstable.feature.versions.enable"),
	}
	if b.Bool("auto.leader.rebalance.enable") {
		o.LeaderImbalanceCheckInterval = time.Duration(b.Int("leader.imbalance.check.interval.seconds")) * time.Second
	}
	return o
}

// Record is a metadata record with the version to encode it at.
type Record struct {
	Message schema.Record
	Version int16
}

// Result is what an operation decided.
type Result struct {
	// KRaftVersion, if not 0, is the level to which the quorum raises kraft.version by a batch of its own, before the records.
	KRaftVersion int16
	// Records go to the log in this order; if Atomic all or none of them.
	Records []Record
	Atomic  bool
	// Response is due when the records, and all before them, are committed.
	Response kmsg.Response
	// Appended, if not nil, is to be called after Apply with the offset of the last record that was ever applied. It notes
	// in the Controller what depends on it.
	Appended func(last kafka.Offset)
}

// Context is what an operation needs to know beside its request.
type Context struct {
	Now time.Time
	// Authorized tells whether the principal may do the operation to a topic; nil: to all.
	Authorized func(topic string) bool
	// Direct: the request came on a controller's listener and was not forwarded by a broker.
	Direct bool
	// Describable tells whether the principal may see a topic exists (DeleteTopics) or its configs (CreateTopics); nil: all.
	Describable func(topic string) bool

	base []config.Entry // configs of a topic without any of its own, once they were needed
}

func (x *Context) authorized(topic string) bool  { return x.Authorized == nil || x.Authorized(topic) }
func (x *Context) describable(topic string) bool { return x.Describable == nil || x.Describable(topic) }

// Controller is the active controller of one epoch.
type Controller struct {
	opt   Options
	epoch kafka.LeaderEpoch
	delta *metadata.Delta
	next  kafka.Offset // of the next record

	heart    heartbeats
	names    collisions
	periodic periodic
}

// New begins an epoch on the committed image. next is the offset that the first record will have, if nobody else writes.
// The first thing to propose is Activate's Result.
func New(o Options, base *metadata.Image, epoch kafka.LeaderEpoch, next kafka.Offset, now time.Time) *Controller {
	c := &Controller{opt: o, epoch: epoch, delta: metadata.NewDelta(base), next: next}
	c.heart.begin(base, now)
	c.names.begin(base)
	c.periodic.begin(&c.opt, now)
	return c
}

// Epoch is the epoch that this Controller leads.
func (c *Controller) Epoch() kafka.LeaderEpoch { return c.epoch }

// Image is the working state: all that was decided, committed or not. It is valid until the next Apply.
func (c *Controller) Image() *metadata.Image { return c.delta.Image() }

// NextOffset is the offset of the next record.
func (c *Controller) NextOffset() kafka.Offset { return c.next }

// Apply takes records into the working state, those of one batch, in order. first is the offset that the log gave the
// first of them. An error means that the records contradict the state: a bug, after which the Controller must not go on.
func (c *Controller) Apply(first kafka.Offset, records []Record, now time.Time) error {
	for i, r := range records {
		if x, ok := r.Message.(*schema.RemoveTopicRecord); ok {
			c.names.remove(c.Image().TopicByID(x.TopicID))
		}
		at := first + kafka.Offset(i)
		if err := c.delta.Replay(metadata.Provenance{Offset: at, Epoch: c.epoch, Timestamp: now.UnixMilli()}, r.Message); err != nil {
			return err
		}
		c.heart.replay(at, r.Message, now)
		if x, ok := r.Message.(*schema.TopicRecord); ok {
			c.names.add(x.Name)
		}
	}
	c.next = first + kafka.Offset(len(records))
	return nil
}

// atomic is a Result whose records stand or fall together.
func atomic(records []Record, response kmsg.Response) Result {
	return Result{Records: records, Atomic: true, Response: response}
}

// version gives each kind of record the version that the cluster's metadata.version wants.
func (c *Controller) version(r schema.Record) Record {
	f := c.Image().MetadataVersion().Facts()
	v := int16(0)
	switch r := r.(type) {
	case *schema.PartitionRecord:
		v = f.PartitionRecordVersion
	case *schema.PartitionChangeRecord:
		v = f.PartitionChangeRecordVersion
	case *schema.RegisterBrokerRecord:
		v = f.RegisterBrokerRecordVersion
	case *schema.BrokerRegistrationChangeRecord:
		switch { // by what it says, as Kafka does
		case r.CordonedLogDirs != nil:
			v = 3
		case len(r.LogDirs) > 0:
			v = 2
		case r.InControlledShutdown != 0:
			v = 1
		}
	}
	return Record{r, v}
}

// registration is what is known of a broker, or nil.
func (c *Controller) registration(id kafka.BrokerID) *metadata.Broker { return c.Image().Broker(id) }

// active tells whether a broker may be in an ISR.
func (c *Controller) active(id kafka.BrokerID) bool {
	b := c.registration(id)
	return b != nil && b.Active()
}

// mayLead tells whether a broker's replica of p may lead: broker active, directory online.
func (c *Controller) mayLead(id kafka.BrokerID, p *metadata.Partition) bool {
	b := c.registration(id)
	return b != nil && b.Active() && b.HasDirectory(p.Directory(id))
}

// defaultDir is where a new replica of a broker lies: its only directory, or one that the broker will tell.
func (c *Controller) defaultDir(id kafka.BrokerID) kafka.DirectoryID {
	b := c.registration(id)
	switch {
	case b == nil:
		return kafka.DirUnassigned
	case len(b.LogDirs) == 0:
		return kafka.DirMigrating
	case len(b.LogDirs) == 1:
		return b.LogDirs[0]
	}
	return kafka.DirUnassigned
}

// checkBrokerEpoch refuses what a superseded or unknown process asks.
func (c *Controller) checkBrokerEpoch(id int32, epoch int64) error {
	b := c.registration(kafka.BrokerID(id))
	if b == nil {
		return kerr.StaleBrokerEpoch.With("No broker registration found for broker id %d", id)
	}
	if int64(b.Epoch) != epoch {
		return kerr.StaleBrokerEpoch.With("Expected broker epoch %d, but got broker epoch %d", b.Epoch, epoch)
	}
	return nil
}

// layers are the places where a topic's configs come from, the topic's own aside.
func (c *Controller) layers() config.Layers {
	img := c.Image()
	return config.Layers{
		Node:    entries(img.Config(metadata.Resource{Type: metadata.ResourceBroker, Name: strconv.Itoa(int(c.opt.NodeID))})),
		Cluster: entries(img.Config(metadata.Resource{Type: metadata.ResourceBroker})),
		Static:  c.static(),
	}
}

func (c *Controller) static() map[string]string {
	if c.opt.Config == nil {
		return nil
	}
	return c.opt.Config.StaticMap()
}

func entries(of *metadata.Config) map[string]string {
	m := make(map[string]string)
	if of != nil {
		for _, e := range of.Entries {
			m[e.Name] = e.Value
		}
	}
	return m
}

// topicConfig is one effective config of a topic, without making maps. A stored value that cannot be used counts as absent,
// as it does on brokers.
func (c *Controller) topicConfig(topic string, k *config.Key) config.Value {
	img := c.Image()
	if v, ok := img.ConfigValue(metadata.Resource{Type: metadata.ResourceTopic, Name: topic}, k.Name); ok {
		if v, _, err := k.ParseStored(v); err == nil {
			return v
		}
	}
	if len(k.Synonyms) == 1 && k.Synonyms[0].Factor == 1 {
		name := k.Synonyms[0].Name
		for _, broker := range []string{strconv.Itoa(int(c.opt.NodeID)), ""} {
			if v, ok := img.ConfigValue(metadata.Resource{Type: metadata.ResourceBroker, Name: broker}, name); ok {
				if v, _, err := k.ParseStored(v); err == nil {
					return v
				}
			}
		}
		if c.opt.Config != nil {
			if v, ok := c.opt.Config.Static(name); ok {
				if v, err := k.Parse(v); err == nil {
					return v
				}
			}
		}
	}
	return k.DefaultValue()
}

// minISR is min.insync.replicas as far as the partition has replicas. (Kafka's controller takes the replicas of partition
// 0; its brokers, which enforce it, those of the partition.)
func (c *Controller) minISR(topic string, p *metadata.Partition) int {
	return min(int(c.topicConfig(topic, minISRTopicKey).Int), len(p.Replicas))
}

var (
	minISRTopicKey  = config.TopicTable.Lookup(minISRKey)
	uncleanTopicKey = config.TopicTable.Lookup("unclean.leader.election.enable")
)

// uncleanElection tells whether a topic may have a leader that isn't in sync.
func (c *Controller) uncleanElection(topic string) bool {
	return c.topicConfig(topic, uncleanTopicKey).Bool
}

// randomID is a topic id that none has.
func (c *Controller) randomID() kafka.TopicID {
	for {
		var b [16]byte
		hi, lo := c.opt.Rand.Uint64(), c.opt.Rand.Uint64()
		for i := range 8 {
			b[i], b[8+i] = byte(hi>>(8*i)), byte(lo>>(8*i))
		}
		if id, ok := kafka.RandomUUID(b); ok && c.Image().TopicByID(id) == nil {
			return id
		}
	}
}

// partitionRecord is a new partition.
func (c *Controller) partitionRecord(topic kafka.TopicID, id int32, replicas, isr []kafka.BrokerID) Record {
	r := schema.NewPartitionRecord()
	r.PartitionID, r.TopicID = id, topic
	r.Replicas, r.ISR = int32s(replicas), int32s(isr)
	r.RemovingReplicas, r.AddingReplicas = []int32{}, []int32{}
	r.Leader, r.LeaderRecoveryState, r.LeaderEpoch, r.PartitionEpoch = int32(isr[0]), int8(metadata.Recovered), 0, 0
	if c.Image().MetadataVersion().Facts().DirectoryAssignmentSupported {
		r.Directories = make([]kafka.DirectoryID, len(replicas))
		for i, b := range replicas {
			r.Directories[i] = c.defaultDir(b)
		}
	}
	return c.version(r)
}

// activeOf are those of replicas that may be in an ISR.
func (c *Controller) activeOf(replicas []kafka.BrokerID) []kafka.BrokerID {
	var out []kafka.BrokerID
	for _, id := range replicas {
		if c.active(id) {
			out = append(out, id)
		}
	}
	return out
}

// setError puts an error into a response's fields.
func setError(code *int16, message **string, err error) {
	*code, *message = kerr.Code(err), kerr.Message(err)
}
