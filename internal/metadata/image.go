package metadata

import (
	"cmp"
	"iter"
	"slices"

	"github.com/tidwall/btree"

	"github.com/highwater/highwater/internal/kafka"
)

// Provenance says up to which record of the metadata log something reaches. A snapshot of an Image is named by it:
// offset Offset+1, epoch Epoch.
type Provenance struct {
	Offset    kafka.Offset      // of the last record contained, -1 for none
	Epoch     kafka.LeaderEpoch // of that record
	Timestamp int64             // of that record's batch, in milliseconds
}

// NoProvenance is that of the empty image.
var NoProvenance = Provenance{Offset: -1, Epoch: 0, Timestamp: 0}

// SnapshotID is the end offset and epoch that a snapshot of this state has.
func (p Provenance) SnapshotID() kafka.OffsetAndEpoch {
	return kafka.OffsetAndEpoch{Offset: p.Offset + 1, Epoch: p.Epoch}
}

// Image is the whole metadata at one offset. It is immutable.
type Image struct {
	provenance Provenance

	version     Version // metadata.version, 0 if there is none yet
	features    btree.Map[string, int16]
	zkMigration int8 // last ZkMigrationStateRecord

	brokers     btree.Map[kafka.BrokerID, *Broker]
	controllers btree.Map[kafka.BrokerID, *Controller]

	topics     btree.Map[string, *Topic]
	topicsByID btree.Map[idKey, *Topic]
	partitions int

	configs  btree.Map[string, *Config]
	quotas   btree.Map[string, *ClientQuota]
	producer kafka.ProducerID // the next block begins here; -1 if no block was ever given out
	acls     btree.Map[idKey, *ACL]
	scram    btree.Map[string, *ScramCredential]
	tokens   btree.Map[string, *DelegationToken]
}

// idKey is an id as something that a btree can order: its bytes.
type idKey = string

func keyOf(id kafka.UUID) idKey { return string(id[:]) }

var empty = &Image{provenance: NoProvenance, producer: -1}

// Empty is the image before the first record.
func Empty() *Image { return empty }

// fork is a copy that may be changed without i's seeing it. It only reads i, so any number of goroutines may fork one
// image. Each Copy gives the fork's tree an identity that owns none of the shared nodes.
func (i *Image) fork() *Image {
	n := *i
	n.features = *n.features.Copy()
	n.brokers = *n.brokers.Copy()
	n.controllers = *n.controllers.Copy()
	n.topics = *n.topics.Copy()
	n.topicsByID = *n.topicsByID.Copy()
	n.configs = *n.configs.Copy()
	n.quotas = *n.quotas.Copy()
	n.acls = *n.acls.Copy()
	n.scram = *n.scram.Copy()
	n.tokens = *n.tokens.Copy()
	return &n
}

func values[K cmp.Ordered, V any](m *btree.Map[K, V]) iter.Seq[V] {
	return func(yield func(V) bool) {
		m.Scan(func(_ K, v V) bool { return yield(v) })
	}
}

// Provenance says up to which record the image reaches.
func (i *Image) Provenance() Provenance { return i.provenance }

// IsEmpty tells whether no record at all was replayed.
func (i *Image) IsEmpty() bool { return i.provenance == NoProvenance && i.version == 0 }

// MetadataVersion is the finalized metadata.version, or 0 before the first FeatureLevelRecord of it.
func (i *Image) MetadataVersion() Version { return i.version }

// FeatureLevel is the finalized level of a feature, 0 if it has none.
func (i *Image) FeatureLevel(name string) int16 {
	if name == MetadataVersionFeature {
		return int16(i.version)
	}
	l, _ := i.features.Get(name)
	return l
}

// Features goes through the finalized features above level 0 by name, metadata.version among them.
func (i *Image) Features() iter.Seq2[string, int16] {
	return func(yield func(string, int16) bool) {
		told := i.version == 0
		more := true
		i.features.Scan(func(name string, level int16) bool {
			if !told && name > MetadataVersionFeature {
				told = true
				if more = yield(MetadataVersionFeature, int16(i.version)); !more {
					return false
				}
			}
			more = yield(name, level)
			return more
		})
		if more && !told {
			yield(MetadataVersionFeature, int16(i.version))
		}
	}
}

// ELREnabled tells whether eligible leader replicas are kept (eligible.leader.replicas.version ≥ 1).
func (i *Image) ELREnabled() bool { return i.FeatureLevel(EligibleLeaderReplicasVersionFeature) >= 1 }

// ZkMigrationState is that of the last ZkMigrationStateRecord, 0 if there was none: 4.x has no use for it, but a
// cluster that goes back to 3.x has.
func (i *Image) ZkMigrationState() int8 { return i.zkMigration }

// Endpoint is where a listener of a broker or controller is reached.
type Endpoint struct {
	Name     string // of the listener
	Host     string
	Port     uint16
	Protocol int16 // 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL
}

// SupportedFeature is the range of a feature's levels that a node supports.
type SupportedFeature struct {
	Name     string
	Min, Max int16
}

// Broker is a registered broker.
type Broker struct {
	ID           kafka.BrokerID
	Epoch        kafka.BrokerEpoch
	Incarnation  kafka.UUID
	Endpoints    []Endpoint         // by name
	Features     []SupportedFeature // by name
	Rack         *string
	Fenced       bool
	ShuttingDown bool // in controlled shutdown
	MigratingZk  bool // registered by a broker in ZooKeeper mode, 3.4 to 3.9
	LogDirs      []kafka.DirectoryID
	// CordonedDirs take no new replicas (4.3); nil if the broker didn't tell yet, which is not the same as none.
	CordonedDirs []kafka.DirectoryID
}

// Endpoint finds the endpoint of a listener.
func (b *Broker) Endpoint(listener string) (Endpoint, bool) {
	return findEndpoint(b.Endpoints, listener)
}

// Active tells whether the broker may lead: neither fenced nor shutting down.
func (b *Broker) Active() bool { return !b.Fenced && !b.ShuttingDown }

// HasDirectory tells whether the broker has a log directory online; so may every broker that doesn't tell (before
// 3.7-IV2), and every broker for the reserved ids.
func (b *Broker) HasDirectory(id kafka.DirectoryID) bool {
	return id == kafka.DirUnassigned || id == kafka.DirMigrating || len(b.LogDirs) == 0 && id != kafka.DirLost || slices.Contains(b.LogDirs, id)
}

// Controller is a registered controller.
type Controller struct {
	ID               kafka.BrokerID
	Incarnation      kafka.UUID
	ZkMigrationReady bool
	Endpoints        []Endpoint
	Features         []SupportedFeature
}

// Endpoint finds the endpoint of a listener.
func (c *Controller) Endpoint(listener string) (Endpoint, bool) {
	return findEndpoint(c.Endpoints, listener)
}

func findEndpoint(of []Endpoint, listener string) (Endpoint, bool) {
	for _, e := range of {
		if e.Name == listener {
			return e, true
		}
	}
	return Endpoint{}, false
}

// Broker is the registration of a broker, or nil.
func (i *Image) Broker(id kafka.BrokerID) *Broker {
	b, _ := i.brokers.Get(id)
	return b
}

// Brokers goes through the brokers by id.
func (i *Image) Brokers() iter.Seq[*Broker] { return values(&i.brokers) }

// NumBrokers counts the registered brokers.
func (i *Image) NumBrokers() int { return i.brokers.Len() }

// Controller is the registration of a controller, or nil.
func (i *Image) Controller(id kafka.BrokerID) *Controller {
	c, _ := i.controllers.Get(id)
	return c
}

// Controllers goes through the registered controllers by id.
func (i *Image) Controllers() iter.Seq[*Controller] { return values(&i.controllers) }

// NumControllers counts the registered controllers.
func (i *Image) NumControllers() int { return i.controllers.Len() }

// Topic finds a topic by name; nil if there is none.
func (i *Image) Topic(name string) *Topic {
	t, _ := i.topics.Get(name)
	return t
}

// TopicByID finds a topic by id; nil if there is none.
func (i *Image) TopicByID(id kafka.TopicID) *Topic {
	t, _ := i.topicsByID.Get(keyOf(id))
	return t
}

// Topics goes through the topics by name.
func (i *Image) Topics() iter.Seq[*Topic] { return values(&i.topics) }

// TopicsFrom goes through the topics by name from the first that is not below name.
func (i *Image) TopicsFrom(name string) iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		i.topics.Ascend(name, func(_ string, t *Topic) bool { return yield(t) })
	}
}

// NumTopics counts the topics.
func (i *Image) NumTopics() int { return i.topics.Len() }

// NumPartitions counts the partitions of all topics.
func (i *Image) NumPartitions() int { return i.partitions }

// ResourceType is the kind of thing that has configs.
type ResourceType int8

// Kafka's ConfigResource.Type.
const (
	ResourceTopic         ResourceType = 2
	ResourceBroker        ResourceType = 4
	ResourceBrokerLogger  ResourceType = 8
	ResourceClientMetrics ResourceType = 16
	ResourceGroup         ResourceType = 32
)

// Resource names something that has configs; the name "" of type ResourceBroker is the cluster-wide default.
type Resource struct {
	Type ResourceType
	Name string
}

func (r Resource) key() string { return string([]byte{byte(r.Type)}) + r.Name }

// Config is the dynamic configs of one resource.
type Config struct {
	Resource Resource
	Entries  []ConfigEntry // by name; never empty
}

// ConfigEntry is one of them.
type ConfigEntry struct{ Name, Value string }

// Get is the value of a config.
func (c *Config) Get(name string) (string, bool) {
	if c == nil {
		return "", false
	}
	if n, ok := slices.BinarySearchFunc(c.Entries, name, compareEntry); ok {
		return c.Entries[n].Value, true
	}
	return "", false
}

func compareEntry(e ConfigEntry, name string) int { return cmp.Compare(e.Name, name) }

// Config is the dynamic configs of a resource; nil if there are none.
func (i *Image) Config(r Resource) *Config {
	c, _ := i.configs.Get(r.key())
	return c
}

// ConfigValue is one dynamic config of a resource.
func (i *Image) ConfigValue(r Resource, name string) (string, bool) { return i.Config(r).Get(name) }

// Configs goes through the resources that have dynamic configs by type and name.
func (i *Image) Configs() iter.Seq[*Config] { return values(&i.configs) }

// QuotaEntity is one part of the name of who has a quota: type "user", "client-id" or "ip"; a nil name is the default.
type QuotaEntity struct {
	Type string
	Name *string
}

// QuotaValue is one quota: consumer_byte_rate, producer_byte_rate, request_percentage, …
type QuotaValue struct {
	Key   string
	Value float64
}

// ClientQuota is the quotas of one entity.
type ClientQuota struct {
	Entity []QuotaEntity // by type
	Values []QuotaValue  // by key; never empty
}

// quotaKey is the same for every order of the parts, and orders defaults before names.
func quotaKey(entity []QuotaEntity) string {
	var b []byte
	for _, e := range entity {
		b = append(append(b, e.Type...), 0)
		if e.Name != nil {
			b = append(append(b, 1), *e.Name...)
		}
		b = append(b, 0)
	}
	return string(b)
}

// ClientQuota is the quotas of exactly this entity (parts in any order), or nil.
func (i *Image) ClientQuota(entity []QuotaEntity) *ClientQuota {
	q, _ := i.quotas.Get(quotaKey(sortedEntity(entity)))
	return q
}

// ClientQuotas goes through all client quotas.
func (i *Image) ClientQuotas() iter.Seq[*ClientQuota] { return values(&i.quotas) }

func sortedEntity(e []QuotaEntity) []QuotaEntity {
	byType := func(a, b QuotaEntity) int { return cmp.Compare(a.Type, b.Type) }
	if slices.IsSortedFunc(e, byType) {
		return e
	}
	e = slices.Clone(e)
	slices.SortStableFunc(e, byType)
	return e
}

// NextProducerID is where the next block of producer ids begins; -1 if none was ever given out.
func (i *Image) NextProducerID() kafka.ProducerID { return i.producer }

// ACL is one access control entry; the numbers are those of Kafka's enums, as in records and requests.
type ACL struct {
	ID           kafka.UUID
	ResourceType int8
	ResourceName string
	PatternType  int8
	Principal    string
	Host         string
	Operation    int8
	Permission   int8
}

// ACL is the entry of an id, or nil.
func (i *Image) ACL(id kafka.UUID) *ACL {
	a, _ := i.acls.Get(keyOf(id))
	return a
}

// ACLs goes through the entries by id.
func (i *Image) ACLs() iter.Seq[*ACL] { return values(&i.acls) }

// NumACLs counts the entries.
func (i *Image) NumACLs() int { return i.acls.Len() }

// ScramMechanism is the number of a SCRAM mechanism in records and requests.
type ScramMechanism int8

// Kafka's mechanisms.
const (
	ScramSHA256 ScramMechanism = 1
	ScramSHA512 ScramMechanism = 2
)

// ScramCredential is what a user's SCRAM exchange is checked against.
type ScramCredential struct {
	User       string
	Mechanism  ScramMechanism
	Salt       []byte
	StoredKey  []byte
	ServerKey  []byte
	Iterations int32
}

func scramKey(m ScramMechanism, user string) string { return string([]byte{byte(m)}) + user }

// Scram is the credential of a user, or nil.
func (i *Image) Scram(m ScramMechanism, user string) *ScramCredential {
	c, _ := i.scram.Get(scramKey(m, user))
	return c
}

// Scrams goes through the credentials by mechanism and user.
func (i *Image) Scrams() iter.Seq[*ScramCredential] { return values(&i.scram) }

// DelegationToken is a delegation token; times are in milliseconds. Its HMAC follows from the id and the cluster's
// secret.
type DelegationToken struct {
	ID         string
	Owner      string // principals, "User:alice"
	Requester  string
	Renewers   []string
	Issued     int64
	MaxTime    int64
	Expiration int64
}

// DelegationToken is the token of an id, or nil.
func (i *Image) DelegationToken(id string) *DelegationToken {
	t, _ := i.tokens.Get(id)
	return t
}

// DelegationTokens goes through the tokens by id.
func (i *Image) DelegationTokens() iter.Seq[*DelegationToken] { return values(&i.tokens) }

func compareIDs(a, b kafka.UUID) int { return a.Compare(b) }
