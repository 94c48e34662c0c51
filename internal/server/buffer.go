package server

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// Buffers come in classes: 4 KB, 16 KB, 64 KB, 128 KB and 256 KB, then four steps for each doubling, so that a frame just
// above a power of two (1 MB of records and its header) does not take twice its size. What is above maxPooled goes back
// to the garbage collector: one 100 MB frame must not keep 100 MB.
const (
	smallest  = 4 << 10
	maxPooled = 8 << 20
)

var small = [...]int{4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10}

// buffer is a pooled piece of memory. It is handled by pointer, since a slice in a sync.Pool would be allocated anew.
type buffer struct {
	b     []byte
	class int // index of its pool, or -1
}

var pools [64]sync.Pool

// classOf is the smallest class that holds n bytes, and its size.
func classOf(n int) (class, size int) {
	for i, s := range small {
		if n <= s {
			return i, s
		}
	}
	// 256 KB < n: 2^k < n <= 2^(k+1); steps of 2^(k-2).
	k := bits.Len(uint(n-1)) - 1
	step := 1 << (k - 2)
	i := (n - 1<<k + step - 1) / step // 1..4
	return len(small) + (k-18)*4 + i - 1, 1<<k + i*step
}

// getBuffer takes a buffer that holds at least n bytes.
func getBuffer(n int) *buffer {
	class, size := classOf(n)
	if size > maxPooled {
		return &buffer{make([]byte, n), -1}
	}
	if b, ok := pools[class].Get().(*buffer); ok {
		return b
	}
	return &buffer{make([]byte, size), class}
}

// put gives the buffer back; nothing may refer to it any more.
func (b *buffer) put() {
	if b.class >= 0 {
		pools[b.class].Put(b)
	}
}

// budget bounds the memory of all frames above 16 KB that are being received or handled. Like Kafka's pool it grants a
// request while anything is left, so that a frame larger than the whole budget still gets through, alone.
type budget struct {
	limited   bool
	available atomic.Int64

	mu      sync.Mutex // guards waiting
	waiting map[*conn]struct{}
}

func newBudget(bytes int64) *budget {
	b := &budget{limited: bytes > 0, waiting: map[*conn]struct{}{}}
	b.available.Store(bytes)
	return b
}

// try takes n bytes. If there are none, c is woken when that changes; it must then ask again.
func (b *budget) try(c *conn, n int) bool {
	if !b.limited {
		return true
	}
	if b.take(n) {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting[c] = struct{}{}
	if b.take(n) { // released between the two
		delete(b.waiting, c)
		return true
	}
	return false
}

func (b *budget) take(n int) bool {
	for {
		a := b.available.Load()
		if a <= 0 {
			return false
		}
		if b.available.CompareAndSwap(a, a-int64(n)) {
			return true
		}
	}
}

func (b *budget) release(n int) {
	if !b.limited || n == 0 {
		return
	}
	if b.available.Add(int64(n)) <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.waiting {
		delete(b.waiting, c)
		c.wake()
	}
}

// forget is for a connection that ends while it waits.
func (b *budget) forget(c *conn) {
	if b.limited {
		b.mu.Lock()
		delete(b.waiting, c)
		b.mu.Unlock()
	}
}
