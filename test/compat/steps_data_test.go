package compat

import (
	"encoding/binary"
	"hash/crc32"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// written is what a Produce step sends: one batch for one partition.
type written struct {
	topic     string // "id:" and a name: in versions by id, that topic's id; "?" is an id that no topic has
	partition int32
	records   []byte
}

func writes(name string, acks int16, f func(v int16) []written) step {
	return step{name: name, from: 3, build: func(s *scene, v int16) kmsg.Request {
		q := kmsg.NewPtrProduceRequest()
		q.Acks, q.TimeoutMillis = acks, 5000
		for _, w := range f(v) {
			t := kmsg.NewProduceRequestTopic()
			t.Topic = w.topic
			if v >= 13 {
				s.learnTopic(w.topic)
				t.Topic, t.TopicID = "", s.id(w.topic)
			}
			p := kmsg.NewProduceRequestTopicPartition()
			p.Partition, p.Records = w.partition, w.records
			if i := slices.IndexFunc(q.Topics, func(o kmsg.ProduceRequestTopic) bool { return o.Topic == t.Topic && o.TopicID == t.TopicID }); i >= 0 {
				q.Topics[i].Partitions = append(q.Topics[i].Partitions, p)
				continue
			}
			t.Partitions = append(t.Partitions, p)
			q.Topics = append(q.Topics, t)
		}
		return q
	}}
}

func one(topic string, partition int32, records []byte) func(int16) []written {
	return func(int16) []written { return []written{{topic, partition, records}} }
}

// id is a topic's, or one that no topic has.
func (s *scene) id(topic string) [16]byte {
	if id, ok := s.ids[topic]; ok {
		return id
	}
	return unknownID
}

// learnTopic asks for a topic's id once.
func (s *scene) learnTopic(topic string) {
	if _, ok := s.ids[topic]; ok || topic == "nothing" {
		return
	}
	q := kmsg.NewPtrMetadataRequest()
	q.AllowAutoTopicCreation = false
	q.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
	if a, err := s.conn(false).call(q, 12); err == nil {
		s.normalise(a)
	}
}

// data makes the topic that the data steps write and read.
func data(st step) step {
	build := st.build
	st.build = func(s *scene, v int16) kmsg.Request {
		s.ensure("data", 2)
		s.ensure("small", 1, "max.message.bytes=200")
		s.ensure("compacted", 1, "cleanup.policy=compact")
		return build(s, v)
	}
	return st
}

func corrupt(b []byte) []byte { b[len(b)-1] ^= 1; return b }

// magic changes a batch's magic byte.
func magic(b []byte, m byte) []byte { b[16] = m; return b }

// attributes sets a batch's attributes and its CRC.
func attributes(b []byte, a uint16) []byte {
	binary.BigEndian.PutUint16(b[21:], a)
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// read is one partition of a Fetch step.
type read struct {
	topic     string
	partition int32
	offset    int64
	epoch     int32 // current leader epoch
	max       int32
}

type fetching struct {
	name           string
	from           int16
	maxBytes       int32
	isolation      int8
	session        func(s *scene) (id, epoch int32)
	forget         []int32 // partitions of "data"
	replica        int32
	reads          []read
	minBytes, wait int32
}

func fetches(f fetching) step {
	return data(step{name: f.name, from: f.from, build: func(s *scene, v int16) kmsg.Request {
		q := kmsg.NewPtrFetchRequest()
		q.ReplicaID, q.MaxWaitMillis, q.MinBytes, q.MaxBytes, q.IsolationLevel = -1, f.wait, f.minBytes, 1<<20, f.isolation
		if f.maxBytes != 0 {
			q.MaxBytes = f.maxBytes
		}
		if f.replica != 0 {
			q.ReplicaID = f.replica
			q.ReplicaState.ID, q.ReplicaState.Epoch = f.replica, 1
		}
		q.SessionEpoch = -1
		if f.session != nil {
			q.SessionID, q.SessionEpoch = f.session(s)
		}
		for _, r := range f.reads {
			t := kmsg.NewFetchRequestTopic()
			t.Topic = r.topic
			s.learnTopic(r.topic)
			t.TopicID = s.id(r.topic)
			p := kmsg.NewFetchRequestTopicPartition()
			p.Partition, p.FetchOffset, p.CurrentLeaderEpoch, p.PartitionMaxBytes, p.LastFetchedEpoch = r.partition, r.offset, r.epoch, 1<<20, -1
			if r.max != 0 {
				p.PartitionMaxBytes = r.max
			}
			if i := slices.IndexFunc(q.Topics, func(o kmsg.FetchRequestTopic) bool { return o.Topic == t.Topic }); i >= 0 {
				q.Topics[i].Partitions = append(q.Topics[i].Partitions, p)
				continue
			}
			t.Partitions = append(t.Partitions, p)
			q.Topics = append(q.Topics, t)
		}
		if f.forget != nil {
			t := kmsg.NewFetchRequestForgottenTopic()
			t.Topic, t.TopicID, t.Partitions = "data", s.id("data"), f.forget
			q.ForgottenTopics = append(q.ForgottenTopics, t)
		}
		return q
	}})
}

// opened is the session that the last Fetch opened.
func opened(epoch int32) func(*scene) (int32, int32) {
	return func(s *scene) (int32, int32) { return s.sessionID, epoch }
}

func offsets(name string, f func(q *kmsg.ListOffsetsRequest), parts ...kmsg.ListOffsetsRequestTopicPartition) step {
	return data(step{name: name, build: func(_ *scene, v int16) kmsg.Request {
		q := kmsg.NewPtrListOffsetsRequest()
		q.ReplicaID, q.TimeoutMillis = -1, 1000
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic, t.Partitions = "data", parts
		q.Topics = append(q.Topics, t)
		if f != nil {
			f(q)
		}
		return q
	}})
}

func at(partition int32, timestamp int64) kmsg.ListOffsetsRequestTopicPartition {
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, timestamp
	return p
}

func atEpoch(partition int32, timestamp int64, epoch int32) kmsg.ListOffsetsRequestTopicPartition {
	p := at(partition, timestamp)
	p.CurrentLeaderEpoch = epoch
	return p
}

func epochs(name string, replica int32, ask ...[3]int32) step { // partition, current leader epoch, epoch
	return data(step{name: name, build: func(_ *scene, v int16) kmsg.Request {
		q := kmsg.NewPtrOffsetForLeaderEpochRequest()
		q.ReplicaID = replica
		t := kmsg.NewOffsetForLeaderEpochRequestTopic()
		t.Topic = "data"
		for _, a := range ask {
			p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = a[0], a[1], a[2]
			t.Partitions = append(t.Partitions, p)
		}
		u := kmsg.NewOffsetForLeaderEpochRequestTopic()
		u.Topic, u.Partitions = "nothing", t.Partitions[:1]
		q.Topics = append(q.Topics, t, u)
		return q
	}})
}

func producerID(name string, from int16, f func(q *kmsg.InitProducerIDRequest)) step {
	return step{name: name, from: from, build: func(*scene, int16) kmsg.Request {
		q := kmsg.NewPtrInitProducerIDRequest()
		q.TransactionTimeoutMillis = 60000
		f(q)
		return q
	}}
}

var dataSteps = []step{
	data(writes("write", 1, one("data", 0, batch(3, -1, -1, -1, "hello")))),
	data(writes("write, acks=all", -1, one("data", 1, batch(2, -1, -1, -1, "hello")))),
	data(writes("write, acks=2", 2, one("data", 0, batch(1, -1, -1, -1, "x")))),
	data(writes("write, acks=-2", -2, one("data", 0, batch(1, -1, -1, -1, "x")))),
	data(writes("write several", 1, func(int16) []written {
		return []written{{"data", 0, batch(1, -1, -1, -1, "x")}, {"data", 9, batch(1, -1, -1, -1, "x")}, {"nothing", 0, batch(1, -1, -1, -1, "x")}, {"small", 0, batch(1, -1, -1, -1, "x")}}
	})),
	data(writes("write too much", 1, one("small", 0, batch(10, -1, -1, -1, "0123456789012345678901234567890")))),
	data(writes("write an empty batch", 1, one("data", 0, []byte{}))),
	data(writes("write half a batch", 1, one("data", 0, batch(3, -1, -1, -1, "hello")[:50]))),
	data(writes("write two batches", 1, one("data", 0, append(batch(1, -1, -1, -1, "x"), batch(1, -1, -1, -1, "y")...)))),
	data(writes("write a bad CRC", 1, one("data", 0, corrupt(batch(1, -1, -1, -1, "x"))))),
	data(writes("write magic 1", 1, one("data", 0, magic(batch(1, -1, -1, -1, "x"), 1)))),
	data(writes("write magic 3", 1, one("data", 0, magic(batch(1, -1, -1, -1, "x"), 3)))),
	data(writes("write an unknown codec", 1, one("data", 0, attributes(batch(1, -1, -1, -1, "x"), 7)))),
	data(writes("write what gzip cannot read", 1, one("data", 0, attributes(batch(1, -1, -1, -1, "x"), 1)))),
	data(writes("write a control batch", 1, one("data", 0, attributes(batch(1, -1, -1, -1, "x"), 0x20)))),
	data(writes("write a transactional batch", -1, one("data", 0, attributes(batch(1, 77, 0, 0, "x"), 0x10)))),
	data(writes("write, append time in the attributes", 1, one("data", 0, attributes(batch(1, -1, -1, -1, "x"), 0x08)))),
	data(writes("sequence 0", -1, func(v int16) []written { return []written{{"data", 1, batch(2, 5000+int64(v), 0, 0, "x")}} })),
	data(writes("sequence 0 again", -1, func(v int16) []written { return []written{{"data", 1, batch(2, 5000+int64(v), 0, 0, "x")}} })),
	data(writes("sequence with a gap", -1, func(v int16) []written { return []written{{"data", 1, batch(2, 5000+int64(v), 0, 7, "x")}} })),
	data(writes("sequence 2", -1, func(v int16) []written { return []written{{"data", 1, batch(1, 5000+int64(v), 0, 2, "x")}} })),
	data(writes("an old sequence of another size", -1, func(v int16) []written { return []written{{"data", 1, batch(1, 5000+int64(v), 0, 0, "x")}} })),
	data(writes("a new epoch at sequence 3", -1, func(v int16) []written { return []written{{"data", 1, batch(1, 5000+int64(v), 1, 3, "x")}} })),
	data(writes("a new epoch at sequence 0", -1, func(v int16) []written { return []written{{"data", 1, batch(1, 5000+int64(v), 1, 0, "x")}} })),
	data(writes("an old epoch", -1, func(v int16) []written { return []written{{"data", 1, batch(1, 5000+int64(v), 0, 3, "x")}} })),
	data(writes("an unknown producer in the middle", -1, func(v int16) []written { return []written{{"data", 1, batch(1, 6000+int64(v), 0, 9, "x")}} })),
	data(writes("a producer without sequence", -1, one("data", 1, batch(1, 7000, 0, -1, "x")))),

	fetches(fetching{name: "read from the beginning", reads: []read{{"data", 0, 0, -1, 0}, {"data", 1, 0, -1, 0}}}),
	fetches(fetching{name: "read from the middle of a batch", reads: []read{{"data", 0, 1, -1, 0}}}),
	fetches(fetching{name: "read little", reads: []read{{"data", 0, 0, -1, 1}, {"data", 1, 0, -1, 1}}}),
	fetches(fetching{name: "read little in all", maxBytes: 1, reads: []read{{"data", 0, 0, -1, 0}, {"data", 1, 0, -1, 0}}}),
	fetches(fetching{name: "read a batch's worth", reads: []read{{"data", 0, 0, -1, 200}}}),
	fetches(fetching{name: "read committed", isolation: 1, reads: []read{{"data", 1, 2, -1, 0}}}),
	fetches(fetching{name: "read out of range", reads: []read{{"data", 0, 99999, -1, 0}, {"data", 0, -5, -1, 0}}}),
	fetches(fetching{name: "read what is not there", reads: []read{{"data", 7, 0, -1, 0}, {"nothing", 0, 0, -1, 0}, {"data", 1, 0, -1, 0}}}),
	fetches(fetching{name: "read with epochs", from: 9, reads: []read{{"data", 0, 0, 0, 0}, {"data", 1, 0, 5, 0}}}),
	fetches(fetching{name: "read as a follower that is none", reads: []read{{"data", 0, 0, -1, 0}}, replica: 2}),
	fetches(fetching{name: "read nothing, at once", minBytes: 1, reads: []read{{"compacted", 0, 0, -1, 0}}}),
	fetches(fetching{name: "read nothing, in time", minBytes: 1, wait: 20, reads: []read{{"compacted", 0, 0, -1, 0}}}),
	fetches(fetching{name: "open a session", from: 7, session: func(*scene) (int32, int32) { return 0, 0 }, reads: []read{{"data", 0, 0, -1, 0}, {"data", 1, 0, -1, 0}}}),
	fetches(fetching{name: "go on in an unknown session", from: 7, session: func(*scene) (int32, int32) { return 12345, 3 }, reads: []read{{"data", 0, 0, -1, 0}}}),
	fetches(fetching{name: "a wrong session epoch", from: 7, session: opened(77), reads: []read{{"data", 0, 0, -1, 0}}}),

	offsets("offsets", nil, at(0, -1), at(1, -2)),
	from(7, offsets("offset of the highest timestamp", nil, at(0, -3))),
	from(8, offsets("local start", nil, at(0, -4))),
	from(9, offsets("last tiered", nil, at(0, -5))),
	offsets("offset by time", nil, at(0, base), at(1, base+500)),
	offsets("offset by time, in a batch", nil, at(0, base+1500)),
	offsets("offset by time, past the end", nil, at(0, base*2)),
	offsets("offset by a time before all", nil, at(0, 0)),
	offsets("offsets, a timestamp of no meaning", nil, at(0, -9)),
	offsets("offsets, unknown partition", nil, at(5, -1)),
	offsets("offsets, the same partition twice", nil, at(0, -1), at(0, -2)),
	offsets("offsets, unknown topic", func(q *kmsg.ListOffsetsRequest) { q.Topics[0].Topic = "nothing" }, at(0, -1)),
	offsets("offsets, bad topic name", func(q *kmsg.ListOffsetsRequest) { q.Topics[0].Topic = "a/b" }, at(0, -1)),
	from(4, offsets("offsets, with epochs", nil, atEpoch(0, -1, 0), atEpoch(1, -1, 5))),
	from(2, offsets("offsets, committed", func(q *kmsg.ListOffsetsRequest) { q.IsolationLevel = 1 }, at(0, -1), at(1, -1))),
	offsets("offsets, as a debugger", func(q *kmsg.ListOffsetsRequest) { q.ReplicaID = -2 }, at(0, -1)),
	offsets("offsets, as a replica", func(q *kmsg.ListOffsetsRequest) { q.ReplicaID = 3 }, at(0, -1)),

	epochs("epoch ends", -1, [3]int32{0, -1, 0}, [3]int32{1, 0, 0}),
	epochs("epoch ends, other epochs", -1, [3]int32{0, -1, 5}, [3]int32{1, 7, 0}, [3]int32{9, -1, 0}),
	epochs("epoch ends, no epoch", -1, [3]int32{0, -1, -1}),
	from(3, epochs("epoch ends, as a replica", 2, [3]int32{0, -1, 0})),

	producerID("producer id", 0, func(*kmsg.InitProducerIDRequest) {}),
	producerID("producer id again", 3, func(q *kmsg.InitProducerIDRequest) { q.ProducerID, q.ProducerEpoch = 3, 4 }),
	producerID("producer id without epoch", 3, func(q *kmsg.InitProducerIDRequest) { q.ProducerID, q.ProducerEpoch = 3, -1 }),
	producerID("an empty transactional id", 0, func(q *kmsg.InitProducerIDRequest) { q.TransactionalID = ptr("") }),
}
