package record

import (
	"iter"

	"github.com/highwater/highwater/internal/kafka"
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
	Size       int // in bytes, with the length in front, not compressed
}

// Headers are a record's headers, still encoded but known to be well-formed.
type Headers struct {
	n   int
	raw []byte
}

// Len is the number of headers.
func (h Headers) Len() int { return h.n }

// All iterates over keys and values; a null value is nil.
func (h Headers) All() iter.Seq2[[]byte, []byte] { panic("building") }

// Reader iterates over the records of a batch. It allocates nothing for a record; its memory is bounded by the largest
// record plus what the codec needs.
type Reader struct{ rec Record }

// NewReader returns a pooled Reader for the records of a whole batch. The CRC is not looked at. An error shows in Err.
func NewReader(b Batch) *Reader { panic("building") }

// Next reads the next record; false at the end or at an error.
func (r *Reader) Next() bool { panic("building") }

// Record is the record that Next read. It is valid until the following Next or Close.
func (r *Reader) Record() *Record { return &r.rec }

// Err is what ended the iteration, or nil if it was the batch's end.
func (r *Reader) Err() error { panic("building") }

// Close gives the Reader back to its pool.
func (r *Reader) Close() { panic("building") }

// All iterates over the records of a whole batch. The record is valid until the next step; after an error it ends.
func (b Batch) All() iter.Seq2[*Record, error] { panic("building") }
