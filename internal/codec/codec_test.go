package codec

// Round trips of every codec and level, what Java's clients wrote (also read by package record's vector tests), leniencies, and
// that hostile input costs neither a panic nor memory.

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"github.com/highwater/highwater/internal/fixture"
)

var compressed = []Type{Gzip, Snappy, LZ4, Zstd}

func samples() map[string][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 200_000)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	var text []byte
	for i := 0; len(text) < 300_000; i++ {
		text = fmt.Appendf(text, `{"ts":%d,"level":"INFO","n":%d}`, 1700000000000+r.Int64N(1e6), i)
	}
	return map[string][]byte{
		"one byte": {7}, "short": []byte("hello"), "64 KB exactly": text[:64<<10], "32 KB exactly": text[:32<<10],
		"text": text, "noise": noise, "zeros": make([]byte, 3<<20),
	}
}

func TestRoundTrip(t *testing.T) {
	for name, src := range samples() {
		for _, c := range append(compressed, None) {
			levels := []int{DefaultLevel}
			if low, high, byDefault, ok := LevelRange(c); ok {
				levels = append(levels, byDefault, max(low, -7), high)
			}
			for _, level := range levels {
				prefix := []byte("kept")
				packed, err := Compress(prefix, c, level, src)
				if err != nil {
					t.Fatalf("%s %s %d: %v", name, c, level, err)
				}
				if !bytes.HasPrefix(packed, prefix) {
					t.Fatalf("%s %s: dst was not kept", name, c)
				}
				got, err := Decompress([]byte("kept"), c, packed[4:], len(src))
				if err != nil || string(got[:4]) != "kept" || !bytes.Equal(got[4:], src) {
					t.Errorf("%s %s %d: %d bytes back of %d, %v", name, c, level, len(got)-4, len(src), err)
				}
				if _, err = Decompress(nil, c, packed[4:], len(src)-1); !errors.Is(err, ErrTooLarge) {
					t.Errorf("%s %s %d: a limit below the size: %v", name, c, level, err)
				}
			}
		}
	}
}

func TestLevels(t *testing.T) {
	f := func(c Type, level int, ok bool) {
		t.Helper()
		if err := CheckLevel(c, level); (err == nil) != ok {
			t.Errorf("%s level %d: %v", c, level, err)
		}
		if _, err := Compress(nil, c, level, []byte("x")); (err == nil) != ok {
			t.Errorf("%s level %d: compress: %v", c, level, err)
		}
	}
	f(Gzip, -1, true)
	f(Gzip, 0, false)
	f(Gzip, 1, true)
	f(Gzip, 9, true)
	f(Gzip, 10, false)
	f(LZ4, 0, false)
	f(LZ4, 1, true)
	f(LZ4, 17, true)
	f(LZ4, 18, false)
	f(Zstd, -131072, true)
	f(Zstd, -131073, false)
	f(Zstd, 22, true)
	f(Zstd, 23, false)
	f(Snappy, 99, true) // has no levels
}

func TestNames(t *testing.T) {
	for c := None; c <= Zstd; c++ {
		if got, ok := Parse(c.String()); !ok || got != c {
			t.Errorf("%s: %v, %v", c, got, ok)
		}
	}
	if got, ok := Parse("uncompressed"); !ok || got != None {
		t.Errorf("uncompressed: %v, %v", got, ok)
	}
	if _, ok := Parse("brotli"); ok {
		t.Error("brotli is no codec of Kafka's")
	}
	if _, err := NewReader(Type(5), nil); !errors.Is(err, ErrCorrupt) {
		t.Errorf("codec 5: %v", err)
	}
	if _, err := Compress(nil, Type(5), DefaultLevel, nil); err == nil {
		t.Error("codec 5 compresses")
	}
}

// TestLenient: what follows the data is ignored, an error, or more data, as with Java's decoders.
func TestLenient(t *testing.T) {
	a, b := []byte("first stream, "), []byte("second stream")
	f := func(c Type, tail []byte, want string) {
		t.Helper()
		p, err := Compress(nil, c, DefaultLevel, a)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decompress(nil, c, append(p, tail...), 1000)
		if want == "" {
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: %q, %v; want corrupt", c, got, err)
			}
			return
		}
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", c, got, err, want)
		}
	}
	for _, c := range compressed {
		second, err := Compress(nil, c, DefaultLevel, b)
		if err != nil {
			t.Fatal(err)
		}
		both := string(a) + string(b)
		if c == LZ4 {
			both = string(a) // only the first frame
		}
		f(c, second, both)
	}
	garbage := []byte("zzzz")
	f(Gzip, garbage, string(a))
	f(LZ4, garbage, string(a))
	f(Gzip, unhex(t, "1f8b0800000000000000ffffffff"), string(a)) // too short for a member, so nobody looks
	f(Gzip, append(unhex(t, "1f8b0800000000000000"), bytes.Repeat([]byte{255}, 40)...), "")
	f(Gzip, bytes.Repeat([]byte{7}, 400), string(a))
	f(Snappy, garbage, "")
	f(Snappy, garbage[:3], string(a))
	f(Snappy, []byte(xerialMagic+"12345678"), string(a))
	f(Snappy, []byte(xerialMagic), "")
	f(Snappy, []byte{0, 0, 0, 0}, "") // a chunk that is no block
	f(Snappy, []byte{0, 0, 0, 1, 0}, string(a))
	f(Zstd, unhex(t, "502a4d1803000000010203"), string(a)) // a skippable frame
	f(Zstd, garbage[:2], "")
	f(Zstd, garbage, "")

	raw := s2.EncodeSnappy(nil, a)
	if got, err := Decompress(nil, Snappy, raw, 1000); err != nil || !bytes.Equal(got, a) {
		t.Errorf("raw snappy block: %q, %v", got, err)
	}
}

// TestLZ4ContentChecksum: it is skipped, but must be there.
func TestLZ4ContentChecksum(t *testing.T) {
	frame := unhex(t, withHeaderChecksum(t, "04224d186440")+"01000080"+"78"+"00000000"+"01020304")
	if got, err := Decompress(nil, LZ4, frame, 10); err != nil || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := Decompress(nil, LZ4, frame[:len(frame)-1], 10); !errors.Is(err, ErrCorrupt) {
		t.Errorf("cut: %v", err)
	}
}

// TestEmpty: no compressed bytes are an error but for zstd.
func TestEmpty(t *testing.T) {
	for _, c := range compressed {
		got, err := Decompress(nil, c, nil, 10)
		if c == Zstd {
			if err != nil || len(got) != 0 {
				t.Errorf("%s: %v", c, err)
			}
		} else if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", c, err)
		}
	}
}

// TestTruncated cuts each codec's output at every byte.
func TestTruncated(t *testing.T) {
	src := samples()["text"][:40_000] // two xerial chunks
	for _, c := range compressed {
		p, err := Compress(nil, c, DefaultLevel, src)
		if err != nil {
			t.Fatal(err)
		}
		whole := 0
		for n := range p {
			got, err := Decompress(nil, c, p[:n], len(src))
			if err == nil && bytes.Equal(got, src) {
				whole++
			}
			if err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%s cut to %d of %d: %v", c, n, len(p), err)
			}
			if !bytes.HasPrefix(src, got) {
				t.Fatalf("%s cut to %d of %d: other data", c, n, len(p))
			}
		}
		if whole > 0 {
			t.Errorf("%s: whole although cut", c)
		}
	}
}

// TestReaderPieces: a Reader gives the same data whatever room it is given, and io.EOF for ever after.
func TestReaderPieces(t *testing.T) {
	src := samples()["zeros"]
	for _, c := range append(compressed, None) {
		p, err := Compress(nil, c, DefaultLevel, src)
		if err != nil {
			t.Fatal(err)
		}
		for _, room := range []int{0, 1, 1000, 1 << 20} {
			r, err := NewReader(c, p)
			if err != nil {
				t.Fatal(err)
			}
			total := 0
			for {
				piece, err := r.More(make([]byte, 0, room))
				total += len(piece)
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatalf("%s: %v", c, err)
				}
				if len(piece) == 0 {
					t.Fatalf("%s: no progress and no error", c)
				}
			}
			if total != len(src) {
				t.Errorf("%s, room of %d: %d bytes, want %d", c, room, total, len(src))
			}
			if _, err := r.More(nil); err != io.EOF {
				t.Errorf("%s: after the end: %v", c, err)
			}
			r.Close()
		}
	}
}

// TestLargeWindow: frames with windows above the usual, also behind one that has a small one, are read whole.
func TestLargeWindow(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	src := make([]byte, 20<<20)
	for i := 0; i < len(src); i += 64 {
		binary.LittleEndian.PutUint64(src[i:], r.Uint64())
	}
	var frames []byte
	for _, window := range []int{1 << 20, 16 << 20} {
		var out bytes.Buffer
		w, err := zstd.NewWriter(&out, zstd.WithWindowSize(window), zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = w.Write(src); err != nil {
			t.Fatal(err)
		}
		if err = w.Close(); err != nil {
			t.Fatal(err)
		}
		frames = append(frames, out.Bytes()...)
	}
	for range 2 { // the second time with pooled decoders
		got, err := Decompress(nil, Zstd, frames, 2*len(src))
		if err != nil || !bytes.Equal(got, append(bytes.Clone(src), src...)) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
}

// TestClaims: sizes that a header merely claims are not allocated.
func TestClaims(t *testing.T) {
	f := func(name string, c Type, src []byte) {
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 20 {
			if out, err := Decompress(nil, c, src, 1<<30); err == nil {
				t.Errorf("%s: %d bytes and no error", name, len(out))
			}
		}
		runtime.ReadMemStats(&after)
		if n := (after.TotalAlloc - before.TotalAlloc) / 20; n > 10<<20 {
			t.Errorf("%s: %d bytes allocated", name, n)
		}
	}
	f("snappy block of 1 GB", Snappy, append(binary.AppendUvarint(nil, 1<<30), 0, 'x'))
	f("xerial chunk of 2 GB", Snappy, append([]byte(xerialMagic), 0, 0, 0, 1, 0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff, 1, 2, 3))
	f("lz4 block of 4 MB", LZ4, unhex(t, withHeaderChecksum(t, "04224d186070")+"00003f00"+"112233"))
	f("lz4 small block that claims 4 MB", LZ4, append(unhex(t, withHeaderChecksum(t, "04224d186070")+"03000000"), 0xff, 0xff, 0xff))
	f("zstd frame of 1 GB", Zstd, unhex(t, "28b52ffd"+"a0"+"00000040"+"010000ff"))
	f("zstd window of 2 GB", Zstd, unhex(t, "28b52ffd"+"00"+"a8"+"010000ff"))
}

// TestBomb: a bomb is stopped by the limit, and costs little more than that.
func TestBomb(t *testing.T) {
	zeros := make([]byte, 64<<20)
	for _, c := range compressed {
		p, err := Compress(nil, c, DefaultLevel, zeros)
		if err != nil {
			t.Fatal(err)
		}
		const limit = 1 << 20
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err = Decompress(nil, c, p, limit); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", c, err)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 24*limit {
			t.Errorf("%s: %d bytes allocated to find more than %d", c, n, limit)
		}
	}
}

// TestSnappyStrict: S2's repeated offset, which our decoder knows and Java's doesn't, is refused.
func TestSnappyStrict(t *testing.T) {
	block := []byte{20, 3 << 2, 'a', 'b', 'c', 'd', 0<<2 | 1, 4, 12<<2 - 1<<2 | 1, 0} // 4 literals, copy 4 from 4 back, repeat
	if _, err := Decompress(nil, Snappy, block, 100); !errors.Is(err, ErrCorrupt) {
		t.Errorf("repeated offset: %v", err)
	}
	for name, src := range samples() {
		if !snappyStrict(s2.EncodeSnappy(nil, src)) {
			t.Errorf("%s: what snappy wrote is refused", name)
		}
	}
}

func TestLZ4Header(t *testing.T) {
	const block = "80" + "10000000026b027600" // as Java wrote a record, not compressed
	f := func(name, frame, want string, legacy bool) {
		t.Helper()
		open := NewReader
		if legacy {
			open = NewLegacyReader
		}
		r, err := open(LZ4, unhex(t, frame))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		got, err := r.More(nil)
		if want == "" && !errors.Is(err, ErrCorrupt) || want != "" && hex.EncodeToString(got) != want {
			t.Errorf("%s: %x, %v", name, got, err)
		}
	}
	data := "09000080" + block[2:] + "00000000"
	f("Java's", "04224d18604082"+data, block[2:], false)
	f("wrong header checksum", "04224d18604083"+data, "", false)
	f("wrong header checksum in magic 0", "04224d18604083"+data, block[2:], true)
	f("with content size", withHeaderChecksum(t, "04224d1868400900000000000000")+data, block[2:], false)
	f("with block checksum", withHeaderChecksum(t, "04224d187040")+"09000080"+block[2:]+checksum(t, block[2:])+"00000000", block[2:], false)
	f("with wrong block checksum", withHeaderChecksum(t, "04224d187040")+"09000080"+block[2:]+"01020304"+"00000000", "", false)
	f("with content checksum, which nobody checks", withHeaderChecksum(t, "04224d186440")+data+"01020304", block[2:], false)
	f("dependent blocks", withHeaderChecksum(t, "04224d184040")+data, "", false)
	f("version 2", withHeaderChecksum(t, "04224d18a040")+data, "", false)
	f("reserved flag", withHeaderChecksum(t, "04224d186240")+data, "", false)
	f("block size 3", withHeaderChecksum(t, "04224d186030")+data, "", false)
	f("reserved block bit", withHeaderChecksum(t, "04224d1860c0")+data, "", false)
	f("block beyond its maximum", "04224d18604082"+"01000180"+block[2:], "", false)
}

func withHeaderChecksum(t *testing.T, header string) string {
	return header + fmt.Sprintf("%02x", byte(xxh32(unhex(t, header)[4:])>>8))
}

func checksum(t *testing.T, block string) string {
	return hex.EncodeToString(binary.LittleEndian.AppendUint32(nil, xxh32(unhex(t, block))))
}

// TestXXH32 against the values of the algorithm's specification.
func TestXXH32(t *testing.T) {
	f := func(s string, want uint32) {
		t.Helper()
		if got := xxh32([]byte(s)); got != want {
			t.Errorf("%q: %08x, want %08x", s, got, want)
		}
	}
	f("", 0x02cc5d05)
	f("a", 0x550d7456)
	f("abc", 0x32d153ff)
	f("Nobody inspects the spammish repetition", 0xe2293b2f)
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// FuzzDecompress: any input, any codec: no panic, no more than the limit, and what is compressed again comes back.
func FuzzDecompress(f *testing.F) {
	for _, v := range fixture.Lines[struct{ Case, Hex string }](f, "vectors/batches-invalid.jsonl.gz") {
		b := unhex(f, v.Hex)
		if len(b) > 61 && len(b) < 2000 && b[16] == 2 {
			f.Add(int8(b[22]&7), b[61:])
		}
	}
	f.Fuzz(func(t *testing.T, c int8, src []byte) {
		const limit = 1 << 20
		got, err := Decompress(nil, Type(c), src, limit)
		if len(got) > limit {
			t.Fatalf("%d bytes", len(got))
		}
		if r, err := NewLegacyReader(Type(c), src); err == nil {
			for n := 0; err == nil && n < limit; {
				var p []byte
				p, err = r.More(nil)
				n += len(p)
			}
			r.Close()
		}
		if err != nil {
			return
		}
		packed, err := Compress(nil, Type(c), DefaultLevel, got)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Decompress(nil, Type(c), packed, limit); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%d bytes came back of %d: %v", len(again), len(got), err)
		}
	})
}
