package storage

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/vfs"
)

// TestNoDescriptors: when the process has none left, since connections took them, idle files are closed and everything goes on: appends,
// reads, rolls, syncs, checkpoints, removals, a clean stop. No directory goes offline for it.
func TestNoDescriptors(t *testing.T) {
	fsys := vfs.NewMem()
	if err := fsys.MkdirAll("d"); err != nil {
		t.Fatal(err)
	}
	files := NewFiles(fsys, 64)
	d, err := OpenDir("d", Options{FS: fsys, Files: files})
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	most := 20
	fsys.SetFault(func(op vfs.Op) error {
		if (op.Kind == vfs.OpOpen || op.Kind == vfs.OpCreate || op.Kind == vfs.OpSyncDir) && files.Open() >= most {
			refused++
			return fmt.Errorf("open %s: %w", op.Name, vfs.ErrNoDescriptors)
		}
		return nil
	})
	c := DefaultConfig()
	c.SegmentBytes, c.FileDeleteDelay, c.RetentionBytes = 1500, 0, 3000
	now := time.UnixMilli(1000)
	var logs []*Log
	for i := range int32(30) {
		l, err := d.Create(kafka.TopicPartition{Topic: "f", Partition: i}, kafka.TopicID{1}, c, now)
		if err != nil {
			t.Fatal(err)
		}
		logs = append(logs, l)
	}
	for range 12 {
		for _, l := range logs {
			if _, err := plain(l, 300); err != nil {
				t.Fatal(err)
			}
			l.SetHighWatermark(l.EndOffset())
			s, err := l.Read(l.StartOffset(), 1000, true, l.EndOffset())
			if err != nil {
				t.Fatal(err)
			}
			s.Release()
			if err := l.Flush(l.EndOffset()); err != nil {
				t.Fatal(err)
			}
			if _, err := l.DeleteOldSegments(now); err != nil {
				t.Fatal(err)
			}
			if _, err := l.RemoveDeleted(now); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(d.CheckpointRecoveryPoints(), d.CheckpointHighWatermarks()); err != nil {
			t.Fatal(err)
		}
	}
	if refused == 0 {
		t.Fatal("no descriptor was ever refused")
	}
	if err := d.Close(1); err != nil {
		t.Fatal(err)
	}
	if d = newDir(t, fsys); !d.clean {
		t.Error("no mark of a clean stop")
	}
}
