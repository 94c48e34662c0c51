package storage

import (
	"math"
	"time"

	"github.com/highwater/highwater/internal/codec"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
)

// Config is the part of a topic's configuration that its logs obey. DefaultConfig has Kafka's defaults. A Log keeps its own
// copy; SetConfig changes it while it runs.
type Config struct {
	SegmentBytes       int32         // segment.bytes
	SegmentAge         time.Duration // segment.ms
	SegmentJitter      time.Duration // segment.jitter.ms: a segment rolls up to this much earlier
	SegmentIndexBytes  int32         // segment.index.bytes
	IndexIntervalBytes int32         // index.interval.bytes

	RetentionTime  time.Duration // retention.ms, -1 for ever
	RetentionBytes int64         // retention.bytes, -1 without bound
	Delete         bool          // cleanup.policy has delete
	Compact        bool          // cleanup.policy has compact

	FileDeleteDelay time.Duration // file.delete.delay.ms

	FlushMessages int64         // flush.messages: records after which an append must be synced; MaxInt64 for never
	FlushInterval time.Duration // flush.ms: age after which storageloop syncs; MaxInt64 for never

	Preallocate bool // preallocate: a new segment's file has SegmentBytes at once, and is cut to what is in it when it rolls or closes

	DeleteRetention        time.Duration // delete.retention.ms
	MinCompactionLag       time.Duration // min.compaction.lag.ms
	MaxCompactionLag       time.Duration // max.compaction.lag.ms; it also bounds the age of the active segment of a compacted log
	MinCleanableDirtyRatio float64       // min.cleanable.dirty.ratio

	Compression                 codec.Type // compression.type; record.ProducerCodec keeps the producer's
	CompressionLevel            int        // compression.<codec>.level of Compression
	TimestampType               record.TimestampType
	TimestampBeforeMax          int64 // message.timestamp.before.max.ms
	TimestampAfterMax           int64 // message.timestamp.after.max.ms
	MaxMessageBytes             int32 // max.message.bytes
	MaxDecompressedMessageBytes int32 // max.decompressed.message.bytes
	TrustCompressed             bool  // ours: validate compressed batches by header and CRC only
}

// Never stands for a duration that Kafka's Long.MAX_VALUE switches off.
const Never = time.Duration(math.MaxInt64)

// DefaultConfig has the defaults of Kafka 4.4.
func DefaultConfig() Config {
	return Config{
		SegmentBytes:                1 << 30,
		SegmentAge:                  7 * 24 * time.Hour,
		SegmentIndexBytes:           10 << 20,
		IndexIntervalBytes:          4096,
		RetentionTime:               7 * 24 * time.Hour,
		RetentionBytes:              -1,
		Delete:                      true,
		FileDeleteDelay:             time.Minute,
		FlushMessages:               math.MaxInt64,
		FlushInterval:               Never,
		DeleteRetention:             24 * time.Hour,
		MaxCompactionLag:            Never,
		MinCleanableDirtyRatio:      0.5,
		Compression:                 record.ProducerCodec,
		CompressionLevel:            codec.DefaultLevel,
		TimestampType:               record.CreateTime,
		TimestampBeforeMax:          math.MaxInt64,
		TimestampAfterMax:           int64(time.Hour / time.Millisecond),
		MaxMessageBytes:             1048588,
		MaxDecompressedMessageBytes: math.MaxInt32 - 8,
	}
}

// Validation is what record.Validate needs to check an append by origin to a log of partition with this configuration.
// LeaderEpoch is for the caller to add, for followers and the quorum's leader.
func (c *Config) Validation(partition kafka.TopicPartition, origin record.Origin, now time.Time) record.Options {
	return record.Options{
		Partition:                   partition,
		Origin:                      origin,
		Compacted:                   c.Compact,
		Codec:                       c.Compression,
		Level:                       c.CompressionLevel,
		TimestampType:               c.TimestampType,
		TimestampBeforeMax:          c.TimestampBeforeMax,
		TimestampAfterMax:           c.TimestampAfterMax,
		Now:                         now.UnixMilli(),
		MaxMessageBytes:             int(c.MaxMessageBytes),
		SegmentBytes:                int(c.SegmentBytes),
		MaxDecompressedMessageBytes: int(c.MaxDecompressedMessageBytes),
		TrustCompressed:             c.TrustCompressed,
	}
}

// segmentAge is the age at which the active segment rolls: a compacted log's is bounded by the compaction lag, since only
// what is not active can be compacted.
func (c *Config) segmentAge() time.Duration {
	if c.Compact {
		return min(c.SegmentAge, c.MaxCompactionLag)
	}
	return c.SegmentAge
}

// Millis is a configured number of milliseconds as a duration: what is too large for one is Never, and anything negative
// stays negative.
func Millis(ms int64) time.Duration {
	switch {
	case ms > int64(Never/time.Millisecond):
		return Never
	case ms < 0:
		return -1
	}
	return time.Duration(ms) * time.Millisecond
}
