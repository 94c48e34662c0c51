package node_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestReadCompacted: a client reads a compacted log to its end (F053), from every offset and with both isolation levels, though whole
// batches at the ends of segments are gone.
func TestReadCompacted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	c, fsys := inMemory(t, "log.cleaner.backoff.ms=50")
	n := startOn(t, c, fsys)
	defer stop(t, n)
	cl := client(t, n, kgo.MetadataMinAge(10*time.Millisecond))
	defer cl.Close()
	val := func(s string) *string { return &s }
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, map[string]*string{"cleanup.policy": val("compact"), "segment.ms": val("1000"), "min.cleanable.dirty.ratio": val("0.0")}, "t"); err != nil {
		t.Fatal(err)
	}
	// Each batch begins a segment, by its time; the same two keys are in all but the last.
	begin := time.Now().Add(-30 * time.Minute)
	end := int64(0)
	for i := range 6 {
		for _, key := range []string{"a", "b"} {
			at := begin.Add(time.Duration(2*i) * time.Minute)
			if i == 5 {
				key += " last"
			} else if key == "b" {
				at = at.Add(100 * time.Millisecond) // a batch of its own in the same segment
			}
			r := &kgo.Record{Topic: "t", Key: []byte(key), Value: fmt.Append(nil, i), Timestamp: at}
			if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
				t.Fatal(err)
			}
			end = r.Offset + 1
		}
	}
	read := func(from int64, level kgo.IsolationLevel) (offsets []int64) {
		reader := client(t, n, kgo.FetchIsolationLevel(level), kgo.FetchMaxWait(50*time.Millisecond),
			kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().At(from)}}))
		defer reader.Close()
		for {
			f := reader.PollFetches(ctx)
			if err := f.Err(); err != nil {
				t.Fatalf("from %d: %v after %v", from, err, offsets)
			}
			f.EachRecord(func(r *kgo.Record) { offsets = append(offsets, r.Offset) })
			if len(offsets) > 0 && offsets[len(offsets)-1] == end-1 {
				return offsets
			}
		}
	}
	until(t, ctx, "the cleaner", func() bool { return len(read(0, kgo.ReadUncommitted())) == 4 })
	want := []int64{8, 9, 10, 11}
	for from := range end {
		for _, level := range []kgo.IsolationLevel{kgo.ReadUncommitted(), kgo.ReadCommitted()} {
			got := read(from, level)
			left := want[max(0, min(len(want)-1, int(from-want[0]))):]
			if fmt.Sprint(got) != fmt.Sprint(left) {
				t.Errorf("from %d: offsets %v, want %v", from, got, left)
			}
		}
	}
}
