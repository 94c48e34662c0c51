package sim

import (
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raft"
	"github.com/highwater/highwater/internal/raftloop"
)

// snapshotCheck: a snapshot is the sum of what was committed below its end, under that record's epoch; a log that begins
// above 0 begins at a snapshot; a leader never loads one (K7).
type snapshotCheck struct {
	noCheck
	c      *RaftCluster
	starts map[kafka.BrokerID]kafka.Offset
}

func newSnapshotCheck(c *RaftCluster) *snapshotCheck {
	return &snapshotCheck{c: c, starts: make(map[kafka.BrokerID]kafka.Offset)}
}

func (k *snapshotCheck) loaded(n *raftNode, s *raftloop.SnapshotReader) {
	if n.replica != nil && n.replica.Status().Role == raft.Leader && n.role.Role == raft.Leader {
		k.c.w.Fail("K7", "leader %d loads snapshot %v", n.id, s.ID)
	}
	c, ok := k.c.commits().of[s.ID.Offset-1]
	if !ok || c.epoch != s.ID.Epoch || c.sum != n.state.sum || n.state.next != s.ID.Offset {
		k.c.w.Fail("K7", "node %d loads snapshot %v, which is not what was committed (%v: epoch %d)", n.id, s.ID, ok, c.epoch)
	}
}

func (k *snapshotCheck) observe(n *raftNode, s raft.Status) {
	if s.LogStart == k.starts[n.id] {
		return
	}
	k.starts[n.id] = s.LogStart
	k.c.Stats["log starts moved"]++
	if s.LogStart == 0 {
		return
	}
	entries, err := n.disk.List("data/" + kafka.ClusterMetadataTopic + "-0")
	if err != nil {
		k.c.w.Fail("S", "list node %d: %v", n.id, err)
		return
	}
	for _, e := range entries {
		if id, ok := raftloop.ParseSnapshotName(e.Name()); ok && id.Offset == s.LogStart {
			return
		}
	}
	k.c.w.Fail("K7", "the log of node %d starts at %d without a snapshot", n.id, s.LogStart)
}
