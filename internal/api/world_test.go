package api

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/replica"
	"github.com/highwater/highwater/internal/replication"
	"github.com/highwater/highwater/internal/rpc"
	"github.com/highwater/highwater/internal/schema"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
)

var start = time.UnixMilli(1_700_000_000_000)

// world is a broker's handlers over a set of replicas on a disk in memory; it is broker 1 of three. There are no sockets: a
// request is a body, and a test decides when a Pending expires.
type world struct {
	*Broker
	t      testing.TB
	fsys   *vfs.Mem
	set    *replica.Set
	delta  *metadata.Delta
	config replica.TopicConfig
	now    time.Time
	conn   *rpc.Conn
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, fsys: vfs.NewMem(), config: replica.TopicConfig{Log: storage.DefaultConfig(), MinISR: 1}, now: start}
	w.conn = &rpc.Conn{ID: "test", Listener: "PLAINTEXT", Principal: "User:ANONYMOUS", Remote: netip.MustParseAddrPort("192.0.2.7:5000")}
	if err := w.fsys.MkdirAll("/d"); err != nil {
		t.Fatal(err)
	}
	d, err := storage.OpenDir("/d", storage.Options{FS: w.fsys, Files: storage.NewFiles(w.fsys, 100), ProducerExpiration: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	unique := byte(0)
	w.set = replica.NewSet(replica.Options{
		ID: 1, Dirs: []*replica.Dir{{Dir: d, ID: kafka.DirectoryID{7: 77}}}, LagMax: 30 * time.Second,
		Config:   func(*metadata.Image, string) replica.TopicConfig { return w.config },
		Alter:    func(*replica.Replica, replication.ISRChange) {},
		Assigned: func(kafka.TopicIDPartition, kafka.DirectoryID, func()) {},
		Moving:   func(*replica.Replica) {},
		Rolled:   func(*storage.Log) {},
		Removed:  func(*storage.Dir, string, time.Duration) {},
		Note:     func(msg string, p kafka.TopicPartition, err error) { t.Errorf("%s: %v: %v", msg, p, err) },
		Unique:   func() [16]byte { unique++; return [16]byte{unique} },
	})
	w.Broker = &Broker{
		ID: 1, ClusterID: "cluster", Replicas: func() *replica.Set { return w.set }, Image: w.set.Image,
		Random:   func(n int) int { return n - 1 },
		Sessions: NewSessions(10, rand.New(rand.NewPCG(1, 2))),
		Limits:   Limits{FetchMaxBytes: 55 << 20, MaxRequestPartitionSize: 2000, RequestTimeout: 30 * time.Second},
	}
	w.delta = metadata.NewDelta(metadata.Empty())
	level := schema.NewFeatureLevelRecord()
	level.Name, level.FeatureLevel = metadata.MetadataVersionFeature, int16(metadata.LatestProductionVersion)
	records := []schema.Record{level}
	for id := int32(1); id <= 3; id++ {
		b := schema.NewRegisterBrokerRecord()
		b.BrokerID, b.BrokerEpoch, b.Fenced, b.Rack = id, int64(100+id), false, nil
		b.LogDirs = []kafka.UUID{{7: 77}}
		e := schema.RegisterBrokerRecordBrokerEndpoint{Name: "PLAINTEXT", Host: "host", Port: uint16(9000 + id)}
		b.EndPoints = append(b.EndPoints, e)
		records = append(records, b)
	}
	w.apply(records...)
	return w
}

func (w *world) apply(records ...schema.Record) {
	w.t.Helper()
	for _, r := range records {
		at := w.delta.At()
		at.Offset++
		if err := w.delta.Replay(at, r); err != nil {
			w.t.Fatal(err)
		}
	}
	image, changes := w.delta.Apply()
	w.set.Apply(w.now, image, changes)
}

func topicID(n int) kafka.TopicID { return kafka.TopicID{0: byte(n >> 8), 1: byte(n), 15: 200} }

// topic makes topic n with partitions that have these replicas; the first leads.
func (w *world) topic(n int, name string, partitions int, replicas ...int32) {
	w.t.Helper()
	t := schema.NewTopicRecord()
	t.Name, t.TopicID = name, topicID(n)
	records := []schema.Record{t}
	for i := range partitions {
		p := schema.NewPartitionRecord()
		p.TopicID, p.PartitionID, p.Replicas, p.ISR, p.Leader = topicID(n), int32(i), replicas, replicas, replicas[0]
		p.LeaderEpoch, p.PartitionEpoch = 0, 0
		p.Directories = make([]kafka.UUID, len(replicas))
		for j := range p.Directories {
			p.Directories[j] = kafka.UUID{7: 77}
		}
		records = append(records, p)
	}
	w.apply(records...)
}

func (w *world) lead(n int, partition, leader int32) {
	w.t.Helper()
	c := schema.NewPartitionChangeRecord()
	c.TopicID, c.PartitionID, c.Leader = topicID(n), partition, leader
	w.apply(c)
}

func (w *world) remove(n int) {
	w.t.Helper()
	r := schema.NewRemoveTopicRecord()
	r.TopicID = topicID(n)
	w.apply(r)
}

// replicate is a fetch by a follower from offset on.
func (w *world) replicate(topic string, partition int32, follower kafka.BrokerID, offset kafka.Offset) {
	w.t.Helper()
	rep, err := w.set.Lookup(topic, partition)
	if err != nil {
		w.t.Fatal(err)
	}
	_, epoch := rep.Leads()
	var out replica.Read
	err = rep.Read(w.now, replica.Reader{Follower: follower, FollowerEpoch: 100 + kafka.BrokerEpoch(follower)},
		replica.ReadRequest{Offset: offset, MaxBytes: 1 << 20, LeaderEpoch: epoch, LastFetchedEpoch: -1}, &out)
	if err != nil {
		w.t.Fatal(err)
	}
	out.Records.Release()
}

// request is one request with its body.
func (w *world) request(req kmsg.Request) *rpc.Request {
	body := schema.AppendMessage(nil, req)
	return &rpc.Request{
		Key: req.Key(), Version: req.GetVersion(), CorrelationID: 5, ClientID: "client", HasClientID: true,
		Body: body, Size: len(body), Received: w.now, Now: w.now, Conn: w.conn,
	}
}

// begin calls a handler; afterwards the body is overwritten, as the connection may do.
func (w *world) begin(h rpc.Handler, req kmsg.Request) (*rpc.Request, *rpc.Pending) {
	r := w.request(req)
	p := h(r)
	for i := range r.Body {
		r.Body[i] = 0xee
	}
	return r, p
}

// finish ends a Pending, by its deadline if it isn't complete.
func finish(r *rpc.Request, p *rpc.Pending) {
	if p == nil {
		return
	}
	done, expired := p.Done()
	if !done {
		p.Expire()
		expired = true
	}
	r.Response = rpc.Response{}
	p.Finish(r, expired)
}

// answer decodes what a handler answered.
func answer[T kmsg.Response](t testing.TB, r *rpc.Request, into T) T {
	t.Helper()
	if r.Response.Fail != nil {
		t.Fatalf("the request ended its connection: %v", r.Response.Fail)
	}
	into.SetVersion(r.Version)
	if err := schema.ReadResponse(into, wire(t, &r.Response)); err != nil {
		t.Fatalf("answer of version %d: %v", r.Version, err)
	}
	return into
}

// wire is an answer as it is sent; its ranges are released.
func wire(t testing.TB, r *rpc.Response) []byte {
	t.Helper()
	var out []byte
	from := 0
	for _, p := range r.Parts {
		out = append(out, r.Buf[from:p.At]...)
		b := make([]byte, p.Len())
		if _, err := p.ReadAt(b, 0); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		p.Release()
		out = append(out, b...)
		from = p.At
	}
	return append(out, r.Buf[from:]...)
}

// call begins, finishes and decodes.
func call[T kmsg.Response](w *world, h rpc.Handler, req kmsg.Request, into T) T {
	w.t.Helper()
	r, p := w.begin(h, req)
	finish(r, p)
	return answer(w.t, r, into)
}

// batchOf is one batch with a record for each value.
func batchOf(t testing.TB, values ...string) []byte {
	return producerBatch(t, kafka.NoProducerID, kafka.NoSequence, false, values...)
}

func producerBatch(t testing.TB, id kafka.ProducerID, sequence int32, transactional bool, values ...string) []byte {
	t.Helper()
	o := record.DefaultBatchOptions(0)
	if id >= 0 {
		o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = id, 0, sequence, transactional
	}
	b := record.NewBuilder(o)
	for i, v := range values {
		b.Append(start.UnixMilli()+int64(i), nil, []byte(v))
	}
	out, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// valuesOf reads the values in a fetched partition.
func valuesOf(t testing.TB, b []byte) (values []string) {
	t.Helper()
	for len(b) > 0 {
		batch, rest, err := record.Next(b)
		if err != nil {
			t.Fatalf("%d bytes are no batch: %v", len(b), err)
		}
		if batch == nil {
			break // cut by a bound of the fetch
		}
		n := int(binary.BigEndian.Uint32(batch[57:]))
		// Values are written one after another without keys and headers: length, attributes, deltas, -1, length, value, 0.
		body := bytes.NewReader(batch[61:])
		for range n {
			_, _ = binary.ReadVarint(body)
			_, _ = body.ReadByte()
			_, _ = binary.ReadVarint(body)
			_, _ = binary.ReadVarint(body)
			_, _ = binary.ReadVarint(body)
			size, _ := binary.ReadVarint(body)
			v := make([]byte, size)
			if _, err := io.ReadFull(body, v); err != nil {
				t.Fatal(err)
			}
			_, _ = binary.ReadVarint(body)
			values = append(values, string(v))
		}
		b = rest
	}
	return values
}

func code(e *kerr.Error) int16 {
	if e == nil {
		return 0
	}
	return e.Code
}
