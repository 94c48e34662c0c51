package api

// Envelope, version 0 (KIP-590): a broker forwards a client's request, header and all, to the active controller in the
// name of the client's principal.

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/rpc"
	"github.com/highwater/highwater/internal/schema"
)

// Ask sends a request to the active controller, wherever that is now, and calls done once: with the answer or, at the latest
// at deadline, with an error.
type Ask func(req kmsg.Request, deadline time.Time, done func(kmsg.Response, error))

// Forward is a handler that lets the active controller answer. timeout bounds how long one is looked for
// (request.timeout.ms).
func Forward(ask Ask, timeout time.Duration) rpc.Handler {
	return func(r *rpc.Request) *rpc.Pending {
		if _, err := schema.CheckRequest(r.Key, r.Version, r.Body); err != nil {
			r.Response.Fail = err
			return nil
		}
		env := wrap(r, r.Conn.Principal, r.Conn.Remote.Addr())
		body := slices.Clone(r.Body) // for an error of our own, should there be no answer

		var answer *kmsg.EnvelopeResponse
		var err error
		p := &rpc.Pending{Finish: func(r *rpc.Request, expired bool) {
			if err == nil {
				err = kerr.ForCode(answer.ErrorCode)
			}
			if err == nil {
				var data []byte
				if data, err = responseBody(r, answer.ResponseData); err == nil {
					r.Response.Buf = append(r.Response.Buf, data...)
					return
				}
			}
			respondError(r, body, err)
		}}
		ask(env, r.Received.Add(timeout), func(m kmsg.Response, e error) {
			answer, _ = m.(*kmsg.EnvelopeResponse)
			if err = e; err == nil && answer == nil {
				err = kerr.UnknownServerError
			}
			p.Complete()
		})
		return p
	}
}

func wrap(r *rpc.Request, principal string, host netip.Addr) *kmsg.EnvelopeRequest {
	env := kmsg.NewPtrEnvelopeRequest()
	env.RequestData = appendRequest(nil, r)
	env.RequestPrincipal = appendPrincipal(nil, principal)
	env.ClientHostAddress = host.Unmap().AsSlice()
	return env
}

// Wrap puts a request of this node's own, at its version, into an Envelope.
func Wrap(req kmsg.Request, clientID, principal string) *kmsg.EnvelopeRequest {
	r := &rpc.Request{Key: req.Key(), Version: req.GetVersion(), ClientID: clientID, HasClientID: true, Body: schema.AppendMessage(nil, req)}
	return wrap(r, principal, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
}

// appendRequest is the request as it came: header and body.
func appendRequest(dst []byte, r *rpc.Request) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(r.Key))
	dst = binary.BigEndian.AppendUint16(dst, uint16(r.Version))
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.CorrelationID))
	if r.HasClientID {
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(r.ClientID)))
		dst = append(dst, r.ClientID...)
	} else {
		dst = append(dst, 0xff, 0xff)
	}
	if flexible(r.Key, r.Version) {
		dst = append(dst, 0)
	}
	return append(dst, r.Body...)
}

func flexible(key, version int16) bool {
	a := schema.LookupAPI(key)
	return a != nil && a.Flexible >= 0 && version >= a.Flexible
}

// responseBody takes the header off a forwarded answer.
func responseBody(r *rpc.Request, data []byte) ([]byte, error) {
	if len(data) < 4 || int32(binary.BigEndian.Uint32(data)) != r.CorrelationID {
		return nil, kerr.UnknownServerError.With("the controller's answer belongs to another request")
	}
	data = data[4:]
	if flexible(r.Key, r.Version) {
		if len(data) == 0 || data[0] != 0 {
			return nil, kerr.UnknownServerError.With("the controller's answer has a header with tags")
		}
		data = data[1:]
	}
	return data, nil
}

// appendPrincipal is Kafka's DefaultPrincipalData, version 0.
func appendPrincipal(dst []byte, principal string) []byte {
	kind, name, _ := strings.Cut(principal, ":")
	p := kmsg.NewDefaultPrincipalData()
	p.Type, p.Name = kind, name
	return p.AppendTo(dst)
}

// Envelope answers API 58 on a controller's listener: it takes the request out and handles it by the table as the client's.
func (c *Controller) Envelope(r *rpc.Request) *rpc.Pending {
	var req kmsg.EnvelopeRequest
	if !decode(r, &req) {
		return nil
	}
	fail := func(err error) *rpc.Pending {
		resp := kmsg.NewPtrEnvelopeResponse()
		resp.ErrorCode = kerr.Code(err)
		respond(r, resp)
		return nil
	}
	var principal kmsg.DefaultPrincipalData
	if err := principal.ReadFrom(req.RequestPrincipal); err != nil {
		return fail(kerr.PrincipalDeserializationFailure)
	}
	host, ok := netip.AddrFromSlice(req.ClientHostAddress)
	if !ok {
		return fail(kerr.InvalidRequest)
	}
	inner := &rpc.Request{Received: r.Received, Forwarded: true, Conn: &rpc.Conn{
		ID: r.Conn.ID, Listener: r.Conn.Listener, Controller: true, Local: r.Conn.Local, Remote: netip.AddrPortFrom(host, r.Conn.Remote.Port()),
		Principal: principal.Type + ":" + principal.Name,
	}}
	if !readRequest(inner, slices.Clone(req.RequestData)) {
		return fail(kerr.InvalidRequest)
	}
	a := c.Table.Lookup(inner.Key)
	if s := schema.LookupAPI(inner.Key); a == nil || s == nil || !s.Forwardable || inner.Version < a.Min || inner.Version > a.Max {
		return fail(kerr.InvalidRequest)
	}
	finish := func(out *rpc.Request) {
		resp := kmsg.NewPtrEnvelopeResponse()
		switch {
		case errors.Is(inner.Response.Fail, kerr.NotController):
			resp.ErrorCode = kerr.NotController.Code // the broker looks for the new one
		case inner.Response.Fail != nil:
			resp.ErrorCode = kerr.InvalidRequest.Code
		default:
			resp.ResponseData = binary.BigEndian.AppendUint32(nil, uint32(inner.CorrelationID))
			if a.FlexibleResponse(inner.Version) {
				resp.ResponseData = append(resp.ResponseData, 0)
			}
			resp.ResponseData = append(resp.ResponseData, inner.Response.Buf...)
		}
		respond(out, resp)
	}
	pending := a.Handle(inner)
	if pending == nil {
		finish(r)
		return nil
	}
	p := &rpc.Pending{Deadline: pending.Deadline, Abandon: pending.Abandon}
	p.Finish = func(out *rpc.Request, expired bool) {
		inner.Response = rpc.Response{}
		pending.Finish(inner, expired)
		finish(out)
	}
	wake := p.Complete
	pending.OnDone(&wake)
	return p
}

// readRequest takes a request apart, as the server does with a frame.
func readRequest(r *rpc.Request, data []byte) bool {
	d := decoder{src: data}
	r.Size = len(data)
	r.Key, r.Version, r.CorrelationID = d.int16(), d.int16(), d.int32()
	if id := d.string(false, true); id != nil {
		r.ClientID, r.HasClientID = string(id), true
	}
	if flexible(r.Key, r.Version) {
		d.skipTags()
	}
	r.Body = d.src
	return !d.failed
}
