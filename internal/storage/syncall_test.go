package storage

import (
	"errors"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/vfs"
)

// syncAllWorld is a directory of some logs, each with records in two segments, all of them closed at once. Its process before was killed,
// so everything wants a sync.
func syncAllWorld(t *testing.T) (*vfs.Mem, *Dir) {
	t.Helper()
	fsys := vfs.NewMem()
	d := newDir(t, fsys)
	if err := fsys.SyncDir("."); err != nil {
		t.Fatal(err)
	}
	for i := range int32(8) {
		c := smallSegments()
		l, err := d.Create(kafka.TopicPartition{Topic: "f", Partition: i}, kafka.TopicID{1}, c, time.UnixMilli(0))
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if _, err := plain(l, 400); err != nil {
				t.Fatal(err)
			}
		}
		l.SetHighWatermark(l.EndOffset())
	}
	if err := d.Abandon(); err != nil {
		t.Fatal(err)
	}
	return fsys, reopenAll(t, fsys, 8)
}

func reopenAll(t *testing.T, fsys *vfs.Mem, syncAllFrom int) *Dir {
	t.Helper()
	d, err := OpenDir("d", Options{FS: fsys, Files: NewFiles(fsys, 5), SyncAllFrom: syncAllFrom})
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := d.Partitions()
	if err == nil {
		err = d.Begin()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range dirs {
		if _, _, err := d.Open(p, smallSegments(), time.UnixMilli(0)); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// whole checks that every log has its five records, and the leader epoch of them.
func whole(t *testing.T, d *Dir) {
	t.Helper()
	if n := len(d.Logs()); n != 8 {
		t.Fatalf("%d logs", n)
	}
	for _, l := range d.Logs() {
		if e, ok := l.LatestEpoch(); l.EndOffset() != 5 || !ok || e != 1 {
			t.Errorf("%v ends at %d in epoch %d", l.Partition(), l.EndOffset(), e)
		}
	}
}

// TestSyncAll: a directory with much to sync closes by three syncs of everything and those of its small files, and all of it survives the
// power cut after that.
func TestSyncAll(t *testing.T) {
	fsys, d := syncAllWorld(t)
	counts := map[vfs.OpKind]int{}
	fsys.SetFault(func(op vfs.Op) error {
		if counts[op.Kind]++; op.Kind == vfs.OpSync && !strings.HasSuffix(op.Name, ".tmp") {
			t.Errorf("%s is synced alone", op.Name)
		}
		return nil
	})
	if err := d.Close(7); err != nil {
		t.Fatal(err)
	}
	if counts[vfs.OpSyncAll] != 3 || counts[vfs.OpSync] > 5 || counts[vfs.OpSyncDir] > 5 {
		t.Errorf("%d syncs of everything, %d of files, %d of directories", counts[vfs.OpSyncAll], counts[vfs.OpSync], counts[vfs.OpSyncDir])
	}
	for seed := range uint64(20) {
		after := fsys.Crash(rand.New(rand.NewPCG(seed, 1)))
		d := reopenAll(t, after, 8)
		if clean, epoch := d.Clean(); !clean || epoch != 7 {
			t.Fatalf("clean %v, epoch %d", clean, epoch)
		}
		whole(t, d)
	}
}

// TestSyncAllFails: whichever sync of everything fails, there is no mark of a clean shutdown and no recovery point beyond what was synced
// before; the directory counts as failed. What the disk has lost recovery cuts off.
func TestSyncAllFails(t *testing.T) {
	for n := 1; n <= 3; n++ {
		fsys, d := syncAllWorld(t)
		fsys.SetFault(vfs.FailNth(n, syscall.EIO, func(op vfs.Op) bool { return op.Kind == vfs.OpSyncAll }))
		if err := d.Close(7); !errors.Is(err, syscall.EIO) || d.Err() == nil {
			t.Fatalf("sync %d: %v, %v", n, err, d.Err())
		}
		for _, l := range d.Logs() {
			if l.RecoveryPoint() != 0 {
				t.Errorf("sync %d: recovery point %d", n, l.RecoveryPoint())
			}
		}
		for seed := range uint64(20) {
			d := reopenAll(t, fsys.Crash(rand.New(rand.NewPCG(seed, 2))), 8)
			if clean, _ := d.Clean(); clean {
				t.Fatalf("sync %d: clean", n)
			}
			if n == 3 {
				whole(t, d) // the first two made everything durable but the names of the leader epochs' files
			}
		}
	}
}

// TestSyncAllUnsupported: where everything can't be synced at once, for the disk's sake, or since a file is a link to another disk, or
// since there is too little, each file is.
func TestSyncAllUnsupported(t *testing.T) {
	for name, prepare := range map[string]func(*vfs.Mem, *Dir){
		"unsupported": func(fsys *vfs.Mem, _ *Dir) {
			fsys.SetFault(vfs.FailNth(1, errors.ErrUnsupported, func(op vfs.Op) bool { return op.Kind == vfs.OpSyncAll }))
		},
		"linked": func(_ *vfs.Mem, d *Dir) { d.linked.Store(true) },
		"few":    func(_ *vfs.Mem, d *Dir) { d.o.SyncAllFrom = 9 },
	} {
		fsys, d := syncAllWorld(t)
		prepare(fsys, d)
		if err := d.Close(7); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		d = reopenAll(t, fsys.Crash(rand.New(rand.NewPCG(1, 3))), 8)
		if clean, _ := d.Clean(); !clean {
			t.Errorf("%s: not clean", name)
		}
		whole(t, d)
	}
}
