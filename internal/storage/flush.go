package storage

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/vfs"
)

// Flush makes everything below upTo durable and moves the recovery point there, and further if more is there by now. It
// waits for the disk, so it is not for the replica's lock; appends and reads go on meanwhile. Calls that come together share
// the sync: whoever waited for another one mostly finds its own part done.
//
// Of the active segment only the .log is synced, and the transaction index if it has grown. Whatever else recovery can make anew needs
// no sync while recovery would look for it, as it does in every segment that ends at the recovery point or above (resume.go). But an
// index that was shortened is synced once, for its old entries must not come back.
func (l *Log) Flush(upTo kafka.Offset) error {
	if upTo <= l.recovery.Load() && !l.sealedUnsynced() {
		return l.Err()
	}
	l.flushing.Lock()
	defer l.flushing.Unlock()
	if upTo <= l.recovery.Load() && !l.sealedUnsynced() {
		return l.Err()
	}
	l.mu.Lock()
	if err := l.writableLocked(); err != nil {
		l.mu.Unlock()
		return err
	}
	v := l.view.Load()
	active := v.active()
	end, path, snapshots := active.next(), l.path, l.unsynced
	segments := l.unsyncedSegments(v)
	l.unsynced = nil
	log := active // of which the .log is enough
	if active.indexUnsynced.Swap(false) {
		log = nil
	}
	l.mu.Unlock()
	err := l.syncSegments(path, segments, log, snapshots)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.unsynced = append(snapshots, l.unsynced...)
		if l.closed != nil {
			return l.closed // the directory was deleted under us
		}
		return l.fail(err)
	}
	for _, s := range segments {
		if s != active { // which may have rolled meanwhile
			s.indexUnsynced.Store(false)
		}
	}
	l.recovery.Store(max(l.recovery.Load(), end))
	return nil
}

// FlushAt is Flush for the background: it notes when it happened, for flush.ms.
func (l *Log) FlushAt(now time.Time) error {
	l.lastFlush.Store(now.UnixMilli())
	return l.Flush(l.EndOffset())
}

// unsyncedSegments lists those with something above the recovery point, and those whose indexes aren't synced though they are
// complete.
func (l *Log) unsyncedSegments(v *view) []*segment {
	var out []*segment
	recovery := l.recovery.Load()
	for i, s := range v.segments {
		end := v.active().next()
		if i < len(v.segments)-1 {
			end = v.segments[i+1].base
		}
		if end > recovery && s.size() > 0 || s.indexUnsynced.Load() {
			out = append(out, s)
		}
	}
	return out
}

// FlushDue tells whether flush.ms has passed with something to sync, or a segment has rolled.
func (l *Log) FlushDue(now time.Time) bool {
	if l.sealedUnsynced() {
		return true
	}
	interval := l.config.Load().FlushInterval
	return interval != Never && l.EndOffset() > l.recovery.Load() && now.UnixMilli()-l.lastFlush.Load() >= interval.Milliseconds()
}

// sealedUnsynced tells whether a segment has rolled since the last Flush.
func (l *Log) sealedUnsynced() bool {
	v := l.view.Load()
	// Flush goes through all of them, so an unsynced one is near the end.
	for i := len(v.segments) - 2; i >= 0 && i >= len(v.segments)-3; i-- {
		if v.segments[i].indexUnsynced.Load() {
			return true
		}
	}
	return false
}

// syncSegments syncs segments, with their indexes unless they are active (nil for none), and the small files.
func (l *Log) syncSegments(path string, segments []*segment, active *segment, snapshots []kafka.Offset) error {
	for _, s := range segments {
		err := l.syncFile(s.log)
		switch {
		case err != nil:
		case s != active:
			err = l.syncIndexes(s)
		default:
			err = l.syncTxnIndex(s)
		}
		if err != nil && !(isNotExist(err) && s.isGone()) {
			return err
		}
	}
	for _, o := range snapshots {
		if err := l.syncSnapshot(path, o); err != nil {
			return err
		}
	}
	if l.newDir.Load() {
		if err := l.syncNewDir(path); err != nil {
			return err
		}
		l.newDir.Store(false)
	}
	if l.namesDirty.Swap(false) {
		if err := l.fs.SyncDir(path); err != nil {
			l.namesDirty.Store(true)
			return fmt.Errorf("sync directory %s: %w", path, err)
		}
	}
	return l.writeEpochs(path, l.EndOffset())
}

// syncNewDir makes the name of a new log's directory durable, and its topic id.
func (l *Log) syncNewDir(path string) error {
	f, err := l.fs.Open(path+"/"+partitionMetadataName, vfs.ReadWrite)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
		l.namesDirty.Store(true)
	}
	if err != nil && !isNotExist(err) {
		return err
	}
	return l.dir.syncNames()
}

// writeIndexes writes what the indexes have in memory.
func (s *segment) writeIndexes() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writeIndexesLocked()
}

func (s *segment) writeIndexesLocked() error {
	x := s.idx
	if x == nil { // never loaded, so never changed
		return nil
	}
	err := x.offsets.write()
	if err == nil {
		err = x.times.write()
	}
	if err != nil {
		return fmt.Errorf("write the indexes of %s: %w", s.log.path(), err)
	}
	return nil
}

// syncIndexes writes what the indexes have in memory and syncs them, also if this process has not come to use them: the one before may
// have made them shorter.
func (l *Log) syncIndexes(s *segment) error {
	s.mu.Lock()
	err := l.openIndexesLocked(s)
	if err == nil {
		err = s.writeIndexesLocked()
	}
	x := s.idx
	if err != nil {
		s.mu.Unlock()
		return err
	}
	files := []*file{x.offsets.file, x.times.file}
	if x.txns != nil {
		files = append(files, x.txns)
	}
	x.txnsUnsynced = false
	s.mu.Unlock()
	for _, f := range files {
		if err := l.syncFile(f); err != nil {
			return err
		}
	}
	return nil
}

// syncTxnIndex syncs the transaction index if something was appended to it.
func (l *Log) syncTxnIndex(s *segment) error {
	s.mu.Lock()
	var txns *file
	if s.idx != nil && s.idx.txnsUnsynced {
		txns, s.idx.txnsUnsynced = s.idx.txns, false
	}
	s.mu.Unlock()
	if txns == nil {
		return nil
	}
	return l.syncFile(txns)
}

// syncSnapshot syncs a producer snapshot; one that is gone again needs none.
func (l *Log) syncSnapshot(path string, offset kafka.Offset) error {
	f, err := l.fs.Open(path+"/"+segmentName(offset, snapshotSuffix), vfs.ReadWrite)
	if isNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// writeEpochs brings leader-epoch-checkpoint up to date for a log that ends at end, durably.
func (l *Log) writeEpochs(path string, end kafka.Offset) error {
	entries, ok := l.epochs.toWrite(end)
	if !ok {
		return nil
	}
	if err := vfs.WriteFileAtomic(l.fs, path, epochsName, encodeEpochs(entries)); err != nil {
		l.epochs.markDirty()
		return fmt.Errorf("write %s: %w", path+"/"+epochsName, err)
	}
	return nil
}

// takeSnapshotLocked writes what is known of the producers at l.producers.end, if it has moved since the last snapshot. The
// file isn't synced here: a torn one fails its checksum, and recovery does without.
func (l *Log) takeSnapshotLocked() error {
	ps := l.producers
	if ps.end <= ps.snapshot {
		return nil
	}
	name, content := l.path+"/"+segmentName(ps.end, snapshotSuffix), encodeSnapshot(ps.entries())
	i, found := slices.BinarySearch(l.snapshots, ps.end)
	if found {
		b, err := l.fs.ReadFile(name, maxSnapshotSize)
		found = err == nil && bytes.Equal(b, content)
	}
	if !found {
		if err := l.writeSnapshot(name, content); err != nil {
			return err
		}
	}
	ps.snapshot = ps.end
	if i == len(l.snapshots) || l.snapshots[i] != ps.end {
		l.snapshots = slices.Insert(l.snapshots, i, ps.end)
	}
	l.unsynced = append(l.unsynced, ps.end)
	l.namesDirty.Store(true)
	return nil
}

// writeSnapshot makes a file, or makes it anew.
func (l *Log) writeSnapshot(name string, content []byte) error {
	if err := l.fs.Remove(name); err != nil && !isNotExist(err) {
		return fmt.Errorf("replace producer snapshot: %w", err)
	}
	f, err := l.fs.Create(name)
	if err != nil {
		return fmt.Errorf("create producer snapshot: %w", err)
	}
	_, err = f.WriteAt(content, 0)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write producer snapshot %s: %w", name, err)
	}
	return nil
}

// dropSnapshotsLocked removes producer snapshots for which drop holds.
func (l *Log) dropSnapshotsLocked(drop func(o kafka.Offset) bool) error {
	kept := l.snapshots[:0:0]
	for _, o := range l.snapshots {
		if !drop(o) {
			kept = append(kept, o)
			continue
		}
		if err := l.fs.Remove(l.path + "/" + segmentName(o, snapshotSuffix)); err != nil && !isNotExist(err) {
			return fmt.Errorf("remove producer snapshot: %w", err)
		}
		l.namesDirty.Store(true)
	}
	l.snapshots = kept
	return nil
}

// Close syncs, writes the producers' snapshot and the pending index entries, and closes: after it the log is clean. A log
// that nothing was appended to since it was opened cleanly has nothing to do.
func (l *Log) Close() error { return l.closeBy(l.finishLocked) }

// closeBy closes after finish, unless the log failed before.
func (l *Log) closeBy(finish func() error) error {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil {
		return nil
	}
	err := l.Err()
	if err == nil {
		if err = finish(); err != nil {
			err = l.fail(err)
		}
	}
	cerr := l.shutLocked(ErrClosed)
	if cerr != nil && l.unsettled != nil { // what is not synced yet may be lost
		l.unsettled, cerr = nil, l.fail(cerr)
	}
	return errors.Join(err, cerr)
}

// finishLocked makes all that is in memory durable.
func (l *Log) finishLocked() error {
	segments, err := l.settleLocked()
	if err != nil {
		return err
	}
	if err := l.syncSegments(l.path, segments, nil, l.unsynced); err != nil {
		return err
	}
	l.unsynced = nil
	l.settled(segments)
	return nil
}

// settleLocked writes to the files what is in memory alone, but for indexes and leader epochs, which a sync writes. It returns the
// segments that want one.
func (l *Log) settleLocked() ([]*segment, error) {
	v := l.view.Load()
	s := v.active()
	end := s.next()
	trimmed := s.preallocated
	if err := s.trim(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	var err error
	if s.idx != nil {
		err = s.idx.endTimes(s.base)
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	l.producers.end = max(l.producers.end, end)
	if err := l.takeSnapshotLocked(); err != nil {
		return nil, err
	}
	segments := l.unsyncedSegments(v)
	if (s.dirty() || trimmed) && (len(segments) == 0 || segments[len(segments)-1] != s) {
		segments = append(segments, s)
	}
	return segments, nil
}

// settled notes that a log that is closed is synced as a whole.
func (l *Log) settled(segments []*segment) {
	for _, seg := range segments {
		seg.indexUnsynced.Store(false)
	}
	l.recovery.Store(max(l.recovery.Load(), l.EndOffset()))
}

// dirty tells whether the indexes have entries that aren't synced, as far as the active segment is concerned.
func (s *segment) dirty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idx != nil && s.checked.Load() && s.size() > 0
}

func (s *segment) isGone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

// shutLocked closes the files; all later uses fail with reason.
func (l *Log) shutLocked(reason error) error {
	l.closed = reason
	var errs []error
	for _, s := range l.view.Load().segments {
		errs = append(errs, l.closeSegment(s, reason))
	}
	return errors.Join(errs...)
}

func (l *Log) closeSegment(s *segment, reason error) error {
	err := s.log.forget(reason)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idx != nil {
		err = errors.Join(err, s.idx.close(reason))
	}
	return err
}
