package raftloop

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raft"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/schema"
	"github.com/highwater/highwater/internal/vfs"
)

const (
	checkpointSuffix = ".checkpoint"
	partSuffix       = ".checkpoint.part"
	deletedSuffix    = ".deleted"
	// BootstrapFile is the checkpoint that formatting wrote into each directory up to Kafka 4.3.
	BootstrapFile = "bootstrap.checkpoint"
	// snapshotBatch is when a writer closes a batch. Guess; a batch may be up to 8 MiB.
	snapshotBatch = 1 << 20
	// maxSnapshotBatch bounds a batch before it is read: what a single atomic batch may have, and some.
	maxSnapshotBatch = 16 << 20
)

// ErrSnapshotExists means that a snapshot at or above that offset is there.
var ErrSnapshotExists = errors.New("snapshot exists")

// SnapshotError is why a snapshot can't be used.
type SnapshotError struct {
	File string
	Err  error
}

func (e *SnapshotError) Error() string { return fmt.Sprintf("snapshot %s: %v", e.File, e.Err) }

func (e *SnapshotError) Unwrap() error { return e.Err }

// SnapshotName is the file's name.
func SnapshotName(id kafka.OffsetAndEpoch) string {
	return fmt.Sprintf("%020d-%010d%s", id.Offset, id.Epoch, checkpointSuffix)
}

// ParseSnapshotName is the inverse of SnapshotName.
func ParseSnapshotName(name string) (id kafka.OffsetAndEpoch, ok bool) {
	base, ok := strings.CutSuffix(name, checkpointSuffix)
	if !ok || len(base) != 31 || base[20] != '-' {
		return id, false
	}
	offset, err1 := strconv.ParseUint(base[:20], 10, 63)
	epoch, err2 := strconv.ParseUint(base[21:], 10, 31)
	return kafka.OffsetAndEpoch{Offset: int64(offset), Epoch: kafka.LeaderEpoch(epoch)}, err1 == nil && err2 == nil
}

// SnapshotWriter writes one snapshot. It is not safe for concurrent use.
type SnapshotWriter struct {
	fs     vfs.FS
	dir    string
	part   string
	id     kafka.OffsetAndEpoch
	file   vfs.File
	pos    int64
	offset kafka.Offset // within the file, batches count from 0
	now    time.Time
	b      *record.Builder
	buf    []byte
	frozen func() error // tells the replica that the file is in place
	done   bool
}

func createSnapshot(fsys vfs.FS, dir string, id kafka.OffsetAndEpoch, lastTimestamp time.Time, voters raft.VoterSet, kraftVersion int16) (*SnapshotWriter, error) {
	w := &SnapshotWriter{fs: fsys, dir: dir, id: id, now: lastTimestamp}
	w.part = fmt.Sprintf("%s/%020d-%010d-0%s", dir, id.Offset, id.Epoch, partSuffix)
	if err := fsys.Remove(w.part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove %s: %w", w.part, err)
	}
	f, err := fsys.Create(w.part)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", w.part, err)
	}
	w.file = f
	h := schema.NewSnapshotHeaderRecord()
	h.LastContainedLogTimestamp = lastTimestamp.UnixMilli()
	header, err := h.AppendTo(nil, 0)
	if err != nil {
		return nil, errors.Join(err, w.Abort())
	}
	w.begin(true)
	w.b.Append(w.now.UnixMilli(), record.SnapshotHeader.Key(), header)
	if kraftVersion > 0 {
		for _, c := range []raft.ControlRecord{raft.KRaftVersion(kraftVersion), raft.Voters{Set: voters}} {
			t, value := raft.EncodeControl(c)
			w.b.Append(w.now.UnixMilli(), record.ControlType(t).Key(), value)
		}
	}
	if err := w.end(); err != nil {
		return nil, errors.Join(err, w.Abort())
	}
	return w, nil
}

// ID is the end offset and epoch of what the snapshot holds.
func (w *SnapshotWriter) ID() kafka.OffsetAndEpoch { return w.id }

func (w *SnapshotWriter) begin(control bool) {
	o := record.DefaultBatchOptions(w.offset)
	o.LeaderEpoch, o.Control = w.id.Epoch, control
	if w.b == nil {
		w.b = record.NewBuilder(o)
	} else {
		w.b.Reset(o)
	}
}

func (w *SnapshotWriter) end() error {
	if w.b == nil || w.b.Len() == 0 {
		return nil
	}
	n := w.b.Len()
	var err error
	if w.buf, err = w.b.AppendTo(w.buf[:0]); err != nil {
		return fmt.Errorf("build batch of snapshot %s: %w", w.part, err)
	}
	if _, err := w.file.WriteAt(w.buf, w.pos); err != nil {
		return fmt.Errorf("write %s: %w", w.part, err)
	}
	w.pos += int64(len(w.buf))
	w.offset += int64(n)
	w.begin(false)
	return nil
}

// Append adds records.
func (w *SnapshotWriter) Append(records ...[]byte) error {
	for _, v := range records {
		w.b.Append(w.now.UnixMilli(), nil, v)
		if w.b.Size() >= snapshotBatch {
			if err := w.end(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Freeze ends the snapshot: footer, sync, and its name. After a crash it is there whole or not at all. The writer is
// done, whatever the result.
func (w *SnapshotWriter) Freeze() error {
	if err := w.freeze(); err != nil {
		return errors.Join(err, w.Abort())
	}
	if w.frozen != nil {
		return w.frozen()
	}
	return nil
}

func (w *SnapshotWriter) freeze() error {
	if err := w.end(); err != nil {
		return err
	}
	footer, err := schema.NewSnapshotFooterRecord().AppendTo(nil, 0)
	if err != nil {
		return err
	}
	w.begin(true)
	w.b.Append(w.now.UnixMilli(), record.SnapshotFooter.Key(), footer)
	if err := w.end(); err != nil {
		return err
	}
	if err := w.file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", w.part, err)
	}
	w.done = true
	if err := w.file.Close(); err != nil {
		return fmt.Errorf("close %s: %w", w.part, err)
	}
	return putInPlace(w.fs, w.dir, w.part, w.id)
}

func putInPlace(fsys vfs.FS, dir, part string, id kafka.OffsetAndEpoch) error {
	name := dir + "/" + SnapshotName(id)
	if err := fsys.Rename(part, name); err != nil {
		return fmt.Errorf("rename %s: %w", part, err)
	}
	if err := fsys.SyncDir(dir); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}

// Abort removes what was written.
func (w *SnapshotWriter) Abort() error {
	var err error
	if !w.done {
		w.done = true
		err = w.file.Close()
	}
	if rerr := w.fs.Remove(w.part); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return err
}

// SnapshotReader reads one snapshot, batch by batch.
type SnapshotReader struct {
	ID kafka.OffsetAndEpoch
	// LastTimestamp is that of the last record that the snapshot stands for.
	LastTimestamp time.Time
	// KRaftVersion and Voters are from its header batch; at 0 there are no voters in it.
	KRaftVersion int16
	Voters       raft.VoterSet

	name   string
	file   vfs.File
	size   int64
	pos    int64
	next   kafka.Offset
	buf    []byte
	footer bool
}

// OpenSnapshot opens a snapshot and reads its header.
func OpenSnapshot(fsys vfs.FS, dir string, id kafka.OffsetAndEpoch) (*SnapshotReader, error) {
	return openSnapshotFile(fsys, dir+"/"+SnapshotName(id), id)
}

func openSnapshotFile(fsys vfs.FS, name string, id kafka.OffsetAndEpoch) (*SnapshotReader, error) {
	f, err := fsys.Open(name, vfs.ReadOnly)
	if err != nil {
		return nil, fmt.Errorf("open snapshot %s: %w", name, err)
	}
	r := &SnapshotReader{ID: id, name: name, file: f}
	if r.size, err = f.Size(); err == nil {
		err = r.readHeader()
	}
	if err != nil {
		return nil, errors.Join(&SnapshotError{name, err}, f.Close())
	}
	return r, nil
}

// nextBatch reads one batch and checks it. The memory is used again for the next one.
func (r *SnapshotReader) nextBatch() (record.Batch, error) {
	if r.pos >= r.size {
		return nil, nil
	}
	var head [record.PeekHeader]byte
	if r.size-r.pos < int64(len(head)) {
		return nil, fmt.Errorf("%d bytes at %d are no batch", r.size-r.pos, r.pos)
	}
	if _, err := r.file.ReadAt(head[:], r.pos); err != nil {
		return nil, fmt.Errorf("read at %d: %w", r.pos, err)
	}
	size, ok, err := record.PeekSize(head[:])
	if err != nil {
		return nil, err
	}
	if !ok || int64(size) > r.size-r.pos || size > maxSnapshotBatch {
		return nil, fmt.Errorf("batch of %d bytes at %d does not fit", size, r.pos)
	}
	if cap(r.buf) < size {
		r.buf = make([]byte, size)
	}
	r.buf = r.buf[:size]
	if _, err := r.file.ReadAt(r.buf, r.pos); err != nil {
		return nil, fmt.Errorf("read at %d: %w", r.pos, err)
	}
	b := record.Batch(r.buf)
	if err := b.Check(); err != nil {
		return nil, fmt.Errorf("batch at %d: %w", r.pos, err)
	}
	if b.Magic() < 2 || b.BaseOffset() != r.next {
		return nil, fmt.Errorf("batch at %d has base offset %d instead of %d", r.pos, b.BaseOffset(), r.next)
	}
	r.next = b.NextOffset()
	r.pos += int64(size)
	return b, nil
}

func (r *SnapshotReader) readHeader() error {
	b, err := r.nextBatch()
	if err != nil {
		return err
	}
	if b == nil || !b.Control() {
		return errors.New("no header")
	}
	first := true
	for rec, err := range b.All() {
		if err != nil {
			return err
		}
		t, err := record.ParseControlKey(rec.Key)
		if err != nil {
			return err
		}
		if first != (t == record.SnapshotHeader) {
			return errors.New("the header is not the first record")
		}
		first = false
		if t == record.SnapshotHeader {
			h := schema.NewSnapshotHeaderRecord()
			if _, err := h.ReadFrom(rec.Value, 0); err != nil {
				return err
			}
			r.LastTimestamp = time.UnixMilli(h.LastContainedLogTimestamp)
			continue
		}
		c, err := raft.DecodeControl(int16(t), rec.Value)
		if err != nil {
			return err
		}
		switch c := c.(type) {
		case raft.KRaftVersion:
			r.KRaftVersion = int16(c)
		case raft.Voters:
			r.Voters = c.Set
		}
	}
	return nil
}

// Next is the next batch of records; ok is false after the last. Memory is valid until the next call.
func (r *SnapshotReader) Next() (batch Batch, ok bool, err error) {
	for !r.footer {
		b, err := r.nextBatch()
		if err != nil {
			return Batch{}, false, &SnapshotError{r.name, err}
		}
		if b == nil {
			return Batch{}, false, &SnapshotError{r.name, errors.New("it has no footer")}
		}
		if !b.Control() {
			batch, err := payload(b)
			return batch, err == nil, err
		}
		for rec, err := range b.All() {
			if err != nil {
				return Batch{}, false, &SnapshotError{r.name, err}
			}
			if t, err := record.ParseControlKey(rec.Key); err != nil || t != record.SnapshotFooter {
				return Batch{}, false, &SnapshotError{r.name, fmt.Errorf("it has a control record of type %v amidst its records", t)}
			}
			r.footer = true
		}
	}
	if r.pos != r.size {
		return Batch{}, false, &SnapshotError{r.name, fmt.Errorf("it has %d bytes behind its footer", r.size-r.pos)}
	}
	return Batch{}, false, nil
}

// Close closes the file.
func (r *SnapshotReader) Close() error { return r.file.Close() }

// control is what raft wants to know of a snapshot.
func (r *SnapshotReader) control() []raft.ControlRecord {
	if r.KRaftVersion == 0 && r.Voters.Len() == 0 {
		return nil
	}
	return []raft.ControlRecord{raft.KRaftVersion(r.KRaftVersion), raft.Voters{Set: r.Voters}}
}

// verifySnapshot reads all of a snapshot, so that an unsound one is found before anything depends on it. show, if it is not nil, gets its
// records.
func verifySnapshot(fsys vfs.FS, name string, id kafka.OffsetAndEpoch, show func(value []byte)) (control []raft.ControlRecord, err error) {
	r, err := openSnapshotFile(fsys, name, id)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		b, ok, err := r.Next()
		if err != nil || !ok {
			return r.control(), err
		}
		if show != nil {
			for _, v := range b.Records {
				show(v)
			}
		}
	}
}

// ReadBootstrap gives the records with which a new cluster begins: those of the checkpoint that Kafka 4.4 formats, or of
// bootstrap.checkpoint in the metadata directory, which older versions write. ok is false if there is neither.
func ReadBootstrap(fsys vfs.FS, metadataLogDir string) (records [][]byte, source string, ok bool, err error) {
	for _, name := range []string{
		metadataLogDir + "/" + BootstrapFile,
		metadataLogDir + "/" + kafka.ClusterMetadataTopic + "-0/" + SnapshotName(kafka.OffsetAndEpoch{}),
	} {
		r, err := openSnapshotFile(fsys, name, kafka.OffsetAndEpoch{})
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, name, false, err
		}
		var found [][]byte
		for {
			b, more, err := r.Next()
			if err != nil {
				return nil, name, false, errors.Join(err, r.Close())
			}
			if !more {
				break
			}
			for _, v := range b.Records {
				found = append(found, append([]byte(nil), v...))
			}
		}
		if err := r.Close(); err != nil {
			return nil, name, false, err
		}
		if len(found) > 0 {
			return found, name, true, nil
		}
	}
	return nil, "", false, nil
}

// FormatBootstrap writes the checkpoint that a dynamic quorum begins with, as formatting a controller's directory does:
// no records but those given, and in its header kraft.version and the first voters.
func FormatBootstrap(fsys vfs.FS, dir string, now time.Time, voters raft.VoterSet, kraftVersion int16, records ...[]byte) error {
	w, err := createSnapshot(fsys, dir, kafka.OffsetAndEpoch{}, now, voters, kraftVersion)
	if err != nil {
		return err
	}
	if err := w.Append(records...); err != nil {
		return errors.Join(err, w.Abort())
	}
	return w.Freeze()
}
