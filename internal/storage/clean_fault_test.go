package storage

// Shows that whatever call of the disk fails while a log is compacted, the log is right afterwards, or refuses to go on with an error
// that names a file; that nobody reads anything wrong from it meanwhile; and that the next start has all that was acknowledged.

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/vfs"
)

// compact is the workload whose calls fail: appends and two cleans, with lookups and fetches, the removal of what was replaced, and
// a look at all of it.
func (w *cleanWorld) compact() error {
	w.log.SetHighWatermark(w.log.EndOffset())
	for i := range 12 {
		if err := w.tryAppend(); err != nil {
			return err
		}
		if i%6 != 0 {
			continue
		}
		if err := w.clean(); err != nil {
			return fmt.Errorf("clean: %w", err)
		}
		if err := w.dir.CheckpointCleanedOffsets(); err != nil {
			return err
		}
		w.now = w.now.Add(2 * w.config.FileDeleteDelay)
		if _, err := w.log.RemoveDeleted(w.now); err != nil {
			return err
		}
	}
	return w.verify(false)
}

// tryAppend appends. If that fails, all that was acknowledged before must be there still.
func (w *cleanWorld) tryAppend() error {
	acknowledged := w.end
	err := w.append()
	if err != nil {
		w.durable = max(w.durable, acknowledged) // the process goes on: what was written stays
	}
	return err
}

// TestCompactionEveryCallFails lets each call of the disk fail once, as a broken sector or a full disk do.
func TestCompactionEveryCallFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err   error
		match func(op vfs.Op) bool
	}{
		{syscall.EIO, func(vfs.Op) bool { return true }},
		{syscall.ENOSPC, func(op vfs.Op) bool { return op.Kind.Changes() && op.Kind != vfs.OpRemove }},
	} {
		went := map[bool]int{} // whether the log went on → how often
		begin := func(seed uint64) *cleanWorld {
			w := newCleanWorld(t, 3_000_001+seed)
			w.config.FileDeleteDelay = time.Second
			if err := w.open(); err != nil {
				t.Fatal(err)
			}
			for range 60 {
				if err := w.step(); err != nil {
					t.Fatal(err)
				}
			}
			w.cleans = 0
			return w
		}
		for seed, left := uint64(0), few(4, 1); left > 0; seed++ {
			if w := begin(seed); w.compact() != nil || w.cleans == 0 {
				continue // there is nothing to clean in this one
			}
			left--
			for n := 1; ; n += few(1, 7) {
				w := begin(seed)
				seen, hit := 0, ""
				w.fsys.SetFault(func(op vfs.Op) error {
					if !c.match(op) {
						return nil
					}
					if seen++; seen != n {
						return nil
					}
					hit = op.Kind.String() + " " + op.Name
					return &namedError{hit, c.err}
				})
				err := w.compact()
				if hit == "" && err == nil {
					break
				}
				where := fmt.Sprintf("seed %d, %v at %s (call %d)", seed, c.err, hit, n)
				if err != nil && (!errors.Is(err, c.err) || !strings.Contains(err.Error(), "data/d")) {
					t.Fatalf("%s: the error doesn't name what failed: %v", where, err)
				}
				w.fsys.SetFault(nil)
				w.afterFault(where, err)
				went[w.log.Err() == nil]++
				w.release()
				_ = w.dir.Abandon() // what the end of the process does
				if err := w.open(); err != nil {
					t.Fatalf("%s: opened again: %v", where, err)
				}
				if err := w.verify(true); err != nil {
					t.Fatalf("%s, opened again: %v", where, err)
				}
				w.learn()
				for range 5 {
					if err := w.append(); err != nil {
						t.Fatalf("%s, append after it: %v", where, err)
					}
				}
				if err := w.dir.Close(1); err != nil {
					t.Fatalf("%s, stop after it: %v", where, err)
				}
			}
		}
		t.Logf("%v: the log went on %d times, and not %d times", c.err, went[true], went[false])
		if went[true] == 0 || went[false] == 0 {
			t.Errorf("%v: the log went on %d times, and not %d times", c.err, went[true], went[false])
		}
	}
}

// afterFault looks at a log of which one call has failed: err is what came of that.
func (w *cleanWorld) afterFault(where string, err error) {
	w.t.Helper()
	failed := w.log.Err()
	if failed != nil && w.dir.Err() == nil {
		w.t.Fatalf("%s: the log failed and its directory didn't: %v", where, failed)
	}
	if failed == nil {
		// It goes on: then the error must have been of that one call, and everything is as if it had not been.
		acknowledged := w.log.EndOffset()
		if acknowledged < w.end { // the append that failed
			w.cutModel(acknowledged)
			w.learn()
		}
		err := w.verify(false)
		if err == nil {
			err = w.tryAppend()
		}
		if err == nil {
			w.durable = w.end
			return
		}
		// But for a file that could not be closed when another needed its place, and had not been synced: who uses it next is told.
		if failed = w.log.Err(); failed == nil || !strings.Contains(where, " close ") {
			w.t.Fatalf("%s: the log went on, and then: %v", where, err)
		}
	}
	// It takes no more, and what it still serves is right.
	if _, err := w.read(); err != nil && !errors.Is(err, ErrFailed) && !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.ENOSPC) {
		w.t.Fatalf("%s: the log failed, and then: %v", where, err)
	}
	end := w.log.EndOffset()
	b := record.NewBuilder(record.DefaultBatchOptions(0))
	b.Append(w.now.UnixMilli(), []byte("k"), nil)
	batch, berr := b.Build()
	o := w.config.Validation(modelPartition, record.Client, w.now)
	v, verr := record.Validate(batch, &o)
	if berr != nil || verr != nil {
		w.t.Fatal(berr, verr)
	}
	defer v.Release()
	if _, aerr := w.log.AppendAsLeader(v, LeaderAppend{Now: w.now, LeaderEpoch: w.epoch, Origin: record.Client}); !errors.Is(aerr, ErrFailed) || w.log.EndOffset() != end {
		w.t.Fatalf("%s: the log failed, and took an append: %v (%v)", where, aerr, err)
	}
	w.durable = max(w.durable, min(end, w.end))
}

// checkIndexes compares the indexes of each segment with its log: an entry that leads elsewhere, or the lack of one in the transaction
// index, may go unnoticed by readers for long.
func (w *cleanWorld) checkIndexes() error {
	began := map[kafka.ProducerID]bool{} // transactions of which there is a batch
	for _, s := range w.log.view.Load().segments {
		ends, times := map[uint32]uint32{}, map[uint32]int64{}
		aborts := map[kafka.Offset]bool{}
		newest := record.NoTimestamp
		pos := uint32(0)
		err := w.log.eachBatch(s, 0, func(b record.Batch) (bool, error) {
			newest = max(newest, b.MaxTimestamp())
			last := uint32(b.LastOffset() - s.base)
			ends[pos], times[last] = last, newest
			pos += uint32(len(b))
			switch facts, err := factsOf(b, 0); {
			case err != nil:
				return false, err
			case !b.Control():
				if b.Transactional() {
					began[b.ProducerID()] = true
				}
			case b.Count() > 0:
				if facts.Marker == record.Abort && began[b.ProducerID()] {
					aborts[b.LastOffset()] = true
				}
				delete(began, b.ProducerID())
			}
			return true, nil
		})
		s.mu.Lock()
		if err == nil {
			err = w.log.openIndexesLocked(s)
		}
		for i := 0; err == nil && i < s.idx.offsets.count; i++ {
			var raw entry
			if raw, err = s.idx.offsets.at(i); err == nil {
				if e := decodeOffsetEntry(raw[:]); ends[e.position] != e.relative {
					err = fmt.Errorf("segment %d: entry %d of the offset index is %+v, and there the batch ends at %d", s.base, i, e, ends[e.position])
				}
			}
		}
		for i := 0; err == nil && i < s.idx.times.count; i++ {
			var raw entry
			if raw, err = s.idx.times.at(i); err == nil {
				if e := decodeTimeEntry(raw[:]); times[e.relative] != e.timestamp {
					err = fmt.Errorf("segment %d: entry %d of the time index is %+v, and up to there the newest is %d", s.base, i, e, times[e.relative])
				}
			}
		}
		if err == nil {
			for _, e := range s.idx.aborted {
				delete(aborts, e.lastOffset)
			}
			for o := range aborts {
				if o >= w.log.StartOffset() && !w.trimmed {
					err = fmt.Errorf("segment %d: the transaction index doesn't have the one that was aborted at %d", s.base, o)
				}
			}
		}
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}
