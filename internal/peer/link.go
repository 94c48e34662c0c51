package peer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// call is one request on its way.
type call struct {
	req      kmsg.Request
	versions Range
	deadline time.Time
	done     func(kmsg.Response, error)
	id       int32 // correlation id, once sent
}

// link is the way to one endpoint. Its goroutine, run, connects when there is something to send, writes, and keeps the
// deadlines.
type link struct {
	c      *Client
	to     Endpoint
	signal chan struct{} // something was queued, or there is room in flight again
	buf    []byte        // run's, to encode into

	mu       sync.Mutex // guards what follows
	queued   []*call    // not sent yet
	inFlight []*call    // sent, in the order of the answers
	nextID   int32
	closed   bool
}

func newLink(c *Client, to Endpoint) *link {
	return &link{c: c, to: to, signal: make(chan struct{}, 1)}
}

func (l *link) enqueue(k *call) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	if len(l.queued)+len(l.inFlight) >= l.c.cfg.MaxQueued {
		return fmt.Errorf("%s: %w", l.to, ErrQueueFull)
	}
	l.queued = append(l.queued, k)
	l.wake()
	return nil
}

func (l *link) wake() {
	select {
	case l.signal <- struct{}{}:
	default:
	}
}

func (l *link) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queued)+len(l.inFlight) == 0
}

// dialed is what an attempt to connect came to.
type dialed struct {
	conn *connection
	err  error
}

// run is the link's goroutine.
func (l *link) run() {
	defer l.c.tasks.Done()
	var (
		conn      *connection
		dialing   chan dialed // not nil while one attempt is on its way
		attempts  int         // that failed, since the last one that did not
		notBefore time.Time   // the back-off's end
		used      = time.Now()
		timer     = time.NewTimer(time.Hour)
	)
	defer timer.Stop()
	drop := func(err error) {
		conn.close()
		conn = nil
		l.fail(&l.inFlight, err)
	}
	for {
		now := time.Now()
		next, broken := l.expire(now)
		if broken && conn != nil {
			l.c.log.Debug("closing connection: a request was not answered in time", "node", l.to.String())
			drop(fmt.Errorf("%s: %w: another request was not answered in time", l.to, ErrDisconnected))
		}
		switch waiting := l.waiting(); {
		case !waiting:
			if !l.idle() {
				used = now
			} else if now.Sub(used) >= l.c.cfg.IdleTime && dialing == nil {
				if l.c.forget(l) {
					if conn != nil {
						conn.close()
					}
					return
				}
			}
			next = earlier(next, used.Add(l.c.cfg.IdleTime))
		case conn != nil:
			used = now
			if err := l.write(conn); err != nil {
				drop(fmt.Errorf("%s: %w: %w", l.to, ErrDisconnected, err))
				continue
			}
		case dialing != nil:
		case now.Before(notBefore):
			next = earlier(next, notBefore)
		default:
			dialing = make(chan dialed, 1)
			l.c.tasks.Add(1)
			go l.dial(dialing)
		}

		timer.Reset(time.Until(next))
		var ended <-chan struct{}
		if conn != nil {
			ended = conn.ended
		}
		select {
		case <-l.signal:
		case <-timer.C:
		case d := <-dialing:
			dialing = nil
			if d.err == nil {
				conn, attempts = d.conn, 0
				break
			}
			wait := backoff(l.c.cfg.Backoff, l.c.cfg.MaxBackoff, attempts)
			attempts++
			notBefore = time.Now().Add(wait)
			l.c.log.Debug("cannot connect", "node", l.to.String(), "err", d.err, "retry", wait)
			l.fail(&l.queued, fmt.Errorf("connect to %s: %w", l.to, d.err))
		case <-ended:
			err := conn.err
			l.c.log.Debug("connection ended", "node", l.to.String(), "err", err)
			drop(fmt.Errorf("%s: %w: %w", l.to, ErrDisconnected, err))
		case <-l.c.ctx.Done():
			if conn != nil {
				conn.close()
			}
			if dialing != nil {
				if d := <-dialing; d.conn != nil {
					d.conn.close()
				}
			}
			l.mu.Lock()
			l.closed = true
			l.mu.Unlock()
			l.fail(&l.inFlight, ErrClosed)
			l.fail(&l.queued, ErrClosed)
			return
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// backoff is Kafka's: it doubles with each failed attempt up to most, and is then moved by up to a fifth at random, so
// that nodes that lost a peer together do not all come back together.
func backoff(first, most time.Duration, attempts int) time.Duration {
	d := first
	for ; attempts > 0 && d < most; attempts-- {
		d *= 2
	}
	return time.Duration(float64(min(d, most)) * (0.8 + 0.4*rand.Float64()))
}

// waiting tells whether there is a call that can be sent as soon as there is a connection.
func (l *link) waiting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queued) > 0 && len(l.inFlight) < l.c.cfg.MaxInFlight
}

// expire fails the calls whose time is over and returns when the next one's is. broken tells that one of them was sent.
func (l *link) expire(now time.Time) (next time.Time, broken bool) {
	next = now.Add(time.Hour)
	var late []*call
	keep := func(calls []*call) []*call {
		kept := calls[:0]
		for _, k := range calls {
			if now.Before(k.deadline) {
				next = earlier(next, k.deadline)
				kept = append(kept, k)
			} else {
				late = append(late, k)
			}
		}
		clear(calls[len(kept):])
		return kept
	}
	l.mu.Lock()
	l.inFlight = keep(l.inFlight)
	broken = len(late) > 0
	l.queued = keep(l.queued)
	l.mu.Unlock()
	for _, k := range late {
		k.done(nil, fmt.Errorf("%s: %w", l.to, ErrTimeout))
	}
	return next, broken
}

// fail fails all calls of one list.
func (l *link) fail(list *[]*call, err error) {
	l.mu.Lock()
	calls := *list
	*list = nil
	l.mu.Unlock()
	for _, k := range calls {
		k.done(nil, err)
	}
}

// write sends what is queued, as far as there is room in flight, with one write.
func (l *link) write(conn *connection) error {
	var refused []*call
	var errs []error
	var until time.Time
	out := l.buf[:0]
	l.mu.Lock()
	for len(l.queued) > 0 && len(l.inFlight) < l.c.cfg.MaxInFlight && len(out) < 1<<20 {
		k := l.queued[0]
		l.queued[0] = nil
		l.queued = l.queued[1:]
		version, err := conn.version(k.req, k.versions)
		if err != nil {
			refused, errs = append(refused, k), append(errs, err)
			continue
		}
		k.req.SetVersion(version)
		k.id = l.nextID
		l.nextID = (l.nextID + 1) & 0x7fffffff
		out = appendRequest(out, k.req, k.id, l.c.cfg.ClientID)
		l.inFlight = append(l.inFlight, k)
		until = later(until, k.deadline)
	}
	if len(l.queued) > 0 && len(l.inFlight) < l.c.cfg.MaxInFlight {
		l.wake()
	}
	l.mu.Unlock()
	for i, k := range refused {
		k.done(nil, errs[i])
	}
	if len(out) == 0 {
		return nil
	}
	// A peer that does not read must not keep the deadlines from being kept.
	if err := conn.nc.SetWriteDeadline(until); err != nil {
		return err
	}
	_, err := conn.nc.Write(out)
	if l.buf = out; cap(out) > keptBuffer {
		l.buf = nil
	}
	return err
}

// keptBuffer is how much memory for encoding a link keeps.
const keptBuffer = 64 << 10

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// dial makes a connection, on a goroutine of its own.
func (l *link) dial(result chan<- dialed) {
	defer l.c.tasks.Done()
	ctx, cancel := context.WithTimeout(l.c.ctx, l.c.cfg.ConnectTimeout)
	defer cancel()
	conn, err := connect(ctx, l)
	if err == nil {
		l.c.tasks.Add(1)
		go conn.read()
	}
	result <- dialed{conn, err}
}

// answered takes the oldest call in flight, whose answer has come.
func (l *link) answered(id int32) (*call, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.inFlight) == 0 {
		return nil, fmt.Errorf("an answer came with correlation id %d, though nothing was asked", id)
	}
	k := l.inFlight[0]
	if k.id != id {
		return nil, fmt.Errorf("an answer came with correlation id %d instead of %d", id, k.id)
	}
	l.inFlight[0] = nil
	l.inFlight = l.inFlight[1:]
	if len(l.queued) > 0 || len(l.inFlight) == 0 {
		l.wake()
	}
	return k, nil
}
