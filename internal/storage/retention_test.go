package storage

import (
	"testing"
	"time"

	"github.com/highwater/highwater/internal/vfs"
)

// TestRetentionBelowHighWatermark: retention takes nothing above the high watermark, however old or large it is, and when that has come to
// the end all that has expired goes, the active segment too: an empty log is left, at the same end (F106).
func TestRetentionBelowHighWatermark(t *testing.T) {
	c := DefaultConfig()
	c.SegmentBytes, c.RetentionTime = 1000, 100
	d, l := faultLog(t, vfs.NewMem(), c)
	write(t, l, 30, 200)
	end := l.EndOffset()
	late := time.UnixMilli(1_000_000)
	for hw := range end + 1 {
		l.SetHighWatermark(hw)
		if _, err := l.DeleteOldSegments(late); err != nil {
			t.Fatal(err)
		}
		start := l.StartOffset()
		if start > hw {
			t.Fatalf("the log begins at %d, above the high watermark %d", start, hw)
		}
		if first := l.view.Load().segments[0]; hw < end && first.next() <= hw && len(l.view.Load().segments) > 1 {
			t.Errorf("segment %d to %d lies below the high watermark %d and is still there", first.base, first.next(), hw)
		}
	}
	if l.StartOffset() != end || l.EndOffset() != end || l.Size() != 0 || len(l.view.Load().segments) != 1 {
		t.Errorf("the log has offsets %d to %d and %d bytes in %d segments, want an empty one at %d", l.StartOffset(), l.EndOffset(), l.Size(), len(l.view.Load().segments), end)
	}
	if err := d.Abandon(); err != nil {
		t.Fatal(err)
	}
}

// TestRetentionBytes: a segment goes by retention.bytes only if what is left is not less than that, and by both policies of a log that is
// compacted, too (F106).
func TestRetentionBytes(t *testing.T) {
	for _, compact := range []bool{false, true} {
		c := DefaultConfig()
		c.SegmentBytes, c.RetentionBytes = 1000, 1500
		d, l := faultLog(t, vfs.NewMem(), c)
		write(t, l, 20, 200)
		if c.Compact = compact; compact { // records without a key would be refused
			l.config.Store(&c)
		}
		l.SetHighWatermark(l.EndOffset())
		before := l.Size()
		deleted, err := l.DeleteOldSegments(time.UnixMilli(1000))
		if err != nil {
			t.Fatal(err)
		}
		first := l.view.Load().segments[0].size()
		if left := l.Size(); len(deleted) == 0 || left < 1500 || left-first >= 1500 {
			t.Errorf("compact %v: %d bytes of %d are left, the first segment has %d; %v deleted", compact, left, before, first, deleted)
		}
		for _, s := range deleted {
			if s.Reason != "retention.bytes" {
				t.Errorf("segment %d went by %s", s.BaseOffset, s.Reason)
			}
		}
		if err := d.Abandon(); err != nil {
			t.Fatal(err)
		}
	}
}
