package storage

import (
	"io"
	"sync"

	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/vfs"
)

// headerScan walks over the headers of a segment's batches from a position on. It reads a page at a time, which near the end
// of an index interval holds all that it needs. The zero value is not ready: see scanHeaders.
type headerScan struct {
	f     vfs.File
	name  string
	pos   int64 // of the next batch
	limit int64 // end of what may be looked at

	page      *[4096]byte
	from, end int64 // of the file, in page
}

func scanHeaders(f vfs.File, pos, limit int64) headerScan {
	return headerScan{f: f, name: f.Name(), pos: pos, limit: limit, page: pages.Get().(*[4096]byte)}
}

func (s *headerScan) close() {
	pages.Put(s.page)
	s.page = nil
}

// next gives the header of the next batch, its position and its size. ok is false at the limit. What is no batch or goes
// beyond the limit is a *CorruptError: nothing that was appended ends there.
func (s *headerScan) next() (header record.Batch, pos int64, size int, ok bool, err error) {
	if s.pos >= s.limit {
		return nil, s.pos, 0, false, nil
	}
	if s.pos < s.from || s.pos+record.HeaderSize > s.end {
		n, err := s.f.ReadAt(s.page[:min(int64(len(s.page)), s.limit-s.pos)], s.pos)
		if err != nil && err != io.EOF {
			return nil, s.pos, 0, false, err
		}
		s.from, s.end = s.pos, s.pos+int64(n)
	}
	b := s.page[s.pos-s.from : s.end-s.from]
	size, whole, err := record.PeekSize(b)
	switch {
	case err != nil:
		return nil, s.pos, 0, false, corrupt(s.name, s.pos, "%s", err.Error())
	case !whole:
		return nil, s.pos, 0, false, corrupt(s.name, s.pos, "the file ends inside of a batch's header")
	case s.pos+int64(size) > s.limit:
		return nil, s.pos, 0, false, corrupt(s.name, s.pos, "the batch of %d bytes goes beyond the log's end at %d", size, s.limit)
	}
	b = b[:min(len(b), size)]
	if !headerWhole(b) {
		return nil, s.pos, 0, false, corrupt(s.name, s.pos, "the batch of %d bytes is smaller than a header", size)
	}
	pos = s.pos
	s.pos += int64(size)
	return record.Batch(b), pos, size, true, nil
}

// headerWhole tells whether the accessors of a batch may be used.
func headerWhole(b []byte) bool {
	if len(b) < record.PeekHeader {
		return false
	}
	if record.Batch(b).Magic() >= 2 {
		return len(b) >= record.HeaderSize
	}
	return len(b) >= 26+8*int(record.Batch(b).Magic())
}

// batchScan walks over whole batches, for recovery and other readings of whole segments.
type batchScan struct {
	f     vfs.File
	name  string
	pos   int64
	limit int64

	buf       []byte
	pooled    *[]byte // buf's, or nil if it is our own
	from, end int64   // of the file, in buf
}

// chunkSize is what batchScan reads at a time; larger batches get a buffer of their own.
const chunkSize = 256 << 10

var chunks = sync.Pool{New: func() any { b := make([]byte, chunkSize); return &b }}

func scanBatches(f vfs.File, pos, limit int64) *batchScan {
	p := chunks.Get().(*[]byte)
	return &batchScan{f: f, name: f.Name(), pos: pos, limit: limit, buf: *p, pooled: p}
}

func (s *batchScan) close() {
	if s.pooled != nil {
		chunks.Put(s.pooled)
	}
	s.buf, s.pooled = nil, nil
}

// next gives the next batch, valid until the following call, and its position. It is whole but not checked. ok is false
// at the limit. What is no batch or goes beyond the limit is a *CorruptError; other errors are of the disk.
func (s *batchScan) next() (b record.Batch, pos int64, ok bool, err error) {
	if s.pos >= s.limit {
		return nil, s.pos, false, nil
	}
	if s.pos+record.HeaderSize > s.end {
		if err := s.fill(record.HeaderSize); err != nil {
			return nil, s.pos, false, err
		}
	}
	size, whole, err := record.PeekSize(s.buf[s.pos-s.from : s.end-s.from])
	switch {
	case err != nil:
		return nil, s.pos, false, corrupt(s.name, s.pos, "%s", err.Error())
	case !whole:
		return nil, s.pos, false, corrupt(s.name, s.pos, "the file ends inside of a batch's header")
	case s.pos+int64(size) > s.limit:
		return nil, s.pos, false, corrupt(s.name, s.pos, "the file ends inside of a batch of %d bytes", size)
	}
	if s.pos+int64(size) > s.end {
		if err := s.fill(size); err != nil {
			return nil, s.pos, false, err
		}
		if s.pos+int64(size) > s.end {
			return nil, s.pos, false, corrupt(s.name, s.pos, "the file ends inside of a batch of %d bytes", size)
		}
	}
	b = record.Batch(s.buf[s.pos-s.from:][:size:size])
	if !headerWhole(b) {
		return nil, s.pos, false, corrupt(s.name, s.pos, "the batch of %d bytes is smaller than a header", size)
	}
	pos = s.pos
	s.pos += int64(size)
	return b, pos, true, nil
}

// fill reads from s.pos on at least need bytes, if the limit allows. What it allocates is bounded by the file's size, since
// next has checked that the batch ends within it.
func (s *batchScan) fill(need int) error {
	var have []byte // what is in memory already
	if s.from <= s.pos && s.pos < s.end {
		have = s.buf[s.pos-s.from : s.end-s.from]
	}
	n := len(have)
	if need > len(s.buf) {
		buf := make([]byte, need+need/4)
		copy(buf, have)
		s.close()
		s.buf = buf
	} else {
		copy(s.buf, have)
	}
	s.from, s.end = s.pos, s.pos+int64(n)
	// Of what comes behind a large batch only the next header, so that little is read that has to be moved.
	want := min(int64(max(need+record.HeaderSize, chunkSize)), int64(len(s.buf)), s.limit-s.pos)
	m, err := s.f.ReadAt(s.buf[n:want], s.end)
	if err != nil && err != io.EOF {
		return err
	}
	s.end += int64(m)
	return nil
}
