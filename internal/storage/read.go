package storage

import (
	"errors"
	"fmt"
	"io"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/vfs"
)

// Slice is a range of a segment's file. The zero Slice is empty.
type Slice struct {
	// FirstEntryIncomplete means that maxBytes was less than the first batch and minOneBatch not asked for: a fetch of version 3
	// and later answers with nothing instead.
	FirstEntryIncomplete bool

	log    *Log
	view   *view // that seg was found in
	seg    *segment
	f      vfs.File
	pos    int64
	n      int
	offset kafka.Offset // that was asked for
}

// Len is the number of bytes.
func (s *Slice) Len() int { return s.n }

// Fd is the open segment file and the place in it, for sendfile; ok is false where there is no descriptor.
func (s *Slice) Fd() (fd uintptr, pos int64, ok bool) {
	if s.f == nil {
		return 0, 0, false
	}
	fd, ok = s.f.Fd()
	return fd, s.pos, ok
}

// ReadAt reads from the slice as from a file of its own.
func (s *Slice) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= int64(s.n) {
		return 0, io.EOF
	}
	short := int64(len(p)) > int64(s.n)-off
	if short {
		p = p[:int64(s.n)-off]
	}
	n, err := s.f.ReadAt(p, s.pos+off)
	switch {
	case err != nil && err != io.EOF:
		err = s.log.readFailed(err)
	case err == nil && short:
		err = io.EOF
	}
	return n, err
}

// Release gives the file back. It may be called once, also on an empty Slice; then the Slice is empty.
func (s *Slice) Release() {
	if s.f != nil {
		s.seg.log.release()
	}
	*s = Slice{}
}

// Read finds what a fetch at offset gets: whole batches from the one that holds offset on, of at most maxBytes (the last
// one may be cut off, as Kafka does), below end. With minOneBatch the first batch comes whole even if it is larger. An empty
// Slice means that there is nothing below end yet. OFFSET_OUT_OF_RANGE if offset is below StartOffset or above EndOffset; a
// *CorruptError if the batch there failed its check. The Slice must be released.
//
// A read waits for no append. What it finds was complete when it was called: bytes below the high watermark never change.
func (l *Log) Read(offset kafka.Offset, maxBytes int, minOneBatch bool, end kafka.Offset) (Slice, error) {
	for {
		v := l.view.Load()
		s, err := l.read(v, offset, maxBytes, minOneBatch, end)
		if err != nil && isNotExist(err) && l.view.Load() != v {
			continue // retention was faster than we
		}
		if err != nil {
			l.dir.blame(err)
			err = l.readFailed(err)
		}
		return s, err
	}
}

func (l *Log) read(v *view, offset kafka.Offset, maxBytes int, minOneBatch bool, end kafka.Offset) (Slice, error) {
	if start := l.start.Load(); offset < start {
		return Slice{}, kerr.OffsetOutOfRange.With("Received request for offset %d for partition %s, but we only have log segments starting from offset: %d.", offset, l.partition, start)
	}
	if next := v.active().next(); offset > next {
		return Slice{}, kerr.OffsetOutOfRange.With("Received request for offset %d for partition %s, but we only have log segments upto %d.", offset, l.partition, next)
	}
	if offset >= end {
		return Slice{}, nil
	}
	for i := v.floor(offset); i < len(v.segments); i++ {
		seg := v.segments[i]
		next, size := seg.end()
		if i+1 < len(v.segments) {
			next = v.segments[i+1].base
		}
		if seg.base >= end {
			break
		}
		if size == 0 {
			continue
		}
		f, err := seg.log.use()
		if err != nil {
			return Slice{}, fmt.Errorf("read %v: %w", l.partition, err)
		}
		s, ok, err := l.readSegment(v, seg, f, offset, maxBytes, minOneBatch, end, next, size)
		if ok && err == nil {
			return s, nil
		}
		seg.log.release()
		if err != nil {
			return Slice{}, err
		}
		// Compaction may have taken all that was at or after offset out of this segment.
	}
	return Slice{}, nil
}

// readSegment looks for offset in one segment that has size bytes and ends before next. ok is false if it isn't there.
func (l *Log) readSegment(v *view, seg *segment, f vfs.File, offset kafka.Offset, maxBytes int, minOneBatch bool, end, next kafka.Offset, size int64) (Slice, bool, error) {
	first, ok, err := l.locate(seg, f, offset, size)
	if err != nil || !ok {
		return Slice{}, false, err
	}
	limit := size
	if end < next {
		// Only batches that lie wholly below end: a high watermark in the middle of one hides it.
		stop, ok, err := l.locate(seg, f, end, size)
		if err != nil {
			return Slice{}, false, err
		}
		if ok {
			limit = stop.pos
		}
	}
	if first.pos >= limit {
		return Slice{}, false, nil
	}
	if minOneBatch {
		maxBytes = max(maxBytes, first.size)
	}
	s := Slice{log: l, view: v, seg: seg, f: f, pos: first.pos, offset: offset, FirstEntryIncomplete: maxBytes < first.size}
	s.n = int(min(limit-first.pos, int64(max(maxBytes, 0))))
	if seg.unverified.Load() {
		n, err := verify(seg, f, s.pos, s.pos+int64(s.n), size)
		if err != nil {
			return Slice{}, false, err
		}
		s.n = int(n)
	}
	return s, true, nil
}

// verify checks the batches between two positions of a segment that nobody has looked at since an unclean start, and says
// how many bytes from the first one on are good. A bad first batch is an error.
func verify(seg *segment, f vfs.File, from, to, size int64) (int64, error) {
	end := min(to, seg.checkedFrom.Load())
	if from >= end {
		return to - from, nil
	}
	n, err := verifyUpTo(seg, f, from, end, size)
	if err == nil && from+n >= end {
		n = to - from
	}
	return n, err
}

func verifyUpTo(seg *segment, f vfs.File, from, to, size int64) (int64, error) {
	done := seg.verified.Load()
	pos := from
	if from <= done {
		if to <= done {
			return to - from, nil
		}
		pos = done
	}
	scan := scanBatches(f, pos, size)
	defer scan.close()
	good := pos // end of what was found good
	for good < to {
		b, at, ok, err := scan.next()
		if err == nil && !ok {
			break
		}
		if err == nil {
			if cerr := b.Check(); cerr != nil {
				err = corrupt(f.Name(), at, "the batch at offset %d: %v", b.BaseOffset(), cerr)
			}
		}
		if err != nil {
			var c *CorruptError
			if at > from && errors.As(err, &c) {
				to = at // what comes before is good; the next read stumbles
				break
			}
			return 0, err
		}
		good = scan.pos
	}
	// Readers may come at once; the mark only ever covers what was checked without a gap.
	if from <= done {
		for {
			old := seg.verified.Load()
			if good <= old || seg.verified.CompareAndSwap(old, good) {
				break
			}
		}
		if seg.verified.Load() >= min(size, seg.checkedFrom.Load()) {
			seg.unverified.Store(false)
		}
	}
	return to - from, nil
}

// AbortedTxn is a transaction that a read_committed consumer must skip.
type AbortedTxn struct {
	ProducerID  kafka.ProducerID
	FirstOffset kafka.Offset
}

// AbortedTxns lists the aborted transactions that overlap what s holds, appended to dst. It looks at the segments that were there when s
// was read: the index of one that was compacted since knows no more of what s still has.
func (l *Log) AbortedTxns(dst []AbortedTxn, s *Slice) ([]AbortedTxn, error) {
	if s.seg == nil {
		return dst, nil
	}
	out, err := l.abortedTxns(dst, s, s.view)
	if v := l.view.Load(); isNotExist(err) && v != s.view {
		out, err = l.abortedTxns(dst, s, v) // retention took a segment meanwhile
	}
	return out, l.readFailed(err)
}

func (l *Log) abortedTxns(dst []AbortedTxn, s *Slice, v *view) ([]AbortedTxn, error) {
	upper, err := l.upperBound(v, s)
	if err != nil {
		return dst, err
	}
	// The slice's own segment may have left the list meanwhile; what it knows is still there.
	for seg, i := s.seg, v.floor(s.seg.base); ; i++ {
		seg.mu.Lock()
		err := l.openIndexesLocked(seg)
		var aborted []abortedEntry
		if err == nil {
			aborted = seg.idx.aborted // appends make a new array: this one doesn't change
		}
		seg.mu.Unlock()
		if err != nil {
			return dst, err
		}
		for _, e := range aborted {
			if e.lastOffset >= s.offset && e.firstOffset < upper {
				dst = append(dst, AbortedTxn{e.producerID, e.firstOffset})
			}
			if e.lastStableOffset >= upper {
				return dst, nil // everything below upper was decided when this marker came
			}
		}
		if i < len(v.segments) && v.segments[i] == s.seg {
			i++
		}
		if i == len(v.segments) {
			return dst, nil
		}
		seg = v.segments[i]
	}
}

// upperBound is an offset that all of s lies below; not the least, since that would mean to read the batches.
func (l *Log) upperBound(v *view, s *Slice) (kafka.Offset, error) {
	bound := v.active().next()
	for i := v.floor(s.seg.base); i < len(v.segments); i++ {
		if v.segments[i].base > s.seg.base {
			bound = v.segments[i].base
			break
		}
	}
	s.seg.mu.Lock()
	defer s.seg.mu.Unlock()
	if err := l.openIndexesLocked(s.seg); err != nil {
		return 0, err
	}
	x := &s.seg.idx.offsets
	_, n, err := x.find(func(e []byte) bool { return int64(decodeOffsetEntry(e).position) < s.pos+int64(s.n) })
	var buf entry
	if err == nil && n+1 < x.count {
		buf, err = x.at(n + 1)
	}
	switch {
	case err == nil && n+1 < x.count:
		return s.seg.base + int64(decodeOffsetEntry(buf[:]).relative), nil
	case s.seg.gone:
		return bound, nil // the index was removed under us
	}
	return bound, err
}

// Timestamped is an answer about a time: a record's offset, its timestamp in ms, and its leader's epoch.
type Timestamped struct {
	Offset    kafka.Offset
	Timestamp int64             // -1 if the answer has none
	Epoch     kafka.LeaderEpoch // -1 if not known
}

// Earliest is the answer to ListOffsets' -2.
func (l *Log) Earliest() Timestamped {
	start := l.start.Load()
	epoch, _ := l.epochs.at(start)
	return Timestamped{start, record.NoTimestamp, epoch}
}

// Latest is the answer to ListOffsets' -1 for a reader that sees up to end (a high watermark, a last stable offset or
// EndOffset): it has the newest epoch.
func (l *Log) Latest(end kafka.Offset) Timestamped {
	e, _ := l.epochs.latest()
	return Timestamped{end, record.NoTimestamp, e.Epoch}
}

// OffsetForTimestamp is the first record at or after timestamp (ms), below end. ok is false if there is none. It reads
// records, so it is for goroutines that may wait for the disk.
func (l *Log) OffsetForTimestamp(timestamp int64, end kafka.Offset) (t Timestamped, ok bool, err error) {
	for {
		v := l.view.Load()
		t, ok, err = l.offsetForTimestamp(v, timestamp, end)
		if !isNotExist(err) || l.view.Load() == v {
			return t, ok, l.readFailed(err)
		}
	}
}

func (l *Log) offsetForTimestamp(v *view, timestamp int64, end kafka.Offset) (t Timestamped, ok bool, err error) {
	start := l.start.Load()
	for i, s := range v.segments {
		if s.base >= end {
			break
		}
		if s.size() == 0 || i+1 < len(v.segments) && v.segments[i+1].base <= start {
			continue
		}
		largest, err := l.largestTimestamp(s)
		if err != nil {
			return Timestamped{}, false, err
		}
		if largest < timestamp {
			continue
		}
		if t, ok, err = l.timestampInSegment(s, timestamp, start); ok || err != nil {
			return t, ok && t.Offset < end, err
		}
	}
	return Timestamped{}, false, nil
}

func (l *Log) timestampInSegment(s *segment, timestamp int64, start kafka.Offset) (Timestamped, bool, error) {
	s.mu.Lock()
	err := l.openIndexesLocked(s)
	var pos int64
	if err == nil {
		var e timeEntry
		var found bool
		// All before the last entry below the timestamp is older than it. An entry of just this timestamp could have equals before it.
		e, found, err = s.idx.timeFloor(timestamp - 1)
		from := start
		if found {
			from = max(from, s.base+int64(e.relative))
		}
		var floor offsetEntry
		if err == nil {
			floor, err = s.idx.offsetFloor(s.base, from)
			pos = int64(floor.position)
		}
	}
	s.mu.Unlock()
	if err != nil {
		return Timestamped{}, false, err
	}
	var out Timestamped
	found := false
	err = l.eachBatch(s, pos, func(b record.Batch) (more bool, err error) {
		if b.MaxTimestamp() < timestamp || b.LastOffset() < start {
			return true, nil
		}
		out, found, err = findRecord(b, func(r *record.Record) bool { return r.Timestamp >= timestamp && r.Offset >= start })
		return !found, err
	})
	return out, found, err
}

// OffsetOfMaxTimestamp is the first record with the largest timestamp. ok is false if there is none.
func (l *Log) OffsetOfMaxTimestamp() (t Timestamped, ok bool, err error) {
	for {
		v := l.view.Load()
		t, ok, err = l.offsetOfMaxTimestamp(v)
		if !isNotExist(err) || l.view.Load() == v {
			return t, ok, l.readFailed(err)
		}
	}
}

func (l *Log) offsetOfMaxTimestamp(v *view) (t Timestamped, ok bool, err error) {
	var best *segment
	largest, at := record.NoTimestamp, kafka.Offset(0)
	for _, s := range v.segments {
		if s.size() == 0 {
			continue
		}
		if _, err := l.largestTimestamp(s); err != nil {
			return Timestamped{}, false, err
		}
		s.mu.Lock()
		if s.idx.maxTimestamp > largest {
			best, largest, at = s, s.idx.maxTimestamp, s.idx.maxTimestampOffset
		}
		s.mu.Unlock()
	}
	if best == nil {
		return Timestamped{}, false, nil
	}
	best.mu.Lock()
	floor, err := best.idx.offsetFloor(best.base, at)
	best.mu.Unlock()
	if err != nil {
		return Timestamped{}, false, err
	}
	err = l.eachBatch(best, int64(floor.position), func(b record.Batch) (more bool, err error) {
		if b.MaxTimestamp() != largest {
			return true, nil
		}
		t, ok, err = findRecord(b, func(r *record.Record) bool { return r.Timestamp == largest })
		return !ok, err
	})
	return t, ok, err
}

// eachBatch calls f for the whole batches of a segment from pos on until it wants no more.
func (l *Log) eachBatch(s *segment, pos int64, f func(b record.Batch) (more bool, err error)) error {
	file, err := s.log.use()
	if err != nil {
		return err
	}
	defer s.log.release()
	scan := scanBatches(file, pos, s.size())
	defer scan.close()
	for {
		b, at, ok, err := scan.next()
		if err != nil || !ok {
			return err
		}
		if s.unverified.Load() {
			if err := b.Check(); err != nil {
				err = corrupt(file.Name(), at, "the batch at offset %d: %v", b.BaseOffset(), err)
				l.dir.blame(err)
				return err
			}
		}
		if more, err := f(b); err != nil || !more {
			return err
		}
	}
}

// findRecord gives the first record of a batch that is wanted.
func findRecord(b record.Batch, want func(r *record.Record) bool) (Timestamped, bool, error) {
	r := record.NewReader(b)
	defer r.Close()
	for r.Next() {
		if rec := r.Record(); want(rec) {
			return Timestamped{rec.Offset, rec.Timestamp, b.PartitionLeaderEpoch()}, true, nil
		}
	}
	return Timestamped{}, false, r.Err()
}
