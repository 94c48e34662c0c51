package record

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/highwater/highwater/internal/codec"
	"github.com/highwater/highwater/internal/kafka"
)

// filtered is a batch of five records at offsets 100 to 104, of which the third is a tombstone, of a producer.
func filtered(t *testing.T, c codec.Type) Batch {
	t.Helper()
	o := DefaultBatchOptions(100)
	o.Codec, o.ProducerID, o.ProducerEpoch, o.BaseSequence = c, 7, 3, 40
	b := NewBuilder(o)
	for i := range 5 {
		value := fmt.Appendf(nil, "v%d", i)
		if i == 2 {
			value = nil
		}
		b.Append(int64(1000-10*i), fmt.Appendf(nil, "k%d", i), value)
	}
	batch, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

// TestFilter keeps some records of a batch and compares what is left: the batch's own offsets, producer and sequences stay whatever goes.
func TestFilter(t *testing.T) {
	const horizon = 5000
	f := func(c codec.Type, o FilterOptions, keep []kafka.Offset, size int, wantHorizon int64) {
		t.Helper()
		name := fmt.Sprintf("%v %+v keep %v", c, o, keep)
		b := filtered(t, c)
		before := bytes.Clone(b)
		var filter Filter
		out, r, err := filter.AppendTo([]byte("before"), b, &o, func(at kafka.Offset, _ []byte, _ bool) bool { return slices.Contains(keep, at) })
		if err != nil || !bytes.Equal(b, before) || !bytes.HasPrefix(out, []byte("before")) {
			t.Fatalf("%s: %v", name, err)
		}
		left := Batch(out[len("before"):])
		if r.Size != len(left) || (len(left) > 0) != (size >= 0) {
			t.Fatalf("%s: %d bytes, %+v", name, len(left), r)
		}
		if len(left) == 0 {
			return
		}
		if err := left.Check(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if left.BaseOffset() != 100 || left.LastOffset() != 104 || r.LastOffset != 104 || left.ProducerID() != 7 || left.ProducerEpoch() != 3 ||
			left.BaseSequence() != 40 || left.LastSequence() != 44 || int(left.Count()) != size || left.Codec() != c && size > 0 {
			t.Errorf("%s: offsets %d to %d, producer %d in epoch %d with sequences %d to %d, %d records", name, left.BaseOffset(), left.LastOffset(),
				left.ProducerID(), left.ProducerEpoch(), left.BaseSequence(), left.LastSequence(), left.Count())
		}
		if at, ok := left.DeleteHorizon(); ok != (wantHorizon >= 0) || ok && at != wantHorizon {
			t.Errorf("%s: delete horizon %d %v, want %d", name, at, ok, wantHorizon)
		}
		newest := NoTimestamp
		var offsets []kafka.Offset
		for rec, err := range left.All() {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			i := rec.Offset - 100
			if rec.Timestamp != 1000-10*i || string(rec.Key) != fmt.Sprintf("k%d", i) || (rec.Value == nil) != (i == 2) {
				t.Errorf("%s: record %+v", name, rec)
			}
			newest = max(newest, rec.Timestamp)
			offsets = append(offsets, rec.Offset)
		}
		if size == 0 {
			newest = 1000 // of what was there
		} else if !slices.Equal(offsets, keep) {
			t.Errorf("%s: offsets %v", name, offsets)
		}
		if left.MaxTimestamp() != newest || r.MaxTimestamp != newest {
			t.Errorf("%s: newest timestamp %d and %d, want %d", name, left.MaxTimestamp(), r.MaxTimestamp, newest)
		}
		if wantHorizon < 0 || size == 0 {
			return
		}
		// The horizon is set once: who cleans again later must not put it off.
		o.DeleteHorizon += 1000
		out, _, err = filter.AppendTo(nil, left, &o, func(kafka.Offset, []byte, bool) bool { return true })
		if err != nil || !bytes.Equal(out, left) {
			t.Errorf("%s: again: %v, the batch changed", name, err)
		}
		out, _, err = filter.AppendTo(nil, left, &o, func(at kafka.Offset, _ []byte, _ bool) bool { return at == keep[len(keep)-1] })
		if at, ok := Batch(out).DeleteHorizon(); err != nil || !ok || at != wantHorizon {
			t.Errorf("%s: again with one record: horizon %d %v %v", name, at, ok, err)
		}
		// Of a batch of which nothing is left it isn't known any more.
		o.KeepEmpty = true
		out, _, err = filter.AppendTo(nil, left, &o, func(kafka.Offset, []byte, bool) bool { return false })
		if err != nil || Batch(out).HasDeleteHorizon() || Batch(out).Count() != 0 || Batch(out).LastOffset() != 104 {
			t.Errorf("%s: again with nothing: %v", name, err)
		}
	}
	all := []kafka.Offset{100, 101, 102, 103, 104}
	for _, c := range []codec.Type{codec.None, codec.LZ4, codec.Zstd, codec.Gzip, codec.Snappy} {
		o := FilterOptions{DeleteHorizon: horizon}
		f(c, o, all, 5, horizon)
		f(c, o, []kafka.Offset{100, 101, 103, 104}, 4, -1)
		f(c, o, []kafka.Offset{101}, 1, -1)
		f(c, o, []kafka.Offset{102}, 1, horizon)
		f(c, o, []kafka.Offset{102, 104}, 2, horizon)
		f(c, o, nil, -1, -1)
		f(c, FilterOptions{DeleteHorizon: horizon, KeepEmpty: true}, nil, 0, -1)
		f(c, FilterOptions{DeleteHorizon: horizon, DropAll: true}, all, -1, -1)
		f(c, FilterOptions{DeleteHorizon: horizon, DropAll: true, KeepEmpty: true}, all, 0, -1)
		f(c, FilterOptions{DeleteHorizon: horizon, LoneMarker: true}, []kafka.Offset{103}, 1, horizon)
	}
}

// legacyMessage is a message of magic 0 or 1; a nil value is null.
func legacyMessage(magic, attributes byte, offset kafka.Offset, timestamp int64, key, value []byte) Batch {
	body := []byte{magic, attributes}
	if magic == 1 {
		body = binary.BigEndian.AppendUint64(body, uint64(timestamp))
	}
	for _, p := range [][]byte{key, value} {
		size := int32(-1)
		if p != nil {
			size = int32(len(p))
		}
		body = append(binary.BigEndian.AppendUint32(body, uint32(size)), p...)
	}
	out := binary.BigEndian.AppendUint64(nil, uint64(offset))
	out = binary.BigEndian.AppendUint32(out, uint32(4+len(body)))
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(body))
	return append(out, body...)
}

// TestFilterLegacy keeps some messages of a wrapper of magic 0 or 1, at offsets 100 to 104 of which 102 is a tombstone. What is left is of magic
// 2 and begins, as Kafka's cleaner has it, at the first message that stays; a tombstone gets a delete horizon. As a header alone it keeps
// the last offset.
func TestFilterLegacy(t *testing.T) {
	const horizon = 5000
	wrapper := func(magic, attributes byte) Batch {
		var set []byte
		for i := range int64(5) {
			offset, value := 100+i, fmt.Appendf(nil, "v%d", i)
			if magic == 1 {
				offset = i
			}
			if i == 2 {
				value = nil
			}
			set = append(set, legacyMessage(magic, attributes, offset, 1000-10*i, fmt.Appendf(nil, "k%d", i), value)...)
		}
		c := codec.Gzip
		packed, err := codec.Compress(nil, c, 6, set)
		if err != nil {
			t.Fatal(err)
		}
		return legacyMessage(magic, attributes|byte(c), 104, 1000, nil, packed)
	}
	const logAppendTime = 8
	for _, c := range []struct {
		b           Batch
		o           FilterOptions
		keep        []kafka.Offset
		first, last kafka.Offset // -1 for nothing
		horizon     int64
		timestamps  []int64
	}{
		{wrapper(1, 0), FilterOptions{}, []kafka.Offset{100, 101, 102, 103, 104}, 100, 104, horizon, []int64{1000, 990, 980, 970, 960}},
		{wrapper(1, 0), FilterOptions{}, []kafka.Offset{101, 103}, 101, 103, -1, []int64{990, 970}},
		{wrapper(1, 0), FilterOptions{}, []kafka.Offset{102, 104}, 102, 104, horizon, []int64{980, 960}},
		{wrapper(1, logAppendTime), FilterOptions{}, []kafka.Offset{101, 103}, 101, 103, -1, []int64{1000, 1000}},
		{wrapper(0, 0), FilterOptions{}, []kafka.Offset{101, 103}, 101, 103, -1, []int64{NoTimestamp, NoTimestamp}},
		{wrapper(0, 0), FilterOptions{}, []kafka.Offset{102}, 102, 102, horizon, []int64{NoTimestamp}},
		{wrapper(1, 0), FilterOptions{}, nil, -1, -1, -1, nil},
		{wrapper(1, 0), FilterOptions{KeepEmpty: true}, nil, 104, 104, -1, nil},
		{wrapper(0, 0), FilterOptions{KeepEmpty: true, DropAll: true}, nil, 104, 104, -1, nil},
	} {
		name := fmt.Sprintf("magic %d, keep %v, %+v", c.b.Magic(), c.keep, c.o)
		c.o.DeleteHorizon = horizon
		var filter Filter
		out, r, err := filter.AppendTo(nil, c.b, &c.o, func(at kafka.Offset, _ []byte, _ bool) bool { return slices.Contains(c.keep, at) })
		if err != nil || r.Size != len(out) || r.Kept != len(c.keep) {
			t.Fatalf("%s: %v %+v", name, err, r)
		}
		if c.first < 0 {
			if len(out) > 0 {
				t.Errorf("%s: %d bytes are left", name, len(out))
			}
			continue
		}
		left := Batch(out)
		if err := left.Check(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if left.Magic() != 2 || left.BaseOffset() != c.first || left.LastOffset() != c.last || r.LastOffset != c.last || left.Codec() != codec.Gzip && r.Kept > 0 {
			t.Errorf("%s: magic %d, %v, offsets %d to %d", name, left.Magic(), left.Codec(), left.BaseOffset(), left.LastOffset())
		}
		if h, ok := left.DeleteHorizon(); ok != (c.horizon >= 0) || ok && h != c.horizon {
			t.Errorf("%s: horizon %d %v", name, h, ok)
		}
		if c.b.TimestampType() == LogAppendTime && left.TimestampType() != LogAppendTime {
			t.Errorf("%s: timestamp type %v", name, left.TimestampType())
		}
		var offsets []kafka.Offset
		var timestamps []int64
		for rec, err := range left.All() {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			offsets, timestamps = append(offsets, rec.Offset), append(timestamps, rec.Timestamp)
		}
		if !slices.Equal(offsets, c.keep) || !slices.Equal(timestamps, c.timestamps) {
			t.Errorf("%s: records at %v of %v, want %v of %v", name, offsets, timestamps, c.keep, c.timestamps)
		}
	}
}
