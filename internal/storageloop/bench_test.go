package storageloop

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs/osfs"
)

// BenchmarkLoad opens a directory of many logs of which one in twenty has a batch, one in three was emptied by retention, and in the
// others nothing was ever written, and reports what one of them costs: after a clean stop, and after a kill. In a temporary directory in
// memory (TMPDIR) it shows what the calls cost, without the disk.
func BenchmarkLoad(b *testing.B) {
	const logs = 20_000
	fsys := osfs.New("")
	path := b.TempDir()
	load := func() (*storage.Dir, *Loop) {
		d, err := storage.OpenDir(path, storage.Options{FS: fsys, Files: storage.NewFiles(fsys, 1000), ProducerExpiration: time.Hour})
		if err != nil {
			b.Fatal(err)
		}
		l := New(Options{Dirs: []*storage.Dir{d}, Log: quiet})
		if err := l.Load(b.Context(), func(kafka.TopicPartition) storage.Config { return storage.DefaultConfig() }); err != nil {
			b.Fatal(err)
		}
		return d, l
	}
	d, l := load()
	for i := range logs {
		log, err := d.Create(kafka.TopicPartition{Topic: fmt.Sprintf("topic-%d", i/100), Partition: int32(i % 100)}, kafka.TopicID{1}, storage.DefaultConfig(), time.Now())
		if err != nil {
			b.Fatal(err)
		}
		switch {
		case i%20 == 0:
			if err := log.AssignEpoch(3, 0); err != nil {
				b.Fatal(err)
			}
			appendTo(b, log, int64(kafka.NoProducerID), kafka.NoSequence)
		case i%3 == 0:
			if err := log.TruncateFullyAndStartAt(1000, 1000, time.Now()); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := l.Close(1); err != nil {
		b.Fatal(err)
	}
	for _, kill := range []bool{false, true} {
		b.Run(map[bool]string{false: "clean", true: "killed"}[kill], func(b *testing.B) {
			stop := func(d *storage.Dir, l *Loop) error {
				if kill {
					return d.Abandon()
				}
				return l.Close(1)
			}
			if err := stop(load()); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			var cpu time.Duration
			for b.Loop() {
				before := cpuTime(b)
				d, l := load()
				cpu += cpuTime(b) - before
				b.StopTimer()
				if n := len(d.Logs()); n != logs {
					b.Fatalf("%d logs", n)
				}
				if err := stop(d, l); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/logs, "ns/log")
			b.ReportMetric(float64(cpu.Nanoseconds())/float64(b.N)/logs, "cpu-ns/log")
		})
	}
}

// cpuTime is what the process has used so far, of both kinds.
func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
