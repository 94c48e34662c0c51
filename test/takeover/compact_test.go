package takeover

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/highwater/highwater/test/peer"
)

// TestCompactAndHandBack lets Highwater take over each of Kafka's directories, write to their compacted topics and compact them, and hands them
// back: the newest record of each key is there, nothing else of them that nobody wrote, and all of the other topics; Kafka starts on it
// and finds exactly what Highwater served.
func TestCompactAndHandBack(t *testing.T) {
	for i, c := range fromKafka {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := unpack(t, c.name, false)
			want := expected(t, c.expect)
			wrong := c.complaints(t, d)
			n := d.start(t, peer.Highwater, "", slices.Concat(alone, []string{"log.cleaner.backoff.ms=100", "log.retention.check.interval.ms=3600000"})...)
			w := d.overwrite(t, n, want)
			d.awaitCleaned(t, w.active)
			state := d.ask(t, n)
			w.compacted(t, want, state)
			killed := i%2 == 1 // the others are stopped cleanly
			if killed {
				d.kill(t)
			} else {
				d.stop(t)
			}
			d.noComplaints(t, c.clean)
			d.sound(t, wrong)

			n = d.start(t, peer.Kafka, c.version, slices.Concat(quiet, alone)...)
			back := d.ask(t, n)
			sameRecords(t, state, back)
			c.comparable(state, back)
			sameOffsets(t, state, back, false)
			sameConfigs(t, state, back, "TOPIC", "BROKER")
			keepsGroups(t, want, back)
			d.stop(t)
			d.noComplaints(t, !killed)
		})
	}
}

// overwritten is what overwrite wrote.
type overwritten struct {
	records map[place]string   // as a line of records.jsonl
	active  map[string]int64   // topic-partition → where its newest segment begins; all below can be compacted
	topics  map[string]bool    // the compacted ones
	parts   map[place]struct{} // their partitions, at offset 0
}

// overwrite writes to every partition of a compacted topic, several times: keys that are there, keys of its own, and tombstones. The times
// of what it writes lie so far apart that each time begins a new segment.
func (d *directory) overwrite(t *testing.T, n peer.Node, was *answers) *overwritten {
	t.Helper()
	ctx := t.Context()
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	w := &overwritten{records: map[place]string{}, active: map[string]int64{}, topics: map[string]bool{}, parts: map[place]struct{}{}}
	keys, keyless := map[place][]string{}, map[string]int{}
	for _, l := range was.records {
		var r line
		if err := json.Unmarshal([]byte(l), &r); err != nil {
			t.Fatal(err)
		}
		if k, ok := r.Key.(string); ok {
			p := place{r.Topic, r.Partition, 0}
			keys[p] = append(keys[p], k)
		} else {
			keyless[r.Topic]++
		}
	}
	topics, err := admin.ListTopics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	configs, err := admin.DescribeTopicConfigs(ctx, topics.Names()...)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range configs {
		if slices.ContainsFunc(c.Configs, func(c kadm.Config) bool {
			return c.Key == "cleanup.policy" && strings.Contains(c.MaybeValue(), "compact")
		}) && !topics[c.Name].IsInternal {
			w.topics[c.Name] = true
		}
	}
	value := func(v string) *string { return &v }
	// With a config that Kafka 4 does not know any more, nothing of a topic can be altered, here and there.
	alter := []kadm.AlterConfig{{Name: "min.cleanable.dirty.ratio", Value: value("0.0")}, {Name: "segment.ms", Value: value("1000")}, {Op: kadm.DeleteConfig, Name: "message.format.version"}}
	if len(w.topics) == 0 { // then those become compacted whose records all have a key
		for topic := range topics {
			if !topics[topic].IsInternal && keyless[topic] == 0 {
				w.topics[topic] = true
			}
		}
		alter = append(alter, kadm.AlterConfig{Name: "cleanup.policy", Value: value("compact")})
	}
	for topic := range w.topics {
		altered, err := admin.AlterTopicConfigs(ctx, alter, topic)
		if err != nil || altered[0].Err != nil {
			t.Fatalf("%s: %v %v", topic, err, altered)
		}
		for _, p := range topics[topic].Partitions.Sorted() {
			w.parts[place{topic, p.Partition, 0}] = struct{}{}
		}
	}
	if len(w.parts) == 0 {
		t.Fatal("no compacted topic")
	}
	r := rand.New(rand.NewPCG(5, 6))
	begin := time.Now().Add(-10 * time.Minute).Truncate(time.Millisecond)
	write := func(round int, records ...*kgo.Record) {
		for _, rec := range records {
			rec.Timestamp = begin.Add(time.Duration(round) * time.Minute)
		}
		if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		for _, rec := range records {
			w.records[place{rec.Topic, rec.Partition, rec.Offset}] = fmt.Sprintf("%v\x00%v\x00%d", shown(rec.Key), shown(rec.Value), rec.Timestamp.UnixMilli())
			w.active[fmt.Sprintf("%s-%d", rec.Topic, rec.Partition)] = rec.Offset
		}
	}
	record := func(p place, key, value string) *kgo.Record {
		rec := &kgo.Record{Topic: p.topic, Partition: p.partition, Key: []byte(key)}
		if value != "" {
			rec.Value = []byte(value)
		}
		return rec
	}
	// A segment of format 0 has no times; it ends a second after it was loaded.
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for p := range w.parts {
		for started := time.Now(); ; <-tick.C {
			first := record(p, "first", "x")
			if write(0, first); d.begins(first) {
				break
			}
			if time.Since(started) > loadTimeout {
				t.Fatalf("%s-%d never begins a segment", p.topic, p.partition)
			}
		}
	}
	for round := 1; round < 4; round++ {
		var records []*kgo.Record
		for p := range w.parts {
			for i := range 10 {
				records = append(records, record(p, fmt.Sprintf("fresh-%d", i), fmt.Sprintf("round %d", round)))
				if old := keys[p]; len(old) > 0 {
					records = append(records, record(p, old[r.IntN(len(old))], fmt.Sprintf("overwritten in round %d", round)))
				}
			}
			records = append(records, record(p, fmt.Sprintf("fresh-%d", round), ""))
		}
		write(round, records...)
	}
	for p := range w.parts { // so that what was written before lies in a segment that is not the newest
		write(4, record(p, "last", "x"))
	}
	return w
}

// begins tells whether a segment begins with the record.
func (d *directory) begins(r *kgo.Record) bool {
	for _, dir := range d.logDirs() {
		if _, err := os.Stat(filepath.Join(dir, fmt.Sprintf("%s-%d", r.Topic, r.Partition), fmt.Sprintf("%020d.log", r.Offset))); err == nil {
			return true
		}
	}
	return false
}

// awaitCleaned waits until the cleaner has come to where the newest segments begin.
func (d *directory) awaitCleaned(t *testing.T, active map[string]int64) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for begin := time.Now(); ; <-tick.C {
		left := map[string]int64{}
		for name, o := range active {
			left[name] = o
		}
		for _, dir := range d.logDirs() {
			b, err := os.ReadFile(filepath.Join(dir, "cleaner-offset-checkpoint"))
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			for l := range strings.Lines(string(b)) {
				var topic string
				var partition, offset int64
				if _, err := fmt.Sscanf(l, "%s %d %d", &topic, &partition, &offset); err != nil {
					continue // version and count
				}
				if name := fmt.Sprintf("%s-%d", topic, partition); offset >= left[name] {
					delete(left, name)
				}
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Since(begin) > loadTimeout {
			t.Fatalf("not compacted up to their newest segment: %v", left)
		}
	}
}

// compacted demands that of the compacted topics the newest record of each key is there, and nothing that was not there or written, that
// they have become smaller, and that of the other topics all is there.
func (w *overwritten) compacted(t *testing.T, before, after *answers) {
	t.Helper()
	type key struct {
		topic     string
		partition int32
		key       string
	}
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	parse := func(l string) line {
		var r line
		if err := json.Unmarshal([]byte(l), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	newest := map[key]place{}   // of those that read_committed sees
	tombstone := map[key]bool{} // may go
	old := map[place]string{}   // of compacted topics
	others := map[string]bool{} // lines of other topics
	note := func(p place, k string, value any) {
		id := key{p.topic, p.partition, k}
		if at, ok := newest[id]; !ok || at.offset < p.offset {
			newest[id], tombstone[id] = p, value == nil
		}
	}
	for _, l := range before.records {
		r := parse(l)
		if !w.topics[r.Topic] {
			others[l] = true
			continue
		}
		p := place{r.Topic, r.Partition, r.Offset}
		old[p] = l
		if r.Committed == nil {
			note(p, text(r.Key), r.Value)
		}
	}
	for p, l := range w.records {
		k, rest, _ := strings.Cut(l, "\x00")
		value, _, _ := strings.Cut(rest, "\x00")
		if value == fmt.Sprint(any(nil)) {
			note(p, text(k), nil)
		} else {
			note(p, text(k), value)
		}
	}
	there, foreign := map[place]bool{}, 0
	for _, l := range after.records {
		r := parse(l)
		p := place{r.Topic, r.Partition, r.Offset}
		switch {
		case !w.topics[r.Topic]:
			if !others[l] {
				t.Errorf("not there before: %s", l)
			}
			delete(others, l)
			continue
		case old[p] == l, w.records[p] == fmt.Sprintf("%v\x00%v\x00%d", r.Key, r.Value, r.Timestamp) && r.Committed == nil:
		default:
			if foreign++; foreign <= atMost {
				t.Errorf("not written by anybody: %s", l)
			}
		}
		there[p] = true
	}
	if len(others) > 0 {
		t.Errorf("%d records of topics that are not compacted are missing", len(others))
	}
	lost := 0
	for k, p := range newest {
		if !there[p] && !tombstone[k] {
			if lost++; lost <= atMost {
				t.Errorf("the newest record of key %s of %s-%d, at %d, is missing", k.key, p.topic, p.partition, p.offset)
			}
		}
	}
	if all := len(old) + len(w.records); lost+foreign == 0 && (len(there) >= all || len(newest) < 10*len(w.parts)) {
		t.Errorf("%d records of %d keys, and %d are there: nothing was compacted", all, len(newest), len(there))
	}
	for p := range w.parts {
		name := fmt.Sprintf("%s-%d", p.topic, p.partition)
		if l, ok := after.offsets[name].Latest.([]any); !ok || fmt.Sprint(l[0]) != fmt.Sprint(w.active[name]+1) {
			t.Errorf("%s ends at %v, not after %d", name, after.offsets[name].Latest, w.active[name])
		}
	}
	t.Logf("%d records of %d keys in %d compacted partitions became %d", len(old)+len(w.records), len(newest), len(w.parts), len(there))
}
