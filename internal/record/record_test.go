package record

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/highwater/highwater/internal/codec"
	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/internal/kerr"
)

// TestVarint reads and writes what Kafka's ByteUtils read and wrote.
func TestVarint(t *testing.T) {
	var misc struct {
		Varint []struct {
			Value  int32
			Varint string
		}
		Varlong []struct {
			Value   int64
			Varlong string
		}
		VarintRead []struct {
			Hex          string
			Varlong      int64
			ReadLong     int
			VarlongError string
			Unsigned     int32
			Read         int
		}
		CRC32C []struct {
			Hex    string
			CRC32C uint32
		}
	}
	fixture.JSON(t, "vectors/misc.json", &misc)
	for _, v := range misc.Varint {
		want := unhex(t, v.Varint)
		if got := appendVarint(nil, v.Value); !bytes.Equal(got, want) || sizeOfVarint(v.Value) != len(want) {
			t.Errorf("%d: %x, want %x", v.Value, got, want)
		}
		if got, n := readVarint(want, 0); got != v.Value || n != len(want) {
			t.Errorf("%x: %d in %d bytes, want %d", want, got, n, v.Value)
		}
		for i := range want {
			if _, n := readVarint(want[:i], 0); n != varintCut {
				t.Errorf("%x: index %d", want[:i], n)
			}
		}
	}
	for _, v := range misc.Varlong {
		want := unhex(t, v.Varlong)
		if got := appendVarlong(nil, v.Value); !bytes.Equal(got, want) || sizeOfVarlong(v.Value) != len(want) {
			t.Errorf("%d: %x, want %x", v.Value, got, want)
		}
		if got, n := readVarlong(want, 0); got != v.Value || n != len(want) {
			t.Errorf("%x: %d in %d bytes, want %d", want, got, n, v.Value)
		}
	}
	for _, v := range misc.VarintRead {
		b := unhex(t, v.Hex)
		if v.ReadLong > 0 {
			if got, n := readVarlong(b, 0); got != v.Varlong || n != v.ReadLong {
				t.Errorf("%s: %d in %d, want %d in %d", v.Hex, got, n, v.Varlong, v.ReadLong)
			}
		} else if _, n := readVarlong(b, 0); n > 0 {
			t.Errorf("%s: read %d bytes, Kafka refuses it", v.Hex, n)
		}
		got, n := readVarint(b, 0)
		if v.Read > 0 {
			if want := int32(uint32(v.Unsigned)>>1) ^ -(v.Unsigned & 1); got != want || n != v.Read {
				t.Errorf("%s: %d in %d, want %d in %d", v.Hex, got, n, want, v.Read)
			}
		} else if n > 0 {
			t.Errorf("%s: read %d bytes, Kafka refuses it", v.Hex, n)
		}
	}
	for _, v := range misc.CRC32C {
		if got := crc32.Checksum(unhex(t, v.Hex), castagnoli); got != v.CRC32C {
			t.Errorf("CRC-32C of %s: %d", v.Hex, got)
		}
	}
}

func TestJoinCRC(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 63, 64, 1000, 1 << 20} {
		for _, m := range []int{0, 1, 22, 100} {
			b := make([]byte, m+n)
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			head, tail := crc32.Checksum(b[:m], castagnoli), crc32.Checksum(b[m:], castagnoli)
			if got, want := joinCRC(head, tail, shiftCRC(n)), crc32.Checksum(b, castagnoli); got != want {
				t.Errorf("%d and %d bytes: %08x, want %08x", m, n, got, want)
			}
		}
	}
}

// TestHeaderOnly: PeekSize needs PeekHeader bytes, and all accessors HeaderSize at most.
func TestHeaderOnly(t *testing.T) {
	for _, v := range fixture.Lines[batchVector](t, "vectors/batches.jsonl.gz") {
		for _, b := range split(t, unhex(t, v.Hex)) {
			for n := range PeekHeader {
				if _, ok, err := PeekSize(b[:n]); ok || err != nil {
					t.Fatalf("%s: %d bytes: %v, %v", v.Case, n, ok, err)
				}
			}
			if size, ok, err := PeekSize(b[:PeekHeader]); size != len(b) || !ok || err != nil {
				t.Fatalf("%s: size %d, %v, %v", v.Case, size, ok, err)
			}
			if facts, want := new(Validated), new(Validated); true {
				facts.add(b[:min(len(b), HeaderSize)], 0)
				want.add(b, 0)
				facts.Batches[0].Size = len(b)
				if facts.Batches[0] != want.Batches[0] {
					t.Errorf("%s: header only: %+v, want %+v", v.Case, facts.Batches[0], want.Batches[0])
				}
			}
		}
	}
}

// TestTruncated cuts every vector's batches at every byte: nothing is found and nothing panics, with any declared length.
func TestTruncated(t *testing.T) {
	o := vectorOptions(t, nil)
	for _, v := range fixture.Lines[batchVector](t, "vectors/batches.jsonl.gz") {
		whole := unhex(t, v.Hex)
		if len(v.JSON) != 1 || len(whole) > 3000 {
			continue
		}
		for n := range whole {
			cut := Batch(bytes.Clone(whole[:n]))
			if b, rest, err := Next(cut); b != nil || len(rest) != n || err != nil {
				t.Fatalf("%s cut to %d: %d, %v", v.Case, n, len(b), err)
			}
			if n < LogOverhead+minLength {
				continue
			}
			// Now as a batch of this size with the right CRC, if the size can hold one.
			cut[posLength], cut[posLength+1] = 0, 0
			cut[posLength+2], cut[posLength+3] = byte((n-LogOverhead)>>8), byte(n-LogOverhead)
			if cut.headerFits() {
				fixCRC(cut)
			}
			for _, origin := range []Origin{Client, Coordinator, RaftLeader, Replica} {
				o.Origin = origin
				if valid, err := Validate(bytes.Clone(cut), &o); err == nil {
					if origin == Client && n < len(whole) && len(valid.Bytes) > 0 {
						t.Errorf("%s cut to %d of %d is valid", v.Case, n, len(whole))
					}
					valid.Release()
				}
			}
			if cut.headerFits() {
				for _, err := range cut.All() {
					_ = err
				}
			}
		}
	}
}

func fixCRC(b Batch) {
	crc := b.ComputeCRC()
	at := posCRC
	if b.Magic() < 2 {
		at = posLegacyCRC
	}
	b[at], b[at+1], b[at+2], b[at+3] = byte(crc>>24), byte(crc>>16), byte(crc>>8), byte(crc)
}

func mustBuild(t testing.TB, b *Builder) Batch {
	t.Helper()
	batch, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if err := batch.Check(); err != nil {
		t.Fatal(err)
	}
	return batch
}

func TestBuilder(t *testing.T) {
	o := DefaultBatchOptions(1000)
	o.ProducerID, o.ProducerEpoch, o.BaseSequence = 9, 2, math.MaxInt32
	b := NewBuilder(o)
	b.Append(50, []byte("k"), nil, Header{"h", nil}, Header{"", []byte("v")})
	b.AppendAt(1005, 40, nil, []byte{})
	b.Append(60, []byte{}, []byte("v"))
	b.SetLastOffset(1010)
	batch := mustBuild(t, b)
	if b.Size() != len(batch) || b.Len() != 3 {
		t.Errorf("size %d of %d, %d records", b.Size(), len(batch), b.Len())
	}
	if batch.BaseOffset() != 1000 || batch.LastOffset() != 1010 || batch.NextOffset() != 1011 || batch.BaseTimestamp() != 50 || batch.MaxTimestamp() != 60 ||
		batch.LastSequence() != 9 || batch.Count() != 3 {
		t.Errorf("header %x", batch[:HeaderSize])
	}
	var got []string
	for r, err := range batch.All() {
		if err != nil {
			t.Fatal(err)
		}
		s := fmt.Sprintf("%d@%d#%d %v %v", r.Offset, r.Timestamp, r.Sequence, r.Key, r.Value)
		for k, v := range r.Headers.All() {
			s += fmt.Sprintf(" %s=%v(%v)", k, v, v == nil)
		}
		got = append(got, s)
	}
	want := []string{"1000@50#2147483647 [107] [] h=[](true) =[118](false)", "1005@40#4 [] []", "1006@60#5 [] [118]"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("records\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	fails := func(name string, f func(b *Builder)) {
		t.Helper()
		b := NewBuilder(DefaultBatchOptions(10))
		f(b)
		if out, err := b.AppendTo([]byte("x")); err == nil || string(out) != "x" {
			t.Errorf("%s: %d bytes, %v", name, len(out), err)
		}
		b.Reset(DefaultBatchOptions(0))
		b.Append(1, nil, nil)
		mustBuild(t, b)
	}
	fails("offset before base", func(b *Builder) { b.AppendAt(9, 0, nil, nil) })
	fails("offset not rising", func(b *Builder) { b.Append(0, nil, nil); b.AppendAt(10, 0, nil, nil) })
	fails("offset too far", func(b *Builder) { b.AppendAt(10+math.MaxInt32+1, 0, nil, nil) })
	fails("last offset before last record", func(b *Builder) { b.Append(0, nil, nil); b.Append(0, nil, nil); b.SetLastOffset(10) })
	fails("last offset too far", func(b *Builder) { b.SetLastOffset(10 + math.MaxInt32 + 1) })
	fails("level", func(b *Builder) {
		o := DefaultBatchOptions(0)
		o.Codec, o.Level = codec.Gzip, 77
		b.Reset(o)
		b.Append(0, nil, nil)
	})
}

func TestAddSequence(t *testing.T) {
	f := func(sequence, by, want int32) {
		t.Helper()
		if got := AddSequence(sequence, by); got != want {
			t.Errorf("%d + %d = %d, want %d", sequence, by, got, want)
		}
	}
	f(0, 0, 0)
	f(5, 3, 8)
	f(math.MaxInt32, 0, math.MaxInt32)
	f(math.MaxInt32, 1, 0)
	f(math.MaxInt32-1, 3, 1)
	f(math.MaxInt32, math.MaxInt32, math.MaxInt32-1)
}

func TestMarker(t *testing.T) {
	m := Marker{Type: Commit, CoordinatorEpoch: 77}
	b := MarkerBatch(33, 7, vectorNow, 4711, 4, m)
	if err := b.Check(); err != nil || !b.Control() || !b.Transactional() {
		t.Fatal(err)
	}
	o := vectorOptions(t, nil)
	for _, origin := range []Origin{Coordinator, Replica} {
		o.Origin = origin
		v, err := Validate(bytes.Clone(b), &o)
		if err != nil {
			t.Fatal(err)
		}
		f := v.Batches[0]
		if f.Marker != Commit || f.MarkerEpoch != 77 || f.MarkerTime != vectorNow || !f.Control || !f.Transactional || f.ProducerID != 4711 {
			t.Errorf("%+v", f)
		}
		v.Release()
	}

	bad := func(name string, key, value []byte, want string) {
		t.Helper()
		if _, err := ParseMarker(key, value); !errors.Is(err, kerr.InvalidRecord) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
		o := DefaultBatchOptions(0)
		o.Control, o.Transactional, o.ProducerID, o.ProducerEpoch = true, true, 1, 1
		builder := NewBuilder(o)
		builder.Append(0, key, value)
		vo := vectorOptions(t, nil)
		vo.Origin = Coordinator
		if _, err := Validate(mustBuild(t, builder), &vo); !errors.Is(err, kerr.InvalidRecord) {
			t.Errorf("%s: validate: %v", name, err)
		}
	}
	bad("short key", []byte{0, 0, 1}, m.Value(), "found only 3")
	bad("null key", nil, m.Value(), "found only 0")
	bad("negative version", []byte{255, 0, 0, 1}, m.Value(), "Invalid version")
	bad("another type", LeaderChange.Key(), m.Value(), "LEADER_CHANGE")
	bad("unknown type", []byte{0, 0, 0, 99}, m.Value(), "UNKNOWN")
	bad("short value", Commit.Key(), []byte{0, 0, 1}, "found only 3")
	bad("null value", Commit.Key(), nil, "found only 0")
	bad("negative value version", Commit.Key(), []byte{255, 255, 0, 0, 0, 1}, "Invalid version")
	for c := Abort; c <= KRaftVoters; c++ {
		if got, err := ParseControlKey(append(c.Key(), 1, 2)); got != c || err != nil {
			t.Errorf("%s: %s, %v", c, got, err)
		}
	}
}
