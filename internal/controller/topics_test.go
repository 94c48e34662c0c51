package controller

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
)

// Topics are created, or refused with Kafka's code and words (those of the tools' golden cases among them).
func TestCreateTopics(t *testing.T) {
	k := newCluster(t, bootstrap(33), "num.partitions", "2", "log.retention.hours", "1")
	k.run(1, 2, 3)
	type topic = kmsg.CreateTopicsRequestTopic
	create := func(edit func(*topic)) kmsg.CreateTopicsResponseTopic {
		t.Helper()
		req := kmsg.NewPtrCreateTopicsRequest()
		q := kmsg.NewCreateTopicsRequestTopic()
		q.NumPartitions, q.ReplicationFactor = 1, 1
		edit(&q)
		req.Topics = append(req.Topics, q)
		return k.do(req).(*kmsg.CreateTopicsResponse).Topics[0]
	}
	ok := create(func(q *topic) { q.Topic, q.NumPartitions, q.ReplicationFactor = "a.b", -1, -1 })
	if ok.ErrorCode != 0 || ok.NumPartitions != 2 || ok.ReplicationFactor != 1 || ok.TopicID == [16]byte{} || len(ok.Configs) != 37 {
		t.Fatalf("%+v", ok)
	}
	for _, c := range ok.Configs {
		if c.Name == "retention.ms" && (*c.Value != "3600000" || c.Source != 4) || c.Name == "min.insync.replicas" && c.Source != 3 || c.Name == "segment.bytes" && c.Source != 5 {
			t.Errorf("%s=%s source %d", c.Name, *c.Value, c.Source)
		}
	}
	f := func(want *kerr.Error, text string, edit func(*topic)) {
		t.Helper()
		n := len(k.log)
		r := create(edit)
		if r.ErrorCode != want.Code || r.ErrorMessage == nil || *r.ErrorMessage != text {
			m := "-"
			if r.ErrorMessage != nil {
				m = *r.ErrorMessage
			}
			t.Errorf("%v %q, want %s %q", kerr.ForCode(r.ErrorCode), m, want.Name, text)
		}
		if len(k.log) != n {
			t.Errorf("%s: wrote %v", text, k.kinds(n))
		}
	}
	name := func(n string) func(*topic) { return func(q *topic) { q.Topic = n } }
	f(kerr.TopicAlreadyExists, "Topic 'a.b' already exists.", name("a.b"))
	f(kerr.InvalidTopicException, "Topic 'a_b' collides with existing topic: a.b", name("a_b"))
	f(kerr.InvalidTopicException, "Topic name is invalid: 'sp ace' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'", name("sp ace"))
	f(kerr.InvalidTopicException, "Topic name is invalid: '..' is not allowed", name(".."))
	f(kerr.InvalidTopicException, "Topic name is invalid: the empty string is not allowed", name(""))
	long := strings.Repeat("x", 250)
	f(kerr.InvalidTopicException, "Topic name is invalid: the length of '"+long+"' is longer than the max allowed length 249", name(long))
	f(kerr.InvalidRequest, "Creation of internal topic __cluster_metadata is prohibited.", name("__cluster_metadata"))
	f(kerr.InvalidReplicationFactor, "Unable to replicate the partition 4 time(s): The target replication factor of 4 cannot be reached because only 3 broker(s) are registered or some brokers have all their log directories cordoned.",
		func(q *topic) { q.Topic, q.ReplicationFactor = "x", 4 })
	f(kerr.InvalidReplicationFactor, "Replication factor must be larger than 0, or -1 to use the default value.", func(q *topic) { q.Topic, q.ReplicationFactor = "x", 0 })
	f(kerr.InvalidPartitions, "Number of partitions was set to an invalid non-positive value.", func(q *topic) { q.Topic, q.NumPartitions = "x", 0 })
	f(kerr.PolicyViolation, "Excessively large number of partitions per request.", func(q *topic) { q.Topic, q.NumPartitions = "x", 10001 })
	config := func(n string, v *string) func(*topic) {
		return func(q *topic) { q.Topic, q.Configs = "x", []kmsg.CreateTopicsRequestTopicConfig{{Name: n, Value: v}} }
	}
	f(kerr.InvalidConfig, "Unknown topic config name: no.such.config", config("no.such.config", new("1")))
	f(kerr.InvalidConfig, "Invalid value soon for configuration retention.ms: Not a number of type LONG", config("retention.ms", new("soon")))
	f(kerr.InvalidConfig, "Invalid value 10 for configuration segment.bytes: Value must be at least 1048576", config("segment.bytes", new("10")))
	f(kerr.InvalidConfig, "Invalid value shrink for configuration cleanup.policy: String must be one of: compact, delete", config("cleanup.policy", new("shrink")))
	f(kerr.InvalidConfig, "Null value not supported for topic configs: retention.ms", config("retention.ms", nil))
	f(kerr.InvalidConfig, "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.", config("remote.storage.enable", new("true")))
	assign := func(lists ...[]int32) func(*topic) {
		return func(q *topic) {
			q.Topic, q.NumPartitions, q.ReplicationFactor = "x", -1, -1
			for i, l := range lists {
				q.ReplicaAssignment = append(q.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: int32(i), Replicas: l})
			}
		}
	}
	f(kerr.InvalidReplicaAssignment, "The manual partition assignment includes broker 9, but no such broker is registered.", assign([]int32{1, 9}))
	f(kerr.InvalidReplicaAssignment, "The manual partition assignment includes the broker 1 more than once.", assign([]int32{1, 1}))
	f(kerr.InvalidReplicaAssignment, "The manual partition assignment includes an empty replica list.", assign([]int32{}))
	f(kerr.InvalidReplicaAssignment, "The manual partition assignment includes a partition with 1 replica(s), but this is not consistent with previous partitions, which have 2 replica(s).", assign([]int32{1, 2}, []int32{3}))
	f(kerr.InvalidRequest, "A manual partition assignment was specified, but replication factor was not set to -1.", func(q *topic) { assign([]int32{1})(q); q.ReplicationFactor = 1 })
	f(kerr.InvalidRequest, "A manual partition assignment was specified, but numPartitions was not set to -1.", func(q *topic) { assign([]int32{1})(q); q.NumPartitions = 1 })
	f(kerr.InvalidReplicaAssignment, "partitions should be a consecutive 0-based integer sequence", func(q *topic) { assign([]int32{1}, []int32{1})(q); q.ReplicaAssignment[1].Partition = 2 })
	f(kerr.InvalidReplicaAssignment, "Found multiple manual partition assignments for partition 0", func(q *topic) { assign([]int32{1}, []int32{1})(q); q.ReplicaAssignment[1].Partition = 0 })

	// Kafka counts the fenced among the replicas, but not into the ISR.
	k.heartbeat(3, func(q *kmsg.BrokerHeartbeatRequest) { q.WantFence = true })
	if r := create(assign([]int32{3, 1})); r.ErrorCode != 0 {
		t.Errorf("%v", *r.ErrorMessage)
	}
	k.expect("x", 0, "leader=1 epoch=0 replicas=[3 1] isr=[1]")
	f(kerr.InvalidReplicaAssignment, "All brokers specified in the manual partition assignment for partition 0 are fenced or in controlled shutdown.", func(q *topic) { assign([]int32{3})(q); q.Topic = "y" })

	// Twice in one request, validate only, authorization.
	req := kmsg.NewPtrCreateTopicsRequest()
	for _, n := range []string{"d", "d", "e"} {
		q := kmsg.NewCreateTopicsRequestTopic()
		q.Topic, q.NumPartitions, q.ReplicationFactor = n, 1, 1
		req.Topics = append(req.Topics, q)
	}
	req.ValidateOnly = true
	n := len(k.log)
	r := k.do(req).(*kmsg.CreateTopicsResponse)
	if len(r.Topics) != 2 || *r.Topics[0].ErrorMessage != "Duplicate topic name." || r.Topics[1].ErrorCode != 0 || len(k.log) != n {
		t.Errorf("%+v", r)
	}
	req.ValidateOnly = false
	res := k.c.CreateTopics(Context{Now: k.now, Authorized: func(n string) bool { return n != "e" }}, req)
	if c := res.Response.(*kmsg.CreateTopicsResponse).Topics[1].ErrorCode; c != kerr.TopicAuthorizationFailed.Code {
		t.Error(kerr.ForCode(c))
	}
	res = k.c.CreateTopics(Context{Now: k.now, Describable: func(string) bool { return false }}, req)
	if c := res.Response.(*kmsg.CreateTopicsResponse).Topics[1]; c.ErrorCode != 0 || c.ConfigErrorCode != kerr.TopicAuthorizationFailed.Code || c.NumPartitions != -1 {
		t.Errorf("%+v", c)
	}
	k.checkInvariants(t)
	k.checkReplay()
}

func TestDeleteTopics(t *testing.T) {
	k := newCluster(t, bootstrap(33))
	k.run(1)
	for _, n := range []string{"a", "b.c", "d", "e", "f"} {
		k.create(n, 1, 1)
	}
	id := func(n string) [16]byte { return k.c.Image().Topic(n).ID }
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: new("a")}, {TopicID: id("b.c")}, {Topic: new("none")}, {TopicID: [16]byte{1}}, {},
		{Topic: new("d"), TopicID: id("d")}, {Topic: new("e")}, {Topic: new("e")}, {Topic: new("f")}, {TopicID: id("f")}}
	r := k.do(req).(*kmsg.DeleteTopicsResponse)
	var got []string
	for _, o := range r.Topics {
		n, m := "-", "-"
		if o.Topic != nil {
			n = *o.Topic
		}
		if o.ErrorMessage != nil {
			m = *o.ErrorMessage
		}
		got = append(got, fmt.Sprintf("%s %d %s", n, o.ErrorCode, m))
	}
	want := []string{"a 0 -", "b.c 0 -", "none 3 This server does not host this topic-partition.", "- 100 This server does not host this topic ID.",
		"- 42 Neither topic name nor id were specified.", "d 42 You may not specify both topic name and topic id.", "e 42 Duplicate topic name.",
		"f 42 The provided topic name maps to an ID that was already supplied."}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if k.c.Image().NumTopics() != 3 {
		t.Errorf("%d topics are left", k.c.Image().NumTopics())
	}
	if r := k.create("b_c", 1, 1); r.ErrorCode != 0 {
		t.Errorf("a deleted topic collides: %v", *r.ErrorMessage)
	}
	k.checkReplay()
	off := newCluster(t, bootstrap(33), "delete.topic.enable", "false")
	if c := off.do(req).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode; c != kerr.TopicDeletionDisabled.Code {
		t.Error(kerr.ForCode(c))
	}
}

func TestCreatePartitions(t *testing.T) {
	k := newCluster(t, bootstrap(33))
	k.run(1, 2)
	k.create("a", 2, 2)
	grow := func(topic string, n int32, lists ...[]int32) (int16, string) {
		req := kmsg.NewPtrCreatePartitionsRequest()
		q := kmsg.NewCreatePartitionsRequestTopic()
		q.Topic, q.Count = topic, n
		for _, l := range lists {
			q.Assignment = append(q.Assignment, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: l})
		}
		req.Topics = append(req.Topics, q)
		r := k.do(req).(*kmsg.CreatePartitionsResponse).Topics[0]
		if r.ErrorMessage == nil {
			return r.ErrorCode, ""
		}
		return r.ErrorCode, *r.ErrorMessage
	}
	f := func(want *kerr.Error, text, topic string, n int32, lists ...[]int32) {
		t.Helper()
		if code, msg := grow(topic, n, lists...); code != want.Code || msg != text {
			t.Errorf("%v %q, want %s %q", kerr.ForCode(code), msg, want.Name, text)
		}
	}
	f(kerr.InvalidPartitions, "Topic already has 2 partition(s).", "a", 2)
	f(kerr.InvalidPartitions, "The topic a currently has 2 partition(s); 1 would not be an increase.", "a", 1)
	f(kerr.UnknownTopicOrPartition, "", "b", 1)
	f(kerr.InvalidReplicaAssignment, "Attempted to add 1 additional partition(s), but only 2 assignment(s) were specified.", "a", 3, []int32{1}, []int32{2})
	f(kerr.InvalidReplicaAssignment, "The manual partition assignment includes a partition with 1 replica(s), but this is not consistent with previous partitions, which have 2 replica(s).", "a", 3, []int32{1})
	f(kerr.PolicyViolation, "Excessively large number of additional partitions per request.", "a", 20000)
	if code, msg := grow("a", 3, []int32{2, 1}); code != 0 {
		t.Error(msg)
	}
	if code, msg := grow("a", 6); code != 0 {
		t.Error(msg)
	}
	k.expect("a", 2, "leader=2 epoch=0 replicas=[2 1] isr=[2 1]")
	if n := k.c.Image().Topic("a").Len(); n != 6 {
		t.Errorf("%d partitions", n)
	}
	k.checkInvariants(t)
	k.checkReplay()
}

// One IncrementalAlterConfigs operation on a topic gives Kafka's answer and Kafka's records.
func TestAlterConfigsIsKafkas(t *testing.T) {
	var all struct {
		AlterConfigs []struct {
			Before    map[string]string
			Op, Name  string
			Value     *string
			Error     string
			Message   *string
			Exception string
			Records   []struct {
				Name  string
				Value *string
			}
		}
	}
	fixture.JSON(t, "vectors/misc.json", &all)
	ops := map[string]kmsg.IncrementalAlterConfigOp{"SET": 0, "DELETE": 1, "APPEND": 2, "SUBTRACT": 3}
	for _, c := range all.AlterConfigs {
		// Without ELR: its records beside min.insync.replicas are not part of the vectors.
		k := newCluster(t, bootstrap(33, metadata.FeatureSetting{Name: metadata.EligibleLeaderReplicasVersionFeature, Level: 0}))
		k.run(1)
		k.create("a", 1, 1)
		for n, v := range c.Before {
			if code, msg := setTopicConfig(k, "a", n, v); code != 0 {
				t.Fatal(msg)
			}
		}
		from := len(k.log)
		code, msg := alterOne(k, kmsg.ConfigResourceTypeTopic, "a", c.Name, ops[c.Op], c.Value)
		at := fmt.Sprintf("%s %s %v", c.Op, c.Name, c.Value)
		if c.Exception != "" { // Kafka's own slip; any error will do
			if code == 0 {
				t.Errorf("%s: accepted", at)
			}
			continue
		}
		want := ""
		if c.Message != nil {
			want = *c.Message
		}
		if name := "NONE"; code != 0 {
			name = kerr.ForCode(code).(*kerr.Error).Name
			if name != c.Error || msg != want {
				t.Errorf("%s: %s %q, want %s %q", at, name, msg, c.Error, want)
			}
		} else if c.Error != name {
			t.Errorf("%s: accepted, want %s", at, want)
		}
		if got := len(k.log) - from; got != len(c.Records) {
			t.Errorf("%s: %d records, want %d", at, got, len(c.Records))
			continue
		}
		for i, r := range c.Records {
			e := configRecord(metadata.Resource{Type: metadata.ResourceTopic, Name: "a"}, r.Name, r.Value)
			if got := k.log[from+i]; fmt.Sprint(got.Version, string(got.Message.AppendJSON(nil, 0))) != fmt.Sprint(0, string(e.Message.AppendJSON(nil, 0))) {
				t.Errorf("%s: record %s", at, got.Message.AppendJSON(nil, 0))
			}
		}
	}
}

func TestConfigsOfOtherResources(t *testing.T) {
	k := newCluster(t, bootstrap(33))
	k.run(1, 2)
	k.create("a", 1, 2)
	set, del := kmsg.IncrementalAlterConfigOpSet, kmsg.IncrementalAlterConfigOpDelete
	broker, topic, group, metrics := kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceType(32), kmsg.ConfigResourceType(16)
	f := func(want *kerr.Error, text string, kind kmsg.ConfigResourceType, resource, name string, op kmsg.IncrementalAlterConfigOp, value string) {
		t.Helper()
		v := &value
		if op == del {
			v = nil
		}
		code, msg := alterOne(k, kind, resource, name, op, v)
		if want == nil && code != 0 || want != nil && (code != want.Code || msg != text) {
			t.Errorf("%s %s=%s: %v %q", resource, name, value, kerr.ForCode(code), msg)
		}
	}
	f(nil, "", broker, "2", "log.cleaner.threads", set, "2")
	f(nil, "", broker, "", "message.max.bytes", set, "5000")
	f(nil, "", broker, "2", "no.such.config", set, "1")
	f(kerr.InvalidConfig, "Broker-level min.insync.replicas cannot be altered while ELR is enabled.", broker, "2", "min.insync.replicas", set, "2")
	f(kerr.InvalidConfig, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.", broker, "", "min.insync.replicas", del, "")
	f(kerr.BrokerIDNotRegistered, "No broker with id 7 found.", broker, "7", "log.cleaner.threads", set, "2")
	f(kerr.InvalidRequest, "Unable to parse broker name as a base 10 number.", broker, "x", "log.cleaner.threads", set, "2")
	f(kerr.InvalidRequest, "Invalid negative broker ID.", broker, "-1", "log.cleaner.threads", set, "2")
	f(kerr.UnknownTopicOrPartition, "The topic 'none' does not exist.", topic, "none", "retention.ms", set, "1")
	f(kerr.InvalidRequest, "Default topic resources are not allowed.", topic, "", "retention.ms", set, "1")
	f(nil, "", topic, "a", "min.compaction.lag.ms", set, "10")
	f(kerr.InvalidConfig, "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)", topic, "a", "max.compaction.lag.ms", set, "5")
	f(kerr.InvalidConfig, "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.", group, "g", "consumer.session.timeout.ms", set, "1")
	f(nil, "", group, "g", "consumer.session.timeout.ms", set, "50000")
	f(kerr.InvalidRequest, "Default group resources are not allowed.", group, "", "consumer.session.timeout.ms", set, "50000")
	f(kerr.InvalidRequest, "Unknown client metrics configuration: interval", metrics, "m", "interval", set, "1")
	f(nil, "", metrics, "m", "interval.ms", set, "5000")
	f(kerr.InvalidConfig, "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes.", broker, "", "metric.reporters", set, strings.Repeat("x", 32768))
	f(kerr.InvalidRequest, "Unexpected resource type BROKER_LOGGER.", 8, "1", "x", set, "INFO")

	// min.insync.replicas changes: what was eligible under the old value is forgotten.
	from := len(k.log)
	f(nil, "", topic, "a", "min.insync.replicas", set, "2")
	f(nil, "", broker, "", "min.insync.replicas", set, "2")
	if got := strings.Join(k.kinds(from), " "); got != "ConfigRecord ClearElrRecord ConfigRecord ClearElrRecord" {
		t.Error(got)
	}

	// The old API deletes what it doesn't name.
	req := kmsg.NewPtrAlterConfigsRequest()
	req.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: topic, ResourceName: "a", Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: new("7")}}}}
	if r := k.do(req).(*kmsg.AlterConfigsResponse).Resources[0]; r.ErrorCode != 0 {
		t.Error(*r.ErrorMessage)
	}
	c := k.c.Image().Config(metadata.Resource{Type: metadata.ResourceTopic, Name: "a"})
	if len(c.Entries) != 1 || c.Entries[0].Name != "retention.ms" {
		t.Errorf("%v", c.Entries)
	}
	k.checkReplay()
}
