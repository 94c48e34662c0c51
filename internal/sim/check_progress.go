package sim

import (
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raft"
)

// progressCheck: a healed cluster elects a leader, keeps it, commits, and all nodes have the same in the end (K11); a
// controller begins only when all of before is in its hands (K10).
type progressCheck struct {
	noCheck
	c          *RaftCluster
	calmCommit int
}

func newProgressCheck(c *RaftCluster) *progressCheck { return &progressCheck{c: c} }

// settled is how long after healing there may be elections: some timeouts of 1–2 s, and a snapshot to be fetched.
const settled = 15 * time.Second

func (k *progressCheck) applied(n *raftNode, _ kafka.Offset, _ kafka.LeaderEpoch, value []byte) {
	if k.c.calm && value != nil {
		k.calmCommit++
	}
}

func (k *progressCheck) claimed(n *raftNode, epoch kafka.LeaderEpoch) {
	s := n.replica.Status()
	if s.Role == raft.Leader && s.Epoch == epoch && n.state.next <= s.EpochStart {
		k.c.w.Fail("K10", "the controller of node %d begins epoch %d with records up to %d, the epoch begins at %d", n.id, epoch, n.state.next, s.EpochStart)
	}
	k.c.Stats["claims"]++
}

func (k *progressCheck) observe(n *raftNode, s raft.Status) {
	if s.Role == raft.Leader && (n.role.Role != raft.Leader || n.role.Epoch != s.Epoch) && k.c.calm &&
		k.c.w.Now.Sub(start) > k.c.cfg.Chaos+settled {
		k.c.w.Fail("K11", "node %d is elected in epoch %d, long after all faults ended", n.id, s.Epoch)
	}
}

func (k *progressCheck) end() {
	l := k.c.leader()
	if l == nil {
		k.c.w.Fail("K11", "no leader after healing")
		return
	}
	if k.calmCommit == 0 {
		k.c.w.Fail("K11", "nothing was committed after healing")
	}
	for _, n := range k.c.nodes {
		if n.state != l.state || n.hw != l.role.LogEnd || n.role.Epoch != l.role.Epoch {
			k.c.w.Fail("K11", "node %d (epoch %d, applied %d, hw %d) is behind leader %d (epoch %d, applied %d, log end %d)",
				n.id, n.role.Epoch, n.state.next, n.hw, l.id, l.role.Epoch, l.state.next, l.role.LogEnd)
		}
	}
}
