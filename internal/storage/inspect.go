package storage

import (
	"fmt"
	"sort"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
)

// This file is for tools that look at a directory's files without opening them as logs, such as fsck: the decoders of this
// package under names that they can use, and the producers' state as a log makes it out of batches. Nothing here writes.

// Names of the files of a log directory and of a partition.
const (
	MetaFile              = metaName
	LockFile              = lockName
	CleanShutdownFile     = cleanShutdownName
	RecoveryPointsFile    = recoveryPointsName
	HighWatermarksFile    = highWatermarksName
	StartOffsetsFile      = startOffsetsName
	CleanerOffsetsFile    = cleanerOffsetsName
	EpochsFile            = epochsName
	PartitionMetadataFile = partitionMetadataName
	RemoteIndexCacheDir   = remoteIndexCacheName
	LostAndFoundDir       = lostAndFoundName
)

// Suffixes of the files of a segment.
const (
	LogSuffix       = logSuffix
	IndexSuffix     = indexSuffix
	TimeIndexSuffix = timeIndexSuffix
	TxnIndexSuffix  = txnIndexSuffix
	SnapshotSuffix  = snapshotSuffix
	DeletedSuffix   = deletedSuffix
	CleanedSuffix   = cleanedSuffix
	SwapSuffix      = swapSuffix
	AsideSuffix     = asideSuffix
)

// Sizes in bytes of the entries of the indexes.
const (
	OffsetIndexEntrySize = offsetEntrySize
	TimeIndexEntrySize   = timeEntrySize
	TxnIndexEntrySize    = abortedEntrySize
)

// Bounds in bytes of small files, above which they are not read.
const (
	MaxMetaSize       = maxMetaSize
	MaxCheckpointSize = maxCheckpointSize
	MaxSnapshotSize   = maxSnapshotSize
)

// SegmentFileName is the name of a file of the segment that begins at base: 20 digits and a suffix.
func SegmentFileName(base kafka.Offset, suffix string) string { return segmentName(base, suffix) }

// ParseSegmentFileName is its inverse. suffix is all that follows the digits; ok is false for names of another form.
func ParseSegmentFileName(name string) (base kafka.Offset, suffix string, ok bool) {
	return parseSegmentName(name)
}

// ParsePartitionDirName takes the name of a partition's directory apart.
func ParsePartitionDirName(name string) (PartitionDir, bool) { return parseDirName(name) }

// ParseMeta reads the content of meta.properties.
func ParseMeta(b []byte) (Meta, error) { return decodeMeta(b) }

// ParseCleanShutdown reads the clean-shutdown mark: the broker's epoch, -1 if it says none.
func ParseCleanShutdown(b []byte) kafka.BrokerEpoch { return decodeCleanShutdown(b) }

// ParsePartitionMetadata reads the content of partition.metadata.
func ParsePartitionMetadata(b []byte) (kafka.TopicID, error) { return decodePartitionMetadata(b) }

// ParseOffsets reads an offset checkpoint: recovery points, high watermarks, log starts or the cleaner's. The last of several
// lines of a partition counts; lines says how many there are.
func ParseOffsets(b []byte) (offsets map[kafka.TopicPartition]kafka.Offset, lines int, err error) {
	if len(b) > 0 {
		err = decodeCheckpoint(b, 3, func([][]byte) error { lines++; return nil })
	}
	if err == nil {
		offsets, err = decodeOffsets(b)
	}
	return offsets, lines, err
}

// ParseEpochs reads leader-epoch-checkpoint.
func ParseEpochs(b []byte) ([]EpochStart, error) { return decodeEpochs(b) }

// ParseOffsetIndexEntry reads one entry of an offset index, which must be whole: offset less the segment's base, position in
// the log.
func ParseOffsetIndexEntry(b []byte) (relative, position uint32) {
	e := decodeOffsetEntry(b)
	return e.relative, e.position
}

// ParseTimeIndexEntry reads one entry of a time index, which must be whole: timestamp in ms, offset less the segment's base.
func ParseTimeIndexEntry(b []byte) (timestamp int64, relative uint32) {
	e := decodeTimeEntry(b)
	return e.timestamp, e.relative
}

// AbortedIndexEntry is an entry of a transaction index. LastOffset is the marker's.
type AbortedIndexEntry struct {
	ProducerID                                kafka.ProducerID
	FirstOffset, LastOffset, LastStableOffset kafka.Offset
}

// ParseAborted reads the transaction index of a segment that begins at base. With an error come the good entries before it.
func ParseAborted(b []byte, base kafka.Offset) ([]AbortedIndexEntry, error) {
	all, err := decodeAborted(b, base)
	if err != nil {
		bad := sort.Search(len(b)/abortedEntrySize, func(n int) bool {
			_, err := decodeAborted(b[:(n+1)*abortedEntrySize], base)
			return err != nil
		})
		if all, _ = decodeAborted(b[:bad*abortedEntrySize], base); all == nil {
			return nil, err
		}
	}
	out := make([]AbortedIndexEntry, len(all))
	for i, e := range all {
		out[i] = AbortedIndexEntry{e.producerID, e.firstOffset, e.lastOffset, e.lastStableOffset}
	}
	return out, err
}

// ProducerEntry is an entry of a producer snapshot. LastSequence and LastOffset are -1 without a batch, TxnFirstOffset
// without an open transaction, CoordinatorEpoch before a marker. Timestamp is in ms.
type ProducerEntry struct {
	ProducerID       kafka.ProducerID
	ProducerEpoch    kafka.ProducerEpoch
	LastSequence     int32
	LastOffset       kafka.Offset
	OffsetDelta      int32
	Timestamp        int64
	CoordinatorEpoch int32
	TxnFirstOffset   kafka.Offset
}

// ParseProducerSnapshot reads a producer snapshot.
func ParseProducerSnapshot(b []byte) ([]ProducerEntry, error) {
	entries, err := decodeSnapshot(b)
	if err != nil {
		return nil, err
	}
	return producerEntries(entries), nil
}

func producerEntries(entries []snapshotEntry) []ProducerEntry {
	out := make([]ProducerEntry, len(entries))
	for i, e := range entries {
		out[i] = ProducerEntry{
			e.producerID, e.producerEpoch, e.lastSequence, e.lastOffset, e.offsetDelta, e.timestamp, e.coordinatorEpoch, e.txnFirstOffset,
		}
	}
	return out
}

// ProducerReplay makes the state of a log's producers out of its batches, as recovery does.
type ProducerReplay struct{ ps *producers }

// NewProducerReplay begins at offset with what a snapshot there has, or nothing.
func NewProducerReplay(offset kafka.Offset, snapshot []ProducerEntry) *ProducerReplay {
	ps := newProducers(offset)
	for _, e := range snapshot {
		p := &producer{
			id: e.ProducerID, epoch: e.ProducerEpoch, coordinatorEpoch: e.CoordinatorEpoch, lastTimestamp: e.Timestamp,
			txnFirstOffset: e.TxnFirstOffset,
		}
		if e.LastOffset >= 0 {
			p.addBatch(batchMeta{e.LastSequence, e.OffsetDelta, e.LastOffset, e.Timestamp})
		}
		ps.add(p)
		if p.txnFirstOffset >= 0 {
			ps.ongoing = append(ps.ongoing, txn{producerID: p.id, firstOffset: p.txnFirstOffset, lastOffset: -1})
		}
	}
	return &ProducerReplay{ps}
}

// Apply takes in the next batch, which must be whole and checked. If it is the marker that aborts a transaction, that is
// returned. An error says that a control record can't be read.
func (r *ProducerReplay) Apply(b record.Batch) (aborted AbortedIndexEntry, ok bool, err error) {
	if !b.HasProducerID() {
		return aborted, false, nil
	}
	f, err := factsOf(b, 0)
	if err != nil {
		return aborted, false, fmt.Errorf("control batch at offset %d: %w", b.BaseOffset(), err)
	}
	ended, ok := r.ps.apply(&f)
	if !ok {
		return aborted, false, nil
	}
	aborted = AbortedIndexEntry{ended.producerID, ended.firstOffset, ended.lastOffset, r.ps.lastStableAt(ended)}
	r.ps.complete(ended)
	r.ps.replicated(b.LastOffset() + 1) // what has ended is of no more interest
	return aborted, ended.aborted, nil
}

// Len is the number of producers.
func (r *ProducerReplay) Len() int { return len(r.ps.byID) }

// Open is the number of open transactions.
func (r *ProducerReplay) Open() int { return len(r.ps.ongoing) }

// Entry is what a snapshot would say of a producer.
func (r *ProducerReplay) Entry(id kafka.ProducerID) (ProducerEntry, bool) {
	p := r.ps.byID[id]
	if p == nil {
		return ProducerEntry{}, false
	}
	one := producers{byID: map[kafka.ProducerID]*producer{id: p}}
	return producerEntries(one.entries())[0], true
}

// Entries lists the producers by id.
func (r *ProducerReplay) Entries() []ProducerEntry { return producerEntries(r.ps.entries()) }
