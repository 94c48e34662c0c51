package storage_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/codec"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/storageloop"
	"github.com/highwater/highwater/internal/vfs/osfs"
)

var benchPartition = kafka.TopicPartition{Topic: "bench", Partition: 0}

func benchLog(b testing.TB, config storage.Config) (*storage.Dir, *storage.Log) {
	fsys := osfs.New("")
	d, err := storage.OpenDir(b.TempDir(), storage.Options{FS: fsys, Files: storage.NewFiles(fsys, 1000), ProducerExpiration: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { d.Abandon() })
	l, err := d.Create(benchPartition, kafka.TopicID{1}, config, time.Now())
	if err != nil {
		b.Fatal(err)
	}
	return d, l
}

// validated is a batch of about size bytes in records of 1 KB (or one of size bytes).
func validated(b testing.TB, config *storage.Config, size int) *record.Validated {
	r := record.NewBuilder(record.DefaultBatchOptions(0))
	value := bytes.Repeat([]byte("v"), min(size, 1000))
	for r.Size() < size {
		r.Append(time.Now().UnixMilli(), nil, value)
	}
	batch, err := r.Build()
	if err != nil {
		b.Fatal(err)
	}
	o := config.Validation(benchPartition, record.Client, time.Now())
	v, err := record.Validate(batch, &o)
	if err != nil {
		b.Fatal(err)
	}
	return v
}

// BenchmarkAppend is AppendAsLeader alone (validation is record's) on the real file system.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 100 << 10} {
		b.Run(fmt.Sprintf("%dK", size>>10), func(b *testing.B) {
			c := storage.DefaultConfig()
			c.SegmentBytes, c.RetentionBytes, c.FileDeleteDelay = 256<<20, 256<<20, 0
			_, l := benchLog(b, c)
			v := validated(b, &c, size)
			now := time.Now()
			b.SetBytes(int64(len(v.Bytes)))
			b.ReportAllocs()
			before, n := cpuTime(b), 0
			for b.Loop() {
				n++
				a, err := l.AppendAsLeader(v, storage.LeaderAppend{Now: now, LeaderEpoch: 1, Origin: record.Client})
				if err != nil {
					b.Fatal(err)
				}
				if a.Rolled {
					l.SetHighWatermark(l.EndOffset())
					if _, err := l.DeleteOldSegments(now); err != nil {
						b.Fatal(err)
					}
					if _, err := l.RemoveDeleted(now); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric((cpuTime(b)-before).Seconds()/float64(n*len(v.Bytes))*1e9, "cpu-s/GB")
		})
	}
}

// BenchmarkRead finds the byte range of a fetch: at the tail, and in old data of 1 MB a fetch.
func BenchmarkRead(b *testing.B) {
	c := storage.DefaultConfig()
	c.SegmentBytes = 64 << 20
	_, l := benchLog(b, c)
	v := validated(b, &c, 16<<10)
	now := time.Now()
	for range 20000 {
		if _, err := l.AppendAsLeader(v, storage.LeaderAppend{Now: now, LeaderEpoch: 1, Origin: record.Client}); err != nil {
			b.Fatal(err)
		}
	}
	end, last := l.EndOffset(), v.FirstOffset
	b.Run("tail", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s, err := l.Read(last, 1<<20, true, end)
			if err != nil || s.Len() == 0 {
				b.Fatal(s.Len(), err)
			}
			s.Release()
		}
	})
	b.Run("old 1M", func(b *testing.B) {
		b.ReportAllocs()
		for offset := kafka.Offset(0); b.Loop(); {
			s, err := l.Read(offset, 1<<20, true, end)
			if err != nil || s.Len() == 0 {
				b.Fatal(s.Len(), err)
			}
			if offset += 1000; offset > end-2000 {
				offset = 0
			}
			s.Release()
		}
	})
	b.Run("high watermark behind", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s, err := l.Read(last-1000, 1<<20, true, last)
			if err != nil || s.Len() == 0 {
				b.Fatal(s.Len(), err)
			}
			s.Release()
		}
	})
}

// BenchmarkLoad opens a clean directory of many partitions with two workers, as the broker does at its start, and closes it.
func BenchmarkLoad(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			fsys := osfs.New("")
			path := b.TempDir()
			c := storage.DefaultConfig()
			open := func() (*storage.Dir, *storageloop.Loop) {
				d, err := storage.OpenDir(path, storage.Options{FS: fsys, Files: storage.NewFiles(fsys, 1000), ProducerExpiration: time.Hour})
				if err != nil {
					b.Fatal(err)
				}
				return d, storageloop.New(storageloop.Options{Dirs: []*storage.Dir{d}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
			}
			d, loop := open()
			v := validated(b, &c, 1<<10)
			for i := range n {
				l, err := d.Create(kafka.TopicPartition{Topic: "topic", Partition: int32(i)}, kafka.TopicID{1}, c, time.Now())
				if err != nil {
					b.Fatal(err)
				}
				if _, err := l.AppendAsLeader(v, storage.LeaderAppend{Now: time.Now(), LeaderEpoch: 1, Origin: record.Client}); err != nil {
					b.Fatal(err)
				}
			}
			began := time.Now()
			if err := loop.Close(1); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(time.Since(began).Milliseconds()), "first-close-ms")
			config := func(kafka.TopicPartition) storage.Config { return c }
			var closing, cpu time.Duration
			loads := 0
			for b.Loop() {
				d, loop = open()
				before := cpuTime(b)
				if err := loop.Load(b.Context(), config); err != nil {
					b.Fatal(err)
				}
				if len(d.Logs()) != n {
					b.Fatal(len(d.Logs()))
				}
				b.StopTimer()
				cpu += cpuTime(b) - before
				loads++
				began := time.Now()
				if err := loop.Close(1); err != nil {
					b.Fatal(err)
				}
				closing = time.Since(began)
				b.StartTimer()
			}
			b.ReportMetric(float64(closing.Milliseconds()), "close-ms")
			b.ReportMetric(float64(cpu.Milliseconds())/float64(loads), "cpu-ms/load")
		})
	}
}

// cpuTime is what this process has used so far.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestAllocs pins what the hot paths allocate: nothing for a record, and nothing for a batch.
func TestAllocs(t *testing.T) {
	c := storage.DefaultConfig()
	_, l := benchLog(t, c)
	v := validated(t, &c, 16<<10)
	now := time.Now()
	if n := testing.AllocsPerRun(300, func() {
		if _, err := l.AppendAsLeader(v, storage.LeaderAppend{Now: now, LeaderEpoch: 1, Origin: record.Client}); err != nil {
			t.Fatal(err)
		}
		l.SetHighWatermark(l.EndOffset())
	}); n > 0 {
		t.Errorf("an append allocates %v times", n)
	}
	end := l.EndOffset()
	if n := testing.AllocsPerRun(300, func() {
		s, err := l.Read(end-100, 1<<20, true, end)
		if err != nil || s.Len() == 0 {
			t.Fatal(s.Len(), err)
		}
		s.Release()
	}); n > 0 {
		t.Errorf("a read allocates %v times", n)
	}
}

// BenchmarkClean compacts a log of 64 MB in which each of 50,000 keys was written about ten times, records of 100 bytes in batches of 16 KB.
// MB/cpu-s is megabytes of that log for a second of this process's CPU.
func BenchmarkClean(b *testing.B) {
	for _, c := range []codec.Type{codec.None, codec.LZ4, codec.Zstd} {
		b.Run(c.String(), func(b *testing.B) { benchmarkClean(b, c) })
	}
}

func benchmarkClean(b *testing.B, c codec.Type) {
	config := storage.DefaultConfig()
	config.SegmentBytes, config.Compact, config.FileDeleteDelay = 4<<20, true, 0
	fsys := osfs.New("")
	home := b.TempDir()
	var bytes int64
	rng := rand.New(rand.NewPCG(1, 2))
	open := func(path string) (*storage.Dir, *storage.Log) {
		d, err := storage.OpenDir(path, storage.Options{FS: fsys, Files: storage.NewFiles(fsys, 1000), ProducerExpiration: time.Hour})
		if err != nil {
			b.Fatal(err)
		}
		l, _, err := d.Open(storage.PartitionDir{Name: benchPartition.String(), Partition: benchPartition}, config, time.Now())
		if err != nil {
			b.Fatal(err)
		}
		l.SetHighWatermark(l.EndOffset())
		return d, l
	}
	source := home + "/source"
	if err := fsys.MkdirAll(source); err != nil {
		b.Fatal(err)
	}
	d, err := storage.OpenDir(source, storage.Options{FS: fsys, Files: storage.NewFiles(fsys, 1000), ProducerExpiration: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	l, err := d.Create(benchPartition, kafka.TopicID{1}, config, time.Now())
	if err != nil {
		b.Fatal(err)
	}
	for raw := 0; raw < 64<<20; {
		o := record.DefaultBatchOptions(0)
		o.Codec = c
		r := record.NewBuilder(o)
		for r.Size() < 16<<10 {
			r.Append(time.Now().UnixMilli(), fmt.Appendf(nil, "key-%012d", rng.IntN(50_000)), fmt.Appendf(nil, "%080x", rng.Uint64()))
		}
		raw += r.Size()
		batch, err := r.Build()
		if err != nil {
			b.Fatal(err)
		}
		vo := config.Validation(benchPartition, record.Client, time.Now())
		v, err := record.Validate(batch, &vo)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := l.AppendAsLeader(v, storage.LeaderAppend{Now: time.Now(), Origin: record.Client}); err != nil {
			b.Fatal(err)
		}
		v.Release()
	}
	l.SetHighWatermark(l.EndOffset())
	if err := d.Close(1); err != nil {
		b.Fatal(err)
	}
	cleaner, err := storage.NewCleaner(storage.CleanerOptions{DedupeBytes: 128 << 20, LoadFactor: 0.9, HashKey: [2]uint64{1, 2}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	var spent time.Duration
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		path := fmt.Sprintf("%s/%d", home, i)
		if err := os.CopyFS(path, os.DirFS(source)); err != nil {
			b.Fatal(err)
		}
		d, l := open(path)
		r, err := l.CleanRange(time.Now())
		if err != nil {
			b.Fatal(err)
		}
		bytes = r.CleanableBytes
		before := cpu(b)
		b.StartTimer()
		if _, err := cleaner.Clean(l, r, time.Now()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		spent += cpu(b) - before
		if err := d.Abandon(); err != nil {
			b.Fatal(err)
		}
		os.RemoveAll(path)
		b.StartTimer()
	}
	b.SetBytes(bytes)
	b.ReportMetric(float64(bytes)*float64(b.N)/1e6/spent.Seconds(), "MB/cpu-s")
}

func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
