package storage

import (
	"errors"
	"fmt"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/vfs"
)

// Offsets can be missing between two segments of a log that nobody compacted, because a file was deleted by hand or lost. Nothing
// notices at a clean start, for what is read then are names, sizes and the end; a reader goes on behind the gap, as in Kafka, and has
// lost records without a word. So the owner asks for Gaps once, in the background, and says so.
//
// Where recovery reads, above the recovery point, such a gap may also be what a power cut left: a segment whose end was not synced yet,
// and one behind it that was. A replica must not go on behind that, or it would never fetch what it lacks. The log ends before the gap
// then, and what is behind it is set aside (setAsideLocked): it may have been a file of its own that is missing, and then these
// records are all that there is.

// Gap is a range of offsets that no segment has.
type Gap struct {
	First, Last kafka.Offset
	// Before and After are the .log files around it.
	Before, After string
}

// Gaps looks for offsets that are missing between two segments. It reads the end of each but the newest, and finds none in a log that
// is compacted or was once, where gaps are usual. What can't be read it passes over: whoever reads it for its records tells of that.
func (l *Log) Gaps() ([]Gap, error) {
	if l.cleaned.Load() >= 0 || l.config.Load().Compact {
		return nil, nil
	}
	segments := l.view.Load().segments
	var out []Gap
	for i, s := range segments[:len(segments)-1] {
		next, err := l.lastBatchEnd(s)
		var c *CorruptError
		switch {
		case errors.As(err, &c) || isNotExist(err): // not existing: deleted meanwhile
			continue
		case err != nil:
			return out, fmt.Errorf("look for gaps in %s: %w", l.path, err)
		}
		if after := segments[i+1]; next < after.base && l.start.Load() < after.base {
			out = append(out, Gap{next, after.base - 1, s.log.path(), after.log.path()})
		}
	}
	return out, nil
}

// lastBatchEnd is the offset after the last batch of a segment that is not the active one. It loads no index: so many may be looked at.
func (l *Log) lastBatchEnd(s *segment) (kafka.Offset, error) {
	from, err := l.lastIndexed(s)
	if err != nil {
		return 0, err
	}
	f, err := s.log.use()
	if err != nil {
		return 0, err
	}
	defer s.log.release()
	scan := scanHeaders(f, from, s.size())
	defer scan.close()
	for next := s.base; ; {
		h, _, _, ok, err := scan.next()
		if err != nil || !ok {
			return next, err
		}
		next = h.NextOffset()
	}
}

// lastIndexed is the position of the last batch that the offset index names, 0 if it names none or can't be used.
func (l *Log) lastIndexed(s *segment) (int64, error) {
	e := entryFile{file: l.files.file(s.path(indexSuffix)), width: offsetEntrySize}
	defer e.file.forget(ErrClosed) //nolint:errcheck // only read
	err := e.load(l, func(e []byte) bool { return decodeOffsetEntry(e).position != 0 })
	var c *CorruptError
	if errors.As(err, &c) || isNotExist(err) || err == nil && e.count == 0 {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	last, err := e.at(e.count - 1)
	if err != nil {
		return 0, err
	}
	entry := decodeOffsetEntry(last[:])
	if int64(entry.position) >= s.size() {
		return 0, nil
	}
	f, err := s.log.use()
	if err != nil {
		return 0, err
	}
	defer s.log.release()
	scan := scanHeaders(f, int64(entry.position), s.size())
	defer scan.close()
	h, _, _, ok, err := scan.next()
	if errors.As(err, &c) || err == nil && (!ok || h.BaseOffset() > s.base+int64(entry.relative) || h.LastOffset() < s.base+int64(entry.relative)) {
		return 0, nil // it names no batch: read from the start
	}
	return int64(entry.position), err
}

// setAsideLocked takes segments behind a gap out of the log, the newest first, so that what a power cut leaves has no other gap. Their .log
// files get the suffix .aside, which neither Kafka nor Highwater reads or removes. It returns the names.
func (l *Log) setAsideLocked(segments []*segment) ([]string, error) {
	var names []string
	for i := len(segments) - 1; i >= 0; i-- {
		s := segments[i]
		name, err := l.asideName(s)
		if err == nil {
			err = s.log.rename(name)
		}
		if err == nil {
			err = l.fs.SyncDir(l.path)
		}
		if err != nil {
			return names, fmt.Errorf("set segment %d of %v aside: %w", s.base, l.partition, err)
		}
		names = append(names, name)
		for _, suffix := range [...]string{indexSuffix, timeIndexSuffix, txnIndexSuffix, snapshotSuffix} {
			if err := l.fs.Remove(l.path + "/" + segmentName(s.base, suffix)); err != nil && !isNotExist(err) {
				return names, fmt.Errorf("set segment %d of %v aside: %w", s.base, l.partition, err)
			}
		}
		s.gone = true
		if err := s.log.forget(ErrClosed); err != nil {
			return names, err
		}
	}
	l.forgetSegmentsLocked(segments, nil)
	return names, l.fs.SyncDir(l.path)
}

// asideName is a name that is not taken.
func (l *Log) asideName(s *segment) (string, error) {
	for n := 1; ; n++ {
		name := s.path(logSuffix) + asideSuffix
		if n > 1 {
			name += fmt.Sprintf(".%d", n)
		}
		switch taken, err := exists(l.fs, name); {
		case err != nil:
			return "", err
		case !taken:
			return name, nil
		}
	}
}

func exists(fs vfs.FS, name string) (bool, error) {
	_, err := fs.Stat(name)
	if isNotExist(err) {
		return false, nil
	}
	return err == nil, err
}
