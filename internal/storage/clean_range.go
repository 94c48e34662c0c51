package storage

import (
	"fmt"
	"math"
	"time"

	"github.com/highwater/highwater/internal/kafka"
)

// CleanRange is what a cleaner would do with a compacted log now. Only whole segments are cleaned, and never the active one.
type CleanRange struct {
	// FirstDirty is the first offset that no clean has covered yet; below it keys are unique.
	FirstDirty kafka.Offset
	// FirstUncleanable is the end of what may be cleaned: a segment's base offset, not above the last stable offset, since what
	// is not committed must not push out what is (KAFKA-13194).
	FirstUncleanable kafka.Offset
	CleanBytes       int64 // of the segments that begin below FirstDirty
	CleanableBytes   int64 // of those that hold what is dirty and may be cleaned
	// Overdue is for how long max.compaction.lag.ms has demanded a clean: 0 if it doesn't.
	Overdue time.Duration
	// Note is not empty if the cleaner's checkpoint didn't fit the log, so that it begins anew.
	Note string
}

// Ratio is the dirty part of what may be cleaned, 0 to 1.
func (r *CleanRange) Ratio() float64 {
	if r.CleanBytes+r.CleanableBytes == 0 {
		return 0
	}
	return float64(r.CleanableBytes) / float64(r.CleanBytes+r.CleanableBytes)
}

// CleanedTo is the first offset that no clean has covered, as in cleaner-offset-checkpoint; -1 if the log was never cleaned.
func (l *Log) CleanedTo() kafka.Offset { return l.cleaned.Load() }

// SetCleanedTo is for a log that takes the place of another one, whose files it has. The checkpoint follows.
func (l *Log) SetCleanedTo(offset kafka.Offset) { l.cleaned.Store(offset) }

// lowerCleaned makes what comes from offset on dirty, after a truncation.
func (l *Log) lowerCleaned(offset kafka.Offset) (lowered bool) {
	for {
		old := l.cleaned.Load()
		if old <= offset {
			return false
		}
		if l.cleaned.CompareAndSwap(old, offset) {
			return true
		}
	}
}

// between lists the segments that hold offsets from from to to: the first may begin below from.
func (v *view) between(from, to kafka.Offset) []*segment {
	if from >= to {
		return nil
	}
	i := v.floor(from)
	n := i
	for n < len(v.segments) && v.segments[n].base < to {
		n++
	}
	return v.segments[i:n:n]
}

// sealedFrom lists the segments from the one that holds from on, without the active one.
func (v *view) sealedFrom(from kafka.Offset) []*segment { return v.between(from, v.active().base) }

// CleanRange finds what of the log is dirty and may be cleaned. It may read the headers of a few batches.
func (l *Log) CleanRange(now time.Time) (CleanRange, error) {
	r, err := l.cleanRange(now)
	return r, l.readFailed(err)
}

func (l *Log) cleanRange(now time.Time) (CleanRange, error) {
	v, c := l.view.Load(), l.config.Load()
	start, end := l.start.Load(), v.active().next()
	r := CleanRange{FirstDirty: l.cleaned.Load()}
	switch {
	case r.FirstDirty < 0:
		r.FirstDirty = start
	case r.FirstDirty < start:
		if !c.Delete {
			r.Note = fmt.Sprintf("resetting the first dirty offset of %v to the log start offset %d since the checkpointed offset %d is invalid", l.partition, start, r.FirstDirty)
		}
		l.cleaned.CompareAndSwap(r.FirstDirty, start)
		r.FirstDirty = start
	case r.FirstDirty > end:
		r.Note = fmt.Sprintf("the checkpointed dirty offset of %v, %d, is larger than the log end offset %d: resetting it to the log start offset %d", l.partition, r.FirstDirty, end, start)
		l.cleaned.CompareAndSwap(r.FirstDirty, start)
		r.FirstDirty = start
	}
	if l.Moving() {
		r.FirstUncleanable = r.FirstDirty
		return r, nil
	}
	limit := min(l.LastStableOffset(l.hw.Load()), v.active().base)
	if lag := c.MinCompactionLag; lag > 0 {
		for _, s := range v.sealedFrom(r.FirstDirty) {
			newest, err := l.largestTimestamp(s)
			if err != nil {
				return r, err
			}
			if newest > now.UnixMilli()-lag.Milliseconds() {
				limit = min(limit, s.base)
				break
			}
		}
	}
	limit = max(limit, r.FirstDirty)
	r.FirstUncleanable = v.active().base
	if sealed := v.sealedFrom(limit); len(sealed) > 0 {
		r.FirstUncleanable = sealed[0].base
	}
	for _, s := range v.between(math.MinInt64, r.FirstDirty) {
		r.CleanBytes += s.size()
	}
	for _, s := range v.between(min(r.FirstDirty, r.FirstUncleanable), r.FirstUncleanable) {
		r.CleanableBytes += s.size()
	}
	return r, l.overdue(v, c, now, &r)
}

// overdue looks for the oldest batch that begins a dirty segment, as max.compaction.lag.ms counts.
func (l *Log) overdue(v *view, c *Config, now time.Time, r *CleanRange) error {
	if c.MaxCompactionLag == Never {
		return nil
	}
	oldest := int64(math.MaxInt64)
	for _, s := range v.sealedFrom(r.FirstDirty) {
		s.mu.Lock()
		err := l.openIndexesLocked(s)
		if err == nil && s.idx.hasFirst && s.idx.firstTimestamp > 0 {
			oldest = min(oldest, s.idx.firstTimestamp)
		}
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
	if until := now.UnixMilli() - max(c.MaxCompactionLag, 0).Milliseconds(); oldest < until {
		r.Overdue = Millis(until - oldest)
	}
	return nil
}
