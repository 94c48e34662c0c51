package server

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/highwater/highwater/internal/invariant"
	"github.com/highwater/highwater/internal/rpc"
)

// conn is one connection. All fields but the atomic ones belong to its goroutine, which runs serve:
//
//	handleFrames   every complete request in the window goes to its handler; answers gather in out
//	answerReady    Pendings at the head of the queue that are complete build their answers
//	flush          what has gathered goes out in one write
//	fill           wait for more bytes, or to be woken
//
// There is no second goroutine that writes: one that completes a Pending wakes this one out of its read by setting the
// read deadline into the past (wake), which costs no more than a channel and needs neither locks around the answers nor
// a hand-over between writers. A connection that may not read now (too much in flight, throttled, no budget, draining)
// waits on a channel instead (park).
type conn struct {
	l      *listener
	s      *Server
	info   rpc.Conn
	tcp    *net.TCPConn
	nc     net.Conn   // tcp, or what Wrap put around it
	raw    *rawSocket // nil if nc is wrapped
	gate   Gate
	remote netip.Addr

	win      *buffer // window of received bytes: win.b[r:w] is not handled yet; nil while there is nothing
	r, w     int
	lastSize int // of the last frame above 16 KB, whose like is expected next; 0 if none came lately
	quiet    int // reads since then that did not need so much
	budgeted int // bytes of win taken from the server's budget
	maxFrame int32
	now      time.Time // of the last wake-up: every request of one read is received then

	out   *buffer // gathered answers: out.b[:n]
	n     int
	large int // size of the last answer that did not fit, so that the next one has room

	// Requests that are not answered yet, oldest first; the head is a Pending.
	head, tail *slot
	queued     int
	held       int   // bytes of answers in the queue that wait for their turn
	spare      *slot // for the next request
	stopped    bool  // handleFrames left off because something blocked the way
	closing    error // set when the last request to be handled was handled; the connection ends when the queue is empty
	mutedUntil time.Time

	clientID    string // of the last request, so that it is allocated once
	hasClientID bool

	countKey, countN int16 // requests not yet in the metrics
	bytesIn          int64
	bytesOut         int64

	wakeFunc func() // c.wake, for Pendings
	waking   chan struct{}

	state    atomic.Int32 // running, reading or parked
	woken    atomic.Bool
	draining atomic.Bool
	opened   atomic.Bool           // it has shaken hands
	dead     atomic.Pointer[error] // why the connection must end at once
	active   atomic.Int64          // when something last came or went, in Unix milliseconds
	idle     wheelNode
	mute     wheelNode
}

// slot is a request with what the server needs to know about it.
type slot struct {
	req     rpc.Request
	api     *rpc.API
	pending *rpc.Pending // nil: req.Response is the answer
	last    error        // the connection ends after this one
	node    wheelNode    // the Pending's deadline
	buf     []byte       // kept for answers that wait
	next    *slot
}

func (s *slot) due(time.Time) time.Time {
	s.pending.Expire()
	return time.Time{}
}

var slotPool = sync.Pool{New: func() any { return new(slot) }}

const (
	running int32 = iota // will look at woken before it waits
	reading              // waits for bytes
	parked               // waits on waking
)

const (
	window      = 16 << 10 // what is read into while nothing larger is expected
	inPlace     = 256 << 10
	ahead       = 4 << 10   // read beyond the end of a large frame, since the next one's size stands there
	gather      = 64 << 10  // answers are written when so much has gathered, even if more requests are there
	keepAnswer  = 4 << 10   // memory for one waiting answer that is kept
	holdAnswers = 1 << 20   // answers that wait behind a Pending; more stops the reader
	copyRange   = 32 << 10  // file ranges below this are cheaper read than sent, since bytes follow them in most answers
	chunk       = 256 << 10 // of a file range that has to be copied
	wrapped     = 4 << 10   // window of a connection that is not plain, which is kept while it is idle
)

var (
	errStopped   = errors.New("the server stops")
	errIdle      = errors.New("idle for too long")
	errMakeRoom  = errors.New("closed to make room for a connection of a protected listener")
	errAskedFor  = errors.New("the request asked for it")
	errShortFile = errors.New("a file ends before the range that was to be sent")
)

// refusal is an error that the peer's bytes caused; it is logged where a connection that just went away is not.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }

func (r *refusal) Unwrap() error { return r.err }

func newConn(l *listener, tcp *net.TCPConn, local, remote netip.AddrPort) *conn {
	id := l.s.nextID.Add(1) - 1
	c := &conn{
		l: l, s: l.s, tcp: tcp, nc: tcp, remote: remote.Addr(), maxFrame: l.s.cfg.MaxRequestBytes,
		info: rpc.Conn{
			ID: fmt.Sprintf("%s-%s-0-%d", local, remote, id), Listener: l.Name, Controller: l.Controller,
			Local: local, Remote: remote, Principal: l.Principal,
		},
		waking: make(chan struct{}, 1), countKey: -1,
	}
	c.wakeFunc = c.wake
	c.active.Store(time.Now().UnixMilli())
	return c
}

// serve is the connection's goroutine.
func (c *conn) serve() {
	defer c.s.remove(c)
	err := c.run()
	if dead := c.dead.Load(); dead != nil {
		err = *dead // what the read or write said then is only the consequence
	}
	c.end(err)
}

func (c *conn) run() (err error) {
	defer func() {
		// What panics here is our mistake, not the peer's; still one bad request must not take the node with it. A broken
		// invariant that nobody owned must.
		if p := recover(); p != nil {
			if b, ok := p.(*invariant.Broken); ok {
				panic(b)
			}
			c.s.log.Error("panic in a request", "connection", c.info.ID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	if c.s.cfg.IdleTime > 0 {
		c.s.wheel.add(&c.idle, time.Now().Add(c.s.cfg.IdleTime), (*idleWatch)(c))
	}
	if err := c.open(); err != nil {
		return err
	}
	c.opened.Store(true)
	for {
		err := c.handleFrames()
		if err == nil {
			err = c.answerReady()
		}
		if ferr := c.flush(); err == nil {
			err = ferr
		}
		c.count()
		if err != nil {
			return err
		}
		if c.head == nil {
			if c.closing != nil {
				return c.closing
			}
			if c.draining.Load() {
				return errStopped
			}
		}
		if c.blocked() {
			c.park()
		} else if c.stopped {
			continue // requests are there that could not be handled before
		} else if err := c.fill(); err != nil {
			return err
		}
		if dead := c.dead.Load(); dead != nil {
			return *dead
		}
	}
}

// open shakes hands and sets the socket up.
func (c *conn) open() error {
	if c.l.Wrap != nil {
		if err := c.nc.SetDeadline(time.Now().Add(c.s.cfg.HandshakeTime)); err != nil {
			return err
		}
		nc, err := c.l.Wrap(c.nc)
		if err != nil {
			c.l.metrics.FailedHandshakes.Add(1)
			return &refusal{fmt.Errorf("handshake: %w", err)}
		}
		c.nc = nc
		if err := c.nc.SetDeadline(time.Time{}); err != nil {
			return err
		}
		if c.dead.Load() != nil { // killed meanwhile: its deadline is gone now
			return *c.dead.Load()
		}
	} else if canRaw {
		rc, err := c.tcp.SyscallConn()
		if err != nil {
			return err
		}
		c.raw = newRawSocket(rc, c.readInto, c.nothingToRead, c.sent)
	}
	if c.l.Gate != nil {
		c.gate = c.l.Gate(&c.info, c.nc)
		c.boundFrames()
	}
	return nil
}

// boundFrames takes over the gate's bound on frames.
func (c *conn) boundFrames() {
	c.maxFrame = c.s.cfg.MaxRequestBytes
	if c.gate == nil {
		return
	}
	if c.gate.Open() {
		c.gate = nil
		return
	}
	if n := c.gate.MaxRequestBytes(); n > 0 {
		c.maxFrame = min(n, c.maxFrame)
	}
}

// end closes the connection and tells those who wait for it.
func (c *conn) end(err error) {
	var refused *refusal
	attrs := []any{"listener", c.l.Name, "connection", c.info.ID, "client", c.clientID, "reason", err}
	switch {
	case errors.As(err, &refused):
		c.l.metrics.Refused.Add(1)
		c.s.loud.say(slog.LevelWarn, "closing connection: its request cannot be served", attrs...)
	case errors.Is(err, errShortFile):
		c.s.log.Error("closing connection in the middle of an answer", attrs...)
	case errors.Is(err, errIdle):
		c.l.metrics.ExpiredIdle.Add(1)
		c.s.log.Debug("connection closed", attrs...)
	default:
		c.s.log.Debug("connection closed", attrs...)
	}
	_ = c.nc.Close() // there is nobody left to tell
	c.s.wheel.remove(&c.idle)
	c.s.wheel.remove(&c.mute)
	for s := c.head; s != nil; {
		next := s.next
		if s.pending != nil {
			c.s.wheel.remove(&s.node)
			if s.pending.Abandon != nil {
				s.pending.Abandon()
			}
		}
		release(s.req.Response.Parts)
		s = next
	}
	c.head, c.tail = nil, nil
	c.s.budget.forget(c)
	c.dropWindow()
	if c.out != nil {
		c.out.put()
		c.out = nil
	}
	c.count()
	c.s.quota.leave(c.l, c.remote)
	c.l.metrics.Connections.Add(-1)
}

// wake makes the connection's goroutine look at everything again. It does not block and may be called by anybody.
func (c *conn) wake() {
	c.woken.Store(true)
	switch c.state.Load() {
	case reading:
		if c.state.CompareAndSwap(reading, running) {
			_ = c.tcp.SetReadDeadline(longAgo) // it fails only if the connection is closed
		}
	case parked:
		if c.state.CompareAndSwap(parked, running) {
			c.waking <- struct{}{} // never blocks: who is parked has emptied it
		}
	}
}

var longAgo = time.Unix(1, 0)

// kill ends the connection at once, whatever it waits for.
func (c *conn) kill(why error) {
	c.dead.CompareAndSwap(nil, &why)
	_ = c.tcp.SetDeadline(longAgo) // it fails only if the connection is closed
	c.wake()
}

// drain lets the connection finish what it has begun.
func (c *conn) drain() {
	c.draining.Store(true)
	if !c.opened.Load() { // it is shaking hands: nothing has begun
		c.kill(errStopped)
		return
	}
	c.wake()
}

// idleWatch closes a connection on which nothing moved.
type idleWatch conn

func (i *idleWatch) due(now time.Time) time.Time {
	c := (*conn)(i)
	end := time.UnixMilli(c.active.Load()).Add(c.s.cfg.IdleTime)
	// active is wall time, because it is shared as one word; now has both clocks.
	if left := end.Sub(now.Round(0)); left > 0 {
		return now.Add(left)
	}
	c.kill(errIdle)
	return time.Time{}
}

// muteWatch ends a throttled connection's silence.
type muteWatch conn

func (m *muteWatch) due(time.Time) time.Time {
	(*conn)(m).wake()
	return time.Time{}
}

// blocked tells whether no further request may be handled now.
func (c *conn) blocked() bool {
	return c.closing != nil || c.queued >= c.s.cfg.MaxInFlight || c.held >= holdAnswers ||
		!c.mutedUntil.IsZero() || c.draining.Load()
}

// park waits until wake is called.
func (c *conn) park() {
	if !c.mutedUntil.IsZero() {
		c.s.wheel.add(&c.mute, c.mutedUntil, (*muteWatch)(c))
	}
	c.state.Store(parked)
	if c.woken.Load() && c.state.CompareAndSwap(parked, running) {
		c.woken.Store(false)
	} else {
		<-c.waking
		c.woken.Store(false)
	}
	c.tick(time.Now())
}

// tick takes over the time of a wake-up.
func (c *conn) tick(now time.Time) {
	c.now = now
	if !c.mutedUntil.IsZero() && !now.Before(c.mutedUntil) {
		c.mutedUntil = time.Time{}
	}
}

// fill waits until there are more bytes in the window, or wake is called.
func (c *conn) fill() error {
	if !c.reserve() {
		c.park()
		return nil
	}
	c.state.Store(reading)
	if c.woken.Load() && c.state.CompareAndSwap(reading, running) {
		c.woken.Store(false)
		c.tick(time.Now())
		return nil
	}
	var n int
	var err error
	if c.raw != nil {
		n, err = c.raw.Read()
	} else {
		n, err = c.nc.Read(c.readInto())
	}
	interrupted := c.state.Swap(running) != reading
	now := time.Now()
	c.tick(now)
	if interrupted || err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		// The deadline may be set only after we are here; then it ends the next read, which comes back to this place.
		if derr := c.tcp.SetReadDeadline(time.Time{}); derr != nil {
			return derr
		}
		c.woken.Store(false)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = nil
		}
	}
	if n > 0 {
		c.received(n, now)
		return nil
	}
	if err == nil && !interrupted && n == 0 && c.raw != nil {
		return io.EOF
	}
	return err
}

// received counts n bytes that came. A peer that only trickles, to hold a connection without a request, is idle.
func (c *conn) received(n int, now time.Time) {
	before := c.w - c.r
	c.w += n
	c.bytesIn += int64(n)
	if before>>14 != (c.w-c.r)>>14 || c.complete() {
		c.active.Store(now.UnixMilli())
	}
}

// complete tells whether the window begins with a whole request.
func (c *conn) complete() bool {
	return c.w-c.r >= 4 && c.w-c.r-4 >= int(int32(binary.BigEndian.Uint32(c.win.b[c.r:])))
}

// reserve makes room in the window for the rest of the frame that it begins with. It returns false if there is no budget
// for it: then the connection has to wait.
func (c *conn) reserve() bool {
	if c.win == nil {
		return true // readInto takes one
	}
	have, need := c.w-c.r, window
	if have >= 4 {
		need = 4 + int(binary.BigEndian.Uint32(c.win.b[c.r:])) // checked by handleFrames
		if need > window {
			need += ahead
		}
	}
	if c.raw == nil && have < 4 {
		need = 4
	}
	if need <= len(c.win.b)-c.r && c.w < len(c.win.b) {
		return true
	}
	if need > len(c.win.b) && !c.widen(need) {
		return false
	}
	if c.r > 0 {
		copy(c.win.b, c.win.b[c.r:c.w])
		c.r, c.w = 0, have
	}
	return true
}

// widen replaces the window by one that holds need bytes.
func (c *conn) widen(need int) bool {
	_, size := classOf(need)
	if size > maxPooled {
		size = need
	}
	take := size
	if take <= window {
		take = 0
	}
	if take > c.budgeted {
		// What it has goes back first: connections that hold a part each and wait for more would wait for one another.
		c.s.budget.release(c.budgeted)
		c.budgeted = 0
		if !c.s.budget.try(c, take) {
			return false
		}
		c.budgeted = take
	}
	wider := getBuffer(need)
	have := copy(wider.b, c.win.b[c.r:c.w])
	c.win.put()
	c.win, c.r, c.w = wider, 0, have
	return true
}

// readInto is the memory for the next read. When nothing is buffered it takes a window from the pool, for a frame like
// the last large one if there was one: frames up to 256 KB are then parsed where they were received. A read does not go
// far beyond the end of a large frame, so that what follows costs little to move to the front, and the front stays in
// the processor's cache.
func (c *conn) readInto() []byte {
	if c.win == nil {
		size := window
		if c.raw == nil {
			size = wrapped
		}
		if c.lastSize > 0 && c.lastSize+ahead <= inPlace {
			_, large := classOf(c.lastSize + ahead)
			if c.s.budget.try(c, large) {
				size, c.budgeted = large, large
			} else {
				c.s.budget.forget(c)
			}
		}
		c.win, c.r, c.w = getBuffer(size), 0, 0
	}
	end := len(c.win.b)
	switch {
	case c.w-c.r >= 4:
		if size := 4 + int(binary.BigEndian.Uint32(c.win.b[c.r:])); size > window {
			end = min(end, c.r+size+ahead)
		}
	case c.lastSize > window && end > window:
		end = min(end, c.r+c.lastSize+ahead)
	}
	return c.win.b[c.w:max(end, c.w+1)]
}

// nothingToRead gives an empty window back before the connection waits: only connections that are in the middle of
// something hold memory.
func (c *conn) nothingToRead() {
	if c.r == c.w {
		c.dropWindow()
	}
}

func (c *conn) dropWindow() {
	if c.win == nil {
		return
	}
	c.win.put()
	c.win, c.r, c.w = nil, 0, 0
	if c.budgeted > 0 {
		c.s.budget.release(c.budgeted)
		c.budgeted = 0
	}
}

// handleFrames hands every complete request in the window to its handler, as far as none blocks the way.
func (c *conn) handleFrames() error {
	for c.stopped = false; c.w-c.r >= 4; {
		if c.blocked() {
			c.stopped = true
			return nil
		}
		size := int32(binary.BigEndian.Uint32(c.win.b[c.r:]))
		if err := checkSize(size, c.maxFrame); err != nil {
			return c.finish(&refusal{err})
		}
		end := c.r + 4 + int(size)
		if end > c.w {
			break
		}
		frame := c.win.b[c.r+4 : end : end]
		c.r = end
		if 4+int(size) > window {
			c.lastSize, c.quiet = 4+int(size), 0
		} else if c.lastSize > 0 {
			if c.quiet++; c.quiet > quietFrames {
				c.lastSize = 0
			}
		}
		if err := c.handle(frame); err != nil {
			return c.finish(err)
		}
		if c.n >= gather {
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
	if c.win != nil && c.r == c.w {
		if len(c.win.b) > inPlace || c.raw == nil && len(c.win.b) > wrapped {
			c.dropWindow()
		}
		c.r, c.w = 0, 0
	}
	return nil
}

// quietFrames is after how many small frames a connection is no longer expected to send large ones.
const quietFrames = 64

// finish stops reading; the connection ends with err once the requests before are answered.
func (c *conn) finish(err error) error {
	if c.head == nil {
		return err
	}
	c.closing = err
	return nil
}

// handle calls the handler of one request.
func (c *conn) handle(frame []byte) error {
	if c.gate != nil {
		answer, taken, err := c.gate.Raw(frame)
		if err != nil {
			c.l.metrics.FailedHandshakes.Add(1)
			return &refusal{err}
		}
		if taken {
			c.boundFrames()
			return c.putRaw(answer)
		}
	}
	var h header
	if err := h.parseFixed(frame); err != nil {
		return &refusal{err}
	}
	api, err := route(c.l.Table, &h)
	if err != nil {
		return &refusal{err}
	}
	if err := h.parseRest(frame, api.FlexibleRequest(h.version)); err != nil {
		return &refusal{err}
	}
	if c.gate != nil {
		if err := c.gate.Admit(h.key, h.version, c.now); err != nil {
			c.l.metrics.FailedHandshakes.Add(1)
			return &refusal{err}
		}
	}
	c.countRequest(h.key)
	if c.hasClientID != (h.clientID != nil) || c.clientID != string(h.clientID) {
		c.clientID, c.hasClientID = string(h.clientID), h.clientID != nil
	}

	s := c.spare
	if s == nil {
		s = slotPool.Get().(*slot)
	}
	c.spare = nil
	s.api, s.pending, s.last, s.next = api, nil, nil, nil
	s.req = rpc.Request{
		Key: h.key, Version: h.version, CorrelationID: h.correlationID, ClientID: c.clientID, HasClientID: c.hasClientID,
		Body: h.body, Size: len(frame), Received: c.now, Now: c.now, Conn: &c.info,
		Response: rpc.Response{Parts: s.req.Response.Parts[:0]},
	}
	direct := c.head == nil
	if direct {
		if err := c.makeRoom(s); err != nil {
			return err
		}
	} else {
		s.req.Response.Buf = s.buf[:0]
	}
	s.pending = api.Handle(&s.req)
	s.req.Body = nil
	if c.gate != nil {
		c.boundFrames()
	}
	if s.pending != nil {
		s.req.Response = rpc.Response{Parts: s.req.Response.Parts[:0]}
		if done, expired := s.pending.Done(); done && direct {
			// Nothing to wait for: spare the queue.
			p := s.pending
			s.pending = nil
			if err := c.makeRoom(s); err != nil {
				return err
			}
			p.Finish(&s.req, expired)
		}
	}
	if s.pending == nil && direct {
		err := c.put(s)
		c.keep(s)
		return err
	}
	return c.enqueue(s)
}

// enqueue appends a request to those that wait for their turn.
func (c *conn) enqueue(s *slot) error {
	resp := &s.req.Response
	if s.pending == nil {
		if resp.Fail != nil {
			s.last = &refusal{resp.Fail}
		} else if resp.Close {
			s.last = errAskedFor
		}
		if resp.None && s.last == nil && resp.Throttle == 0 {
			c.keep(s)
			return nil
		}
		c.held += len(resp.Buf)
		c.closing = s.last
	}
	if c.tail == nil {
		c.head = s
	} else {
		c.tail.next = s
	}
	c.tail = s
	c.queued++
	if s.pending != nil {
		s.pending.OnDone(&c.wakeFunc)
		if !s.pending.Deadline.IsZero() {
			c.s.wheel.add(&s.node, s.pending.Deadline, s)
		}
	}
	return nil
}

// answerReady answers from the head of the queue as far as answers are ready.
func (c *conn) answerReady() error {
	for s := c.head; s != nil; s = c.head {
		if s.pending != nil {
			done, expired := s.pending.Done()
			if !done {
				return nil
			}
			c.s.wheel.remove(&s.node)
			p := s.pending
			if err := c.makeRoom(s); err != nil {
				return err
			}
			s.pending = nil
			s.req.Now = c.now
			p.Finish(&s.req, expired)
		} else {
			c.held -= len(s.req.Response.Buf)
		}
		if c.head = s.next; c.head == nil {
			c.tail = nil
		}
		c.queued--
		s.next = nil
		err := c.put(s)
		if err == nil {
			err = s.last
		}
		c.keep(s)
		if err != nil {
			return err
		}
		if c.n >= gather {
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// keep puts a slot aside for the next request.
func (c *conn) keep(s *slot) {
	parts := s.req.Response.Parts
	clear(parts[:cap(parts)])
	s.req.Response = rpc.Response{Parts: parts[:0]}
	s.pending, s.last = nil, nil
	if cap(s.buf) > keepAnswer {
		s.buf = nil
	}
	if c.spare == nil && c.head == nil {
		c.spare = s
		return
	}
	s.req.Conn, s.api = nil, nil
	slotPool.Put(s)
}

func (c *conn) countRequest(key int16) {
	if key != c.countKey || c.countN == 1<<14 {
		c.countOut()
		c.countKey = key
	}
	c.countN++
}

func (c *conn) countOut() {
	if c.countN > 0 {
		c.l.metrics.Requests[c.countKey].Add(int64(c.countN))
		c.countN = 0
	}
}

// count brings the metrics up to date: once for each wake-up, because the counters are shared by all processors.
func (c *conn) count() {
	c.countOut()
	if c.bytesIn > 0 {
		c.l.metrics.BytesIn.Add(c.bytesIn)
		c.bytesIn = 0
	}
	if c.bytesOut > 0 {
		c.l.metrics.BytesOut.Add(c.bytesOut)
		c.bytesOut = 0
	}
}
