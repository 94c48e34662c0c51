package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/schema"
)

// What the controller knows of brokers' log directories (KIP-858): which are online and which take no new replicas, by
// registrations and heartbeats; and in which one each replica lies, as its broker tells. A replica in a directory that isn't
// online can't lead or be in an ISR.

// AssignReplicasToDirs is API 73, version 0: a broker tells in which directories its replicas lie.
func (c *Controller) AssignReplicasToDirs(x Context, req *kmsg.AssignReplicasToDirsRequest) Result {
	if !c.Image().MetadataVersion().Facts().DirectoryAssignmentSupported {
		return Result{Response: ErrorResponse(req, kerr.UnsupportedVersion.With("Directory assignment is not supported yet."))}
	}
	if err := c.checkBrokerEpoch(req.BrokerID, req.BrokerEpoch); err != nil {
		return Result{Response: ErrorResponse(req, err)}
	}
	resp := req.ResponseKind().(*kmsg.AssignReplicasToDirsResponse)
	id := kafka.BrokerID(req.BrokerID)
	b := c.registration(id)
	var records []Record
	for _, d := range req.Directories {
		outDir := kmsg.NewAssignReplicasToDirsResponseDirectory()
		outDir.ID = d.ID
		for _, t := range d.Topics {
			outTopic := kmsg.NewAssignReplicasToDirsResponseDirectoryTopic()
			outTopic.TopicID = t.TopicID
			topic := c.Image().TopicByID(t.TopicID)
			for _, q := range t.Partitions {
				out := kmsg.NewAssignReplicasToDirsResponseDirectoryTopicPartition()
				out.Partition = q.Partition
				var err error
				if topic == nil {
					err = kerr.UnknownTopicID
				} else if p, ok := topic.Partition(q.Partition); !ok {
					err = kerr.UnknownTopicOrPartition
				} else if !p.HasReplica(id) {
					err = kerr.NotLeaderOrFollower
				} else {
					records = c.assignDirectory(records, topic, q.Partition, p, b, d.ID)
				}
				out.ErrorCode = kerr.Code(err)
				outTopic.Partitions = append(outTopic.Partitions, out)
			}
			outDir.Topics = append(outDir.Topics, outTopic)
		}
		resp.Directories = append(resp.Directories, outDir)
	}
	return Result{Records: records, Response: resp}
}

// assignDirectory notes where a replica lies; if that directory failed meanwhile the replica leaves the ISR.
func (c *Controller) assignDirectory(records []Record, t *metadata.Topic, id int32, p metadata.Partition, b *metadata.Broker, dir kafka.DirectoryID) []Record {
	ch := c.change(t, id, &p)
	ch.moved, ch.dir = b.ID, dir
	after := p
	if r := ch.build(); r != nil {
		records = append(records, c.version(r))
		var err error
		if after, err = p.Changed(r); err != nil {
			return records
		}
	}
	if b.HasDirectory(dir) {
		return records
	}
	return c.updateLeader(records, leaderUpdate{remove: b.ID, add: kafka.NoBroker, unclean: kafka.NoBroker}, t, id, &after)
}

// directoriesOffline takes a broker's replicas in failed directories out of the ISRs.
func (c *Controller) directoriesOffline(records []Record, b *metadata.Broker, offline [][16]byte) []Record {
	var failed, left []kafka.DirectoryID
	for _, d := range b.LogDirs {
		if slices.Contains(offline, [16]byte(d)) {
			failed = append(failed, d)
		} else {
			left = append(left, d)
		}
	}
	if failed == nil {
		return records
	}
	u := leaderUpdate{remove: b.ID, add: kafka.NoBroker, unclean: kafka.NoBroker}
	records = c.updateLeaders(records, u, func(p *metadata.Partition) bool {
		return p.HasReplica(b.ID) && slices.Contains(failed, p.Directory(b.ID))
	})
	r := schema.NewBrokerRegistrationChangeRecord()
	r.BrokerID, r.BrokerEpoch, r.LogDirs = int32(b.ID), int64(b.Epoch), left
	rec := c.version(r)
	rec.Version = 2
	return append(records, rec)
}

// directoriesCordoned notes which directories of a broker take no new replicas.
func (c *Controller) directoriesCordoned(records []Record, b *metadata.Broker, cordoned [][16]byte) []Record {
	dirs := make([]kafka.DirectoryID, len(cordoned))
	for i, d := range cordoned {
		dirs[i] = d
	}
	slices.SortFunc(dirs, kafka.UUID.Compare)
	if b.CordonedDirs != nil && slices.Equal(dirs, b.CordonedDirs) {
		return records
	}
	r := schema.NewBrokerRegistrationChangeRecord()
	r.BrokerID, r.BrokerEpoch, r.CordonedLogDirs = int32(b.ID), int64(b.Epoch), dirs
	return append(records, c.version(r))
}
