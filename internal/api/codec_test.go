package api

// The codecs of Produce and Fetch against every vector that the real Kafka wrote: requests are decoded and compared field
// by field with Kafka's JSON, answers are built from the JSON and compared byte for byte. Then every request cut short at
// every byte, Kafka's verdicts on bytes that no encoder makes, allocations, and fuzzing.

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/rpc"
	"github.com/highwater/highwater/internal/storage"
)

type vector struct {
	API       int16 `json:"api"`
	Type      string
	Version   int16
	Case      string
	Hex       string
	Raw       json.RawMessage `json:"json"`
	JSON      *jsonMessage    `json:"-"`
	Unknown   []any
	Rest      int
	Encodes   string
	Exception string
}

func (v *vector) bytes(t testing.TB) []byte {
	t.Helper()
	b, err := hex.DecodeString(v.Hex)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// jsonMessage has the fields of all four messages as Kafka's JSON names them.
type jsonMessage struct {
	TransactionalID *string `json:"transactionalId"`
	Acks            int16   `json:"acks"`
	TimeoutMs       int32   `json:"timeoutMs"`
	TopicData       []struct {
		Name          string
		TopicID       string `json:"topicId"`
		PartitionData []struct {
			Index   int32
			Records *[]byte
		}
	}

	ClusterID    *string `json:"clusterId"`
	ReplicaID    *int32  `json:"replicaId"`
	ReplicaState *struct {
		ReplicaID    *int32 `json:"replicaId"`
		ReplicaEpoch *int64 `json:"replicaEpoch"`
	}
	MaxWaitMs, MinBytes, MaxBytes int32
	IsolationLevel                int8
	SessionID                     int32  `json:"sessionId"`
	SessionEpoch                  *int32 `json:"sessionEpoch"`
	Topics                        []struct {
		Topic      string
		TopicID    string `json:"topicId"`
		Partitions []struct {
			Partition          int32
			CurrentLeaderEpoch *int32
			FetchOffset        int64
			LastFetchedEpoch   *int32
			LogStartOffset     *int64
			PartitionMaxBytes  int32
			ReplicaDirectoryID *string `json:"replicaDirectoryId"`
			HighWatermark      *int64
		}
	}
	ForgottenTopicsData []struct {
		Topic      string
		TopicID    string `json:"topicId"`
		Partitions []int32
	}
	RackID string `json:"rackId"`

	ThrottleTimeMs int32
	ErrorCode      int16
	Responses      []struct {
		Name, Topic        string
		TopicID            string `json:"topicId"`
		PartitionResponses []struct {
			Index           int32
			ErrorCode       int16
			BaseOffset      int64
			LogAppendTimeMs int64
			LogStartOffset  int64
			RecordErrors    []struct {
				BatchIndex             int32
				BatchIndexErrorMessage *string
			}
			ErrorMessage  *string
			CurrentLeader *jsonLeader
		}
		Partitions []struct {
			PartitionIndex   int32
			ErrorCode        int16
			HighWatermark    int64
			LastStableOffset int64
			LogStartOffset   int64
			DivergingEpoch   *struct {
				Epoch     int32
				EndOffset int64
			}
			CurrentLeader *jsonLeader
			SnapshotID    *struct {
				EndOffset int64
				Epoch     int32
			} `json:"snapshotId"`
			AbortedTransactions *[]struct {
				ProducerID  int64 `json:"producerId"`
				FirstOffset int64
			}
			PreferredReadReplica *int32
			Records              *[]byte
		}
	}
	NodeEndpoints []struct {
		NodeID int32 `json:"nodeId"`
		Host   string
		Port   int32
		Rack   *string
	}
}

type jsonLeader struct {
	LeaderID    int32 `json:"leaderId"`
	LeaderEpoch int32
}

func uuid(t testing.TB, s string) kafka.UUID {
	t.Helper()
	if s == "" {
		return kafka.UUID{}
	}
	u, err := kafka.ParseUUID(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// files keeps what was read: the vectors are looked through many times.
var files = map[string][]vector{}

func vectors(t testing.TB, file string, key int16) []vector {
	t.Helper()
	if files[file] == nil {
		for _, v := range fixture.Lines[vector](t, "vectors/"+file+".jsonl.gz") {
			if v.API == 0 || v.API == 1 || v.API == 18 {
				files[file] = append(files[file], v)
			}
		}
	}
	var out []vector
	for _, v := range files[file] {
		if v.API != key {
			continue
		}
		v.JSON = new(jsonMessage)
		if v.Raw != nil {
			if err := json.Unmarshal(v.Raw, v.JSON); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, v)
	}
	if len(out) == 0 {
		t.Fatalf("no vectors of API %d in %s", key, file)
	}
	return out
}

// nilRecords tells null from empty in a decoded field of type records.
func nilRecords(b []byte) *[]byte {
	if b == nil {
		return nil
	}
	return &b
}

func compareProduce(t *testing.T, v *vector, p *Produce) {
	t.Helper()
	type part struct {
		Index   int32
		Records *[]byte
	}
	type topic struct {
		Name       string
		ID         kafka.UUID
		Partitions []part
	}
	var got, want []topic
	for _, x := range p.Topics {
		y := topic{Name: x.Name, ID: x.ID}
		for _, q := range x.Partitions {
			y.Partitions = append(y.Partitions, part{q.Index, nilRecords(q.Records)})
		}
		got = append(got, y)
	}
	for _, x := range v.JSON.TopicData {
		y := topic{Name: x.Name, ID: uuid(t, x.TopicID)}
		for _, q := range x.PartitionData {
			y.Partitions = append(y.Partitions, part{q.Index, q.Records})
		}
		want = append(want, y)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("version %d %s: %s", v.Version, v.Case, d)
	}
	if p.HasTransactionalID != (v.JSON.TransactionalID != nil) || p.TransactionalID != or(v.JSON.TransactionalID, "") ||
		p.Acks != v.JSON.Acks || p.TimeoutMs != v.JSON.TimeoutMs {
		t.Errorf("version %d %s: %q %d %d", v.Version, v.Case, p.TransactionalID, p.Acks, p.TimeoutMs)
	}
}

func TestProduceRequestVectors(t *testing.T) {
	p := new(Produce) // one for all: what an earlier request left must not show
	for _, v := range vectors(t, "messages-requests", 0) {
		b := v.bytes(t)
		if !p.Decode(b, v.Version, nil) {
			t.Errorf("version %d %s is refused", v.Version, v.Case)
			continue
		}
		compareProduce(t, &v, p)
		for _, x := range p.Topics {
			for _, q := range x.Partitions {
				if q.BaseOffset != -1 || q.LogAppendTime != -1 || q.LogStartOffset != -1 || q.LeaderID != -1 || q.ErrorCode != 0 || len(q.RecordErrors) != 0 {
					t.Fatalf("an answer is there before: %+v", q)
				}
			}
		}
		for n := range b {
			if p.Decode(b[:n:n], v.Version, nil) {
				t.Errorf("version %d %s: decodes with %d of %d bytes", v.Version, v.Case, n, len(b))
			}
		}
	}
}

func endpoints(v *vector) (out []NodeEndpoint) {
	for _, n := range v.JSON.NodeEndpoints {
		out = append(out, NodeEndpoint{kafka.BrokerID(n.NodeID), n.Host, n.Port, n.Rack})
	}
	return out
}

func TestProduceResponseVectors(t *testing.T) {
	n := 0
	for _, v := range vectors(t, "messages-responses", 0) {
		if v.Unknown != nil {
			continue
		}
		n++
		p := Produce{ThrottleTimeMs: v.JSON.ThrottleTimeMs, NodeEndpoints: endpoints(&v)}
		for _, x := range v.JSON.Responses {
			y := ProduceTopic{Name: x.Name, ID: uuid(t, x.TopicID)}
			for _, q := range x.PartitionResponses {
				r := ProducePartition{Index: q.Index, ErrorCode: q.ErrorCode, BaseOffset: q.BaseOffset, LogAppendTime: q.LogAppendTimeMs,
					LogStartOffset: q.LogStartOffset, ErrorMessage: q.ErrorMessage, LeaderID: -1, LeaderEpoch: -1}
				for _, e := range q.RecordErrors {
					r.RecordErrors = append(r.RecordErrors, RecordError{e.BatchIndex, e.BatchIndexErrorMessage})
				}
				if l := q.CurrentLeader; l != nil {
					r.LeaderID, r.LeaderEpoch = kafka.BrokerID(l.LeaderID), kafka.LeaderEpoch(l.LeaderEpoch)
				}
				y.Partitions = append(y.Partitions, r)
			}
			p.Topics = append(p.Topics, y)
		}
		if got := p.AppendResponse(nil, v.Version); !bytes.Equal(got, v.bytes(t)) {
			t.Errorf("version %d %s:\n got %x\nwant %s", v.Version, v.Case, got, v.Hex)
		}
	}
	if n < 100 {
		t.Errorf("only %d vectors", n)
	}
}

func compareFetch(t *testing.T, v *vector, f *FetchRequest) {
	t.Helper()
	m := v.JSON
	want := &FetchRequest{ClusterID: or(m.ClusterID, ""), HasClusterID: m.ClusterID != nil, ReplicaID: -1, ReplicaEpoch: -1,
		MaxWaitMs: m.MaxWaitMs, MinBytes: m.MinBytes, MaxBytes: m.MaxBytes, Isolation: m.IsolationLevel,
		SessionID: m.SessionID, SessionEpoch: or(m.SessionEpoch, -1), RackID: m.RackID}
	want.ReplicaID = kafka.BrokerID(or(m.ReplicaID, -1))
	if s := m.ReplicaState; s != nil {
		want.ReplicaID, want.ReplicaEpoch = kafka.BrokerID(or(s.ReplicaID, -1)), kafka.BrokerEpoch(or(s.ReplicaEpoch, -1))
	}
	for _, x := range m.Topics {
		y := FetchTopic{Name: x.Topic, ID: uuid(t, x.TopicID), Partitions: []FetchPartition{}}
		for _, p := range x.Partitions {
			y.Partitions = append(y.Partitions, FetchPartition{
				Partition: p.Partition, CurrentLeaderEpoch: kafka.LeaderEpoch(or(p.CurrentLeaderEpoch, -1)), FetchOffset: p.FetchOffset,
				LastFetchedEpoch: kafka.LeaderEpoch(or(p.LastFetchedEpoch, -1)), LogStartOffset: or(p.LogStartOffset, -1),
				MaxBytes: p.PartitionMaxBytes, DirectoryID: uuid(t, or(p.ReplicaDirectoryID, "")), HighWatermark: or(p.HighWatermark, math.MaxInt64),
			})
		}
		want.Topics = append(want.Topics, y)
	}
	for _, x := range m.ForgottenTopicsData {
		want.Forgotten = append(want.Forgotten, ForgottenTopic{x.Topic, uuid(t, x.TopicID), x.Partitions})
	}
	same := cmp.FilterPath(func(p cmp.Path) bool {
		switch p.Last().String() {
		case ".partitions", ".ends", ".indexes", ".indexEnds":
			return true
		}
		return false
	}, cmp.Ignore())
	if d := cmp.Diff(want, f, same, cmpopts.EquateEmpty(), cmp.AllowUnexported(FetchRequest{})); d != "" {
		t.Errorf("version %d %s: %s", v.Version, v.Case, d)
	}
}

func TestFetchRequestVectors(t *testing.T) {
	f := new(FetchRequest)
	for _, v := range vectors(t, "messages-requests", 1) {
		b := v.bytes(t)
		if !f.Decode(b, v.Version, nil) {
			t.Errorf("version %d %s is refused", v.Version, v.Case)
			continue
		}
		compareFetch(t, &v, f)
		for n := range b {
			if f.Decode(b[:n:n], v.Version, nil) {
				t.Errorf("version %d %s: decodes with %d of %d bytes", v.Version, v.Case, n, len(b))
			}
		}
	}
}

// source is records in memory as if they were a range of a file.
type source struct {
	b        []byte
	released *int
}

func (s *source) Len() int { return len(s.b) }

func (s *source) Fd() (uintptr, int64, bool) { return 0, 0, false }

func (s *source) ReadAt(p []byte, off int64) (int, error) { return bytes.NewReader(s.b).ReadAt(p, off) }

func (s *source) Release() { *s.released++ }

// gathered is an answer with its ranges in their places.
func gathered(r *rpc.Response) []byte {
	var out []byte
	from := 0
	for _, p := range r.Parts {
		out = append(out, r.Buf[from:p.At]...)
		out = append(out, p.Source.(*source).b...)
		from = p.At
	}
	return append(out, r.Buf[from:]...)
}

func TestFetchResponseVectors(t *testing.T) {
	n := 0
	for _, v := range vectors(t, "messages-responses", 1) {
		if v.Unknown != nil {
			continue
		}
		n++
		for _, asSource := range []bool{false, true} {
			m := v.JSON
			f := GetFetchResponse()
			f.ThrottleTimeMs, f.ErrorCode, f.SessionID, f.NodeEndpoints = m.ThrottleTimeMs, m.ErrorCode, m.SessionID, endpoints(&v)
			released, sources := 0, 0
			for _, x := range m.Responses {
				if len(x.Partitions) == 0 {
					f.Topics = append(f.Topics, FetchTopicResponse{Name: x.Topic, ID: uuid(t, x.TopicID)})
				}
				for i, p := range x.Partitions {
					if i == 0 { // also where two topics look the same
						topic := extend(&f.Topics)
						topic.Name, topic.ID, topic.Partitions = x.Topic, uuid(t, x.TopicID), topic.Partitions[:0]
					}
					q := f.Add(x.Topic, uuid(t, x.TopicID), p.PartitionIndex)
					q.ErrorCode, q.HighWatermark, q.LastStableOffset, q.LogStartOffset = p.ErrorCode, p.HighWatermark, p.LastStableOffset, p.LogStartOffset
					if e := p.DivergingEpoch; e != nil {
						q.DivergingEpoch, q.DivergingEndOffset = kafka.LeaderEpoch(e.Epoch), e.EndOffset
					}
					if l := p.CurrentLeader; l != nil {
						q.LeaderID, q.LeaderEpoch = kafka.BrokerID(l.LeaderID), kafka.LeaderEpoch(l.LeaderEpoch)
					}
					if s := p.SnapshotID; s != nil {
						q.SnapshotEndOffset, q.SnapshotEpoch = s.EndOffset, kafka.LeaderEpoch(s.Epoch)
					}
					if p.AbortedTransactions != nil {
						q.AbortedTransactions = []storage.AbortedTxn{}
						for _, a := range *p.AbortedTransactions {
							q.AbortedTransactions = append(q.AbortedTransactions, storage.AbortedTxn{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset})
						}
					}
					q.PreferredReadReplica = kafka.BrokerID(or(p.PreferredReadReplica, -1))
					switch {
					case p.Records == nil:
						q.NullRecords = true
					case asSource:
						sources++
						q.Source = &source{*p.Records, &released}
					default:
						q.Records = *p.Records
					}
				}
			}
			var r rpc.Response
			f.AppendTo(&r, v.Version)
			if got := gathered(&r); !bytes.Equal(got, v.bytes(t)) {
				t.Errorf("version %d %s:\n got %x\nwant %s", v.Version, v.Case, got, v.Hex)
			}
			if released+len(r.Parts) != sources {
				t.Errorf("version %d %s: of %d ranges %d are released and %d in the answer", v.Version, v.Case, sources, released, len(r.Parts))
			}
			f.NodeEndpoints = nil
			f.Put()
		}
	}
	if n < 150 {
		t.Errorf("only %d vectors", n)
	}
}

// Kafka's verdict on bytes that no encoder makes.
func TestInvalidVectors(t *testing.T) {
	for _, v := range vectors(t, "messages-invalid", 0) {
		if v.Type != "request" {
			continue
		}
		p := GetProduce()
		if ok := p.Decode(v.bytes(t), v.Version, nil); ok != (v.Exception == "") {
			t.Errorf("%s: %v", v.Case, ok)
		} else if ok {
			compareProduce(t, &v, p)
		}
		p.Put()
	}
	for _, v := range vectors(t, "messages-invalid", 1) {
		if v.Type != "request" {
			continue
		}
		f := GetFetchRequest()
		if ok := f.Decode(v.bytes(t), v.Version, nil); ok != (v.Exception == "") {
			t.Errorf("%s: %v", v.Case, ok)
		} else if ok {
			compareFetch(t, &v, f)
		}
		f.Put()
	}
}

// What is announced is not allocated: a hundred bytes that claim a million elements cost nothing.
func TestAnnouncedCounts(t *testing.T) {
	f := func(name string, decode func() bool) {
		t.Helper()
		if n := testing.AllocsPerRun(10, func() {
			if decode() {
				t.Errorf("%s decodes", name)
			}
		}); n > 1 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	p, q := new(Produce), new(FetchRequest)
	long := make([]byte, 100)
	topics := append([]byte{0, 0, 1, 0, 0, 0, 0}, 0xc0, 0x84, 0x3d) // 1,000,000 - 1
	f("produce topics", func() bool { return p.Decode(append(topics, long...), 9, nil) })
	tags := []byte{0, 0, 1, 0, 0, 0, 0, 1, 0x91, 0x4e}
	f("10,001 tags", func() bool { return p.Decode(append(tags, make([]byte, 30000)...), 9, nil) })
	fetch := append(make([]byte, 4+4+4+1+8), 0xff, 0xff, 0xff, 0xff, 0x0f)
	f("fetch topics", func() bool { return q.Decode(append(fetch, long...), 15, nil) })
}

func benchmarkBody(t testing.TB, file string, key, version int16, name string) []byte {
	for _, v := range vectors(t, file, key) {
		if v.Version == version && strings.Contains(v.Case, name) {
			return v.bytes(t)
		}
	}
	t.Fatal("no such vector")
	return nil
}

// Decoding and answering allocate nothing once the pools are warm.
func TestNoAllocations(t *testing.T) {
	known := map[string]string{}
	intern := func(b []byte) string {
		if s, ok := known[string(b)]; ok {
			return s
		}
		known[string(b)] = string(b)
		return string(b)
	}
	f := func(name string, do func()) {
		t.Helper()
		do()
		if n := testing.AllocsPerRun(100, do); n > 0 && !raceEnabled {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	out := make([]byte, 0, 1<<16)
	for _, version := range []int16{3, 8, 9, 12, 13} {
		for _, name := range []string{"one", "three"} {
			body, p := benchmarkBody(t, "messages-requests", 0, version, name), new(Produce)
			f("produce", func() {
				if !p.Decode(body, version, intern) {
					t.Fatal("refused")
				}
				out = p.AppendResponse(out[:0], version)
			})
		}
	}
	for _, version := range []int16{4, 11, 12, 13, 18} {
		for _, name := range []string{"one", "three"} {
			body, q := benchmarkBody(t, "messages-requests", 1, version, name), new(FetchRequest)
			f("fetch "+name, func() {
				if !q.Decode(body, version, intern) {
					t.Fatal("refused")
				}
				resp := GetFetchResponse()
				for _, x := range q.Topics {
					for _, p := range x.Partitions {
						resp.Add(x.Name, x.ID, p.Partition).HighWatermark = 5
					}
				}
				r := rpc.Response{Buf: out[:0]}
				resp.AppendTo(&r, version)
				out = r.Buf
				resp.Put()
			})
		}
	}
}

func FuzzProduceRequest(f *testing.F) {
	for _, v := range vectors(f, "messages-requests", 0) {
		if len(v.Hex) < 4000 {
			f.Add(v.bytes(f), v.Version)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, version int16) {
		if version < 3 || version > 13 {
			return
		}
		p := GetProduce()
		defer p.Put()
		if !p.Decode(b, version, nil) {
			return
		}
		for _, x := range p.Topics {
			for _, q := range x.Partitions {
				if len(q.Records) > len(b) {
					t.Fatal("records are longer than the request")
				}
			}
		}
		p.AppendResponse(nil, version)
	})
}

func FuzzFetchRequest(f *testing.F) {
	for _, v := range vectors(f, "messages-requests", 1) {
		if len(v.Hex) < 4000 {
			f.Add(v.bytes(f), v.Version)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, version int16) {
		if version < 4 || version > 18 {
			return
		}
		q := GetFetchRequest()
		defer q.Put()
		if !q.Decode(b, version, nil) {
			return
		}
		n := 0
		for _, x := range q.Topics {
			n += len(x.Partitions)
		}
		if n > len(b) {
			t.Fatalf("%d partitions out of %d bytes", n, len(b))
		}
	})
}

func FuzzAPIVersions(f *testing.F) {
	for _, v := range vectors(f, "messages-requests", 18) {
		f.Add(v.bytes(f), v.Version)
	}
	av := testAPIVersions(BrokerListener, 1)
	f.Fuzz(func(t *testing.T, b []byte, version int16) {
		r := &rpc.Request{Key: 18, Version: version, Body: b, Conn: new(rpc.Conn)}
		av.Handle(r)
		if len(r.Response.Buf) == 0 && r.Response.Fail == nil {
			t.Fatal("neither an answer nor a refusal")
		}
	})
}

func BenchmarkProduceDecode(b *testing.B) {
	for _, name := range []string{"one", "mixed1", "three"} {
		body := benchmarkBody(b, "messages-requests", 0, 9, name)
		b.Run(name, func(b *testing.B) {
			p := new(Produce)
			b.ReportAllocs()
			for b.Loop() {
				p.Decode(body, 9, nil)
			}
		})
	}
}

func BenchmarkProduceResponse(b *testing.B) {
	p := new(Produce)
	p.Decode(benchmarkBody(b, "messages-requests", 0, 9, "one"), 9, nil)
	out := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		out = p.AppendResponse(out[:0], 9)
	}
}

func BenchmarkFetchDecode(b *testing.B) {
	body := benchmarkBody(b, "messages-requests", 1, 12, "one")
	q := new(FetchRequest)
	b.ReportAllocs()
	for b.Loop() {
		q.Decode(body, 12, nil)
	}
}

func BenchmarkFetchResponse1000(b *testing.B) {
	out := make([]byte, 0, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		f := GetFetchResponse()
		for i := range int32(1000) {
			f.Add("topic", kafka.TopicID{1}, i).HighWatermark = 7
		}
		r := rpc.Response{Buf: out[:0]}
		f.AppendTo(&r, 13)
		f.Put()
	}
}
