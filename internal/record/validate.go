package record

import (
	"github.com/highwater/highwater/internal/codec"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

// Origin says who appends. What is checked depends on it, as on Kafka's AppendOrigin.
type Origin uint8

// The origins.
const (
	Client      Origin = iota // a Produce request: everything is checked
	Coordinator               // this node's own group, transaction or share coordinator, markers included
	RaftLeader                // the quorum's leader: offsets and leader epoch are set already
	Replica                   // fetched from a leader: frame and CRC, nothing inside
)

// ProducerCodec, as Options.Codec, keeps the codec that the producer chose (compression.type=producer).
const ProducerCodec codec.Type = -1

// Options is what Validate must know of the topic, the appender and the time. It is not changed and may be shared.
type Options struct {
	Partition kafka.TopicPartition // for the texts of errors
	Origin    Origin
	Compacted bool // cleanup.policy has compact: a record must have a key

	Codec codec.Type // compression.type; ProducerCodec by default in Kafka
	Level int        // compression.<codec>.level, codec.DefaultLevel if not set

	TimestampType      TimestampType // message.timestamp.type
	TimestampBeforeMax int64         // message.timestamp.before.max.ms; math.MaxInt64 in Kafka by default
	TimestampAfterMax  int64         // message.timestamp.after.max.ms; one hour in Kafka by default
	Now                int64         // ms; what timestamps are compared with

	MaxMessageBytes int // max.message.bytes: of a batch, before and after a rebuild; 0 is no bound. Not for Replica
	SegmentBytes    int // segment.bytes: of all batches together; 0 is no bound

	// MaxDecompressedMessageBytes bounds one decompressed record (max.decompressed.message.bytes); 0 is no bound.
	MaxDecompressedMessageBytes int

	// TrustCompressed skips the inside of compressed batches that need no rebuild: frame, header and CRC only. It is a
	// broker option of ours, off by default.
	TrustCompressed bool

	// LeaderEpoch is, for Replica and RaftLeader, the epoch that the append is for: a replica leaves out the first batch with a
	// higher one and all after it, a raft leader refuses a batch with another.
	LeaderEpoch kafka.LeaderEpoch
}

// RecordError is what is wrong with one record, for the field RecordErrors of a Produce response.
type RecordError struct {
	Index   int32
	Message string
}

// RecordErrors is an error about single records. It unwraps to a *kerr.Error.
type RecordErrors struct {
	Err     *kerr.Error
	Records []RecordError
}

func (e *RecordErrors) Error() string { return e.Err.Error() }

// Unwrap gives the error of the whole batch.
func (e *RecordErrors) Unwrap() error { return e.Err }

// Facts are what an append needs to know of one batch. Offsets hold once Assign ran (for Replica, from the start).
type Facts struct {
	Pos, Size      int // in Validated.Bytes
	FirstOffset    kafka.Offset
	LastOffset     kafka.Offset
	LeaderEpoch    kafka.LeaderEpoch
	Count          int32 // records, as declared; -1 in magic 0 and 1
	MaxTimestamp   int64
	ProducerID     kafka.ProducerID
	ProducerEpoch  kafka.ProducerEpoch
	BaseSequence   int32
	LastSequence   int32
	Transactional  bool
	Control        bool
	Marker         ControlType // Abort or Commit if the batch is a producer's transaction marker, else UnknownControl
	MarkerEpoch    int32       // the transaction coordinator's epoch, in a marker
	FirstTimestamp int64       // of a marker's record
}

// Validated is what Validate returns: bytes that may be appended, and the facts of their batches. It is pooled: Release it
// when the bytes are written and the facts used.
type Validated struct {
	// Bytes go into the log as they are after Assign. They alias the input unless Rebuilt; without a valid batch they are empty.
	Bytes   []byte
	Batches []Facts // one for a leader; any number for a replica

	InputBytes int  // whole batches of the input, Kafka's validBytes; what lay behind them was cut off
	Rebuilt    bool // recompressed or converted: Bytes are not the input's

	FirstOffset        kafka.Offset // of the first batch; -1 if there is none
	LastOffset         kafka.Offset // of the last batch
	MaxTimestamp       int64        // the largest of all batches, and the last offset of the batch that has it (shallow, as the time index wants it)
	MaxTimestampOffset kafka.Offset
	LogAppendTime      int64 // set by Assign if the topic has LogAppendTime, else -1
}

// CheckProduce makes the checks of a Produce request that Kafka makes before it looks at the partition: versions from 3 on
// carry exactly one batch of magic 2 for each partition, and only versions from 7 on zstd.
func CheckProduce(version int16, records []byte) error { panic("building") }

// Validate is the first stage of an append: all checks that need no lock. records are one partition's records of a
// request; the caller gives up the right to change them until Release. A wrong maxTimestamp is put right in place.
func Validate(records []byte, o *Options) (*Validated, error) { panic("building") }

// Assign is the second stage, under the partition's lock: it gives the batches consecutive offsets from next on, the
// leader's epoch and, if the topic has LogAppendTime, now. It takes constant time for each batch. Not for Replica and
// RaftLeader, whose batches have all that.
func (v *Validated) Assign(next kafka.Offset, epoch kafka.LeaderEpoch, now int64) { panic("building") }

// Release gives v back to its pool. Neither v nor, if Rebuilt, its Bytes may be used after.
func (v *Validated) Release() { panic("building") }
