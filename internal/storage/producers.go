package storage

import (
	"cmp"
	"slices"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/record"
)

// producers is what a log knows of its idempotent and transactional producers: a function of the log's records alone, so
// that a follower and a restarted leader know the same. It decides whether a batch is new, a duplicate or out of order, and
// which transactions are undecided.
//
// An append goes in two steps: check, which changes nothing, and after the bytes are written apply. So a refused or failed
// append leaves no trace.
type producers struct {
	byID map[kafka.ProducerID]*producer

	// ongoing are the open transactions and unreplicated those whose marker lies at or above the high watermark, both in
	// order of their first offset.
	ongoing      []txn
	unreplicated []txn

	// end is the offset up to which records are applied, snapshot that of the newest snapshot file.
	end      kafka.Offset
	snapshot kafka.Offset
}

// producer is the state of one producer id. Field meanings are those of Kafka's ProducerStateEntry.
type producer struct {
	id               kafka.ProducerID
	epoch            kafka.ProducerEpoch // -1 before anything
	coordinatorEpoch int32               // -1 before a marker
	lastTimestamp    int64
	txnFirstOffset   kafka.Offset // -1 if no transaction is open
	n                int          // of batches, the oldest first
	batches          [maxDuplicates]batchMeta
}

// maxDuplicates is how many of a producer's batches are remembered, which bounds max.in.flight.requests.per.connection of an
// idempotent producer (a constant of Kafka's).
const maxDuplicates = 5

type batchMeta struct {
	lastSequence int32
	delta        int32 // last offset - first offset
	lastOffset   kafka.Offset
	timestamp    int64
}

type txn struct {
	producerID  kafka.ProducerID
	firstOffset kafka.Offset
	lastOffset  kafka.Offset // of its marker, -1 while it is open
	aborted     bool
}

func newProducers(start kafka.Offset) *producers {
	return &producers{end: start, snapshot: start}
}

// add makes the map when there is something to put into it: most partitions never see a producer id.
func (ps *producers) add(p *producer) {
	if ps.byID == nil {
		ps.byID = map[kafka.ProducerID]*producer{}
	}
	ps.byID[p.id] = p
}

func (b *batchMeta) firstSequence() int32 {
	// Kafka's DefaultRecordBatch.decrementSequence.
	if b.lastSequence < b.delta {
		return int32(int64(1)<<31 - int64(b.delta-b.lastSequence))
	}
	return b.lastSequence - b.delta
}

func (b *batchMeta) firstOffset() kafka.Offset { return b.lastOffset - int64(b.delta) }

func (p *producer) lastSequence() int32 {
	if p.n == 0 {
		return kafka.NoSequence
	}
	return p.batches[p.n-1].lastSequence
}

func (p *producer) addBatch(b batchMeta) {
	if p.n == maxDuplicates {
		copy(p.batches[:], p.batches[1:])
		p.n--
	}
	p.batches[p.n] = b
	p.n++
}

func (p *producer) setEpoch(e kafka.ProducerEpoch) {
	if p.epoch != e {
		p.epoch, p.n = e, 0
	}
}

// duplicate finds a batch with the same sequence numbers among the last five.
func (ps *producers) duplicate(b *record.Facts) *batchMeta {
	p := ps.byID[b.ProducerID]
	if p == nil || p.epoch != b.ProducerEpoch {
		return nil
	}
	for i := range p.n {
		if m := &p.batches[i]; m.lastSequence == b.LastSequence && m.firstSequence() == b.BaseSequence {
			return m
		}
	}
	return nil
}

// check tells whether the batch b, whose offsets are assigned, may be appended. Only a leader's appends are checked: a
// replica takes what its leader accepted.
func (ps *producers) check(b *record.Facts, origin record.Origin, tv int16, tp kafka.TopicPartition) error {
	if origin == record.Replica || origin == record.RaftLeader {
		return nil
	}
	p := ps.byID[b.ProducerID]
	if b.Control {
		if b.Marker == record.UnknownControl {
			return nil // an empty control batch: the transaction was cleaned out of the log
		}
		return p.checkMarker(b, tv, tp)
	}
	if p == nil {
		return nil // nothing is known, perhaps because retention took it: any sequence may begin
	}
	if b.ProducerEpoch < p.epoch {
		return kerr.InvalidProducerEpoch.With("Epoch of producer %d at offset %d in %s is %d, which is < the last seen epoch %d (TV-1)",
			b.ProducerID, b.FirstOffset, tp, b.ProducerEpoch, p.epoch)
	}
	if origin == record.Client {
		if err := p.checkSequence(b, tp); err != nil {
			return err
		}
	}
	if p.txnFirstOffset >= 0 && !b.Transactional {
		return kerr.InvalidTxnState.With("Expected transactional write from producer %d at offset (offset=%d, segment=[-1:-1]) in partition %s",
			b.ProducerID, b.FirstOffset, tp)
	}
	return nil
}

func (p *producer) checkSequence(b *record.Facts, tp kafka.TopicPartition) error {
	if b.ProducerEpoch != p.epoch {
		if b.BaseSequence != 0 && p.epoch != kafka.NoProducerEpoch {
			return kerr.OutOfOrderSequenceNumber.With("Invalid sequence number for new epoch of producer %d at offset %d in partition %s: %d (request epoch), %d (seq. number), %d (current producer epoch)",
				b.ProducerID, b.FirstOffset, tp, b.ProducerEpoch, b.BaseSequence, p.epoch)
		}
		return nil
	}
	last := p.lastSequence()
	if p.epoch == kafka.NoProducerEpoch || int64(b.BaseSequence) == int64(last)+1 || b.BaseSequence == 0 && last == 1<<31-1 {
		return nil
	}
	return kerr.OutOfOrderSequenceNumber.With("Out of order sequence number for producer %d at offset %d in partition %s: %d (incoming seq. number), %d (current end sequence number)",
		b.ProducerID, b.FirstOffset, tp, b.BaseSequence, last)
}

// checkMarker fences markers of older sessions and older coordinators. From transaction.version 2 on (KIP-890) every
// transaction ends with a higher epoch, so a marker that doesn't raise it is late; but one repeated after its transaction
// ended is taken again.
func (p *producer) checkMarker(b *record.Facts, tv int16, tp kafka.TopicPartition) error {
	if p == nil {
		return nil
	}
	if b.ProducerEpoch < p.epoch {
		return kerr.InvalidProducerEpoch.With("Epoch of producer %d is %d, which is smaller than the last seen epoch %d", b.ProducerID, b.ProducerEpoch, p.epoch)
	}
	if tv >= 2 && b.ProducerEpoch == p.epoch && p.txnFirstOffset >= 0 {
		return kerr.InvalidProducerEpoch.With("Epoch of producer %d at offset %d in %s is %d, which is <= the last seen epoch %d (TV%d)",
			b.ProducerID, b.FirstOffset, tp, b.ProducerEpoch, p.epoch, tv)
	}
	if b.MarkerEpoch < p.coordinatorEpoch {
		return kerr.TransactionCoordinatorFenced.With("Invalid coordinator epoch for producerId %d at offset %d in partition %s: %d (zombie), %d (current)",
			b.ProducerID, b.FirstOffset, tp, b.MarkerEpoch, p.coordinatorEpoch)
	}
	return nil
}

// apply takes in a batch that is in the log. If it ends a transaction, it returns that.
func (ps *producers) apply(b *record.Facts) (ended txn, ok bool) {
	defer func() { ps.end = b.LastOffset + 1 }()
	emptied := b.Control && b.Marker == record.UnknownControl
	if b.ProducerID <= kafka.NoProducerID || emptied && b.Count > 0 {
		return txn{}, false
	}
	p := ps.byID[b.ProducerID]
	if emptied && p != nil && p.epoch >= b.ProducerEpoch {
		return txn{}, false
	}
	if p == nil {
		p = &producer{id: b.ProducerID, epoch: kafka.NoProducerEpoch, coordinatorEpoch: -1, lastTimestamp: record.NoTimestamp, txnFirstOffset: -1}
		ps.add(p)
	}
	p.setEpoch(b.ProducerEpoch)
	if emptied {
		// A marker of which the cleaner has kept the header: nothing is left of its transaction, but its epoch still fences. Kafka's
		// cleaner keeps it for that, too; but when Kafka reads the log anew it makes nothing of it.
		p.lastTimestamp = max(p.lastTimestamp, b.MaxTimestamp)
		return txn{}, false
	}
	if b.Control {
		if p.txnFirstOffset >= 0 {
			ended, ok = txn{b.ProducerID, p.txnFirstOffset, b.LastOffset, b.Marker == record.Abort}, true
		}
		p.txnFirstOffset, p.coordinatorEpoch, p.lastTimestamp = -1, b.MarkerEpoch, b.MarkerTime
		return ended, ok
	}
	p.addBatch(batchMeta{b.LastSequence, int32(b.LastOffset - b.FirstOffset), b.LastOffset, b.MaxTimestamp})
	p.lastTimestamp = b.MaxTimestamp
	if b.Transactional && p.txnFirstOffset < 0 {
		p.txnFirstOffset = b.FirstOffset
		ps.ongoing = append(ps.ongoing, txn{producerID: b.ProducerID, firstOffset: b.FirstOffset, lastOffset: -1})
	}
	return txn{}, false
}

// lastStableAt is the last stable offset at the moment when t has just ended: the first offset of another open transaction,
// or one past t's marker.
func (ps *producers) lastStableAt(t txn) kafka.Offset {
	for _, o := range ps.ongoing {
		if o.producerID != t.producerID {
			return o.firstOffset
		}
	}
	return t.lastOffset + 1
}

// complete moves an ended transaction from the open ones to those that wait for their marker to be replicated.
func (ps *producers) complete(t txn) {
	ps.ongoing = slices.DeleteFunc(ps.ongoing, func(o txn) bool { return o.firstOffset == t.firstOffset })
	i, _ := slices.BinarySearchFunc(ps.unreplicated, t.firstOffset, func(u txn, first kafka.Offset) int { return cmp.Compare(u.firstOffset, first) })
	ps.unreplicated = slices.Insert(ps.unreplicated, i, t)
}

// replicated forgets ended transactions whose marker lies below the high watermark.
func (ps *producers) replicated(hw kafka.Offset) {
	ps.unreplicated = slices.DeleteFunc(ps.unreplicated, func(t txn) bool { return t.lastOffset < hw })
}

// firstUnstable is the first offset of the first transaction that is open or not replicated, or -1.
func (ps *producers) firstUnstable() kafka.Offset {
	first := kafka.Offset(-1)
	if len(ps.ongoing) > 0 {
		first = ps.ongoing[0].firstOffset
	}
	if len(ps.unreplicated) > 0 && (first < 0 || ps.unreplicated[0].firstOffset < first) {
		first = ps.unreplicated[0].firstOffset
	}
	return first
}

// startMoved forgets what ended below a new log start.
func (ps *producers) startMoved(start kafka.Offset) {
	ps.unreplicated = slices.DeleteFunc(ps.unreplicated, func(t txn) bool { return t.lastOffset < start })
	ps.end = max(ps.end, start)
}

func (p *producer) expired(now time.Time, after time.Duration) bool {
	return p.txnFirstOffset < 0 && now.UnixMilli()-p.lastTimestamp >= after.Milliseconds()
}

// expire forgets producers that wrote nothing for so long.
func (ps *producers) expire(now time.Time, after time.Duration) {
	for id, p := range ps.byID {
		if p.expired(now, after) {
			delete(ps.byID, id)
		}
	}
}

// sorted lists the producers by id.
func (ps *producers) sorted() []*producer {
	out := make([]*producer, 0, len(ps.byID))
	for _, p := range ps.byID {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *producer) int { return cmp.Compare(a.id, b.id) })
	return out
}

func (ps *producers) entries() []snapshotEntry {
	all := ps.sorted()
	out := make([]snapshotEntry, len(all))
	for i, p := range all {
		e := snapshotEntry{
			producerID: p.id, producerEpoch: p.epoch, lastSequence: kafka.NoSequence, lastOffset: -1, timestamp: p.lastTimestamp,
			coordinatorEpoch: p.coordinatorEpoch, txnFirstOffset: p.txnFirstOffset,
		}
		if p.n > 0 {
			b := &p.batches[p.n-1]
			e.lastSequence, e.lastOffset, e.offsetDelta = b.lastSequence, b.lastOffset, b.delta
		}
		out[i] = e
	}
	return out
}

// producersFrom takes in what a snapshot at offset has, but for producers that have expired.
func producersFrom(entries []snapshotEntry, offset kafka.Offset, now time.Time, expiration time.Duration) *producers {
	ps := newProducers(offset)
	for i := range entries {
		e := &entries[i]
		p := &producer{
			id: e.producerID, epoch: e.producerEpoch, coordinatorEpoch: e.coordinatorEpoch, lastTimestamp: e.timestamp,
			txnFirstOffset: e.txnFirstOffset,
		}
		if e.lastOffset >= 0 {
			p.addBatch(batchMeta{e.lastSequence, e.offsetDelta, e.lastOffset, e.timestamp})
		}
		if p.expired(now, expiration) {
			continue
		}
		ps.add(p)
		if p.txnFirstOffset >= 0 {
			ps.ongoing = append(ps.ongoing, txn{producerID: p.id, firstOffset: p.txnFirstOffset, lastOffset: -1})
		}
	}
	slices.SortFunc(ps.ongoing, func(a, b txn) int { return cmp.Compare(a.firstOffset, b.firstOffset) })
	return ps
}
