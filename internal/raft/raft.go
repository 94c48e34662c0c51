package raft

import (
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/invariant"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

// Config is what a replica knows before it reads its log. Durations are Kafka's controller.quorum.* properties.
type Config struct {
	ID        kafka.BrokerID
	Directory kafka.DirectoryID
	ClusterID string
	// CanVote: process.roles has controller. Without it the replica is an observer for ever and answers nobody.
	CanVote bool
	// Listener is the first of controller.listener.names; voters are reached at their endpoint of that name.
	Listener string
	// Endpoints are this replica's own, as it tells them when it leads or joins.
	Endpoints []Endpoint
	// StaticVoters is controller.quorum.voters; it counts while neither log nor snapshot have a Voters record.
	StaticVoters VoterSet
	// Bootstrap is controller.quorum.bootstrap.servers.
	Bootstrap []Endpoint
	// AutoJoin is controller.quorum.auto.join.enable.
	AutoJoin bool

	ElectionTimeout       time.Duration // election.timeout.ms
	ElectionBackoffMax    time.Duration // election.backoff.max.ms
	FetchTimeout          time.Duration // fetch.timeout.ms
	RequestTimeout        time.Duration // request.timeout.ms
	RetryBackoff          time.Duration // retry.backoff.ms
	AppendLinger          time.Duration // append.linger.ms
	FetchMaxBytes         int32         // fetch.max.bytes
	FetchSnapshotMaxBytes int32         // fetch.snapshot.max.bytes

	Rand *rand.Rand
	// Mutant breaks one rule on purpose, so that the simulator can prove that it would notice. Never set it elsewhere.
	Mutant Mutant
}

// Mutant names a rule that is left out.
type Mutant int

// The mutants.
const (
	NoMutant              Mutant = iota
	VoteNotPersisted             // a vote is answered without being written
	CountUnflushed               // the high watermark counts what the leader has not synced
	NoOwnEpochRule               // older epochs' records are committed by counting copies
	TwoVotes                     // a vote in an epoch does not hinder a second
	TruncateCommitted            // a follower truncates below its high watermark
	NoDivergenceCheck            // the leader does not compare the follower's last epoch
	FetchUnflushed               // a voter fetches, and so acknowledges, before it synced
	CountRemovedVoter            // every replica counts for the high watermark, voter or not
	StaleElectionResponse        // votes of an older epoch count
)

// Defaults of Kafka 4.4.
const (
	fetchMaxWait       = 500 * time.Millisecond
	electionRetryBase  = 100 * time.Millisecond
	observerSession    = 5 * time.Minute
	maxBatchBytes      = 8 << 20
	maxPendingBytes    = 10 * maxBatchBytes // Kafka's accumulator has ten batches
	voterUpdateFactor  = 3                  // UpdateRaftVoter is considered every three fetch timeouts
	caughtUpForAdd     = time.Hour
	maxObservers       = 10_000 // guess; each fetching node is one
	maxParked          = 20_000 // guess; each waiting Fetch is one
	recordOverhead     = 40     // upper bound of a record's own fields and the varints around its value
	batchHeader        = 61
	noDeadlineDuration = 100 * 365 * 24 * time.Hour
)

// EpochStart is where an epoch begins in the log.
type EpochStart struct {
	Epoch  kafka.LeaderEpoch
	Offset kafka.Offset
}

// LogState is what the machine knows of the log when it starts.
type LogState struct {
	StartOffset kafka.Offset
	EndOffset   kafka.Offset // all of it flushed
	Epochs      []EpochStart // ascending
	// Snapshots are the ids of those on disk, ascending, the bootstrap checkpoint (0, 0) among them.
	Snapshots []kafka.OffsetAndEpoch
	// Control are the Voters and KRaftVersion records of the latest snapshot (at its end offset - 1) and of the log.
	Control []ControlAt
}

// Raft is one replica's part of the protocol. It is not safe for concurrent use.
type Raft struct {
	cfg   Config
	self  ReplicaKey
	log   logState
	epoch kafka.LeaderEpoch
	role  Role

	// leader is who leads epoch, or NoBroker. voted is who has our vote in it; its ID is NoBroker if nobody.
	leader          kafka.BrokerID
	leaderEndpoints []Endpoint
	voted           ReplicaKey

	// electionAt ends Unattached, Prospective, Candidate and Resigned; fetchAt a follower's patience with its leader.
	electionAt time.Time
	fetchAt    time.Time
	// fetched: the leader of this epoch answered a Fetch, so it lives (KIP-996).
	fetched bool
	// retries counts lost elections in a row.
	retries int
	// backoff: this candidate lost and waits until electionAt for its next try.
	backoff  bool
	granted  []kafka.BrokerID
	rejected []kafka.BrokerID

	// fetching is the snapshot that is being fetched; its ID is noSnapshot if none.
	fetching      kafka.OffsetAndEpoch
	fetchingAt    int64 // bytes written so far
	awaitSnapshot bool  // the last chunk is written, SnapshotFetched must come
	updateVoterAt time.Time

	lead *leaderState // of a Leader; nil otherwise

	highWatermark kafka.Offset // -1 if unknown
	ready         Ready
	persisted     Election // as last handed out
	told          RoleChange

	conns  []conn
	corr   uint64
	parked []parkedFetch

	wake time.Time // the next deadline

	shutdownAt time.Time // zero while running
	stopped    bool
	acked      []kafka.BrokerID // of EndQuorumEpoch
	successors []ReplicaKey
}

// Status is what others may know of the replica.
type Status struct {
	Role           Role
	Epoch          kafka.LeaderEpoch
	Leader         kafka.BrokerID
	LeaderEndpoint []Endpoint
	Voted          ReplicaKey
	HighWatermark  kafka.Offset // -1 if unknown
	LogStart       kafka.Offset
	LogEnd         kafka.Offset // proposed records that wait for the linger not counted
	LogEndEpoch    kafka.LeaderEpoch
	EpochStart     kafka.Offset // of a leader
	Voters         VoterSet
	VotersOffset   kafka.Offset // of the record that says so; -1: configuration or bootstrap checkpoint
	KRaftVersion   int16
	Observers      int
	Stopped        bool // a graceful shutdown is over
}

// New is a replica as it was when it stopped: log and quorum-state are given, epoch and vote continue. A quorum of one
// leads when New returns.
func New(now time.Time, cfg Config, log LogState, election Election) *Raft {
	r := &Raft{cfg: cfg, self: ReplicaKey{cfg.ID, cfg.Directory}, leader: kafka.NoBroker, fetching: noSnapshot, highWatermark: -1}
	r.voted.ID = kafka.NoBroker
	r.told.Leader, r.told.Epoch = kafka.NoBroker, -1
	r.log.init(log, cfg.StaticVoters)
	if id, ok := r.log.sendable(); ok {
		r.highWatermark, r.ready.Committed = id.Offset, true
	}
	r.persisted = election
	r.start(now, election)
	return r
}

func (r *Raft) start(now time.Time, e Election) {
	r.epoch = e.Epoch
	switch last := r.log.lastEpoch(); {
	case last > e.Epoch:
		r.note(true, "quorum-state is older than the log", "leaderEpoch", e.Epoch, "logEpoch", last)
		r.epoch = last
		r.become(now, Unattached)
		r.persisted.Epoch = -1 // to be written again
	case e.Leader == r.cfg.ID && r.cfg.CanVote:
		// It led this epoch and may have lost unflushed records of it. As Resigned it neither votes nor leads in it, so
		// that an offset of an epoch is never written twice.
		r.leader = e.Leader
		r.leaderEndpoints = r.cfg.Endpoints
		r.become(now, Resigned)
	case e.Leader != kafka.NoBroker && e.Leader != r.cfg.ID:
		r.leader, r.voted = e.Leader, e.Voted
		if v, ok := r.Voters().Get(e.Leader); ok && len(v.Endpoints) > 0 {
			r.leaderEndpoints = v.Endpoints
			r.become(now, Follower)
		} else {
			r.become(now, Unattached) // where the leader is others will tell
		}
	case e.Voted.ID == r.cfg.ID && (e.Voted.Directory.IsZero() || e.Voted.Directory == r.cfg.Directory) && r.cfg.CanVote:
		// It stood for election when it stopped, and may collect the votes that it did not hear of.
		r.voted = e.Voted
		r.become(now, Candidate)
		r.granted = []kafka.BrokerID{r.cfg.ID}
	case e.Voted.ID != kafka.NoBroker:
		r.voted = e.Voted
		r.become(now, Unattached)
	default:
		r.become(now, Unattached)
	}
	if r.onlyVoter() && r.role != Leader {
		r.campaign(now)
	}
	r.poll(now)
}

// Step applies one event.
func (r *Raft) Step(now time.Time, ev Event) error {
	switch ev := ev.(type) {
	case Tick:
	case Request:
		r.request(now, &ev)
	case Response:
		r.response(now, &ev)
	case Flushed:
		r.log.flushedTo(ev.EndOffset)
		if r.lead != nil {
			r.updateHighWatermark(now)
		}
	case SnapshotCreated:
		invariant.Check(ev.ID.Offset <= r.highWatermark, "K7: snapshot %v above the high watermark %d", ev.ID, r.highWatermark)
		r.log.addSnapshot(ev.ID)
	case SnapshotFetched:
		r.snapshotFetched(now, &ev)
	case LogStart:
		r.log.startMoved(ev)
	case Resign:
		if r.lead != nil && ev.Epoch == r.epoch {
			r.resign(now, "was asked to")
		}
	case Shutdown:
		if r.shutdownAt.IsZero() {
			r.shutdownAt = now.Add(ev.Timeout)
		}
	}
	r.poll(now)
	return nil
}

// Propose appends records to the leader's log as one atomic batch and returns the offset of the last. They leave with
// the batch that gathers during AppendLinger. Whoever proposes must be at the epoch in which it leads.
func (r *Raft) Propose(now time.Time, epoch kafka.LeaderEpoch, records [][]byte) (kafka.Offset, error) {
	if r.lead == nil || epoch != r.epoch || !r.shutdownAt.IsZero() {
		return 0, errNotLeader(epoch)
	}
	last, err := r.lead.propose(now, r.cfg.AppendLinger, records)
	if err != nil {
		return 0, err
	}
	return last, nil
}

func errNotLeader(epoch kafka.LeaderEpoch) *kerr.Error {
	return kerr.NotController.With("Append failed because the replica is not the leader of epoch %d", epoch)
}

// Ready hands out what is to be done and forgets it.
func (r *Raft) Ready() Ready {
	r.electionToPersist()
	if t := (RoleChange{Role: r.role, Epoch: r.epoch, Leader: r.leader}); t.Role != r.told.Role || t.Epoch != r.told.Epoch || t.Leader != r.told.Leader {
		if r.lead != nil {
			t.EpochStart = r.lead.epochStart
		}
		r.told = t
		r.ready.Role = &t
	}
	out := r.ready
	out.HighWatermark = r.highWatermark
	r.ready = Ready{}
	return out
}

func (r *Raft) electionToPersist() {
	e := Election{Epoch: r.epoch, Leader: r.leader, Voted: r.voted, KRaftVersion: r.KRaftVersion()}
	if r.leader == r.cfg.ID {
		e.Voted = ReplicaKey{ID: kafka.NoBroker} // that it voted for itself goes without saying; Kafka leaves it out
	}
	p := &r.persisted
	if e.Epoch == p.Epoch && e.Leader == p.Leader && e.Voted == p.Voted && e.KRaftVersion == p.KRaftVersion {
		return
	}
	invariant.Check(e.Epoch >= p.Epoch, "K5: epoch %d after %d", e.Epoch, p.Epoch)
	invariant.Check(e.Epoch > p.Epoch || p.Voted.ID == kafka.NoBroker || e.Voted.ID == kafka.NoBroker || e.Voted == p.Voted || r.cfg.Mutant == TwoVotes,
		"K5: vote for %v in epoch %d after one for %v", e.Voted, e.Epoch, p.Voted)
	for _, v := range r.Voters().Voters() {
		e.Voters = append(e.Voters, v.Key.ID)
	}
	r.persisted = e
	if r.cfg.Mutant == VoteNotPersisted && e.Voted.ID != kafka.NoBroker {
		return
	}
	r.ready.Persist.Election = &e
}

// Status tells where the replica stands.
func (r *Raft) Status() Status {
	s := Status{
		Role: r.role, Epoch: r.epoch, Leader: r.leader, LeaderEndpoint: r.leaderEndpoints, Voted: r.voted,
		HighWatermark: r.highWatermark, LogStart: r.log.start, LogEnd: r.log.end, LogEndEpoch: r.log.lastEpoch(), EpochStart: -1,
		Voters: r.Voters(), VotersOffset: r.log.votersOffset(), KRaftVersion: r.KRaftVersion(), Stopped: r.stopped,
	}
	if r.lead != nil {
		s.EpochStart = r.lead.epochStart
		s.Observers = len(r.lead.observers)
	}
	return s
}

// Voters is the newest voter set of the log, committed or not, or the configured one.
func (r *Raft) Voters() VoterSet { return r.log.voters() }

// KRaftVersion is the newest level of kraft.version in the log.
func (r *Raft) KRaftVersion() int16 { return r.log.kraftVersion() }

// VotersAt is the voter set and kraft.version as of an end offset, for the head of a snapshot.
func (r *Raft) VotersAt(end kafka.Offset) (VoterSet, int16) { return r.log.votersAt(end) }

func (r *Raft) isVoter() bool { return r.cfg.CanVote && r.Voters().Contains(r.self) }

func (r *Raft) onlyVoter() bool { return r.isVoter() && r.Voters().Len() == 1 }

func (r *Raft) note(warn bool, text string, args ...any) {
	r.ready.Notes = append(r.ready.Notes, Note{Warn: warn, Text: text, Args: args})
}

func (r *Raft) reply(id uint64, m kmsg.Response) {
	r.ready.Reply = append(r.ready.Reply, Reply{ID: id, Msg: m})
}
