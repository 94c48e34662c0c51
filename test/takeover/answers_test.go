package takeover

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/test/peer"
)

// The JVM that asks: one for the whole run.
var jvm = sync.OnceValues(func() (*peer.Tools, error) {
	return peer.StartToolsAndShell(filepath.Join("java", "Answers.java"))
})

func tools(t *testing.T) *peer.Tools {
	t.Helper()
	j, err := jvm()
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// answers is what a broker says that it holds.
type answers struct {
	records []string                   // JSON lines
	offsets map[string]partitionOffset // by topic-partition
	admin   map[string]any
}

// stamp is an answer of ListOffsets: offset, timestamp, leader epoch; or an error's text.
type stamp = any

// partitionOffset is a line of offsets.jsonl.
type partitionOffset struct {
	Topic        string           `json:"t"`
	Partition    int              `json:"p"`
	Earliest     stamp            `json:"earliest"`
	Latest       stamp            `json:"latest"`
	LastStable   stamp            `json:"lastStable"`
	MaxTimestamp stamp            `json:"maxTimestamp"`
	AtOrAfter    map[string]stamp `json:"atOrAfter"`
}

// expected reads testdata/data/NAME.expect/PART.
func expected(t *testing.T, part string) *answers {
	t.Helper()
	read := func(name string) []byte {
		name = "data/" + part + "/" + name
		if _, err := os.Stat(fixture.Path(name)); err != nil {
			name += ".gz"
		}
		return fixture.Read(t, name)
	}
	return parseAnswers(t, read("records.jsonl"), read("offsets.jsonl"), read("admin.json"))
}

func parseAnswers(t *testing.T, records, offsets, admin []byte) *answers {
	t.Helper()
	a := &answers{offsets: map[string]partitionOffset{}}
	a.records = strings.Split(strings.TrimSuffix(string(records), "\n"), "\n")
	for l := range bytes.Lines(offsets) {
		var o partitionOffset
		if err := unmarshal(l, &o); err != nil {
			t.Fatalf("offsets: %v: %s", err, l)
		}
		a.offsets[fmt.Sprintf("%s-%d", o.Topic, o.Partition)] = o
	}
	if err := unmarshal(admin, &a.admin); err != nil {
		t.Fatalf("admin: %v", err)
	}
	return a
}

func unmarshal(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return d.Decode(v)
}

// ask asks a running broker.
func (d *directory) ask(t *testing.T, n peer.Node) *answers {
	t.Helper()
	dir := t.TempDir()
	j, begin := tools(t), time.Now()
	r := j.Must(t, "Answers", "", n.Addr(), dir)
	t.Logf("asked in %v", time.Since(begin).Round(1e6))
	if r.Exit != 0 {
		t.Fatalf("%s: Answers ended with %d:\n%s%s", n.Software(), r.Exit, r.Stdout, r.Stderr)
	}
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return d.replaceRoot(b)
	}
	return parseAnswers(t, read("records.jsonl"), read("offsets.jsonl"), read("admin.json"))
}

// atMost is how many differences of one kind are printed.
const atMost = 10

// sameRecords demands the same records, the same offsets, epochs and times, and the same answer to what read_committed sees.
func sameRecords(t *testing.T, want, got *answers) {
	t.Helper()
	if slices.Equal(want.records, got.records) {
		return
	}
	there := map[string]bool{}
	for _, l := range got.records {
		there[l] = true
	}
	var missing, more []string
	for _, l := range want.records {
		if !there[l] {
			missing = append(missing, l)
		}
		delete(there, l)
	}
	for _, l := range got.records {
		if there[l] {
			more = append(more, l)
		}
	}
	t.Errorf("records differ: %d wanted, %d there; %d missing, %d not wanted:\n- %s\n+ %s", len(want.records), len(got.records), len(missing), len(more),
		strings.Join(missing[:min(atMost, len(missing))], "\n- "), strings.Join(more[:min(atMost, len(more))], "\n+ "))
}

// sameStamp tells whether two answers are equal; if not exact, then also when both name their partition's current epoch, which grows
// with every start.
func sameStamp(want, wantLatest, got, gotLatest stamp, exact bool) bool {
	w, ok := want.([]any)
	g, ok2 := got.([]any)
	if !ok || !ok2 || exact || len(w) != 3 || len(g) != 3 {
		return reflect.DeepEqual(want, got)
	}
	if w[0] != g[0] || w[1] != g[1] {
		return false
	}
	current := func(s []any, latest stamp) bool { l, ok := latest.([]any); return ok && len(l) == 3 && s[2] == l[2] }
	return w[2] == g[2] || current(w, wantLatest) && current(g, gotLatest)
}

// sameOffsets demands the same answers to ListOffsets; leaderEpoch says whether the partitions' current epoch is to be the same
// too, which it is after as many starts.
func sameOffsets(t *testing.T, want, got *answers, leaderEpoch bool) {
	t.Helper()
	wrong := 0
	for _, name := range slices.Sorted(maps.Keys(want.offsets)) {
		w := want.offsets[name]
		g, ok := got.offsets[name]
		same := func(w1, g1 stamp) bool { return sameStamp(w1, w.Latest, g1, g.Latest, leaderEpoch) }
		ok = ok && same(w.Earliest, g.Earliest) && same(w.Latest, g.Latest) && same(w.LastStable, g.LastStable) && same(w.MaxTimestamp, g.MaxTimestamp) && len(w.AtOrAfter) == len(g.AtOrAfter)
		for at := range w.AtOrAfter {
			ok = ok && same(w.AtOrAfter[at], g.AtOrAfter[at])
		}
		if !ok {
			if wrong++; wrong <= atMost {
				t.Errorf("offsets of %s differ:\nwant %v\ngot  %v", name, w, g)
			}
		}
	}
	if wrong > 0 || len(want.offsets) != len(got.offsets) {
		t.Errorf("offsets of %d partitions differ; %d partitions wanted, %d there", wrong, len(want.offsets), len(got.offsets))
	}
}

// sameAdmin demands the same answers of some sections of admin.json.
func sameAdmin(t *testing.T, want, got *answers, sections ...string) {
	t.Helper()
	for _, s := range sections {
		if diff := cmp.Diff(want.admin[s], got.admin[s], noELR, supported); diff != "" {
			t.Errorf("%s differ (- wanted, + there):\n%s", s, diff)
		}
	}
}

// noELR lets a Kafka that does not know eligible leader replicas say nothing of them; an empty list is as good.
var noELR = cmp.FilterPath(func(p cmp.Path) bool {
	i, ok := p.Last().(cmp.MapIndex)
	return ok && (i.Key().String() == "elr" || i.Key().String() == "lastKnownElr")
}, cmp.Comparer(func(a, b any) bool {
	empty := func(v any) bool { l, ok := v.([]any); return v == nil || ok && len(l) == 0 }
	return empty(a) && empty(b) || reflect.DeepEqual(a, b)
}))

// supported leaves out which levels of a feature a release knows.
var supported = cmp.FilterPath(func(p cmp.Path) bool {
	i, ok := p.Last().(cmp.MapIndex)
	return ok && i.Key().String() == "supported"
}, cmp.Ignore())

// sameConfigs demands the same dynamic configs of the resources whose name begins with one of the kinds.
func sameConfigs(t *testing.T, want, got *answers, kinds ...string) {
	t.Helper()
	of := func(a *answers) map[string]any {
		out := map[string]any{}
		all, _ := a.admin["dynamicConfigs"].(map[string]any)
		for name, v := range all {
			if kind, _, _ := strings.Cut(name, ":"); slices.Contains(kinds, kind) {
				out[name] = v
			}
		}
		return out
	}
	// Kafka 4 removed this key of topics. What an older one left of it stays in the metadata and is not described.
	removed := cmpopts.IgnoreMapEntries(func(key string, _ any) bool { return key == "message.format.version" })
	if diff := cmp.Diff(of(want), of(got), removed); diff != "" {
		t.Errorf("dynamic configs differ (- wanted, + there):\n%s", diff)
	}
}

// keepsGroups demands that groups and transactions are as they were; there may be new ones, and a share group's lag grows with what is
// written.
func keepsGroups(t *testing.T, want, got *answers) {
	t.Helper()
	for _, section := range []string{"groups", "transactions"} {
		w, _ := want.admin[section].(map[string]any)
		g, _ := got.admin[section].(map[string]any)
		if len(w) == 0 {
			continue // of a broker that did not answer, or nobody was there
		}
		old := map[string]any{}
		for name := range w {
			old[name] = g[name]
		}
		lag := cmp.FilterPath(func(p cmp.Path) bool {
			i, ok := p.Last().(cmp.MapIndex)
			return ok && i.Key().String() == "lag"
		}, cmp.Ignore())
		if diff := cmp.Diff(w, old, lag); diff != "" {
			t.Errorf("%s differ (- wanted, + there):\n%s", section, diff)
		}
	}
}
