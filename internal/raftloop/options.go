package raftloop

import (
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raft"
	"github.com/highwater/highwater/internal/vfs"
)

// Options is what a Replica or Loop is made of. Fields are named after Kafka's properties.
type Options struct {
	NodeID      kafka.BrokerID
	DirectoryID kafka.DirectoryID // directory.id of the metadata directory's meta.properties
	ClusterID   string
	FS          vfs.FS
	// MetadataLogDir is metadata.log.dir, or the first of log.dirs; __cluster_metadata-0 is made in it.
	MetadataLogDir string
	// Survey, if set, gets the value of each record of the newest snapshot and of the log behind it while the replica opens; memory of a
	// value is not kept. Admit is asked after the last one, before this node votes, leads or writes: an error refuses to open.
	Survey func(value []byte)
	Admit  func() error
	// OpenLog opens the log in dir. recoveryPoint is up to where it is known to be durable: below the newest snapshot. See
	// OpenStorageLog and OpenFileLog.
	OpenLog func(dir string, recoveryPoint kafka.Offset) (Log, error)

	Controller         bool            // process.roles has controller
	ControllerListener string          // first of controller.listener.names
	Endpoints          []raft.Endpoint // this controller's advertised controller listeners

	QuorumVoters           raft.VoterSet   // controller.quorum.voters; directories zero
	QuorumBootstrapServers []raft.Endpoint // controller.quorum.bootstrap.servers; host and port
	QuorumAutoJoinEnable   bool

	QuorumElectionTimeout       time.Duration
	QuorumElectionBackoffMax    time.Duration
	QuorumFetchTimeout          time.Duration
	QuorumRequestTimeout        time.Duration
	QuorumRetryBackoff          time.Duration
	QuorumAppendLinger          time.Duration
	QuorumFetchMaxBytes         int32
	QuorumFetchSnapshotMaxBytes int32

	MetadataLogSegmentBytes                   int64
	MetadataLogSegment                        time.Duration // metadata.log.segment.ms
	MetadataMaxRetentionBytes                 int64
	MetadataMaxRetention                      time.Duration // metadata.max.retention.ms
	MetadataLogMaxRecordBytesBetweenSnapshots int64
	MetadataLogMaxSnapshotInterval            time.Duration // 0: never by time

	// CleanInterval is how often old snapshots and the log below them are looked at; Kafka's, one minute, if zero.
	CleanInterval time.Duration

	Rand *rand.Rand
	Peer Peer
	Log  *slog.Logger
	// Mutant is for the simulator's proof that it notices broken rules.
	Mutant raft.Mutant
}

// Defaults are the values of Kafka 4.4.
func (o *Options) Defaults() {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&o.QuorumElectionTimeout, time.Second)
	set(&o.QuorumElectionBackoffMax, time.Second)
	set(&o.QuorumFetchTimeout, 2*time.Second)
	set(&o.QuorumRequestTimeout, 2*time.Second)
	set(&o.QuorumRetryBackoff, 20*time.Millisecond)
	set(&o.CleanInterval, time.Minute)
	if o.QuorumFetchMaxBytes == 0 {
		o.QuorumFetchMaxBytes = 1 << 20
	}
	if o.QuorumFetchSnapshotMaxBytes == 0 {
		o.QuorumFetchSnapshotMaxBytes = 1 << 20
	}
	if o.MetadataLogSegmentBytes == 0 {
		o.MetadataLogSegmentBytes = 1 << 30
	}
	set(&o.MetadataLogSegment, 7*24*time.Hour)
	if o.MetadataMaxRetentionBytes == 0 {
		o.MetadataMaxRetentionBytes = 100 << 20
	}
	set(&o.MetadataMaxRetention, 7*24*time.Hour)
	if o.MetadataLogMaxRecordBytesBetweenSnapshots == 0 {
		o.MetadataLogMaxRecordBytesBetweenSnapshots = 20 << 20
	}
}

// Peer sends requests to other nodes. Package peer implements it.
type Peer interface {
	// Send sends req, whose version is chosen by what the node knows but is at least raft.MinVersion(req), and calls done
	// exactly once, from any goroutine, also from within Send: with the answer, or with an error at the latest after
	// timeout. Where the node serves no such version the error is UNSUPPORTED_VERSION. It does not block.
	Send(to raft.Node, req kmsg.Request, timeout time.Duration, done func(kmsg.Response, error))
}

// Callbacks is what a Replica tells its node. Each may be nil. They are called in order: after Snapshot comes what
// follows it in the log; Leader with this node as leader comes when all before its epoch was given to Commit.
type Callbacks struct {
	// Commit gets every committed batch once, in order. Memory is valid until it returns.
	Commit func(Batch)
	// Snapshot replaces everything taken in so far by the content of a snapshot: at the start, and when this node fell so
	// far behind that the leader no longer has the records. An error is fatal.
	Snapshot func(*SnapshotReader) error
	// Leader tells every change of leader and epoch.
	Leader func(LeaderChange)
	// SnapshotDue says that a snapshot at exactly this point, the end of the last Commit, should be written: take the
	// image now, then CreateSnapshot, from any goroutine. reason is for the log.
	SnapshotDue func(id kafka.OffsetAndEpoch, lastTimestamp time.Time, reason string)
}

// LeaderChange says who leads. Local: this node does, its controller is to claim the epoch now.
type LeaderChange struct {
	Leader kafka.BrokerID // NoBroker if unknown
	Epoch  kafka.LeaderEpoch
	Local  bool
}

// Batch is one batch of the log or of a snapshot.
type Batch struct {
	BaseOffset kafka.Offset
	LastOffset kafka.Offset
	Epoch      kafka.LeaderEpoch
	Timestamp  time.Time // when the leader appended it
	Size       int       // bytes in the log
	// Records are the values; record i has offset BaseOffset+i. Control batches have none.
	Records [][]byte
	Control bool
}

// Log is the metadata log. Offsets are contiguous. All calls come from one goroutine.
type Log interface {
	StartOffset() kafka.Offset
	EndOffset() kafka.Offset
	// Epochs is where each epoch begins, ascending.
	Epochs() []raft.EpochStart
	// Append writes whole batches whose offsets and epochs are set; the first begins at EndOffset.
	Append(now time.Time, batches []byte) error
	// Truncate drops all from end on.
	Truncate(now time.Time, end kafka.Offset) error
	// Reset drops everything; the log starts and ends at offset, durably.
	Reset(now time.Time, offset kafka.Offset) error
	// Flush makes everything durable.
	Flush() error
	// Read gives whole batches from the one that holds offset on, at least one, else not more than maxBytes; empty at the
	// end. The memory is the caller's.
	Read(offset kafka.Offset, maxBytes int) ([]byte, error)
	// DeletePrefix lets the log start at offset and drops what it can of what is below.
	DeletePrefix(now time.Time, offset kafka.Offset) error
	// Size is in bytes.
	Size() int64
	Close() error
}
