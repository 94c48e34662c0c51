package storage

import (
	"cmp"
	"slices"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
)

// cleanedTxns follows the transactions through the batches that a clean reads, in order. The cleaner stays below the last stable
// offset, so each of them is decided, and the transaction indexes say which were aborted before their markers come.
//
// A marker goes only when no batch of its transaction is left, and a delete horizon later: a consumer that has read data of an
// aborted transaction must come upon the marker, or it would drop the producer's next transaction, too.
type cleanedTxns struct {
	aborted []abortedEntry // by first offset; those that aren't begun yet
	open    map[kafka.ProducerID]*openAborted
	// committed are the producers with a batch of a transaction that wasn't aborted, and no marker after it yet.
	committed map[kafka.ProducerID]bool
}

type openAborted struct {
	entry abortedEntry
	seen  bool // a batch of it
}

// collectAborted lists the aborted transactions that have a part in [from, to) of a log whose segments are in v and that begins at start.
func (l *Log) collectAborted(v *view, start, from, to kafka.Offset) ([]abortedEntry, error) {
	var out []abortedEntry
	for _, s := range v.segments[v.floor(from):] {
		s.mu.Lock()
		err := l.openIndexesLocked(s)
		var aborted []abortedEntry
		if err == nil {
			aborted = s.idx.aborted
		}
		s.mu.Unlock()
		if err != nil {
			return nil, l.readFailed(err)
		}
		for _, e := range aborted {
			if e.lastOffset >= start && e.firstOffset < to {
				out = append(out, e)
			}
			if e.lastStableOffset >= to {
				return out, nil
			}
		}
	}
	return out, nil
}

func newCleanedTxns(aborted []abortedEntry) *cleanedTxns {
	slices.SortStableFunc(aborted, func(a, b abortedEntry) int { return cmp.Compare(a.firstOffset, b.firstOffset) })
	return &cleanedTxns{aborted: aborted, open: map[kafka.ProducerID]*openAborted{}, committed: map[kafka.ProducerID]bool{}}
}

func (t *cleanedTxns) begin(upTo kafka.Offset) {
	n := 0
	for ; n < len(t.aborted) && t.aborted[n].firstOffset <= upTo; n++ {
		// A later one of the same producer replaces an entry whose marker is gone.
		t.open[t.aborted[n].producerID] = &openAborted{entry: t.aborted[n]}
	}
	t.aborted = t.aborted[n:]
}

// data takes note of a batch that is no control batch. It tells whether that belongs to an aborted transaction.
func (t *cleanedTxns) data(b record.Batch) bool {
	if !b.Transactional() {
		return false
	}
	t.begin(b.LastOffset())
	id := b.ProducerID()
	if a := t.open[id]; a != nil {
		if b.BaseOffset() <= a.entry.lastOffset {
			a.seen = true
			return true
		}
		delete(t.open, id) // its marker is gone
	}
	t.committed[id] = true
	return false
}

// control takes note of a control batch of which f was read. It tells whether nothing of its transaction is left: then the batch
// may go when its time has come. For the abort of a transaction of which there still is a batch, it gives the entry that the
// new segment's transaction index needs.
func (t *cleanedTxns) control(b record.Batch, f *record.Facts) (lone bool, entry abortedEntry, keepEntry bool) {
	t.begin(b.LastOffset())
	id := b.ProducerID()
	switch {
	case b.Count() == 0:
		return true, abortedEntry{}, false // cleaned before
	case f.Marker == record.Abort:
		a := t.open[id]
		delete(t.open, id)
		if a != nil && a.seen && a.entry.lastOffset >= b.BaseOffset() {
			return false, a.entry, true
		}
		return true, abortedEntry{}, false
	case f.Marker == record.Commit:
		lone = !t.committed[id]
		delete(t.committed, id)
		return lone, abortedEntry{}, false
	}
	return false, abortedEntry{}, false
}
