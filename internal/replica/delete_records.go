package replica

import (
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

// ToHighWatermark, as the offset of DeleteRecords, deletes all that is committed.
const ToHighWatermark kafka.Offset = -1

// DeleteRecords moves the log start up to before (exclusive: the offset of the first record that stays), which is at most the
// high watermark. It returns the low watermark, the smallest log start of all live replicas, at once; ack is settled when
// that has come to before, too. An ack that got an error from here is not settled: drop it.
//
// The records are gone for readers when this returns; their segments go with the next round of retention.
func (r *Replica) DeleteRecords(now time.Time, before kafka.Offset, ack *Ack) (low kafka.Offset, err error) {
	defer r.guard(&err)
	r.mu.Lock()
	if _, err := r.serving(kafka.NoLeaderEpoch, true); err != nil {
		r.mu.Unlock()
		return kafka.NoOffset, err
	}
	log := r.Log()
	if c := log.Config(); !c.Delete && c.Compact {
		r.mu.Unlock()
		return kafka.NoOffset, kerr.PolicyViolation.With("Records of partition %v can not be deleted due to the configured policy", r.partition)
	}
	if before == ToHighWatermark {
		before = log.HighWatermark()
	}
	if before < 0 {
		r.mu.Unlock()
		return kafka.NoOffset, kerr.OffsetOutOfRange.With("The offset %d for partition %v is not valid", before, r.partition)
	}
	if _, err := log.AdvanceStartOffset(before); err != nil {
		err = r.logErrorLocked(err)
		r.unlockRefused(err)
		return kafka.NoOffset, err
	}
	low = r.lowWatermarkLocked()
	ack.end = before
	if low >= before {
		ack.settle(nil)
	} else {
		r.deletions.push(ack)
	}
	r.mu.Unlock()
	return low, nil
}

// LowWatermark is the smallest log start offset of the live replicas of a partition that this broker leads: below it nobody
// has anything. -1 while a live follower hasn't told its own.
func (r *Replica) LowWatermark() (kafka.Offset, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.serving(kafka.NoLeaderEpoch, true); err != nil {
		return kafka.NoOffset, err
	}
	return r.lowWatermarkLocked(), nil
}

// lowWatermarkLocked counts a replica on its way into another directory, too: it takes this one's place.
func (r *Replica) lowWatermarkLocked() kafka.Offset {
	low := r.leader.LowWatermark(r.Log().StartOffset())
	if r.move != nil {
		low = min(low, r.move.log.StartOffset())
	}
	return low
}

// settleDeletionsLocked settles the deletions that every live replica has done.
func (r *Replica) settleDeletionsLocked() {
	if r.deletions.n > 0 && r.leader != nil {
		r.deletions.settle(r.lowWatermarkLocked(), func() error { return nil })
	}
}
