package record

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/highwater/highwater/internal/codec"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

// Magic 0 and 1: a "batch" is one message, or one wrapper message whose value is a compressed set of messages. They are read and
// converted, never written. Offset (8 bytes) and length come first as in magic 2; then CRC, magic, attributes, in magic 1 a timestamp, and
// key and value, each after its length, where a negative one is null. Offsets inside a wrapper of magic 1 are relative to its first
// message's, and the wrapper has the last one's; in magic 0 they are absolute.
const (
	posLegacyCRC        = 12
	posLegacyAttributes = 17
	posLegacyTimestamp  = 18 // magic 1 only

	legacyOverheadV1 = 22 // CRC, magic, attributes, timestamp, two lengths

	// maxLegacySet bounds what a wrapper may hold unpacked. It has to be held as a whole, because the first offset follows from the
	// last. Kafka has no bound; no client wrote sets of more than some MB.
	maxLegacySet = 128 << 20
)

// legacyBody returns key and value of the message that b begins with. b holds the whole message.
func legacyBody(b Batch) (key, value []byte, err error) {
	i := posLegacyTimestamp
	if b.Magic() == 1 {
		i += 8
	}
	if key, i, err = legacyField(b, i); err == nil {
		value, _, err = legacyField(b, i) // what follows it nobody looks at, as in Kafka
	}
	return key, value, err
}

func legacyField(b Batch, i int) ([]byte, int, error) {
	if len(b)-i < 4 {
		return nil, 0, structureFault()
	}
	size := int(int32(binary.BigEndian.Uint32(b[i:])))
	i += 4
	switch {
	case size < 0:
		return nil, i, nil
	case size > len(b)-i:
		return nil, 0, structureFault()
	}
	return b[i : i+size : i+size], i + size, nil
}

// openLegacy prepares r to read b, of magic 0 or 1.
func (r *Reader) openLegacy(b Batch) {
	r.legacy = true
	if !b.headerFits() {
		r.fail(kerr.InvalidRecord.With("Record is too small, size = %d", len(b)))
		return
	}
	r.logAppendTime = b.TimestampType() == LogAppendTime
	r.maxTimestamp = b.MaxTimestamp()
	c := b.Codec()
	if c == codec.None {
		r.window, r.left = b, 1
		return
	}
	if !c.Valid() {
		r.fail(unknownCodec(c))
		return
	}
	if c == codec.Zstd {
		r.fail(kerr.InvalidRecord.With("Invalid wrapper compressionType found in legacy deep record iterator %d", b.Magic()))
		return
	}
	_, value, err := legacyBody(b)
	if err != nil {
		r.fail(err)
		return
	}
	if value == nil {
		r.fail(kerr.InvalidRecord.With("Found invalid compressed record set with null value (magic = %d)", b.Magic()))
		return
	}
	d, err := codec.NewReader(c, value)
	if b.Magic() == 0 && err == nil {
		d.Close()
		d, err = codec.NewLegacyReader(c, value)
	}
	if err != nil {
		r.fail(corruptData(err))
		return
	}
	defer d.Close()
	set := r.buffer[:0]
	for err == nil {
		if set, err = d.More(set); len(set) > maxLegacySet {
			err = codec.ErrTooLarge
		}
	}
	r.buffer = set
	if !isEOF(err) {
		r.fail(corruptData(err))
		return
	}
	count, last, err := scanLegacySet(set, b.Magic())
	if err != nil {
		r.fail(err)
		return
	}
	r.window, r.left = set, count
	if b.Magic() == 1 {
		// A wrapper's offset may be 0 in what certain versions of librdkafka produced; then the inner ones are taken as they are.
		if outer := b.BaseOffset(); outer != 0 {
			if outer < last {
				r.fail(kerr.InvalidRecord.With("Found invalid wrapper offset in compressed v1 message set, wrapper offset '%d' is less than the last inner message offset '%d' and it is not zero.", outer, last))
				return
			}
			r.baseOffset = outer - last
		}
	}
}

// scanLegacySet counts the messages of an unpacked set and finds the last one's offset. As in Kafka, a message that the set's end cuts
// short is ignored.
func scanLegacySet(set []byte, magic int8) (count int32, last kafka.Offset, err error) {
	for len(set) >= LogOverhead {
		size := int(int32(binary.BigEndian.Uint32(set[posLength:])))
		if size < minLength {
			return 0, 0, kerr.CorruptMessage.With("Record size %d is less than the minimum record overhead (%d)", size, minLength)
		}
		if size > len(set)-LogOverhead {
			break
		}
		m := Batch(set[:LogOverhead+size])
		if m.Magic() != magic {
			return 0, 0, kerr.InvalidRecord.With("Compressed message magic %d does not match wrapper magic %d", m.Magic(), magic)
		}
		if !m.headerFits() {
			return 0, 0, kerr.InvalidRecord.With("Record is too small, size = %d", len(m))
		}
		if m.Attributes()&attrCodec != 0 {
			return 0, 0, kerr.InvalidRecord.With("Inner messages must not be compressed")
		}
		last = m.BaseOffset()
		count++
		set = set[LogOverhead+size:]
	}
	if count == 0 {
		return 0, 0, kerr.InvalidRecord.With("Found invalid compressed record set with no inner records")
	}
	return count, last, nil
}

// nextLegacy reads the next message of the set, or the only one.
func (r *Reader) nextLegacy() bool {
	if r.left == 0 {
		return false
	}
	size := LogOverhead + int(binary.BigEndian.Uint32(r.window[posLength:]))
	m := Batch(r.window[:size:size])
	r.window = r.window[size:]
	r.left--
	r.message = m
	key, value, err := legacyBody(m)
	if err != nil {
		return r.fail(err)
	}
	r.rec = Record{
		Offset:     r.baseOffset + m.BaseOffset(),
		Timestamp:  m.BaseTimestamp(),
		Sequence:   kafka.NoSequence,
		Attributes: int8(m.Attributes()),
		Key:        key,
		Value:      value,
		Size:       size,
	}
	if r.logAppendTime {
		r.rec.Timestamp = r.maxTimestamp
	}
	return true
}

// innerCRC checks the checksum of the message inside of a wrapper that Next read last.
func (r *Reader) innerCRC(p kafka.TopicPartition) error {
	if stored, computed := r.message.CRC(), crc32.ChecksumIEEE(r.message[posMagic:]); stored != computed {
		return kerr.CorruptMessage.With("Record is corrupt (stored crc = %d, computed crc = %d) in topic partition %s", stored, computed, p)
	}
	return nil
}
