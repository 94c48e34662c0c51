package node

import (
	"math"
	"time"

	"github.com/highwater/highwater/internal/codec"
	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/raft"
	"github.com/highwater/highwater/internal/raftloop"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/replica"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/storageloop"
)

// topicConfig is a topic's configuration in force, as its logs and leader need it.
func topicConfig(c *config.Broker, image *metadata.Image, topic string) replica.TopicConfig {
	t := c.Topic(overrides(image, metadata.ResourceTopic, topic))
	log := storage.Config{
		SegmentBytes:                t.SegmentBytes,
		SegmentAge:                  t.Segment,
		SegmentJitter:               t.SegmentJitter,
		SegmentIndexBytes:           t.SegmentIndexBytes,
		IndexIntervalBytes:          t.IndexIntervalBytes,
		RetentionTime:               milliseconds(t.RetentionMs),
		RetentionBytes:              t.RetentionBytes,
		Delete:                      t.Delete,
		Compact:                     t.Compact,
		FileDeleteDelay:             t.FileDeleteDelay,
		FlushMessages:               t.FlushMessages,
		FlushInterval:               t.Flush,
		Preallocate:                 t.Preallocate,
		DeleteRetention:             t.DeleteRetention,
		MinCompactionLag:            t.MinCompactionLag,
		MaxCompactionLag:            t.MaxCompactionLag,
		MinCleanableDirtyRatio:      t.MinCleanableDirtyRatio,
		Compression:                 record.ProducerCodec,
		CompressionLevel:            codec.DefaultLevel,
		TimestampType:               record.CreateTime,
		TimestampBeforeMax:          t.TimestampBeforeMaxMs,
		TimestampAfterMax:           t.TimestampAfterMaxMs,
		MaxMessageBytes:             t.MaxMessageBytes,
		MaxDecompressedMessageBytes: t.MaxDecompressedBytes,
		TrustCompressed:             c.Text("highwater.compression.validation") == "header",
	}
	if t.LogAppendTime {
		log.TimestampType = record.LogAppendTime
	}
	switch t.CompressionType {
	case "uncompressed":
		log.Compression = codec.None
	case "gzip":
		log.Compression, log.CompressionLevel = codec.Gzip, t.GzipLevel
	case "snappy":
		log.Compression = codec.Snappy
	case "lz4":
		log.Compression, log.CompressionLevel = codec.LZ4, t.LZ4Level
	case "zstd":
		log.Compression, log.CompressionLevel = codec.Zstd, t.ZstdLevel
	}
	return replica.TopicConfig{Log: log, MinISR: t.MinInsyncReplicas}
}

// cleanerOptions are compaction's.
func cleanerOptions(c *config.Broker) storageloop.CleanerOptions {
	return storageloop.CleanerOptions{
		Disabled:          !c.Bool("log.cleaner.enable"),
		Threads:           int(c.Int("log.cleaner.threads")),
		DedupeBytes:       c.Int("log.cleaner.dedupe.buffer.size"),
		LoadFactor:        c.Float("log.cleaner.io.buffer.load.factor"),
		Backoff:           max(c.Millis("log.cleaner.backoff.ms"), time.Millisecond),
		MaxBytesPerSecond: c.Float("log.cleaner.io.max.bytes.per.second"),
	}
}

// milliseconds keeps -1 and what is too long for a Duration apart.
func milliseconds(n int64) time.Duration {
	switch {
	case n < 0:
		return -1
	case n > math.MaxInt64/int64(time.Millisecond):
		return storage.Never
	}
	return time.Duration(n) * time.Millisecond
}

func overrides(image *metadata.Image, t metadata.ResourceType, name string) map[string]string {
	m := make(map[string]string)
	if c := image.Config(metadata.Resource{Type: t, Name: name}); c != nil {
		for _, e := range c.Entries {
			m[e.Name] = e.Value
		}
	}
	return m
}

// quorumOptions are the metadata log's.
func quorumOptions(c *config.Broker, id identity) raftloop.Options {
	o := raftloop.Options{
		NodeID:         kafka.BrokerID(c.NodeID),
		DirectoryID:    id.dirs[c.MetadataLogDir],
		ClusterID:      id.clusterID,
		MetadataLogDir: c.MetadataLogDir,
		Controller:     c.IsController,

		QuorumAutoJoinEnable:        c.Bool("controller.quorum.auto.join.enable"),
		QuorumElectionTimeout:       c.Millis("controller.quorum.election.timeout.ms"),
		QuorumElectionBackoffMax:    c.Millis("controller.quorum.election.backoff.max.ms"),
		QuorumFetchTimeout:          c.Millis("controller.quorum.fetch.timeout.ms"),
		QuorumRequestTimeout:        c.Millis("controller.quorum.request.timeout.ms"),
		QuorumRetryBackoff:          c.Millis("controller.quorum.retry.backoff.ms"),
		QuorumAppendLinger:          c.Millis("controller.quorum.append.linger.ms"),
		QuorumFetchMaxBytes:         int32(c.Int("controller.quorum.fetch.max.bytes")),
		QuorumFetchSnapshotMaxBytes: int32(c.Int("controller.quorum.fetch.snapshot.max.bytes")),

		MetadataLogSegmentBytes:                   c.Int("metadata.log.segment.bytes"),
		MetadataLogSegment:                        c.Millis("metadata.log.segment.ms"),
		MetadataMaxRetentionBytes:                 c.Int("metadata.max.retention.bytes"),
		MetadataMaxRetention:                      c.Millis("metadata.max.retention.ms"),
		MetadataLogMaxRecordBytesBetweenSnapshots: c.Int("metadata.log.max.record.bytes.between.snapshots"),
		MetadataLogMaxSnapshotInterval:            c.Millis("metadata.log.max.snapshot.interval.ms"),
	}
	if len(c.ControllerListenerNames) > 0 {
		o.ControllerListener = c.ControllerListenerNames[0]
	}
	for _, e := range c.AdvertisedController {
		o.Endpoints = append(o.Endpoints, raft.Endpoint{Listener: e.Listener, Host: e.Host, Port: uint16(e.Port)})
	}
	var voters []raft.Voter
	for _, v := range c.Voters {
		voters = append(voters, raft.Voter{
			Key:       raft.ReplicaKey{ID: kafka.BrokerID(v.ID)},
			Endpoints: []raft.Endpoint{{Listener: o.ControllerListener, Host: v.Host, Port: uint16(v.Port)}},
		})
	}
	o.QuorumVoters = raft.NewVoterSet(voters...)
	for _, b := range c.Bootstrap {
		o.QuorumBootstrapServers = append(o.QuorumBootstrapServers, raft.Endpoint{Host: b.Host, Port: uint16(b.Port)})
	}
	return o
}

// protocolNumbers are those of security protocols in registrations.
var protocolNumbers = map[string]int16{"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
