package api

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/rpc"
)

// controllerBeside is a controller whose Envelope handler answers what the world's broker forwards, and what it decided on.
type controllerBeside struct {
	*Controller
	decided []kmsg.Request
	direct  []bool
	answer  func(kmsg.Request) (kmsg.Response, error)
	// later, if true, keeps the decision until release.
	later   bool
	release func()
}

func beside(w *world) *controllerBeside {
	c := &controllerBeside{Controller: &Controller{ID: 1, Image: w.Image, Leader: func() kafka.BrokerID { return 1 }, RequestTimeout: time.Second}}
	c.Decide = func(req kmsg.Request, direct bool, _ time.Time, done func(kmsg.Response, error)) {
		c.decided, c.direct = append(c.decided, req), append(c.direct, direct)
		c.release = func() { done(c.answer(req)) }
		if !c.later {
			c.release()
		}
	}
	c.Table = NewTable(ControllerListener, false, c.Routes(func(*rpc.Request) *rpc.Pending { return nil })...)
	// The way between them: the envelope as bytes, its answer as bytes.
	w.Ask = func(req kmsg.Request, _ time.Time, done func(kmsg.Response, error)) {
		r := w.request(req)
		p := c.Envelope(r)
		end := func() {
			if p != nil {
				r.Response = rpc.Response{}
				p.Finish(r, false)
			}
			done(answer(w.t, r, kmsg.NewPtrEnvelopeResponse()), nil)
		}
		if p == nil {
			end()
			return
		}
		ended := false
		wake := func() {
			if !ended {
				ended = true
				end()
			}
		}
		p.OnDone(&wake)
	}
	return c
}

func createTopics(version int16, names ...string) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.SetVersion(version)
	for _, n := range names {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = n, 3, 1
		req.Topics = append(req.Topics, t)
	}
	return req
}

// A request goes through broker and controller and its answer comes back, in every version, at once or later.
func TestEnvelopeRoundTrip(t *testing.T) {
	w := newWorld(t)
	c := beside(w)
	forward := func(r *rpc.Request) *rpc.Pending { return Forward(w.Ask, time.Second)(r) }
	c.answer = func(req kmsg.Request) (kmsg.Response, error) {
		resp := kmsg.NewPtrCreateTopicsResponse()
		for _, q := range req.(*kmsg.CreateTopicsRequest).Topics {
			rt := kmsg.NewCreateTopicsResponseTopic()
			rt.Topic, rt.NumPartitions = q.Topic, q.NumPartitions
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil
	}
	for v := int16(2); v <= 7; v++ {
		for _, later := range []bool{false, true} {
			c.later = later
			r, p := w.begin(forward, createTopics(v, "one", "two"))
			if done, _ := p.Done(); done == later {
				t.Fatalf("version %d: done %v, later %v", v, done, later)
			}
			if later {
				c.release()
			}
			finish(r, p)
			resp := answer(t, r, kmsg.NewPtrCreateTopicsResponse())
			if len(resp.Topics) != 2 || resp.Topics[1].Topic != "two" || resp.Topics[1].ErrorCode != 0 || v >= 5 && resp.Topics[1].NumPartitions != 3 {
				t.Errorf("version %d: %+v", v, resp)
			}
			got := c.decided[len(c.decided)-1].(*kmsg.CreateTopicsRequest)
			if got.GetVersion() != v || got.Topics[0].Topic != "one" || c.direct[len(c.direct)-1] {
				t.Errorf("version %d: decided on %+v, direct %v", v, got, c.direct[len(c.direct)-1])
			}
		}
	}

	// Errors of a decision come in the shape of the request.
	c.later = false
	c.answer = func(kmsg.Request) (kmsg.Response, error) { return nil, kerr.RequestTimedOut }
	if resp := call(w, forward, createTopics(7, "one"), kmsg.NewPtrCreateTopicsResponse()); len(resp.Topics) != 1 || resp.Topics[0].ErrorCode != kerr.RequestTimedOut.Code {
		t.Errorf("%+v", resp)
	}
	// A body that is none of this API ends the client's connection, before anybody is asked.
	n := len(c.decided)
	r := w.request(createTopics(7, "one"))
	r.Body = r.Body[:5]
	if p := forward(r); p != nil || r.Response.Fail == nil || len(c.decided) != n {
		t.Error("a truncated body was forwarded")
	}
}

// A node that isn't the controller says so in the envelope, not in the inner answer: the broker looks for the new one.
func TestEnvelopeNotController(t *testing.T) {
	w := newWorld(t)
	c := beside(w)
	c.answer = func(kmsg.Request) (kmsg.Response, error) { return nil, kerr.NotController }
	var got *kmsg.EnvelopeResponse
	w.Ask(Wrap(createTopics(7, "one"), "client", "User:x"), w.now, func(m kmsg.Response, err error) { got = m.(*kmsg.EnvelopeResponse) })
	if got == nil || got.ErrorCode != kerr.NotController.Code || len(got.ResponseData) != 0 {
		t.Errorf("%+v", got)
	}
	// Asked directly it is told in the request's shape.
	r := w.request(createTopics(7, "one"))
	finish(r, c.Table.Lookup(r.Key).Handle(r))
	if resp := answer(t, r, kmsg.NewPtrCreateTopicsResponse()); len(resp.Topics) != 1 || resp.Topics[0].ErrorCode != kerr.NotController.Code {
		t.Errorf("%+v", resp)
	}
}

// What an envelope may not hold is refused, whatever it is; nothing panics on a broken one.
func TestEnvelopeRefuses(t *testing.T) {
	w := newWorld(t)
	c := beside(w)
	c.answer = func(kmsg.Request) (kmsg.Response, error) { return kmsg.NewPtrCreateTopicsResponse(), nil }
	ask := func(edit func(*kmsg.EnvelopeRequest)) int16 {
		t.Helper()
		env := Wrap(createTopics(7, "one"), "client", "User:x")
		edit(env)
		return call(w, c.Envelope, env, kmsg.NewPtrEnvelopeResponse()).ErrorCode
	}
	if got := ask(func(*kmsg.EnvelopeRequest) {}); got != 0 {
		t.Errorf("a good one: %d", got)
	}
	if got := ask(func(e *kmsg.EnvelopeRequest) { e.ClientHostAddress = []byte{1, 2, 3} }); got != kerr.InvalidRequest.Code {
		t.Errorf("a bad address: %d", got)
	}
	if got := ask(func(e *kmsg.EnvelopeRequest) { e.RequestPrincipal = []byte{0} }); got != kerr.PrincipalDeserializationFailure.Code {
		t.Errorf("a bad principal: %d", got)
	}
	for what, inner := range map[string]kmsg.Request{
		"an envelope":            Wrap(createTopics(7, "one"), "client", "User:x"),
		"a raft request":         kmsg.NewPtrVoteRequest(),
		"a registration":         kmsg.NewPtrBrokerRegistrationRequest(),
		"what isn't served here": kmsg.NewPtrMetadataRequest(),
		"a later version":        func() kmsg.Request { r := createTopics(7, "one"); r.SetVersion(8); return r }(),
	} {
		data := Wrap(inner, "client", "User:x").RequestData
		if got := ask(func(e *kmsg.EnvelopeRequest) { e.RequestData = data }); got != kerr.InvalidRequest.Code {
			t.Errorf("%s: %d", what, got)
		}
	}
	whole := Wrap(createTopics(7, "one"), "client", "User:x").RequestData
	for n := range whole {
		n := n
		if got := ask(func(e *kmsg.EnvelopeRequest) { e.RequestData = slices.Clone(whole[:n]) }); got != kerr.InvalidRequest.Code {
			t.Errorf("%d of %d bytes: %d", n, len(whole), got)
		}
	}
}

// Answers that don't fit their request are not handed on.
func TestForwardBadAnswers(t *testing.T) {
	w := newWorld(t)
	for what, got := range map[string]func(done func(kmsg.Response, error)){
		"another kind": func(done func(kmsg.Response, error)) { done(kmsg.NewPtrVoteResponse(), nil) },
		"no answer":    func(done func(kmsg.Response, error)) { done(nil, nil) },
		"an error":     func(done func(kmsg.Response, error)) { done(nil, errors.New("disconnected")) },
		"too short":    func(done func(kmsg.Response, error)) { done(&kmsg.EnvelopeResponse{ResponseData: []byte{0, 0}}, nil) },
		"another's": func(done func(kmsg.Response, error)) {
			done(&kmsg.EnvelopeResponse{ResponseData: []byte{0, 0, 0, 9, 0}}, nil)
		},
		"header tags": func(done func(kmsg.Response, error)) {
			done(&kmsg.EnvelopeResponse{ResponseData: []byte{0, 0, 0, 5, 1}}, nil)
		},
		"without header": func(done func(kmsg.Response, error)) {
			done(&kmsg.EnvelopeResponse{ResponseData: []byte{0, 0, 0, 5}}, nil)
		},
	} {
		forward := Forward(func(_ kmsg.Request, _ time.Time, done func(kmsg.Response, error)) { got(done) }, time.Second)
		resp := call(w, forward, createTopics(7, "one"), kmsg.NewPtrCreateTopicsResponse())
		if len(resp.Topics) != 1 || resp.Topics[0].ErrorCode != kerr.UnknownServerError.Code {
			t.Errorf("%s: %+v", what, resp)
		}
	}
}
