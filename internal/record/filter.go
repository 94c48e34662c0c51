package record

import (
	"errors"
	"math"

	"github.com/highwater/highwater/internal/codec"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

// FilterOptions say what is to become of a batch, apart from its single records.
type FilterOptions struct {
	DropAll   bool // no record stays: they are of an aborted transaction, or a marker whose time has come
	KeepEmpty bool // a batch without a record stays as a header, for the producer's last sequence or the log's last offset

	// DeleteHorizon (ms) is set in a batch that has none yet if a tombstone stays in it or LoneMarker is set: the batch holds a
	// marker of a transaction of which nothing else is left.
	DeleteHorizon int64
	LoneMarker    bool
	// MaxRecordBytes bounds a record in a compressed batch: max.decompressed.message.bytes.
	MaxRecordBytes int
}

// Filtered tells what AppendTo did.
type Filtered struct {
	Read, Kept int
	// Rewritten is false if the batch was copied as it is, or nothing was written.
	Rewritten bool
	// Size in bytes and last offset of what was appended; Size is 0 for nothing.
	Size         int
	LastOffset   kafka.Offset
	MaxTimestamp int64
}

// Filter makes batches anew with a part of their records, as Kafka's cleaner does: offsets, sequences, epochs, producer and codec
// stay; of magic 2 also the batch's first and last offset. What was of magic 0 or 1 becomes magic 2. The zero Filter is
// ready. Its memory is bounded by the largest batch, unpacked, and that by maxRebuild: a larger one is kept as it is.
type Filter struct {
	unpacked []byte
	kept     []keptRecord
	flags    []bool // of a legacy batch's records: kept
	builder  Builder
}

// keptRecord is a record that stays: its encoding from the offset delta on needs no change.
type keptRecord struct {
	from, to  int // in the payload
	timestamp int64
}

// AppendTo appends to dst what is left of b, a whole batch whose checksum is right: nothing, b itself, b's header, or a batch of
// the records for which keep holds. A key of nil is null; what keep gets is valid until it returns. An error means that b can't be read.
func (f *Filter) AppendTo(dst []byte, b Batch, o *FilterOptions, keep func(offset kafka.Offset, key []byte, tombstone bool) bool) ([]byte, Filtered, error) {
	var r Filtered
	if o.DropAll {
		return f.end(dst, b, o, r, false)
	}
	if b.Magic() < 2 {
		return f.legacy(dst, b, o, keep)
	}
	count := int(b.Count())
	if count < 0 {
		return dst, r, kerr.InvalidRecord.With("Found invalid record count %d in magic v2 batch", count)
	}
	if count == 0 {
		return f.end(dst, b, o, r, false)
	}
	payload, whole, err := f.payload(b)
	if err != nil {
		return dst, r, err
	}
	if !whole {
		r.Read, r.Kept = count, count
		return f.copy(dst, b, r)
	}
	compressed := b.Codec() != codec.None
	base, baseTimestamp, ofBatch := b.BaseOffset(), b.BaseTimestamp(), b.TimestampType() == LogAppendTime
	f.kept = f.kept[:0]
	tombstones := false
	var raw rawRecord
	at := 0
	for r.Read < count {
		n := parseRecord(payload[at:], &raw)
		if n <= 0 {
			return dst, r, recordFault(payload[at:])
		}
		if compressed && o.MaxRecordBytes > 0 && raw.body > o.MaxRecordBytes {
			return dst, r, recordTooLarge(raw.body, o.MaxRecordBytes)
		}
		r.Read++
		rec := payload[at : at+n : at+n]
		var key []byte
		if raw.keySize >= 0 {
			key = rec[raw.key : raw.key+raw.keySize : raw.key+raw.keySize]
		}
		if keep(base+int64(raw.offsetDelta), key, raw.valueSize < 0) {
			tombstones = tombstones || raw.valueSize < 0
			_, delta := readVarlong(rec, n-raw.body+1)
			t := baseTimestamp + raw.timestampDelta
			if ofBatch {
				t = b.MaxTimestamp()
			}
			f.kept = append(f.kept, keptRecord{at + delta, at + n, t})
		}
		at += n
	}
	if at < len(payload) {
		return dst, r, stillRemaining()
	}
	r.Kept = len(f.kept)
	horizon := (tombstones || o.LoneMarker) && !b.HasDeleteHorizon()
	if r.Kept == 0 || r.Kept == r.Read && !horizon {
		return f.end(dst, b, o, r, r.Kept > 0)
	}
	options := OptionsOf(b)
	if horizon {
		options.DeleteHorizon = o.DeleteHorizon
	}
	f.builder.Reset(options)
	for i := range f.kept {
		k := &f.kept[i]
		f.builder.appendTail(k.timestamp, payload[k.from:k.to])
	}
	// The batch's last offset stays even if its record went: else the producer's last sequence would be forgotten.
	f.builder.lastOffset = b.LastOffset()
	return f.build(dst, r)
}

// appendTail writes a record whose encoding from the offset delta on is tail. The caller sets the last offset.
func (b *Builder) appendTail(timestamp int64, tail []byte) {
	if b.count == 0 && b.o.DeleteHorizon == NoTimestamp {
		b.baseTimestamp = timestamp
	}
	delta := timestamp - b.baseTimestamp
	r := appendVarint(b.records, int32(1+sizeOfVarlong(delta)+len(tail)))
	r = append(r, 0)
	r = appendVarlong(r, delta)
	b.records = append(r, tail...)
	b.count++
	if b.o.TimestampType != LogAppendTime {
		b.maxTimestamp = max(b.maxTimestamp, timestamp)
	}
}

// payload is a batch's records, unpacked. whole is false if they are more than maxRebuild bytes.
func (f *Filter) payload(b Batch) (p []byte, whole bool, err error) {
	c := b.Codec()
	if c == codec.None {
		return b.Payload(), true, nil
	}
	if !c.Valid() {
		return nil, false, unknownCodec(c)
	}
	f.unpacked, err = codec.Decompress(f.unpacked[:0], c, b.Payload(), maxRebuild)
	if errors.Is(err, codec.ErrTooLarge) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, corruptData(err)
	}
	return f.unpacked, true, nil
}

// end writes a batch of which either all is left, or nothing.
func (f *Filter) end(dst []byte, b Batch, o *FilterOptions, r Filtered, all bool) ([]byte, Filtered, error) {
	if all {
		return f.copy(dst, b, r)
	}
	if !o.KeepEmpty {
		return dst, r, nil
	}
	options := OptionsOf(b)
	options.DeleteHorizon = NoTimestamp
	if b.Magic() < 2 {
		// Kafka's cleaner fails here. Only the offset is worth keeping.
		options = legacyOptions(b, b.LastOffset())
	}
	f.builder.Reset(options)
	f.builder.lastOffset = b.LastOffset()
	f.builder.maxTimestamp = b.MaxTimestamp()
	return f.build(dst, r)
}

func (f *Filter) copy(dst []byte, b Batch, r Filtered) ([]byte, Filtered, error) {
	r.Size, r.LastOffset, r.MaxTimestamp = len(b), b.LastOffset(), b.MaxTimestamp()
	return append(dst, b...), r, nil
}

func (f *Filter) build(dst []byte, r Filtered) ([]byte, Filtered, error) {
	start := len(dst)
	dst, err := f.builder.AppendTo(dst)
	if err != nil {
		return dst[:start], r, err
	}
	b := Batch(dst[start:])
	r.Rewritten, r.Size, r.LastOffset, r.MaxTimestamp = true, len(b), b.LastOffset(), b.MaxTimestamp()
	return dst, r, nil
}

// legacyOptions are those of the batch of magic 2 that takes the place of b, of magic 0 or 1.
func legacyOptions(b Batch, base kafka.Offset) BatchOptions {
	o := DefaultBatchOptions(base)
	o.Codec = b.Codec()
	if b.TimestampType() == LogAppendTime {
		o.TimestampType, o.LogAppendTime = LogAppendTime, b.MaxTimestamp()
	}
	return o
}

// legacy filters a batch of magic 0 or 1. What is left is of magic 2 even if that is all.
func (f *Filter) legacy(dst []byte, b Batch, o *FilterOptions, keep func(offset kafka.Offset, key []byte, tombstone bool) bool) ([]byte, Filtered, error) {
	var out Filtered
	tombstones, first := false, kafka.Offset(math.MaxInt64)
	f.flags = f.flags[:0]
	r := NewReader(b)
	for r.Next() {
		rec := r.Record()
		kept := keep(rec.Offset, rec.Key, rec.Value == nil)
		f.flags = append(f.flags, kept)
		out.Read++
		if kept {
			out.Kept++
			tombstones = tombstones || rec.Value == nil
			first = min(first, rec.Offset)
		}
	}
	err := r.Err()
	r.Close()
	if err != nil {
		return dst, out, err
	}
	if out.Kept == 0 {
		return f.end(dst, b, o, out, false)
	}
	options := legacyOptions(b, first)
	if tombstones {
		options.DeleteHorizon = o.DeleteHorizon
	}
	f.builder.Reset(options)
	r = NewReader(b)
	defer r.Close()
	for i := 0; r.Next(); i++ {
		if f.flags[i] {
			f.builder.AppendRecord(r.Record())
		}
	}
	if r.Err() != nil {
		return dst, out, r.Err()
	}
	return f.build(dst, out)
}

// Release gives back what large batches made the Filter hold.
func (f *Filter) Release() {
	if cap(f.unpacked) > keepBuffer {
		f.unpacked = nil
	}
	if cap(f.builder.records) > keepBuffer {
		f.builder.records = nil
	}
}
