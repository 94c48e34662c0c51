package sim

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raft"
)

// electionCheck: at most one leader in an epoch (K1); epochs never fall, not even over a restart, and nobody gives two
// votes in one epoch (K5).
type electionCheck struct {
	noCheck
	c       *RaftCluster
	leaders map[kafka.LeaderEpoch]kafka.BrokerID
	epochs  map[kafka.BrokerID]kafka.LeaderEpoch
	votes   map[ballot]kafka.BrokerID
}

type ballot struct {
	voter kafka.BrokerID
	epoch kafka.LeaderEpoch
}

func newElectionCheck(c *RaftCluster) *electionCheck {
	return &electionCheck{c: c, leaders: make(map[kafka.LeaderEpoch]kafka.BrokerID), epochs: make(map[kafka.BrokerID]kafka.LeaderEpoch), votes: make(map[ballot]kafka.BrokerID)}
}

func (k *electionCheck) observe(n *raftNode, s raft.Status) {
	if last := k.epochs[n.id]; s.Epoch < last {
		k.c.w.Fail("K5", "node %d is in epoch %d after %d", n.id, s.Epoch, last)
	}
	k.epochs[n.id] = s.Epoch
	if s.Role == raft.Leader {
		k.is(n.id, s.Epoch)
	}
	if s.Leader != kafka.NoBroker {
		k.is(s.Leader, s.Epoch)
	}
	if s.Voted.ID != kafka.NoBroker {
		k.voted(n.id, s.Epoch, s.Voted.ID)
	}
}

func (k *electionCheck) is(leader kafka.BrokerID, epoch kafka.LeaderEpoch) {
	if other, ok := k.leaders[epoch]; ok && other != leader {
		k.c.w.Fail("K1", "nodes %d and %d lead epoch %d", other, leader, epoch)
	}
	k.leaders[epoch] = leader
}

func (k *electionCheck) voted(voter kafka.BrokerID, epoch kafka.LeaderEpoch, candidate kafka.BrokerID) {
	b := ballot{voter, epoch}
	if other, ok := k.votes[b]; ok && other != candidate {
		k.c.w.Fail("K5", "node %d voted for %d and for %d in epoch %d", voter, other, candidate, epoch)
	}
	k.votes[b] = candidate
}

func (k *electionCheck) message(_, to kafka.BrokerID, req kmsg.Request, resp kmsg.Response) {
	q, ok := req.(*kmsg.VoteRequest)
	if !ok || q.Topics[0].Partitions[0].PreVote {
		return
	}
	m := resp.(*kmsg.VoteResponse)
	if len(m.Topics) == 1 && m.Topics[0].Partitions[0].VoteGranted {
		p := &q.Topics[0].Partitions[0]
		k.voted(to, kafka.LeaderEpoch(p.CandidateEpoch), kafka.BrokerID(p.CandidateID))
	}
}
