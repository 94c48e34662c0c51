package server

// The wheel against a sorted list: nothing fires early, everything fires in the tick in which it is due, what was taken out
// does not fire, and the timer is always set for the first slot with an entry.

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

type entry struct {
	wheelNode
	at    int64 // tick; 0 = not in
	fired int64
	again []int64 // further ticks
	base  time.Time
}

func (e *entry) due(now time.Time) time.Time {
	e.fired, e.at = int64(now.Sub(e.base)/time.Millisecond), 0
	if len(e.again) == 0 {
		return time.Time{}
	}
	e.at = e.again[0]
	e.again = e.again[1:]
	return e.base.Add(time.Duration(e.at) * time.Millisecond)
}

func TestWheelModel(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		base := time.Unix(1000, 0)
		w := newWheel(base)
		now := int64(0)
		at := func(tick int64) time.Time { return base.Add(time.Duration(tick) * time.Millisecond) }
		entries := make([]entry, 50)
		for i := range entries {
			entries[i].base = base
		}
		far := []int64{3, 900, 1024, 1025, 3000, 70_000, 1 << 20, 3 << 20}
		for range 2000 {
			e := &entries[r.IntN(len(entries))]
			switch r.IntN(4) {
			case 0, 1:
				e.at = now + r.Int64N(far[r.IntN(len(far))])
				e.again = nil
				if r.IntN(5) == 0 {
					e.again = []int64{e.at + 1 + r.Int64N(2000)}
				}
				w.mu.Lock() // as add does, without the runtime's timer
				w.unlink(&e.wheelNode)
				e.owner = e
				w.place(&e.wheelNode, w.ticks(at(e.at)))
				w.mu.Unlock()
				e.at = max(e.at, now+1)
			case 2:
				w.remove(&e.wheelNode)
				e.at = 0
			case 3:
				first := int64(never)
				for i := range entries {
					if a := entries[i].at; a != 0 && a < first {
						first = a
					}
				}
				if next := w.next(); first != never && next > first {
					t.Fatalf("seed %d: the timer would sleep until %d, an entry is due at %d", seed, next, first)
				}
				to := now + r.Int64N(far[r.IntN(len(far))])
				for now < to { // advance to each event, as the timer does
					step := min(w.next(), to)
					now = max(step, now+1)
					w.advance(at(now), now)
					for i := range entries {
						if a := entries[i].at; a != 0 && a <= now {
							t.Fatalf("seed %d: at %d an entry due at %d has not fired", seed, now, a)
						}
					}
				}
			}
			for i := range entries {
				e := &entries[i]
				if (e.ring != nil) != (e.at != 0) {
					t.Fatalf("seed %d at %d: entry due at %d, in the wheel: %v", seed, now, e.at, e.ring != nil)
				}
			}
		}
	}
}

func TestWheelTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		w := newWheel(begun.Add(-1023 * time.Millisecond)) // the second ring's slots do not begin when the test does
		e := make([]entry, 4)
		for i, d := range []time.Duration{50 * time.Millisecond, 5 * time.Millisecond, time.Hour, 1500 * time.Millisecond} {
			e[i].base = begun
			w.add(&e[i].wheelNode, begun.Add(d), &e[i])
		}
		fired := func() [4]int64 {
			w.mu.Lock()
			defer w.mu.Unlock()
			return [4]int64{e[0].fired, e[1].fired, e[2].fired, e[3].fired}
		}
		time.Sleep(2 * time.Second)
		if got, want := fired(), [4]int64{50, 5, 0, 1500}; got != want {
			t.Errorf("fired at %d, want %d", got, want)
		}
		time.Sleep(time.Hour)
		if got, want := fired(), [4]int64{50, 5, 3_600_000, 1500}; got != want {
			t.Errorf("fired at %d, want %d", got, want)
		}
		w.add(&e[0].wheelNode, time.Now().Add(time.Second), &e[0])
		w.stop()
		time.Sleep(2 * time.Second)
		if got := fired(); got[0] != 50 {
			t.Errorf("fired after stop, at %d", got[0])
		}
	})
}

func BenchmarkWheel(b *testing.B) {
	now := time.Now()
	w := newWheel(now)
	defer w.stop()
	nodes := make([]entry, 100_000)
	for i := range nodes {
		w.add(&nodes[i].wheelNode, now.Add(time.Minute+time.Duration(i)*time.Millisecond), &nodes[i])
	}
	var n entry
	b.ReportAllocs()
	for b.Loop() {
		w.add(&n.wheelNode, now.Add(30*time.Second), &n)
		w.remove(&n.wheelNode)
	}
}
