package replica

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/replication"
	"github.com/highwater/highwater/internal/schema"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
)

const self = 1 // the broker whose Set is tested

var t0 = time.UnixMilli(1_700_000_000_000)

// world is one broker's Set over a disk in memory, fed by metadata records, and what it told its owner.
type world struct {
	t     testing.TB
	fsys  *vfs.Mem
	dir   *Dir
	set   *Set
	delta *metadata.Delta
	// config is what every topic has.
	config TopicConfig

	mu       sync.Mutex // guards what the set tells
	alters   []replication.ISRChange
	failed   []error
	assigned []kafka.TopicIDPartition
	removed  []string
	notes    []string
	rolled   int
}

func topicID(n int) kafka.TopicID { return kafka.TopicID{0: byte(n), 15: 200} }

// newWorld is a world with brokers 1, 2 and 3, unfenced, and no topic.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, fsys: vfs.NewMem(), config: TopicConfig{Log: storage.DefaultConfig(), MinISR: 1}}
	if err := w.fsys.MkdirAll("/d"); err != nil {
		t.Fatal(err)
	}
	w.delta = metadata.NewDelta(metadata.Empty())
	level := schema.NewFeatureLevelRecord()
	level.Name, level.FeatureLevel = metadata.MetadataVersionFeature, int16(metadata.LatestProductionVersion)
	records := []schema.Record{level}
	for id := int32(1); id <= 3; id++ {
		b := schema.NewRegisterBrokerRecord()
		b.BrokerID, b.BrokerEpoch, b.Fenced = id, int64(100+id), false
		records = append(records, b)
	}
	w.replay(records...)
	w.open()
	return w
}

// open makes the directory and the set, as a start does. Logs that are there are opened.
func (w *world) open() {
	w.t.Helper()
	d, err := storage.OpenDir("/d", storage.Options{FS: w.fsys, Files: storage.NewFiles(w.fsys, 100), ProducerExpiration: time.Hour})
	if err != nil {
		w.t.Fatal(err)
	}
	w.dir = &Dir{Dir: d, ID: kafka.DirectoryID{7: 77}}
	w.set = NewSet(Options{
		ID: self, Dirs: []*Dir{w.dir}, LagMax: 30 * time.Second,
		Config: func(*metadata.Image, string) TopicConfig { return w.config },
		Alter:  func(_ *Replica, c replication.ISRChange) { w.note(func() { w.alters = append(w.alters, c) }) },
		Failed: func(_ *Replica, err error) { w.note(func() { w.failed = append(w.failed, err) }) },
		Assigned: func(p kafka.TopicIDPartition, _ kafka.DirectoryID, _ func()) {
			w.note(func() { w.assigned = append(w.assigned, p) })
		},
		Moving: func(*Replica) {},
		Rolled: func(*storage.Log) { w.note(func() { w.rolled++ }) },
		Removed: func(_ *storage.Dir, name string, _ time.Duration) {
			w.note(func() { w.removed = append(w.removed, name) })
		},
		Note: func(msg string, p kafka.TopicPartition, err error) {
			w.note(func() { w.notes = append(w.notes, fmt.Sprintf("%s: %v: %v", msg, p, err)) })
		},
		Unique: func() [16]byte { return [16]byte{1, 2, 3} },
	})
	ps, err := d.Partitions()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range ps {
		if p.Kind != storage.Current {
			continue
		}
		if _, _, err := d.Open(p, w.config.Log, t0); err != nil {
			w.t.Fatal(err)
		}
	}
}

// restart closes the directory and opens it again.
func (w *world) restart() {
	w.t.Helper()
	if err := w.dir.Close(1); err != nil {
		w.t.Fatal(err)
	}
	w.open()
}

func (w *world) note(f func()) {
	w.mu.Lock()
	f()
	w.mu.Unlock()
}

func (w *world) replay(records ...schema.Record) {
	w.t.Helper()
	for _, r := range records {
		at := w.delta.At()
		at.Offset++
		if err := w.delta.Replay(at, r); err != nil {
			w.t.Fatal(err)
		}
	}
}

// apply commits records and lets the set take them in.
func (w *world) apply(records ...schema.Record) {
	w.t.Helper()
	w.replay(records...)
	image, changes := w.delta.Apply()
	w.set.Apply(t0, image, changes)
}

func topicRecord(n int, name string) schema.Record {
	r := schema.NewTopicRecord()
	r.Name, r.TopicID = name, topicID(n)
	return r
}

// partitionRecord is partition p of topic n, led by the first replica, all in the ISR.
func partitionRecord(n int, p int32, replicas ...int32) *schema.PartitionRecord {
	r := schema.NewPartitionRecord()
	r.TopicID, r.PartitionID, r.Replicas, r.ISR, r.Leader = topicID(n), p, replicas, replicas, replicas[0]
	r.LeaderEpoch, r.PartitionEpoch = 0, 0
	return r
}

func change(n int, p int32, edit func(*schema.PartitionChangeRecord)) schema.Record {
	r := schema.NewPartitionChangeRecord()
	r.TopicID, r.PartitionID = topicID(n), p
	edit(r)
	return r
}

// led makes a topic of one partition that this broker leads, with these other replicas.
func (w *world) led(others ...int32) *Replica {
	w.t.Helper()
	w.apply(topicRecord(1, "a"), partitionRecord(1, 0, append([]int32{self}, others...)...))
	return w.get("a", 0)
}

func (w *world) get(name string, partition int32) *Replica {
	w.t.Helper()
	r, err := w.set.Lookup(name, partition)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// names lists the disk's directory, without files.
func (w *world) dirs() (names []string) {
	w.t.Helper()
	entries, err := w.fsys.List("/d")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

func (w *world) noted(part string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.notes {
		if strings.Contains(n, part) {
			return true
		}
	}
	return false
}

// batch is n records with timestamps from ms on; a producer id below zero is none.
func batch(t testing.TB, n int, ms int64, producer kafka.ProducerID, sequence int32) []byte {
	t.Helper()
	o := record.DefaultBatchOptions(0)
	if producer >= 0 {
		o.ProducerID, o.ProducerEpoch, o.BaseSequence = producer, 0, sequence
	}
	b := record.NewBuilder(o)
	for i := range n {
		b.Append(ms+int64(i), nil, []byte("value"))
	}
	out, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// sent is one append with its ack.
type sent struct {
	acks  Acks
	ack   *Ack
	woken int
	storage.Appended
	err error
}

// append appends bytes as a Produce request does. With acks=-1 the ack is sealed, so that woken counts.
func appendTo(t testing.TB, r *Replica, acks int16, b []byte) *sent {
	s := new(sent)
	o := r.Log().Config().Validation(r.Partition(), record.Client, t0)
	v, err := record.Validate(b, &o)
	if err != nil {
		s.err = err
		return s
	}
	defer v.Release()
	if acks == -1 {
		s.acks.Reset(1, func() { s.woken++ })
		s.ack = s.acks.Add()
	}
	s.Appended, s.err = r.Append(t0, v, AppendOptions{Acks: acks, Origin: record.Client, Epoch: kafka.NoLeaderEpoch}, s.ack)
	if s.ack != nil {
		if s.err != nil {
			s.acks.Drop(s.ack)
		}
		s.acks.Seal()
	}
	return s
}

// state is "open", "ok" or the error that the ack got.
func (s *sent) state() string {
	settled, err := s.ack.Result()
	switch {
	case !settled:
		return "open"
	case err != nil:
		return err.Error()
	}
	return "ok"
}

// fetch is a follower's fetch from offset on.
func (w *world) fetch(r *Replica, follower kafka.BrokerID, offset kafka.Offset) (Read, error) {
	var out Read
	_, epoch := r.Leads()
	err := r.Read(t0, Reader{Follower: follower, FollowerEpoch: kafka.BrokerEpoch(100 + int64(follower))},
		ReadRequest{Offset: offset, MaxBytes: 1 << 20, MinOneBatch: true, LeaderEpoch: epoch, LastFetchedEpoch: kafka.NoLeaderEpoch}, &out)
	out.Records.Release()
	return out, err
}
