package storageloop

// Shows what a start opens, reports, renames and removes, and what a stop leaves: a directory that is marked clean, or none of that.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
)

var byDefault = func(kafka.TopicPartition) storage.Config { return storage.DefaultConfig() }

func created(t *testing.T, d *storage.Dir, topic string, records int) *storage.Log {
	t.Helper()
	l, err := d.Create(kafka.TopicPartition{Topic: topic}, kafka.TopicID{1}, storage.DefaultConfig(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for range records {
		appendTo(t, l, -1, -1)
	}
	return l
}

// touches counts what is done to a file system, and fails of it what fail says.
type touches struct {
	mu   sync.Mutex
	ops  []vfs.Op
	fail func(op vfs.Op) error
}

func watch(fsys *vfs.Mem, fail func(op vfs.Op) error) *touches {
	w := &touches{fail: fail}
	fsys.SetFault(func(op vfs.Op) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ops = append(w.ops, op)
		if w.fail != nil {
			return w.fail(op)
		}
		return nil
	})
	return w
}

// take gives what was done since the last time, as one line each.
func (w *touches) take() (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, op := range w.ops {
		out = append(out, op.Kind.String()+" "+op.Name)
	}
	w.ops = nil
	return out
}

// failures is what a Loop reported.
type failures struct {
	mu         sync.Mutex
	dirs       []string
	partitions []string
}

func (f *failures) options(o Options) Options {
	if o.Log == nil {
		o.Log = quiet
	}
	o.DirFailed = func(d *storage.Dir, err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.dirs = append(f.dirs, d.Path())
	}
	o.PartitionFailed = func(d *storage.Dir, p kafka.TopicPartition, err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.partitions = append(f.partitions, fmt.Sprintf("%s/%v", d.Path(), p))
	}
	return o
}

func (f *failures) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.Sort(f.partitions)
	return fmt.Sprint(f.dirs, f.partitions)
}

// TestLoadKinds starts on a directory with partitions, one that moves in, one that was deleted and a stray one: the first two are open,
// each with its topic's configuration; the mark of the clean stop is gone; the third is removed a minute later; the stray one stays.
// What the checkpoints said of a partition that is deleted then isn't written again.
func TestLoadKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		d := openDir(t, fsys, "d")
		for i, topic := range []string{"a", "b", "c"} {
			created(t, d, topic, i+1)
		}
		gone, err := d.Delete(created(t, d, "gone", 1), [16]byte{1})
		if err != nil {
			t.Fatal(err)
		}
		stray, err := d.Strand(created(t, d, "stray", 1), [16]byte{2})
		if err != nil {
			t.Fatal(err)
		}
		future := kafka.TopicPartition{Topic: "future"}
		if _, err := d.CreateFuture(future, kafka.TopicID{1}, [16]byte{3}, storage.DefaultConfig(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(1); err != nil {
			t.Fatal(err)
		}
		d = openDir(t, fsys, "d")
		loop := New(Options{Dirs: []*storage.Dir{d}, Log: quiet})
		sizes := map[string]int32{"a": 1000, "b": 2000, "c": 3000, "future": 4000}
		config := func(p kafka.TopicPartition) storage.Config {
			c := storage.DefaultConfig()
			c.SegmentBytes = sizes[p.Topic]
			return c
		}
		if err := loop.Load(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		if got := text(t, fsys, "d/.kafka_cleanshutdown"); !strings.Contains(got, "not exist") {
			t.Errorf("the mark of a clean stop is still there: %s", got)
		}
		var open []string
		for _, l := range d.Logs() {
			open = append(open, fmt.Sprint(l.Partition(), " ", l.Config().SegmentBytes))
		}
		if got := fmt.Sprint(open); got != "[a-0 1000 b-0 2000 c-0 3000]" {
			t.Errorf("open: %s", got)
		}
		if l := d.Future(future); l == nil || l.Config().SegmentBytes != 4000 || len(d.Futures()) != 1 {
			t.Errorf("futures: %v", d.Futures())
		}
		loop.Start()
		if _, err := d.Delete(d.Log(kafka.TopicPartition{Topic: "b"}), [16]byte{4}); err != nil {
			t.Fatal(err)
		}
		pass(58 * time.Second)
		if got := names(t, fsys, "d"); !strings.Contains(got, gone) {
			t.Errorf("removed before its time: %s", got)
		}
		pass(4 * time.Second)
		if got := names(t, fsys, "d"); strings.Contains(got, gone) || !strings.Contains(got, stray) {
			t.Errorf("a minute after the start: %s", got)
		}
		if got := text(t, fsys, "d/recovery-point-offset-checkpoint"); got != "0\n3\na 0 1\nc 0 3\nfuture 0 0\n" {
			t.Errorf("recovery points: %q", got)
		}
		if err := loop.Close(1); err != nil {
			t.Fatal(err)
		}
	})
}

// TestLoadFailures starts after a kill on two directories of which the first has something that is bad.
func TestLoadFailures(t *testing.T) {
	const flipped = "d/b-0/00000000000000000000.log"
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, fsys *vfs.Mem)
		fail   func(op vfs.Op) error
		want   string // failed directories and partitions
		open   string // logs of the first directory
		clean  bool   // it is marked so at the stop
		left   string // a name that must be there
	}{
		{
			name:   "a synced batch that is bad",
			damage: func(t *testing.T, fsys *vfs.Mem) { flip(t, fsys, flipped) },
			want:   "[] [d/b-0]", open: "[a-0 c-0]", left: "b-0",
		},
		{
			name:   "the same in a replica that moves in: its original may be whole",
			damage: func(t *testing.T, fsys *vfs.Mem) { flip(t, fsys, "d/"+futureName+"/00000000000000000000.log") },
			want:   "[] []", open: "[a-0 b-0 c-0]", clean: true, left: strings.TrimSuffix(futureName, "-future") + "-stray",
		},
		{
			name: "a disk that refuses to read",
			fail: func(op vfs.Op) error {
				if op.Kind == vfs.OpRead && strings.HasPrefix(op.Name, "d/b-0/") {
					return syscall.EIO
				}
				return nil
			},
			want: "[d] [d/b-0]", open: "[a-0]", left: "b-0",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys := vfs.NewMem()
			dirs := []*storage.Dir{openDir(t, fsys, "d"), openDir(t, fsys, "e")}
			for _, topic := range []string{"a", "b", "c"} {
				if err := created(t, dirs[0], topic, 3).Flush(3); err != nil {
					t.Fatal(err)
				}
			}
			future, err := dirs[0].CreateFuture(kafka.TopicPartition{Topic: "f"}, kafka.TopicID{1}, [16]byte{3}, storage.DefaultConfig(), time.Now())
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				appendTo(t, future, -1, -1)
			}
			created(t, dirs[1], "other", 3)
			if err := errors.Join(future.Flush(3), dirs[0].CheckpointRecoveryPoints(), dirs[0].Abandon(), dirs[1].Abandon()); err != nil {
				t.Fatal(err)
			}
			if c.damage != nil {
				c.damage(t, fsys)
			}
			dirs = []*storage.Dir{openDir(t, fsys, "d"), openDir(t, fsys, "e")}
			var failed failures
			loop := New(failed.options(Options{Dirs: dirs, RecoveryThreads: 1}))
			broken := false
			watch(fsys, func(op vfs.Op) error {
				if broken && strings.HasPrefix(op.Name, "d/") && op.Kind != vfs.OpClose {
					t.Errorf("%v %s after the directory has failed", op.Kind, op.Name)
				}
				if c.fail == nil {
					return nil
				}
				err := c.fail(op)
				broken = broken || err != nil
				return err
			})
			if err := loop.Load(t.Context(), byDefault); err != nil {
				t.Fatal(err)
			}
			if got := failed.String(); got != c.want {
				t.Errorf("reported %s, want %s", got, c.want)
			}
			var open []string
			for _, l := range dirs[0].Logs() {
				open = append(open, l.Partition().String())
			}
			if got := fmt.Sprint(open); got != c.open {
				t.Errorf("open: %s, want %s", got, c.open)
			}
			if l := dirs[1].Log(kafka.TopicPartition{Topic: "other"}); l == nil || l.EndOffset() != 3 {
				t.Errorf("the other directory's log: %v", l)
			}
			if err := loop.Close(1); err != nil {
				t.Error(err)
			}
			fsys.SetFault(nil)
			for i, want := range []bool{c.clean, true} {
				if _, err := fsys.Stat(dirs[i].Path() + "/.kafka_cleanshutdown"); (err == nil) != want {
					t.Errorf("%s is marked clean: %v", dirs[i].Path(), err == nil)
				}
			}
			if got := strings.Fields(names(t, fsys, "d")); !slices.Contains(got, c.left) {
				t.Errorf("%s is not among %v", c.left, got)
			}
		})
	}
}

const futureName = "f-0.03000000000000000000000000000000-future"

func flip(t *testing.T, fsys *vfs.Mem, name string) {
	t.Helper()
	if err := fsys.FlipBit(name, 8*100); err != nil {
		t.Fatal(err)
	}
}

// TestLoadRefusals: a start that is broken off, and a directory among several that holds what is no partition.
func TestLoadRefusals(t *testing.T) {
	fsys := vfs.NewMem()
	if err := fsys.MkdirAll("b/photos"); err != nil {
		t.Fatal(err)
	}
	a, b := openDir(t, fsys, "a"), openDir(t, fsys, "b")
	var foreign *storage.ForeignDirError
	if err := New(Options{Dirs: []*storage.Dir{a, b}, Log: quiet}).Load(t.Context(), byDefault); !errors.As(err, &foreign) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := New(Options{Dirs: []*storage.Dir{a}, Log: quiet}).Load(ctx, byDefault); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestCloseByOneSync stops with so many unsynced logs that the disk is synced as a whole: what a power cut after it leaves is all of them,
// and the mark. If one of the syncs fails, or a log can't be closed, there is no mark, and the error says so.
func TestCloseByOneSync(t *testing.T) {
	const logs = 70
	for _, c := range []struct {
		name  string
		fails func(op vfs.Op, syncs int) bool
		error string
	}{
		{"all is well", func(vfs.Op, int) bool { return false }, ""},
		{"the first sync fails", func(op vfs.Op, syncs int) bool { return op.Kind == vfs.OpSyncAll && syncs == 1 }, "sync log directory d"},
		{"the second sync fails", func(op vfs.Op, syncs int) bool { return op.Kind == vfs.OpSyncAll && syncs == 2 }, "sync log directory d"},
		{"a log can't be written", func(op vfs.Op, syncs int) bool {
			return op.Kind == vfs.OpCreate && strings.HasPrefix(op.Name, "d/t33-0/")
		}, "close log t33-0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys := vfs.NewMem()
			d := openDir(t, fsys, "d")
			if err := fsys.SyncDir("."); err != nil {
				t.Fatal(err)
			}
			loop := New(Options{Dirs: []*storage.Dir{d}, Log: quiet, RecoveryThreads: 3})
			if err := loop.Load(t.Context(), byDefault); err != nil {
				t.Fatal(err)
			}
			for i := range logs {
				created(t, d, fmt.Sprint("t", i), 2)
			}
			syncs := 0
			w := watch(fsys, func(op vfs.Op) error {
				if op.Kind == vfs.OpSyncAll {
					syncs++
				}
				if c.fails(op, syncs) {
					return fmt.Errorf("%v %s: %w", op.Kind, op.Name, syscall.EIO)
				}
				return nil
			})
			err := loop.Close(7)
			fsys.SetFault(nil)
			_, marked := fsys.Stat("d/.kafka_cleanshutdown")
			if c.error != "" {
				if err == nil || !strings.Contains(err.Error(), c.error) || !errors.Is(err, syscall.EIO) {
					t.Errorf("%v, want %q", err, c.error)
				}
				if marked == nil {
					t.Error("marked as clean")
				}
				if syncs == 1 { // after a sync that failed another one proves nothing
					for _, op := range w.take() {
						if strings.HasPrefix(op, "sync ") || strings.HasPrefix(op, "write ") {
							t.Errorf("after the failed sync: %s", op)
						}
					}
				}
				return
			}
			if err != nil || marked != nil || syncs < 2 {
				t.Fatalf("%v, %v, %d syncs", err, marked, syncs)
			}
			for _, op := range w.take() {
				if strings.HasPrefix(op, "sync d/t") {
					t.Fatalf("%s: synced one by one", op)
				}
			}
			for seed := range uint64(8) {
				after := fsys.Crash(rand.New(rand.NewPCG(seed, 1)))
				d := openDir(t, after, "d")
				loop := New(Options{Dirs: []*storage.Dir{d}, Log: quiet})
				if err := loop.Load(t.Context(), byDefault); err != nil {
					t.Fatal(err)
				}
				if clean, _ := d.Clean(); !clean || len(d.Logs()) != logs {
					t.Fatalf("after a power cut: clean %v, %d logs", clean, len(d.Logs()))
				}
				for _, l := range d.Logs() {
					if l.EndOffset() != 2 {
						t.Fatalf("%v ends at %d", l.Partition(), l.EndOffset())
					}
				}
				if err := loop.Close(1); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// slow is a disk on which some calls take a while. A Fault of vfs.Mem can't wait: it holds the disk's lock.
type slow struct {
	vfs.FS
	wait func(call, name string)
}

func (s slow) SyncDir(name string) error {
	s.wait("syncdir", name)
	return s.FS.SyncDir(name)
}

func (s slow) RemoveAll(name string) error {
	s.wait("removeall", name)
	return s.FS.RemoveAll(name)
}

// TestCloseInParallel: num.recovery.threads.per.data.dir logs of a directory are closed at a time, and all directories at once.
func TestCloseInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var syncs atomic.Int64
		fsys := slow{vfs.NewMem(), func(call, name string) {
			if call == "syncdir" && strings.Contains(name, "/t") {
				syncs.Add(1)
				time.Sleep(time.Second) // of the bubble: the disk is slow
			}
		}}
		dirs := []*storage.Dir{openDir(t, fsys, "d"), openDir(t, fsys, "e")}
		loop := New(Options{Dirs: dirs, Log: quiet, RecoveryThreads: 1})
		for i := range 16 {
			created(t, dirs[i%2], fmt.Sprint("t", i), 1)
		}
		loop.SetRecoveryThreads(4)
		began := time.Now()
		if err := loop.Close(1); err != nil {
			t.Fatal(err)
		}
		if took, n := time.Since(began), syncs.Load(); n < 16 || took != time.Duration(n/8)*time.Second {
			t.Errorf("16 logs with %d syncs of a second, 4 at a time in each of two directories: %v", n, took)
		}
	})
}

// TestStopWaits: Stop returns when what is under way is done, a start after it starts nothing, and a deleted partition is told of once.
func TestStopWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		removing := false
		var out bytes.Buffer
		fsys := slow{vfs.NewMem(), func(call, _ string) {
			if call == "removeall" {
				removing = true
				time.Sleep(time.Minute) // of the bubble: the disk is slow
				removing = false
			}
		}}
		d, other := openDir(t, fsys, "d"), openDir(t, fsys, "e")
		defer d.Abandon()
		defer other.Abandon()
		loop := New(Options{Dirs: []*storage.Dir{other, d}, Log: slog.New(slog.NewTextHandler(&out, nil))})
		loop.Start()
		name, err := d.Delete(created(t, d, "t", 1), [16]byte{1})
		if err != nil {
			t.Fatal(err)
		}
		same, err := other.Delete(created(t, other, "t", 1), [16]byte{1})
		if err != nil || same != name {
			t.Fatal(same, err)
		}
		loop.RemovePartition(d, name, time.Second)
		pass(5 * time.Second)
		began := time.Now()
		loop.Stop()
		if took := time.Since(began); removing || took < 50*time.Second {
			t.Errorf("stopped after %v in the middle of a removal: %v", took, removing)
		}
		loop.Start()
		l := compacted(t, other, "c", 30)
		never := New(Options{Dirs: []*storage.Dir{other}, Log: quiet})
		never.Stop()
		never.Start()
		pass(time.Hour)
		if l.CleanedTo() != -1 {
			t.Error("started after the stop")
		}
		if n := strings.Count(out.String(), "deleted partition removed"); n != 1 {
			t.Errorf("said %d times:\n%s", n, out.String())
		}
		if got := names(t, fsys, "e"); !strings.Contains(got, name) {
			t.Errorf("the other directory has %s", got)
		}
	})
}

// TestRounds: retention comes half a minute after the start and then every log.retention.check.interval.ms, not more often; producers are
// forgotten at their interval; a removal is told of once; the log start is checkpointed every minute.
func TestRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		d := openDir(t, fsys, "d")
		var out printed
		loop := New(Options{Dirs: []*storage.Dir{d}, Log: slog.New(slog.NewTextHandler(&out, nil))})
		c := storage.DefaultConfig()
		c.SegmentBytes, c.RetentionBytes = 1000, 1000
		l, err := d.Create(kafka.TopicPartition{Topic: "t"}, kafka.TopicID{1}, c, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		other := created(t, d, "u", 5)
		if _, err := other.AdvanceStartOffset(2); err != nil {
			t.Fatal(err)
		}
		gone, err := d.Delete(created(t, d, "gone", 1), [16]byte{1})
		if err != nil {
			t.Fatal(err)
		}
		loop.Start()
		loop.RemovePartition(d, gone, 0)
		began := time.Now()
		sequence := int32(0)
		// until lets time pass up to so long after the start, while the log grows beyond what it may hold.
		until := func(after time.Duration) kafka.Offset {
			for range 10 {
				appendTo(t, l, 7, sequence)
				sequence++
			}
			pass(time.Until(began.Add(after)))
			return l.StartOffset()
		}
		var starts []kafka.Offset
		for _, after := range []time.Duration{29 * time.Second, 32 * time.Second, 5*time.Minute + 28*time.Second, 5*time.Minute + 33*time.Second, 10*time.Minute + 27*time.Second, 10*time.Minute + 35*time.Second} {
			starts = append(starts, until(after))
		}
		for i, moved := range []bool{true, false, true, false, true} {
			if got := starts[i+1] > starts[i]; got != moved {
				t.Errorf("the log start at each look: %v", starts)
			}
		}
		if starts[0] != 0 {
			t.Errorf("before the first round the log begins at %d", starts[0])
		}
		if n := strings.Count(out.String(), "deleted partition removed"); n != 1 {
			t.Errorf("said %d times", n)
		}
		if got := text(t, fsys, "d/log-start-offset-checkpoint"); got != "0\n1\nu 0 2\n" {
			t.Errorf("log starts: %q", got)
		}
		// With an hour to live: a producer goes at the first look after that.
		pass(time.Until(began.Add(69 * time.Minute)))
		appendTo(t, l, 8, 0)
		pass(time.Until(began.Add(129*time.Minute + 30*time.Second)))
		if n := len(l.Producers()); n != 1 {
			t.Errorf("%d producers before the round at 130 minutes", n)
		}
		pass(time.Minute)
		if n := len(l.Producers()); n != 0 {
			t.Errorf("%d producers after it", n)
		}
		if other.RecoveryPoint() != 0 {
			t.Errorf("a log with neither flush.ms nor a rolled segment was synced up to %d", other.RecoveryPoint())
		}
		if err := loop.Close(1); err != nil {
			t.Fatal(err)
		}
	})
}

// TestOfflineIsLeftAlone: nothing is done any more to a directory that has failed, whatever is due in it, and the others go on.
func TestOfflineIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		bad, good := openDir(t, fsys, "bad"), openDir(t, fsys, "good")
		var failed failures
		loop := New(failed.options(Options{Dirs: []*storage.Dir{bad, good}, Cleaner: CleanerOptions{DedupeBytes: 1 << 20, Backoff: time.Minute}}))
		c := storage.DefaultConfig()
		c.FlushInterval, c.SegmentBytes, c.RetentionBytes = time.Second, 1000, 1000
		var all, late [2]*storage.Log
		for i, d := range []*storage.Dir{bad, good} {
			compacted(t, d, "compacted", 1).SetHighWatermark(0)
			gone, err := d.Delete(created(t, d, "gone", 1), [16]byte{1})
			if err == nil {
				all[i], err = d.Create(kafka.TopicPartition{Topic: "t"}, kafka.TopicID{1}, c, time.Now())
			}
			if err != nil {
				t.Fatal(err)
			}
			loop.RemovePartition(d, gone, 20*time.Second)
			c := c
			c.FlushInterval = 5 * time.Second
			if late[i], err = d.Create(kafka.TopicPartition{Topic: "late"}, kafka.TopicID{1}, c, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		loop.Start()
		pass(2500 * time.Millisecond)
		w := watch(fsys, func(op vfs.Op) error {
			if op.Kind == vfs.OpSync && strings.HasPrefix(op.Name, "bad/t-0/") {
				return syscall.EIO
			}
			return nil
		})
		for _, l := range all {
			appendTo(t, l, 1, 0)
		}
		for _, l := range late {
			appendTo(t, l, 1, 0)
		}
		for _, d := range []*storage.Dir{bad, good} {
			fill(t, d.Log(kafka.TopicPartition{Topic: "compacted"}), 30)
		}
		pass(1100 * time.Millisecond)
		if bad.Err() == nil {
			t.Fatal("the directory didn't fail")
		}
		w.take()
		pass(time.Hour)
		touched := map[string]int{}
		for _, op := range w.take() {
			if strings.HasPrefix(op, "close ") {
				continue
			}
			_, name, _ := strings.Cut(op, " ")
			dir, _, _ := strings.Cut(name, "/")
			if touched[dir]++; dir == "bad" {
				t.Errorf("%s", op)
			}
		}
		if touched["good"] == 0 {
			t.Error("nothing was done to the good one")
		}
		if got := failed.String(); got != "[bad] []" {
			t.Errorf("reported %s", got)
		}
		if got := names(t, fsys, "good"); strings.Contains(got, "gone") {
			t.Errorf("the good one has %s", got)
		}
		fsys.SetFault(nil)
		if err := loop.Close(1); err != nil {
			t.Error(err)
		}
	})
}
