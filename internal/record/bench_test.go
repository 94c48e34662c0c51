package record

import (
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/highwater/highwater/internal/codec"
	"github.com/highwater/highwater/internal/kafka"
)

// jsonLike fills value with something that compresses about as log lines do (lz4 3:1, zstd 5:1).
func jsonLike(r *rand.Rand, value []byte) {
	levels := []string{"INFO", "WARN", "DEBUG", "ERROR"}
	services := []string{"checkout", "payment", "inventory", "shipping", "search"}
	for i := 0; i < len(value); {
		i += copy(value[i:], fmt.Sprintf(`{"ts":%d,"level":"%s","service":"%s","trace":"%016x","message":"order %d accepted","amount":%d.%02d}`,
			vectorNow+r.Int64N(1e6), levels[r.IntN(4)], services[r.IntN(5)], r.Uint64(), r.IntN(1e6), r.IntN(1000), r.IntN(100)))
	}
}

// clientBatch is a batch as a producer sends it: about size bytes of records with values of valueSize, before compression.
func clientBatch(t testing.TB, c codec.Type, size, valueSize int) Batch {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	o := DefaultBatchOptions(0)
	o.Codec = c
	b := NewBuilder(o)
	value := make([]byte, valueSize)
	for first := true; first || b.Size()+valueSize+20 < size; first = false {
		jsonLike(r, value)
		b.Append(vectorNow+int64(b.Len()/10), fmt.Appendf(nil, "key%05d", r.IntN(1e5)), value)
	}
	batch, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

var benchOptions = Options{
	Partition:          kafka.TopicPartition{Topic: "topic"},
	Codec:              ProducerCodec,
	Level:              codec.DefaultLevel,
	TimestampBeforeMax: math.MaxInt64,
	TimestampAfterMax:  3600_000,
	Now:                vectorNow,
	MaxMessageBytes:    2 << 20,
	SegmentBytes:       1 << 30,
}

func eachBench(b *testing.B, f func(b *testing.B, batch Batch)) {
	for c := codec.None; c <= codec.Zstd; c++ {
		for _, size := range []int{1 << 10, 16 << 10, 100 << 10, 1 << 20} {
			for _, value := range []int{100, 1000} {
				b.Run(fmt.Sprintf("%s/batch=%dK/value=%d", c, size>>10, value), func(b *testing.B) {
					batch := clientBatch(b, c, size, value)
					b.SetBytes(int64(len(batch)))
					b.ReportAllocs()
					f(b, batch)
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(batch.Count()), "ns/record")
				})
			}
		}
	}
}

// BenchmarkAppend is all that the produce path does here: both stages. Bytes are those on the wire.
func BenchmarkAppend(b *testing.B) {
	eachBench(b, func(b *testing.B, batch Batch) {
		o := benchOptions
		for b.Loop() {
			batch.SetBaseOffset(0)
			v, err := Validate(batch, &o)
			if err != nil {
				b.Fatal(err)
			}
			v.Assign(1000, 5, vectorNow)
			v.Release()
		}
	})
}

// BenchmarkTrusted is BenchmarkAppend with header and CRC only.
func BenchmarkTrusted(b *testing.B) {
	eachBench(b, func(b *testing.B, batch Batch) {
		if batch.Codec() == codec.None {
			b.Skip("nothing to trust")
		}
		o := benchOptions
		o.TrustCompressed = true
		for b.Loop() {
			v, err := Validate(batch, &o)
			if err != nil {
				b.Fatal(err)
			}
			v.Release()
		}
	})
}

// BenchmarkFloor is the least that BenchmarkAppend could do: CRC, and decompression into a buffer that is there.
func BenchmarkFloor(b *testing.B) {
	eachBench(b, func(b *testing.B, batch Batch) {
		var buffer []byte
		for b.Loop() {
			if crc32.Checksum(batch[posAttributes:], castagnoli) != batch.CRC() {
				b.Fatal("CRC")
			}
			if batch.Codec() != codec.None {
				var err error
				if buffer, err = codec.Decompress(buffer[:0], batch.Codec(), batch.Payload(), math.MaxInt32); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

// BenchmarkRecords reads every record.
func BenchmarkRecords(b *testing.B) {
	eachBench(b, func(b *testing.B, batch Batch) {
		for b.Loop() {
			r := NewReader(batch)
			n := 0
			for r.Next() {
				n += len(r.Record().Value)
			}
			if r.Err() != nil || n == 0 {
				b.Fatal(r.Err())
			}
			r.Close()
		}
	})
}

// BenchmarkRecompress enforces compression.type on a batch of another codec.
func BenchmarkRecompress(b *testing.B) {
	for c := codec.None; c <= codec.Zstd; c++ {
		b.Run("zstd to "+c.String(), func(b *testing.B) {
			batch := clientBatch(b, codec.Zstd, 100<<10, 1000)
			o := benchOptions
			o.Codec = c
			b.SetBytes(100 << 10)
			b.ReportAllocs()
			for b.Loop() {
				v, err := Validate(batch, &o)
				if err != nil {
					b.Fatal(err)
				}
				v.Release()
			}
		})
	}
}
