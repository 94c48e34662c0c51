package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/highwater/highwater/internal/codec"
	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/internal/kerr"
)

func seeds(f *testing.F, add func(b []byte)) {
	for _, v := range fixture.Lines[batchVector](f, "vectors/batches.jsonl.gz") {
		if b := unhex(f, v.Hex); len(b) < 3000 {
			add(b)
		}
	}
	for _, v := range fixture.Lines[invalidVector](f, "vectors/batches-invalid.jsonl.gz") {
		if b := unhex(f, v.Hex); len(b) < 3000 {
			add(b)
		}
	}
}

// FuzzBatch reads anything as batches of any magic, and what is whole and well-formed of magic 2 comes back from a Builder.
func FuzzBatch(f *testing.F) {
	seeds(f, func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, data []byte) {
		for rest := data; ; {
			b, after, err := Next(rest)
			if err != nil || b == nil {
				return
			}
			if len(b)+len(after) != len(rest) {
				t.Fatal("bytes lost")
			}
			rest = after
			if err := b.Check(); err != nil && kerr.Code(err) != kerr.CorruptMessage.Code {
				t.Fatal(err)
			}
			r := NewReader(b)
			builder := NewBuilder(DefaultBatchOptions(math.MinInt64))
			n, size := 0, 0
			for ; size < 1<<20 && r.Next(); n++ {
				rec := r.Record()
				if rec.Offset == math.MinInt64 {
					continue // there is none before it, which a Builder begins with
				}
				size += rec.Size
				for k, v := range rec.Headers.All() {
					size += len(k) + len(v)
				}
				builder.Reset(DefaultBatchOptions(rec.Offset))
				builder.AppendRecord(rec)
				one, err := builder.Build()
				if err != nil {
					t.Fatal(err)
				}
				for again, err := range one.All() {
					if err != nil || again.Offset != rec.Offset || again.Timestamp != rec.Timestamp || !bytes.Equal(again.Key, rec.Key) ||
						!bytes.Equal(again.Value, rec.Value) || (again.Key == nil) != (rec.Key == nil) || (again.Value == nil) != (rec.Value == nil) || again.Headers.Len() != rec.Headers.Len() {
						t.Fatalf("%+v came back as %+v, %v", rec, again, err)
					}
				}
			}
			if err := r.Err(); err != nil {
				if c := kerr.Code(err); c != kerr.CorruptMessage.Code && c != kerr.InvalidRecord.Code {
					t.Fatal(err)
				}
			} else if b.Magic() == 2 && n != int(b.Count()) && size < 1<<20 {
				t.Fatalf("%d records, declared %d", n, b.Count())
			}
			r.Close()
		}
	})
}

// FuzzValidate appends anything, with lengths and CRCs put right so that it gets far, under any options. What is accepted must be whole,
// readable, and accepted again.
func FuzzValidate(f *testing.F) {
	seeds(f, func(b []byte) {
		f.Add(b, uint16(0))
		f.Add(b, uint16(0x5a5))
	})
	f.Fuzz(func(t *testing.T, data []byte, bits uint16) {
		data = bytes.Clone(data)
		if b := Batch(data); len(b) > HeaderSize && bits&0x8000 == 0 {
			binary.BigEndian.PutUint32(b[posLength:], uint32(len(b)-LogOverhead))
			if m := b.Magic(); m >= 0 && m <= 2 {
				fixCRC(b)
			}
		}
		o := Options{
			Codec:              codec.Type(bits>>2&7)%6 - 1,
			Level:              codec.DefaultLevel,
			Origin:             Origin(bits & 3),
			Compacted:          bits&0x20 != 0,
			TimestampType:      TimestampType(bits >> 6 & 1),
			TimestampBeforeMax: math.MaxInt64,
			TimestampAfterMax:  math.MaxInt64,
			Now:                vectorNow,
			TrustCompressed:    bits&0x80 != 0,
			LeaderEpoch:        vectorEpoch,
		}
		if bits&0x100 != 0 {
			o.TimestampBeforeMax, o.TimestampAfterMax = 3600_000, 3600_000
		}
		if bits&0x200 != 0 {
			o.MaxDecompressedMessageBytes, o.MaxMessageBytes, o.SegmentBytes = 1000, 5000, 6000
		}
		// Kafka clears the flag of a batch that claims to have LogAppendTime, but keeps its maximum.
		claimed := len(data) > HeaderSize && Batch(data).TimestampType() == LogAppendTime
		v, err := Validate(data, &o)
		if err != nil {
			var k *kerr.Error
			if !errors.As(err, &k) {
				t.Fatalf("not for a client: %v", err)
			}
			return
		}
		defer v.Release()
		if o.Origin == Client || o.Origin == Coordinator {
			v.Assign(vectorStart, vectorEpoch, vectorNow)
		}
		next := v.FirstOffset
		end := 0
		for i, f := range v.Batches {
			b := v.Batch(i)
			if f.Pos != end {
				t.Fatalf("batch %d at %d, want %d", i, f.Pos, end)
			}
			end += f.Size
			if err := b.Check(); err != nil {
				t.Fatal(err)
			}
			if b.Magic() >= 2 && (b.BaseOffset() != f.FirstOffset || b.LastOffset() != f.LastOffset || f.FirstOffset < next || b.PartitionLeaderEpoch() != f.LeaderEpoch) {
				t.Fatalf("%+v, batch %x", f, b[:HeaderSize])
			}
			next = f.LastOffset + 1
			if o.Origin != Client || o.TrustCompressed {
				continue
			}
			largest := NoTimestamp
			for r, err := range b.All() {
				if err != nil {
					t.Fatalf("accepted what cannot be read: %v", err)
				}
				largest = max(largest, r.Timestamp)
			}
			if largest != v.MaxTimestamp && o.TimestampType == CreateTime && !claimed {
				t.Fatalf("max timestamp %d, want %d", v.MaxTimestamp, largest)
			}
		}
		if end != len(v.Bytes) {
			t.Fatalf("%d bytes in batches, %d in all", end, len(v.Bytes))
		}
	})
}

// FuzzFilter filters whatever looks like a batch. What comes out must be a good batch of the records that were to be kept, and nothing else.
func FuzzFilter(f *testing.F) {
	seeds(f, func(b []byte) { f.Add(b, uint64(0x5555), true) })
	f.Fuzz(func(t *testing.T, data []byte, mask uint64, keepEmpty bool) {
		b, _, err := Next(data)
		if err != nil || b == nil || !b.headerFits() {
			return
		}
		var want []string
		i := 0
		keep := func(o int64) bool { i++; return mask>>(i%64)&1 != 0 }
		var filter Filter
		out, r, err := filter.AppendTo([]byte("before"), b, &FilterOptions{KeepEmpty: keepEmpty, DeleteHorizon: 1000, MaxRecordBytes: 1 << 20}, func(o int64, key []byte, tombstone bool) bool {
			kept := keep(o)
			if kept {
				want = append(want, fmt.Sprintf("%d %q %v %v", o, key, key == nil, tombstone))
			}
			return kept
		})
		if string(out[:6]) != "before" {
			t.Fatal("what was there before is gone")
		}
		if out = out[6:]; err != nil || len(out) == 0 {
			if len(out) > 0 || err == nil && (len(want) > 0 || keepEmpty) {
				t.Fatalf("%d bytes, %v, %d records wanted", len(out), err, len(want))
			}
			return
		}
		if !r.Rewritten {
			if !bytes.Equal(out, b) {
				t.Fatal("a copy differs")
			}
			return
		}
		a := Batch(out)
		if err := a.Check(); err != nil || a.Magic() != 2 || r.Size != len(out) || r.Kept != len(want) {
			t.Fatalf("%v, magic %d, %+v, %d bytes, %d records", err, a.Magic(), r, len(out), len(want))
		}
		var got []string
		for rec, err := range a.All() {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%d %q %v %v", rec.Offset, rec.Key, rec.Key == nil, rec.Value == nil))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}
