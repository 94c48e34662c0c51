package storageloop

// Shows how the cleaner's threads share their work and their buffer, what they leave alone, and what settings do to them.

import (
	"fmt"
	"math"
	"path"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
)

// TestCleanerThreads: so many logs are compacted at a time as there are threads, each by one of them; the threads share the buffer, and
// one that has too small a part ends; with log.cleaner.enable=false nothing is done.
func TestCleanerThreads(t *testing.T) {
	for _, c := range []struct {
		options CleanerOptions
		atOnce  int // logs with a .cleaned file at a moment
		dead    int
		cleaned int // in the end
	}{
		{CleanerOptions{Threads: 1, DedupeBytes: 1 << 20}, 1, 0, 3},
		{CleanerOptions{Threads: 2, DedupeBytes: 1 << 20}, 2, 0, 3},
		{CleanerOptions{Threads: 5, DedupeBytes: 1 << 20}, 3, 0, 3},
		{CleanerOptions{Threads: 1, DedupeBytes: 144}, 1, 0, 3},
		{CleanerOptions{Threads: 6, DedupeBytes: 144}, 0, 6, 0},
		{CleanerOptions{Threads: 2, DedupeBytes: 1 << 20, Disabled: true}, 0, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			fsys := vfs.NewMem()
			d := openDir(t, fsys, "d")
			defer d.Close(1)
			var logs []*storage.Log
			for i := range 3 {
				logs = append(logs, compacted(t, d, fmt.Sprint("t", i), 400)) // 180 KB: more than is done between two pauses
			}
			o := c.options
			o.Backoff, o.MaxBytesPerSecond = time.Second, 100_000
			loop := New(Options{Dirs: []*storage.Dir{d}, Log: quiet, Cleaner: o})
			most := 0
			writing := map[string]bool{} // the directories with a new segment that isn't complete
			fsys.SetFault(func(op vfs.Op) error {
				if dir, name := path.Split(op.Name); strings.HasSuffix(name, ".log.cleaned") {
					switch op.Kind {
					case vfs.OpCreate:
						writing[dir] = true
					case vfs.OpRename, vfs.OpRemove:
						delete(writing, dir)
					}
					most = max(most, len(writing))
				}
				return nil
			})
			loop.Start()
			pass(5 * time.Minute)
			loop.Stop()
			cleaned := 0
			for _, l := range logs {
				if l.CleanedTo() > 0 {
					cleaned++
				}
			}
			if s := loop.CleanerState(time.Now()); most != c.atOnce || s.DeadThreads != c.dead || cleaned != c.cleaned || s.Cleans != int64(c.cleaned) || len(s.Uncleanable) > 0 {
				t.Errorf("%+v: %d at once, %d cleaned; %+v", c.options, most, cleaned, s)
			}
		})
	}
}

// TestSetCleaner: a setting that changes nothing breaks nothing off; one that does gives a log that found no room another try at once; and
// it starts nothing before Start, or after Stop.
func TestSetCleaner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		d := openDir(t, fsys, "d")
		defer d.Close(1)
		l := compacted(t, d, "t", 700)
		slow := CleanerOptions{DedupeBytes: 1 << 20, Backoff: time.Second, MaxBytesPerSecond: 100_000}
		loop := New(Options{Dirs: []*storage.Dir{d}, Log: quiet})
		loop.SetCleaner(slow)
		pass(time.Minute)
		if l.CleanedTo() != -1 {
			t.Fatal("cleaned before the start")
		}
		loop.Start()
		for range 300 {
			pass(time.Second)
			loop.SetCleaner(slow)
		}
		synctest.Wait()
		if l.CleanedTo() <= 0 {
			t.Error("the same setting, again and again, kept it from being cleaned")
		}
		var full atomic.Bool
		full.Store(true)
		fsys.SetFault(func(op vfs.Op) error {
			if full.Load() && op.Kind == vfs.OpWrite && strings.HasSuffix(op.Name, ".cleaned") {
				return syscall.ENOSPC
			}
			return nil
		})
		fill(t, l, 20)
		before := l.CleanedTo()
		pass(10 * time.Second)
		full.Store(false)
		pass(10 * time.Second)
		if l.CleanedTo() != before {
			t.Fatal("a disk without room was tried again at once")
		}
		fast := CleanerOptions{DedupeBytes: 1 << 20, Backoff: time.Second}
		loop.SetCleaner(fast)
		pass(2 * time.Second)
		if l.CleanedTo() == before {
			t.Error("not tried again after another setting")
		}
		loop.Stop()
		fill(t, l, 20)
		before = l.CleanedTo()
		loop.SetCleaner(slow)
		pass(time.Minute)
		if l.CleanedTo() != before {
			t.Error("cleaned after the stop")
		}
	})
}

// TestCleanBrokenOff: a clean that a truncation breaks off isn't the log's fault: the log isn't set aside and is cleaned later.
func TestCleanBrokenOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := openDir(t, vfs.NewMem(), "d")
		defer d.Close(1)
		l := compacted(t, d, "t", 700)
		loop := New(Options{Dirs: []*storage.Dir{d}, Log: quiet, Cleaner: CleanerOptions{DedupeBytes: 1 << 20, Backoff: time.Second, MaxBytesPerSecond: 100_000}})
		loop.Start()
		defer loop.Stop()
		for range 3 {
			pass(2 * time.Second)
			if err := l.TruncateTo(l.EndOffset()-4, time.Now()); err != nil {
				t.Fatal(err)
			}
			l.SetHighWatermark(l.EndOffset())
		}
		if s := loop.CleanerState(time.Now()); s.Cleans > 0 || len(s.Uncleanable) > 0 {
			t.Fatalf("%+v", s)
		}
		pass(5 * time.Minute)
		if s := loop.CleanerState(time.Now()); s.Cleans != 1 || l.CleanedTo() <= 0 {
			t.Errorf("cleaned to %d; %+v", l.CleanedTo(), s)
		}
	})
}

// TestOverdueWithoutWork: a log whose max.compaction.lag.ms has passed, but of which nothing may be cleaned, is looked at once in a
// backoff, and not without end.
func TestOverdueWithoutWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := openDir(t, vfs.NewMem(), "d")
		defer d.Close(1)
		l := compacted(t, d, "t", 20)
		c := *l.Config()
		c.MaxCompactionLag, c.MinCompactionLag = time.Minute, math.MaxInt64/2
		l.SetConfig(c)
		loop := New(Options{Dirs: []*storage.Dir{d}, Log: quiet, Cleaner: CleanerOptions{DedupeBytes: 1 << 20, Backoff: time.Second}})
		loop.Start()
		defer loop.Stop()
		pass(time.Hour)
		if s := loop.CleanerState(time.Now()); s.Cleans > 0 || s.MaxCompactionDelay < 50*time.Minute {
			t.Errorf("%+v", s)
		}
	})
}

// TestUncleanableFound: a log of which can't even be told what to clean is set aside, unless that is for lack of descriptors; when it is
// deleted nothing is told of it any more.
func TestUncleanableFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		d := openDir(t, fsys, "d")
		for _, topic := range []string{"bad", "scarce"} {
			compacted(t, d, topic, 30)
		}
		if err := d.Close(1); err != nil {
			t.Fatal(err)
		}
		// The index is missing, and the log from which it is to be made is bad.
		if err := fsys.Remove("d/bad-0/00000000000000000000.index"); err != nil {
			t.Fatal(err)
		}
		f, err := fsys.Open("d/bad-0/00000000000000000000.log", vfs.ReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte{0, 0, 0, 1}, 8); err != nil { // a batch's length
			t.Fatal(err)
		}
		f.Close()
		d = openDir(t, fsys, "d")
		defer d.Close(1)
		loop := New(Options{Dirs: []*storage.Dir{d}, Log: quiet, Cleaner: CleanerOptions{DedupeBytes: 1 << 20, Backoff: time.Second}})
		config := func(kafka.TopicPartition) storage.Config {
			c := storage.DefaultConfig()
			c.Compact, c.Delete, c.SegmentBytes, c.MaxCompactionLag = true, false, 2000, time.Hour
			return c
		}
		if err := loop.Load(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		var scarce atomic.Bool
		scarce.Store(true)
		fsys.SetFault(func(op vfs.Op) error {
			if scarce.Load() && op.Kind == vfs.OpOpen && strings.HasPrefix(op.Name, "d/scarce-0/") {
				return fmt.Errorf("open %s: %w", op.Name, vfs.ErrNoDescriptors)
			}
			return nil
		})
		loop.Start()
		defer loop.Stop()
		pass(10 * time.Second)
		s := loop.CleanerState(time.Now())
		if len(s.Uncleanable) != 1 || s.Uncleanable[0].Partition.Topic != "bad" || !strings.Contains(s.Uncleanable[0].Reason.Error(), "find what to clean") {
			t.Fatalf("%+v", s.Uncleanable)
		}
		scarce.Store(false)
		pass(10 * time.Second)
		if l := d.Log(kafka.TopicPartition{Topic: "scarce"}); l.CleanedTo() <= 0 {
			t.Error("the log isn't cleaned though there are descriptors again")
		}
		if _, err := d.Delete(d.Log(kafka.TopicPartition{Topic: "bad"}), [16]byte{1}); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second)
		if s := loop.CleanerState(time.Now()); len(s.Uncleanable) > 0 {
			t.Errorf("after it was deleted: %+v", s.Uncleanable)
		}
	})
}
