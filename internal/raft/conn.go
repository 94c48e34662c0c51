package raft

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// conn is what is under way to one node: at most one request, as Kafka does it.
type conn struct {
	node Node
	corr uint64 // 0 if nothing is under way
	msg  kmsg.Request
	// until is when the request under way times out or, with corr 0, when the backoff ends.
	until time.Time
}

func (r *Raft) conn(n Node) *conn {
	for i := range r.conns {
		if r.conns[i].node == n {
			return &r.conns[i]
		}
	}
	r.conns = append(r.conns, conn{node: n})
	return &r.conns[len(r.conns)-1]
}

// send sends a request unless another is under way to that node or it is backing off.
func (r *Raft) send(now time.Time, n Node, make func() kmsg.Request) bool {
	c := r.conn(n)
	if now.Before(c.until) {
		r.at(c.until)
		return false
	}
	r.corr++
	c.corr, c.msg, c.until = r.corr, make(), now.Add(r.cfg.RequestTimeout)
	r.ready.Send = append(r.ready.Send, Send{Corr: c.corr, To: n, Msg: c.msg, Timeout: r.cfg.RequestTimeout})
	r.at(c.until)
	return true
}

// connBackingOff tells whether n is not to be asked now because its last answer was an error.
func (r *Raft) connBackingOff(now time.Time, n Node) bool {
	c := r.conn(n)
	if c.corr == 0 && now.Before(c.until) {
		r.at(c.until)
		return true
	}
	return false
}

// answered takes the request out that a response belongs to; ok is false for one that is no longer awaited.
func (r *Raft) answered(corr uint64) (n Node, msg kmsg.Request, ok bool) {
	for i := range r.conns {
		if c := &r.conns[i]; c.corr == corr && corr != 0 {
			n, msg = c.node, c.msg
			c.corr, c.msg, c.until = 0, nil, time.Time{}
			return n, msg, true
		}
	}
	return Node{}, nil, false
}

func (r *Raft) backOff(now time.Time, n Node) {
	c := r.conn(n)
	if c.corr == 0 {
		c.until = now.Add(r.cfg.RetryBackoff)
	}
}

// resetConns forgets what is under way: with another role or epoch the answers are of no use. Answers that still come
// are dropped.
func (r *Raft) resetConns() {
	if r.cfg.Mutant != StaleElectionResponse {
		r.conns = r.conns[:0]
	}
}
