package storageloop

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
)

// compacted makes a compacted log with small segments, in which each of rounds writes the same keys.
func compacted(t *testing.T, d *storage.Dir, topic string, rounds int) *storage.Log {
	t.Helper()
	c := storage.DefaultConfig()
	c.Compact, c.Delete, c.SegmentBytes = true, false, 2000
	l, err := d.Create(kafka.TopicPartition{Topic: topic}, kafka.TopicID{1}, c, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	fill(t, l, rounds)
	return l
}

func fill(t *testing.T, l *storage.Log, rounds int) {
	t.Helper()
	for i := range rounds {
		b := record.NewBuilder(record.DefaultBatchOptions(0))
		for k := range 4 {
			b.Append(time.Now().UnixMilli(), fmt.Appendf(nil, "k%d", k), bytes.Repeat([]byte{byte(i)}, 100))
		}
		batch, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		vo := l.Config().Validation(l.Partition(), record.Client, time.Now())
		v, err := record.Validate(batch, &vo)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.AppendAsLeader(v, storage.LeaderAppend{Now: time.Now(), Origin: record.Client}); err != nil {
			t.Fatal(err)
		}
		v.Release()
	}
	l.SetHighWatermark(l.EndOffset())
}

// printed is what was logged; it is written and read by several goroutines.
type printed struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.Write(b)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.String()
}

// TestCleansTheFilthiestFirst has a log that is half dirty, one that is all dirty, one that isn't compacted, and one that isn't dirty
// enough: after the backoff the second is cleaned, then the first, the others not, and the checkpoint says so.
func TestCleansTheFilthiestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		d := openDir(t, fsys, "d")
		defer d.Close(1)
		var out printed
		half := compacted(t, d, "half", 20)
		loop := New(Options{Dirs: []*storage.Dir{d}, Log: slog.New(slog.NewTextHandler(&out, nil)), Cleaner: CleanerOptions{DedupeBytes: 1 << 20, Backoff: time.Hour}})
		defer loop.Stop()
		loop.Start()
		synctest.Wait()
		if half.CleanedTo() <= 0 || half.Size() > 2000 {
			t.Fatalf("cleaned to %d, %d bytes left", half.CleanedTo(), half.Size())
		}
		fill(t, half, 20)
		all := compacted(t, d, "all", 30)
		plain := compacted(t, d, "plain", 30)
		c := *plain.Config()
		c.Compact, c.Delete = false, true
		plain.SetConfig(c)
		some := compacted(t, d, "some", 30)
		c = *some.Config()
		c.MinCleanableDirtyRatio = 1
		some.SetConfig(c)
		already := len(out.String())
		time.Sleep(time.Hour)
		synctest.Wait()
		loop.Stop()
		got := out.String()[already:]
		if first, second := strings.Index(got, "partition=all-0"), strings.Index(got, "partition=half-0"); first < 0 || second < first || strings.Contains(got, "plain-0") || strings.Contains(got, "some-0") {
			t.Errorf("cleaned in another order:\n%s", got)
		}
		want := fmt.Sprintf("0\n2\nall 0 %d\nhalf 0 %d\n", all.CleanedTo(), half.CleanedTo())
		if got := text(t, fsys, "d/cleaner-offset-checkpoint"); got != want {
			t.Errorf("checkpoint %q, want %q", got, want)
		}
		if s := loop.CleanerState(time.Now()); s.Cleans != 3 || s.MaxDirtyRatio != 1 || s.Recopied <= 0 || s.MaxBufferUtilization <= 0 || len(s.Uncleanable) > 0 {
			t.Errorf("state %+v", s)
		}
	})
}

// TestUncleanableIsSetAside flips a bit in a log: it is left as it is, said once, told with its reason, while another one is cleaned.
// When a setting changes it gets another try.
func TestUncleanableIsSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		d := openDir(t, fsys, "d")
		defer d.Abandon()
		bad, good := compacted(t, d, "bad", 30), compacted(t, d, "good", 20)
		name := "d/bad-0/00000000000000000000.log"
		before := text(t, fsys, name)
		if err := fsys.FlipBit(name, 8*300); err != nil {
			t.Fatal(err)
		}
		var out printed
		loop := New(Options{Dirs: []*storage.Dir{d}, Log: slog.New(slog.NewTextHandler(&out, nil)), Cleaner: CleanerOptions{DedupeBytes: 1 << 20, Backoff: time.Second}})
		loop.Start()
		defer loop.Stop()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if good.CleanedTo() <= 0 || bad.CleanedTo() != -1 || bad.Err() != nil || d.Err() != nil {
			t.Fatalf("cleaned to %d and %d; %v, %v", good.CleanedTo(), bad.CleanedTo(), bad.Err(), d.Err())
		}
		if n := strings.Count(out.String(), "can't be cleaned"); n != 1 {
			t.Errorf("said %d times:\n%s", n, out.String())
		}
		s := loop.CleanerState(time.Now())
		if len(s.Uncleanable) != 1 || s.Uncleanable[0].Partition.Topic != "bad" || s.Uncleanable[0].Bytes == 0 || !strings.Contains(s.Uncleanable[0].Reason.Error(), name) {
			t.Errorf("uncleanable: %+v", s.Uncleanable)
		}
		if strings.Contains(names(t, fsys, "d/bad-0"), "cleaned") {
			t.Error(names(t, fsys, "d/bad-0"))
		}
		if err := fsys.FlipBit(name, 8*300); err != nil {
			t.Fatal(err)
		}
		if text(t, fsys, name) != before {
			t.Error("the log was changed")
		}
		loop.SetCleaner(CleanerOptions{DedupeBytes: 2 << 20, Backoff: time.Second, Threads: 2})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if bad.CleanedTo() <= 0 || len(loop.CleanerState(time.Now()).Uncleanable) > 0 {
			t.Errorf("after another try cleaned to %d", bad.CleanedTo())
		}
	})
}

// TestCleanerAndFailingDisk lets a write of the cleaner fail: with EIO the directory goes offline, with a full disk the log stays as it
// is and is tried again later.
func TestCleanerAndFailingDisk(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EIO, syscall.ENOSPC} {
		synctest.Test(t, func(t *testing.T) {
			fsys := vfs.NewMem()
			d := openDir(t, fsys, "d")
			defer d.Abandon()
			l := compacted(t, d, "t", 20)
			fsys.SetFault(vfs.FailNth(1, errno, func(op vfs.Op) bool {
				return op.Kind == vfs.OpWrite && strings.HasSuffix(op.Name, ".cleaned")
			}))
			var failed error
			loop := New(Options{
				Dirs: []*storage.Dir{d}, Log: quiet, Cleaner: CleanerOptions{DedupeBytes: 1 << 20, Backoff: time.Second},
				DirFailed: func(_ *storage.Dir, err error) { failed = err },
			})
			loop.Start()
			defer loop.Stop()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if l.CleanedTo() != -1 {
				t.Fatalf("%v: cleaned to %d", errno, l.CleanedTo())
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if errno == syscall.EIO {
				if failed == nil || d.Err() == nil || l.CleanedTo() != -1 {
					t.Errorf("after an I/O error the directory failed with %v, %v; cleaned to %d", failed, d.Err(), l.CleanedTo())
				}
				return
			}
			if failed != nil || l.Err() != nil || l.CleanedTo() <= 0 {
				t.Errorf("after a full disk: %v, %v, cleaned to %d", failed, l.Err(), l.CleanedTo())
			}
		})
	}
}

// TestCleanerStops breaks a slow clean off by Stop, by deleting its log, and by another setting.
func TestCleanerStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		d := openDir(t, fsys, "d")
		defer d.Abandon()
		l := compacted(t, d, "t", 2500) // 1.1 MB: several pauses
		loop := New(Options{Dirs: []*storage.Dir{d}, Log: quiet, Cleaner: CleanerOptions{DedupeBytes: 1 << 20, Backoff: time.Second, MaxBytesPerSecond: 1000}})
		loop.Start()
		time.Sleep(10 * time.Second)
		began := time.Now()
		loop.SetCleaner(CleanerOptions{DedupeBytes: 1 << 20, Backoff: time.Second, MaxBytesPerSecond: 1001})
		time.Sleep(10 * time.Second)
		loop.Stop()
		if took := time.Since(began); took > 11*time.Second || l.CleanedTo() != -1 {
			t.Errorf("it took %v to stop; cleaned to %d", took, l.CleanedTo())
		}
		loop = New(Options{Dirs: []*storage.Dir{d}, Log: quiet, Cleaner: CleanerOptions{DedupeBytes: 1 << 20, Backoff: time.Second, MaxBytesPerSecond: 1e5}})
		loop.Start()
		defer loop.Stop()
		time.Sleep(3 * time.Second)
		name, err := d.Delete(l, [16]byte{1})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if s := loop.CleanerState(time.Now()); len(s.Uncleanable) > 0 || s.Cleans > 0 || d.Err() != nil {
			t.Errorf("after the deletion: %+v, %v", s, d.Err())
		}
		if err := d.RemovePartition(name); err != nil {
			t.Fatal(err)
		}
	})
}

// TestPace reads as fast as it is let, and slower than that, and looks at the rate.
func TestPace(t *testing.T) {
	p := pace{rate: 1e6}
	now := time.UnixMilli(0)
	var sum float64
	for now.UnixMilli() < 20_000 {
		sum += 256 << 10
		wait := p.took(256<<10, now)
		if wait > 0 && wait < paceInterval {
			t.Fatalf("waits %v, less than the time over which the rate is measured", wait)
		}
		now = now.Add(time.Millisecond + wait)
	}
	if rate := sum / 20; rate < 0.9e6 || rate > 1.1e6 {
		t.Errorf("%.0f bytes a second, want 1e6", rate)
	}
	for range 1000 {
		now = now.Add(time.Second)
		if d := p.took(500_000, now); d > 0 {
			t.Fatalf("waits %v below the rate", d)
		}
	}
	// What was not used in a quiet time isn't saved up.
	now = now.Add(time.Hour)
	sum = 0
	for start := now; now.Sub(start) < 10*time.Second; {
		sum += 256 << 10
		now = now.Add(time.Millisecond + p.took(256<<10, now))
	}
	if rate := sum / 10; rate > 1.2e6 {
		t.Errorf("%.0f bytes a second after a quiet time", rate)
	}
	p = pace{rate: math.MaxFloat64}
	if d := p.took(1e12, now); d > 0 {
		t.Errorf("waits %v without a bound", d)
	}
}

// TestSmallBuffer ends a thread that could not hold a single key.
func TestSmallBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := openDir(t, vfs.NewMem(), "d")
		defer d.Abandon()
		loop := New(Options{Dirs: []*storage.Dir{d}, Log: quiet, Cleaner: CleanerOptions{DedupeBytes: 40}})
		loop.Start()
		synctest.Wait()
		if s := loop.CleanerState(time.Now()); s.DeadThreads != 1 {
			t.Errorf("%+v", s)
		}
		loop.Stop()
	})
}

// TestOverdue cleans a log that is not dirty enough once max.compaction.lag.ms has passed.
func TestOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := openDir(t, vfs.NewMem(), "d")
		defer d.Abandon()
		l := compacted(t, d, "t", 20)
		c := *l.Config()
		c.MinCleanableDirtyRatio, c.MaxCompactionLag = 1, time.Hour
		l.SetConfig(c)
		loop := New(Options{Dirs: []*storage.Dir{d}, Log: quiet, Cleaner: CleanerOptions{DedupeBytes: 1 << 20, Backoff: time.Minute}})
		loop.Start()
		defer loop.Stop()
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		if l.CleanedTo() != -1 {
			t.Fatal("cleaned too early")
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if l.CleanedTo() <= 0 {
			t.Error("not cleaned")
		}
	})
}

// TestCleansUnderLoad appends and reads while two threads clean, segments roll and retention runs: every batch that is read is whole, and
// in the end the newest value of each key is there.
func TestCleansUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := openDir(t, vfs.NewMem(), "d")
		defer d.Close(1)
		logs := []*storage.Log{compacted(t, d, "a", 1), compacted(t, d, "b", 1)}
		loop := New(Options{Dirs: []*storage.Dir{d}, Log: quiet, RetentionCheck: time.Second, Cleaner: CleanerOptions{DedupeBytes: 1 << 20, Threads: 2, Backoff: time.Millisecond}})
		loop.Start()
		var load sync.WaitGroup
		for _, l := range logs {
			load.Go(func() {
				for range 1500 {
					fill(t, l, 1)
					time.Sleep(time.Duration(l.EndOffset()%7) * time.Millisecond)
				}
			})
			for range 2 {
				load.Go(func() {
					for offset := l.StartOffset(); l.EndOffset() < 6000; time.Sleep(3 * time.Millisecond) {
						if offset = readOn(t, l, offset, nil); offset >= l.EndOffset()-4 {
							offset = l.StartOffset()
						}
					}
				})
			}
		}
		load.Wait()
		pass(time.Second)
		loop.Stop()
		if s := loop.CleanerState(time.Now()); s.Cleans < 20 || len(s.Uncleanable) > 0 {
			t.Errorf("%d cleans, %v", s.Cleans, s.Uncleanable)
		}
		for _, l := range logs {
			newest := map[string]int64{}
			records := 0
			for offset := l.StartOffset(); offset < l.EndOffset(); {
				offset = readOn(t, l, offset, func(r *record.Record) {
					newest[string(r.Key)] = r.Offset
					records++
				})
			}
			for k := range 4 {
				if got, want := newest[fmt.Sprintf("k%d", k)], l.EndOffset()-4+int64(k); got != want {
					t.Errorf("the newest of k%d is at %d, want %d", k, got, want)
				}
			}
			if records > 1000 {
				t.Errorf("%d of 6004 records are left", records)
			}
		}
	})
}

// readOn reads a piece of a log and returns the offset after it.
func readOn(t *testing.T, l *storage.Log, offset kafka.Offset, each func(r *record.Record)) kafka.Offset {
	s, err := l.Read(offset, 3000, true, l.EndOffset())
	if err != nil {
		t.Errorf("read at %d: %v", offset, err)
		return l.EndOffset()
	}
	defer s.Release()
	buf := make([]byte, s.Len())
	_, _ = s.ReadAt(buf, 0)
	for {
		b, rest, err := record.Next(buf)
		if err != nil || b == nil {
			if err != nil {
				t.Errorf("read at %d: %v", offset, err)
			}
			return offset
		}
		if err := b.Check(); err != nil || b.LastOffset() < offset {
			t.Errorf("read at %d: offsets %d to %d, %v", offset, b.BaseOffset(), b.LastOffset(), err)
			return l.EndOffset()
		}
		for r, err := range b.All() {
			if err != nil {
				t.Error(err)
			} else if each != nil {
				each(r)
			}
		}
		offset, buf = b.NextOffset(), rest
	}
}
