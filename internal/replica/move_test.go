package replica

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/schema"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
)

// mover is a broker with the log directories /a, /b and /c on one disk in memory, the controller that it tells where replicas
// lie, and the loop that moves them: all of it in one thread. The metadata survive a power cut, for they are elsewhere.
type mover struct {
	t       testing.TB
	fsys    *vfs.Mem
	dirs    []*Dir
	lost    []string
	version metadata.Version
	set     *Set
	delta   *metadata.Delta
	config  TopicConfig
	unique  byte
	rng     *rand.Rand

	moving   []*Replica
	asked    []asked
	notes    []string
	removed  []string
	cordoned map[string]bool

	values  []string     // that were appended to t-0, by offset
	durable kafka.Offset // everything below was synced
	start   kafka.Offset // the log start that was told last
	kept    kafka.Offset // the log start in a checkpoint
	floor   kafka.Offset // the log start isn't below: less than start after a power cut that the checkpoint didn't come before
}

type asked struct {
	partition kafka.TopicIDPartition
	dir       kafka.DirectoryID
	accepted  func()
}

var moverPaths = []string{"/a", "/b", "/c"}

func dirID(path string) kafka.DirectoryID { return kafka.DirectoryID{0: path[1], 15: 100} }

func newMover(t testing.TB) *mover { return newMoverOf(t, metadata.LatestProductionVersion) }

// newMoverOf is a broker in a cluster of that metadata.version; before 3.7-IV2 the controller knows nothing of directories.
func newMoverOf(t testing.TB, version metadata.Version) *mover {
	m := &mover{t: t, version: version, fsys: vfs.NewMem(), config: TopicConfig{Log: storage.DefaultConfig(), MinISR: 1}, rng: rand.New(rand.NewPCG(1, 2)), cordoned: map[string]bool{}}
	m.config.Log.SegmentBytes, m.config.Log.IndexIntervalBytes, m.config.Log.FileDeleteDelay = 600, 100, 0
	for _, p := range moverPaths {
		if err := m.fsys.MkdirAll(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.fsys.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	m.delta = metadata.NewDelta(metadata.Empty())
	level := schema.NewFeatureLevelRecord()
	level.Name, level.FeatureLevel = metadata.MetadataVersionFeature, int16(version)
	b := schema.NewRegisterBrokerRecord()
	b.BrokerID, b.BrokerEpoch, b.Fenced = self, 101, false
	for _, p := range moverPaths {
		b.LogDirs = append(b.LogDirs, dirID(p))
	}
	m.replay(level, b, topicRecord(1, "t"), m.partition(0, "/a"))
	return m
}

// partition is a partition of t with its only replica in the directory of that path.
func (m *mover) partition(p int32, path string) schema.Record {
	r := partitionRecord(1, p, self)
	if m.version != before37 {
		r.Directories = []kafka.UUID{dirID(path)}
	}
	return r
}

func (m *mover) replay(records ...schema.Record) {
	m.t.Helper()
	for _, r := range records {
		at := m.delta.At()
		at.Offset++
		if err := m.delta.Replay(at, r); err != nil {
			m.t.Fatal(err)
		}
	}
}

func (m *mover) commit(records ...schema.Record) {
	m.t.Helper()
	m.replay(records...)
	image, changes := m.delta.Apply()
	m.set.Apply(t0, image, changes)
}

// open starts the broker: it opens what is in the directories and takes in the metadata.
func (m *mover) open() error {
	m.dirs, m.moving, m.asked = nil, nil, nil
	files := storage.NewFiles(m.fsys, 5)
	for _, path := range moverPaths {
		if slices.Contains(m.lost, path) {
			continue
		}
		d, err := storage.OpenDir(path, storage.Options{FS: m.fsys, Files: files, ProducerExpiration: 24 * time.Hour})
		if err != nil {
			return err
		}
		if err := d.Begin(); err != nil {
			return err
		}
		ps, err := d.Partitions()
		if err != nil {
			return err
		}
		for _, p := range ps {
			if p.Kind != storage.Current && p.Kind != storage.Future {
				continue
			}
			if _, _, err := d.Open(p, m.config.Log, t0); err != nil {
				return err
			}
		}
		m.dirs = append(m.dirs, &Dir{Dir: d, ID: dirID(path), Name: path})
	}
	m.set = NewSet(Options{
		ID: self, Dirs: m.dirs, Lost: m.lost, LagMax: 30 * time.Second,
		Config: func(*metadata.Image, string) TopicConfig { return m.config },
		Assigned: func(p kafka.TopicIDPartition, dir kafka.DirectoryID, accepted func()) {
			m.asked = append(m.asked, asked{p, dir, accepted})
		},
		Moving:   func(r *Replica) { m.moving = append(m.moving, r) },
		Cordoned: func(path string) bool { return m.cordoned[path] },
		Rolled:   func(*storage.Log) {},
		Removed: func(d *storage.Dir, name string, _ time.Duration) {
			m.removed = append(m.removed, d.Path()+"/"+name)
		},
		Note: func(msg string, p kafka.TopicPartition, err error) {
			m.notes = append(m.notes, fmt.Sprintf("%s: %v: %v", msg, p, err))
		},
		Unique: func() [16]byte { m.unique++; return [16]byte{m.unique} },
	})
	image, _ := m.delta.Apply()
	m.set.Start(t0, image)
	for _, d := range m.dirs {
		if err := d.Err(); err != nil {
			return err
		}
	}
	return nil
}

// controller commits where replicas lie, as the broker told.
func (m *mover) controller() {
	for len(m.asked) > 0 {
		a := m.asked[0]
		m.asked = m.asked[1:]
		m.replay(change(1, a.partition.Partition, func(c *schema.PartitionChangeRecord) {
			q, _ := m.set.Image().Topic("t").Partition(a.partition.Partition)
			c.Directories = slices.Clone(q.Directories)
			c.Directories[slices.Index(q.Replicas, self)] = a.dir
		}))
		image, changes := m.delta.Apply()
		m.set.Apply(t0, image, changes)
		if a.accepted != nil {
			a.accepted()
		}
	}
}

// step takes one step of one move, at most; it tells whether there was one.
func (m *mover) step() bool {
	if len(m.moving) == 0 {
		return false
	}
	r := m.moving[0]
	m.moving = m.moving[1:]
	if state, _, _ := r.Move(t0, 150, nil); state == MoveMore {
		m.moving = append(m.moving, r)
	}
	return true
}

// finish lets all moves end.
func (m *mover) finish() {
	m.t.Helper()
	for n := 0; m.step() || len(m.asked) > 0; n++ {
		m.controller()
		if n > 10_000 {
			m.t.Fatal("a move doesn't end")
		}
	}
}

func (m *mover) replica(p int32) *Replica {
	m.t.Helper()
	r, err := m.set.Lookup("t", p)
	if err != nil {
		m.t.Fatalf("%v; notes %q", err, m.notes)
	}
	return r
}

// write appends a record to t-0, by an idempotent producer.
func (m *mover) write() error {
	o := record.DefaultBatchOptions(0)
	o.ProducerID, o.ProducerEpoch, o.BaseSequence = 7, 0, int32(len(m.values))
	b := record.NewBuilder(o)
	value := fmt.Sprintf("value %d", len(m.values))
	b.Append(t0.UnixMilli(), []byte("k"), []byte(value))
	raw, err := b.Build()
	if err != nil {
		m.t.Fatal(err)
	}
	s := appendTo(m.t, m.replica(0), 1, raw)
	m.values = append(m.values, value) // after an error, too: what was written may be on the disk
	return s.err
}

func (m *mover) writes(n int) error {
	for range n {
		if err := m.write(); err != nil {
			return err
		}
	}
	return nil
}

func (m *mover) flush() error {
	l := m.replica(0).Log()
	end := l.EndOffset()
	if err := l.Flush(end); err != nil {
		return err
	}
	m.durable = max(m.durable, end)
	return nil
}

// deleteRecords moves the log start up.
func (m *mover) deleteRecords(before kafka.Offset) error {
	var acks Acks
	acks.Reset(1, func() {})
	_, err := m.replica(0).DeleteRecords(t0, before, acks.Add())
	if err == nil {
		m.start, m.floor = max(m.start, before), max(m.floor, before)
	}
	return err
}

// check compares what t-0 has with what was written: everything that was durable, in order, from the log start on.
func (m *mover) check(all bool) error {
	r, err := m.set.Lookup("t", 0)
	if err != nil {
		return fmt.Errorf("%w; notes %q", err, m.notes)
	}
	l := r.Log()
	end, start := l.EndOffset(), l.StartOffset()
	switch {
	case end > int64(len(m.values)) || end < m.durable || all && end != int64(len(m.values)):
		return fmt.Errorf("the log ends at %d; %d records were written, %d synced", end, len(m.values), m.durable)
	case start < m.kept:
		return fmt.Errorf("the log starts at %d, and %d was in a checkpoint", start, m.kept)
	case start > m.start || all && start < m.floor:
		return fmt.Errorf("the log starts at %d, not at %d to %d", start, m.floor, m.start)
	case r.HighWatermark() != end:
		return fmt.Errorf("high watermark %d, end %d", r.HighWatermark(), end)
	}
	for at := start; at < end; {
		var out Read
		if err := r.Read(t0, Reader{Follower: -1}, ReadRequest{Offset: at, MaxBytes: 1 << 20, MinOneBatch: true, LeaderEpoch: -1, LastFetchedEpoch: -1}, &out); err != nil {
			return err
		}
		buf := make([]byte, out.Records.Len())
		_, err := out.Records.ReadAt(buf, 0)
		out.Records.Release()
		if err != nil || len(buf) == 0 {
			return fmt.Errorf("read at %d: %d bytes, %v", at, len(buf), err)
		}
		for rest := buf; len(rest) > 0; {
			var b record.Batch
			if b, rest, err = record.Next(rest); err != nil || b == nil || b.ComputeCRC() != b.CRC() {
				return fmt.Errorf("batch at %d: %v", at, err)
			}
			rd := record.NewReader(b)
			for rd.Next() {
				if want := m.values[at]; string(rd.Record().Value) != want || rd.Record().Offset != at {
					return fmt.Errorf("offset %d has %q", at, rd.Record().Value)
				}
				at++
			}
			rd.Close()
		}
	}
	return nil
}

// names lists all directories of partitions, without unique parts.
func (m *mover) names() (out []string) {
	m.t.Helper()
	for _, path := range moverPaths {
		entries, err := m.fsys.List(path)
		if err != nil {
			m.t.Fatal(err)
		}
		for _, e := range entries {
			if !e.IsDir() {
				continue
			}
			name := e.Name()
			if dot, dash := strings.LastIndexByte(name, '.'), strings.LastIndexByte(name, '-'); dot >= 0 && dash > dot {
				name = name[:dot] + name[dash:]
			}
			out = append(out, path+"/"+name)
		}
	}
	return out
}

// A replica moves while it is written to, and back: everything is there after each move, in one place, with what batches don't
// tell; the controller knows the place, and the checkpoints of both directories are right at the next start.
func TestMove(t *testing.T) {
	m := newMover(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(m.open())
	// A producer whose only batch is gone before the replica moves.
	must(appendTo(t, m.replica(0), 1, batch(t, 1, t0.UnixMilli(), 8, 0)).err)
	m.values = append(m.values, "")
	must(m.writes(50))
	must(m.deleteRecords(20))
	_, err := m.replica(0).Log().DeleteOldSegments(t0)
	must(err)
	producers := func(m *mover) {
		t.Helper()
		if ps := m.replica(0).Log().Producers(); len(ps) != 2 || int(ps[0].LastSequence) != len(m.values)-1 || ps[1].ProducerID != 8 {
			t.Errorf("producers %+v", ps)
		}
	}
	for _, to := range []string{"/b", "/c", "/a"} {
		must(m.set.AlterDir(t0, kafka.TopicPartition{Topic: "t"}, to))
		for range 5 {
			m.step()
			must(m.write())
		}
		if _, info := m.lag(); !info {
			t.Errorf("to %s: no future log is described", to)
		}
		m.finish()
		must(m.check(true))
		if got, want := m.replica(0).Log().Dir().Path(), to; got != want {
			t.Fatalf("the replica lies in %s, not in %s; notes %q", got, want, m.notes)
		}
		p, _ := m.set.Image().Topic("t").Partition(0)
		if p.Directory(self) != dirID(to) {
			t.Errorf("by the metadata it lies in %v", p.Directory(self))
		}
		producers(m)
		must(m.writes(3))
	}
	var live []string
	for _, n := range m.names() {
		if !strings.HasSuffix(n, "-delete") {
			live = append(live, n)
		}
	}
	if !slices.Equal(live, []string{"/a/t-0"}) {
		t.Errorf("directories %q", live)
	}
	if len(m.removed) != 3 {
		t.Errorf("to be removed: %q", m.removed)
	}
	for _, d := range m.dirs {
		must(d.Close(1))
	}
	must(m.open())
	must(m.check(true))
	producers(m)
}

// lag is how far t-0's future log is behind, if one is described.
func (m *mover) lag() (kafka.Offset, bool) {
	for _, d := range m.set.LogDirs(func(kafka.TopicPartition) bool { return true }) {
		for _, l := range d.Logs {
			if l.Future {
				return l.Lag, true
			}
		}
	}
	return 0, false
}

// The errors of AlterReplicaLogDirs, and where a partition is made that wasn't there when its directory was asked for.
func TestAlterDirRefused(t *testing.T) {
	m := newMover(t)
	m.lost = []string{"/c"}
	m.cordoned["/b"] = true
	if err := m.open(); err != nil {
		t.Fatal(err)
	}
	f := func(topic string, partition int32, path string, want *kerr.Error) {
		t.Helper()
		err := m.set.AlterDir(t0, kafka.TopicPartition{Topic: topic, Partition: partition}, path)
		if want == nil && err != nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s-%d to %s: %v, want %v", topic, partition, path, err, want)
		}
	}
	f("t", 0, "/none", kerr.LogDirNotFound)
	f("t", 0, "b", kerr.LogDirNotFound)
	f("t", 0, "/c", kerr.KafkaStorageError)
	f("t", 0, "/b", kerr.InvalidReplicaAssignment)
	f(strings.Repeat("x", 220), 0, "/a", kerr.InvalidTopicException)
	f("t", 0, "/a", nil)
	f("none", 0, "/a", kerr.UnknownTopicOrPartition)
	delete(m.cordoned, "/b")
	f("t", 0, "/b", kerr.KafkaStorageError) // no future log is made while a directory is offline
	if n := m.names(); slices.ContainsFunc(n, func(s string) bool { return strings.HasSuffix(s, "-future") }) {
		t.Errorf("%q", n)
	}

	m = newMover(t)
	if err := m.open(); err != nil {
		t.Fatal(err)
	}
	f("t", 1, "/c", kerr.UnknownTopicOrPartition)
	m.commit(m.partition(1, "/b"))
	if got := m.replica(1).Log().Dir().Path(); got != "/c" {
		t.Errorf("t-1 was asked into /c and is made in %s", got)
	}
	if m.controller(); len(m.set.preferred) != 0 {
		t.Errorf("still remembered: %v", m.set.preferred)
	}
	if p, _ := m.set.Image().Topic("t").Partition(1); p.Directory(self) != dirID("/c") {
		t.Errorf("the controller thinks that t-1 lies in %v", p.Directory(self))
	}
	// One that other brokers have.
	r := partitionRecord(1, 2, 9)
	m.commit(r)
	f("t", 2, "/c", kerr.ReplicaNotAvailable)
}

// A move ends, and leaves nothing, when it is taken back, goes elsewhere, or its topic is deleted; leaderships that change in
// between don't matter (F107).
func TestMoveEnds(t *testing.T) {
	start := func(t *testing.T) *mover {
		m := newMover(t)
		if err := errors.Join(m.open(), m.writes(30), m.set.AlterDir(t0, kafka.TopicPartition{Topic: "t"}, "/b")); err != nil {
			t.Fatal(err)
		}
		m.step()
		m.step()
		return m
	}
	live := func(m *mover) (out []string) {
		for _, n := range m.names() {
			if !strings.HasSuffix(n, "-delete") {
				out = append(out, n)
			}
		}
		return out
	}
	t.Run("taken back", func(t *testing.T) {
		m := start(t)
		if err := m.set.AlterDir(t0, kafka.TopicPartition{Topic: "t"}, "/a"); err != nil {
			t.Fatal(err)
		}
		m.finish()
		if got := live(m); !slices.Equal(got, []string{"/a/t-0"}) || m.replica(0).Log().Moving() {
			t.Errorf("%q", got)
		}
		if err := errors.Join(m.write(), m.check(true)); err != nil {
			t.Error(err)
		}
	})
	t.Run("taken back after the controller was asked", func(t *testing.T) {
		m := start(t)
		for len(m.asked) == 0 {
			m.step()
		}
		m.controller()
		if err := m.set.AlterDir(t0, kafka.TopicPartition{Topic: "t"}, "/a"); err != nil {
			t.Fatal(err)
		}
		m.finish()
		if p, _ := m.set.Image().Topic("t").Partition(0); p.Directory(self) != dirID("/a") {
			t.Errorf("the controller thinks that the replica lies in %v", p.Directory(self))
		}
		if err := errors.Join(m.write(), m.check(true)); err != nil {
			t.Error(err)
		}
	})
	t.Run("elsewhere", func(t *testing.T) {
		m := start(t)
		if err := m.set.AlterDir(t0, kafka.TopicPartition{Topic: "t"}, "/c"); err != nil {
			t.Fatal(err)
		}
		m.finish()
		if got := live(m); !slices.Equal(got, []string{"/c/t-0"}) {
			t.Errorf("%q", got)
		}
	})
	t.Run("topic deleted", func(t *testing.T) {
		m := start(t)
		r := schema.NewRemoveTopicRecord()
		r.TopicID = topicID(1)
		m.commit(r)
		m.finish()
		if got := live(m); len(got) != 0 {
			t.Errorf("%q", got)
		}
		for _, d := range m.dirs {
			if d.Err() != nil {
				t.Errorf("%s is offline: %v", d.Name, d.Err())
			}
		}
	})
	t.Run("leader epochs", func(t *testing.T) {
		m := start(t)
		for epoch := range 3 {
			m.commit(change(1, 0, func(c *schema.PartitionChangeRecord) { c.Leader = self }))
			if err := m.write(); err != nil {
				t.Fatalf("epoch %d: %v", epoch, err)
			}
			m.step()
			m.commit(change(1, 0, func(c *schema.PartitionChangeRecord) { c.Leader = self })) // one without records
		}
		want := m.replica(0).Log().Epochs()
		m.finish()
		if err := m.check(true); err != nil {
			t.Error(err)
		}
		if got := m.replica(0).Log().Epochs(); !slices.Equal(got, want) || len(got) < 5 {
			t.Errorf("epochs %v, before the move %v", got, want)
		}
	})
	t.Run("the log is cut", func(t *testing.T) {
		m := newMover(t)
		p := partitionRecord(1, 0, self, 9) // broker 9 has nothing, so that nothing is committed
		p.Directories = []kafka.UUID{dirID("/a"), dirID("/z")}
		m.replay(p)
		if err := errors.Join(m.open(), m.writes(30), m.set.AlterDir(t0, kafka.TopicPartition{Topic: "t"}, "/b")); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			m.step()
		}
		r := m.replica(0)
		if err := r.Log().TruncateTo(10, t0); err != nil {
			t.Fatal(err)
		}
		m.values = m.values[:10]
		m.commit(change(1, 0, func(c *schema.PartitionChangeRecord) { c.Leader = self }))
		for i := range 8 {
			raw, err := build(t, fmt.Sprintf("other %d", i))
			if err != nil {
				t.Fatal(err)
			}
			if s := appendTo(t, r, 1, raw); s.err != nil {
				t.Fatal(s.err)
			}
			m.values = append(m.values, fmt.Sprintf("other %d", i))
		}
		m.moving = append(m.moving, r)
		m.finish()
		if got := r.Log().Dir().Path(); got != "/b" {
			t.Errorf("the replica lies in %s; notes %q", got, m.notes)
		}
		for at, want := range m.values {
			s, err := r.Log().Read(int64(at), 1, true, r.Log().EndOffset())
			if err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, s.Len())
			_, _ = s.ReadAt(buf, 0)
			s.Release()
			if !strings.Contains(string(buf), want) {
				t.Errorf("offset %d doesn't have %q", at, want)
			}
		}
	})
}

func build(t testing.TB, value string) ([]byte, error) {
	t.Helper()
	b := record.NewBuilder(record.DefaultBatchOptions(0))
	b.Append(t0.UnixMilli(), nil, []byte(value))
	return b.Build()
}

// A directory that fails in the middle of a move: the one that the replica goes to costs the copy alone, the one that it lies in the
// replica, as any directory does. Replicas elsewhere serve on (F102).
func TestMoveDirFails(t *testing.T) {
	for _, failing := range []string{"/a", "/b"} {
		m := newMover(t)
		if err := errors.Join(m.open(), m.writes(30)); err != nil {
			t.Fatal(err)
		}
		m.commit(m.partition(1, "/c"))
		if err := m.set.AlterDir(t0, kafka.TopicPartition{Topic: "t"}, "/b"); err != nil {
			t.Fatal(err)
		}
		m.step()
		m.fsys.SetFault(func(o vfs.Op) error {
			if strings.HasPrefix(o.Name, failing+"/") {
				return errors.New("input/output error")
			}
			return nil
		})
		m.finish()
		for _, d := range m.dirs {
			if d.Name == failing {
				_ = d.CheckpointHighWatermarks() // what notices it first, if nothing else does
				m.set.DirFailed(d.Dir, errors.New("input/output error"))
			}
		}
		m.finish()
		_, err := m.set.Lookup("t", 0)
		if err == nil {
			err = m.write()
		}
		if failing == "/a" && !errors.Is(err, kerr.KafkaStorageError) || failing == "/b" && err != nil {
			t.Errorf("%s fails: append to t-0: %v", failing, err)
		}
		if s := appendTo(t, m.replica(1), 1, batch(t, 1, 0, -1, 0)); s.err != nil {
			t.Errorf("%s fails: append to t-1: %v", failing, s.err)
		}
		offline := 0
		for _, d := range m.set.LogDirs(func(kafka.TopicPartition) bool { return true }) {
			if d.Offline != (d.Name == failing) {
				t.Errorf("%s fails: %s offline=%v", failing, d.Name, d.Offline)
			}
			if d.Offline {
				offline++
				if d.Logs != nil {
					t.Errorf("logs of an offline directory: %v", d.Logs)
				}
			}
		}
		if offline != 1 {
			t.Errorf("%d directories are offline", offline)
		}
		// It isn't made anew elsewhere, whatever the metadata say, until they say where.
		if failing == "/a" {
			m.commit(change(1, 0, func(c *schema.PartitionChangeRecord) { c.Leader = self }))
			if got := m.names(); slices.Contains(got, "/b/t-0") || slices.Contains(got, "/c/t-0") {
				t.Errorf("%q", got)
			}
		}
	}
}

// A replica whose directory couldn't be opened at the start is made nowhere else (F102), unless it was never said where it lies.
func TestLostDir(t *testing.T) {
	m := newMover(t)
	m.replay(m.partition(1, "/b"))
	r := partitionRecord(1, 2, self)
	r.Directories = []kafka.UUID{kafka.DirUnassigned}
	m.replay(r)
	if err := errors.Join(m.open(), m.writes(5), m.flush()); err != nil {
		t.Fatal(err)
	}
	for _, d := range m.dirs {
		if err := d.Close(1); err != nil {
			t.Fatal(err)
		}
	}
	m.lost = []string{"/a"}
	r = partitionRecord(1, 3, self)
	r.Directories = []kafka.UUID{kafka.DirUnassigned}
	m.replay(r)
	if err := m.open(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.set.Lookup("t", 0); !errors.Is(err, kerr.KafkaStorageError) {
		t.Errorf("t-0: %v", err)
	}
	told := func(what string, want ...string) {
		t.Helper()
		if !slices.Equal(m.notes, want) {
			t.Errorf("%s: notes %q, want %q", what, m.notes, want)
		}
		m.notes = nil
	}
	offline := "partition is offline: t-0: it may lie in a log directory that is offline: /a"
	if n := len(m.set.absent); n > 1 {
		offline += fmt.Sprintf(" (as of %d more partitions)", n-1)
	}
	told("the start", offline)
	m.commit(change(1, 0, func(c *schema.PartitionChangeRecord) { c.Leader = -1 }))
	told("a change of what is offline")
	m.replica(1)
	m.replica(3)
	if err := m.set.AlterDir(t0, kafka.TopicPartition{Topic: "t"}, "/b"); !errors.Is(err, kerr.KafkaStorageError) {
		t.Errorf("move of what is offline: %v", err)
	}
	// The controller says that it lies elsewhere now: a new one is made there.
	m.commit(change(1, 0, func(c *schema.PartitionChangeRecord) { c.Directories = []kafka.UUID{dirID("/b")} }))
	if got := m.replica(0).Log().Dir().Path(); got != "/b" {
		t.Errorf("t-0 lies in %s", got)
	}
}

// New replicas go where the fewest logs are, and not where none may be made.
func TestPlacement(t *testing.T) {
	m := newMover(t)
	if err := m.open(); err != nil {
		t.Fatal(err)
	}
	m.cordoned["/b"] = true
	for p := int32(1); p <= 3; p++ {
		r := partitionRecord(1, p, self)
		r.Directories = []kafka.UUID{kafka.DirUnassigned}
		m.commit(r)
	}
	delete(m.cordoned, "/b")
	for p := int32(4); p <= 6; p++ {
		r := partitionRecord(1, p, self)
		r.Directories = []kafka.UUID{kafka.DirUnassigned}
		m.commit(r)
	}
	want := []string{"/a/t-0", "/a/t-2", "/b/t-4", "/b/t-5", "/c/t-1", "/c/t-3"}
	got := m.names()
	got = slices.DeleteFunc(got, func(s string) bool { return strings.HasSuffix(s, "t-6") })
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	m.controller()
	for p := int32(1); p <= 6; p++ {
		q, _ := m.set.Image().Topic("t").Partition(p)
		if want := dirID(m.replica(p).Log().Dir().Path()); q.Directory(self) != want {
			t.Errorf("t-%d lies in %v by the metadata, not in %v", p, q.Directory(self), want)
		}
	}
	if len(m.asked) != 0 {
		t.Errorf("told again: %v", m.asked)
	}
}

// TestMovePowerCuts moves a replica to another directory and back while it is written to, cuts the power after each file
// operation, several ways each, and looks at what is there then: the replica, whole, in one place; the move goes on and ends.
func TestMovePowerCuts(t *testing.T) {
	t.Run("directories in the metadata", func(t *testing.T) { movePowerCuts(t, metadata.LatestProductionVersion) })
	t.Run("no directories in the metadata", func(t *testing.T) { movePowerCuts(t, before37) })
}

// before37 is 3.6-IV0.
const before37 = metadata.Version(12)

func movePowerCuts(t *testing.T, version metadata.Version) {
	outcomes := 4
	if testing.Short() {
		outcomes = 1
	}
	for cut := 0; ; cut++ {
		run := newMoverOf(t, version)
		run.fsys.CutAfter(cut)
		err := run.life()
		if err != nil && !errors.Is(err, vfs.ErrPowerCut) && !errors.Is(err, kerr.KafkaStorageError) && !errors.Is(err, storage.ErrFailed) {
			t.Fatalf("cut after %d: %v", cut, err)
		}
		for outcome := range outcomes {
			m := *run
			m.values = slices.Clone(run.values)
			m.notes = nil
			at := fmt.Sprintf("cut after %d, outcome %d", cut, outcome)
			m.fsys = run.fsys.Crash(rand.New(rand.NewPCG(uint64(cut), uint64(outcome))))
			// The metadata that were committed are elsewhere, and the run is over: every outcome may use them.
			if err := m.open(); err != nil {
				t.Fatalf("%s: %v", at, err)
			}
			if err := m.check(false); err != nil {
				t.Fatalf("%s: %v; notes %q, directories %q", at, err, m.notes, m.names())
			}
			m.values = m.values[:m.replica(0).Log().EndOffset()]
			m.floor = m.replica(0).Log().StartOffset()
			var current []string
			for _, n := range m.names() {
				if strings.HasSuffix(n, "/t-0") {
					current = append(current, n)
				}
			}
			if len(current) != 1 {
				t.Fatalf("%s: %q", at, m.names())
			}
			m.finish()
			for _, n := range m.names() {
				if strings.HasSuffix(n, "-future") || strings.HasSuffix(n, "-stray") && version != before37 {
					t.Fatalf("%s: %q after all moves; notes %q", at, m.names(), m.notes)
				}
			}
			if err := errors.Join(m.writes(3), m.check(true)); err != nil {
				t.Fatalf("%s: after the move: %v; notes %q", at, err, m.notes)
			}
			p, _ := m.set.Image().Topic("t").Partition(0)
			if got := m.replica(0).Log().Dir().Path(); version != before37 && p.Directory(self) != dirID(got) {
				t.Fatalf("%s: the replica lies in %s, by the metadata in %v", at, got, p.Directory(self))
			}
		}
		if err == nil {
			t.Logf("%d operations", cut)
			return
		}
	}
}

// life is the workload: everything up to the first error.
func (m *mover) life() error {
	if err := m.open(); err != nil {
		return err
	}
	if _, err := m.set.Lookup("t", 0); err != nil {
		return err
	}
	if err := errors.Join(m.writes(12), m.flush()); err != nil {
		return err
	}
	if err := m.deleteRecords(5); err != nil {
		return err
	}
	if _, err := m.replica(0).Log().DeleteOldSegments(t0); err != nil {
		return err
	}
	for _, to := range []string{"/b", "/a"} {
		if err := m.set.AlterDir(t0, kafka.TopicPartition{Topic: "t"}, to); err != nil {
			return err
		}
		for range 4 {
			m.step()
			if err := m.write(); err != nil {
				return err
			}
		}
		if err := m.flush(); err != nil {
			return err
		}
		if err := m.deleteRecords(m.start + 4); err != nil {
			return err
		}
		if err := m.replica(0).Log().Dir().CheckpointStartOffsets(); err != nil {
			return err
		}
		m.kept = m.start
		m.finish()
		for _, d := range m.dirs {
			if err := d.Err(); err != nil {
				return err
			}
		}
		if err := errors.Join(m.writes(4), m.flush()); err != nil {
			return err
		}
	}
	return nil
}
