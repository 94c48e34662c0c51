package cli

import (
	"fmt"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/storage"
)

// reportIndexes says what is wrong with the offset and time index of a segment, as far as they could be compared.
func (e *fsckBatches) reportIndexes() {
	p := e.p
	recovered := p.recovers(e.i)
	const stopped = " while the broker is stopped: at its start it makes both indexes of a segment anew that has no offset index."
	if e.s.offsetIndex == "" {
		f := p.findings.add(fsckWarning, e.s.log, "index-missing", "recovers the segment at its start, and so makes its indexes anew.", "%s is missing", storage.SegmentFileName(e.s.base, storage.IndexSuffix))
		if !p.unflushed(e.i) {
			f.Highwater = "makes the indexes anew when the segment is first read."
		}
	}
	if e.s.timeIndex == "" && p.scan.size > 0 {
		f := p.findings.add(fsckWarning, e.s.log, "index-missing", "makes it anew when it recovers the segment.", "%s is missing", storage.SegmentFileName(e.s.base, storage.TimeIndexSuffix))
		if !recovered {
			f.Kafka = "makes an empty one: a search by time passes over the segment, and retention goes by the time of the file."
			f.Highwater = "makes the indexes anew when the segment is first read."
			f.WayOut = "remove the segment's " + storage.IndexSuffix + stopped
		}
	}
	for _, x := range []*fsckIndex{&p.offsets, &p.times} {
		if !x.present {
			continue
		}
		switch {
		case x.faults == 0:
		case recovered:
			p.findings.add(fsckWarning, x.name, "index", "makes it anew when it recovers the segment.", "%s%s", x.fault, fsckMore(x.faults)).at(x.where, -1)
		default:
			f := p.findings.add(fsckError, x.name, "index", "does not notice, for it checks no index of a segment that it does not recover: reads may begin in the wrong place and fail, or pass over records.", "%s%s", x.fault, fsckMore(x.faults)).at(x.where, -1)
			if x == &p.times {
				f.Kafka = "does not notice, for it checks no index of a segment that it does not recover: searches by time go wrong, and so may retention, which takes the last entry for the segment's largest timestamp."
			}
			f.Highwater = "compares an entry with its batch where it uses it, and makes the indexes anew if they differ."
			f.WayOut = "remove the segment's " + storage.IndexSuffix + stopped
		}
		if x.used < x.entries && x.faults == 0 && p.clean && !p.meta && !recovered {
			p.findings.add(fsckWarning, x.name, "index-zeros", "takes the zeros for entries: a search begins at the segment's start, and by the time index the segment is as old as 1970, so that retention.ms removes it.",
				"%d entries of zeros at its end, as in a segment that is being written, and yet the directory was stopped cleanly", x.entries-x.used).at(x.used*x.width, -1).
				Highwater = "knows where the entries end."
		}
	}
}

func fsckMore(faults int) string {
	if faults == 1 {
		return ""
	}
	return fmt.Sprintf(" (and %d more entries that are wrong)", faults-1)
}

// lastTime compares the last entry of a time index, which must be the segment's largest timestamp once it is not written to
// any more.
func (e *fsckBatches) lastTime() {
	p := e.p
	if !p.times.present || p.times.faults > 0 || e.most <= 0 || p.recovers(e.i) || p.meta {
		return
	}
	if p.times.lastTimestamp != e.most {
		f := p.findings.add(fsckWarning, p.times.name, "index", "does not notice: retention takes the segment for older than it is, and may remove it early.", "the last entry has timestamp %d, and the segment's largest is %d", p.times.lastTimestamp, e.most)
		f.WayOut = "remove the segment's " + storage.IndexSuffix + " while the broker is stopped: at its start it makes both indexes of a segment anew that has no offset index."
	}
}

// compareAborted compares the transaction index with the transactions that the segment's markers abort. What compaction took
// away, the index may still have.
func (e *fsckBatches) compareAborted() {
	p, w, s := e.p, &e.p.walk, e.s
	if p.meta || w.noProducers || s.badTxnIndex {
		return
	}
	recovered := p.recovers(e.i)
	file := map[kafka.Offset]storage.AbortedIndexEntry{}
	for _, a := range s.aborted {
		file[a.LastOffset] = a
	}
	name := s.txnIndex
	if name == "" {
		name = s.log
	}
	for _, a := range e.aborted {
		have, ok := file[a.LastOffset]
		same := have.ProducerID == a.ProducerID && have.FirstOffset == a.FirstOffset && (have.LastStableOffset == a.LastStableOffset || !w.contiguous || !w.complete)
		if ok && same {
			continue
		}
		severity, kafka := fsckError, "does not notice: read_committed consumers see the records of the aborted transaction."
		if recovered {
			severity, kafka = fsckWarning, "makes the index anew when it recovers the segment."
		}
		if ok {
			p.findings.add(severity, name, "txn-index", kafka, "the entry of the transaction that producer %d aborted at offset %d says (first offset %d, last stable offset %d), and the log says (%d, %d)", a.ProducerID, a.LastOffset, have.FirstOffset, have.LastStableOffset, a.FirstOffset, a.LastStableOffset).at(-1, a.LastOffset)
			continue
		}
		f := p.findings.add(severity, name, "txn-index", kafka, "producer %d aborted a transaction of offsets %d to %d, and the transaction index does not have it", a.ProducerID, a.FirstOffset, a.LastOffset).at(-1, a.LastOffset)
		if !recovered {
			f.WayOut = "remove the segment's " + storage.IndexSuffix + " while the broker is stopped: then it recovers the segment, and with it the transaction index."
		}
	}
	known := map[kafka.Offset]bool{}
	for _, a := range e.aborted {
		known[a.LastOffset] = true
	}
	for _, a := range s.aborted {
		marker, marked := e.markers[a.LastOffset]
		sane := a.FirstOffset >= 0 && a.FirstOffset <= a.LastOffset && a.LastStableOffset >= 0 && a.LastStableOffset <= a.LastOffset+1 && (!marked || marker == a.ProducerID)
		switch {
		case known[a.LastOffset]:
			continue
		case sane && (!w.contiguous || !w.complete || marked && a.FirstOffset < p.segments[0].base):
			continue
		}
		f := p.findings.add(fsckWarning, name, "txn-index", "does not notice: read_committed consumers may miss records of that producer.", "the transaction of producer %d, offsets %d to %d, is in the index, and the log has no such", a.ProducerID, a.FirstOffset, a.LastOffset).at(-1, a.LastOffset)
		if recovered {
			f.Kafka = "makes the index anew when it recovers the segment."
		}
	}
}

// beginProducers begins the state of the producers with the snapshot at the log's first offset, if there is one.
func (p *fsckPartition) beginProducers() {
	first := kafka.Offset(0)
	if len(p.segments) > 0 {
		first = p.segments[0].base
	}
	w := &p.walk
	w.complete = first == 0
	var entries []storage.ProducerEntry
	for ; w.snapshot < len(p.snapshots) && p.snapshots[w.snapshot] <= first; w.snapshot++ {
		e, ok := p.readSnapshot(p.snapshots[w.snapshot])
		if ok && p.snapshots[w.snapshot] == first {
			entries, w.complete = e, true
		}
	}
	w.producers = storage.NewProducerReplay(first, entries)
}

func (p *fsckPartition) snapshotName(offset kafka.Offset) string {
	return p.name(storage.SegmentFileName(offset, storage.SnapshotSuffix))
}

// readSnapshot reads a producer snapshot, and says so if it is bad.
func (p *fsckPartition) readSnapshot(offset kafka.Offset) ([]storage.ProducerEntry, bool) {
	name := p.snapshotName(offset)
	b, err := p.fs.ReadFile(name, storage.MaxSnapshotSize)
	if err != nil {
		p.unreadable(name, err)
		return nil, false
	}
	p.counts.Bytes += int64(len(b))
	entries, err := storage.ParseProducerSnapshot(b)
	if err != nil {
		p.findings.add(fsckWarning, name, "producer-snapshot", "removes it when it comes to it, and makes the producers' state out of an older snapshot and the records after it.", "%v", err)
		return nil, false
	}
	return entries, true
}

// compareSnapshots compares the snapshots at or below an offset with the state there. What is missing in a snapshot may have
// expired; what it has more may have been compacted away.
func (p *fsckPartition) compareSnapshots(end kafka.Offset) {
	w := &p.walk
	for ; w.snapshot < len(p.snapshots) && p.snapshots[w.snapshot] <= end; w.snapshot++ {
		at := p.snapshots[w.snapshot]
		entries, ok := p.readSnapshot(at)
		if !ok || w.noProducers || at < w.next {
			continue
		}
		for _, s := range entries {
			r, known := w.producers.Entry(s.ProducerID)
			switch {
			case !known && (!w.complete || !w.contiguous):
				continue
			case known && s.ProducerEpoch == r.ProducerEpoch && s.LastSequence == r.LastSequence && s.LastOffset == r.LastOffset && s.TxnFirstOffset == r.TxnFirstOffset:
				continue
			case known && !w.contiguous && (s.LastOffset < r.LastOffset || s.TxnFirstOffset != r.TxnFirstOffset || s.LastOffset == r.LastOffset):
				// Compaction keeps a producer's last batch, but not what its transaction began with.
				continue
			case known && !w.complete && s.TxnFirstOffset >= 0 && s.TxnFirstOffset < p.segments[0].base:
				continue
			}
			f := p.findings.add(fsckWarning, p.snapshotName(at), "producer-snapshot", "believes the snapshot: it may refuse batches of this producer, or take one twice.", "of producer %d it says %s, and the log says %s", s.ProducerID, fsckProducer(s, true), fsckProducer(r, known))
			if p.unflushed(len(p.segments) - 1) {
				f.Kafka = "makes the state anew out of the log as far as it recovers it."
			}
		}
	}
}

func fsckProducer(e storage.ProducerEntry, known bool) string {
	if !known {
		return "nothing"
	}
	s := fmt.Sprintf("(epoch %d, last sequence %d, last offset %d", e.ProducerEpoch, e.LastSequence, e.LastOffset)
	if e.TxnFirstOffset >= 0 {
		s += fmt.Sprintf(", open transaction from %d", e.TxnFirstOffset)
	}
	return s + ")"
}

// compareEpoch compares a batch's leader epoch with the history in leader-epoch-checkpoint.
func (p *fsckPartition) compareEpoch(b record.Batch, e *fsckBatches) {
	w := &p.walk
	epoch, base := b.PartitionLeaderEpoch(), b.BaseOffset()
	if b.Magic() < 2 || epoch < 0 {
		return
	}
	w.batches = true
	if !p.epochsRead || base < p.logStart { // of what was deleted the history knows nothing
		return
	}
	for w.epochAt+1 < len(p.epochs) && p.epochs[w.epochAt+1].Start <= base {
		w.epochAt++
	}
	known := kafka.NoLeaderEpoch
	if w.epochAt < len(p.epochs) && p.epochs[w.epochAt].Start <= base {
		known = p.epochs[w.epochAt].Epoch
	}
	if known == epoch || w.epochFault {
		return
	}
	w.epochFault = true
	f := p.findings.add(fsckWarning, p.name(storage.EpochsFile), "leader-epochs", "does not notice: followers and consumers that ask where an epoch ends hear something wrong, and followers may truncate too little or too much.",
		"offset %d has leader epoch %d in the log, and by this file %d", base, epoch, known).at(-1, base)
	if p.recovers(e.i) && epoch > known {
		f.Severity = fsckNote
		f.Kafka = "adds the epoch when it recovers the segment."
	}
	f.Highwater = "believes the batches of the segments that it recovers."
}

// finish says what only the whole log shows.
func (p *fsckPartition) finish() {
	w := &p.walk
	end := max(w.next, 0)
	if len(p.segments) == 0 {
		end = max(p.logStart, 0)
		p.noSegments()
	}
	if w.cut != nil {
		end = w.cut.Offset
		p.forecast.EndOffset = end
		p.closeCut()
	} else {
		p.compareSnapshots(end)
	}
	p.forecast.EndOffset = end
	first := kafka.Offset(0)
	if len(p.segments) > 0 {
		first = p.segments[0].base
	}
	p.forecast.StartOffset = max(first, p.logStart)
	for _, o := range p.snapshots[min(w.snapshot, len(p.snapshots)):] {
		if o > end {
			p.findings.add(fsckNote, p.snapshotName(o), "producer-snapshot", "removes it at its start.", "it is for offset %d, beyond the log's end %d", o, end)
		}
	}
	p.finishEpochs(end)
	p.finishCheckpoints(end)
	if p.clean && !p.meta && w.producers != nil && w.producers.Len() > 0 && len(p.snapshots) == 0 && !w.noProducers {
		severity, kafka := fsckWarning, "knows none of its producers after the start: a batch sent twice is taken twice."
		if w.producers.Open() > 0 {
			severity, kafka = fsckError, fmt.Sprintf("knows none of its producers after the start, and not that %s open: read_committed consumers read on.", fsckPlural(w.producers.Open(), "transaction is"))
		}
		p.findings.add(severity, p.path, "producer-snapshot", kafka, "no producer snapshot, and %s in the log", fsckPlural(w.producers.Len(), "producer")).
			WayOut = "remove " + storage.CleanShutdownFile + " while the broker is stopped: then it makes the state out of the log."
	}
}

// noSegments is said where a partition has no segment at all.
func (p *fsckPartition) noSegments() {
	severity := fsckNote
	text := "no segment: nothing was written yet"
	if last := max(p.recoveryPoint, p.highWatermark); last > max(p.logStart, 0) {
		severity, text = fsckError, fmt.Sprintf("no segment, and there were records up to offset %d", last)
	}
	p.findings.add(severity, p.path, "no-segment", fmt.Sprintf("makes an empty segment at offset %d.", max(p.logStart, 0)), "%s", text)
}

func (p *fsckPartition) finishEpochs(end kafka.Offset) {
	name := p.name(storage.EpochsFile)
	for _, e := range p.epochs {
		if e.Start > end {
			p.findings.add(fsckWarning, name, "leader-epochs", "drops the entry at its start.", "epoch %d begins at offset %d, beyond the log's end %d", e.Epoch, e.Start, end).at(-1, e.Start)
		}
	}
	if len(p.epochs) > 0 && len(p.segments) > 0 && !p.meta {
		// Retention takes the history along; only a kill in between leaves more of it.
		if start := max(p.segments[0].base, p.logStart); p.clean && p.epochs[0].Start < start {
			p.findings.add(fsckWarning, name, "leader-epochs", "cuts the history off before the log's start.", "it begins at offset %d, and the log at %d: if retention has not deleted what was in between, segments are missing", p.epochs[0].Start, start).at(-1, p.epochs[0].Start)
		}
	}
	if p.epochsAbsent && p.walk.batches && p.dir.Kind != storage.Stray {
		f := p.findings.add(fsckWarning, p.path, "leader-epochs", "goes on without a history: followers and consumers that ask where an epoch ends hear nothing.", "%s is missing", storage.EpochsFile)
		if len(p.segments) > 0 && p.unflushed(0) {
			f.Severity, f.Kafka = fsckNote, "makes it anew when it recovers the log."
		}
		f.Highwater = "makes it anew out of the batches."
	}
}

// finishCheckpoints compares the offsets in the directory's checkpoints with the log.
func (p *fsckPartition) finishCheckpoints(end kafka.Offset) {
	if p.dir.Kind != storage.Current {
		return
	}
	add := func(severity fsckSeverity, file, kafka, format string, args ...any) *fsckFinding {
		slash := len(p.path) - len(p.dir.Name)
		return p.findings.add(severity, p.path[:slash]+file, "checkpoint", kafka, p.dir.Partition.String()+": "+format, args...)
	}
	if p.meta {
		if p.recoveryPoint > max(end, p.newestSnapshot) && p.forecast.TruncatedTo < 0 {
			add(fsckError, storage.RecoveryPointsFile, fmt.Sprintf("keeps no recovery point of it, and goes on from offset %d: what the quorum had committed beyond is lost.", end), "the metadata log was synced up to offset %d and ends at %d", p.recoveryPoint, end).at(-1, p.recoveryPoint)
		}
		return
	}
	if p.logStart > end {
		add(fsckError, storage.StartOffsetsFile, fmt.Sprintf("removes all segments and begins anew at offset %d.", p.logStart), "the log start offset %d lies beyond the log's end %d", p.logStart, end).at(-1, p.logStart).
			WayOut = "restore the missing segments, or remove the line while the broker is stopped."
	}
	if p.recoveryPoint > end && len(p.segments) > 0 {
		severity := fsckWarning
		if p.clean {
			severity = fsckError
		}
		add(severity, storage.RecoveryPointsFile, fmt.Sprintf("goes on from offset %d: what was synced beyond is lost.", end), "the log was synced up to offset %d and ends at %d", p.recoveryPoint, end).at(-1, p.recoveryPoint)
	}
	if p.highWatermark > end && len(p.segments) > 0 {
		severity := fsckWarning
		if p.clean && p.recoveryPoint <= end {
			severity = fsckError
		}
		add(severity, storage.HighWatermarksFile, fmt.Sprintf("takes %d for the high watermark: consumers may have seen records that are not there any more.", end), "the high watermark %d lies beyond the log's end %d", p.highWatermark, end).at(-1, p.highWatermark)
	}
	if p.dirty > end {
		add(fsckNote, storage.CleanerOffsetsFile, "cleans the log from its start again.", "the cleaner's offset %d lies beyond the log's end %d", p.dirty, end).at(-1, p.dirty)
	}
	if p.clean && p.recoveryPoint >= 0 && p.recoveryPoint < end && len(p.segments) > 0 {
		add(fsckNote, storage.RecoveryPointsFile, "does not mind.", "the log ends at %d, and the recovery point of a directory that was stopped cleanly is %d", end, p.recoveryPoint).at(-1, p.recoveryPoint)
	}
}
