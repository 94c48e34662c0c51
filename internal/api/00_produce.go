package api

// Produce, versions 3 to 13 (KIP-98, 82 log append time, 467 record errors, 951 leaders, 890 transactions, 516 topic ids).
//
// Stage one, in request order: decode, find the replica, validate, append. With acks=all the answer waits in stage two for
// the high watermark, while the connection goes on with its next request.

import (
	"errors"
	"sync"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/replica"
	"github.com/highwater/highwater/internal/rpc"
)

var errProduce = errors.New("cannot decode Produce")

// adminClientID is the client that may produce to internal topics.
const adminClientID = "__admin_client"

// produceCall is a Produce request that may wait. It is pooled, and not given back if it timed out: replicas refer to it, and
// even when all is settled by then, who settled it last may not be done with it.
type produceCall struct {
	*Produce
	broker  *Broker
	acks    replica.Acks
	acked   []*replica.Ack // for each partition in order, nil where there is nothing to wait for
	pending *rpc.Pending
	wake    func()                             // completes pending
	finish  func(r *rpc.Request, expired bool) // stage two; as wake made once, not for each call
	check   record.Options                     // kept here because Validate lets it escape
}

var produceCalls = sync.Pool{New: func() any { return new(produceCall) }}

func getProduceCall(b *Broker) *produceCall {
	c := produceCalls.Get().(*produceCall)
	c.Produce, c.broker = GetProduce(), b
	if c.wake == nil {
		c.wake = func() { c.pending.Complete() }
		c.finish = func(r *rpc.Request, expired bool) {
			c.settle(r)
			r.Response.Buf = c.AppendResponse(r.Response.Buf, r.Version)
			if !expired {
				c.put()
			}
		}
	}
	return c
}

func (c *produceCall) put() {
	c.Produce.Put()
	c.Produce, c.broker, c.pending = nil, nil, nil
	clear(c.acked)
	c.acked = c.acked[:0]
	produceCalls.Put(c)
}

// Produce answers API 0.
func (b *Broker) Produce(r *rpc.Request) *rpc.Pending {
	c := getProduceCall(b)
	if !c.Decode(r.Body, r.Version, b.Replicas().Intern) {
		c.put()
		r.Response.Fail = errProduce
		return nil
	}
	n := 0
	for i := range c.Topics {
		n += len(c.Topics[i].Partitions)
	}
	refused := b.refuse(c)
	failed := refused
	if c.Acks == -1 {
		c.acks.Reset(n, c.wake)
	}
	for i := range c.Topics {
		if refused {
			break
		}
		t := &c.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			if err := b.append(r, c, t, p); err != nil {
				failed = true
				b.produceError(r, c, t, p, err)
			}
		}
	}
	if c.Acks == 0 {
		// There is no answer that could tell of an error: closing makes the producer look again at its metadata.
		r.Response.None, r.Response.Close = true, failed
		c.put()
		return nil
	}
	if c.Acks == -1 {
		if c.acks.Outstanding() > 0 {
			c.pending = &rpc.Pending{Deadline: r.Received.Add(time.Duration(max(c.TimeoutMs, 0)) * time.Millisecond), Finish: c.finish}
			p := c.pending // when Seal says no, c may be somebody else's at once
			if !c.acks.Seal() {
				return p
			}
		}
		c.settle(r)
	}
	r.Response.Buf = c.AppendResponse(r.Response.Buf, r.Version)
	c.put()
	return nil
}

// settle fills in what became of the acks; those that are open count as timed out. The offsets of the append stay, as in Kafka.
func (c *produceCall) settle(r *rpc.Request) {
	k := 0
	for i := range c.Topics {
		t := &c.Topics[i]
		for j := range t.Partitions {
			ack := c.acked[k]
			k++
			if ack == nil {
				continue
			}
			settled, err := ack.Result()
			if !settled {
				err = kerr.RequestTimedOut
			}
			if err != nil {
				c.broker.produceError(r, c, t, &t.Partitions[j], err)
			}
		}
	}
}

// refuse refuses a request as a whole, as Kafka does if a partition's first batch cannot be read, or is transactional
// without a transactional id.
func (b *Broker) refuse(c *produceCall) bool {
	var err error
	for i := range c.Topics {
		for j := range c.Topics[i].Partitions {
			transactional, e := record.Transactional(c.Topics[i].Partitions[j].Records)
			if e != nil {
				err = e
			} else if transactional && !c.HasTransactionalID {
				err = kerr.TransactionalIDAuthorizationFailed
			}
			if err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	if err == nil {
		return false
	}
	var k *kerr.Error
	for i := range c.Topics {
		for j := range c.Topics[i].Partitions {
			p := &c.Topics[i].Partitions[j]
			p.ErrorCode = kerr.Code(err)
			if errors.As(err, &k) && k.Text != "" {
				p.ErrorMessage = &k.Text
			}
			if c.Acks == -1 {
				c.acked = append(c.acked, nil)
			}
		}
	}
	return true
}

func (b *Broker) append(r *rpc.Request, c *produceCall, t *ProduceTopic, p *ProducePartition) error {
	var ack *replica.Ack
	if c.Acks == -1 {
		c.acked = append(c.acked, nil)
	}
	var rep *replica.Replica
	var err error
	if r.Version >= 13 {
		rep, err = b.Replicas().LookupID(t.ID, p.Index)
	} else {
		rep, err = b.Replicas().Lookup(t.Name, p.Index)
	}
	switch {
	case err != nil:
		return err
	case c.Acks < -1 || c.Acks > 1:
		return kerr.InvalidRequiredAcks
	case kafka.IsInternalTopic(rep.Partition().Topic) && r.ClientID != adminClientID:
		return kerr.InvalidTopicException.With("Cannot append to internal topic %s", rep.Partition().Topic)
	}
	if err := record.CheckProduce(r.Version, p.Records); err != nil {
		return err
	}
	c.check = rep.Log().Config().Validation(rep.Partition(), record.Client, r.Received)
	v, err := record.Validate(p.Records, &c.check)
	if err != nil {
		return c.refused(rep, p, err)
	}
	defer v.Release()
	for i := range v.Batches {
		if v.Batches[i].Transactional {
			return explained{kerr.InvalidTxnState.With("The transaction coordinator knows no transaction of this producer")}
		}
	}
	if c.Acks == -1 {
		ack = c.acks.Add()
		c.acked[len(c.acked)-1] = ack
	}
	a, err := rep.Append(r.Received, v, replica.AppendOptions{Acks: c.Acks, Origin: record.Client, Epoch: kafka.NoLeaderEpoch}, ack)
	if err != nil {
		if ack != nil {
			c.acks.Drop(ack)
			c.acked[len(c.acked)-1] = nil
		}
		return c.refused(rep, p, err)
	}
	p.BaseOffset, p.LogAppendTime, p.LogStartOffset = a.FirstOffset, a.LogAppendTime, a.LogStartOffset
	return nil
}

// refused notes where the log starts, which Kafka tells with the errors of an append but these.
func (c *produceCall) refused(rep *replica.Replica, p *ProducePartition, err error) error {
	switch kerr.Code(err) {
	case kerr.CorruptMessage.Code, kerr.UnknownTopicOrPartition.Code, kerr.NotLeaderOrFollower.Code, kerr.MessageTooLarge.Code, kerr.RecordListTooLarge.Code, kerr.KafkaStorageError.Code:
	default:
		p.LogStartOffset = rep.Log().StartOffset()
	}
	return err
}

// explained is an error whose text the producer is told. Kafka tells none but these and those of single records.
type explained struct{ error }

func (e explained) Unwrap() error { return e.error }

// produceError tells a partition's error: which records were refused, and from version 10 on whom to ask instead.
func (b *Broker) produceError(r *rpc.Request, c *produceCall, t *ProduceTopic, p *ProducePartition, err error) {
	p.ErrorCode = kerr.Code(err)
	var records *record.RecordErrors
	var told explained
	switch {
	case errors.As(err, &records):
		for _, e := range records.Records {
			p.RecordErrors = append(p.RecordErrors, RecordError{BatchIndex: e.Index, Message: &e.Message})
		}
		p.ErrorMessage = kerr.Message(records.Err)
	case errors.As(err, &told):
		p.ErrorMessage = kerr.Message(err)
	}
	if p.ErrorCode == kerr.NotLeaderOrFollower.Code && r.Version >= 10 {
		p.LeaderID, p.LeaderEpoch = b.currentLeader(t.Name, t.ID, p.Index)
		c.NodeEndpoints = b.addEndpoint(c.NodeEndpoints, r.Conn.Listener, p.LeaderID)
	}
}

// currentLeader is who leads a partition by the metadata; -1 and -1 if that isn't known.
func (b *Broker) currentLeader(name string, id kafka.TopicID, partition int32) (kafka.BrokerID, kafka.LeaderEpoch) {
	image := b.Image()
	t := image.Topic(name)
	if name == "" {
		t = image.TopicByID(id)
	}
	if t != nil {
		if p, ok := t.Partition(partition); ok {
			return p.Leader, p.LeaderEpoch
		}
	}
	return kafka.NoBroker, kafka.NoLeaderEpoch
}

// addEndpoint adds where a broker is found, once.
func (b *Broker) addEndpoint(nodes []NodeEndpoint, listener string, id kafka.BrokerID) []NodeEndpoint {
	for i := range nodes {
		if nodes[i].NodeID == id {
			return nodes
		}
	}
	n := b.Image().Broker(id)
	if n == nil || n.Fenced {
		return nodes
	}
	e, ok := n.Endpoint(listener)
	if !ok {
		return nodes
	}
	return append(nodes, NodeEndpoint{NodeID: id, Host: e.Host, Port: int32(e.Port), Rack: n.Rack})
}
