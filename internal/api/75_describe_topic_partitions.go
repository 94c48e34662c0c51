package api

// DescribeTopicPartitions, version 0 (KIP-966): pages of partitions with their eligible leader replicas.

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/rpc"
)

// DescribeTopicPartitions answers API 75.
func (b *Broker) DescribeTopicPartitions(r *rpc.Request) *rpc.Pending {
	var req kmsg.DescribeTopicPartitionsRequest
	if !decode(r, &req) {
		return nil
	}
	resp := kmsg.NewPtrDescribeTopicPartitionsResponse()
	from, firstPartition := "", int32(0)
	if c := req.Cursor; c != nil {
		from, firstPartition = c.Topic, c.Partition
		named := len(req.Topics) == 0 || slices.ContainsFunc(req.Topics, func(t kmsg.DescribeTopicPartitionsRequestTopic) bool { return t.Topic == from })
		if c.Partition < 0 || !named {
			for i := range req.Topics {
				rt := kmsg.NewDescribeTopicPartitionsResponseTopic()
				rt.Topic, rt.ErrorCode, rt.AuthorizedOperations = &req.Topics[i].Topic, kerr.InvalidRequest.Code, noOperations
				resp.Topics = append(resp.Topics, rt)
			}
			respond(r, resp)
			return nil
		}
	}
	image := b.Image()
	all := len(req.Topics) == 0
	var names []string
	if all {
		for t := range image.TopicsFrom(from) {
			names = append(names, t.Name)
		}
	} else {
		for _, t := range req.Topics {
			if t.Topic >= from {
				names = append(names, t.Topic)
			}
		}
		slices.Sort(names)
		names = slices.Compact(names)
	}
	left := int(max(1, min(int32(b.Limits.MaxRequestPartitionSize), req.ResponsePartitionLimit)))
	cursor := func(topic string, partition int32) {
		next := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
		next.Topic, next.Partition = topic, partition
		resp.NextCursor = &next
	}
	for i, name := range names {
		t := image.Topic(name)
		rt := kmsg.NewDescribeTopicPartitionsResponseTopic()
		rt.Topic, rt.IsInternal, rt.AuthorizedOperations = &names[i], kafka.IsInternalTopic(name), topicOperations
		if t == nil {
			if all {
				continue
			}
			rt.ErrorCode = kerr.UnknownTopicOrPartition.Code
			if kafka.CheckTopicName(name) != "" {
				rt.ErrorCode = kerr.InvalidTopicException.Code
			}
			resp.Topics = append(resp.Topics, rt)
			continue
		}
		rt.TopicID = t.ID
		start := int32(0)
		if name == from {
			start = firstPartition
		}
		end := min(int32(t.Len()), start+int32(left))
		for id := start; id < end; id++ {
			if p, ok := t.Partition(id); ok {
				rt.Partitions = append(rt.Partitions, describePartition(image, r.Conn.Listener, id, &p))
			}
		}
		resp.Topics = append(resp.Topics, rt)
		left -= len(rt.Partitions)
		if end < int32(t.Len()) {
			cursor(name, end)
			break
		}
		if left <= 0 {
			if i+1 < len(names) {
				cursor(names[i+1], 0)
			}
			break
		}
	}
	respond(r, resp)
	return nil
}

func describePartition(image *metadata.Image, listener string, id int32, p *metadata.Partition) kmsg.DescribeTopicPartitionsResponseTopicPartition {
	rp := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
	rp.Partition = id
	rp.LeaderID, _ = leaderFor(image, listener, p, 6) // -1 says enough: Kafka tells no code here
	rp.LeaderEpoch = int32(p.LeaderEpoch)
	rp.Replicas, rp.ISR, rp.OfflineReplicas = int32s(p.Replicas), int32s(p.ISR), offline(image, listener, p)
	rp.EligibleLeaderReplicas, rp.LastKnownELR = int32s(p.ELR), int32s(p.LastKnownELR)
	return rp
}
