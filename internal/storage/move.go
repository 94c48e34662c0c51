package storage

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
)

// How a replica moves from one log directory into another while it serves. In the directory where it goes a log grows whose
// name ends in -future: CopyFrom appends to it what the current log has, again and again, until it has all. Then, while nobody
// appends, TakeOver gives it the partition's name, and only after that is durable the old log is renamed to …-delete.
//
// What a power cut leaves: before the renames the current log, which is whole, and a future one, from whose end copying goes
// on. Between them two logs of the partition's name, of which the one in the new directory has everything that the other
// has: whoever opens both keeps the longer one. After them the new log alone. Kafka takes the same steps in the same order.

// CreateFuture makes the empty log of a replica that is to move into this directory. unique makes the directory's name so.
func (d *Dir) CreateFuture(p kafka.TopicPartition, id kafka.TopicID, unique [16]byte, c Config, now time.Time) (*Log, error) {
	l := d.newLog(p, d.path+"/"+futureDir(p, unique), c)
	l.future = true
	return d.create(l, id, now)
}

// FutureNameFits tells whether the name of a partition's future directory is one that a file system takes.
func FutureNameFits(p kafka.TopicPartition) bool { return len(futureDir(p, [16]byte{})) <= 255 }

// Future is the open log of a replica on its way into this directory, or nil.
func (d *Dir) Future(p kafka.TopicPartition) *Log {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.futures[p]
}

// Futures lists them by topic and partition.
func (d *Dir) Futures() []*Log {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]*Log, 0, len(d.futures))
	for _, l := range d.futures {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b *Log) int { return comparePartitions(a.partition, b.partition) })
	return out
}

// Count is how many logs lie in the directory or are on their way into it.
func (d *Dir) Count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.logs) + len(d.futures)
}

// Drop forgets a log whose directory has failed: its files are closed and nothing of it is touched any more.
func (d *Dir) Drop(l *Log) {
	l.mu.Lock()
	if l.closed == nil {
		_ = l.shutLocked(ErrClosed) // nothing is promised about its files
	}
	l.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.logs[l.partition] == l {
		delete(d.logs, l.partition)
		d.sorted = nil
	}
	if d.futures[l.partition] == l {
		delete(d.futures, l.partition)
	}
}

// SetAside renames the directory of a future replica that can't be opened to …-stray.
func (d *Dir) SetAside(p PartitionDir) error {
	stem, ok := strings.CutSuffix(p.Name, futureDirSuffix)
	if !ok || p.Kind != Future {
		return fmt.Errorf("set aside: %s is not the name of a future replica", p.Name)
	}
	err := d.o.FS.Rename(d.path+"/"+p.Name, d.path+"/"+stem+strayDirSuffix)
	if err == nil {
		err = d.o.FS.SyncDir(d.path)
	}
	if err != nil {
		return d.fail(fmt.Errorf("set aside %s: %w", p.Name, err))
	}
	return nil
}

// SetMoving says whether a copy of this log is being made in another directory. Meanwhile it must not be compacted: the copy
// could keep what a tombstone deletes that is gone when copying comes to its place.
func (l *Log) SetMoving(yes bool) {
	l.moving.Store(yes)
	if yes {
		l.cuts.Add(1) // ends a clean that is under way
	}
}

// Moving tells what SetMoving said last.
func (l *Log) Moving() bool { return l.moving.Load() }

// CopyFrom appends to a future log what from has and it lacks: whole batches of at most limit bytes, but at least one; buf is
// used for them, and returned, perhaps larger. Where the histories part, because from was truncated, l is cut first. n is how
// many bytes were appended; caughtUp tells that l had everything when CopyFrom looked. An error that l.Err doesn't know is one
// of reading from.
func (l *Log) CopyFrom(from *Log, limit int, buf []byte, now time.Time) (n int, caughtUp bool, _ []byte, err error) {
	if err := l.align(from, now); err != nil {
		return 0, false, buf, err
	}
	next, end := l.EndOffset(), from.EndOffset()
	if next < end {
		s, err := from.Read(next, limit, true, end)
		if err != nil {
			return 0, false, buf, err
		}
		n, buf, err = l.copySlice(from, &s, buf, now)
		s.Release()
		if err != nil {
			return n, false, buf, err
		}
		if n == 0 {
			// Compaction took everything up to the end.
			if err := l.skipTo(from, end, now); err != nil {
				return 0, false, buf, err
			}
		}
	}
	l.SetHighWatermark(max(l.HighWatermark(), min(from.HighWatermark(), l.EndOffset())))
	if start := min(from.StartOffset(), l.HighWatermark()); start > l.StartOffset() {
		if _, err := l.AdvanceStartOffset(start); err != nil {
			return n, false, buf, err
		}
	}
	return n, l.EndOffset() == from.EndOffset(), buf, nil
}

// align makes l a prefix of from, or what follows from's start if l has nothing of that.
func (l *Log) align(from *Log, now time.Time) error {
	start, end := from.StartOffset(), from.EndOffset()
	next := l.EndOffset()
	to := min(next, end)
	if e, ok := l.epochs.latest(); ok {
		if found, ends := from.epochs.endOffset(e.Epoch, end); found != e.Epoch || ends < next {
			to = min(to, commonEnd(l.Epochs(), next, from.Epochs(), end))
		}
	}
	if to < next && to > l.StartOffset() && to >= start {
		if err := l.TruncateTo(to, now); err != nil {
			return err
		}
		l.SetHighWatermark(min(l.HighWatermark(), to))
		return nil
	}
	if to < next || next < start {
		return l.startAt(from, start, now)
	}
	return nil
}

// startAt empties the log; its next record is that at offset. Of producers all of whose batches in from lie below, no batch will tell: so they
// are known from the beginning, and stand in all snapshots.
func (l *Log) startAt(from *Log, offset kafka.Offset, now time.Time) error {
	if err := l.TruncateFullyAndStartAt(offset, offset, now); err != nil {
		return err
	}
	l.SetHighWatermark(offset)
	ps := from.producersBelow(offset)
	if len(ps.byID) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(); err != nil {
		return err
	}
	l.producers = ps
	l.publishUnstableLocked()
	if err := l.takeSnapshotLocked(); err != nil {
		return l.fail(err)
	}
	return nil
}

// producersBelow are copies of the producers that have no batch at or above offset and no open transaction.
func (l *Log) producersBelow(offset kafka.Offset) *producers {
	l.mu.Lock()
	defer l.mu.Unlock()
	ps := newProducers(offset)
	ps.snapshot = -1
	for _, p := range l.producers.byID {
		if p.n > 0 && p.batches[p.n-1].lastOffset < offset && p.txnFirstOffset < 0 {
			q := *p
			ps.add(&q)
		}
	}
	return ps
}

// commonEnd is where two logs part that end at aEnd and bEnd: the end of the newest epoch that both have, in the one that ends it
// first. Nothing is common without such an epoch.
func commonEnd(a []EpochStart, aEnd kafka.Offset, b []EpochStart, bEnd kafka.Offset) kafka.Offset {
	for i := len(a) - 1; i >= 0; i-- {
		j := slices.IndexFunc(b, func(e EpochStart) bool { return e.Epoch == a[i].Epoch })
		if j < 0 {
			continue
		}
		if i+1 < len(a) {
			aEnd = a[i+1].Start
		}
		if j+1 < len(b) {
			bEnd = b[j+1].Start
		}
		return min(aEnd, bEnd)
	}
	return -1
}

// copySlice appends what s, a piece of from, holds.
func (l *Log) copySlice(from *Log, s *Slice, buf []byte, now time.Time) (int, []byte, error) {
	if s.Len() == 0 {
		return 0, buf, nil
	}
	if cap(buf) < s.Len() {
		buf = make([]byte, s.Len())
	}
	buf = buf[:s.Len()]
	if m, err := s.ReadAt(buf, 0); m < len(buf) {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, buf, fmt.Errorf("copy %v: %w", from.partition, err)
	}
	v, err := record.Validate(buf, &record.Options{Partition: l.partition, Origin: record.Replica, LeaderEpoch: math.MaxInt32})
	if err != nil {
		return 0, buf, corrupt(s.f.Name(), s.pos, "%v", err)
	}
	defer v.Release()
	if len(v.Batches) == 0 {
		return 0, buf, corrupt(s.f.Name(), s.pos, "no batch where offset %d should be", s.offset)
	}
	if first := v.Batches[0].FirstOffset; first < l.EndOffset() {
		// The log start may lie inside of a batch, which comes whole.
		if l.Size() > 0 {
			return 0, buf, corrupt(s.f.Name(), s.pos, "the batch at offset %d reaches back to %d, before what is copied already", s.offset, first)
		}
		if err := l.startAt(from, first, now); err != nil {
			return 0, buf, err
		}
	}
	if _, err := l.AppendAsFollower(v, now); err != nil {
		return 0, buf, err
	}
	return len(v.Bytes), buf, nil
}

// skipTo lets the log end at end without anything in between.
func (l *Log) skipTo(from *Log, end kafka.Offset, now time.Time) error {
	if l.Size() == 0 {
		return l.startAt(from, end, now)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(); err != nil {
		return err
	}
	if err := l.activateLocked(); err != nil {
		return err
	}
	_, err := l.rollLocked(end, now)
	return err
}

// PrepareTakeOver makes all of a future log durable, with what the directory's checkpoints say of it, so that TakeOver has
// little to do.
func (l *Log) PrepareTakeOver() error {
	if err := l.Flush(l.EndOffset()); err != nil {
		return err
	}
	return errors.Join(l.dir.CheckpointRecoveryPoints(), l.dir.CheckpointStartOffsets(), l.dir.CheckpointHighWatermarks())
}

// TakeOver makes the future log l the partition's: it gets the partition's directory name, durably, and from from, the log that it
// takes the place of, what batches don't tell: the state of producers that retention took the batches of, epochs without
// records, the high watermark. Both must end at the same offset and nobody may append meanwhile. From is left as it is: its
// owner deletes it next. A nil from means that there is none.
//
// With an error l has failed, or nothing was done.
func (l *Log) TakeOver(from *Log) error {
	if from != nil {
		from.mu.Lock()
		defer from.mu.Unlock()
	}
	l.flushing.Lock()
	defer l.flushing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(); err != nil {
		return err
	}
	if from != nil {
		if from.closed != nil {
			return from.closed
		}
		if a, b := l.view.Load().active().next(), from.view.Load().active().next(); a != b {
			return fmt.Errorf("log %s ends at %d, and %s at %d: it can't take its place", l.path, a, from.path, b)
		}
		if err := l.inheritLocked(from); err != nil {
			return l.fail(fmt.Errorf("take over from %s: %w", from.path, err))
		}
	}
	to := l.dir.path + "/" + l.partition.String()
	if _, err := l.fs.Stat(to); err == nil {
		return fmt.Errorf("log %s can't get the partition's name: %s exists", l.path, to)
	}
	err := l.fs.Rename(l.path, to)
	if err == nil {
		l.renamedLocked(to)
		err = l.fs.SyncDir(l.dir.path)
	}
	if err != nil {
		return l.fail(fmt.Errorf("rename log %s: %w", l.path, err))
	}
	l.future = false
	l.dir.mu.Lock()
	defer l.dir.mu.Unlock()
	delete(l.dir.futures, l.partition)
	l.dir.logs[l.partition], l.dir.sorted = l, nil
	return nil
}

// inheritLocked takes from the log that l is a copy of what the copied batches don't say, durably.
func (l *Log) inheritLocked(from *Log) error {
	start := from.start.Load()
	l.hw.Store(max(l.hw.Load(), from.hw.Load()))
	l.cleaned.Store(from.cleaned.Load()) // nothing was compacted while the log was copied
	l.advanceStartLocked(start)
	l.epochs.inherit(from.epochs.list())
	l.epochs.truncateStart(l.start.Load())
	ps := from.producers.clone()
	ps.snapshot = -1 // the one that l may have at this offset was made without them
	if len(ps.byID) == 0 {
		ps.snapshot = ps.end
	}
	l.producers = ps
	l.publishUnstableLocked()
	if len(ps.byID) > 0 || from.recovery.Load() > l.recovery.Load() {
		if err := l.finishLocked(); err != nil {
			return err
		}
	} else if err := l.writeEpochs(l.path, l.view.Load().active().next()); err != nil {
		return err
	}
	return l.dir.CheckpointStartOffsets()
}

// renamedLocked takes note that the log's directory has got another name.
func (l *Log) renamedLocked(to string) {
	from := l.path
	l.path = to
	for _, s := range l.view.Load().segments {
		s.log.moved(from, to)
		s.mu.Lock()
		if s.idx != nil {
			for _, x := range []*file{s.idx.offsets.file, s.idx.times.file, s.idx.txns} {
				if x != nil {
					x.moved(from, to)
				}
			}
		}
		s.mu.Unlock()
	}
	for i := range l.removals {
		r := &l.removals[i]
		r.name = to + "/" + path.Base(r.name)
		if r.x != nil {
			r.x.moved(from, to)
		}
	}
}

// inherit replaces the history by another one.
func (h *EpochHistory) inherit(entries []EpochStart) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.entries, entries) {
		h.entries, h.dirty = entries, true
	}
}

// clone is a copy that shares nothing.
func (ps *producers) clone() *producers {
	c := &producers{ongoing: slices.Clone(ps.ongoing), unreplicated: slices.Clone(ps.unreplicated), end: ps.end, snapshot: ps.snapshot}
	for _, p := range ps.byID {
		q := *p
		c.add(&q)
	}
	return c
}
