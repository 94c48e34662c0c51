package compat

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

func metadata(name string, from int16, f func(s *scene, v int16, q *kmsg.MetadataRequest)) step {
	return data(step{name: name, from: from, build: func(s *scene, v int16) kmsg.Request {
		q := kmsg.NewPtrMetadataRequest()
		q.AllowAutoTopicCreation = false
		f(s, v, q)
		return q
	}})
}

func named(topics ...string) []kmsg.MetadataRequestTopic {
	out := []kmsg.MetadataRequestTopic{}
	for _, t := range topics {
		out = append(out, kmsg.MetadataRequestTopic{Topic: ptr(t)})
	}
	return out
}

func simple(name string, controller bool, build func(s *scene, v int16) kmsg.Request) step {
	return step{name: name, controller: controller, build: build}
}

func versions(name string, from int16, f func(q *kmsg.ApiVersionsRequest)) step {
	return step{name: name, from: from, build: func(*scene, int16) kmsg.Request {
		q := kmsg.NewPtrApiVersionsRequest()
		q.ClientSoftwareName, q.ClientSoftwareVersion = "compat", "1.0"
		f(q)
		return q
	}}
}

func quorumOf(topic string, partitions ...int32) func(*scene, int16) kmsg.Request {
	return func(*scene, int16) kmsg.Request {
		q := kmsg.NewPtrDescribeQuorumRequest()
		t := kmsg.NewDescribeQuorumRequestTopic()
		t.Topic = topic
		for _, p := range partitions {
			x := kmsg.NewDescribeQuorumRequestTopicPartition()
			x.Partition = p
			t.Partitions = append(t.Partitions, x)
		}
		q.Topics = append(q.Topics, t)
		return q
	}
}

func cluster(f func(q *kmsg.DescribeClusterRequest)) func(*scene, int16) kmsg.Request {
	return func(*scene, int16) kmsg.Request {
		q := kmsg.NewPtrDescribeClusterRequest()
		f(q)
		return q
	}
}

func partitionsOf(f func(q *kmsg.DescribeTopicPartitionsRequest), topics ...string) func(*scene, int16) kmsg.Request {
	return func(*scene, int16) kmsg.Request {
		q := kmsg.NewPtrDescribeTopicPartitionsRequest()
		q.ResponsePartitionLimit = 2000
		for _, t := range topics {
			q.Topics = append(q.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: t})
		}
		f(q)
		return q
	}
}

func registration(f func(q *kmsg.BrokerRegistrationRequest)) func(*scene, int16) kmsg.Request {
	return func(*scene, int16) kmsg.Request {
		q := kmsg.NewPtrBrokerRegistrationRequest()
		q.BrokerID, q.ClusterID, q.IncarnationID, q.PreviousBrokerEpoch = 1, "AAAAAAAAAAAAAAAAAAAAAQ", unknownID, -1
		l := kmsg.NewBrokerRegistrationRequestListener()
		l.Name, l.Host, l.Port = "PLAINTEXT", "127.0.0.1", 1
		q.Listeners = append(q.Listeners, l)
		q.LogDirs = [][16]byte{unknownID}
		x := kmsg.NewBrokerRegistrationRequestFeature()
		x.Name, x.MinSupportedVersion, x.MaxSupportedVersion = "metadata.version", 7, 33
		q.Features = append(q.Features, x)
		f(q)
		return q
	}
}

func heartbeat(id int32, epoch int64) func(*scene, int16) kmsg.Request {
	return func(*scene, int16) kmsg.Request {
		q := kmsg.NewPtrBrokerHeartbeatRequest()
		q.BrokerID, q.BrokerEpoch = id, epoch
		return q
	}
}

var clusterSteps = []step{
	metadata("all topics", 0, func(_ *scene, v int16, q *kmsg.MetadataRequest) {
		if v == 0 {
			q.Topics = []kmsg.MetadataRequestTopic{} // null is for later versions
		}
	}),
	metadata("no topics", 1, func(_ *scene, _ int16, q *kmsg.MetadataRequest) { q.Topics = named() }),
	metadata("some topics", 0, func(_ *scene, _ int16, q *kmsg.MetadataRequest) { q.Topics = named("data", "placed-v2") }),
	metadata("topics not there", 4, func(_ *scene, _ int16, q *kmsg.MetadataRequest) { q.Topics = named("nothing", "data", "a/b", "") }),
	metadata("the same topic twice", 4, func(_ *scene, _ int16, q *kmsg.MetadataRequest) { q.Topics = named("data", "data") }),
	metadata("by id", 10, func(s *scene, _ int16, q *kmsg.MetadataRequest) {
		q.Topics = []kmsg.MetadataRequestTopic{{TopicID: s.ids["data"]}, {TopicID: unknownID}}
	}),
	metadata("by nothing", 10, func(_ *scene, _ int16, q *kmsg.MetadataRequest) { q.Topics = []kmsg.MetadataRequestTopic{{}} }),
	metadata("with operations", 8, func(_ *scene, _ int16, q *kmsg.MetadataRequest) {
		q.Topics = named("data")
		q.IncludeClusterAuthorizedOperations, q.IncludeTopicAuthorizedOperations = true, true
	}),
	metadata("make a topic by asking", 4, func(_ *scene, v int16, q *kmsg.MetadataRequest) {
		q.Topics, q.AllowAutoTopicCreation = named(vname("asked", v)), true
	}),
	metadata("make a badly named topic by asking", 4, func(_ *scene, v int16, q *kmsg.MetadataRequest) {
		q.Topics, q.AllowAutoTopicCreation = named("a b", "data.v", "data_v"), true
	}),

	versions("versions", 0, func(*kmsg.ApiVersionsRequest) {}),
	versions("versions, a client without a name", 3, func(q *kmsg.ApiVersionsRequest) { q.ClientSoftwareName = "" }),
	versions("versions, a client with a bad name", 3, func(q *kmsg.ApiVersionsRequest) { q.ClientSoftwareName = "no spaces" }),
	versions("versions, a client with a bad version", 3, func(q *kmsg.ApiVersionsRequest) { q.ClientSoftwareVersion = "-1-" }),
	versions("versions, the right cluster", 5, func(q *kmsg.ApiVersionsRequest) { q.ClusterID, q.NodeID = ptr("AAAAAAAAAAAAAAAAAAAAAQ"), 1 }),
	versions("versions, the wrong cluster", 5, func(q *kmsg.ApiVersionsRequest) { q.ClusterID, q.NodeID = ptr("BAAAAAAAAAAAAAAAAAAAAQ"), 1 }),
	versions("versions, the wrong node", 5, func(q *kmsg.ApiVersionsRequest) { q.ClusterID, q.NodeID = ptr("AAAAAAAAAAAAAAAAAAAAAQ"), 5 }),
	byController(versions("versions", 0, func(*kmsg.ApiVersionsRequest) {})),

	simple("cluster", false, cluster(func(*kmsg.DescribeClusterRequest) {})),
	simple("cluster with operations", false, cluster(func(q *kmsg.DescribeClusterRequest) { q.IncludeClusterAuthorizedOperations = true })),
	from(1, simple("cluster, controllers asked of a broker", false, cluster(func(q *kmsg.DescribeClusterRequest) { q.EndpointType = 2 }))),
	from(1, simple("cluster, an endpoint type of no meaning", false, cluster(func(q *kmsg.DescribeClusterRequest) { q.EndpointType = 9 }))),
	from(2, simple("cluster with fenced brokers", false, cluster(func(q *kmsg.DescribeClusterRequest) { q.IncludeFencedBrokers = true }))),
	from(1, simple("cluster, by the controller", true, cluster(func(q *kmsg.DescribeClusterRequest) { q.EndpointType = 2 }))),
	simple("cluster, brokers asked of a controller", true, cluster(func(*kmsg.DescribeClusterRequest) {})),

	simple("quorum", false, quorumOf("__cluster_metadata", 0)),
	simple("quorum, by the controller", true, quorumOf("__cluster_metadata", 0)),
	simple("quorum of another topic", true, quorumOf("data", 0)),
	simple("quorum of another partition", true, quorumOf("__cluster_metadata", 1)),
	simple("quorum of two partitions", true, quorumOf("__cluster_metadata", 0, 1)),

	simple("partitions", false, partitionsOf(func(*kmsg.DescribeTopicPartitionsRequest) {}, "data", "nothing", "placed-v3", "a/b")),
	simple("partitions of all topics", false, partitionsOf(func(*kmsg.DescribeTopicPartitionsRequest) {})),
	simple("partitions, a page", false, partitionsOf(func(q *kmsg.DescribeTopicPartitionsRequest) { q.ResponsePartitionLimit = 3 }, "data", "placed-v3", "small")),
	simple("partitions, the next page", false, partitionsOf(func(q *kmsg.DescribeTopicPartitionsRequest) {
		q.ResponsePartitionLimit = 3
		q.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: "placed-v3", Partition: 1}
	}, "data", "placed-v3", "small")),
	simple("partitions, a bad cursor", false, partitionsOf(func(q *kmsg.DescribeTopicPartitionsRequest) {
		q.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: "placed-v3", Partition: -1}
	}, "data")),

	simple("register in another cluster", true, registration(func(q *kmsg.BrokerRegistrationRequest) { q.ClusterID = "BAAAAAAAAAAAAAAAAAAAAQ" })),
	simple("register as the broker that is there", true, registration(func(*kmsg.BrokerRegistrationRequest) {})),
	simple("register without features", true, registration(func(q *kmsg.BrokerRegistrationRequest) { q.BrokerID, q.Features = 8, nil })),
	simple("register without listeners", true, registration(func(q *kmsg.BrokerRegistrationRequest) { q.BrokerID, q.Listeners = 8, nil })),
	from(2, simple("register without directories", true, registration(func(q *kmsg.BrokerRegistrationRequest) { q.BrokerID, q.LogDirs = 8, nil }))),
	simple("register with old features", true, registration(func(q *kmsg.BrokerRegistrationRequest) { q.BrokerID, q.Features[0].MaxSupportedVersion = 8, 8 })),
	from(1, simple("register as one that migrates", true, registration(func(q *kmsg.BrokerRegistrationRequest) { q.BrokerID, q.IsMigratingZkBroker = 8, true }))),
	simple("heartbeat of the past", true, heartbeat(1, 1)),
	simple("heartbeat of a stranger", true, heartbeat(77, 1)),
	simple("producer ids for a broker of the past", true, func(*scene, int16) kmsg.Request {
		q := kmsg.NewPtrAllocateProducerIDsRequest()
		q.BrokerID, q.BrokerEpoch = 1, 1
		return q
	}),
	simple("producer ids for a stranger", true, func(*scene, int16) kmsg.Request {
		q := kmsg.NewPtrAllocateProducerIDsRequest()
		q.BrokerID, q.BrokerEpoch = 77, 1
		return q
	}),
	simple("an envelope of nothing", true, func(*scene, int16) kmsg.Request { return kmsg.NewPtrEnvelopeRequest() }),
}
