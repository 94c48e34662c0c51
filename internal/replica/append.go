package replica

import (
	"errors"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/storage"
)

// AppendOptions goes with an append by the leader.
type AppendOptions struct {
	Acks               int16         // 0, 1 or -1
	Origin             record.Origin // as given to record.Validate
	TransactionVersion int16         // of a transaction marker
	// Epoch is the leader epoch that the appender believes in, or -1: a coordinator must not write in another's.
	Epoch kafka.LeaderEpoch
}

// Append appends what record.Validate returned. With acks=-1 and a nil error, ack is settled at once or when the high
// watermark passes the append; a duplicate waits like the first time. An error means that nothing was appended.
func (r *Replica) Append(now time.Time, v *record.Validated, o AppendOptions, ack *Ack) (a storage.Appended, err error) {
	defer r.guard(&err)
	r.mu.Lock()
	a, err = r.appendLocked(now, v, o)
	if err != nil {
		r.unlockRefused(err)
		return a, err
	}
	end := a.LastOffset + 1
	if a.MustFlush {
		if end, err = r.flushUnlocked(end); err != nil {
			return a, err // flushUnlocked gave the lock back
		}
	}
	e := r.leader.Appended(max(end, r.leader.LogEnd()), now)
	if ack != nil {
		ack.end = a.LastOffset + 1
		if !e.Advanced && r.highWatermark.Load() >= ack.end {
			ack.settle(r.leader.CheckAck())
		} else {
			r.acks.push(ack)
		}
	}
	r.unlockAndApply(e, !a.Duplicate)
	if a.Rolled {
		r.set.opts.Rolled(r.Log())
	}
	return a, nil
}

func (r *Replica) appendLocked(now time.Time, v *record.Validated, o AppendOptions) (storage.Appended, error) {
	ro, err := r.serving(o.Epoch, true)
	if err != nil {
		return storage.Appended{}, err
	}
	if err := r.leader.CheckAppend(o.Acks); err != nil {
		return storage.Appended{}, err
	}
	a, err := r.Log().AppendAsLeader(v, storage.LeaderAppend{
		Now: now, LeaderEpoch: ro.epoch, Origin: o.Origin, TransactionVersion: o.TransactionVersion,
	})
	if err != nil {
		return a, r.logErrorLocked(err)
	}
	return a, nil
}

// logErrorLocked turns an error of the log into one for the client; if the disk failed the replica goes offline.
func (r *Replica) logErrorLocked(err error) error {
	var k *kerr.Error
	if errors.As(err, &k) {
		return err
	}
	r.failLocked(err)
	return r.offlineErr(r.role.Load().offline)
}

// flushUnlocked syncs up to end for flush.messages, without the lock so that other appends share the sync, and takes the
// lock again. What was appended in this leadership is counted only if the leadership is still the same; with an error the
// lock is not held.
func (r *Replica) flushUnlocked(end kafka.Offset) (kafka.Offset, error) {
	leader := r.leader
	log := r.Log()
	r.mu.Unlock()
	err := log.Flush(end)
	r.mu.Lock()
	for err != nil && r.Log() != log && r.leader == leader {
		// The replica moved into another directory meanwhile. Its log there has all of the old one, but need not have synced it.
		log = r.Log()
		r.mu.Unlock()
		err = log.Flush(end)
		r.mu.Lock()
	}
	if err != nil {
		err = r.logErrorLocked(err)
		r.unlockRefused(err)
		return 0, err
	}
	if r.leader != leader {
		r.mu.Unlock()
		return 0, kerr.NotLeaderOrFollower
	}
	return end, nil
}

// unlockRefused gives the lock back after an append that failed. If that took the replica offline those who watch must hear
// of it.
func (r *Replica) unlockRefused(err error) {
	var told []*Watch
	if errors.Is(err, kerr.KafkaStorageError) {
		told = r.watchersLocked(true, true)
	}
	r.mu.Unlock()
	notify(told)
}
