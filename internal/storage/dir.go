package storage

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/vfs"
)

// Options is what a Dir needs.
type Options struct {
	FS    vfs.FS
	Files *Files     // shared by all Dirs of a node
	Rand  *rand.Rand // for segment jitter; each Dir needs one of its own. nil is no jitter

	ProducerExpiration time.Duration // producer.id.expiration.ms; see SetProducerExpiration
	SyncAllFrom        int           // how many logs must want a sync when they close for CanSyncAll; 0 is 64
}

// Dir is one log directory, locked by this process, with the logs that are open in it.
type Dir struct {
	path string
	o    Options
	lock vfs.Unlocker
	// syncer is nil where the disk can't be synced as a whole; see CanSyncAll.
	syncer vfs.Syncer
	clean  bool
	epoch  kafka.BrokerEpoch
	notes  []string

	recovered atomic.Int64 // bytes that recovery has read, see Survey
	linked    atomic.Bool  // a file is a symbolic link: it may lie on another disk

	mu       sync.Mutex // guards what follows; taken after a Log's locks
	logs     map[kafka.TopicPartition]*Log
	sorted   []*Log                                           // all of logs in order; nil if they have changed since it was made
	futures  map[kafka.TopicPartition]*Log                    // of replicas on their way into this directory
	metadata *Log                                             // see OpenLog
	listed   []PartitionDir                                   // see Partitions
	loaded   map[string]map[kafka.TopicPartition]kafka.Offset // checkpoint files as they were at the start
	written  map[kafka.TopicPartition]bool                    // partitions in the recovery point checkpoint on the disk
	refused  map[kafka.TopicPartition]error                   // logs that couldn't be opened, and why
	missing  map[kafka.TopicPartition]kafka.Offset            // see Missing
	doubt    error                                            // see Doubt
	err      error
	closed   bool

	config     atomic.Pointer[Config] // the one that was given last
	expiration atomic.Int64           // of producers, a time.Duration

	checkpointing sync.Mutex          // one writer of checkpoint files at a time; taken before mu
	sums          map[string][32]byte // of the checkpoint files as this process wrote them; guarded by checkpointing

	naming sync.Mutex // guards dirty; taken last
	dirty  bool       // a partition's directory was made since the names were synced
}

// OpenDir locks a log directory and reads its small files. It fails with vfs.ErrLocked if another process has it, and
// leaves the clean-shutdown mark alone until Begin.
func OpenDir(path string, o Options) (*Dir, error) {
	o.FS = sparing{o.FS, o.Files}
	lock, err := o.FS.Lock(path + "/" + lockName)
	if err != nil {
		return nil, fmt.Errorf("lock log directory %s: %w", path, err)
	}
	d := &Dir{
		path: path, o: o, lock: lock, epoch: -1, futures: map[kafka.TopicPartition]*Log{},
		loaded: map[string]map[kafka.TopicPartition]kafka.Offset{}, written: map[kafka.TopicPartition]bool{},
		refused: map[kafka.TopicPartition]error{}, sums: map[string][32]byte{},
	}
	d.SetProducerExpiration(o.ProducerExpiration)
	if d.syncer, err = o.FS.OpenSyncer(path); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return nil, errors.Join(fmt.Errorf("open log directory %s: %w", path, err), lock.Unlock())
	}
	if err := d.readSmallFiles(); err != nil {
		return nil, errors.Join(err, d.release())
	}
	d.logs = make(map[kafka.TopicPartition]*Log, len(d.loaded[recoveryPointsName])) // so many there will be
	return d, nil
}

// release gives the lock back.
func (d *Dir) release() error {
	if d.syncer != nil {
		_ = d.syncer.Close() // nothing is written through it: what could not be synced said so
	}
	return d.lock.Unlock()
}

func (d *Dir) readSmallFiles() error {
	b, err := d.o.FS.ReadFile(d.path+"/"+cleanShutdownName, maxCleanShutdownSize)
	switch {
	case err == nil:
		d.clean, d.epoch = true, decodeCleanShutdown(b)
	case !isNotExist(err):
		return fmt.Errorf("read log directory %s: %w", d.path, err)
	}
	for _, name := range []string{recoveryPointsName, startOffsetsName, highWatermarksName, cleanerOffsetsName} {
		b, err := d.o.FS.ReadFile(d.path+"/"+name, maxCheckpointSize)
		if err != nil && !isNotExist(err) {
			return fmt.Errorf("read log directory %s: %w", d.path, err)
		}
		offsets, err := decodeOffsets(b)
		if err != nil {
			// As Kafka does: without recovery points everything is recovered, without start offsets logs begin at their first
			// segment, without high watermarks replication finds them anew.
			d.notes = append(d.notes, fmt.Sprintf("%v: going on without it", corrupt(d.path+"/"+name, -1, "%v", err)))
			offsets = map[kafka.TopicPartition]kafka.Offset{}
		}
		d.loaded[name] = offsets
	}
	d.dirty = !d.clean
	for tp := range d.loaded[recoveryPointsName] {
		d.written[tp] = true
	}
	return nil
}

// Path is the directory's name.
func (d *Dir) Path() string { return d.path }

// Notes is what OpenDir has to say, for the program's log.
func (d *Dir) Notes() []string { return d.notes }

// Meta reads meta.properties.
func (d *Dir) Meta() (Meta, error) { return ReadMeta(d.o.FS, d.path) }

// RecoveryPoint is the one that the checkpoint has for a partition whose log isn't open yet, 0 without one.
func (d *Dir) RecoveryPoint(p kafka.TopicPartition) kafka.Offset {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.loaded[recoveryPointsName][p]
}

// Space is the size of the disk and the room on it.
func (d *Dir) Space() (total, free int64, err error) { return d.o.FS.Space(d.path) }

// Clean tells whether the last process shut this directory down cleanly, and that broker's epoch (-1 if unknown).
func (d *Dir) Clean() (clean bool, epoch kafka.BrokerEpoch) { return d.clean, d.epoch }

// Begin removes the clean-shutdown mark, durably: what follows may need recovery. It comes before the first Open.
func (d *Dir) Begin() error {
	if !d.clean {
		return nil
	}
	err := d.o.FS.Remove(d.path + "/" + cleanShutdownName)
	if err == nil || isNotExist(err) {
		err = d.o.FS.SyncDir(d.path)
	}
	if err != nil {
		return fmt.Errorf("remove the clean-shutdown mark of %s: %w", d.path, err)
	}
	return nil
}

// PartitionDir is a directory of a partition.
type PartitionDir struct {
	Name      string // of the directory
	Partition kafka.TopicPartition
	Kind      PartitionDirKind

	entries []fs.DirEntry // what is in it, if Survey has looked and it isn't much
}

// PartitionDirKind is what a partition directory's suffix says.
type PartitionDirKind uint8

// The kinds.
const (
	Current PartitionDirKind = iota // no suffix
	Future                          // -future: a replica on its way into this directory
	Deleted                         // -delete: to be removed
	Stray                           // -stray: not in the metadata; kept
)

// ForeignDirError says that a directory among those of partitions is none.
type ForeignDirError struct{ Path, Name string }

// Error has Kafka's words.
func (e *ForeignDirError) Error() string {
	return fmt.Sprintf("Found directory %s, '%s' is not in the form of topic-partition or topic-partition.uniqueId-delete (if marked for deletion).\n"+
		"Kafka's log directories (and children) should only contain Kafka topic data.", e.Path, e.Name)
}

// Partitions lists the partition directories, by name. A directory that isn't one is a *ForeignDirError, but for lost+found,
// which every ext4 file system has at its top. __cluster_metadata-0 is left out: its log is raft's.
//
// What was listed once holds until Loaded: nobody else may change a directory that is locked, and to list 100,000 names takes a while.
func (d *Dir) Partitions() ([]PartitionDir, error) {
	d.mu.Lock()
	listed := d.listed
	d.mu.Unlock()
	if listed != nil {
		return listed, nil
	}
	entries, err := d.o.FS.List(d.path)
	if err != nil {
		return nil, fmt.Errorf("list log directory %s: %w", d.path, err)
	}
	out := make([]PartitionDir, 0, len(entries))
	for _, e := range entries {
		if !e.IsDir() || e.Name() == remoteIndexCacheName || e.Name() == lostAndFoundName {
			continue
		}
		p, ok := parseDirName(e.Name())
		if !ok {
			return nil, &ForeignDirError{Path: d.path + "/" + e.Name(), Name: e.Name()}
		}
		if p.Partition.Topic != kafka.ClusterMetadataTopic {
			out = append(out, p)
		}
	}
	d.mu.Lock()
	d.listed = out
	d.mu.Unlock()
	return out, nil
}

// Open opens a partition's log, and recovers it if the directory wasn't clean. It may be called from several goroutines at
// once for different partitions.
func (d *Dir) Open(p PartitionDir, c Config, now time.Time) (*Log, Recovery, error) {
	l := d.newLog(p.Partition, d.path+"/"+p.Name, c)
	l.future = p.Kind == Future
	o := openOptions{clean: d.clean, now: now, entries: p.entries}
	d.mu.Lock()
	o.recoveryPoint = d.loaded[recoveryPointsName][p.Partition]
	o.startOffset = d.loaded[startOffsetsName][p.Partition]
	o.highWatermark = d.loaded[highWatermarksName][p.Partition]
	if cleaned, ok := d.loaded[cleanerOffsetsName][p.Partition]; ok {
		l.cleaned.Store(max(cleaned, 0))
	}
	d.mu.Unlock()
	r, err := d.load(l, o)
	var bad *CorruptError
	if err != nil && !errors.As(err, &bad) && !l.future {
		// It is the disk that refuses. Like Kafka we don't go on with the rest of it.
		return nil, r, d.fail(err)
	}
	if err != nil {
		if !l.future { // the replica that it is a copy of may be whole
			d.mu.Lock()
			d.refused[p.Partition] = err
			d.mu.Unlock()
		}
		return nil, r, err
	}
	if err := d.register(l); err != nil {
		return nil, r, err
	}
	if !o.clean && l.EndOffset() < o.recoveryPoint {
		// What is appended between the new end and the old recovery point must not be trusted after the next crash.
		if err := d.CheckpointRecoveryPoints(); err != nil {
			return nil, r, err
		}
	}
	return l, r, nil
}

// surveyed is how many entries of a directory Survey keeps for Open. Those of one segment, which most partitions have, are fewer; those of
// 100,000 partitions with many segments would take more memory than to list them again takes time.
const surveyed = 12

// Survey is how many bytes recovery of a partition may have to read: those of the segments from its recovery point on. What can't be
// read counts nothing; Open, which comes next, says why.
func (d *Dir) Survey(p *PartitionDir) int64 {
	entries, err := d.o.FS.List(d.path + "/" + p.Name)
	if err != nil {
		return 0
	}
	if len(entries) <= surveyed {
		p.entries = entries
	}
	point := d.loaded[recoveryPointsName][p.Partition]
	var total int64
	for i := len(entries) - 1; i >= 0; i-- { // names sort as offsets do
		base, suffix, ok := parseSegmentName(entries[i].Name())
		if !ok || suffix != logSuffix {
			continue
		}
		if st, err := d.o.FS.Stat(d.path + "/" + p.Name + "/" + entries[i].Name()); err == nil {
			total += st.Size()
		}
		if base < point {
			break
		}
	}
	return total
}

// RecoveredBytes is how much recovery has read so far, of all logs of this directory.
func (d *Dir) RecoveredBytes() int64 { return d.recovered.Load() }

// Loaded says that all partitions are open: what the checkpoints said of them isn't kept any longer, but for those that couldn't be
// opened. The next start shall judge them as this one did.
func (d *Dir) Loaded() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listed = nil
	for tp, o := range d.loaded[recoveryPointsName] {
		if o > 0 && d.logs[tp] == nil && d.futures[tp] == nil && d.refused[tp] == nil && tp.Topic != kafka.ClusterMetadataTopic {
			if d.missing == nil {
				d.missing = map[kafka.TopicPartition]kafka.Offset{}
			}
			d.missing[tp] = o
		}
	}
	for name, offsets := range d.loaded {
		kept := make(map[kafka.TopicPartition]kafka.Offset)
		for tp, o := range offsets {
			if d.refused[tp] != nil || tp.Topic == kafka.ClusterMetadataTopic {
				kept[tp] = o
			}
		}
		d.loaded[name] = kept
	}
}

// Missing are the partitions that the checkpoint knew and of which there was no log at the start, with their recovery points: for
// whoever then makes one anew, who asks once.
func (d *Dir) Missing() map[kafka.TopicPartition]kafka.Offset {
	d.mu.Lock()
	defer d.mu.Unlock()
	missing := d.missing
	d.missing = nil
	return missing
}

// Doubt says why the directory gets no mark of a clean shutdown though it didn't fail: a log couldn't be opened, or a batch that is bad
// was found in one. After such a mark the next start would believe what it finds. nil if there is nothing.
func (d *Dir) Doubt() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.doubt != nil || len(d.refused) == 0 {
		return d.doubt
	}
	first := slices.MinFunc(slices.Collect(maps.Keys(d.refused)), comparePartitions)
	return d.refused[first]
}

// blame notes that a read came upon something bad.
func (d *Dir) blame(err error) {
	var c *CorruptError
	if !errors.As(err, &c) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.doubt == nil {
		d.doubt = err
	}
}

// others are what a checkpoint says of partitions whose logs aren't open: they aren't yet, or couldn't be opened.
func (d *Dir) others(name string) (out []checkpointEntry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for tp, o := range d.loaded[name] {
		if d.logs[tp] == nil && d.futures[tp] == nil && (d.metadata == nil || tp != d.metadata.partition) {
			out = append(out, checkpointEntry{tp, o})
		}
	}
	slices.SortFunc(out, func(a, b checkpointEntry) int { return comparePartitions(a.partition, b.partition) })
	return out
}

func (d *Dir) newLog(p kafka.TopicPartition, path string, c Config) *Log {
	l := &Log{dir: d, fs: d.o.FS, files: d.o.Files, partition: p, path: path}
	l.config.Store(d.shared(&c))
	l.unstable.Store(-1)
	l.cleaned.Store(-1)
	return l
}

// shared keeps one copy of a configuration that many logs have.
func (d *Dir) shared(c *Config) *Config {
	if last := d.config.Load(); last != nil && *last == *c {
		return last
	}
	d.config.Store(c)
	return c
}

func (d *Dir) load(l *Log, o openOptions) (Recovery, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastFlush.Store(o.now.UnixMilli())
	r, err := l.openLocked(o)
	var c *CorruptError
	if errors.As(err, &c) {
		err = l.wayOut(err, c, o.whole)
	}
	if err != nil {
		return r, fmt.Errorf("open log %s: %w", l.path, err)
	}
	if !o.clean {
		// The process before was perhaps only killed: then all that it made is there, and nothing of it need be on the disk.
		l.newDir.Store(true)
		l.namesDirty.Store(true)
	}
	return r, nil
}

// wayOut adds to what is corrupt what can be done; for the metadata log its owner knows.
func (l *Log) wayOut(err error, c *CorruptError, metadata bool) error {
	var version *VersionError
	switch {
	case strings.HasSuffix(c.File, logSuffix) && metadata:
		return fmt.Errorf("%w. It isn't cut off, for all that follows would go along, as it does if the line of %s is taken out of %s/%s",
			err, l.partition.Topic, l.dir.path, recoveryPointsName)
	case strings.HasSuffix(c.File, logSuffix):
		return fmt.Errorf("%w. It isn't cut off, for all that follows would go along. Restore the file; or move %s away, and the replica is made anew "+
			"from its leader; or take the partition's line out of %s/%s, and the log ends there", err, l.path, l.dir.path, recoveryPointsName)
	case metadata:
		return err
	case errors.As(err, &version):
		return fmt.Errorf("%w. A later version than this one wrote it: start that version", err)
	case strings.HasSuffix(c.File, "/"+partitionMetadataName):
		return fmt.Errorf("%w. Restore the file; or, if %s surely is of the topic that has this name now, move the file away: it is written anew", err, l.path)
	}
	return err
}

func (d *Dir) register(l *Log) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	of := d.logs
	if l.future {
		of = d.futures
	}
	if of[l.partition] != nil {
		return fmt.Errorf("log of %v is open already in %s", l.partition, d.path)
	}
	of[l.partition] = l
	d.sorted = nil
	return nil
}

// OpenLog opens, or makes, the log of __cluster_metadata. Kafka has no checkpoint of it and recovers it from its start each time, and
// cuts it off before a bad batch wherever that is. Here its recovery point, which is the larger of the given one and that of the
// checkpoint, says what must not be cut off: it has been synced, so it may be committed. Its owner closes it, and keeps the
// checkpoint by CheckpointRecoveryPoints.
func (d *Dir) OpenLog(p kafka.TopicPartition, id kafka.TopicID, c Config, recoveryPoint, logStart kafka.Offset, now time.Time) (*Log, Recovery, error) {
	path := d.path + "/" + p.String()
	l := d.newLog(p, path, c)
	if _, err := d.o.FS.Stat(path); isNotExist(err) {
		if err := d.makeDir(l, id); err != nil {
			return nil, Recovery{}, err
		}
	}
	d.mu.Lock()
	recoveryPoint = max(recoveryPoint, d.loaded[recoveryPointsName][p])
	d.mu.Unlock()
	r, err := d.load(l, openOptions{recoveryPoint: recoveryPoint, startOffset: logStart, now: now, whole: true})
	if err == nil && l.topicID.IsZero() {
		err = l.SetTopicID(id)
	}
	if err != nil {
		return nil, r, err
	}
	d.mu.Lock()
	d.metadata = l
	d.mu.Unlock()
	return l, r, nil
}

// makeDir makes a partition's directory with its partition.metadata. Both are synced by the first Flush.
func (d *Dir) makeDir(l *Log, id kafka.TopicID) error {
	if err := d.o.FS.MkdirAll(l.path); err != nil {
		return d.fail(fmt.Errorf("create log %s: %w", l.path, err))
	}
	d.naming.Lock()
	d.dirty = true
	d.naming.Unlock()
	l.newDir.Store(true)
	if id.IsZero() {
		return nil
	}
	f, err := d.o.FS.Create(l.path + "/" + partitionMetadataName)
	if err == nil {
		_, err = f.WriteAt(encodePartitionMetadata(id), 0)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return d.fail(fmt.Errorf("create log %s: %w", l.path, err))
	}
	l.topicID = id
	return nil
}

// syncNames makes the names of new partitions' directories durable; the first log that is flushed does it for all.
func (d *Dir) syncNames() error {
	d.naming.Lock()
	defer d.naming.Unlock()
	if !d.dirty {
		return nil
	}
	if err := d.o.FS.SyncDir(d.path); err != nil {
		return err
	}
	d.dirty = false
	return nil
}

// Create makes an empty log that begins at offset 0.
func (d *Dir) Create(p kafka.TopicPartition, id kafka.TopicID, c Config, now time.Time) (*Log, error) {
	return d.create(d.newLog(p, d.path+"/"+p.String(), c), id, now)
}

func (d *Dir) create(l *Log, id kafka.TopicID, now time.Time) (*Log, error) {
	if err := d.Err(); err != nil {
		return nil, err
	}
	if _, err := d.o.FS.Stat(l.path); err == nil {
		return nil, fmt.Errorf("create log %s: there is something else of that name", l.path)
	}
	if err := d.forget(l.partition); err != nil {
		return nil, err
	}
	if err := d.makeDir(l, id); err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.lastFlush.Store(now.UnixMilli())
	s, err := l.newSegmentLocked(0, now)
	if err == nil {
		l.view.Store(&view{[]*segment{s}})
		l.producers = newProducers(0)
	}
	l.mu.Unlock()
	if err != nil {
		return nil, d.fail(fmt.Errorf("create log %s: %w", l.path, err))
	}
	return l, d.register(l)
}

// forget makes sure that no checkpoint of an earlier log of the same name is taken for a new one's.
func (d *Dir) forget(p kafka.TopicPartition) error {
	d.mu.Lock()
	stale := d.written[p]
	for _, offsets := range d.loaded {
		delete(offsets, p)
	}
	delete(d.refused, p)
	d.mu.Unlock()
	if !stale {
		return nil
	}
	return errors.Join(d.CheckpointRecoveryPoints(), d.CheckpointStartOffsets(), d.CheckpointHighWatermarks(), d.CheckpointCleanedOffsets())
}

// Log is the open log of a partition, or nil.
func (d *Dir) Log(p kafka.TopicPartition) *Log {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.logs[p]
}

// Logs lists the open logs by topic and partition, without those of replicas on their way into this directory. The list isn't the
// caller's to change: sorting 100,000 logs takes a tenth of a second, and checkpoints ask every few.
func (d *Dir) Logs() []*Log {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sorted == nil && len(d.logs) > 0 {
		d.sorted = make([]*Log, 0, len(d.logs))
		for _, l := range d.logs {
			d.sorted = append(d.sorted, l)
		}
		slices.SortFunc(d.sorted, func(a, b *Log) int { return comparePartitions(a.partition, b.partition) })
	}
	return d.sorted
}

// All lists the open logs and those on their way into this directory. The list isn't the caller's to change.
func (d *Dir) All() []*Log {
	d.mu.Lock()
	moving := len(d.futures) > 0
	d.mu.Unlock()
	if !moving {
		return d.Logs()
	}
	return d.which(func(*Log) bool { return true })
}

// FlushDue lists the logs that want a Flush now: flush.ms has passed, or a segment has rolled.
func (d *Dir) FlushDue(now time.Time) []*Log {
	return d.which(func(l *Log) bool { return l.FlushDue(now) })
}

// RemovalDue lists the logs with deleted files whose time has come.
func (d *Dir) RemovalDue(now time.Time) []*Log {
	return d.which(func(l *Log) bool { due := l.nextRemoval.Load(); return due != 0 && due <= now.UnixMilli() })
}

// CompactedLogs lists the logs with cleanup.policy compact.
func (d *Dir) CompactedLogs() []*Log {
	return d.which(func(l *Log) bool { return l.config.Load().Compact })
}

// which is cheap enough to be asked every second for tens of thousands of logs: the list, if there is one, goes through memory in order,
// and the map doesn't.
func (d *Dir) which(want func(l *Log) bool) []*Log {
	var out []*Log
	d.mu.Lock()
	maps := []map[kafka.TopicPartition]*Log{d.logs, d.futures}
	if d.sorted != nil {
		maps = maps[1:]
		for _, l := range d.sorted {
			if want(l) {
				out = append(out, l)
			}
		}
	}
	for _, of := range maps {
		for _, l := range of {
			if want(l) {
				out = append(out, l)
			}
		}
	}
	d.mu.Unlock()
	slices.SortFunc(out, func(a, b *Log) int { return comparePartitions(a.partition, b.partition) })
	return out
}

func comparePartitions(a, b kafka.TopicPartition) int {
	if c := cmp.Compare(a.Topic, b.Topic); c != 0 {
		return c
	}
	return cmp.Compare(a.Partition, b.Partition)
}

// Delete renames a log's directory to …-delete, closes it for everybody, and returns the new name for RemovePartition.
// unique makes the name so: 32 hexadecimal digits.
func (d *Dir) Delete(l *Log, unique [16]byte) (name string, err error) {
	return d.retire(l, renamedDir(l.partition, unique, deleteDirSuffix))
}

// Strand renames the directory of a log that the metadata doesn't know to …-stray, after syncing it, and closes it.
func (d *Dir) Strand(l *Log, unique [16]byte) (name string, err error) {
	if err := l.Close(); err != nil {
		return "", err
	}
	return d.retire(l, renamedDir(l.partition, unique, strayDirSuffix))
}

// retire takes a log out of the directory's list and moves its files out of the way.
func (d *Dir) retire(l *Log, name string) (string, error) {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	to := d.path + "/" + name
	if err := d.o.FS.Rename(l.path, to); err != nil {
		return "", d.fail(fmt.Errorf("rename log %s: %w", l.path, err))
	}
	d.mu.Lock()
	if d.logs[l.partition] == l {
		delete(d.logs, l.partition)
		d.sorted = nil
	}
	if d.futures[l.partition] == l {
		delete(d.futures, l.partition)
	}
	d.mu.Unlock()
	l.path = to
	err := l.shutLocked(ErrClosed)
	if serr := d.o.FS.SyncDir(d.path); serr != nil {
		err = errors.Join(err, serr)
	}
	if err != nil {
		return name, d.fail(fmt.Errorf("retire log %s: %w", to, err))
	}
	return name, nil
}

// RemovePartition removes the tree of a deleted partition, whose name ends in -delete.
func (d *Dir) RemovePartition(name string) error {
	p, ok := parseDirName(name)
	if !ok || p.Kind != Deleted {
		return fmt.Errorf("remove partition: %s is not the name of a deleted one", name)
	}
	if err := d.o.FS.RemoveAll(d.path + "/" + name); err != nil {
		return d.fail(fmt.Errorf("remove deleted log: %w", err))
	}
	return nil
}

// CheckpointRecoveryPoints writes recovery-point-offset-checkpoint.
func (d *Dir) CheckpointRecoveryPoints() error {
	return d.checkpoint(recoveryPointsName, func(l *Log) (kafka.Offset, bool) { return l.trusted(), true })
}

// CheckpointStartOffsets writes log-start-offset-checkpoint: those that the files don't say already.
func (d *Dir) CheckpointStartOffsets() error {
	return d.checkpoint(startOffsetsName, func(l *Log) (kafka.Offset, bool) {
		start := l.start.Load()
		return start, start > l.view.Load().segments[0].base
	})
}

// CheckpointHighWatermarks writes replication-offset-checkpoint.
func (d *Dir) CheckpointHighWatermarks() error {
	return d.checkpoint(highWatermarksName, func(l *Log) (kafka.Offset, bool) { return l.hw.Load(), true })
}

// CheckpointCleanedOffsets writes cleaner-offset-checkpoint: those of logs that were cleaned.
func (d *Dir) CheckpointCleanedOffsets() error {
	return d.checkpoint(cleanerOffsetsName, func(l *Log) (kafka.Offset, bool) {
		o := l.cleaned.Load()
		return o, o >= 0
	})
}

func (d *Dir) checkpoint(name string, offset func(l *Log) (kafka.Offset, bool)) error {
	d.checkpointing.Lock()
	defer d.checkpointing.Unlock()
	if err := d.Err(); err != nil {
		return err
	}
	logs := d.All()
	entries := make([]checkpointEntry, 0, len(logs))
	written := make(map[kafka.TopicPartition]bool, len(logs))
	d.mu.Lock()
	if name == recoveryPointsName && d.metadata != nil {
		logs = append(logs[:len(logs):len(logs)], d.metadata)
	}
	d.mu.Unlock()
	for _, l := range logs {
		if o, ok := offset(l); ok {
			entries = append(entries, checkpointEntry{l.partition, o})
			written[l.partition] = true
		}
	}
	for _, e := range d.others(name) {
		entries = append(entries, e)
		written[e.partition] = true
	}
	content := encodeOffsets(entries)
	sum := sha256.Sum256(content)
	if d.sums[name] == sum {
		return nil // as on an idle broker nearly always
	}
	delete(d.sums, name)
	if err := vfs.WriteFileAtomic(d.o.FS, d.path, name, content); err != nil {
		return d.fail(fmt.Errorf("write %s/%s: %w", d.path, name, err))
	}
	d.sums[name] = sum
	if name == recoveryPointsName {
		d.mu.Lock()
		d.written = written
		d.mu.Unlock()
	}
	return nil
}

// trusted is the recovery point to be written down: not beyond a segment whose indexes aren't synced.
func (l *Log) trusted() kafka.Offset {
	o := l.recovery.Load()
	segments := l.view.Load().segments
	for i := len(segments) - 2; i >= 0; i-- {
		if segments[i].indexUnsynced.Load() {
			o = min(o, segments[i].base)
		} else if segments[i].base < o {
			break
		}
	}
	return o
}

// Err is nil, or the first error that made the directory offline.
func (d *Dir) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// fail makes the directory offline: nothing of it is written any more, and it gets no clean-shutdown mark.
func (d *Dir) fail(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil && !errors.Is(err, ErrClosed) {
		d.err = fmt.Errorf("log directory %s is offline: %w", d.path, err)
	}
	return err
}

func (d *Dir) producerExpiration() time.Duration { return time.Duration(d.expiration.Load()) }

// SetProducerExpiration changes how long idle producers are remembered, from the next check on.
func (d *Dir) SetProducerExpiration(t time.Duration) { d.expiration.Store(int64(t)) }

func (d *Dir) randomJitter(upTo time.Duration) time.Duration {
	if d.o.Rand == nil || upTo <= 0 {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Duration(d.o.Rand.Int64N(int64(min(upTo, Never-1)) + 1))
}

// Close closes the logs that are open, writes the checkpoints and, if nothing failed and there is no Doubt, the clean-shutdown mark with the
// broker's epoch; then it gives the lock back.
func (d *Dir) Close(epoch kafka.BrokerEpoch) error {
	return d.finish(epoch, d.closeAll)
}

// Finish is Close for a caller that has closed all logs itself, several at a time; failed says whether that went wrong.
func (d *Dir) Finish(epoch kafka.BrokerEpoch, failed error) error {
	return d.finish(epoch, func([]*Log) error { return failed })
}

func (d *Dir) finish(epoch kafka.BrokerEpoch, closeLogs func([]*Log) error) error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	errs := []error{closeLogs(d.All())}
	for _, write := range []func() error{d.CheckpointRecoveryPoints, d.CheckpointStartOffsets, d.CheckpointHighWatermarks, d.CheckpointCleanedOffsets} {
		if err := d.Err(); err != nil {
			errs = append(errs, err)
			break
		}
		errs = append(errs, write())
	}
	if errors.Join(errs...) == nil && d.Doubt() == nil {
		if err := vfs.WriteFileAtomic(d.o.FS, d.path, cleanShutdownName, encodeCleanShutdown(epoch)); err != nil {
			errs = append(errs, fmt.Errorf("write the clean-shutdown mark of %s: %w", d.path, err))
		}
	}
	errs = append(errs, d.release())
	return errors.Join(errs...)
}

// Abandon gives the lock back and leaves everything as it is, as if the process had died: for a directory that failed.
func (d *Dir) Abandon() error {
	d.mu.Lock()
	closed := d.closed
	d.closed = true
	d.mu.Unlock()
	if closed {
		return nil
	}
	d.shut()
	return d.release()
}

// shut closes the files of all logs. Nothing is promised about them.
func (d *Dir) shut() {
	for _, l := range d.All() {
		l.mu.Lock()
		_ = l.shutLocked(ErrClosed)
		l.mu.Unlock()
	}
}
