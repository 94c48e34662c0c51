package storage

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/vfs"
)

// TestDiskErrorsTakeTheDirectoryOffline refuses each kind of operation in turn. As in Kafka, a disk that refuses one, be it only to read,
// takes its log directory offline, so that the replicas in it are led from elsewhere. What is no word of the disk's doesn't: a file that
// is gone or too short, or a process without descriptors; it is refused to the one who asked.
func TestDiskErrorsTakeTheDirectoryOffline(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	appendOne := func(_ *Dir, l *Log) error { _, err := plain(l, 300); return err }
	read := func(_ *Dir, l *Log) error {
		s, err := l.Read(0, 1000, true, l.EndOffset())
		if err == nil {
			_, err = s.ReadAt(make([]byte, s.Len()), 0)
			s.Release()
		}
		return err
	}
	byTime := func(_ *Dir, l *Log) error { _, _, err := l.OffsetForTimestamp(1000, l.EndOffset()); return err }
	newest := func(_ *Dir, l *Log) error { _, _, err := l.OffsetOfMaxTimestamp(); return err }
	retain := func(_ *Dir, l *Log) error {
		l.SetHighWatermark(l.EndOffset())
		_, err := l.DeleteOldSegments(now)
		if err == nil {
			_, err = l.RemoveDeleted(now.Add(time.Hour))
		}
		return err
	}
	flush := func(_ *Dir, l *Log) error {
		if _, err := plain(l, 10); err != nil {
			return err
		}
		return l.Flush(l.EndOffset())
	}
	roll := func(d *Dir, l *Log) error {
		for range 5 {
			if err := appendOne(d, l); err != nil {
				return err
			}
		}
		return nil
	}
	truncate := func(_ *Dir, l *Log) error { return l.TruncateTo(l.EndOffset()-1, now) }
	clean := func(_ *Dir, l *Log) error {
		r, err := l.CleanRange(now)
		if err == nil {
			r.FirstUncleanable = l.view.Load().active().base
			var c *Cleaner
			if c, err = NewCleaner(CleanerOptions{DedupeBytes: 1 << 10, LoadFactor: 0.9}); err == nil {
				_, err = c.Clean(l, r, now)
			}
		}
		return err
	}
	recoveryPoints := func(d *Dir, _ *Log) error { return d.CheckpointRecoveryPoints() }
	highWatermarks := func(d *Dir, _ *Log) error { return d.CheckpointHighWatermarks() }
	gone := &fs.PathError{Op: "open", Err: syscall.ENOENT}
	for _, c := range []struct {
		name    string
		do      func(d *Dir, l *Log) error
		kind    vfs.OpKind
		file    string // a part of its name
		err     error
		offline bool
	}{
		{"append", appendOne, vfs.OpWrite, ".log", syscall.EIO, true},
		{"append, disk full", appendOne, vfs.OpWrite, ".log", syscall.ENOSPC, true},
		{"append, read-only", appendOne, vfs.OpWrite, ".log", syscall.EROFS, true},
		{"roll", roll, vfs.OpCreate, ".log", syscall.EIO, true},
		{"flush", flush, vfs.OpSync, ".log", syscall.EIO, true},
		{"roll, index", roll, vfs.OpCreate, ".index", syscall.EIO, true},
		{"open to read", read, vfs.OpOpen, ".log", syscall.EIO, true},
		{"open to read, no permission", read, vfs.OpOpen, ".log", syscall.EACCES, true},
		{"read", read, vfs.OpRead, ".log", syscall.EIO, true},
		{"read an index", read, vfs.OpOpen, ".index", syscall.EIO, true},
		{"offset by time", byTime, vfs.OpRead, ".log", syscall.EIO, true},
		{"offset by time, index", byTime, vfs.OpOpen, ".timeindex", syscall.EIO, true},
		{"newest timestamp", newest, vfs.OpOpen, ".timeindex", syscall.EIO, true},
		{"retention reads", retain, vfs.OpOpen, ".timeindex", syscall.EIO, true},
		{"retention renames", retain, vfs.OpRename, ".log", syscall.EIO, true},
		{"retention syncs names", retain, vfs.OpSyncDir, "", syscall.EIO, true},
		{"removal", retain, vfs.OpRemove, ".deleted", syscall.EIO, true},
		{"truncation", truncate, vfs.OpTruncate, ".log", syscall.EIO, true},
		{"compaction reads", clean, vfs.OpRead, ".log", syscall.EIO, true},
		{"compaction writes", clean, vfs.OpSync, ".cleaned", syscall.EIO, true},
		{"compaction swaps", clean, vfs.OpRename, ".cleaned", syscall.EIO, true},
		{"checkpoint", recoveryPoints, vfs.OpCreate, "recovery-point", syscall.EIO, true},
		{"checkpoint's sync", highWatermarks, vfs.OpSync, "replication-offset", syscall.EIO, true},
		{"checkpoint's rename", highWatermarks, vfs.OpRename, "replication-offset", syscall.EIO, true},

		{"no descriptor to read", read, vfs.OpOpen, ".log", vfs.ErrNoDescriptors, false},
		{"no descriptor for an index", byTime, vfs.OpOpen, ".timeindex", vfs.ErrNoDescriptors, false},
		{"no descriptor for retention", retain, vfs.OpOpen, ".timeindex", vfs.ErrNoDescriptors, false},
		{"no descriptor for compaction", clean, vfs.OpOpen, ".log", vfs.ErrNoDescriptors, false},
		{"a log that is gone", read, vfs.OpOpen, ".log", gone, false},
		{"a log that is too short", byTime, vfs.OpRead, ".log", io.ErrUnexpectedEOF, false},
		{"compaction of a log that is too short", clean, vfs.OpRead, ".log", io.ErrUnexpectedEOF, false},
	} {
		fsys := vfs.NewMem()
		config := DefaultConfig()
		config.SegmentBytes, config.IndexIntervalBytes = 1200, 100
		config.RetentionTime, config.FileDeleteDelay = time.Second, 0
		d, l := faultLog(t, fsys, config)
		for range 10 {
			if _, err := plain(l, 300); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Close(1); err != nil {
			t.Fatal(err)
		}
		d = newDir(t, fsys) // with no file open
		dirs, err := d.Partitions()
		if err != nil {
			t.Fatal(err)
		}
		if l, _, err = d.Open(dirs[0], config, now); err != nil {
			t.Fatal(err)
		}
		hit := false
		fsys.SetFault(func(op vfs.Op) error {
			if op.Kind != c.kind || !strings.Contains(op.Name, c.file) {
				return nil
			}
			hit = true
			return &namedError{op.Kind.String() + " " + op.Name, c.err}
		})
		if err := c.do(d, l); !hit || !errors.Is(err, c.err) {
			t.Errorf("%s: %v (asked for %v)", c.name, err, hit)
		}
		fsys.SetFault(nil)
		switch offline := d.Err(); {
		case (offline != nil) != c.offline:
			t.Errorf("%s: the directory says %v", c.name, offline)
		case c.offline && !errors.Is(offline, c.err):
			t.Errorf("%s: the directory doesn't name the cause: %v", c.name, offline)
		case !c.offline:
			// As if nothing had been.
			if err := errors.Join(read(d, l), byTime(d, l), appendOne(d, l), flush(d, l)); err != nil {
				t.Errorf("%s: and then: %v", c.name, err)
			}
		}
	}
}

// TestSegmentVanishesAtOpening: a segment that is listed and then isn't there, as a symbolic link to nothing is, is the partition's fault,
// not the disk's.
func TestSegmentVanishesAtOpening(t *testing.T) {
	fsys := vfs.NewMem()
	d, l := faultLog(t, fsys, DefaultConfig())
	if _, err := plain(l, 300); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(1); err != nil {
		t.Fatal(err)
	}
	d = newDir(t, fsys)
	dirs, err := d.Partitions()
	if err != nil {
		t.Fatal(err)
	}
	fsys.SetFault(func(op vfs.Op) error {
		if op.Kind == vfs.OpStat && strings.HasSuffix(op.Name, ".log") {
			return &fs.PathError{Op: "stat", Path: op.Name, Err: syscall.ENOENT}
		}
		return nil
	})
	_, _, err = d.Open(dirs[0], DefaultConfig(), time.UnixMilli(1_000_000))
	var c *CorruptError
	if !errors.As(err, &c) || !strings.HasSuffix(c.File, "/00000000000000000000.log") {
		t.Errorf("%v", err)
	}
	if err := d.Err(); err != nil {
		t.Errorf("the directory says %v", err)
	}
	if d.Doubt() == nil {
		t.Error("the directory would get a mark of a clean shutdown")
	}
}
