package storageloop

import (
	"fmt"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs/osfs"
)

// BenchmarkCleanLoad opens a directory of 10,000 logs of one batch each that was closed cleanly, and reports what one of them costs. In a
// temporary directory in memory (TMPDIR) it shows what the calls cost, without the disk.
func BenchmarkCleanLoad(b *testing.B) {
	const logs = 10_000
	fsys := osfs.New("")
	path := b.TempDir()
	open := func() (*storage.Dir, *Loop) {
		d, err := storage.OpenDir(path, storage.Options{FS: fsys, Files: storage.NewFiles(fsys, 1000), ProducerExpiration: time.Hour})
		if err != nil {
			b.Fatal(err)
		}
		return d, New(Options{Dirs: []*storage.Dir{d}, Log: quiet})
	}
	load := func(l *Loop) {
		if err := l.Load(b.Context(), func(kafka.TopicPartition) storage.Config { return storage.DefaultConfig() }); err != nil {
			b.Fatal(err)
		}
	}
	d, l := open()
	load(l)
	for i := range logs {
		log, err := d.Create(kafka.TopicPartition{Topic: fmt.Sprintf("topic-%d", i/100), Partition: int32(i % 100)}, kafka.TopicID{1}, storage.DefaultConfig(), time.Now())
		if err != nil {
			b.Fatal(err)
		}
		if err := log.AssignEpoch(3, 0); err != nil {
			b.Fatal(err)
		}
		appendTo(b, log, int64(kafka.NoProducerID), kafka.NoSequence)
	}
	if err := l.Close(1); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		d, l := open()
		load(l)
		b.StopTimer()
		if n := len(d.Logs()); n != logs {
			b.Fatalf("%d logs", n)
		}
		if err := l.Close(1); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/logs, "ns/log")
}
