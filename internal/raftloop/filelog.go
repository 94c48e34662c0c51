package raftloop

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raft"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/vfs"
)

// FileLog is a Log of one file, for simulations of the protocol alone and for tests: the smallest thing that has the
// properties that the protocol relies on. What was synced survives, the end is cut at the first batch that is not whole,
// and a change of the beginning is a new file under its own name before the old one goes. Nodes use package storage's.
type FileLog struct {
	fs   vfs.FS
	dir  string
	file vfs.File
	base kafka.Offset // of the file
	size int64
	at   []batchAt // ascending
	end  kafka.Offset
}

type batchAt struct {
	base, last kafka.Offset
	epoch      kafka.LeaderEpoch
	pos        int64
	size       int
}

// OpenFileLog recovers the log in dir, or makes an empty one.
func OpenFileLog(fsys vfs.FS, dir string) (*FileLog, error) {
	l := &FileLog{fs: fsys, dir: dir}
	entries, err := fsys.List(dir)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	newest := kafka.Offset(-1)
	for _, e := range entries {
		var base kafka.Offset
		if strings.HasSuffix(e.Name(), ".log") {
			if _, err := fmt.Sscanf(e.Name(), "%020d.log", &base); err == nil && base > newest {
				newest = base
			}
		}
	}
	if newest < 0 {
		return l, l.startAt(0, nil)
	}
	for _, e := range entries {
		// A newer file was complete before it got its name.
		if name := e.Name(); (strings.HasSuffix(name, ".log") && name != fileLogName(newest)) || strings.HasSuffix(name, ".new") {
			if err := fsys.Remove(dir + "/" + name); err != nil {
				return nil, fmt.Errorf("remove %s: %w", name, err)
			}
		}
	}
	l.base, l.end = newest, newest
	if l.file, err = fsys.Open(dir+"/"+fileLogName(newest), vfs.ReadWrite); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return l, l.recover()
}

func fileLogName(base kafka.Offset) string { return fmt.Sprintf("%020d.log", base) }

func (l *FileLog) recover() error {
	size, err := l.file.Size()
	if err != nil {
		return fmt.Errorf("size of log: %w", err)
	}
	buf := make([]byte, size)
	if size > 0 {
		if _, err := l.file.ReadAt(buf, 0); err != nil {
			return fmt.Errorf("read log: %w", err)
		}
	}
	for {
		b, rest, err := record.Next(buf)
		if err != nil || b == nil || b.Check() != nil || b.BaseOffset() != l.end {
			break
		}
		l.note(b)
		buf = rest
	}
	if l.size == size {
		return nil
	}
	if err := l.file.Truncate(l.size); err != nil {
		return fmt.Errorf("truncate log: %w", err)
	}
	return l.Flush()
}

func (l *FileLog) note(b record.Batch) {
	l.at = append(l.at, batchAt{b.BaseOffset(), b.LastOffset(), b.PartitionLeaderEpoch(), l.size, len(b)})
	l.size += int64(len(b))
	l.end = b.NextOffset()
}

// startAt makes a new file that begins at base with content.
func (l *FileLog) startAt(base kafka.Offset, content []byte) error {
	name := l.dir + "/" + fileLogName(base)
	if err := l.fs.RemoveAll(name + ".new"); err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	f, err := l.fs.Create(name + ".new")
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	if len(content) > 0 {
		_, err = f.WriteAt(content, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = l.fs.Rename(name+".new", name)
	}
	if err == nil {
		err = l.fs.SyncDir(l.dir)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", name, err), f.Close())
	}
	old, oldBase := l.file, l.base
	l.file, l.base, l.size, l.at, l.end = f, base, 0, nil, base
	for len(content) > 0 {
		b, rest, err := record.Next(content)
		if err != nil || b == nil {
			return fmt.Errorf("log is not whole batches: %w", err)
		}
		l.note(b)
		content = rest
	}
	if old == nil || oldBase == base {
		return nil
	}
	if err := errors.Join(old.Close(), l.fs.Remove(l.dir+"/"+fileLogName(oldBase))); err != nil {
		return err
	}
	return l.fs.SyncDir(l.dir)
}

// StartOffset is the first record's.
func (l *FileLog) StartOffset() kafka.Offset { return l.base }

// EndOffset is the next record's.
func (l *FileLog) EndOffset() kafka.Offset { return l.end }

// Size is in bytes.
func (l *FileLog) Size() int64 { return l.size }

// Epochs is where each epoch begins.
func (l *FileLog) Epochs() []raft.EpochStart {
	var out []raft.EpochStart
	for _, b := range l.at {
		if n := len(out); n == 0 || out[n-1].Epoch < b.epoch {
			out = append(out, raft.EpochStart{Epoch: b.epoch, Offset: b.base})
		}
	}
	return out
}

// Append writes batches at the end.
func (l *FileLog) Append(_ time.Time, batches []byte) error {
	if _, err := l.file.WriteAt(batches, l.size); err != nil {
		return fmt.Errorf("append to log: %w", err)
	}
	for len(batches) > 0 {
		b, rest, err := record.Next(batches)
		if err != nil || b == nil || b.BaseOffset() != l.end {
			return fmt.Errorf("append to log at %d: not a batch that continues it: %w", l.end, err)
		}
		l.note(b)
		batches = rest
	}
	return nil
}

// Truncate drops all from end on.
func (l *FileLog) Truncate(_ time.Time, end kafka.Offset) error {
	for n := len(l.at); n > 0 && l.at[n-1].last >= end; n-- {
		b := l.at[n-1]
		if b.base < end {
			return fmt.Errorf("truncate log to %d: inside of a batch %d..%d", end, b.base, b.last)
		}
		l.at, l.size, l.end = l.at[:n-1], b.pos, b.base
	}
	if err := l.file.Truncate(l.size); err != nil {
		return fmt.Errorf("truncate log: %w", err)
	}
	return nil
}

// Reset empties the log.
func (l *FileLog) Reset(_ time.Time, offset kafka.Offset) error {
	if offset == l.base {
		return l.Truncate(time.Time{}, offset)
	}
	return l.startAt(offset, nil)
}

// Flush syncs the file.
func (l *FileLog) Flush() error {
	if err := l.file.Sync(); err != nil {
		return fmt.Errorf("sync log: %w", err)
	}
	return nil
}

// Read gives whole batches.
func (l *FileLog) Read(offset kafka.Offset, maxBytes int) ([]byte, error) {
	i := sort.Search(len(l.at), func(i int) bool { return l.at[i].last >= offset })
	if i == len(l.at) {
		return []byte{}, nil
	}
	size := l.at[i].size
	for j := i + 1; j < len(l.at) && size+l.at[j].size <= maxBytes; j++ {
		size += l.at[j].size
	}
	buf := make([]byte, size)
	if _, err := l.file.ReadAt(buf, l.at[i].pos); err != nil {
		return nil, fmt.Errorf("read log at %d: %w", offset, err)
	}
	return buf, nil
}

// DeletePrefix lets the log begin at offset.
func (l *FileLog) DeletePrefix(_ time.Time, offset kafka.Offset) error {
	if offset <= l.base {
		return nil
	}
	rest, err := l.Read(offset, int(l.size))
	if err != nil {
		return err
	}
	return l.startAt(offset, rest)
}

// Close closes the file.
func (l *FileLog) Close() error { return l.file.Close() }
