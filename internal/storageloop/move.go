package storageloop

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/highwater/highwater/internal/replica"
)

// Moving is a replica that is on its way into another log directory, as a Mover sees it: *replica.Replica.
type Moving interface {
	Move(now time.Time, limit int, buf []byte) (replica.MoveState, int, []byte)
}

// MoverOptions is what a Mover needs.
type MoverOptions struct {
	Threads int // num.replica.alter.log.dirs.threads; at least 1
	// Rate is replica.alter.log.dirs.io.max.bytes.per.second, of all moves together, asked before each piece.
	Rate func() int64
}

// moveBytes is how much is copied at a time: what Kafka fetches at a time (replica.fetch.max.bytes).
const moveBytes = 1 << 20

// Mover copies replicas from one log directory into another, on goroutines of its own. What is to be done next the replica says.
type Mover struct {
	o    MoverOptions
	wake chan struct{}
	stop chan struct{}
	done sync.WaitGroup

	mu      sync.Mutex // guards what follows
	queue   []Moving   // those with something to do
	queued  map[Moving]bool
	working map[Moving]bool // in Move just now
	again   map[Moving]bool // of these, those that were added meanwhile
	stopped bool

	// paid is when what was copied so far would have been copied at the rate, in ns of the Mover's own clock.
	paid  atomic.Int64
	began time.Time
}

// NewMover makes a Mover; nothing is copied before Start.
func NewMover(o MoverOptions) *Mover {
	o.Threads = max(o.Threads, 1)
	return &Mover{
		o: o, wake: make(chan struct{}, o.Threads), stop: make(chan struct{}), began: time.Now(),
		queued: make(map[Moving]bool), working: make(map[Moving]bool), again: make(map[Moving]bool),
	}
}

// Start starts the goroutines.
func (m *Mover) Start() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return
	}
	for range m.o.Threads {
		m.done.Go(m.run)
	}
}

// Stop ends them after the piece that they are at. It may be called again.
func (m *Mover) Stop() {
	m.mu.Lock()
	if !m.stopped {
		m.stopped = true
		close(m.stop)
	}
	m.mu.Unlock()
	m.done.Wait()
}

// Add says that a replica has something to move. It doesn't wait, and may be called again for the same one.
func (m *Mover) Add(r Moving) {
	m.mu.Lock()
	switch {
	case m.working[r]:
		m.again[r] = true
	case !m.queued[r]:
		m.queued[r] = true
		m.queue = append(m.queue, r)
	}
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default: // all are awake, or about to be
	}
}

func (m *Mover) next() Moving {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.queue) == 0 {
		return nil
	}
	r := m.queue[0]
	m.queue[0] = nil
	m.queue = m.queue[1:]
	delete(m.queued, r)
	m.working[r] = true
	return r
}

// moved takes note of the end of one piece.
func (m *Mover) moved(r Moving, more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.working, r)
	if more || m.again[r] {
		m.queued[r] = true
		m.queue = append(m.queue, r)
	}
	delete(m.again, r)
}

// run is the goroutine: it takes one piece of one replica after another, so that all come forward.
func (m *Mover) run() {
	var buf []byte
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		r := m.next()
		if r == nil {
			select {
			case <-m.stop:
				return
			case <-m.wake:
			}
			continue
		}
		rate := max(m.o.Rate(), 1)
		if !m.await(timer) {
			m.moved(r, true)
			return
		}
		state, n, b := r.Move(time.Now(), int(min(moveBytes, rate)), buf)
		buf = b
		m.pay(n, rate)
		m.moved(r, state == replica.MoveMore)
		if cap(buf) > 4*moveBytes {
			buf = nil // of one huge batch
		}
	}
}

// await waits until what was copied so far is no more than the rate allows. It is false if the Mover was stopped.
func (m *Mover) await(timer *time.Timer) bool {
	wait := time.Duration(m.paid.Load()) - time.Since(m.began)
	if wait <= 0 {
		select {
		case <-m.stop:
			return false
		default:
			return true
		}
	}
	timer.Reset(wait)
	select {
	case <-m.stop:
		return false
	case <-timer.C:
		return true
	}
}

// pay counts n copied bytes. What wasn't used of the rate in the past is not saved up.
func (m *Mover) pay(n int, rate int64) {
	cost := int64(float64(n) / float64(rate) * float64(time.Second))
	for {
		old := m.paid.Load()
		if m.paid.CompareAndSwap(old, max(old, int64(time.Since(m.began)))+cost) {
			return
		}
	}
}
