package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/replica"
	"github.com/highwater/highwater/internal/rpc"
)

func deleteRequest(version int16, timeout int32, parts ...any) *kmsg.DeleteRecordsRequest {
	q := kmsg.NewPtrDeleteRecordsRequest()
	q.Version, q.TimeoutMillis = version, timeout
	for i := 0; i < len(parts); i += 3 {
		t := kmsg.NewDeleteRecordsRequestTopic()
		t.Topic = parts[i].(string)
		p := kmsg.NewDeleteRecordsRequestTopicPartition()
		p.Partition, p.Offset = int32(parts[i+1].(int)), int64(parts[i+2].(int))
		t.Partitions = append(t.Partitions, p)
		q.Topics = append(q.Topics, t)
	}
	return q
}

// deleted is an answer as text: low watermark or error of each partition.
func deleted(resp *kmsg.DeleteRecordsResponse) (out string) {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			out += fmt.Sprintf("%s-%d:%d", t.Topic, p.Partition, p.LowWatermark)
			if p.ErrorCode != 0 {
				name, _, _ := strings.Cut(kerr.ForCode(p.ErrorCode).Error(), ":")
				out += "/" + name
			}
			out += " "
		}
	}
	return out
}

// produceTo appends n records to a partition that this broker leads.
func (w *world) produceTo(topic string, partition int32, n int) {
	w.t.Helper()
	for range n {
		q := kmsg.NewPtrProduceRequest()
		q.Version, q.Acks, q.TimeoutMillis = 12, 1, 1000
		q.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: partition, Records: batchOf(w.t, "x")}}}}
		if a := call(w, w.Produce, q, kmsg.NewPtrProduceResponse()); a.Topics[0].Partitions[0].ErrorCode != 0 {
			w.t.Fatalf("produce: %+v", a.Topics[0])
		}
	}
}

// fetched is a fetch by a follower whose log is [start, end).
func (w *world) fetched(topic string, follower kafka.BrokerID, start, end kafka.Offset) {
	w.t.Helper()
	rep, err := w.set.Lookup(topic, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	_, epoch := rep.Leads()
	var out replica.Read
	err = rep.Read(w.now, replica.Reader{Follower: follower, FollowerEpoch: 100 + kafka.BrokerEpoch(follower)},
		replica.ReadRequest{Offset: end, LogStart: start, MaxBytes: 1 << 20, LeaderEpoch: epoch, LastFetchedEpoch: -1}, &out)
	if err != nil {
		w.t.Fatal(err)
	}
	out.Records.Release()
}

// DeleteRecords of a partition with one replica is done at once; everything that can be wrong has Kafka's error.
func TestDeleteRecords(t *testing.T) {
	w := newWorld(t)
	w.topic(1, "a", 2, 1)
	w.topic(2, "other", 1, 2)
	w.topic(3, kafka.ConsumerOffsetsTopic, 1, 1)
	w.produceTo("a", 0, 10)
	w.produceTo("a", 1, 3)
	f := func(want string, parts ...any) {
		t.Helper()
		for version := int16(0); version <= 2; version++ {
			if got := deleted(call(w, w.DeleteRecords, deleteRequest(version, 0, parts...), kmsg.NewPtrDeleteRecordsResponse())); got != want {
				t.Errorf("version %d: %s, want %s", version, got, want)
			}
		}
	}
	f("a-0:3 ", "a", 0, 3)
	f("a-0:3 ", "a", 0, 1)
	f("a-0:3 ", "a", 0, 0)
	f("a-0:-1/OFFSET_OUT_OF_RANGE ", "a", 0, 11)
	f("a-0:-1/OFFSET_OUT_OF_RANGE ", "a", 0, -2)
	f("a-0:10 a-1:2 ", "a", 0, -1, "a", 1, 2)
	f("a-1:3 ", "a", 1, 1, "a", 1, 3) // the last one counts
	f("none-0:-1/UNKNOWN_TOPIC_OR_PARTITION a-2:-1/UNKNOWN_TOPIC_OR_PARTITION ", "none", 0, 1, "a", 2, 1)
	f("other-0:-1/NOT_LEADER_OR_FOLLOWER ", "other", 0, 1)
	f(kafka.ConsumerOffsetsTopic+"-0:-1/INVALID_TOPIC_EXCEPTION ", kafka.ConsumerOffsetsTopic, 0, 0)
	f("")
	w.config.Log.Delete, w.config.Log.Compact = false, true
	w.topic(4, "compacted", 1, 1)
	f("compacted-0:-1/POLICY_VIOLATION ", "compacted", 0, 0)
	w.config.Log.Delete = true
	w.topic(5, "both", 1, 1)
	f("both-0:0 ", "both", 0, 0)
	w.config.Log.Delete, w.config.Log.Compact = false, false
	w.topic(6, "neither", 1, 1)
	f("neither-0:0 ", "neither", 0, 0)
}

// Followers that are alive must have deleted, too, before the answer comes; the time-out, a lost leadership and a deleted topic end
// the wait with their errors.
func TestDeleteRecordsWaits(t *testing.T) {
	begin := func() (*world, *rpc.Request, *rpc.Pending) {
		w := newWorld(t)
		w.topic(1, "a", 1, 1, 2, 3)
		w.produceTo("a", 0, 10)
		w.fetched("a", 2, 0, 10)
		w.fetched("a", 3, 0, 10)
		r, p := w.begin(w.DeleteRecords, deleteRequest(2, 5000, "a", 0, 7))
		if p == nil {
			t.Fatal("answered at once")
		}
		return w, r, p
	}
	done := func(p *rpc.Pending) bool { d, _ := p.Done(); return d }
	end := func(r *rpc.Request, p *rpc.Pending) string {
		finish(r, p)
		return deleted(answer(t, r, kmsg.NewPtrDeleteRecordsResponse()))
	}
	w, r, p := begin()
	if !p.Deadline.Equal(w.now.Add(5 * time.Second)) {
		t.Errorf("deadline %v", p.Deadline)
	}
	w.fetched("a", 2, 7, 10)
	w.fetched("a", 3, 6, 10)
	if done(p) {
		t.Error("a follower still has offset 6")
	}
	w.fetched("a", 3, 8, 10)
	if !done(p) {
		t.Error("all have deleted")
	}
	if got := end(r, p); got != "a-0:7 " {
		t.Error(got)
	}

	w, r, p = begin()
	w.fetched("a", 2, 7, 10)
	if got := end(r, p); got != "a-0:0/REQUEST_TIMED_OUT " {
		t.Error(got)
	}

	w, r, p = begin()
	w.lead(1, 0, 2)
	if got := end(r, p); !done(p) || got != "a-0:-1/NOT_LEADER_OR_FOLLOWER " {
		t.Error(got)
	}

	w, r, p = begin()
	w.remove(1)
	if got := end(r, p); !done(p) || got != "a-0:-1/UNKNOWN_TOPIC_OR_PARTITION " {
		t.Error(got)
	}
}
