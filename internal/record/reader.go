package record

import (
	"errors"
	"io"
	"iter"
	"sync"

	"github.com/highwater/highwater/internal/codec"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

// Record is one record of any magic. Key, Value and Headers point into the batch or, if that is compressed, into the
// Reader's buffer; nil is null.
type Record struct {
	Offset     kafka.Offset
	Timestamp  int64 // ms; the batch's append time if it has LogAppendTime; NoTimestamp in magic 0
	Sequence   int32 // kafka.NoSequence without a producer's
	Attributes int8  // unused in magic 2
	Key, Value []byte
	Headers    Headers
	Size       int // in bytes, not compressed: with the length in front in magic 2, with offset and length in magic 0 and 1
}

// Headers are a record's headers, still encoded but known to be well-formed.
type Headers struct {
	n   int
	raw []byte
}

// Len is the number of headers.
func (h Headers) Len() int { return h.n }

// All iterates over keys and values; a null value is nil.
func (h Headers) All() iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		i := 0
		for range h.n {
			size, at := readVarint(h.raw, i)
			i = at + int(size)
			key := h.raw[at:i:i]
			size, at = readVarint(h.raw, i)
			i = at
			var value []byte
			if size >= 0 {
				i += int(size)
				value = h.raw[at:i:i]
			}
			if !yield(key, value) {
				return
			}
		}
	}
}

// Reader iterates over the records of a batch. It allocates nothing for a record; its memory is bounded by the largest
// record plus what the codec needs. One goroutine should not read two zstd batches at once: of those with windows above
// the usual only one can be open.
type Reader struct {
	rec Record
	err error

	baseOffset    kafka.Offset
	baseTimestamp int64
	maxTimestamp  int64
	baseSequence  int32
	left          int32
	limit         int // of a record's size, 0 for none
	logAppendTime bool
	legacy        bool
	empty         bool  // no records: as in Kafka nobody looks at what follows the header
	message       Batch // magic 0 and 1: the message that rec is from

	window []byte        // what was not read yet
	data   *codec.Reader // where more comes from, or nil
	buffer []byte        // what window lies in, if data isn't nil; kept for the next batch
}

var recordReaders = sync.Pool{New: func() any { return new(Reader) }}

// keepBuffer is up to what size a buffer stays with a pooled object.
const keepBuffer = 2 << 20

// NewReader returns a pooled Reader for the records of a whole batch. The CRC is not looked at. An error shows in Err.
func NewReader(b Batch) *Reader {
	r := recordReaders.Get().(*Reader)
	r.open(b)
	return r
}

func (r *Reader) open(b Batch) {
	*r = Reader{buffer: r.buffer}
	if b.Magic() < 2 {
		r.openLegacy(b)
		return
	}
	if !b.headerFits() {
		r.fail(kerr.CorruptMessage.With("Record batch is corrupt (the size %d is smaller than the minimum allowed overhead %d)", len(b), HeaderSize))
		return
	}
	r.baseOffset, r.baseTimestamp, r.maxTimestamp = b.BaseOffset(), b.BaseTimestamp(), b.MaxTimestamp()
	r.baseSequence, r.left = b.BaseSequence(), b.Count()
	r.logAppendTime = b.TimestampType() == LogAppendTime
	if r.left < 0 {
		r.fail(kerr.InvalidRecord.With("Found invalid record count %d in magic v2 batch", r.left))
		return
	}
	c := b.Codec()
	switch {
	case !c.Valid():
		r.fail(unknownCodec(c))
	case r.left == 0:
		r.empty = true
	case c == codec.None:
		r.window = b.Payload()
	default:
		var err error
		if r.data, err = codec.NewReader(c, b.Payload()); err != nil {
			r.fail(corruptData(err))
		}
	}
}

// Next reads the next record; false at the end or at an error.
func (r *Reader) Next() bool {
	if r.err != nil || r.empty {
		return false
	}
	if r.legacy {
		return r.nextLegacy()
	}
	if r.left == 0 {
		return r.end()
	}
	var raw rawRecord
	for {
		n := parseRecord(r.window, &raw)
		if r.limit > 0 {
			if length, _ := readVarint(r.window, 0); int(length) > r.limit {
				return r.fail(recordTooLarge(int(length), r.limit))
			}
		}
		if n > 0 {
			r.left--
			r.take(n, &raw)
			return true
		}
		if n == recordCut && r.fill() {
			continue
		}
		if r.err == nil {
			r.fail(recordFault(r.window))
		}
		return false
	}
}

func (r *Reader) take(n int, raw *rawRecord) {
	b := r.window[:n:n]
	r.window = r.window[n:]
	rec := &r.rec
	rec.Offset = r.baseOffset + int64(raw.offsetDelta)
	rec.Timestamp = r.baseTimestamp + raw.timestampDelta
	if r.logAppendTime {
		rec.Timestamp = r.maxTimestamp
	}
	rec.Sequence = kafka.NoSequence
	if r.baseSequence >= 0 {
		rec.Sequence = AddSequence(r.baseSequence, raw.offsetDelta)
	}
	rec.Attributes = raw.attributes
	rec.Key, rec.Value = nil, nil
	if raw.keySize >= 0 {
		rec.Key = b[raw.key : raw.key+raw.keySize : raw.key+raw.keySize]
	}
	if raw.valueSize >= 0 {
		rec.Value = b[raw.value : raw.value+raw.valueSize : raw.value+raw.valueSize]
	}
	rec.Headers = Headers{raw.headerCount, b[raw.headers:]}
	rec.Size = n
}

// fill unpacks another piece behind the window; false if there is none.
func (r *Reader) fill() bool {
	if r.data == nil {
		return false
	}
	n := copy(r.buffer[:cap(r.buffer)], r.window) // window is the buffer's end
	var err error
	r.buffer, err = r.data.More(r.buffer[:n])
	r.window = r.buffer
	if err != nil && err != io.EOF {
		r.fail(corruptData(err))
	}
	return err == nil
}

// end makes sure that the batch ends where its count says.
func (r *Reader) end() bool {
	if len(r.window) > 0 || r.fill() {
		return r.fail(stillRemaining())
	}
	return false
}

func (r *Reader) fail(err error) bool {
	r.err = err
	return false
}

// Record is the record that Next read. It is valid until the following Next or Close.
func (r *Reader) Record() *Record { return &r.rec }

// Err is what ended the iteration, or nil if it was the batch's end.
func (r *Reader) Err() error { return r.err }

// Close gives the Reader back to its pool.
func (r *Reader) Close() {
	if r.data != nil {
		r.data.Close()
	}
	if cap(r.buffer) > keepBuffer {
		r.buffer = nil
	}
	*r = Reader{buffer: r.buffer[:0]}
	recordReaders.Put(r)
}

// All iterates over the records of a whole batch. The record is valid until the next step; after an error it ends.
func (b Batch) All() iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) {
		r := NewReader(b)
		defer r.Close()
		for r.Next() {
			if !yield(&r.rec, nil) {
				return
			}
		}
		if r.err != nil {
			yield(nil, r.err)
		}
	}
}

// FirstOffset is the offset of the first record of a compressed wrapper of magic 0 or 1, which only unpacking it tells, and
// BaseOffset of every other batch. The batch must be whole.
func (b Batch) FirstOffset() (kafka.Offset, error) {
	if b.Magic() >= 2 || b.Codec() == codec.None {
		return b.BaseOffset(), nil
	}
	r := NewReader(b)
	defer r.Close()
	if !r.Next() {
		return 0, r.Err()
	}
	return r.rec.Offset, nil
}

func unknownCodec(c codec.Type) error {
	return kerr.InvalidRecord.With("Unknown compression type id: %d", int8(c))
}

// corruptData is the client's error for what package codec found wrong. A retry would not help, so it is not CORRUPT_MESSAGE.
func corruptData(err error) error {
	return kerr.InvalidRecord.With("Failed to decompress record stream: %v", err)
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }
