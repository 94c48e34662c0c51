package record

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/highwater/highwater/internal/codec"
	"github.com/highwater/highwater/internal/kerr"
)

// walk validates the records of a whole batch of magic 2 that stays as it is, and returns their largest timestamp.
func walk(b Batch, o *Options) (largest int64, err error) {
	var c checker
	c.init(b, o)
	if b.Codec() == codec.None {
		records := b.Payload()
		n, state := c.run(records)
		switch records = records[n:]; {
		case state == recordRefused:
			return 0, c.fault
		case c.index < c.count:
			return 0, recordFault(records)
		case len(records) > 0:
			return 0, stillRemaining()
		}
		return c.largest, c.errors.err()
	}
	if err := walkCompressed(b, &c); err != nil {
		return 0, err
	}
	return c.largest, c.errors.err()
}

// recordRefused, beside parseRecord's results: the record is well-formed but makes the whole batch invalid.
const recordRefused = -2

// checker looks at each record of a batch.
type checker struct {
	o             *Options
	index, count  int32
	largest       int64
	baseOffset    int64
	baseTimestamp int64
	maxTimestamp  int64 // the records' timestamp if ofBatch
	ofBatch       bool  // the batch has LogAppendTime
	checkTime     bool
	refuseTime    bool // so has the topic, and then a client's batch may not
	needKey       bool
	inOrder       bool // offset deltas must be 0, 1, 2 …
	maxBody       int
	fault         error
	errors        *recordErrors

	// What fastRecord accepts: timestamps in [fastLow, fastHigh], encoded lengths up to fastBody.
	fastLow, fastHigh int64
	fastBody          uint64
}

func (c *checker) init(b Batch, o *Options) {
	*c = checker{
		o:             o,
		count:         b.Count(),
		largest:       NoTimestamp,
		baseOffset:    b.BaseOffset(),
		baseTimestamp: b.BaseTimestamp(),
		maxTimestamp:  b.MaxTimestamp(),
		ofBatch:       b.TimestampType() == LogAppendTime,
		checkTime:     o.TimestampType == CreateTime,
		needKey:       o.Compacted,
		maxBody:       math.MaxInt32,
	}
	c.refuseTime = c.ofBatch && o.TimestampType == LogAppendTime
	if b.Codec() != codec.None {
		c.inOrder = true
		if o.MaxDecompressedMessageBytes > 0 {
			c.maxBody = o.MaxDecompressedMessageBytes
		}
	}
	c.fastLow, c.fastHigh, c.fastBody = math.MinInt64, math.MaxInt64, 2*uint64(c.maxBody)
	if c.checkTime {
		// Where nothing can wrap. NoTimestamp, which is always fine, lies outside.
		c.fastLow, c.fastHigh = max(0, o.Now-o.TimestampBeforeMax), o.Now+o.TimestampAfterMax
		if c.fastHigh < o.Now {
			c.fastHigh = math.MaxInt64
		}
	}
	if c.ofBatch || o.Now < 0 {
		c.fastLow, c.fastHigh = math.MaxInt64, math.MinInt64
	}
}

// run checks the whole records at the start of b, returns how many bytes they take, and why it stopped: recordCut, recordBad,
// recordRefused (then fault is set), or 1 if all records were there.
func (c *checker) run(b []byte) (n, state int) {
	var raw rawRecord
	for c.index < c.count {
		if size := c.fastRecord(b[n:]); size > 0 {
			c.index++
			n += size
			continue
		}
		size := parseRecord(b[n:], &raw)
		if size <= 0 {
			return n, size
		}
		if !c.look(&raw) {
			return n, recordRefused
		}
		n += size
	}
	return n, 1
}

// fastRecord accepts the usual record at the start of b, one with short numbers, no headers and nothing that any check minds, and
// returns its size; 0 if somebody must look closer. It reads eight bytes at a time: three loads for a record.
func (c *checker) fastRecord(b []byte) int {
	if len(b) < 32 {
		return 0
	}
	var length, timestamp, offset, key, value uint64
	u := binary.LittleEndian.Uint64(b)
	i := 0
	switch {
	case u&0x80 == 0:
		length = u & 0x7f
		i++
	case u&0x8000 == 0:
		length = u&0x7f | u>>1&0x3f80
		i += 2
	case u&0x800000 == 0:
		length = u&0x7f | u>>1&0x3f80 | u>>2&0x1fc000
		i += 3
	default:
		return 0
	}
	if length&1 != 0 || length>>1 > uint64(len(b)-i) || length > c.fastBody {
		return 0
	}
	end := i + int(length>>1)
	i++ // attributes
	u = binary.LittleEndian.Uint64(b[i:])
	switch {
	case u&0x80 == 0:
		timestamp = u & 0x7f
		u >>= 8
		i++
	case u&0x8000 == 0:
		timestamp = u&0x7f | u>>1&0x3f80
		u >>= 16
		i += 2
	case u&0x800000 == 0:
		timestamp = u&0x7f | u>>1&0x3f80 | u>>2&0x1fc000
		u >>= 24
		i += 3
	default:
		return 0
	}
	switch {
	case u&0x80 == 0:
		offset = u & 0x7f
		u >>= 8
		i++
	case u&0x8000 == 0:
		offset = u&0x7f | u>>1&0x3f80
		u >>= 16
		i += 2
	default:
		return 0
	}
	switch {
	case u&0x80 == 0:
		key = u & 0x7f
		i++
	case u&0x8000 == 0:
		key = u&0x7f | u>>1&0x3f80
		i += 2
	default:
		return 0
	}
	if key&1 != 0 {
		if c.needKey {
			return 0
		}
	} else {
		i += int(key >> 1)
	}
	if i > len(b)-8 {
		return 0
	}
	u = binary.LittleEndian.Uint64(b[i:])
	switch {
	case u&0x80 == 0:
		value = u & 0x7f
		i++
	case u&0x8000 == 0:
		value = u&0x7f | u>>1&0x3f80
		i += 2
	case u&0x800000 == 0:
		value = u&0x7f | u>>1&0x3f80 | u>>2&0x1fc000
		i += 3
	default:
		return 0
	}
	if value&1 == 0 {
		i += int(value >> 1)
	}
	// One byte is left, the number of headers.
	if i != end-1 || end > len(b) || b[i] != 0 {
		return 0
	}
	if c.inOrder && offset != 2*uint64(c.index) {
		return 0
	}
	t := c.baseTimestamp + (int64(timestamp>>1) ^ -int64(timestamp&1))
	if t < c.fastLow || t > c.fastHigh {
		return 0
	}
	if t > c.largest {
		c.largest = t
	}
	return end
}

// look checks one record.
func (c *checker) look(raw *rawRecord) bool {
	timestamp := c.baseTimestamp + raw.timestampDelta
	if c.ofBatch {
		timestamp = c.maxTimestamp
	}
	if raw.body > c.maxBody {
		c.fault = recordTooLarge(raw.body, c.maxBody)
		return false
	}
	// The differences may wrap, as they do in Kafka.
	late := c.o.Now - timestamp
	if c.needKey && raw.keySize < 0 || c.refuseTime ||
		c.checkTime && timestamp != NoTimestamp && (late > c.o.TimestampBeforeMax || -late > c.o.TimestampAfterMax) {
		c.refuse(c.baseOffset+int64(raw.offsetDelta), timestamp, raw.keySize, raw.valueSize)
	} else {
		c.largest = max(c.largest, timestamp)
		if c.inOrder && raw.offsetDelta != c.index {
			// Kafka would have to rebuild the batch but has skipped the keys by then, and answers UNKNOWN_SERVER_ERROR.
			c.fault = kerr.InvalidRecord.With("Compressed record %d has offset delta %d in topic partition %s", c.index, raw.offsetDelta, c.o.Partition)
			return false
		}
	}
	c.index++
	return true
}

// refuse notes what is wrong with record c.index; the first of Kafka's checks that fails counts.
func (c *checker) refuse(offset, timestamp int64, keySize, valueSize int) {
	if c.errors == nil {
		c.errors = new(recordErrors)
	}
	switch {
	case c.needKey && keySize < 0:
		c.errors.add(c.index, "Compacted topic cannot accept message without key in topic partition "+c.o.Partition.String())
	case c.refuseTime:
		c.errors.time = true
		c.errors.add(c.index, fmt.Sprintf("Invalid timestamp type in message DefaultRecord(offset=%d, timestamp=%d, key=%d bytes, value=%d bytes). Producer should not set timestamp type to LogAppendTime.",
			offset, timestamp, max(0, keySize), max(0, valueSize)))
	default:
		c.errors.time = true
		c.errors.add(c.index, fmt.Sprintf("Timestamp %d of message with offset %d is out of range. The timestamp should be within [%d, %d]",
			timestamp, offset, c.o.Now-c.o.TimestampBeforeMax, c.o.Now+c.o.TimestampAfterMax))
	}
}

// stream is unpacked data of which a window is in memory.
type stream struct {
	data   *codec.Reader
	buffer []byte
	window []byte // the end of buffer that was not consumed yet
	err    error  // what the codec said, io.EOF included

	// Of skipRecord: bytes of the record so far, and what is wrong with it.
	taken int
	fault error
}

var streams = sync.Pool{New: func() any { return new(stream) }}

// skipFrom is the size from which on a record is not brought into the window but skipped.
const skipFrom = 256 << 10

func walkCompressed(b Batch, c *checker) error {
	data, err := codec.NewReader(b.Codec(), b.Payload())
	if err != nil {
		return corruptData(err)
	}
	s := streams.Get().(*stream)
	s.data = data
	defer s.release()
	for c.index < c.count {
		n, state := c.run(s.window)
		s.window = s.window[n:]
		switch state {
		case recordRefused:
			return c.fault
		case recordBad:
			return recordFault(s.window)
		case recordCut:
			length, at := readVarint(s.window, 0)
			if at > 0 && int(length) > c.maxBody {
				return recordTooLarge(int(length), c.maxBody)
			}
			if at > 0 && int(length) >= skipFrom {
				if err := s.skipRecord(c); err != nil {
					return err
				}
			} else if !s.fill() {
				if s.err != io.EOF {
					return corruptData(s.err)
				}
				return recordFault(s.window)
			}
		}
	}
	if len(s.window) > 0 || s.fill() {
		return stillRemaining()
	}
	if s.err != io.EOF {
		return corruptData(s.err)
	}
	return nil
}

func (s *stream) release() {
	s.data.Close()
	if cap(s.buffer) > keepBuffer {
		s.buffer = nil
	}
	*s = stream{buffer: s.buffer[:0]}
	streams.Put(s)
}

// fill brings another piece into the window.
func (s *stream) fill() bool {
	if s.err != nil {
		return false
	}
	n := copy(s.buffer[:cap(s.buffer)], s.window)
	s.buffer, s.err = s.data.More(s.buffer[:n])
	s.window = s.buffer
	return s.err == nil
}

// skipRecord checks a record whose key and value may be too large to hold, and drops it.
func (s *stream) skipRecord(c *checker) error {
	var raw rawRecord
	raw.body = int(s.varint())
	s.taken = 0
	s.skip(1) // attributes
	raw.timestampDelta = s.varlong()
	raw.offsetDelta = s.varint()
	raw.keySize = int(s.varint())
	s.skip(raw.keySize)
	raw.valueSize = int(s.varint())
	s.skip(raw.valueSize)
	headers := s.varint()
	if headers < 0 {
		s.fail(kerr.InvalidRecord.With("Found invalid number of record headers %d", headers))
	}
	for ; headers > 0 && s.fault == nil; headers-- {
		size := s.varint()
		if size < 0 {
			s.fail(kerr.InvalidRecord.With("Invalid negative header key size %d", size))
		}
		s.skip(int(size))
		s.skip(int(s.varint()))
	}
	if s.taken != raw.body {
		s.fail(kerr.InvalidRecord.With("Invalid record size: expected to read %d bytes in record payload, but instead read %d", raw.body, s.taken))
	}
	if s.fault == nil && !c.look(&raw) {
		return c.fault
	}
	return s.fault
}

// fail notes the first fault; from then on nothing is read.
func (s *stream) fail(err error) {
	if s.fault == nil {
		s.fault = err
	}
}

// need tells whether there is more in the window now, and notes the fault if not.
func (s *stream) need() bool {
	if s.fault != nil || s.fill() {
		return s.fault == nil
	}
	if s.err == io.EOF {
		s.fail(kerr.InvalidRecord.With("Reached end of input stream before skipping all bytes."))
	} else {
		s.fail(corruptData(s.err))
	}
	return false
}

func (s *stream) take(n int) {
	s.window = s.window[n:]
	s.taken += n
}

func (s *stream) varint() int32 {
	for s.fault == nil {
		v, n := readVarint(s.window, 0)
		switch {
		case n > 0:
			s.take(n)
			return v
		case n == varintLong:
			s.fail(structureFault())
		default:
			s.need()
		}
	}
	return 0
}

func (s *stream) varlong() int64 {
	for s.fault == nil {
		v, n := readVarlong(s.window, 0)
		switch {
		case n > 0:
			s.take(n)
			return v
		case n == varintLong:
			s.fail(structureFault())
		default:
			s.need()
		}
	}
	return 0
}

func (s *stream) skip(n int) {
	for n > 0 && s.fault == nil {
		if len(s.window) == 0 && !s.need() {
			return
		}
		step := min(n, len(s.window))
		s.take(step)
		n -= step
	}
}
