package raft

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/invariant"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

// leaderState is what only a leader has.
type leaderState struct {
	epoch kafka.LeaderEpoch
	// epochStart is the offset of its LeaderChange. The high watermark moves only to above it.
	epochStart kafka.Offset
	// progress is of the other voters, ascending by id; observers of everybody else who fetches, in order of appearance.
	progress  []progress
	observers []progress
	// checkQuorumAt is when it resigns unless a majority fetched; fetchedSince are those who did.
	checkQuorumAt time.Time
	fetchedSince  []kafka.BrokerID
	beginAt       time.Time // when BeginQuorumEpoch goes again to those who don't fetch

	// next is the offset that the next record gets: the log's end and what is in pending.
	next         kafka.Offset
	pending      []pendingBatch
	pendingBytes int
	lingerAt     time.Time // when pending is appended

	change *voterChange
	// told is what voters said of themselves while kraft.version was 0 and the voters stood in everybody's configuration.
	told []Voter
	// upgrading is the level of kraft.version that was proposed in this epoch, 0 if none.
	upgrading int16
}

// progress is another replica as the leader sees it.
type progress struct {
	key ReplicaKey
	// end is one past its last record, as its last valid Fetch told; a voter's is flushed, for voters sync before they
	// fetch. -1 if it did not fetch in this epoch yet.
	end           kafka.Offset
	lastFetch     time.Time
	lastCaughtUp  time.Time
	leaderEndThen kafka.Offset // the leader's end at lastFetch
}

type pendingBatch struct {
	base    kafka.Offset
	records [][]byte
	size    int
	control []ControlRecord
	sealed  bool // nothing more goes into it
}

// errTooMuchPending means that the disk does not keep up with what is proposed.
var errTooMuchPending = errors.New("metadata log: more than 80 MiB wait to be written")

// takeOffice makes the winner of an election the leader. Its first record is the LeaderChange of its epoch: once that is
// on a majority, everything before it is committed too.
func (r *Raft) takeOffice(now time.Time) {
	granted := slices.Clone(r.granted)
	r.leader, r.leaderEndpoints = r.cfg.ID, r.cfg.Endpoints
	r.lead = &leaderState{epoch: r.epoch, epochStart: r.log.end, next: r.log.end}
	r.become(now, Leader)
	r.retries = 0
	l := r.lead
	l.checkQuorumAt = now.Add(r.checkQuorumTimeout())
	l.beginAt = now
	r.votersChanged()

	change := LeaderChange{Leader: r.cfg.ID}
	for _, v := range r.Voters().Voters() {
		change.Voters = append(change.Voters, ReplicaKey{ID: v.Key.ID})
	}
	for _, id := range granted {
		change.Granting = append(change.Granting, ReplicaKey{ID: id})
	}
	control := []ControlRecord{change}
	if r.KRaftVersion() > 0 {
		// The voters come from this node's bootstrap checkpoint, or name other endpoints than it has now: they belong into
		// the log, for the others to read.
		if own, ok := r.Voters().Get(r.cfg.ID); ok {
			fresh := r.ownVoter(own.MinKRaft, own.MaxKRaft)
			if r.log.votersOffset() < 0 || !fresh.equal(own) {
				control = append(control, KRaftVersion(r.KRaftVersion()), Voters{r.Voters().With(fresh)})
			}
		}
	}
	l.proposeControl(now, control)
	r.note(false, "elected leader", "leaderEpoch", r.epoch, "granting", granted, "epochStartOffset", l.epochStart)
}

// ownVoter is this node as it should stand in the voter set.
func (r *Raft) ownVoter(minKRaft, maxKRaft int16) Voter {
	v := Voter{Key: r.self, Endpoints: r.cfg.Endpoints, MinKRaft: min(minKRaft, 0), MaxKRaft: max(maxKRaft, maxKRaftVersion)}
	return v
}

// maxKRaftVersion is the highest level of kraft.version that this software knows.
const maxKRaftVersion = 1

func (r *Raft) abandonLeadership() {
	l := r.lead
	r.lead = nil
	if c := l.change; c != nil {
		r.answerChange(c, kerr.NotLeaderOrFollower, nil)
	}
	r.failParked()
}

func (r *Raft) checkQuorumTimeout() time.Duration { return r.cfg.FetchTimeout * 3 / 2 }

// votersChanged re-sorts what is known of the replicas into voters and observers.
func (r *Raft) votersChanged() {
	l := r.lead
	known := append(slices.Clone(l.progress), l.observers...)
	l.progress, l.observers = nil, nil
	for _, v := range r.Voters().Voters() {
		if v.Key.ID == r.cfg.ID {
			continue
		}
		p := progress{key: v.Key, end: -1, leaderEndThen: -1}
		for _, k := range known {
			if v.Key.Matches(k.key) {
				p = k
				p.key = v.Key
			}
		}
		l.progress = append(l.progress, p)
	}
	for _, k := range known {
		// Zero: it never fetched, and has just left the voter set.
		if !r.Voters().Contains(k.key) && !k.lastFetch.IsZero() {
			l.observers = append(l.observers, k)
		}
	}
}

// propose puts records into the batch that gathers. They stay together: a batch is written and committed as a whole.
func (l *leaderState) propose(now time.Time, linger time.Duration, records [][]byte) (last kafka.Offset, err error) {
	invariant.Check(len(records) > 0, "K10: nothing proposed")
	size := 0
	for _, v := range records {
		size += len(v) + recordOverhead
	}
	if size+batchHeader > maxBatchBytes {
		return 0, kerr.RecordListTooLarge.With("The total record(s) size of %d exceeds the maximum allowed batch size of %d", size, maxBatchBytes)
	}
	if l.pendingBytes+size > maxPendingBytes {
		return 0, errTooMuchPending
	}
	n := len(l.pending)
	if n == 0 || l.pending[n-1].sealed || l.pending[n-1].size+size > maxBatchBytes {
		if n == 0 {
			l.lingerAt = now.Add(linger)
		} else {
			l.lingerAt = now // a batch is full
		}
		l.pending = append(l.pending, pendingBatch{base: l.next, size: batchHeader})
		n++
	}
	b := &l.pending[n-1]
	b.records = append(b.records, records...)
	b.size += size
	l.pendingBytes += size
	l.next += int64(len(records))
	return l.next - 1, nil
}

// proposeControl puts control records into a batch of their own, to be written at once.
func (l *leaderState) proposeControl(now time.Time, control []ControlRecord) (last kafka.Offset) {
	l.pending = append(l.pending, pendingBatch{base: l.next, control: control, sealed: true})
	l.next += int64(len(control))
	l.lingerAt = now
	return l.next - 1
}

func (r *Raft) pollLeader(now time.Time) {
	l := r.lead
	if r.stopping() {
		r.resign(now, "is shutting down")
		return
	}
	if !r.onlyVoter() {
		if !now.Before(l.checkQuorumAt) {
			r.resign(now, "did not hear from a majority of the voters")
			return
		}
		r.at(l.checkQuorumAt)
	}
	r.expireChange(now)
	if len(l.pending) > 0 {
		if !now.Before(l.lingerAt) {
			r.drain(now)
		} else {
			r.at(l.lingerAt)
		}
	}
	r.sendBeginQuorumEpoch(now)
}

// drain writes what was proposed.
func (r *Raft) drain(now time.Time) {
	l := r.lead
	for _, b := range l.pending {
		n := len(b.records) + len(b.control)
		a := Append{BaseOffset: b.base, LastOffset: b.base + int64(n) - 1, Epoch: r.epoch, Timestamp: now, Records: b.records, Control: b.control}
		var at []ControlAt
		for i, c := range b.control {
			at = append(at, ControlAt{b.base + int64(i), c})
		}
		r.log.append(a.BaseOffset, a.LastOffset, a.Epoch, at)
		if len(at) > 0 {
			r.votersChanged()
		}
		r.ready.Persist.Append = append(r.ready.Persist.Append, a)
	}
	l.pending, l.pendingBytes = nil, 0
	invariant.Check(l.next == r.log.end, "K10: offsets handed out to %d, log ends at %d", l.next, r.log.end)
	r.ready.Persist.Flush = r.cfg.Mutant != CountUnflushed
	if r.cfg.Mutant == CountUnflushed {
		r.log.flushed = r.log.end
		r.updateHighWatermark(now)
	}
	r.wakeParked(now)
}

// updateHighWatermark moves it to what a majority of the newest voter set has on disk, if that reaches into this epoch.
func (r *Raft) updateHighWatermark(now time.Time) {
	l := r.lead
	var ends []kafka.Offset
	for _, p := range l.progress {
		ends = append(ends, p.end)
	}
	if r.Voters().Contains(r.self) {
		ends = append(ends, r.log.flushed)
	}
	if r.cfg.Mutant == CountRemovedVoter {
		for _, p := range l.observers {
			ends = append(ends, p.end)
		}
	}
	if len(ends) == 0 {
		return
	}
	slices.SortFunc(ends, func(a, b kafka.Offset) int { return cmp.Compare(b, a) })
	hw := ends[len(ends)/2]
	if hw <= l.epochStart && r.cfg.Mutant != NoOwnEpochRule {
		return
	}
	if hw <= r.highWatermark {
		return
	}
	invariant.Check(hw <= r.log.end, "K6: high watermark %d above the log's end %d", hw, r.log.end)
	r.setHighWatermark(hw)
	r.changeCommitted(now)
	if r.lead != nil && !r.Voters().Contains(r.self) && r.log.votersOffset() < r.highWatermark {
		r.resign(now, "is no voter any more")
		return
	}
	r.wakeParked(now)
}

func (r *Raft) setHighWatermark(hw kafka.Offset) {
	invariant.Check(hw >= r.highWatermark, "K5: high watermark %d after %d", hw, r.highWatermark)
	if hw > r.highWatermark {
		r.highWatermark = hw
		r.ready.Committed = true
	}
}

// resign gives up the epoch. It stays in it as Resigned, so that it never votes in it for another.
func (r *Raft) resign(now time.Time, why string) {
	r.note(true, "resigned as leader: this node "+why, "leaderEpoch", r.epoch)
	order := slices.Clone(r.lead.progress)
	slices.SortStableFunc(order, func(a, b progress) int { return cmp.Compare(b.end, a.end) })
	r.successors, r.acked = nil, nil
	for _, p := range order {
		r.successors = append(r.successors, p.key)
	}
	r.become(now, Resigned)
}

// sendBeginQuorumEpoch tells the voters who don't fetch that this node leads.
func (r *Raft) sendBeginQuorumEpoch(now time.Time) {
	l := r.lead
	every := r.cfg.FetchTimeout / 2
	if len(l.progress) == 0 {
		return
	}
	if now.Before(l.beginAt) {
		r.at(l.beginAt)
		return
	}
	for _, p := range l.progress {
		if !p.lastFetch.IsZero() && now.Before(p.lastFetch.Add(every)) {
			continue
		}
		if n, ok := r.Voters().Node(p.key.ID, r.cfg.Listener); ok {
			r.send(now, n, func() kmsg.Request { return r.beginQuorumEpochRequest(p.key) })
		}
	}
	l.beginAt = now.Add(every)
	r.at(l.beginAt)
}

// heard notes that a replica asked this leader for data, for check-quorum.
func (l *leaderState) heard(now time.Time, r *Raft, key ReplicaKey) {
	i := slices.IndexFunc(l.progress, func(p progress) bool { return p.key.Matches(key) })
	if i < 0 {
		return
	}
	if !slices.Contains(l.fetchedSince, key.ID) {
		l.fetchedSince = append(l.fetchedSince, key.ID)
	}
	need := r.Voters().Len()/2 + 1
	if r.Voters().Contains(r.self) {
		need--
	}
	if count(r.Voters(), l.fetchedSince) >= need {
		l.fetchedSince = nil
		l.checkQuorumAt = now.Add(r.checkQuorumTimeout())
	}
}

// fetchedUpTo notes a valid Fetch from end on.
func (l *leaderState) fetchedUpTo(now time.Time, key ReplicaKey, end, leaderEnd kafka.Offset) {
	p := l.find(key)
	if p == nil {
		l.observers = slices.DeleteFunc(l.observers, func(o progress) bool { return now.Sub(o.lastFetch) > observerSession })
		if key.ID < 0 || len(l.observers) >= maxObservers {
			return
		}
		l.observers = append(l.observers, progress{key: key, end: -1, leaderEndThen: -1})
		p = &l.observers[len(l.observers)-1]
	}
	switch {
	case end >= leaderEnd:
		p.lastCaughtUp = now
	case p.leaderEndThen > 0 && end >= p.leaderEndThen:
		p.lastCaughtUp = p.lastFetch
	}
	p.end, p.lastFetch, p.leaderEndThen = end, now, leaderEnd
}

func (l *leaderState) find(key ReplicaKey) *progress {
	for i := range l.progress {
		if l.progress[i].key.Matches(key) {
			return &l.progress[i]
		}
	}
	for i := range l.observers {
		if l.observers[i].key == key {
			return &l.observers[i]
		}
	}
	return nil
}
