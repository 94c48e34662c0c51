package storage

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/codec"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/vfs"
)

var modelPartition = kafka.TopicPartition{Topic: "m", Partition: 3}

// world drives one log through random operations, power cuts and restarts beside a simple model of what it must hold.
type world struct {
	t      testing.TB
	rng    *rand.Rand
	fsys   *vfs.Mem
	config Config
	now    time.Time
	dir    *Dir
	log    *Log

	batches     []modelBatch // all that is, or may be, in the log
	start       kafka.Offset // not above this
	durable     kafka.Offset // everything below was acknowledged as synced
	epoch       kafka.LeaderEpoch
	value       int
	producer    [3]modelProducer
	recovery    int  // segments recovered by the last open
	syncAllFrom int  // Options.SyncAllFrom
	trimmed     bool // records went at the front, so that the producers' state can't be made anew
	// before, if not nil, is what the log may be instead: a truncation didn't come to its end.
	before []modelBatch
}

type modelBatch struct {
	raw         record.Batch
	first, last kafka.Offset
}

type modelProducer struct {
	epoch    kafka.ProducerEpoch
	sequence int32
	open     bool
}

func smallSegments() Config {
	c := DefaultConfig()
	c.SegmentBytes = 1500
	c.IndexIntervalBytes = 100
	c.SegmentIndexBytes = 200
	c.RetentionBytes = -1
	c.FileDeleteDelay = 0
	return c
}

func newWorld(t testing.TB, seed uint64, config Config) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 7)), fsys: vfs.NewMem(), config: config, now: time.UnixMilli(1_700_000_000_000)}
	w.syncAllFrom = 1 + int(seed%2) // with its one log every other world closes by CanSyncAll
	if err := w.fsys.MkdirAll("data/d"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.fsys.SyncDir("data"), w.fsys.SyncDir(".")); err != nil {
		t.Fatal(err)
	}
	return w
}

// open opens the directory and the log, which it makes if need be.
func (w *world) open() error {
	d, err := OpenDir("data/d", Options{FS: w.fsys, Files: NewFiles(w.fsys, 3), ProducerExpiration: 240 * time.Hour, SyncAllFrom: w.syncAllFrom})
	if err != nil {
		return err
	}
	w.dir = d
	if err := d.Begin(); err != nil {
		return err
	}
	dirs, err := d.Partitions()
	if err != nil {
		return err
	}
	for _, p := range dirs {
		if p.Kind == Current {
			var r Recovery
			w.log, r, err = d.Open(p, w.config, w.now)
			w.recovery = r.Recovered
			if err == nil && w.log.TopicID().IsZero() {
				err = w.log.SetTopicID(kafka.TopicID{9})
			}
			return err
		}
	}
	w.log, err = d.Create(modelPartition, kafka.TopicID{9}, w.config, w.now)
	return err
}

// step does one random thing.
func (w *world) step() error {
	switch n := w.rng.IntN(100); {
	case n < 62:
		return w.append()
	case n < 70:
		return w.flush()
	case n < 73:
		return w.dir.CheckpointRecoveryPoints()
	case n < 75:
		return errors.Join(w.dir.CheckpointStartOffsets(), w.dir.CheckpointHighWatermarks())
	case n < 80:
		w.epoch++
		return w.log.AssignEpoch(w.epoch, w.log.EndOffset())
	case n < 83:
		return w.advanceStart()
	case n < 87:
		_, err := w.log.DeleteOldSegments(w.now)
		w.trimmed = w.trimmed || w.log.StartOffset() > 0
		w.start = max(w.start, w.log.StartOffset())
		if err == nil {
			_, err = w.log.RemoveDeleted(w.now)
		}
		return err
	case n < 92:
		return w.truncate()
	case n < 95:
		if err := w.dir.Close(5); err != nil {
			return err
		}
		w.durable = w.end()
		if err := w.open(); err != nil {
			return err
		}
		w.learnProducers()
		return nil
	default:
		w.now = w.now.Add(time.Duration(w.rng.IntN(3000)) * time.Millisecond)
		return nil
	}
}

func (w *world) end() kafka.Offset {
	if n := len(w.batches); n > 0 {
		return w.batches[n-1].last + 1
	}
	return w.log.EndOffset()
}

// build makes a batch by a random producer.
func (w *world) build() (b record.Batch, origin record.Origin, done func()) {
	o := record.DefaultBatchOptions(0)
	o.Codec = []codec.Type{codec.None, codec.None, codec.LZ4}[w.rng.IntN(3)]
	i := w.rng.IntN(4)
	done = func() {}
	if i < 3 {
		p := &w.producer[i]
		o.ProducerID, o.ProducerEpoch = int64(i+1), p.epoch
		if i == 2 && p.open && w.rng.IntN(2) == 0 {
			kind := record.Commit
			if w.rng.IntN(2) == 0 {
				kind = record.Abort
			}
			return record.MarkerBatch(0, 0, w.now.UnixMilli(), 3, p.epoch, record.Marker{Type: kind, CoordinatorEpoch: 1}), record.Coordinator, func() { p.open = false }
		}
		o.BaseSequence, o.Transactional = p.sequence, i == 2
	}
	r := record.NewBuilder(o)
	n := 1 + w.rng.IntN(4)
	for range n {
		w.value++
		r.Append(w.now.UnixMilli()+int64(w.rng.IntN(2000)-1000), []byte("k"), fmt.Appendf(nil, "%d %s", w.value, bytes.Repeat([]byte("x"), w.rng.IntN(60))))
	}
	b, err := r.Build()
	if err != nil {
		w.t.Fatal(err)
	}
	if i < 3 {
		p := &w.producer[i]
		done = func() { p.sequence, p.open = record.AddSequence(p.sequence, int32(n)), i == 2 }
	}
	return b, record.Client, done
}

func (w *world) append() error {
	b, origin, done := w.build()
	o := w.config.Validation(modelPartition, origin, w.now)
	v, err := record.Validate(b, &o)
	if err != nil {
		w.t.Fatal(err)
	}
	defer v.Release()
	end := w.log.EndOffset()
	v.Assign(end, w.epoch, w.now.UnixMilli()) // as AppendAsLeader will do again: so the model knows it whatever happens
	m := modelBatch{raw: slices.Clone(record.Batch(v.Bytes)), first: v.FirstOffset, last: v.LastOffset}
	w.batches = append(w.batches, m)
	done()
	a, err := w.log.AppendAsLeader(v, LeaderAppend{Now: w.now, LeaderEpoch: w.epoch, Origin: origin})
	if err != nil {
		return err
	}
	if a.Duplicate || a.FirstOffset != m.first || a.LastOffset != m.last {
		w.t.Fatalf("appended %+v, want offsets %d to %d", a, m.first, m.last)
	}
	if a.MustFlush {
		if err := w.log.Flush(a.LastOffset + 1); err != nil {
			return err
		}
		w.durable = a.LastOffset + 1
	}
	w.log.SetHighWatermark(w.log.EndOffset())
	return nil
}

func (w *world) flush() error {
	end := w.log.EndOffset()
	if err := w.log.Flush(end); err != nil {
		return err
	}
	w.durable = max(w.durable, end)
	return nil
}

func (w *world) advanceStart() error {
	start, hw := w.log.StartOffset(), w.log.HighWatermark()
	if hw <= start {
		return nil
	}
	to := start + 1 + w.rng.Int64N(hw-start)
	w.start, w.trimmed = max(w.start, to), true
	_, err := w.log.AdvanceStartOffset(to)
	return err
}

// truncate cuts the log at a batch's border, as a follower does when a new leader has other records.
func (w *world) truncate() error {
	if w.rng.IntN(3) > 0 {
		return nil
	}
	var ends []kafka.Offset
	for _, b := range w.batches {
		if b.first >= w.log.StartOffset() {
			ends = append(ends, b.first)
		}
	}
	if len(ends) == 0 {
		return nil
	}
	to := ends[w.rng.IntN(len(ends))]
	w.before = slices.Clone(w.batches)
	w.batches = slices.DeleteFunc(w.batches, func(b modelBatch) bool { return b.last >= to })
	w.durable = min(w.durable, to)
	w.log.SetHighWatermark(min(w.log.HighWatermark(), to))
	if err := w.log.TruncateTo(to, w.now); err != nil {
		return err
	}
	w.before = nil
	w.learnProducers()
	w.epoch++
	return w.log.AssignEpoch(w.epoch, w.log.EndOffset())
}

// verify compares the log with the model. lost says that power was cut: then a tail that wasn't synced may be missing.
func (w *world) verify(lost bool) error {
	end := w.log.EndOffset()
	w.log.SetHighWatermark(end)
	if !lost && end != w.end() {
		return fmt.Errorf("end offset %d, want %d", end, w.end())
	}
	if end < w.durable {
		return fmt.Errorf("end offset %d, but everything below %d was synced", end, w.durable)
	}
	if start := w.log.StartOffset(); start > max(w.start, 0) || !lost && start != w.start {
		return fmt.Errorf("start offset %d, want %d", start, w.start)
	}
	err := w.compare(w.batches, end)
	if err != nil && w.before != nil {
		if w.compare(w.before, end) == nil {
			w.batches, err = w.before, nil
		}
	}
	if err != nil {
		return err
	}
	w.batches = slices.DeleteFunc(slices.Clone(w.batches), func(b modelBatch) bool { return b.last >= end })
	w.before = nil
	if err := w.compareTimes(); err != nil {
		return err
	}
	return w.compareProducers()
}

// compare reads the log in small fetches and finds exactly the model's batches from the log start to end.
func (w *world) compare(want []modelBatch, end kafka.Offset) error {
	offset := w.log.StartOffset()
	for _, m := range want {
		if m.last < offset || m.last >= end {
			continue
		}
		s, err := w.log.Read(offset, 1+w.rng.IntN(2000), true, end)
		if err != nil {
			return fmt.Errorf("read at %d: %w", offset, err)
		}
		buf := make([]byte, s.Len())
		n, _ := s.ReadAt(buf, 0)
		s.Release()
		if n != len(buf) || len(buf) < len(m.raw) || !bytes.Equal(buf[:len(m.raw)], m.raw) {
			return fmt.Errorf("read at %d: %d bytes, not the batch of offsets %d to %d", offset, n, m.first, m.last)
		}
		offset = m.last + 1
	}
	if offset != end && end > w.log.StartOffset() {
		return fmt.Errorf("the model ends at %d, the log at %d", offset, end)
	}
	s, err := w.log.Read(end, 100, true, end+1)
	if err != nil || s.Len() > 0 {
		return fmt.Errorf("read at the end: %d bytes, %v", s.Len(), err)
	}
	if _, err := w.log.Read(end+1, 100, true, end+9); !errors.Is(err, kerr.OffsetOutOfRange) {
		return fmt.Errorf("read beyond the end: %v", err)
	}
	return nil
}

// compareTimes asks for an offset by time and for the largest timestamp, and looks for both in the model record by record.
func (w *world) compareTimes() error {
	at := w.now.UnixMilli() - int64(w.rng.IntN(20000)) + 1000
	var want, newest Timestamped
	found, some := false, false
	for _, m := range w.batches {
		for r, err := range m.raw.All() {
			if err != nil {
				return err
			}
			t := Timestamped{r.Offset, r.Timestamp, m.raw.PartitionLeaderEpoch()}
			if !found && r.Offset >= w.log.StartOffset() && r.Timestamp >= at {
				want, found = t, true
			}
			if m.last >= w.log.view.Load().segments[0].base && (!some || r.Timestamp > newest.Timestamp) {
				newest, some = t, true
			}
		}
	}
	got, ok, err := w.log.OffsetForTimestamp(at, w.log.EndOffset())
	if err != nil || ok != found || got != want {
		return fmt.Errorf("first at or after %d: %+v %v %v, want %+v %v", at, got, ok, err, want, found)
	}
	got, ok, err = w.log.OffsetOfMaxTimestamp()
	if err != nil || ok != some || got != newest {
		return fmt.Errorf("largest timestamp: %+v %v %v, want %+v %v", got, ok, err, newest, some)
	}
	return nil
}

// compareProducers makes the producers' state anew from the model's batches, and the leader epochs.
func (w *world) compareProducers() error {
	ps := newProducers(0)
	var epochs EpochHistory
	for _, m := range w.batches {
		f, err := factsOf(m.raw, 0)
		if err != nil {
			return err
		}
		if e, ok := epochs.latest(); !ok || f.LeaderEpoch > e.Epoch {
			epochs.assign(f.LeaderEpoch, f.FirstOffset)
		}
		if ended, ok := ps.apply(&f); ok {
			ps.complete(ended)
		}
	}
	if w.trimmed {
		return nil
	}
	ps.replicated(w.log.EndOffset())
	want := fmt.Sprintf("%+v unstable %d", ps.entries(), ps.firstUnstable())
	w.log.mu.Lock()
	got := fmt.Sprintf("%+v unstable %d", w.log.producers.entries(), w.log.producers.firstUnstable())
	w.log.mu.Unlock()
	if got != want {
		return fmt.Errorf("producers %s\nwant      %s", got, want)
	}
	for _, e := range epochs.entries {
		if at, ok := w.log.EpochAt(e.Start); !ok || at != e.Epoch {
			return fmt.Errorf("epoch at %d is %d, want %d (log: %v)", e.Start, at, e.Epoch, w.log.Epochs())
		}
	}
	return nil
}

// crash cuts the power and takes what is left.
func (w *world) crash() {
	w.fsys = w.fsys.Crash(w.rng)
}

// recovered opens after a crash and verifies; then it lets the process die without a power cut and opens again, which must
// change nothing.
func (w *world) recovered() error {
	if err := w.open(); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	if err := w.verify(true); err != nil {
		return err
	}
	w.durable = w.log.EndOffset() // what a crash left is on the disk
	first := w.recovery
	path := w.log.Path()
	before := w.kept(path)
	if err := w.dir.Abandon(); err != nil {
		return err
	}
	if err := w.open(); err != nil {
		return fmt.Errorf("second recovery: %w", err)
	}
	if err := w.verify(true); err != nil {
		return fmt.Errorf("second recovery: %w", err)
	}
	after := w.kept(path)
	if w.recovery != first {
		// The first time some segment was trusted. What stood beside it was good, but need not be just what recovery makes.
		for _, files := range []map[string][]byte{before, after} {
			maps.DeleteFunc(files, func(name string, _ []byte) bool { return !strings.HasSuffix(name, logSuffix) })
		}
	}
	if !maps.EqualFunc(before, after, bytes.Equal) {
		text := "second recovery changed files:"
		for _, name := range slices.Sorted(maps.Keys(before)) {
			if b, ok := after[name]; !ok || !bytes.Equal(b, before[name]) {
				text += fmt.Sprintf("\n%s: %x, now (%v) %x", name, before[name], ok, b)
			}
		}
		return fmt.Errorf("%s\n%v, now %v", text, slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
	}
	return w.afterRecovery()
}

func (w *world) afterRecovery() error {
	w.learnProducers()
	if e, ok := w.log.LatestEpoch(); ok {
		w.epoch = max(w.epoch, e)
	}
	w.start = w.log.StartOffset()
	return nil
}

// kept are a partition's files but for those that wait for their removal.
func (w *world) kept(dir string) map[string][]byte {
	all := contents(w.t, w.fsys, dir)
	for name := range all {
		if strings.HasSuffix(name, deletedSuffix) {
			delete(all, name)
		}
		if w.config.Preallocate && strings.HasSuffix(name, logSuffix) {
			all[name] = bytes.TrimRight(all[name], "\x00") // a segment that the first recovery made is preallocated
		}
	}
	return all
}

// learnProducers lets the producers go on from what the log knows of them, with a new session where it knows nothing: a marker
// that survived its transaction's records leaves a producer without a sequence.
func (w *world) learnProducers() {
	w.producer = [3]modelProducer{}
	for i := range w.producer {
		w.producer[i].epoch = kafka.ProducerEpoch(w.value % 30000)
	}
	for _, p := range w.log.Producers() {
		w.producer[p.ProducerID-1] = modelProducer{max(p.ProducerEpoch, 0), p.LastSequence + 1, p.CurrentTxnFirstOffset >= 0}
	}
}

// TestModel runs random operations without power cuts, with restarts, clean ones and kills, against the model.
func TestModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(few(150, 40)) {
		c := smallSegments()
		if seed%3 == 0 {
			c.RetentionBytes = 4000
		}
		w := newWorld(t, seed, c)
		if err := w.open(); err != nil {
			t.Fatal(err)
		}
		for i := range 200 {
			err := w.step()
			if err == nil && i%10 == 0 {
				err = w.verify(false)
			}
			if err == nil && w.rng.IntN(60) == 0 {
				// The process is killed: the operating system keeps what was written.
				if err = w.dir.Abandon(); err == nil {
					if err = w.open(); err == nil {
						w.start = min(w.start, w.log.StartOffset())
						w.learnProducers()
						err = w.verify(false)
					}
				}
			}
			if err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, i, err)
			}
		}
		if open := w.dir.o.Files.Open(); open > 3 {
			t.Fatalf("seed %d: %d files are open, the limit is 3", seed, open)
		}
		if err := w.dir.Close(1); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPowerCutAtEveryOperation runs one workload (appends, rolls, flushes, checkpoints, truncation, retention, clean shutdown and
// start) again and again and cuts the power after each of its file operations, several ways each.
func TestPowerCutAtEveryOperation(t *testing.T) {
	t.Parallel()
	for seed := range uint64(few(3, 1)) {
		for cut := 0; ; cut++ {
			run := newWorld(t, seed, smallSegments())
			run.fsys.CutAfter(cut)
			err := run.open()
			for i := 0; err == nil && i < 90; i++ {
				err = run.step()
			}
			if err == nil {
				if err = run.dir.Close(1); err == nil {
					run.durable = run.end()
				}
			}
			if err != nil && !errors.Is(err, vfs.ErrPowerCut) {
				t.Fatalf("seed %d, cut after %d: %v", seed, cut, err)
			}
			for outcome := range few(4, 1) {
				w := *run
				w.batches = slices.Clone(run.batches)
				w.rng = rand.New(rand.NewPCG(seed, uint64(cut*100+outcome)))
				w.crash()
				if err := w.recovered(); err != nil {
					t.Fatalf("seed %d, cut after %d, outcome %d: %v", seed, cut, outcome, err)
				}
				if err := w.append(); err != nil {
					t.Fatalf("seed %d, cut after %d, outcome %d: append after recovery: %v", seed, cut, outcome, err)
				}
				if err := w.dir.Close(1); err != nil {
					t.Fatal(err)
				}
			}
			if err == nil {
				t.Logf("seed %d: %d operations", seed, cut)
				break
			}
		}
	}
}

// few is how many of something a test makes.
func few(many, underPressure int) int {
	if underRace || testing.Short() {
		return underPressure
	}
	return many
}

// TestPowerCutsFlushEveryMessage runs more than a thousand random lives, each with several power cuts, with flush.messages=1:
// nothing that was acknowledged may be lost.
func TestPowerCutsFlushEveryMessage(t *testing.T) {
	t.Parallel()
	for seed := range uint64(few(1100, 100)) {
		c := smallSegments()
		c.FlushMessages = 1
		if seed%4 == 0 {
			c.RetentionBytes = 3000
		}
		c.Preallocate = seed%5 == 0
		lives(t, seed, c)
	}
}

// TestPowerCuts is the same without syncs but for those that the workload asks for.
func TestPowerCuts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(few(700, 100)) {
		c := smallSegments()
		c.FlushMessages = int64([]int{1 << 40, 10}[seed%2])
		if seed%4 == 0 {
			c.RetentionBytes = 3000
		}
		c.Preallocate = seed%5 == 0
		lives(t, seed+1_000_000, c)
	}
}

func lives(t *testing.T, seed uint64, c Config) {
	t.Helper()
	w := newWorld(t, seed, c)
	w.fsys.CutAfter(w.rng.IntN(300))
	err := w.open()
	for life := range 4 {
		for i := 0; err == nil && i < 60; i++ {
			err = w.step()
		}
		if err != nil && !errors.Is(err, vfs.ErrPowerCut) {
			t.Fatalf("seed %d, life %d: %v", seed, life, err)
		}
		w.crash()
		if err = w.recovered(); err != nil {
			t.Fatalf("seed %d, life %d: %v", seed, life, err)
		}
		w.fsys.CutAfter(w.rng.IntN(200))
	}
}
