package api

// ListOffsets, versions 1 to 11 (KIP-79, 98 isolation level, 207, 320 epochs, 734 max timestamp, 405 and 1005 tiered, 1023).

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/replica"
	"github.com/highwater/highwater/internal/rpc"
)

// specialSince is the first version that knows a special timestamp.
var specialSince = map[int64]int16{
	replica.LatestTimestamp:        0,
	replica.EarliestTimestamp:      0,
	replica.MaxTimestamp:           7,
	replica.EarliestLocalTimestamp: 8,
	replica.LatestTieredTimestamp:  9,
	replica.EarliestPendingUpload:  11,
}

// debuggingReplica is the replica id of a consumer that sees everything in the log, for debugging.
const debuggingReplica = -2

// ListOffsets answers API 2.
func (b *Broker) ListOffsets(r *rpc.Request) *rpc.Pending {
	var req kmsg.ListOffsetsRequest
	if !decode(r, &req) {
		return nil
	}
	reader := replica.Reader{Follower: -1, Committed: req.IsolationLevel == 1}
	if req.ReplicaID >= 0 || req.ReplicaID == debuggingReplica {
		reader.Follower = kafka.BrokerID(max(req.ReplicaID, 0))
	}
	// Kafka refuses what is asked for twice, for it couldn't tell which answer belongs to which question.
	seen := make(map[kafka.TopicPartition]int)
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			seen[kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition}]++
		}
	}
	resp := kmsg.NewPtrListOffsetsResponse()
	for _, t := range req.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition = p.Partition
			rp.Offset, rp.Timestamp, rp.LeaderEpoch = kafka.NoOffset, -1, int32(kafka.NoLeaderEpoch)
			var err error
			switch tp := (kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition}); {
			case seen[tp] == 0: // told
				continue
			case seen[tp] > 1:
				err, seen[tp] = kerr.InvalidRequest, 0
			default:
				err = b.listOffset(r.Version, reader, t.Topic, &p, &rp)
			}
			if err == kerr.OffsetNotAvailable && r.Version < 5 {
				err = kerr.LeaderNotAvailable
			}
			rp.ErrorCode = kerr.Code(err)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	respond(r, resp)
	return nil
}

func (b *Broker) listOffset(version int16, reader replica.Reader, topic string, p *kmsg.ListOffsetsRequestTopicPartition, out *kmsg.ListOffsetsResponseTopicPartition) error {
	if since, special := specialSince[p.Timestamp]; p.Timestamp < 0 && (!special || version < since) {
		return kerr.UnsupportedVersion
	}
	rep, err := b.Replicas().Lookup(topic, p.Partition)
	if err != nil {
		return err
	}
	t, found, err := rep.Offset(reader, kafka.LeaderEpoch(p.CurrentLeaderEpoch), p.Timestamp)
	if err != nil || !found {
		return err
	}
	out.Offset, out.Timestamp, out.LeaderEpoch = t.Offset, t.Timestamp, int32(t.Epoch)
	return nil
}
