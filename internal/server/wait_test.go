package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/rpc"
)

// waits is a handler whose answers come when the test says so. A request's body is its name; the answer repeats it, with
// "!" if the deadline came first.
type waits struct {
	mu        sync.Mutex
	pending   map[string]*rpc.Pending
	abandoned map[string]bool
	deadline  time.Duration
}

func newWaits() *waits {
	return &waits{pending: map[string]*rpc.Pending{}, abandoned: map[string]bool{}}
}

func (w *waits) handle(r *rpc.Request) *rpc.Pending {
	name := string(r.Body)
	r.Response.Buf = append(r.Response.Buf, "forgotten"...)
	p := &rpc.Pending{}
	if w.deadline > 0 {
		p.Deadline = r.Received.Add(w.deadline)
	}
	p.Finish = func(r *rpc.Request, expired bool) {
		r.Response.Buf = append(r.Response.Buf, name...)
		if r.Now.Before(r.Received) || expired && r.Now.Before(p.Deadline) {
			r.Response.Buf = append(r.Response.Buf, " at the wrong time"...)
		}
		if expired {
			r.Response.Buf = append(r.Response.Buf, '!')
		}
	}
	p.Abandon = func() {
		w.mu.Lock()
		w.abandoned[name] = true
		w.mu.Unlock()
	}
	w.mu.Lock()
	w.pending[name] = p
	w.mu.Unlock()
	return p
}

func (w *waits) seen(name string) *rpc.Pending {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pending[name]
}

func (w *waits) complete(t *testing.T, name string) {
	t.Helper()
	eventually(t, "request "+name+" is handled", func() bool { return w.seen(name) != nil })
	w.seen(name).Complete()
}

func (w *waits) gone(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.abandoned[name]
}

func TestAnswersInOrder(t *testing.T) {
	ws := newWaits()
	w := start(t, Config{}, map[int16]rpc.Handler{waitKey: ws.handle})
	c := w.dial()
	c.send(frame(echoKey, 0, 1, false, []byte("one")), frame(waitKey, 0, 2, false, []byte("two")), frame(echoKey, 0, 3, false, []byte("three")),
		frame(waitKey, 0, 4, false, []byte("four")), frame(echoKey, 0, 5, false, []byte("five")))
	c.expect(1, "one")
	ws.complete(t, "four") // later ones do not overtake
	ws.complete(t, "two")
	c.expect(2, "two")
	c.expect(3, "three")
	c.expect(4, "four")
	c.expect(5, "five")
	c.send(frame(echoKey, 0, 6, false, []byte("six")))
	c.expect(6, "six")
}

func TestDeadline(t *testing.T) {
	ws := newWaits()
	ws.deadline = 30 * time.Millisecond
	w := start(t, Config{}, map[int16]rpc.Handler{waitKey: ws.handle})
	c := w.dial()
	begun := time.Now()
	c.send(frame(waitKey, 0, 1, false, []byte("a")), frame(waitKey, 0, 2, false, []byte("b")))
	c.expect(1, "a!")
	c.expect(2, "b!")
	if d := time.Since(begun); d < 30*time.Millisecond {
		t.Errorf("expired after %v", d)
	}
	c.send(frame(waitKey, 0, 3, false, []byte("c")))
	ws.complete(t, "c")
	c.expect(3, "c")
	ws.seen("a").Complete() // too late, and harmless
	c.send(frame(echoKey, 0, 4, false, nil))
	c.expect(4, "")
}

// Many connections, requests of all kinds, answers completed in random order by other goroutines: each connection gets
// its answers in its order.
func TestOrderUnderLoad(t *testing.T) {
	var mu sync.Mutex
	var open []*rpc.Pending
	late := func(r *rpc.Request) *rpc.Pending {
		n := binary.BigEndian.Uint32(r.Body)
		p := &rpc.Pending{Finish: func(r *rpc.Request, expired bool) { r.Response.Buf = binary.BigEndian.AppendUint32(r.Response.Buf, n) }}
		switch {
		case n%7 == 0:
			p.Complete() // before it is returned
		case n%5 == 0:
			p.Deadline = r.Received.Add(time.Millisecond)
		default:
			mu.Lock()
			open = append(open, p)
			mu.Unlock()
		}
		return p
	}
	w := start(t, Config{MaxInFlight: 16}, map[int16]rpc.Handler{waitKey: late})
	stop := make(chan struct{})
	var helpers sync.WaitGroup
	for i := range 2 {
		helpers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for {
				mu.Lock()
				var p *rpc.Pending
				if n := len(open); n > 0 {
					k := r.IntN(n)
					p, open[k] = open[k], open[n-1]
					open = open[:n-1]
				}
				mu.Unlock()
				if p != nil {
					p.Complete()
					continue
				}
				select {
				case <-stop:
					return
				default:
					pauseBriefly()
				}
			}
		})
	}
	var clients sync.WaitGroup
	const each = 2000
	for i := range 8 {
		c := w.dial()
		clients.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 2))
			for n := int32(0); n < each; {
				var b []byte
				for range 1 + r.IntN(40) {
					if n++; n > each {
						break
					}
					key := int16(echoKey)
					if r.IntN(2) == 0 {
						key = waitKey
					}
					b = append(b, frame(key, 0, n, false, binary.BigEndian.AppendUint32(nil, uint32(n)))...)
				}
				// In pieces, so that frames are cut anywhere.
				for len(b) > 0 {
					k := min(1+r.IntN(300), len(b))
					if _, err := c.Write(b[:k]); err != nil {
						t.Error(err)
						return
					}
					b = b[k:]
				}
			}
		})
		clients.Go(func() {
			var b [12]byte
			for n := int32(1); n <= each; n++ {
				if _, err := io.ReadFull(c, b[:]); err != nil {
					t.Errorf("answer %d: %v", n, err)
					return
				}
				if id, body := int32(binary.BigEndian.Uint32(b[4:])), int32(binary.BigEndian.Uint32(b[8:])); id != n || body != n {
					t.Errorf("answer %d has id %d and body %d", n, id, body)
					return
				}
			}
		})
	}
	clients.Wait()
	close(stop)
	helpers.Wait()
}

// With MaxInFlight waiting the server reads no more, until one is answered.
func TestMaxInFlight(t *testing.T) {
	ws := newWaits()
	w := start(t, Config{MaxInFlight: 2}, map[int16]rpc.Handler{waitKey: ws.handle})
	c := w.dial()
	for i, n := range []string{"a", "b", "c", "d"} {
		c.send(frame(waitKey, 0, int32(i), false, []byte(n)))
	}
	eventually(t, "two are handled", func() bool { return ws.seen("b") != nil })
	if ws.seen("c") != nil {
		t.Error("a third one is handled")
	}
	ws.complete(t, "a")
	c.expect(0, "a")
	eventually(t, "the third is handled", func() bool { return ws.seen("c") != nil })
	if ws.seen("d") != nil {
		t.Error("a fourth one is handled")
	}
	ws.complete(t, "b")
	ws.complete(t, "c")
	ws.complete(t, "d")
	c.expect(1, "b")
	c.expect(2, "c")
	c.expect(3, "d")
}

func TestAbandonedWhenTheClientGoes(t *testing.T) {
	ws := newWaits()
	w := start(t, Config{}, map[int16]rpc.Handler{waitKey: ws.handle})
	c := w.dial()
	c.send(frame(waitKey, 0, 1, false, []byte("a")))
	eventually(t, "handled", func() bool { return ws.seen("a") != nil })
	c.Close()
	eventually(t, "abandoned", func() bool { return ws.gone("a") })
	ws.seen("a").Complete() // nobody is there any more
	eventually(t, "gone", func() bool { return w.Metrics("PLAINTEXT").Connections.Load() == 0 })
}

func TestNoneCloseAndFail(t *testing.T) {
	ws := newWaits()
	special := func(r *rpc.Request) *rpc.Pending {
		switch string(r.Body) {
		case "none":
			r.Response.None = true
		case "close":
			r.Response.Buf = append(r.Response.Buf, "bye"...)
			r.Response.Close = true
		case "none and close":
			r.Response.None, r.Response.Close = true, true
		case "fail":
			r.Response.Buf = append(r.Response.Buf, "half an answer"...)
			r.Response.Fail = errors.New("I cannot read this")
		}
		return nil
	}
	w := start(t, Config{}, map[int16]rpc.Handler{zeroKey: special, waitKey: ws.handle})
	for _, waiting := range []bool{false, true} {
		f := func(what, answer string) {
			t.Helper()
			c := w.dial()
			name := fmt.Sprint(what, waiting)
			if waiting {
				c.send(frame(waitKey, 0, 1, false, []byte(name)))
			}
			c.send(frame(zeroKey, 0, 2, false, []byte("none")), frame(zeroKey, 0, 3, false, []byte(what)), frame(echoKey, 0, 4, false, []byte("more")))
			if waiting {
				ws.complete(t, name)
				c.expect(1, name)
			}
			if answer != "" {
				c.expect(3, answer)
			}
			if what == "none" {
				c.expect(4, "more")
				return
			}
			c.closed()
		}
		f("none", "")
		f("close", "bye")
		f("none and close", "")
		f("fail", "")
		if !strings.Contains(w.log.String(), "I cannot read this") {
			t.Error("the failure is not logged")
		}
	}
}

// A throttled connection is answered at once and then not heard for a while.
func TestThrottle(t *testing.T) {
	const mute = 100 * time.Millisecond
	slow := func(r *rpc.Request) *rpc.Pending {
		r.Response.Throttle = mute
		return nil
	}
	w := start(t, Config{}, map[int16]rpc.Handler{zeroKey: slow})
	c := w.dial()
	begun := time.Now()
	c.send(frame(zeroKey, 0, 1, false, nil), frame(echoKey, 0, 2, false, nil))
	c.expect(1, "")
	if d := time.Since(begun); d > mute {
		t.Logf("the throttled answer took %v", d)
	}
	c.expect(2, "")
	if d := time.Since(begun); d < mute {
		t.Errorf("the next was answered after %v", d)
	}
}

// osFile is a range of a real file.
type osFile struct {
	*os.File
	off      int64
	n        int
	noFd     bool
	released *atomic.Int64
}

func (f *osFile) Len() int { return f.n }

func (f *osFile) Fd() (uintptr, int64, bool) { return f.File.Fd(), f.off, !f.noFd }

func (f *osFile) ReadAt(p []byte, off int64) (int, error) {
	return io.NewSectionReader(f.File, f.off, int64(f.n)).ReadAt(p, off)
}

func (f *osFile) Release() { f.released.Add(1) }

// Ranges of files arrive in their places, small ones and large ones, with and without a descriptor, directly and behind a
// Pending, while the descriptor is shared by all connections.
func TestFiles(t *testing.T) {
	content := make([]byte, 3<<20)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range content {
		content[i] = byte(r.Uint32())
	}
	name := filepath.Join(t.TempDir(), "segment")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var made, released atomic.Int64
	// The body lists ranges: offset and size; each is preceded by a "<" and the answer ends with ">".
	build := func(r *rpc.Request, ranges []byte) {
		for ; len(ranges) >= 8; ranges = ranges[8:] {
			off, n := int64(binary.BigEndian.Uint32(ranges)), int(binary.BigEndian.Uint32(ranges[4:]))
			r.Response.Buf = append(r.Response.Buf, '<')
			made.Add(1)
			r.Response.AppendSource(&osFile{file, off, n, off%3 == 0, &released})
		}
		r.Response.Buf = append(r.Response.Buf, '>')
	}
	w := start(t, Config{}, map[int16]rpc.Handler{
		fileKey: func(r *rpc.Request) *rpc.Pending { build(r, r.Body); return nil },
		waitKey: func(r *rpc.Request) *rpc.Pending {
			ranges := bytes.Clone(r.Body)
			return &rpc.Pending{Deadline: r.Received, Finish: func(r *rpc.Request, _ bool) { build(r, ranges) }}
		},
	})
	var clients sync.WaitGroup
	for i := range 4 {
		c := w.dial()
		clients.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for id := range int32(60) {
				var ranges, want []byte
				for range r.IntN(5) {
					n := []int{0, 1, 100, 8 << 10, copyRange - 1, copyRange, 100_000, 1 << 20}[r.IntN(8)]
					off := r.IntN(len(content) - n)
					ranges = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(ranges, uint32(off)), uint32(n))
					want = append(append(want, '<'), content[off:off+n]...)
				}
				want = append(want, '>')
				key := int16(fileKey)
				if r.IntN(2) == 0 {
					key = waitKey
				}
				if _, err := c.Write(frame(key, 0, id, false, ranges)); err != nil {
					t.Error(err)
					return
				}
				head := make([]byte, 8)
				if _, err := io.ReadFull(c, head); err != nil {
					t.Error(err)
					return
				}
				got := make([]byte, binary.BigEndian.Uint32(head)-4)
				if _, err := io.ReadFull(c, got); err != nil {
					t.Error(err)
					return
				}
				if !bytes.Equal(got, want) {
					t.Errorf("answer of %d bytes differs, want %d", len(got), len(want))
					return
				}
			}
		})
	}
	clients.Wait()
	if made.Load() != released.Load() {
		t.Errorf("%d ranges, %d released", made.Load(), released.Load())
	}
	eventually(t, "counted", func() bool { return w.Metrics("PLAINTEXT").FileBytesOut.Load() > 0 || !canRaw })
}

// A file that is cut while it is being sent: what was announced cannot be kept, so the connection ends; nothing beyond the
// cut is sent and nothing else in its place.
func TestFileCutShort(t *testing.T) {
	for _, noFd := range []bool{false, true} {
		for _, size := range []int{1000, 1 << 20} {
			name := filepath.Join(t.TempDir(), "segment")
			if err := os.WriteFile(name, bytes.Repeat([]byte{7}, size/2), 0o600); err != nil {
				t.Fatal(err)
			}
			file, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			var released atomic.Int64
			w := start(t, Config{}, map[int16]rpc.Handler{fileKey: func(r *rpc.Request) *rpc.Pending {
				r.Response.AppendSource(&osFile{file, 0, size, noFd, &released})
				r.Response.AppendSource(&osFile{file, 0, 10, noFd, &released})
				return nil
			}})
			c := w.dial()
			c.send(frame(fileKey, 0, 1, false, nil))
			got, err := io.ReadAll(c)
			if err != nil && !strings.Contains(err.Error(), "reset") {
				t.Error(err)
			}
			if len(got) > 8+size/2 {
				t.Errorf("%d bytes came", len(got))
			}
			eventually(t, "released", func() bool { return released.Load() == 2 })
			eventually(t, "logged", func() bool { return strings.Contains(w.log.String(), "middle of an answer") })
			file.Close()
		}
	}
}

// A client that does not read: the server stops reading from it and holds no more than a little of its answers.
func TestSlowReader(t *testing.T) {
	big := bytes.Repeat([]byte("x"), 100_000)
	var handled atomic.Int64
	w := start(t, Config{SendBuffer: 64 << 10, IdleTime: 400 * time.Millisecond}, map[int16]rpc.Handler{zeroKey: func(r *rpc.Request) *rpc.Pending {
		handled.Add(1)
		r.Response.Buf = append(r.Response.Buf, big...)
		return nil
	}})
	c := w.dial()
	if err := c.Conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	go func() {
		for i := int32(0); ; i++ {
			if _, err := c.Write(frame(zeroKey, 0, i, false, nil)); err != nil {
				return
			}
		}
	}()
	m := w.Metrics("PLAINTEXT")
	eventually(t, "the connection is given up", func() bool { return m.ExpiredIdle.Load() == 1 && m.Connections.Load() == 0 })
	if n := handled.Load(); n > 200 {
		t.Errorf("%d requests were handled for a client that read nothing", n)
	}
}

// One that sends a byte now and then is idle all the same; one that completes requests is not.
func TestIdle(t *testing.T) {
	w := start(t, Config{IdleTime: 200 * time.Millisecond}, nil)
	slow, busy, silent := w.dial(), w.dial(), w.dial()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for i := 0; ; i++ {
			if _, err := slow.Write([]byte{0, 0, 1, 0}[i%4 : i%4+1]); err != nil {
				return
			}
			pauseBriefly()
			if i > 10_000 {
				t.Error("the slow one stays")
				return
			}
		}
	}()
	for i := int32(0); ; i++ {
		select {
		case <-gone:
			silent.closed()
			busy.send(frame(echoKey, 0, 1, false, []byte("still here")))
			busy.expect(1, "still here")
			if n := w.Metrics("PLAINTEXT").ExpiredIdle.Load(); n != 2 {
				t.Errorf("%d expired", n)
			}
			return
		default:
		}
		busy.send(frame(echoKey, 0, i, false, nil))
		busy.expect(i, "")
		pauseBriefly()
	}
}

func TestGracefulStop(t *testing.T) {
	ws := newWaits()
	w := start(t, Config{}, map[int16]rpc.Handler{waitKey: ws.handle})
	idle, c, stuck := w.dial(), w.dial(), w.dial()
	idle.send(frame(echoKey, 0, 1, false, nil))
	idle.expect(1, "")
	c.send(frame(waitKey, 0, 1, false, []byte("a")))
	stuck.send(frame(waitKey, 0, 1, false, []byte("stuck")))
	eventually(t, "handled", func() bool { return ws.seen("a") != nil && ws.seen("stuck") != nil })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Stop(ctx) }()
	idle.closed()
	a, _ := w.Addr("PLAINTEXT")
	eventually(t, "nobody is accepted", func() bool {
		nc, err := net.Dial("tcp", a.String())
		if err == nil {
			nc.Close()
		}
		return err != nil
	})
	ws.complete(t, "a")
	c.expect(1, "a")
	c.closed()
	select {
	case <-done:
		t.Fatal("stopped with a request in flight")
	default:
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	stuck.closed()
	if !ws.gone("stuck") {
		t.Error("not abandoned")
	}
	if err := w.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestPerIP(t *testing.T) {
	w := start(t, Config{Limits: Limits{PerIP: 2}}, nil)
	ask := func(c *client) { c.t.Helper(); c.send(frame(echoKey, 0, 1, false, nil)); c.expect(1, "") }
	a, b := w.dial(), w.dial()
	ask(a)
	ask(b)
	w.dial().closed()
	if n := w.Metrics("PLAINTEXT").Rejected.Load(); n != 1 {
		t.Errorf("%d rejected", n)
	}
	a.Close()
	eventually(t, "gone", func() bool { return w.Metrics("PLAINTEXT").Connections.Load() == 1 })
	ask(w.dial())
	w.SetLimits(Limits{PerIP: -1, PerIPOverride: map[string]int{"127.0.0.1": 3}})
	ask(w.dial())
	w.dial().closed()
	w.SetLimits(Limits{PerIP: -1, PerIPOverride: map[string]int{"10.1.1.1": 3}})
	w.dial().closed()
}

// With max.connections reached further ones wait until one goes; a protected listener takes the place of the one that is
// idle longest.
func TestMaxConnections(t *testing.T) {
	w := start(t, Config{
		Limits:    Limits{Connections: 2},
		Listeners: []Listener{{Name: "CLIENTS", Host: "127.0.0.1"}, {Name: "BROKERS", Host: "127.0.0.1", Protected: true}},
	}, nil)
	ask := func(c *client) { c.t.Helper(); c.send(frame(echoKey, 0, 1, false, nil)); c.expect(1, "") }
	oldest, second := w.dialTo("CLIENTS"), w.dialTo("CLIENTS")
	ask(oldest)
	ask(second)
	eventually(t, "time passes", func() bool { ask(second); return w.youngest() > w.eldest() })
	waiting := w.dialTo("CLIENTS")
	waiting.send(frame(echoKey, 0, 9, false, nil))
	protected := w.dialTo("BROKERS")
	ask(protected)
	oldest.closed()
	ask(second)
	second.Close()
	protected.Close()
	waiting.expect(9, "")
}

func (w *world) activity() (least, most int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		a := c.active.Load()
		if least == 0 || a < least {
			least = a
		}
		most = max(most, a)
	}
	return least, most
}

func (w *world) eldest() int64 { a, _ := w.activity(); return a }

func (w *world) youngest() int64 { _, b := w.activity(); return b }

func TestCreationRate(t *testing.T) {
	w := start(t, Config{Limits: Limits{CreationRate: 20}}, nil)
	begun := time.Now()
	for range 24 { // 20 at once, one in 50 ms after that
		c := w.dial()
		c.send(frame(echoKey, 0, 1, false, nil))
		c.expect(1, "")
	}
	if d := time.Since(begun); d < 100*time.Millisecond {
		t.Errorf("24 connections in %v", d)
	}
}

// Limits of one listener hold beside those of all, and may change.
func TestListenerLimits(t *testing.T) {
	w := start(t, Config{
		Limits:    Limits{Listeners: map[string]ListenerLimits{"FEW": {Connections: 1}}},
		Listeners: []Listener{{Name: "MANY", Host: "127.0.0.1"}, {Name: "FEW", Host: "127.0.0.1"}},
	}, nil)
	ask := func(c *client) { c.t.Helper(); c.send(frame(echoKey, 0, 1, false, nil)); c.expect(1, "") }
	ask(w.dialTo("FEW"))
	waiting := w.dialTo("FEW")
	waiting.send(frame(echoKey, 0, 9, false, nil))
	ask(w.dialTo("MANY"))
	ask(w.dialTo("MANY"))
	if n := w.Metrics("FEW").Connections.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
	w.SetLimits(Limits{Listeners: map[string]ListenerLimits{"FEW": {CreationRate: 20}}})
	waiting.expect(9, "")
	begun := time.Now()
	for range 24 { // 20 at once, one in 50 ms after that
		ask(w.dialTo("FEW"))
	}
	if d := time.Since(begun); d < 100*time.Millisecond {
		t.Errorf("24 connections in %v", d)
	}
	begun = time.Now()
	for range 24 {
		ask(w.dialTo("MANY"))
	}
	if d := time.Since(begun); d > 10*time.Second {
		t.Errorf("the other listener is held back: 24 connections in %v", d)
	}
}

// A listener comes and goes while others serve on; its connections finish and end.
func TestAddAndRemoveListener(t *testing.T) {
	w := start(t, Config{Listeners: []Listener{{Name: "STAYS", Host: "127.0.0.1"}}}, nil)
	ask := func(c *client) { c.t.Helper(); c.send(frame(echoKey, 0, 1, false, nil)); c.expect(1, "") }
	stays := w.dialTo("STAYS")
	ask(stays)
	more := Listener{Name: "MORE", Host: "127.0.0.1", Table: table(nil)}
	for range 3 {
		if err := w.Add(t.Context(), more); err != nil {
			t.Fatal(err)
		}
		if err := w.Add(t.Context(), more); err == nil {
			t.Fatal("the same listener twice")
		}
		a, _ := w.Addr("MORE")
		if err := w.Add(t.Context(), Listener{Name: "TAKEN", Host: "127.0.0.1", Port: int(a.Port()), Table: table(nil)}); err == nil {
			t.Fatal("the same port twice")
		}
		c := w.dialTo("MORE")
		ask(c)
		if err := w.Remove("MORE"); err != nil {
			t.Fatal(err)
		}
		c.closed()
		if _, err := net.Dial("tcp", a.String()); err == nil {
			t.Fatal("the removed listener still accepts")
		}
		if w.Metrics("MORE") != nil {
			t.Fatal("the removed listener is still known")
		}
	}
	if err := w.Remove("MORE"); err == nil {
		t.Error("removed twice")
	}
	ask(stays)
}

func TestPortInUse(t *testing.T) {
	w := start(t, Config{}, nil)
	a, _ := w.Addr("PLAINTEXT")
	s, err := New(Config{Listeners: []Listener{{Name: "FREE", Host: "127.0.0.1", Table: table(nil)}, {Name: "CLIENTS", Host: "127.0.0.1", Port: int(a.Port()), Table: table(nil)}}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	err = s.Listen(context.Background())
	if err == nil || !strings.Contains(err.Error(), "listener CLIENTS: address "+a.String()+" is in use") {
		t.Errorf("%v", err)
	}
	if _, ok := s.Addr("FREE"); ok {
		t.Error("the other listener is still bound")
	}
	if err := s.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// Frames of all sizes, cut anywhere, with a small budget: every body arrives whole.
func TestFrameSizes(t *testing.T) {
	for _, budget := range []int64{0, 300_000} {
		w := start(t, Config{QueuedBytes: budget, MaxRequestBytes: 12 << 20}, nil)
		var clients sync.WaitGroup
		for i := range 4 {
			c := w.dial()
			clients.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 3))
				for id := range int32(60) {
					n := []int{0, 1, 3000, window - 15, window, 60_000, 100_000, inPlace - 11, inPlace, 300_000, 1 << 20, 9 << 20}[r.IntN(11+int(id/59))]
					body := bytes.Repeat([]byte{byte(id), byte(n)}, n/2)
					b := append(frame(echoKey, 0, id, false, body), frame(echoKey, 0, -id, false, []byte("small"))...)
					sent := make(chan struct{})
					go func() {
						defer close(sent)
						for len(b) > 0 {
							k := min(1+r.IntN(200_000), len(b))
							if _, err := c.Write(b[:k]); err != nil {
								t.Error(err)
								return
							}
							b = b[k:]
						}
					}()
					for _, want := range [][]byte{body, []byte("small")} {
						head := make([]byte, 8)
						if _, err := io.ReadFull(c, head); err != nil {
							t.Error(err)
							return
						}
						got := make([]byte, binary.BigEndian.Uint32(head)-4)
						if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
							t.Errorf("%d bytes, want %d; %v", len(got), len(want), err)
							return
						}
					}
					<-sent
				}
			})
		}
		clients.Wait()
		if budget > 0 {
			eventually(t, "the budget is whole again", func() bool { return w.budget.available.Load() == budget })
		}
	}
}

// Two clients hold the whole budget with halves of large requests; a third waits, is served when one of them goes, and a
// small one is never kept waiting.
func TestBudget(t *testing.T) {
	w := start(t, Config{QueuedBytes: 100_000}, nil)
	half := frame(echoKey, 0, 1, false, make([]byte, 200_000))
	a := w.dial()
	a.send(half[:100_000])
	eventually(t, "taken", func() bool { return w.budget.available.Load() < 0 })
	b := w.dial()
	go func() { _, _ = b.Write(half) }()
	c := w.dial()
	c.send(frame(echoKey, 0, 2, false, []byte("small")))
	c.expect(2, "small")
	eventually(t, "the second waits", func() bool {
		w.budget.mu.Lock()
		defer w.budget.mu.Unlock()
		return len(w.budget.waiting) == 1
	})
	a.Close()
	if id, body := b.answer(); id != 1 || len(body) != 200_000 {
		t.Errorf("answer %d of %d bytes", id, len(body))
	}
	eventually(t, "the budget is whole again", func() bool { return w.budget.available.Load() == 100_000 })
}

func TestPanicEndsTheConnectionOnly(t *testing.T) {
	w := start(t, Config{}, map[int16]rpc.Handler{zeroKey: func(*rpc.Request) *rpc.Pending { panic("a mistake") }})
	c, other := w.dial(), w.dial()
	c.send(frame(zeroKey, 0, 1, false, nil))
	c.closed()
	other.send(frame(echoKey, 0, 1, false, nil))
	other.expect(1, "")
	if !strings.Contains(w.log.String(), "a mistake") {
		t.Error("not logged")
	}
}
