package storage

import (
	"errors"
	"fmt"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
)

// LeaderAppend goes with an append by the leader.
type LeaderAppend struct {
	Now                time.Time
	LeaderEpoch        kafka.LeaderEpoch
	Origin             record.Origin // as given to record.Validate
	TransactionVersion int16         // transaction.version of the coordinator that wrote a marker; 2 makes its epoch check strict
}

// Appended is the result of an append. Duplicate means that the producer's batch was in the log already, and nothing was
// appended: the offsets are those of the first time.
type Appended struct {
	FirstOffset    kafka.Offset // -1 if there was no batch
	LastOffset     kafka.Offset
	MaxTimestamp   int64
	LogAppendTime  int64 // -1 with CreateTime; of a duplicate its first timestamp, as in Kafka
	LogStartOffset kafka.Offset
	Duplicate      bool
	Rolled         bool // a new segment began: the one before wants a Flush in the background
	// MustFlush means that flush.messages is reached: Flush(LastOffset+1) must have returned before the append is acknowledged
	// or counted by a replica. It may be called without the replica's lock; concurrent calls share one sync.
	MustFlush bool
}

// UnexpectedOffsetError refuses a follower's append that doesn't continue the log.
type UnexpectedOffsetError struct {
	Partition   kafka.TopicPartition
	FirstOffset kafka.Offset // of what was to be appended
	EndOffset   kafka.Offset // of the log, or of the batch before
}

func (e *UnexpectedOffsetError) Error() string {
	return fmt.Sprintf("unexpected offset in append to %v: first offset %d is less than the next offset %d", e.Partition, e.FirstOffset, e.EndOffset)
}

// AppendAsLeader is the second half of an append whose first half was record.Validate: it checks the producers' states,
// assigns offsets, leader epoch and time, writes and indexes. An error leaves the log as it was; it is a *kerr.Error with
// Kafka's code and text, or wraps ErrFailed or ErrClosed. With origin RaftLeader offsets and epochs are in the batches.
func (l *Log) AppendAsLeader(v *record.Validated, a LeaderAppend) (Appended, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(v.Batches) == 0 {
		return l.nothingAppended(), l.writableLocked()
	}
	if a.Origin == record.RaftLeader {
		return l.appendLocked(v, a)
	}
	if err := l.writableLocked(); err != nil {
		return Appended{}, err
	}
	v.Assign(l.view.Load().active().next(), a.LeaderEpoch, a.Now.UnixMilli())
	return l.appendLocked(v, a)
}

// AppendAsFollower appends batches as they were fetched (record.Validate with origin record.Replica): offsets and epochs
// are the leader's. Offsets below EndOffset are refused with *UnexpectedOffsetError; gaps are taken as they are.
func (l *Log) AppendAsFollower(v *record.Validated, now time.Time) (Appended, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(v.Batches) == 0 {
		return l.nothingAppended(), l.writableLocked()
	}
	return l.appendLocked(v, LeaderAppend{Now: now, Origin: record.Replica})
}

func (l *Log) nothingAppended() Appended {
	return Appended{FirstOffset: -1, LastOffset: -1, MaxTimestamp: record.NoTimestamp, LogAppendTime: record.NoTimestamp, LogStartOffset: l.start.Load()}
}

// appendLocked appends batches whose offsets are assigned. Nothing is changed before the write but for a roll.
func (l *Log) appendLocked(v *record.Validated, a LeaderAppend) (Appended, error) {
	if err := l.writableLocked(); err != nil {
		return Appended{}, err
	}
	if err := l.activateLocked(); err != nil {
		return Appended{}, err
	}
	next := l.view.Load().active().next()
	first := v.FirstOffset
	if v.Batch(0).Magic() < 2 {
		first = next // a wrapper names its last message's offset; those before it must lie in the new segment, too
	}
	for i := range v.Batches {
		b := &v.Batches[i]
		if b.FirstOffset < next || b.LastOffset < b.FirstOffset {
			return Appended{}, &UnexpectedOffsetError{l.partition, b.FirstOffset, next}
		}
		next = b.LastOffset + 1
		if b.ProducerID <= kafka.NoProducerID {
			continue
		}
		if a.Origin == record.Client {
			if m := l.producers.duplicate(b); m != nil {
				return Appended{
					FirstOffset: m.firstOffset(), LastOffset: m.lastOffset, MaxTimestamp: m.timestamp, LogAppendTime: m.timestamp,
					LogStartOffset: l.start.Load(), Duplicate: true,
					// The first time may have failed in its Flush: what is acknowledged now must be as durable as then.
					MustFlush: m.lastOffset >= l.recovery.Load() && l.config.Load().FlushMessages == 1,
				}, nil
			}
		}
		if err := l.producers.check(b, a.Origin, a.TransactionVersion, l.partition); err != nil {
			return Appended{}, err
		}
	}
	rolled, err := l.maybeRollLocked(len(v.Bytes), first, v.LastOffset, v.MaxTimestamp, a.Now)
	if err != nil {
		return Appended{}, err
	}
	if err := l.writeLocked(v); err != nil {
		return Appended{}, err
	}
	c := l.config.Load()
	return Appended{
		FirstOffset: v.FirstOffset, LastOffset: v.LastOffset, MaxTimestamp: v.MaxTimestamp, LogAppendTime: v.LogAppendTime,
		LogStartOffset: l.start.Load(), Rolled: rolled, MustFlush: v.LastOffset+1-l.recovery.Load() >= c.FlushMessages,
	}, nil
}

// writeLocked writes to the active segment and takes note in indexes, epochs and producers. The bytes are visible to readers
// once all of that is done.
func (l *Log) writeLocked(v *record.Validated) error {
	s := l.view.Load().active()
	_, size := s.end()
	f, err := s.log.use()
	if err != nil {
		return l.fail(fmt.Errorf("open segment %s: %w", s.log.path(), err))
	}
	defer s.log.release()
	if n, err := f.WriteAt(v.Bytes, size); err != nil {
		// A part may be there. It lies beyond the size that readers see, and the next start's recovery would cut it off; but
		// there may be room again before that.
		if n > 0 {
			_ = f.Truncate(size) // the log has failed already; this is only tidiness
		}
		return l.fail(fmt.Errorf("append to %s: %w", f.Name(), err))
	}
	interval := int(l.config.Load().IndexIntervalBytes)
	s.mu.Lock()
	pos := size
	for i := range v.Batches {
		b := &v.Batches[i]
		if err := s.idx.add(s.base, pos, b.Size, b.LastOffset, b.MaxTimestamp, interval); err != nil {
			s.mu.Unlock()
			return l.fail(fmt.Errorf("append to the index of %s: %w", f.Name(), err))
		}
		pos += int64(b.Size)
	}
	s.mu.Unlock()
	transactions := false
	for i := range v.Batches {
		b := &v.Batches[i]
		l.epochs.assign(b.LeaderEpoch, b.FirstOffset)
		transactions = transactions || b.Transactional
		if ended, ok := l.producers.apply(b); ok {
			if err := l.endTxnLocked(s, ended); err != nil {
				return err
			}
		}
	}
	if transactions {
		l.producers.replicated(l.hw.Load())
		l.publishUnstableLocked()
	}
	s.setEnd(v.LastOffset+1, size+int64(len(v.Bytes)))
	return nil
}

// endTxnLocked notes that a transaction has ended with a marker in segment s: an aborted one goes into the transaction index.
func (l *Log) endTxnLocked(s *segment, t txn) error {
	lso := l.producers.lastStableAt(t)
	l.producers.complete(t)
	if !t.aborted {
		return nil
	}
	if err := l.addAborted(s, abortedEntry{t.producerID, t.firstOffset, t.lastOffset, lso}); err != nil {
		return l.fail(fmt.Errorf("append to the transaction index of %s: %w", s.log.path(), err))
	}
	return nil
}

func (l *Log) addAborted(s *segment, e abortedEntry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.addAbortedLocked(s, e)
}

func (l *Log) addAbortedLocked(s *segment, e abortedEntry) error {
	x := s.idx
	var buf [abortedEntrySize]byte
	if x.txns == nil {
		txns, _, err := l.files.create(s.path(txnIndexSuffix))
		if err != nil {
			return err
		}
		txns.release()
		x.txns, s.hasTxnIndex = txns, true
		l.namesDirty.Store(true)
	}
	f, err := x.txns.use()
	if err != nil {
		return err
	}
	defer x.txns.release()
	if _, err := f.WriteAt(e.append(buf[:0]), int64(len(x.aborted))*abortedEntrySize); err != nil {
		return err
	}
	x.aborted = append(x.aborted[:len(x.aborted):len(x.aborted)], e)
	x.txnsUnsynced = true
	return nil
}

// activateLocked makes the active segment ready for appends: it loads its indexes and checks that the file ends with the
// batch that the log believes to be its last. That is read once after a start, not for partitions that nobody writes to.
func (l *Log) activateLocked() error {
	s := l.view.Load().active()
	if err := l.checkEnd(s); err != nil {
		return l.fail(fmt.Errorf("open segment %s: %w", s.log.path(), err))
	}
	return nil
}

// checkEnd loads the indexes of s, follows the batches from the last entry on, and compares where they end with what is
// believed. So timestamps that came after the last entry of the time index are known, too.
func (l *Log) checkEnd(s *segment) error {
	if s.checked.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.checked.Load() {
		return nil
	}
	if err := l.openIndexesLocked(s); err != nil {
		return err
	}
	next, size := s.end()
	end, err := l.endLocked(s, size)
	var c *CorruptError
	if errors.As(err, &c) || err == nil && end != next {
		// Perhaps only the index leads astray.
		idx := l.newIndexes(s)
		if err := l.rebuildIndexesLocked(s, idx); err != nil {
			return err
		}
		s.idx = idx
		end, err = l.endLocked(s, size)
	}
	if err != nil {
		return err
	}
	if end != next {
		return corrupt(s.log.path(), size, "the last batch ends at offset %d, not at %d as when the log was closed: a later segment may be missing", end, next)
	}
	s.checked.Store(true)
	return nil
}

// endLocked is the next offset after the batches in the first size bytes of s, whose indexes are loaded.
func (l *Log) endLocked(s *segment, size int64) (kafka.Offset, error) {
	f, err := s.log.use()
	if err != nil {
		return 0, err
	}
	defer s.log.release()
	end := s.base
	scan := scanHeaders(f, int64(s.idx.lastOffsetEntry.position), size)
	defer scan.close()
	for {
		h, pos, _, ok, err := scan.next()
		if err != nil || !ok {
			return end, err
		}
		if h.LastOffset() < end || !s.fits(h.LastOffset()) {
			return 0, corrupt(s.log.path(), pos, "offset %d after %d in a segment that begins at %d", h.LastOffset(), end-1, s.base)
		}
		if t := h.MaxTimestamp(); t > s.idx.maxTimestamp {
			s.idx.maxTimestamp, s.idx.maxTimestampOffset = t, h.LastOffset()
		}
		end = h.NextOffset()
	}
}

// maybeRollLocked begins a new segment if what is to be appended doesn't fit into the active one, or that is old enough.
func (l *Log) maybeRollLocked(bytes int, first, last kafka.Offset, maxTimestamp int64, now time.Time) (bool, error) {
	s := l.view.Load().active()
	c := l.config.Load()
	size := s.size()
	s.mu.Lock()
	roll := size > int64(c.SegmentBytes)-int64(bytes) ||
		size > 0 && s.idx.age(now, maxTimestamp, l.created) > c.segmentAge()-l.jitter ||
		s.idx.full(c.SegmentIndexBytes)
	s.mu.Unlock()
	if !roll && s.fits(last) {
		return false, nil
	}
	return l.rollLocked(first, now)
}

// rollLocked makes a new active segment that begins at base or, if that is larger, at the end offset. It does nothing if the
// active one is empty and begins there.
func (l *Log) rollLocked(base kafka.Offset, now time.Time) (bool, error) {
	v := l.view.Load()
	s := v.active()
	next, size := s.end()
	base = max(base, next)
	if size == 0 && base == s.base {
		return false, nil
	}
	if err := l.syncNamesLocked(); err != nil {
		return false, l.fail(err)
	}
	// What is still in memory of the old segment's indexes goes into the files now, in case that the process is killed before
	// the Flush that a roll asks for.
	if err := s.trim(); err != nil {
		return false, l.fail(err)
	}
	s.mu.Lock()
	err := s.idx.endTimes(s.base)
	if err == nil {
		err = s.idx.offsets.write()
	}
	if err == nil {
		err = s.idx.times.write()
	}
	s.idx.offsets.cool()
	s.idx.times.cool()
	s.mu.Unlock()
	if err != nil {
		return false, l.fail(fmt.Errorf("close the indexes of %s: %w", s.log.path(), err))
	}
	s.indexUnsynced.Store(true)
	l.producers.end = max(l.producers.end, base)
	if err := l.takeSnapshotLocked(); err != nil {
		return false, l.fail(err)
	}
	n, err := l.newSegmentLocked(base, now)
	if err != nil {
		return false, l.fail(err)
	}
	l.view.Store(&view{append(v.segments[:len(v.segments):len(v.segments)], n)})
	return true, nil
}

// syncNamesLocked makes the name of the segment that a roll completes durable, unless the Flush after the roll before has done it
// already, as it mostly has. Else a power cut could lose that segment as a whole and keep the next: a log that begins too
// late looks like one whose beginning was deleted.
func (l *Log) syncNamesLocked() error {
	if !l.namesDirty.Load() {
		return nil
	}
	if l.newDir.Load() {
		if err := l.dir.syncNames(); err != nil {
			return fmt.Errorf("sync directory %s: %w", l.dir.path, err)
		}
	}
	l.namesDirty.Store(false)
	if err := l.fs.SyncDir(l.path); err != nil {
		l.namesDirty.Store(true)
		return fmt.Errorf("sync directory %s: %w", l.path, err)
	}
	return nil
}

// newSegmentLocked makes the files of an empty segment.
func (l *Log) newSegmentLocked(base kafka.Offset, now time.Time) (*segment, error) {
	name := l.path + "/" + segmentName(base, logSuffix)
	x, f, err := l.files.create(name)
	if err != nil {
		return nil, fmt.Errorf("create segment: %w", err)
	}
	s := &segment{base: base, log: x}
	s.setEnd(base, 0)
	if c := l.config.Load(); c.Preallocate {
		err = s.preallocate(f, c.SegmentBytes)
	}
	x.release()
	if err != nil {
		return nil, fmt.Errorf("preallocate segment %s: %w", name, err)
	}
	idx := l.newIndexes(s)
	if err := l.resetIndexFiles(idx); err != nil {
		return nil, fmt.Errorf("create indexes of segment %s: %w", name, err)
	}
	s.idx = idx
	l.namesDirty.Store(true)
	s.checked.Store(true)
	l.created, l.jitter = now, l.dir.randomJitter(l.config.Load().SegmentJitter)
	return s, nil
}
