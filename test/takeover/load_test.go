package takeover

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/test/peer"
)

// loadTimeout bounds one load; the brokers answer each step within milliseconds.
const loadTimeout = 90 * time.Second

// place is where a record lies.
type place struct {
	topic     string
	partition int32
	offset    int64
}

// sent is a record that the broker acknowledged.
type sent struct {
	*kgo.Record
	aborted bool
}

// book is what a load did.
type book struct {
	mu      sync.Mutex
	records map[place]sent
	errs    []error
	trimmed map[string]int64 // topic-partition → where DeleteRecords moved its log start
	gone    map[string]bool  // topics that were deleted
}

var codecs = []struct {
	name  string
	codec kgo.CompressionCodec
}{{"none", kgo.NoCompression()}, {"gzip", kgo.GzipCompression()}, {"snappy", kgo.SnappyCompression()}, {"lz4", kgo.Lz4Compression()}, {"zstd", kgo.ZstdCompression()}}

// word makes a value that compresses, but not to nothing.
func word(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = "abcdefgh "[r.IntN(9)]
	}
	return b
}

// does tells whether a broker serves an API.
func does(ctx context.Context, t *testing.T, cl *kgo.Client, key kmsg.Key) bool {
	t.Helper()
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, cl)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(resp.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == key.Int16() })
}

// load writes to every topic that is there and to some that it makes, in every codec, with and without a producer id; it makes,
// changes and deletes topics, changes configs, deletes records if trim says so, and runs transactions where the broker does. What it
// makes is named by tag. Topics in pass are passed over.
func load(t *testing.T, n peer.Node, r *rand.Rand, tag string, trim bool, pass ...string) *book {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), loadTimeout)
	defer cancel()
	b := &book{records: map[place]sent{}, trimmed: map[string]int64{}, gone: map[string]bool{}}
	client := func(o ...kgo.Opt) *kgo.Client {
		cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(n.Addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks()),
			kgo.ProducerLinger(2 * time.Millisecond), kgo.MetadataMinAge(50 * time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 30 * time.Millisecond })}, o...)...)
		if err != nil {
			t.Fatal(err)
		}
		return cl
	}
	control := client()
	defer control.Close()
	admin := kadm.NewClient(control)
	b.settings(ctx, t, admin, tag)
	topics, err := admin.ListTopics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var parts []place
	for _, td := range topics.Sorted() {
		if td.IsInternal || strings.HasPrefix(td.Topic, "__") || strings.HasPrefix(td.Topic, "gone-") || slices.Contains(pass, td.Topic) {
			continue // deleted topics leave the metadata a moment later
		}
		for _, p := range td.Partitions.Sorted() {
			parts = append(parts, place{topic: td.Topic, partition: p.Partition})
		}
	}
	for i, c := range codecs {
		o := []kgo.Opt{kgo.ProducerBatchCompression(c.codec)}
		if i%2 == 1 {
			o = append(o, kgo.DisableIdempotentWrite())
		}
		cl := client(o...)
		for j, p := range parts {
			if (j+i)%2 == 0 || strings.HasPrefix(p.topic, "made-"+tag) {
				b.produce(ctx, cl, r, p, 1+r.IntN(4), tag+"-"+c.name, false)
			}
		}
		if err := cl.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		cl.Close()
	}
	if does(ctx, t, control, kmsg.EndTxn) {
		b.transactions(ctx, t, client(kgo.TransactionalID("txn-"+tag)), r, parts, tag)
	}
	if trim {
		b.deleteRecords(ctx, t, admin, "made-"+tag, 1)
	}
	if len(b.errs) > 0 {
		t.Fatalf("%d records were refused, first %v", len(b.errs), b.errs[0])
	}
	t.Logf("%s took %d records", n.Software(), len(b.records))
	return b
}

// settings makes, grows, configures and deletes topics, and changes configs of brokers.
func (b *book) settings(ctx context.Context, t *testing.T, admin *kadm.Client, tag string) {
	t.Helper()
	ok := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	val := func(s string) *string { return &s }
	plain, compact, gone := "made-"+tag, "made-"+tag+"-compact", "gone-"+tag
	_, err := admin.CreateTopic(ctx, 3, 1, map[string]*string{"segment.bytes": val("1048576")}, plain)
	ok(err)
	_, err = admin.CreateTopic(ctx, 1, 1, map[string]*string{"cleanup.policy": val("compact"), "min.cleanable.dirty.ratio": val("0.01"), "segment.ms": val("100")}, compact)
	ok(err)
	_, err = admin.CreateTopic(ctx, 2, 1, nil, gone)
	ok(err)
	grown, err := admin.UpdatePartitions(ctx, 4, plain)
	ok(err)
	ok(grown.Error())
	deleted, err := admin.DeleteTopics(ctx, gone)
	ok(err)
	ok(deleted.Error())
	b.gone[gone] = true
	set := func(name, value string) kadm.AlterConfig {
		return kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value}
	}
	altered, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{set("retention.bytes", "987654321"), set("max.message.bytes", "900000")}, plain)
	ok(err)
	for _, a := range altered {
		ok(a.Err)
	}
	altered, err = admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.DeleteConfig, Name: "max.message.bytes"}}, plain)
	ok(err)
	for _, a := range altered {
		ok(a.Err)
	}
	altered, err = admin.AlterBrokerConfigs(ctx, []kadm.AlterConfig{set("log.cleaner.io.buffer.size", fmt.Sprint(524288+len(tag)))})
	ok(err)
	for _, a := range altered {
		ok(a.Err)
	}
}

// produce hands n records for p to cl. Keys repeat, and some values are tombstones.
func (b *book) produce(ctx context.Context, cl *kgo.Client, r *rand.Rand, p place, n int, what string, aborted bool) {
	for i := range n {
		rec := &kgo.Record{Topic: p.topic, Partition: p.partition, Key: fmt.Appendf(nil, "key-%d", r.IntN(20)), Value: word(r, r.IntN(300)), Timestamp: time.UnixMilli(time.Now().UnixMilli() + int64(i))}
		if r.IntN(8) == 0 {
			rec.Value = nil
		}
		if r.IntN(3) == 0 {
			rec.Headers = []kgo.RecordHeader{{Key: "load", Value: []byte(what)}, {Key: "empty"}}
		}
		cl.Produce(ctx, rec, func(rec *kgo.Record, err error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if err != nil {
				b.errs = append(b.errs, fmt.Errorf("%s-%d: %w", rec.Topic, rec.Partition, err))
				return
			}
			b.records[place{rec.Topic, rec.Partition, rec.Offset}] = sent{rec, aborted}
		})
	}
}

// transactions commits two and aborts one.
func (b *book) transactions(ctx context.Context, t *testing.T, cl *kgo.Client, r *rand.Rand, parts []place, tag string) {
	t.Helper()
	defer cl.Close()
	for i := range 3 {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			b.produce(ctx, cl, r, parts[r.IntN(len(parts))], 1+r.IntN(3), tag+"-txn", i == 1)
		}
		if err := cl.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		if err := cl.EndTransaction(ctx, kgo.TransactionEndTry(i != 1)); err != nil {
			t.Fatal(err)
		}
	}
}

// deleteRecords moves a partition's log start.
func (b *book) deleteRecords(ctx context.Context, t *testing.T, admin *kadm.Client, topic string, before int64) {
	t.Helper()
	var o kadm.Offsets
	o.Add(kadm.Offset{Topic: topic, Partition: 1, At: before})
	resp, err := admin.DeleteRecords(ctx, o)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	b.trimmed[fmt.Sprintf("%s-%d", topic, 1)] = before
}

// line is a line of records.jsonl.
type line struct {
	Topic     string  `json:"t"`
	Partition int32   `json:"p"`
	Offset    int64   `json:"o"`
	Timestamp int64   `json:"ts"`
	Type      string  `json:"tt"`
	Key       any     `json:"k"`
	Value     any     `json:"v"`
	Headers   [][]any `json:"h"`
	Committed *bool   `json:"c"`
}

// shown is how Answers writes bytes.
func shown(b []byte) any {
	if b == nil {
		return nil
	}
	if len(b) > 400 {
		return map[string]any{"size": float64(len(b)), "sha256": fmt.Sprintf("%x", sha256.Sum256(b))}
	}
	for _, c := range b {
		if c < 9 || c > 126 {
			return map[string]any{"b64": base64.StdEncoding.EncodeToString(b)}
		}
	}
	return string(b)
}

// extended demands that after is before and what the books' loads wrote, and nothing else: every record of before but those below a
// log start that was moved, and every record of the books as it was sent. Committed and aborted are as read_committed sees them:
// below the last stable offset and not of an aborted transaction.
func extended(t *testing.T, before, after *answers, b *book) {
	t.Helper()
	old := map[string]bool{}
	for _, l := range before.records {
		old[l] = true
	}
	kept, fresh := 0, 0
	var wrong []string
	for _, l := range after.records {
		if old[l] {
			kept++
			continue
		}
		var got line
		if err := json.Unmarshal([]byte(l), &got); err != nil {
			t.Fatal(err)
		}
		want, ok := b.records[place{got.Topic, got.Partition, got.Offset}]
		if !ok {
			wrong = append(wrong, "not written by anybody: "+l)
			continue
		}
		fresh++
		stable := int64(0)
		if s, ok := after.offsets[fmt.Sprintf("%s-%d", got.Topic, got.Partition)].LastStable.([]any); ok {
			stable, _ = s[0].(json.Number).Int64()
		}
		committed := got.Committed == nil
		var headers [][]any
		for _, h := range want.Headers {
			headers = append(headers, []any{h.Key, shown(h.Value)})
		}
		if !reflect.DeepEqual(got.Key, shown(want.Key)) || !reflect.DeepEqual(got.Value, shown(want.Value)) || !reflect.DeepEqual(got.Headers, headers) ||
			got.Type == "C" && got.Timestamp != want.Timestamp.UnixMilli() || committed != (!want.aborted && got.Offset < stable) {
			wrong = append(wrong, fmt.Sprintf("%s was sent as key %q value %q headers %q time %d aborted %v, stable %d", l, want.Key, want.Value, want.Headers, want.Timestamp.UnixMilli(), want.aborted, stable))
		}
	}
	trimmed := 0
	for p := range b.records {
		if p.offset < b.trimmed[fmt.Sprintf("%s-%d", p.topic, p.partition)] {
			trimmed++
		}
	}
	if kept != len(before.records) || fresh+trimmed != len(b.records) {
		t.Errorf("%d of %d old records are there, %d of %d new ones (and %d were deleted)", kept, len(before.records), fresh, len(b.records), trimmed)
	}
	if len(wrong) > 0 {
		t.Errorf("%d records are not as sent:\n%s", len(wrong), strings.Join(wrong[:min(atMost, len(wrong))], "\n"))
	}
	for name, start := range b.trimmed {
		if e, ok := after.offsets[name].Earliest.([]any); !ok || e[0] != json.Number(fmt.Sprint(start)) {
			t.Errorf("%s begins at %v, not at %d", name, after.offsets[name].Earliest, start)
		}
	}
	topics, _ := after.admin["topics"].(map[string]any)
	for name := range b.gone {
		if topics[name] != nil {
			t.Errorf("deleted topic %s is there", name)
		}
	}
}
