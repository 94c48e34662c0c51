package server

import (
	"math"
	"math/bits"
	"sync"
	"time"
)

// wheel keeps every deadline of a server: of Pendings, mutes, idle connections. Most of them are taken out long before
// they are due, so putting in and taking out must cost next to nothing (a runtime timer for each costs ten times as much).
//
// Two rings of 1024 slots: the first has slots of one tick (1 ms) and holds what is due within 1024 ticks; the second has
// slots of 1024 ticks (17 minutes in all), and a slot's entries move to the first ring when its time begins. Later
// deadlines sit in the second ring's last slot and are placed again when they come to the front. One runtime timer sleeps
// until the next slot that holds something, so an idle server does not wake up.
//
// Owners are called with the wheel's lock held, so that an entry that remove took out cannot fire any more. They must not
// block and must not call the wheel.
type wheel struct {
	mu      sync.Mutex
	base    time.Time
	tick    int64 // all slots up to here have fired
	near    ring
	far     ring
	timer   *time.Timer
	armed   int64 // the tick for which timer is set
	stopped bool
}

const (
	slots    = 1024
	slotMask = slots - 1
	slotBits = 10
	never    = math.MaxInt64
)

// ring is a circle of lists, with one bit for each list that is not empty.
type ring struct {
	heads [slots]wheelNode
	used  [slots / 64]uint64
}

// wheelNode is what an owner embeds. The zero value is ready.
type wheelNode struct {
	prev, next *wheelNode
	at         int64 // tick
	ring       *ring // nil: not in the wheel
	slot       int64
	owner      deadlineOwner
}

// deadlineOwner is told when its time has come. It returns when it wants to be told again, or the zero time.
type deadlineOwner interface {
	due(now time.Time) time.Time
}

func newWheel(base time.Time) *wheel {
	w := &wheel{base: base, armed: never}
	for _, r := range []*ring{&w.near, &w.far} {
		for i := range r.heads {
			r.heads[i].prev, r.heads[i].next = &r.heads[i], &r.heads[i]
		}
	}
	return w
}

// ticks rounds up: nothing fires before its time.
func (w *wheel) ticks(t time.Time) int64 {
	return int64((t.Sub(w.base) + time.Millisecond - 1) / time.Millisecond)
}

// add puts n in, or moves it.
func (w *wheel) add(n *wheelNode, at time.Time, owner deadlineOwner) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	w.unlink(n)
	n.owner = owner
	w.place(n, w.ticks(at))
	t := n.at
	if n.ring == &w.far {
		t = (w.tick>>slotBits + (n.slot-w.tick>>slotBits)&slotMask) << slotBits // when its slot begins
	}
	w.arm(t)
}

// remove takes n out if it is in: its owner will not be called for it any more.
func (w *wheel) remove(n *wheelNode) {
	w.mu.Lock()
	w.unlink(n)
	w.mu.Unlock()
}

func (w *wheel) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

func (w *wheel) place(n *wheelNode, at int64) {
	if at <= w.tick {
		at = w.tick + 1
	}
	n.at = at
	r, slot := &w.near, at&slotMask
	if at-w.tick >= slots {
		block := at >> slotBits
		if last := w.tick>>slotBits + slots - 1; block > last {
			block = last
		}
		r, slot = &w.far, block&slotMask
	}
	h := &r.heads[slot]
	n.ring, n.slot, n.prev, n.next = r, slot, h.prev, h
	h.prev.next, h.prev = n, n
	r.used[slot>>6] |= 1 << (slot & 63)
}

func (w *wheel) unlink(n *wheelNode) {
	if n.ring == nil {
		return
	}
	n.prev.next, n.next.prev = n.next, n.prev
	if n.prev == n.next { // only the head is left
		n.ring.used[n.slot>>6] &^= 1 << (n.slot & 63)
	}
	n.prev, n.next, n.ring = nil, nil, nil
}

// next is the first tick after w.tick at which there is something to do.
func (w *wheel) next() int64 {
	t := int64(never)
	if d := w.near.distance((w.tick + 1) & slotMask); d >= 0 {
		t = w.tick + 1 + d
	}
	block := w.tick>>slotBits + 1
	if d := w.far.distance(block & slotMask); d >= 0 {
		t = min(t, (block+d)<<slotBits)
	}
	return t
}

// distance is how many slots after from the first list is that has entries, or -1.
func (r *ring) distance(from int64) int64 {
	word, bit := from>>6, from&63
	if u := r.used[word] >> bit; u != 0 {
		return int64(bits.TrailingZeros64(u))
	}
	for i := int64(1); i <= int64(len(r.used)); i++ {
		if u := r.used[(word+i)%int64(len(r.used))]; u != 0 {
			return i<<6 - bit + int64(bits.TrailingZeros64(u))
		}
	}
	return -1
}

// arm sets the timer for tick t unless it fires before that anyway.
func (w *wheel) arm(t int64) {
	if t >= w.armed || w.stopped {
		return
	}
	w.armed = t
	d := time.Until(w.base.Add(time.Duration(t) * time.Millisecond))
	if w.timer == nil {
		w.timer = time.AfterFunc(d, w.fire)
		return
	}
	w.timer.Reset(d)
}

func (w *wheel) fire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	now := time.Now()
	w.advance(now, int64(now.Sub(w.base)/time.Millisecond))
	w.armed = never
	w.arm(w.next())
}

// advance fires everything up to tick `to`.
func (w *wheel) advance(now time.Time, to int64) {
	for {
		t := w.next()
		if t > to {
			w.tick = max(w.tick, to)
			return
		}
		w.tick = t
		if t&slotMask == 0 {
			w.each(&w.far, t>>slotBits&slotMask, func(n *wheelNode) {
				if n.at <= t {
					w.call(n, now)
				} else {
					w.place(n, n.at)
				}
			})
		}
		w.each(&w.near, t&slotMask, func(n *wheelNode) { w.call(n, now) })
	}
}

func (w *wheel) call(n *wheelNode, now time.Time) {
	if again := n.owner.due(now); !again.IsZero() {
		w.place(n, w.ticks(again))
	}
}

// each takes all entries out of a list and hands them to f, which may put them in again.
func (w *wheel) each(r *ring, slot int64, f func(*wheelNode)) {
	h := &r.heads[slot]
	first := h.next
	if first == h {
		return
	}
	h.prev.next = nil
	h.prev, h.next = h, h
	r.used[slot>>6] &^= 1 << (slot & 63)
	for n := first; n != nil; {
		next := n.next
		n.prev, n.next, n.ring = nil, nil, nil
		f(n)
		n = next
	}
}
