package metadata

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/highwater/highwater/internal/schema"
)

// Replaying a snapshot of a million partitions (and of a hundred thousand), and what the image holds in memory.
func BenchmarkReplay(b *testing.B) {
	for _, size := range []struct{ topics, partitions int }{{1000, 100}, {10_000, 100}, {100_000, 10}} {
		b.Run(fmt.Sprintf("%dx%d", size.topics, size.partitions), func(b *testing.B) {
			records := record1M(b, size.topics, size.partitions)
			b.ReportAllocs()
			var img *Image
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			for b.Loop() {
				d := NewDelta(Empty())
				for i, v := range records {
					if err := d.ReplayBytes(Provenance{Offset: int64(i)}, v); err != nil {
						b.Fatal(err)
					}
				}
				img, _ = d.Apply()
			}
			b.ReportMetric(float64(b.N)*float64(len(records))/b.Elapsed().Seconds()/1e6, "Mrec/s")
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(img.NumPartitions()), "B/partition")
			runtime.KeepAlive(records)
		})
	}
}

// One partition changes in a cluster of a million: the cost of a delta and a new image.
func BenchmarkOneChange(b *testing.B) {
	d := NewDelta(Empty())
	for i, v := range record1M(b, 10_000, 100) {
		if err := d.ReplayBytes(Provenance{Offset: int64(i)}, v); err != nil {
			b.Fatal(err)
		}
	}
	img, _ := d.Apply()
	c := schema.NewPartitionChangeRecord()
	c.TopicID, c.PartitionID, c.ISR = img.Topic("topic-005000").ID, 50, []int32{1, 2}
	v, err := schema.AppendFrame(nil, c, 2)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		d := NewDelta(img)
		if err := d.ReplayBytes(Provenance{}, v); err != nil {
			b.Fatal(err)
		}
		d.Apply()
	}
}

// Writing the image of a million partitions.
func BenchmarkWrite(b *testing.B) {
	d := NewDelta(Empty())
	for i, v := range record1M(b, 10_000, 100) {
		if err := d.ReplayBytes(Provenance{Offset: int64(i)}, v); err != nil {
			b.Fatal(err)
		}
	}
	img, _ := d.Apply()
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		var buf []byte
		err := img.Write(WriteOptions{Version: LatestProductionVersion}, func(r schema.Record, version int16) (err error) {
			n++
			buf, err = schema.AppendFrame(buf[:0], r, version)
			return err
		})
		if err != nil || n != 1_010_000 {
			b.Fatal(n, err)
		}
	}
}
