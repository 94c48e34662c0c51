package api

// DeleteRecords, versions 0 to 2 (KIP-107): moves the log starts of partitions up, and answers when all live replicas have.

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/replica"
	"github.com/highwater/highwater/internal/rpc"
)

// deletion is what becomes of one partition of a DeleteRecords request.
type deletion struct {
	topic     string
	partition int32
	replica   *replica.Replica
	ack       *replica.Ack
	low       kafka.Offset
	err       error
}

// DeleteRecords answers API 21.
func (b *Broker) DeleteRecords(r *rpc.Request) *rpc.Pending {
	var req kmsg.DeleteRecordsRequest
	if !decode(r, &req) {
		return nil
	}
	// Of a partition that is named twice the last offset counts, as in Kafka.
	var order []deletion
	at := make(map[kafka.TopicPartition]int)
	offsets := make(map[kafka.TopicPartition]kafka.Offset)
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			tp := kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			if _, twice := at[tp]; !twice {
				at[tp] = len(order)
				order = append(order, deletion{topic: t.Topic, partition: p.Partition, low: kafka.NoOffset})
			}
			offsets[tp] = p.Offset
		}
	}
	acks := new(replica.Acks)
	var p *rpc.Pending
	acks.Reset(len(order), func() { p.Complete() })
	for i := range order {
		d := &order[i]
		d.replica, d.err = b.deletable(d.topic, d.partition)
		if d.err != nil {
			continue
		}
		d.ack = acks.Add()
		d.low, d.err = d.replica.DeleteRecords(r.Received, offsets[kafka.TopicPartition{Topic: d.topic, Partition: d.partition}], d.ack)
		if d.err != nil {
			acks.Drop(d.ack)
			d.ack = nil
		}
	}
	p = &rpc.Pending{
		Deadline: r.Received.Add(time.Duration(max(req.TimeoutMillis, 0)) * time.Millisecond),
		Finish:   func(r *rpc.Request, _ bool) { answerDeletions(r, order) },
	}
	if acks.Seal() {
		answerDeletions(r, order)
		return nil
	}
	return p
}

// deletable finds a replica whose records may be deleted.
func (b *Broker) deletable(topic string, partition int32) (*replica.Replica, error) {
	if t := b.Image().Topic(topic); t == nil || !t.Has(partition) {
		return nil, kerr.UnknownTopicOrPartition
	}
	if kafka.IsInternalTopic(topic) {
		return nil, kerr.InvalidTopicException.With("Cannot delete records of internal topic %s", topic)
	}
	return b.Replicas().Lookup(topic, partition)
}

func answerDeletions(r *rpc.Request, order []deletion) {
	resp := kmsg.NewPtrDeleteRecordsResponse()
	topics := make(map[string]int)
	for i := range order {
		d := &order[i]
		d.settle()
		n, ok := topics[d.topic]
		if !ok {
			n = len(resp.Topics)
			topics[d.topic] = n
			rt := kmsg.NewDeleteRecordsResponseTopic()
			rt.Topic = d.topic
			resp.Topics = append(resp.Topics, rt)
		}
		rp := kmsg.NewDeleteRecordsResponseTopicPartition()
		rp.Partition, rp.LowWatermark, rp.ErrorCode = d.partition, d.low, kerr.Code(d.err)
		resp.Topics[n].Partitions = append(resp.Topics[n].Partitions, rp)
	}
	respond(r, resp)
}

// settle takes in what became of the wait for other replicas.
func (d *deletion) settle() {
	if d.ack == nil {
		return
	}
	settled, err := d.ack.Result()
	switch {
	case !settled:
		d.err = kerr.RequestTimedOut // what the low watermark was at first is told along
	case err != nil:
		d.low, d.err = kafka.NoOffset, err
	default:
		if low, err := d.replica.LowWatermark(); err == nil {
			d.low = low
		}
	}
}
