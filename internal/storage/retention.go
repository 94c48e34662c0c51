package storage

import (
	"errors"
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
func (l *Log) DeleteOldSegments(now time.Time) ([]DeletedSegment, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(); err != nil {
		return nil, err
	}
	var deleted []DeletedSegment
	c := l.config.Load()
	start := l.start.Load()
	rules := []struct {
		reason string
		on     bool
		due    func(s *segment, next kafka.Offset) (bool, error)
	}{
		{"log start offset", true, func(s *segment, next kafka.Offset) (bool, error) { return next <= start, nil }},
		{"retention.bytes", c.Delete && c.RetentionBytes >= 0, func() func(s *segment, _ kafka.Offset) (bool, error) {
			over := l.Size() - c.RetentionBytes
			return func(s *segment, _ kafka.Offset) (bool, error) {
				if over -= s.size(); over < 0 {
					return false, nil
				}
				return true, nil
			}
		}()},
		{"retention.ms", c.Delete && c.RetentionTime >= 0, func(s *segment, _ kafka.Offset) (bool, error) {
			t, err := l.largestTimestamp(s)
			return err == nil && Millis(now.UnixMilli()-t) > c.RetentionTime, err
		}},
	}
	for _, r := range rules {
		if !r.on {
			continue
		}
		d, err := l.deleteWhileLocked(r.reason, r.due, now)
		deleted = append(deleted, d...)
		if err != nil {
			var c *CorruptError
			if errors.As(err, &c) {
				return deleted, err // nothing was changed by a segment that cannot be read
			}
			return deleted, l.fail(err)
		}
	}
	return deleted, nil
}

// deleteWhileLocked deletes segments from the oldest on while due holds.
func (l *Log) deleteWhileLocked(reason string, due func(s *segment, next kafka.Offset) (bool, error), now time.Time) ([]DeletedSegment, error) {
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
		if ok, err := due(s, next); err != nil || !ok {
			if err != nil {
				return nil, err
			}
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
	old := v.segments[:n]
	// Readers go by the log start, so that moves before the segments disappear.
	l.advanceStartLocked(v.segments[n].base)
	l.view.Store(&view{v.segments[n:len(v.segments):len(v.segments)]})
	deleted, err := l.removeSegmentsLocked(old, now)
	for i := range deleted {
		deleted[i].Reason = reason
	}
	return deleted, err
}

// removeSegmentsLocked gives the files of segments that are no longer in the view the suffix .deleted and notes when they are
// to be removed. Who still reads them goes on undisturbed.
func (l *Log) removeSegmentsLocked(segments []*segment, now time.Time) ([]DeletedSegment, error) {
	var out []DeletedSegment
	due := now.Add(l.config.Load().FileDeleteDelay)
	for _, s := range segments {
		out = append(out, DeletedSegment{BaseOffset: s.base, Size: s.size()})
		if err := l.markDeletedLocked(s, due); err != nil {
			return out, fmt.Errorf("delete segment %d of %v: %w", s.base, l.partition, err)
		}
	}
	return out, nil
}

func (l *Log) markDeletedLocked(s *segment, due time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	files := map[string]*file{logSuffix: s.log}
	if s.idx != nil {
		files[indexSuffix], files[timeIndexSuffix], files[txnIndexSuffix] = s.idx.offsets.file, s.idx.times.file, s.idx.txns
	}
	stem := l.path + "/" + segmentName(s.base, "")
	// The log goes last: as long as it has its name the segment is there, and a start finds all of it.
	for _, suffix := range [...]string{snapshotSuffix, txnIndexSuffix, timeIndexSuffix, indexSuffix, logSuffix} {
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
			return err
		}
		l.removals = append(l.removals, removal{name + deletedSuffix, due, x})
	}
	if i, found := slices.BinarySearch(l.snapshots, s.base); found {
		l.snapshots = slices.Delete(slices.Clone(l.snapshots), i, i+1)
	}
	return nil
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
	l.removals = kept
	l.mu.Unlock()
	for _, r := range ripe {
		var err error
		if r.x != nil {
			err = r.x.forget(fs.ErrNotExist) // a reader that comes too late looks at the log anew
		}
		if rerr := l.fs.Remove(r.name); rerr != nil && !isNotExist(rerr) {
			err = rerr
		}
		if err != nil {
			return 0, l.fail(fmt.Errorf("remove %s: %w", r.name, err))
		}
	}
	return len(ripe), nil
}
