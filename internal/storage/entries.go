package storage

import (
	"bytes"
	"io"
	"strings"
	"sync"

	"github.com/highwater/highwater/internal/vfs"
)

// entryFile is the offset or time index of a segment: entries of a fixed size, in order. The newest are kept in memory and
// written in one piece when there are many or when the segment is flushed: a crash may lose them, and then recovery makes
// the index anew. What is older is read from the file, without mapping it.
type entryFile struct {
	file  *file
	width int // bytes of an entry

	count  int    // entries
	stored int    // of these, the first that are in the file
	tail   []byte // the last entries: those from count - len(tail)/width on; at least those that aren't stored
	hold   bool   // nothing is written before replace
	stale  bool   // the file has what isn't of these entries, or perhaps just them, until the first write
}

// tailEntries is how many entries the tail has before it is written out: of half a megabyte of log or more, in 2.5 KiB of
// memory for both indexes. Thousands of partitions may be written to at once.
const tailEntries = 128

func (e *entryFile) append(entry []byte) error {
	if len(e.tail) >= tailEntries*e.width && !e.hold {
		if err := e.write(); err != nil {
			return err
		}
		keep := tailEntries / 2 * e.width
		e.tail = e.tail[:copy(e.tail, e.tail[len(e.tail)-keep:])]
	}
	e.tail = append(e.tail, entry...)
	e.count++
	return nil
}

// write stores what is only in memory.
func (e *entryFile) write() error {
	if e.stored == e.count && !e.stale {
		return nil
	}
	f, err := e.file.use()
	if err != nil {
		return err
	}
	defer e.file.release()
	if e.stale {
		same, err := e.matches(f)
		if err == nil && !same {
			err = f.Truncate(0)
		}
		if err != nil {
			return err
		}
		e.stale = false
		if same {
			e.stored = e.count
			return nil
		}
	}
	from := len(e.tail) - (e.count-e.stored)*e.width
	if _, err := f.WriteAt(e.tail[from:], int64(e.stored)*int64(e.width)); err != nil {
		return err
	}
	e.stored = e.count
	return nil
}

// matches tells whether the file has just what is in memory, which is all.
func (e *entryFile) matches(f vfs.File) (bool, error) {
	size, err := f.Size()
	if err != nil || size != int64(len(e.tail)) {
		return false, err
	}
	b := make([]byte, size)
	if err := readFull(f, b, 0); err != nil {
		return false, err
	}
	return bytes.Equal(b, e.tail), nil
}

// replace puts what is in memory, which is all, in place of the file, atomically: for an index that recovery would trust after
// the next crash.
func (e *entryFile) replace(fs vfs.FS) error {
	name := e.file.path()
	slash := strings.LastIndexByte(name, '/')
	if err := vfs.WriteFileAtomic(fs, name[:slash], name[slash+1:], e.tail); err != nil {
		return err
	}
	e.stored, e.tail, e.hold = e.count, nil, false
	return nil
}

// pages are what searches read.
var pages = sync.Pool{New: func() any { return new([4096]byte) }}

// entry is the raw bytes of an index entry.
type entry [timeEntrySize]byte

// find looks for the last entry for which atMost holds; entries are ordered so that it holds for a first part of them. It
// returns that entry and its number, or -1 if it holds for none.
func (e *entryFile) find(atMost func(entry []byte) bool) (found entry, i int, err error) {
	w := e.width
	inTail := len(e.tail) / w
	low := e.count - inTail // the tail's first entry
	if inTail > 0 && (low == 0 || atMost(e.tail[:w])) {
		lo, hi := 0, inTail // the number of entries for which it holds is in [lo, hi]
		for lo < hi {
			mid := int(uint(lo+hi) >> 1)
			if atMost(e.tail[mid*w : mid*w+w]) {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		if lo == 0 {
			return found, -1, nil
		}
		copy(found[:], e.tail[(lo-1)*w:lo*w])
		return found, low + lo - 1, nil
	}
	if low == 0 {
		return found, -1, nil
	}
	f, err := e.file.use()
	if err != nil {
		return found, 0, err
	}
	defer e.file.release()
	page := pages.Get().(*[4096]byte)
	defer pages.Put(page)
	lo, hi := 0, low // as above
	fits := len(page)/w - 1
	for hi-lo > fits {
		mid := int(uint(lo+hi) >> 1)
		if err := readFull(f, page[:w], int64(mid)*int64(w)); err != nil {
			return found, 0, err
		}
		if atMost(page[:w]) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	from := max(lo-1, 0) // that one is known to be good, if there is one
	if err := readFull(f, page[:(hi-from)*w], int64(from)*int64(w)); err != nil {
		return found, 0, err
	}
	n := 0
	for n < hi-from && atMost(page[n*w:n*w+w]) {
		n++
	}
	if n == 0 {
		return found, -1, nil
	}
	copy(found[:], page[(n-1)*w:n*w])
	return found, from + n - 1, nil
}

// at is entry i.
func (e *entryFile) at(i int) (found entry, err error) {
	if first := e.count - len(e.tail)/e.width; i >= first {
		copy(found[:], e.tail[(i-first)*e.width:(i-first+1)*e.width])
		return found, nil
	}
	f, err := e.file.use()
	if err != nil {
		return found, err
	}
	defer e.file.release()
	page := pages.Get().(*[4096]byte)
	defer pages.Put(page)
	err = readFull(f, page[:e.width], int64(i)*int64(e.width))
	copy(found[:], page[:e.width])
	return found, err
}

// truncate keeps the first n entries.
func (e *entryFile) truncate(n int) error {
	if n >= e.count {
		return nil
	}
	if first := e.count - len(e.tail)/e.width; n >= first {
		e.tail = e.tail[:(n-first)*e.width]
	} else {
		e.tail = e.tail[:0]
	}
	e.count = n
	if e.stored <= n {
		return nil
	}
	e.stored = n
	f, err := e.file.use()
	if err != nil {
		return err
	}
	defer e.file.release()
	return f.Truncate(int64(n) * int64(e.width))
}

// cool drops what is in memory and stored.
func (e *entryFile) cool() {
	if e.stored == e.count {
		e.tail = nil
	}
}

// readFull reads all of p, whose end the file must have.
func readFull(f io.ReaderAt, p []byte, off int64) error {
	n, err := f.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}
