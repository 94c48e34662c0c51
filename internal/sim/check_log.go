package sim

import (
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raft"
)

// logCheck: two logs with a batch of the same offset and epoch are equal up to there (K2); a leader has all that was
// committed before it (K3); what is committed is never truncated (K5); what was synced survives (S1).
type logCheck struct {
	noCheck
	c     *RaftCluster
	known map[place]batchSeen
}

type place struct {
	base  kafka.Offset
	epoch kafka.LeaderEpoch
}

type batchSeen struct {
	last kafka.Offset
	sum  uint64
	// before is the epoch of the batch before, -1 if that is not known. With equal batches at equal places and equal
	// epochs before, logs are equal by induction.
	before kafka.LeaderEpoch
}

func newLogCheck(c *RaftCluster) *logCheck {
	return &logCheck{c: c, known: make(map[place]batchSeen)}
}

// appended is called for each batch that gets into a log.
func (k *logCheck) appended(n *raftNode, e entry, before kafka.LeaderEpoch) {
	at := place{e.base, e.epoch}
	is := batchSeen{e.last, e.sum, before}
	was, ok := k.known[at]
	if ok && (was.last != is.last || was.sum != is.sum || was.before >= 0 && before >= 0 && was.before != before) {
		k.c.w.Fail("K2", "node %d has another batch at offset %d of epoch %d: %+v, not %+v", n.id, e.base, e.epoch, is, was)
	}
	if !ok || was.before < 0 {
		k.known[at] = is
	}
}

func (k *logCheck) observe(n *raftNode, s raft.Status) {
	if s.Role != raft.Leader || n.role.Role == raft.Leader && n.role.Epoch == s.Epoch {
		return
	}
	at := n.log.StartOffset()
	end := n.log.EndOffset()
	for o := at; ; o++ {
		c, ok := k.c.commits().of[o]
		if !ok {
			return
		}
		if c.in >= s.Epoch {
			continue
		}
		if o >= end {
			k.c.w.Fail("K3", "the log of leader %d of epoch %d ends at %d, offset %d is committed in epoch %d", n.id, s.Epoch, end, o, c.in)
			return
		}
		if e, ok := entryAt(n.log.entries, o); !ok || e.epoch != c.epoch {
			k.c.w.Fail("K3", "leader %d of epoch %d has at offset %d epoch %d, committed in epoch %d is one of %d", n.id, s.Epoch, o, e.epoch, c.in, c.epoch)
			return
		}
	}
}

func (k *logCheck) truncated(n *raftNode, end kafka.Offset) {
	if end < n.hw {
		k.c.w.Fail("K5", "node %d truncates to %d, below its high watermark %d", n.id, end, n.hw)
	}
	committed := k.c.commits().of
	for _, e := range n.log.entries {
		if e.last < end {
			continue
		}
		if c, ok := committed[e.base]; ok && c.epoch == e.epoch {
			k.c.w.Fail("K5", "node %d truncates to %d and loses offset %d of epoch %d, which is committed", n.id, end, e.base, e.epoch)
		}
	}
}

// recovered compares the log after a start with what was durable before. It may begin earlier: with a whole segment.
func (k *logCheck) recovered(n *raftNode) {
	if len(n.durable) == 0 {
		return
	}
	i := 0
	for i < len(n.log.entries) && n.log.entries[i].last < n.durable[0].base {
		i++
	}
	for j, e := range n.durable {
		if i+j >= len(n.log.entries) || n.log.entries[i+j] != e {
			k.c.w.Fail("S1", "node %d lost the synced batch at offset %d of epoch %d; it has %d..%d", n.id, e.base, e.epoch, n.log.StartOffset(), n.log.EndOffset())
			return
		}
	}
}
