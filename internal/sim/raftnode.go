package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/invariant"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raft"
	"github.com/highwater/highwater/internal/raftloop"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
)

// raftNode is one process with a replica of the metadata log, and the disk that outlives it.
type raftNode struct {
	c   *RaftCluster
	id  kafka.BrokerID
	dir kafka.DirectoryID
	// canVote: its process.roles has controller.
	canVote bool
	disk    *vfs.Mem

	up      bool
	life    int // counts starts: what belongs to an earlier one is dropped
	replica *raftloop.Replica
	log     *watchedLog
	logDir  *storage.Dir // nil without package storage
	paused  time.Time    // until then it does nothing
	inbox   []func()     // what came while it was paused
	tickAt  time.Time

	// durable is what its log is sure to have after a loss of power.
	durable []entry
	// state is what its state machine made of what it was given.
	state machine
	role  raft.Status
	hw    kafka.Offset
}

// entry is a batch, as the checkers compare it.
type entry struct {
	base, last kafka.Offset
	epoch      kafka.LeaderEpoch
	sum        uint64 // of the bytes
}

// machine is a state machine that remembers everything: a running sum over all records.
type machine struct {
	next kafka.Offset // one past the last record taken in
	sum  uint64
}

func (m machine) apply(offset kafka.Offset, epoch kafka.LeaderEpoch, value []byte) machine {
	h := fnv.New64a()
	var b [24]byte
	binary.BigEndian.PutUint64(b[:], m.sum)
	binary.BigEndian.PutUint64(b[8:], uint64(offset))
	binary.BigEndian.PutUint64(b[16:], uint64(epoch))
	h.Write(b[:])
	h.Write(value)
	return machine{offset + 1, h.Sum64()}
}

func sumOf(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}

// watchedLog tells the node what is in the log, and what of it is durable.
type watchedLog struct {
	raftloop.Log
	n       *raftNode
	entries []entry
}

func (l *watchedLog) note(batches []byte) {
	for len(batches) > 0 {
		b, rest, err := record.Next(batches)
		if err != nil || b == nil {
			return
		}
		e := entry{b.BaseOffset(), b.LastOffset(), b.PartitionLeaderEpoch(), sumOf(b)}
		before := kafka.LeaderEpoch(-1)
		if k := len(l.entries); k > 0 {
			before = l.entries[k-1].epoch
		}
		l.n.c.logs.appended(l.n, e, before)
		l.entries = append(l.entries, e)
		batches = rest
	}
}

func (l *watchedLog) Append(now time.Time, batches []byte) error {
	l.note(batches)
	return l.Log.Append(now, batches)
}

func (l *watchedLog) Truncate(now time.Time, end kafka.Offset) error {
	l.n.c.truncated(l.n, end)
	l.cut(end)
	return l.Log.Truncate(now, end)
}

func (l *watchedLog) cut(end kafka.Offset) {
	i := slices.IndexFunc(l.entries, func(e entry) bool { return e.last >= end })
	if i >= 0 {
		l.entries = slices.Clone(l.entries[:i])
	}
	l.n.durable = slices.Clone(l.n.durable)
	l.n.durable = slices.DeleteFunc(l.n.durable, func(e entry) bool { return e.last >= end })
}

func (l *watchedLog) Reset(now time.Time, offset kafka.Offset) error {
	l.entries, l.n.durable = nil, nil
	return l.Log.Reset(now, offset)
}

func (l *watchedLog) DeletePrefix(now time.Time, offset kafka.Offset) error {
	l.entries = slices.DeleteFunc(slices.Clone(l.entries), func(e entry) bool { return e.last < offset })
	l.n.durable = slices.DeleteFunc(slices.Clone(l.n.durable), func(e entry) bool { return e.last < offset })
	return l.Log.DeletePrefix(now, offset)
}

func (l *watchedLog) Flush() error {
	err := l.Log.Flush()
	if err == nil {
		l.n.durable = l.entries[:len(l.entries):len(l.entries)]
	}
	return err
}

func (n *raftNode) endpoint() raft.Endpoint {
	return raft.Endpoint{Listener: "CONTROLLER", Host: fmt.Sprintf("node%d", n.id), Port: 9093}
}

func (n *raftNode) voter() raft.Voter {
	v := raft.Voter{Key: raft.ReplicaKey{ID: n.id}, Endpoints: []raft.Endpoint{n.endpoint()}}
	if n.c.cfg.Dynamic {
		v.Key.Directory = n.dir
		v.MaxKRaft = 1
	}
	return v
}

// start is the process's start on whatever the disk has.
func (n *raftNode) start() {
	w := n.c.w
	n.life++
	life := n.life
	n.up = true
	n.paused, n.inbox = time.Time{}, nil
	n.state, n.hw = machine{}, -1
	n.tickAt = time.Time{}
	opt := raftloop.Options{
		NodeID: n.id, DirectoryID: n.dir, ClusterID: "simulated-cluster-0000", FS: n.disk, MetadataLogDir: "data",
		OpenLog: func(dir string, recoveryPoint kafka.Offset) (raftloop.Log, error) {
			l, err := n.openLog(dir, recoveryPoint)
			if err != nil {
				return nil, err
			}
			n.log = &watchedLog{Log: l, n: n}
			for o := l.StartOffset(); o < l.EndOffset(); {
				buf, err := l.Read(o, 1<<20)
				if err != nil {
					return nil, err
				}
				n.log.note(buf)
				o = n.log.entries[len(n.log.entries)-1].last + 1
			}
			n.c.logs.recovered(n)
			return n.log, nil
		},
		Controller: n.canVote, ControllerListener: "CONTROLLER", QuorumAppendLinger: n.c.cfg.Linger,
		QuorumFetchMaxBytes: n.c.cfg.FetchBytes, QuorumFetchSnapshotMaxBytes: n.c.cfg.ChunkBytes,
		MetadataLogMaxRecordBytesBetweenSnapshots: n.c.cfg.SnapshotBytes, MetadataMaxRetentionBytes: n.c.cfg.Retention,
		CleanInterval: 5 * time.Second,
		Rand:          w.Rand(fmt.Sprintf("raft %d", n.id)), Mutant: n.c.cfg.Mutant,
	}
	if n.c.logger != nil {
		opt.Log = n.c.logger.With("node", int(n.id))
	} else {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if n.canVote {
		opt.Endpoints = []raft.Endpoint{n.endpoint()}
	}
	if n.c.cfg.Dynamic {
		for i := range n.c.cfg.Voters {
			opt.QuorumBootstrapServers = append(opt.QuorumBootstrapServers, n.c.nodes[i].endpoint())
		}
	} else {
		opt.QuorumVoters = n.c.static
	}
	w.Log("n%d starts", n.id)
	n.guard(func() error {
		r, err := raftloop.OpenReplica(opt, w.Now, func(s raft.Send) { n.c.send(n, life, s) })
		if err != nil {
			return err
		}
		n.replica = r
		r.Register(raftloop.Callbacks{Commit: n.commit, Snapshot: n.load, Leader: n.leader, SnapshotDue: n.snapshotDue})
		return nil
	})
	n.after()
}

// openLog opens the log: that of package storage, or the small one.
func (n *raftNode) openLog(dir string, recoveryPoint kafka.Offset) (raftloop.Log, error) {
	if !n.c.cfg.Storage {
		return raftloop.OpenFileLog(n.disk, dir)
	}
	d, err := storage.OpenDir("data", storage.Options{FS: n.disk, Files: storage.NewFiles(n.disk, 100)})
	if err != nil {
		return nil, err
	}
	n.logDir = d
	l, _, err := raftloop.OpenStorageLog(d, &raftloop.Options{FS: n.disk, MetadataLogSegmentBytes: n.c.cfg.SegmentBytes}, recoveryPoint, n.c.w.Now)
	return l, err
}

// guard runs a piece of the node. A broken invariant or an error of the disk is a failure of the run.
func (n *raftNode) guard(f func() error) {
	err := func() (err error) {
		defer invariant.Recover(&err)
		return f()
	}()
	var broken *invariant.Broken
	switch {
	case err == nil:
	case errors.As(err, &broken):
		n.c.w.Fail(broken.Text[:2], "node %d: %s", n.id, broken.Text)
	default:
		n.c.w.Fail("S", "node %d: %v", n.id, err)
	}
}

// do lets the running node do something now, or, if it is paused, later.
func (n *raftNode) do(life int, f func() error) {
	if !n.up || n.life != life {
		return
	}
	run := func() {
		if n.up && n.life == life {
			n.guard(f)
			n.after()
		}
	}
	if n.c.w.Now.Before(n.paused) {
		n.inbox = append(n.inbox, run)
		return
	}
	run()
}

// after is what follows each step: delivery, checks, the next tick.
func (n *raftNode) after() {
	w := n.c.w
	if w.failed != nil || n.replica == nil || !n.up {
		return
	}
	for n.replica.Behind() && w.failed == nil {
		before := n.state.next
		n.guard(func() error { return n.replica.Deliver(w.Now) })
		if n.state.next == before {
			break
		}
	}
	n.c.observe(n)
	at := n.replica.Deadline()
	if !n.tickAt.IsZero() && !at.Before(n.tickAt) {
		return // an earlier tick will see
	}
	n.tickAt = at
	life := n.life
	w.At(at, func() {
		if n.life != life || !n.tickAt.Equal(at) {
			return
		}
		n.tickAt = time.Time{}
		n.do(life, func() error { return n.replica.Step(w.Now, raft.Tick{}) })
	})
}

func (n *raftNode) pause(d time.Duration) {
	w := n.c.w
	w.Log("n%d pauses for %v", n.id, d)
	n.paused = w.Now.Add(d)
	life := n.life
	w.At(n.paused, func() {
		if n.life != life || w.Now.Before(n.paused) {
			return
		}
		todo := n.inbox
		n.inbox = nil
		for _, f := range todo {
			f()
		}
		n.do(life, func() error { return n.replica.Step(w.Now, raft.Tick{}) })
	})
}

// crash cuts the power of the node: what it did not sync is lost, or not.
func (n *raftNode) crash() {
	n.c.w.Log("n%d loses power", n.id)
	n.up = false
	n.replica = nil
	n.role = raft.Status{}
	n.disk = n.disk.Crash(n.c.w.Rand(fmt.Sprintf("disk %d", n.id)))
}

// stop ends the process in order: it resigns, waits a while, closes its files.
func (n *raftNode) stop() {
	w := n.c.w
	life := n.life
	w.Log("n%d shuts down", n.id)
	n.do(life, func() error { return n.replica.Step(w.Now, raft.Shutdown{Timeout: 2 * time.Second}) })
	var wait func()
	wait = func() {
		if n.life != life || !n.up {
			return
		}
		if !n.replica.Status().Stopped {
			w.After(50*time.Millisecond, wait)
			return
		}
		w.Log("n%d stops", n.id)
		n.guard(n.replica.Close)
		if n.logDir != nil {
			n.guard(func() error { return n.logDir.Close(-1) })
		}
		n.up = false
		n.replica = nil
		n.role = raft.Status{}
		if n.c.calm {
			n.start()
		}
	}
	w.After(0, wait)
}

func (n *raftNode) commit(b raftloop.Batch) {
	if b.BaseOffset != n.state.next {
		n.c.w.Fail("K4", "node %d was given a batch at %d where %d is next", n.id, b.BaseOffset, n.state.next)
		return
	}
	if b.Control {
		for o := b.BaseOffset; o <= b.LastOffset; o++ {
			n.state = n.state.apply(o, b.Epoch, nil)
			n.c.applied(n, o, b.Epoch, nil)
		}
		return
	}
	for i, v := range b.Records {
		o := b.BaseOffset + int64(i)
		n.state = n.state.apply(o, b.Epoch, v)
		n.c.applied(n, o, b.Epoch, v)
	}
}

func (n *raftNode) load(s *raftloop.SnapshotReader) error {
	n.c.w.Log("n%d loads snapshot %v", n.id, s.ID)
	var content []byte
	for {
		b, ok, err := s.Next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		for _, v := range b.Records {
			content = append(content, v...)
		}
	}
	if len(content) < 16 {
		return fmt.Errorf("snapshot %v has %d bytes", s.ID, len(content))
	}
	n.state = machine{kafka.Offset(binary.BigEndian.Uint64(content)), binary.BigEndian.Uint64(content[8:])}
	n.c.loaded(n, s)
	return nil
}

func (n *raftNode) leader(l raftloop.LeaderChange) {
	n.c.w.Log("n%d told: leader %d of epoch %d, local %v", n.id, l.Leader, l.Epoch, l.Local)
	if l.Local {
		n.c.claimed(n, l.Epoch)
	}
}

func (n *raftNode) snapshotDue(id kafka.OffsetAndEpoch, last time.Time, _ string) {
	state, life := n.state, n.life
	n.c.w.After(time.Duration(n.c.w.Rand("snapshot").IntN(100))*time.Millisecond, func() {
		n.do(life, func() error {
			w, err := n.replica.CreateSnapshot(id, last)
			if errors.Is(err, raftloop.ErrSnapshotExists) {
				return nil
			}
			if err != nil {
				return err
			}
			content := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(state.next)), state.sum)
			// Long enough for some pieces.
			if err := w.Append(content, make([]byte, 300), make([]byte, 2000)); err != nil {
				return err
			}
			if err := w.Freeze(); err != nil {
				return err
			}
			n.c.w.Log("n%d wrote snapshot %v", n.id, id)
			return n.replica.SnapshotCreated(n.c.w.Now, id)
		})
	})
}

func (n *raftNode) handle(req kmsg.Request, answer func(kmsg.Response)) bool {
	if !n.up {
		return false
	}
	n.do(n.life, func() error { return n.replica.Handle(n.c.w.Now, "CONTROLLER", req, answer) })
	return true
}
