package storageloop

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/highwater/highwater/internal/replica"
)

// piece is a replica with so many bytes to move, in memory.
type piece struct {
	mu sync.Mutex
	pieceState
}

type pieceState struct {
	left    int
	moves   int
	limit   int // the largest that was asked for
	busy    bool
	overlap bool
	parked  bool // asks the controller once at the end
	huge    bool // gives back a buffer of one huge batch
	cap     int  // the largest buffer that it was given
	done    time.Time
}

func (p *piece) now() pieceState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pieceState
}

func pieceOf(left int) *piece { return &piece{pieceState: pieceState{left: left}} }

func (p *piece) Move(now time.Time, limit int, buf []byte) (replica.MoveState, int, []byte) {
	p.mu.Lock()
	p.overlap = p.overlap || p.busy
	p.busy = true
	p.mu.Unlock()
	time.Sleep(time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy = false
	p.moves++
	p.limit, p.cap = max(p.limit, limit), max(p.cap, cap(buf))
	if p.huge {
		buf = make([]byte, 5*moveBytes)
	}
	n := min(p.left, limit)
	p.left -= n
	switch {
	case p.left > 0:
		return replica.MoveMore, n, buf
	case p.parked:
		p.parked = false
		return replica.MoveAsked, n, buf
	}
	if p.done.IsZero() {
		p.done = now
	}
	return replica.MoveDone, n, buf
}

// Moves run at the rate that is set, all together, in turns, one piece of a replica at a time, and end with Stop.
func TestMover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		rate := int64(1 << 20)
		m := NewMover(MoverOptions{Threads: 2, Rate: func() int64 { mu.Lock(); defer mu.Unlock(); return rate }})
		begin := time.Now()
		all := []*piece{pieceOf(10 << 20), pieceOf(10 << 20), pieceOf(100)}
		for _, p := range all {
			m.Add(p)
			m.Add(p)
		}
		m.Start()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for _, p := range all {
			m.Add(p)
		}
		moved := func() (n int) {
			for _, p := range all {
				n -= p.now().left
			}
			return n + 20<<20 + 100
		}
		if n := moved(); n < 9<<20 || n > 12<<20 {
			t.Errorf("%d bytes in 10 s at 1 MiB a second", n)
		}
		if done := all[2].now().done; done.IsZero() || done.Sub(begin) > 3*time.Second {
			t.Errorf("the small one ended after %v", done.Sub(begin))
		}
		if a, b := all[0].now().left, all[1].now().left; a-b > 2<<20 || b-a > 2<<20 {
			t.Errorf("%d and %d bytes are left: not in turns", a, b)
		}
		mu.Lock()
		rate = 1 << 40
		mu.Unlock()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		for i, p := range all {
			if p := p.now(); p.left != 0 || p.overlap || p.limit > moveBytes {
				t.Errorf("replica %d: %d bytes left, two at a time: %v, at most %d", i, p.left, p.overlap, p.limit)
			}
		}
		// One that waits for the controller is called again when Add says so, and not before.
		p := pieceOf(10)
		p.parked = true
		m.Add(p)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := p.now().moves; n != 1 {
			t.Errorf("called %d times", n)
		}
		m.Add(p)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := p.now(); got.moves != 2 || got.done.IsZero() {
			t.Errorf("called %d times", got.moves)
		}
		// Stop doesn't wait for the rate.
		mu.Lock()
		rate = 1
		mu.Unlock()
		p = pieceOf(100)
		m.Add(p)
		time.Sleep(10 * time.Second)
		before := time.Now()
		m.Stop()
		m.Stop()
		if took := time.Since(before); took > time.Second {
			t.Errorf("Stop took %v", took)
		}
		if n := p.now().left; n < 80 {
			t.Errorf("%d bytes left at a byte a second", n)
		}
	})
}

// What is added while it is being moved is moved once more; a buffer as for one huge batch isn't kept; and Stop ends the moves though there
// is more to do than ever can be done.
func TestMoverAddsAndStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMover(MoverOptions{Rate: func() int64 { return 1 << 50 }})
		m.Start()
		p := pieceOf(10)
		m.Add(p)
		synctest.Wait() // it sleeps in Move
		m.Add(p)
		m.Add(p)
		pass(time.Second)
		if n := p.now().moves; n != 2 {
			t.Errorf("called %d times", n)
		}
		endless := pieceOf(1 << 60)
		endless.huge = true
		m.Add(endless)
		pass(50 * time.Millisecond)
		began := time.Now()
		m.Stop()
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("Stop took %v", took)
		}
		if p := endless.now(); p.moves < 20 || p.cap > 4*moveBytes {
			t.Errorf("called %d times, with a buffer of %d bytes", p.moves, p.cap)
		}
	})
}
