package storage

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/highwater/highwater/internal/kafka"
)

// TestSipHash compares with the vectors of SipHash's authors: key 00 to 0f, message 00, 01, … of each length.
func TestSipHash(t *testing.T) {
	f := func(n int, want string) {
		t.Helper()
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(i)
		}
		h1, h2 := sipHash([2]uint64{0x0706050403020100, 0x0f0e0d0c0b0a0908}, p)
		got := make([]byte, 0, 16)
		for _, h := range []uint64{h1, h2} {
			for i := range 8 {
				got = append(got, byte(h>>(8*i)))
			}
		}
		if hex.EncodeToString(got) != want {
			t.Errorf("%d bytes: %x, want %s", n, got, want)
		}
	}
	f(0, "a3817f04ba25a8e66df67214c7550293")
	f(1, "da87c1d86b99af44347659119b22fc45")
	f(7, "a1f1ebbed8dbc153c0b84aa61ff08239")
	f(8, "3b62a9ba6258f5610f83e264f31497b4")
	f(15, "5493e99933b0a8117e08ec0f97cfc3d9")
}

// TestOffsetMap compares the map with a plain one while it grows, and fills it up.
func TestOffsetMap(t *testing.T) {
	t.Parallel()
	f := func(n int64, slots, limit, keys int) {
		t.Helper()
		rng := rand.New(rand.NewPCG(uint64(n), 5))
		m := offsetMap{key: [2]uint64{1, 2}}
		for range 2 { // the second time with the memory of the first
			m.reset(n, slots, limit)
			want := map[string]kafka.Offset{}
			for o := range n {
				key := fmt.Sprint(rng.IntN(keys))
				room := len(want) < min(limit, slots)
				if ok := m.put([]byte(key), o); ok != room {
					t.Fatalf("put %q as key %d: %v", key, len(want), ok)
				} else if !ok {
					break
				}
				want[key] = o
				if m.latest != o {
					t.Fatalf("latest %d, want %d", m.latest, o)
				}
			}
			if m.entries != len(want) || len(m.slots) > slots {
				t.Fatalf("%d entries in %d slots, want %d", m.entries, len(m.slots), len(want))
			}
			for k := range keys {
				key := fmt.Sprint(k)
				o, ok := want[key]
				if !ok {
					o = -1
				}
				if got := m.get([]byte(key)); got != o {
					t.Fatalf("%q: %d, want %d", key, got, o)
				}
			}
		}
	}
	f(0, 10, 9, 5)
	f(100, 10, 9, 50)
	f(100, 10, 10, 50) // without an empty slot
	f(100, 1000, 900, 50)
	n := few(300_000, 60_000)
	f(int64(n), 1_000_000, 900_000, 1000)
	f(int64(n), 1_000_000, 900_000, n)
	f(int64(n), n/3, n/3*9/10, n*2/3)
}
