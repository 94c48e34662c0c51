package api

// ListConfigResources, versions 0 and 1 (KIP-1142; version 0 is ListClientMetricsResources of KIP-1000): what has dynamic
// configs, or may have them.

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/rpc"
)

// listed are the kinds of resource that there are, in the order in which they are answered.
var listed = []metadata.ResourceType{
	metadata.ResourceTopic, metadata.ResourceBroker, metadata.ResourceBrokerLogger, metadata.ResourceClientMetrics, metadata.ResourceGroup,
}

// ListConfigResources answers API 74: of brokers and their loggers all that are alive, of topics all, of the rest those that
// have dynamic configs.
func (b *Broker) ListConfigResources(r *rpc.Request) *rpc.Pending {
	var req kmsg.ListConfigResourcesRequest
	if !decode(r, &req) {
		return nil
	}
	resp := kmsg.NewPtrListConfigResourcesResponse()
	wanted := make(map[metadata.ResourceType]bool)
	switch {
	case r.Version == 0:
		wanted[metadata.ResourceClientMetrics] = true
	case len(req.ResourceTypes) == 0:
		for _, t := range listed {
			wanted[t] = true
		}
	}
	if r.Version > 0 {
		for _, t := range req.ResourceTypes {
			known := false
			for _, k := range listed {
				known = known || metadata.ResourceType(t) == k
			}
			if !known {
				resp.ErrorCode = kerr.UnsupportedVersion.Code
				respond(r, resp)
				return nil
			}
			wanted[metadata.ResourceType(t)] = true
		}
	}
	image := b.Image()
	add := func(t metadata.ResourceType, name string) {
		c := kmsg.NewListConfigResourcesResponseConfigResource()
		c.Name, c.Type = name, int8(t)
		resp.ConfigResources = append(resp.ConfigResources, c)
	}
	for _, t := range listed {
		if !wanted[t] {
			continue
		}
		switch t {
		case metadata.ResourceTopic:
			for topic := range image.Topics() {
				add(t, topic.Name)
			}
		case metadata.ResourceBroker, metadata.ResourceBrokerLogger:
			alive(image, r.Conn.Listener, func(n *metadata.Broker, _ metadata.Endpoint) {
				add(t, strconv.Itoa(int(n.ID)))
			})
		default:
			for c := range image.Configs() {
				if c.Resource.Type == t {
					add(t, c.Resource.Name)
				}
			}
		}
	}
	respond(r, resp)
	return nil
}
