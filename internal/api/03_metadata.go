package api

// Metadata, versions 0 to 13 (KIP-4 auto creation, 112 offline replicas, 320 epochs, 430 operations, 516 topic ids, 1102).

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/rpc"
)

// Metadata answers API 3.
func (b *Broker) Metadata(r *rpc.Request) *rpc.Pending {
	var req kmsg.MetadataRequest
	if !decode(r, &req) {
		return nil
	}
	image, listener := b.Image(), r.Conn.Listener
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = r.Version
	resp.ClusterID = &b.ClusterID
	resp.ControllerID = b.anyBroker(image)
	resp.AuthorizedOperations = noOperations
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = clusterOperations
	}
	alive(image, listener, func(n *metadata.Broker, e metadata.Endpoint) {
		rb := kmsg.NewMetadataResponseBroker()
		rb.NodeID, rb.Host, rb.Port, rb.Rack = int32(n.ID), e.Host, int32(e.Port), n.Rack
		resp.Brokers = append(resp.Brokers, rb)
	})

	ops := int32(noOperations)
	if req.IncludeTopicAuthorizedOperations {
		ops = topicOperations
	}
	if req.Topics == nil || r.Version == 0 && len(req.Topics) == 0 {
		for t := range image.Topics() {
			resp.Topics = append(resp.Topics, describeTopic(image, listener, t, ops, r.Version))
		}
		respond(r, resp)
		return nil
	}
	byID := false
	for i := range req.Topics {
		q := &req.Topics[i]
		id := kafka.TopicID(q.TopicID)
		byID = byID || !id.IsZero()
		switch {
		case r.Version < 12 && (q.Topic == nil || !id.IsZero()):
			// The fields are there since version 10 and have a meaning since 12.
			return refuseMetadata(r, &req, kerr.InvalidRequest)
		case q.Topic == nil && id.IsZero():
			return refuseMetadata(r, &req, kerr.UnknownServerError) // as Kafka, which stumbles over it
		}
	}
	var create []string
	seen := make(map[string]bool, len(req.Topics))
	for i := range req.Topics {
		q := &req.Topics[i]
		if byID { // then names don't count
			if id := kafka.TopicID(q.TopicID); !id.IsZero() {
				resp.Topics = append(resp.Topics, b.describeByID(image, listener, id, ops, r.Version))
			}
			continue
		}
		name := *q.Topic
		if seen[name] {
			continue
		}
		seen[name] = true
		if t := image.Topic(name); t != nil {
			resp.Topics = append(resp.Topics, describeTopic(image, listener, t, ops, r.Version))
			continue
		}
		err := kerr.UnknownTopicOrPartition
		switch {
		case kafka.CheckTopicName(name) != "":
			err = kerr.InvalidTopicException
		case req.AllowAutoTopicCreation || r.Version < 4:
			if b.Limits.AutoCreateTopicsEnable {
				create = append(create, name)
			}
		}
		rt := kmsg.NewMetadataResponseTopic()
		rt.Topic, rt.ErrorCode, rt.IsInternal = &name, err.Code, kafka.IsInternalTopic(name)
		rt.AuthorizedOperations = noOperations
		resp.Topics = append(resp.Topics, rt)
	}
	if len(create) > 0 {
		b.AutoCreate(create)
	}
	respond(r, resp)
	return nil
}

// refuseMetadata answers for every topic with err, and tells nothing else.
func refuseMetadata(r *rpc.Request, req *kmsg.MetadataRequest, err *kerr.Error) *rpc.Pending {
	resp := kmsg.NewPtrMetadataResponse()
	resp.ControllerID, resp.AuthorizedOperations, resp.ErrorCode = -1, noOperations, err.Code
	for i := range req.Topics {
		rt := kmsg.NewMetadataResponseTopic()
		rt.Topic, rt.TopicID, rt.ErrorCode, rt.AuthorizedOperations = req.Topics[i].Topic, req.Topics[i].TopicID, err.Code, noOperations
		if rt.Topic == nil {
			rt.Topic = new("")
		}
		resp.Topics = append(resp.Topics, rt)
	}
	respond(r, resp)
	return nil
}

func (b *Broker) describeByID(image *metadata.Image, listener string, id kafka.TopicID, ops int32, version int16) kmsg.MetadataResponseTopic {
	if t := image.TopicByID(id); t != nil {
		return describeTopic(image, listener, t, ops, version)
	}
	rt := kmsg.NewMetadataResponseTopic()
	rt.TopicID, rt.ErrorCode = id, kerr.UnknownTopicID.Code
	rt.AuthorizedOperations = noOperations
	return rt
}

func describeTopic(image *metadata.Image, listener string, t *metadata.Topic, ops int32, version int16) kmsg.MetadataResponseTopic {
	rt := kmsg.NewMetadataResponseTopic()
	rt.Topic, rt.TopicID, rt.IsInternal, rt.AuthorizedOperations = &t.Name, t.ID, kafka.IsInternalTopic(t.Name), ops
	rt.Partitions = make([]kmsg.MetadataResponseTopicPartition, 0, t.Len())
	for id, p := range t.Partitions() {
		rp := kmsg.NewMetadataResponseTopicPartition()
		rp.Partition = id
		rp.Leader, rp.ErrorCode = leaderFor(image, listener, &p, version)
		rp.LeaderEpoch = int32(p.LeaderEpoch)
		rp.Replicas, rp.ISR, rp.OfflineReplicas = int32s(p.Replicas), int32s(p.ISR), offline(image, listener, &p)
		if version == 0 { // tells of no offline replicas: leaves out those that can't be reached, and says so
			rp.Replicas, rp.ISR = reachable(image, listener, rp.Replicas), reachable(image, listener, rp.ISR)
			if rp.ErrorCode == 0 && (len(rp.Replicas) < len(p.Replicas) || len(rp.ISR) < len(p.ISR)) {
				rp.ErrorCode = kerr.ReplicaNotAvailable.Code
			}
		}
		rt.Partitions = append(rt.Partitions, rp)
	}
	return rt
}

// reachable drops the brokers that clients of a listener can't reach.
func reachable(image *metadata.Image, listener string, ids []int32) []int32 {
	return slices.DeleteFunc(ids, func(id int32) bool {
		b := image.Broker(kafka.BrokerID(id))
		if b == nil || b.Fenced {
			return true
		}
		_, ok := b.Endpoint(listener)
		return !ok
	})
}

// leaderFor is the leader as clients of a listener see it, and the error code if they can't.
func leaderFor(image *metadata.Image, listener string, p *metadata.Partition, version int16) (int32, int16) {
	l := image.Broker(p.Leader)
	if l == nil || l.Fenced {
		return -1, kerr.LeaderNotAvailable.Code
	}
	if _, ok := l.Endpoint(listener); !ok {
		if version >= 6 {
			return -1, kerr.ListenerNotFound.Code
		}
		return -1, kerr.LeaderNotAvailable.Code
	}
	return int32(p.Leader), 0
}
