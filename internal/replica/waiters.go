package replica

import (
	"sync/atomic"

	"github.com/highwater/highwater/internal/kafka"
)

// Acks gathers what one acks=all Produce request waits for: one Ack for each partition. The zero value must be Reset. Once
// Sealed as settled, or Reset after wake was called, it may be used again; until then replicas refer to it.
type Acks struct {
	wake      func()
	remaining atomic.Int32
	acks      []Ack
}

// Ack is one partition's part of an Acks.
type Ack struct {
	end     kafka.Offset // what the high watermark must reach: one past the last record of the append; of a deletion, the low watermark
	err     error        // written before settled
	settled atomic.Bool
	of      *Acks
}

// Reset makes room for n partitions. wake is called once, when the last of them is settled after Seal, under a replica's
// lock: it must only signal. Acks holds one count of its own until Seal, so that it cannot fire half built.
func (a *Acks) Reset(n int, wake func()) {
	a.wake = wake
	if cap(a.acks) < n {
		a.acks = make([]Ack, 0, n)
	}
	clear(a.acks[:cap(a.acks)])
	a.acks = a.acks[:0]
	a.remaining.Store(1)
}

// Add is the Ack of the next partition, to be given to Replica.Append. No more than Reset's n may be added.
func (a *Acks) Add() *Ack {
	a.acks = a.acks[:len(a.acks)+1]
	k := &a.acks[len(a.acks)-1]
	k.of = a
	a.remaining.Add(1)
	return k
}

// Drop takes back an Ack whose append failed.
func (a *Acks) Drop(k *Ack) { k.settle(nil) }

// Outstanding counts the partitions that are not settled, before Seal.
func (a *Acks) Outstanding() int { return int(a.remaining.Load()) - 1 }

// Seal ends the building. It tells whether everything is settled already; then wake will not be called.
func (a *Acks) Seal() (settled bool) { return a.remaining.Add(-1) == 0 }

// Result is whether the partition is settled, and with what: after a time-out some are not.
func (a *Ack) Result() (settled bool, err error) {
	if !a.settled.Load() {
		return false, nil
	}
	return true, a.err
}

// settle is called under the replica's lock, or by the one who made a.
func (a *Ack) settle(err error) {
	if a.settled.Load() {
		return
	}
	a.err = err
	a.settled.Store(true)
	if a.of.remaining.Add(-1) == 0 {
		a.of.wake()
	}
}

// ackQueue holds a partition's waiting appends, ordered by end, so that the high watermark settles a prefix of it. Offsets
// grow, so a new one nearly always goes to the end; only a duplicate of an append that still waits, and an append whose sync
// came back late, belong further in front.
type ackQueue struct {
	ring []*Ack // power of two
	head int
	n    int
}

func (q *ackQueue) push(a *Ack) {
	if q.n == len(q.ring) {
		bigger := make([]*Ack, max(8, 2*len(q.ring)))
		for i := range q.n {
			bigger[i] = q.ring[(q.head+i)&(len(q.ring)-1)]
		}
		q.ring, q.head = bigger, 0
	}
	mask := len(q.ring) - 1
	at := q.n
	for ; at > 0 && q.ring[(q.head+at-1)&mask].end > a.end; at-- {
		q.ring[(q.head+at)&mask] = q.ring[(q.head+at-1)&mask]
	}
	q.ring[(q.head+at)&mask] = a
	q.n++
}

// settle settles all whose end is not above highWatermark; check says how.
func (q *ackQueue) settle(highWatermark kafka.Offset, check func() error) {
	for q.n > 0 && q.ring[q.head].end <= highWatermark {
		q.pop().settle(check())
	}
}

// fail settles all with err.
func (q *ackQueue) fail(err error) {
	for q.n > 0 {
		q.pop().settle(err)
	}
}

func (q *ackQueue) pop() *Ack {
	a := q.ring[q.head]
	q.ring[q.head] = nil
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
	return a
}

// Watch is a long poll's interest in one partition. Notify is called after a change that may matter, without any lock
// held: more to read for this kind of reader, or the partition is no longer led here. It may be called too often.
type Watch struct {
	Notify func()
	// Log is true for a reader of all that is in the log (a follower), false for one that ends at the high watermark.
	Log bool

	replica *Replica
	at      int // index in replica.watches, -1 if in none
}

// watchList is unordered; a Watch knows its place, so that leaving is O(1).
type watchList []*Watch

func (l *watchList) add(w *Watch) {
	w.at = len(*l)
	*l = append(*l, w)
}

func (l *watchList) remove(w *Watch) {
	if w.at < 0 {
		return
	}
	last := len(*l) - 1
	(*l)[w.at] = (*l)[last]
	(*l)[w.at].at = w.at
	(*l)[last] = nil
	*l = (*l)[:last]
	w.at = -1
}
