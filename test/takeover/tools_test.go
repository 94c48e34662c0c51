package takeover

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/test/peer"
)

// complaint is what Kafka's dump-log prints about a file that is not as it should be.
var complaint = regexp.MustCompile(`(?i)isvalid: false|mismatch|invalid|corrupt|non-consecutive|exception|error|fail|trailing|unable`)

// gaps are what dump-log prints of a log that begins above 0 or was compacted: offsets that do not follow each other, and entries of
// the time index for batches of which only the header is left.
var gaps = regexp.MustCompile(`(?m)^(Non-consecutive offsets in .*|  -?\d+ is followed by \d+|Found timestamp mismatch in :\S*/(compact|both|keys|streams)\S*|  Index timestamp: \d+, log timestamp: -1)\n`)

// innocent are words of records and of errors' names in records that are no complaint.
var innocent = regexp.MustCompile(`(?i)isvalid: true|payload:|Found timestamp mismatch in :.*\n?$`)

// sound runs Kafka's dump-log over every file of a directory whose nodes do not run, and demands that it finds nothing wrong but what
// it found before.
func (d *directory) sound(t *testing.T, before map[string]bool) {
	t.Helper()
	for _, c := range slices.Sorted(maps.Keys(d.complaints(t))) {
		if !before[c] {
			t.Errorf("dump-log: %.600s", c)
		}
	}
}

// complaints is what Kafka's dump-log finds wrong with the files of a directory.
func (d *directory) complaints(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	by := map[string][]string{} // decoder → files
	for _, dir := range d.logDirs() {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || filepath.Dir(path) == filepath.Clean(dir) {
				return err
			}
			if strings.Contains(filepath.Base(filepath.Dir(path)), "-delete") {
				return nil
			}
			decoder := "--print-data-log"
			switch topic := filepath.Base(filepath.Dir(path)); {
			case strings.HasPrefix(topic, "__cluster_metadata-"):
				decoder = "--cluster-metadata-decoder"
			case strings.HasPrefix(topic, "__consumer_offsets-"):
				decoder = "--offsets-decoder"
			case strings.HasPrefix(topic, "__transaction_state-"):
				decoder = "--transaction-log-decoder"
			case strings.HasPrefix(topic, "__share_group_state-"):
				decoder = "--share-group-state-decoder"
			}
			switch filepath.Ext(path) {
			case ".log", ".checkpoint":
				by[decoder] = append(by[decoder], path)
			case ".index", ".timeindex", ".txnindex", ".snapshot":
				by[""] = append(by[""], path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for decoder, files := range by {
		for part := range slices.Chunk(files, 100) {
			args := []string{"--deep-iteration", "--files", strings.Join(part, ",")}
			if decoder != "" {
				args = append(args, decoder)
			}
			r := tools(t).Must(t, "dump-log", "", args...)
			if r.Exit != 0 {
				t.Errorf("dump-log %s ended with %d: %s%s", decoder, r.Exit, tail(r.Stdout, 500), tail(r.Stderr, 500))
			}
			for c := range strings.SplitSeq(gaps.ReplaceAllString(r.Stderr, ""), "\n") {
				if c != "" {
					out[c] = true
				}
			}
			at := ""
			for l := range strings.SplitSeq(r.Stdout, "\n") {
				if name, ok := strings.CutPrefix(l, "Dumping "); ok {
					at = name
					n++
				} else if complaint.MatchString(l) && !innocent.MatchString(l) {
					out[at+": "+l] = true
				}
			}
		}
	}
	total := 0
	for _, f := range by {
		total += len(f)
	}
	if n != total {
		t.Errorf("dump-log read %d files of %d", n, total)
	}
	return out
}

func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return "…" + s[len(s)-n:]
}

// untouched are the parts of the metadata image that Highwater does not serve yet and must keep to the last byte.
var untouched = []string{"/image/scram/", "/image/acls/", "/image/delegationToken/", "/image/configs/client-metrics/", "/image/configs/group/"}

// keepsImage reads the newest metadata snapshot of a home with Kafka's metadata shell and demands that those leaves of it that the
// expectation's snapshot holds, and that nobody changed, are the same.
func (h *home) keepsImage(t *testing.T, expect string) {
	t.Helper()
	snapshots, err := filepath.Glob(filepath.Join(h.logDirs()[0], "__cluster_metadata-0", "*.checkpoint"))
	if err != nil || len(snapshots) == 0 {
		t.Fatalf("no snapshot (%v)", err)
	}
	newest := slices.Max(snapshots)
	want := map[string]string{}
	for l := range strings.SplitSeq(string(fixture.Read(t, "data/"+expect+"/metadata-shell/leaves.tsv")), "\n") {
		path, value, _ := strings.Cut(l, "\t")
		if slices.ContainsFunc(untouched, func(p string) bool { return strings.HasPrefix(path, p) }) {
			want[path] = value
		}
	}
	if len(want) < 10 {
		t.Fatalf("%s: only %d leaves to compare", expect, len(want))
	}
	paths := slices.Sorted(maps.Keys(want))
	wrong := ""
	_, err = tools(t).Shell(func(r peer.Result) bool {
		got := strings.Split(strings.TrimSuffix(r.Stdout, "\n"), "\n")
		wrong = ""
		for i, path := range paths {
			if len(got) != len(paths) {
				wrong = fmt.Sprintf("%d lines, %d wanted", len(got), len(paths))
				break
			}
			if got[i] != want[path] {
				wrong += fmt.Sprintf("%s is %q, was %q\n", path, got[i], want[path])
			}
		}
		return wrong == ""
	}, append([]string{"-s", newest, "cat"}, paths...)...)
	if err != nil {
		t.Errorf("%s\n%v", wrong, err)
	}
}

// readByShell reads every file of each node's metadata that Kafka's metadata shell can read, whoever wrote it: the snapshots, and the log
// from 0; it cannot begin in the middle. It demands the topics that dump-log finds in the file, and in a log that is whole those that the
// broker had at last.
func (d *directory) readByShell(t *testing.T, last *answers) {
	t.Helper()
	topics, _ := last.admin["topics"].(map[string]any)
	if len(topics) == 0 {
		t.Fatal("no topics to look for")
	}
	for _, h := range d.ordered() {
		dir := filepath.Join(h.logDirs()[0], "__cluster_metadata-0")
		files, err := filepath.Glob(filepath.Join(dir, "*.checkpoint"))
		if err != nil {
			t.Fatal(err)
		}
		logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
		if err != nil {
			t.Fatal(err)
		}
		first := filepath.Join(dir, "00000000000000000000.log")
		if slices.Contains(logs, first) {
			files = append(files, first)
		}
		if len(files) == 0 {
			t.Errorf("neither the log's beginning nor a snapshot in %s", dir)
		}
		for _, file := range files {
			want := topicsIn(t, file)
			if file == first && len(logs) == 1 && !slices.Equal(want, slices.Sorted(maps.Keys(topics))) {
				t.Errorf("node %d: %s ends with the topics %q, and the broker had %q", h.id, filepath.Base(file), want, slices.Sorted(maps.Keys(topics)))
			}
			read := func(r peer.Result) bool {
				return r.Exit == 0 && slices.Equal(slices.Sorted(slices.Values(strings.Fields(r.Stdout))), want)
			}
			ask := []string{"ls", "/image/topics/byName"}
			if len(want) == 0 { // which it also prints if it has not read the file
				read = func(r peer.Result) bool { return r.Exit == 0 && strings.HasPrefix(r.Stdout, "Optional[") }
				ask = []string{"cat", "/image/features/metadataVersion"}
			}
			_, err := tools(t).Shell(read, append([]string{"-s", file}, ask...)...)
			if err != nil {
				t.Errorf("node %d: there are the topics %q: %v", h.id, want, err)
			}
		}
		t.Logf("node %d: metadata-shell read %d files", h.id, len(files))
	}
}

// topicsIn are the topics that there are at the end of a metadata log or snapshot, by Kafka's dump-log.
func topicsIn(t *testing.T, file string) []string {
	t.Helper()
	r := tools(t).Must(t, "dump-log", "", "--cluster-metadata-decoder", "--files", file)
	if r.Exit != 0 {
		t.Fatalf("dump-log of %s ended with %d: %s", file, r.Exit, tail(r.Stderr, 1000))
	}
	names := map[string]string{} // by id
	for l := range strings.SplitSeq(r.Stdout, "\n") {
		_, payload, ok := strings.Cut(l, "payload: ")
		if !ok || !strings.Contains(payload, "TOPIC_RECORD") {
			continue
		}
		var record struct {
			Type string
			Data struct{ Name, TopicID string }
		}
		if err := json.Unmarshal([]byte(payload), &record); err != nil {
			t.Fatalf("%s: %v", l, err)
		}
		switch record.Type {
		case "TOPIC_RECORD":
			names[record.Data.TopicID] = record.Data.Name
		case "REMOVE_TOPIC_RECORD":
			delete(names, record.Data.TopicID)
		}
	}
	return slices.Sorted(maps.Values(names))
}

// noComplaints is that of all nodes.
func (d *directory) noComplaints(t *testing.T, afterCleanStop bool) {
	t.Helper()
	for _, h := range d.ordered() {
		h.noComplaints(t, afterCleanStop)
	}
}

// noComplaints demands that the node logged nothing at ERROR or FATAL since its start, and after a clean stop that it did not have to
// repair anything.
func (h *home) noComplaints(t *testing.T, afterCleanStop bool) {
	t.Helper()
	lines := strings.Split(h.node.Output(), "\n")
	for i, l := range lines {
		level := levelOf.FindStringSubmatch(l)
		switch {
		case level == nil || usual.MatchString(l):
		case strings.Contains(l, "Unexpected error handling request RequestHeader(apiKey=CONTROLLER_REGISTRATION") && i+1 < len(lines) && strings.Contains(lines[i+1], "NotControllerException"):
		case !afterCleanStop && strings.Contains(l, "Failed to load metadata from __") && i+1 < len(lines) && strings.Contains(lines[i+1], "NotLeaderOrFollowerException"):
			// A broker that was killed still leads in the metadata when it starts again, until its old session ends.
		case level[1] == "ERROR" || level[1] == "FATAL":
			t.Errorf("%s logged: %.500s\n%.500s", h.node.Software(), l, strings.Join(lines[i+1:min(i+6, len(lines))], "\n"))
		case afterCleanStop && repaired.MatchString(l):
			t.Errorf("%s had to repair after a clean stop: %s", h.node.Software(), l)
		case level[1] == "WARN" && h.node.Software() == peer.Highwater:
			t.Logf("it warned: %s", l)
		}
	}
}

var (
	levelOf  = regexp.MustCompile(`^\[\d{4}-\d\d-\d\d [^\]]*\] ([A-Z]+) `)
	repaired = regexp.MustCompile(`Recovering unflushed segment|[Rr]ebuild|[Cc]orrupt|[Tt]runcat|Could not find offset index|Error while`)
	// usual is what Kafka logs on directories of its own too:
	// the metadata log is recovered at every start, clean or not; producers are reloaded from their snapshot, which is called a
	// rebuild; a partition that a topic got when it grew is at first an error;
	// a replica that moves between directories is told where it should be cut, which is its end; a controller registers before it
	// leads; 3.3 ends its controller's timers at a stop; a controller on a busy machine is slow.
	usual = regexp.MustCompile(`partition=__cluster_metadata-0.*Recovering unflushed segment|Reloading from producer snapshot and rebuilding producer state|` +
		`Expected partition made-\S+ with topic id \S+ to exist, but it was missing. Creating|Performing controller activation|unable to start processing because of (?:Timeout|RejectedExecution)Exception|Exceptionally slow controller event|controller event queue overloaded|configuration has no effect here|` +
		`ReplicaAlterLogDirsThread-\d+\]: Truncating partition|Truncating to \d+ has no effect|` +
		"`log.cleaner.enable` is deprecated|Attempting to close NetworkClient that has already been closed|resigned as leader: this node is shutting down")
)
