package api

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/replica"
	"github.com/highwater/highwater/internal/schema"
)

// Pages of partitions, for random topics, lists, limits and cursors, beside a model that lists every partition and cuts.
func TestDescribeTopicPartitionsPages(t *testing.T) {
	w := newWorld(t)
	rng := rand.New(rand.NewPCG(3, 4))
	sizes := map[string]int{}
	for i := range 12 {
		name := fmt.Sprintf("t%02d", i)
		sizes[name] = 1 + rng.IntN(9)
		w.topic(i+1, name, sizes[name], 1)
	}
	type row struct {
		topic     string
		partition int32 // -1: the topic does not exist
	}
	for round := range 500 {
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		var names []string
		if rng.IntN(3) > 0 {
			for range 1 + rng.IntN(8) {
				name := fmt.Sprintf("t%02d", rng.IntN(15))
				names = append(names, name)
				req.Topics = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: name})
			}
		}
		limit := 1 + rng.IntN(12)
		w.Limits.MaxRequestPartitionSize = 1 + rng.IntN(12)
		req.ResponsePartitionLimit = int32(limit)
		limit = min(limit, w.Limits.MaxRequestPartitionSize)

		all := slices.Clone(names)
		if len(names) == 0 {
			for name := range sizes {
				all = append(all, name)
			}
		}
		slices.Sort(all)
		all = slices.Compact(all)
		var want []row
		for _, name := range all {
			if sizes[name] == 0 {
				want = append(want, row{name, -1})
			}
			for i := range sizes[name] {
				want = append(want, row{name, int32(i)})
			}
		}
		var got []row
		pages := 0
		for {
			resp := call(w, w.DescribeTopicPartitions, req, kmsg.NewPtrDescribeTopicPartitionsResponse())
			n := 0
			for _, topic := range resp.Topics {
				if topic.ErrorCode == kerr.UnknownTopicOrPartition.Code {
					got = append(got, row{*topic.Topic, -1})
				} else if topic.ErrorCode != 0 {
					t.Fatalf("round %d: %+v", round, topic)
				}
				for _, p := range topic.Partitions {
					got = append(got, row{*topic.Topic, p.Partition})
					if p.LeaderID != 1 || !slices.Equal(p.ISR, []int32{1}) || len(p.OfflineReplicas) != 0 {
						t.Fatalf("round %d: %+v", round, p)
					}
					n++
				}
			}
			pages++
			if n > limit {
				t.Fatalf("round %d: %d partitions, limit %d", round, n, limit)
			}
			if resp.NextCursor == nil {
				break
			}
			if n != limit {
				t.Fatalf("round %d: %d partitions in a page that isn't the last, limit %d", round, n, limit)
			}
			req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: resp.NextCursor.Topic, Partition: resp.NextCursor.Partition}
		}
		slices.SortStableFunc(got, func(a, b row) int { return cmp.Compare(a.topic, b.topic) })
		if !slices.Equal(got, want) {
			t.Fatalf("round %d: %v in %d pages, want %v", round, got, pages, want)
		}
	}

	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: "t01"}, {Topic: "t05"}}
	for _, cursor := range []kmsg.DescribeTopicPartitionsRequestCursor{{Topic: "t03", Partition: 0}, {Topic: "t05", Partition: -1}} {
		req.Cursor = &cursor
		resp := call(w, w.DescribeTopicPartitions, req, kmsg.NewPtrDescribeTopicPartitionsResponse())
		if len(resp.Topics) != 2 || resp.Topics[0].ErrorCode != kerr.InvalidRequest.Code || resp.NextCursor != nil {
			t.Errorf("cursor %+v: %+v", cursor, resp)
		}
	}
}

// A replica on a broker that is fenced, or has no listener of the client's name, is told as offline; version 0 leaves it out.
func TestMetadataOffline(t *testing.T) {
	w := newWorld(t)
	w.topic(1, "a", 1, 1, 2, 3)
	fence := schema.NewBrokerRegistrationChangeRecord()
	fence.BrokerID, fence.BrokerEpoch, fence.Fenced = 2, 102, 1
	other := schema.NewRegisterBrokerRecord()
	other.BrokerID, other.BrokerEpoch, other.Fenced, other.Rack, other.LogDirs = 3, 104, false, nil, w.Image().Broker(3).LogDirs
	other.EndPoints = []schema.RegisterBrokerRecordBrokerEndpoint{{Name: "INTERNAL", Host: "host", Port: 1}}
	w.apply(fence, other)
	for v := int16(0); v <= 13; v++ {
		req := kmsg.NewPtrMetadataRequest()
		req.SetVersion(v)
		name := "a"
		req.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
		resp := call(w, w.Metadata, req, kmsg.NewPtrMetadataResponse())
		if len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != 1 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			t.Fatalf("version %d: %+v", v, resp)
		}
		p := resp.Topics[0].Partitions[0]
		replicas, errorCode := []int32{1, 2, 3}, int16(0)
		if v == 0 {
			replicas, errorCode = []int32{1}, kerr.ReplicaNotAvailable.Code
		}
		if !slices.Equal(p.Replicas, replicas) || !slices.Equal(p.ISR, replicas) || p.ErrorCode != errorCode || p.Leader != 1 || v >= 5 && !slices.Equal(p.OfflineReplicas, []int32{2, 3}) {
			t.Errorf("version %d: %+v", v, p)
		}
	}
	w.lead(1, 0, 3)
	for v, want := range map[int16]int16{5: kerr.LeaderNotAvailable.Code, 6: kerr.ListenerNotFound.Code} {
		req := kmsg.NewPtrMetadataRequest()
		req.SetVersion(v)
		resp := call(w, w.Metadata, req, kmsg.NewPtrMetadataResponse())
		if p := resp.Topics[0].Partitions[0]; p.ErrorCode != want || p.Leader != -1 {
			t.Errorf("version %d: %+v", v, p)
		}
	}
}

// Every version of ListOffsets: special timestamps by version, what is asked for twice, and a leader that is new.
func TestListOffsets(t *testing.T) {
	w := newWorld(t)
	w.topic(1, "a", 2, 1)
	w.topic(2, "b", 1, 1, 2)
	w.fill(to{1, "a", 0, nil}, "x", "y")
	w.fill(to{2, "b", 0, nil}, "z")
	w.lead(2, 0, 2)
	w.lead(2, 0, 1)
	type q struct {
		topic     string
		partition int32
		timestamp int64
	}
	type a struct {
		partition   int32
		code        int16
		offset, tms int64
	}
	ask := func(v int16, of ...q) (out []a) {
		t.Helper()
		req := kmsg.NewPtrListOffsetsRequest()
		req.SetVersion(v)
		req.ReplicaID = -1
		for _, x := range of {
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.Timestamp = x.partition, x.timestamp
			req.Topics = append(req.Topics, kmsg.ListOffsetsRequestTopic{Topic: x.topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}})
		}
		for _, topic := range call(w, w.ListOffsets, req, kmsg.NewPtrListOffsetsResponse()).Topics {
			for _, p := range topic.Partitions {
				out = append(out, a{p.Partition, p.ErrorCode, p.Offset, p.Timestamp})
			}
		}
		return out
	}
	f := func(v int16, want []a, of ...q) {
		t.Helper()
		if got := ask(v, of...); !reflect.DeepEqual(got, want) {
			t.Errorf("version %d, %v: %v, want %v", v, of, got, want)
		}
	}
	ms := start.UnixMilli()
	for v := int16(1); v <= 11; v++ {
		f(v, []a{{0, 0, 2, -1}, {1, 0, 0, -1}}, q{"a", 0, -1}, q{"a", 1, -1})
		f(v, []a{{0, 0, 0, -1}}, q{"a", 0, -2})
		f(v, []a{{0, 0, 0, ms}}, q{"a", 0, ms})
		f(v, []a{{0, 0, -1, -1}}, q{"a", 0, ms + 1})
		f(v, []a{{0, kerr.InvalidRequest.Code, -1, -1}, {1, 0, 0, -1}}, q{"a", 0, -1}, q{"a", 0, -2}, q{"a", 1, -1})
		f(v, []a{{7, kerr.UnknownTopicOrPartition.Code, -1, -1}, {0, 0, 2, -1}}, q{"a", 7, -1}, q{"a", 0, -1})
		unsettled := kerr.LeaderNotAvailable.Code
		if v >= 5 {
			unsettled = kerr.OffsetNotAvailable.Code
		}
		f(v, []a{{0, unsettled, -1, -1}}, q{"b", 0, -1})
		for ts, since := range map[int64]int16{replica.MaxTimestamp: 7, replica.EarliestLocalTimestamp: 8, replica.LatestTieredTimestamp: 9, replica.EarliestPendingUpload: 11, -7: 99} {
			got := ask(v, q{"a", 0, ts})[0]
			if refused := got.code == kerr.UnsupportedVersion.Code; refused != (v < since) || got.code != 0 && !refused {
				t.Errorf("version %d, timestamp %d: %+v", v, ts, got)
			}
		}
	}
}
