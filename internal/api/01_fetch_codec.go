package api

// The codec of Fetch (1), versions 4-18: sessions from 7 (KIP-227), rack from 11 (KIP-392), flexible and with truncation on
// fetch from 12 (KIP-595), topic ids from 13 (KIP-516), ReplicaState from 15 (KIP-903), NodeEndpoints from 16 (KIP-951),
// directory ids from 17 (KIP-853), the follower's high watermark at 18 (KIP-1166).

import (
	"math"
	"sync"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/rpc"
	"github.com/highwater/highwater/internal/storage"
)

// FetchRequest is a decoded Fetch request. It comes from a pool and keeps its memory.
type FetchRequest struct {
	ClusterID    string // version 12
	HasClusterID bool
	ReplicaID    kafka.BrokerID // -1 for a consumer; ReplicaState's from version 15 on
	ReplicaEpoch kafka.BrokerEpoch
	MaxWaitMs    int32
	MinBytes     int32
	MaxBytes     int32
	Isolation    int8 // 1 = read_committed
	SessionID    int32
	SessionEpoch int32 // -1 = no session; so below version 7
	Topics       []FetchTopic
	Forgotten    []ForgottenTopic
	RackID       string

	partitions []FetchPartition
	ends       []int
	indexes    []int32
	indexEnds  []int
}

// FetchTopic is a topic, by name below version 13 and by id from then on.
type FetchTopic struct {
	Name       string
	ID         kafka.TopicID
	Partitions []FetchPartition
}

// FetchPartition says from where a partition is to be read.
type FetchPartition struct {
	Partition          int32
	CurrentLeaderEpoch kafka.LeaderEpoch // version 9; -1
	FetchOffset        kafka.Offset
	LastFetchedEpoch   kafka.LeaderEpoch // version 12; -1
	LogStartOffset     kafka.Offset      // version 5, of a follower; -1
	MaxBytes           int32
	DirectoryID        kafka.DirectoryID // version 17
	HighWatermark      kafka.Offset      // version 18, that a follower knows; MaxInt64 where it is not told
}

// ForgottenTopic names partitions that leave the session.
type ForgottenTopic struct {
	Name       string
	ID         kafka.TopicID
	Partitions []int32
}

var fetchRequests = sync.Pool{New: func() any { return new(FetchRequest) }}

// GetFetchRequest takes a FetchRequest from the pool.
func GetFetchRequest() *FetchRequest { return fetchRequests.Get().(*FetchRequest) }

// Put gives f back; nothing may refer to it any more.
func (f *FetchRequest) Put() {
	if cap(f.partitions) <= keptPartitions && cap(f.Topics) <= keptPartitions &&
		cap(f.indexes) <= keptPartitions && cap(f.Forgotten) <= keptPartitions {
		fetchRequests.Put(f)
	}
}

// Decode reads the body of a request; false means that Kafka would refuse it. intern gives the string of a topic's name.
func (f *FetchRequest) Decode(body []byte, version int16, intern func([]byte) string) bool {
	flexible, byID := version >= 12, version >= 13
	d := decoder{src: body}
	f.ReplicaID, f.ReplicaEpoch = -1, -1
	if version <= 14 {
		f.ReplicaID = kafka.BrokerID(d.int32())
	}
	f.MaxWaitMs, f.MinBytes, f.MaxBytes, f.Isolation = d.int32(), d.int32(), d.int32(), d.int8()
	f.SessionID, f.SessionEpoch = 0, -1
	if version >= 7 {
		f.SessionID, f.SessionEpoch = d.int32(), d.int32()
	}
	f.decodeTopics(&d, version, intern)

	f.Forgotten, f.indexes, f.indexEnds = f.Forgotten[:0], f.indexes[:0], f.indexEnds[:0]
	if version >= 7 {
		n := d.arrayLen(flexible, topicSize(flexible, byID))
		for ; n > 0 && !d.failed; n-- {
			t := extend(&f.Forgotten)
			d.topic(flexible, byID, &t.Name, &t.ID, intern)
			for m := d.arrayLen(flexible, 4); m > 0 && !d.failed; m-- {
				f.indexes = append(f.indexes, d.int32())
			}
			if flexible {
				d.skipTags()
			}
			f.indexEnds = append(f.indexEnds, len(f.indexes))
		}
	}
	var rack []byte
	if version >= 11 {
		rack = d.string(flexible, false)
	}
	if f.RackID != string(rack) {
		f.RackID = string(rack)
	}
	var cluster []byte
	if flexible {
		cluster = f.decodeTags(&d, version)
	}
	f.HasClusterID = cluster != nil
	if f.ClusterID != string(cluster) {
		f.ClusterID = string(cluster)
	}
	start := 0
	for i, end := range f.ends {
		f.Topics[i].Partitions = f.partitions[start:end:end]
		start = end
	}
	start = 0
	for i, end := range f.indexEnds {
		f.Forgotten[i].Partitions = f.indexes[start:end:end]
		start = end
	}
	return !d.failed
}

// topicSize is the least that a topic with an array takes.
func topicSize(flexible, byID bool) int {
	switch {
	case byID:
		return 16 + 1 + 1
	case flexible:
		return 1 + 1 + 1
	}
	return 2 + 4
}

// topic reads a topic's name or id.
func (d *decoder) topic(flexible, byID bool, name *string, id *kafka.TopicID, intern func([]byte) string) {
	if byID {
		*id, *name = d.uuid(), ""
		return
	}
	*id = kafka.TopicID{}
	if b := d.string(flexible, false); *name != string(b) {
		*name = text(b, intern)
	}
}

func (f *FetchRequest) decodeTopics(d *decoder, version int16, intern func([]byte) string) {
	flexible, byID := version >= 12, version >= 13
	size := 4 + 8 + 4
	if version >= 5 {
		size += 8
	}
	if version >= 9 {
		size += 4
	}
	if flexible {
		size += 4 + 1
	}
	n := d.arrayLen(flexible, topicSize(flexible, byID))
	f.Topics, f.partitions, f.ends = f.Topics[:0], f.partitions[:0], f.ends[:0]
	for ; n > 0 && !d.failed; n-- {
		t := extend(&f.Topics)
		d.topic(flexible, byID, &t.Name, &t.ID, intern)
		for m := d.arrayLen(flexible, size); m > 0 && !d.failed; m-- {
			extend(&f.partitions).decode(d, version)
		}
		if flexible {
			d.skipTags()
		}
		f.ends = append(f.ends, len(f.partitions))
	}
}

func (p *FetchPartition) decode(d *decoder, version int16) {
	*p = FetchPartition{Partition: d.int32(), CurrentLeaderEpoch: -1, LastFetchedEpoch: -1, LogStartOffset: -1, HighWatermark: math.MaxInt64}
	if version >= 9 {
		p.CurrentLeaderEpoch = kafka.LeaderEpoch(d.int32())
	}
	p.FetchOffset = d.int64()
	if version >= 12 {
		p.LastFetchedEpoch = kafka.LeaderEpoch(d.int32())
	}
	if version >= 5 {
		p.LogStartOffset = d.int64()
	}
	p.MaxBytes = d.int32()
	if version < 12 {
		return
	}
	for n := d.tags(); n > 0 && !d.failed; n-- {
		tag, size := d.uvarint(), d.uvarint()
		switch tag { // like Kafka we do not look at the size of a tag that we know
		case 0:
			p.DirectoryID = d.uuid()
			d.since(17, version)
		case 1:
			p.HighWatermark = d.int64()
			d.since(18, version)
		default:
			d.skip(size)
		}
	}
}

// since refuses a tagged field at a version that lacks it, as Kafka does.
func (d *decoder) since(first, version int16) {
	if version < first {
		d.fail()
	}
}

func (f *FetchRequest) decodeTags(d *decoder, version int16) (cluster []byte) {
	for n := d.tags(); n > 0 && !d.failed; n-- {
		tag, size := d.uvarint(), d.uvarint()
		switch tag {
		case 0:
			cluster = d.string(true, true)
		case 1:
			f.ReplicaID, f.ReplicaEpoch = kafka.BrokerID(d.int32()), kafka.BrokerEpoch(d.int64())
			d.skipTags()
			d.since(15, version)
		default:
			d.skip(size)
		}
	}
	return cluster
}

// FetchResponse is the answer to a Fetch request. It comes from a pool and keeps its memory.
type FetchResponse struct {
	ThrottleTimeMs int32
	ErrorCode      int16 // version 7
	SessionID      int32 // version 7
	Topics         []FetchTopicResponse
	NodeEndpoints  []NodeEndpoint // version 16
}

// FetchTopicResponse is a topic, by name below version 13 and by id from then on.
type FetchTopicResponse struct {
	Name       string
	ID         kafka.TopicID
	Partitions []FetchPartitionResponse
}

// FetchPartitionResponse is what a partition answers. Add gives one with Kafka's defaults.
type FetchPartitionResponse struct {
	Partition        int32
	ErrorCode        int16
	HighWatermark    kafka.Offset
	LastStableOffset kafka.Offset // -1
	LogStartOffset   kafka.Offset // version 5; -1

	// Tagged fields from version 12 on, told if they are not at their defaults, which are all -1.
	DivergingEpoch     kafka.LeaderEpoch
	DivergingEndOffset kafka.Offset
	LeaderID           kafka.BrokerID
	LeaderEpoch        kafka.LeaderEpoch
	SnapshotEndOffset  kafka.Offset
	SnapshotEpoch      kafka.LeaderEpoch

	AbortedTransactions  []storage.AbortedTxn // nil is null, as for read_uncommitted
	PreferredReadReplica kafka.BrokerID       // version 11; -1

	// Records are a range of a file, or bytes. Neither is an empty set, as Kafka sends where there is nothing to say.
	Source      rpc.Source
	Records     []byte
	NullRecords bool
}

// Bytes is the size of the records.
func (p *FetchPartitionResponse) Bytes() int {
	if p.Source != nil {
		return p.Source.Len()
	}
	return len(p.Records)
}

var fetchResponses = sync.Pool{New: func() any { return new(FetchResponse) }}

// GetFetchResponse takes an empty FetchResponse from the pool.
func GetFetchResponse() *FetchResponse {
	f := fetchResponses.Get().(*FetchResponse)
	f.Reset()
	return f
}

// Put gives f back; nothing may refer to it any more. Ranges of files that were not given to AppendTo stay the caller's.
func (f *FetchResponse) Put() {
	n := 0
	for i := range f.Topics[:cap(f.Topics)] {
		p := f.Topics[:cap(f.Topics)][i].Partitions
		clear(p[:cap(p)])
		n += cap(p)
	}
	if n <= keptPartitions && cap(f.Topics) <= keptPartitions {
		fetchResponses.Put(f)
	}
}

// Reset empties f.
func (f *FetchResponse) Reset() {
	f.ThrottleTimeMs, f.ErrorCode, f.SessionID = 0, 0, 0
	f.Topics, f.NodeEndpoints = f.Topics[:0], f.NodeEndpoints[:0]
}

// Add appends a partition, opening a new topic unless it is the last one's, and returns it for the caller to fill. The
// pointer is good until the next Add.
func (f *FetchResponse) Add(name string, id kafka.TopicID, partition int32) *FetchPartitionResponse {
	last := len(f.Topics) - 1
	if last < 0 || f.Topics[last].ID != id || f.Topics[last].Name != name {
		t := extend(&f.Topics)
		t.Name, t.ID, t.Partitions = name, id, t.Partitions[:0]
		last++
	}
	p := extend(&f.Topics[last].Partitions)
	*p = FetchPartitionResponse{
		Partition: partition, LastStableOffset: -1, LogStartOffset: -1, DivergingEpoch: -1, DivergingEndOffset: -1,
		LeaderID: -1, LeaderEpoch: -1, SnapshotEndOffset: -1, SnapshotEpoch: -1, PreferredReadReplica: -1,
	}
	return p
}

// AppendTo puts the answer into r. The ranges of files are r's from then on.
func (f *FetchResponse) AppendTo(r *rpc.Response, version int16) {
	flexible := version >= 12
	b := appendInt32(r.Buf, f.ThrottleTimeMs)
	if version >= 7 {
		b = appendInt16(b, f.ErrorCode)
		b = appendInt32(b, f.SessionID)
	}
	b = appendArrayLen(b, flexible, len(f.Topics))
	for i := range f.Topics {
		t := &f.Topics[i]
		if version >= 13 {
			b = append(b, t.ID[:]...)
		} else {
			b = appendString(b, flexible, t.Name)
		}
		b = appendArrayLen(b, flexible, len(t.Partitions))
		for j := range t.Partitions {
			p := &t.Partitions[j]
			b = p.appendFront(b, version)
			switch {
			case p.Source != nil && p.Source.Len() > 0:
				r.Buf = appendRecordsLen(b, flexible, p.Source.Len())
				r.AppendSource(p.Source)
				b = r.Buf
			case p.Source != nil:
				p.Source.Release()
				b = appendRecordsLen(b, flexible, 0)
			case p.NullRecords:
				b = appendRecordsLen(b, flexible, -1)
			default:
				b = appendRecordsLen(b, flexible, len(p.Records))
				b = append(b, p.Records...)
			}
			p.Source = nil
			if flexible {
				b = p.appendTags(b)
			}
		}
		if flexible {
			b = append(b, 0)
		}
	}
	if flexible {
		b = appendNodeEndpoints(b, version >= 16, f.NodeEndpoints)
	}
	r.Buf = b
}

// appendFront appends what stands before the records.
func (p *FetchPartitionResponse) appendFront(b []byte, version int16) []byte {
	flexible := version >= 12
	b = appendInt32(b, p.Partition)
	b = appendInt16(b, p.ErrorCode)
	b = appendInt64(b, p.HighWatermark)
	b = appendInt64(b, p.LastStableOffset)
	if version >= 5 {
		b = appendInt64(b, p.LogStartOffset)
	}
	if p.AbortedTransactions == nil {
		b = appendArrayLen(b, flexible, -1)
	} else {
		b = appendArrayLen(b, flexible, len(p.AbortedTransactions))
	}
	for _, a := range p.AbortedTransactions {
		b = appendInt64(b, a.ProducerID)
		b = appendInt64(b, a.FirstOffset)
		if flexible {
			b = append(b, 0)
		}
	}
	if version >= 11 {
		b = appendInt32(b, int32(p.PreferredReadReplica))
	}
	return b
}

func appendRecordsLen(b []byte, flexible bool, n int) []byte {
	if flexible {
		return appendUvarint(b, uint32(n+1))
	}
	return appendInt32(b, int32(n))
}

func (p *FetchPartitionResponse) appendTags(b []byte) []byte {
	diverging := p.DivergingEpoch != -1 || p.DivergingEndOffset != -1
	leader := p.LeaderID != -1 || p.LeaderEpoch != -1
	snapshot := p.SnapshotEndOffset != -1 || p.SnapshotEpoch != -1
	at := len(b)
	b = append(b, 0)
	if diverging {
		b[at]++
		b = append(b, 0, 4+8+1)
		b = appendInt32(b, int32(p.DivergingEpoch))
		b = appendInt64(b, p.DivergingEndOffset)
		b = append(b, 0)
	}
	if leader {
		b[at]++
		b = appendLeader(b, 1, p.LeaderID, p.LeaderEpoch)
	}
	if snapshot {
		b[at]++
		b = append(b, 2, 8+4+1)
		b = appendInt64(b, p.SnapshotEndOffset)
		b = appendInt32(b, int32(p.SnapshotEpoch))
		b = append(b, 0)
	}
	return b
}

// Drop takes back the partition that Add added last.
func (f *FetchResponse) Drop() {
	t := &f.Topics[len(f.Topics)-1]
	if t.Partitions = t.Partitions[:len(t.Partitions)-1]; len(t.Partitions) == 0 {
		f.Topics = f.Topics[:len(f.Topics)-1]
	}
}

// fail empties the answer but for an error code.
func (f *FetchResponse) fail(code int16) {
	for i := range f.Topics {
		for j := range f.Topics[i].Partitions {
			if p := &f.Topics[i].Partitions[j]; p.Source != nil {
				p.Source.Release()
				p.Source = nil
			}
		}
	}
	f.Topics, f.ErrorCode = f.Topics[:0], code
}
