package cli

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"

	"github.com/highwater/highwater/internal/record"
)

// indexFile reads an offset or time index: entries of one size, of which the last may be cut short.
type indexFile struct {
	f       *os.File
	path    string
	base    int64
	length  int64
	entries int
	size    int // of an entry
	window  [8 << 10]byte
	from    int // the entry that window begins with
	n       int // entries in window
}

func openIndex(path string, base int64, size int) (*indexFile, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		// Kafka makes the file, and then has no size for it. We leave no file behind.
		return nil, illegalArgument("Invalid max index size: -1")
	}
	if err != nil {
		return nil, fileError(path, err)
	}
	info, err := f.Stat()
	if err == nil && info.Size() > math.MaxInt32 {
		err = illegalArgument("Size exceeds Integer.MAX_VALUE")
	}
	if err != nil {
		f.Close() // it was only read
		return nil, err
	}
	return &indexFile{f: f, path: path, base: base, length: info.Size(), entries: int(info.Size()) / size, size: size}, nil
}

func (x *indexFile) Close() { x.f.Close() } // it was only read: an error loses nothing

// entry is the bytes of entry i, valid until the next call.
func (x *indexFile) entry(i int) ([]byte, error) {
	if i < x.from || i >= x.from+x.n {
		fit := len(x.window) / x.size
		n := min(fit, x.entries-i)
		if _, err := x.f.ReadAt(x.window[:n*x.size], int64(i)*int64(x.size)); err != nil {
			return nil, fileError(x.path, err)
		}
		x.from, x.n = i, n
	}
	at := (i - x.from) * x.size
	return x.window[at : at+x.size], nil
}

const (
	offsetEntrySize = 8
	timeEntrySize   = 12
)

// offsetAt is an entry of an offset index.
func (x *indexFile) offsetAt(i int) (offset int64, position int32, err error) {
	b, err := x.entry(i)
	if err != nil {
		return 0, 0, err
	}
	return x.base + int64(int32(binary.BigEndian.Uint32(b))), int32(binary.BigEndian.Uint32(b[4:])), nil
}

// timeAt is an entry of a time index.
func (x *indexFile) timeAt(i int) (timestamp, offset int64, err error) {
	b, err := x.entry(i)
	if err != nil {
		return 0, 0, err
	}
	return int64(binary.BigEndian.Uint64(b)), x.base + int64(int32(binary.BigEndian.Uint32(b[8:]))), nil
}

// lookup is the position of the last entry at or before target, found in the way that Kafka searches: in an index that is
// not in order this decides what is found.
func (x *indexFile) lookup(target int64) (position int64, err error) {
	if x.entries == 0 {
		return 0, nil
	}
	const warm = 8192 / offsetEntrySize
	low, high := 0, x.entries-1
	hot := max(0, x.entries-1-warm)
	o, _, err := x.offsetAt(hot)
	if err != nil {
		return 0, err
	}
	if o < target {
		low = hot
	} else {
		if o, _, err = x.offsetAt(0); err != nil || o > target {
			return 0, err
		}
		high = hot
	}
	for low < high {
		mid := (low + high + 1) / 2
		o, p, err := x.offsetAt(mid)
		switch {
		case err != nil:
			return 0, err
		case o > target:
			high = mid - 1
		case o < target:
			low = mid
		default:
			return int64(p), nil
		}
	}
	_, p, err := x.offsetAt(low)
	return int64(p), err
}

func corruptIndex(format string, args ...any) error {
	return &JavaError{Class: "org.apache.kafka.storage.internals.log.CorruptIndexException", Text: fmt.Sprintf(format, args...)}
}

// dumpOffsetIndex prints an offset index, and compares it with its log.
func (d *dumpLog) dumpOffsetIndex(path string, maxMessage int) error {
	first, err := firstOffset(path)
	if err != nil {
		return err
	}
	log, err := openSegment(beside(path, ".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	x, err := openIndex(path, first, offsetEntrySize)
	if err != nil {
		return err
	}
	defer x.Close()
	if x.entries == 0 {
		d.e.Printf("%s is empty.\n", path)
		return nil
	}
	if d.p.Has(d.sanityOnly) {
		last, _, err := x.offsetAt(x.entries - 1)
		switch {
		case err != nil:
			return err
		case last < first:
			return corruptIndex("Corrupt index found, index file %s has non-zero size but the last offset is %d which is less than the base offset %d", absolute(path), last, first)
		case x.length%offsetEntrySize != 0:
			return corruptIndex("Index file %s is corrupt, found %d bytes which is neither positive nor a multiple of 8", absolute(path), x.length)
		}
		d.e.Printf("%s passed sanity check.\n", path)
		return nil
	}
	defer d.mismatches.unique(path, true)
	for i := range x.entries {
		offset, position, err := x.offsetAt(i)
		if err != nil {
			return err
		}
		if offset == first && i > 0 {
			return nil // zeros: the file was preallocated, and this is where its entries end
		}
		view, err := log.slice(int64(position), int64(maxMessage))
		if err != nil {
			return err
		}
		b, ok, err := view.next(view.start)
		if err != nil {
			return err
		}
		if !ok {
			return &JavaError{Class: "java.util.NoSuchElementException"}
		}
		found, err := b.lastOffset()
		if err != nil {
			return err
		}
		if found != offset {
			d.mismatches.add(path, offset, found)
		}
		if !d.p.Has(d.verifyOnly) {
			d.line = appendInt(append(d.line, "offset: "...), offset)
			d.line = append(appendInt(append(d.line, " position: "...), int64(position)), '\n')
			if err := d.write(); err != nil {
				return err
			}
		}
	}
	return nil
}

// dumpTimeIndex prints a time index, and compares it with its log, in which it looks entries up by the offset index.
func (d *dumpLog) dumpTimeIndex(path string) error {
	first, err := firstOffset(path)
	if err != nil {
		return err
	}
	log, err := openSegment(beside(path, ".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	offsets, err := openIndex(beside(path, ".index"), first, offsetEntrySize)
	if err != nil {
		return err
	}
	defer offsets.Close()
	x, err := openIndex(path, first, timeEntrySize)
	if err != nil {
		return err
	}
	defer x.Close()
	if d.p.Has(d.sanityOnly) {
		if err := sanityOfTimes(x); err != nil {
			return err
		}
		d.e.Printf("%s passed sanity check.\n", path)
		return nil
	}
	before := record.NoTimestamp
	framed := int64(math.MaxInt64) // from here on the log's batches are known to follow each other
	for i := range x.entries {
		timestamp, offset, err := x.timeAt(i)
		if err != nil {
			return err
		}
		if offset == first && i > 0 {
			return nil // as above
		}
		position, err := offsets.lookup(offset)
		if err != nil {
			return err
		}
		view, err := log.slice(position, math.MaxInt32)
		if err != nil {
			return err
		}
		if position < framed { // Kafka reads all the rest of the log, for each entry: a broken frame anywhere ends it
			if err := view.checkFrames(); err != nil {
				return err
			}
			framed = position
		}
		b, last, ok, err := view.find(offset)
		switch {
		case err != nil:
			return err
		case !ok:
			d.shallow.add(path, offset, -1)
		case last != offset:
			d.shallow.add(path, offset, last)
		default:
			most := record.NoTimestamp
			if err := b.records(func(r *record.Record, _ record.Batch) error { most = max(most, r.Timestamp); return nil }); err != nil {
				return err
			}
			if most != timestamp {
				d.timestamps.add(path, timestamp, most)
			}
			if before >= timestamp {
				d.timestampOrder.add(path, timestamp, before)
			}
		}
		if !d.p.Has(d.verifyOnly) {
			d.line = appendInt(append(d.line, "timestamp: "...), timestamp)
			d.line = append(appendInt(append(d.line, " offset: "...), offset), '\n')
			if err := d.write(); err != nil {
				return err
			}
		}
		before = timestamp
	}
	return nil
}

// checkFrames walks over all batches.
func (v segmentView) checkFrames() error {
	for pos := v.start; ; {
		b, ok, err := v.next(pos)
		if err != nil || !ok {
			return err
		}
		pos = b.end()
	}
}

// find is the first batch that ends at offset or after it.
func (v segmentView) find(offset int64) (b foundBatch, last int64, ok bool, err error) {
	for pos := v.start; ; pos = b.end() {
		if b, ok, err = v.next(pos); err != nil || !ok {
			return b, 0, false, err
		}
		if last, err = b.lastOffset(); err != nil || last >= offset {
			return b, last, err == nil, err
		}
	}
}

func sanityOfTimes(x *indexFile) error {
	if x.entries > 0 {
		start, _, err := x.timeAt(0)
		if err != nil {
			return err
		}
		timestamp, offset, err := x.timeAt(x.entries - 1)
		switch {
		case err != nil:
			return err
		case timestamp < start:
			return corruptIndex("Corrupt time index found, time index file (%s) has non-zero size but the last timestamp is %d which is less than the first timestamp %d", absolute(x.path), timestamp, start)
		case offset < x.base:
			return corruptIndex("Corrupt time index found, time index file (%s) has non-zero size but the last offset is %d which is less than the first offset %d", absolute(x.path), offset, x.base)
		}
	}
	if x.length%timeEntrySize != 0 {
		return corruptIndex("Time index file %s is corrupt, found %d bytes which is neither positive nor a multiple of 12", absolute(x.path), x.length)
	}
	return nil
}

// dumpTransactionIndex prints the aborted transactions of a segment. One that is cut short doesn't count; a file that isn't
// there has none.
func (d *dumpLog) dumpTransactionIndex(path string) error {
	if _, err := firstOffset(path); err != nil {
		return err
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fileError(path, err)
	}
	defer f.Close()
	const size = 34
	// Kafka reads all before it prints the first.
	for _, show := range []bool{false, true} {
		var b [size]byte
		for at := int64(0); ; at += size {
			if _, err := f.ReadAt(b[:], at); err == io.EOF {
				break
			} else if err != nil {
				return fileError(path, err)
			}
			if v := int16(binary.BigEndian.Uint16(b[:])); v != 0 {
				return &JavaError{Class: "org.apache.kafka.common.KafkaException", Text: fmt.Sprintf("Unexpected aborted transaction version %d in transaction index %s, supported version range is 0 to 0", v, absolute(path))}
			}
			if !show {
				continue
			}
			n := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[i:])) }
			d.line = fmt.Appendf(d.line, "version: 0 producerId: %d firstOffset: %d lastOffset: %d lastStableOffset: %d\n", n(2), n(10), n(18), n(26))
			if err := d.write(); err != nil {
				return err
			}
		}
	}
	return nil
}

// producerSize is that of an entry in a producer snapshot.
const producerSize = 46

// dumpProducers prints a producer snapshot. What is wrong with it is said on standard error, and ends nothing.
func (d *dumpLog) dumpProducers(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fileError(path, err)
	}
	entries, fault := checkProducers(b)
	if fault != "" {
		d.e.Errorf("%s", fault)
		return nil
	}
	for ; len(entries) > 0; entries = entries[producerSize:] {
		i16 := func(i int) int16 { return int16(binary.BigEndian.Uint16(entries[i:])) }
		i32 := func(i int) int32 { return int32(binary.BigEndian.Uint32(entries[i:])) }
		i64 := func(i int) int64 { return int64(binary.BigEndian.Uint64(entries[i:])) }
		transaction := "OptionalLong.empty"
		if o := i64(38); o >= 0 {
			transaction = fmt.Sprintf("OptionalLong[%d]", o)
		}
		d.line = fmt.Appendf(d.line, "producerId: %d producerEpoch: %d coordinatorEpoch: %d currentTxnFirstOffset: %s lastTimestamp: %d", i64(0), i16(8), i32(34), transaction, i64(26))
		if last := i64(14); last >= 0 {
			d.line = fmt.Appendf(d.line, " firstSequence: %d lastSequence: %d lastOffset: %d offsetDelta: %d timestamp: %d", decrementSequence(i32(10), i32(22)), i32(10), last, i32(22), i64(26))
		}
		d.line = append(d.line, '\n')
		if err := d.write(); err != nil {
			return err
		}
	}
	return nil
}

// checkProducers gives the entries of a producer snapshot, or what is wrong with it.
func checkProducers(b []byte) (entries []byte, fault string) {
	const invalid = "Snapshot failed schema validation: "
	if len(b) < 2 {
		return nil, invalid + "null"
	}
	if v := int16(binary.BigEndian.Uint16(b)); v != 1 {
		return nil, fmt.Sprintf(invalid+"Snapshot contained an unknown file version %d", v)
	}
	if len(b) < 10 {
		return nil, invalid + "null"
	}
	stored, count := binary.BigEndian.Uint32(b[2:]), int32(binary.BigEndian.Uint32(b[6:]))
	rest := b[10:]
	switch {
	case count < 0:
		return nil, invalid + "non-nullable field producerEntries was serialized as null"
	case int64(count) > int64(len(rest)):
		return nil, fmt.Sprintf("%sTried to allocate a collection of size %d, but there are only %d bytes remaining.", invalid, count, len(rest))
	case int64(count)*producerSize > int64(len(rest)):
		return nil, invalid + "null"
	}
	if computed := crc32.Checksum(b[6:], crc32.MakeTable(crc32.Castagnoli)); computed != stored {
		return nil, fmt.Sprintf("Snapshot is corrupt (CRC is no longer valid). Stored crc: %d. Computed crc: %d", stored, computed)
	}
	return rest[:int(count)*producerSize], ""
}

// decrementSequence goes back from a sequence number; before 0 comes 2^31-1.
func decrementSequence(sequence, by int32) int32 {
	if sequence < by {
		return math.MaxInt32 - (by - sequence) + 1
	}
	return sequence - by
}
