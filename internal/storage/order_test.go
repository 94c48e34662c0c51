package storage

// Shows in which order files are synced and renamed where a power cut between two calls would be fatal, call by call: the random power cuts
// of the models meet each of these places only now and then.

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/vfs"
)

// calls runs f and gives the calls to the disk of some kinds, as "kind name" without directories.
func calls(fsys *vfs.Mem, f func(), kinds ...vfs.OpKind) (out []string) {
	fsys.SetFault(func(op vfs.Op) error {
		if slices.Contains(kinds, op.Kind) {
			out = append(out, op.Kind.String()+" "+path.Base(op.Name))
		}
		return nil
	})
	defer fsys.SetFault(nil)
	f()
	return out
}

// TestDeletionOrder: of a segment that goes, the .log goes first and durably, since without it the rest is removed by the next start; and each
// segment before the next.
func TestDeletionOrder(t *testing.T) {
	fsys := vfs.NewMem()
	c := DefaultConfig()
	c.SegmentBytes, c.RetentionBytes = 1500, 0
	_, l := faultLog(t, fsys, c)
	abortedTxn(t, l, 30)
	for len(l.view.Load().segments) < 3 {
		write(t, l, 1, 300)
	}
	l.SetHighWatermark(l.EndOffset())
	if err := l.Flush(l.EndOffset()); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, s := range l.view.Load().segments {
		want = append(want, "rename "+segmentName(s.base, logSuffix), "syncdir f-0")
		for _, suffix := range []string{indexSuffix, timeIndexSuffix, txnIndexSuffix, snapshotSuffix} { // whether it is there or not
			want = append(want, "rename "+segmentName(s.base, suffix))
		}
	}
	want = append(want, "syncdir f-0")
	var err error
	got := calls(fsys, func() { _, err = l.DeleteOldSegments(time.UnixMilli(1 << 40)) }, vfs.OpRename, vfs.OpSyncDir)
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.Index(got, want[0]); i < 0 || !slices.Equal(got[i:], want) {
		t.Errorf("calls %s\nwant  %s", strings.Join(got, ", "), strings.Join(want, ", "))
	}
}

// TestSwapOrder: the steps by which a cleaned segment takes the place of others, as clean_swap.go has them.
func TestSwapOrder(t *testing.T) {
	fsys := vfs.NewMem()
	_, l := keyed(t, fsys, 6)
	l.cleaned.Store(0)
	var old []string
	segments := l.view.Load().segments
	for _, s := range segments[:len(segments)-1] {
		old = append(old, segmentName(s.base, ""))
	}
	var err error
	got := calls(fsys, func() { _, err = clean(t, l, cleanNow, nil) }, vfs.OpSync, vfs.OpRename, vfs.OpSyncDir, vfs.OpSetModTime)
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.Index(got, "sync "+old[0]+".log.cleaned"); i >= 0 {
		got = got[i:]
	}
	// step takes the calls that must come next, in whatever order, and what ends them.
	step := func(what string, calls ...string) {
		t.Helper()
		n := min(len(calls), len(got))
		a := slices.Sorted(slices.Values(got[:n]))
		slices.Sort(calls)
		if !slices.Equal(a, calls) {
			t.Fatalf("%s: calls %v, want %v; then %v", what, a, calls, got[n:])
		}
		got = got[n:]
	}
	for len(old) > 0 {
		// So many of the old ones as fit into one go together.
		n := 0
		for _, call := range got {
			if n < len(old) && call == "rename "+old[n]+".log" {
				n++
			}
		}
		base, dir := old[0], "syncdir m-3"
		step("the new files are whole", "sync "+base+".log.cleaned", "sync "+base+".index.cleaned", "sync "+base+".timeindex.cleaned", "setmodtime "+base+".log.cleaned")
		step("their names, too", dir)
		step("they count", "rename "+base+".log.cleaned", "rename "+base+".index.cleaned", "rename "+base+".timeindex.cleaned")
		step("durably", dir)
		var logs, rest []string
		m := 0
		for _, call := range got { // those of this group come before the next directory's sync
			if call == dir {
				break
			}
			logs = append(logs, call)
			m++
		}
		for i, call := range logs {
			if call != "rename "+old[i]+".log" {
				t.Fatalf("the old logs go: %v", logs)
			}
		}
		got = got[m:]
		step("durably", dir)
		for len(got) > 0 && got[0] != dir {
			rest = append(rest, got[0])
			got = got[1:]
		}
		for _, call := range rest {
			if !strings.HasPrefix(call, "rename ") || strings.Contains(call, ".log") || strings.Contains(call, "swap") {
				t.Fatalf("then what belongs to them: %v", rest)
			}
		}
		if len(rest) < 2*len(logs) {
			t.Fatalf("then what belongs to them: %v", rest)
		}
		step("durably", dir)
		step("the log gets its name", "rename "+base+".log.swap")
		step("durably", dir)
		step("and its indexes", "rename "+base+".index.swap", "rename "+base+".timeindex.swap")
		step("durably", dir)
		old = old[len(logs):]
	}
	if len(got) > 0 {
		t.Errorf("then %v", got)
	}
}

// hooked calls f before the names in a directory are synced.
type hooked struct {
	vfs.FS
	f func()
}

func (h *hooked) SyncDir(dir string) error {
	if f := h.f; f != nil {
		h.f = nil
		f()
	}
	return h.FS.SyncDir(dir)
}

// TestFlushMeanwhile: what is appended while a Flush waits for the disk is not below the recovery point after it.
func TestFlushMeanwhile(t *testing.T) {
	fsys := &hooked{FS: vfs.NewMem()}
	d := newDir(t, fsys)
	l, err := d.Create(faultPartition, kafka.TopicID{1}, DefaultConfig(), time.UnixMilli(0))
	if err != nil {
		t.Fatal(err)
	}
	write(t, l, 3, 100)
	fsys.f = func() { write(t, l, 2, 100) }
	if err := l.Flush(3); err != nil || l.RecoveryPoint() != 3 || l.EndOffset() != 5 {
		t.Errorf("recovery point %d, end %d, %v", l.RecoveryPoint(), l.EndOffset(), err)
	}
}

// TestShortenedIndexIsSynced: what a truncation took out of the active segment's indexes could come back behind new entries, and is below the
// recovery point then.
func TestShortenedIndexIsSynced(t *testing.T) {
	fsys := vfs.NewMem()
	c := DefaultConfig()
	c.IndexIntervalBytes = 0
	_, l := faultLog(t, fsys, c)
	write(t, l, 20, 100)
	if err := l.syncIndexes(l.view.Load().active()); err != nil {
		t.Fatal(err)
	}
	if err := l.TruncateTo(10, time.UnixMilli(0)); err != nil {
		t.Fatal(err)
	}
	write(t, l, 5, 100)
	flush := func() []string {
		var err error
		got := calls(fsys, func() { err = l.Flush(l.EndOffset()) }, vfs.OpSync)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := flush()
	for _, suffix := range []string{logSuffix, indexSuffix, timeIndexSuffix} {
		if !slices.Contains(first, "sync "+segmentName(0, suffix)) {
			t.Errorf("%s isn't synced: %v", suffix, first)
		}
	}
	write(t, l, 5, 100)
	if got := flush(); !slices.Equal(got, []string{"sync " + segmentName(0, logSuffix)}) {
		t.Errorf("the next time: %v", got)
	}
}

// TestTruncationRemembersBatches: after a truncation the last five batches of a producer are known, each once.
func TestTruncationRemembersBatches(t *testing.T) {
	c := DefaultConfig()
	c.IndexIntervalBytes = 400 // an entry for every second batch, so that reading begins before the snapshot
	_, l := faultLog(t, vfs.NewMem(), c)
	for _, n := range []int{9, 4} {
		sequenced(t, l, n)
		l.mu.Lock()
		err := l.takeSnapshotLocked()
		l.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := l.TruncateTo(10, time.UnixMilli(0)); err != nil {
		t.Fatal(err)
	}
	p := l.producers.byID[7]
	var got []kafka.Offset
	for _, b := range p.batches[:p.n] {
		got = append(got, b.lastOffset)
	}
	if !slices.Equal(got, []kafka.Offset{5, 6, 7, 8, 9}) {
		t.Errorf("batches at %v", got)
	}
}

// TestBadMarkerFarBelow: a marker that is further below the end than recovery looks for batches of producers, and behind the newest snapshot,
// is not believed if it is bad.
func TestBadMarkerFarBelow(t *testing.T) {
	fsys := vfs.NewMem()
	d, l := faultLog(t, fsys, DefaultConfig())
	sequenced(t, l, 1)
	l.mu.Lock()
	err := l.takeSnapshotLocked()
	l.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	abortedTxn(t, l, 1)
	marker, size := l.EndOffset()-1, l.Size()
	for l.Size() < size+recallWindow+1<<20 {
		write(t, l, 1, 200_000)
	}
	if err := errors.Join(l.Flush(l.EndOffset()), d.CheckpointRecoveryPoints(), l.syncIndexes(l.view.Load().active()), d.Abandon()); err != nil {
		t.Fatal(err)
	}
	if err := fsys.FlipBit("d/f-0/"+segmentName(0, logSuffix), 8*(size-2)); err != nil { // in the coordinator's epoch
		t.Fatal(err)
	}
	var c *CorruptError
	if _, _, err := newDir(t, fsys).Open(faultDir, DefaultConfig(), time.UnixMilli(0)); !errors.As(err, &c) || !strings.Contains(err.Error(), fmt.Sprintf("the batch at offset %d", marker)) {
		t.Errorf("%v, want the marker at %d to be refused", err, marker)
	}
}

// TestRetentionAtTheBound: as in Kafka a segment goes when it is older than retention.ms, and when without it there are not fewer than
// retention.bytes.
func TestRetentionAtTheBound(t *testing.T) {
	f := func(what string, change func(c *Config, size int64), now int64, want int) {
		t.Helper()
		c := DefaultConfig()
		c.SegmentBytes = 1000
		_, l := faultLog(t, vfs.NewMem(), c)
		for len(l.view.Load().segments) < 3 {
			write(t, l, 1, 300) // at 1000 ms
		}
		l.SetHighWatermark(l.EndOffset())
		c.RetentionTime, c.RetentionBytes = Never, -1
		change(&c, l.Size()-l.view.Load().segments[0].size())
		l.SetConfig(c)
		deleted, err := l.DeleteOldSegments(time.UnixMilli(now))
		if err != nil || len(deleted) != want {
			t.Errorf("%s: %v %v, want %d", what, deleted, err, want)
		}
	}
	age := func(c *Config, _ int64) { c.RetentionTime = 500 * time.Millisecond }
	f("as old as retention.ms", age, 1500, 0)
	f("older", age, 1501, 3)
	f("retention.bytes are left", func(c *Config, size int64) { c.RetentionBytes = size }, 1000, 1)
	f("fewer would be left", func(c *Config, size int64) { c.RetentionBytes = size + 1 }, 1000, 0)
}

// TestRetireOrder: the new name of a log that is deleted or set aside is on the disk when that is told; what is set aside is synced before.
func TestRetireOrder(t *testing.T) {
	for name, retire := range map[string]func(d *Dir, l *Log) (string, error){
		"delete": func(d *Dir, l *Log) (string, error) { return d.Delete(l, [16]byte{1}) },
		"stray":  func(d *Dir, l *Log) (string, error) { return d.Strand(l, [16]byte{1}) },
	} {
		fsys := vfs.NewMem()
		d, l := faultLog(t, fsys, DefaultConfig())
		write(t, l, 3, 100)
		var err error
		got := calls(fsys, func() { _, err = retire(d, l) }, vfs.OpSync, vfs.OpRename, vfs.OpSyncDir)
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{"rename f-0", "syncdir d"}; len(got) < 2 || !slices.Equal(got[len(got)-2:], want) {
			t.Errorf("%s: calls %v, want %v at the end", name, got, want)
		}
		if synced := slices.Contains(got, "sync "+segmentName(0, logSuffix)); synced != (name == "stray") {
			t.Errorf("%s: the log is synced: %v", name, synced)
		}
	}
}
