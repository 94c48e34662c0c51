package api

// The codec of Produce (0), versions 3-13: flexible from 9; response tags from 10 (KIP-951); topic ids at 13.

import (
	"sync"

	"github.com/highwater/highwater/internal/kafka"
)

// Produce is one Produce request and, next to each partition, what will be answered for it. It comes from a pool and keeps
// its memory: decoding allocates nothing once it has seen a request as large.
type Produce struct {
	TransactionalID    string
	HasTransactionalID bool // not null
	Acks               int16
	TimeoutMs          int32
	Topics             []ProduceTopic

	// The answer.
	ThrottleTimeMs int32
	NodeEndpoints  []NodeEndpoint // of the leaders named in it; version 10

	partitions []ProducePartition // of all topics
	ends       []int              // of each topic's partitions
}

// ProduceTopic is a topic, by name below version 13 and by id from then on.
type ProduceTopic struct {
	Name       string // may be filled in by the handler at version 13; it is not told then
	ID         kafka.TopicID
	Partitions []ProducePartition
}

// ProducePartition is what is to be appended to a partition, and the answer for it.
type ProducePartition struct {
	Index int32
	// Records lies in the request's body; nil is null. It is gone when the handler has returned.
	Records []byte

	ErrorCode      int16
	BaseOffset     kafka.Offset
	LogAppendTime  int64         // -1 with CreateTime
	LogStartOffset kafka.Offset  // version 5
	RecordErrors   []RecordError // version 8
	ErrorMessage   *string       // version 8
	LeaderID       kafka.BrokerID
	LeaderEpoch    kafka.LeaderEpoch // of the leader to go to instead, from version 10 on; -1 and -1 are not told
}

// RecordError says which record of a batch was refused.
type RecordError struct {
	BatchIndex int32
	Message    *string
}

// NodeEndpoint is where a broker is found, told with the leaders that clients should go to (KIP-951).
type NodeEndpoint struct {
	NodeID kafka.BrokerID
	Host   string
	Port   int32
	Rack   *string
}

var produces = sync.Pool{New: func() any { return new(Produce) }}

// GetProduce takes a Produce from the pool.
func GetProduce() *Produce { return produces.Get().(*Produce) }

// Put gives p back; nothing may refer to it any more. One that grew very large is left to the garbage collector.
func (p *Produce) Put() {
	clear(p.partitions)
	if cap(p.partitions) <= keptPartitions && cap(p.Topics) <= keptPartitions {
		produces.Put(p)
	}
}

// keptPartitions is how many partitions a pooled request may have room for.
const keptPartitions = 4096

// Decode reads the body of a request; false means that Kafka would refuse it. intern gives the string of a topic's name,
// so that names that are known are not allocated; nil makes a new one.
func (p *Produce) Decode(body []byte, version int16, intern func([]byte) string) bool {
	flexible, byID := version >= 9, version >= 13
	d := decoder{src: body}
	id := d.string(flexible, true)
	p.HasTransactionalID = id != nil
	if p.TransactionalID != string(id) {
		p.TransactionalID = string(id)
	}
	p.Acks, p.TimeoutMs = d.int16(), d.int32()
	p.ThrottleTimeMs, p.NodeEndpoints = 0, p.NodeEndpoints[:0]

	topicSize, partitionSize := 2+4, 4+4
	if flexible {
		topicSize, partitionSize = 1+1+1, 4+1+1
		if byID {
			topicSize = 16 + 1 + 1
		}
	}
	n := d.arrayLen(flexible, topicSize)
	p.Topics, p.partitions, p.ends = p.Topics[:0], p.partitions[:0], p.ends[:0]
	for ; n > 0 && !d.failed; n-- {
		t := extend(&p.Topics)
		t.ID = kafka.TopicID{}
		if byID {
			t.ID = d.uuid()
			t.Name = ""
		} else if name := d.string(flexible, false); t.Name != string(name) {
			t.Name = text(name, intern)
		}
		for m := d.arrayLen(flexible, partitionSize); m > 0 && !d.failed; m-- {
			q := extend(&p.partitions)
			*q = ProducePartition{
				Index: d.int32(), Records: d.records(flexible),
				BaseOffset: -1, LogAppendTime: -1, LogStartOffset: -1, LeaderID: -1, LeaderEpoch: -1,
				RecordErrors: q.RecordErrors[:0],
			}
			if flexible {
				d.skipTags()
			}
		}
		if flexible {
			d.skipTags()
		}
		p.ends = append(p.ends, len(p.partitions))
	}
	if flexible {
		d.skipTags()
	}
	// Only now: partitions may have moved while it grew.
	start := 0
	for i, end := range p.ends {
		p.Topics[i].Partitions = p.partitions[start:end:end]
		start = end
	}
	return !d.failed
}

// extend lengthens a slice by one element and returns it, with whatever an earlier use left in it.
func extend[T any](s *[]T) *T {
	if len(*s) < cap(*s) {
		*s = (*s)[:len(*s)+1]
	} else {
		var zero T
		*s = append(*s, zero)
	}
	return &(*s)[len(*s)-1]
}

// text is the string of a name.
func text(b []byte, intern func([]byte) string) string {
	if intern == nil {
		return string(b)
	}
	return intern(b)
}

// AppendResponse appends the body of the answer.
func (p *Produce) AppendResponse(b []byte, version int16) []byte {
	flexible := version >= 9
	b = appendArrayLen(b, flexible, len(p.Topics))
	for i := range p.Topics {
		t := &p.Topics[i]
		if version >= 13 {
			b = append(b, t.ID[:]...)
		} else {
			b = appendString(b, flexible, t.Name)
		}
		b = appendArrayLen(b, flexible, len(t.Partitions))
		for j := range t.Partitions {
			b = t.Partitions[j].appendResponse(b, version)
		}
		if flexible {
			b = append(b, 0)
		}
	}
	b = appendInt32(b, p.ThrottleTimeMs)
	if flexible {
		b = appendNodeEndpoints(b, version >= 10, p.NodeEndpoints)
	}
	return b
}

func (q *ProducePartition) appendResponse(b []byte, version int16) []byte {
	flexible := version >= 9
	b = appendInt32(b, q.Index)
	b = appendInt16(b, q.ErrorCode)
	b = appendInt64(b, q.BaseOffset)
	b = appendInt64(b, q.LogAppendTime)
	if version >= 5 {
		b = appendInt64(b, q.LogStartOffset)
	}
	if version >= 8 {
		b = appendArrayLen(b, flexible, len(q.RecordErrors))
		for _, e := range q.RecordErrors {
			b = appendInt32(b, e.BatchIndex)
			b = appendNullable(b, flexible, e.Message)
			if flexible {
				b = append(b, 0)
			}
		}
		b = appendNullable(b, flexible, q.ErrorMessage)
	}
	switch {
	case !flexible:
	case version >= 10 && (q.LeaderID != -1 || q.LeaderEpoch != -1):
		b = append(b, 1)
		b = appendLeader(b, 0, q.LeaderID, q.LeaderEpoch)
	default:
		b = append(b, 0)
	}
	return b
}

// appendLeader appends a tagged LeaderIdAndEpoch.
func appendLeader(b []byte, tag byte, id kafka.BrokerID, epoch kafka.LeaderEpoch) []byte {
	b = append(b, tag, 4+4+1)
	b = appendInt32(b, int32(id))
	b = appendInt32(b, int32(epoch))
	return append(b, 0)
}

// appendNodeEndpoints appends the last tagged fields of an answer: NodeEndpoints as tag 0, if there are any.
func appendNodeEndpoints(b []byte, known bool, nodes []NodeEndpoint) []byte {
	if !known || len(nodes) == 0 {
		return append(b, 0)
	}
	size := uvarintLen(uint32(len(nodes) + 1))
	for i := range nodes {
		size += 4 + compactLen(len(nodes[i].Host)) + 4 + 1 + 1
		if r := nodes[i].Rack; r != nil {
			size += compactLen(len(*r)) - 1
		}
	}
	b = append(b, 1, 0)
	b = appendUvarint(b, uint32(size))
	b = appendUvarint(b, uint32(len(nodes)+1))
	for i := range nodes {
		n := &nodes[i]
		b = appendInt32(b, int32(n.NodeID))
		b = appendCompact(b, n.Host)
		b = appendInt32(b, n.Port)
		b = appendNullable(b, true, n.Rack)
		b = append(b, 0)
	}
	return b
}
