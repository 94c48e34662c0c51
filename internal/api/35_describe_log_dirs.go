package api

// DescribeLogDirs, versions 1 to 5 (KIP-113, 827 room on the disk, 1066 cordoned directories): the log directories of this
// broker, and what lies in them.

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/replica"
	"github.com/highwater/highwater/internal/rpc"
)

// DescribeLogDirs answers API 35. Without topics all are described.
func (b *Broker) DescribeLogDirs(r *rpc.Request) *rpc.Pending {
	var req kmsg.DescribeLogDirsRequest
	if !decode(r, &req) {
		return nil
	}
	want := func(kafka.TopicPartition) bool { return true }
	if req.Topics != nil {
		asked := make(map[kafka.TopicPartition]bool)
		for _, t := range req.Topics {
			for _, p := range t.Partitions {
				asked[kafka.TopicPartition{Topic: t.Topic, Partition: p}] = true
			}
		}
		want = func(tp kafka.TopicPartition) bool { return asked[tp] }
	}
	cordons := b.Image().MetadataVersion().Facts().CordonedLogDirsSupported
	resp := kmsg.NewPtrDescribeLogDirsResponse()
	for _, d := range b.Replicas().LogDirs(want) {
		rd := kmsg.NewDescribeLogDirsResponseDir()
		rd.Dir = d.Name
		switch {
		case d.Offline:
			rd.ErrorCode = kerr.KafkaStorageError.Code
		case d.Err != nil:
			rd.ErrorCode = kerr.UnknownServerError.Code
		default:
			rd.TotalBytes, rd.UsableBytes, rd.IsCordoned = d.Total, d.Usable, d.Cordoned && cordons
			describeLogs(&rd, d.Logs)
		}
		resp.Dirs = append(resp.Dirs, rd)
	}
	respond(r, resp)
	return nil
}

// describeLogs tells of the logs in a directory, by topic.
func describeLogs(rd *kmsg.DescribeLogDirsResponseDir, logs []replica.LogInfo) {
	topics := make(map[string]int)
	for _, l := range logs {
		n, ok := topics[l.Partition.Topic]
		if !ok {
			n = len(rd.Topics)
			topics[l.Partition.Topic] = n
			rt := kmsg.NewDescribeLogDirsResponseDirTopic()
			rt.Topic = l.Partition.Topic
			rd.Topics = append(rd.Topics, rt)
		}
		rp := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		rp.Partition, rp.Size, rp.OffsetLag, rp.IsFuture = l.Partition.Partition, l.Size, l.Lag, l.Future
		rd.Topics[n].Partitions = append(rd.Topics[n].Partitions, rp)
	}
}
