package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"

	"github.com/highwater/highwater/internal/codec"
	"github.com/highwater/highwater/internal/invariant"
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
	Pos, Size     int // in Validated.Bytes
	FirstOffset   kafka.Offset
	LastOffset    kafka.Offset
	LeaderEpoch   kafka.LeaderEpoch
	Count         int32 // records, as declared; -1 in magic 0 and 1
	MaxTimestamp  int64
	ProducerID    kafka.ProducerID
	ProducerEpoch kafka.ProducerEpoch
	BaseSequence  int32
	LastSequence  int32
	Transactional bool
	Control       bool
	Marker        ControlType // Abort or Commit if the batch is a producer's transaction marker, else UnknownControl
	MarkerEpoch   int32       // the transaction coordinator's epoch, in a marker
	MarkerTime    int64       // the timestamp of a marker's record, in ms
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

	replica bool // offsets were there before
	stamp   bool // Assign sets LogAppendTime
	// The CRC of what follows the header fields that Assign changes, and shiftCRC of its length.
	tailCRC, tailShift uint32
	scratch            []byte // what Bytes lies in if Rebuilt
}

var validateds = sync.Pool{New: func() any { return new(Validated) }}

// Release gives v back to its pool. Neither v nor, if Rebuilt, its Bytes may be used after.
func (v *Validated) Release() {
	if cap(v.scratch) > keepBuffer {
		v.scratch = nil
	}
	batches := v.Batches
	if cap(batches) > 64 {
		batches = nil
	}
	*v = Validated{Batches: batches[:0], scratch: v.scratch[:0]}
	validateds.Put(v)
}

// Transactional tells whether the first batch of one partition's records in a Produce request is transactional. Kafka asks
// before all else, and what it cannot read there makes it refuse the whole request.
func Transactional(records []byte) (bool, error) {
	b, _, err := Next(records)
	switch {
	case err != nil:
		return false, err
	case b == nil || !b.headerFits():
		return false, nil // what follows tells of that
	}
	return b.Transactional(), nil
}

// CheckProduce makes the checks of a Produce request that Kafka makes before it looks at the partition: versions from 3 on
// carry exactly one batch of magic 2 for each partition, and only versions from 7 on zstd.
func CheckProduce(version int16, records []byte) error {
	if version < 3 {
		return nil
	}
	b, rest, err := Next(records)
	if err != nil {
		return err
	}
	if b == nil {
		return kerr.InvalidRecord.With("Produce requests with version %d must have at least one record batch per partition", version)
	}
	if b.Magic() != 2 {
		return kerr.InvalidRecord.With("Produce requests with version %d are only allowed to contain record batches with magic version 2", version)
	}
	if version < 7 && len(b) >= HeaderSize && b.Codec() == codec.Zstd {
		return kerr.UnsupportedCompressionType.With("Produce requests with version %d are not allowed to use ZStandard compression", version)
	}
	if b, _, err = Next(rest); err != nil {
		return err
	}
	if b != nil {
		return kerr.InvalidRecord.With("Produce requests with version %d are only allowed to contain exactly one record batch per partition", version)
	}
	return nil
}

// Validate is the first stage of an append: all checks that need no lock. records are one partition's records of a
// request; the caller gives up the right to change them until Release. A wrong maxTimestamp is put right in place.
//
// Without an error, Validated.Bytes may still be empty: there was no whole batch, or a replica left all out.
func Validate(records []byte, o *Options) (*Validated, error) {
	v := validateds.Get().(*Validated)
	err := v.frame(records, o)
	if err == nil && len(v.Batches) > 0 && (o.Origin == Client || o.Origin == Coordinator) {
		err = v.content(o)
	}
	if err == nil {
		err = v.finish(o)
	}
	if err != nil {
		v.Release()
		return nil, err
	}
	return v, nil
}

// frame splits records into batches, makes the checks that need only header and CRC, and gathers the facts.
func (v *Validated) frame(records []byte, o *Options) error {
	v.FirstOffset, v.LastOffset, v.MaxTimestamp, v.MaxTimestampOffset = -1, -1, NoTimestamp, -1
	v.LogAppendTime = NoTimestamp
	v.replica = o.Origin == Replica || o.Origin == RaftLeader
	pos, inOrder := 0, true
	for rest := records; ; {
		b, after, err := Next(rest)
		if err != nil {
			return err
		}
		if b == nil {
			break
		}
		if !b.headerFits() {
			return wrongCRC(b, o)
		}
		switch {
		case o.Origin == Client && b.Magic() >= 2 && b.BaseOffset() != 0:
			return kerr.InvalidRecord.With("The baseOffset of the record batch in the append to %s should be 0, but it is %d", o.Partition, b.BaseOffset())
		case o.Origin == RaftLeader && b.PartitionLeaderEpoch() != o.LeaderEpoch:
			return kerr.InvalidRecord.With("Append from Raft leader did not set the batch epoch correctly, expected %d but the batch has %d", o.LeaderEpoch, b.PartitionLeaderEpoch())
		case o.Origin == Replica && b.PartitionLeaderEpoch() > o.LeaderEpoch:
			// The leader that we fetch from was superseded while it answered; the next one sends these again.
			rest = nil
			continue
		}
		// Kafka compares the last offsets only, and so lets batches overlap.
		if b.BaseOffset() <= v.LastOffset || b.NextOffset() <= b.BaseOffset() {
			inOrder = false
		}
		if o.Origin != Replica && o.MaxMessageBytes > 0 && len(b) > o.MaxMessageBytes {
			return kerr.MessageTooLarge.With("The record batch size in the append to %s is %d bytes which exceeds the maximum configured value of %d).", o.Partition, len(b), o.MaxMessageBytes)
		}
		if b.ComputeCRC() != b.CRC() {
			return wrongCRC(b, o)
		}
		if !b.Codec().Valid() {
			return unknownCodec(b.Codec())
		}
		v.add(b, pos)
		pos += len(b)
		rest = after
	}
	v.Bytes, v.InputBytes = records[:pos:pos], pos
	if !v.replica {
		return nil
	}
	if !inOrder {
		return kerr.InvalidRecord.With("Out of order offsets found in append to %s: %d to %d", o.Partition, v.FirstOffset, v.LastOffset)
	}
	for i := range v.Batches {
		f := &v.Batches[i]
		b := Batch(v.Bytes[f.Pos : f.Pos+f.Size])
		if b.Magic() >= 2 && b.PartitionLeaderEpoch() < 0 {
			return kerr.InvalidRecord.With("Received invalid partition leader epoch %d in topic partition %s", b.PartitionLeaderEpoch(), o.Partition)
		}
	}
	return nil
}

func wrongCRC(b Batch, o *Options) error {
	return kerr.CorruptMessage.With("Record is corrupt (stored crc = %d) in topic partition %s.", b.CRC(), o.Partition)
}

// add gathers the facts of b, which begins at pos of the bytes for the log.
func (v *Validated) add(b Batch, pos int) {
	v.Batches = append(v.Batches, Facts{
		Pos:           pos,
		Size:          len(b),
		FirstOffset:   b.BaseOffset(),
		LastOffset:    b.LastOffset(),
		LeaderEpoch:   b.PartitionLeaderEpoch(),
		Count:         b.Count(),
		MaxTimestamp:  b.MaxTimestamp(),
		ProducerID:    b.ProducerID(),
		ProducerEpoch: b.ProducerEpoch(),
		BaseSequence:  b.BaseSequence(),
		LastSequence:  b.LastSequence(),
		Transactional: b.Transactional(),
		Control:       b.Control(),
		Marker:        UnknownControl,
		MarkerTime:    NoTimestamp,
	})
	f := &v.Batches[len(v.Batches)-1]
	if len(v.Batches) == 1 {
		v.FirstOffset = f.FirstOffset
	}
	v.LastOffset = f.LastOffset
	if f.MaxTimestamp > v.MaxTimestamp {
		v.MaxTimestamp, v.MaxTimestampOffset = f.MaxTimestamp, f.LastOffset
	}
}

// Batch is the bytes of batch i.
func (v *Validated) Batch(i int) Batch {
	f := &v.Batches[i]
	return Batch(v.Bytes[f.Pos : f.Pos+f.Size : f.Pos+f.Size])
}

// content validates records and decides whether the bytes must be rebuilt: for a leader's append.
func (v *Validated) content(o *Options) error {
	first := v.Batch(0)
	source := codec.None
	for i := range v.Batches {
		if c := v.Batch(i).Codec(); c != codec.None {
			source = c
		}
	}
	if len(v.Batches) > 1 && (first.Magic() >= 2 || source != codec.None) {
		return kerr.InvalidRecord.With("Compressed outer record has more than one batch")
	}
	target := o.Codec
	if target == ProducerCodec || source == codec.None && first.Control() {
		target = source // control records are compressed only if they come so
	}
	for i := range v.Batches {
		if err := checkBatch(v.Batch(i), first, o); err != nil {
			return err
		}
	}
	if first.Magic() < 2 || source != target {
		return v.rebuild(o, target)
	}
	largest, err := first.MaxTimestamp(), error(nil)
	if source == codec.None || !o.TrustCompressed {
		if largest, err = walk(first, o); err != nil {
			return err
		}
	}
	if o.TimestampType == CreateTime {
		first.SetMaxTimestamp(CreateTime, largest)
	}
	v.Batches = v.Batches[:0]
	v.FirstOffset, v.LastOffset, v.MaxTimestamp, v.MaxTimestampOffset = -1, -1, NoTimestamp, -1
	v.add(first, 0)
	return nil
}

// checkBatch makes the checks of a leader that need only a batch's header.
func checkBatch(b, first Batch, o *Options) error {
	if b.Magic() != first.Magic() {
		return kerr.InvalidRecord.With("Batch magic %d is not the same as the first batch's magic byte %d in topic partition %s", b.Magic(), first.Magic(), o.Partition)
	}
	if o.Origin != Client || b.Magic() < 2 {
		return nil
	}
	base, last, count := b.BaseOffset(), b.LastOffset(), b.Count()
	switch {
	case last-base+1 <= 0:
		return kerr.InvalidRecord.With("Batch has an invalid offset range: [%d, %d] in topic partition %s", base, last, o.Partition)
	case count <= 0:
		return kerr.InvalidRecord.With("Invalid reported count for record batch: %d in topic partition %s", count, o.Partition)
	case last-base+1 != int64(count):
		return kerr.InvalidRecord.With("Inconsistent batch offset range [%d, %d] and count of records %d in topic partition %s", base, last, count, o.Partition)
	case b.Control():
		return kerr.InvalidRecord.With("Clients are not allowed to write control records in topic partition %s", o.Partition)
	case b.HasProducerID() && b.BaseSequence() < 0:
		return kerr.InvalidRecord.With("Invalid sequence number %d in record batch with producerId %d in topic partition %s", b.BaseSequence(), b.ProducerID(), o.Partition)
	}
	return nil
}

// finish reads transaction markers, makes the last checks and prepares what Assign needs.
func (v *Validated) finish(o *Options) error {
	for i := range v.Batches {
		f := &v.Batches[i]
		if f.Control && f.ProducerID > kafka.NoProducerID && f.Count != 0 {
			if err := v.readMarker(i); err != nil {
				return err
			}
		}
	}
	if o.SegmentBytes > 0 && len(v.Bytes) > o.SegmentBytes {
		return kerr.RecordListTooLarge.With("Message batch size is %d bytes in append to partition %s, which exceeds the maximum configured segment size of %d.", len(v.Bytes), o.Partition, o.SegmentBytes)
	}
	if o.TimestampType == LogAppendTime && !v.replica && len(v.Batches) > 0 {
		tail := v.Batch(0)[posProducerID:]
		v.stamp, v.tailCRC, v.tailShift = true, crc32.Checksum(tail, castagnoli), shiftCRC(len(tail))
	}
	return nil
}

// readMarker reads the transaction marker that control batch i holds. A control batch without one is what the cleaner left.
func (v *Validated) readMarker(i int) error {
	r := NewReader(v.Batch(i))
	defer r.Close()
	if !r.Next() {
		return r.Err()
	}
	m, err := ParseMarker(r.rec.Key, r.rec.Value)
	if err != nil {
		return err
	}
	f := &v.Batches[i]
	f.Marker, f.MarkerEpoch, f.MarkerTime = m.Type, m.CoordinatorEpoch, r.rec.Timestamp
	return nil
}

// Assign is the second stage, under the partition's lock: it gives the batch its offsets from next on, the leader's epoch and, if
// the topic has LogAppendTime, now (ms). It takes constant time. Not for Replica and RaftLeader, whose batches have all that.
func (v *Validated) Assign(next kafka.Offset, epoch kafka.LeaderEpoch, now int64) {
	invariant.Check(!v.replica && len(v.Batches) <= 1, "assign offsets to %d batches, replica %v", len(v.Batches), v.replica)
	if len(v.Batches) == 0 {
		return
	}
	f, b := &v.Batches[0], v.Batch(0)
	b.SetBaseOffset(next)
	b.SetPartitionLeaderEpoch(epoch)
	if v.stamp {
		b.putTimestampType(LogAppendTime)
		binary.BigEndian.PutUint64(b[posMaxTimestamp:], uint64(now))
		head := crc32.Checksum(b[posAttributes:posProducerID], castagnoli)
		binary.BigEndian.PutUint32(b[posCRC:], joinCRC(head, v.tailCRC, v.tailShift))
		f.MaxTimestamp, v.MaxTimestamp, v.LogAppendTime = now, now, now
	}
	f.FirstOffset, f.LastOffset, f.LeaderEpoch = next, b.LastOffset(), epoch
	v.FirstOffset, v.LastOffset = f.FirstOffset, f.LastOffset
	v.MaxTimestampOffset = -1
	if v.MaxTimestamp > NoTimestamp {
		v.MaxTimestampOffset = f.LastOffset
	}
}

// recordErrors gathers what is wrong with single records.
type recordErrors struct {
	list  []RecordError
	total int
	time  bool // one is an invalid timestamp
}

// maxRecordErrors bounds the list. Kafka has no bound: a request of 1 MB may get an answer of 10.
const maxRecordErrors = 10_000

func (e *recordErrors) add(index int32, message string) {
	if e.total++; len(e.list) < maxRecordErrors {
		e.list = append(e.list, RecordError{index, message})
	}
}

// err is the batch's error, or nil.
func (e *recordErrors) err() error {
	switch {
	case e == nil || e.total == 0:
		return nil
	case e.time:
		return &RecordErrors{kerr.InvalidTimestamp.With("One or more records have been rejected due to invalid timestamp"), e.list}
	}
	shown := ""
	for i, r := range e.list[:min(3, len(e.list))] {
		if i > 0 {
			shown += ", "
		}
		shown += fmt.Sprintf("RecordError(batchIndex=%d, message='%s')", r.Index, r.Message)
	}
	return &RecordErrors{kerr.InvalidRecord.With("One or more records have been rejected due to %d record errors in total, and only showing the first three errors at most: [%s]", e.total, shown), e.list}
}
