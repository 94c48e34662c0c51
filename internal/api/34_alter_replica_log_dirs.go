package api

// AlterReplicaLogDirs, versions 1 and 2 (KIP-113): moves replicas of this broker into other log directories. The answer says
// that a move began, not that it is over: DescribeLogDirs tells how far it is.

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/rpc"
)

// AlterReplicaLogDirs answers API 34.
func (b *Broker) AlterReplicaLogDirs(r *rpc.Request) *rpc.Pending {
	var req kmsg.AlterReplicaLogDirsRequest
	if !decode(r, &req) {
		return nil
	}
	// Of a partition that is named twice the last directory counts, as in Kafka.
	var order []kafka.TopicPartition
	to := make(map[kafka.TopicPartition]string)
	for _, d := range req.Dirs {
		for _, t := range d.Topics {
			for _, p := range t.Partitions {
				tp := kafka.TopicPartition{Topic: t.Topic, Partition: p}
				if _, twice := to[tp]; !twice {
					order = append(order, tp)
				}
				to[tp] = d.Dir
			}
		}
	}
	resp := kmsg.NewPtrAlterReplicaLogDirsResponse()
	topics := make(map[string]int)
	for _, tp := range order {
		n, ok := topics[tp.Topic]
		if !ok {
			n = len(resp.Topics)
			topics[tp.Topic] = n
			rt := kmsg.NewAlterReplicaLogDirsResponseTopic()
			rt.Topic = tp.Topic
			resp.Topics = append(resp.Topics, rt)
		}
		rp := kmsg.NewAlterReplicaLogDirsResponseTopicPartition()
		rp.Partition, rp.ErrorCode = tp.Partition, kerr.Code(b.Replicas().AlterDir(r.Received, tp, to[tp]))
		resp.Topics[n].Partitions = append(resp.Topics[n].Partitions, rp)
	}
	respond(r, resp)
	return nil
}
