package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/vfs"
)

// A segment that a cleaner writes gets into the log in Kafka's steps, which either release's recovery (recover.go) can finish or undo:
//
//  1. The new files are written as .cleaned and synced, with their names. After a crash they are removed.
//  2. They are renamed to .swap. As long as one of them is .cleaned, a crash still undoes all of it; from here on it goes through.
//  3. Readers get the new segment. The old files are renamed to .deleted, each .log first: an index without a log is removed by
//     the next start, but a log without its transaction index would show what was aborted.
//  4. The .swap files get their names, the .log first: as long as it is .swap, recovery removes what stands in its place.
//
// Between the steps the directory is synced, since a power cut may keep any part of the names that weren't.

// cleanedSegment is a segment being written by a cleaner.
type cleanedSegment struct {
	l        *Log
	seg      *segment
	idx      *indexes
	aborted  []abortedEntry
	size     int64
	pending  int64 // of size, not written yet
	interval int
	modified int64 // ms; of the last of the old files
	shown    bool  // in the list of segments
}

// segmentSuffixes are those of a segment's files, the .log first.
var segmentSuffixes = [...]string{logSuffix, indexSuffix, timeIndexSuffix, txnIndexSuffix}

// newCleaned makes the files of a segment that is to begin at base, unless the log was truncated since cuts.
func (l *Log) newCleaned(base kafka.Offset, cuts uint64) (*cleanedSegment, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(); err != nil {
		return nil, err
	}
	if l.cuts.Load() != cuts {
		return nil, ErrCleaningAborted
	}
	if err := l.removeCleanedLocked(base); err != nil {
		return nil, l.fail(err)
	}
	x, _, err := l.files.create(l.path + "/" + segmentName(base, logSuffix) + cleanedSuffix)
	if err != nil {
		return nil, l.writeFailed(fmt.Errorf("create cleaned segment: %w", err))
	}
	// It stays in use until close: what is being written must not lose its descriptor.
	s := &segment{base: base, log: x}
	w := &cleanedSegment{l: l, seg: s, interval: int(l.config.Load().IndexIntervalBytes)}
	w.idx = l.newIndexes(s)
	for _, e := range []*entryFile{&w.idx.offsets, &w.idx.times} {
		f, _, err := l.files.create(e.file.path() + cleanedSuffix)
		if err != nil {
			x.release()
			_ = x.forget(ErrClosed) // nobody needs what is in it
			return nil, l.writeFailed(fmt.Errorf("create indexes of cleaned segment: %w", err))
		}
		f.release()
		e.file = f
	}
	return w, nil
}

// writeFailed makes an error in writing a cleaned segment the log's failure, but for a full disk: then what is there stays good,
// and a clean may be what makes room. The same holds if there are no descriptors.
func (l *Log) writeFailed(err error) error {
	if errors.Is(err, vfs.ErrNoSpace) || errors.Is(err, vfs.ErrNoDescriptors) || isNotExist(err) || errors.Is(err, ErrClosed) {
		return err
	}
	return l.fail(err)
}

// removeCleanedLocked removes .cleaned files of an earlier try.
func (l *Log) removeCleanedLocked(base kafka.Offset) error {
	for _, suffix := range segmentSuffixes {
		name := l.path + "/" + segmentName(base, suffix) + cleanedSuffix
		if err := l.fs.Remove(name); err != nil && !isNotExist(err) {
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	return nil
}

// add notes a batch that comes next. Its bytes follow in write.
func (w *cleanedSegment) add(r record.Filtered) error {
	s := w.seg
	if !s.fits(r.LastOffset) || w.size+int64(r.Size) > math.MaxInt32 {
		return corrupt(s.log.path(), w.size, "offset %d doesn't fit a segment of %d bytes that begins at %d", r.LastOffset, w.size, s.base)
	}
	if err := w.idx.add(s.base, w.size, r.Size, r.LastOffset, r.MaxTimestamp, w.interval); err != nil {
		return w.l.writeFailed(fmt.Errorf("append to the index of %s: %w", s.log.path(), err))
	}
	w.size += int64(r.Size)
	w.pending += int64(r.Size)
	return nil
}

func (w *cleanedSegment) write(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	f, err := w.seg.log.use()
	if err != nil {
		return w.l.writeFailed(err)
	}
	defer w.seg.log.release()
	if _, err := f.WriteAt(p, w.size-w.pending); err != nil {
		return w.l.writeFailed(fmt.Errorf("write %s: %w", f.Name(), err))
	}
	w.pending = 0
	return nil
}

// finish writes and syncs the files, with their names and the time of the old ones' last change: records without timestamps have no
// other time.
func (w *cleanedSegment) finish() error {
	l, s, x := w.l, w.seg, w.idx
	err := x.endTimes(s.base)
	if err == nil {
		err = x.offsets.write()
	}
	if err == nil {
		err = x.times.write()
	}
	if err == nil {
		err = w.writeAborted()
	}
	if err == nil {
		err = l.syncFile(s.log)
	}
	for _, f := range w.files()[1:] {
		if err == nil {
			err = l.syncFile(f)
		}
	}
	if err == nil {
		err = l.fs.SetModTime(s.log.path(), time.UnixMilli(w.modified))
	}
	if err != nil {
		return l.writeFailed(fmt.Errorf("finish cleaned segment %s: %w", s.log.path(), err))
	}
	x.offsets.cool()
	x.times.cool()
	return nil
}

// writeAborted makes the transaction index, if there is something in it.
func (w *cleanedSegment) writeAborted() error {
	if len(w.aborted) == 0 {
		return nil
	}
	s, x := w.seg, w.idx
	var b []byte
	for _, e := range w.aborted {
		b = e.append(b)
	}
	txns, f, err := w.l.files.create(s.path(txnIndexSuffix) + cleanedSuffix)
	if err != nil {
		return err
	}
	defer txns.release()
	if _, err := f.WriteAt(b, 0); err != nil {
		return err
	}
	x.txns, x.aborted, s.hasTxnIndex = txns, w.aborted, true
	return nil
}

// files are the segment's, the .log first.
func (w *cleanedSegment) files() []*file {
	all := []*file{w.seg.log, w.idx.offsets.file, w.idx.times.file}
	if w.idx.txns != nil {
		all = append(all, w.idx.txns)
	}
	return all
}

// close ends the writing. If the segment didn't get into the log, its files are removed. Nothing is lost if that fails: the next try,
// or start, does it.
func (w *cleanedSegment) close() {
	l := w.l
	w.seg.log.release()
	if w.shown {
		return
	}
	for _, f := range w.files() {
		_ = f.forget(ErrClosed)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed == nil && l.Err() == nil {
		_ = l.removeCleanedLocked(w.seg.base)
	}
}

// replaceSegments puts a cleaned segment in place of old ones, which must still be there just so. An error that wraps
// ErrCleaningAborted, or any before the first rename, leaves the log as it was.
func (l *Log) replaceSegments(old []*segment, w *cleanedSegment, cuts uint64, now time.Time) error {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	at, err := l.prepareSwap(old, cuts)
	if err != nil {
		return err
	}
	if err := l.fs.SyncDir(l.path); err != nil {
		return l.writeFailed(fmt.Errorf("sync directory %s: %w", l.path, err))
	}
	files, suffixes := w.files(), segmentSuffixes
	stem := l.path + "/" + segmentName(w.seg.base, "")
	for i, f := range files {
		if err := f.rename(stem + suffixes[i] + swapSuffix); err != nil {
			return l.fail(fmt.Errorf("rename cleaned segment %d of %v: %w", w.seg.base, l.partition, err))
		}
	}
	if err := l.fs.SyncDir(l.path); err != nil {
		return l.fail(fmt.Errorf("sync directory %s: %w", l.path, err))
	}
	l.showSwapped(at, len(old), w)
	removals, err := l.renameReplaced(old, now)
	l.mu.Lock()
	l.setRemovalsLocked(append(l.removals, removals...))
	l.snapshots = slices.DeleteFunc(slices.Clone(l.snapshots), func(o kafka.Offset) bool {
		return slices.ContainsFunc(old[1:], func(s *segment) bool { return s.base == o })
	})
	l.mu.Unlock()
	if err == nil {
		err = files[0].rename(stem + logSuffix)
	}
	if err == nil {
		err = l.fs.SyncDir(l.path)
	}
	for i, f := range files[1:] {
		if err == nil {
			err = f.rename(stem + suffixes[i+1])
		}
	}
	if err == nil {
		err = l.fs.SyncDir(l.path)
	}
	if err != nil {
		return l.fail(fmt.Errorf("swap cleaned segment %d into %v: %w", w.seg.base, l.partition, err))
	}
	return nil
}

// prepareSwap finds the place of old in the list of segments. The caller holds flushing, so but for new ones at the end the list stays as it is.
func (l *Log) prepareSwap(old []*segment, cuts uint64) (at int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(); err != nil {
		return 0, err
	}
	segments := l.view.Load().segments
	at = slices.Index(segments, old[0])
	if l.cuts.Load() != cuts || at < 0 || at+len(old) >= len(segments) || !slices.Equal(segments[at:at+len(old)], old) {
		return 0, ErrCleaningAborted
	}
	return at, l.removeNowLocked(old)
}

// removeNowLocked removes files that wait for their removal under the names that those of segments are about to get. Who still has an
// open descriptor goes on; who would open one by its name must not get the other file.
func (l *Log) removeNowLocked(segments []*segment) error {
	if len(l.removals) == 0 {
		return nil
	}
	names := make(map[string]bool, 5*len(segments))
	for _, s := range segments {
		for _, suffix := range [...]string{logSuffix, indexSuffix, timeIndexSuffix, txnIndexSuffix, snapshotSuffix} {
			names[l.path+"/"+segmentName(s.base, suffix)+deletedSuffix] = true
		}
	}
	var kept []removal
	for _, r := range l.removals {
		if !names[r.name] {
			kept = append(kept, r)
			continue
		}
		if r.x != nil {
			_ = r.x.forget(fs.ErrNotExist)
		}
		if err := l.fs.Remove(r.name); err != nil && !isNotExist(err) {
			return l.fail(fmt.Errorf("remove %s: %w", r.name, err))
		}
	}
	l.setRemovalsLocked(kept)
	return nil
}

// showSwapped lets readers see the new segment.
func (l *Log) showSwapped(at, n int, w *cleanedSegment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.view.Load()
	s := w.seg
	s.idx = w.idx
	s.setEnd(min(v.segments[at+n].base, s.base+math.MaxInt32+1), w.size)
	s.checked.Store(true)
	w.shown = true
	segments := append(v.segments[:at:at], s)
	l.view.Store(&view{append(segments, v.segments[at+n:]...)})
}

// renameReplaced gives the files of replaced segments the suffix .deleted. The producers' snapshot of the first one stays: it belongs to
// the new segment as well.
func (l *Log) renameReplaced(old []*segment, now time.Time) ([]removal, error) {
	due := now.Add(l.config.Load().FileDeleteDelay)
	var out []removal
	for _, suffixes := range [][]string{segmentSuffixes[:1], segmentSuffixes[1:]} {
		for i, s := range old {
			removals, err := l.renameFiles(s, suffixes, due)
			if out = append(out, removals...); err == nil && len(suffixes) > 1 && i > 0 {
				removals, err = l.renameFiles(s, []string{snapshotSuffix}, due)
				out = append(out, removals...)
			}
			if err != nil {
				return out, fmt.Errorf("delete segment %d of %v: %w", s.base, l.partition, err)
			}
		}
		if err := l.fs.SyncDir(l.path); err != nil {
			return out, fmt.Errorf("sync directory %s: %w", l.path, err)
		}
	}
	return out, nil
}
