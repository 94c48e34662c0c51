package controller

import (
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/schema"
)

// maxElections is how many leaders one periodic decision moves; Kafka's. What is left is done at once after it.
const maxElections = 1000

// periodic is when the decisions that nobody asks for are due; zero is never.
type periodic struct {
	noOp, fence, balance, unclean time.Time
}

func (p *periodic) begin(o *Options, now time.Time) {
	p.noOp = after(now, o.MaxIdleInterval)
	p.fence = after(now, o.SessionTimeout/8)
	p.balance = after(now, o.LeaderImbalanceCheckInterval)
	p.unclean = after(now, o.UncleanElectionCheckInterval)
}

func after(now time.Time, d time.Duration) time.Time {
	if d <= 0 {
		return time.Time{}
	}
	return now.Add(d)
}

// Deadline is when Tick must be called, even if nothing else happens; zero is never.
func (c *Controller) Deadline() time.Time {
	var at time.Time
	for _, t := range []time.Time{c.periodic.noOp, c.periodic.fence, c.periodic.balance, c.periodic.unclean} {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	return at
}

// Tick takes the decision that has been due longest, if any is. Its Result has no Response. Call it again until Deadline
// is in the future.
//
// A no-op record keeps the log moving when nothing happens, so that brokers and controllers see that they are current.
// Silent brokers are fenced one at a time, as in Kafka: when all are silent it is likely this node that was. Leaderships
// go back to preferred replicas, and partitions without a leader get one where that is allowed to cost records.
func (c *Controller) Tick(now time.Time) Result {
	p := &c.periodic
	due := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	switch {
	case due(p.fence):
		id, stale := c.heart.stale(c.Image(), c.opt.SessionTimeout, now)
		p.fence = after(now, c.opt.SessionTimeout/8)
		if !stale {
			return Result{}
		}
		p.fence = now // the next one at once
		return Result{Records: c.fenceBroker(nil, c.registration(id))}
	case due(p.noOp):
		p.noOp = after(now, c.opt.MaxIdleInterval)
		return Result{Records: []Record{{&schema.NoOpRecord{}, 0}}}
	case due(p.balance):
		records, more := c.elections(func(t *metadata.Topic, q *metadata.Partition) (election, bool) {
			return electPreferred, q.Leader != q.PreferredLeader()
		})
		p.balance = after(now, c.opt.LeaderImbalanceCheckInterval)
		if more {
			p.balance = now
		}
		return Result{Records: records}
	case due(p.unclean):
		records, more := c.elections(func(t *metadata.Topic, q *metadata.Partition) (election, bool) {
			return electUnclean, q.Leader == kafka.NoBroker && c.uncleanElection(t.Name)
		})
		p.unclean = after(now, c.opt.UncleanElectionCheckInterval)
		if more {
			p.unclean = now
		}
		return Result{Records: records}
	}
	return Result{}
}

// elections tries an election for each partition that wants one. more tells that it stopped at maxElections.
func (c *Controller) elections(wants func(*metadata.Topic, *metadata.Partition) (election, bool)) (records []Record, more bool) {
	for t := range c.Image().Topics() {
		for id, p := range t.Partitions() {
			kind, yes := wants(t, &p)
			if !yes {
				continue
			}
			if r := c.elect(t, id, &p, kind); r != nil {
				if records = append(records, c.version(r)); len(records) == maxElections {
					return records, true
				}
			}
		}
	}
	return records, false
}
