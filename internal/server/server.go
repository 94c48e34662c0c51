package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/highwater/highwater/internal/rpc"
)

// Config is what a Server is made of.
type Config struct {
	Listeners []Listener

	MaxRequestBytes int32         // socket.request.max.bytes; 0 = 100 MB
	QueuedBytes     int64         // queued.max.request.bytes; <= 0 = no bound
	SendBuffer      int           // socket.send.buffer.bytes; <= 0 = as the OS has it
	ReceiveBuffer   int           // socket.receive.buffer.bytes; <= 0 = as the OS has it
	Backlog         int           // socket.listen.backlog.size; <= 0 = as the OS has it
	IdleTime        time.Duration // connections.max.idle.ms; <= 0 = for ever
	Limits          Limits
	MaxInFlight     int // requests of one connection that may wait at once; 0 = 64
	// HandshakeTime bounds Wrap; 0 = 30 s.
	HandshakeTime time.Duration
}

// Listener is one entry of `listeners`.
type Listener struct {
	Name       string // "PLAINTEXT", "CONTROLLER"
	Host       string // "" = all addresses
	Port       int    // 0 = the OS chooses; see Server.Addr
	Controller bool   // one of controller.listener.names
	// Protected listeners (the one between brokers) get their connections even when Limits.Connections is reached: the
	// longest idle connection of another listener is closed for each.
	Protected bool
	Table     *rpc.Table

	// Wrap puts TLS or the like around a connection. It runs on the connection's goroutine, with a deadline set, and may
	// shake hands. Nil for plain text: then files are sent without copying.
	Wrap func(net.Conn) (net.Conn, error)
	// Gate makes the authentication of one connection, nil for none. It is called after Wrap.
	Gate func(*rpc.Conn, net.Conn) Gate
	// Principal of a connection without a gate; "" = "User:ANONYMOUS".
	Principal string
}

// Gate stands before the handlers of one connection until its peer has proved who it is, and later if it must prove it
// again. It is called on the connection's goroutine.
type Gate interface {
	// MaxRequestBytes bounds frames for the time being; 0 leaves the server's bound.
	MaxRequestBytes() int32
	// Raw is offered every frame before its header is read, for exchanges that have none (SaslHandshake v0). If it takes
	// the frame, answer is sent back with a length before it; an error closes the connection.
	Raw(frame []byte) (answer []byte, taken bool, err error)
	// Admit tells whether the request may be handled; an error closes the connection. now is when it was received.
	Admit(key, version int16, now time.Time) error
	// Open tells that the peer has proved itself and the gate has nothing more to say: it is not asked again. A gate
	// that bounds a session's time never opens.
	Open() bool
}

// Limits bound how many connections there are. They may change while the server runs.
type Limits struct {
	Connections   int            // max.connections; <= 0 = no bound
	PerIP         int            // max.connections.per.ip; 0 = no bound, < 0 = only addresses that are in PerIPOverride
	PerIPOverride map[string]int // max.connections.per.ip.overrides: address or host name, resolved once
	CreationRate  int            // max.connection.creation.rate, a second; <= 0 = no bound
	// Listeners are bounds of single listeners, by name, beside those of all: listener.name.X.max.connections and so on.
	Listeners map[string]ListenerLimits
}

// ListenerLimits bound the connections of one listener; <= 0 = no bound.
type ListenerLimits struct {
	Connections  int
	CreationRate int // a second
}

// Server owns listeners and connections.
type Server struct {
	cfg    Config
	log    *slog.Logger
	loud   *limiter
	wheel  *wheel
	budget *budget
	quota  *connectionQuota

	nextID    atomic.Int64
	accepting sync.WaitGroup
	serving   sync.WaitGroup

	mu        sync.Mutex // guards what follows
	listeners []*listener
	conns     map[*conn]struct{}
	state     state
	drained   chan struct{} // closed when state is draining or later and conns is empty
}

type state int

const (
	fresh state = iota
	listening
	draining
	stopped
)

// listener is a Listener with its socket.
type listener struct {
	Listener
	s       *Server
	socket  *net.TCPListener
	addr    netip.AddrPort
	metrics Metrics
	started bool          // guarded by s.mu, as removed
	removed bool          // by Remove: it takes no connections any more
	stop    chan struct{} // closed when the listener, or the server, stops
}

const (
	defaultMaxRequestBytes = 100 << 20
	defaultMaxInFlight     = 64
	defaultHandshakeTime   = 30 * time.Second
)

// New checks a configuration. It opens nothing.
func New(cfg Config, log *slog.Logger) (*Server, error) {
	cfg.MaxRequestBytes = cmp.Or(cfg.MaxRequestBytes, defaultMaxRequestBytes)
	cfg.MaxInFlight = cmp.Or(cfg.MaxInFlight, defaultMaxInFlight)
	cfg.HandshakeTime = cmp.Or(cfg.HandshakeTime, defaultHandshakeTime)
	if cfg.MaxRequestBytes < 0 {
		return nil, fmt.Errorf("socket.request.max.bytes: %d is negative", cfg.MaxRequestBytes)
	}
	s := &Server{
		cfg: cfg, log: log, loud: newLimiter(log), wheel: newWheel(time.Now()), budget: newBudget(cfg.QueuedBytes),
		conns: map[*conn]struct{}{}, drained: make(chan struct{}),
	}
	s.quota = newConnectionQuota(cfg.Limits, s)
	for i := range cfg.Listeners {
		l, err := s.newListenerLocked(cfg.Listeners[i])
		if err != nil {
			return nil, err
		}
		s.listeners = append(s.listeners, l)
	}
	return s, nil
}

func (s *Server) newListenerLocked(o Listener) (*listener, error) {
	if o.Table == nil {
		return nil, fmt.Errorf("listener %s serves nothing", o.Name)
	}
	if s.findLocked(o.Name) != nil {
		return nil, fmt.Errorf("listeners: each listener must have a different name, %s stands twice", o.Name)
	}
	o.Principal = cmp.Or(o.Principal, "User:ANONYMOUS")
	return &listener{Listener: o, s: s, stop: make(chan struct{})}, nil
}

// findLocked is the listener of that name, or nil.
func (s *Server) findLocked(name string) *listener {
	if i := slices.IndexFunc(s.listeners, func(l *listener) bool { return l.Name == name }); i >= 0 {
		return s.listeners[i]
	}
	return nil
}

// Listen binds all listeners, so that a port in use shows before anything else is started. Clients can connect from now
// on; they are served from Serve on.
func (s *Server) Listen(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != fresh {
		return errors.New("the server was started before")
	}
	for _, l := range s.listeners {
		if err := l.bind(ctx); err != nil {
			for _, o := range s.listeners {
				if o.socket != nil {
					err = errors.Join(err, o.socket.Close())
					o.socket = nil
				}
			}
			return err
		}
	}
	s.state = listening
	return nil
}

// Addr is where a listener is bound, once Listen returned.
func (s *Server) Addr(name string) (netip.AddrPort, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.findLocked(name); l != nil && l.socket != nil {
		return l.addr, true
	}
	return netip.AddrPort{}, false
}

// Metrics are the counters of a listener, or nil.
func (s *Server) Metrics(name string) *Metrics {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.findLocked(name); l != nil {
		return &l.metrics
	}
	return nil
}

// Add binds one more listener while the server runs and serves it at once.
func (s *Server) Add(ctx context.Context, o Listener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != listening {
		return errors.New("the server does not listen")
	}
	l, err := s.newListenerLocked(o)
	if err != nil {
		return err
	}
	if err := l.bind(ctx); err != nil {
		if l.socket != nil {
			err = errors.Join(err, l.socket.Close())
		}
		return err
	}
	s.listeners = append(s.listeners, l)
	s.serveLocked(l)
	return nil
}

// Remove closes a listener while the server runs. Its connections finish what they asked and are closed; nobody waits for
// them.
func (s *Server) Remove(name string) error {
	s.mu.Lock()
	l := s.findLocked(name)
	if s.state != listening || l == nil {
		s.mu.Unlock()
		return fmt.Errorf("there is no listener %s", name)
	}
	s.listeners = slices.DeleteFunc(slices.Clone(s.listeners), func(o *listener) bool { return o == l })
	l.removed = true
	close(l.stop)
	err := l.socket.Close()
	var left []*conn
	for c := range s.conns {
		if c.l == l {
			left = append(left, c)
		}
	}
	s.mu.Unlock()
	for _, c := range left {
		c.drain()
	}
	s.log.Info("listener closed", "listener", name, "connections", len(left))
	return err
}

// Serve starts to accept on the listeners named, or on all of them.
func (s *Server) Serve(names ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != listening {
		return errors.New("the server does not listen")
	}
	for _, n := range names {
		if s.findLocked(n) == nil {
			return fmt.Errorf("there is no listener %s", n)
		}
	}
	for _, l := range s.listeners {
		if !l.started && (len(names) == 0 || slices.Contains(names, l.Name)) {
			s.serveLocked(l)
		}
	}
	return nil
}

func (s *Server) serveLocked(l *listener) {
	l.started = true
	s.accepting.Add(1)
	go l.accept()
	s.log.Info("listening", "listener", l.Name, "address", l.addr.String())
}

// SetLimits changes the connection limits; connections that are there stay.
func (s *Server) SetLimits(l Limits) { s.quota.set(l) }

// Stop stops accepting, lets every connection finish the requests that it has already handled, and closes them; when ctx
// ends it closes those that are left. It returns when all goroutines are gone. Later calls wait for the first.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	first := s.state < draining
	var errs []error
	if first {
		s.state = draining
		for _, l := range s.listeners {
			close(l.stop)
			if l.socket != nil {
				if err := l.socket.Close(); err != nil {
					errs = append(errs, fmt.Errorf("close listener %s: %w", l.Name, err))
				}
			}
		}
		s.checkDrainedLocked()
	}
	left := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		left = append(left, c)
	}
	s.mu.Unlock()
	s.quota.wakeAll()
	for _, c := range left {
		c.drain()
	}

	select {
	case <-s.drained:
	case <-ctx.Done():
		s.mu.Lock()
		left = left[:0]
		for c := range s.conns {
			left = append(left, c)
		}
		s.mu.Unlock()
		if first && len(left) > 0 {
			s.log.Warn("closing connections with requests in flight", "connections", len(left))
		}
		for _, c := range left {
			c.kill(errStopped)
		}
		<-s.drained
	}
	s.accepting.Wait()
	s.serving.Wait()
	s.wheel.stop()
	s.mu.Lock()
	s.state = stopped
	s.mu.Unlock()
	return errors.Join(errs...)
}

// add enters a connection, unless the server is stopping.
func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != listening || c.l.removed {
		return false
	}
	s.conns[c] = struct{}{}
	s.serving.Add(1)
	return true
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.checkDrainedLocked()
	s.mu.Unlock()
	s.serving.Done()
}

func (s *Server) checkDrainedLocked() {
	if s.state >= draining && len(s.conns) == 0 {
		select {
		case <-s.drained:
		default:
			close(s.drained)
		}
	}
}

// closeLongestIdle makes room on behalf of a protected listener: it closes the connection of another listener that has
// been idle longest. It tells whether there was one.
func (s *Server) closeLongestIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest *conn
	for c := range s.conns {
		if !c.l.Protected && c.dead.Load() == nil && (oldest == nil || c.active.Load() < oldest.active.Load()) {
			oldest = c
		}
	}
	if oldest != nil {
		oldest.kill(errMakeRoom)
	}
	return oldest != nil
}
