package raft

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/invariant"
	"github.com/highwater/highwater/internal/kafka"
)

// become changes the role and sets its timer. It leaves epoch, leader and vote as they are.
func (r *Raft) become(now time.Time, role Role) {
	old := r.role
	remaining := r.electionAt
	r.role = role
	if old == Leader && role != Leader {
		r.abandonLeadership()
	}
	r.resetConns()
	r.granted, r.rejected, r.backoff = nil, nil, false
	if role != Follower {
		r.dropFetching()
	}
	switch role {
	case Unattached:
		switch old {
		case Follower:
			r.electionAt = r.fetchAt
		case Leader:
			r.electionAt = now.Add(r.randomElectionTimeout())
		default:
			// A higher epoch does not lengthen the wait, else a node that keeps raising it could hinder all others.
			r.electionAt = remaining
			if remaining.IsZero() {
				r.electionAt = now.Add(r.randomElectionTimeout())
			}
		}
	case Prospective, Candidate, Resigned:
		r.electionAt = now.Add(r.randomElectionTimeout())
	case Follower:
		r.fetchAt = now.Add(r.cfg.FetchTimeout)
		r.updateVoterAt = now.Add(voterUpdateFactor * r.cfg.FetchTimeout)
		r.fetched = false
		r.electionAt = time.Time{}
		r.retries = 0
	}
}

func (r *Raft) randomElectionTimeout() time.Duration {
	return r.cfg.ElectionTimeout + time.Duration(r.cfg.Rand.Int64N(int64(max(r.cfg.ElectionTimeout, 1))))
}

// electionBackoff is how long the loser of an election waits: up to 100 ms, doubled with every loss in a row.
func (r *Raft) electionBackoff() time.Duration {
	r.retries++
	most := min(electionRetryBase<<min(r.retries, 10), r.cfg.ElectionBackoffMax)
	return time.Duration(r.cfg.Rand.Int64N(int64(max(most, 1))))
}

// toEpoch enters a higher epoch as Unattached.
func (r *Raft) toEpoch(now time.Time, epoch kafka.LeaderEpoch) {
	invariant.Check(epoch > r.epoch, "K5: epoch %d after %d", epoch, r.epoch)
	r.epoch = epoch
	r.leader, r.leaderEndpoints = kafka.NoBroker, nil
	r.voted = ReplicaKey{ID: kafka.NoBroker}
	r.become(now, Unattached)
	r.failParked()
}

// follow makes this node the follower of a leader.
func (r *Raft) follow(now time.Time, epoch kafka.LeaderEpoch, leader kafka.BrokerID, endpoints []Endpoint) {
	invariant.Check(epoch >= r.epoch, "K5: epoch %d after %d", epoch, r.epoch)
	invariant.Check(leader != r.cfg.ID, "K1: node %d told to follow itself in epoch %d", leader, epoch)
	if epoch > r.epoch {
		r.voted = ReplicaKey{ID: kafka.NoBroker}
	}
	r.epoch = epoch
	r.leader, r.leaderEndpoints = leader, endpoints
	r.become(now, Follower)
	r.failParked()
}

// campaign begins an election: with a pre-vote, or, in a quorum of one, at once with the vote.
func (r *Raft) campaign(now time.Time) {
	if r.onlyVoter() {
		r.stand(now)
		return
	}
	r.become(now, Prospective)
	r.granted = []kafka.BrokerID{r.cfg.ID}
	r.electionMaybeWon(now)
}

// stand makes this node a candidate in the next epoch, with its own vote.
func (r *Raft) stand(now time.Time) {
	r.epoch++
	r.leader, r.leaderEndpoints = kafka.NoBroker, nil
	r.voted = r.self
	r.become(now, Candidate)
	r.granted = []kafka.BrokerID{r.cfg.ID}
	r.electionMaybeWon(now)
}

func (r *Raft) electionMaybeWon(now time.Time) {
	switch {
	case count(r.Voters(), r.granted) <= r.Voters().Len()/2:
	case r.role == Prospective:
		r.stand(now)
	case r.role == Candidate:
		r.takeOffice(now)
	}
}

// count is how many voters are among ids.
func count(s VoterSet, ids []kafka.BrokerID) int {
	n := 0
	for _, v := range s.Voters() {
		if slices.Contains(ids, v.Key.ID) {
			n++
		}
	}
	return n
}

// electionMaybeLost: so many said no that a majority is out of reach. The loser waits and then tries again.
func (r *Raft) electionMaybeLost(now time.Time) {
	if r.backoff || count(r.Voters(), r.rejected) < (r.Voters().Len()+1)/2 {
		return
	}
	r.lose(now)
}

func (r *Raft) lose(now time.Time) {
	if r.role == Prospective && r.leader != kafka.NoBroker && len(r.leaderEndpoints) > 0 {
		// The others still hear the leader of this epoch: give it another fetch timeout.
		r.become(now, Follower)
		return
	}
	r.backoff = true
	r.electionAt = now.Add(r.electionBackoff())
	r.resetConns()
}

// canVoteFor is the rule of who gets this node's vote in its current epoch.
func (r *Raft) canVoteFor(candidate ReplicaKey, upToDate, preVote bool) bool {
	if preVote {
		switch r.role {
		case Leader:
			return false
		case Follower:
			// Whoever heard the leader in this epoch does not help to unseat it (KIP-996).
			return upToDate && !r.fetched
		}
		return upToDate
	}
	if r.cfg.Mutant == TwoVotes && r.role != Leader {
		return upToDate
	}
	if r.voted.ID != kafka.NoBroker {
		return r.voted.Matches(candidate) && r.role != Leader
	}
	switch r.role {
	case Unattached, Prospective:
		return r.leader == kafka.NoBroker && upToDate
	}
	return false
}

// vote gives the vote of this epoch. Asked again, the answer is the same; at kraft.version 0 the directory of an earlier
// vote is not known after a restart.
func (r *Raft) vote(candidate ReplicaKey) {
	if !r.voted.Matches(candidate) {
		r.voted = candidate
	}
}

// poll does what the role has to do now and finds the next deadline.
func (r *Raft) poll(now time.Time) {
	for range 16 { // a role leads to the next one: Unattached, Prospective, Candidate, Leader, Resigned
		role, epoch, backoff := r.role, r.epoch, r.backoff
		r.wake = now.Add(noDeadlineDuration)
		switch r.role {
		case Unattached:
			r.pollUnattached(now)
		case Prospective, Candidate:
			r.pollElection(now)
		case Leader:
			r.pollLeader(now)
		case Follower:
			r.pollFollower(now)
		case Resigned:
			r.pollResigned(now)
		}
		if r.role == role && r.epoch == epoch && r.backoff == backoff {
			break
		}
	}
	r.pollParked(now)
	if !r.shutdownAt.IsZero() && !r.stopped {
		// Over when somebody else leads, when nobody else could, or when the time is up.
		if !now.Before(r.shutdownAt) || !r.isVoter() || r.onlyVoter() ||
			r.leader != kafka.NoBroker && r.leader != r.cfg.ID {
			r.stopped = true
		} else {
			r.at(r.shutdownAt)
		}
	}
}

// at makes the next deadline t, if it is earlier.
func (r *Raft) at(t time.Time) {
	if t.Before(r.wake) {
		r.wake = t
	}
}

// Deadline is when the next Tick must come.
func (r *Raft) Deadline() time.Time { return r.wake }

func (r *Raft) stopping() bool { return !r.shutdownAt.IsZero() }

func (r *Raft) pollUnattached(now time.Time) {
	if r.isVoter() && !r.stopping() {
		if !now.Before(r.electionAt) {
			r.campaign(now)
			return
		}
		r.at(r.electionAt)
	}
	// Meanwhile ask whoever may know the leader.
	r.fetchFromAnyone(now)
}

func (r *Raft) pollElection(now time.Time) {
	if !r.isVoter() {
		// A voter set without this node arrived.
		r.become(now, Unattached)
		return
	}
	if r.stopping() {
		return
	}
	if !now.Before(r.electionAt) {
		switch {
		case r.backoff:
			r.campaign(now)
		default:
			r.lose(now)
		}
		return
	}
	r.at(r.electionAt)
	if r.backoff {
		return
	}
	for _, v := range r.Voters().Voters() {
		id := v.Key.ID
		if id == r.cfg.ID || slices.Contains(r.granted, id) || slices.Contains(r.rejected, id) {
			continue
		}
		if n, ok := r.Voters().Node(id, r.cfg.Listener); ok {
			r.send(now, n, func() kmsg.Request { return r.voteRequest(v.Key) })
		}
	}
}

func (r *Raft) pollFollower(now time.Time) {
	voter := r.isVoter()
	if !now.Before(r.fetchAt) {
		if voter && !r.stopping() {
			r.campaign(now)
			return
		}
		// An observer asks around until somebody tells of a leader that answers.
		r.fetchFromAnyone(now)
		return
	}
	r.at(r.fetchAt)
	n, ok := r.leaderNode()
	if !ok || r.awaitSnapshot {
		return
	}
	if !voter && r.connBackingOff(now, n) {
		r.fetchFromAnyone(now)
		return
	}
	if r.KRaftVersion() > 0 && r.cfg.CanVote && r.fetching == noSnapshot {
		if !now.Before(r.updateVoterAt) {
			if m := r.membershipRequest(voter); m != nil {
				if !r.send(now, n, func() kmsg.Request { return m }) {
					return
				}
			}
			r.updateVoterAt = now.Add(voterUpdateFactor * r.cfg.FetchTimeout)
		}
		r.at(r.updateVoterAt)
	}
	r.send(now, n, r.fetchRequest)
}

func (r *Raft) pollResigned(now time.Time) {
	for _, v := range r.Voters().Voters() {
		if v.Key.ID == r.cfg.ID || slices.Contains(r.acked, v.Key.ID) || len(r.successors) == 0 {
			continue
		}
		if n, ok := r.Voters().Node(v.Key.ID, r.cfg.Listener); ok {
			r.send(now, n, r.endQuorumEpochRequest)
		}
	}
	if r.stopping() {
		return
	}
	if !now.Before(r.electionAt) {
		if r.onlyVoter() {
			r.campaign(now)
			return
		}
		// It must not follow or vote in the epoch that it led, so it goes to the next.
		r.toEpoch(now, r.epoch+1)
		return
	}
	r.at(r.electionAt)
}

// fetchFromAnyone sends a Fetch to a bootstrap server or voter, to learn who leads.
func (r *Raft) fetchFromAnyone(now time.Time) {
	if len(r.conns) > 0 {
		for i := range r.conns {
			if c := &r.conns[i]; c.corr != 0 && now.Before(c.until) {
				r.at(c.until)
				return // one is under way
			}
		}
	}
	var nodes []Node
	for i, e := range r.cfg.Bootstrap {
		if !r.isOwn(e) {
			nodes = append(nodes, Node{ID: kafka.BrokerID(-2 - i), Host: e.Host, Port: e.Port})
		}
	}
	// The voters too (Kafka asks the bootstrap servers only): none of those may be a voter any more.
	for _, v := range r.Voters().Voters() {
		n, ok := r.Voters().Node(v.Key.ID, r.cfg.Listener)
		if ok && n.ID != r.cfg.ID && !slices.ContainsFunc(nodes, func(b Node) bool { return b.Host == n.Host && b.Port == n.Port }) {
			nodes = append(nodes, n)
		}
	}
	if len(nodes) == 0 {
		return
	}
	// From a random one on, the first that is not backing off.
	first := r.cfg.Rand.IntN(len(nodes))
	for i := range nodes {
		n := nodes[(first+i)%len(nodes)]
		if !r.connBackingOff(now, n) {
			r.send(now, n, r.fetchRequest)
			return
		}
	}
	for _, n := range nodes {
		r.connBackingOff(now, n) // sets the deadline
	}
}

func (r *Raft) isOwn(e Endpoint) bool {
	return slices.ContainsFunc(r.cfg.Endpoints, func(o Endpoint) bool { return o.Host == e.Host && o.Port == e.Port })
}

func (r *Raft) leaderNode() (Node, bool) {
	e, ok := endpointOf(r.leaderEndpoints, r.cfg.Listener)
	return Node{r.leader, e.Host, e.Port}, ok && r.leader != kafka.NoBroker
}

func (r *Raft) dropFetching() {
	r.fetching, r.fetchingAt, r.awaitSnapshot = noSnapshot, 0, false
}
