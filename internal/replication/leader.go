package replication

import (
	"slices"
	"time"

	"github.com/highwater/highwater/internal/invariant"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

// Partition is the state of a partition as the controller committed it.
type Partition struct {
	Replicas         []kafka.BrokerID // in order of preference
	ISR              []kafka.BrokerID
	AddingReplicas   []kafka.BrokerID
	RemovingReplicas []kafka.BrokerID
	Leader           kafka.BrokerID
	LeaderEpoch      kafka.LeaderEpoch
	PartitionEpoch   kafka.PartitionEpoch
	Recovering       bool // leader recovery state: this leader was elected uncleanly and has not said RECOVERED yet
}

// Broker is what the leader must know of a broker before it lets it into the ISR (KIP-841, KIP-903).
type Broker struct {
	Epoch              kafka.BrokerEpoch
	Fenced             bool
	ControlledShutdown bool
}

// Cluster tells about brokers as of the newest metadata. ok is false for one that is not registered.
type Cluster func(kafka.BrokerID) (b Broker, ok bool)

// LeaderOptions are the settings of a partition's leader.
type LeaderOptions struct {
	ID     kafka.BrokerID
	MinISR int           // min.insync.replicas of the topic (default 1)
	LagMax time.Duration // replica.lag.time.max.ms (default 30 s)
	// Cluster is asked whether a follower may be, or come into, the ISR.
	Cluster Cluster
}

// Progress is a remote follower as the leader sees it.
type Progress struct {
	ID kafka.BrokerID
	// EndOffset is where the follower's log ends by its last fetch, or -1 before the first one.
	EndOffset kafka.Offset
	// StartOffset is the follower's log start offset by its last fetch, or -1.
	StartOffset kafka.Offset
	// BrokerEpoch is the epoch that the follower told in its last fetch; -1 if it told none (before fetch version 15).
	BrokerEpoch kafka.BrokerEpoch
	// CaughtUp is the last time at which the follower had all that the leader had.
	CaughtUp time.Time
	// fetchedAt and endAtFetch are the time of the last fetch and the leader's end then: a follower that now asks from
	// endAtFetch on was caught up at fetchedAt, even if the leader has grown since.
	fetchedAt  time.Time
	endAtFetch kafka.Offset
}

func (p *Progress) caughtUp(logEnd kafka.Offset, now time.Time, lagMax time.Duration) bool {
	return p.EndOffset == logEnd || now.Sub(p.CaughtUp) <= lagMax
}

// ISRChange is a wish to be sent to the controller by AlterPartition.
type ISRChange struct {
	ISR            []ISRMember
	LeaderEpoch    kafka.LeaderEpoch
	PartitionEpoch kafka.PartitionEpoch
	Recovered      bool // the leader recovery state becomes RECOVERED
}

// ISRMember is a member with the broker epoch that the leader knows it by (AlterPartition version 3).
type ISRMember struct {
	ID    kafka.BrokerID
	Epoch kafka.BrokerEpoch
}

// Effects is what a step asks for.
type Effects struct {
	// HighWatermark is the new one if Advanced.
	HighWatermark kafka.Offset
	Advanced      bool
	// Alter, if not nil, must be sent to the controller; its answer comes back through Altered or AlterFailed.
	Alter *ISRChange
}

// Leader is the leader's side of one partition in one leader epoch. Not safe for concurrent use.
type Leader struct {
	opts      LeaderOptions
	partition Partition
	// epochStart is where this leader's epoch begins in its log. A follower must have come this far to join the ISR, and
	// clients may not see a latest offset before the high watermark has.
	epochStart kafka.Offset
	logEnd     kafka.Offset
	// highWatermark: see I1 to I3.
	highWatermark kafka.Offset
	followers     []Progress // the other replicas, in the order of partition.Replicas
	// pending is the change that the controller has not answered yet (I4); nil if none.
	pending *ISRChange
}

// NewLeader starts an epoch. logEnd and highWatermark are the log's when the leadership began.
func NewLeader(opts LeaderOptions, p Partition, logEnd, highWatermark kafka.Offset, now time.Time) *Leader {
	l := &Leader{opts: opts, epochStart: logEnd, logEnd: logEnd, highWatermark: highWatermark}
	l.setPartition(p, now)
	invariant.Check(highWatermark <= logEnd, "I1: high watermark %d is above the log end %d", highWatermark, logEnd)
	return l
}

func (l *Leader) setPartition(p Partition, now time.Time) {
	old := l.followers
	l.followers = make([]Progress, 0, len(p.Replicas))
	for _, id := range p.Replicas {
		if id == l.opts.ID {
			continue
		}
		if i := slices.IndexFunc(old, func(f Progress) bool { return f.ID == id }); i >= 0 {
			l.followers = append(l.followers, old[i])
			continue
		}
		f := Progress{ID: id, EndOffset: kafka.NoOffset, StartOffset: kafka.NoOffset, BrokerEpoch: -1}
		if slices.Contains(p.ISR, id) {
			f.CaughtUp = now // members get a full lagMax to show themselves to a new leader
		}
		l.followers = append(l.followers, f)
	}
	l.partition = p
}

// Update takes in a partition state of the same leader epoch, as committed: another ISR or another replica set. It ends a
// change that was under way, which this state has answered.
func (l *Leader) Update(p Partition, now time.Time) Effects {
	invariant.Check(p.LeaderEpoch == l.partition.LeaderEpoch, "update of leader epoch %d with one of %d", l.partition.LeaderEpoch, p.LeaderEpoch)
	if p.PartitionEpoch < l.partition.PartitionEpoch {
		return Effects{}
	}
	if p.PartitionEpoch > l.partition.PartitionEpoch {
		l.pending = nil
	}
	l.setPartition(p, now)
	return l.advance(now)
}

// SetMinISR takes in a change of min.insync.replicas.
func (l *Leader) SetMinISR(n int, now time.Time) Effects {
	l.opts.MinISR = n
	return l.advance(now)
}

// Epoch is the leader epoch that l stands for.
func (l *Leader) Epoch() kafka.LeaderEpoch { return l.partition.LeaderEpoch }

// EpochStart is the log end offset at which the epoch began.
func (l *Leader) EpochStart() kafka.Offset { return l.epochStart }

// HighWatermark is the end of what is committed.
func (l *Leader) HighWatermark() kafka.Offset { return l.highWatermark }

// LogEnd is where the log ends, as far as Appended was told.
func (l *Leader) LogEnd() kafka.Offset { return l.logEnd }

// ISR is the committed ISR. The caller does not change it.
func (l *Leader) ISR() []kafka.BrokerID { return l.partition.ISR }

// Partition is the committed state. The caller does not change it.
func (l *Leader) Partition() Partition { return l.partition }

// Followers are the remote replicas. The caller does not change them.
func (l *Leader) Followers() []Progress { return l.followers }

// Pending tells whether an AlterPartition is under way.
func (l *Leader) Pending() bool { return l.pending != nil }

// effectiveMinISR: a topic with fewer replicas than min.insync.replicas needs only all of them.
func (l *Leader) effectiveMinISR() int { return min(l.opts.MinISR, len(l.partition.Replicas)) }

// UnderMinISR tells whether the ISR is too small for acks=all and for the high watermark to move.
func (l *Leader) UnderMinISR() bool { return len(l.partition.ISR) < l.effectiveMinISR() }

// CheckAppend tells whether an append with these acks may begin: NOT_ENOUGH_REPLICAS if the ISR is too small for acks=all.
func (l *Leader) CheckAppend(acks int16) error {
	if acks == -1 && l.UnderMinISR() {
		return kerr.NotEnoughReplicas.With("The size of the current ISR %v is insufficient to satisfy the min.isr requirement of %d for this partition.",
			l.partition.ISR, l.effectiveMinISR())
	}
	return nil
}

// CheckAck tells whether an acks=all append that ends before the high watermark may be acknowledged. It is not, with
// NOT_ENOUGH_REPLICAS_AFTER_APPEND, if the ISR has become too small meanwhile: the record is there, but on too few.
func (l *Leader) CheckAck() error {
	if l.UnderMinISR() {
		return kerr.NotEnoughReplicasAfterAppend
	}
	return nil
}

// Appended says that the leader's log ends at logEnd now.
func (l *Leader) Appended(logEnd kafka.Offset, now time.Time) Effects {
	if logEnd < l.logEnd { // asked here, for the arguments of Check are allocated
		invariant.Check(false, "I1: log end moves back from %d to %d", l.logEnd, logEnd)
	}
	l.logEnd = logEnd
	return l.advance(now)
}

// FollowerFetched takes in that follower id asks for fetchOffset, which is where its log ends, and that its log starts at
// logStart. leaderEnd is the leader's end when the answer was read. An id that is no replica changes nothing.
func (l *Leader) FollowerFetched(now time.Time, id kafka.BrokerID, epoch kafka.BrokerEpoch, fetchOffset, logStart, leaderEnd kafka.Offset) Effects {
	f := l.follower(id)
	if f == nil {
		return Effects{}
	}
	switch {
	case fetchOffset >= leaderEnd:
		f.CaughtUp = later(f.CaughtUp, now)
	case fetchOffset >= f.endAtFetch && !f.fetchedAt.IsZero():
		f.CaughtUp = later(f.CaughtUp, f.fetchedAt)
	}
	f.EndOffset, f.StartOffset, f.BrokerEpoch = fetchOffset, logStart, epoch
	f.fetchedAt, f.endAtFetch = now, leaderEnd

	e := l.advance(now)
	if l.pending == nil && !slices.Contains(l.partition.ISR, id) && l.mayJoin(f) {
		e.Alter = l.propose(append(slices.Clone(l.partition.ISR), id))
	}
	return e
}

// LowWatermark is the smallest log start offset among this leader's, which is start, and those of followers on live brokers; -1
// if one of them hasn't told its own yet.
func (l *Leader) LowWatermark(start kafka.Offset) kafka.Offset {
	low := start
	for i := range l.followers {
		f := &l.followers[i]
		if f.StartOffset < low {
			if b, ok := l.opts.Cluster(f.ID); ok && !b.Fenced {
				low = f.StartOffset
			}
		}
	}
	return low
}

// HasFollower tells whether a broker is one of the partition's replicas, besides the leader.
func (l *Leader) HasFollower(id kafka.BrokerID) bool { return l.follower(id) != nil }

// mayJoin: Kafka's rule. The follower has all that is committed, has come to the start of this epoch, and is a live broker
// under the same epoch that it fetched with.
func (l *Leader) mayJoin(f *Progress) bool {
	return f.EndOffset >= l.highWatermark && f.EndOffset >= l.epochStart && l.eligible(f)
}

func (l *Leader) eligible(f *Progress) bool {
	b, ok := l.opts.Cluster(f.ID)
	return ok && !b.Fenced && !b.ControlledShutdown && (f.BrokerEpoch == -1 || f.BrokerEpoch == b.Epoch)
}

// Tick is to be called every LagMax/2: it proposes to drop members that have been behind for longer than LagMax.
func (l *Leader) Tick(now time.Time) Effects {
	if l.pending != nil {
		return Effects{}
	}
	if l.partition.Recovering {
		return Effects{Alter: l.propose(slices.Clone(l.partition.ISR))}
	}
	keep := make([]kafka.BrokerID, 0, len(l.partition.ISR))
	for _, id := range l.partition.ISR {
		if f := l.follower(id); id == l.opts.ID || f != nil && f.caughtUp(l.logEnd, now, l.opts.LagMax) {
			keep = append(keep, id)
		}
	}
	if len(keep) == len(l.partition.ISR) {
		return Effects{}
	}
	return Effects{Alter: l.propose(keep)}
}

func (l *Leader) propose(isr []kafka.BrokerID) *ISRChange {
	c := &ISRChange{LeaderEpoch: l.partition.LeaderEpoch, PartitionEpoch: l.partition.PartitionEpoch, Recovered: true}
	for _, id := range isr {
		m := ISRMember{ID: id, Epoch: -1}
		if f := l.follower(id); f != nil {
			m.Epoch = f.BrokerEpoch
		} else if b, ok := l.opts.Cluster(id); ok {
			m.Epoch = b.Epoch
		}
		c.ISR = append(c.ISR, m)
	}
	l.pending = c
	return c
}

// Altered takes in the controller's answer to AlterPartition: the state it committed.
func (l *Leader) Altered(isr []kafka.BrokerID, epoch kafka.PartitionEpoch, recovering bool, now time.Time) Effects {
	if epoch <= l.partition.PartitionEpoch {
		return Effects{} // the metadata log was faster
	}
	p := l.partition
	p.ISR, p.PartitionEpoch, p.Recovering = isr, epoch, recovering
	return l.Update(p, now)
}

// AlterFailed ends the change that is under way without a new state. The next fetch or Tick proposes anew.
func (l *Leader) AlterFailed() { l.pending = nil }

// advance is the only place where the high watermark moves.
func (l *Leader) advance(now time.Time) Effects {
	if l.UnderMinISR() {
		return Effects{}
	}
	hw := l.logEnd
	for i := range l.followers {
		f := &l.followers[i]
		if f.EndOffset < hw && (l.inMaximalISR(f.ID) || l.aboutToJoin(f, now)) {
			hw = f.EndOffset
		}
	}
	if hw <= l.highWatermark {
		return Effects{}
	}
	if hw > l.logEnd {
		invariant.Check(false, "I1: high watermark %d would pass the log end %d", hw, l.logEnd)
	}
	l.highWatermark = hw
	return Effects{HighWatermark: hw, Advanced: true}
}

// aboutToJoin: a follower that keeps up and may join holds the high watermark back although it is not in the ISR yet; else
// under steady load it would never reach the high watermark, and so never join.
func (l *Leader) aboutToJoin(f *Progress, now time.Time) bool {
	return f.EndOffset >= 0 && f.caughtUp(l.logEnd, now, l.opts.LagMax) && l.eligible(f)
}

// inMaximalISR: the controller may already have committed the pending change and elect from it (I2).
func (l *Leader) inMaximalISR(id kafka.BrokerID) bool {
	if slices.Contains(l.partition.ISR, id) {
		return true
	}
	return l.pending != nil && slices.ContainsFunc(l.pending.ISR, func(m ISRMember) bool { return m.ID == id })
}

func (l *Leader) follower(id kafka.BrokerID) *Progress {
	for i := range l.followers {
		if l.followers[i].ID == id {
			return &l.followers[i]
		}
	}
	return nil
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
