//go:build !race

// The race detector makes pools forget on purpose, so these tests are not for it.

package record

import (
	"testing"

	"github.com/highwater/highwater/internal/codec"
)

// TestAllocs pins the hot path: nothing is allocated, neither for a record nor for a batch.
func TestAllocs(t *testing.T) {
	for c := codec.None; c <= codec.Zstd; c++ {
		b := clientBatch(t, c, 100<<10, 100)
		plain, stamped, replica := benchOptions, benchOptions, benchOptions
		stamped.TimestampType = LogAppendTime
		replica.Origin = Replica
		for name, f := range map[string]func(){
			"append": func() {
				b.SetBaseOffset(0)
				v, err := Validate(b, &plain)
				if err != nil {
					t.Fatal(err)
				}
				v.Assign(1000, 5, vectorNow)
				v.Release()
			},
			"append with log append time": func() {
				b.SetBaseOffset(0)
				b.SetMaxTimestamp(CreateTime, vectorNow)
				v, err := Validate(b, &stamped)
				if err != nil {
					t.Fatal(err)
				}
				v.Assign(1000, 5, vectorNow)
				v.Release()
			},
			"replicate": func() {
				b.SetPartitionLeaderEpoch(0)
				v, err := Validate(b, &replica)
				if err != nil {
					t.Fatal(err)
				}
				v.Release()
			},
			"read": func() {
				r := NewReader(b)
				for r.Next() {
				}
				if r.Err() != nil {
					t.Fatal(r.Err())
				}
				r.Close()
			},
		} {
			if n := testing.AllocsPerRun(50, f); n > 0.5 { // a garbage collection in between empties the pools
				t.Errorf("%s, %s: %v allocations", name, c, n)
			}
		}
	}
}
