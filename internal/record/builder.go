package record

import (
	"encoding/binary"
	"fmt"
	"math"

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
	return BatchOptions{
		BaseOffset:    base,
		LeaderEpoch:   kafka.NoLeaderEpoch,
		Level:         codec.DefaultLevel,
		LogAppendTime: NoTimestamp,
		ProducerID:    kafka.NoProducerID,
		ProducerEpoch: kafka.NoProducerEpoch,
		BaseSequence:  kafka.NoSequence,
		DeleteHorizon: NoTimestamp,
	}
}

// OptionsOf are the options of a batch of magic 2, with which a Builder makes one that differs only in its records.
func OptionsOf(b Batch) BatchOptions {
	o := BatchOptions{
		BaseOffset:    b.BaseOffset(),
		LeaderEpoch:   b.PartitionLeaderEpoch(),
		Codec:         b.Codec(),
		Level:         codec.DefaultLevel,
		TimestampType: b.TimestampType(),
		LogAppendTime: NoTimestamp,
		ProducerID:    b.ProducerID(),
		ProducerEpoch: b.ProducerEpoch(),
		BaseSequence:  b.BaseSequence(),
		Transactional: b.Transactional(),
		Control:       b.Control(),
		DeleteHorizon: NoTimestamp,
	}
	if o.TimestampType == LogAppendTime {
		o.LogAppendTime = b.MaxTimestamp()
	}
	if ms, ok := b.DeleteHorizon(); ok {
		o.DeleteHorizon = ms
	}
	return o
}

// Header is a record header to be written; a nil Value is null.
type Header struct {
	Key   string
	Value []byte
}

// Builder makes batches of magic 2. The zero value is ready after Reset. What goes wrong on the way shows in AppendTo and Build.
type Builder struct {
	o             BatchOptions
	records       []byte // encoded, not compressed
	count         int32
	lastOffset    kafka.Offset // of the last record or as set; BaseOffset-1 at first
	baseTimestamp int64
	maxTimestamp  int64
	err           error
}

// NewBuilder returns a Builder for one batch; Reset makes it ready for another.
func NewBuilder(o BatchOptions) *Builder {
	b := new(Builder)
	b.Reset(o)
	return b
}

// Reset drops what was appended and begins another batch, with the memory of the last one.
func (b *Builder) Reset(o BatchOptions) {
	*b = Builder{o: o, records: b.records[:0], lastOffset: o.BaseOffset - 1, baseTimestamp: o.DeleteHorizon, maxTimestamp: NoTimestamp}
	if o.TimestampType == LogAppendTime {
		b.maxTimestamp = o.LogAppendTime
	}
}

// Append adds a record at the next offset. nil is null for key and value.
func (b *Builder) Append(timestamp int64, key, value []byte, headers ...Header) {
	b.AppendAt(b.lastOffset+1, timestamp, key, value, headers...)
}

// AppendAt adds a record at an offset at or after the next one: gaps stay gaps.
func (b *Builder) AppendAt(offset kafka.Offset, timestamp int64, key, value []byte, headers ...Header) {
	size := sizeOfVarint(int32(len(headers)))
	for i := range headers {
		h := &headers[i]
		size += sizeOfVarint(int32(len(h.Key))) + len(h.Key) + sizeOfBytes(h.Value)
	}
	if !b.begin(offset, timestamp, 0, key, value, size) {
		return
	}
	b.records = appendVarint(b.records, int32(len(headers)))
	for i := range headers {
		h := &headers[i]
		b.records = appendVarint(b.records, int32(len(h.Key)))
		b.records = append(b.records, h.Key...)
		b.records = appendBytes(b.records, h.Value)
	}
}

// AppendRecord adds a record that was read from another batch, at its own offset.
func (b *Builder) AppendRecord(r *Record) { b.appendRecordAt(r.Offset, r) }

func (b *Builder) appendRecordAt(offset kafka.Offset, r *Record) {
	if b.begin(offset, r.Timestamp, 0, r.Key, r.Value, sizeOfVarint(int32(r.Headers.n))+len(r.Headers.raw)) {
		b.records = appendVarint(b.records, int32(r.Headers.n))
		b.records = append(b.records, r.Headers.raw...)
	}
}

// begin writes a record up to its headers, which take size bytes with their number.
func (b *Builder) begin(offset kafka.Offset, timestamp int64, attributes int8, key, value []byte, size int) bool {
	if b.err != nil {
		return false
	}
	if offset <= b.lastOffset {
		b.err = fmt.Errorf("build batch: illegal offset %d following previous offset %d (offsets must increase monotonically)", offset, b.lastOffset)
		return false
	}
	delta := offset - b.o.BaseOffset
	if delta > math.MaxInt32 {
		b.err = fmt.Errorf("build batch: offset %d is too far from base offset %d", offset, b.o.BaseOffset)
		return false
	}
	if b.count == 0 && b.o.DeleteHorizon == NoTimestamp {
		b.baseTimestamp = timestamp
	}
	timestampDelta := timestamp - b.baseTimestamp
	size += 1 + sizeOfVarlong(timestampDelta) + sizeOfVarint(int32(delta)) + sizeOfBytes(key) + sizeOfBytes(value)
	if size > math.MaxInt32-len(b.records)-HeaderSize {
		b.err = fmt.Errorf("build batch: more than %d bytes", math.MaxInt32)
		return false
	}
	r := appendVarint(b.records, int32(size))
	r = append(r, byte(attributes))
	r = appendVarlong(r, timestampDelta)
	r = appendVarint(r, int32(delta))
	r = appendBytes(r, key)
	b.records = appendBytes(r, value)
	b.count++
	b.lastOffset = offset
	if b.o.TimestampType != LogAppendTime {
		b.maxTimestamp = max(b.maxTimestamp, timestamp)
	}
	return true
}

func sizeOfBytes(p []byte) int {
	if p == nil {
		return 1
	}
	return sizeOfVarint(int32(len(p))) + len(p)
}

func appendBytes(dst, p []byte) []byte {
	if p == nil {
		return appendVarint(dst, -1)
	}
	return append(appendVarint(dst, int32(len(p))), p...)
}

// SetLastOffset makes the batch end at an offset after its last record, as a batch does that was compacted. A batch without
// records keeps its producer's state: the last sequence follows from the last offset.
func (b *Builder) SetLastOffset(last kafka.Offset) {
	if last < b.lastOffset && b.err == nil {
		b.err = fmt.Errorf("build batch: last offset %d is before that of the last record, %d", last, b.lastOffset)
	}
	b.lastOffset = last
}

// SetMaxTimestamp overrides the maximum that Append gathered, for a batch without records.
func (b *Builder) SetMaxTimestamp(ms int64) { b.maxTimestamp = ms }

// Len is the number of records so far.
func (b *Builder) Len() int { return int(b.count) }

// Size is the size in bytes that the batch has without compression.
func (b *Builder) Size() int { return HeaderSize + len(b.records) }

// MaxTimestamp is the largest timestamp so far, NoTimestamp without any.
func (b *Builder) MaxTimestamp() int64 { return b.maxTimestamp }

// AppendTo appends the batch's bytes to dst. The Builder is unchanged and may go on. A batch without records is written
// uncompressed, as Kafka's cleaner does.
func (b *Builder) AppendTo(dst []byte) ([]byte, error) {
	if b.err != nil {
		return dst, b.err
	}
	delta := b.lastOffset - b.o.BaseOffset
	if delta > math.MaxInt32 {
		return dst, fmt.Errorf("build batch: last offset %d is too far from base offset %d", b.lastOffset, b.o.BaseOffset)
	}
	start := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	attributes := int16(0)
	if b.count > 0 {
		var err error
		if dst, err = codec.Compress(dst, b.o.Codec, b.o.Level, b.records); err != nil {
			return dst[:start], err
		}
		attributes = int16(b.o.Codec)
	}
	batch := Batch(dst[start:])
	if len(batch) > math.MaxInt32 {
		return dst[:start], fmt.Errorf("build batch: more than %d bytes", math.MaxInt32)
	}
	for _, f := range [...]struct {
		set bool
		bit int16
	}{
		{b.o.TimestampType == LogAppendTime, attrLogAppendTime},
		{b.o.Transactional, attrTransactional},
		{b.o.Control, attrControl},
		{b.o.DeleteHorizon != NoTimestamp, attrDeleteHorizon},
	} {
		if f.set {
			attributes |= f.bit
		}
	}
	put := binary.BigEndian
	put.PutUint64(batch[posBaseOffset:], uint64(b.o.BaseOffset))
	put.PutUint32(batch[posLength:], uint32(len(batch)-LogOverhead))
	put.PutUint32(batch[posLeaderEpoch:], uint32(b.o.LeaderEpoch))
	batch[posMagic] = 2
	put.PutUint16(batch[posAttributes:], uint16(attributes))
	put.PutUint32(batch[posLastOffsetDelta:], uint32(delta))
	put.PutUint64(batch[posBaseTimestamp:], uint64(b.baseTimestamp))
	put.PutUint64(batch[posMaxTimestamp:], uint64(b.maxTimestamp))
	put.PutUint64(batch[posProducerID:], uint64(b.o.ProducerID))
	put.PutUint16(batch[posProducerEpoch:], uint16(b.o.ProducerEpoch))
	put.PutUint32(batch[posBaseSequence:], uint32(b.o.BaseSequence))
	put.PutUint32(batch[posCount:], uint32(b.count))
	batch.SetCRC()
	return dst, nil
}

// Build returns the batch as bytes of its own.
func (b *Builder) Build() (Batch, error) {
	out, err := b.AppendTo(make([]byte, 0, b.Size()))
	return Batch(out), err
}
