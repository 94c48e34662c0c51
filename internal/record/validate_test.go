package record

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/highwater/highwater/internal/codec"
	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

// plainBatch has records with keys k0, k1 … from timestamp on.
func plainBatch(t testing.TB, o BatchOptions, records int, timestamp int64) Batch {
	t.Helper()
	b := NewBuilder(o)
	for i := range records {
		b.Append(timestamp+int64(i), fmt.Appendf(nil, "k%d", i), fmt.Appendf(nil, "value %d", i), Header{"h", []byte{byte(i)}})
	}
	return mustBuild(t, b)
}

func TestCheckProduce(t *testing.T) {
	o := DefaultBatchOptions(0)
	o.Codec = codec.Zstd
	b := plainBatch(t, o, 1, 0)
	f := func(version int16, records []byte, want *kerr.Error) {
		t.Helper()
		if err := CheckProduce(version, records); kerr.Code(err) != want.Code {
			t.Errorf("version %d: %v, want %v", version, err, want)
		}
	}
	none := &kerr.Error{}
	f(2, b, none)
	f(2, nil, none)
	f(3, b, kerr.UnsupportedCompressionType)
	f(6, b, kerr.UnsupportedCompressionType)
	f(7, b, none)
	f(7, nil, kerr.InvalidRecord)
	f(13, append(bytes.Clone(b), b...), kerr.InvalidRecord)
	f(13, append(bytes.Clone(b), 0, 1, 2), none)
}

// TestTransactional: only the first batch counts, and what is cut or too small for its header is left to later checks.
func TestTransactional(t *testing.T) {
	plain := plainBatch(t, DefaultBatchOptions(0), 1, 0)
	o := DefaultBatchOptions(0)
	o.Transactional, o.ProducerID, o.ProducerEpoch, o.BaseSequence = true, 7, 0, 0
	ours := plainBatch(t, o, 1, 0)
	f := func(records []byte, want bool, code int16) {
		t.Helper()
		if got, err := Transactional(records); got != want || kerr.Code(err) != code {
			t.Errorf("%x: %v, %v, want %v and code %d", records, got, err, want, code)
		}
	}
	f(nil, false, 0)
	f(plain, false, 0)
	f(ours, true, 0)
	f(append(bytes.Clone(plain), ours...), false, 0)
	for n := range ours {
		f(ours[:n], false, 0)
	}
	bad := bytes.Clone(ours)
	bad[posMagic] = 3
	f(bad, false, kerr.CorruptMessage.Code)
	small := Batch(bytes.Clone(ours[:HeaderSize-1]))
	small[posLength+3] = HeaderSize - 1 - LogOverhead
	f(small, false, 0)
}

// TestRebuildRefuses: what Kafka stores as it comes but cannot build anew is refused only where it must be built anew.
func TestRebuildRefuses(t *testing.T) {
	old := plainBatch(t, DefaultBatchOptions(0), 2, -5)
	o := DefaultBatchOptions(0)
	o.ProducerID, o.ProducerEpoch, o.BaseSequence = 7, -1, 0
	noEpoch := plainBatch(t, o, 2, vectorNow)
	for name, b := range map[string]Batch{"negative timestamps": old, "no producer epoch": noEpoch} {
		for compression, want := range map[string]int16{"producer": 0, "gzip": kerr.InvalidRecord.Code} {
			options := vectorOptions(t, map[string]string{"compression.type": compression, "message.timestamp.before.max.ms": fmt.Sprint(int64(math.MaxInt64))})
			v, err := Validate(bytes.Clone(b), &options)
			if kerr.Code(err) != want {
				t.Errorf("%s, compression.type=%s: %v, want code %d", name, compression, err, want)
			}
			if err == nil {
				v.Release()
			}
		}
	}
}

// TestAssign: the second stage leaves a batch as if all its fields had been set one by one and the CRC computed anew.
func TestAssign(t *testing.T) {
	for _, c := range []codec.Type{codec.None, codec.LZ4} {
		for _, n := range []int{1, 3, 2000} {
			bo := DefaultBatchOptions(0)
			bo.Codec = c
			b := plainBatch(t, bo, n, vectorNow-1000)
			for _, o := range []Options{vectorOptions(t, nil), vectorOptions(t, map[string]string{"message.timestamp.type": "LogAppendTime"})} {
				want := Batch(bytes.Clone(b))
				want.SetBaseOffset(1 << 40)
				want.SetPartitionLeaderEpoch(3)
				maxTimestamp, appendTime := want.MaxTimestamp(), NoTimestamp
				if o.TimestampType == LogAppendTime {
					want.SetMaxTimestamp(LogAppendTime, vectorNow+5)
					maxTimestamp, appendTime = vectorNow+5, vectorNow+5
				}
				v, err := Validate(bytes.Clone(b), &o)
				if err != nil {
					t.Fatal(err)
				}
				v.Assign(1<<40, 3, vectorNow+5)
				if !bytes.Equal(v.Bytes, want) {
					t.Errorf("%s, %d records, %s: %x\nwant %x", c, n, o.TimestampType, v.Bytes[:HeaderSize], want[:HeaderSize])
				}
				f := v.Batches[0]
				if v.FirstOffset != 1<<40 || v.LastOffset != 1<<40+int64(n)-1 || v.MaxTimestamp != maxTimestamp || v.MaxTimestampOffset != v.LastOffset ||
					v.LogAppendTime != appendTime || v.Rebuilt ||
					f.FirstOffset != v.FirstOffset || f.LastOffset != v.LastOffset || f.LeaderEpoch != 3 || f.MaxTimestamp != maxTimestamp || int(f.Count) != n {
					t.Errorf("%s, %d records, %s: %+v", c, n, o.TimestampType, v)
				}
				v.Release()
			}
		}
	}
}

// TestRebuild: whatever the producer's codec, compression.type decides; records and producer state stay.
func TestRebuild(t *testing.T) {
	for from := codec.None; from <= codec.Zstd; from++ {
		for to := codec.None; to <= codec.Zstd; to++ {
			bo := DefaultBatchOptions(0)
			bo.Codec, bo.ProducerID, bo.ProducerEpoch, bo.BaseSequence, bo.Transactional = from, 5, 6, 7, true
			b := plainBatch(t, bo, 300, vectorNow)
			o := vectorOptions(t, map[string]string{"compression.type": to.String()})
			if low, _, _, ok := codec.LevelRange(to); ok {
				o.Level = max(low, 1)
			}
			v, err := Validate(bytes.Clone(b), &o)
			if err != nil {
				t.Fatalf("%s to %s: %v", from, to, err)
			}
			v.Assign(0, -1, 0)
			if v.Rebuilt != (from != to) || v.InputBytes != len(b) || Batch(v.Bytes).Codec() != to {
				t.Errorf("%s to %s: rebuilt %v, %d bytes of input, %s", from, to, v.Rebuilt, v.InputBytes, Batch(v.Bytes).Codec())
			}
			bo.Codec = to
			sameBatch(t, fmt.Sprintf("%s to %s", from, to), plainBatch(t, bo, 300, vectorNow), v.Bytes)
			v.Release()
		}
	}
}

func TestRebuildLimits(t *testing.T) {
	bo := DefaultBatchOptions(0)
	bo.Codec = codec.Zstd
	builder := NewBuilder(bo)
	builder.Append(vectorNow, nil, make([]byte, 100_000))
	b := mustBuild(t, builder)
	f := func(change func(o *Options), want *kerr.Error) {
		t.Helper()
		o := vectorOptions(t, map[string]string{"compression.type": "uncompressed"})
		change(&o)
		v, err := Validate(bytes.Clone(b), &o)
		if kerr.Code(err) != want.Code {
			t.Errorf("%v, want %v", err, want)
		}
		if err == nil {
			v.Release()
		}
	}
	f(func(o *Options) {}, &kerr.Error{})
	f(func(o *Options) { o.MaxMessageBytes = 99_999 }, kerr.MessageTooLarge)
	f(func(o *Options) { o.SegmentBytes = 99_999 }, kerr.RecordListTooLarge)
	f(func(o *Options) { o.MaxDecompressedMessageBytes = 99_999 }, kerr.InvalidRecord)
	f(func(o *Options) { o.Compacted = true }, kerr.InvalidRecord)
	f(func(o *Options) { o.TimestampAfterMax, o.Now = 1, 0 }, kerr.InvalidTimestamp)
	f(func(o *Options) { o.TrustCompressed, o.Compacted = true, true }, kerr.InvalidRecord)
}

// TestControlStays: a marker is not compressed because its topic is.
func TestControlStays(t *testing.T) {
	m := MarkerBatch(0, -1, vectorNow, 1, 1, Marker{Type: Abort})
	o := vectorOptions(t, map[string]string{"compression.type": "gzip"})
	o.Origin = Coordinator
	v, err := Validate(bytes.Clone(m), &o)
	if err != nil || !bytes.Equal(v.Bytes, m) {
		t.Fatalf("%v", err)
	}
	v.Release()
}

// TestTrustCompressed: with the option nobody looks inside of a compressed batch, but all else is checked.
func TestTrustCompressed(t *testing.T) {
	bo := DefaultBatchOptions(0)
	bo.Codec = codec.LZ4
	b := plainBatch(t, bo, 10, vectorNow)
	b[len(b)-1] ^= 1 // within the frame's end mark
	b.SetCRC()
	f := func(b Batch, change func(o *Options), ok bool) {
		t.Helper()
		o := vectorOptions(t, nil)
		o.TrustCompressed = true
		change(&o)
		v, err := Validate(bytes.Clone(b), &o)
		if (err == nil) != ok {
			t.Errorf("%v", err)
		}
		if err == nil {
			v.Release()
		}
	}
	f(b, func(o *Options) {}, true)
	f(b, func(o *Options) { o.TrustCompressed = false }, false)
	f(b, func(o *Options) { o.Codec = codec.Gzip }, false) // a rebuild looks
	flipped := Batch(bytes.Clone(b))
	flipped[HeaderSize+8] ^= 1
	f(flipped, func(o *Options) {}, false) // CRC
	miscounted := Batch(bytes.Clone(b))
	miscounted[posCount+3]++
	miscounted.SetCRC()
	f(miscounted, func(o *Options) {}, false)
	plain := plainBatch(t, DefaultBatchOptions(0), 10, vectorNow)
	plain[HeaderSize] ^= 2 // the first record's length
	plain.SetCRC()
	f(plain, func(o *Options) {}, false)
}

// TestReplica: several batches, the ones with a higher leader epoch left out, offsets in order, facts of each.
func TestReplica(t *testing.T) {
	batch := func(base kafka.Offset, epoch kafka.LeaderEpoch, timestamp int64) Batch {
		o := DefaultBatchOptions(base)
		o.LeaderEpoch = epoch
		return plainBatch(t, o, 3, timestamp)
	}
	join := func(b ...Batch) (out []byte) {
		for _, x := range b {
			out = append(out, x...)
		}
		return out
	}
	o := vectorOptions(t, nil)
	o.Origin, o.LeaderEpoch, o.MaxMessageBytes = Replica, 5, 1 // a replica takes what the leader took
	v, err := Validate(join(batch(10, 4, 100), batch(13, 5, 300), batch(20, 5, 200), batch(23, 6, 400)), &o)
	if err != nil {
		t.Fatal(err)
	}
	if len(v.Batches) != 3 || v.FirstOffset != 10 || v.LastOffset != 22 || v.MaxTimestamp != 302 || v.MaxTimestampOffset != 15 || v.InputBytes != len(v.Bytes) {
		t.Errorf("%+v", v)
	}
	for i, want := range []Facts{{FirstOffset: 10, LastOffset: 12, LeaderEpoch: 4}, {FirstOffset: 13, LastOffset: 15, LeaderEpoch: 5}, {FirstOffset: 20, LastOffset: 22, LeaderEpoch: 5}} {
		f := v.Batches[i]
		if f.FirstOffset != want.FirstOffset || f.LastOffset != want.LastOffset || f.LeaderEpoch != want.LeaderEpoch || !bytes.Equal(v.Bytes[f.Pos:f.Pos+f.Size], batch(f.FirstOffset, f.LeaderEpoch, f.MaxTimestamp-2)) {
			t.Errorf("%d: %+v", i, f)
		}
	}
	v.Release()

	refused := func(name string, records []byte, o Options) {
		t.Helper()
		if _, err := Validate(records, &o); !errors.Is(err, kerr.InvalidRecord) {
			t.Errorf("%s: %v", name, err)
		}
	}
	refused("not in order", join(batch(10, 5, 0), batch(12, 5, 0)), o)
	refused("no epoch", batch(10, -1, 0), o)
	raft := o
	raft.Origin, raft.MaxMessageBytes = RaftLeader, 1<<20
	refused("raft leader, another epoch", batch(10, 4, 0), raft)
	v, err = Validate(join(batch(10, 5, 0), batch(13, 5, 0)), &raft)
	if err != nil || len(v.Batches) != 2 {
		t.Fatal(err)
	}
	v.Release()
}

// TestLargeRecords: what is skipped in pieces is checked as well as what is held.
func TestLargeRecords(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	value := make([]byte, 300_000)
	for i := range value[:100_000] {
		value[i] = byte(r.Uint32())
	}
	o := vectorOptions(t, nil)
	for c := codec.Gzip; c <= codec.Zstd; c++ {
		bo := DefaultBatchOptions(0)
		b := NewBuilder(bo)
		b.Append(vectorNow, []byte("small"), nil)
		b.Append(vectorNow+2, value, value, Header{"k", value[:5]}, Header{"n", nil})
		b.Append(vectorNow+1, []byte("small"), nil)
		plain := mustBuild(t, b)
		pack := func(records []byte) Batch {
			packed, err := codec.Compress(bytes.Clone(plain[:HeaderSize]), c, codec.DefaultLevel, records)
			if err != nil {
				t.Fatal(err)
			}
			p := Batch(packed)
			n := len(p) - LogOverhead
			p[posLength], p[posLength+1], p[posLength+2], p[posLength+3] = byte(n>>24), byte(n>>16), byte(n>>8), byte(n)
			p[posAttributes+1] |= byte(c)
			p.SetCRC()
			return p
		}
		v, err := Validate(pack(plain.Payload()), &o)
		if err != nil {
			t.Fatalf("%s: %v", c, err)
		}
		if v.MaxTimestamp != vectorNow+2 {
			t.Errorf("%s: max timestamp %d", c, v.MaxTimestamp)
		}
		v.Release()
		records := plain.Payload()
		for _, cut := range []int{20, 100_000, 300_010, 300_020, 500_000, len(records) - 20, len(records) - 12, len(records) - 1} {
			if _, err := Validate(pack(records[:cut]), &o); !errors.Is(err, kerr.InvalidRecord) {
				t.Errorf("%s: records cut to %d of %d: %v", c, cut, len(records), err)
			}
		}
		for _, at := range []int{12, 13, 14} { // the second record's length, which begins behind the first
			bad := bytes.Clone(records)
			bad[at] ^= 2
			if _, err := Validate(pack(bad), &o); !errors.Is(err, kerr.InvalidRecord) {
				t.Errorf("%s: byte %d changed: %v", c, at, err)
			}
		}
	}
}

// TestFastRecord: the quick way through a record and the thorough one agree, on every kind of record and limit.
func TestFastRecord(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	quick := 0
	for range 20_000 {
		b := NewBuilder(DefaultBatchOptions(0))
		n := 1 + r.IntN(4)
		for range n {
			field := func() []byte {
				if r.IntN(4) == 0 {
					return nil
				}
				return make([]byte, r.IntN(200)>>r.IntN(8))
			}
			timestamp := []int64{vectorNow, -1, 0, -2, math.MaxInt64, math.MinInt64, vectorNow + 3600_000, vectorNow + 3600_001, vectorNow - 3600_001}[r.IntN(9)*r.IntN(2)] + r.Int64N(100)
			var headers []Header
			if r.IntN(8) == 0 {
				headers = append(headers, Header{"h", field()})
			}
			b.Append(timestamp, field(), field(), headers...)
		}
		batch := mustBuild(t, b)
		if r.IntN(3) == 0 {
			batch[HeaderSize+r.IntN(len(batch)-HeaderSize)] ^= 1 << r.IntN(8)
		}
		o := vectorOptions(t, nil)
		o.Compacted = r.IntN(2) == 0
		o.TimestampBeforeMax = []int64{math.MaxInt64, 3600_000, 0}[r.IntN(3)]
		o.TimestampAfterMax = []int64{math.MaxInt64, 3600_000, 0}[r.IntN(3)]
		o.TimestampType = TimestampType(r.IntN(2))
		var fast, slow checker
		fast.init(batch, &o)
		slow.init(batch, &o)
		fast.inOrder = r.IntN(2) == 0
		slow.inOrder = fast.inOrder
		slow.fastBody = 0 // always look closer
		p := batch.Payload()
		n1, s1 := fast.run(p)
		n2, s2 := slow.run(p)
		if n1 != n2 || s1 != s2 || fast.largest != slow.largest || fast.index != slow.index || fmt.Sprint(fast.errors.err()) != fmt.Sprint(slow.errors.err()) {
			t.Fatalf("fast %d %d %+v\nslow %d %d %+v\n%x", n1, s1, fast, n2, s2, slow, p)
		}
		if fast.fastRecord(append(bytes.Clone(p), make([]byte, 32)...)) > 0 {
			quick++
		}
	}
	if quick < 1000 {
		t.Errorf("only %d records went the quick way: the test shows nothing", quick)
	}
}

// TestManyRecordErrors: the text counts all and shows three, the list is bounded.
func TestManyRecordErrors(t *testing.T) {
	b := NewBuilder(DefaultBatchOptions(0))
	for range maxRecordErrors + 5 {
		b.Append(vectorNow, nil, nil)
	}
	o := vectorOptions(t, map[string]string{"cleanup.policy": "compact"})
	_, err := Validate(mustBuild(t, b), &o)
	var e *RecordErrors
	if !errors.As(err, &e) || len(e.Records) != maxRecordErrors || !errors.Is(err, kerr.InvalidRecord) {
		t.Fatal(err)
	}
	if text := e.Err.Message(); !strings.Contains(text, fmt.Sprint("due to ", maxRecordErrors+5, " record errors")) || strings.Count(text, "RecordError(") != 3 {
		t.Error(text)
	}
}

// TestVectorTexts: the texts that a client sees are Kafka's, where it foresaw the fault.
func TestVectorTexts(t *testing.T) {
	same, other := 0, 0
	for _, v := range fixture.Lines[invalidVector](t, "vectors/batches-invalid.jsonl.gz") {
		if v.Leader.Code <= 0 {
			continue
		}
		o := vectorOptions(t, v.Config)
		_, err := Validate(unhex(t, v.Hex), &o)
		want := strings.TrimSuffix(v.Leader.Message, "…")
		if got := *kerr.Message(err); strings.HasPrefix(got, want) {
			same++
		} else if Batch(unhex(t, v.Hex)).Codec() == codec.None {
			t.Errorf("%s: %q, want %q", v.Case, got, v.Leader.Message)
		} else {
			other++ // Kafka's reader of compressed records has words of its own
		}
	}
	if same < 90 || other > 15 {
		t.Errorf("%d texts are Kafka's, %d are not", same, other)
	}
}
