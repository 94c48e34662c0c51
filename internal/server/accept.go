package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// InUseError says that another process listens where a listener should.
type InUseError struct {
	Listener string
	Address  string // host and port
	Err      error
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("listener %s: address %s is in use by another process: stop that one, or give %s another port in listeners: %v",
		e.Listener, e.Address, e.Listener, e.Err)
}

func (e *InUseError) Unwrap() error { return e.Err }

// bind opens the listener's socket.
func (l *listener) bind(ctx context.Context) error {
	address := net.JoinHostPort(l.Host, strconv.Itoa(l.Port))
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		// The receive buffer has to be set before the handshake, else the window stays small: connections inherit it.
		if cerr := raw.Control(func(fd uintptr) { err = setBuffers(fd, l.s.cfg.SendBuffer, l.s.cfg.ReceiveBuffer) }); cerr != nil {
			return cerr
		}
		return err
	}}
	socket, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return &InUseError{Listener: l.Name, Address: address, Err: err}
		}
		return fmt.Errorf("listener %s: cannot bind %s; check its host and port in listeners: %w", l.Name, address, err)
	}
	l.socket = socket.(*net.TCPListener)
	if l.s.cfg.Backlog > 0 {
		raw, err := l.socket.SyscallConn()
		if err == nil {
			err = setBacklog(raw, l.s.cfg.Backlog)
		}
		if err != nil {
			return fmt.Errorf("listener %s: set backlog %d: %w", l.Name, l.s.cfg.Backlog, err)
		}
	}
	l.addr = l.socket.Addr().(*net.TCPAddr).AddrPort()
	return nil
}

// accept is the goroutine of a listener: it takes connections until the listener or the server stops.
func (l *listener) accept() {
	s := l.s
	defer s.accepting.Done()
	for {
		if !s.quota.admit(l) {
			return
		}
		nc, err := l.socket.AcceptTCP()
		if err != nil {
			select {
			case <-l.stop:
				return
			default:
			}
			// Out of descriptors, or the peer was gone before we took it: neither ends the listener.
			s.loud.say(slog.LevelError, "accept", "listener", l.Name, "err", err)
			if !pause(l.stop, acceptRetry) {
				return
			}
			continue
		}
		l.take(nc)
	}
}

// acceptRetry is how long the acceptor rests after an error, so that running out of descriptors does not burn a core.
const acceptRetry = 50 * time.Millisecond

// take starts the goroutine of a connection, or closes it if its address has too many.
func (l *listener) take(nc *net.TCPConn) {
	s := l.s
	local, remote := addrPort(nc.LocalAddr()), addrPort(nc.RemoteAddr())
	if most, ok := s.quota.enter(l, remote.Addr()); !ok {
		l.metrics.Rejected.Add(1)
		s.loud.say(slog.LevelInfo, "rejected connection: its address has the configured maximum", "listener", l.Name,
			"remote", remote.Addr().String(), "max", most)
		_ = nc.Close()
		return
	}
	c := newConn(l, nc, local, remote)
	if !s.add(c) {
		s.quota.leave(l, remote.Addr())
		_ = nc.Close()
		return
	}
	l.metrics.Accepted.Add(1)
	l.metrics.Connections.Add(1)
	go c.serve()
}

func addrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		p := t.AddrPort()
		return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	return netip.AddrPort{}
}

// pause waits for d; false if stop was closed before.
func pause(stop <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-stop:
		return false
	}
}

// connectionQuota counts connections and holds acceptors back.
type connectionQuota struct {
	s *Server

	mu     sync.Mutex // guards what follows
	limits Limits
	byAddr map[netip.Addr]int
	byHost map[netip.Addr]int // limits.PerIPOverride, resolved
	total  int
	per    map[*listener]int
	rate   bucket             // of the creation rate
	rates  map[string]*bucket // of single listeners' creation rates, by name
	// changed is closed, and replaced, when an acceptor that waits should look again.
	changed chan struct{}
}

func newConnectionQuota(l Limits, s *Server) *connectionQuota {
	q := &connectionQuota{s: s, byAddr: map[netip.Addr]int{}, per: map[*listener]int{}, changed: make(chan struct{})}
	q.set(l)
	return q
}

func (q *connectionQuota) set(l Limits) {
	hosts := map[netip.Addr]int{}
	for name, n := range l.PerIPOverride {
		if a, err := netip.ParseAddr(name); err == nil {
			hosts[a.Unmap()] = n
			continue
		}
		addrs, err := net.LookupIP(name)
		if err != nil {
			q.s.log.Warn("max.connections.per.ip.overrides: host name does not resolve", "host", name, "err", err)
		}
		for _, ip := range addrs {
			if a, ok := netip.AddrFromSlice(ip); ok {
				hosts[a.Unmap()] = n
			}
		}
	}
	q.mu.Lock()
	now := time.Now()
	q.limits, q.byHost = l, hosts
	q.rate = newBucket(l.CreationRate, now)
	q.rates = map[string]*bucket{}
	for name, own := range l.Listeners {
		if own.CreationRate > 0 {
			b := newBucket(own.CreationRate, now)
			q.rates[name] = &b
		}
	}
	q.mu.Unlock()
	q.wakeAll()
}

func (q *connectionQuota) wakeAll() {
	q.mu.Lock()
	close(q.changed)
	q.changed = make(chan struct{})
	q.mu.Unlock()
}

// admit blocks the acceptor of l until the next connection may come: clients wait in the backlog meanwhile, as with
// Kafka. It returns false when the listener stops.
func (q *connectionQuota) admit(l *listener) bool {
	for {
		wait, changed := q.wait(l, time.Now())
		if wait == 0 {
			return true
		}
		if wait < 0 { // until something changes
			select {
			case <-changed:
			case <-l.stop:
				return false
			}
			continue
		}
		if !pause(l.stop, wait) {
			return false
		}
	}
}

// wait is how long l must wait before it may accept: 0 not at all, < 0 until changed is closed. It takes a token of the
// creation rates if it returns 0.
func (q *connectionQuota) wait(l *listener, now time.Time) (time.Duration, chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if most := q.limits.Listeners[l.Name].Connections; most > 0 && q.per[l] >= most {
		return -1, q.changed
	}
	if q.limits.Connections > 0 && q.total >= q.limits.Connections && !l.Protected {
		return -1, q.changed
	}
	wait, own := q.rate.wait(now), q.rates[l.Name]
	if own != nil {
		wait = max(wait, own.wait(now))
	}
	if wait == 0 {
		q.rate.take()
		if own != nil {
			own.take()
		}
	}
	return wait, nil
}

// bucket holds the tokens of a creation rate: a second's worth at most.
type bucket struct {
	rate   float64 // tokens a second; <= 0 = no bound
	tokens float64
	filled time.Time
}

func newBucket(rate int, now time.Time) bucket { return bucket{float64(rate), float64(rate), now} }

// wait is how long until there is a token.
func (b *bucket) wait(now time.Time) time.Duration {
	if b.rate <= 0 {
		return 0
	}
	b.tokens = min(b.rate, b.tokens+b.rate*now.Sub(b.filled).Seconds())
	b.filled = now
	if b.tokens < 1 {
		return time.Duration((1-b.tokens)/b.rate*float64(time.Second)) + time.Millisecond
	}
	return 0
}

func (b *bucket) take() {
	if b.rate > 0 {
		b.tokens--
	}
}

// enter counts a connection; ok is false, and most the bound, if its address has as many as it may.
func (q *connectionQuota) enter(l *listener, a netip.Addr) (most int, ok bool) {
	q.mu.Lock()
	most, bounded := q.byHost[a]
	if !bounded {
		most, bounded = max(q.limits.PerIP, 0), q.limits.PerIP != 0
	}
	if bounded && q.byAddr[a] >= most {
		q.mu.Unlock()
		return most, false
	}
	q.byAddr[a]++
	q.total++
	q.per[l]++
	over := q.limits.Connections > 0 && q.total > q.limits.Connections
	q.mu.Unlock()
	if over {
		q.s.closeLongestIdle()
	}
	return 0, true
}

func (q *connectionQuota) leave(l *listener, a netip.Addr) {
	q.mu.Lock()
	if q.byAddr[a]--; q.byAddr[a] == 0 {
		delete(q.byAddr, a)
	}
	q.total--
	if q.per[l]--; q.per[l] == 0 {
		delete(q.per, l) // it may be a listener that was removed
	}
	q.mu.Unlock()
	q.wakeAll()
}
