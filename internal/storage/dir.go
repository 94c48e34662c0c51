package storage

import (
	"math/rand/v2"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/vfs"
)

// Options is what a Dir needs.
type Options struct {
	FS    vfs.FS
	Files *Files     // shared by all Dirs of a node
	Rand  *rand.Rand // for segment jitter; used under a lock

	ProducerExpiration time.Duration // producer.id.expiration.ms
}

// Files is a bounded cache of open files.
type Files struct{}

// NewFiles makes a cache of at most limit open files.
func NewFiles(fs vfs.FS, limit int) *Files { panic("building") }

// Dir is one log directory, locked by this process.
type Dir struct{}

// OpenDir locks a log directory and reads its small files. It fails with vfs.ErrLocked if another process has it, and
// leaves the clean-shutdown mark alone until Begin.
func OpenDir(path string, o Options) (*Dir, error) { panic("building") }

// Path is the directory's name.
func (d *Dir) Path() string { panic("building") }

// Meta is meta.properties. Version 0 is ZooKeeper's, 1 KRaft's.
type Meta struct {
	Version     int
	ClusterID   string
	NodeID      kafka.BrokerID
	DirectoryID kafka.DirectoryID // zero before Kafka 3.7
}

// ReadMeta reads meta.properties of a directory; fs.ErrNotExist if it isn't formatted. It needs no lock.
func ReadMeta(fs vfs.FS, dir string) (Meta, error) { panic("building") }

// WriteMeta writes meta.properties atomically.
func WriteMeta(fs vfs.FS, dir string, m Meta) error { panic("building") }

// Clean tells whether the last process shut this directory down cleanly, and that broker's epoch (-1 if unknown).
func (d *Dir) Clean() (clean bool, epoch kafka.BrokerEpoch) { panic("building") }

// Begin removes the clean-shutdown mark: what follows may need recovery.
func (d *Dir) Begin() error { panic("building") }

// PartitionDir is a directory of a partition.
type PartitionDir struct {
	Name      string // of the directory
	Partition kafka.TopicPartition
	Kind      PartitionDirKind
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

// Partitions lists the partition directories, by name. A directory that isn't one is an error, with Kafka's text.
// __cluster_metadata-0 is left out: its log is raft's.
func (d *Dir) Partitions() ([]PartitionDir, error) { panic("building") }

// Recovery tells what opening a log found and did. Lines are for the log of the program.
type Recovery struct {
	Recovered     int // segments read and checked
	TruncatedTo   kafka.Offset
	TruncatedSize int64 // bytes cut off
	Notes         []string
}

// Open opens a partition's log, and recovers it if the directory wasn't clean. It may be called from several goroutines at
// once for different partitions.
func (d *Dir) Open(p PartitionDir, c Config, now time.Time) (*Log, Recovery, error) {
	panic("building")
}

// OpenLog opens, or makes, a log that isn't in the checkpoints and is always recovered from the start of the segment that
// holds recoveryPoint: that of __cluster_metadata.
func (d *Dir) OpenLog(p kafka.TopicPartition, id kafka.TopicID, c Config, recoveryPoint, logStart kafka.Offset, now time.Time) (*Log, Recovery, error) {
	panic("building")
}

// Create makes an empty log.
func (d *Dir) Create(p kafka.TopicPartition, id kafka.TopicID, c Config, now time.Time) (*Log, error) {
	panic("building")
}

// Log is the open log of a partition, or nil.
func (d *Dir) Log(p kafka.TopicPartition) *Log { panic("building") }

// Logs lists the open logs by name.
func (d *Dir) Logs() []*Log { panic("building") }

// Delete renames a log's directory to …-delete, closes it for everybody, and returns the new name for RemovePartition.
// unique makes the name so: 32 hexadecimal digits.
func (d *Dir) Delete(l *Log, unique [16]byte) (name string, err error) { panic("building") }

// Strand renames the directory of a log that the metadata doesn't know to …-stray, and closes it.
func (d *Dir) Strand(l *Log, unique [16]byte) (name string, err error) { panic("building") }

// RemovePartition removes the tree of a renamed partition.
func (d *Dir) RemovePartition(name string) error { panic("building") }

// CheckpointRecoveryPoints writes recovery-point-offset-checkpoint.
func (d *Dir) CheckpointRecoveryPoints() error { panic("building") }

// CheckpointStartOffsets writes log-start-offset-checkpoint.
func (d *Dir) CheckpointStartOffsets() error { panic("building") }

// CheckpointHighWatermarks writes replication-offset-checkpoint.
func (d *Dir) CheckpointHighWatermarks() error { panic("building") }

// CleanerOffsets is cleaner-offset-checkpoint: the first offset of each compacted partition that isn't compacted.
func (d *Dir) CleanerOffsets() map[kafka.TopicPartition]kafka.Offset { panic("building") }

// Err is nil, or the first error that made the directory offline.
func (d *Dir) Err() error { panic("building") }

// Close closes the logs that are open, writes the checkpoints and, if nothing failed, the clean-shutdown mark with the
// broker's epoch; then it gives the lock back.
func (d *Dir) Close(epoch kafka.BrokerEpoch) error { panic("building") }
