package sim

import (
	"slices"

	"github.com/highwater/highwater/internal/raft"
)

// votersCheck: each change of the voter set adds, removes or renews one voter, and begins only when the one before is
// committed (K8). Raising kraft.version changes none.
type votersCheck struct {
	noCheck
	c *RaftCluster
}

func newVotersCheck(c *RaftCluster) *votersCheck { return &votersCheck{c: c} }

func (k *votersCheck) observe(n *raftNode, s raft.Status) {
	was := n.role
	if s.Role != raft.Leader || was.Role != raft.Leader || s.Epoch != was.Epoch || s.VotersOffset == was.VotersOffset {
		return
	}
	k.c.Stats["voter sets"]++
	if was.KRaftVersion == 0 && s.KRaftVersion > 0 { // they move from everybody's configuration into the log, the same ones
		k.c.Stats["kraft.version raised"]++
		if !slices.EqualFunc(was.Voters.Voters(), s.Voters.Voters(), func(a, b raft.Voter) bool { return a.Key.Matches(b.Key) }) {
			k.c.w.Fail("K8", "leader %d raises kraft.version and changes the voters from %v to %v", n.id, was.Voters, s.Voters)
		}
		return
	}
	if was.VotersOffset >= max(was.HighWatermark, s.HighWatermark) && s.VotersOffset != s.EpochStart+2 {
		k.c.w.Fail("K8", "leader %d changes the voters at %d while those at %d are not committed", n.id, s.VotersOffset, was.VotersOffset)
	}
	if d := difference(was.Voters, s.Voters) + difference(s.Voters, was.Voters); d > 1 {
		k.c.w.Fail("K8", "leader %d changes the voters from %v to %v at once", n.id, was.Voters, s.Voters)
	}
}

// difference is how many voters of a are not in b.
func difference(a, b raft.VoterSet) int {
	d := 0
	for _, v := range a.Voters() {
		if !b.Contains(v.Key) {
			d++
		}
	}
	return d
}
