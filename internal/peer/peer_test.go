package peer

// The client against a small server of the tests' own, which speaks just enough of the protocol to answer late, wrongly,
// in pieces, or not at all.

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/highwater/highwater/internal/kerr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a server. Its fields may be changed before it is asked.
type node struct {
	t        *testing.T
	listener net.Listener
	to       Endpoint
	versions map[int16][2]int16
	oldest   bool // knows ApiVersions 0 to 2 only
	// handle answers a request that is not ApiVersions: body of the answer, or nil for none.
	handle func(n *node, conn net.Conn, req kmsg.Request, id int32) []byte

	accepted atomic.Int64
	mu       sync.Mutex
	conns    []net.Conn
	wait     sync.WaitGroup
}

func newNode(t *testing.T) *node {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, listener: l, versions: map[int16][2]int16{18: {0, 5}, 3: {0, 13}, 60: {0, 2}, 1: {4, 18}, 54: {0, 1}}}
	n.to = Endpoint{Host: "127.0.0.1", Port: uint16(l.Addr().(*net.TCPAddr).Port)}
	n.handle = func(_ *node, _ net.Conn, req kmsg.Request, _ int32) []byte {
		resp := req.ResponseKind()
		resp.SetVersion(req.GetVersion())
		if m, ok := resp.(*kmsg.DescribeClusterResponse); ok {
			m.ClusterID = fmt.Sprint("version ", req.GetVersion())
		}
		return resp.AppendTo(nil)
	}
	n.wait.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			n.accepted.Add(1)
			n.mu.Lock()
			n.conns = append(n.conns, conn)
			n.mu.Unlock()
			n.wait.Go(func() { n.serve(conn) })
		}
	})
	t.Cleanup(n.stop)
	return n
}

func (n *node) stop() {
	n.listener.Close()
	n.dropAll()
	n.wait.Wait()
}

func (n *node) dropAll() {
	n.mu.Lock()
	for _, c := range n.conns {
		c.Close()
	}
	n.conns = nil
	n.mu.Unlock()
}

func (n *node) serve(conn net.Conn) {
	defer conn.Close()
	for {
		var size [4]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		b := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(conn, b); err != nil {
			return
		}
		key, version, id := int16(binary.BigEndian.Uint16(b)), int16(binary.BigEndian.Uint16(b[2:])), int32(binary.BigEndian.Uint32(b[4:]))
		req := kmsg.RequestForKey(key)
		req.SetVersion(version)
		b = b[10+binary.BigEndian.Uint16(b[8:]):]
		if req.IsFlexible() {
			b = b[1:]
		}
		var body []byte
		if key == 18 {
			resp := kmsg.NewPtrApiVersionsResponse()
			resp.Version = version
			if n.oldest && version > 2 {
				resp.Version, resp.ErrorCode = 0, kerr.UnsupportedVersion.Code
				resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: 18, MinVersion: 0, MaxVersion: 2}}
			} else {
				for k, v := range n.versions {
					resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: k, MinVersion: v[0], MaxVersion: v[1]})
				}
			}
			body = resp.AppendTo(nil)
		} else {
			if err := req.ReadFrom(b); err != nil {
				n.t.Errorf("the server cannot read API %d version %d: %v", key, version, err)
				return
			}
			if body = n.handle(n, conn, req, id); body == nil {
				continue
			}
			if req.IsFlexible() {
				body = append([]byte{0}, body...)
			}
		}
		if _, err := conn.Write(answer(id, body)); err != nil {
			return
		}
	}
}

func answer(id int32, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(4+len(body)))
	b = binary.BigEndian.AppendUint32(b, uint32(id))
	return append(b, body...)
}

func newClient(t *testing.T, cfg Config) *Client {
	c := New(cfg, slog.New(slog.DiscardHandler))
	t.Cleanup(c.Close)
	return c
}

func ask(t *testing.T, c *Client, to Endpoint) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	resp, err := c.Request(ctx, to, kmsg.NewPtrDescribeClusterRequest())
	if err != nil {
		return "", err
	}
	return resp.(*kmsg.DescribeClusterResponse).ClusterID, nil
}

func TestRequest(t *testing.T) {
	n := newNode(t)
	c := newClient(t, Config{ClientID: "me"})
	for range 3 {
		if got, err := ask(t, c, n.to); err != nil || got != "version 2" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if a := n.accepted.Load(); a != 1 {
		t.Errorf("%d connections", a)
	}
}

func TestVersions(t *testing.T) {
	n := newNode(t)
	n.versions[60] = [2]int16{0, 1}
	c := newClient(t, Config{Cap: func(key, highest int16) int16 {
		if key == 1 {
			return 13
		}
		return highest
	}})
	if got, err := ask(t, c, n.to); err != nil || got != "version 1" {
		t.Errorf("%q, %v", got, err)
	}
	f := func(req kmsg.Request, r Range, want int16) {
		t.Helper()
		_, err := c.RequestVersion(t.Context(), n.to, req, r)
		if want < 0 {
			if !errors.Is(err, kerr.UnsupportedVersion) {
				t.Errorf("%v", err)
			}
			return
		}
		if err != nil || req.GetVersion() != want {
			t.Errorf("version %d, want %d: %v", req.GetVersion(), want, err)
		}
	}
	f(kmsg.NewPtrDescribeClusterRequest(), Range{0, 0}, 1)
	f(kmsg.NewPtrDescribeClusterRequest(), Range{1, 2}, 1)
	f(kmsg.NewPtrDescribeClusterRequest(), Range{2, 2}, -1)
	f(kmsg.NewPtrMetadataRequest(), Range{4, 9}, 9)
	f(kmsg.NewPtrFetchRequest(), Range{}, 13)
	f(kmsg.NewPtrVoteRequest(), Range{}, -1) // not served
	f(kmsg.NewPtrEndQuorumEpochRequest(), Range{}, 1)
}

// A peer that does not know our version of ApiVersions.
func TestOlderPeer(t *testing.T) {
	n := newNode(t)
	n.oldest = true
	c := newClient(t, Config{})
	if got, err := ask(t, c, n.to); err != nil || got != "version 2" {
		t.Errorf("%q, %v", got, err)
	}
}

// Many calls at once on one connection, answered in order, from many goroutines.
func TestPipelined(t *testing.T) {
	n := newNode(t)
	n.handle = func(_ *node, _ net.Conn, req kmsg.Request, _ int32) []byte {
		m := req.(*kmsg.MetadataRequest)
		resp := kmsg.NewPtrMetadataResponse()
		resp.Version = m.Version
		resp.ClusterID = m.Topics[0].Topic
		return resp.AppendTo(nil)
	}
	c := newClient(t, Config{MaxInFlight: 7})
	var wait sync.WaitGroup
	for i := range 500 {
		name := fmt.Sprint("topic-", i)
		req := kmsg.NewPtrMetadataRequest()
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = &name
		req.Topics = append(req.Topics, topic)
		wait.Add(1)
		c.Send(n.to, req, 10*time.Second, func(r kmsg.Response, err error) {
			defer wait.Done()
			if err != nil || *r.(*kmsg.MetadataResponse).ClusterID != name {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	wait.Wait()
	if a := n.accepted.Load(); a != 1 {
		t.Errorf("%d connections", a)
	}
}

func TestTimeoutCostsTheConnection(t *testing.T) {
	n := newNode(t)
	var mute atomic.Bool
	mute.Store(true)
	usual := n.handle
	n.handle = func(n *node, conn net.Conn, req kmsg.Request, id int32) []byte {
		if mute.Load() {
			return nil
		}
		return usual(n, conn, req, id)
	}
	c := newClient(t, Config{})
	results := make(chan error, 2)
	c.Send(n.to, kmsg.NewPtrDescribeClusterRequest(), 50*time.Millisecond, func(_ kmsg.Response, err error) { results <- err })
	c.Send(n.to, kmsg.NewPtrDescribeClusterRequest(), 20*time.Second, func(_ kmsg.Response, err error) { results <- err })
	if err := <-results; !errors.Is(err, ErrTimeout) {
		t.Errorf("%v", err)
	}
	if err := <-results; !errors.Is(err, ErrDisconnected) {
		t.Errorf("%v", err)
	}
	mute.Store(false)
	if _, err := ask(t, c, n.to); err != nil {
		t.Error(err)
	}
	if a := n.accepted.Load(); a != 2 {
		t.Errorf("%d connections", a)
	}
}

func TestReconnect(t *testing.T) {
	n := newNode(t)
	c := newClient(t, Config{})
	for range 5 {
		// A call that meets the broken connection before we know of it fails; the next one goes over a new one.
		_, err := ask(t, c, n.to)
		if err != nil && !errors.Is(err, ErrDisconnected) {
			t.Fatal(err)
		}
		n.dropAll()
	}
	// In flight when it breaks.
	n.handle = func(n *node, conn net.Conn, req kmsg.Request, id int32) []byte { conn.Close(); return nil }
	for range 3 {
		if _, err := ask(t, c, n.to); !errors.Is(err, ErrDisconnected) {
			t.Errorf("%v", err)
		}
	}
}

func TestUnreachable(t *testing.T) {
	var attempts []time.Time
	var mu sync.Mutex
	c := newClient(t, Config{
		Backoff: 20 * time.Millisecond, MaxBackoff: 80 * time.Millisecond,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			attempts = append(attempts, time.Now())
			return nil, errors.New("nobody is there")
		},
	})
	to := Endpoint{Host: "nowhere", Port: 1}
	for range 5 {
		_, err := ask(t, c, to)
		if err == nil || !strings.Contains(err.Error(), "connect to nowhere:1: nobody is there") {
			t.Fatalf("%v", err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(attempts) != 5 {
		t.Fatalf("%d attempts", len(attempts))
	}
	for i, least := range []time.Duration{16, 32, 64, 64} {
		if d := attempts[i+1].Sub(attempts[i]); d < least*time.Millisecond {
			t.Errorf("attempt %d came after %v", i+1, d)
		}
	}
}

// A call whose time is over while the client waits to connect again fails with its own timeout.
func TestTimeoutDuringBackoff(t *testing.T) {
	c := newClient(t, Config{Backoff: time.Hour, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no") }})
	to := Endpoint{Host: "nowhere", Port: 1}
	_, _ = ask(t, c, to)
	done := make(chan error, 1)
	c.Send(to, kmsg.NewPtrMetadataRequest(), 20*time.Millisecond, func(_ kmsg.Response, err error) { done <- err })
	if err := <-done; !errors.Is(err, ErrTimeout) {
		t.Errorf("%v", err)
	}
}

func TestBackoff(t *testing.T) {
	for attempts, want := range []time.Duration{50, 100, 200, 400, 800, 1000, 1000} {
		for range 100 {
			got := backoff(50*time.Millisecond, time.Second, attempts)
			if w := want * time.Millisecond; got < w*8/10 || got > w*12/10 {
				t.Fatalf("attempt %d: %v", attempts, got)
			}
		}
	}
}

func TestQueueIsBounded(t *testing.T) {
	c := newClient(t, Config{MaxQueued: 3, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	to := Endpoint{Host: "nowhere", Port: 1}
	results := make(chan error, 4)
	for range 4 {
		c.Send(to, kmsg.NewPtrMetadataRequest(), time.Minute, func(_ kmsg.Response, err error) { results <- err })
	}
	if err := <-results; !errors.Is(err, ErrQueueFull) {
		t.Errorf("%v", err)
	}
	c.Close()
	for range 3 {
		if err := <-results; !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
	}
	if _, err := ask(t, c, to); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
}

// Answers that no sane peer sends end the connection, and the call with it.
func TestBadAnswers(t *testing.T) {
	for _, x := range []struct {
		what string
		bad  func(id int32) []byte
	}{
		{"correlation id", func(id int32) []byte { return answer(id+1, []byte{0}) }},
		{"bound is 1000", func(id int32) []byte { return []byte{0, 0, 4, 0, 0, 0, 0, 0} }},
		{"an answer of 2 bytes", func(id int32) []byte { return []byte{0, 0, 0, 2, 0, 0, 0, 0} }},
		{"response header", func(id int32) []byte { return answer(id, nil) }},
		{"answer to DescribeCluster", func(id int32) []byte { return answer(id, []byte{0, 1, 2, 3}) }},
		{"answer to DescribeCluster", func(id int32) []byte { return answer(id, append([]byte{0}, bytes.Repeat([]byte{0xff}, 100)...)) }},
	} {
		n := newNode(t)
		n.handle = func(n *node, conn net.Conn, req kmsg.Request, id int32) []byte {
			_, _ = conn.Write(x.bad(id))
			return nil
		}
		c := newClient(t, Config{MaxResponseBytes: 1000})
		if _, err := ask(t, c, n.to); err == nil || !strings.Contains(err.Error(), x.what) {
			t.Errorf("%s: %v", x.what, err)
		}
	}
}

func TestSecureAndAuthenticate(t *testing.T) {
	n := newNode(t)
	steps := []string{}
	c := newClient(t, Config{
		Secure: func(_ context.Context, nc net.Conn, e Endpoint) (net.Conn, error) {
			steps = append(steps, "secure")
			return nc, nil
		},
		Authenticate: func(_ context.Context, e Endpoint, call func(kmsg.Request) (kmsg.Response, error)) error {
			resp, err := call(kmsg.NewPtrDescribeClusterRequest())
			if err == nil {
				steps = append(steps, resp.(*kmsg.DescribeClusterResponse).ClusterID)
			}
			return err
		},
	})
	to := n.to
	to.Protocol = SASLSSL
	if _, err := ask(t, c, to); err != nil || fmt.Sprint(steps) != "[secure version 2]" {
		t.Errorf("%v, %v", steps, err)
	}
	plain := newClient(t, Config{})
	if _, err := ask(t, plain, to); err == nil || !strings.Contains(err.Error(), "security protocol 3 is not configured") {
		t.Errorf("%v", err)
	}
	to.Protocol = SASLPlaintext
	if _, err := ask(t, plain, to); err == nil || !strings.Contains(err.Error(), "security protocol 2 is not configured") {
		t.Errorf("%v", err)
	}
}

// A link without calls goes away, and comes back.
func TestIdleLink(t *testing.T) {
	n := newNode(t)
	c := newClient(t, Config{IdleTime: 20 * time.Millisecond})
	for range 3 {
		if _, err := ask(t, c, n.to); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(10 * time.Second); ; {
			c.mu.Lock()
			left := len(c.links)
			c.mu.Unlock()
			if left == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatal("the link stays")
			}
			<-time.After(time.Millisecond)
		}
	}
	if a := n.accepted.Load(); a != 3 {
		t.Errorf("%d connections", a)
	}
}

func FuzzAnswerHeader(f *testing.F) {
	f.Add([]byte{0, 1, 2})
	f.Add([]byte{1, 5, 2, 9, 9, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		req := kmsg.NewPtrDescribeClusterRequest()
		rest, err := headless(req, b)
		if err == nil && len(rest) >= len(b) {
			t.Fatal("no header was read")
		}
		if err == nil {
			_, _ = decode(req, rest)
		}
	})
}
