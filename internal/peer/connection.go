package peer

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/schema"
)

// connection is an open connection with the versions that its peer serves.
type connection struct {
	l        *link
	nc       net.Conn
	in       *bufio.Reader
	versions [schema.MaxAPIKey + 1]served

	ended chan struct{} // closed when reading has ended; err says why
	err   error
	once  sync.Once
}

type served struct {
	ok       bool
	min, max int16
}

// connect dials, secures, asks for the versions, and authenticates. ctx bounds all of it.
func connect(ctx context.Context, l *link) (c *connection, err error) {
	cfg := &l.c.cfg
	nc, err := cfg.Dial(ctx, "tcp", net.JoinHostPort(l.to.Host, strconv.Itoa(int(l.to.Port))))
	if err != nil {
		return nil, err
	}
	// Closing is what ends a read or write when ctx does.
	watched := nc
	stop := context.AfterFunc(ctx, func() { _ = watched.Close() })
	defer func() {
		if !stop() && err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			if ctx.Err() != nil && !errors.Is(err, context.DeadlineExceeded) {
				err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
			}
			_ = watched.Close()
			c = nil
		}
	}()
	secured := l.to.Protocol == SSL || l.to.Protocol == SASLSSL
	if secured {
		if cfg.Secure == nil {
			return nil, fmt.Errorf("security protocol %d is not configured", l.to.Protocol)
		}
		if nc, err = cfg.Secure(ctx, nc, l.to); err != nil {
			return nil, fmt.Errorf("secure: %w", err)
		}
	}
	c = &connection{l: l, nc: nc, in: bufio.NewReaderSize(nc, 16<<10), ended: make(chan struct{})}
	if err = c.negotiate(); err != nil {
		return nil, err
	}
	if l.to.Protocol == SASLPlaintext || l.to.Protocol == SASLSSL {
		if cfg.Authenticate == nil {
			return nil, fmt.Errorf("security protocol %d is not configured", l.to.Protocol)
		}
		if err = cfg.Authenticate(ctx, l.to, c.exchange); err != nil {
			return nil, fmt.Errorf("authenticate: %w", err)
		}
	}
	return c, nil
}

// negotiate asks for the versions that the peer serves. A peer that is older than us answers in version 0 and tells which
// versions of ApiVersions it has; then we ask again.
func (c *connection) negotiate() error {
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version = schema.APIs[req.Key()].Max
	req.ClientSoftwareName, req.ClientSoftwareVersion = c.l.c.cfg.SoftwareName, c.l.c.cfg.SoftwareVersion
	req.NodeID = -1
	for tries := 0; ; tries++ {
		body, err := c.roundTrip(req)
		if err != nil {
			return fmt.Errorf("ApiVersions: %w", err)
		}
		resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
		unsupported := len(body) >= 2 && int16(binary.BigEndian.Uint16(body)) == kerr.UnsupportedVersion.Code
		if unsupported {
			resp.Version = 0
		}
		if err := schema.ReadResponse(resp, body); err != nil {
			return fmt.Errorf("ApiVersions: %w", err)
		}
		if unsupported && tries == 0 {
			req.Version = 0
			for _, k := range resp.ApiKeys {
				if k.ApiKey == req.Key() {
					req.Version = min(k.MaxVersion, schema.APIs[req.Key()].Max)
				}
			}
			continue
		}
		if err := kerr.ForCode(resp.ErrorCode); err != nil {
			return fmt.Errorf("ApiVersions: %w", err)
		}
		for _, k := range resp.ApiKeys {
			if k.ApiKey >= 0 && k.ApiKey <= schema.MaxAPIKey {
				c.versions[k.ApiKey] = served{true, k.MinVersion, k.MaxVersion}
			}
		}
		return nil
	}
}

// version chooses the highest version that the peer, this client and the caller allow.
func (c *connection) version(req kmsg.Request, r Range) (int16, error) {
	key := req.Key()
	if key < 0 || key > schema.MaxAPIKey || !c.versions[key].ok {
		return 0, kerr.UnsupportedVersion.With("node %s does not serve API %d", c.l.to, key)
	}
	peer, own := c.versions[key], &schema.APIs[key]
	lowest, highest := max(peer.min, r.Min), min(peer.max, r.Max, req.MaxVersion())
	if !own.Removed() { // one that 4.4 no longer serves is only sent to older nodes, in any version that they know
		lowest, highest = max(lowest, own.Min), min(highest, own.MaxUnstable)
	}
	if f := c.l.c.cfg.Cap; f != nil {
		highest = min(highest, f(key, highest))
	}
	if lowest > highest {
		return 0, kerr.UnsupportedVersion.With("node %s serves API %d in versions %d to %d, not in %d to %d", c.l.to, key, peer.min, peer.max, r.Min, r.Max)
	}
	return highest, nil
}

// appendRequest appends a request with its length and header.
func appendRequest(dst []byte, req kmsg.Request, id int32, clientID string) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint16(dst, uint16(req.Key()))
	dst = binary.BigEndian.AppendUint16(dst, uint16(req.GetVersion()))
	dst = binary.BigEndian.AppendUint32(dst, uint32(id))
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(clientID)))
	dst = append(dst, clientID...)
	if req.IsFlexible() {
		dst = append(dst, 0)
	}
	dst = schema.AppendMessage(dst, req)
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

// apiVersionsKey is the one API whose answer has no tagged fields in its header, because its client may not know better.
const apiVersionsKey = 18

// roundTrip does one request before the connection is open to others, and returns the answer's body.
func (c *connection) roundTrip(req kmsg.Request) ([]byte, error) {
	const id = -1 // none that a call can have
	if _, err := c.nc.Write(appendRequest(nil, req, id, c.l.c.cfg.ClientID)); err != nil {
		return nil, err
	}
	got, body, err := c.receive()
	if err != nil {
		return nil, err
	}
	if got != id {
		return nil, fmt.Errorf("an answer came with correlation id %d instead of %d", got, id)
	}
	return headless(req, body)
}

// exchange is roundTrip in a negotiated version, for authentication.
func (c *connection) exchange(req kmsg.Request) (kmsg.Response, error) {
	v, err := c.version(req, Range{Max: req.MaxVersion()})
	if err != nil {
		return nil, err
	}
	req.SetVersion(v)
	body, err := c.roundTrip(req)
	if err != nil {
		return nil, err
	}
	return decode(req, body)
}

// receive reads one answer: its correlation id and what follows it.
func (c *connection) receive() (id int32, rest []byte, err error) {
	var head [8]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return 0, nil, err
	}
	size := int32(binary.BigEndian.Uint32(head[:]))
	if size < 4 || size > c.l.c.cfg.MaxResponseBytes {
		return 0, nil, fmt.Errorf("an answer of %d bytes was announced; the bound is %d", size, c.l.c.cfg.MaxResponseBytes)
	}
	rest = make([]byte, size-4)
	if _, err := io.ReadFull(c.in, rest); err != nil {
		return 0, nil, err
	}
	return int32(binary.BigEndian.Uint32(head[4:])), rest, nil
}

// headless takes the tagged fields of the answer's header away.
func headless(req kmsg.Request, rest []byte) ([]byte, error) {
	if !req.IsFlexible() || req.Key() == apiVersionsKey {
		return rest, nil
	}
	n, rest, err := uvarint(rest)
	for ; err == nil && n > 0; n-- {
		var size uint32
		if _, rest, err = uvarint(rest); err != nil {
			break
		}
		if size, rest, err = uvarint(rest); err != nil {
			break
		}
		if uint64(size) > uint64(len(rest)) {
			err = io.ErrUnexpectedEOF
			break
		}
		rest = rest[size:]
	}
	if err != nil {
		return nil, fmt.Errorf("response header: %w", err)
	}
	return rest, nil
}

func uvarint(b []byte) (uint32, []byte, error) {
	v, n := binary.Uvarint(b[:min(len(b), 5)])
	if n <= 0 || v > 1<<32-1 {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return uint32(v), b[n:], nil
}

// decode reads an answer. Its body was made for it alone, so records and strings may stay where they lie.
func decode(req kmsg.Request, body []byte) (kmsg.Response, error) {
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if u, ok := resp.(interface{ UnsafeReadFrom([]byte) error }); ok {
		if _, err := schema.CheckResponse(resp.Key(), resp.GetVersion(), body); err != nil {
			return nil, err
		}
		if err := u.UnsafeReadFrom(body); err != nil {
			return nil, err
		}
		return resp, nil
	}
	if err := schema.ReadResponse(resp, body); err != nil {
		return nil, err
	}
	return resp, nil
}

// read is the connection's goroutine: it hands answers to those who wait for them.
func (c *connection) read() {
	defer c.l.c.tasks.Done()
	defer close(c.ended)
	for {
		id, rest, err := c.receive()
		if err != nil {
			c.err = err
			return
		}
		k, err := c.l.answered(id)
		if err != nil {
			c.err = err
			return
		}
		body, err := headless(k.req, rest)
		var resp kmsg.Response
		if err == nil {
			resp, err = decode(k.req, body)
		}
		if err != nil {
			c.err = fmt.Errorf("answer to %s: %w", kmsg.NameForKey(k.req.Key()), err)
			k.done(nil, fmt.Errorf("%s: %w", c.l.to, c.err))
			return
		}
		k.done(resp, nil)
	}
}

// close ends the connection; its reader notices.
func (c *connection) close() { c.once.Do(func() { _ = c.nc.Close() }) }
