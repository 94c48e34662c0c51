package server

// The tests here drive a real server over the loopback with frames made by hand. Handlers are small ones of the tests'.

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/highwater/highwater/internal/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Keys of the tests' APIs: echo answers with its body, the others are set by each test.
const (
	echoKey = 3
	waitKey = 1
	fileKey = 2
	zeroKey = 0
)

// logBuffer collects what the server logs.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

type world struct {
	*Server
	t   testing.TB
	log *logBuffer
}

func echo(r *rpc.Request) *rpc.Pending {
	r.Response.Buf = append(r.Response.Buf, r.Body...)
	return nil
}

// table serves echo as API 3, versions 0-1, flexible from 1, and what else is given.
func table(handlers map[int16]rpc.Handler) *rpc.Table {
	t := new(rpc.Table)
	t.APIs[echoKey] = &rpc.API{Key: echoKey, Name: "Metadata", Max: 1, Flexible: 1, Handle: echo}
	t.APIs[apiVersionsKey] = &rpc.API{Key: apiVersionsKey, Name: "ApiVersions", Max: 5, Flexible: 3, Handle: echo}
	for k, h := range handlers {
		t.APIs[k] = &rpc.API{Key: k, Name: "API", Flexible: -1, Handle: h}
	}
	return t
}

func start(t testing.TB, cfg Config, handlers map[int16]rpc.Handler) *world {
	t.Helper()
	w := &world{t: t, log: new(logBuffer)}
	if len(cfg.Listeners) == 0 {
		cfg.Listeners = []Listener{{Name: "PLAINTEXT", Host: "127.0.0.1"}}
	}
	for i := range cfg.Listeners {
		if cfg.Listeners[i].Table == nil {
			cfg.Listeners[i].Table = table(handlers)
		}
	}
	s, err := New(cfg, slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(); err != nil {
		t.Fatal(err)
	}
	w.Server = s
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) dial() *client { return w.dialTo(w.Server.listeners[0].Name) }

func (w *world) dialTo(listener string) *client {
	w.t.Helper()
	a, ok := w.Addr(listener)
	if !ok {
		w.t.Fatalf("no listener %s", listener)
	}
	nc, err := net.Dial("tcp", a.String())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		w.t.Fatal(err)
	}
	return &client{Conn: nc, t: w.t}
}

// eventually waits for a condition that another goroutine brings about.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); !cond(); {
		if time.Now().After(end) {
			t.Fatalf("it did not happen: %s", what)
		}
		pauseBriefly()
	}
}

// pauseBriefly lets others run between two looks at a condition.
func pauseBriefly() { <-time.After(time.Millisecond) }

type client struct {
	net.Conn
	t testing.TB
}

// frame is a request with header version 1 (or 2 if flexible).
func frame(key, version int16, id int32, flexible bool, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, uint32(id))
	b = append(b, 0, 1, 'c')
	if flexible {
		b = append(b, 0)
	}
	b = append(b, body...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func (c *client) send(frames ...[]byte) {
	c.t.Helper()
	if _, err := c.Write(bytes.Join(frames, nil)); err != nil {
		c.t.Fatal(err)
	}
}

// answer reads one answer with response header 0.
func (c *client) answer() (id int32, body []byte) {
	c.t.Helper()
	var h [4]byte
	if _, err := io.ReadFull(c, h[:]); err != nil {
		c.t.Fatal(err)
	}
	b := make([]byte, binary.BigEndian.Uint32(h[:]))
	if _, err := io.ReadFull(c, b); err != nil {
		c.t.Fatal(err)
	}
	return int32(binary.BigEndian.Uint32(b)), b[4:]
}

func (c *client) expect(id int32, body string) {
	c.t.Helper()
	gotID, got := c.answer()
	if gotID != id || string(got) != body {
		c.t.Fatalf("answer %d %q, want %d %q", gotID, got, id, body)
	}
}

// closed fails unless the server closes the connection without sending anything more.
func (c *client) closed() {
	c.t.Helper()
	var b [64]byte
	n, err := c.Read(b[:])
	if n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("connection is not closed: %d bytes %x, %v", n, b[:n], err)
	}
}

func TestEcho(t *testing.T) {
	w := start(t, Config{}, nil)
	c := w.dial()
	c.send(frame(echoKey, 0, 7, false, []byte("hello")))
	c.expect(7, "hello")
	c.send(frame(echoKey, 1, 8, true, []byte("flexible")))
	c.expect(8, "\x00flexible")
	// ApiVersions: the answer's header has no tagged fields, and any version reaches the handler.
	c.send(frame(apiVersionsKey, 3, 9, true, []byte("a")), frame(apiVersionsKey, 99, 10, true, []byte("b")), frame(apiVersionsKey, -1, 11, false, []byte("c")))
	c.expect(9, "a")
	c.expect(10, "b")
	c.expect(11, "c")
	eventually(t, "counted", func() bool { return w.Metrics("PLAINTEXT").Requests[apiVersionsKey].Load() == 3 })
}

func TestRefused(t *testing.T) {
	w := start(t, Config{MaxRequestBytes: 1000}, nil)
	f := func(why string, frames ...[]byte) {
		t.Helper()
		c := w.dial()
		c.send(frame(echoKey, 0, 1, false, nil))
		c.expect(1, "")
		c.send(frames...)
		c.closed()
		if !strings.Contains(w.log.String(), why) {
			t.Errorf("no line with %q in the log:\n%s", why, w.log)
		}
		w.loud.mu.Lock()
		w.loud.second = 0
		w.loud.mu.Unlock()
	}
	f("invalid receive (size = -1)", []byte{0xff, 0xff, 0xff, 0xff})
	f("invalid receive (size = 1001 larger than 1000)", []byte{0, 0, 3, 0xe9})
	f("invalid receive (size = 2147483647 larger than 1000)", []byte{0x7f, 0xff, 0xff, 0xff})
	f("ends within its header", []byte{0, 0, 0, 0})
	f("ends within its header", []byte{0, 0, 0, 1, 5})
	f("api key 94 which is not enabled", frame(94, 0, 1, false, nil))
	f("api key -1 which is not enabled", frame(-1, 0, 1, false, nil))
	f("api key 32767 which is not enabled", frame(32767, 0, 1, false, nil))
	f("version 2 which is not supported", frame(echoKey, 2, 1, false, nil))
	f("version -1 which is not supported", frame(echoKey, -1, 1, false, nil))
	f("more than 10000 tagged", func() []byte {
		b := frame(echoKey, 1, 1, false, []byte{0x91, 0x4e})
		return b
	}())
}
