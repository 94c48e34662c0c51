package chaos

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/test/peer"
)

var (
	brokerFlag = flag.String("broker", "highwater", "who is tried: highwater or kafka")
	rounds     = flag.Int("rounds", 0, "how often the node is killed; 0: 25 times, Kafka 3 times")
	seed       = flag.Uint64("seed", 0, "for the moments of the kills; 0: a new one")
	serveIn    = flag.Duration("serve", 0, "how soon a started node must acknowledge a record; 0: 1s, Kafka 60s")
)

const (
	topic      = "chaos"
	partitions = 6
	steady     = 2 // producers that live through all rounds; one more is new in each round
)

// ack is a record that the node acknowledged.
type ack struct {
	session, partition int32
	n                  int64 // the session's count in the partition, which the value tells too
	offset             int64
}

// book is what the producers know.
type book struct {
	acked atomic.Int64
	mu    sync.Mutex
	acks  []ack
	sent  map[[2]int32]int64 // session, partition → records handed to the client
	errs  []error
}

// producer writes to all partitions in turn until stop; flush says whether to wait for every answer then.
func (b *book) producer(ctx context.Context, addr string, session int32) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.DefaultProduceTopic(topic),
		kgo.MaxBufferedRecords(500), kgo.ProducerLinger(time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.MetadataMinAge(20*time.Millisecond), kgo.DialTimeout(time.Second),
		// A node that is killed just after it took a connection is not one that wants SASL.
		kgo.AlwaysRetryEOF(), kgo.ClientID(fmt.Sprintf("session-%d", session)))
	if err != nil {
		return err
	}
	defer cl.Close()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var next [partitions]int64
	for i := int32(0); ; i++ {
		p := i % partitions
		n := next[p]
		next[p]++
		value := fmt.Appendf(nil, "%d/%d/%d/%s", session, p, n, strings.Repeat("v", int(n*37%700)))
		// Never given up: an answer that does not come would leave open whether the record is in the log.
		cl.Produce(context.Background(), &kgo.Record{Partition: p, Value: value}, func(r *kgo.Record, err error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if err != nil {
				b.errs = append(b.errs, fmt.Errorf("session %d, partition %d, record %d: %w", session, p, n, err))
				return
			}
			b.acks = append(b.acks, ack{session, p, n, r.Offset})
			b.acked.Add(1)
		})
		if i%5 != 4 {
			continue
		}
		select {
		case <-ctx.Done():
			if err := cl.Flush(context.Background()); err != nil {
				return err
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			for p, n := range next {
				b.sent[[2]int32{session, int32(p)}] = n
			}
			return nil
		case <-tick.C:
		}
	}
}

// TestKill kills the node under load, over and over, at random moments; starts it again at once; and reads back the log at the end,
// after a clean stop too.
func TestKill(t *testing.T) {
	software := peer.Software(*brokerFlag)
	n, limit := 25, time.Second
	if software == peer.Kafka {
		n, limit = 3, time.Minute
	}
	if *rounds > 0 {
		n = *rounds
	}
	if *serveIn > 0 {
		limit = *serveIn
	}
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("seed %d, %d rounds", s, n)
	rng := rand.New(rand.NewPCG(s, 0))
	node := peer.Started(t, peer.Options{Software: software})
	create(t, node.Addr(), topic, partitions, "segment.bytes=1048576") // so small that segments roll all the time
	create(t, node.Addr(), "probe", 1)

	b := &book{sent: map[[2]int32]int64{}}
	stopAll, cancelAll := context.WithCancel(t.Context())
	defer cancelAll()
	var wg sync.WaitGroup
	run := func(ctx context.Context, session int32) {
		wg.Go(func() {
			if err := b.producer(ctx, node.Addr(), session); err != nil {
				b.mu.Lock()
				b.errs = append(b.errs, err)
				b.mu.Unlock()
			}
		})
	}
	for i := range int32(steady) {
		run(stopAll, i)
	}
	var worst time.Duration
	for round := range n {
		ctx, cancel := context.WithCancel(stopAll)
		run(ctx, int32(steady+round))
		before := b.acked.Load()
		more := int64(50 + rng.IntN(2000))
		for end := time.Now().Add(30 * time.Second); b.acked.Load() < before+more; pause(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("round %d: %d records acknowledged in 30 s, want %d", round, b.acked.Load()-before, more)
			}
		}
		pause(time.Duration(rng.IntN(5000)) * time.Microsecond)
		if rng.IntN(3) == 0 {
			cancel() // the new producer finishes while the node is away
		}
		if err := node.Kill(); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if _, err := node.Start(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := acknowledges(node.Addr(), begin.Add(limit)); err != nil {
			t.Errorf("round %d: the node does not serve within %v of its start: %v", round, limit, err)
			if err := acknowledges(node.Addr(), begin.Add(time.Minute)); err != nil {
				t.Fatalf("round %d: nor within a minute: %v", round, err)
			}
		}
		worst = max(worst, time.Since(begin))
		cancel()
	}
	cancelAll()
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal("the producers do not come to an end")
	}
	t.Logf("%d records acknowledged, slowest start %v", len(b.acks), worst.Round(time.Millisecond))
	for i, err := range b.errs {
		if i == 10 {
			t.Errorf("… %d errors in all", len(b.errs))
			break
		}
		t.Error(err)
	}
	if len(b.acks) < n*50 {
		t.Fatalf("only %d records were acknowledged", len(b.acks))
	}
	b.verify(t, node.Addr())
	if err := node.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Start(); err != nil {
		t.Fatal(err)
	}
	b.verify(t, node.Addr())
}

// pause waits for time to pass, which is what a random moment is made of.
func pause(d time.Duration) { <-time.After(d) }

// verify reads all and checks it against the book.
func (b *book) verify(t *testing.T, addr string) {
	t.Helper()
	type place struct {
		session, partition int32
		n                  int64
	}
	at := map[[2]int64]place{} // partition, offset
	next := map[[2]int32]int64{}
	ends := ends(t, addr)
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumePartitions(func() map[string]map[int32]kgo.Offset {
		m := map[int32]kgo.Offset{}
		for p := range int32(partitions) {
			m[p] = kgo.NewOffset().At(0)
		}
		return map[string]map[int32]kgo.Offset{topic: m}
	}()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var read, total int64
	for _, e := range ends {
		total += e
	}
	bad := 0
	for read < total {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("read back: %v; %d of %d records", err, read, total)
		}
		fs.EachRecord(func(r *kgo.Record) {
			read++
			var p place
			if _, err := fmt.Sscanf(string(r.Value), "%d/%d/%d/", &p.session, &p.partition, &p.n); err != nil || p.partition != r.Partition {
				t.Errorf("partition %d, offset %d: a foreign record %.50q", r.Partition, r.Offset, r.Value)
			}
			key := [2]int32{p.session, p.partition}
			if p.n != next[key] {
				if bad++; bad <= 10 {
					t.Errorf("partition %d, offset %d: record %d of session %d, want %d: %s", r.Partition, r.Offset, p.n, p.session, next[key],
						map[bool]string{true: "a duplicate or out of order", false: "one is missing"}[p.n < next[key]])
				}
			}
			next[key] = p.n + 1
			at[[2]int64{int64(r.Partition), r.Offset}] = p
		})
	}
	for _, a := range b.acks {
		if got, ok := at[[2]int64{int64(a.partition), a.offset}]; !ok || got != (place{a.session, a.partition, a.n}) {
			if bad++; bad <= 10 {
				t.Errorf("partition %d, offset %d: record %d of session %d was acknowledged, %+v is there (%v)", a.partition, a.offset, a.n, a.session, got, ok)
			}
		}
	}
	if len(b.errs) == 0 { // every record was acknowledged
		for key, n := range b.sent {
			if next[key] != n {
				t.Errorf("session %d, partition %d: %d records in the log, %d were sent", key[0], key[1], next[key], n)
			}
		}
	}
	if bad > 10 {
		t.Errorf("… %d faults in all", bad)
	}
}

// call sends one request on a connection of its own.
func call(addr string, q kmsg.Request, version int16) (kmsg.Response, error) {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	q.SetVersion(version)
	if _, err := c.Write(kmsg.NewRequestFormatter().AppendRequest(nil, q, 1)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	body := make([]byte, min(binary.BigEndian.Uint32(size[:]), 64<<20))
	if _, err := io.ReadFull(c, body); err != nil {
		return nil, err
	}
	a := q.ResponseKind()
	body = body[4:]
	if a.IsFlexible() {
		body = body[1:]
	}
	return a, a.ReadFrom(body)
}

func create(t *testing.T, addr, name string, n int32, configs ...string) {
	t.Helper()
	a, err := call(addr, peer.CreateTopics(peer.NewTopic(name, n, 1, configs...)), 4)
	if err != nil {
		t.Fatal(err)
	}
	if c := a.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; c != 0 {
		t.Fatalf("create %s: code %d", name, c)
	}
}

// acknowledges writes one record to the topic probe, until the node says yes or the deadline comes.
func acknowledges(addr string, deadline time.Time) error {
	var err error
	for time.Now().Before(deadline) {
		var a kmsg.Response
		q := kmsg.NewPtrProduceRequest()
		q.Acks, q.TimeoutMillis = -1, 5000
		q.Topics = []kmsg.ProduceRequestTopic{{Topic: "probe", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: probe}}}}
		if a, err = call(addr, q, 7); err == nil {
			code := a.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode
			if code == 0 {
				return nil
			}
			err = fmt.Errorf("error code %d", code)
		}
		pause(2 * time.Millisecond)
	}
	if err == nil {
		err = errors.New("no time left")
	}
	return err
}

// probe is a batch of one record.
var probe = func() []byte {
	b := []byte{
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1,
		14, 0, 0, 0, 1, 2, 'p', 0,
	}
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[17:], crc(b[21:]))
	return b
}()

// ends are the log ends of the topic's partitions.
func ends(t *testing.T, addr string) []int64 {
	t.Helper()
	q := kmsg.NewPtrListOffsetsRequest()
	q.ReplicaID = -1
	qt := kmsg.NewListOffsetsRequestTopic()
	qt.Topic = topic
	for p := range int32(partitions) {
		x := kmsg.NewListOffsetsRequestTopicPartition()
		x.Partition, x.Timestamp = p, -1
		qt.Partitions = append(qt.Partitions, x)
	}
	q.Topics = append(q.Topics, qt)
	out := make([]int64, partitions)
	for end := time.Now().Add(20 * time.Second); ; pause(5 * time.Millisecond) {
		a, err := call(addr, q, 4)
		if err == nil {
			for _, p := range a.(*kmsg.ListOffsetsResponse).Topics[0].Partitions {
				if p.ErrorCode != 0 {
					err = fmt.Errorf("partition %d: code %d", p.Partition, p.ErrorCode)
				}
				out[p.Partition] = p.Offset
			}
		}
		if err == nil {
			return out
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
