package storage

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/vfs"
)

// Log is one partition's log.
type Log struct {
	dir       *Dir
	fs        vfs.FS
	files     *Files
	partition kafka.TopicPartition

	config atomic.Pointer[Config]
	// view is the list of segments, never empty; the last is the active one. The list is never changed, only replaced.
	view atomic.Pointer[view]
	// Invariant: start <= hw <= end of the active segment, but for hw between a truncation and the caller's SetHighWatermark.
	start atomic.Int64
	hw    atomic.Int64
	// unstable is the first offset of the first transaction that is open or not replicated, -1 if there is none.
	unstable atomic.Int64
	// unreplicated tells SetHighWatermark that it has transactions to look at.
	unreplicated atomic.Bool
	// recovery is the recovery point. Invariant: what lies below it is synced.
	recovery atomic.Int64
	// namesDirty means that names in the directory were made since it was synced last.
	namesDirty atomic.Bool
	// newDir means that the directory itself and its partition.metadata aren't synced yet.
	newDir  atomic.Bool
	failure atomic.Pointer[error]
	// moving means that a copy of this log is being made in another directory.
	moving    atomic.Bool
	lastFlush atomic.Int64 // ms
	// cleaned is the first offset that no clean has covered, -1 before the first one: cleaner-offset-checkpoint.
	cleaned atomic.Int64
	// cuts counts truncations: what a cleaner has read is of no use after one.
	cuts atomic.Uint64
	// nextRemoval is when the first of removals is due, ms; 0 if there is none.
	nextRemoval atomic.Int64

	epochs EpochHistory

	// mu is the writer's: it guards all that follows, and the changing of the above. The buffered write of an append happens
	// under it; no sync does, but where a log is opened, truncated or closed.
	mu        sync.Mutex
	path      string // of the directory; changes when it is renamed
	topicID   kafka.TopicID
	producers *producers
	snapshots []kafka.Offset // of the producer snapshots that are there, ascending
	unsynced  []kafka.Offset // of these, those that aren't synced
	created   time.Time      // of the active segment
	jitter    time.Duration  // of the active segment's age
	removals  []removal
	closed    error
	unsettled *unsettled // see CloseUnsynced
	future    bool       // a replica's on its way into this directory

	// flushing lets one Flush run at a time; others wait and often find that it did their work. A truncation holds it, too.
	// It is taken before mu.
	flushing sync.Mutex
}

// view is what readers see of a log at one moment.
type view struct{ segments []*segment }

func (v *view) active() *segment { return v.segments[len(v.segments)-1] }

// floor is the index of the segment that offset belongs to: the last that begins at or before it, or the first.
func (v *view) floor(offset kafka.Offset) int {
	lo, hi := 0, len(v.segments)
	for hi-lo > 1 {
		mid := int(uint(lo+hi) >> 1)
		if v.segments[mid].base <= offset {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// removal is a file that is to be removed at a time.
type removal struct {
	name string
	due  time.Time
	x    *file // nil if it was never opened
}

// Partition is the topic's name and the partition's number; those of the directory's name.
func (l *Log) Partition() kafka.TopicPartition { return l.partition }

// Dir is the log directory that the log lives in.
func (l *Log) Dir() *Dir { return l.dir }

// Path is the partition's directory.
func (l *Log) Path() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.path
}

// TopicID is what partition.metadata says, or the zero id if that file is not there.
func (l *Log) TopicID() kafka.TopicID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.topicID
}

// SetTopicID writes partition.metadata if there is none, as for a log from before topic ids. Another id than the one that
// is there is refused: the log is another topic's.
func (l *Log) SetTopicID(id kafka.TopicID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed != nil:
		return l.closed
	case l.topicID == id:
		return nil
	case !l.topicID.IsZero():
		return fmt.Errorf("log of %v has topic id %v, not %v", l.partition, l.topicID, id)
	}
	if err := vfs.WriteFileAtomic(l.fs, l.path, partitionMetadataName, encodePartitionMetadata(id)); err != nil {
		return l.fail(fmt.Errorf("write %s of %v: %w", partitionMetadataName, l.partition, err))
	}
	l.topicID = id
	return nil
}

// StartOffset is LogStartOffset: the first offset that a client may read. It may lie inside of a batch.
func (l *Log) StartOffset() kafka.Offset { return l.start.Load() }

// EndOffset is LogEndOffset: the offset of the next record.
func (l *Log) EndOffset() kafka.Offset { return l.view.Load().active().next() }

// HighWatermark is what SetHighWatermark was told last; after Open the checkpoint's, not beyond the end offset.
func (l *Log) HighWatermark() kafka.Offset { return l.hw.Load() }

// SetHighWatermark tells the log what is committed. Replica owns the high watermark; the log needs it for its last stable
// offset, its checkpoint, and for what retention may delete.
func (l *Log) SetHighWatermark(hw kafka.Offset) {
	l.hw.Store(hw)
	if !l.unreplicated.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.producers.replicated(hw)
	l.publishUnstableLocked()
}

// publishUnstableLocked makes what producers know of open transactions visible to readers.
func (l *Log) publishUnstableLocked() {
	first := l.producers.firstUnstable()
	if first >= 0 {
		first = max(first, l.start.Load())
	}
	l.unstable.Store(first)
	l.unreplicated.Store(len(l.producers.unreplicated) > 0)
}

// LastStableOffset is the end of what read_committed may read if the high watermark is hw: hw, or the first offset of
// the first transaction that is undecided or whose marker lies at or above hw. Load hw before asking.
func (l *Log) LastStableOffset(hw kafka.Offset) kafka.Offset {
	if u := l.unstable.Load(); u >= 0 && u < hw {
		return u
	}
	return hw
}

// Size is the sum of the segments' sizes in bytes.
func (l *Log) Size() int64 {
	var n int64
	for _, s := range l.view.Load().segments {
		n += s.size()
	}
	return n
}

// Segments is the number of segments.
func (l *Log) Segments() int { return len(l.view.Load().segments) }

// Config is the configuration in force; it isn't changed.
func (l *Log) Config() *Config { return l.config.Load() }

// SetConfig changes the configuration of a running log.
func (l *Log) SetConfig(c Config) { l.config.Store(l.dir.shared(&c)) }

// Err is nil, or why the log refuses appends.
func (l *Log) Err() error {
	if p := l.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// fail makes the log refuse appends from now on, and its directory offline if the disk is to blame. It returns err wrapped.
func (l *Log) fail(err error) error {
	wrapped := fmt.Errorf("%w: %w", ErrFailed, err)
	l.failure.CompareAndSwap(nil, &wrapped)
	var c *CorruptError
	if l.dir != nil && !errors.As(err, &c) {
		l.dir.fail(err)
	}
	return wrapped
}

// readFailed makes an error of the disk the log's failure, and so its directory's, as Kafka does it: what can't be read here is then read
// from a replica elsewhere. What is corrupt or gone is the log's alone.
func (l *Log) readFailed(err error) error {
	if err == nil || errors.Is(err, ErrFailed) || !vfs.DiskFailed(err) {
		return err
	}
	return l.fail(err)
}

// writableLocked is nil if the log may be changed.
func (l *Log) writableLocked() error {
	if l.closed != nil {
		return l.closed
	}
	return l.Err()
}

// LatestEpoch is the newest leader epoch that the log knows. ok is false if there is none.
func (l *Log) LatestEpoch() (epoch kafka.LeaderEpoch, ok bool) {
	e, ok := l.epochs.latest()
	return e.Epoch, ok
}

// AssignEpoch notes that epoch begins at offset, as a new leader does at its end offset before it appends anything. The file
// follows later: an epoch without records is of no use to anybody after a crash. It fails if the log has failed.
func (l *Log) AssignEpoch(epoch kafka.LeaderEpoch, offset kafka.Offset) error {
	if err := l.Err(); err != nil {
		return err
	}
	l.epochs.assign(epoch, offset)
	return nil
}

// EndOffsetForEpoch answers OffsetForLeaderEpoch: the largest epoch not above the asked one, and the offset at which it ends
// (the start of the next epoch, or the log's end). -1, -1 if the log doesn't know.
func (l *Log) EndOffsetForEpoch(asked kafka.LeaderEpoch) (kafka.LeaderEpoch, kafka.Offset) {
	return l.epochs.endOffset(asked, l.EndOffset())
}

// EpochAt is the epoch of the leader that appended offset.
func (l *Log) EpochAt(offset kafka.Offset) (epoch kafka.LeaderEpoch, ok bool) {
	return l.epochs.at(offset)
}

// Epochs lists the history, oldest first.
func (l *Log) Epochs() []EpochStart { return l.epochs.list() }

// ProducerState is what DescribeProducers tells of a producer.
type ProducerState struct {
	ProducerID            kafka.ProducerID
	ProducerEpoch         kafka.ProducerEpoch
	LastSequence          int32 // -1 if no batch is known
	LastTimestamp         int64
	CoordinatorEpoch      int32
	CurrentTxnFirstOffset kafka.Offset // -1 if no transaction is open
}

// Producers lists the producers that the log remembers, by id.
func (l *Log) Producers() []ProducerState {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []ProducerState
	for _, p := range l.producers.sorted() {
		out = append(out, ProducerState{p.id, p.epoch, p.lastSequence(), p.lastTimestamp, p.coordinatorEpoch, p.txnFirstOffset})
	}
	return out
}

// ExpireProducers forgets producers that wrote nothing for the expiration time and have no open transaction.
func (l *Log) ExpireProducers(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.producers.byID) > 0 {
		l.producers.expire(now, l.dir.producerExpiration())
	}
}

// RecoveryPoint is the offset below which everything is durable.
func (l *Log) RecoveryPoint() kafka.Offset { return l.recovery.Load() }
