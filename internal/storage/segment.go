package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/vfs"
)

// segment is one .log file with its indexes. What readers need at once, the size and the next offset, is one atomic word:
// a reader that loads it sees both of the same moment.
type segment struct {
	base kafka.Offset
	log  *file
	// state is the next offset less base in the upper 32 bits and the size in bytes in the lower. Both fit: a segment has at
	// most 2^31-1 bytes, and its last offset is at most base + 2^31-1.
	state atomic.Uint64

	// unverified means that after an unclean start nobody has looked at this segment's checksums, since it lies below the
	// recovery point, or at those of its first part. Readers check what they serve; verified is how far that is done without a
	// gap, checkedFrom where what recovery has read begins: from there on all is good.
	unverified  atomic.Bool
	verified    atomic.Int64
	checkedFrom atomic.Int64
	// indexUnsynced means that the segment isn't the active one any more and its index files aren't synced yet. The recovery
	// point that is written down stays at or below such a segment: recovery makes its indexes anew.
	indexUnsynced atomic.Bool

	// hasTxnIndex is what the directory said when the log was opened; idx knows better once it is loaded.
	hasTxnIndex bool
	// preallocated means that the file is longer than size says: zeros up to segment.bytes.
	preallocated bool
	// checked means that idx is loaded and that the file ends where state says: the active segment may be appended to.
	checked atomic.Bool

	mu sync.Mutex // guards idx and what is in it; innermost lock but for Files'
	// idx is loaded when it is first needed.
	idx *indexes
	// gone means that the files have got the suffix .deleted: what isn't loaded can't be any more.
	gone bool
}

// indexes are what belongs to a segment beside its .log.
type indexes struct {
	offsets entryFile
	times   entryFile

	// aborted is the transaction index; txns is nil if there is no file.
	txns    *file
	aborted []abortedEntry
	// txnsUnsynced means that the file has entries that aren't synced. Recovery believes those below the recovery point.
	txnsUnsynced bool

	// bytesSinceEntry is what came into the segment since the last entry of the offset index.
	bytesSinceEntry int
	// maxTimestamp is the largest in the segment and maxTimestampOffset the last offset of the first batch that has it.
	maxTimestamp       int64
	maxTimestampOffset kafka.Offset
	// firstTimestamp is the largest of the first batch: a segment's age counts from there. NoTimestamp if that has none, and
	// hasFirst is false for an empty segment.
	firstTimestamp int64
	hasFirst       bool

	lastOffsetEntry offsetEntry
	lastTimeEntry   timeEntry

	repaired bool // made anew because of a bad entry: another one would be the log's fault
}

func packState(relativeNext, size int64) uint64 { return uint64(relativeNext)<<32 | uint64(size) }

func (s *segment) size() int64 { return int64(uint32(s.state.Load())) }

func (s *segment) next() kafka.Offset { return s.base + int64(s.state.Load()>>32) }

// end is the next offset and the size, of one moment.
func (s *segment) end() (next kafka.Offset, size int64) {
	st := s.state.Load()
	return s.base + int64(st>>32), int64(uint32(st))
}

func (s *segment) setEnd(next kafka.Offset, size int64) { s.state.Store(packState(next-s.base, size)) }

// fits tells whether an offset can be one of this segment.
func (s *segment) fits(o kafka.Offset) bool { return o >= s.base && o-s.base <= math.MaxInt32 }

// path is the name of one of the segment's files.
func (s *segment) path(suffix string) string {
	p := s.log.path()
	name := strings.LastIndexByte(p, '/') + 1 // there may be another suffix behind .log
	return p[:name+strings.IndexByte(p[name:], '.')] + suffix
}

// openIndexesLocked loads idx of a segment whose files are whole. s.mu is held.
func (l *Log) openIndexesLocked(s *segment) error {
	if s.idx != nil {
		return nil
	}
	if s.gone {
		return fs.ErrNotExist
	}
	idx := l.newIndexes(s)
	err := l.loadIndexesLocked(s, idx)
	var c *CorruptError
	if errors.As(err, &c) || isNotExist(err) {
		// Both indexes can be derived from the log, so they are made anew.
		idx = l.newIndexes(s)
		err = l.rebuildIndexesLocked(s, idx)
	}
	if err == nil {
		s.idx = idx
	}
	return err
}

func (l *Log) newIndexes(s *segment) *indexes {
	idx := &indexes{maxTimestamp: record.NoTimestamp, maxTimestampOffset: s.base, firstTimestamp: record.NoTimestamp}
	idx.lastTimeEntry.timestamp = record.NoTimestamp
	idx.offsets = entryFile{file: l.files.file(s.path(indexSuffix)), width: offsetEntrySize}
	idx.times = entryFile{file: l.files.file(s.path(timeIndexSuffix)), width: timeEntrySize}
	return idx
}

// close closes the index files. Later uses fail with err.
func (x *indexes) close(err error) error {
	errs := []error{x.offsets.file.forget(err), x.times.file.forget(err)}
	if x.txns != nil {
		errs = append(errs, x.txns.forget(err))
	}
	return errors.Join(errs...)
}

// loadIndexesLocked finds out where the indexes end, and what the segment's times are.
func (l *Log) loadIndexesLocked(s *segment, idx *indexes) error {
	size := s.size()
	err := idx.offsets.load(l, func(e []byte) bool { return decodeOffsetEntry(e).position != 0 })
	if err != nil {
		return err
	}
	if err := idx.times.load(l, func(e []byte) bool { return decodeTimeEntry(e) != timeEntry{} }); err != nil {
		return err
	}
	if n := idx.offsets.count; n > 0 {
		buf, err := idx.offsets.at(n - 1)
		if err != nil {
			return err
		}
		e := decodeOffsetEntry(buf[:])
		if int64(e.position) >= size || e.relative > math.MaxInt32 || s.base+int64(e.relative) >= s.next() {
			return corrupt(idx.offsets.file.path(), int64(n-1)*offsetEntrySize, "last entry (%d, %d) is not in the segment", s.base+int64(e.relative), e.position)
		}
		idx.lastOffsetEntry = e
	}
	if n := idx.times.count; n > 0 {
		buf, err := idx.times.at(n - 1)
		if err != nil {
			return err
		}
		e := decodeTimeEntry(buf[:])
		if e.relative > math.MaxInt32 || s.base+int64(e.relative) >= s.next() || e.timestamp < 0 {
			return corrupt(idx.times.file.path(), int64(n-1)*timeEntrySize, "last entry (%d, %d) is not in the segment", e.timestamp, s.base+int64(e.relative))
		}
		idx.lastTimeEntry = e
		idx.maxTimestamp, idx.maxTimestampOffset = e.timestamp, s.base+int64(e.relative)
	}
	if size > 0 {
		if idx.times.count == 0 && idx.offsets.count > 0 {
			// Timestamps may really be absent, but then so they are in every batch: see what follows the last entry of the offset
			// index. It costs one page.
			if err := l.scanTimesLocked(s, idx, int64(idx.lastOffsetEntry.position)); err != nil {
				return err
			}
		} else if idx.times.count == 0 {
			if err := l.scanTimesLocked(s, idx, 0); err != nil {
				return err
			}
		}
		if err := l.firstTimestampLocked(s, idx); err != nil {
			return err
		}
	}
	return l.loadTxnIndexLocked(s, idx)
}

// scanTimesLocked raises maxTimestamp by the batches from pos on.
func (l *Log) scanTimesLocked(s *segment, idx *indexes, pos int64) error {
	f, err := s.log.use()
	if err != nil {
		return err
	}
	defer s.log.release()
	scan := scanHeaders(f, pos, s.size())
	defer scan.close()
	for {
		h, _, _, ok, err := scan.next()
		if err != nil || !ok {
			return err
		}
		if t := h.MaxTimestamp(); t > idx.maxTimestamp {
			idx.maxTimestamp, idx.maxTimestampOffset = t, h.LastOffset()
		}
	}
}

func (l *Log) firstTimestampLocked(s *segment, idx *indexes) error {
	f, err := s.log.use()
	if err != nil {
		return err
	}
	defer s.log.release()
	scan := scanHeaders(f, 0, s.size())
	defer scan.close()
	h, _, _, ok, err := scan.next()
	if err == nil && ok {
		idx.firstTimestamp, idx.hasFirst = h.MaxTimestamp(), true
	}
	return err
}

// load finds the number of entries of an existing index file. Kafka leaves an index that it made long behind when it dies, and
// that of __cluster_metadata always: the entries end where set turns false.
func (e *entryFile) load(l *Log, set func(entry []byte) bool) error {
	size, err := e.file.size()
	if err != nil {
		return err
	}
	if size%int64(e.width) != 0 {
		return corrupt(e.file.path(), -1, "size %d is not a multiple of %d", size, e.width)
	}
	n := int(size / int64(e.width))
	if n == 0 {
		return nil
	}
	f, err := e.file.use()
	if err != nil {
		return err
	}
	defer e.file.release()
	var buf [timeEntrySize]byte
	if err := readFull(f, buf[:e.width], int64(n-1)*int64(e.width)); err != nil {
		return err
	}
	if !set(buf[:e.width]) && (n > 1 || e.width == offsetEntrySize) {
		lo, hi := 0, n-1
		for lo < hi {
			mid := int(uint(lo+hi) >> 1)
			if err := readFull(f, buf[:e.width], int64(mid)*int64(e.width)); err != nil {
				return err
			}
			if set(buf[:e.width]) {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		n = lo
	}
	e.count, e.stored = n, n
	return nil
}

func (l *Log) loadTxnIndexLocked(s *segment, idx *indexes) error {
	if !s.hasTxnIndex {
		return nil
	}
	name := s.path(txnIndexSuffix)
	b, err := l.fs.ReadFile(name, math.MaxInt32)
	if err != nil {
		return err
	}
	if idx.aborted, err = decodeAborted(b, s.base); err != nil {
		return corrupt(name, -1, "%v", err)
	}
	idx.txns = l.files.file(name)
	return nil
}

// rebuildIndexesLocked makes both indexes anew from the log, atomically, since the next start may trust them. The transaction
// index needs the producers' states, so it is kept if it is good and refused if not: then the log must be recovered.
func (l *Log) rebuildIndexesLocked(s *segment, idx *indexes) error {
	if err := l.loadTxnIndexLocked(s, idx); err != nil {
		return err
	}
	idx.offsets.hold, idx.times.hold = true, true
	f, err := s.log.use()
	if err != nil {
		return err
	}
	defer s.log.release()
	scan := scanHeaders(f, 0, s.size())
	defer scan.close()
	for {
		h, pos, size, ok, err := scan.next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if !s.fits(h.LastOffset()) {
			return corrupt(s.log.path(), pos, "offset %d doesn't fit a segment that begins at %d", h.LastOffset(), s.base)
		}
		if err := idx.add(s.base, pos, size, h.LastOffset(), h.MaxTimestamp(), int(l.config.Load().IndexIntervalBytes)); err != nil {
			return err
		}
	}
	if err := idx.endTimes(s.base); err != nil {
		return err
	}
	if err := idx.offsets.replace(l.fs); err != nil {
		return err
	}
	return idx.times.replace(l.fs)
}

// resetIndexFiles lets both indexes begin anew, whatever is in their files, which are there afterwards.
func (l *Log) resetIndexFiles(idx *indexes) error {
	for _, e := range []*entryFile{&idx.offsets, &idx.times} {
		size, err := l.sizeOrCreate(e.file.path())
		if err != nil {
			return err
		}
		e.count, e.stored, e.tail, e.stale = 0, 0, nil, size > 0
	}
	return nil
}

// sizeOrCreate is the size of a file that is made if it isn't there.
func (l *Log) sizeOrCreate(name string) (int64, error) {
	st, err := l.fs.Stat(name)
	if err == nil {
		return st.Size(), nil
	}
	if !isNotExist(err) {
		return 0, err
	}
	f, err := l.fs.Create(name)
	if err != nil {
		return 0, err
	}
	l.namesDirty.Store(true)
	return 0, f.Close()
}

func (l *Log) emptyFile(name string) error {
	f, err := l.fs.Open(name, vfs.ReadWrite)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(0), f.Close())
}

// add notes a batch at pos that came into the segment.
func (x *indexes) add(base kafka.Offset, pos int64, size int, lastOffset kafka.Offset, maxTimestamp int64, interval int) error {
	if maxTimestamp > x.maxTimestamp {
		x.maxTimestamp, x.maxTimestampOffset = maxTimestamp, lastOffset
	}
	if !x.hasFirst {
		x.hasFirst, x.firstTimestamp = true, maxTimestamp
	}
	if x.bytesSinceEntry > interval {
		e := offsetEntry{uint32(lastOffset - base), uint32(pos)}
		var buf [offsetEntrySize]byte
		if err := x.offsets.append(e.append(buf[:0])); err != nil {
			return err
		}
		x.lastOffsetEntry = e
		if err := x.addTime(base); err != nil {
			return err
		}
		x.bytesSinceEntry = 0
	}
	x.bytesSinceEntry += size
	return nil
}

// addTime adds an entry to the time index if there is a larger timestamp than the last one's.
func (x *indexes) addTime(base kafka.Offset) error {
	if x.maxTimestamp <= x.lastTimeEntry.timestamp {
		return nil
	}
	e := timeEntry{x.maxTimestamp, uint32(x.maxTimestampOffset - base)}
	var buf [timeEntrySize]byte
	if err := x.times.append(e.append(buf[:0])); err != nil {
		return err
	}
	x.lastTimeEntry = e
	return nil
}

// endTimes gives the time index its last entry, when the segment rolls or closes. An empty segment gets none.
func (x *indexes) endTimes(base kafka.Offset) error {
	if x.maxTimestamp == record.NoTimestamp {
		return nil
	}
	return x.addTime(base)
}

// full tells whether an index has no room for another entry and the one that closes the time index.
func (x *indexes) full(maxBytes int32) bool {
	return int32(x.offsets.count) >= maxBytes/offsetEntrySize || int32(x.times.count) >= maxBytes/timeEntrySize-1
}

// offsetFloor finds the last entry of the offset index at or below an offset: from its position on that offset can be found.
func (x *indexes) offsetFloor(base, offset kafka.Offset) (offsetEntry, error) {
	want := offset - base
	buf, i, err := x.offsets.find(func(e []byte) bool { return int64(decodeOffsetEntry(e).relative) <= want })
	if i < 0 || err != nil {
		return offsetEntry{}, err
	}
	return decodeOffsetEntry(buf[:]), nil
}

// positionFloor is where the last batch with an index entry begins at or below a position in the file; 0 if there is none.
func (x *indexes) positionFloor(position int64) (int64, error) {
	buf, i, err := x.offsets.find(func(e []byte) bool { return int64(decodeOffsetEntry(e).position) <= position })
	if i < 0 || err != nil {
		return 0, err
	}
	return int64(decodeOffsetEntry(buf[:]).position), nil
}

// timeFloor finds the last entry of the time index at or below a timestamp; ok is false if there is none.
func (x *indexes) timeFloor(timestamp int64) (e timeEntry, ok bool, err error) {
	buf, i, err := x.times.find(func(e []byte) bool { return decodeTimeEntry(e).timestamp <= timestamp })
	if i < 0 || err != nil {
		return timeEntry{}, false, err
	}
	return decodeTimeEntry(buf[:]), true, nil
}

// locate finds the first batch whose last offset is at or above offset, below limit bytes. ok is false if there is none.
func (l *Log) locate(s *segment, f vfs.File, offset kafka.Offset, limit int64) (header batchPlace, ok bool, err error) {
	if s == l.view.Load().active() {
		if err := l.checkEnd(s); err != nil {
			return batchPlace{}, false, err
		}
	}
	s.mu.Lock()
	err = l.openIndexesLocked(s)
	var floor offsetEntry
	if err == nil {
		floor, err = s.idx.offsetFloor(s.base, offset)
	}
	s.mu.Unlock()
	if err != nil {
		return batchPlace{}, false, err
	}
	pos := int64(floor.position)
	if pos >= limit {
		return batchPlace{}, false, nil // the index is ahead of what the caller may see
	}
	scan := scanHeaders(f, pos, limit)
	defer scan.close()
	for first := true; ; first = false {
		h, pos, size, ok, err := scan.next()
		if first && pos > 0 && (err != nil || ok && h.LastOffset() > s.base+int64(floor.relative)) {
			// The index leads to where no batch begins, or not the one that it means.
			if err := l.repairIndex(s, floor, err); err != nil {
				return batchPlace{}, false, err
			}
			return l.locate(s, f, offset, limit)
		}
		if err != nil || !ok {
			return batchPlace{}, false, err
		}
		if h.LastOffset() >= offset {
			return batchPlace{pos: pos, size: size, base: h.BaseOffset(), last: h.LastOffset(), epoch: h.PartitionLeaderEpoch()}, true, nil
		}
	}
}

// repairIndex makes the indexes of a segment anew after bad was found in them. The active segment's are as it wrote them: there
// the log is to blame, and cause is returned.
func (l *Log) repairIndex(s *segment, bad offsetEntry, cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cause == nil {
		cause = corrupt(s.path(indexSuffix), -1, "entry (%d, %d) is not of the batch at that position", s.base+int64(bad.relative), bad.position)
	}
	if s.gone || s.idx == nil || s.idx.repaired || s == l.view.Load().active() {
		return cause
	}
	idx := l.newIndexes(s)
	if err := l.rebuildIndexesLocked(s, idx); err != nil {
		return err
	}
	idx.repaired = true
	s.idx = idx
	return nil
}

// batchPlace is where a batch stands.
type batchPlace struct {
	pos        int64
	size       int
	base, last kafka.Offset
	epoch      kafka.LeaderEpoch
}

// largestTimestamp is the segment's largest timestamp or, if its records have none, the time of the file's last change.
func (l *Log) largestTimestamp(s *segment) (int64, error) {
	if s == l.view.Load().active() {
		// After a start the active segment may have timestamps that its index doesn't know.
		if err := l.checkEnd(s); err != nil {
			return 0, err
		}
	}
	s.mu.Lock()
	err := l.openIndexesLocked(s)
	var t int64
	if err == nil {
		t = s.idx.maxTimestamp
	}
	s.mu.Unlock()
	if err != nil || t >= 0 {
		return t, err
	}
	st, err := l.fs.Stat(s.log.path())
	if err != nil {
		return 0, err
	}
	return st.ModTime().UnixMilli(), nil
}

// preallocate makes the file of a new segment as long as it may become. Like Kafka's it gets no blocks of the disk by that, only its size.
func (s *segment) preallocate(f vfs.File, size int32) error {
	s.preallocated = true
	return f.Truncate(int64(size))
}

// trim cuts a preallocated file to what is in it. A power cut may bring the zeros back until it is synced.
func (s *segment) trim() error {
	if !s.preallocated {
		return nil
	}
	f, err := s.log.use()
	if err != nil {
		return err
	}
	defer s.log.release()
	if err := f.Truncate(s.size()); err != nil {
		return fmt.Errorf("trim %s: %w", f.Name(), err)
	}
	s.preallocated = false
	return nil
}

// syncFile syncs one file of the segment, if it is there.
func (l *Log) syncFile(x *file) error {
	f, err := x.use()
	if err != nil {
		return err
	}
	defer x.release()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", f.Name(), err)
	}
	return nil
}

// age is how long ago the segment's first batch was written, as segment.ms counts it: by the timestamps if there are any, so
// that a replayed log rolls in the same places.
func (x *indexes) age(now time.Time, newest int64, created time.Time) time.Duration {
	if x.hasFirst && x.firstTimestamp >= 0 {
		return Millis(newest - x.firstTimestamp)
	}
	return now.Sub(created)
}
