package storage

import (
	"errors"
	"fmt"
	"io"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/vfs"
)

// How recovery begins in the middle of a segment. What lies below the recovery point is synced: reading it again would make a
// restart after a kill take as long as the segment is large, however little was written since. What is needed from there is
//
//   - the indexes. Those of an active segment aren't synced when its .log is, so a power cut may have taken any of their blocks: a
//     lost one reads as zeros, or the file ends early. The entries up to the first that is out of order are good; the last of
//     them must lead to its batch, and the time index must know of all timestamps up to it. Stale entries can't come back, since
//     whoever shortens an index has it synced before the recovery point moves (segment.indexUnsynced).
//   - the producers' state there: from the newest snapshot, and the headers of the batches after it.
//   - the aborted transactions: the transaction index is synced with the .log (indexes.txnsUnsynced).
//
// If anything of that isn't as it must be, the whole segment is read.

// recoveryStart is where recovery of a segment begins and what is known of what lies before.
type recoveryStart struct {
	idx     *indexes
	pos     int64        // of the first batch to read
	next    kafka.Offset // its base offset, or the segment's
	ps      *producers   // their state at ps.end; batches below that don't change it
	aborted []abortedEntry
}

// startWhole is the beginning of the segment.
func (l *Log) startWhole(before []*segment, s *segment, o openOptions, r *Recovery, below bool) (recoveryStart, error) {
	ps, err := l.producersAtLocked(before, s.base, o.now, false, r)
	if err != nil {
		return recoveryStart{}, err
	}
	ps.end = max(ps.end, s.base)
	idx := l.newIndexes(s)
	idx.offsets.hold, idx.times.hold = below, below
	if !below {
		if err := l.resetIndexFiles(idx); err != nil {
			return recoveryStart{}, fmt.Errorf("recover %s: %w", s.log.path(), err)
		}
	}
	return recoveryStart{idx: idx, next: s.base, ps: ps}, nil
}

// resume looks for the last place below the recovery point that the segment's own files lead to. ok is false if there is none.
func (l *Log) resume(before []*segment, s *segment, o openOptions, r *Recovery) (from recoveryStart, ok bool, err error) {
	s.mu.Lock()
	idx := l.newIndexes(s)
	at, ok, err := l.soundPrefix(s, idx, o.recoveryPoint)
	if err == nil && ok {
		s.idx = idx
	}
	s.mu.Unlock()
	var c *CorruptError
	if err != nil && (errors.As(err, &c) || isNotExist(err)) {
		return from, false, nil // the whole segment tells
	}
	if err != nil || !ok {
		return from, false, err
	}
	// A snapshot within the segment goes when recovery is done. So that the next one comes to the same state, it counts only if there is
	// a good one at the segment's beginning, too, unless that is the beginning of all.
	last, based := at.base, s.base == 0
	for i := len(l.snapshots) - 1; i >= 0 && l.snapshots[i] >= s.base; i-- {
		offset := l.snapshots[i]
		if offset > o.recoveryPoint {
			continue
		}
		_, err := l.readSnapshot(offset, false)
		switch {
		case offset == s.base && err != nil:
			return from, false, nil
		case offset == s.base:
			based = true
		case offset > last && err == nil:
			last = offset
		}
	}
	if !based {
		last = at.base
		if err := l.dropSnapshotsLocked(func(offset kafka.Offset) bool { return offset > s.base }); err != nil {
			return from, false, err
		}
	}
	s.unverified.Store(true) // nobody has looked at what is read now
	ps, err := l.producersAtLocked(append(before[:len(before):len(before)], s), last, o.now, false, r)
	if err != nil && errors.As(err, &c) {
		return from, false, nil
	}
	if err != nil {
		return from, false, err
	}
	from = recoveryStart{idx: idx, pos: at.pos, next: at.base, ps: ps}
	for _, e := range idx.aborted {
		if e.lastOffset <= e.firstOffset { // zeros, where a block was lost
			return from, false, nil
		}
		if e.lastOffset < ps.end {
			from.aborted = append(from.aborted, e)
		}
	}
	return from, true, nil
}

// soundPrefix loads the indexes of a segment as far as they can be believed, below the recovery point, and cuts them off there:
// before the entry of the batch that it returns, which so is the first to be read.
func (l *Log) soundPrefix(s *segment, idx *indexes, recoveryPoint kafka.Offset) (at batchPlace, ok bool, err error) {
	size := s.size()
	var prev offsetEntry
	n, err := idx.offsets.sound(func(b []byte) bool {
		e := decodeOffsetEntry(b)
		good := e.relative > prev.relative && e.position > prev.position && int64(e.position) < size && s.base+int64(e.relative) < recoveryPoint
		prev = e
		return good
	})
	if err != nil {
		return at, false, err
	}
	f, err := s.log.use()
	if err != nil {
		return at, false, err
	}
	defer s.log.release()
	// An entry may be ahead of the .log after a power cut, though not by many that are still below the recovery point.
	for tries := 0; ; tries++ {
		if n == 0 || tries == 16 {
			return at, false, nil
		}
		if at, ok, err = l.batchAt(s, &idx.offsets, n-1, f); err != nil {
			return at, false, err
		}
		if ok {
			break
		}
		n--
	}
	idx.offsets.count, idx.offsets.stored = n, n
	for {
		behind, err := l.soundTimes(s, idx, at, f)
		if err != nil {
			return at, false, err
		}
		if behind < 0 {
			break
		}
		// The time index lacks what came after this entry: begin there.
		if behind == 0 {
			return at, false, nil
		}
		if at, ok, err = l.batchAt(s, &idx.offsets, behind-1, f); err != nil || !ok {
			return at, false, err
		}
		idx.offsets.count, idx.offsets.stored = behind, behind
	}
	// The entry of the batch itself is made again when it is read.
	if err := idx.offsets.shorten(idx.offsets.count - 1); err != nil {
		return at, false, err
	}
	if err := idx.times.shorten(idx.times.count); err != nil {
		return at, false, err
	}
	idx.bytesSinceEntry = int(l.config.Load().IndexIntervalBytes) + 1
	if err := l.firstTimestampLocked(s, idx); err != nil {
		return at, false, err
	}
	return at, true, l.loadTxnIndexLocked(s, idx)
}

// batchAt reads the header that entry i of the offset index leads to. ok is false if it isn't that of the entry's batch.
func (l *Log) batchAt(s *segment, offsets *entryFile, i int, f vfs.File) (at batchPlace, ok bool, err error) {
	count := offsets.count
	offsets.count = i + 1
	buf, err := offsets.at(i)
	offsets.count = count
	if err != nil {
		return at, false, err
	}
	e := decodeOffsetEntry(buf[:])
	scan := scanHeaders(f, int64(e.position), s.size())
	defer scan.close()
	h, pos, size, ok, err := scan.next()
	var c *CorruptError
	if err != nil && !errors.As(err, &c) {
		return at, false, err
	}
	if err != nil || !ok || h.LastOffset() != s.base+int64(e.relative) {
		return at, false, nil
	}
	return batchPlace{pos: pos, size: size, base: h.BaseOffset(), last: h.LastOffset(), epoch: h.PartitionLeaderEpoch()}, true, nil
}

// soundTimes loads the time index up to the batch at, which has the last entry of the offset index, and compares it with the headers
// of the batches since its last entry. behind is -1 if it knows all; else the number of entries of the offset index up to where
// it does.
func (l *Log) soundTimes(s *segment, idx *indexes, at batchPlace, f vfs.File) (behind int, err error) {
	prev := timeEntry{timestamp: record.NoTimestamp}
	last := prev
	n, err := idx.times.sound(func(b []byte) bool {
		e := decodeTimeEntry(b)
		good := e.timestamp > prev.timestamp && e.relative >= prev.relative && s.base+int64(e.relative) <= at.last
		prev = e
		if good {
			last = e
		}
		return good
	})
	if err != nil {
		return 0, err
	}
	idx.times.count, idx.times.stored = n, n
	idx.lastTimeEntry = last
	idx.maxTimestamp, idx.maxTimestampOffset = last.timestamp, s.base
	var pos int64
	if n > 0 {
		idx.maxTimestampOffset = s.base + int64(last.relative)
		floor, err := idx.offsetFloor(s.base, idx.maxTimestampOffset)
		if err != nil {
			return 0, err
		}
		pos = int64(floor.position)
	}
	scan := scanHeaders(f, pos, min(at.pos+int64(at.size), s.size()))
	defer scan.close()
	for {
		h, _, _, ok, err := scan.next()
		if err != nil {
			return 0, err
		}
		if !ok {
			return -1, nil
		}
		if h.MaxTimestamp() <= last.timestamp {
			continue
		}
		_, i, err := idx.offsets.find(func(e []byte) bool { return int64(decodeOffsetEntry(e).position) <= pos })
		return i + 1, err
	}
}

// sound reads an index file from its start while good holds for its entries, and tells how many those are. Nothing of it is
// remembered.
func (e *entryFile) sound(good func(entry []byte) bool) (n int, err error) {
	f, err := e.file.use()
	if err != nil {
		return 0, err
	}
	defer e.file.release()
	pooled := chunks.Get().(*[]byte)
	defer chunks.Put(pooled)
	buf := (*pooled)[:len(*pooled)/e.width*e.width]
	for off := int64(0); ; {
		m, err := f.ReadAt(buf, off)
		if err != nil && err != io.EOF {
			return 0, err
		}
		for b := buf[:m]; len(b) >= e.width; b = b[e.width:] {
			if !good(b[:e.width]) {
				return n, nil
			}
			n++
		}
		if m < len(buf) {
			return n, nil
		}
		off += int64(m)
	}
}

// shorten keeps the first n entries of the file and drops the rest of it, whatever that is.
func (e *entryFile) shorten(n int) error {
	e.count, e.stored, e.tail = n, n, nil
	f, err := e.file.use()
	if err != nil {
		return err
	}
	defer e.file.release()
	return f.Truncate(int64(n) * int64(e.width))
}
