package peer

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// NewTopic is a topic as CreateTopics asks for it. configs are KEY=VALUE, or KEY for a null.
func NewTopic(name string, partitions int32, replicas int16, configs ...string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, replicas
	for _, c := range configs {
		k, v, ok := strings.Cut(c, "=")
		tc := kmsg.NewCreateTopicsRequestTopicConfig()
		tc.Name = k
		if ok {
			tc.Value = &v
		}
		t.Configs = append(t.Configs, tc)
	}
	return t
}

// CreateTopics is a request for topics, with half a minute for it.
func CreateTopics(topics ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsRequest {
	q := kmsg.NewPtrCreateTopicsRequest()
	q.TimeoutMillis, q.Topics = 30_000, topics
	return q
}
