// Package rpc is the contract between the server, which owns connections, and the handlers in package api.
//
// A handler is called in the order in which requests came on their connection, with the request's body still in the
// connection's buffer. It either answers at once, by appending the body of the answer to Response, or starts something
// that takes a while and returns a *Pending. In the latter case the connection goes on with its next request; when the
// Pending is complete its Finish builds the answer. The server writes answers in the order of the requests.
package rpc

import (
	"net/netip"
	"sync/atomic"
	"time"
)

// Request is one request with its frame. It is pooled: after the handler returned (or, if it returned a Pending, after
// Finish) nothing may refer to it, nor to Body, which is valid only until the handler returns.
type Request struct {
	Key           int16
	Version       int16
	CorrelationID int32
	ClientID      string // interned; "" for null
	HasClientID   bool
	Body          []byte // what follows the header
	Size          int    // of the whole frame without its length, in bytes
	Received      time.Time
	Now           time.Time // when the handler or Finish is called, to the wake-up
	Forwarded     bool      // by a broker, in an Envelope
	Conn          *Conn
	Response      Response
}

// Conn says who is at the other end. It is constant but for Principal and Software, which change only between requests.
type Conn struct {
	ID              string // Kafka's connection id, "127.0.0.1:9092-127.0.0.1:50000-0-1"
	Listener        string // listener name
	Controller      bool   // the listener is one of controller.listener.names
	Local           netip.AddrPort
	Remote          netip.AddrPort
	Principal       string // "User:ANONYMOUS" on PLAINTEXT
	Software        string // client software name and version, told by ApiVersions
	SoftwareVersion string
}

// Response gathers the answer's body: bytes, and ranges of files that the server sends without copying where it can.
// The zero value is ready.
type Response struct {
	Buf      []byte        // append to it; header and length are the server's
	Parts    []Part        // ranges that go between bytes of Buf, in ascending At
	None     bool          // no answer at all (acks=0)
	Close    bool          // close the connection after this answer, or at once if None
	Throttle time.Duration // how long the connection is muted after the answer (KIP-219); already told in the body
	// Fail, if set, closes the connection without an answer, as Kafka does with a request that cannot be decoded. The
	// server logs it.
	Fail error
}

// Source is a range of a file: a *storage.Slice. It may shrink under the reader (a truncation): then ReadAt and sendfile give
// less than Len, and the connection must be closed.
type Source interface {
	Len() int
	// Fd is the open file and the place in it, for sendfile; ok is false where there is no descriptor.
	Fd() (fd uintptr, pos int64, ok bool)
	// ReadAt reads from the range as from a file of its own.
	ReadAt(p []byte, off int64) (int, error)
	// Release gives the file back. The server calls it once, when the range was sent or will never be.
	Release()
}

// Part is a range that stands in the answer before Buf[At].
type Part struct {
	At int // index into Buf
	Source
}

// AppendSource puts a range at the current end of the answer.
func (r *Response) AppendSource(s Source) { r.Parts = append(r.Parts, Part{At: len(r.Buf), Source: s}) }

// Len is the size of the body in bytes, ranges included.
func (r *Response) Len() int {
	n := len(r.Buf)
	for i := range r.Parts {
		n += r.Parts[i].Len()
	}
	return n
}

// Handler serves one API.
type Handler func(*Request) *Pending

// Pending is an answer that is not there yet. The one who makes it sets Finish, and Deadline if it must end without
// anybody's doing; whoever has the result calls Complete, once or more often, from any goroutine and under any lock.
type Pending struct {
	// Deadline is when the server completes it itself; zero means never.
	Deadline time.Time
	// Finish builds the answer into r.Response, which is empty again: what the handler put there is forgotten. The server
	// calls it exactly once, on the goroutine that calls the connection's handlers, when this Pending is the oldest
	// unanswered one of its connection. expired tells that the deadline came first; it is false if
	// Complete was called before. It may be skipped if the connection is gone: then Abandon is called instead.
	Finish func(r *Request, expired bool)
	// Abandon, if not nil, is called instead of Finish when the connection is gone or the server stops.
	Abandon func()

	state atomic.Int32
	wake  atomic.Pointer[func()]
}

const (
	waiting int32 = iota
	completed
	expired
)

// Complete says that Finish can be called. It never blocks.
func (p *Pending) Complete() {
	if p.state.CompareAndSwap(waiting, completed) {
		p.fire()
	}
}

// Expire is for the server's timer.
func (p *Pending) Expire() {
	if p.state.CompareAndSwap(waiting, expired) {
		p.fire()
	}
}

func (p *Pending) fire() {
	if f := p.wake.Load(); f != nil {
		(*f)()
	}
}

// Done tells whether the Pending is complete, and whether by its deadline.
func (p *Pending) Done() (done, byDeadline bool) {
	s := p.state.Load()
	return s != waiting, s == expired
}

// OnDone is for the server: wake is called, once or twice, when the Pending is complete, also if it is already. It is
// called under whatever lock Complete was, so it must not block. The pointer saves an allocation for each call.
func (p *Pending) OnDone(wake *func()) {
	p.wake.Store(wake)
	if done, _ := p.Done(); done {
		(*wake)()
	}
}

// API is one row of a Table.
type API struct {
	Key        int16
	Name       string // Kafka's, "CreateTopics"
	Min, Max   int16  // versions served
	Advertised int16  // lowest version told by ApiVersions; differs from Min only for Produce (0)
	Flexible   int16  // first flexible version, or -1
	Handle     Handler
}

// Table is what one kind of listener serves, by API key. A nil entry is not served.
type Table struct {
	APIs [MaxKey + 1]*API
}

// MaxKey is the highest API key of Kafka 4.4.
const MaxKey = 94

// Lookup is the row of key, or nil.
func (t *Table) Lookup(key int16) *API {
	if key < 0 || key > MaxKey {
		return nil
	}
	return t.APIs[key]
}

// FlexibleRequest tells whether the request header of this API and version is version 2, with tagged fields.
func (a *API) FlexibleRequest(version int16) bool { return a.Flexible >= 0 && version >= a.Flexible }

// FlexibleResponse tells whether the response header has tagged fields: never for ApiVersions (KIP-511).
func (a *API) FlexibleResponse(version int16) bool { return a.Key != 18 && a.FlexibleRequest(version) }
