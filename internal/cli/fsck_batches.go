package cli

import (
	"fmt"
	"math"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
)

// segment reads segment i with its indexes.
func (p *fsckPartition) segment(i int) {
	s := p.segments[i]
	f, err := p.fs.Open(s.log, vfs.ReadOnly)
	if err == nil {
		defer f.Close()
		err = p.scan.open(f)
	}
	if err == nil {
		err = p.offsets.open(p.fs, s.offsetIndex, storage.OffsetIndexEntrySize)
		defer p.offsets.close()
	}
	if err == nil {
		err = p.times.open(p.fs, s.timeIndex, storage.TimeIndexEntrySize)
		defer p.times.close()
	}
	if err != nil {
		p.unreadable(s.log, err)
		p.walk.contiguous, p.walk.complete = false, false
		if i+1 < len(p.segments) {
			p.walk.next = p.segments[i+1].base // what is missing is not known
		}
		return
	}
	p.counts.Bytes += p.scan.size + p.offsets.size + p.times.size
	w := &p.walk
	if w.cut == nil && p.recovers(i) {
		p.forecast.Recovers = append(p.forecast.Recovers, s.base)
	}
	if w.cut != nil && p.unflushed(i) {
		p.forecast.DroppedSegments++
	}
	if p.scan.size > math.MaxInt32 {
		p.findings.add(fsckError, s.log, "segment-size", "ends at its start.", "its size of %d bytes is more than a segment may have", p.scan.size)
	}
	if w.cut != nil {
		p.countLost(i)
		return
	}
	end := fsckBatches{p: p, i: i, s: s, limit: math.MaxInt64, most: record.NoTimestamp}
	if i+1 < len(p.segments) {
		end.limit = p.segments[i+1].base
	}
	if w.next < 0 {
		w.next = s.base
	}
	end.gap(s.base, true)
	w.next = max(w.next, s.base)
	p.compareSnapshots(s.base)
	if err := end.walk(); err != nil {
		p.unreadable(s.log, err)
		w.contiguous, w.complete = false, false
		if end.limit != math.MaxInt64 {
			w.next = end.limit // what is missing is not known
		}
	}
	if w.cut != nil && w.cut.File == s.log {
		w.gone += p.scan.size - w.cut.Position
		if !p.unflushed(i) {
			// It is read only because an index is bad: the segments behind it stay.
			p.closeCut()
		}
	}
}

// countLost counts what goes because the log is cut off before it.
func (p *fsckPartition) countLost(i int) {
	w := &p.walk
	w.gone += p.scan.size
	for {
		b, _, frame, _, err := p.scan.next()
		if err != nil || frame != fsckWhole && frame != fsckLarge && frame != fsckTorn {
			break
		}
		w.lost += fsckCount(b)
		if frame == fsckTorn {
			break
		}
	}
}

// fsckCount is how many records a header speaks of; 0 if it cannot be believed.
func fsckCount(b record.Batch) int64 {
	if !fsckHeaderFits(b) {
		return 0
	}
	if b.Magic() < 2 {
		return 1
	}
	if n := int64(b.Count()); n > 0 && n <= int64(b.LastOffsetDelta())+1 {
		return n
	}
	return 0
}

// closeCut completes the finding at which the log is cut off, once it is known how much that takes.
func (p *fsckPartition) closeCut() {
	w := &p.walk
	if w.cut == nil {
		return
	}
	text := fmt.Sprintf("truncates the log to offset %d when it recovers the segment: %d bytes go, with %s that can be counted", w.cut.Offset, w.gone, fsckPlural(int(w.lost), "record"))
	if n := p.forecast.DroppedSegments; n > 0 {
		text += fmt.Sprintf(", and %s after it", fsckPlural(n, "segment"))
	}
	w.cut.Kafka = text + "."
	p.forecast.TruncatedTo, p.forecast.TruncatedBytes, p.forecast.TruncatedRecords = w.cut.Offset, w.gone, w.lost
	if p.forecast.DroppedSegments == 0 {
		w.cut, w.lost, w.gone = nil, 0, 0
	}
}

// fsckBatches is the walk over one segment's batches.
type fsckBatches struct {
	p     *fsckPartition
	i     int
	s     *fsckSegment
	limit kafka.Offset // the next segment's base
	most  int64        // largest timestamp

	aborted []storage.AbortedIndexEntry       // as its markers say
	markers map[kafka.Offset]kafka.ProducerID // of transactions that end, by offset
	broken  bool                              // a batch was bad: what was learned of the segment has holes
}

func (e *fsckBatches) walk() error {
	p, w := e.p, &e.p.walk
	for {
		b, pos, frame, why, err := p.scan.next()
		if err != nil {
			return err
		}
		if frame == fsckEnd {
			break
		}
		if w.cut != nil {
			if frame == fsckWhole || frame == fsckLarge || frame == fsckTorn {
				w.lost += fsckCount(b)
			}
			if frame != fsckWhole && frame != fsckLarge {
				break
			}
			continue
		}
		if frame != fsckWhole && frame != fsckLarge {
			e.frame(frame, b, pos, why)
			break
		}
		if !e.whole(b, pos, frame) {
			continue
		}
		if err := e.batch(b, pos, frame); err != nil {
			return err
		}
	}
	if w.cut == nil && !e.broken {
		err := p.offsets.rest("a batch")
		if err == nil {
			err = p.times.rest("an offset")
		}
		if err != nil {
			return err
		}
		e.compareAborted()
		e.lastTime()
	}
	e.reportIndexes()
	return nil
}

// defect notes what is wrong at a place in the log. cuts tells whether Kafka cuts the log off there when it recovers the segment.
func (e *fsckBatches) defect(check string, pos int64, cuts bool, b record.Batch, format string, args ...any) *fsckFinding {
	p, w := e.p, &e.p.walk
	e.broken = true
	place := fmt.Sprintf("at byte %d, after offset %d: ", pos, w.next-1)
	f := p.findings.add(fsckError, e.s.log, check, "", place+format, args...).at(pos, w.next)
	f.WayOut = "these records are in other replicas of the partition, or in a backup, or nowhere."
	recovered := p.recovers(e.i)
	switch {
	case recovered && cuts:
		w.cut = f
		w.lost += fsckCount(b)
		f.Highwater = e.keeps()
	case recovered:
		f.Kafka = "does not notice."
		if f.Highwater = e.keeps(); f.Highwater == "" {
			f.Highwater = fmt.Sprintf("truncates the log to offset %d when it recovers the segment.", w.next)
		}
	case p.clean:
		f.Kafka = "does not notice at its start. A consumer that comes to this place goes no further, a follower neither, and the cleaner leaves the log alone. After a stop that is not clean it may truncate the log here."
	default:
		f.Kafka = "does not notice at its start, for the place lies below the recovery point. A consumer that comes to this place goes no further, a follower neither, and the cleaner leaves the log alone."
		f.Highwater = "checks the batch before it is served: an error that names file and position, and no wrong byte."
	}
	return f
}

// keeps says what Highwater does with a bad place that it does not cut off, because it was synced once; "" if it cuts there.
func (e *fsckBatches) keeps() string {
	p, next := e.p, e.p.walk.next
	synced := p.synced()
	switch {
	case next >= synced:
		return ""
	case !p.meta:
		return fmt.Sprintf("cuts nothing off below the recovery point %d, which was synced once: an error that names file and position, and the partition offline if it comes to the batch when it recovers.", synced)
	case e.limit < synced && next < p.newestSnapshot:
		return fmt.Sprintf("does not read the segment at its start: the snapshot that ends at offset %d says what was in it.", p.newestSnapshot)
	}
	return fmt.Sprintf("does not start: an error that names file and position. It cuts nothing off the metadata log below offset %d, for that was synced once, so it may be committed.", synced)
}

// frame notes that at pos there is no batch.
func (e *fsckBatches) frame(frame fsckFrame, b record.Batch, pos int64, why string) {
	p, w := e.p, &e.p.walk
	left := p.scan.size - pos
	last := e.i == len(p.segments)-1
	if frame == fsckZeros {
		e.broken = true
		f := p.findings.add(fsckWarning, e.s.log, "zero-tail", "", "the last %d bytes, from byte %d on, are zeros: room made ahead, or a write of which a power cut left only the length", left, pos).at(pos, w.next)
		switch {
		case p.recovers(e.i):
			f.Kafka = fmt.Sprintf("truncates the log to offset %d when it recovers the segment; no record is lost by that.", w.next)
			f.Highwater = e.keeps()
			p.forecast.TruncatedTo, p.forecast.TruncatedBytes = w.next, left
		case last:
			f.Severity = fsckError
			f.Kafka = "appends behind the zeros, and what it appends there it cannot read again."
			f.WayOut = "remove " + storage.CleanShutdownFile + " while the broker is stopped: then it recovers the log and cuts the zeros off."
		default:
			f.Kafka = "does not notice."
		}
		if p.recovers(e.i) && !last && p.unflushed(e.i) {
			// What comes after goes, too.
			f.Severity = fsckError
			w.cut = f
			if w.next == e.limit && f.Highwater == "" {
				f.Highwater = "cuts the zeros off, and keeps the segments after them, for no record is missing."
			}
		}
		return
	}
	check := "torn-batch"
	if frame == fsckBad {
		check = "no-batch"
	}
	f := e.defect(check, pos, true, nil, "%s; %d bytes are left", why, left)
	switch {
	case w.cut != nil:
		if frame == fsckTorn {
			w.lost += fsckCount(b)
		}
	case last && p.clean:
		f.Kafka = "does not notice: it appends behind this, and what it appends there it cannot read again."
		f.WayOut = "remove " + storage.CleanShutdownFile + " while the broker is stopped: then it recovers the log and cuts the rest off."
	}
	if w.cut == nil && !last {
		w.next = max(w.next, e.limit) // that offsets are missing has been said
	}
}

// whole checks what a batch is by itself: header, checksum, records. It returns whether it may be taken in.
func (e *fsckBatches) whole(b record.Batch, pos int64, frame fsckFrame) bool {
	p, w := e.p, &e.p.walk
	p.counts.Batches++
	if !fsckHeaderFits(b) {
		e.defect("batch", pos, true, nil, "a batch of %d bytes is smaller than a header", len(b))
		return false
	}
	var sum bool
	var err error
	if frame == fsckLarge {
		sum, err = p.scan.largeCRC(b, pos)
	} else {
		sum = b.CRC() == b.ComputeCRC()
	}
	if err != nil || !sum {
		e.defect("batch-crc", pos, true, b, "the checksum of a batch of %d bytes (offsets %d to %d) is wrong", b.Size(), b.BaseOffset(), b.LastOffset())
		// The next one can still be found. Its place in the order tells whether this one's offsets can be believed.
		if last := b.LastOffset(); w.cut == nil && b.BaseOffset() >= w.next && last >= b.BaseOffset() && last < e.limit && last-b.BaseOffset() < math.MaxInt32 {
			w.next = last + 1
		}
		w.contiguous, w.complete = false, false
		return false
	}
	if p.scan.magic > 2 {
		f := e.defect("batch-magic", pos, false, b, "the batch of offsets %d to %d has magic %d", b.BaseOffset(), b.LastOffset(), p.scan.magic)
		f.Kafka = "reads a batch of any later format as one of magic 2."
		if !p.recovers(e.i) {
			f.Highwater = "does not serve it: an error that names file and position."
		}
		w.contiguous, w.complete = false, false
		w.next = max(w.next, b.LastOffset()+1)
		return false
	}
	if why := fsckHeader(b); why != "" {
		e.defect("batch-header", pos, false, b, "the header of the batch of offsets %d to %d contradicts itself: %s", b.BaseOffset(), b.LastOffset(), why)
		return false
	}
	return true
}

// batch takes in a batch that is sound by itself.
func (e *fsckBatches) batch(b record.Batch, pos int64, frame fsckFrame) error {
	p, w := e.p, &e.p.walk
	first, last := b.BaseOffset(), b.LastOffset()
	if b.Magic() < 2 && frame == fsckWhole {
		if o, err := b.FirstOffset(); err == nil {
			first = o
		}
	}
	switch {
	case first < w.next:
		f := e.defect("batch-order", pos, false, b, "the offsets %d to %d of a batch do not follow %d", first, last, w.next-1)
		if p.recovers(e.i) {
			f.Kafka = "does not notice, unless the batch gets an index entry when it recovers the segment: then it empties the segment from its start and drops those after it."
		}
		w.next = max(w.next, last+1)
		return nil
	case last >= e.limit || last-e.s.base > math.MaxInt32:
		e.defect("batch-order", pos, false, b, "the offsets %d to %d of a batch are not of a segment that begins at %d and ends before %d", first, last, e.s.base, e.limit)
		return nil
	}
	if epoch := b.PartitionLeaderEpoch(); b.Magic() >= 2 && epoch >= 0 {
		if epoch < w.epoch {
			e.defect("batch-epoch", pos, false, b, "the batch of offsets %d to %d has leader epoch %d after %d", first, last, epoch, w.epoch)
			w.next = last + 1
			return nil
		}
		w.epoch = epoch
	}
	e.gap(first, false)
	if frame == fsckWhole && p.deep {
		in := fsckRecords(b)
		p.counts.Records += in.records
		if in.err != nil {
			e.records(b, pos, in.err)
		} else if in.stamp != "" {
			p.findings.add(fsckWarning, e.s.log, "timestamps", "does not notice; a search by time and retention go by the header.", "at byte %d, batch of offsets %d to %d: %s", pos, first, last, in.stamp).at(pos, first)
		}
	} else {
		p.counts.Records += fsckCount(b)
	}
	if w.cut != nil {
		return nil
	}
	p.compareSnapshots(first)
	if frame == fsckWhole {
		e.producers(b, pos)
		if w.cut != nil {
			return nil
		}
		if p.eachBatch != nil {
			p.eachBatch(b)
		}
	}
	p.compareEpoch(b, e)
	e.most = max(e.most, b.MaxTimestamp())
	w.next = last + 1
	if e.broken {
		return nil // entries for what was bad can't be told from bad entries
	}
	if err := p.offsets.offsetBatch(e.s.base, pos, last); err != nil {
		return err
	}
	return p.times.timeBatch(e.s.base, first, last, b.MaxTimestamp())
}

// records notes that a batch with a good checksum has records that cannot be read: so it was written.
func (e *fsckBatches) records(b record.Batch, pos int64, err error) {
	control := b.Control() && b.HasProducerID()
	f := e.defect("records", pos, control, b, "the batch of offsets %d to %d has the right checksum, and its records cannot be read: %s", b.BaseOffset(), b.LastOffset(), fsckReason(err))
	if e.p.walk.cut == nil {
		f.Kafka = "does not notice at its start, for it does not look into batches. A consumer that comes to this place goes no further, and the cleaner leaves the log alone."
		f.Highwater = ""
	}
}

// producers follows the state of the producers, and the transactions that end.
func (e *fsckBatches) producers(b record.Batch, pos int64) {
	p, w := e.p, &e.p.walk
	if p.meta || w.noProducers {
		return
	}
	aborted, ok, err := w.producers.Apply(b)
	if err != nil {
		e.defect("control-record", pos, true, b, "%v", err)
		return
	}
	if ok {
		e.aborted = append(e.aborted, aborted)
	}
	if b.Control() && b.HasProducerID() && e.s.txnIndex != "" {
		if e.markers == nil {
			e.markers = map[kafka.Offset]kafka.ProducerID{}
		}
		e.markers[b.LastOffset()] = b.ProducerID()
	}
	if w.producers.Len() > fsckMaxProducers {
		w.noProducers = true
		p.findings.add(fsckNote, p.path, "producers", "does not mind.", "more than %d producers: their snapshots and transaction indexes are not compared from here on", fsckMaxProducers)
	}
}

// gap looks for missing offsets before one. between is whether a segment begins there.
func (e *fsckBatches) gap(first kafka.Offset, between bool) {
	p, w := e.p, &e.p.walk
	if first <= w.next {
		return
	}
	was := w.contiguous
	w.contiguous = false
	if p.policy == fsckCompacted || p.policy == fsckPolicyUnknown && !between || p.policy != fsckNotCompacted && !was {
		return
	}
	severity := fsckWarning
	if p.policy == fsckNotCompacted && between && was {
		severity = fsckError
	}
	f := p.findings.add(severity, e.s.log, "gap", "does not notice; a consumer goes on after the gap.", "the offsets %d to %d are missing before it, and the topic is not compacted", w.next, first-1).at(-1, w.next)
	if between && was {
		f.WayOut = "restore the missing segment while the broker is stopped, if there is a backup."
	}
	if p.policy != fsckNotCompacted {
		f.Text = fmt.Sprintf("the offsets %d to %d are missing before it; if the topic was never compacted, records are lost", w.next, first-1)
	}
	if p.unflushed(e.i) {
		f.Highwater = "takes a gap after the recovery point for the loss of a power cut if the topic is not compacted: the log ends before it, and the segments behind are set aside as " + storage.AsideSuffix + " files."
	}
}
