package api

// OffsetForLeaderEpoch, versions 2 to 4 (KIP-101, 320).

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/rpc"
)

// OffsetForLeaderEpoch answers API 23.
func (b *Broker) OffsetForLeaderEpoch(r *rpc.Request) *rpc.Pending {
	var req kmsg.OffsetForLeaderEpochRequest
	if !decode(r, &req) {
		return nil
	}
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition, rp.LeaderEpoch, rp.EndOffset = p.Partition, int32(kafka.NoLeaderEpoch), kafka.NoOffset
			rep, err := b.Replicas().Lookup(t.Topic, p.Partition)
			if err == nil {
				var epoch kafka.LeaderEpoch
				if epoch, rp.EndOffset, err = rep.EndOffsetForEpoch(kafka.LeaderEpoch(p.CurrentLeaderEpoch), kafka.LeaderEpoch(p.LeaderEpoch)); err == nil {
					rp.LeaderEpoch = int32(epoch)
				}
			}
			rp.ErrorCode = kerr.Code(err)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	respond(r, resp)
	return nil
}
