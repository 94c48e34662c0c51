package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestUnregister: a live broker that is unregistered runs on, as Kafka's does, and so does the controller in the same process; after a
// restart it is there again, with its records.
func TestUnregister(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	c, fsys := inMemory(t)
	n := startOn(t, c, fsys)
	cl := client(t, n, kgo.MetadataMinAge(10*time.Millisecond))
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	q := kmsg.NewPtrUnregisterBrokerRequest()
	q.BrokerID = 1
	if r, err := q.RequestWith(ctx, cl); err != nil || r.ErrorCode != 0 {
		t.Fatalf("unregister: %v %+v", err, r)
	}
	cl.Close()
	until(t, ctx, "the image without the broker", func() bool { return n.Image().Broker(1) == nil })
	// Several heartbeats are refused meanwhile; the controller goes on writing.
	was := n.Image().Provenance().Offset
	until(t, ctx, "more records", func() bool { return n.Image().Provenance().Offset > was+3 })
	select {
	case err := <-n.Failed():
		t.Fatalf("the node ends: %v", err)
	default:
	}
	stop(t, n)
	n = startOn(t, c, fsys)
	defer stop(t, n)
	cl = client(t, n, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().At(0)}}))
	defer cl.Close()
	f := cl.PollFetches(ctx)
	if err := f.Err(); err != nil || f.NumRecords() != 1 {
		t.Errorf("after a restart: %d records, %v", f.NumRecords(), err)
	}
}
