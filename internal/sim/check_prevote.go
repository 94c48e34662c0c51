package sim

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raft"
)

// preVoteCheck: a pre-vote changes neither epoch nor vote of who gives it; who is no voter does not come to lead (K9).
type preVoteCheck struct {
	noCheck
	c *RaftCluster
}

func newPreVoteCheck(c *RaftCluster) *preVoteCheck { return &preVoteCheck{c: c} }

func (k *preVoteCheck) message(_, to kafka.BrokerID, req kmsg.Request, resp kmsg.Response) {
	q, ok := req.(*kmsg.VoteRequest)
	if !ok || !q.Topics[0].Partitions[0].PreVote {
		return
	}
	n := k.c.node(to)
	if n.replica == nil {
		return
	}
	p := &q.Topics[0].Partitions[0]
	before, now := n.role, n.replica.Status()
	m := resp.(*kmsg.VoteResponse)
	if len(m.Topics) != 1 {
		return
	}
	// The answer's epoch, for the node's own timer may have brought it further in the same step.
	if epoch := kafka.LeaderEpoch(m.Topics[0].Partitions[0].LeaderEpoch); epoch > max(before.Epoch, kafka.LeaderEpoch(p.CandidateEpoch)) {
		k.c.w.Fail("K9", "a pre-vote brought node %d from epoch %d to %d", to, before.Epoch, epoch)
	}
	if m.Topics[0].Partitions[0].VoteGranted {
		k.c.Stats["pre-votes"]++
		if now.Epoch == before.Epoch && now.Voted != before.Voted {
			k.c.w.Fail("K9", "a pre-vote changed the vote of node %d in epoch %d", to, now.Epoch)
		}
	}
}

func (k *preVoteCheck) observe(n *raftNode, s raft.Status) {
	if s.Role != raft.Leader || n.role.Role == raft.Leader && n.role.Epoch == s.Epoch {
		return
	}
	if v, ok := s.Voters.Get(n.id); !n.canVote || !ok || !v.Key.Matches(raft.ReplicaKey{ID: n.id, Directory: n.dir}) {
		k.c.w.Fail("K9", "node %d leads epoch %d without being one of %v", n.id, s.Epoch, s.Voters)
	}
}
