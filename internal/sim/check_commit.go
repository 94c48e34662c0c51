package sim

import (
	"slices"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raft"
)

// commitCheck: all nodes apply the same record at the same offset (K4); high watermarks never fall while a node lives
// (K5); one that a leader moves is on the disks of a majority of its voters, and reaches into its epoch (K6).
type commitCheck struct {
	noCheck
	c  *RaftCluster
	of map[kafka.Offset]committed
}

type committed struct {
	epoch kafka.LeaderEpoch
	// sum is of all records up to this one.
	sum uint64
	// in is an epoch in which it was committed, or a later one: that of the first node that applied it. Leaders of still
	// later epochs must have it; one that is elected in an earlier epoch, too late to matter, need not.
	in kafka.LeaderEpoch
}

func newCommitCheck(c *RaftCluster) *commitCheck {
	return &commitCheck{c: c, of: make(map[kafka.Offset]committed)}
}

func (k *commitCheck) applied(n *raftNode, offset kafka.Offset, epoch kafka.LeaderEpoch, _ []byte) {
	if was, ok := k.of[offset]; ok {
		if was.epoch != epoch || was.sum != n.state.sum {
			k.c.w.Fail("K4", "node %d applied at offset %d a record of epoch %d; another applied one of epoch %d, or they differ before", n.id, offset, epoch, was.epoch)
		}
		return
	}
	is := committed{epoch: epoch, sum: n.state.sum, in: epoch}
	if n.replica != nil {
		is.in = n.replica.Status().Epoch
	}
	k.of[offset] = is
}

func (k *commitCheck) observe(n *raftNode, s raft.Status) {
	if s.HighWatermark < n.hw {
		k.c.w.Fail("K5", "the high watermark of node %d fell from %d to %d", n.id, n.hw, s.HighWatermark)
	}
	moved := s.HighWatermark > n.hw
	n.hw = s.HighWatermark
	if !moved || s.Role != raft.Leader || n.role.Role != raft.Leader || n.role.Epoch != s.Epoch {
		return
	}
	if s.HighWatermark <= s.EpochStart {
		k.c.w.Fail("K6", "leader %d of epoch %d, which begins at %d, moves the high watermark to %d", n.id, s.Epoch, s.EpochStart, s.HighWatermark)
	}
	want, ok := entryAt(n.log.entries, s.HighWatermark-1)
	if !ok {
		k.c.w.Fail("K6", "leader %d has no record below its high watermark %d", n.id, s.HighWatermark)
		return
	}
	have := 0
	for _, v := range s.Voters.Voters() {
		m := k.c.node(v.Key.ID)
		if m.log == nil {
			continue
		}
		e, ok := entryAt(m.durable, s.HighWatermark-1)
		if ok && e.epoch == want.epoch || m.log.StartOffset() >= s.HighWatermark {
			have++
		}
	}
	if have <= s.Voters.Len()/2 {
		k.c.w.Fail("K6", "leader %d commits up to %d of epoch %d, which %d of %d voters have on disk", n.id, s.HighWatermark, want.epoch, have, s.Voters.Len())
	}
}

func entryAt(entries []entry, offset kafka.Offset) (entry, bool) {
	i, _ := slices.BinarySearchFunc(entries, offset, func(e entry, o kafka.Offset) int {
		if e.last < o {
			return -1
		}
		return 1
	})
	if i < len(entries) && entries[i].base <= offset {
		return entries[i], true
	}
	return entry{}, false
}
