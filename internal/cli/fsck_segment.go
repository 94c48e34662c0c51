package cli

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/vfs"
)

// fsckChunk is what a scan reads at a time. fsckMaxBatch is the largest batch that is held in memory as a whole; of a larger
// one only the checksum is computed. Kafka's message.max.bytes is 1 MiB by default.
const (
	fsckChunk    = 1 << 20
	fsckMaxBatch = 64 << 20
)

// fsckScan walks over a segment whose every byte may be wrong. It is kept and used again for the next segment.
type fsckScan struct {
	f         vfs.File
	size      int64
	pos       int64 // of the next batch
	buf       []byte
	from, end int64 // of the file, in buf

	magic int8 // of the last batch, if it was above 2

	progress func(int64) // if set, is told how many bytes were read
}

func (s *fsckScan) open(f vfs.File) error {
	size, err := f.Size()
	s.f, s.size, s.pos, s.from, s.end = f, size, 0, 0, 0
	return err
}

// fsckFrame says what stands at a place where a batch should.
type fsckFrame uint8

const (
	fsckWhole fsckFrame = iota // a batch, whole in memory
	fsckLarge                  // a batch above fsckMaxBatch: only its header is in memory
	fsckEnd                    // the end of the file
	fsckTorn                   // a batch that the file ends inside of
	fsckZeros                  // nothing but zeros up to the end of the file
	fsckBad                    // no batch
)

// next looks at the next batch and goes behind it, if it is whole. Of a torn one b has what is there. why says what is wrong.
func (s *fsckScan) next() (b record.Batch, pos int64, frame fsckFrame, why string, err error) {
	pos = s.pos
	left := s.size - pos
	if left <= 0 {
		return nil, pos, fsckEnd, "", nil
	}
	head, err := s.read(pos, int(min(left, record.HeaderSize)))
	if err != nil {
		return nil, pos, fsckBad, "", err
	}
	s.magic = 2
	if len(head) >= record.PeekHeader && record.Batch(head).Magic() > 2 {
		// As Kafka does, a later format is read as this one; the buffer is ours to change.
		s.magic, head[record.PeekHeader-1] = record.Batch(head).Magic(), 2
	}
	size, whole, perr := record.PeekSize(head)
	switch {
	case perr != nil || !whole:
		zeros, err := s.zeros(pos)
		if err != nil || zeros {
			return nil, pos, fsckZeros, "", err
		}
		if perr != nil {
			return nil, pos, fsckBad, fsckReason(perr), nil
		}
		return head, pos, fsckTorn, fmt.Sprintf("the file ends after %d bytes of a batch's header", left), nil
	case int64(size) > left:
		return head, pos, fsckTorn, fmt.Sprintf("the file ends after %d of the batch's %d bytes", left, size), nil
	case size > fsckMaxBatch:
		s.pos += int64(size)
		return head, pos, fsckLarge, "", nil
	}
	data, err := s.read(pos, size)
	if err != nil {
		return nil, pos, fsckBad, "", err
	}
	if s.magic > 2 {
		data[record.PeekHeader-1] = 2 // it may have been read anew
	}
	s.pos += int64(size)
	return record.Batch(data), pos, fsckWhole, "", nil
}

// fsckReason is an error's text without the name of its code.
func fsckReason(err error) string {
	var k *kerr.Error
	if errors.As(err, &k) {
		return k.Message()
	}
	return err.Error()
}

// read gives n bytes at pos, valid until the next call. n is bounded by the file's size and fsckMaxBatch.
func (s *fsckScan) read(pos int64, n int) ([]byte, error) {
	if pos < s.from || pos+int64(n) > s.end {
		// No more than the file has: most logs of a node with many partitions are small.
		if want := max(int(min(s.size, fsckChunk)), n+n/4); want > len(s.buf) {
			s.buf = make([]byte, want)
		}
		got, err := s.f.ReadAt(s.buf[:min(int64(len(s.buf)), s.size-pos)], pos)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		s.from, s.end = pos, pos+int64(got)
		if s.progress != nil {
			s.progress(int64(got))
		}
		if got < n {
			return nil, io.ErrUnexpectedEOF // cut off since it was opened
		}
	}
	return s.buf[pos-s.from:][:n:n], nil
}

// zeros tells whether there is nothing but zeros from pos on.
func (s *fsckScan) zeros(pos int64) (bool, error) {
	for pos < s.size {
		b, err := s.read(pos, int(min(s.size-pos, 64<<10)))
		if err != nil {
			return false, err
		}
		for _, c := range b {
			if c != 0 {
				return false, nil
			}
		}
		pos += int64(len(b))
	}
	return true, nil
}

// largeCRC compares the checksum of a large batch at pos, piece by piece.
func (s *fsckScan) largeCRC(header record.Batch, pos int64) (bool, error) {
	stored, size, table, from := header.CRC(), int64(header.Size()), crc32.IEEETable, pos+16
	if header.Magic() >= 2 {
		table, from = crc32.MakeTable(crc32.Castagnoli), pos+21
	}
	sum := uint32(0)
	for at := from; at < pos+size; {
		b, err := s.read(at, int(min(pos+size-at, fsckChunk)))
		if err != nil {
			return false, err
		}
		sum = crc32.Update(sum, table, b)
		at += int64(len(b))
	}
	return sum == stored, nil
}

// fsckHeaderFits tells whether the accessors of a batch may be used.
func fsckHeaderFits(b record.Batch) bool {
	switch {
	case len(b) < record.PeekHeader:
		return false
	case b.Magic() >= 2:
		return len(b) >= record.HeaderSize
	case b.Magic() == 1:
		return len(b) >= 34
	}
	return len(b) >= 26
}

// fsckInside is what the records of one batch turned out to be.
type fsckInside struct {
	records int64
	err     error  // they cannot be read
	stamp   string // what is wrong with the batch's timestamps
}

// fsckRecords reads all records of a whole batch whose checksum is right.
func fsckRecords(b record.Batch) (in fsckInside) {
	r := record.NewReader(b)
	defer r.Close()
	last, most := int64(-1), record.NoTimestamp
	legacy := b.Magic() < 2
	for r.Next() {
		rec := r.Record()
		in.records++
		switch {
		case rec.Offset <= last:
			in.err = fmt.Errorf("record %d has offset %d after %d", in.records-1, rec.Offset, last)
			return in
		case rec.Offset > b.LastOffset(), !legacy && rec.Offset < b.BaseOffset():
			in.err = fmt.Errorf("record %d has offset %d in a batch of offsets %d to %d", in.records-1, rec.Offset, b.BaseOffset(), b.LastOffset())
			return in
		}
		last, most = rec.Offset, max(most, rec.Timestamp)
		if m := r.Message(); legacy && m != nil && m.CRC() != m.ComputeCRC() {
			in.err = fmt.Errorf("the message at offset %d has the checksum %d, and its bytes %d", rec.Offset, m.CRC(), m.ComputeCRC())
			return in
		}
	}
	if in.err = r.Err(); in.err != nil {
		return in
	}
	if b.Magic() >= 2 && in.records > 0 && most != b.MaxTimestamp() && b.TimestampType() == record.CreateTime {
		in.stamp = fmt.Sprintf("the largest timestamp is %d, and the header says %d", most, b.MaxTimestamp())
	}
	return in
}

// fsckHeader looks at what a header of magic 2 says, beside places and sums. It returns "" or what is wrong.
func fsckHeader(b record.Batch) string {
	if b.Magic() < 2 {
		return ""
	}
	switch {
	case b.Count() < 0:
		return fmt.Sprintf("it has a count of %d records", b.Count())
	case b.LastOffsetDelta() < 0:
		return fmt.Sprintf("its last offset is %d less than its first", -int64(b.LastOffsetDelta()))
	case int64(b.Count()) > int64(b.LastOffsetDelta())+1:
		return fmt.Sprintf("it has %d records in %d offsets", b.Count(), int64(b.LastOffsetDelta())+1)
	case !b.Codec().Valid():
		return fmt.Sprintf("its codec is %d, which there is not", int8(b.Codec()))
	case b.Transactional() && !b.HasProducerID():
		return "it is transactional without a producer id"
	}
	return ""
}
