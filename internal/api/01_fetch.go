package api

// Fetch, versions 4 to 18 (KIP-98 isolation, 227 sessions, 392, 320 and 595 epochs, 516 topic ids, 903, 951, 1166).
//
// A fetch looks at its partitions once and is answered if that gives enough bytes, an error, or if it doesn't want to wait.
// Else it watches them and looks again when the watch says that enough may be there, or when its time is over.

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/replica"
	"github.com/highwater/highwater/internal/rpc"
	"github.com/highwater/highwater/internal/storage"
)

var errFetch = errors.New("cannot decode Fetch")

// records is a storage.Slice that gives itself back to a pool: one for each partition of an answer.
type records struct{ storage.Slice }

var recordsPool = sync.Pool{New: func() any { return new(records) }}

// Release implements rpc.Source.
func (s *records) Release() {
	s.Slice.Release()
	recordsPool.Put(s)
}

// fetchCall is one Fetch request, pooled.
type fetchCall struct {
	broker  *Broker
	req     *FetchRequest
	resp    *FetchResponse
	session *FetchContext
	reader  replica.Reader
	version int16
	maxSize int // bytes in the answer
	minSize int

	// Of one look at the partitions:
	size   int
	urgent bool                // there is something that must be told at once
	seen   []*SessionPartition // in the order of the response
	open   []fetchWait
	absent []absentPartition // told last, as in Kafka: ids that are unknown, then partitions
}

// absentPartition is one that the cluster doesn't have.
type absentPartition struct {
	*SessionPartition
	err error
}

// fetchWait is a partition that had less than was asked for.
type fetchWait struct {
	replica *replica.Replica
	offset  kafka.Offset
	epoch   kafka.LeaderEpoch
	max     int
}

var fetchCalls = sync.Pool{New: func() any { return new(fetchCall) }}

func (c *fetchCall) put() {
	c.session.Put()
	c.resp.Put()
	c.req.Put()
	clear(c.open)
	clear(c.seen)
	clear(c.absent)
	*c = fetchCall{open: c.open[:0], seen: c.seen[:0], absent: c.absent[:0]}
	fetchCalls.Put(c)
}

// Fetch answers API 1 on a broker's listener.
func (b *Broker) Fetch(r *rpc.Request) *rpc.Pending {
	req := GetFetchRequest()
	if !req.Decode(r.Body, r.Version, b.Replicas().Intern) {
		req.Put()
		r.Response.Fail = errFetch
		return nil
	}
	follower := req.ReplicaID >= 0
	c := fetchCalls.Get().(*fetchCall)
	c.broker, c.req, c.version, c.resp = b, req, r.Version, GetFetchResponse()
	c.reader = replica.Reader{Follower: -1, FollowerEpoch: -1, Committed: req.Isolation == 1, AnyReplica: r.Version >= 11}
	if follower {
		c.reader = replica.Reader{Follower: req.ReplicaID, FollowerEpoch: req.ReplicaEpoch}
	}
	c.maxSize = int(req.MaxBytes)
	if !follower {
		c.maxSize = min(c.maxSize, b.Limits.FetchMaxBytes)
	}
	c.minSize = min(int(req.MinBytes), c.maxSize)
	c.session = b.Sessions.Begin(r.Received, r.Version, req, follower)
	if c.session.Err() != nil {
		c.answer(r)
		return nil
	}
	quiet := c.minSize <= 1 && !c.reader.Committed
	n := c.look(r.Received, quiet)
	if req.MaxWaitMs <= 0 || n == 0 || c.size >= c.minSize || c.urgent {
		c.answer(r)
		return nil
	}
	c.forget()
	return c.wait(r.Received.Add(time.Duration(req.MaxWaitMs)*time.Millisecond), quiet)
}

// look reads every partition into the response and returns how many there are.
func (c *fetchCall) look(now time.Time, quiet bool) (n int) {
	c.resp.Reset()
	c.size, c.urgent, c.open, c.seen, c.absent = 0, false, c.open[:0], c.seen[:0], c.absent[:0]
	left, minOne := c.maxSize, true
	valid := c.session.Each(func(p *SessionPartition) {
		n++
		rep, err := c.find(p, quiet)
		if code := kerr.Code(err); code == kerr.UnknownTopicID.Code || code == kerr.UnknownTopicOrPartition.Code {
			p.More = false
			c.absent = append(c.absent, absentPartition{p, err})
			return
		}
		c.seen = append(c.seen, p)
		q := c.resp.Add(p.Topic, p.TopicID, p.Partition)
		read, more := c.read(now, rep, err, p, q, left, minOne)
		p.More = more
		if read > 0 {
			minOne = false
			left = max(0, left-read)
			c.size += read
		}
	})
	c.tellAbsent(kerr.UnknownTopicID.Code)
	c.tellAbsent(kerr.UnknownTopicOrPartition.Code)
	if !valid {
		c.urgent = true
	}
	if c.session.InSession() && n == 0 {
		n = 1 // all are quiet; that is no reason to answer
	}
	return n
}

// tellAbsent adds the partitions that the cluster doesn't have, for one of the reasons.
func (c *fetchCall) tellAbsent(code int16) {
	for _, p := range c.absent {
		if kerr.Code(p.err) != code {
			continue
		}
		c.seen = append(c.seen, p.SessionPartition)
		q := c.resp.Add(p.Topic, p.TopicID, p.Partition)
		c.fail(p.SessionPartition, q, p.err)
		q.AbortedTransactions = noAborted
	}
}

// read fills one partition's answer, err telling why it has no replica here. more tells that records were left out because the answer was full.
func (c *fetchCall) read(now time.Time, rep *replica.Replica, err error, p *SessionPartition, q *FetchPartitionResponse, left int, minOne bool) (size int, more bool) {
	q.HighWatermark = kafka.NoOffset
	if err != nil {
		c.fail(p, q, err)
		return 0, false
	}
	var out replica.Read
	err = rep.Read(now, c.reader, replica.ReadRequest{
		Offset: p.FetchOffset, MaxBytes: min(int(p.MaxBytes), left), MinOneBatch: minOne, LeaderEpoch: p.CurrentLeaderEpoch,
		LastFetchedEpoch: p.LastFetchedEpoch, LogStart: p.LogStartOffset,
	}, &out)
	if err != nil {
		c.fail(p, q, err)
		return 0, false
	}
	q.HighWatermark, q.LastStableOffset, q.LogStartOffset = out.HighWatermark, out.LastStableOffset, out.LogStart
	if out.Diverging {
		q.DivergingEpoch, q.DivergingEndOffset = out.DivergingEpoch, out.DivergingEnd
		c.urgent = true
		return 0, false
	}
	if c.reader.Follower >= 0 && out.HighWatermark > p.HighWatermark {
		c.urgent = true // the follower doesn't know yet what is committed (KIP-1166)
	}
	switch {
	case out.Records.FirstEntryIncomplete:
		out.Records.Release()
		more = true
	case out.Records.Len() > 0:
		s := recordsPool.Get().(*records)
		s.Slice = out.Records
		q.Source, size = s, s.Len()
		more = size >= left
	default:
		out.Records.Release()
		more = left == 0
	}
	if c.reader.Committed {
		if q.AbortedTransactions == nil {
			q.AbortedTransactions = noAborted
		}
		if size > 0 {
			s := q.Source.(*records)
			if q.AbortedTransactions, err = out.Log.AbortedTxns(nil, &s.Slice); err != nil {
				q.Source.Release()
				q.Source = nil
				c.fail(p, q, kerr.KafkaStorageError)
				return 0, false
			}
			if q.AbortedTransactions == nil {
				q.AbortedTransactions = noAborted
			}
		}
	}
	c.open = append(c.open, fetchWait{rep, p.FetchOffset, p.CurrentLeaderEpoch, int(p.MaxBytes)})
	return size, more
}

var noAborted = []storage.AbortedTxn{}

// find is the partition's replica. In a session it is found once and watched from then on.
func (c *fetchCall) find(p *SessionPartition, quiet bool) (*replica.Replica, error) {
	if rep, ok := p.Handle.(*replica.Replica); ok && !rep.Stopped() {
		p.Quiet = quiet
		return rep, nil
	}
	if p.Close != nil {
		p.Close()
		p.Close = nil
	}
	p.Handle, p.Quiet = nil, false
	var rep *replica.Replica
	var err error
	if c.version >= 13 {
		rep, err = c.broker.Replicas().LookupID(p.TopicID, p.Partition)
	} else {
		rep, err = c.broker.Replicas().Lookup(p.Topic, p.Partition)
	}
	if err != nil {
		return nil, err
	}
	if p.InSession() {
		w := &replica.Watch{Notify: p.Touch, Log: c.reader.Follower >= 0}
		rep.Watch(w)
		p.Handle, p.Quiet, p.Close = rep, quiet, w.Unwatch
	}
	return rep, nil
}

func (c *fetchCall) fail(p *SessionPartition, q *FetchPartitionResponse, err error) {
	c.urgent = true
	q.ErrorCode = kerr.Code(err)
	q.HighWatermark, q.LastStableOffset, q.LogStartOffset = kafka.NoOffset, kafka.NoOffset, kafka.NoOffset
	if c.version >= 16 && (q.ErrorCode == kerr.NotLeaderOrFollower.Code || q.ErrorCode == kerr.FencedLeaderEpoch.Code) {
		q.LeaderID, q.LeaderEpoch = c.broker.currentLeader(p.Topic, p.TopicID, p.Partition)
	}
}

// forget gives back what a look has opened.
func (c *fetchCall) forget() {
	for i := range c.resp.Topics {
		for j := range c.resp.Topics[i].Partitions {
			if q := &c.resp.Topics[i].Partitions[j]; q.Source != nil {
				q.Source.Release()
				q.Source = nil
			}
		}
	}
}

// answer builds the response from the last look.
func (c *fetchCall) answer(r *rpc.Request) {
	c.session.Filter(c.seen, c.resp)
	if c.version >= 16 && c.reader.Follower < 0 { // followers know where brokers are
		for i := range c.resp.Topics {
			for j := range c.resp.Topics[i].Partitions {
				if q := &c.resp.Topics[i].Partitions[j]; q.LeaderID != kafka.NoBroker {
					c.resp.NodeEndpoints = c.broker.addEndpoint(c.resp.NodeEndpoints, r.Conn.Listener, q.LeaderID)
				}
			}
		}
	}
	c.session.Finish(r.Received, c.resp)
	c.resp.AppendTo(&r.Response, r.Version)
	c.put()
}

// fetchWaiter watches partitions for a fetch. It is not pooled: who was told of it may call check after the end.
type fetchWaiter struct {
	pending *rpc.Pending
	reader  replica.Reader
	minSize int
	open    []fetchWait
	watches []replica.Watch
	done    atomic.Bool
}

// wait lets the answer wait for news.
func (c *fetchCall) wait(deadline time.Time, quiet bool) *rpc.Pending {
	p := &rpc.Pending{Deadline: deadline}
	w := &fetchWaiter{pending: p, reader: c.reader, minSize: c.minSize}
	p.Finish = func(r *rpc.Request, expired bool) {
		w.end()
		c.session.Wake(nil)
		c.look(r.Now, quiet)
		c.answer(r)
	}
	p.Abandon = func() {
		w.end()
		c.session.Wake(nil)
	}
	if quiet && c.session.InSession() {
		c.session.Wake(p.Complete) // the partitions of the session are watched anyhow
		return p
	}
	w.open = slices.Clone(c.open)
	w.watches = make([]replica.Watch, len(w.open))
	for i := range w.watches {
		w.watches[i] = replica.Watch{Notify: w.check, Log: c.reader.Follower >= 0}
		w.open[i].replica.Watch(&w.watches[i])
	}
	w.check() // what came between the look and the watch
	return p
}

func (w *fetchWaiter) end() {
	w.done.Store(true)
	for i := range w.watches {
		w.watches[i].Unwatch()
	}
}

// check ends the wait if enough is there. It runs on the goroutine of whoever brought the news.
func (w *fetchWaiter) check() {
	if w.done.Load() {
		return
	}
	n := 0
	for _, o := range w.open {
		n += o.replica.Available(w.reader, o.offset, o.epoch, o.max)
		if n >= w.minSize {
			w.pending.Complete()
			return
		}
	}
}
