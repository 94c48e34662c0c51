package node

import (
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/api"
	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/kafka"
)

// autoCreate asks for topics that a client's Metadata request named. A second wish for a topic while the first is under way
// finds TOPIC_ALREADY_EXISTS, which is as good.
func (n *Node) autoCreate(names []string) {
	c := n.Config()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = req.MaxVersion()
	req.TimeoutMillis = int32(c.Int("request.timeout.ms"))
	for _, name := range names {
		req.Topics = append(req.Topics, creatableTopic(c, name))
	}
	env := api.Wrap(req, "highwater-auto-create", "User:ANONYMOUS")
	n.ask(env, time.Now().Add(c.Millis("request.timeout.ms")), func(m kmsg.Response, err error) {
		if err != nil {
			n.log.Warn("topics could not be created automatically", "topics", names, "error", err)
		}
	})
}

// creatableTopic is what a topic looks like that is created because somebody named it: an internal one as its coordinator
// needs it, any other with the defaults. As in Kafka the controller's defaults count unless this broker's file has its own.
func creatableTopic(c *config.Broker, name string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, -1, -1
	if _, ok := c.Static("num.partitions"); ok {
		t.NumPartitions = int32(c.Int("num.partitions"))
	}
	if _, ok := c.Static("default.replication.factor"); ok {
		t.ReplicationFactor = int16(c.Int("default.replication.factor"))
	}
	set := func(key, value string) {
		tc := kmsg.NewCreateTopicsRequestTopicConfig()
		tc.Name, tc.Value = key, &value
		t.Configs = append(t.Configs, tc)
	}
	number := func(key, from string) { set(key, strconv.FormatInt(c.Int(from), 10)) }
	switch name {
	case kafka.ConsumerOffsetsTopic:
		t.NumPartitions = int32(c.Int("offsets.topic.num.partitions"))
		t.ReplicationFactor = int16(c.Int("offsets.topic.replication.factor"))
		set("cleanup.policy", "compact")
		set("compression.type", "producer")
		number("segment.bytes", "offsets.topic.segment.bytes")
	case kafka.TransactionStateTopic:
		t.NumPartitions = int32(c.Int("transaction.state.log.num.partitions"))
		t.ReplicationFactor = int16(c.Int("transaction.state.log.replication.factor"))
		set("cleanup.policy", "compact")
		set("compression.type", "uncompressed")
		set("unclean.leader.election.enable", "false")
		set("retention.ms", "-1")
		number("min.insync.replicas", "transaction.state.log.min.isr")
		number("segment.bytes", "transaction.state.log.segment.bytes")
	case kafka.ShareGroupStateTopic:
		t.NumPartitions = int32(c.Int("share.coordinator.state.topic.num.partitions"))
		t.ReplicationFactor = int16(c.Int("share.coordinator.state.topic.replication.factor"))
		set("cleanup.policy", "delete")
		set("compression.type", "producer")
		set("retention.ms", "-1")
		number("min.insync.replicas", "share.coordinator.state.topic.min.isr")
		number("segment.bytes", "share.coordinator.state.topic.segment.bytes")
	}
	return t
}
