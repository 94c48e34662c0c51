package storage

// Shows what becomes of a log of which a segment in the middle is missing.

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/vfs"
)

// segmented writes a log of several segments and returns their bases.
func segmented(t *testing.T, fsys *vfs.Mem, c Config) (*Dir, *Log, []kafka.Offset) {
	t.Helper()
	d, l := faultLog(t, fsys, c)
	write(t, l, 40, 100)
	var bases []kafka.Offset
	for _, s := range l.view.Load().segments {
		bases = append(bases, s.base)
	}
	if len(bases) < 6 {
		t.Fatalf("%d segments", len(bases))
	}
	return d, l, bases
}

// removeSegment removes all files of a segment.
func removeSegment(t *testing.T, fsys *vfs.Mem, base kafka.Offset) {
	t.Helper()
	for _, suffix := range append(segmentSuffixes[:len(segmentSuffixes):len(segmentSuffixes)], snapshotSuffix) {
		if err := fsys.RemoveAll("d/f-0/" + segmentName(base, suffix)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGap: a log whose middle segment was deleted by hand keeps all else, serves it, and tells which offsets are missing: after a clean
// stop, and after a crash as far as the recovery point reaches. It also finds the gap with an index that is of no use.
func TestGap(t *testing.T) {
	c := DefaultConfig()
	c.SegmentBytes = 1000
	for _, how := range []struct {
		name  string
		clean bool
		index func(b []byte) []byte // of the segment before the gap
	}{
		{"clean", true, nil},
		{"crash", false, nil},
		{"no index", true, func([]byte) []byte { return nil }},
		{"garbage for an index", true, func([]byte) []byte { return bytes.Repeat([]byte{7}, 16) }},
		{"a torn index", true, func([]byte) []byte { return []byte{0, 0, 0} }},
	} {
		fsys := vfs.NewMem()
		d, l, bases := segmented(t, fsys, c)
		if got, err := l.Gaps(); err != nil || len(got) > 0 {
			t.Fatalf("%s: gaps of a whole log: %v, %v", how.name, got, err)
		}
		end := l.EndOffset()
		err := errors.Join(l.Flush(end), d.CheckpointRecoveryPoints())
		if how.clean {
			err = errors.Join(err, d.Close(-1))
		} else {
			err = errors.Join(err, d.Abandon())
		}
		if err != nil {
			t.Fatal(err)
		}
		removeSegment(t, fsys, bases[2])
		if how.index != nil {
			edit(t, fsys, "d/f-0/"+segmentName(bases[1], indexSuffix), how.index)
		}
		before := logFiles(t, fsys)
		d, l, r := reopen(t, fsys, c)
		want := []Gap{{bases[2], bases[3] - 1, "d/f-0/" + segmentName(bases[1], logSuffix), "d/f-0/" + segmentName(bases[3], logSuffix)}}
		if got, err := l.Gaps(); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: gaps %v, %v; want %v", how.name, got, err, want)
		}
		if l.StartOffset() != 0 || l.EndOffset() != end || r.DroppedSegments > 0 {
			t.Errorf("%s: offsets %d to %d, want 0 to %d: %v", how.name, l.StartOffset(), l.EndOffset(), end, r.Notes)
		}
		for o := range end {
			s, err := l.Read(o, 1, true, end)
			if err != nil {
				t.Fatalf("%s: read at %d: %v", how.name, o, err)
			}
			first := o
			if o >= bases[2] && o < bases[3] {
				first = bases[3] // as in Kafka
			}
			b := make(record.Batch, s.Len())
			if _, err := s.ReadAt(b, 0); err != nil || b.BaseOffset() != first {
				t.Errorf("%s: a read at %d finds %d (%v), want %d", how.name, o, b.BaseOffset(), err, first)
			}
			s.Release()
		}
		if after := logFiles(t, fsys); !slices.Equal(before, after) {
			t.Errorf("%s: files before %q, after %q", how.name, before, after)
		}
		compacted := c
		compacted.Compact = true
		l.config.Store(&compacted)
		if got, err := l.Gaps(); err != nil || len(got) > 0 {
			t.Errorf("%s: gaps of a compacted log: %v, %v", how.name, got, err)
		}
		if err := d.Abandon(); err != nil {
			t.Fatal(err)
		}
	}
}

// logFiles are the names of .log files of whatever state.
func logFiles(t *testing.T, fsys *vfs.Mem) []string {
	t.Helper()
	var out []string
	for name := range contents(t, fsys, "d/f-0") {
		if strings.Contains(name, logSuffix) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// TestGapAbove: above the recovery point a gap may be what a power cut left, so that the log ends before it. What is behind is set aside
// to the last byte, under a name of its own each time, and recovery after that finds nothing to do.
func TestGapAbove(t *testing.T) {
	c := DefaultConfig()
	c.SegmentBytes = 1000
	fsys := vfs.NewMem()
	d, _, bases := segmented(t, fsys, c)
	for round := 1; round <= 2; round++ {
		if err := d.Abandon(); err != nil {
			t.Fatal(err)
		}
		if err := fsys.RemoveAll("d/" + recoveryPointsName); err != nil {
			t.Fatal(err)
		}
		removeSegment(t, fsys, bases[2])
		before := contents(t, fsys, "d/f-0")
		var l *Log
		var r Recovery
		d, l, r = reopen(t, fsys, c)
		if l.EndOffset() != bases[2] || r.DroppedSegments != len(bases)-3 {
			t.Fatalf("round %d: the log ends at %d, %d segments behind: %v", round, l.EndOffset(), r.DroppedSegments, r.Notes)
		}
		if n := strings.Join(r.Notes, "\n"); !strings.Contains(n, "are missing between d/f-0/"+segmentName(bases[1], logSuffix)) || !strings.Contains(n, asideSuffix) {
			t.Errorf("round %d: notes %s", round, n)
		}
		after := contents(t, fsys, "d/f-0")
		for _, base := range bases[3:] {
			name := segmentName(base, logSuffix)
			aside := name + asideSuffix
			if round == 2 {
				aside += ".2"
			}
			if _, there := after[name]; there || !bytes.Equal(before[name], after[aside]) {
				t.Errorf("round %d: %s is not as a whole %s", round, name, aside)
			}
			for _, suffix := range []string{indexSuffix, timeIndexSuffix, snapshotSuffix} {
				if _, there := after[segmentName(base, suffix)]; there {
					t.Errorf("round %d: %s of segment %d is still there", round, suffix, base)
				}
			}
		}
		if got, err := l.Gaps(); err != nil || len(got) > 0 {
			t.Errorf("round %d: gaps %v, %v", round, got, err)
		}
		if err := d.Abandon(); err != nil {
			t.Fatal(err)
		}
		d, l, r = reopen(t, fsys, c)
		if l.EndOffset() != bases[2] || r.DroppedSegments > 0 || r.TruncatedBytes > 0 {
			t.Errorf("round %d: a second recovery ends at %d: %v", round, l.EndOffset(), r.Notes)
		}
		// The same segments again.
		for l.EndOffset() < bases[len(bases)-1]+1 {
			write(t, l, 1, 100)
		}
	}
	if err := d.Abandon(); err != nil {
		t.Fatal(err)
	}
}
