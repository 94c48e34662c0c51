package controller

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/schema"
)

// Partitions created in a second, three replicas each: decided, encoded and replayed, on a cluster that has 20,000.
func BenchmarkCreatePartitions(b *testing.B) {
	for _, size := range []int32{1, 100} {
		b.Run(fmt.Sprintf("topicsOf%d", size), func(b *testing.B) {
			k := newCluster(b, bootstrap(33))
			k.run(1, 2, 3, 4, 5, 6)
			for i := range 10 {
				if r := k.create(fmt.Sprintf("old.%d", i), 2000, 3); r.ErrorCode != 0 {
					b.Fatal(*r.ErrorMessage)
				}
			}
			req := kmsg.NewPtrCreateTopicsRequest()
			req.Version = 7
			t := kmsg.NewCreateTopicsRequestTopic()
			t.NumPartitions, t.ReplicationFactor = size, 3
			req.Topics = []kmsg.CreateTopicsRequestTopic{t}
			var buf []byte
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				n++
				req.Topics[0].Topic = fmt.Sprintf("new.%d", n)
				res := k.c.CreateTopics(Context{Now: k.now}, req)
				buf = buf[:0]
				for _, r := range res.Records {
					var err error
					if buf, err = schema.AppendFrame(buf, r.Message, r.Version); err != nil {
						b.Fatal(err)
					}
				}
				if err := k.c.Apply(k.c.NextOffset(), res.Records, k.now); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n)*float64(size)/b.Elapsed().Seconds(), "partitions/s")
		})
	}
}

// A broker of a cluster with 20,000 partitions is fenced: 10,000 of them change.
func BenchmarkFenceBroker(b *testing.B) {
	k := newCluster(b, bootstrap(33))
	k.run(1, 2, 3, 4, 5, 6)
	for i := range 10 {
		k.create(fmt.Sprintf("t.%d", i), 2000, 3)
	}
	b.ReportAllocs()
	for b.Loop() {
		if n := len(k.c.fenceBroker(nil, k.c.registration(kafka.BrokerID(1)))); n < 9000 {
			b.Fatal(n)
		}
	}
}
