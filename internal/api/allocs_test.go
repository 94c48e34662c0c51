//go:build !race

package api

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/rpc"
)

// What a warm request allocates in its handler, with a hundred records: nothing, but for the Pending of one that waits. One
// allocation of each produce is the disk's in memory, which keeps a copy of what isn't synced.
func TestHandlerAllocations(t *testing.T) {
	w := newWorld(t)
	w.topic(1, "a", 1, 1)
	w.topic(2, "b", 1, 1, 2)
	many := make([]string, 100)
	for i := range many {
		many[i] = "0123456789"
	}
	f := func(what string, most float64, h rpc.Handler, req kmsg.Request, pending bool) {
		t.Helper()
		r := w.request(req)
		pristine, body := slices.Clone(r.Body), r.Body
		run := func() {
			copy(body, pristine) // offsets are written where the records lie
			r.Body, r.Response.Buf, r.Response.Parts = body, r.Response.Buf[:0], r.Response.Parts[:0]
			p := h(r)
			if (p != nil) != pending {
				t.Fatalf("%s: pending %v", what, p)
			}
			if p != nil {
				w.replicate("b", 0, 2, w.end("b"))
				p.Finish(r, false)
			}
			if r.Response.Fail != nil || len(r.Response.Buf) == 0 {
				t.Fatalf("%s: %+v", what, r.Response)
			}
			for _, p := range r.Response.Parts {
				p.Release()
			}
		}
		for range 100 {
			run()
		}
		if got := testing.AllocsPerRun(1000, run); got > most {
			t.Errorf("%s allocates %v times, at most %v wanted", what, got, most)
		} else {
			t.Logf("%s: %v", what, got)
		}
	}
	one := batchOf(t, many...)
	f("produce acks=1", 1, w.Produce, produceOf(9, 1, to{1, "a", 0, one}), false)
	f("produce acks=-1", 1, w.Produce, produceOf(9, -1, to{1, "a", 0, one}), false)
	f("produce acks=-1 by id", 1, w.Produce, produceOf(13, -1, to{1, "a", 0, one}), false)
	f("produce acks=-1 that waits for a follower", 2, w.Produce, produceOf(13, -1, to{2, "b", 0, one}), true)
	f("fetch", 0, w.Fetch, fetchReq(12, from{1, "a", 0, 50, 0}), false)
	f("fetch by id", 0, w.Fetch, fetchReq(18, from{1, "a", 0, 50, 0}), false)
}

func (w *world) end(topic string) int64 {
	rep, err := w.set.Lookup(topic, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return rep.Log().EndOffset()
}
