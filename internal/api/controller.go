package api

import (
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/rpc"
)

// Controller is what the handlers of a controller's listeners work with.
type Controller struct {
	ID        kafka.BrokerID
	ClusterID string
	Table     *rpc.Table // the controller's own, for what comes in an Envelope
	Image     func() *metadata.Image
	Config    func() *config.Broker

	// Decide lets the active controller carry out a request and calls done once, from any goroutine: with the answer when what
	// was decided is committed, or with NOT_CONTROLLER or REQUEST_TIMED_OUT. direct: the request wasn't forwarded by a broker.
	Decide func(req kmsg.Request, direct bool, deadline time.Time, done func(kmsg.Response, error))
	// Raft serves the quorum's own APIs. A nil answer means that there will be none.
	Raft func(listener string, req kmsg.Request, answer func(kmsg.Response))

	Leader  func() kafka.BrokerID // of the quorum, or -1
	Loggers Loggers
	// RequestTimeout bounds a decision that has no time-out of its own in the request.
	RequestTimeout time.Duration
}

// decide is the handler of everything that the active controller decides.
func (c *Controller) decide(r *rpc.Request) *rpc.Pending {
	body := slices.Clone(r.Body) // what is decoded lives longer than the handler
	req := kmsg.RequestForKey(r.Key)
	if !decodeBody(r, req, body) {
		return nil
	}
	return c.decideRequest(r, req, body, nil)
}

// decideRequest is decide for a request that was decoded out of body already. change, if not nil, turns the answer into the
// one that is sent.
func (c *Controller) decideRequest(r *rpc.Request, req kmsg.Request, body []byte, change func(kmsg.Response) kmsg.Response) *rpc.Pending {
	deadline := r.Received.Add(c.RequestTimeout)
	if t, ok := req.(kmsg.TimeoutRequest); ok {
		if ms := t.Timeout(); ms > 0 {
			deadline = r.Received.Add(time.Duration(ms) * time.Millisecond)
		}
	}
	var resp kmsg.Response
	var err error
	p := &rpc.Pending{Finish: func(r *rpc.Request, expired bool) {
		switch {
		case err == nil:
			respond(r, resp)
		case r.Forwarded && errors.Is(err, kerr.NotController):
			r.Response.Fail = err // Envelope tells the broker
		default:
			respondError(r, body, err)
		}
	}}
	c.Decide(req, !r.Forwarded, deadline, func(m kmsg.Response, e error) {
		if resp, err = m, e; change != nil && e == nil {
			resp = change(m)
		}
		p.Complete()
	})
	return p
}

// raft is the handler of the quorum's APIs.
func (c *Controller) raft(r *rpc.Request) *rpc.Pending {
	req := kmsg.RequestForKey(r.Key)
	if !decodeBody(r, req, slices.Clone(r.Body)) {
		return nil
	}
	var resp kmsg.Response
	p := &rpc.Pending{Finish: func(r *rpc.Request, expired bool) {
		if resp == nil {
			r.Response.None, r.Response.Close = true, true
			return
		}
		respond(r, resp)
	}}
	c.Raft(r.Conn.Listener, req, func(m kmsg.Response) {
		resp = m
		p.Complete()
	})
	return p
}

// DescribeConfigs answers API 32 on a controller's listener.
func (c *Controller) DescribeConfigs(r *rpc.Request) *rpc.Pending {
	return describeConfigs(r, configView{image: c.Image(), config: c.Config(), id: c.ID, loggers: c.Loggers})
}

// DescribeCluster answers API 60 on a controller's listener, with the controllers.
func (c *Controller) DescribeCluster(r *rpc.Request) *rpc.Pending {
	return describeCluster(r, controllerEndpoints, c.ClusterID, func(req *kmsg.DescribeClusterRequest, resp *kmsg.DescribeClusterResponse) {
		for n := range c.Image().Controllers() {
			if e, ok := n.Endpoint(r.Conn.Listener); ok {
				resp.Brokers = append(resp.Brokers, clusterNode(int32(n.ID), e, nil, false))
			}
		}
		resp.ControllerID = int32(c.Leader())
	})
}

// Routes are all that a controller's listeners serve. versions is the handler of ApiVersions.
func (c *Controller) Routes(versions rpc.Handler) []Route {
	routes := []Route{
		{kmsg.ApiVersions.Int16(), versions},
		{kmsg.DescribeConfigs.Int16(), c.DescribeConfigs},
		{kmsg.DescribeCluster.Int16(), c.DescribeCluster},
		{kmsg.DescribeUserSCRAMCredentials.Int16(), c.DescribeUserScramCredentials},
		{kmsg.IncrementalAlterConfigs.Int16(), c.IncrementalAlterConfigs},
		{kmsg.Envelope.Int16(), c.Envelope},
	}
	for _, k := range []kmsg.Key{
		kmsg.Fetch, kmsg.FetchSnapshot, kmsg.Vote, kmsg.BeginQuorumEpoch, kmsg.EndQuorumEpoch, kmsg.DescribeQuorum,
		kmsg.AddRaftVoter, kmsg.RemoveRaftVoter, kmsg.UpdateRaftVoter,
	} {
		routes = append(routes, Route{k.Int16(), c.raft})
	}
	for _, k := range Decided {
		routes = append(routes, Route{k.Int16(), c.decide})
	}
	return routes
}

// Decided are the APIs that the active controller decides. Those that clients use reach it through any broker.
var Decided = []kmsg.Key{
	kmsg.CreateTopics, kmsg.DeleteTopics, kmsg.CreatePartitions, kmsg.AlterConfigs,
	kmsg.AlterClientQuotas, kmsg.AlterUserSCRAMCredentials,
	kmsg.BrokerRegistration, kmsg.BrokerHeartbeat, kmsg.ControllerRegistration, kmsg.AllocateProducerIDs, kmsg.AlterPartition,
	kmsg.ElectLeaders, kmsg.UpdateFeatures, kmsg.UnregisterBroker, kmsg.UnregisterController, kmsg.AssignReplicasToDirs,
	kmsg.AlterPartitionAssignments, kmsg.ListPartitionReassignments,
}
