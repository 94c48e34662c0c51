package server

import (
	"encoding/binary"
	"time"

	"github.com/highwater/highwater/internal/rpc"
)

// responseHeader is how many bytes stand before the body of an answer.
func responseHeader(s *slot) int {
	if s.api.FlexibleResponse(s.req.Version) {
		return 9
	}
	return 8
}

// headroom is how much of out is left at least for the body of an answer that is built in place.
const headroom = 1 << 10

// makeRoom gives the request a Response.Buf that lies where its answer will go, behind its header in out. A handler that
// stays within it has written the answer where it leaves from; one that outgrows it gets another from the allocator, as
// append does, and put copies.
func (c *conn) makeRoom(s *slot) error {
	h := responseHeader(s)
	want := h + max(headroom, c.large)
	if c.out != nil && len(c.out.b)-c.n < want {
		if err := c.flush(); err != nil {
			return err
		}
	}
	if c.out == nil {
		c.out = getBuffer(max(want, window))
	}
	at := c.n + h
	s.req.Response.Buf = c.out.b[at:at]
	return nil
}

// put appends the answer of s to what goes out, or sends it if it is large or has ranges of files.
func (c *conn) put(s *slot) error {
	resp := &s.req.Response
	switch {
	case resp.Fail != nil:
		release(resp.Parts)
		return &refusal{resp.Fail}
	case resp.None:
		release(resp.Parts)
	default:
		if err := c.putAnswer(s); err != nil {
			return err
		}
	}
	if resp.Throttle > 0 {
		c.mutedUntil = c.now.Add(resp.Throttle)
	}
	if resp.Close {
		return errAskedFor
	}
	return nil
}

func (c *conn) putAnswer(s *slot) error {
	resp, h := &s.req.Response, responseHeader(s)
	body := resp.Buf
	if len(body) > 0 && c.out != nil && c.n+h < len(c.out.b) && &body[0] == &c.out.b[c.n+h] {
		if c.large > 0 {
			c.large -= c.large >> 6 // answers that fit make large ones less likely
		}
		if len(resp.Parts) == 0 {
			c.header(s, h, len(body))
			c.n += h + len(body)
			return nil
		}
		// Ranges of files go in between: the bytes must not lie where those will.
		s.buf = append(s.buf[:0], body...)
		body = s.buf
	} else {
		c.large = max(c.large, min(len(body), inPlace))
		if cap(body) > cap(s.buf) {
			s.buf = body[:0] // keep lets it go if it is large
		}
	}
	parts := resp.Parts
	resp.Parts = nil
	err := c.putPieces(s, h, body, parts)
	resp.Parts = parts[:0]
	return err
}

// putPieces sends header, body and the ranges of files within it in their order.
func (c *conn) putPieces(s *slot, h int, body []byte, parts []rpc.Part) error {
	n := len(body)
	for i := range parts {
		n += parts[i].Len()
	}
	if err := c.space(h); err != nil {
		release(parts)
		return err
	}
	c.header(s, h, n)
	c.n += h
	from := 0
	for i := range parts {
		p := &parts[i]
		err := c.putBytes(body[from:p.At])
		from = p.At
		if err == nil {
			err = c.putRange(p)
		}
		if err != nil {
			release(parts[i:])
			return err
		}
		p.Release()
	}
	return c.putBytes(body[from:])
}

// release lets go of ranges that are not sent.
func release(parts []rpc.Part) {
	for i := range parts {
		parts[i].Release()
	}
}

// header writes length and response header at the end of out.
func (c *conn) header(s *slot, h, body int) {
	b := c.out.b[c.n:]
	binary.BigEndian.PutUint32(b, uint32(h-4+body))
	binary.BigEndian.PutUint32(b[4:], uint32(s.req.CorrelationID))
	if h == 9 {
		b[8] = 0 // no tagged fields
	}
}

// putRaw appends an answer without a header.
func (c *conn) putRaw(b []byte) error {
	if err := c.space(4); err != nil {
		return err
	}
	binary.BigEndian.PutUint32(c.out.b[c.n:], uint32(len(b)))
	c.n += 4
	return c.putBytes(b)
}

// space makes sure that n bytes fit into out.
func (c *conn) space(n int) error {
	if c.out != nil && len(c.out.b)-c.n >= n {
		return nil
	}
	if c.n > 0 {
		if err := c.writeOut(true); err != nil {
			return err
		}
	}
	if c.out != nil && len(c.out.b) < n {
		c.out.put()
		c.out = nil
	}
	if c.out == nil {
		c.out = getBuffer(max(n, window))
	}
	return nil
}

// putBytes appends b to out. What is large is not copied but written, except for its end: the last write of an answer
// must be flush's, which tells the kernel that nothing follows.
func (c *conn) putBytes(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if len(b) > gather {
		if err := c.writeOut(true); err != nil {
			return err
		}
		if err := c.write(b[:len(b)-headroom], true); err != nil {
			return err
		}
		b = b[len(b)-headroom:]
	}
	if err := c.space(len(b)); err != nil {
		return err
	}
	c.n += copy(c.out.b[c.n:], b)
	return nil
}

// putRange sends a range of a file: from the page cache without a copy if it is large enough to pay, and if file and
// connection can; else by reading it into out.
func (c *conn) putRange(p *rpc.Part) error {
	size := p.Len()
	if c.raw != nil && size >= copyRange {
		if fd, pos, ok := p.Fd(); ok {
			if err := c.writeOut(true); err != nil {
				return err
			}
			sent, err := c.raw.Sendfile(fd, pos, size)
			c.l.metrics.FileBytesOut.Add(sent)
			return err
		}
	}
	for off, left := int64(0), size; left > 0; {
		n := min(left, chunk)
		if err := c.space(n); err != nil {
			return err
		}
		got, err := p.ReadAt(c.out.b[c.n:c.n+n], off)
		if got < n {
			if err == nil {
				err = errShortFile
			}
			return &fileError{err}
		}
		c.n += n
		off += int64(n)
		left -= n
	}
	return nil
}

// fileError is why a range could not be read: a file that ended too early, or a failing disk.
type fileError struct{ err error }

func (f *fileError) Error() string { return "read a range to be sent: " + f.err.Error() }

func (f *fileError) Unwrap() []error { return []error{errShortFile, f.err} }

// flush writes what has gathered, and gives the memory back.
func (c *conn) flush() error {
	if c.out == nil {
		return nil
	}
	var err error
	if c.n > 0 {
		c.l.metrics.Flushes.Add(1)
		err = c.writeOut(false)
	}
	c.out.put()
	c.out = nil
	return err
}

// writeOut writes out and keeps its memory; more tells that the rest of an answer follows.
func (c *conn) writeOut(more bool) error {
	if c.n == 0 {
		return nil
	}
	b := c.out.b[:c.n]
	c.n = 0
	return c.write(b, more)
}

func (c *conn) write(b []byte, more bool) error {
	if c.raw != nil {
		return c.raw.Write(b, more)
	}
	n, err := c.nc.Write(b)
	c.sent(n)
	return err
}

// sent counts bytes that the peer's side has taken. As long as it takes some of a large answer the connection is not
// idle.
func (c *conn) sent(n int) {
	c.bytesOut += int64(n)
	if n >= window {
		c.active.Store(time.Now().UnixMilli())
	}
}
