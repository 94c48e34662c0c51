package record

import (
	"github.com/highwater/highwater/internal/codec"
	"github.com/highwater/highwater/internal/kafka"
)

// BatchOptions are the header fields that a Builder's batch has. DefaultBatchOptions gives those of a plain batch.
type BatchOptions struct {
	BaseOffset    kafka.Offset
	LeaderEpoch   kafka.LeaderEpoch
	Codec         codec.Type
	Level         int // codec.DefaultLevel for Kafka's default
	TimestampType TimestampType
	LogAppendTime int64 // with LogAppendTime: the batch's maxTimestamp
	ProducerID    kafka.ProducerID
	ProducerEpoch kafka.ProducerEpoch
	BaseSequence  int32
	Transactional bool
	Control       bool
	DeleteHorizon int64 // NoTimestamp for none
}

// DefaultBatchOptions are those of a batch from base on without compression, producer and delete horizon.
func DefaultBatchOptions(base kafka.Offset) BatchOptions {
	return BatchOptions{BaseOffset: base, LeaderEpoch: kafka.NoLeaderEpoch, Level: codec.DefaultLevel,
		LogAppendTime: NoTimestamp, ProducerID: kafka.NoProducerID, ProducerEpoch: kafka.NoProducerEpoch, BaseSequence: kafka.NoSequence,
		DeleteHorizon: NoTimestamp}
}

// Header is a record header to be written; a nil Value is null.
type Header struct {
	Key   string
	Value []byte
}

// Builder makes batches of magic 2. The zero value is ready after Reset.
type Builder struct {
	o BatchOptions
}

// NewBuilder returns a Builder for one batch; Reset makes it ready for another.
func NewBuilder(o BatchOptions) *Builder { b := new(Builder); b.Reset(o); return b }

// Reset drops what was appended and begins another batch.
func (b *Builder) Reset(o BatchOptions) { panic("building") }

// Append adds a record at the next offset. nil is null for key and value.
func (b *Builder) Append(timestamp int64, key, value []byte, headers ...Header) { panic("building") }

// AppendAt adds a record at an offset at or after the next one: gaps stay gaps.
func (b *Builder) AppendAt(offset kafka.Offset, timestamp int64, key, value []byte, headers ...Header) {
	panic("building")
}

// AppendRecord adds a record that was read from another batch, at its own offset and with its attributes.
func (b *Builder) AppendRecord(r *Record) { panic("building") }

// SetLastOffset makes the batch end at an offset after its last record, as a batch does that was compacted. A batch without
// records keeps its producer's state: sequence numbers are kept by the header.
func (b *Builder) SetLastOffset(last kafka.Offset) { panic("building") }

// SetMaxTimestamp overrides the maximum that Append gathered, for a batch without records.
func (b *Builder) SetMaxTimestamp(ms int64) { panic("building") }

// Len is the number of records so far; Size the bytes of the batch so far, before compression.
func (b *Builder) Len() int { panic("building") }

// Size is the size in bytes that the batch has without compression.
func (b *Builder) Size() int { panic("building") }

// AppendTo appends the batch's bytes to dst. The Builder is unchanged and may go on.
func (b *Builder) AppendTo(dst []byte) ([]byte, error) { panic("building") }

// Build returns the batch as bytes of its own.
func (b *Builder) Build() (Batch, error) {
	out, err := b.AppendTo(nil)
	return Batch(out), err
}
