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
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/vfs"
)

// cleanWorld drives a compacted log through random operations beside a model that knows each record and its fate. After each clean, start and
// crash the log is read as consumers of both isolation levels do, and the model says what must be there, what may, and what must not.
type cleanWorld struct {
	t      testing.TB
	rng    *rand.Rand
	fsys   *vfs.Mem
	config Config
	now    time.Time
	dir    *Dir
	log    *Log

	syncAllFrom int // Options.SyncAllFrom

	records   []cleanRecord // by offset
	end       kafka.Offset
	durable   kafka.Offset
	start     kafka.Offset // not above this
	trimmed   bool
	lowest    kafka.Offset   // the end of truncations since the last start, for a cut in the middle of one
	before    []cleanRecord  // what the log may have instead: a truncation didn't come to its end
	bound     kafka.Offset   // everything at or above was never cleaned
	complete  kafka.Offset   // below this a clean has just removed all that is superseded; -1 if not known
	cuts      []kafka.Offset // borders of batches
	epoch     kafka.LeaderEpoch
	value     int
	producers map[kafka.ProducerID]*cleanProducer
	held      []heldSlice
	quiet     kafka.ProducerID

	steps, cleans, removed int
}

type cleanRecord struct {
	offset    kafka.Offset
	timestamp int64
	key       []byte
	value     []byte
	marker    bool
	producer  kafka.ProducerID
	txn       int // number of its transaction, 0 for none
	fate      fate
	cleanedAt time.Time // when a clean covered it first
}

// fate is what became of a record's transaction.
type fate uint8

const (
	committed fate = iota // or of none
	undecided
	aborted
)

type cleanProducer struct {
	epoch    kafka.ProducerEpoch
	sequence int32
	txn      int // open transaction, 0 for none
}

// heldSlice is what a consumer is still reading.
type heldSlice struct {
	s       Slice
	bytes   []byte
	aborted []AbortedTxn
}

func newCleanWorld(t testing.TB, seed uint64) *cleanWorld {
	w := &cleanWorld{
		t: t, rng: rand.New(rand.NewPCG(seed, 11)), fsys: vfs.NewMem(), now: time.UnixMilli(1_700_000_000_000), complete: -1,
		producers: map[kafka.ProducerID]*cleanProducer{},
	}
	c := smallSegments()
	c.Compact, c.Delete = true, seed%4 == 0
	c.SegmentBytes = 600 + int32(w.rng.IntN(2000))
	c.SegmentIndexBytes = 400
	c.DeleteRetention = time.Duration(w.rng.IntN(3)) * 20 * time.Second
	if seed%5 == 0 {
		c.MinCompactionLag = time.Duration(w.rng.IntN(20)) * time.Second
	}
	if seed%4 == 0 {
		c.RetentionBytes = 6000
	}
	w.config = c
	w.syncAllFrom = 1 + int(seed%2)
	if err := errors.Join(w.fsys.MkdirAll("data/d"), w.fsys.SyncDir("data"), w.fsys.SyncDir(".")); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *cleanWorld) open() error {
	d, err := OpenDir("data/d", Options{FS: w.fsys, Files: NewFiles(w.fsys, 4), ProducerExpiration: 2400 * time.Hour, SyncAllFrom: w.syncAllFrom})
	if err != nil {
		return err
	}
	w.dir, w.held, w.complete = d, nil, -1
	if err := d.Begin(); err != nil {
		return err
	}
	dirs, err := d.Partitions()
	if err != nil {
		return err
	}
	if len(dirs) > 0 {
		if w.log, _, err = d.Open(dirs[0], w.config, w.now); err == nil && w.log.TopicID().IsZero() {
			err = w.log.SetTopicID(kafka.TopicID{9})
		}
		if err == nil {
			w.log.SetHighWatermark(w.log.EndOffset())
		}
		return err
	}
	w.log, err = d.Create(modelPartition, kafka.TopicID{9}, w.config, w.now)
	return err
}

func (w *cleanWorld) step() error {
	w.steps++
	switch n := w.rng.IntN(200); {
	case n < 130:
		return w.append()
	case n < 138:
		return w.flush()
	case n < 142:
		return errors.Join(w.dir.CheckpointRecoveryPoints(), w.dir.CheckpointStartOffsets(), w.dir.CheckpointHighWatermarks())
	case n < 146:
		w.epoch++
		return w.log.AssignEpoch(w.epoch, w.log.EndOffset())
	case n < 149:
		return w.advanceStart()
	case n < 153:
		return w.retain()
	case n < 157:
		return w.truncate()
	case n < 160:
		return w.restart()
	case n < 172:
		return w.clean()
	case n < 180:
		return w.hold()
	default:
		w.now = w.now.Add(time.Duration(w.rng.IntN(4000)) * time.Millisecond)
		return nil
	}
}

func (w *cleanWorld) append() error {
	if w.steps%40 == 0 {
		w.quiet = kafka.ProducerID(1 + w.rng.IntN(6))
	}
	id := kafka.ProducerID(1 + w.rng.IntN(6))
	if id == w.quiet || id == w.quiet+2 {
		id = 1 // some say nothing for a while: of them only what the cleaner must keep is left
	}
	p := w.producers[id]
	if p == nil {
		p = &cleanProducer{epoch: kafka.ProducerEpoch(w.value % 30000)}
		w.producers[id] = p
	}
	if id > 3 && (p.txn > 0 && w.rng.IntN(3) == 0 || p.txn == 0 && w.rng.IntN(30) == 0) {
		return w.appendMarker(id, p)
	}
	o := record.DefaultBatchOptions(0)
	o.Codec = []codec.Type{codec.None, codec.None, codec.None, codec.LZ4, codec.Snappy, codec.Zstd, codec.Gzip}[w.rng.IntN(7)]
	if id > 1 {
		o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = id, p.epoch, p.sequence, id > 3
	}
	b := record.NewBuilder(o)
	base := w.log.EndOffset()
	var fresh []cleanRecord
	txn, f := 0, committed
	if id > 3 {
		f = undecided
		if txn = p.txn; txn == 0 {
			w.value++
			txn = w.value
		}
	}
	for i := range 1 + w.rng.IntN(4) {
		w.value++
		r := cleanRecord{offset: base + int64(i), timestamp: w.now.UnixMilli() + int64(w.rng.IntN(2000)-1000), producer: o.ProducerID, txn: txn, fate: f}
		if w.rng.IntN(40) > 0 {
			r.key = fmt.Appendf(nil, "k%d", w.rng.IntN(12))
		}
		if w.rng.IntN(5) > 0 {
			r.value = fmt.Appendf(nil, "%d%s", w.value, bytes.Repeat([]byte("x"), w.rng.IntN(40)))
		}
		b.Append(r.timestamp, r.key, r.value)
		fresh = append(fresh, r)
	}
	batch, err := b.Build()
	if err != nil {
		w.t.Fatal(err)
	}
	if id > 1 {
		p.sequence = record.AddSequence(p.sequence, int32(len(fresh)))
	}
	p.txn = txn
	return w.appendBatch(batch, record.Client, fresh)
}

func (w *cleanWorld) appendMarker(id kafka.ProducerID, p *cleanProducer) error {
	m, f := record.Marker{Type: record.Commit, CoordinatorEpoch: 1}, committed
	if w.rng.IntN(2) == 0 {
		m.Type, f = record.Abort, aborted
	}
	if w.rng.IntN(3) == 0 { // as with transaction.version 2
		p.epoch++
		p.sequence = 0
	}
	r := cleanRecord{offset: w.log.EndOffset(), timestamp: w.now.UnixMilli(), key: m.Type.Key(), value: m.Value(), marker: true, producer: id, txn: p.txn}
	if p.txn > 0 {
		for i := range w.records {
			if w.records[i].txn == p.txn {
				w.records[i].fate = f
			}
		}
	}
	p.txn = 0
	return w.appendBatch(record.MarkerBatch(0, 0, r.timestamp, id, p.epoch, m), record.Coordinator, []cleanRecord{r})
}

func (w *cleanWorld) appendBatch(b record.Batch, origin record.Origin, fresh []cleanRecord) error {
	o := w.config.Validation(modelPartition, origin, w.now)
	o.Compacted = false
	v, err := record.Validate(b, &o)
	if err != nil {
		w.t.Fatal(err)
	}
	defer v.Release()
	w.cuts = append(w.cuts, w.log.EndOffset())
	w.records = append(w.records, fresh...)
	w.end = fresh[len(fresh)-1].offset + 1
	a, err := w.log.AppendAsLeader(v, LeaderAppend{Now: w.now, LeaderEpoch: w.epoch, Origin: origin})
	if err != nil {
		return err
	}
	if a.FirstOffset != fresh[0].offset {
		w.t.Fatalf("appended at %d, want %d", a.FirstOffset, fresh[0].offset)
	}
	// Now and then the high watermark lags.
	if w.rng.IntN(5) > 1 {
		w.log.SetHighWatermark(w.log.EndOffset())
	}
	return nil
}

func (w *cleanWorld) flush() error {
	end := w.log.EndOffset()
	err := w.log.Flush(end)
	if err == nil {
		w.durable = max(w.durable, end)
	}
	return err
}

func (w *cleanWorld) advanceStart() error {
	start, hw := w.log.StartOffset(), w.log.HighWatermark()
	if hw <= start || w.rng.IntN(3) > 0 {
		return nil
	}
	to := start + 1 + w.rng.Int64N(hw-start)
	w.start, w.trimmed = max(w.start, to), true
	_, err := w.log.AdvanceStartOffset(to)
	return err
}

func (w *cleanWorld) retain() error {
	_, err := w.log.DeleteOldSegments(w.now)
	w.trimmed = w.trimmed || w.log.StartOffset() > 0
	w.start = max(w.start, w.log.StartOffset())
	if err == nil {
		_, err = w.log.RemoveDeleted(w.now)
	}
	return err
}

// truncate cuts the log, but not below what was committed.
func (w *cleanWorld) truncate() error {
	var at []kafka.Offset
	for _, c := range w.cuts {
		if c >= max(w.log.HighWatermark(), w.log.StartOffset()) && c < w.end {
			at = append(at, c)
		}
	}
	if len(at) == 0 {
		return nil
	}
	to := at[w.rng.IntN(len(at))]
	w.before = slices.Clone(w.records)
	w.lowest = to
	w.cutModel(to)
	w.durable = min(w.durable, to)
	w.log.SetHighWatermark(min(w.log.HighWatermark(), to))
	if err := w.log.TruncateTo(to, w.now); err != nil {
		return err
	}
	w.before = nil
	w.learn()
	w.epoch++
	return w.log.AssignEpoch(w.epoch, w.log.EndOffset())
}

// cutModel forgets what comes from an offset on. Transactions whose marker is gone are open again.
func (w *cleanWorld) cutModel(to kafka.Offset) {
	w.records = slices.DeleteFunc(w.records, func(r cleanRecord) bool { return r.offset >= to })
	w.cuts = slices.DeleteFunc(w.cuts, func(c kafka.Offset) bool { return c >= to })
	w.end, w.bound = min(w.end, to), min(w.bound, to)
	ended := map[int]bool{}
	for _, r := range w.records {
		if r.marker {
			ended[r.txn] = true
		}
	}
	for i := range w.records {
		if r := &w.records[i]; r.txn > 0 && !r.marker && !ended[r.txn] {
			r.fate = undecided
		}
	}
	w.complete = -1
}

// learn lets the producers go on from what the log knows of them.
func (w *cleanWorld) learn() {
	open := map[kafka.ProducerID]int{}
	for _, r := range w.records {
		if r.fate == undecided {
			open[r.producer] = r.txn
		}
	}
	w.producers = map[kafka.ProducerID]*cleanProducer{}
	for _, p := range w.log.Producers() {
		w.producers[p.ProducerID] = &cleanProducer{max(p.ProducerEpoch, 0), p.LastSequence + 1, 0}
		if p.CurrentTxnFirstOffset >= 0 {
			w.producers[p.ProducerID].txn = open[p.ProducerID]
		}
	}
}

func (w *cleanWorld) restart() error {
	w.release()
	if w.rng.IntN(3) == 0 { // killed: the operating system keeps what was written
		if err := w.dir.Abandon(); err != nil {
			return err
		}
	} else {
		if err := w.dir.Close(5); err != nil {
			return err
		}
		w.durable = w.end
	}
	if err := w.open(); err != nil {
		return err
	}
	w.start = min(w.start, w.log.StartOffset())
	w.learn()
	return w.verify(false)
}

func (w *cleanWorld) clean() error {
	r, err := w.log.CleanRange(w.now)
	if err != nil || r.CleanableBytes == 0 {
		return err
	}
	if limit := w.log.LastStableOffset(w.log.HighWatermark()); r.FirstUncleanable > limit {
		return fmt.Errorf("would clean up to %d, the last stable offset is %d", r.FirstUncleanable, limit)
	}
	slots := 4 + w.rng.IntN(20)
	if w.rng.IntN(3) > 0 {
		slots = 10_000
	}
	// Meanwhile others go on.
	var meanwhile error
	o := CleanerOptions{DedupeBytes: int64(slots * mapSlotSize), LoadFactor: 0.9, HashKey: [2]uint64{3, 4}, Pace: func(int) error {
		switch n := w.rng.IntN(30); {
		case n < 4:
			meanwhile = w.append()
		case n == 4:
			meanwhile = w.flush()
		case n == 5:
			meanwhile = w.advanceStart()
		case n == 6:
			meanwhile = w.retain()
		case n == 7:
			meanwhile = w.hold()
		case n == 8:
			return errors.New("enough")
		}
		return meanwhile
	}}
	c, err := NewCleaner(o)
	if err != nil {
		return err
	}
	ended, err := w.batchEnds(r.FirstUncleanable)
	if err != nil {
		return err
	}
	for i := range w.records {
		if r2 := &w.records[i]; r2.offset < r.FirstUncleanable && r2.cleanedAt.IsZero() {
			r2.cleanedAt = w.now
		}
	}
	w.bound = max(w.bound, r.FirstUncleanable)
	w.complete = -1
	stats, err := c.Clean(w.log, r, w.now)
	if err != nil {
		if meanwhile == nil && errors.Is(err, ErrCleaningAborted) && w.log.Err() == nil {
			w.learnCuts()
			return w.verify(false)
		}
		return errors.Join(err, meanwhile)
	}
	if w.log.EndOffset() != w.end || w.log.CleanedTo() != stats.EndOffset || stats.EndOffset <= r.FirstDirty || stats.EndOffset > r.FirstUncleanable {
		return fmt.Errorf("cleaned %+v: %+v, the log ends at %d, not at %d", r, stats, w.log.EndOffset(), w.end)
	}
	ends, err := w.batchEnds(r.FirstUncleanable)
	if err != nil {
		return err
	}
	if ended && !ends && r.FirstUncleanable > w.log.StartOffset() {
		return fmt.Errorf("the last batch below %d, the end of what was cleaned, is gone", r.FirstUncleanable)
	}
	w.durable = max(w.durable, r.FirstUncleanable)
	w.complete = stats.EndOffset
	w.cleans++
	w.removed += int(stats.RecordsRead - stats.RecordsKept)
	w.learnCuts()
	return w.verify(false)
}

// batchEnds tells whether a batch ends at an offset. Read tells of none that lie below the log start.
func (w *cleanWorld) batchEnds(at kafka.Offset) (found bool, err error) {
	if at <= w.log.StartOffset() {
		return false, nil
	}
	err = w.eachBatch(func(b record.Batch) error {
		found = found || b.NextOffset() == at
		return nil
	})
	return found, err
}

// learnCuts finds the borders of the batches that are left, where a follower may truncate.
func (w *cleanWorld) learnCuts() {
	var cuts []kafka.Offset
	_ = w.eachBatch(func(b record.Batch) error {
		cuts = append(cuts, b.BaseOffset())
		return nil
	})
	w.cuts = cuts
}

// hold begins or ends a consumer's reading.
func (w *cleanWorld) hold() error {
	if len(w.held) > 3 {
		w.release()
	}
	start, end := w.log.StartOffset(), w.log.LastStableOffset(w.log.HighWatermark())
	if end <= start {
		return nil
	}
	s, err := w.log.Read(start+w.rng.Int64N(end-start), 1+w.rng.IntN(3000), true, end)
	if err != nil || s.Len() == 0 {
		return err
	}
	h := heldSlice{s: s, bytes: make([]byte, s.Len())}
	if _, err := s.ReadAt(h.bytes, 0); err != nil {
		return err
	}
	h.aborted, err = w.log.AbortedTxns(nil, &h.s)
	w.held = append(w.held, h)
	return err
}

func (w *cleanWorld) release() {
	for i := range w.held {
		w.held[i].s.Release()
	}
	w.held = nil
}

// checkHeld looks whether consumers still read what they did, and hear of the same aborted transactions.
func (w *cleanWorld) checkHeld() error {
	for i := range w.held {
		h := &w.held[i]
		again := make([]byte, len(h.bytes))
		if _, err := h.s.ReadAt(again, 0); err != nil {
			return fmt.Errorf("read a slice that was held: %w", err)
		}
		if !bytes.Equal(again, h.bytes) {
			return errors.New("a slice changed while it was held")
		}
		aborted, err := w.log.AbortedTxns(nil, &h.s)
		if err != nil {
			return err
		}
		for _, a := range h.aborted {
			if !slices.Contains(aborted, a) {
				return fmt.Errorf("aborted transactions of a held slice: %v, before %v", aborted, h.aborted)
			}
		}
	}
	return nil
}

// eachBatch reads the log in fetches of random size.
func (w *cleanWorld) eachBatch(f func(b record.Batch) error) error {
	for offset := w.log.StartOffset(); offset < w.log.EndOffset(); {
		s, err := w.log.Read(offset, 1+w.rng.IntN(2000), true, w.log.EndOffset())
		if err != nil {
			return fmt.Errorf("read at %d: %w", offset, err)
		}
		buf := make([]byte, s.Len())
		if s.Len() > 0 {
			_, err = s.ReadAt(buf, 0)
		}
		s.Release()
		if err != nil {
			return fmt.Errorf("read at %d: %w", offset, err)
		}
		if len(buf) == 0 {
			return fmt.Errorf("nothing to read at %d, the log ends at %d", offset, w.log.EndOffset())
		}
		for {
			b, rest, err := record.Next(buf)
			if err != nil {
				return err
			}
			if b == nil {
				break
			}
			if err := b.Check(); err != nil {
				return fmt.Errorf("batch at %d: %w", b.BaseOffset(), err)
			}
			if b.LastOffset() < offset {
				return fmt.Errorf("read at %d: a batch of offsets %d to %d", offset, b.BaseOffset(), b.LastOffset())
			}
			if err := f(b); err != nil {
				return err
			}
			offset, buf = b.NextOffset(), rest
		}
	}
	return nil
}

// consume reads as a consumer with read_committed does: it drops batches of transactions that each fetch's answer calls aborted.
func (w *cleanWorld) consume(end kafka.Offset) ([]kafka.Offset, error) {
	var out []kafka.Offset
	for offset := w.log.StartOffset(); offset < end; {
		s, err := w.log.Read(offset, 1+w.rng.IntN(3000), true, end)
		if err != nil {
			return nil, err
		}
		buf := make([]byte, s.Len())
		_, err = s.ReadAt(buf, 0)
		if len(buf) == 0 {
			s.Release()
			// What is left below end lies in a batch that reaches beyond it, or was compacted away.
			return out, nil
		}
		list, aerr := w.log.AbortedTxns(nil, &s)
		s.Release()
		if aerr != nil || err != nil {
			return nil, errors.Join(err, aerr)
		}
		slices.SortStableFunc(list, func(a, b AbortedTxn) int { return int(a.FirstOffset - b.FirstOffset) })
		dropping := map[kafka.ProducerID]bool{}
		for {
			b, rest, err := record.Next(buf)
			if err != nil {
				return nil, err
			}
			if b == nil {
				break
			}
			for len(list) > 0 && list[0].FirstOffset <= b.LastOffset() {
				dropping[list[0].ProducerID] = true
				list = list[1:]
			}
			facts, err := factsOf(b, 0)
			if err != nil {
				return nil, err
			}
			switch {
			case b.Control():
				if facts.Marker == record.Abort {
					delete(dropping, b.ProducerID())
				}
			case b.Transactional() && dropping[b.ProducerID()]:
			default:
				for r, err := range b.All() {
					if err != nil {
						return nil, err
					}
					if r.Offset >= offset {
						out = append(out, r.Offset)
					}
				}
			}
			offset, buf = b.NextOffset(), rest
		}
	}
	return out, nil
}

// verify compares the log with the model. lost says that power was cut: then a tail that wasn't synced may be missing.
func (w *cleanWorld) verify(lost bool) error {
	end := w.log.EndOffset()
	w.log.SetHighWatermark(end)
	if !lost && end != w.end || end > w.end && w.before == nil {
		return fmt.Errorf("end offset %d, want %d", end, w.end)
	}
	if end < w.durable {
		return fmt.Errorf("end offset %d, but everything below %d was synced", end, w.durable)
	}
	if start := w.log.StartOffset(); start > max(w.start, 0) || !lost && start != w.start {
		return fmt.Errorf("start offset %d, want %d", start, w.start)
	}
	if lost && w.before != nil && end > w.lowest {
		w.records, w.before = w.before, nil
	}
	w.before = nil
	if lost {
		w.cutModel(end)
		w.end = end
		w.learnCuts()
	}
	if err := w.checkHeld(); err != nil {
		return err
	}
	present, err := w.read()
	if err != nil {
		return err
	}
	if err := w.compareRecords(present); err != nil {
		return err
	}
	if err := w.compareCommitted(present); err != nil {
		return err
	}
	if err := w.compareTimes(present); err != nil {
		return err
	}
	return w.compareProducers()
}

func (w *cleanWorld) read() (map[kafka.Offset]bool, error) {
	present := map[kafka.Offset]bool{}
	start, next := w.log.StartOffset(), kafka.Offset(0)
	err := w.eachBatch(func(b record.Batch) error {
		if b.BaseOffset() < next {
			return fmt.Errorf("batch at %d after offset %d", b.BaseOffset(), next-1)
		}
		next = b.NextOffset()
		for r, err := range b.All() {
			if err != nil {
				return err
			}
			i, ok := slices.BinarySearchFunc(w.records, r.Offset, func(m cleanRecord, o kafka.Offset) int { return int(m.offset - o) })
			if !ok {
				return fmt.Errorf("a record at %d that was never written", r.Offset)
			}
			m := &w.records[i]
			if !bytes.Equal(m.key, r.Key) || !bytes.Equal(m.value, r.Value) || (m.key == nil) != (r.Key == nil) || (m.value == nil) != (r.Value == nil) || m.timestamp != r.Timestamp {
				return fmt.Errorf("record at %d: %d %q %q, want %d %q %q", r.Offset, r.Timestamp, r.Key, r.Value, m.timestamp, m.key, m.value)
			}
			present[r.Offset] = r.Offset >= start
		}
		return nil
	})
	return present, err
}

// compareRecords tells what must be there and what must be gone.
func (w *cleanWorld) compareRecords(present map[kafka.Offset]bool) error {
	latest := map[string]kafka.Offset{} // of each key, below what was cleaned
	for _, r := range w.records {
		if r.fate == committed && r.key != nil && !r.marker && r.offset < w.bound {
			latest[string(r.key)] = r.offset
		}
	}
	newest := map[string]kafka.Offset{} // of each key, below what has just been cleaned
	for _, r := range w.records {
		if r.fate == committed && r.key != nil && !r.marker && r.offset < w.complete {
			newest[string(r.key)] = r.offset
		}
	}
	for _, r := range w.records {
		if r.offset < w.log.StartOffset() {
			continue
		}
		gone := !present[r.offset]
		expired := !r.cleanedAt.IsZero() && !w.now.Before(r.cleanedAt.Add(w.config.DeleteRetention))
		var may bool
		switch {
		case r.offset >= w.bound:
		case r.marker:
			may = expired
		case r.fate == aborted, r.key == nil:
			may = true
		case r.offset < latest[string(r.key)]:
			may = true
		case r.value == nil:
			may = expired
		}
		if gone && !may {
			return fmt.Errorf("the record at %d is gone: %+v (cleaned below %d, now %v)", r.offset, r, w.bound, w.now)
		}
		if gone || r.offset >= w.complete || r.marker {
			continue
		}
		if r.fate == aborted || r.key == nil || r.offset < newest[string(r.key)] {
			return fmt.Errorf("the record at %d is still there: %+v (just cleaned below %d)", r.offset, r, w.complete)
		}
	}
	return nil
}

// compareCommitted reads with read_committed: no aborted record may show, and no committed one that is there may be missing.
func (w *cleanWorld) compareCommitted(present map[kafka.Offset]bool) error {
	stable := w.end
	for _, r := range w.records {
		if r.fate == undecided && r.offset >= w.log.StartOffset() {
			stable = r.offset
			break
		}
	}
	lso := w.log.LastStableOffset(w.log.EndOffset())
	if !w.trimmed && lso != stable {
		return fmt.Errorf("last stable offset %d, want %d", lso, stable)
	}
	got, err := w.consume(lso)
	if err != nil {
		return err
	}
	var want []kafka.Offset
	for _, r := range w.records {
		if present[r.offset] && !r.marker && r.fate == committed && r.offset < lso {
			want = append(want, r.offset)
		}
	}
	got = slices.DeleteFunc(got, func(o kafka.Offset) bool { return o < w.log.StartOffset() })
	if w.trimmed {
		// Of a transaction that began below the log start nobody knows any more that it was aborted.
		known := map[int]bool{}
		for _, r := range w.records {
			known[r.txn] = known[r.txn] || r.offset < w.log.StartOffset()
		}
		drop := func(o kafka.Offset) bool {
			i, _ := slices.BinarySearchFunc(w.records, o, func(m cleanRecord, o kafka.Offset) int { return int(m.offset - o) })
			return w.records[i].txn > 0 && known[w.records[i].txn]
		}
		got, want = slices.DeleteFunc(got, drop), slices.DeleteFunc(want, drop)
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("committed records %v\nwant %v", got, want)
	}
	return nil
}

// compareTimes asks for an offset by time.
func (w *cleanWorld) compareTimes(present map[kafka.Offset]bool) error {
	at := w.now.UnixMilli() - int64(w.rng.IntN(60000)) + 1000
	var want Timestamped
	found := false
	for _, r := range w.records {
		if present[r.offset] && r.timestamp >= at {
			want, found = Timestamped{Offset: r.offset, Timestamp: r.timestamp}, true
			break
		}
	}
	got, ok, err := w.log.OffsetForTimestamp(at, w.log.EndOffset())
	if err != nil {
		return fmt.Errorf("first at or after %d: %w", at, err)
	}
	got.Epoch = 0
	if ok != found || got != want {
		return fmt.Errorf("first at or after %d: %+v %v, want %+v %v", at, got, ok, want, found)
	}
	return nil
}

// compareProducers makes the producers' state anew from all that is left in the log.
func (w *cleanWorld) compareProducers() error {
	if w.trimmed {
		return nil
	}
	l := w.log
	l.mu.Lock()
	defer l.mu.Unlock()
	ps := newProducers(0)
	if err := l.replayProducersLocked(ps, l.view.Load().segments, l.EndOffset()); err != nil {
		return err
	}
	ps.replicated(l.EndOffset())
	l.producers.replicated(l.EndOffset())
	of := func(ps *producers) string {
		var out strings.Builder
		for _, p := range ps.sorted() {
			fmt.Fprintf(&out, "%d epoch %d sequence %d txn %d; ", p.id, p.epoch, p.lastSequence(), p.txnFirstOffset)
		}
		fmt.Fprintf(&out, "unstable %d", ps.firstUnstable())
		return out.String()
	}
	if got, want := of(ps), of(l.producers); got != want {
		return fmt.Errorf("producers from the log: %s\nas they were:           %s", got, want)
	}
	return nil
}

// crash cuts the power and opens what is left.
func (w *cleanWorld) crash() error {
	w.held = nil
	w.fsys = w.fsys.Crash(w.rng)
	if err := w.open(); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	if err := w.verify(true); err != nil {
		return err
	}
	w.durable, w.start = w.log.EndOffset(), w.log.StartOffset()
	if err := w.checkIndexes(); err != nil {
		return err
	}
	before := w.logs()
	if err := w.dir.Abandon(); err != nil {
		return err
	}
	if err := w.open(); err != nil {
		return fmt.Errorf("second recovery: %w", err)
	}
	if after := w.logs(); !maps.EqualFunc(before, after, bytes.Equal) {
		return errors.New("the second recovery changed the log")
	}
	w.learn()
	if e, ok := w.log.LatestEpoch(); ok {
		w.epoch = max(w.epoch, e)
	}
	return w.verify(false)
}

// logs are the contents of the segments.
func (w *cleanWorld) logs() map[string][]byte {
	all := contents(w.t, w.fsys, w.log.Path())
	maps.DeleteFunc(all, func(name string, _ []byte) bool { return !strings.HasSuffix(name, logSuffix) })
	for name := range contents(w.t, w.fsys, w.log.Path()) {
		if strings.HasSuffix(name, cleanedSuffix) || strings.HasSuffix(name, swapSuffix) {
			w.t.Errorf("left behind: %s", name)
		}
	}
	return all
}

// TestCompactionModel runs random operations with restarts and kills: a hundred thousand steps.
func TestCompactionModel(t *testing.T) {
	t.Parallel()
	cleans, removed, steps := 0, 0, 0
	for seed := range uint64(few(350, 25)) {
		w := newCleanWorld(t, seed)
		if err := w.open(); err != nil {
			t.Fatal(err)
		}
		for i := range 300 {
			if err := w.step(); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, i, err)
			}
		}
		w.release()
		if open := w.dir.o.Files.Open(); open > 4 {
			t.Fatalf("seed %d: %d files are open, the limit is 4", seed, open)
		}
		if err := w.dir.Close(1); err != nil {
			t.Fatal(err)
		}
		cleans, removed, steps = cleans+w.cleans, removed+w.removed, steps+w.steps
	}
	t.Logf("%d steps, %d cleans, %d records removed", steps, cleans, removed)
	if cleans < steps/100 || removed < 10*cleans || steps < few(100_000, 0) {
		t.Errorf("only %d cleans in %d steps removed %d records", cleans, steps, removed)
	}
}

// TestCompactionPowerCuts runs lives with several power cuts each.
func TestCompactionPowerCuts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(few(500, 40)) {
		w := newCleanWorld(t, seed+1_000_000)
		err := w.open()
		for life := range 4 {
			w.fsys.CutAfter(w.rng.IntN(400))
			for i := 0; err == nil && i < 200; i++ {
				err = w.step()
			}
			if err != nil && !errors.Is(err, vfs.ErrPowerCut) {
				t.Fatalf("seed %d, life %d: %v", seed, life, err)
			}
			if err = w.crash(); err != nil {
				t.Fatalf("seed %d, life %d: %v", seed, life, err)
			}
		}
	}
}

// TestCompactionPowerCutAtEveryOperation runs a workload that ends with a clean, some appends and another clean, again and again, and cuts
// the power after each file operation of that end, several ways each.
func TestCompactionPowerCutAtEveryOperation(t *testing.T) {
	t.Parallel()
	cuts := 0
	for seed := range uint64(few(8, 1)) {
		for cut := 0; ; cut++ {
			w := newCleanWorld(t, seed+7_000_001)
			err := w.open()
			for i := 0; err == nil && i < 120; i++ {
				err = w.step()
			}
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			w.fsys.CutAfter(cut)
			w.log.SetHighWatermark(w.log.EndOffset())
			for i := 0; err == nil && i < 12; i++ {
				if err = w.append(); err == nil && i%6 == 0 {
					err = w.clean()
				}
			}
			if err == nil {
				w.release()
				if err = w.dir.Close(1); err == nil {
					w.durable = w.end
				}
			}
			if err != nil && !errors.Is(err, vfs.ErrPowerCut) {
				t.Fatalf("seed %d, cut after %d: %v", seed, cut, err)
			}
			for outcome := range few(3, 1) {
				again := *w
				again.records, again.cuts = slices.Clone(w.records), slices.Clone(w.cuts)
				again.rng = rand.New(rand.NewPCG(seed, uint64(cut*100+outcome)))
				if err := again.crash(); err != nil {
					t.Fatalf("seed %d, cut after %d, outcome %d: %v", seed, cut, outcome, err)
				}
			}
			if cuts++; err == nil {
				break
			}
		}
	}
	t.Logf("%d cuts", cuts)
}
