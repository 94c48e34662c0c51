package takeover

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/highwater/highwater/test/peer"
)

var (
	seedFlag   = flag.Uint64("seed", 0, "of the random directories; 0: a new one")
	roundsFlag = flag.Int("rounds", 1, "how many random directories, two at a time")
)

// history is what was sent to a directory in its whole life.
type history struct {
	mu      sync.Mutex
	sent    map[string]*fate // by the record's header "id"
	topics  map[string]bool  // name → compacted
	trimmed map[string]int64 // topic-partition → offset below which records may be gone
}

// fate is what became of a record.
type fate struct {
	topic      string
	partition  int32
	key, value []byte
	acked      bool
	offset     int64 // where it was acknowledged
	txn        *transaction
}

// transaction is nil for records outside of one.
type transaction struct{ committed, aborted bool } // neither: not known, or still open

// parts is how many partitions the random topics have.
const parts = 2

// most is how many records a producer sends in a turn: enough to roll and to compact in every partition.
const most = 1500

// kinds are the topics of a random directory; segments are small.
var kinds = []struct {
	name    string
	compact bool
	configs map[string]string
}{
	{"plain", false, nil},
	{"append-time", false, map[string]string{"message.timestamp.type": "LogAppendTime"}},
	{"recompressed", false, map[string]string{"compression.type": "zstd"}},
	{"rolled", false, map[string]string{"segment.ms": "300", "index.interval.bytes": "0"}},
	{"compacted", true, map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "200"}},
	{"both", true, map[string]string{"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.01"}},
}

// grow makes topics of every kind, named by tag.
func (h *history) grow(ctx context.Context, t *testing.T, admin *kadm.Client, r *rand.Rand, tag string) {
	t.Helper()
	for _, k := range kinds {
		c := map[string]*string{}
		for name, v := range k.configs {
			c[name] = &v
		}
		size := fmt.Sprint(4000 + r.IntN(60000))
		c["internal.segment.bytes"] = &size
		name := k.name + "-" + tag
		if _, err := admin.CreateTopic(ctx, parts, 1, c, name); err != nil {
			t.Fatalf("create %s: %v", name, err)
		}
		h.mu.Lock()
		h.topics[name] = k.compact
		h.mu.Unlock()
	}
}

// record makes the next record of a producer, for any topic.
func (h *history) record(r *rand.Rand, id string, txn *transaction) *kgo.Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := slices.Sorted(maps.Keys(h.topics))
	f := &fate{topic: names[r.IntN(len(names))], partition: int32(r.IntN(parts)), key: fmt.Appendf(nil, "key-%d", r.IntN(40)), value: word(r, r.IntN(1200)), txn: txn}
	if r.IntN(10) == 0 {
		f.value = nil
	}
	h.sent[id] = f
	return &kgo.Record{Topic: f.topic, Partition: f.partition, Key: f.key, Value: f.value, Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id)}}}
}

// acknowledged notes where a record lies.
func (h *history) acknowledged(id string, offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent[id].acked, h.sent[id].offset = true, offset
}

// storm writes to the node from several producers at once until ctx is done; then what is under way is waited for, but not if the node
// is gone. Against Kafka some of them run transactions.
func (h *history) storm(ctx context.Context, t *testing.T, n peer.Node, r *rand.Rand, tag string) {
	t.Helper()
	alive, gone := context.WithCancel(t.Context())
	defer gone()
	go func() {
		select {
		case <-n.Exited():
			gone()
		case <-alive.Done():
		}
	}()
	var all sync.WaitGroup
	for i := range 4 {
		tag, r := fmt.Sprintf("%s-%d", tag, i), rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
		inTransactions := i == 3 && n.Software() == peer.Kafka
		o := []kgo.Opt{kgo.SeedBrokers(n.Addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.AlwaysRetryEOF(),
			kgo.ProducerBatchCompression(codecs[r.IntN(len(codecs))].codec), kgo.ProducerLinger(time.Duration(r.IntN(5)) * time.Millisecond), kgo.MaxBufferedRecords(200),
			kgo.UnknownTopicRetries(-1), kgo.MetadataMinAge(50 * time.Millisecond)} // a topic is made a moment before a broker knows it
		switch {
		case inTransactions:
			o = append(o, kgo.TransactionalID("txn-"+tag))
		case r.IntN(3) == 0:
			o = append(o, kgo.DisableIdempotentWrite())
		}
		cl, err := kgo.NewClient(o...)
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		next := 0
		send := func(txn *transaction) {
			id := fmt.Sprintf("%s-%d", tag, next)
			next++
			cl.Produce(alive, h.record(r, id, txn), func(rec *kgo.Record, err error) {
				if err == nil {
					h.acknowledged(id, rec.Offset)
				} else if alive.Err() == nil && !errors.Is(err, kgo.ErrAborting) {
					t.Errorf("record %s: %v", id, err)
				}
			})
		}
		all.Go(func() {
			for ctx.Err() == nil && alive.Err() == nil && next < most {
				if !inTransactions {
					send(nil)
					if next%20 == 0 {
						if err := cl.Flush(alive); err != nil {
							return
						}
					}
					continue
				}
				txn := &transaction{}
				if err := cl.BeginTransaction(); err != nil {
					t.Errorf("begin: %v", err)
					return
				}
				for range 1 + r.IntN(12) {
					send(txn)
				}
				if cl.Flush(alive) != nil {
					return
				}
				commit := r.IntN(3) > 0
				if err := cl.EndTransaction(alive, kgo.TransactionEndTry(commit)); err != nil {
					if alive.Err() == nil {
						t.Errorf("end transaction: %v", err)
					}
					return
				}
				h.mu.Lock()
				txn.committed, txn.aborted = commit, !commit
				h.mu.Unlock()
			}
			cl.Flush(alive)
		})
	}
	all.Wait()
}

// ask asks a node and holds its answers against the history. Kafka may end a transaction between two questions, so it is asked again.
func (h *history) ask(t *testing.T, d *directory, n peer.Node) *answers {
	t.Helper()
	for again := 3; ; again-- {
		a := d.ask(t, n)
		wrong := h.wrong(t, a)
		if len(wrong) == 0 {
			return a
		}
		if again == 0 || n.Software() != peer.Kafka {
			t.Errorf("%d wrong:\n%s", len(wrong), strings.Join(wrong[:min(len(wrong), atMost)], "\n"))
			return a
		}
	}
}

// wrong holds what a broker says against the history: every acknowledged record is where it was acknowledged, as it was sent, once; of
// a compacted topic at least the newest of each key; nothing is there that was not sent; and read_committed sees what it should.
func (h *history) wrong(t *testing.T, a *answers) []string {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	var wrong []string
	seen := map[string]bool{}
	latest := map[string]int64{} // topic-partition and key → the highest offset that is there
	for _, l := range a.records {
		var got line
		if err := json.Unmarshal([]byte(l), &got); err != nil {
			t.Fatal(err)
		}
		id := ""
		if len(got.Headers) == 1 && len(got.Headers[0]) == 2 {
			id, _ = got.Headers[0][1].(string)
		}
		f := h.sent[id]
		switch {
		case f == nil:
			wrong = append(wrong, "nobody sent "+l)
			continue
		case seen[id]:
			wrong = append(wrong, "twice there: "+l)
		case f.topic != got.Topic || f.partition != got.Partition || !reflect.DeepEqual(shown(f.key), got.Key) || !reflect.DeepEqual(shown(f.value), got.Value):
			wrong = append(wrong, fmt.Sprintf("sent was %s-%d %q %q, there is %s", f.topic, f.partition, f.key, f.value, l))
		case f.acked && f.offset != got.Offset:
			wrong = append(wrong, fmt.Sprintf("acknowledged at %d: %s", f.offset, l))
		}
		seen[id] = true
		tp := fmt.Sprintf("%s-%d", got.Topic, got.Partition)
		key := tp + " " + string(f.key)
		latest[key] = max(latest[key], got.Offset)
		if f.txn != nil && !f.txn.committed && !f.txn.aborted {
			continue
		}
		stable := at(a.offsets[tp].LastStable)
		if visible := got.Committed == nil; visible != ((f.txn == nil || f.txn.committed) && got.Offset < stable) {
			wrong = append(wrong, fmt.Sprintf("read_committed sees it: %v, last stable %d, transaction %+v: %s", visible, stable, f.txn, l))
		}
	}
	acked := 0
	for id, f := range h.sent {
		if !f.acked {
			continue
		}
		acked++
		tp := fmt.Sprintf("%s-%d", f.topic, f.partition)
		if seen[id] || f.offset < h.trimmed[tp] ||
			h.topics[f.topic] && (f.offset < latest[tp+" "+string(f.key)] || f.value == nil || f.txn != nil && !f.txn.committed) {
			continue
		}
		wrong = append(wrong, fmt.Sprintf("acknowledged, but gone: %s-%d at %d, key %s, id %s, transaction %+v", f.topic, f.partition, f.offset, f.key, id, f.txn))
	}
	t.Logf("%d records sent, %d acknowledged, %d there", len(h.sent), acked, len(a.records))
	slices.Sort(wrong)
	return wrong
}

// settled tells whether no transaction is open.
func settled(a *answers) bool {
	for _, o := range a.offsets {
		if !reflect.DeepEqual(o.Latest, o.LastStable) {
			return false
		}
	}
	return true
}

// without leaves out topics that may change by themselves.
func (h *history) without(a *answers) *answers {
	out := &answers{offsets: map[string]partitionOffset{}, admin: a.admin}
	for _, l := range a.records {
		var got line
		if json.Unmarshal([]byte(l), &got) == nil && !h.topics[got.Topic] {
			out.records = append(out.records, l)
		}
	}
	for name, o := range a.offsets {
		if !h.topics[o.Topic] && !strings.HasPrefix(name, "__") {
			out.offsets[name] = o
		}
	}
	return out
}

// ended leaves out the partitions where records were added: Kafka ends the transactions that hung when it was killed, also in partitions
// where they had written nothing yet, or all their markers but not that they are complete.
func ended(want, got *answers) {
	for name, w := range want.offsets {
		if g, ok := got.offsets[name]; ok && at(g.Latest) > at(w.Latest) {
			delete(want.offsets, name)
			delete(got.offsets, name)
		}
	}
}

// at is the offset of an answer to ListOffsets, -1 if there is none.
func at(s stamp) int64 {
	if s, ok := s.([]any); ok && len(s) > 0 {
		n, _ := s[0].(json.Number).Int64()
		return n
	}
	return -1
}

// TestRandom lets the real Kafka and Highwater write a directory in turn, under a random load that ends in a clean stop or a kill in the
// middle of it, and checks after every start that the one finds what the other acknowledged.
func TestRandom(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	for round := range *roundsFlag {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			t.Logf("seed %d (with -rounds=1)", seed+uint64(round))
			turns(t, rand.New(rand.NewPCG(seed+uint64(round), 0)))
		})
	}
}

// turns is one directory's life.
func turns(t *testing.T, r *rand.Rand) {
	d := format(t, "log.retention.ms=-1", "log.cleaner.backoff.ms=100", "log.cleaner.dedupe.buffer.size=4194304", "log.flush.offset.checkpoint.interval.ms=700",
		"replica.high.watermark.checkpoint.interval.ms=500", "metadata.log.max.record.bytes.between.snapshots=4000", "transaction.state.log.num.partitions=3",
		"log.segment.delete.delay.ms=1000")
	h := &history{sent: map[string]*fate{}, topics: map[string]bool{}, trimmed: map[string]int64{}}
	var last *answers // before the end of the turn, if that was a clean one
	cleanly := true
	hanging := false // Kafka was killed in the middle of transactions that its next start may end
	for turn, s := range []peer.Software{peer.Kafka, peer.Highwater, peer.Kafka, peer.Highwater, peer.Highwater, peer.Kafka} {
		tag := fmt.Sprintf("t%d", turn)
		n := d.start(t, s, "")
		if turn > 0 {
			found := h.ask(t, d, n)
			if last != nil && settled(last) {
				sameRecords(t, h.without(last), h.without(found))
				want, got := h.without(last), h.without(found)
				if hanging && s == peer.Kafka {
					ended(want, got)
				}
				sameOffsets(t, want, got, false)
				sameAdmin(t, last, found, served...)
				sameConfigs(t, last, found, "TOPIC", "BROKER")
			}
		}
		d.noComplaints(t, cleanly)
		func() {
			ctx, cancel := context.WithTimeout(t.Context(), loadTimeout)
			defer cancel()
			control, err := kgo.NewClient(kgo.SeedBrokers(n.Addr()))
			if err != nil {
				t.Fatal(err)
			}
			defer control.Close()
			h.grow(ctx, t, kadm.NewClient(control), r, tag)
			long, kill := time.Duration(1000+r.IntN(2500))*time.Millisecond, turn < 5 && r.IntN(2) == 0
			ctx, cancel = context.WithTimeout(ctx, long)
			defer cancel()
			done := make(chan struct{})
			go func() { defer close(done); h.storm(ctx, t, n, r, tag) }()
			<-ctx.Done()
			last, cleanly = nil, !kill
			if kill {
				d.kill(t)
				<-done
				hanging = hanging || s == peer.Kafka
				t.Logf("%s was killed after %v", s, long.Round(time.Millisecond))
				return
			}
			<-done
			topic := "plain-" + tag
			var o kadm.Offsets
			o.Add(kadm.Offset{Topic: topic, At: int64(r.IntN(5))})
			deleted, err := kadm.NewClient(control).DeleteRecords(t.Context(), o)
			if err == nil {
				err = deleted.Error()
			}
			if err != nil && !strings.Contains(err.Error(), "OFFSET_OUT_OF_RANGE") { // fewer were written
				t.Errorf("delete records: %v", err)
			}
			h.trimmed[topic+"-0"] = deleted[topic][0].LowWatermark
			last = h.ask(t, d, n)
			d.stop(t)
			if s == peer.Highwater {
				d.sound(t, nil)
			}
		}()
		if t.Failed() {
			return
		}
	}
}
