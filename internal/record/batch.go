package record

import (
	"encoding/binary"
	"hash/crc32"
	"math"

	"github.com/highwater/highwater/internal/codec"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

// Sizes and places of a batch of magic 2. Offset, size, and magic stand at the same places in magic 0 and 1.
const (
	LogOverhead = 12 // base offset and length: what stands before the bytes that the length counts
	HeaderSize  = 61 // up to the first record, in magic 2
	PeekHeader  = 17 // up to and with magic: what PeekSize needs

	posBaseOffset      = 0
	posLength          = 8
	posLeaderEpoch     = 12
	posMagic           = 16
	posCRC             = 17
	posAttributes      = 21
	posLastOffsetDelta = 23
	posBaseTimestamp   = 27
	posMaxTimestamp    = 35
	posProducerID      = 43
	posProducerEpoch   = 51
	posBaseSequence    = 53
	posCount           = 57

	minLength = 14 // the least a length can be, that of an empty message of magic 0
)

// The bits of a batch's attributes.
const (
	attrCodec         = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40
)

// NoTimestamp is what a record or batch without a timestamp has.
const NoTimestamp int64 = -1

// TimestampType says who set a batch's timestamps. The numbers are those of Kafka's attribute bit.
type TimestampType int8

// The timestamp types. Magic 0 has none.
const (
	NoTimestampType TimestampType = -1
	CreateTime      TimestampType = 0
	LogAppendTime   TimestampType = 1
)

// String is the name as in message.timestamp.type.
func (t TimestampType) String() string {
	switch t {
	case CreateTime:
		return "CreateTime"
	case LogAppendTime:
		return "LogAppendTime"
	}
	return "NoTimestampType"
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch is one batch's raw bytes. Every accessor works on a Batch that is cut after its header (HeaderSize, or all bytes if
// the batch is of magic 0 or 1); only Check, Records and the setters of fields under the CRC need all of it. A Batch comes
// from Next or PeekSize, which make sure that the header is there; the accessors of one made otherwise may panic.
type Batch []byte

// PeekSize says how many bytes the batch has that begins at header[0]. ok is false if header is too short to say, which at
// the end of a file means an unfinished write. It needs PeekHeader bytes and allocates nothing for a claimed size.
func PeekSize(header []byte) (size int, ok bool, err error) {
	if len(header) < LogOverhead {
		return 0, false, nil
	}
	length := int32(binary.BigEndian.Uint32(header[posLength:]))
	if length < minLength {
		return 0, false, kerr.CorruptMessage.With("Record size %d is less than the minimum record overhead (%d)", length, minLength)
	}
	if len(header) < PeekHeader {
		return 0, false, nil
	}
	magic := int8(header[posMagic])
	if magic < 0 || magic > 2 {
		return 0, false, kerr.CorruptMessage.With("Invalid magic found in record: %d", magic)
	}
	if length > math.MaxInt32-LogOverhead {
		return 0, false, kerr.CorruptMessage.With("Record size %d exceeds the largest allowable message size (%d).", length, math.MaxInt32-LogOverhead)
	}
	return int(length) + LogOverhead, true, nil
}

// Next splits the first batch off buf. Without an error, batch is nil if buf ends before the batch does: then rest is all
// of buf, an unfinished batch or nothing. As in Kafka, a batch that is too small for its magic passes here and fails in Check.
func Next(buf []byte) (batch Batch, rest []byte, err error) {
	size, ok, err := PeekSize(buf)
	if err != nil || !ok || size > len(buf) {
		return nil, buf, err
	}
	return Batch(buf[:size:size]), buf[size:], nil
}

// headerFits tells whether b is large enough for the fixed fields of its magic.
func (b Batch) headerFits() bool {
	switch b.Magic() {
	case 2:
		return len(b) >= HeaderSize
	case 1:
		return len(b) >= LogOverhead+legacyOverheadV1
	}
	return len(b) >= LogOverhead+minLength
}

// Magic is the format's version: 0, 1 or 2.
func (b Batch) Magic() int8 { return int8(b[posMagic]) }

// Size is the size in bytes that the header declares, with the LogOverhead; not len(b) if b is only a header.
func (b Batch) Size() int {
	return int(int32(binary.BigEndian.Uint32(b[posLength:]))) + LogOverhead
}

// BaseOffset is the first offset of a batch of magic 2, which need not belong to a record after compaction. In magic 0 and 1
// it is the field itself: the message's offset or, in a compressed wrapper, the last one's; FirstOffset looks inside.
func (b Batch) BaseOffset() kafka.Offset {
	return int64(binary.BigEndian.Uint64(b[posBaseOffset:]))
}

// LastOffset is the batch's last offset, which after compaction need not belong to a record.
func (b Batch) LastOffset() kafka.Offset {
	if b.Magic() < 2 {
		return b.BaseOffset()
	}
	return b.BaseOffset() + int64(b.LastOffsetDelta())
}

// NextOffset is the first offset after the batch.
func (b Batch) NextOffset() kafka.Offset { return b.LastOffset() + 1 }

// LastOffsetDelta is LastOffset less BaseOffset; 0 in magic 0 and 1.
func (b Batch) LastOffsetDelta() int32 {
	if b.Magic() < 2 {
		return 0
	}
	return int32(binary.BigEndian.Uint32(b[posLastOffsetDelta:]))
}

// PartitionLeaderEpoch is the epoch of the leader that appended the batch; -1 in magic 0 and 1. It is outside the CRC.
func (b Batch) PartitionLeaderEpoch() kafka.LeaderEpoch {
	if b.Magic() < 2 {
		return kafka.NoLeaderEpoch
	}
	return kafka.LeaderEpoch(binary.BigEndian.Uint32(b[posLeaderEpoch:]))
}

// CRC is the stored checksum: CRC-32C from the attributes on in magic 2, CRC-32 from the magic on before.
func (b Batch) CRC() uint32 {
	if b.Magic() < 2 {
		return binary.BigEndian.Uint32(b[posLegacyCRC:])
	}
	return binary.BigEndian.Uint32(b[posCRC:])
}

// ComputeCRC is the checksum that the batch's bytes have. The batch must be whole.
func (b Batch) ComputeCRC() uint32 {
	if b.Magic() < 2 {
		return crc32.ChecksumIEEE(b[posMagic:])
	}
	return crc32.Checksum(b[posAttributes:], castagnoli)
}

// Attributes are the batch's flags and codec; a byte in magic 0 and 1.
func (b Batch) Attributes() int16 {
	if b.Magic() < 2 {
		return int16(int8(b[posLegacyAttributes]))
	}
	return int16(binary.BigEndian.Uint16(b[posAttributes:]))
}

// Codec is how the records are compressed. It may be a number that no codec has (Valid tells).
func (b Batch) Codec() codec.Type { return codec.Type(b.Attributes() & attrCodec) }

// TimestampType says whether the broker or the client set the timestamps.
func (b Batch) TimestampType() TimestampType {
	switch {
	case b.Magic() == 0:
		return NoTimestampType
	case b.Attributes()&attrLogAppendTime != 0:
		return LogAppendTime
	}
	return CreateTime
}

// Transactional tells whether the batch belongs to a transaction; its markers do, too.
func (b Batch) Transactional() bool { return b.Magic() >= 2 && b.Attributes()&attrTransactional != 0 }

// Control tells whether the batch holds control records, which consumers don't see.
func (b Batch) Control() bool { return b.Magic() >= 2 && b.Attributes()&attrControl != 0 }

// HasDeleteHorizon tells whether DeleteHorizon means something: then BaseTimestamp is it.
func (b Batch) HasDeleteHorizon() bool {
	return b.Magic() >= 2 && b.Attributes()&attrDeleteHorizon != 0
}

// DeleteHorizon is the time in ms from which on the cleaner may drop tombstones and markers of this batch.
func (b Batch) DeleteHorizon() (ms int64, ok bool) {
	if !b.HasDeleteHorizon() {
		return NoTimestamp, false
	}
	return b.BaseTimestamp(), true
}

// BaseTimestamp is what the records' timestamps are deltas of, in ms: the first record's timestamp when the batch was
// made, or the delete horizon. In magic 1 it is the message's timestamp.
func (b Batch) BaseTimestamp() int64 {
	switch b.Magic() {
	case 0:
		return NoTimestamp
	case 1:
		return int64(binary.BigEndian.Uint64(b[posLegacyTimestamp:]))
	}
	return int64(binary.BigEndian.Uint64(b[posBaseTimestamp:]))
}

// MaxTimestamp is the largest timestamp of the records or the append time, in ms.
func (b Batch) MaxTimestamp() int64 {
	if b.Magic() < 2 {
		return b.BaseTimestamp()
	}
	return int64(binary.BigEndian.Uint64(b[posMaxTimestamp:]))
}

// ProducerID is the idempotent or transactional producer's, or kafka.NoProducerID.
func (b Batch) ProducerID() kafka.ProducerID {
	if b.Magic() < 2 {
		return kafka.NoProducerID
	}
	return int64(binary.BigEndian.Uint64(b[posProducerID:]))
}

// HasProducerID tells whether the batch takes part in producer state: Kafka asks whether the id is above -1.
func (b Batch) HasProducerID() bool { return b.ProducerID() > kafka.NoProducerID }

// ProducerEpoch fences a producer's older sessions.
func (b Batch) ProducerEpoch() kafka.ProducerEpoch {
	if b.Magic() < 2 {
		return kafka.NoProducerEpoch
	}
	return int16(binary.BigEndian.Uint16(b[posProducerEpoch:]))
}

// BaseSequence is the first record's sequence number, or kafka.NoSequence.
func (b Batch) BaseSequence() int32 {
	if b.Magic() < 2 {
		return kafka.NoSequence
	}
	return int32(binary.BigEndian.Uint32(b[posBaseSequence:]))
}

// LastSequence is the last record's sequence number; after 2^31-1 comes 0.
func (b Batch) LastSequence() int32 {
	s := b.BaseSequence()
	if s == kafka.NoSequence {
		return s
	}
	return AddSequence(s, b.LastOffsetDelta())
}

// AddSequence advances a sequence number; after 2^31-1 comes 0.
func AddSequence(sequence, by int32) int32 {
	if sequence > math.MaxInt32-by {
		return by - (math.MaxInt32 - sequence) - 1
	}
	return sequence + by
}

// Count is the number of records that the header declares; -1 in magic 0 and 1, where only looking inside tells.
func (b Batch) Count() int32 {
	if b.Magic() < 2 {
		return -1
	}
	return int32(binary.BigEndian.Uint32(b[posCount:]))
}

// Payload is what stands behind the header of a batch of magic 2: the records, compressed or not.
func (b Batch) Payload() []byte { return b[HeaderSize:] }

// Check tells whether the batch is whole, large enough for its magic and has the right CRC: Kafka's ensureValid.
func (b Batch) Check() error {
	if !b.headerFits() {
		if b.Magic() < 2 {
			return kerr.CorruptMessage.With("Record is corrupt (crc could not be retrieved as the record is too small, size = %d)", len(b))
		}
		return kerr.CorruptMessage.With("Record batch is corrupt (the size %d is smaller than the minimum allowed overhead %d)", len(b), HeaderSize)
	}
	if len(b) != b.Size() {
		return kerr.CorruptMessage.With("Record batch is corrupt (the size %d is not the declared %d)", len(b), b.Size())
	}
	if stored, computed := b.CRC(), b.ComputeCRC(); stored != computed {
		return kerr.CorruptMessage.With("Record is corrupt (stored crc = %d, computed crc = %d)", stored, computed)
	}
	return nil
}

// SetBaseOffset gives the batch its place in a log. The CRC stays valid.
func (b Batch) SetBaseOffset(o kafka.Offset) {
	binary.BigEndian.PutUint64(b[posBaseOffset:], uint64(o))
}

// SetPartitionLeaderEpoch is for magic 2. The CRC stays valid.
func (b Batch) SetPartitionLeaderEpoch(e kafka.LeaderEpoch) {
	binary.BigEndian.PutUint32(b[posLeaderEpoch:], uint32(e))
}

// SetMaxTimestamp sets type and maximum of the timestamps of a whole batch of magic 2 and, if that changes anything, its
// CRC. As in Kafka, unused attribute bits are lost then.
func (b Batch) SetMaxTimestamp(t TimestampType, ms int64) {
	if b.TimestampType() == t && b.MaxTimestamp() == ms {
		return
	}
	b.putTimestampType(t)
	binary.BigEndian.PutUint64(b[posMaxTimestamp:], uint64(ms))
	b.SetCRC()
}

func (b Batch) putTimestampType(t TimestampType) {
	a := b.Attributes() & (attrCodec | attrTransactional | attrControl | attrDeleteHorizon)
	if t == LogAppendTime {
		a |= attrLogAppendTime
	}
	binary.BigEndian.PutUint16(b[posAttributes:], uint16(a))
}

// SetProducer sets what identifies the producer of a whole batch of magic 2, and its CRC.
func (b Batch) SetProducer(id kafka.ProducerID, epoch kafka.ProducerEpoch, baseSequence int32) {
	binary.BigEndian.PutUint64(b[posProducerID:], uint64(id))
	binary.BigEndian.PutUint16(b[posProducerEpoch:], uint16(epoch))
	binary.BigEndian.PutUint32(b[posBaseSequence:], uint32(baseSequence))
	b.SetCRC()
}

// SetCRC stores the right checksum into a whole batch of magic 2.
func (b Batch) SetCRC() { binary.BigEndian.PutUint32(b[posCRC:], b.ComputeCRC()) }
