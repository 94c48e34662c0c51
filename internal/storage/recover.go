package storage

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/vfs"
)

// How a log is opened. After a clean shutdown nothing is read but names, sizes, the two small text files and, if there are
// producers, the snapshot at the end, whose name is also the end offset. Otherwise what lies above the recovery point is read (resume.go): the log is cut off before the first batch that is unfinished, has a wrong
// checksum, or doesn't continue the one before; segments after that are dropped; indexes and producer state are made anew.
// Segments below are trusted, but whoever reads them first checks them (segment.unverified).
//
// The leftovers of a cleaner that died are handled as Kafka does: .cleaned files were not ready and go; .swap files were, and
// take the place of the segments between their offsets.

// openOptions is what is known of a log before it is opened.
type openOptions struct {
	clean         bool
	recoveryPoint kafka.Offset
	startOffset   kafka.Offset // of the checkpoint, 0 without one
	highWatermark kafka.Offset
	now           time.Time
	entries       []fs.DirEntry // of the directory; nil if it wasn't listed yet
	// whole means that segments are read from their start: the metadata log's, whose every batch counts.
	whole bool
}

// openLocked loads a log from its directory. l is not shared yet.
func (l *Log) openLocked(o openOptions) (Recovery, error) {
	var r Recovery
	files, err := l.cleanUp(o.entries, &r)
	if err != nil {
		return r, err
	}
	segments, err := l.findSegments(files, &r)
	if err != nil {
		return r, err
	}
	if err := l.loadSmallFiles(files, segments, &r); err != nil {
		return r, err
	}
	l.start.Store(o.startOffset)
	end := o.startOffset
	switch {
	case len(segments) == 0:
	case o.clean:
		end, err = l.cleanEnd(segments)
		var c *CorruptError
		if errors.As(err, &c) {
			r.note("%v after a clean shutdown: recovering the log", err)
			o.clean = false
			segments, end, err = l.recoverSegments(segments, o, &r)
		}
	default:
		segments, end, err = l.recoverSegments(segments, o, &r)
	}
	if err != nil {
		return r, err
	}
	if end < o.recoveryPoint {
		r.note("the log of %v ends at offset %d, but everything below %d was synced once: a file may be missing in %s", l.partition, end, o.recoveryPoint, l.path)
	}
	if len(segments) > 0 && end < o.startOffset {
		r.note("deleting all segments of %v because its end offset %d is smaller than its start offset %d; files may have been deleted", l.partition, end, o.startOffset)
		if err := l.removeSegmentsLocked(segments, o.now); err != nil {
			return r, err
		}
		segments = nil
		l.epochs.clear()
		if err := l.dropSnapshotsLocked(func(kafka.Offset) bool { return true }); err != nil {
			return r, err
		}
	}
	if len(segments) == 0 {
		end = o.startOffset
		s, err := l.newSegmentLocked(end, o.now)
		if err != nil {
			return r, err
		}
		segments = []*segment{s}
	}
	active := segments[len(segments)-1]
	active.setEnd(end, active.size())
	l.created, l.jitter = o.now, l.dir.randomJitter(l.config.Load().SegmentJitter)
	l.view.Store(&view{segments})
	l.epochs.truncateEnd(end)
	start := max(o.startOffset, segments[0].base)
	l.start.Store(start)
	if known := l.epochs.entries; o.clean && len(known) > 0 && known[0].Start < start {
		// Retention takes the history along; only a kill in between leaves more of it.
		r.note("the leader epochs of %v begin at offset %d, and its log at %d: if retention has not deleted what was in between, segments are missing in %s",
			l.partition, known[0].Start, start, l.path)
	}
	l.epochs.truncateStart(start)
	l.hw.Store(max(start, min(o.highWatermark, end)))
	if o.clean {
		l.recovery.Store(end)
	} else {
		l.recovery.Store(min(o.recoveryPoint, end))
	}
	if err := l.dropStraySnapshotsLocked(segments, end); err != nil {
		return r, err
	}
	if err := l.loadProducersLocked(end, o.now, o.clean, &r); err != nil {
		return r, err
	}
	if !o.clean {
		// Those below the recovery point were synced before it moved there; of the others nobody knows.
		i, _ := slices.BinarySearch(l.snapshots, o.recoveryPoint)
		l.unsynced = slices.Clone(l.snapshots[i:])
	}
	return r, nil
}

// cleanUp removes what a process that died left behind and returns the names that are there then. entries are those of the directory, or
// nil if it isn't listed yet.
func (l *Log) cleanUp(entries []fs.DirEntry, r *Recovery) ([]string, error) {
	if entries == nil {
		var err error
		if entries, err = l.fs.List(l.path); err != nil {
			return nil, fmt.Errorf("list %s: %w", l.path, err)
		}
	}
	names := make([]string, 0, len(entries))
	var cleaned, swaps []string
	minCleaned := kafka.Offset(math.MaxInt64)
	for _, e := range entries {
		name := e.Name()
		if e.Type()&fs.ModeSymlink != 0 {
			l.dir.linked.Store(true)
		}
		base, suffix, ok := parseSegmentName(name)
		if ok && (suffix == logSuffix+deletedSuffix || suffix == logSuffix+swapSuffix) {
			r.leftovers = append(r.leftovers, base)
		}
		switch {
		case e.IsDir():
		case strings.HasSuffix(name, deletedSuffix):
			if err := l.removeLeftover(name, r); err != nil {
				return nil, err
			}
		case strings.HasSuffix(name, cleanedSuffix):
			cleaned = append(cleaned, name)
			if ok {
				minCleaned = min(minCleaned, base)
			}
		case strings.HasSuffix(name, swapSuffix):
			swaps = append(swaps, name)
		case strings.HasSuffix(name, ".tmp"):
			// Of an atomic replacement that didn't come to its rename.
			if err := l.removeLeftover(name, r); err != nil {
				return nil, err
			}
		default:
			names = append(names, name)
		}
	}
	if len(cleaned)+len(swaps) == 0 {
		return names, nil
	}
	// A split writes several .swap files; if one is still .cleaned, those above it were not meant to count yet.
	kept := swaps[:0]
	for _, name := range swaps {
		if base, _, ok := parseSegmentName(name); !ok || base >= minCleaned {
			cleaned = append(cleaned, name)
		} else {
			kept = append(kept, name)
		}
	}
	for _, name := range cleaned {
		if err := l.removeLeftover(name, r); err != nil {
			return nil, err
		}
	}
	return l.finishSwaps(names, kept, r)
}

func (l *Log) removeLeftover(name string, r *Recovery) error {
	if err := l.fs.Remove(l.path + "/" + name); err != nil && !isNotExist(err) {
		return fmt.Errorf("remove leftover: %w", err)
	}
	l.namesDirty.Store(true)
	if !strings.HasSuffix(name, deletedSuffix) && !strings.HasSuffix(name, ".tmp") {
		r.note("removed %s/%s, left behind by a cleaner that didn't finish", l.path, name)
	}
	return nil
}

// finishSwaps puts the cleaner's segments in place of the originals.
func (l *Log) finishSwaps(names, swaps []string, r *Recovery) ([]string, error) {
	low, high := kafka.Offset(math.MaxInt64), kafka.Offset(-1)
	for _, name := range swaps {
		base, suffix, _ := parseSegmentName(name)
		if suffix != logSuffix+swapSuffix {
			continue
		}
		next, err := l.nextOffsetOf(name, base)
		if err != nil {
			return nil, err
		}
		// Also if nothing is left in it: what stands in its place goes, the transaction index as well.
		low, high = min(low, base), max(high, next, base+1)
	}
	var out []string
	for _, name := range names {
		base, suffix, ok := parseSegmentName(name)
		if ok && base >= low && base < high && (suffix == logSuffix || suffix == indexSuffix || suffix == timeIndexSuffix || suffix == txnIndexSuffix) {
			if err := l.removeLeftover(name, r); err != nil {
				return nil, err
			}
			continue
		}
		out = append(out, name)
	}
	for _, name := range swaps {
		to := strings.TrimSuffix(name, swapSuffix)
		if err := l.fs.Rename(l.path+"/"+name, l.path+"/"+to); err != nil {
			return nil, fmt.Errorf("complete the cleaner's swap: %w", err)
		}
		r.note("completed the cleaner's swap of %s/%s", l.path, to)
		out = append(out, to)
	}
	slices.Sort(out)
	return out, l.fs.SyncDir(l.path)
}

// nextOffsetOf is the offset after the last batch of a file.
func (l *Log) nextOffsetOf(name string, base kafka.Offset) (kafka.Offset, error) {
	x := l.files.file(l.path + "/" + name)
	defer x.forget(ErrClosed) //nolint:errcheck // only read
	f, err := x.use()
	if err != nil {
		return 0, err
	}
	defer x.release()
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	scan := scanHeaders(f, 0, size)
	defer scan.close()
	next := base
	for {
		h, _, _, ok, err := scan.next()
		if err != nil {
			return 0, err
		}
		if !ok {
			return next, nil
		}
		next = h.NextOffset()
	}
}

// findSegments lists the segments of the files that are there, and the snapshots.
func (l *Log) findSegments(names []string, r *Recovery) ([]*segment, error) {
	var segments []*segment
	find := func(base kafka.Offset) (int, bool) {
		return slices.BinarySearchFunc(segments, base, func(s *segment, b kafka.Offset) int { return cmp.Compare(s.base, b) })
	}
	for _, name := range names {
		base, suffix, ok := parseSegmentName(name)
		if !ok {
			if strings.HasSuffix(name, logSuffix) {
				r.note("passing over %s/%s, which is no name of a segment", l.path, name)
			}
			continue
		}
		switch suffix {
		case logSuffix:
			st, err := l.fs.Stat(l.path + "/" + name)
			if isNotExist(err) {
				return nil, corrupt(l.path+"/"+name, -1, "it is a link to nothing, or somebody has just removed it")
			}
			if err != nil {
				return nil, fmt.Errorf("open segment: %w", err)
			}
			if st.Size() > math.MaxInt32 {
				return nil, corrupt(l.path+"/"+name, -1, "the size %d is larger than the maximum of a segment, %d", st.Size(), math.MaxInt32)
			}
			s := &segment{base: base, log: l.files.file(l.path + "/" + name)}
			s.setEnd(base, st.Size())
			segments = append(segments, s)
		case snapshotSuffix:
			l.snapshots = append(l.snapshots, base)
		}
	}
	slices.SortFunc(segments, func(a, b *segment) int { return cmp.Compare(a.base, b.base) })
	slices.Sort(l.snapshots)
	for _, name := range names {
		base, suffix, ok := parseSegmentName(name)
		if !ok || suffix != indexSuffix && suffix != timeIndexSuffix && suffix != txnIndexSuffix {
			continue
		}
		i, found := find(base)
		if found && suffix == txnIndexSuffix {
			segments[i].hasTxnIndex = true
		}
		if !found {
			r.note("removed %s/%s, an index without a log", l.path, name)
			if err := l.fs.Remove(l.path + "/" + name); err != nil && !isNotExist(err) {
				return nil, fmt.Errorf("remove orphaned index: %w", err)
			}
			l.namesDirty.Store(true)
		}
	}
	for i := range segments[:max(len(segments)-1, 0)] {
		s := segments[i]
		s.setEnd(min(segments[i+1].base, s.base+math.MaxInt32+1), s.size())
	}
	return segments, nil
}

// loadSmallFiles reads partition.metadata and the epoch history.
func (l *Log) loadSmallFiles(names []string, segments []*segment, r *Recovery) error {
	if _, found := slices.BinarySearch(names, partitionMetadataName); found {
		name := l.path + "/" + partitionMetadataName
		b, err := l.fs.ReadFile(name, maxMetaSize)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		b = bytes.TrimRight(b, "\x00")
		if l.topicID, err = decodePartitionMetadata(b); err != nil {
			if !strings.HasPrefix("version: 0\ntopic_id: ", string(b[:min(len(b), 21)])) {
				return Corrupt(name, err)
			}
			// A power cut before the first Flush leaves it empty or short. The owner knows the id from the metadata.
			r.note("%v: waiting for the topic id from the metadata", corrupt(name, -1, "%v", err))
			l.topicID = kafka.TopicID{}
			if err := l.fs.Remove(name); err != nil {
				return fmt.Errorf("remove %s: %w", name, err)
			}
		}
	}
	if _, found := slices.BinarySearch(names, epochsName); !found {
		return l.rebuildEpochs(segments)
	}
	name := l.path + "/" + epochsName
	b, err := l.fs.ReadFile(name, maxCheckpointSize)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	entries, err := decodeEpochs(b)
	if err != nil {
		r.note("%v: rebuilding it from the batches", corrupt(name, -1, "%v", err))
		return l.rebuildEpochs(segments)
	}
	l.epochs.entries, l.epochs.stored = entries, entries
	return nil
}

// rebuildEpochs reads the leader epochs out of all batches that can be read.
func (l *Log) rebuildEpochs(segments []*segment) error {
	l.epochs.entries = nil
	for _, s := range segments {
		if s.size() == 0 {
			continue
		}
		f, err := s.log.use()
		if err != nil {
			return err
		}
		scan := scanHeaders(f, 0, s.size())
		for {
			h, _, _, ok, serr := scan.next()
			var c *CorruptError
			if serr != nil && !errors.As(serr, &c) {
				err = serr
			}
			if serr != nil || !ok {
				break // recovery finds the bad batch again and cuts there
			}
			l.learnEpoch(h.PartitionLeaderEpoch(), h.BaseOffset())
		}
		scan.close()
		s.log.release()
		if err != nil {
			return err
		}
	}
	return nil
}

// learnEpoch takes in the epoch of a batch that was read from the log. Where the history contradicts it, because the file wasn't
// written before the crash or knows of what a truncation took, the batch is right; otherwise the history knows better when
// an epoch began.
func (l *Log) learnEpoch(epoch kafka.LeaderEpoch, base kafka.Offset) {
	if known, ok := l.epochs.at(base); epoch >= 0 && (!ok || known != epoch) {
		l.epochs.assign(epoch, base)
	}
}

// cleanEnd is the end offset of a log that was closed cleanly: the name of the snapshot that was written then. Without one
// the last batches say.
func (l *Log) cleanEnd(segments []*segment) (kafka.Offset, error) {
	for _, s := range segments {
		if err := l.checkTxnIndex(s); err != nil {
			return 0, err
		}
	}
	s := segments[len(segments)-1]
	if s.size() == 0 {
		s.setEnd(s.base, 0)
		return s.base, nil
	}
	if n := len(l.snapshots); n > 0 && l.snapshots[n-1] > s.base && s.fits(l.snapshots[n-1]-1) {
		s.setEnd(l.snapshots[n-1], s.size())
		return l.snapshots[n-1], nil
	}
	s.setEnd(s.base+math.MaxInt32+1, s.size())
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := l.openIndexesLocked(s); err != nil {
		return 0, err
	}
	end, err := l.endLocked(s, s.size())
	if err != nil {
		s.idx = nil
		return 0, err
	}
	s.setEnd(end, s.size())
	s.checked.Store(true)
	return end, nil
}

// recoverSegments reads the segments from the recovery point on. It returns those that are left and the end offset.
func (l *Log) recoverSegments(segments []*segment, o openOptions, r *Recovery) ([]*segment, kafka.Offset, error) {
	v := &view{segments}
	// A recovery point at the border of two segments may have been written when only the first was there, and still active: so
	// its indexes need not be synced.
	first := v.floor(o.recoveryPoint - 1)
	for i, s := range segments[:first] {
		s.checkedFrom.Store(math.MaxInt64)
		s.unverified.Store(true)
		if err := l.checkTxnIndex(s); err != nil {
			r.note("%v: recovering the segment", err)
			if _, _, err := l.recoverSegment(segments[:i], s, o, r, true); err != nil {
				return nil, 0, err
			}
		}
	}
	for i := first; i < len(segments); i++ {
		s := segments[i]
		if i == len(segments)-1 && s.size() == 0 && !s.hasTxnIndex {
			r.Recovered++
			if err := l.recoverEmpty(s); err != nil {
				return nil, 0, fmt.Errorf("recover %s: %w", s.log.path(), err)
			}
			break
		}
		cut, zeros, err := l.recoverSegment(segments[:i], s, o, r, false)
		if err != nil {
			return nil, 0, err
		}
		// A power cut can keep a segment and lose the end of the one before, at the border of a batch. Compaction leaves gaps, too,
		// but not in a segment that it never came to.
		hole := i+1 < len(segments) && cut == 0 && s.next() < segments[i+1].base && s.next() >= o.recoveryPoint &&
			l.neverCleaned(s, segments[i+1].base, r) && l.contiguous(s)
		if cut == 0 && !hole {
			continue
		}
		if zeros && i+1 < len(segments) && s.next() == segments[i+1].base {
			// It was preallocated, and a power cut undid that it was trimmed when it rolled.
			continue
		}
		r.TruncatedTo = s.next()
		r.TruncatedBytes += cut
		gone := segments[i+1:]
		r.DroppedSegments = len(gone)
		if hole {
			missing := Gap{s.next(), gone[0].base - 1, s.log.path(), gone[0].log.path()}
			names, err := l.setAsideLocked(gone)
			if err != nil {
				return nil, 0, err
			}
			r.note("the offsets %d to %d of %v are missing between %s and %s: the log ends at %d, and the %d segments behind are set aside as %s",
				missing.First, missing.Last, l.partition, missing.Before, missing.After, s.next(), len(names), strings.Join(names[max(len(names)-3, 0):], ", "))
		} else if len(gone) > 0 {
			r.note("deleting %d segments of %v after the corruption", len(gone), l.partition)
			if err := l.removeSegmentsLocked(gone, o.now); err != nil {
				return nil, 0, err
			}
		}
		segments = segments[: i+1 : i+1]
		break
	}
	return segments, segments[len(segments)-1].next(), nil
}

// recoverEmpty recovers a last segment without a byte, as most of many partitions have: there is nothing to read, and its indexes are to
// be empty, which they mostly are. They are loaded when they are first needed, as after a clean stop.
func (l *Log) recoverEmpty(s *segment) error {
	for _, suffix := range [...]string{indexSuffix, timeIndexSuffix} {
		name := s.path(suffix)
		size, err := l.sizeOrCreate(name)
		if err == nil && size > 0 {
			err = l.emptyFile(name)
		}
		if err != nil {
			return err
		}
	}
	s.indexUnsynced.Store(true) // that they are short need not be on the disk
	return nil
}

// neverCleaned tells whether no cleaner has touched the segment s, which ends before next. Kafka's cleaner writes its checkpoint after it
// has swapped segments in; if it died before that, the old ones are still there as .deleted.
func (l *Log) neverCleaned(s *segment, next kafka.Offset, r *Recovery) bool {
	cleaned := l.cleaned.Load()
	if cleaned < 0 && !l.config.Load().Compact {
		return true
	}
	return s.base >= cleaned && !slices.ContainsFunc(r.leftovers, func(o kafka.Offset) bool { return o >= s.base && o < next })
}

// contiguous tells whether the segment's batches follow each other from its base offset on without a gap: then it was never
// compacted.
func (l *Log) contiguous(s *segment) bool {
	f, err := s.log.use()
	if err != nil {
		return false
	}
	defer s.log.release()
	scan := scanHeaders(f, 0, s.size())
	defer scan.close()
	for next := s.base; ; {
		h, _, _, ok, err := scan.next()
		if err != nil || ok && h.BaseOffset() != next {
			return false
		}
		if !ok {
			return true
		}
		next = h.NextOffset()
	}
}

// checkTxnIndex reads the transaction index, if there is one: a bad one can only be made anew by recovery.
func (l *Log) checkTxnIndex(s *segment) error {
	if !s.hasTxnIndex {
		return nil
	}
	name := s.path(txnIndexSuffix)
	b, err := l.fs.ReadFile(name, math.MaxInt32)
	if err != nil {
		return err
	}
	if _, err := decodeAborted(b, s.base); err != nil {
		return corrupt(name, -1, "%v", err)
	}
	return nil
}

// recoverSegment reads a segment, from the recovery point on if that can be done (resume), cuts it off before its first bad
// batch, and makes its indexes anew. It returns how many bytes it cut, and whether those
// were zeros, of a preallocated file. What lies below the recovery point was synced once, and
// cutting it off would take all that follows along, so a bad batch there is an error. Of a segment that lies below as a whole only
// the indexes are made anew, atomically, since the next start trusts them.
func (l *Log) recoverSegment(before []*segment, s *segment, o openOptions, r *Recovery, below bool) (cut int64, zeros bool, err error) {
	r.Recovered++
	size := s.size()
	s.setEnd(s.base+math.MaxInt32+1, size) // where it really ends is what we are about to find
	var from recoveryStart
	resumed := false
	if !below && !o.whole && o.recoveryPoint > s.base && size > int64(l.config.Load().IndexIntervalBytes) { // else there is no entry to begin at
		if from, resumed, err = l.resume(before, s, o, r); err != nil {
			return 0, false, err
		}
	}
	if !resumed {
		if from, err = l.startWhole(before, s, o, r, below); err != nil {
			return 0, false, err
		}
	}
	known := from.ps.end
	cut, zeros, err = l.recoverFrom(s, from, o, r, below)
	if err != nil {
		return 0, false, err
	}
	if resumed && s.next() < known {
		// The file is shorter than when it was synced last: what the snapshot knows of is gone.
		s.setEnd(s.base, s.size())
		o.whole = true
		again, _, err := l.recoverSegment(before, s, o, r, false)
		return cut + again, zeros && again == 0, err
	}
	s.checkedFrom.Store(from.pos)
	s.unverified.Store(from.pos > 0)
	s.checked.Store(true)
	// With a snapshot here, nobody must read this segment again for its producers.
	l.producers = from.ps
	return cut, zeros, l.takeSnapshotLocked()
}

// recoverFrom is recoverSegment from a place on.
func (l *Log) recoverFrom(s *segment, from recoveryStart, o openOptions, r *Recovery, below bool) (cut int64, zeros bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idx = from.idx
	f, err := s.log.use()
	if err != nil {
		return 0, false, fmt.Errorf("recover segment: %w", err)
	}
	defer s.log.release()
	size := s.size()
	ps, aborted, known := from.ps, from.aborted, from.ps.end
	next, good, epoch := from.next, from.pos, kafka.NoLeaderEpoch
	interval := int(l.config.Load().IndexIntervalBytes)
	scan := scanBatches(f, from.pos, size)
	defer scan.close()
	told := from.pos // what l.dir.recovered has
	defer func() { l.dir.recovered.Add(good - told) }()
	for {
		b, pos, ok, err := scan.next()
		if err == nil && !ok {
			break
		}
		var facts record.Facts
		if err == nil {
			if facts, err = l.checkBatch(s, b, pos, next, epoch); err != nil {
				err = corrupt(s.log.path(), pos, "%v", err)
			}
		}
		var c *CorruptError
		if errors.As(err, &c) && !below && next >= o.recoveryPoint {
			if zeros, err = onlyZeros(f, good, size); err != nil {
				return 0, false, fmt.Errorf("recover %s: %w", s.log.path(), err)
			}
			if !zeros {
				r.note("%v; truncating the log to offset %d", c, next)
			}
			break
		}
		if errors.As(err, &c) {
			c.Reason = fmt.Sprintf("the batch at offset %d, which was synced once since the recovery point is %d: %s", next, o.recoveryPoint, c.Reason)
		}
		if err != nil {
			return 0, false, fmt.Errorf("recover %s: %w", s.log.path(), err)
		}
		if err := s.idx.add(s.base, pos, len(b), facts.LastOffset, facts.MaxTimestamp, interval); err != nil {
			return 0, false, fmt.Errorf("recover the index of %s: %w", s.log.path(), err)
		}
		l.learnEpoch(facts.LeaderEpoch, facts.FirstOffset)
		if facts.FirstOffset >= known {
			if ended, ok := ps.apply(&facts); ok {
				if ended.aborted {
					aborted = append(aborted, abortedEntry{ended.producerID, ended.firstOffset, ended.lastOffset, ps.lastStableAt(ended)})
				}
				ps.complete(ended)
			}
		}
		next, good, epoch = facts.LastOffset+1, pos+int64(len(b)), max(epoch, facts.LeaderEpoch)
		if good-told >= 1<<20 {
			l.dir.recovered.Add(good - told)
			told = good
		}
	}
	s.setEnd(next, good)
	if cut = size - good; cut > 0 {
		err := f.Truncate(good)
		if err == nil {
			// Else another power cut could make the bad batch whole with bytes of what is appended next.
			err = f.Sync()
		}
		if err != nil {
			return 0, false, fmt.Errorf("truncate %s: %w", s.log.path(), err)
		}
	}
	if err := s.idx.endTimes(s.base); err != nil {
		return 0, false, err
	}
	if below {
		err = errors.Join(s.idx.offsets.replace(l.fs), s.idx.times.replace(l.fs))
	} else {
		err = errors.Join(s.idx.offsets.write(), s.idx.times.write())
		s.indexUnsynced.Store(true)
	}
	if err != nil {
		return 0, false, fmt.Errorf("recover the index of %s: %w", s.log.path(), err)
	}
	// The transaction index goes last: if it was what sent us here, it does so again until all is done.
	// Where the next start may believe it, it is replaced atomically.
	if err := l.writeAborted(s, aborted, below || o.recoveryPoint > s.base); err != nil {
		return 0, false, fmt.Errorf("recover the transaction index of %s: %w", s.log.path(), err)
	}
	return cut, zeros, nil
}

// onlyZeros tells whether a file holds nothing else between two positions: it was preallocated. Of anything else little is read.
func onlyZeros(f vfs.File, from, to int64) (bool, error) {
	page := pages.Get().(*[4096]byte)
	defer pages.Put(page)
	for from < to {
		b := page[:min(int64(len(page)), to-from)]
		if err := readFull(f, b, from); err != nil {
			return false, err
		}
		if len(bytes.Trim(b, "\x00")) > 0 {
			return false, nil
		}
		from += int64(len(b))
	}
	return true, nil
}

// checkBatch is what recovery demands of a batch: its checksum, and that it continues the segment in offset and leader epoch.
// A lower epoch can only be what a truncation took away and a power cut brought back.
func (l *Log) checkBatch(s *segment, b record.Batch, pos int64, next kafka.Offset, epoch kafka.LeaderEpoch) (record.Facts, error) {
	if err := b.Check(); err != nil {
		return record.Facts{}, err
	}
	f, err := factsOf(b, pos)
	if err != nil {
		return f, err
	}
	if f.LastOffset < f.FirstOffset || f.LastOffset < next || !s.fits(f.LastOffset) {
		return f, fmt.Errorf("offsets %d to %d don't follow %d in a segment that begins at %d", f.FirstOffset, f.LastOffset, next-1, s.base)
	}
	if f.LeaderEpoch >= 0 && f.LeaderEpoch < epoch {
		return f, fmt.Errorf("leader epoch %d after %d", f.LeaderEpoch, epoch)
	}
	return f, nil
}

// writeAborted replaces a segment's transaction index; without entries there is no file.
func (l *Log) writeAborted(s *segment, aborted []abortedEntry, atomically bool) error {
	if atomically && len(aborted) > 0 {
		var b []byte
		for _, e := range aborted {
			b = e.append(b)
		}
		if err := vfs.WriteFileAtomic(l.fs, l.path, segmentName(s.base, txnIndexSuffix), b); err != nil {
			return err
		}
		s.hasTxnIndex = true
		return l.loadTxnIndexLocked(s, s.idx)
	}
	if s.idx.txns != nil && slices.Equal(aborted, s.idx.aborted) {
		return nil
	}
	s.idx.txns, s.idx.aborted = nil, nil
	if s.hasTxnIndex {
		if err := l.fs.Remove(s.path(txnIndexSuffix)); err != nil && !isNotExist(err) {
			return err
		}
		s.hasTxnIndex = false
		l.namesDirty.Store(true)
	}
	for _, e := range aborted {
		if err := l.addAbortedLocked(s, e); err != nil {
			return err
		}
	}
	return nil
}
