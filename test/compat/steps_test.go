package compat

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/test/peer"
)

// unknownID is an id that no topic has.
var unknownID = [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

func ptr[T any](v T) *T { return &v }

// create makes a topic, waits for its leaders, and learns its id.
func (s *scene) create(name string, partitions int32, configs ...string) {
	s.t.Helper()
	a, err := s.conn(false).call(creation(peer.NewTopic(name, partitions, 1, configs...)), 7)
	if err != nil {
		s.t.Fatal(err)
	}
	if c := a.(*kmsg.CreateTopicsResponse).Topics[0]; c.ErrorCode != 0 {
		s.t.Fatalf("create %s: code %d", name, c.ErrorCode)
	}
	s.normalise(a)
	waitForLeaders(s.t, s.conn(false), name)
}

// ensure is create unless the topic is there.
func (s *scene) ensure(name string, partitions int32, configs ...string) {
	s.t.Helper()
	if _, ok := s.ids[name]; !ok {
		s.create(name, partitions, configs...)
	}
}

func placedTopic(name string, replicas ...[]int32) kmsg.CreateTopicsRequestTopic {
	t := peer.NewTopic(name, -1, -1)
	for i, r := range replicas {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(i), r
		t.ReplicaAssignment = append(t.ReplicaAssignment, a)
	}
	return t
}

func creation(topics ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsRequest {
	q := peer.CreateTopics(topics...)
	q.TimeoutMillis = 10000
	return q
}

func creates(name string, f func(v int16) []kmsg.CreateTopicsRequestTopic) step {
	return step{name: name, build: func(_ *scene, v int16) kmsg.Request { return creation(f(v)...) }}
}

func create1(name string, f func(v int16) kmsg.CreateTopicsRequestTopic) step {
	return creates(name, func(v int16) []kmsg.CreateTopicsRequestTopic { return []kmsg.CreateTopicsRequestTopic{f(v)} })
}

func byController(s step) step { s.name, s.controller = s.name+", by the controller", true; return s }

func from(v int16, s step) step { s.from = v; return s }

func until(v int16, s step) step { s.until = v; return s }

func vname(name string, v int16) string { return fmt.Sprintf("%s-v%d", name, v) }

var topicSteps = []step{
	create1("one topic", func(v int16) kmsg.CreateTopicsRequestTopic {
		return peer.NewTopic(vname("made", v), 3, 1, "retention.ms=1000")
	}),
	create1("again", func(v int16) kmsg.CreateTopicsRequestTopic { return peer.NewTopic(vname("made", v), 3, 1) }),
	byController(create1("one topic", func(v int16) kmsg.CreateTopicsRequestTopic { return peer.NewTopic(vname("controller-made", v), 1, 1) })),
	from(4, create1("defaults", func(v int16) kmsg.CreateTopicsRequestTopic { return peer.NewTopic(vname("default", v), -1, -1) })),
	until(4, create1("defaults too early", func(v int16) kmsg.CreateTopicsRequestTopic { return peer.NewTopic(vname("default", v), -1, -1) })),
	{name: "validate only", build: func(_ *scene, v int16) kmsg.Request {
		q := creation(peer.NewTopic("validated", 2, 1, "cleanup.policy=compact"), peer.NewTopic("validated2", 2, 3))
		q.ValidateOnly = true
		return q
	}},
	create1("placed", func(v int16) kmsg.CreateTopicsRequestTopic {
		return placedTopic(vname("placed", v), []int32{1}, []int32{1})
	}),
	creates("badly placed", func(v int16) []kmsg.CreateTopicsRequestTopic {
		both := placedTopic("both", []int32{1})
		both.NumPartitions = 1
		gap := placedTopic("gap", []int32{1}, []int32{1})
		gap.ReplicaAssignment[1].Partition = 5
		return []kmsg.CreateTopicsRequestTopic{placedTopic("unknown-broker", []int32{9}), placedTopic("twice", []int32{1, 1}), placedTopic("no-replicas", []int32{}),
			placedTopic("unequal", []int32{1}, []int32{1, 2}), both, gap}
	}),
	creates("bad names", func(int16) []kmsg.CreateTopicsRequestTopic {
		var out []kmsg.CreateTopicsRequestTopic
		for _, n := range []string{"", ".", "..", "a/b", "ä", "a b", strings.Repeat("x", 249), strings.Repeat("x", 250), "__cluster_metadata"} {
			out = append(out, peer.NewTopic(n, 0, 1)) // no partitions, so that the right name is refused too
		}
		return out
	}),
	byController(creates("the metadata topic", func(int16) []kmsg.CreateTopicsRequestTopic {
		return []kmsg.CreateTopicsRequestTopic{peer.NewTopic("__cluster_metadata", 1, 1), peer.NewTopic("a b", 1, 1)}
	})),
	creates("bad numbers", func(int16) []kmsg.CreateTopicsRequestTopic {
		return []kmsg.CreateTopicsRequestTopic{peer.NewTopic("n0", 0, 1), peer.NewTopic("n1", -2, 1), peer.NewTopic("n2", 1, 0), peer.NewTopic("n3", 1, -2), peer.NewTopic("n4", 1, 2), peer.NewTopic("n5", 1, 32767)}
	}),
	creates("too many partitions", func(int16) []kmsg.CreateTopicsRequestTopic {
		return []kmsg.CreateTopicsRequestTopic{peer.NewTopic("lots", 20000, 1)}
	}),
	creates("bad configs", func(int16) []kmsg.CreateTopicsRequestTopic {
		var out []kmsg.CreateTopicsRequestTopic
		for i, c := range []string{"nonsense=1", "retention.ms=x", "retention.ms=", "retention.ms", "segment.bytes=0", "cleanup.policy=burn", "min.insync.replicas=0", "compression.type=brotli",
			"message.timestamp.type=Never", "min.cleanable.dirty.ratio=2", "unclean.leader.election.enable=maybe", "compression.gzip.level=77", "segment.ms=0", "max.message.bytes=-1",
			"min.compaction.lag.ms=9", "local.retention.ms=5", "remote.storage.enable=true", "leader.replication.throttled.replicas=x"} {
			out = append(out, peer.NewTopic(fmt.Sprintf("config%02d", i), 0, 1, c))
			out = append(out, peer.NewTopic(fmt.Sprintf("conf%02d", i), 1, 2, c))
		}
		return out
	}),
	{name: "bad configs, validate only", build: func(_ *scene, v int16) kmsg.Request {
		var out []kmsg.CreateTopicsRequestTopic
		for i, c := range []string{"nonsense=1", "retention.ms=x", "retention.ms=", "retention.ms", "segment.bytes=0", "cleanup.policy=burn", "cleanup.policy=delete,compact", "min.insync.replicas=0",
			"compression.type=brotli", "message.timestamp.type=Never", "min.cleanable.dirty.ratio=2", "unclean.leader.election.enable=maybe", "compression.gzip.level=77", "segment.ms=0",
			"max.message.bytes=-1", "local.retention.ms=5", "remote.storage.enable=true", "leader.replication.throttled.replicas=x", "leader.replication.throttled.replicas=*", "cleanup.policy="} {
			out = append(out, peer.NewTopic(fmt.Sprintf("config%02d", i), 1, 1, c))
		}
		out = append(out, peer.NewTopic("lags", 1, 1, "min.compaction.lag.ms=9", "max.compaction.lag.ms=5"), peer.NewTopic("double", 1, 1, "retention.ms=1", "retention.ms=2"))
		q := creation(out...)
		q.ValidateOnly = true
		return q
	}},
	creates("the same twice", func(v int16) []kmsg.CreateTopicsRequestTopic {
		return []kmsg.CreateTopicsRequestTopic{peer.NewTopic("twin", 1, 1), peer.NewTopic("twin", 2, 1), peer.NewTopic(vname("single", v), 1, 1)}
	}),
	creates("names that collide", func(v int16) []kmsg.CreateTopicsRequestTopic {
		return []kmsg.CreateTopicsRequestTopic{peer.NewTopic(vname("col.lide", v), 1, 1), peer.NewTopic(vname("col_lide", v), 1, 1)}
	}),
	create1("a name that collides", func(v int16) kmsg.CreateTopicsRequestTopic { return peer.NewTopic(vname("col_lide", v), 1, 1) }),

	more("more partitions", func(v int16) []kmsg.CreatePartitionsRequestTopic {
		return []kmsg.CreatePartitionsRequestTopic{{Topic: "made-v3", Count: 4 + int32(v)}}
	}),
	byController(more("more partitions", func(v int16) []kmsg.CreatePartitionsRequestTopic {
		return []kmsg.CreatePartitionsRequestTopic{{Topic: "made-v4", Count: 4 + int32(v)}}
	})),
	more("partitions, badly", func(int16) []kmsg.CreatePartitionsRequestTopic {
		at := func(b ...int32) []kmsg.CreatePartitionsRequestTopicAssignment {
			return []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: b}}
		}
		return []kmsg.CreatePartitionsRequestTopic{{Topic: "made-v2", Count: 3}, {Topic: "made-v5", Count: 1}, {Topic: "made-v6", Count: 0}, {Topic: "made-v7", Count: -1}, {Topic: "nothing", Count: 9},
			{Topic: "default-v4", Count: 20001}, {Topic: "default-v5", Count: 3, Assignment: at(7)}, {Topic: "default-v6", Count: 4, Assignment: at(1)}, {Topic: "default-v7", Count: 3, Assignment: at(1, 1)},
			{Topic: "placed-v2", Count: 3, Assignment: at()}, {Topic: "placed-v3", Count: 5}, {Topic: "placed-v3", Count: 6}}
	}),
	{name: "partitions, validate only", build: func(_ *scene, v int16) kmsg.Request {
		q := kmsg.NewPtrCreatePartitionsRequest()
		q.ValidateOnly, q.TimeoutMillis = true, 10000
		q.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "placed-v4", Count: 10}, {Topic: "placed-v5", Count: 3, Assignment: []kmsg.CreatePartitionsRequestTopicAssignment{{Replicas: []int32{1}}}}}
		return q
	}},

	{name: "delete", build: func(s *scene, v int16) kmsg.Request {
		return deletion(s, v, "controller-made-v"+fmt.Sprint(v+1), "nothing")
	}},
	{name: "delete the same twice", build: func(s *scene, v int16) kmsg.Request { return deletion(s, v, "made-v2", "made-v2") }},
	{name: "delete by id", from: 6, build: func(s *scene, v int16) kmsg.Request {
		q := kmsg.NewPtrDeleteTopicsRequest()
		q.TimeoutMillis = 10000
		q.Topics = []kmsg.DeleteTopicsRequestTopic{{TopicID: s.ids["single-v7"]}, {TopicID: unknownID}, {}, {Topic: ptr("made-v3"), TopicID: s.ids["made-v3"]}}
		return q
	}},
}

func more(name string, f func(v int16) []kmsg.CreatePartitionsRequestTopic) step {
	return step{name: name, build: func(_ *scene, v int16) kmsg.Request {
		q := kmsg.NewPtrCreatePartitionsRequest()
		q.TimeoutMillis, q.Topics = 10000, f(v)
		return q
	}}
}

func deletion(_ *scene, v int16, names ...string) kmsg.Request {
	q := kmsg.NewPtrDeleteTopicsRequest()
	q.TimeoutMillis = 10000
	for _, n := range names {
		if v < 6 {
			q.TopicNames = append(q.TopicNames, n)
		} else {
			q.Topics = append(q.Topics, kmsg.DeleteTopicsRequestTopic{Topic: ptr(n)})
		}
	}
	return q
}

const (
	topicType, brokerType, loggerType, metricsType, groupType = 2, 4, 8, 16, 32
)

func describe(name string, resources ...kmsg.DescribeConfigsRequestResource) step {
	return step{name: name, build: func(_ *scene, v int16) kmsg.Request {
		q := kmsg.NewPtrDescribeConfigsRequest()
		q.IncludeSynonyms, q.IncludeDocumentation, q.Resources = v != 1, v == 3, resources
		return q
	}}
}

func resource(kind kmsg.ConfigResourceType, name string, keys ...string) kmsg.DescribeConfigsRequestResource {
	return kmsg.DescribeConfigsRequestResource{ResourceType: kind, ResourceName: name, ConfigNames: keys}
}

type change struct {
	kind kmsg.ConfigResourceType
	name string
	ops  []string // "key=value" set, "-key" delete, "key+=value" append, "key-=value" subtract, "key=" empty, "key" set to null
}

func incremental(name string, validate bool, changes ...change) step {
	return step{name: name, build: func(*scene, int16) kmsg.Request {
		q := kmsg.NewPtrIncrementalAlterConfigsRequest()
		q.ValidateOnly = validate
		for _, c := range changes {
			r := kmsg.NewIncrementalAlterConfigsRequestResource()
			r.ResourceType, r.ResourceName = c.kind, c.name
			for _, op := range c.ops {
				x := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
				k, v, ok := strings.Cut(op, "=")
				if ok {
					x.Value = &v
				}
				switch {
				case strings.HasPrefix(k, "-"):
					k, x.Op = k[1:], kmsg.IncrementalAlterConfigOpDelete
				case strings.HasSuffix(k, "+"):
					k, x.Op = k[:len(k)-1], kmsg.IncrementalAlterConfigOpAppend
				case strings.HasSuffix(k, "-"):
					k, x.Op = k[:len(k)-1], kmsg.IncrementalAlterConfigOpSubtract
				}
				x.Name = k
				r.Configs = append(r.Configs, x)
			}
			q.Resources = append(q.Resources, r)
		}
		return q
	}}
}

func alter(name string, validate bool, changes ...change) step {
	return step{name: name, build: func(*scene, int16) kmsg.Request {
		q := kmsg.NewPtrAlterConfigsRequest()
		q.ValidateOnly = validate
		for _, c := range changes {
			r := kmsg.NewAlterConfigsRequestResource()
			r.ResourceType, r.ResourceName = c.kind, c.name
			for _, op := range c.ops {
				k, v, ok := strings.Cut(op, "=")
				x := kmsg.NewAlterConfigsRequestResourceConfig()
				x.Name = k
				if ok {
					x.Value = &v
				}
				r.Configs = append(r.Configs, x)
			}
			q.Resources = append(q.Resources, r)
		}
		return q
	}}
}

var configSteps = []step{
	describe("topic", resource(topicType, "made-v4")),
	describe("some keys", resource(topicType, "made-v4", "retention.ms", "cleanup.policy", "nonsense")),
	describe("no keys", kmsg.DescribeConfigsRequestResource{ResourceType: topicType, ResourceName: "made-v4", ConfigNames: []string{}}),
	describe("what is not there", resource(topicType, "nothing"), resource(topicType, "a/b"), resource(brokerType, "2"), resource(brokerType, "x"), resource(77, "y"), resource(0, "z"), resource(loggerType, "2")),
	describe("what is not there, of types that are", resource(topicType, "nothing"), resource(topicType, "a/b"), resource(brokerType, "2"), resource(brokerType, "x"), resource(loggerType, "2"), resource(loggerType, ""),
		resource(metricsType, ""), resource(groupType, "")),
	describe("broker", resource(brokerType, "1")),
	describe("cluster", resource(brokerType, "")),
	incremental("set and delete", false, change{topicType, "made-v4", []string{"retention.bytes=100", "-retention.ms", "cleanup.policy+=compact"}}),
	describe("topic after set", resource(topicType, "made-v4", "retention.bytes", "retention.ms", "cleanup.policy")),
	incremental("append and subtract", false, change{topicType, "made-v4", []string{"cleanup.policy-=delete"}}),
	describe("topic after subtract", resource(topicType, "made-v4", "cleanup.policy")),
	incremental("wrong", false,
		change{topicType, "nothing", []string{"retention.ms=1"}}, change{topicType, "made-v5", []string{"nonsense=1"}}, change{topicType, "made-v6", []string{"retention.ms=x"}},
		change{topicType, "made-v7", []string{"retention.ms+=1"}}, change{topicType, "default-v4", []string{"retention.ms=1", "retention.ms=2"}}, change{topicType, "default-v5", []string{"retention.ms"}},
		change{topicType, "", []string{"retention.ms=1"}}, change{brokerType, "7", []string{"message.max.bytes=1"}}, change{brokerType, "x", []string{"message.max.bytes=1"}},
		change{brokerType, "1", []string{"node.id=3"}}, change{99, "1", []string{"a=b"}}, change{topicType, "default-v6", []string{"min.insync.replicas=0"}}, change{topicType, "default-v7", []string{"cleanup.policy=compact,burn"}}),
	incremental("the same resource twice", false, change{topicType, "made-v5", []string{"retention.ms=1"}}, change{topicType, "made-v5", []string{"retention.bytes=1"}}),
	incremental("validate only", true, change{topicType, "made-v5", []string{"retention.ms=77"}}, change{topicType, "made-v6", []string{"segment.bytes=1"}}),
	describe("nothing changed", resource(topicType, "made-v5", "retention.ms"), resource(topicType, "made-v6", "segment.bytes")),
	incremental("a broker", false, change{brokerType, "1", []string{"log.cleaner.threads=2", "log.retention.ms=5000000"}}),
	incremental("the cluster", false, change{brokerType, "", []string{"message.max.bytes=2000000"}}),
	incremental("a broker, wrong", false, change{brokerType, "1", []string{"log.cleaner.threads=0"}}),
	incremental("a broker, unknown key", false, change{brokerType, "1", []string{"what.is.this=2"}}),
	incremental("the cluster, per-broker key", false, change{brokerType, "", []string{"listeners=PLAINTEXT://:1"}}),
	describe("broker after", resource(brokerType, "1", "log.cleaner.threads", "log.retention.ms", "message.max.bytes", "what.is.this")),
	describe("topic with the broker's", resource(topicType, "made-v6", "retention.ms", "max.message.bytes")),
	byController(incremental("a topic", false, change{topicType, "made-v6", []string{"retention.bytes=7"}})),
	incremental("back", false, change{brokerType, "1", []string{"-log.cleaner.threads", "-log.retention.ms", "-what.is.this"}}, change{brokerType, "", []string{"-message.max.bytes"}}),
	alter("replace all", false, change{topicType, "made-v4", []string{"retention.ms=9"}}),
	describe("topic after replace", resource(topicType, "made-v4", "retention.bytes", "retention.ms", "cleanup.policy")),
	alter("wrong", false, change{topicType, "nothing", []string{"retention.ms=1"}}, change{topicType, "made-v5", []string{"nonsense=1"}}, change{topicType, "made-v6", []string{"retention.ms=x"}},
		change{brokerType, "9", []string{"message.max.bytes=1"}}, change{topicType, "made-v7", []string{"retention.ms"}}),
	alter("validate only", true, change{topicType, "made-v5", []string{"retention.ms=77"}}),
}

// batch is a v2 batch of n records at fixed times.
func batch(n int, pid int64, epoch int16, seq int32, value string) []byte {
	var body []byte
	for i := range n {
		r := []byte{0}
		r = binary.AppendVarint(r, int64(i)*1000)
		r = binary.AppendVarint(r, int64(i))
		r = binary.AppendVarint(r, 1)
		r = append(r, 'k')
		r = binary.AppendVarint(r, int64(len(value)))
		r = append(r, value...)
		r = append(r, 0)
		body = append(binary.AppendVarint(body, int64(len(r))), r...)
	}
	be := binary.BigEndian
	b := append(make([]byte, 61), body...)
	be.PutUint32(b[8:], uint32(len(b)-12))
	be.PutUint32(b[12:], 0xffffffff)
	b[16] = 2
	be.PutUint32(b[23:], uint32(n-1))
	be.PutUint64(b[27:], uint64(base))
	be.PutUint64(b[35:], uint64(base+int64(n-1)*1000))
	be.PutUint64(b[43:], uint64(pid))
	be.PutUint16(b[51:], uint16(epoch))
	be.PutUint32(b[53:], uint32(seq))
	be.PutUint32(b[57:], uint32(n))
	be.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}
