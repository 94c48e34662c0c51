package storage

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
)

// factsOf is what an append of the batch b at pos would have said of it. Of a control batch the marker is read.
func factsOf(b record.Batch, pos int64) (record.Facts, error) {
	f := record.Facts{
		Pos: int(pos), Size: len(b), FirstOffset: b.BaseOffset(), LastOffset: b.LastOffset(), LeaderEpoch: b.PartitionLeaderEpoch(),
		Count: b.Count(), MaxTimestamp: b.MaxTimestamp(), ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(),
		BaseSequence: b.BaseSequence(), LastSequence: b.LastSequence(), Transactional: b.Transactional(), Control: b.Control(),
		Marker: record.UnknownControl,
	}
	if !f.Control || !b.HasProducerID() {
		return f, nil
	}
	r := record.NewReader(b)
	defer r.Close()
	if !r.Next() {
		return f, r.Err() // an empty one, left by the cleaner
	}
	rec := r.Record()
	t, err := record.ParseControlKey(rec.Key)
	if err != nil || t != record.Abort && t != record.Commit {
		return f, err
	}
	m, err := record.ParseMarker(rec.Key, rec.Value)
	if err != nil {
		return f, err
	}
	f.Marker, f.MarkerEpoch, f.MarkerTime = m.Type, m.CoordinatorEpoch, rec.Timestamp
	return f, nil
}

// loadProducersLocked makes the producers' state at offset last out of the newest good snapshot and the batches after it, and
// writes a snapshot there. A log that was closed cleanly and has no snapshot at all is from before there were any: it has
// no producers.
func (l *Log) loadProducersLocked(last kafka.Offset, now time.Time, clean bool, r *Recovery) error {
	if err := l.dropSnapshotsLocked(func(o kafka.Offset) bool { return o > last }); err != nil {
		return err
	}
	ps, err := l.producersAtLocked(l.view.Load().segments, last, now, clean, r)
	if err != nil {
		return err
	}
	l.producers = ps
	ps.replicated(l.hw.Load())
	l.publishUnstableLocked()
	return l.takeSnapshotLocked()
}

// producersAtLocked is the producers' state at offset last, from snapshots up to there and segments.
func (l *Log) producersAtLocked(segments []*segment, last kafka.Offset, now time.Time, clean bool, r *Recovery) (*producers, error) {
	// Kafka drops what is not above the log start. Here all that can be known counts, from the first record that is still there,
	// so that each recovery knows the same. A snapshot from before that record lacks those in between.
	low := last
	if len(segments) > 0 {
		low = segments[0].base
	}
	if err := l.dropSnapshotsLocked(func(o kafka.Offset) bool { return o < low }); err != nil {
		return nil, err
	}
	ps := newProducers(low)
	ps.snapshot = max(low, min(l.start.Load(), last))
	if clean && len(l.snapshots) == 0 {
		ps.end = max(last, low)
		return ps, nil
	}
	for {
		n, found := slices.BinarySearch(l.snapshots, last)
		if found {
			n++
		}
		if n == 0 {
			break
		}
		newest := l.snapshots[n-1]
		entries, err := l.readSnapshot(newest, clean)
		if err == nil {
			ps = producersFrom(entries, newest, now, l.dir.producerExpiration())
			if !clean {
				if err := l.recallBatches(ps, segments); err != nil {
					return nil, err
				}
			}
			break
		}
		var c *CorruptError
		if !errors.As(err, &c) && !isNotExist(err) {
			return nil, err
		}
		r.note("%v: rebuilding the producers' state", err)
		if err := l.dropSnapshotsLocked(func(o kafka.Offset) bool { return o == newest }); err != nil {
			return nil, err
		}
	}
	if ps.end < last {
		if err := l.replayProducersLocked(ps, segments, last); err != nil {
			return nil, err
		}
	}
	ps.end = max(last, ps.end)
	return ps, nil
}

// recallWindow is how far before a snapshot recallBatches looks. What a producer sends again after a crash it has sent within
// its last five requests, at most 5 MiB by default of one producer. Guess.
const recallWindow = 8 << 20

// recallBatches gives producers that came out of a snapshot, which has only the last batch of each, the batches before it that
// are still in the log just below. Else a producer that sends again what it has no answer for, because the node crashed, would
// hear OUT_OF_ORDER_SEQUENCE_NUMBER for a batch that is there whenever a segment rolled in between, as with Kafka, and some
// clients then write it twice under a new epoch.
func (l *Log) recallBatches(ps *producers, segments []*segment) error {
	if len(ps.byID) == 0 {
		return nil
	}
	earlier := make(map[kafka.ProducerID][]batchMeta)
	left := int64(recallWindow)
	for i := len(segments) - 1; i >= 0 && left > 0; i-- {
		s := segments[i]
		if s.base >= ps.end {
			continue
		}
		end := s.size()
		s.mu.Lock()
		err := l.openIndexesLocked(s)
		var pos int64
		if err == nil && s.next() > ps.end {
			var e offsetEntry
			e, err = s.idx.offsetFloor(s.base, ps.end)
			end = int64(e.position)
		}
		if err == nil && end > left {
			pos, err = s.idx.positionFloor(end - left)
		}
		s.mu.Unlock()
		if err != nil {
			return err
		}
		here := make(map[kafka.ProducerID][]batchMeta)
		err = l.eachBatch(s, pos, func(b record.Batch) (more bool, err error) {
			if b.BaseOffset() >= ps.end {
				return false, nil
			}
			p := ps.byID[b.ProducerID()]
			if p == nil || p.n == 0 || b.Control() || b.ProducerEpoch() != p.epoch || b.LastOffset() >= p.batches[0].lastOffset {
				return true, nil
			}
			list := append(here[p.id], batchMeta{b.LastSequence(), int32(b.LastOffset() - b.BaseOffset()), b.LastOffset(), b.MaxTimestamp()})
			here[p.id] = list[max(0, len(list)-maxDuplicates):]
			return true, nil
		})
		if err != nil {
			return err
		}
		for id, list := range here {
			earlier[id] = append(list, earlier[id]...)
		}
		left -= end - pos
	}
	for id, list := range earlier {
		p := ps.byID[id]
		list = append(list, p.batches[:p.n]...)
		p.n = 0
		for _, m := range list[max(0, len(list)-maxDuplicates):] {
			p.addBatch(m)
		}
	}
	return nil
}

// readSnapshot reads a producer snapshot. After a clean shutdown its size is believed: most logs have no producers, and then it is
// nothing but a header.
func (l *Log) readSnapshot(offset kafka.Offset, clean bool) ([]snapshotEntry, error) {
	name := l.path + "/" + segmentName(offset, snapshotSuffix)
	if clean {
		if st, err := l.fs.Stat(name); err != nil || st.Size() == snapshotHeader {
			return nil, err
		}
	}
	b, err := l.fs.ReadFile(name, maxSnapshotSize)
	if err != nil {
		return nil, err
	}
	entries, err := decodeSnapshot(b)
	if err != nil {
		return nil, corrupt(name, -1, "%v", err)
	}
	return entries, nil
}

// replayProducersLocked applies the batches from ps.end to last.
func (l *Log) replayProducersLocked(ps *producers, segments []*segment, last kafka.Offset) error {
	if len(segments) == 0 {
		return nil
	}
	v := &view{segments}
	for _, s := range segments[v.floor(ps.end):] {
		if s.base >= last {
			break
		}
		s.mu.Lock()
		err := l.openIndexesLocked(s)
		var pos int64
		if err == nil {
			var e offsetEntry
			e, err = s.idx.offsetFloor(s.base, ps.end)
			pos = int64(e.position)
		}
		s.mu.Unlock()
		if err != nil {
			return err
		}
		if err := l.replaySegment(ps, s, pos, last); err != nil {
			return err
		}
		ps.end = max(ps.end, min(s.next(), last))
	}
	return nil
}

// replaySegment applies the batches of a segment from pos on, below last. Their headers say all, but for the markers of transactions.
func (l *Log) replaySegment(ps *producers, s *segment, pos int64, last kafka.Offset) error {
	file, err := s.log.use()
	if err != nil {
		return err
	}
	defer s.log.release()
	from := ps.end
	scan := scanHeaders(file, pos, s.size())
	defer scan.close()
	for {
		h, at, size, ok, err := scan.next()
		if err != nil || !ok || h.BaseOffset() >= last {
			return err
		}
		if h.LastOffset() < from || !h.HasProducerID() {
			continue
		}
		if h.Control() {
			marker := make([]byte, size)
			if err := readFull(file, marker, at); err != nil {
				return err
			}
			if h = record.Batch(marker); s.unverified.Load() {
				err = h.Check()
			}
			if err != nil {
				return corrupt(file.Name(), at, "control batch at offset %d: %v", h.BaseOffset(), err)
			}
		}
		f, err := factsOf(h, at)
		if err != nil {
			return corrupt(file.Name(), at, "control batch at offset %d: %v", h.BaseOffset(), err)
		}
		if ended, ok := ps.apply(&f); ok {
			ps.complete(ended)
		}
	}
}

// dropStraySnapshotsLocked removes snapshots above the log's end, and those that belong to no segment, but for the newest if it lies above
// the bases of all of them: the one of the last clean shutdown.
func (l *Log) dropStraySnapshotsLocked(segments []*segment, end kafka.Offset) error {
	if err := l.dropSnapshotsLocked(func(o kafka.Offset) bool { return o > end }); err != nil {
		return err
	}
	if len(segments) == 0 || len(l.snapshots) == 0 {
		return nil
	}
	newest := l.snapshots[len(l.snapshots)-1]
	return l.dropSnapshotsLocked(func(o kafka.Offset) bool {
		if o == newest && o > segments[len(segments)-1].base {
			return false
		}
		_, found := slices.BinarySearchFunc(segments, o, func(s *segment, o kafka.Offset) int { return cmp.Compare(s.base, o) })
		return !found
	})
}

// Recovery tells what opening a log found and did. Notes are for the program's log, in order.
type Recovery struct {
	Recovered      int          // segments read and checked because the last process didn't close the log
	TruncatedTo    kafka.Offset // where the log was cut off, if TruncatedBytes or DroppedSegments isn't 0
	TruncatedBytes int64
	// DroppedSegments are those that came after a bad batch, or after a gap, and then they were set aside.
	DroppedSegments int
	Notes           []string

	leftovers []kafka.Offset // base offsets of segments that were deleted or replaced not long ago
}

func (r *Recovery) note(format string, args ...any) {
	if r != nil {
		r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
	}
}
