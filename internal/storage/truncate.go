package storage

import (
	"fmt"
	"math"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/record"
)

// TruncateTo removes everything from offset on; nothing but too new epochs is removed if the log ends there or before. The
// high watermark doesn't move: the caller sets it. A batch that holds offset goes as a whole.
//
// The recovery point that is on the disk must not stay above the new end: what is appended there later would be trusted
// after a crash though nobody synced it. So the checkpoint is written before TruncateTo returns.
func (l *Log) TruncateTo(offset kafka.Offset, now time.Time) error {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	l.mu.Lock()
	lowered, err := l.truncateLocked(offset, now)
	if err != nil {
		err = l.fail(fmt.Errorf("truncate %v to %d: %w", l.partition, offset, err))
	}
	l.mu.Unlock()
	return l.checkpointTruncated(offset, lowered, err)
}

// checkpointTruncated writes the checkpoints that must not stay above a new end; err is what the truncation came to.
func (l *Log) checkpointTruncated(offset kafka.Offset, lowered bool, err error) error {
	if lowered && err == nil {
		err = l.dir.CheckpointRecoveryPoints()
	}
	if l.lowerCleaned(offset) && err == nil {
		err = l.dir.CheckpointCleanedOffsets()
	}
	return err
}

func (l *Log) truncateLocked(offset kafka.Offset, now time.Time) (lowered bool, err error) {
	if err := l.writableLocked(); err != nil {
		return false, err
	}
	v := l.view.Load()
	if offset >= v.active().next() {
		l.epochs.truncateEnd(offset) // an epoch that began at the leader beyond what we have
		return false, l.writeEpochs(l.path, offset)
	}
	if offset < v.segments[0].base {
		return l.restartLocked(offset, min(offset, l.start.Load()), now)
	}
	l.cuts.Add(1)
	lowered = l.lowerRecoveryLocked(offset)
	keep := v.floor(offset)
	gone := v.segments[keep+1:]
	s := v.segments[keep]
	// New readers see the shorter log before the files change.
	l.view.Store(&view{v.segments[: keep+1 : keep+1]})
	if err := l.truncateSegmentsLocked(gone, now); err != nil {
		return lowered, err
	}
	s.checked.Store(true) // its end isn't where the next one began if that was compacted; the cut finds out
	if err := l.cutSegmentLocked(s, offset); err != nil {
		return lowered, err
	}
	if len(gone) > 0 || s.size() == 0 {
		l.created, l.jitter = now, l.dir.randomJitter(l.config.Load().SegmentJitter)
	}
	end := s.next()
	l.epochs.truncateEnd(end)
	if err := l.writeEpochs(l.path, end); err != nil {
		return lowered, err
	}
	l.start.Store(min(l.start.Load(), end))
	if err := l.loadProducersLocked(end, now, false, nil); err != nil {
		return lowered, err
	}
	return lowered, l.fs.SyncDir(l.path)
}

// truncateSegmentsLocked removes segments at once, without file.delete.delay.ms: .deleted files beside a segment tell recovery that a
// cleaner may have replaced it.
func (l *Log) truncateSegmentsLocked(segments []*segment, now time.Time) error {
	if err := l.removeSegmentsLocked(segments, now); err != nil {
		return err
	}
	return l.removeNowLocked(segments)
}

// lowerRecoveryLocked moves the recovery point back. No Flush is under way: the caller holds flushing.
func (l *Log) lowerRecoveryLocked(offset kafka.Offset) bool {
	if offset >= l.recovery.Load() {
		return false
	}
	l.recovery.Store(offset)
	return true
}

// cutSegmentLocked cuts a segment off before the batch that holds offset.
func (l *Log) cutSegmentLocked(s *segment, offset kafka.Offset) error {
	f, err := s.log.use()
	if err != nil {
		return err
	}
	defer s.log.release()
	_, size := s.end()
	next, pos := offset, size
	place, ok, err := l.locate(s, f, offset, size)
	if err != nil {
		return err
	}
	if ok {
		pos, next = place.pos, min(offset, place.base)
		if place.base > offset { // offset lies in a gap
			next = offset
		}
	}
	s.setEnd(next, pos)
	if pos < size {
		s.preallocated = false
		if err := f.Truncate(pos); err != nil {
			return err
		}
		// Without this a power cut could bring the old batches back behind new ones.
		if err := f.Sync(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.idx
	if err := x.cut(s.base, next, pos); err != nil {
		return err
	}
	if x.txns != nil {
		n := len(x.aborted)
		for n > 0 && x.aborted[n-1].lastOffset >= next {
			n--
		}
		if n < len(x.aborted) {
			t, err := x.txns.use()
			if err != nil {
				return err
			}
			err = t.Truncate(int64(n) * abortedEntrySize)
			x.txns.release()
			if err != nil {
				return err
			}
			x.aborted = x.aborted[:n:n]
		}
	}
	if pos == 0 {
		x.hasFirst, x.firstTimestamp = false, record.NoTimestamp
	}
	x.maxTimestamp, x.maxTimestampOffset = x.lastTimeEntry.timestamp, s.base+int64(x.lastTimeEntry.relative)
	s.checked.Store(true)
	s.indexUnsynced.Store(true)  // or a power cut after the next Flush could bring the old entries back
	_, err = l.endLocked(s, pos) // finds timestamps that came after the last entry
	return err
}

// cut drops index entries at or beyond the offset next or the position pos.
func (x *indexes) cut(base, next kafka.Offset, pos int64) error {
	buf, n, err := x.offsets.find(func(b []byte) bool {
		e := decodeOffsetEntry(b)
		return base+int64(e.relative) < next && int64(e.position) < pos
	})
	if err != nil {
		return err
	}
	x.lastOffsetEntry = offsetEntry{}
	if n >= 0 {
		x.lastOffsetEntry = decodeOffsetEntry(buf[:])
	}
	if err := x.offsets.truncate(n + 1); err != nil {
		return err
	}
	buf, n, err = x.times.find(func(b []byte) bool { return base+int64(decodeTimeEntry(b).relative) < next })
	if err != nil {
		return err
	}
	x.lastTimeEntry = timeEntry{timestamp: record.NoTimestamp}
	if n >= 0 {
		x.lastTimeEntry = decodeTimeEntry(buf[:])
	}
	x.bytesSinceEntry = 0
	return x.times.truncate(n + 1)
}

// TruncateFullyAndStartAt empties the log; its next offset is offset, its start offset logStart or, if that is negative,
// offset too.
func (l *Log) TruncateFullyAndStartAt(offset, logStart kafka.Offset, now time.Time) error {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	l.mu.Lock()
	if logStart < 0 {
		logStart = offset
	}
	lowered, err := false, l.writableLocked()
	if err == nil {
		if lowered, err = l.restartLocked(offset, logStart, now); err != nil {
			err = l.fail(fmt.Errorf("truncate %v fully: %w", l.partition, err))
		}
	}
	l.mu.Unlock()
	return l.checkpointTruncated(offset, lowered, err)
}

// restartLocked replaces all segments by an empty one at offset.
func (l *Log) restartLocked(offset, logStart kafka.Offset, now time.Time) (lowered bool, err error) {
	v := l.view.Load()
	l.cuts.Add(1)
	lowered = l.lowerRecoveryLocked(offset)
	if !lowered && offset > l.recovery.Load() {
		l.recovery.Store(offset) // there is nothing below that could be lost
	}
	// The old files go first: a new segment may have the name of an old one.
	if err := l.truncateSegmentsLocked(v.segments, now); err != nil {
		return lowered, err
	}
	s, err := l.newSegmentLocked(offset, now)
	if err != nil {
		return lowered, err
	}
	l.view.Store(&view{[]*segment{s}})
	l.start.Store(logStart)
	l.epochs.clear()
	if err := l.writeEpochs(l.path, math.MaxInt64); err != nil {
		return lowered, err
	}
	if err := l.dropSnapshotsLocked(func(kafka.Offset) bool { return true }); err != nil {
		return lowered, err
	}
	l.producers = newProducers(offset)
	l.publishUnstableLocked()
	return lowered, l.fs.SyncDir(l.path)
}

// AdvanceStartOffset moves the log start up, as DeleteRecords and a follower's fetch do; an offset at or below it does
// nothing, one above the high watermark is OFFSET_OUT_OF_RANGE. Segments below it go with the next DeleteOldSegments.
func (l *Log) AdvanceStartOffset(offset kafka.Offset) (moved bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(); err != nil {
		return false, err
	}
	if hw := l.hw.Load(); offset > hw {
		return false, kerr.OffsetOutOfRange.With("Cannot increment the log start offset to %d of partition %s since it is larger than the high watermark %d", offset, l.partition, hw)
	}
	return l.advanceStartLocked(offset), nil
}

func (l *Log) advanceStartLocked(offset kafka.Offset) bool {
	if offset <= l.start.Load() {
		return false
	}
	l.start.Store(offset)
	l.epochs.truncateStart(offset)
	l.producers.startMoved(offset)
	l.publishUnstableLocked()
	return true
}
