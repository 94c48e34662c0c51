package api

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/rpc"
)

// to is what one partition of a Produce request gets.
type to struct {
	topic     int // by id from version 13 on
	name      string
	partition int32
	records   []byte
}

func produceOf(version, acks int16, parts ...to) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(version)
	req.Acks, req.TimeoutMillis = acks, 1000
	for _, p := range parts {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != p.name {
			t := kmsg.NewProduceRequestTopic()
			t.Topic, t.TopicID = p.name, topicID(p.topic)
			req.Topics = append(req.Topics, t)
		}
		t := &req.Topics[len(req.Topics)-1]
		q := kmsg.NewProduceRequestTopicPartition()
		q.Partition, q.Records = p.partition, p.records
		t.Partitions = append(t.Partitions, q)
	}
	return req
}

func (w *world) produce(req *kmsg.ProduceRequest) *kmsg.ProduceResponse {
	w.t.Helper()
	return call(w, w.Produce, req, kmsg.NewPtrProduceResponse())
}

// Every version appends, and answers with the offset.
func TestProduceVersions(t *testing.T) {
	w := newWorld(t)
	w.topic(1, "a", 2, 1)
	for v := int16(3); v <= 13; v++ {
		for _, acks := range []int16{1, -1} {
			resp := w.produce(produceOf(v, acks, to{1, "a", 0, batchOf(t, "x", "y")}, to{1, "a", 1, batchOf(t, "z")}))
			if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 2 {
				t.Fatalf("version %d: %+v", v, resp)
			}
			n := int64(v-3)*2 + map[int16]int64{1: 0, -1: 1}[acks]
			for i, p := range resp.Topics[0].Partitions {
				if p.ErrorCode != 0 || p.Partition != int32(i) || p.BaseOffset != n*int64(2-i) || p.LogAppendTime != -1 || v >= 5 && p.LogStartOffset != 0 || p.ErrorMessage != nil {
					t.Errorf("version %d, acks %d: %+v", v, acks, p)
				}
			}
			if v >= 13 && resp.Topics[0].TopicID != topicID(1) || v < 13 && resp.Topics[0].Topic != "a" {
				t.Errorf("version %d: topic %q %x", v, resp.Topics[0].Topic, resp.Topics[0].TopicID)
			}
		}
	}
}

// acks=0 has no answer; an error closes the connection.
func TestProduceNoAcks(t *testing.T) {
	w := newWorld(t)
	w.topic(1, "a", 1, 1)
	f := func(part to, failed bool) {
		t.Helper()
		r, p := w.begin(w.Produce, produceOf(9, 0, part))
		if p != nil || !r.Response.None || r.Response.Close != failed || len(r.Response.Buf) != 0 || r.Response.Fail != nil {
			t.Errorf("%+v: %+v", part, r.Response)
		}
	}
	f(to{1, "a", 0, batchOf(t, "x")}, false)
	f(to{1, "a", 7, batchOf(t, "x")}, true)
	f(to{1, "b", 0, batchOf(t, "x")}, true)
	f(to{1, "a", 0, batchOf(t, "x")[:65]}, true)
}

// Refused partitions, each with its code, beside one that isn't.
func TestProduceErrors(t *testing.T) {
	w := newWorld(t)
	w.topic(1, "a", 3, 1)
	w.topic(2, "b", 1, 2)
	w.topic(3, "__consumer_offsets", 1, 1)
	w.topic(4, "small", 1, 1)
	w.lead(1, 2, 2) // moved to broker 2: epoch 1
	ok := to{1, "a", 0, batchOf(t, "x")}
	f := func(what string, version int16, part to, want *kerr.Error) kmsg.ProduceResponseTopicPartition {
		t.Helper()
		for _, acks := range []int16{1, -1} {
			resp := w.produce(produceOf(version, acks, part, ok))
			last := resp.Topics[len(resp.Topics)-1].Partitions
			if p := resp.Topics[0].Partitions[0]; p.ErrorCode != code(want) || p.BaseOffset != -1 || p.Partition != part.partition {
				t.Errorf("%s, acks %d: %+v, want %v", what, acks, p, want)
			}
			if p := last[len(last)-1]; p.ErrorCode != 0 || p.Partition != 0 {
				t.Errorf("%s, acks %d: the other partition: %+v", what, acks, p)
			}
		}
		return w.produce(produceOf(version, 1, part, ok)).Topics[0].Partitions[0]
	}
	one := batchOf(t, "x")
	f("no such partition", 9, to{1, "a", 9, one}, kerr.UnknownTopicOrPartition)
	f("no such topic", 9, to{9, "none", 0, one}, kerr.UnknownTopicOrPartition)
	f("no such id", 13, to{9, "none", 0, one}, kerr.UnknownTopicID)
	f("an internal topic", 9, to{3, "__consumer_offsets", 0, one}, kerr.InvalidTopicException)
	f("led elsewhere", 9, to{2, "b", 0, one}, kerr.NotLeaderOrFollower)
	for v := int16(10); v <= 13; v++ {
		for _, part := range []to{{2, "b", 0, one}, {1, "a", 2, one}} {
			req := produceOf(v, -1, part)
			resp := w.produce(req)
			p := resp.Topics[0].Partitions[0]
			if p.ErrorCode != kerr.NotLeaderOrFollower.Code || p.CurrentLeader.LeaderID != 2 || p.CurrentLeader.LeaderEpoch != part.partition/2 {
				t.Errorf("version %d: %+v", v, p)
			}
			if len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != 2 || resp.Brokers[0].Host != "host" || resp.Brokers[0].Port != 9002 {
				t.Errorf("version %d: endpoints %+v", v, resp.Brokers)
			}
		}
	}
	broken := batchOf(t, "x")
	broken[len(broken)-2] ^= 1
	f("a broken CRC", 9, to{1, "a", 1, broken}, kerr.CorruptMessage)
	w.produce(produceOf(9, 1, to{1, "a", 1, producerBatch(t, 5, 3, false, "x")}))
	f("a sequence gap", 9, to{1, "a", 1, producerBatch(t, 5, 9, false, "x")}, kerr.OutOfOrderSequenceNumber)
	if resp := w.produce(produceOf(9, 2, ok)); resp.Topics[0].Partitions[0].ErrorCode != kerr.InvalidRequiredAcks.Code {
		t.Errorf("acks=2: %+v", resp.Topics[0].Partitions[0])
	}

	// Single records that are refused are named.
	w.config.Log.Compact = true
	w.set.Configure(w.now, w.set.Image(), "small")
	p := f("records without keys", 8, to{4, "small", 0, batchOf(t, "x", "y")}, kerr.InvalidRecord)
	if len(p.ErrorRecords) != 2 || p.ErrorRecords[1].RelativeOffset != 1 || p.ErrorRecords[0].ErrorMessage == nil || p.ErrorMessage == nil {
		t.Errorf("records without keys: %+v", p)
	}

	// A client that is no admin may not write to internal topics; the admin may.
	r := w.request(produceOf(9, 1, to{3, "__consumer_offsets", 0, one}))
	r.ClientID = "__admin_client"
	w.Broker.Produce(r)
	if p := answer(t, r, kmsg.NewPtrProduceResponse()).Topics[0].Partitions[0]; p.ErrorCode != 0 {
		t.Errorf("the admin: %+v", p)
	}

	// A body that is none ends the connection.
	r = w.request(produceOf(9, 1, ok))
	r.Body = r.Body[:len(r.Body)-3]
	if p := w.Broker.Produce(r); p != nil || r.Response.Fail == nil {
		t.Error("a truncated body was answered")
	}
}

// Transactional batches are refused, whole requests without a transactional id.
func TestProduceTransactional(t *testing.T) {
	w := newWorld(t)
	w.topic(1, "a", 1, 1)
	part := to{1, "a", 0, producerBatch(t, 5, 0, true, "x")}
	if p := w.produce(produceOf(9, -1, part)).Topics[0].Partitions[0]; p.ErrorCode != kerr.TransactionalIDAuthorizationFailed.Code {
		t.Errorf("without a transactional id: %+v", p)
	}
	req := produceOf(9, -1, part)
	req.TransactionID = kmsg.StringPtr("id")
	if p := w.produce(req).Topics[0].Partitions[0]; p.ErrorCode != kerr.InvalidTxnState.Code {
		t.Errorf("with one: %+v", p)
	}
	if rep, _ := w.set.Lookup("a", 0); rep.Log().EndOffset() != 0 {
		t.Error("something was appended")
	}
}

// acks=-1 waits for the followers. What they have by the deadline is told, the rest has timed out, with the offsets that it got.
func TestProduceWaits(t *testing.T) {
	w := newWorld(t)
	w.topic(1, "a", 2, 1, 2)
	w.topic(2, "b", 1, 1)
	parts := []to{{1, "a", 0, batchOf(t, "x")}, {1, "a", 1, batchOf(t, "y")}, {2, "b", 0, batchOf(t, "z")}, {2, "b", 5, batchOf(t, "z")}}
	codes := func(r *rpc.Request) (out [4]int16) {
		t.Helper()
		i := 0
		for _, topic := range answer(t, r, kmsg.NewPtrProduceResponse()).Topics {
			for _, p := range topic.Partitions {
				out[i] = p.ErrorCode
				if (p.BaseOffset < 0) != (p.Partition == 5) {
					t.Errorf("base offset %d of partition %d", p.BaseOffset, p.Partition)
				}
				i++
			}
		}
		return out
	}
	none := kerr.UnknownTopicOrPartition.Code

	r, p := w.begin(w.Produce, produceOf(9, -1, parts...))
	if p == nil || !p.Deadline.Equal(w.now.Add(time.Second)) {
		t.Fatalf("pending %+v", p)
	}
	w.replicate("a", 0, 2, 1)
	if done, _ := p.Done(); done {
		t.Fatal("done though a partition waits")
	}
	w.replicate("a", 1, 2, 1)
	if done, expired := p.Done(); !done || expired {
		t.Fatal("not done though all have the records")
	}
	finish(r, p)
	if got := codes(r); got != [4]int16{0, 0, 0, none} {
		t.Errorf("codes %v", got)
	}

	r, p = w.begin(w.Produce, produceOf(9, -1, parts...))
	w.replicate("a", 1, 2, 2)
	finish(r, p)
	if got := codes(r); got != [4]int16{kerr.RequestTimedOut.Code, 0, 0, none} {
		t.Errorf("codes %v", got)
	}
	w.replicate("a", 0, 2, 2) // nobody waits any more

	// The leader moves meanwhile.
	r, p = w.begin(w.Produce, produceOf(10, -1, parts[0]))
	w.lead(1, 0, 2)
	finish(r, p)
	resp := answer(t, r, kmsg.NewPtrProduceResponse())
	if q := resp.Topics[0].Partitions[0]; q.ErrorCode != kerr.NotLeaderOrFollower.Code || q.CurrentLeader.LeaderID != 2 || q.CurrentLeader.LeaderEpoch != 1 || len(resp.Brokers) != 1 {
		t.Errorf("after the leader moved: %+v, %+v", q, resp.Brokers)
	}
}

// Several connections produce with acks=-1 and a follower that comes and goes, so that some requests time out and their acks
// come later. No answer may be another's, no request may hang or be answered early: what is acknowledged is in the log at the
// offset that was told. Calls and acks are pooled; the race detector watches.
func TestProducePooling(t *testing.T) {
	w := newWorld(t)
	const partitions = 3
	w.topic(1, "a", partitions, 1, 2)
	type told struct {
		partition int32
		offset    kafka.Offset
		value     string
	}
	var mu sync.Mutex
	var acknowledged []told
	timedOut := 0
	var clients, follower sync.WaitGroup
	stop := make(chan struct{})
	follower.Go(func() {
		rng := rand.New(rand.NewPCG(9, 9))
		offsets := [partitions]kafka.Offset{}
		for {
			select {
			case <-stop:
				return
			default:
			}
			i := int32(rng.IntN(partitions))
			rep, err := w.set.Lookup("a", i)
			if err != nil {
				t.Error(err)
				return
			}
			if end := rep.Log().EndOffset(); end > offsets[i] {
				offsets[i] += 1 + rng.Int64N(end-offsets[i])
				w.replicate("a", i, 2, offsets[i])
			}
		}
	})
	for id := range 4 {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(id), 1))
			for n := range 400 {
				var parts []to
				for i := range int32(partitions) {
					if rng.IntN(2) == 0 || i == 0 {
						parts = append(parts, to{1, "a", i, batchOf(t, fmt.Sprintf("%d/%d/%d", id, n, i))})
					}
				}
				r, p := w.begin(w.Produce, produceOf(9, -1, parts...))
				expired := false
				if p != nil {
					done := make(chan struct{}, 2)
					wake := func() { done <- struct{}{} }
					p.OnDone(&wake)
					if rng.IntN(3) == 0 {
						p.Expire() // a deadline of no time at all, or after the ack
					} else {
						<-done // the test hangs if it never comes
					}
					_, expired = p.Done()
					r.Response = rpc.Response{}
					p.Finish(r, expired)
				}
				resp := answer(t, r, kmsg.NewPtrProduceResponse())
				if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != len(parts) {
					t.Errorf("asked %d partitions, answered %+v", len(parts), resp.Topics)
					return
				}
				mu.Lock()
				for k, q := range resp.Topics[0].Partitions {
					switch {
					case q.Partition != parts[k].partition || q.BaseOffset < 0:
						t.Errorf("partition %d answered as %+v", parts[k].partition, q)
					case q.ErrorCode == kerr.RequestTimedOut.Code && expired:
						timedOut++
					case q.ErrorCode != 0:
						t.Errorf("expired %v: %+v", expired, q)
					default:
						acknowledged = append(acknowledged, told{q.Partition, q.BaseOffset, fmt.Sprintf("%d/%d/%d", id, n, q.Partition)})
					}
				}
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	close(stop)
	follower.Wait()
	var values [partitions][]string
	for i := range values {
		rep, err := w.set.Lookup("a", int32(i))
		if err != nil {
			t.Fatal(err)
		}
		s, err := rep.Log().Read(0, 1<<30, true, rep.Log().EndOffset())
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, s.Len())
		if _, err := s.ReadAt(b, 0); err != nil {
			t.Fatal(err)
		}
		s.Release()
		values[i] = valuesOf(t, b)
	}
	for _, a := range acknowledged {
		if got := values[a.partition][a.offset]; got != a.value {
			t.Fatalf("%s was acknowledged at %d of partition %d; there is %s", a.value, a.offset, a.partition, got)
		}
	}
	if len(acknowledged) == 0 || timedOut == 0 {
		t.Errorf("%d acknowledged, %d timed out", len(acknowledged), timedOut)
	}
	t.Logf("%d acknowledged, %d timed out", len(acknowledged), timedOut)
}
