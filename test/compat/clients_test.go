package compat

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/test/peer"
)

// base is a time in the past that Kafka's default limits allow, so that timestamps in recordings and tests stay the same.
const base = int64(1750000000000)

// topic creates a topic of n partitions on the common node.
func topic(t *testing.T, name string, n int32, configs ...string) {
	t.Helper()
	c := dialRaw(t, broker(t))
	defer c.Close()
	a, err := c.call(peer.CreateTopics(peer.NewTopic(name, n, 1, configs...)), 7)
	if err != nil {
		t.Fatal(err)
	}
	if r := a.(*kmsg.CreateTopicsResponse).Topics[0]; r.ErrorCode != 0 {
		t.Fatalf("create topic %s: code %d", name, r.ErrorCode)
	}
	waitForLeaders(t, c, name)
}

// TestMatrix: each client writes records of every shape with every codec, idempotent or not; each client reads what every other
// wrote, from the beginning, from an offset and from a timestamp.
func TestMatrix(t *testing.T) {
	all := drivers(t)
	for _, w := range all {
		for i, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
			t.Run(w.name()+"/"+codec, func(t *testing.T) {
				name := fmt.Sprintf("matrix-%s-%s", w.name(), codec)
				topic(t, name, 1)
				want := corpus(w.plain())
				if w.name() == "kafka_python" { // it refuses to send neither key nor value, and null headers
					want = slices.DeleteFunc(want, func(e entry) bool { return e.Key == nil && e.Value == nil })
					for i := range want {
						want[i].Headers = slices.DeleteFunc(want[i].Headers, func(h header) bool { return h.Value == nil })
					}
				}
				for i := range want {
					if w.stamps() {
						want[i].Timestamp = base + int64(i)*1000
					}
				}
				if err := w.produce(t, produce{Addr: broker(t), Topic: name, Codec: codec, Idempotent: i%2 == 1, Max: 1048576, Records: want}); err != nil {
					t.Fatalf("produce: %v", err)
				}
				for i := range want {
					want[i].Offset = int64(i)
				}
				stored, err := kgoDriver{}.consume(t, consume{Addr: broker(t), Topic: name, Count: len(want)})
				if err != nil {
					t.Fatalf("read back: %v", err)
				}
				if d := differ(want, stored); d != "" {
					t.Fatalf("read back: %s", d)
				}
				for _, r := range all {
					if r.plain() && !w.plain() {
						continue // what it cannot print
					}
					t.Run(r.name(), func(t *testing.T) { readAll(t, r, name, stored) })
				}
			})
		}
	}
	// A client of plain text reads a plain corpus from the others too.
	for _, w := range all {
		if w.plain() {
			continue
		}
		for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
			t.Run(w.name()+"/"+codec+"-plain", func(t *testing.T) {
				name := fmt.Sprintf("matrix-plain-%s-%s", w.name(), codec)
				topic(t, name, 1)
				if err := w.produce(t, produce{Addr: broker(t), Topic: name, Codec: codec, Max: 1048576, Records: corpus(true)}); err != nil {
					t.Fatalf("produce: %v", err)
				}
				stored, err := kgoDriver{}.consume(t, consume{Addr: broker(t), Topic: name, Count: len(corpus(true))})
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range all {
					if r.plain() {
						t.Run(r.name(), func(t *testing.T) { readAll(t, r, name, stored) })
					}
				}
			})
		}
	}
}

func readAll(t *testing.T, r driver, name string, stored []entry) {
	from := func(what string, c consume, want []entry) {
		t.Helper()
		c.Addr, c.Topic, c.Count = broker(t), name, len(want)
		got, err := r.consume(t, c)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if d := differ(want, got); d != "" {
			t.Errorf("%s: %s", what, d)
		}
	}
	from("from the beginning", consume{}, stored)
	mid := len(stored) / 2
	from("from an offset", consume{Offset: int64(mid)}, stored[mid:])
	if r.times() {
		at := stored[mid].Timestamp
		first := 0
		for stored[first].Timestamp < at {
			first++
		}
		from("from a timestamp", consume{Timestamp: &at}, stored[first:])
	}
}

// TestBulk: many small records in many batches in flight, from an idempotent producer of each client, arrive once and in order.
func TestBulk(t *testing.T) {
	for _, w := range drivers(t) {
		t.Run(w.name(), func(t *testing.T) {
			name := "bulk-" + w.name()
			topic(t, name, 2)
			var records []entry
			for i := range 20000 {
				records = append(records, entry{Value: fmt.Appendf(nil, "%s %06d %s", w.name(), i, strings.Repeat("x", i%200+1))})
			}
			var partition int32
			if _, ok := w.(consoleDriver); ok {
				name += "-1" // the consoles choose the partition themselves
				topic(t, name, 1)
			} else {
				partition = 1
			}
			if err := w.produce(t, produce{Addr: broker(t), Topic: name, Partition: partition, Codec: "lz4", Idempotent: true, Max: 1048576, Records: records}); err != nil {
				t.Fatal(err)
			}
			for i := range records {
				records[i].Offset = int64(i)
			}
			got, err := kgoDriver{}.consume(t, consume{Addr: broker(t), Topic: name, Partition: partition, Count: len(records)})
			if err != nil {
				t.Fatal(err)
			}
			if d := differ(records, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestRefused: what Kafka refuses reaches each client as Kafka's error.
func TestRefused(t *testing.T) {
	topic(t, "refused-small", 1, "max.message.bytes=1000")
	topic(t, "refused-compacted", 1, "cleanup.policy=compact")
	topic(t, "refused-old", 1, "message.timestamp.before.max.ms=3600000")
	topic(t, "refused-new", 1, "message.timestamp.after.max.ms=3600000")
	topic(t, "refused-read", 1)
	const (
		offsetOutOfRange = 1
		unknownTopic     = 3
		messageTooLarge  = 10
		invalidTimestamp = 32
		invalidRecord    = 87
	)
	for _, d := range drivers(t) {
		t.Run(d.name(), func(t *testing.T) {
			refused := func(what string, err error, code int16, texts ...string) {
				t.Helper()
				var r *refusal
				switch {
				case err == nil:
					t.Errorf("%s: accepted", what)
				case errors.As(err, &r):
					if r.Code != code {
						t.Errorf("%s: %v, want code %d", what, err, code)
					}
				case d.codes():
					t.Errorf("%s: %v, want code %d", what, err, code)
				default:
					for _, x := range texts {
						if strings.Contains(err.Error(), x) {
							return
						}
					}
					t.Errorf("%s: %v, want one of %q", what, err, texts)
				}
			}
			write := func(topic string, e entry, max int) error {
				return d.produce(t, produce{Addr: broker(t), Topic: topic, Codec: "none", Idempotent: true, Max: max, Records: []entry{e}})
			}
			big := []byte(strings.Repeat("x", 2000))
			refused("a record above max.message.bytes of the topic", write("refused-small", entry{Value: big}, 1048576), messageTooLarge,
				"Message size too large", "RecordTooLargeException")
			refused("a record above max.message.bytes of the broker", write("refused-read", entry{Value: []byte(strings.Repeat("x", 1200000))}, 5000000), messageTooLarge,
				"Message size too large", "RecordTooLargeException")
			refused("a topic that is not there", write("refused-none", entry{Value: []byte("x")}, 1048576), unknownTopic,
				"Unknown topic", "not present in metadata", "UNKNOWN_TOPIC_OR_PARTITION")
			refused("a null key on a compacted topic", write("refused-compacted", entry{Value: []byte("x")}, 1048576), invalidRecord,
				"Broker failed to validate record", "InvalidRecordException")
			if d.stamps() {
				refused("a timestamp that is too old", write("refused-old", entry{Value: []byte("x"), Timestamp: base}, 1048576), invalidTimestamp)
				refused("a timestamp that is too new", write("refused-new", entry{Value: []byte("x"), Timestamp: 4102444800000}, 1048576), invalidTimestamp)
			}
			if d.codes() {
				_, err := d.consume(t, consume{Addr: broker(t), Topic: "refused-read", Offset: 1000, Count: 1})
				refused("an offset out of range", err, offsetOutOfRange)
			}
		})
	}
	got, err := kgoDriver{}.consume(t, consume{Addr: broker(t), Topic: "refused-read", Offset: 1, Count: 1})
	var r *refusal
	if !errors.As(err, &r) || r.Code != offsetOutOfRange {
		t.Errorf("something that was refused is in the log: %v, %v", got, err)
	}
}
