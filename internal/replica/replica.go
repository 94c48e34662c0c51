package replica

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/highwater/highwater/internal/invariant"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/replication"
	"github.com/highwater/highwater/internal/storage"
)

// Replica is this broker's copy of one partition.
type Replica struct {
	set       *Set
	partition kafka.TopicPartition
	topicID   kafka.TopicID

	// What readers use without the lock.
	log           atomic.Pointer[storage.Log] // changes when the replica moves into another directory
	role          atomic.Pointer[role]
	highWatermark atomic.Int64

	mu sync.Mutex
	// leader is nil unless this broker leads. Under mu, as everything below.
	leader *replication.Leader
	acks   ackQueue
	// deletions are those of DeleteRecords that some replica hasn't done yet.
	deletions ackQueue
	// move is not nil while the replica is on its way into another log directory.
	move *move
	// consumers watch the high watermark, followers the log's end.
	consumers watchList
	followers watchList
	minISR    int
}

// role is what this broker is for the partition in one leader epoch. It is replaced, never changed.
type role struct {
	leads      bool
	leader     kafka.BrokerID // -1 if there is none
	epoch      kafka.LeaderEpoch
	epochStart kafka.Offset // where the log ended when this broker began to lead
	offline    error        // not nil: the log failed or is gone; nothing is served
}

// Partition is the topic's name and the partition's number.
func (r *Replica) Partition() kafka.TopicPartition { return r.partition }

// TopicID is the topic's id.
func (r *Replica) TopicID() kafka.TopicID { return r.topicID }

// Log is the partition's log, for reading what it is and has. Appends and truncations go through the Replica. Another one takes
// its place, with the same content, when the replica has moved into another log directory.
func (r *Replica) Log() *storage.Log { return r.log.Load() }

// HighWatermark is the end of what is committed, as far as this broker knows.
func (r *Replica) HighWatermark() kafka.Offset { return r.highWatermark.Load() }

// Leads tells whether this broker leads the partition, and in which epoch.
func (r *Replica) Leads() (bool, kafka.LeaderEpoch) {
	ro := r.role.Load()
	return ro.leads, ro.epoch
}

// LeaderAndEpoch is who leads, as far as this broker knows: what a client that came to the wrong broker is told.
func (r *Replica) LeaderAndEpoch() (kafka.BrokerID, kafka.LeaderEpoch) {
	ro := r.role.Load()
	return ro.leader, ro.epoch
}

// checkEpoch compares the epoch that a client or follower believes in (-1: it doesn't say) with ours (KIP-320).
func (ro *role) checkEpoch(asked kafka.LeaderEpoch) error {
	switch {
	case asked == kafka.NoLeaderEpoch || asked == ro.epoch:
		return nil
	case asked < ro.epoch:
		return kerr.FencedLeaderEpoch
	}
	return kerr.UnknownLeaderEpoch
}

// serving is the role for a request that believes in asked and, if leaderOnly, wants the leader.
func (r *Replica) serving(asked kafka.LeaderEpoch, leaderOnly bool) (*role, error) {
	ro := r.role.Load()
	if ro.offline != nil {
		return ro, r.offlineErr(ro.offline)
	}
	if err := ro.checkEpoch(asked); err != nil {
		return ro, err
	}
	if leaderOnly && !ro.leads {
		return ro, kerr.NotLeaderOrFollower
	}
	return ro, nil
}

// offlineErr is what clients are told of a replica that is offline because of why: of one that was removed, to look elsewhere.
func (r *Replica) offlineErr(why error) error {
	if why == errStopped {
		return kerr.NotLeaderOrFollower
	}
	return kerr.KafkaStorageError.With("Partition %v is offline: %v", r.partition, why)
}

// Lead makes this broker the leader in p.LeaderEpoch, or takes in a new state of the epoch it leads already.
func (r *Replica) Lead(now time.Time, p replication.Partition, minISR int) {
	defer r.guard(nil)
	r.mu.Lock()
	ro := r.role.Load()
	if ro.offline != nil {
		r.mu.Unlock()
		return
	}
	var e replication.Effects
	if r.leader != nil && r.leader.Epoch() == p.LeaderEpoch {
		e = r.leader.Update(p, now)
	} else {
		end := r.Log().EndOffset()
		if err := r.Log().AssignEpoch(p.LeaderEpoch, end); err != nil {
			told := r.failAndTellLocked(err)
			r.mu.Unlock()
			notify(told)
			return
		}
		r.acks.fail(kerr.NotLeaderOrFollower)
		r.deletions.fail(kerr.NotLeaderOrFollower)
		r.minISR = minISR
		r.leader = replication.NewLeader(replication.LeaderOptions{
			ID: r.set.opts.ID, MinISR: minISR, LagMax: r.set.opts.LagMax, Cluster: r.set.broker,
		}, p, end, min(r.highWatermark.Load(), end), now)
		r.role.Store(&role{leads: true, leader: p.Leader, epoch: p.LeaderEpoch, epochStart: end})
		e = r.leader.Appended(end, now) // the only member of an ISR has committed all that it has
	}
	r.unlockAndApply(e, false)
}

// Follow makes this broker a follower of p.Leader, which may be -1.
func (r *Replica) Follow(p replication.Partition) {
	r.mu.Lock()
	if ro := r.role.Load(); ro.offline == nil {
		r.leader = nil
		r.role.Store(&role{leader: p.Leader, epoch: p.LeaderEpoch})
		r.acks.fail(kerr.NotLeaderOrFollower)
		r.deletions.fail(kerr.NotLeaderOrFollower)
	}
	told := r.watchersLocked(true, true)
	r.mu.Unlock()
	notify(told)
}

// configure changes the configuration of the log, and of the one that is to take its place.
func (r *Replica) configure(c storage.Config) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Log().SetConfig(c)
	if r.move != nil {
		r.move.log.SetConfig(c)
	}
}

// SetMinISR takes in a change of min.insync.replicas.
func (r *Replica) SetMinISR(now time.Time, n int) {
	defer r.guard(nil)
	r.mu.Lock()
	if r.leader == nil || r.minISR == n {
		r.mu.Unlock()
		return
	}
	r.minISR = n
	r.unlockAndApply(r.leader.SetMinISR(n, now), false)
}

// Tick lets the leader drop followers that lag. To be called every LagMax/2.
func (r *Replica) Tick(now time.Time) {
	defer r.guard(nil)
	r.mu.Lock()
	if r.leader == nil {
		r.mu.Unlock()
		return
	}
	r.unlockAndApply(r.leader.Tick(now), false)
}

// Altered brings the controller's answer to an AlterPartition.
func (r *Replica) Altered(now time.Time, epoch kafka.LeaderEpoch, isr []kafka.BrokerID, partitionEpoch kafka.PartitionEpoch, recovering bool, err error) {
	defer r.guard(nil)
	r.mu.Lock()
	if r.leader == nil || r.leader.Epoch() != epoch {
		r.mu.Unlock()
		return
	}
	if err != nil {
		r.leader.AlterFailed()
		r.mu.Unlock()
		return
	}
	r.unlockAndApply(r.leader.Altered(isr, partitionEpoch, recovering, now), false)
}

// Fail takes the replica offline: its log may not be trusted or is gone. Everybody who waits gets KAFKA_STORAGE_ERROR.
func (r *Replica) Fail(err error) {
	r.mu.Lock()
	told := r.failAndTellLocked(err)
	r.mu.Unlock()
	notify(told)
}

// failAndTellLocked returns whom to notify without the lock.
func (r *Replica) failAndTellLocked(err error) []*Watch {
	r.failLocked(err)
	return r.watchersLocked(true, true)
}

func (r *Replica) failLocked(err error) {
	ro := *r.role.Load()
	if ro.offline != nil {
		return
	}
	ro.offline, ro.leads = err, false
	r.role.Store(&ro)
	r.leader = nil
	told := kerr.KafkaStorageError.With("Partition %v is offline: %v", r.partition, err)
	r.acks.fail(told)
	r.deletions.fail(told)
	if r.set.opts.Failed != nil {
		r.set.opts.Failed(r, err)
	}
}

// stop ends the replica because the metadata says so: the partition is no longer here.
func (r *Replica) stop() {
	r.mu.Lock()
	ro := *r.role.Load()
	ro.leads, ro.offline = false, errStopped
	r.role.Store(&ro)
	r.leader = nil
	r.acks.fail(kerr.NotLeaderOrFollower)
	r.deletions.fail(kerr.UnknownTopicOrPartition)
	told := r.watchersLocked(true, true)
	r.mu.Unlock()
	notify(told)
}

// Stopped tells whether the partition was removed from this broker: there may be another Replica for it by now.
func (r *Replica) Stopped() bool { return r.role.Load().offline == errStopped }

// guard, deferred by every method that steps the leader, turns a broken invariant into a replica that is offline: one partition
// must not take the others with it. Invariants are checked under the lock only, so that it is held here.
func (r *Replica) guard(err *error) {
	p := recover()
	if p == nil {
		return
	}
	b, ok := p.(*invariant.Broken)
	if !ok {
		panic(p)
	}
	told := r.failAndTellLocked(b)
	r.mu.Unlock()
	notify(told)
	if err != nil {
		*err = kerr.KafkaStorageError.With("Partition %v is offline: %v", r.partition, b)
	}
}

var errStopped = errors.New("the partition was removed from this broker")

// unlockAndApply does what a step of the leader asks for, gives the lock back and tells those who watch. It is the only
// place where the high watermark moves. grew says that the log's end moved too.
func (r *Replica) unlockAndApply(e replication.Effects, grew bool) {
	if e.Advanced {
		if e.HighWatermark < r.highWatermark.Load() { // asked here, for the arguments of Check are allocated
			invariant.Check(false, "I1: high watermark of %v moves back to %d", r.partition, e.HighWatermark)
		}
		r.highWatermark.Store(e.HighWatermark)
		r.Log().SetHighWatermark(e.HighWatermark)
		r.acks.settle(e.HighWatermark, r.leader.CheckAck)
	}
	r.settleDeletionsLocked()
	told := r.watchersLocked(e.Advanced, grew || e.Advanced)
	r.mu.Unlock()
	notify(told)
	if e.Alter != nil {
		r.set.opts.Alter(r, *e.Alter)
	}
}

// watchersLocked copies who must be told, so that they can be told without the lock. Nobody watching costs nothing.
func (r *Replica) watchersLocked(consumers, followers bool) []*Watch {
	n := 0
	if consumers {
		n += len(r.consumers)
	}
	if followers {
		n += len(r.followers)
	}
	if n == 0 {
		return nil
	}
	told := make([]*Watch, 0, n)
	if consumers {
		told = append(told, r.consumers...)
	}
	if followers {
		told = append(told, r.followers...)
	}
	return told
}

func notify(told []*Watch) {
	for _, w := range told {
		w.Notify()
	}
}

// Watch adds w to those who are told of changes. The caller looks at the partition again afterwards: a change between its
// last look and this call is not told.
func (r *Replica) Watch(w *Watch) {
	r.mu.Lock()
	w.replica = r
	if w.Log {
		r.followers.add(w)
	} else {
		r.consumers.add(w)
	}
	r.mu.Unlock()
}

// Unwatch ends a Watch. Notify may still be running.
func (w *Watch) Unwatch() {
	r := w.replica
	if r == nil {
		return
	}
	r.mu.Lock()
	if w.Log {
		r.followers.remove(w)
	} else {
		r.consumers.remove(w)
	}
	r.mu.Unlock()
}
