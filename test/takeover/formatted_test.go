package takeover

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/test/peer"
)

var record = flag.Bool("record", false, "write to testdata what the real Kafka writes into its metadata log")

// formatted unpacks the directories that Kafka's storage tool made, each a way of formatting, as directories of one node.
func formatted(t *testing.T) map[string]*directory {
	t.Helper()
	root := t.TempDir()
	extract(t, fixture.Path("data/formatted-4.4.tar.gz"), root)
	files, err := filepath.Glob(filepath.Join(root, "*", "server.properties"))
	if err != nil || len(files) != 21 {
		t.Fatalf("%d directories (%v)", len(files), err)
	}
	out := map[string]*directory{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		moved := map[string]string{}
		text := portOf.ReplaceAllStringFunc(strings.ReplaceAll(string(b), "{DIR}", root), func(old string) string {
			if moved[old] == "" {
				moved[old] = fmt.Sprintf("127.0.0.1:%d", freshPort(t))
			}
			return moved[old]
		})
		h := newHome(t, filepath.Dir(f), text)
		out[filepath.Base(filepath.Dir(f))] = &directory{root: root, homes: map[int]*home{h.id: h}}
	}
	return out
}

// unable are the formatted directories whose node cannot serve without others.
var unable = []string{"broker", "no-initial", "initial-three"}

// TestFormatted starts Highwater on every freshly formatted directory of one node, makes a topic, writes, and starts it again.
func TestFormatted(t *testing.T) {
	t.Parallel()
	for name, d := range formatted(t) {
		if slices.Contains(unable, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			n := d.start(t, peer.Highwater, "")
			put(t, n.Addr(), "first", true)
			d.stop(t)
			n = d.start(t, peer.Highwater, "")
			put(t, n.Addr(), "first", false)
			d.stop(t)
			d.noComplaints(t, true)
		})
	}
}

// put writes ten records to a topic, which it may have to make, and demands that the others there are those of earlier calls.
func put(t *testing.T, addr, topic string, fresh bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(topic), kgo.UnknownTopicRetries(-1), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if fresh {
		if _, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	first := int64(10)
	if fresh {
		first = 0
	}
	for i := range int64(10) {
		r, err := cl.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(i))).First()
		if err != nil || r.Offset != first+i {
			t.Fatalf("record %d: offset %d, want %d; %v", i, r.Offset, first+i, err)
		}
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for read := int64(0); read < first+10; {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%d of %d records read: %v", read, first+10, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if want := fmt.Sprint(read % 10); r.Offset != read || string(r.Value) != want {
				t.Errorf("record %q at offset %d, want %q at %d", r.Value, r.Offset, want, read)
			}
			read++
		})
	}
}

// versions are the releases whose metadata records are compared.
var versions = []string{"release-3.3-IV3", "release-3.5-IV2", "release-3.6-IV2", "release-3.7-IV4", "release-3.9-IV0", "release-4.0-IV3", "release-4.2-IV1", "release-4.4-IV2"}

// TestRecordsOfRelease does the same to Highwater at different metadata.versions as was done to Kafka 4.4 when -record was given, and
// compares the records of the metadata log: types, versions and fields.
func TestRecordsOfRelease(t *testing.T) {
	if !*record {
		t.Parallel()
	}
	dirs := formatted(t)
	for _, name := range versions {
		t.Run(name, func(t *testing.T) {
			s := peer.Highwater
			if *record {
				s = peer.Kafka
			}
			d := dirs[name]
			n := d.start(t, s, "")
			decide(t, n.Addr(), name >= "release-3.5")
			d.stop(t)
			got := d.metadataRecords(t)
			file := filepath.Join("testdata", name+".txt")
			if *record {
				if err := os.MkdirAll("testdata", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(strings.Join(got, "\n")+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(strings.TrimSuffix(string(b), "\n"), "\n"), got); diff != "" {
				t.Errorf("metadata records differ (- Kafka, + Highwater):\n%s", diff)
			}
		})
	}
}

// decide lets the controller write a record of most types that a node of its own leads to.
func decide(t *testing.T, addr string, scram bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.UnknownTopicRetries(-1), kgo.MetadataMinAge(50*time.Millisecond), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	ok := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	value := func(s string) *string { return &s }
	_, err = admin.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": value("100000")}, "kept")
	ok("create", err)
	_, err = admin.CreateTopic(ctx, 1, 1, nil, "gone")
	ok("create", err)
	grown, err := admin.UpdatePartitions(ctx, 3, "kept")
	ok("grow", err)
	ok("grow", grown.Error())
	alter := func(op kadm.IncrementalOp, name, v string) []kadm.AlterConfig {
		c := kadm.AlterConfig{Op: op, Name: name}
		if op == kadm.SetConfig {
			c.Value = &v
		}
		return []kadm.AlterConfig{c}
	}
	altered, err := admin.AlterTopicConfigs(ctx, alter(kadm.SetConfig, "max.message.bytes", "70000"), "kept")
	ok("alter", err)
	ok("alter", altered[0].Err)
	altered, err = admin.AlterTopicConfigs(ctx, alter(kadm.SetConfig, "cleanup.policy", "compact,delete"), "kept")
	ok("alter", err)
	ok("alter", altered[0].Err)
	altered, err = admin.AlterTopicConfigs(ctx, alter(kadm.DeleteConfig, "retention.ms", ""), "kept")
	ok("alter", err)
	ok("alter", altered[0].Err)
	altered, err = admin.AlterBrokerConfigs(ctx, alter(kadm.SetConfig, "log.cleaner.threads", "2"), 1)
	ok("alter", err)
	ok("alter", altered[0].Err)
	quotas, err := admin.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{{Entity: kadm.ClientQuotaEntity{{Type: "user", Name: value("u")}}, Ops: []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: 1e6}}}})
	ok("quota", err)
	ok("quota", quotas[0].Err)
	if scram {
		users, err := admin.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{{User: "u", Mechanism: kadm.ScramSha256, Iterations: 4096, Salt: []byte("salt of ten"), SaltedPassword: []byte("0123456789abcdef0123456789abcdef")}})
		ok("scram", err)
		ok("scram", users.Error())
	}
	ok("produce", cl.ProduceSync(ctx, &kgo.Record{Topic: "kept", Key: []byte("k"), Value: []byte("v")}).FirstErr()) // takes producer ids
	deleted, err := admin.DeleteTopics(ctx, "gone")
	ok("delete", err)
	ok("delete", deleted.Error())
}

var (
	payload = regexp.MustCompile(`(?m)payload: (\{.*\})$`)
	// Ids and numbers that are different in every run.
	anyID    = regexp.MustCompile(`"[A-Za-z0-9_-]{22}"`)
	anyEpoch = regexp.MustCompile(`"(brokerEpoch|nextProducerId|previousBrokerEpoch)":-?\d+`)
	anyPort  = regexp.MustCompile(`"port":\d+`)
)

// metadataRecords are the records of the metadata log, one a line, without what is different in every run. A registration's features
// are sorted: Kafka writes them in the order of a hash map.
func (d *directory) metadataRecords(t *testing.T) []string {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(d.logDirs()[0], "__cluster_metadata-0", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no metadata log (%v)", err)
	}
	r := tools(t).Must(t, "dump-log", "", "--cluster-metadata-decoder", "--files", strings.Join(logs, ","))
	if r.Exit != 0 {
		t.Fatalf("dump-log: %s", r.Stderr)
	}
	lines := payload.FindAllStringSubmatch(r.Stdout, -1)
	// A broker and its controller register at the same time: the controller's record is put before the broker's, wherever it came.
	is := func(name string) int {
		return slices.IndexFunc(lines, func(l []string) bool { return strings.Contains(l[1], `"`+name+`"`) })
	}
	if b, c := is("REGISTER_BROKER_RECORD"), is("REGISTER_CONTROLLER_RECORD"); b >= 0 && c > b {
		line := lines[c]
		lines = slices.Insert(slices.Delete(lines, c, c+1), b, line)
	}
	ids := map[string]string{}
	var out []string
	for _, m := range lines {
		var rec struct {
			Type    string         `json:"type"`
			Version int            `json:"version"`
			Data    map[string]any `json:"data"`
		}
		if err := unmarshal([]byte(m[1]), &rec); err != nil {
			t.Fatalf("%v: %s", err, m[1])
		}
		if rec.Type == "NO_OP_RECORD" {
			continue
		}
		if features, ok := rec.Data["features"].([]any); ok {
			slices.SortFunc(features, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		data, err := json.Marshal(rec.Data)
		if err != nil {
			t.Fatal(err)
		}
		l := anyID.ReplaceAllStringFunc(string(data), func(id string) string {
			if ids[id] == "" {
				ids[id] = fmt.Sprintf(`"id %d"`, len(ids))
			}
			return ids[id]
		})
		out = append(out, fmt.Sprintf("%s %d %s", rec.Type, rec.Version, anyPort.ReplaceAllString(anyEpoch.ReplaceAllString(l, `"$1":N`), `"port":N`)))
	}
	return out
}
