package cli

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"math"
	"slices"
	"strings"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raftloop"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
)

// fsckPolicy is whether a topic is compacted.
type fsckPolicy uint8

const (
	fsckPolicyUnknown fsckPolicy = iota
	fsckPolicyUnset              // the metadata sets none, and the broker's own default is not known
	fsckCompacted
	fsckNotCompacted
)

// fsckPartition is the check of one partition's directory.
type fsckPartition struct {
	fs   vfs.FS
	path string
	dir  storage.PartitionDir
	meta bool // __cluster_metadata-0, whose log always counts as not closed
	deep bool // look into the records

	// What the log directory says. -1 where a checkpoint has no line.
	clean, zooKeeper, live                        bool
	recoveryPoint, logStart, highWatermark, dirty kafka.Offset
	policy                                        fsckPolicy
	newestSnapshot                                kafka.Offset // where the metadata log's newest snapshot ends; 0 without one

	// eachBatch, if set, gets each batch that will be in the log after Kafka's next start.
	eachBatch func(record.Batch)

	findings fsckFindings
	counts   fsckCounts
	forecast fsckForecast
	topicID  kafka.TopicID // zero if it isn't known
	segments []*fsckSegment

	snapshots    []kafka.Offset
	epochs       []storage.EpochStart
	epochsRead   bool
	epochsAbsent bool

	scan           fsckScan
	offsets, times fsckIndex
	walk           fsckWalk
}

// fsckSegment is one segment, under the names that its files have now.
type fsckSegment struct {
	base                                  kafka.Offset
	log, offsetIndex, timeIndex, txnIndex string // whole names; "" if there is none
	aborted                               []storage.AbortedIndexEntry
	badTxnIndex                           bool // so that Kafka recovers the segment
}

// fsckWalk is what is carried from batch to batch through all segments.
type fsckWalk struct {
	next        kafka.Offset // after the last batch; -1 before the first
	epoch       kafka.LeaderEpoch
	contiguous  bool // no gap so far
	batches     bool // there was one of magic 2 with a leader epoch
	producers   *storage.ProducerReplay
	complete    bool // producers began with all that there was to know
	noProducers bool // they were too many to be followed
	snapshot    int  // the next one to compare
	epochAt     int  // entry of the epoch history
	epochFault  bool

	// cut is the finding at which Kafka cuts the log off. What follows is only counted.
	cut        *fsckFinding
	lost, gone int64 // records, bytes
}

// fsckMaxProducers bounds the producers that are followed in one partition: about 200 bytes each.
const fsckMaxProducers = 1 << 20

func (p *fsckPartition) name(base string) string { return p.path + "/" + base }

// run makes the check.
func (p *fsckPartition) run() {
	p.counts.Partitions = 1
	p.forecast = fsckForecast{Partition: p.path, Topic: p.dir.Partition.String(), TruncatedTo: -1}
	if !p.list() {
		return
	}
	p.readPartitionMetadata()
	p.readEpochs()
	if p.dir.Kind == storage.Deleted {
		p.findings.add(fsckNote, p.path, "delete-dir", "removes it in the background after its start.", "a deleted partition that was not removed yet")
		return
	}
	p.walk = fsckWalk{next: -1, epoch: kafka.NoLeaderEpoch, contiguous: true}
	p.readTxnIndexes()
	p.beginProducers()
	for i := range p.segments {
		p.counts.Segments++
		p.segment(i)
	}
	p.finish()
}

// unreadable notes that a file or directory can't be read. It returns true if the file has vanished under a running broker.
func (p *fsckPartition) unreadable(name string, err error) (vanished bool) {
	if p.live && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.ErrUnexpectedEOF)) {
		p.findings.add(fsckNote, name, "vanished", "is at work on it.", "changed or removed while it was to be read")
		return true
	}
	p.findings.add(fsckError, name, "unreadable", "takes the whole log directory offline; ends if it is the last one or the metadata log's.", "cannot be read: %v", err).
		WayOut = "check the file's owner and mode, and the disk."
	return false
}

// list finds the files and sorts them by what they are.
func (p *fsckPartition) list() bool {
	entries, err := p.fs.List(p.path)
	if err != nil {
		p.unreadable(p.path, err)
		return false
	}
	var logs, indexes, swaps, deleted, cleaned []string
	minCleaned := kafka.Offset(math.MaxInt64)
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() {
			p.findings.add(fsckNote, p.name(name), "unknown-dir", "passes it over.", "a directory inside of a partition's")
			continue
		}
		p.counts.Files++
		base, suffix, ok := storage.ParseSegmentFileName(name)
		switch {
		case strings.HasSuffix(name, raftloop.DeletedSuffix) && p.meta:
			p.findings.add(fsckNote, p.name(name), "leftover", "removes it at its start.", "a snapshot that was to be removed")
		case strings.HasSuffix(name, storage.DeletedSuffix):
			deleted = append(deleted, name)
		case strings.HasSuffix(name, storage.CleanedSuffix):
			cleaned = append(cleaned, name)
			if ok {
				minCleaned = min(minCleaned, base)
			}
		case strings.HasSuffix(name, storage.SwapSuffix):
			swaps = append(swaps, name)
		case strings.Contains(name, storage.LogSuffix+storage.AsideSuffix):
			p.findings.add(fsckWarning, p.name(name), "aside", "passes it over.", "a segment that Highwater set aside, because offsets were missing before it").
				Highwater = "passes it over, too."
		case strings.HasSuffix(name, ".tmp"):
			p.findings.add(fsckNote, p.name(name), "leftover", "leaves it, and writes over it when it next replaces the file.", "the unfinished replacement of a small file").
				Highwater = "removes it at its start."
		case name == storage.EpochsFile, name == storage.PartitionMetadataFile, p.meta && p.metadataFile(name):
		case ok && suffix == storage.LogSuffix:
			logs = append(logs, name)
		case ok && (suffix == storage.IndexSuffix || suffix == storage.TimeIndexSuffix || suffix == storage.TxnIndexSuffix):
			indexes = append(indexes, name)
		case ok && suffix == storage.SnapshotSuffix:
			p.snapshots = append(p.snapshots, base)
		case segmentSuffix(name):
			p.findings.add(fsckError, p.name(name), "unknown-file", "ends at its start, as it looks for a number in the name.", "not a name of a segment's file").
				Highwater = "passes it over."
		default:
			p.findings.add(fsckNote, p.name(name), "unknown-file", "passes it over.", "not a file of a partition")
		}
	}
	if len(deleted) > 0 {
		p.findings.add(fsckNote, p.name(deleted[0]), "leftover", "removes them at its start.", "%s that retention or compaction had marked for removal", fsckPlural(len(deleted), "file"))
	}
	if len(cleaned) > 0 {
		p.findings.add(fsckNote, p.name(cleaned[0]), "leftover", "removes them at its start; the segments that were being compacted are whole.", "%s of a compaction that did not finish", fsckPlural(len(cleaned), "file"))
	}
	p.sortSegments(logs, indexes, swaps, minCleaned)
	slices.Sort(p.snapshots)
	return true
}

// metadataFile tells whether a name is one of those that only the metadata log has.
func (p *fsckPartition) metadataFile(name string) bool {
	if strings.HasSuffix(name, raftloop.PartSuffix) {
		p.findings.add(fsckNote, p.name(name), "leftover", "removes it at its start.", "a snapshot that was not finished")
		return true
	}
	_, snapshot := raftloop.ParseSnapshotName(name)
	return snapshot || name == raftloop.QuorumStateFile
}

// sortSegments puts the segments together as they will be once Kafka has finished what a compaction left.
func (p *fsckPartition) sortSegments(logs, indexes, swaps []string, minCleaned kafka.Offset) {
	by := map[kafka.Offset]*fsckSegment{}
	low, high := kafka.Offset(math.MaxInt64), kafka.Offset(-1)
	var valid []string
	for _, name := range swaps {
		base, suffix, ok := storage.ParseSegmentFileName(name)
		if !ok || base >= minCleaned {
			p.findings.add(fsckNote, p.name(name), "leftover", "removes it at its start: the split that it belongs to had not finished.", "left behind by a compaction or split")
			continue
		}
		valid = append(valid, name)
		if suffix == storage.LogSuffix+storage.SwapSuffix {
			next, err := p.endOf(name, base)
			if err != nil {
				p.unreadable(p.name(name), err)
			}
			low, high = min(low, base), max(high, next)
		}
	}
	put := func(base kafka.Offset, suffix, name string) {
		s := by[base]
		if s == nil {
			s = &fsckSegment{base: base}
			by[base] = s
		}
		switch suffix {
		case storage.LogSuffix:
			s.log = p.name(name)
		case storage.IndexSuffix:
			s.offsetIndex = p.name(name)
		case storage.TimeIndexSuffix:
			s.timeIndex = p.name(name)
		case storage.TxnIndexSuffix:
			s.txnIndex = p.name(name)
		}
	}
	for _, name := range slices.Concat(logs, indexes) {
		base, suffix, _ := storage.ParseSegmentFileName(name)
		if base >= low && base < high {
			p.findings.add(fsckNote, p.name(name), "leftover", "removes it at its start: a .swap file takes its place.", "replaced by a finished compaction")
			continue
		}
		put(base, suffix, name)
	}
	for _, name := range valid {
		base, suffix, _ := storage.ParseSegmentFileName(name)
		p.findings.add(fsckNote, p.name(name), "leftover", "gives it its name without .swap at its start.", "a finished compaction or split whose last step is missing")
		put(base, strings.TrimSuffix(suffix, storage.SwapSuffix), name)
	}
	for _, s := range by {
		if s.log != "" {
			p.segments = append(p.segments, s)
			continue
		}
		for _, name := range []string{s.offsetIndex, s.timeIndex, s.txnIndex} {
			if name != "" {
				p.findings.add(fsckWarning, name, "orphan-index", "removes it at its start.", "an index of a segment that is not there")
			}
		}
	}
	slices.SortFunc(p.segments, func(a, b *fsckSegment) int { return cmp.Compare(a.base, b.base) })
}

// endOf is the offset after the last batch of a file.
func (p *fsckPartition) endOf(name string, base kafka.Offset) (kafka.Offset, error) {
	f, err := p.fs.Open(p.name(name), vfs.ReadOnly)
	if err != nil {
		return base, err
	}
	defer f.Close()
	if err := p.scan.open(f); err != nil {
		return base, err
	}
	for next := base; ; {
		b, _, frame, _, err := p.scan.next()
		if err != nil || frame != fsckWhole && frame != fsckLarge || !fsckHeaderFits(b) {
			return next, err
		}
		next = b.NextOffset()
	}
}

func (p *fsckPartition) readPartitionMetadata() {
	name := p.name(storage.PartitionMetadataFile)
	b, err := p.fs.ReadFile(name, storage.MaxMetaSize)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if p.zooKeeper || p.meta || p.dir.Kind == storage.Deleted {
			return
		}
		p.findings.add(fsckWarning, p.path, "partition-metadata", "takes the partition for a stray one: renames its directory to …-stray, serves it no more, and never removes it.", "%s is missing", storage.PartitionMetadataFile).
			Highwater = "takes the topic's id from the metadata and serves the partition."
		return
	case err != nil:
		p.unreadable(name, err)
		return
	}
	if p.topicID, err = storage.ParsePartitionMetadata(b); err != nil {
		f := p.findings.add(fsckError, name, "partition-metadata", "ends at its start if the id cannot be read; takes the whole log directory offline for anything else, and ends if it is the last one.", "%v", err)
		f.Highwater = "an empty or cut file, as a power cut leaves it, counts as missing; the partition is offline with any other."
		f.WayOut = "if the directory is known to be of that topic, write it anew: version: 0, and topic_id: with the id that kafka-topics --describe shows."
	}
}

func (p *fsckPartition) readEpochs() {
	name := p.name(storage.EpochsFile)
	b, err := p.fs.ReadFile(name, storage.MaxCheckpointSize)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p.epochsAbsent = true
		return
	case err != nil:
		p.unreadable(name, err)
		return
	}
	if p.epochs, err = storage.ParseEpochs(b); err != nil {
		f := p.findings.add(fsckError, name, "leader-epochs", "ends at its start if a number cannot be read; takes the whole log directory offline for anything else, and ends if it is the last one or the metadata log's. What is only out of order it does not notice.", "%v", err)
		f.Highwater = "makes it anew out of the batches."
		f.WayOut = "remove the file while the broker is stopped, and the mark of a clean stop, " + storage.CleanShutdownFile + ": then it is made anew."
		return
	}
	p.epochsRead = true
}

func (p *fsckPartition) readTxnIndexes() {
	for _, s := range p.segments {
		if s.txnIndex == "" {
			continue
		}
		b, err := p.fs.ReadFile(s.txnIndex, math.MaxInt32)
		if err != nil {
			p.unreadable(s.txnIndex, err)
			continue
		}
		p.counts.Bytes += int64(len(b))
		whole := b[:len(b)-len(b)%storage.TxnIndexEntrySize]
		if s.aborted, err = storage.ParseAborted(whole, s.base); err != nil {
			// Kafka's own check knows only entries that end before the segment, and the version.
			s.badTxnIndex = true
			p.findings.add(fsckWarning, s.txnIndex, "txn-index", "recovers the segment at its start if an entry ends before it, and so makes the index anew; an unknown version ends it.", "%v", err).
				at(int64(len(s.aborted)*storage.TxnIndexEntrySize), -1).
				Highwater = "recovers the segment at its start, and so makes the index anew."
		}
		if len(whole) < len(b) {
			f := p.findings.add(fsckWarning, s.txnIndex, "txn-index", "does not notice; what the end held is not filtered for read_committed, unless the segment is recovered.", "its size of %d bytes is not a multiple of %d", len(b), storage.TxnIndexEntrySize).
				at(int64(len(whole)), -1)
			f.Highwater = "recovers the segment at its start, and so makes the index anew."
		}
	}
}

// recovers tells whether Kafka reads the whole of a segment at its start, and checks it.
func (p *fsckPartition) recovers(i int) bool {
	s := p.segments[i]
	if s.offsetIndex == "" || s.badTxnIndex {
		return true
	}
	return p.unflushed(i)
}

// synced is the offset below which Highwater knows that the log was on the disk once, and cuts nothing off.
func (p *fsckPartition) synced() kafka.Offset { return max(p.recoveryPoint, p.newestSnapshot) }

// unflushed tells whether a segment lies at or above the recovery point of a log that was not closed.
func (p *fsckPartition) unflushed(i int) bool {
	if p.clean && !p.meta {
		return false
	}
	point := max(p.recoveryPoint, 0)
	if p.meta {
		point = 0 // Kafka gives the metadata log none
	}
	return i+1 >= len(p.segments) || p.segments[i+1].base > point
}

// segmentSuffix tells whether a file has the ending of one of those of a segment for which Kafka looks.
func segmentSuffix(name string) bool {
	for _, suffix := range []string{storage.LogSuffix, storage.IndexSuffix, storage.TimeIndexSuffix, storage.TxnIndexSuffix} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}
