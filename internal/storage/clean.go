package storage

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/vfs"
)

// How a log is compacted. First the dirty section is read and the newest offset of each key noted (offsetMap), as far as the
// buffer holds; then all segments from the log's first one on are written anew, group by group, without what the map knows a newer
// record of. Groups are neighbours that fit into one segment together. The new segment is written beside the old ones, as
// .cleaned, without a lock; replaceSegments (clean_swap.go) puts it into their place.
//
// What goes:
//
//   - a record that has a newer one of the same key below the map's end; one without a key;
//   - a tombstone whose delete horizon has passed. The first clean that keeps a tombstone sets the horizon of its batch,
//     delete.retention.ms from then, so that a reader who began at the log's start before has that long to come by (KIP-534);
//   - the records of aborted transactions, at once;
//   - a marker that nothing of its transaction is left of, a delete horizon later (clean_txns.go).
//
// What stays, as an empty batch: the last batch of each active producer, for its sequence numbers, and the last batch of the
// cleaned range, so that the log's end isn't forgotten.

// ErrCleaningAborted means that a clean was broken off, since the log was truncated or closed, or Pace said so. Nothing has changed
// but for groups that were done.
var ErrCleaningAborted = errors.New("cleaning was aborted")

// CleanerOptions is what a Cleaner needs.
type CleanerOptions struct {
	DedupeBytes int64   // log.cleaner.dedupe.buffer.size / log.cleaner.threads
	LoadFactor  float64 // log.cleaner.io.buffer.load.factor
	HashKey     [2]uint64
	// Pace is called between pieces of work with the bytes read and written since the last call. It may wait; an error breaks the
	// clean off. nil for neither.
	Pace func(bytes int) error
}

// paceBytes is how much is read and written between two calls of Pace.
const paceBytes = 256 << 10

// Cleaner compacts one log after the other. It is for one goroutine.
type Cleaner struct {
	o      CleanerOptions
	slots  int
	keys   offsetMap
	filter record.Filter
	out    []byte // what isn't written yet
	paced  int

	// Of the clean under way.
	log      *Log
	now      int64
	start    kafka.Offset // of the log
	stats    CleanStats
	legacy   bool // tombstones of magic 0 and 1 in this segment are kept
	tombFrom int64
	keep     func(offset kafka.Offset, key []byte, tombstone bool) bool
	current  record.Batch
}

// CleanStats tells what a clean did.
type CleanStats struct {
	EndOffset    kafka.Offset // the first that is dirty now
	MapRead      int64        // bytes read to fill the map
	Read         int64        // bytes
	Written      int64        // bytes
	RecordsRead  int64
	RecordsKept  int64
	Invalid      int64   // records without a key
	Utilization  float64 // of the buffer, 0 to 1
	SegmentsRead int
	Segments     int // that took their place
}

// NewCleaner makes a Cleaner. It takes memory for the map only while it cleans.
func NewCleaner(o CleanerOptions) (*Cleaner, error) {
	c := &Cleaner{o: o, slots: mapSlots(o.DedupeBytes)}
	c.keys.key = o.HashKey
	if float64(c.slots)*o.LoadFactor <= 1 {
		return nil, errors.New("offset map is too small to fit in even a single message, so log cleaning will never make progress. You can increase log.cleaner.dedupe.buffer.size or decrease log.cleaner.threads")
	}
	c.keep = c.keepRecord
	return c, nil
}

// Release gives the memory back that the last clean used.
func (c *Cleaner) Release() {
	c.keys.slots, c.out = nil, nil
	c.filter.Release()
}

// Clean compacts a log within r, as CleanRange found it just now. On success it moves CleanedTo. A *CorruptError, or one of record's,
// means that the log can't be cleaned until somebody looks at it; ErrFailed that its disk failed; ErrCleaningAborted and
// vfs.ErrNoSpace that it may be tried again later. In all these cases what was there before still is.
func (c *Cleaner) Clean(l *Log, r CleanRange, now time.Time) (CleanStats, error) {
	c.log, c.now, c.stats, c.paced = l, now.UnixMilli(), CleanStats{EndOffset: r.FirstDirty}, 0
	cuts, first := l.cuts.Load(), l.view.Load().segments[0].base
	if l.Moving() {
		return c.stats, ErrCleaningAborted
	}
	end, err := c.clean(r, cuts)
	c.log, c.current = nil, nil
	switch {
	case err == nil:
		c.stats.EndOffset = end
		err = l.setCleaned(end, cuts)
	case errors.Is(err, ErrCleaningAborted), errors.Is(err, ErrFailed), errors.Is(err, vfs.ErrNoSpace):
	case errors.Is(err, vfs.ErrNoDescriptors):
		err = fmt.Errorf("%w: %w", ErrCleaningAborted, err)
	case l.cuts.Load() != cuts, errors.Is(err, ErrClosed), l.isClosed(), isNotExist(err) && l.view.Load().segments[0].base > first:
		// It went wrong since the log changed under us.
		err = fmt.Errorf("%w: %w", ErrCleaningAborted, err)
	}
	return c.stats, err
}

// setCleaned moves the border between clean and dirty up to offset, unless the log was truncated meanwhile.
func (l *Log) setCleaned(offset kafka.Offset, cuts uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil || l.cuts.Load() != cuts {
		return ErrCleaningAborted
	}
	l.cleaned.Store(offset)
	return nil
}

func (l *Log) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed != nil
}

func (c *Cleaner) clean(r CleanRange, cuts uint64) (kafka.Offset, error) {
	l := c.log
	v := l.view.Load()
	c.start = l.start.Load()
	if r.FirstUncleanable > v.active().base {
		return 0, fmt.Errorf("%w: the range to clean reaches into the active segment", ErrCleaningAborted)
	}
	if r.FirstDirty >= r.FirstUncleanable {
		return r.FirstDirty, nil
	}
	if err := c.fillMap(v, r.FirstDirty, r.FirstUncleanable); err != nil {
		return 0, err
	}
	end := c.keys.latest + 1
	if end <= r.FirstDirty {
		return 0, fmt.Errorf("clean %v: the offset map has no room for a single record", l.partition)
	}
	c.stats.Utilization = c.keys.utilization(c.slots)
	tombstonesFrom, err := c.legacyHorizon(v, r.FirstDirty)
	if err != nil {
		return 0, err
	}
	c.tombFrom = tombstonesFrom
	segments := v.between(math.MinInt64, end)
	groups, err := l.groupSegments(segments, r.FirstUncleanable)
	if err != nil {
		return 0, err
	}
	// Whose last batches stay is settled before the sync: what comes meanwhile may be lost again, and then these are the last.
	producers := l.lastOfProducers()
	// What is about to go does so because of what came later: newer records, and markers that decided their transactions, which may
	// lie in the active segment. A power cut must not take that away afterwards. And with the recovery point on the disk above
	// all that is cleaned, recovery reads no segment with gaps, which it could take for a hole.
	if err := l.Flush(l.EndOffset()); err != nil {
		return 0, err
	}
	if err := l.dir.CheckpointRecoveryPoints(); err != nil {
		return 0, err
	}
	// What lies below the log start is cleaned with less care: its keys aren't in the map, its transactions count as committed. So the
	// log must not begin there again after a crash.
	if err := l.dir.CheckpointStartOffsets(); err != nil {
		return 0, err
	}
	aborted, err := l.collectAborted(v, c.start, segments[0].base, v.segments[len(segments)].base)
	if err != nil {
		return 0, err
	}
	txns := newCleanedTxns(aborted)
	for _, g := range groups {
		if err := c.cleanGroup(g, txns, producers, r.FirstUncleanable, cuts, time.UnixMilli(c.now)); err != nil {
			return 0, err
		}
	}
	return end, nil
}

// legacyHorizon is the time before which a segment must have been written for its tombstones of magic 0 and 1 to go: those formats
// have no room for a horizon of their own.
func (c *Cleaner) legacyHorizon(v *view, firstDirty kafka.Offset) (int64, error) {
	clean := v.between(math.MinInt64, firstDirty)
	if len(clean) == 0 {
		return 0, nil
	}
	t, err := c.log.modified(clean[len(clean)-1])
	return t - c.log.config.Load().DeleteRetention.Milliseconds(), err
}

// modified is when a segment's file was changed last, ms.
func (l *Log) modified(s *segment) (int64, error) {
	st, err := l.fs.Stat(s.log.path())
	if err != nil {
		return 0, l.readFailed(err)
	}
	return st.ModTime().UnixMilli(), nil
}

// pace is called for what was read or written.
func (c *Cleaner) pace(bytes int) error {
	if c.paced += bytes; c.paced < paceBytes {
		return nil
	}
	return c.paceNow()
}

func (c *Cleaner) paceNow() error {
	n := c.paced
	c.paced = 0
	if c.o.Pace == nil {
		return nil
	}
	if err := c.o.Pace(n); err != nil {
		return fmt.Errorf("%w: %w", ErrCleaningAborted, err)
	}
	return nil
}

// fillMap notes the newest offset of each key in the dirty section. If there is no room for another key it stops there: the map covers
// what comes before.
func (c *Cleaner) fillMap(v *view, from, to kafka.Offset) error {
	l := c.log
	dirty := v.between(from, to)
	aborted, err := l.collectAborted(v, c.start, from, to)
	if err != nil {
		return err
	}
	records, err := c.countRecords(dirty, from)
	if err != nil {
		return err
	}
	c.keys.reset(records, c.slots, int(float64(c.slots)*c.o.LoadFactor))
	txns := newCleanedTxns(aborted)
	for i, s := range dirty {
		next := to
		if i+1 < len(dirty) {
			next = dirty[i+1].base
		}
		full, err := c.mapSegment(s, from, txns)
		if err != nil {
			return err
		}
		if full {
			return nil
		}
		c.keys.latest = next - 1 // there may be a gap
	}
	return nil
}

// countRecords is how many records there are at most, by what the batches' headers say: so the map takes no more memory than it needs.
func (c *Cleaner) countRecords(dirty []*segment, from kafka.Offset) (int64, error) {
	var n int64
	for _, s := range dirty {
		if n >= int64(c.slots) {
			return n, nil
		}
		pos, err := c.positionOf(s, from)
		if err != nil {
			return 0, err
		}
		f, err := s.log.use()
		if err != nil {
			return 0, c.log.readFailed(err)
		}
		scan := scanHeaders(f, pos, s.size())
		for {
			h, _, size, ok, serr := scan.next()
			if serr != nil || !ok {
				err = serr
				break
			}
			switch {
			case h.Magic() < 2:
				n += int64(size/record.PeekHeader) << 6 // how many there are in a wrapper isn't said; a guess that is too high
			case !h.Control():
				n += int64(max(h.Count(), 0))
			}
		}
		scan.close()
		s.log.release()
		if err != nil {
			return 0, c.log.readFailed(err)
		}
	}
	return n, nil
}

// positionOf is where in a segment a batch begins at or before offset.
func (c *Cleaner) positionOf(s *segment, offset kafka.Offset) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := c.log.openIndexesLocked(s); err != nil {
		return 0, c.log.readFailed(err)
	}
	e, err := s.idx.offsetFloor(s.base, offset)
	return int64(e.position), c.log.readFailed(err)
}

// mapSegment adds the keys of a segment's records from an offset on. It tells whether the map got full.
func (c *Cleaner) mapSegment(s *segment, from kafka.Offset, txns *cleanedTxns) (full bool, err error) {
	pos, err := c.positionOf(s, from)
	if err != nil {
		return false, err
	}
	err = c.eachChecked(s, pos, func(b record.Batch, pos int64) (more bool, err error) {
		c.stats.MapRead += int64(len(b))
		if b.Control() {
			facts, err := factsOf(b, pos)
			if err != nil {
				return false, corrupt(s.log.path(), pos, "control batch at offset %d: %v", b.BaseOffset(), err)
			}
			txns.control(b, &facts)
		} else if !txns.data(b) {
			if full, err = c.mapBatch(s, b, pos, from); full || err != nil {
				return false, err
			}
		}
		if b.LastOffset() >= from {
			c.keys.latest = b.LastOffset()
		}
		return true, nil
	})
	return full, err
}

func (c *Cleaner) mapBatch(s *segment, b record.Batch, pos int64, from kafka.Offset) (full bool, err error) {
	r := record.NewReader(b)
	defer r.Close()
	for r.Next() {
		if rec := r.Record(); rec.Key != nil && rec.Offset >= from && !c.keys.put(rec.Key, rec.Offset) {
			return true, nil
		}
	}
	if err := r.Err(); err != nil {
		return false, corrupt(s.log.path(), pos, "batch at offset %d: %v", b.BaseOffset(), err)
	}
	return false, nil
}

// eachChecked calls f for the whole batches of a segment from pos on until it wants no more. Their checksums are right: a clean
// gives records new checksums, so it must not be what makes bad ones look good.
func (c *Cleaner) eachChecked(s *segment, pos int64, f func(b record.Batch, pos int64) (more bool, err error)) error {
	file, err := s.log.use()
	if err != nil {
		return c.log.readFailed(err)
	}
	defer s.log.release()
	scan := scanBatches(file, pos, s.size())
	defer scan.close()
	for {
		b, at, ok, err := scan.next()
		if err != nil || !ok {
			return c.log.readFailed(err)
		}
		if err := b.Check(); err != nil {
			return corrupt(file.Name(), at, "%v", err)
		}
		if more, err := f(b, at); err != nil || !more {
			return err
		}
		if err := c.pace(len(b)); err != nil {
			return err
		}
	}
}

// groupSegments puts neighbours together that fit into one segment, as Kafka does: so repeated cleans don't leave ever smaller ones.
func (l *Log) groupSegments(segments []*segment, uncleanable kafka.Offset) ([][]*segment, error) {
	type sizes struct{ log, index, times int64 }
	of := func(s *segment) (sizes, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := l.openIndexesLocked(s); err != nil {
			return sizes{}, l.readFailed(err)
		}
		return sizes{s.size(), int64(s.idx.offsets.count) * offsetEntrySize, int64(s.idx.times.count) * timeEntrySize}, nil
	}
	maxBytes, maxIndex := int64(l.config.Load().SegmentBytes), int64(l.config.Load().SegmentIndexBytes)
	var groups [][]*segment
	var sum sizes
	for i, s := range segments {
		n, err := of(s)
		if err != nil {
			return nil, err
		}
		last := uncleanable - 1
		if i+1 < len(segments) {
			last = segments[i+1].base - 1
		}
		if i > 0 && sum.log+n.log <= maxBytes && sum.index+n.index <= maxIndex && sum.times+n.times <= maxIndex {
			// Offsets must fit, too. What has none may always come along: else empty segments would stay behind for ever.
			if g := &groups[len(groups)-1]; n.log == 0 || last-(*g)[0].base <= math.MaxInt32 {
				*g = append(*g, s)
				sum = sizes{sum.log + n.log, sum.index + n.index, sum.times + n.times}
				continue
			}
		}
		groups = append(groups, []*segment{s})
		sum = n
	}
	return groups, nil
}

// keepRecord tells whether a record of the batch c.current stays.
func (c *Cleaner) keepRecord(offset kafka.Offset, key []byte, tombstone bool) bool {
	if offset > c.keys.latest || c.current.Control() {
		return true
	}
	if key == nil {
		c.stats.Invalid++
		return false
	}
	if offset < c.keys.get(key) {
		return false
	}
	if !tombstone {
		return true
	}
	if c.current.Magic() < 2 {
		return c.legacy
	}
	horizon, ok := c.current.DeleteHorizon()
	return !ok || c.now < horizon
}

// lastOfProducer is what is known of an active producer's last entry in the log: a data batch's last offset or, if it is -1, a
// marker of an epoch.
type lastOfProducer struct {
	offset kafka.Offset
	epoch  kafka.ProducerEpoch
}

func (l *Log) lastOfProducers() map[kafka.ProducerID]lastOfProducer {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[kafka.ProducerID]lastOfProducer, len(l.producers.byID))
	for id, p := range l.producers.byID {
		e := lastOfProducer{-1, p.epoch}
		if p.n > 0 {
			e.offset = p.batches[p.n-1].lastOffset
		}
		out[id] = e
	}
	return out
}

// cleanGroup writes a segment that takes the place of a group's, and puts it there.
func (c *Cleaner) cleanGroup(group []*segment, txns *cleanedTxns, producers map[kafka.ProducerID]lastOfProducer, uncleanable kafka.Offset, cuts uint64, now time.Time) error {
	l := c.log
	w, err := l.newCleaned(group[0].base, cuts)
	if err != nil {
		return err
	}
	defer w.close()
	for _, s := range group {
		modified, err := l.modified(s)
		if err != nil {
			return err
		}
		w.modified = modified
		c.legacy = modified > c.tombFrom
		c.stats.SegmentsRead++
		err = c.eachChecked(s, 0, func(b record.Batch, pos int64) (bool, error) {
			return true, c.cleanBatch(w, s, b, pos, txns, producers, uncleanable)
		})
		if err != nil {
			return err
		}
	}
	if err := c.write(w); err != nil {
		return err
	}
	if err := w.finish(); err != nil {
		return err
	}
	if err := c.paceNow(); err != nil {
		return err
	}
	c.stats.Segments++
	return l.replaceSegments(group, w, cuts, now)
}

// cleanBatch writes what is left of a batch.
func (c *Cleaner) cleanBatch(w *cleanedSegment, s *segment, b record.Batch, pos int64, txns *cleanedTxns, producers map[kafka.ProducerID]lastOfProducer, uncleanable kafka.Offset) error {
	o := record.FilterOptions{
		DeleteHorizon:  c.now + c.log.config.Load().DeleteRetention.Milliseconds(),
		MaxRecordBytes: int(c.log.config.Load().MaxDecompressedMessageBytes),
	}
	if b.Control() {
		facts, err := factsOf(b, pos)
		if err != nil {
			return corrupt(s.log.path(), pos, "control batch at offset %d: %v", b.BaseOffset(), err)
		}
		lone, entry, keepEntry := txns.control(b, &facts)
		if keepEntry {
			w.aborted = append(w.aborted, entry)
		}
		horizon, ok := b.DeleteHorizon()
		o.LoneMarker = lone
		o.DropAll = lone && ok && horizon <= c.now
	} else {
		o.DropAll = txns.data(b)
	}
	if last, ok := producers[b.ProducerID()]; ok && b.HasProducerID() {
		if last.offset >= 0 {
			o.KeepEmpty = b.LastOffset() == last.offset
		} else {
			o.KeepEmpty = b.Control() && b.ProducerEpoch() == last.epoch
		}
	}
	o.KeepEmpty = o.KeepEmpty || b.NextOffset() == uncleanable
	c.current = b
	out, r, err := c.filter.AppendTo(c.out, b, &o, c.keep)
	c.out = out
	c.stats.Read += int64(len(b))
	c.stats.RecordsRead += int64(r.Read)
	c.stats.RecordsKept += int64(r.Kept)
	if err != nil {
		return corrupt(s.log.path(), pos, "batch at offset %d: %v", b.BaseOffset(), err)
	}
	if r.Size > 0 {
		if err := w.add(r); err != nil {
			return err
		}
		c.stats.Written += int64(r.Size)
	}
	if len(c.out) >= paceBytes {
		return c.write(w)
	}
	return nil
}

// write gives the new segment what was gathered.
func (c *Cleaner) write(w *cleanedSegment) error {
	n := len(c.out)
	err := w.write(c.out)
	c.out = c.out[:0]
	if err != nil {
		return err
	}
	return c.pace(n)
}
