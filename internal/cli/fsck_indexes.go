package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
)

// fsckIndex compares an offset or time index with the batches of its segment while those go by, entry by entry, so that
// neither is held in memory.
type fsckIndex struct {
	name    string
	present bool
	f       vfs.File
	size    int64
	width   int64
	entries int64 // by size
	next    int64 // the entry to be compared next
	used    int64 // entries before the zeros at the end; entries if there are none

	window [8 << 10]byte
	from   int64 // first entry in window
	have   int64

	// The entry before.
	lastRelative  int64
	lastPosition  int64
	lastTimestamp int64

	faults int
	fault  string // the first
	where  int64  // in bytes
}

// open prepares for a segment. No name and a file that isn't there are no error.
func (x *fsckIndex) open(fsys vfs.FS, name string, width int64) error {
	*x = fsckIndex{name: name, width: width, lastRelative: -1, lastPosition: -1, lastTimestamp: -1, where: -1}
	if name == "" {
		return nil
	}
	f, err := fsys.Open(name, vfs.ReadOnly)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	x.f, x.present = f, true
	if x.size, err = f.Size(); err != nil {
		return err
	}
	x.entries = x.size / width
	x.used = x.entries
	if x.size%width != 0 {
		x.bad(x.size-x.size%width, "its size of %d bytes is not a multiple of %d", x.size, width)
	}
	return nil
}

func (x *fsckIndex) close() {
	if x.f != nil {
		x.f.Close() // it was only read
		x.f = nil
	}
}

func (x *fsckIndex) bad(where int64, format string, args ...any) {
	if x.faults++; x.faults == 1 {
		x.fault, x.where = fmt.Sprintf(format, args...), where
	}
}

// entry is the bytes of the next entry; nil at the end of those in use.
func (x *fsckIndex) entry() ([]byte, error) {
	if x.f == nil || x.next >= x.used {
		return nil, nil
	}
	b, err := x.at(x.next)
	if err != nil {
		return nil, err
	}
	for _, c := range b {
		if c != 0 {
			return b, nil
		}
	}
	if x.next == 0 && x.entries == 1 && x.width == storage.TimeIndexEntrySize {
		return b, nil // a first record with timestamp 0
	}
	// An entry of zeros: the file was made long ahead of its use, and its entries end here. Then there are only zeros.
	end := x.next
	for i := end; i < x.entries; i++ {
		if b, err = x.at(i); err != nil {
			return nil, err
		}
		for _, c := range b {
			if c != 0 {
				x.bad(i*x.width, "entry %d follows entries of zeros", i)
				x.used = end
				return nil, nil
			}
		}
	}
	x.used = end
	return nil, nil
}

func (x *fsckIndex) at(i int64) ([]byte, error) {
	if i < x.from || i >= x.from+x.have {
		n := min(int64(len(x.window))/x.width, x.entries-i)
		if m, err := x.f.ReadAt(x.window[:n*x.width], i*x.width); int64(m) < n*x.width {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("read %s: %w", x.name, err)
		}
		x.from, x.have = i, n
	}
	return x.window[(i-x.from)*x.width:][:x.width], nil
}

// offsetBatch compares an offset index with a batch of the segment.
func (x *fsckIndex) offsetBatch(base, pos, last int64) error {
	for {
		b, err := x.entry()
		if b == nil || err != nil {
			return err
		}
		relative, position := storage.ParseOffsetIndexEntry(b)
		at := x.next * x.width
		switch {
		case int64(position) > pos:
			return nil // of a later batch
		case int64(relative) <= x.lastRelative || int64(position) <= x.lastPosition:
			x.bad(at, "entry %d (offset %d, position %d) does not follow the one before (offset %d, position %d)", x.next, base+int64(relative), position, base+x.lastRelative, x.lastPosition)
		case int64(position) < pos:
			x.bad(at, "entry %d (offset %d, position %d) points to where no batch begins", x.next, base+int64(relative), position)
		case base+int64(relative) != last:
			x.bad(at, "entry %d says that the batch at %d ends with offset %d, and it ends with %d", x.next, position, base+int64(relative), last)
		}
		x.lastRelative, x.lastPosition = int64(relative), int64(position)
		x.next++
	}
}

// timeBatch compares a time index with a batch of the segment. Since Kafka 3.7 or so an entry has the last offset of the batch
// with the timestamp, before that of the record in it.
func (x *fsckIndex) timeBatch(base, first, last, timestamp int64) error {
	for {
		b, err := x.entry()
		if b == nil || err != nil {
			return err
		}
		t, relative := storage.ParseTimeIndexEntry(b)
		at, offset := x.next*x.width, base+int64(relative)
		switch {
		case offset > last:
			return nil // of a later batch
		case t <= x.lastTimestamp || int64(relative) < x.lastRelative:
			x.bad(at, "entry %d (timestamp %d, offset %d) does not follow the one before (timestamp %d, offset %d)", x.next, t, offset, x.lastTimestamp, base+x.lastRelative)
		case offset < first:
			x.bad(at, "entry %d (timestamp %d, offset %d) names an offset in no batch", x.next, t, offset)
		case t != timestamp:
			x.bad(at, "entry %d has timestamp %d for offset %d, whose batch has %d", x.next, t, offset, timestamp)
		}
		x.lastRelative, x.lastTimestamp = int64(relative), t
		x.next++
	}
}

// rest takes what no batch was for.
func (x *fsckIndex) rest(what string) error {
	b, err := x.entry()
	if b != nil {
		x.bad(x.next*x.width, "entry %d (of %d) is for %s that is not in the segment", x.next, x.used, what)
	}
	return err
}
