package kafka

import (
	"fmt"
	"strconv"
	"strings"
)

// BrokerID is node.id: of a broker, a controller or a voter; they share one space. -1 is none.
type BrokerID int32

// NoBroker stands where there is no leader or node.
const NoBroker BrokerID = -1

// Offset is a position in a log. Variables say which side they mean: last… is inclusive, end… and next… exclusive.
type Offset = int64

// LeaderEpoch counts the leaders of one partition; of __cluster_metadata too, where KRaft calls it the quorum's epoch.
type LeaderEpoch int32

// PartitionEpoch counts the changes of one partition's state; AlterPartition is fenced by it.
type PartitionEpoch int32

// BrokerEpoch is the metadata offset of a broker's registration; a process that was superseded has a lower one.
type BrokerEpoch int64

// NoLeaderEpoch means "not known" on the wire.
const NoLeaderEpoch LeaderEpoch = -1

// NoOffset means "not known" on the wire.
const NoOffset Offset = -1

// ProducerID and ProducerEpoch identify a producer session; NoProducerID is a producer without idempotence.
type (
	ProducerID    = int64
	ProducerEpoch = int16
)

// NoProducerID, NoProducerEpoch and NoSequence are what a batch of a plain producer carries.
const (
	NoProducerID    ProducerID    = -1
	NoProducerEpoch ProducerEpoch = -1
	NoSequence      int32         = -1
)

// OffsetAndEpoch names a position by the offset and the epoch of the record before it, as snapshots do.
type OffsetAndEpoch struct {
	Offset Offset
	Epoch  LeaderEpoch
}

func (o OffsetAndEpoch) String() string {
	return fmt.Sprintf("(offset=%d, epoch=%d)", o.Offset, o.Epoch)
}

// TopicPartition names a partition by its topic's name.
type TopicPartition struct {
	Topic     string
	Partition int32
}

func (t TopicPartition) String() string { return t.Topic + "-" + strconv.Itoa(int(t.Partition)) }

// ParseTopicPartition splits "topic-0" at its last dash.
func ParseTopicPartition(s string) (TopicPartition, bool) {
	i := strings.LastIndexByte(s, '-')
	if i <= 0 {
		return TopicPartition{}, false
	}
	p, err := strconv.ParseInt(s[i+1:], 10, 32)
	if err != nil || p < 0 || s[i+1] == '+' {
		return TopicPartition{}, false
	}
	return TopicPartition{s[:i], int32(p)}, true
}

// TopicIDPartition names a partition by its topic's id.
type TopicIDPartition struct {
	TopicID   TopicID
	Partition int32
}

// Names of the internal topics.
const (
	ClusterMetadataTopic  = "__cluster_metadata"
	ConsumerOffsetsTopic  = "__consumer_offsets"
	TransactionStateTopic = "__transaction_state"
	ShareGroupStateTopic  = "__share_group_state"
	RemoteLogMetadata     = "__remote_log_metadata"
)

// IsInternalTopic tells whether Kafka marks name as internal in Metadata responses.
func IsInternalTopic(name string) bool {
	return name == ConsumerOffsetsTopic || name == TransactionStateTopic || name == ShareGroupStateTopic
}

// MaxTopicNameLength leaves room for "-" and a partition number in a file name of 255 bytes.
const MaxTopicNameLength = 249

// CheckTopicName says in Kafka's words why name cannot be a topic's, or returns "".
func CheckTopicName(name string) string {
	switch {
	case name == "":
		return "the empty string is not allowed"
	case name == "." || name == "..":
		return "'" + name + "' is not allowed"
	case len(name) > MaxTopicNameLength:
		return fmt.Sprintf("the length of '%s' is longer than the max allowed length %d", name, MaxTopicNameLength)
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-') {
			return fmt.Sprintf("'%s' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'", name)
		}
	}
	return ""
}

// CollisionName is what two topic names share if their metrics would collide: Kafka refuses the second.
func CollisionName(name string) string { return strings.ReplaceAll(name, ".", "_") }

// JavaStringHash is java.lang.String.hashCode of an ASCII or UTF-8 string: over UTF-16 code units.
func JavaStringHash(s string) int32 {
	var h int32
	for _, r := range s {
		if r >= 0x10000 {
			r -= 0x10000
			h = 31*h + 0xd800 + (r >> 10)
			h = 31*h + 0xdc00 + (r & 0x3ff)
			continue
		}
		h = 31*h + r
	}
	return h
}
