package peer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Endpoint is where a node listens. Equal endpoints share a connection.
type Endpoint struct {
	Host     string
	Port     uint16
	Protocol Protocol
}

func (e Endpoint) String() string { return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))) }

// Protocol is a security protocol by Kafka's number.
type Protocol int16

// Kafka's security protocols.
const (
	Plaintext     Protocol = 0
	SSL           Protocol = 1
	SASLPlaintext Protocol = 2
	SASLSSL       Protocol = 3
)

// Config is what a Client is made of. Zero values mean Kafka's defaults for connections between nodes.
type Config struct {
	ClientID         string
	SoftwareName     string        // told by ApiVersions; "" = "highwater"
	SoftwareVersion  string        // "" = "0"
	Timeout          time.Duration // of Request without a deadline; 0 = 30 s (request.timeout.ms)
	ConnectTimeout   time.Duration // of connecting, TLS and SASL; 0 = 10 s (socket.connection.setup.timeout.ms)
	Backoff          time.Duration // before the second attempt to connect; 0 = 50 ms (reconnect.backoff.ms)
	MaxBackoff       time.Duration // 0 = 1 s (reconnect.backoff.max.ms)
	MaxInFlight      int           // sent and unanswered, of one connection; 0 = 100
	MaxQueued        int           // calls that wait for one endpoint, in flight or not; 0 = 1000
	MaxResponseBytes int32         // 0 = 100 MB
	IdleTime         time.Duration // after which an unused connection is closed; 0 = 9 min, below Kafka's connections.max.idle.ms

	// Cap lowers the highest version of an API, for requests whose version follows metadata.version. Nil lowers nothing.
	Cap func(key int16, highest int16) int16
	// Secure puts TLS around a connection that was just made. Nil for plain text only: other protocols are refused.
	Secure func(context.Context, net.Conn, Endpoint) (net.Conn, error)
	// Authenticate runs after ApiVersions; call does one request on the new connection. Nil for protocols without SASL.
	Authenticate func(ctx context.Context, e Endpoint, call func(kmsg.Request) (kmsg.Response, error)) error

	// Dial replaces the network in tests.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// What Send and Request fail with, besides errors of the network and of decoding.
var (
	ErrClosed       = errors.New("the client is closed")
	ErrTimeout      = errors.New("no answer in time")
	ErrDisconnected = errors.New("disconnected before the answer came")
	ErrQueueFull    = errors.New("too many calls wait for this node")
)

// Client talks to other nodes.
type Client struct {
	cfg Config
	log *slog.Logger

	ctx   context.Context
	stop  context.CancelFunc
	tasks sync.WaitGroup

	mu     sync.Mutex // guards what follows
	links  map[Endpoint]*link
	closed bool
}

// New makes a Client. It connects to nobody yet.
func New(cfg Config, log *slog.Logger) *Client {
	cfg.SoftwareName = cmp.Or(cfg.SoftwareName, "highwater")
	cfg.SoftwareVersion = cmp.Or(cfg.SoftwareVersion, "0")
	cfg.Timeout = cmp.Or(cfg.Timeout, 30*time.Second)
	cfg.ConnectTimeout = cmp.Or(cfg.ConnectTimeout, 10*time.Second)
	cfg.Backoff = cmp.Or(cfg.Backoff, 50*time.Millisecond)
	cfg.MaxBackoff = max(cmp.Or(cfg.MaxBackoff, time.Second), cfg.Backoff)
	cfg.MaxInFlight = cmp.Or(cfg.MaxInFlight, 100)
	cfg.MaxQueued = cmp.Or(cfg.MaxQueued, 1000)
	cfg.MaxResponseBytes = cmp.Or(cfg.MaxResponseBytes, 100<<20)
	cfg.IdleTime = cmp.Or(cfg.IdleTime, 9*time.Minute)
	if cfg.Dial == nil {
		cfg.Dial = new(net.Dialer).DialContext
	}
	c := &Client{cfg: cfg, log: log, links: map[Endpoint]*link{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Range bounds the version of a request; Max 0 with Min 0 means any.
type Range struct{ Min, Max int16 }

// Send sends a request and calls done once with its answer or an error, from another goroutine, or from this one if it
// fails at once. The request belongs to the client until then; its version is set.
func (c *Client) Send(to Endpoint, req kmsg.Request, timeout time.Duration, done func(kmsg.Response, error)) {
	c.SendVersion(to, req, Range{}, timeout, done)
}

// SendVersion is Send with the version bounded. If the peer serves none of the range the error is UNSUPPORTED_VERSION.
func (c *Client) SendVersion(to Endpoint, req kmsg.Request, versions Range, timeout time.Duration, done func(kmsg.Response, error)) {
	if versions == (Range{}) {
		versions.Max = req.MaxVersion()
	}
	k := &call{req: req, versions: versions, deadline: time.Now().Add(timeout), done: done}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		done(nil, ErrClosed)
		return
	}
	l := c.links[to]
	if l == nil {
		l = newLink(c, to)
		c.links[to] = l
		c.tasks.Add(1)
		go l.run()
	}
	// Under c.mu, so that a link that leaves because it was idle cannot leave with a call in it.
	err := l.enqueue(k)
	c.mu.Unlock()
	if err != nil {
		done(nil, err)
	}
}

// Request sends a request and waits for the answer, until ctx ends or Config.Timeout is over.
func (c *Client) Request(ctx context.Context, to Endpoint, req kmsg.Request) (kmsg.Response, error) {
	return c.RequestVersion(ctx, to, req, Range{})
}

// RequestVersion is Request with the version bounded.
func (c *Client) RequestVersion(ctx context.Context, to Endpoint, req kmsg.Request, versions Range) (kmsg.Response, error) {
	timeout := c.cfg.Timeout
	if d, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(d))
	}
	type result struct {
		resp kmsg.Response
		err  error
	}
	answered := make(chan result, 1)
	c.SendVersion(to, req, versions, timeout, func(r kmsg.Response, err error) { answered <- result{r, err} })
	select {
	case r := <-answered:
		return r.resp, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close fails every call with ErrClosed, closes the connections, and waits for the goroutines.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	c.tasks.Wait()
}

// forget removes a link that has nothing to do; false if a call came meanwhile.
func (c *Client) forget(l *link) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !l.idle() {
		return false
	}
	delete(c.links, l.to)
	return true
}
