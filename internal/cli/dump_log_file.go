package cli

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"

	"github.com/highwater/highwater/internal/codec"
	"github.com/highwater/highwater/internal/record"
)

// segmentFile reads a segment in pieces. Everything in it may be wrong, so nothing is believed that the file's size doesn't
// bear out; only a batch whose records are looked at is held as a whole.
type segmentFile struct {
	f    *os.File
	path string
	size int64

	window []byte // bytes of the file from at on
	at     int64
	batch  []byte // the last batch loaded
	header [record.HeaderSize]byte
}

const readAhead = 64 << 10

func openSegment(path string) (*segmentFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fileError(path, err)
	}
	info, err := f.Stat()
	if err == nil && info.Size() > math.MaxInt32 {
		err = &JavaError{Class: "org.apache.kafka.common.KafkaException", Text: fmt.Sprintf("The size of segment %s (%d) is larger than the maximum allowed segment size of %d", path, info.Size(), math.MaxInt32)}
	}
	if err != nil {
		f.Close() // it was only read
		return nil, err
	}
	return &segmentFile{f: f, path: path, size: info.Size()}, nil
}

func (s *segmentFile) Close() { s.f.Close() } // it was only read: an error loses nothing

// read returns n bytes at pos, which stay valid until the next read. io.ErrUnexpectedEOF: the file ends before.
func (s *segmentFile) read(pos int64, n int) ([]byte, error) {
	if pos >= s.at && pos+int64(n) <= s.at+int64(len(s.window)) {
		return s.window[pos-s.at:][:n], nil
	}
	if s.window == nil {
		s.window = make([]byte, 0, readAhead)
	}
	got, err := s.f.ReadAt(s.window[:max(n, readAhead)], pos)
	s.window, s.at = s.window[:got], pos
	if got < n {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return s.window[:n], nil
}

// segmentView is a part of a segment, Kafka's slice of FileRecords.
type segmentView struct {
	*segmentFile
	start, end int64
}

func (s *segmentFile) slice(pos, size int64) (segmentView, error) {
	whole := fmt.Sprintf("FileRecords(size=%d, file=%s, start=0, end=%d)", s.size, s.path, math.MaxInt32)
	switch {
	case pos < 0:
		return segmentView{}, illegalArgument(fmt.Sprintf("Invalid position: %d in read from %s", pos, whole))
	case pos > s.size:
		return segmentView{}, illegalArgument(fmt.Sprintf("Slice from position %d exceeds end position of %s", pos, whole))
	case size < 0:
		return segmentView{}, illegalArgument(fmt.Sprintf("Invalid size: %d in read from %s", size, whole))
	}
	return segmentView{s, pos, min(pos+size, s.size)}, nil
}

func (v segmentView) String() string {
	return fmt.Sprintf("FileRecords(size=%d, file=%s, start=%d, end=%d)", v.end-v.start, v.path, v.start, v.end)
}

// foundBatch is where a batch stands, and the three fields that all formats have at the same place.
type foundBatch struct {
	view   segmentView
	pos    int64
	size   int // with offset and length
	offset int64
	magic  int8
}

// next is the batch at pos. It isn't ok if there is no whole one, which at the end of a segment is an unfinished write.
func (v segmentView) next(pos int64) (b foundBatch, ok bool, err error) {
	if pos >= v.end-record.PeekHeader {
		return b, false, nil
	}
	h, err := v.read(pos, record.PeekHeader)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return b, false, exception("CorruptRecordException", "Unexpected EOF while attempting to read the next batch")
	}
	if err != nil {
		j := fileError(v.path, err)
		return b, false, &JavaError{Class: "org.apache.kafka.common.KafkaException", Text: javaLine(j)}
	}
	const least = 14 // an empty message of magic 0
	length := int32(binary.BigEndian.Uint32(h[8:]))
	if length < least {
		return b, false, exception("CorruptRecordException", fmt.Sprintf("Found record size %d smaller than minimum record overhead (%d) in file %s.", length, least, v.path))
	}
	if pos > v.end-record.LogOverhead-int64(length) {
		return b, false, nil
	}
	return foundBatch{view: v, pos: pos, size: int(length) + record.LogOverhead, offset: int64(binary.BigEndian.Uint64(h)), magic: int8(h[16])}, true, nil
}

func (b *foundBatch) end() int64 { return b.pos + int64(b.size) }

// loadHeader reads the fixed fields. As in Kafka, those of a batch that is too small come out of what follows it.
func (b *foundBatch) loadHeader() (record.Batch, error) {
	n := record.HeaderSize
	switch b.magic {
	case 0:
		n = 18
	case 1:
		n = 26
	}
	if b.magic < 0 {
		return nil, illegalArgument(fmt.Sprintf("Invalid magic used in LegacyRecord: %d", b.magic))
	}
	h, err := b.view.read(b.pos, n)
	if err != nil {
		return nil, &JavaError{Class: "org.apache.kafka.common.KafkaException", Text: fmt.Sprintf("Failed to load record batch at position %d from %s", b.pos, b.view)}
	}
	return append(b.view.header[:0], h...), nil
}

func (b *foundBatch) lastOffset() (int64, error) {
	if b.magic < 2 {
		return b.offset, nil
	}
	h, err := b.loadHeader()
	if err != nil {
		return 0, err
	}
	return h.LastOffset(), nil
}

// valid compares the checksum, piece by piece.
func (b *foundBatch) valid(header record.Batch) (bool, error) {
	pos, table := b.pos+16, crc32.IEEETable
	if b.magic >= 2 {
		if b.size < record.HeaderSize {
			return false, nil
		}
		pos, table = b.pos+21, crc32.MakeTable(crc32.Castagnoli)
	}
	sum := uint32(0)
	for pos < b.end() {
		p, err := b.view.read(pos, int(min(b.end()-pos, readAhead)))
		if err != nil {
			return false, fileError(b.view.path, err)
		}
		sum = crc32.Update(sum, table, p)
		pos += int64(len(p))
	}
	return sum == header.CRC(), nil
}

// load reads the whole batch. Its bytes are valid until the next one is loaded.
func (b *foundBatch) load() (record.Batch, error) {
	s := b.view.segmentFile
	if cap(s.batch) < b.size {
		s.batch = make([]byte, b.size+b.size/4)
	}
	s.batch = s.batch[:b.size]
	if b.size <= readAhead {
		p, err := b.view.read(b.pos, b.size)
		if err != nil {
			return nil, fileError(s.path, err)
		}
		copy(s.batch, p)
		return s.batch, nil
	}
	if n, err := s.f.ReadAt(s.batch, b.pos); n < b.size {
		return nil, fileError(s.path, err)
	}
	return s.batch, nil
}

// records calls each for every record of the batch. What is compressed is read to the end before the first call: Kafka
// unpacks a batch as a whole, and prints nothing of one that is broken.
func (b *foundBatch) records(each func(r *record.Record, message record.Batch) error) error {
	if b.magic >= 2 && b.size < record.HeaderSize {
		return &JavaError{Class: "java.lang.IndexOutOfBoundsException"}
	}
	batch, err := b.load()
	if err != nil {
		return err
	}
	if b.magic > 2 {
		batch[16] = 2 // Kafka reads every later format as this one
	}
	if batch.Codec() != codec.None {
		r := record.NewReader(batch)
		for r.Next() {
		}
		err := r.Err()
		r.Close()
		if err != nil {
			return recordError(err)
		}
	}
	r := record.NewReader(batch)
	defer r.Close()
	// A record is given on when the next was looked for: the last one is not if bytes are left behind it, for in Kafka
	// reading it fails. Compressed batches were found whole above, and their
	// records don't stay.
	var held record.Record
	var message record.Batch
	count := int64(0)
	for r.Next() {
		if batch.Codec() != codec.None {
			if err := each(r.Record(), r.Message()); err != nil {
				return err
			}
			continue
		}
		if count > 0 {
			if err := each(&held, message); err != nil {
				return err
			}
		}
		held, message = *r.Record(), r.Message()
		count++
	}
	err = recordError(r.Err())
	if count > 0 && (err == nil || count < int64(batch.Count())) {
		if err := each(&held, message); err != nil {
			return err
		}
	}
	return err
}
