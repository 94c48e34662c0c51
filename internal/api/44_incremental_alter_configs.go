package api

// IncrementalAlterConfigs, versions 0 and 1 (KIP-339), and what AlterConfigs (33_alter_configs.go) shares with it. The broker
// checks first what only it can: changes of its own configuration, and its loggers, which no record is written for. The rest
// goes to the controller.

import (
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/rpc"
	"github.com/highwater/highwater/internal/schema"
)

// Operations of IncrementalAlterConfigs.
const (
	opSet      = 0
	opDelete   = 1
	opAppend   = 2
	opSubtract = 3
)

// IncrementalAlterConfigs answers API 44 on a broker's listener.
func (b *Broker) IncrementalAlterConfigs(r *rpc.Request) *rpc.Pending {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	if !decodeBody(r, req, slices.Clone(r.Body)) {
		return nil
	}
	onward := *req
	var own []*result
	own, onward.Resources = divide(req.Resources, incrementalID, func(q *kmsg.IncrementalAlterConfigsRequestResource, duplicate bool) *result {
		if done, err := b.checkIncremental(q, duplicate, req.ValidateOnly); done || err != nil {
			return &result{err}
		}
		return nil
	})
	return b.alterRest(r, &onward, len(onward.Resources), func(m kmsg.Response, err error) kmsg.Response {
		resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
		answered, _ := m.(*kmsg.IncrementalAlterConfigsResponse)
		next := 0
		for i := range req.Resources {
			rr := kmsg.NewIncrementalAlterConfigsResponseResource()
			rr.ResourceType, rr.ResourceName = req.Resources[i].ResourceType, req.Resources[i].ResourceName
			switch {
			case own[i] != nil:
				rr.ErrorCode, rr.ErrorMessage = kerr.Code(own[i].err), kerr.Message(own[i].err)
			case err != nil:
				rr.ErrorCode, rr.ErrorMessage = kerr.Code(err), kerr.Message(err)
			case answered != nil && next < len(answered.Resources):
				rr = answered.Resources[next]
				next++
			}
			resp.Resources = append(resp.Resources, rr)
		}
		return resp
	})
}

type resourceID struct {
	kind int8
	name string
}

// result is what the broker itself answers for a resource; nil where the controller does.
type result struct{ err error }

func incrementalID(q *kmsg.IncrementalAlterConfigsRequestResource) resourceID {
	return resourceID{int8(q.ResourceType), q.ResourceName}
}

// divide asks for the broker's own answer to each resource, which may be named more than once; those without go onward.
func divide[R any](resources []R, id func(*R) resourceID, answer func(q *R, duplicate bool) *result) (own []*result, onward []R) {
	count := make(map[resourceID]int)
	for i := range resources {
		count[id(&resources[i])]++
	}
	own = make([]*result, len(resources))
	for i := range resources {
		q := &resources[i]
		if own[i] = answer(q, count[id(q)] > 1); own[i] == nil {
			onward = append(onward, *q)
		}
	}
	return own, onward
}

// alterRest sends n resources on to the controller and answers with what join makes of its answer; with none at once.
func (b *Broker) alterRest(r *rpc.Request, onward kmsg.Request, n int, join func(kmsg.Response, error) kmsg.Response) *rpc.Pending {
	if n == 0 {
		respond(r, join(nil, nil))
		return nil
	}
	inner := *r
	inner.Body = schema.AppendMessage(nil, onward)
	env := wrap(&inner, r.Conn.Principal, r.Conn.Remote.Addr())
	var resp kmsg.Response
	p := &rpc.Pending{Finish: func(r *rpc.Request, _ bool) { respond(r, resp) }}
	version, key, corr := r.Version, r.Key, r.CorrelationID
	b.Ask(env, r.Received.Add(b.Limits.RequestTimeout), func(m kmsg.Response, err error) {
		answer, ok := m.(*kmsg.EnvelopeResponse)
		var inside kmsg.Response
		if err == nil && !ok {
			err = kerr.UnknownServerError
		}
		if err == nil {
			err = kerr.ForCode(answer.ErrorCode)
		}
		if err == nil {
			var data []byte
			if data, err = responseBody(&rpc.Request{Key: key, Version: version, CorrelationID: corr}, answer.ResponseData); err == nil {
				inside = onward.ResponseKind()
				inside.SetVersion(version)
				err = schema.ReadResponse(inside, data)
			}
		}
		resp = join(inside, err)
		p.Complete()
	})
	return p
}

// checkIncremental is what the broker checks of one resource. done: it has carried it out itself.
func (b *Broker) checkIncremental(q *kmsg.IncrementalAlterConfigsRequestResource, duplicate, validateOnly bool) (done bool, err error) {
	if duplicate {
		return false, kerr.InvalidRequest.With("Each resource must appear at most once.")
	}
	seen := make(map[string]bool)
	var null []string
	for i := range q.Configs {
		c := &q.Configs[i]
		if seen[c.Name] {
			return false, kerr.InvalidRequest.With("Error due to duplicate config keys")
		}
		seen[c.Name] = true
		if c.Op != opDelete && c.Value == nil {
			null = append(null, c.Name)
		}
	}
	if null != nil {
		return false, kerr.InvalidRequest.With("Null value not supported for : %s", strings.Join(null, ", "))
	}
	switch metadata.ResourceType(q.ResourceType) {
	case metadata.ResourceBrokerLogger:
		return true, alterLoggers(b.Loggers, b.ID, q, validateOnly)
	case metadata.ResourceBroker:
		if q.ResourceName != "" {
			if err := b.ownNode(q.ResourceName); err != nil {
				return false, err
			}
		}
		return false, b.checkBrokerConfig(q)
	case metadata.ResourceTopic, metadata.ResourceClientMetrics, metadata.ResourceGroup:
		return false, nil
	}
	return false, kerr.InvalidRequest.With("Unknown resource type %d", q.ResourceType)
}

// ownNode: a node's configuration is changed through that node.
func (b *Broker) ownNode(name string) error {
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return kerr.InvalidRequest.With("Node id must be an integer, but it is: %s", name)
	}
	if kafka.BrokerID(id) != b.ID {
		return kerr.InvalidRequest.With("Unexpected broker id, expected %d, but received %s", b.ID, name)
	}
	return nil
}

// checkBrokerConfig checks what the broker's dynamic configs, or the cluster's, would be after a change.
func (b *Broker) checkBrokerConfig(q *kmsg.IncrementalAlterConfigsRequestResource) error {
	v := configView{image: b.Image()}
	props := v.overrides(metadata.ResourceBroker, q.ResourceName)
	for i := range q.Configs {
		c := &q.Configs[i]
		switch c.Op {
		case opSet:
			props[c.Name] = *c.Value
		case opDelete:
			delete(props, c.Name)
		case opAppend, opSubtract:
			verb := "append"
			if c.Op == opSubtract {
				verb = "subtract"
			}
			k := config.BrokerTable.Lookup(c.Name)
			if k == nil {
				return kerr.InvalidConfig.With("Unknown config name: %s", c.Name)
			}
			if k.Type != config.List {
				return kerr.InvalidConfig.With("Config value %s is not allowed for config key: %s", verb, c.Name)
			}
			old, has := props[c.Name]
			if !has {
				old = k.DefaultValue().Text()
			}
			props[c.Name] = changeList(old, *c.Value, c.Op == opAppend)
		}
	}
	return b.validBrokerConfig(props, q.ResourceName != "")
}

// changeList adds to, or takes from, a list what it has or lacks.
func changeList(old, change string, add bool) string {
	var list []string
	if old != "" {
		list = strings.Split(old, ",")
	}
	for _, x := range strings.Split(change, ",") {
		has := slices.Contains(list, x)
		switch {
		case add && !has:
			list = append(list, x)
		case !add && has:
			list = slices.DeleteFunc(list, func(s string) bool { return s == x })
		}
	}
	return strings.Join(list, ",")
}

func (b *Broker) validBrokerConfig(props map[string]string, perBroker bool) error {
	if err := b.Config().ValidateDynamic(props, perBroker); err != nil {
		return kerr.InvalidRequest.With("%s", err.Error())
	}
	return nil
}
