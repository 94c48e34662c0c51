package node_test

// Shows a whole node in this process, on a real disk and real sockets, through franz-go: from an empty directory over topics,
// records and refusals to a restart that finds everything.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	fkerr "github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/node"
	"github.com/highwater/highwater/internal/raftloop"
	"github.com/highwater/highwater/internal/schema"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
	"github.com/highwater/highwater/internal/vfs/osfs"
)

// format makes a directory as kafka-storage does, for node 1 as broker and controller on free ports.
func format(t *testing.T, more ...string) *config.Broker { return formatWith(t, nil, more...) }

// formatWith puts records behind those that every cluster begins with.
func formatWith(t *testing.T, extra []schema.Record, more ...string) *config.Broker {
	t.Helper()
	dir := t.TempDir()
	c := configure(t, dir, more...)
	formatOn(t, osfs.New(""), c, extra...)
	return c
}

// formatOn formats c's log directories on fsys, with extra records behind those that every cluster begins with.
func formatOn(t *testing.T, fsys vfs.FS, c *config.Broker, extra ...schema.Record) {
	t.Helper()
	log := c.MetadataLogDir + "/__cluster_metadata-0"
	if err := fsys.MkdirAll(log); err != nil {
		t.Fatal(err)
	}
	for i, d := range c.LogDirs {
		if err := fsys.MkdirAll(d); err != nil {
			t.Fatal(err)
		}
		if err := storage.WriteMeta(fsys, d, storage.Meta{Version: 1, ClusterID: "node-test-cluster-AAAA", NodeID: 1, DirectoryID: kafka.UUID{0: 9, 15: byte(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	var records [][]byte
	for _, r := range append(metadata.Bootstrap(metadata.BootstrapOptions{Version: metadata.LatestProductionVersion}), extra...) {
		b, err := schema.AppendFrame(nil, r, 0)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, b)
	}
	var none raftloop.Options
	if err := raftloop.FormatBootstrap(fsys, log, time.Now(), none.QuorumVoters, 0, records...); err != nil {
		t.Fatal(err)
	}
}

func configure(t *testing.T, dir string, more ...string) *config.Broker {
	t.Helper()
	ports := make([]int, 2)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports[i] = l.Addr().(*net.TCPAddr).Port
		defer l.Close()
	}
	text := fmt.Sprintf(`process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d
controller.quorum.voters=1@127.0.0.1:%d
log.dirs=%s/data
`, ports[0], ports[1], ports[1], dir) + strings.Join(more, "\n")
	p, err := config.ParseProperties([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.NewBroker(p)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func start(t *testing.T, c *config.Broker) *node.Node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	n, err := node.Start(ctx, node.Options{Config: c, FS: osfs.New(""), Log: slog.New(slog.NewTextHandler(testWriter{t}, nil))})
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	return n
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

func stop(t *testing.T, n *node.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		t.Fatalf("stop: %v", err)
	}
}

func client(t *testing.T, n *node.Node, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(n.Addr("PLAINTEXT")), kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func TestNodeServesAndRestarts(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	c := format(t)
	n := start(t, c)
	cl := client(t, n)
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(ctx, 3, 1, map[string]*string{"max.message.bytes": kadm.StringPtr("2000000")}, "t"); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.CreateTopic(ctx, 1, 1, nil, "t"); !errors.Is(err, fkerr.TopicAlreadyExists) {
		t.Fatalf("the same topic again: %v", err)
	}
	if _, err := adm.CreateTopic(ctx, 1, 2, nil, "u"); !errors.Is(err, fkerr.InvalidReplicationFactor) {
		t.Fatalf("two replicas on one broker: %v", err)
	}
	const records = 300
	for i := range records {
		r := &kgo.Record{Topic: "t", Partition: int32(i % 3), Key: fmt.Appendf(nil, "k%d", i), Value: bytes.Repeat([]byte{byte(i)}, i*10)}
		cl.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce: %v", err)
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	consume(t, ctx, n, records)
	cl.Close()
	stop(t, n)

	n = start(t, c)
	consume(t, ctx, n, records)
	cl = client(t, n)
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("after")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	consume(t, ctx, n, records+1)
	adm = kadm.NewClient(cl)
	if _, err := adm.DeleteTopics(ctx, "t"); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "none", Value: []byte("x")}).FirstErr(); err == nil {
		t.Fatal("a record for a topic that kgo may not create was accepted")
	}
	cl.Close()
	stop(t, n)
}

// consume reads topic t from the start until it has all, and compares every record's place and content.
func consume(t *testing.T, ctx context.Context, n *node.Node, want int) {
	t.Helper()
	cl := client(t, n, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer cl.Close()
	next := map[int32]int64{}
	got := 0
	for got < want {
		f := cl.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("after %d of %d records: %v", got, want, err)
		}
		f.EachRecord(func(r *kgo.Record) {
			if r.Offset != next[r.Partition] {
				t.Fatalf("partition %d: offset %d, want %d", r.Partition, r.Offset, next[r.Partition])
			}
			if r.Key != nil {
				i := int(r.Offset)*3 + int(r.Partition)
				if string(r.Key) != fmt.Sprintf("k%d", i) || !bytes.Equal(r.Value, bytes.Repeat([]byte{byte(i)}, i*10)) {
					t.Fatalf("record %d of partition %d is another one: %s", r.Offset, r.Partition, r.Key)
				}
			}
			next[r.Partition]++
			got++
		})
	}
}

// TestLongPollEndsWithNews: a fetch that waits is answered when a record comes, long before its time is over, in and
// outside of a fetch session, for any min.bytes.
func TestLongPollEndsWithNews(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	n := start(t, format(t))
	defer stop(t, n)
	cl := client(t, n)
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 2, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	for name, opts := range map[string][]kgo.Opt{
		"session":      nil,
		"no session":   {kgo.DisableFetchSessions()},
		"minimum":      {kgo.FetchMinBytes(50)},
		"committed":    {kgo.FetchIsolationLevel(kgo.ReadCommitted())},
		"both of them": {kgo.DisableFetchSessions(), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMinBytes(50)},
	} {
		reader := client(t, n, append(opts, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()), kgo.FetchMaxWait(50*time.Second))...)
		// A first record tells that the reader has its offsets and polls.
		for found := false; !found; {
			if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: bytes.Repeat([]byte("a"), 100)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			poll, done := context.WithTimeout(ctx, 300*time.Millisecond)
			found = reader.PollFetches(poll).NumRecords() > 0
			done()
		}
		for i := range 5 {
			if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Partition: int32(i % 2), Value: bytes.Repeat([]byte("b"), 100)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			if f := reader.PollFetches(ctx); f.Err() != nil || f.NumRecords() == 0 {
				t.Fatalf("%s: %v, %d records", name, f.Err(), f.NumRecords())
			}
			if took := time.Since(begin); took > 20*time.Second {
				t.Fatalf("%s: waited %v for a record that was there", name, took)
			}
		}
		reader.Close()
	}
}

func TestRefusedStarts(t *testing.T) {
	fail := func(c *config.Broker) *node.StartError {
		t.Helper()
		n, err := node.Start(t.Context(), node.Options{Config: c, FS: osfs.New(""), Log: slog.New(slog.DiscardHandler)})
		if err == nil {
			stop(t, n)
			t.Fatal("started")
		}
		var s *node.StartError
		if !errors.As(err, &s) {
			t.Fatalf("error %v has no way out", err)
		}
		return s
	}
	if e := fail(configure(t, t.TempDir())); e.Text != "No readable meta.properties files found." || !strings.Contains(e.Hint, "kafka-storage.sh format") {
		t.Errorf("unformatted: %q, %q", e.Text, e.Hint)
	}
	c := format(t)
	n := start(t, c)
	if e := fail(c); !strings.Contains(e.Text, c.LogDirs[0]) || !strings.Contains(e.Text, ".lock") {
		t.Errorf("two processes on one directory: %q", e.Text)
	}
	stop(t, n)
	n = start(t, c) // the one that was refused did no harm
	stop(t, n)

	l, err := net.Listen("tcp", n.Config().Listeners[0].Host+":"+fmt.Sprint(n.Config().Listeners[0].Port))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if e := fail(c); !strings.Contains(e.Text, l.Addr().String()) || !strings.Contains(e.Hint, "PLAINTEXT") {
		t.Errorf("port in use: %q, %q", e.Text, e.Hint)
	}
	if err := storage.WriteMeta(osfs.New(""), c.LogDirs[0], storage.Meta{Version: 1, ClusterID: "node-test-cluster-AAAA", NodeID: 2, DirectoryID: kafka.UUID{9}}); err != nil {
		t.Fatal(err)
	}
	if e := fail(c); !strings.Contains(e.Text, "Stored node id 2") || !strings.Contains(e.Text, "meta.properties") {
		t.Errorf("another node's directory: %q", e.Text)
	}
	zookeeper := configure(t, t.TempDir())
	if err := os.MkdirAll(zookeeper.LogDirs[0], 0o755); err != nil {
		t.Fatal(err)
	}
	if err := storage.WriteMeta(osfs.New(""), zookeeper.LogDirs[0], storage.Meta{ClusterID: "node-test-cluster-AAAA", NodeID: 1}); err != nil {
		t.Fatal(err)
	}
	if e := fail(zookeeper); !strings.Contains(e.Text, "ZooKeeper mode") || !strings.Contains(e.Hint, "Migrate the cluster to KRaft with Kafka 3.9") {
		t.Errorf("a directory of ZooKeeper mode: %q, %q", e.Text, e.Hint)
	}
	if _, err := os.Stat(filepath.Join(zookeeper.LogDirs[0], "__cluster_metadata-0")); err == nil {
		t.Error("a directory of ZooKeeper mode got a metadata log")
	}
}

// TestForwardedRequestsReachTheController: configs are altered by a broker's listener, and in force at once.
func TestForwardedRequestsReachTheController(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	n := start(t, format(t))
	defer stop(t, n)
	cl := client(t, n, kgo.ProducerBatchMaxBytes(5_000_000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(ctx, 1, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	large := &kgo.Record{Topic: "t", Value: make([]byte, 1_500_000)}
	if err := cl.ProduceSync(ctx, large).FirstErr(); !errors.Is(err, fkerr.MessageTooLarge) {
		t.Fatalf("a record above max.message.bytes: %v", err)
	}
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: kadm.StringPtr("3000000")}}
	if r, err := adm.AlterTopicConfigs(ctx, set, "t"); err != nil || r[0].Err != nil {
		t.Fatalf("%v %v", err, r)
	}
	for { // the answer comes when it is committed; the broker takes it in a moment later
		err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: make([]byte, 1_500_000)}).FirstErr()
		if err == nil {
			break
		}
		if !errors.Is(err, fkerr.MessageTooLarge) || ctx.Err() != nil {
			t.Fatalf("after max.message.bytes was raised: %v", err)
		}
	}
	req := kmsg.NewPtrDescribeQuorumRequest()
	rt := kmsg.NewDescribeQuorumRequestTopic()
	rt.Topic = kafka.ClusterMetadataTopic
	rt.Partitions = append(rt.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil || resp.ErrorCode != 0 || resp.Topics[0].Partitions[0].LeaderID != 1 {
		t.Fatalf("DescribeQuorum: %v %+v", err, resp)
	}
}
