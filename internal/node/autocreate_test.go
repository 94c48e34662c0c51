package node_test

// Shows topics that are created because somebody named them, and topics that are deleted and made again.

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	fkerr "github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// metadataOf asks for one topic in a version, 0 and more; allow is allow_auto_topic_creation, from version 4 on.
func metadataOf(t *testing.T, cl *kgo.Client, version int16, allow bool, topic string) kmsg.MetadataResponseTopic {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = allow
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = &topic
	req.Topics = append(req.Topics, rt)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	one, err := kgo.NewClient(kgo.SeedBrokers(fmt.Sprint(cl.OptValue(kgo.SeedBrokers).([]string)[0])), kgo.MaxVersions(versionOf(3, version)))
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	resp, err := req.RequestWith(ctx, one)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Topics[0]
}

// TestAutoCreate: the codes, who may forbid it, the defaults of the file, and many at once (F087).
func TestAutoCreate(t *testing.T) {
	n := start(t, format(t, "num.partitions=3", "offsets.topic.replication.factor=1", "offsets.topic.num.partitions=2",
		"transaction.state.log.replication.factor=1", "transaction.state.log.num.partitions=2", "transaction.state.log.min.isr=1"))
	defer stop(t, n)
	cl := client(t, n)
	adm := kadm.NewClient(cl)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	exists := func(topic string) bool {
		d, err := adm.ListTopics(ctx, topic)
		if err != nil {
			t.Fatal(err)
		}
		return d[topic].Err == nil
	}
	for _, c := range []struct {
		version int16
		allow   bool
		creates bool
	}{{3, true, true}, {4, false, false}, {4, true, true}, {12, true, true}, {12, false, false}} {
		name := fmt.Sprintf("v%d-%v", c.version, c.allow)
		if got := metadataOf(t, cl, c.version, c.allow, name); got.ErrorCode != fkerr.UnknownTopicOrPartition.Code || len(got.Partitions) != 0 {
			t.Errorf("%s: first answer %d, %d partitions", name, got.ErrorCode, len(got.Partitions))
		}
		if !c.creates {
			continue
		}
		becomes(t, "0 3", func() string {
			got := metadataOf(t, cl, c.version, c.allow, name)
			return fmt.Sprintln(got.ErrorCode, len(got.Partitions))[:3]
		})
	}
	for _, name := range []string{"v4-false", "v12-false"} {
		if exists(name) {
			t.Errorf("%s was created", name)
		}
	}
	if got := metadataOf(t, cl, 12, true, "bad name"); got.ErrorCode != fkerr.InvalidTopicException.Code {
		t.Errorf("bad name: %d", got.ErrorCode)
	}

	ids := make(map[string]bool)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { metadataOf(t, cl, 12, true, "at-once") })
	}
	wg.Wait()
	becomes(t, "3", func() string { return fmt.Sprint(len(metadataOf(t, cl, 12, true, "at-once").Partitions)) })
	for range 5 {
		got := metadataOf(t, cl, 12, true, "at-once")
		mu.Lock()
		ids[fmt.Sprint(got.TopicID)] = true
		mu.Unlock()
	}
	if len(ids) != 1 {
		t.Errorf("several topics of one name: %v", ids)
	}

	producer := client(t, n, kgo.AllowAutoTopicCreation())
	if err := producer.ProduceSync(ctx, &kgo.Record{Topic: "by-a-producer", Value: []byte("x")}).FirstErr(); err != nil {
		t.Errorf("a producer that may create: %v", err)
	}

	// An internal topic is as its coordinator needs it.
	for topic, want := range map[string]string{
		"__consumer_offsets":  "cleanup.policy=compact compression.type=producer segment.bytes=104857600",
		"__transaction_state": "cleanup.policy=compact compression.type=uncompressed min.insync.replicas=1 retention.ms=-1 segment.bytes=104857600 unclean.leader.election.enable=false",
	} {
		becomes(t, "2", func() string { return fmt.Sprint(len(metadataOf(t, cl, 12, true, topic).Partitions)) })
		r, err := adm.DescribeTopicConfigs(ctx, topic)
		if err != nil {
			t.Fatal(err)
		}
		var own []string
		for _, c := range r[0].Configs {
			if c.Source == kmsg.ConfigSourceDynamicTopicConfig {
				own = append(own, c.Key+"="+c.MaybeValue())
			}
		}
		if got := strings.Join(own, " "); got != want {
			t.Errorf("%s: %s", topic, got)
		}
	}
}

// TestAutoCreateForbidden: with auto.create.topics.enable=false nothing is created.
func TestAutoCreateForbidden(t *testing.T) {
	n := start(t, format(t, "auto.create.topics.enable=false"))
	defer stop(t, n)
	cl := client(t, n)
	for range 3 {
		if got := metadataOf(t, cl, 12, true, "t"); got.ErrorCode != fkerr.UnknownTopicOrPartition.Code {
			t.Errorf("code %d", got.ErrorCode)
		}
	}
}

// TestDeleteAndRecreate: the new topic has another id, begins at epoch 0 and offset 0, and has nothing of the old; a client
// that runs goes on with it; who asks for the old id hears that there is none (F086).
func TestDeleteAndRecreate(t *testing.T) {
	c := format(t, "log.segment.delete.delay.ms=100")
	n := start(t, c)
	defer func() { stop(t, n) }()
	producer := client(t, n, kgo.MetadataMaxAge(time.Second), kgo.MetadataMinAge(100*time.Millisecond))
	adm := kadm.NewClient(producer)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	seen := make(map[string]bool)
	for round := range 3 {
		if _, err := adm.CreateTopic(ctx, 1, 1, nil, "t"); err != nil {
			t.Fatal(err)
		}
		var row kmsg.MetadataResponseTopic
		becomes(t, "0", func() string { row = metadataOf(t, producer, 12, false, "t"); return fmt.Sprint(row.ErrorCode) })
		id := fmt.Sprint(row.TopicID)
		if seen[id] || row.Partitions[0].LeaderEpoch != 0 || row.Partitions[0].Leader != 1 {
			t.Fatalf("round %d: %+v", round, row)
		}
		seen[id] = true
		var last *kgo.Record
		for i := range 10 {
			r := &kgo.Record{Topic: "t", Value: fmt.Appendf(nil, "%d-%d", round, i)}
			if err := producer.ProduceSync(ctx, r).FirstErr(); err != nil {
				t.Fatal(err)
			}
			last = r
		}
		if last.Offset != 9 {
			t.Errorf("round %d: the tenth record is at %d", round, last.Offset)
		}
		reader := client(t, n, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		for got := 0; got < 10; {
			f := reader.PollFetches(ctx)
			if f.Err() != nil {
				t.Fatal(f.Err())
			}
			f.EachRecord(func(r *kgo.Record) {
				if want := fmt.Sprintf("%d-%d", round, got); string(r.Value) != want || r.Offset != int64(got) {
					t.Fatalf("%q at %d, want %q", r.Value, r.Offset, want)
				}
				got++
			})
		}
		reader.Close()
		if _, err := adm.DeleteTopics(ctx, "t"); err != nil {
			t.Fatal(err)
		}
		req := kmsg.NewPtrMetadataRequest()
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic, rt.TopicID = nil, row.TopicID
		req.Topics = append(req.Topics, rt)
		becomes(t, fmt.Sprint(fkerr.UnknownTopicID.Code), func() string {
			resp, err := req.RequestWith(ctx, producer)
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(resp.Topics[0].ErrorCode)
		})
		// It must not write to a topic that is no more, whatever comes under its name.
		if err := producer.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("late")}).FirstErr(); err == nil {
			t.Error("the deleted topic takes a record")
		}
		producer.PurgeTopicsFromClient("t") // franz-go forgets an id only when it is told to
	}
	becomes(t, "", func() string {
		entries, err := os.ReadDir(c.LogDirs[0])
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), "t-") || strings.Contains(e.Name(), "delete") {
				left = append(left, e.Name())
			}
		}
		return strings.Join(left, " ")
	})
}

// versionOf lets a client know no version of an API above v.
func versionOf(key, v int16) *kversion.Versions {
	all := kversion.Stable()
	all.SetMaxKeyVersion(key, v)
	return all
}
