package api

// DescribeCluster, versions 0 to 2 (KIP-700, 919 controllers, 1073 fenced brokers).

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/rpc"
)

// Kinds of endpoint that DescribeCluster can be asked about.
const (
	brokerEndpoints     = 1
	controllerEndpoints = 2
)

var endpointTypes = map[int8]string{brokerEndpoints: "BROKER", controllerEndpoints: "CONTROLLER"}

func describeCluster(r *rpc.Request, serves int8, clusterID string, fill func(*kmsg.DescribeClusterRequest, *kmsg.DescribeClusterResponse)) *rpc.Pending {
	var req kmsg.DescribeClusterRequest
	if !decode(r, &req) {
		return nil
	}
	if r.Version == 0 {
		req.EndpointType = brokerEndpoints
	}
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.ClusterAuthorizedOperations = noOperations
	resp.EndpointType = req.EndpointType
	var err error
	switch req.EndpointType {
	case serves:
		resp.ClusterID = clusterID
		if req.IncludeClusterAuthorizedOperations {
			resp.ClusterAuthorizedOperations = clusterOperations
		}
		fill(&req, resp)
	case brokerEndpoints, controllerEndpoints:
		kind := kerr.MismatchedEndpointType
		if r.Version == 0 {
			kind = kerr.InvalidRequest // it knows no types
		}
		err = kind.With("The request was sent to an endpoint of type %s, but we wanted an endpoint of type %s", endpointTypes[serves], endpointTypes[req.EndpointType])
	default:
		err = kerr.UnsupportedEndpointType.With("Unsupported endpoint type %d", req.EndpointType)
	}
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = kerr.Code(err), kerr.Message(err)
		resp.EndpointType = brokerEndpoints
	}
	respond(r, resp)
	return nil
}

// DescribeCluster answers API 60 on a broker's listener.
func (b *Broker) DescribeCluster(r *rpc.Request) *rpc.Pending {
	return describeCluster(r, brokerEndpoints, b.ClusterID, func(req *kmsg.DescribeClusterRequest, resp *kmsg.DescribeClusterResponse) {
		image := b.Image()
		resp.ControllerID = b.anyBroker(image)
		for n := range image.Brokers() {
			e, ok := n.Endpoint(r.Conn.Listener)
			if !ok || n.Fenced && !req.IncludeFencedBrokers {
				continue
			}
			resp.Brokers = append(resp.Brokers, clusterNode(int32(n.ID), e, n.Rack, n.Fenced))
		}
	})
}

func clusterNode(id int32, e metadata.Endpoint, rack *string, fenced bool) kmsg.DescribeClusterResponseBroker {
	rb := kmsg.NewDescribeClusterResponseBroker()
	rb.NodeID, rb.Host, rb.Port, rb.Rack, rb.IsFenced = id, e.Host, int32(e.Port), rack, fenced
	return rb
}
