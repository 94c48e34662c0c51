package raftloop

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/raft"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs/osfs"
)

// follower is what a node makes of its callbacks: the records in order, who leads, and snapshots when they are due.
type follower struct {
	t       testing.TB
	loop    *Loop
	mu      sync.Mutex
	cond    *sync.Cond
	values  []uint64
	next    kafka.Offset
	epoch   kafka.LeaderEpoch // in which this node leads; -1 before
	loaded  int
	writing sync.WaitGroup
	flushes *atomic.Int64
	dir     *storage.Dir
}

// countingLog counts syncs.
type countingLog struct {
	Log
	n *atomic.Int64
}

func (l countingLog) Flush() error {
	l.n.Add(1)
	return l.Log.Flush()
}

// startNode opens a quorum of one on a directory of the real file system.
func startNode(t testing.TB, root string, change func(*Options)) *follower {
	t.Helper()
	fsys := osfs.New(root)
	if err := fsys.MkdirAll("data"); err != nil {
		t.Fatal(err)
	}
	f := &follower{t: t, epoch: -1, flushes: new(atomic.Int64)}
	f.cond = sync.NewCond(&f.mu)
	d, err := storage.OpenDir("data", storage.Options{FS: fsys, Files: storage.NewFiles(fsys, 100)})
	if err != nil {
		t.Fatal(err)
	}
	f.dir = d
	e := raft.Endpoint{Listener: "CONTROLLER", Host: "localhost", Port: 9093}
	o := Options{
		NodeID: 1, ClusterID: "cluster", FS: fsys, MetadataLogDir: "data", Controller: true, ControllerListener: "CONTROLLER",
		Endpoints:    []raft.Endpoint{e},
		QuorumVoters: raft.NewVoterSet(raft.Voter{Key: raft.ReplicaKey{ID: 1}, Endpoints: []raft.Endpoint{e}}),
		Rand:         rand.New(rand.NewPCG(1, 2)),
	}
	o.OpenLog = func(dir string, recoveryPoint kafka.Offset) (Log, error) {
		l, _, err := OpenStorageLog(d, &o, recoveryPoint, time.Now())
		return countingLog{l, f.flushes}, err
	}
	if change != nil {
		change(&o)
	}
	l, err := Open(o, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	f.loop = l
	l.Start(Callbacks{Commit: f.commit, Snapshot: f.load, Leader: f.leader, SnapshotDue: f.due})
	return f
}

func (f *follower) commit(b Batch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b.BaseOffset != f.next {
		f.t.Errorf("batch at %d, want %d", b.BaseOffset, f.next)
	}
	for _, v := range b.Records {
		f.values = append(f.values, binary.BigEndian.Uint64(v))
	}
	f.next = b.LastOffset + 1
	f.cond.Broadcast()
}

func (f *follower) load(s *SnapshotReader) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.values, f.next, f.loaded = nil, s.ID.Offset, f.loaded+1
	for {
		b, ok, err := s.Next()
		if err != nil || !ok {
			return err
		}
		for _, v := range b.Records {
			f.values = append(f.values, binary.BigEndian.Uint64(v))
		}
	}
}

func (f *follower) leader(l LeaderChange) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.Local {
		f.epoch = l.Epoch
	} else {
		f.epoch = -1
	}
	f.cond.Broadcast()
}

func (f *follower) due(id kafka.OffsetAndEpoch, last time.Time, _ string) {
	f.mu.Lock()
	values := append([]uint64(nil), f.values...)
	f.mu.Unlock()
	f.writing.Go(func() {
		w, err := f.loop.CreateSnapshot(id, last)
		if errors.Is(err, ErrSnapshotExists) {
			return
		}
		if err != nil {
			f.t.Error(err)
			return
		}
		for _, v := range values {
			if err := w.Append(binary.BigEndian.AppendUint64(nil, v)); err != nil {
				f.t.Error(err)
			}
		}
		if err := w.Freeze(); err != nil && !errors.Is(err, ErrClosed) {
			f.t.Error(err)
		}
	})
}

func (f *follower) wait(what func() bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for !what() {
		f.cond.Wait()
	}
}

func (f *follower) close() {
	f.t.Helper()
	f.writing.Wait()
	f.loop.Shutdown(f.t.Context())
	if err := f.loop.Close(); err != nil {
		f.t.Error(err)
	}
	if err := f.dir.Close(-1); err != nil {
		f.t.Error(err)
	}
	select {
	case err := <-f.loop.Failed():
		f.t.Errorf("failed: %v", err)
	default:
	}
}

// TestLoopQuorumOfOne: it leads as soon as it runs; what many propose at once is committed once each, in order, with far
// fewer syncs than proposals; a restart gives all of it again, the beginning from a snapshot.
func TestLoopQuorumOfOne(t *testing.T) {
	defer goleak.VerifyNone(t)
	root := t.TempDir()
	small := func(o *Options) {
		o.MetadataLogMaxRecordBytesBetweenSnapshots = 4000
		o.QuorumAppendLinger = 2 * time.Millisecond
	}
	f := startNode(t, root, small)
	f.wait(func() bool { return f.epoch >= 0 })
	const proposers, each = 8, 50
	before := f.flushes.Load()
	var wg sync.WaitGroup
	for p := range proposers {
		wg.Go(func() {
			for i := range each {
				v := binary.BigEndian.AppendUint64(nil, uint64(p*each+i))
				last, err := f.loop.Propose(f.epoch, [][]byte{v})
				if err != nil {
					t.Error(err)
					return
				}
				if i%10 == 9 {
					f.wait(func() bool { return f.next > last })
				}
			}
		})
	}
	wg.Wait()
	f.wait(func() bool { return len(f.values) >= proposers*each })
	if n := f.flushes.Load() - before; n >= proposers*each {
		t.Errorf("%d syncs for %d proposals", n, proposers*each)
	}
	want := append([]uint64(nil), f.values...)
	seen := map[uint64]bool{}
	last := map[uint64]uint64{}
	for _, v := range want {
		if seen[v] {
			t.Errorf("%d twice", v)
		}
		seen[v] = true
		if p := v / each; last[p] > v {
			t.Errorf("%d after %d", v, last[p])
		} else {
			last[p] = v
		}
	}
	if _, err := f.loop.Propose(f.epoch+1, [][]byte{nil}); !errors.Is(err, kerr.NotController) {
		t.Errorf("proposed in another epoch: %v", err)
	}
	if _, err := f.loop.Propose(f.epoch, [][]byte{make([]byte, 9<<20)}); !errors.Is(err, kerr.RecordListTooLarge) {
		t.Errorf("proposed 9 MiB: %v", err)
	}
	f.close()
	id, ok := f.loop.LatestSnapshot()
	if !ok || id.Offset == 0 {
		t.Errorf("no snapshot: %v", id)
	}

	f = startNode(t, root, small)
	f.wait(func() bool { return f.epoch >= 0 })
	if f.loaded != 1 || len(f.values) != len(want) {
		t.Errorf("after the restart: %d snapshots, %d values", f.loaded, len(f.values))
	}
	for i := range min(len(want), len(f.values)) {
		if f.values[i] != want[i] {
			t.Fatalf("value %d is %d after the restart, was %d", i, f.values[i], want[i])
		}
	}
	f.close()
}

// TestLoopHandle: requests are answered; one that waits is answered when there is news, or with nil when the loop closes.
func TestLoopHandle(t *testing.T) {
	defer goleak.VerifyNone(t)
	f := startNode(t, t.TempDir(), nil)
	f.wait(func() bool { return f.epoch >= 0 })

	answers := make(chan kmsg.Response, 1)
	ask := func(m kmsg.Request) kmsg.Response {
		f.loop.Handle("CONTROLLER", m, func(r kmsg.Response) { answers <- r })
		return <-answers
	}
	q := kmsg.NewPtrDescribeQuorumRequest()
	q.Version = 2
	q.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: kafka.ClusterMetadataTopic, Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{Partition: 0}}}}
	p := ask(q).(*kmsg.DescribeQuorumResponse).Topics[0].Partitions[0]
	if p.ErrorCode != 0 || p.LeaderID != 1 || len(p.CurrentVoters) != 1 || p.CurrentVoters[0].LogEndOffset != 1 || p.HighWatermark != 1 {
		t.Errorf("DescribeQuorum: %+v", p)
	}

	fetch := func() *kmsg.FetchRequest {
		m := kmsg.NewPtrFetchRequest()
		m.Version = 17
		m.ReplicaState.ID = 5
		m.MaxWaitMillis = 60_000
		fp := kmsg.NewFetchRequestTopicPartition()
		fp.CurrentLeaderEpoch, fp.FetchOffset, fp.LastFetchedEpoch = int32(f.epoch), 1, int32(f.epoch)
		m.Topics = []kmsg.FetchRequestTopic{{TopicID: kafka.MetadataTopic, Partitions: []kmsg.FetchRequestTopicPartition{fp}}}
		return m
	}
	f.loop.Handle("CONTROLLER", fetch(), func(r kmsg.Response) { answers <- r })
	if _, err := f.loop.Propose(f.epoch, [][]byte{binary.BigEndian.AppendUint64(nil, 42)}); err != nil {
		t.Fatal(err)
	}
	r := (<-answers).(*kmsg.FetchResponse)
	if rp := r.Topics[0].Partitions[0]; rp.ErrorCode != 0 || len(rp.RecordBatches) == 0 {
		t.Errorf("Fetch: %+v", rp)
	}
	m := fetch()
	m.Topics[0].Partitions[0].FetchOffset = 2
	f.loop.Handle("CONTROLLER", m, func(r kmsg.Response) { answers <- r })
	if err := f.loop.Close(); err != nil {
		t.Error(err)
	}
	if r := <-answers; r != nil {
		t.Errorf("a waiting Fetch got %+v from a closing loop", r)
	}
	f.loop.Handle("CONTROLLER", fetch(), func(r kmsg.Response) { answers <- r })
	if r := <-answers; r != nil {
		t.Errorf("a closed loop answered %+v", r)
	}
	if err := f.dir.Close(-1); err != nil {
		t.Error(err)
	}
}
