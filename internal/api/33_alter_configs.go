package api

// AlterConfigs, versions 0 to 2 (KIP-133): replaces all configs of a resource. Deprecated for IncrementalAlterConfigs, but
// old tools use it.

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/rpc"
)

// AlterConfigs answers API 33 on a broker's listener.
func (b *Broker) AlterConfigs(r *rpc.Request) *rpc.Pending {
	req := kmsg.NewPtrAlterConfigsRequest()
	if !decodeBody(r, req, slices.Clone(r.Body)) {
		return nil
	}
	onward := *req
	var own []*result
	own, onward.Resources = divide(req.Resources, func(q *kmsg.AlterConfigsRequestResource) resourceID {
		return resourceID{int8(q.ResourceType), q.ResourceName}
	}, func(q *kmsg.AlterConfigsRequestResource, duplicate bool) *result {
		if err := b.checkLegacy(q, duplicate); err != nil {
			return &result{err}
		}
		return nil
	})
	return b.alterRest(r, &onward, len(onward.Resources), func(m kmsg.Response, err error) kmsg.Response {
		resp := kmsg.NewPtrAlterConfigsResponse()
		answered, _ := m.(*kmsg.AlterConfigsResponse)
		next := 0
		for i := range req.Resources {
			rr := kmsg.NewAlterConfigsResponseResource()
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

func (b *Broker) checkLegacy(q *kmsg.AlterConfigsRequestResource, duplicate bool) error {
	if duplicate {
		return kerr.InvalidRequest.With("Each resource must appear at most once.")
	}
	seen := make(map[string]bool)
	var null []string
	props := make(map[string]string)
	for i := range q.Configs {
		c := &q.Configs[i]
		if seen[c.Name] {
			return kerr.InvalidRequest.With("Error due to duplicate config keys")
		}
		seen[c.Name] = true
		if c.Value == nil {
			null = append(null, c.Name)
			continue
		}
		props[c.Name] = *c.Value
	}
	if null != nil {
		return kerr.InvalidRequest.With("Null value not supported for : %s", strings.Join(null, ", "))
	}
	switch metadata.ResourceType(q.ResourceType) {
	case metadata.ResourceBroker:
		if q.ResourceName != "" {
			if err := b.ownNode(q.ResourceName); err != nil {
				return err
			}
		}
		return b.validBrokerConfig(props, q.ResourceName != "")
	case metadata.ResourceTopic, metadata.ResourceClientMetrics, metadata.ResourceGroup:
		return nil
	}
	return kerr.InvalidRequest.With("Unknown resource type %d", q.ResourceType)
}
