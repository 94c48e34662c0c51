package storage

import (
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/highwater/highwater/internal/kafka"
)

// DeletedSegment says which segment went and why.
type DeletedSegment struct {
	BaseOffset kafka.Offset
	Size       int64
	Reason     string // "retention.ms", "retention.bytes" or "log start offset"
}

// DeleteOldSegments applies retention by time, size and log start. The files get the suffix .deleted; RemoveDeleted removes
// them after file.delete.delay.ms. Only what lies wholly below the high watermark goes. If the active segment must go, too,
// an empty one takes its place.
//
// Appends wait only while the list of segments changes. The files are renamed after that, the oldest segment first, and
// each is durably gone before the next: else a power cut could leave a hole in the log.
func (l *Log) DeleteOldSegments(now time.Time) ([]DeletedSegment, error) {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	old, deleted, err := l.detachOldSegments(now)
	if len(old) == 0 {
		return nil, err
	}
	removals, rerr := l.renameSegments(old, now, false)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetSegmentsLocked(old, removals)
	if rerr != nil {
		return deleted, l.fail(rerr)
	}
	return deleted, err
}

// detachOldSegments takes what retention says out of the list of segments.
func (l *Log) detachOldSegments(now time.Time) (old []*segment, deleted []DeletedSegment, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(); err != nil {
		return nil, nil, err
	}
	c := l.config.Load()
	start := l.start.Load()
	var over int64 // bytes beyond retention.bytes
	rules := []struct {
		reason string
		on     bool
		due    func(s *segment, next kafka.Offset) (bool, error)
	}{
		{"log start offset", true, func(_ *segment, next kafka.Offset) (bool, error) { return next <= start, nil }},
		{"retention.bytes", c.Delete && c.RetentionBytes >= 0, func(s *segment, _ kafka.Offset) (bool, error) {
			over -= s.size()
			return over >= 0, nil
		}},
		{"retention.ms", c.Delete && c.RetentionTime >= 0, func(s *segment, _ kafka.Offset) (bool, error) {
			t, err := l.largestTimestamp(s)
			return err == nil && Millis(now.UnixMilli()-t) > c.RetentionTime, err
		}},
	}
	for _, r := range rules {
		if !r.on {
			continue
		}
		over = l.Size() - c.RetentionBytes
		gone, err := l.detachWhileLocked(r.due, now)
		for _, s := range gone {
			deleted = append(deleted, DeletedSegment{s.base, s.size(), r.reason})
		}
		old = append(old, gone...)
		if err != nil {
			return old, deleted, l.readFailed(err) // what is corrupt stays, and is refused to whoever reads it
		}
	}
	return old, deleted, nil
}

// detachWhileLocked takes segments out of the list from the oldest on while due holds.
func (l *Log) detachWhileLocked(due func(s *segment, next kafka.Offset) (bool, error), now time.Time) ([]*segment, error) {
	v := l.view.Load()
	hw := l.hw.Load()
	n := 0
	for ; n < len(v.segments); n++ {
		s := v.segments[n]
		last := n == len(v.segments)-1
		next := v.active().next()
		if !last {
			next = v.segments[n+1].base
		}
		if last && s.size() == 0 || hw < next {
			break
		}
		ok, err := due(s, next)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
	}
	if n == 0 {
		return nil, nil
	}
	if n == len(v.segments) {
		if err := l.activateLocked(); err != nil {
			return nil, err
		}
		if _, err := l.rollLocked(v.active().next(), now); err != nil {
			return nil, err
		}
		v = l.view.Load()
	}
	if err := l.removeNowLocked(v.segments[:n]); err != nil {
		return nil, err
	}
	// Readers go by the log start, so that moves before the segments disappear.
	l.advanceStartLocked(v.segments[n].base)
	l.view.Store(&view{v.segments[n:len(v.segments):len(v.segments)]})
	return v.segments[:n:n], nil
}

// renameSegments gives the files of segments that are no longer in the list the suffix .deleted. Who still reads them goes on
// undisturbed. Each segment is durably gone before the next one goes: from the oldest on for retention, from the newest on
// for a truncation, so that what a power cut leaves has no hole. The caller holds flushing, which keeps l.path as it is.
//
// The .log goes first and durably. Files without one are removed by the next start; a .log that lost its transaction index would
// show what was aborted.
func (l *Log) renameSegments(segments []*segment, now time.Time, newestFirst bool) ([]removal, error) {
	due := now.Add(l.config.Load().FileDeleteDelay)
	var out []removal
	for i := range segments {
		s := segments[i]
		if newestFirst {
			s = segments[len(segments)-1-i]
		}
		removals, err := l.renameFiles(s, segmentSuffixes[:1], due)
		out = append(out, removals...)
		if err == nil {
			err = l.fs.SyncDir(l.path)
		}
		if err == nil {
			removals, err = l.renameFiles(s, segmentSuffixes[1:], due)
			out = append(out, removals...)
		}
		if err == nil {
			removals, err = l.renameFiles(s, []string{snapshotSuffix}, due)
			out = append(out, removals...)
		}
		if err != nil {
			return out, fmt.Errorf("delete segment %d of %v: %w", s.base, l.partition, err)
		}
	}
	return out, l.fs.SyncDir(l.path)
}

// renameFiles gives some of a segment's files the suffix .deleted, those that are there.
func (l *Log) renameFiles(s *segment, suffixes []string, due time.Time) ([]removal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	files := map[string]*file{logSuffix: s.log}
	if s.idx != nil {
		files[indexSuffix], files[timeIndexSuffix], files[txnIndexSuffix] = s.idx.offsets.file, s.idx.times.file, s.idx.txns
	}
	var out []removal
	stem := l.path + "/" + segmentName(s.base, "")
	for _, suffix := range suffixes {
		name := stem + suffix
		var err error
		x := files[suffix]
		if x != nil {
			err = x.rename(name + deletedSuffix)
		} else {
			err = l.fs.Rename(name, name+deletedSuffix)
		}
		if isNotExist(err) && suffix != logSuffix {
			continue
		}
		if err != nil {
			return out, err
		}
		out = append(out, removal{name + deletedSuffix, due, x})
	}
	return out, nil
}

// forgetSegmentsLocked takes note of what renameSegments did.
func (l *Log) forgetSegmentsLocked(segments []*segment, removals []removal) {
	l.setRemovalsLocked(append(l.removals, removals...))
	l.snapshots = slices.DeleteFunc(slices.Clone(l.snapshots), func(o kafka.Offset) bool {
		return slices.ContainsFunc(segments, func(s *segment) bool { return s.base == o })
	})
}

// removeSegmentsLocked does both, for truncation and recovery.
func (l *Log) removeSegmentsLocked(segments []*segment, now time.Time) error {
	if len(segments) == 0 {
		return nil
	}
	if err := l.removeNowLocked(segments); err != nil {
		return err
	}
	removals, err := l.renameSegments(segments, now, true)
	l.forgetSegmentsLocked(segments, removals)
	return err
}

func (l *Log) setRemovalsLocked(all []removal) {
	l.removals = all
	first := int64(0)
	for _, r := range all {
		if due := r.due.UnixMilli(); first == 0 || due < first {
			first = due
		}
	}
	l.nextRemoval.Store(first)
}

// RemoveDeleted removes the files whose time has come, and says how many.
func (l *Log) RemoveDeleted(now time.Time) (int, error) {
	l.mu.Lock()
	var ripe []removal
	kept := l.removals[:0:0]
	for _, r := range l.removals {
		if l.closed == nil && !r.due.After(now) {
			ripe = append(ripe, r)
		} else {
			kept = append(kept, r)
		}
	}
	l.setRemovalsLocked(kept)
	l.mu.Unlock()
	for _, r := range ripe {
		if r.x != nil {
			_ = r.x.forget(fs.ErrNotExist) // a reader that comes too late looks at the log anew
		}
		if err := l.fs.Remove(r.name); err != nil && !isNotExist(err) {
			return 0, l.fail(fmt.Errorf("remove %s: %w", r.name, err))
		}
	}
	return len(ripe), nil
}
