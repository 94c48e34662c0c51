package storage

import (
	"errors"
	"fmt"

	"github.com/highwater/highwater/internal/vfs"
)

// A stop after a crash has to sync every file, since nobody knows what of it is on the disk, and one after thousands of partitions were
// made or written to has much to sync, too: three or four syncs each, a millisecond or more for each of them. So where the disk can be
// synced as a whole the logs are closed unsynced (CloseUnsynced), and one SyncAll comes for all of them (SyncClosed). Nothing counts as
// synced before that: neither recovery points nor the mark of a clean shutdown are written. leader-epoch-checkpoint, which must be the
// old or the new one whatever happens, is renamed between two of these syncs.

// syncAllFrom is how many logs must have something to sync for that: the whole disk is synced, with what others write there. A guess.
const syncAllFrom = 64

// unsettled is what a log that was closed unsynced is waiting for.
type unsettled struct {
	segments []*segment
	epochs   bool // leader-epoch-checkpoint.tmp is to take its place
}

// CanSyncAll tells whether the logs are to be closed by CloseUnsynced and SyncClosed. It tries it, for only that shows whether it can be
// done; an error is the disk's, and takes the directory offline.
func (d *Dir) CanSyncAll() (bool, error) {
	if d.syncer == nil || d.linked.Load() || d.Err() != nil {
		return false, nil
	}
	from := d.o.SyncAllFrom
	if from == 0 {
		from = syncAllFrom
	}
	waiting := 0
	for _, l := range d.All() {
		if l.wantsSync() {
			waiting++
		}
	}
	if waiting < from {
		return false, nil
	}
	err := d.syncer.SyncAll()
	if errors.Is(err, errors.ErrUnsupported) {
		return false, nil
	}
	if err != nil {
		return false, d.fail(fmt.Errorf("sync log directory %s: %w", d.path, err))
	}
	return true, nil
}

// wantsSync tells whether Close would have something to sync, as far as a glance shows.
func (l *Log) wantsSync() bool {
	return l.newDir.Load() || l.namesDirty.Load() || l.EndOffset() > l.recovery.Load() || l.sealedUnsynced() || l.view.Load().active().indexUnsynced.Load()
}

// CloseUnsynced is Close, but nothing is synced, and the log doesn't count as clean, before SyncClosed.
func (l *Log) CloseUnsynced() error {
	return l.closeBy(func() (err error) {
		l.unsettled, err = l.writeAllLocked()
		return err
	})
}

// writeAllLocked writes to the files whatever is in memory alone.
func (l *Log) writeAllLocked() (*unsettled, error) {
	segments, err := l.settleLocked()
	if err != nil {
		return nil, err
	}
	for _, s := range segments {
		if err := s.writeIndexes(); err != nil && !(isNotExist(err) && s.isGone()) {
			return nil, err
		}
	}
	entries, ok := l.epochs.toWrite(l.EndOffset())
	if ok {
		if err := vfs.BeginAtomic(l.fs, l.path+"/"+epochsName, encodeEpochs(entries)); err != nil {
			return nil, fmt.Errorf("write %s/%s: %w", l.path, epochsName, err)
		}
	}
	return &unsettled{segments, ok}, nil
}

// SyncClosed syncs what CloseUnsynced left. An error takes the directory offline.
func (d *Dir) SyncClosed() error {
	var waiting []*Log
	renames := false
	for _, l := range d.All() {
		l.mu.Lock()
		if l.unsettled != nil {
			waiting = append(waiting, l)
			renames = renames || l.unsettled.epochs
		}
		l.mu.Unlock()
	}
	err := d.syncer.SyncAll()
	if err == nil && renames {
		err = d.finishEpochs(waiting)
	}
	if err != nil {
		return d.fail(fmt.Errorf("sync log directory %s: %w", d.path, err))
	}
	for _, l := range waiting {
		l.mu.Lock()
		l.settled(l.unsettled.segments)
		l.unsettled, l.unsynced = nil, nil
		l.mu.Unlock()
		l.newDir.Store(false)
		l.namesDirty.Store(false)
	}
	return nil
}

// finishEpochs puts the leader epochs that are written and synced in place.
func (d *Dir) finishEpochs(logs []*Log) error {
	for _, l := range logs {
		l.mu.Lock()
		path, epochs := l.path, l.unsettled.epochs
		l.mu.Unlock()
		if !epochs {
			continue
		}
		if err := vfs.FinishAtomic(d.o.FS, path+"/"+epochsName); err != nil {
			return err
		}
	}
	return d.syncer.SyncAll()
}

// closeAll closes logs one after the other.
func (d *Dir) closeAll(logs []*Log) error {
	all, err := d.CanSyncAll()
	if err != nil {
		d.shut() // after a sync that failed another one proves nothing
		return err
	}
	var errs []error
	for _, l := range logs {
		if all {
			errs = append(errs, l.CloseUnsynced())
		} else {
			errs = append(errs, l.Close())
		}
	}
	if all {
		errs = append(errs, d.SyncClosed())
	}
	return errors.Join(errs...)
}
