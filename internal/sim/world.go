package sim

import (
	"container/heap"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// World is the clock, what is to happen, and chance.
type World struct {
	Seed uint64
	Now  time.Time

	queue  eventQueue
	seq    uint64
	rands  map[string]*rand.Rand
	hash   hash.Hash64
	recent []string // the last events, for a failure's report
	Events int
	failed *Violation
	Trace  func(line string) // every event, if set
}

// Violation is a broken invariant.
type Violation struct {
	Invariant string
	Text      string
}

func (v *Violation) Error() string { return v.Invariant + ": " + v.Text }

// recentEvents is how many a failure reports.
const recentEvents = 200

// NewWorld begins at a fixed time; all else comes from the seed.
func NewWorld(seed uint64) *World {
	return &World{Seed: seed, Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), rands: make(map[string]*rand.Rand), hash: fnv.New64a()}
}

// Rand is the stream of that name.
func (w *World) Rand(name string) *rand.Rand {
	r, ok := w.rands[name]
	if !ok {
		h := fnv.New64a()
		h.Write([]byte(name))
		r = rand.New(rand.NewPCG(w.Seed, h.Sum64()))
		w.rands[name] = r
	}
	return r
}

// At lets f happen at t, after what was planned for t before.
func (w *World) At(t time.Time, f func()) {
	if t.Before(w.Now) {
		t = w.Now
	}
	w.seq++
	heap.Push(&w.queue, event{t, w.seq, f})
}

// After lets f happen after d.
func (w *World) After(d time.Duration, f func()) { w.At(w.Now.Add(d), f) }

// Run lets things happen until end, or until an invariant breaks.
func (w *World) Run(end time.Time) error {
	for w.failed == nil && len(w.queue) > 0 && !w.queue[0].at.After(end) {
		e := heap.Pop(&w.queue).(event)
		w.Now = e.at
		w.Events++
		e.f()
	}
	if w.failed != nil {
		return w.failed
	}
	w.Now = end
	return nil
}

// Log notes an event: it enters the trace hash, and the report of a failure.
func (w *World) Log(format string, args ...any) {
	line := fmt.Sprintf("%9.3f ", w.Now.Sub(start).Seconds()) + fmt.Sprintf(format, args...)
	w.hash.Write([]byte(line))
	if len(w.recent) >= 2*recentEvents {
		w.recent = append(w.recent[:0], w.recent[recentEvents:]...)
	}
	w.recent = append(w.recent, line)
	if w.Trace != nil {
		w.Trace(line)
	}
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Fail reports a broken invariant; the first one counts and ends the run.
func (w *World) Fail(invariant, format string, args ...any) {
	if w.failed == nil {
		w.failed = &Violation{invariant, fmt.Sprintf(format, args...)}
		w.Log("VIOLATION %s", w.failed)
	}
}

// Failed is the first broken invariant, or nil.
func (w *World) Failed() *Violation { return w.failed }

// Recent are the last events.
func (w *World) Recent() []string {
	return w.recent[max(0, len(w.recent)-recentEvents):]
}

// Hash is of everything logged so far: equal for equal runs.
func (w *World) Hash() string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], w.hash.Sum64())
	return fmt.Sprintf("%x-%d", b, w.Events)
}

type event struct {
	at  time.Time
	seq uint64
	f   func()
}

type eventQueue []event

func (q eventQueue) Len() int      { return len(q) }
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q eventQueue) Less(i, j int) bool {
	if !q[i].at.Equal(q[j].at) {
		return q[i].at.Before(q[j].at)
	}
	return q[i].seq < q[j].seq
}
func (q *eventQueue) Push(x any) { *q = append(*q, x.(event)) }
func (q *eventQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*q = old[:len(old)-1]
	return e
}
