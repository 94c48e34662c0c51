package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	fkerr "github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// admin asks brokers, or the controllers of bootstrap.controllers, as Kafka's AdminClient does: each call has a name, is
// tried on until default.api.timeout.ms has passed, and fails with the AdminClient's exceptions.
type admin struct {
	ctx         context.Context
	conf        *clientConfig
	log         *toolLog
	controllers bool // brokers are not asked, controllers are
	timeout     time.Duration
	seeds       []*kgo.Broker
	next        int
	client      *kgo.Client
	hook        *connectionHook
	nodes       map[int32]*kgo.Client // by id, made when first asked
	addrs       map[int32]string
	active      int32 // the active controller, -1 unknown
}

// errNoNode: the node that must be asked isn't known.
var errNoNode = errors.New("node is not known")

// newAdmin makes an admin client out of properties that hold bootstrap.servers or bootstrap.controllers. Its error is a
// KafkaException around a ConfigException.
func newAdmin(e *Env, props []Property) (*admin, error) {
	a := &admin{ctx: e.Context, log: &toolLog{w: e.Stderr}, nodes: make(map[int32]*kgo.Client), addrs: make(map[int32]string), active: -1}
	fail := func(err error) error {
		var j *JavaError
		if !errors.As(err, &j) {
			return err
		}
		return &JavaError{Class: "org.apache.kafka.common.KafkaException", Text: "Failed to create new KafkaAdminClient", Inner: j}
	}
	var err error
	if a.conf, err = newClientConfig(adminClient, props); err != nil {
		return nil, err
	}
	key := "bootstrap.servers"
	if a.conf.has("bootstrap.controllers") {
		a.controllers, key = true, "bootstrap.controllers"
	}
	addrs, err := seeds(key, a.conf.list(key))
	if err != nil {
		return nil, fail(err)
	}
	a.timeout = a.conf.ms("default.api.timeout.ms")
	if r := a.conf.ms("request.timeout.ms"); a.timeout < r {
		if a.conf.has("default.api.timeout.ms") {
			return nil, fail(configError("The specified value of default.api.timeout.ms must be no smaller than the value of request.timeout.ms."))
		}
		a.timeout = r
	}
	if a.client, a.hook, err = a.connect(addrs); err != nil {
		return nil, fail(err)
	}
	a.seeds = a.client.SeedBrokers()
	return a, nil
}

func (a *admin) connect(addrs []string) (*kgo.Client, *connectionHook, error) {
	hook := a.conf.newHook(a.log)
	opts, err := a.conf.clientOpts(hook, addrs)
	if err != nil {
		return nil, nil, err
	}
	cl, err := kgo.NewClient(append(opts, kgo.RequestRetries(0))...)
	return cl, hook, err
}

// Close ends all connections.
func (a *admin) Close() {
	a.client.Close()
	for _, c := range a.nodes {
		c.Close()
	}
}

// any asks whichever node answers.
func (a *admin) any(call string, req kmsg.Request) (kmsg.Response, error) {
	return a.try(call, a.timeout, func(ctx context.Context) (kmsg.Response, error) {
		b := a.seeds[a.next%len(a.seeds)]
		resp, err := b.Request(ctx, req)
		if err != nil {
			a.next++
		}
		return resp, err
	})
}

// broker asks one node, a broker or in controller mode a controller; -1 is any.
func (a *admin) broker(call string, id int32, timeout time.Duration, req kmsg.Request) (kmsg.Response, error) {
	if id < 0 {
		return a.any(call, req)
	}
	return a.try(call, timeout, func(ctx context.Context) (kmsg.Response, error) {
		b, err := a.node(ctx, id)
		if err != nil {
			return nil, err
		}
		resp, err := b.Request(ctx, req)
		if err != nil {
			delete(a.addrs, id) // it may have moved
		}
		return resp, err
	})
}

// controller asks the node that takes changes: the active controller, or any broker, which forwards.
func (a *admin) controller(call string, req kmsg.Request) (kmsg.Response, error) {
	if !a.controllers {
		return a.any(call, req)
	}
	return a.try(call, a.timeout, func(ctx context.Context) (kmsg.Response, error) {
		if a.active < 0 {
			if err := a.discover(ctx); err != nil {
				return nil, err
			}
		}
		if a.active < 0 {
			return nil, errNoNode
		}
		b, err := a.node(ctx, a.active)
		if err != nil {
			return nil, err
		}
		resp, err := b.Request(ctx, req)
		if err != nil {
			a.active = -1
		}
		return resp, err
	})
}

// node finds a node by id.
func (a *admin) node(ctx context.Context, id int32) (*kgo.Broker, error) {
	if a.addrs[id] == "" {
		if err := a.discover(ctx); err != nil {
			return nil, err
		}
		if a.addrs[id] == "" {
			return nil, errNoNode
		}
		if c := a.nodes[id]; c != nil {
			c.Close()
			delete(a.nodes, id)
		}
	}
	if a.nodes[id] == nil {
		c, _, err := a.connect([]string{a.addrs[id]})
		if err != nil {
			return nil, err
		}
		a.nodes[id] = c
	}
	return a.nodes[id].SeedBrokers()[0], nil
}

// discover learns the nodes' addresses and the active controller.
func (a *admin) discover(ctx context.Context) error {
	b := a.seeds[a.next%len(a.seeds)]
	if !a.controllers {
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = []kmsg.MetadataRequestTopic{}
		resp, err := req.RequestWith(ctx, requester{b})
		if err != nil {
			a.next++
			return err
		}
		for _, n := range resp.Brokers {
			a.addrs[n.NodeID] = net.JoinHostPort(n.Host, strconv.Itoa(int(n.Port)))
		}
		return nil
	}
	req := kmsg.NewPtrDescribeClusterRequest()
	req.EndpointType = 2
	resp, err := req.RequestWith(ctx, requester{b})
	if err != nil {
		a.next++
		return err
	}
	if err := codeError(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return err
	}
	for _, n := range resp.Brokers {
		a.addrs[n.NodeID] = net.JoinHostPort(n.Host, strconv.Itoa(int(n.Port)))
	}
	a.active = resp.ControllerID
	return nil
}

// requester makes a kgo.Broker what kmsg's RequestWith wants.
type requester struct{ b *kgo.Broker }

func (r requester) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return r.b.Request(ctx, req)
}

// try sends until there is an answer, or an error that will not go away, or no time left.
func (a *admin) try(call string, timeout time.Duration, send func(context.Context) (kmsg.Response, error)) (kmsg.Response, error) {
	start := time.Now()
	deadline := start.Add(timeout)
	backoff := max(a.conf.ms("retry.backoff.ms"), 10*time.Millisecond)
	tries, noNode := 0, false
	for {
		ctx, cancel := context.WithDeadline(a.ctx, minTime(deadline, time.Now().Add(a.conf.ms("request.timeout.ms"))))
		tries++
		resp, err := send(ctx)
		cancel()
		if err == nil {
			return resp, nil
		}
		if final := finalError(err); final != nil {
			return nil, final
		}
		if a.ctx.Err() != nil {
			return nil, a.ctx.Err()
		}
		if errors.Is(err, errNoNode) {
			noNode = true
		}
		left := time.Until(deadline)
		if left <= 0 {
			if noNode || !a.hook.everConnected() {
				return nil, exception("TimeoutException", "Timed out waiting for a node assignment. Call: "+call)
			}
			now := time.Now().UnixMilli()
			return nil, exception("TimeoutException", fmt.Sprintf("Call(callName=%s, deadlineMs=%d, tries=%d, nextAllowedTryMs=%d) timed out at %d after %d attempt(s)",
				call, deadline.UnixMilli(), tries, now+backoff.Milliseconds(), now, tries))
		}
		t := time.NewTimer(min(backoff, left))
		select {
		case <-t.C:
		case <-a.ctx.Done():
			t.Stop()
		}
		backoff = min(2*backoff, max(a.conf.ms("retry.backoff.max.ms"), backoff))
	}
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// finalError is the exception for an error that trying again can't cure; nil for others.
func finalError(err error) error {
	var j *JavaError
	if errors.As(err, &j) {
		return j
	}
	var k *fkerr.Error
	if errors.As(err, &k) {
		switch k.Code {
		case 58, 33, 34: // SASL_AUTHENTICATION_FAILED, UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE
			return exception(classOf(k.Code), saslText(err, k))
		case 35: // UNSUPPORTED_VERSION
			return exception("UnsupportedVersionException", "The version of API is not supported.")
		}
	}
	if s := err.Error(); strings.Contains(s, "broker is too old") || strings.Contains(s, "request key is unknown") {
		return exception("UnsupportedVersionException", "The node does not support the API that this call needs.")
	}
	return nil
}

// saslText is what the broker said of a failed authentication.
func saslText(err error, k *fkerr.Error) string {
	s := err.Error()
	if i := strings.LastIndex(s, "Authentication failed"); i >= 0 {
		s = s[i:]
		if j := strings.Index(s, ": "+k.Message); j >= 0 {
			s = s[:j]
		}
		return s
	}
	return k.Description
}
