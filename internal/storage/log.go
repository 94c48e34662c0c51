package storage

import (
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
)

// Log is one partition's log.
type Log struct{}

// Partition is the topic's name and the partition's number; those of the directory's name.
func (l *Log) Partition() kafka.TopicPartition { panic("building") }

// TopicID is what partition.metadata says, or the zero id if that file is not there.
func (l *Log) TopicID() kafka.TopicID { panic("building") }

// SetTopicID writes partition.metadata if there is none, as for a log from before topic ids.
func (l *Log) SetTopicID(id kafka.TopicID) error { panic("building") }

// StartOffset is LogStartOffset: the first offset that a client may read. It may lie inside of a batch.
func (l *Log) StartOffset() kafka.Offset { panic("building") }

// EndOffset is LogEndOffset: the offset of the next record.
func (l *Log) EndOffset() kafka.Offset { panic("building") }

// HighWatermark is what SetHighWatermark was told last; after Open the checkpoint's, not beyond the end offset.
func (l *Log) HighWatermark() kafka.Offset { panic("building") }

// SetHighWatermark tells the log what is committed. Replica owns the high watermark; the log needs it for its last stable
// offset, its checkpoint, and for what retention may delete.
func (l *Log) SetHighWatermark(hw kafka.Offset) { panic("building") }

// LastStableOffset is the end of what read_committed may read if the high watermark is hw: hw, or the first offset of
// the first transaction that is undecided or whose marker lies at or above hw.
func (l *Log) LastStableOffset(hw kafka.Offset) kafka.Offset { panic("building") }

// Size is the sum of the segments' sizes in bytes.
func (l *Log) Size() int64 { panic("building") }

// Config is the configuration in force. SetConfig changes it.
func (l *Log) Config() *Config { panic("building") }

// SetConfig changes the configuration of a running log.
func (l *Log) SetConfig(c Config) { panic("building") }

// LeaderAppend goes with an append by the leader.
type LeaderAppend struct {
	Now                time.Time
	LeaderEpoch        kafka.LeaderEpoch
	Origin             record.Origin // as given to record.Validate
	TransactionVersion int16         // transaction.version of the coordinator that wrote a marker; 2 makes its epoch check strict
}

// Appended is the result of an append. Duplicate means that the producer's batch was in the log already, and nothing was
// appended: the offsets are those of the first time.
type Appended struct {
	FirstOffset    kafka.Offset // -1 if there was no batch
	LastOffset     kafka.Offset
	MaxTimestamp   int64
	LogAppendTime  int64 // -1 with CreateTime; of a duplicate its first timestamp, as in Kafka
	LogStartOffset kafka.Offset
	Duplicate      bool
	Rolled         bool // a new segment began: the one before wants a Flush in the background
	// MustFlush means that flush.messages is reached: Flush(LastOffset+1) must have returned before the append is acknowledged
	// or counted by a replica. It may be called without the replica's lock; concurrent calls share one sync.
	MustFlush bool
}

// AppendAsLeader is the second half of an append whose first half was record.Validate: it checks the producers' states,
// assigns offsets, leader epoch and time, writes and indexes. An error leaves the log as it was; it is a *kerr.Error with
// Kafka's code and text, or wraps ErrFailed.
func (l *Log) AppendAsLeader(v *record.Validated, a LeaderAppend) (Appended, error) {
	panic("building")
}

// AppendAsFollower appends batches as they were fetched (record.Validate with origin record.Replica): offsets and epochs
// are the leader's. Offsets below EndOffset are refused with UnexpectedOffsetError; gaps are taken as they are.
func (l *Log) AppendAsFollower(v *record.Validated, now time.Time) (Appended, error) {
	panic("building")
}

// Flush makes everything below upTo durable and moves the recovery point there. It waits for the disk, so it is not for
// the replica's lock. Appends and reads go on meanwhile.
func (l *Log) Flush(upTo kafka.Offset) error { panic("building") }

// RecoveryPoint is the offset below which everything is durable.
func (l *Log) RecoveryPoint() kafka.Offset { panic("building") }

// TruncateTo removes everything from offset on; nothing happens if the log ends there or before. The high watermark
// doesn't move: the caller sets it.
func (l *Log) TruncateTo(offset kafka.Offset, now time.Time) error { panic("building") }

// TruncateFullyAndStartAt empties the log; its next offset is offset, its start offset logStart or, if that is negative,
// offset too.
func (l *Log) TruncateFullyAndStartAt(offset, logStart kafka.Offset, now time.Time) error {
	panic("building")
}

// AdvanceStartOffset moves the log start up, as DeleteRecords and a follower's fetch do; an offset at or below it does
// nothing, one above the high watermark is OFFSET_OUT_OF_RANGE. Segments below it go with the next DeleteOldSegments.
func (l *Log) AdvanceStartOffset(offset kafka.Offset) (moved bool, err error) { panic("building") }

// LatestEpoch is the newest leader epoch that the log knows. ok is false if there is none.
func (l *Log) LatestEpoch() (epoch kafka.LeaderEpoch, ok bool) { panic("building") }

// AssignEpoch notes that epoch begins at offset, as a new leader does at its end offset before it appends anything.
func (l *Log) AssignEpoch(epoch kafka.LeaderEpoch, offset kafka.Offset) error { panic("building") }

// EndOffsetForEpoch answers OffsetForLeaderEpoch: the largest epoch not above the asked one, and the offset at which it ends
// (the start of the next epoch, or the log's end). -1, -1 if the log doesn't know.
func (l *Log) EndOffsetForEpoch(asked kafka.LeaderEpoch) (kafka.LeaderEpoch, kafka.Offset) {
	panic("building")
}

// EpochAt is the epoch of the leader that appended offset.
func (l *Log) EpochAt(offset kafka.Offset) (epoch kafka.LeaderEpoch, ok bool) { panic("building") }

// Epochs lists the history, oldest first.
func (l *Log) Epochs() []EpochStart { panic("building") }

// EpochStart is one entry of the leader epoch history: the first offset of an epoch.
type EpochStart struct {
	Epoch kafka.LeaderEpoch
	Start kafka.Offset
}

// Timestamped is an answer about a time: a record's offset, its timestamp in ms, and its leader's epoch.
type Timestamped struct {
	Offset    kafka.Offset
	Timestamp int64
	Epoch     kafka.LeaderEpoch // -1 if not known
}

// OffsetForTimestamp is the first record at or after timestamp (ms), below end. ok is false if there is none.
func (l *Log) OffsetForTimestamp(timestamp int64, end kafka.Offset) (t Timestamped, ok bool, err error) {
	panic("building")
}

// OffsetOfMaxTimestamp is the first record with the largest timestamp. ok is false if there is none.
func (l *Log) OffsetOfMaxTimestamp() (t Timestamped, ok bool, err error) { panic("building") }

// Earliest and Latest are the ends with the epochs that ListOffsets gives with them. The latest, at end (a high watermark,
// a last stable offset or EndOffset), has the newest epoch.
func (l *Log) Earliest() Timestamped { panic("building") }

// Latest is the answer to ListOffsets' -1 for a reader that sees up to end.
func (l *Log) Latest(end kafka.Offset) Timestamped { panic("building") }

// Read finds what a fetch at offset gets: whole batches from the one that holds offset on, of at most maxBytes (the last
// one may be cut off, as Kafka does), below end. With minOneBatch the first batch comes whole even if it is larger. An empty
// Slice means that there is nothing below end yet. OFFSET_OUT_OF_RANGE if offset is below StartOffset or above EndOffset.
// The Slice must be released.
func (l *Log) Read(offset kafka.Offset, maxBytes int, minOneBatch bool, end kafka.Offset) (Slice, error) {
	panic("building")
}

// Slice is a range of a segment's file. The zero Slice is empty.
type Slice struct {
	// FirstEntryIncomplete means that maxBytes was less than the first batch and minOneBatch not asked for: a fetch of version 3
	// and later answers with nothing instead.
	FirstEntryIncomplete bool
}

// Len is the number of bytes.
func (s *Slice) Len() int { panic("building") }

// Fd is the open segment file and the place in it, for sendfile; ok is false where there is no descriptor.
func (s *Slice) Fd() (fd uintptr, pos int64, ok bool) { panic("building") }

// ReadAt reads from the slice as from a file of its own.
func (s *Slice) ReadAt(p []byte, off int64) (int, error) { panic("building") }

// Release gives the file back. It may be called once, also on an empty Slice.
func (s *Slice) Release() { panic("building") }

// AbortedTxn is a transaction that a read_committed consumer must skip.
type AbortedTxn struct {
	ProducerID  kafka.ProducerID
	FirstOffset kafka.Offset
}

// AbortedTxns lists the aborted transactions that overlap what s holds, appended to dst.
func (l *Log) AbortedTxns(dst []AbortedTxn, s *Slice) ([]AbortedTxn, error) { panic("building") }

// ProducerState is what DescribeProducers tells of a producer.
type ProducerState struct {
	ProducerID            kafka.ProducerID
	ProducerEpoch         kafka.ProducerEpoch
	LastSequence          int32
	LastTimestamp         int64
	CoordinatorEpoch      int32
	CurrentTxnFirstOffset kafka.Offset // -1 if no transaction is open
}

// Producers lists the producers that the log remembers, by id.
func (l *Log) Producers() ([]ProducerState, error) { panic("building") }

// ExpireProducers forgets producers that wrote nothing for the expiration time and have no open transaction.
func (l *Log) ExpireProducers(now time.Time) { panic("building") }

// DeleteOldSegments applies retention by time, size and log start. The files get the suffix .deleted and are returned for
// RemoveFiles after Config.FileDeleteDelay.
func (l *Log) DeleteOldSegments(now time.Time) (deleted []DeletedSegment, err error) {
	panic("building")
}

// DeletedSegment says which segment went and why.
type DeletedSegment struct {
	BaseOffset kafka.Offset
	Size       int64
	Reason     string   // "retention.ms", "retention.bytes" or "log start offset"
	Files      []string // to be removed later
}

// MaybeRoll begins a new segment if the active one is old enough, without an append: retention and compaction need it on an
// idle log.
func (l *Log) MaybeRoll(now time.Time) (rolled bool, err error) { panic("building") }

// Err is nil, or why the log refuses appends.
func (l *Log) Err() error { panic("building") }

// Close syncs, writes the producers' snapshot and the pending index entries, and closes: after it the log is clean.
func (l *Log) Close() error { panic("building") }
