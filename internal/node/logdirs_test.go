package node_test

// Shows a node with two log directories: replicas that move between them while they are written to, over a restart; a directory
// that fails, at the start and later, beside one that serves on.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	fkerr "github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/node"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
)

// placed is what DescribeLogDirs says: the directory of each replica, "+" before it if it is on its way there.
func placed(t *testing.T, ctx context.Context, cl *kgo.Client) (where map[string][]string, offline []string) {
	t.Helper()
	answer, err := cl.Broker(1).Request(ctx, kmsg.NewPtrDescribeLogDirsRequest()) // the client alone would drop errors
	if err != nil {
		t.Fatal(err)
	}
	resp := answer.(*kmsg.DescribeLogDirsResponse)
	where = make(map[string][]string)
	for _, d := range resp.Dirs {
		if d.ErrorCode != 0 {
			offline = append(offline, filepath.Base(d.Dir))
			continue
		}
		if d.TotalBytes <= 0 || d.UsableBytes <= 0 {
			t.Errorf("%s: %d bytes, %d usable", d.Dir, d.TotalBytes, d.UsableBytes)
		}
		for _, topic := range d.Topics {
			for _, p := range topic.Partitions {
				name, dir := fmt.Sprintf("%s-%d", topic.Topic, p.Partition), filepath.Base(d.Dir)
				if p.IsFuture {
					dir = "+" + dir
				}
				where[name] = append(where[name], dir)
			}
		}
	}
	return where, offline
}

func alterDir(t *testing.T, ctx context.Context, cl *kgo.Client, topic string, partition int32, dir string) error {
	t.Helper()
	req := kmsg.NewPtrAlterReplicaLogDirsRequest()
	req.Dirs = []kmsg.AlterReplicaLogDirsRequestDir{{Dir: dir, Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: topic, Partitions: []int32{partition}}}}}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		t.Fatal(err)
	}
	return fkerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

func until(t *testing.T, ctx context.Context, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, ctx.Err())
		case <-tick.C:
		}
	}
}

func TestMoveBetweenLogDirs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	top := t.TempDir()
	c := format(t, fmt.Sprintf("log.dirs=%s/a,%s/b", top, top))
	n := start(t, c)
	cl := client(t, n)
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(ctx, 4, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	var where map[string][]string
	until(t, ctx, "the partitions", func() bool { where, _ = placed(t, ctx, cl); return len(where) == 4 })
	count := map[string]int{}
	for p := range 4 {
		dirs := where[fmt.Sprintf("t-%d", p)]
		if len(dirs) != 1 {
			t.Fatalf("t-%d lies in %v", p, dirs)
		}
		count[dirs[0]]++
	}
	if count["a"] != 2 || count["b"] != 2 {
		t.Errorf("4 partitions over two directories: %v", count)
	}
	// Slow enough that the replica is on its way until that is taken back.
	rate := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "replica.alter.log.dirs.io.max.bytes.per.second", Value: kadm.StringPtr("10000")}}
	if _, err := adm.AlterBrokerConfigs(ctx, rate, 1); err != nil {
		t.Fatal(err)
	}
	records := 0
	produce := func(cl *kgo.Client, n int) {
		t.Helper()
		for range n {
			r := &kgo.Record{Topic: "t", Key: nil, Value: fmt.Appendf(nil, "%d %s", records, strings.Repeat("x", 1000))}
			if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
				t.Fatal(err)
			}
			records++
		}
	}
	produce(cl, 200)
	from := where["t-0"][0]
	to := map[string]string{"a": "b", "b": "a"}[from]
	if err := alterDir(t, ctx, cl, "t", 0, filepath.Join(top, "none")); !errors.Is(err, fkerr.LogDirNotFound) {
		t.Errorf("into a directory that isn't there: %v", err)
	}
	if err := alterDir(t, ctx, cl, "t", 0, filepath.Join(top, to)); err != nil {
		t.Fatal(err)
	}
	produce(cl, 20)
	want := []string{from, "+" + to}
	slices.SortFunc(want, func(a, b string) int { return strings.Compare(strings.TrimPrefix(a, "+"), strings.TrimPrefix(b, "+")) })
	if where, _ := placed(t, ctx, cl); !slices.Equal(where["t-0"], want) {
		t.Errorf("on its way t-0 lies in %v, want %v", where["t-0"], want)
	}
	cl.Close()
	stop(t, n)

	n = start(t, c)
	cl = client(t, n)
	adm = kadm.NewClient(cl)
	if where, _ := placed(t, ctx, cl); !slices.Equal(where["t-0"], want) {
		t.Errorf("after a restart t-0 lies in %v, want %v", where["t-0"], want)
	}
	rate = []kadm.AlterConfig{{Op: kadm.DeleteConfig, Name: rate[0].Name}}
	if _, err := adm.AlterBrokerConfigs(ctx, rate, 1); err != nil {
		t.Fatal(err)
	}
	produce(cl, 20)
	until(t, ctx, "t-0 to arrive", func() bool {
		where, _ := placed(t, ctx, cl)
		return slices.Equal(where["t-0"], []string{to})
	})
	produce(cl, 5)
	next := 0
	reader := client(t, n, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().AtStart()}}))
	for next < records {
		f := reader.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		f.EachRecord(func(r *kgo.Record) {
			if int(r.Offset) != next || !strings.HasPrefix(string(r.Value), fmt.Sprintf("%d x", next)) {
				t.Fatalf("offset %d has %.20s, want %d", r.Offset, r.Value, next)
			}
			next++
		})
	}
	reader.Close()
	if left, err := filepath.Glob(filepath.Join(top, "*", "*-future")); err != nil || len(left) != 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	cl.Close()
	stop(t, n)
	n = start(t, c) // what the controller was told is what the disk says
	cl = client(t, n)
	if where, _ := placed(t, ctx, cl); !slices.Equal(where["t-0"], []string{to}) {
		t.Errorf("t-0 lies in %v, want %v", where["t-0"], to)
	}
	cl.Close()
	stop(t, n)
}

// A disk that fails under many partitions is told of once.
func TestLogDirFailureIsToldOnce(t *testing.T) {
	f := formatMem(t)
	n, err := f.start(t, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	cl := client(t, n, kgo.RecordRetries(1), kgo.UnknownTopicRetries(1))
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 8, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	for p := range int32(8) {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Partition: p, Value: []byte("x")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	f.fsys.SetFault(func(o vfs.Op) error {
		if strings.HasPrefix(o.Name, "m/two/") && strings.HasSuffix(o.Name, ".log") {
			return syscall.ENOSPC
		}
		return nil
	})
	for p := range int32(8) {
		cl.Produce(ctx, &kgo.Record{Topic: "t", Partition: p, Value: []byte("x")}, nil)
	}
	const told = "its partitions are offline until the disk is seen to and the node started again\" dir=m/two partitions=4 error="
	until(t, ctx, "the directory's failure", func() bool { return strings.Contains(f.out.String(), told) })
	f.fsys.SetFault(nil)
	cl.Close()
	if err := f.stop(n); err != nil {
		t.Error(err)
	}
	if errs := strings.Count(f.out.String(), "level=ERROR"); errs != 1 || !strings.Contains(f.out.String(), syscall.ENOSPC.Error()) {
		t.Errorf("%d errors:\n%s", errs, f.out.String())
	}
}

// inMemory formats a node whose log directories, /m/a with the metadata log and /m/b, are in memory.
func inMemory(t *testing.T, more ...string) (*config.Broker, *vfs.Mem) {
	t.Helper()
	c := configure(t, "/m", append([]string{"log.dirs=/m/a,/m/b", "broker.heartbeat.interval.ms=200"}, more...)...)
	fsys := vfs.NewMem()
	formatOn(t, fsys, c)
	return c, fsys
}

func startOn(t *testing.T, c *config.Broker, fsys vfs.FS) *node.Node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	n, err := node.Start(ctx, node.Options{Config: c, FS: fsys, OpenFiles: 100, Log: slog.New(slog.NewTextHandler(testWriter{t}, nil))})
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	return n
}

// A directory that fails costs what lies there (F102): its partitions lose their leader, the others serve on, new ones are made
// where there is room, and nothing says that it was left cleanly. When the disk is back a restart finds everything. Without the
// metadata log's directory the node ends.
func TestLogDirFails(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	c, fsys := inMemory(t)
	n := startOn(t, c, fsys)
	cl := client(t, n, kgo.MetadataMinAge(10*time.Millisecond), kgo.RecordRetries(1), kgo.UnknownTopicRetries(1))
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(ctx, 2, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	var where map[string][]string
	until(t, ctx, "the partitions", func() bool { where, _ = placed(t, ctx, cl); return len(where) == 2 })
	lies := map[string]int32{where["t-0"][0]: 0, where["t-1"][0]: 1}
	if len(lies) != 2 {
		t.Fatalf("%v", where)
	}
	write := func(partition int32) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		return cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Partition: partition, Value: []byte("x")}).FirstErr()
	}
	for range 3 {
		if err := errors.Join(write(0), write(1)); err != nil {
			t.Fatal(err)
		}
	}
	fsys.SetFault(func(o vfs.Op) error {
		if strings.HasPrefix(o.Name, "/m/b") {
			return syscall.EIO
		}
		return nil
	})
	if err := write(lies["b"]); err == nil {
		t.Error("a record was accepted by a disk that refuses everything")
	}
	until(t, ctx, "the controller to take the leader away", func() bool {
		m, err := adm.Metadata(ctx, "t")
		if err != nil {
			t.Fatal(err)
		}
		p := m.Topics["t"].Partitions[lies["b"]]
		return p.Leader == -1 && slices.Equal(p.OfflineReplicas, []int32{1})
	})
	if err := write(lies["a"]); err != nil {
		t.Errorf("the other directory: %v", err)
	}
	where, offline := placed(t, ctx, cl)
	if !slices.Equal(offline, []string{"b"}) || len(where) != 1 {
		t.Errorf("offline %v, %v", offline, where)
	}
	if err := alterDir(t, ctx, cl, "t", lies["a"], "/m/b"); !errors.Is(err, fkerr.KafkaStorageError) {
		t.Errorf("move into the directory that failed: %v", err)
	}
	if _, err := adm.CreateTopic(ctx, 2, 1, nil, "u"); err != nil {
		t.Fatal(err)
	}
	until(t, ctx, "new partitions", func() bool {
		where, _ := placed(t, ctx, cl)
		return slices.Equal(where["u-0"], []string{"a"}) && slices.Equal(where["u-1"], []string{"a"})
	})
	cl.Close()
	stop(t, n)
	fsys.SetFault(nil)
	if _, err := fsys.Stat("/m/b/.kafka_cleanshutdown"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the mark of a clean shutdown in the directory that failed: %v", err)
	}
	if _, err := fsys.Stat("/m/a/.kafka_cleanshutdown"); err != nil {
		t.Errorf("the mark of a clean shutdown in the other: %v", err)
	}

	// The disk is still not readable at the next start.
	fsys.SetFault(func(o vfs.Op) error {
		if strings.HasPrefix(o.Name, "/m/b") {
			return &os.PathError{Op: o.Kind.String(), Path: o.Name, Err: syscall.EIO}
		}
		return nil
	})
	n = startOn(t, c, fsys)
	cl = client(t, n)
	if where, offline := placed(t, ctx, cl); !slices.Equal(offline, []string{"b"}) || len(where) != 3 {
		t.Errorf("offline %v, %v", offline, where)
	}
	cl.Close()
	stop(t, n)

	fsys.SetFault(nil)
	n = startOn(t, c, fsys)
	cl = client(t, n)
	adm = kadm.NewClient(cl)
	until(t, ctx, "a leader again", func() bool { return write(lies["b"]) == nil })
	ends, err := adm.ListEndOffsets(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	for p := range int32(2) {
		if o, _ := ends.Lookup("t", p); o.Err != nil || o.Offset != 4 {
			t.Errorf("t-%d ends at %d, %v", p, o.Offset, o.Err)
		}
	}
	fsys.SetFault(func(o vfs.Op) error {
		if strings.HasPrefix(o.Name, "/m/a") {
			return syscall.EIO
		}
		return nil
	})
	_ = write(lies["a"])
	select {
	case err := <-n.Failed():
		if !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "/m/a") {
			t.Errorf("without the metadata log: %v", err)
		}
	case <-ctx.Done():
		t.Error("the node goes on without the metadata log")
	}
	cl.Close()
	end, cancelEnd := context.WithTimeout(context.Background(), time.Second)
	defer cancelEnd()
	_ = n.Stop(end) // it can't leave anything in order
}

// Directories of a Kafka that knew no ids get one at the first start, and keep it.
func TestLogDirsGetIDs(t *testing.T) {
	c, fsys := inMemory(t)
	for _, d := range c.LogDirs {
		m, err := storage.ReadMeta(fsys, d)
		if err != nil {
			t.Fatal(err)
		}
		m.DirectoryID = kafka.DirectoryID{}
		if err := storage.WriteMeta(fsys, d, m); err != nil {
			t.Fatal(err)
		}
	}
	var before []kafka.DirectoryID
	for range 2 {
		n := startOn(t, c, fsys)
		var ids []kafka.DirectoryID
		for _, d := range c.LogDirs {
			m, err := storage.ReadMeta(fsys, d)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, m.DirectoryID)
		}
		if ids[0].IsReserved() || ids[0] == ids[1] || before != nil && !slices.Equal(ids, before) {
			t.Errorf("ids %v, before %v", ids, before)
		}
		before = ids
		got := slices.Clone(n.Image().Broker(1).LogDirs)
		if len(got) != 2 || !slices.Contains(got, ids[0]) || !slices.Contains(got, ids[1]) {
			t.Errorf("registered with %v, not %v", got, ids)
		}
		stop(t, n)
	}
}
