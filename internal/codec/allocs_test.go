//go:build !race

// The race detector makes pools forget on purpose, so this test is not for it.

package codec

import "testing"

// TestAllocs: decompression into a buffer that is large enough allocates nothing.
func TestAllocs(t *testing.T) {
	src := samples()["text"][:100_000]
	for _, c := range compressed {
		p, err := Compress(nil, c, DefaultLevel, src)
		if err != nil {
			t.Fatal(err)
		}
		dst := make([]byte, 0, 400_000)
		n := testing.AllocsPerRun(50, func() {
			if _, err := Decompress(dst, c, p, len(src)); err != nil {
				t.Fatal(err)
			}
		})
		// A garbage collection in between empties the pools.
		if n > 0.5 {
			t.Errorf("%s: %v allocations", c, n)
		}
	}
}
