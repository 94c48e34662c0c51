package cli

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
)

// fsckArchives are the archives that tests have unpacked in memory.
var fsckArchives sync.Map // name → map[string][]byte

func fsckArchive(t testing.TB, name string) map[string][]byte {
	t.Helper()
	if files, ok := fsckArchives.Load(name); ok {
		return files.(map[string][]byte)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(fixture.Read(t, "data/"+name+".tar.gz"))); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if files[path.Clean(h.Name)], err = io.ReadAll(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	fsckArchives.Store(name, files)
	return files
}

// fsckMem puts those files of an archive that lie below one of the prefixes into a file system in memory, under the same names.
func fsckMem(t testing.TB, name string, prefixes ...string) *vfs.Mem {
	t.Helper()
	m := vfs.NewMem()
	for file, data := range fsckArchive(t, name) {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(file, p+"/") }) {
			if index := path.Ext(file); len(data) > 5<<20 && (index == ".index" || index == ".timeindex") {
				data = data[:1<<20-1<<20%24] // room made ahead: zeros, of which less does
			}
			fsckPut(t, m, file, data)
		}
	}
	return m
}

func fsckPut(t testing.TB, m *vfs.Mem, file string, data []byte) {
	t.Helper()
	err := m.MkdirAll(path.Dir(file))
	if err == nil {
		err = m.RemoveAll(file)
	}
	var f vfs.File
	if err == nil {
		f, err = m.Create(file)
	}
	if err == nil {
		_, err = f.WriteAt(data, 0)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func fsckGet(t testing.TB, m *vfs.Mem, file string) []byte {
	t.Helper()
	b, err := m.ReadFile(file, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fsckRun checks directories in memory, and makes sure that nothing is asked of the file system but to read.
func fsckRun(t testing.TB, m *vfs.Mem, paths ...string) *fsckReport {
	t.Helper()
	m.SetFault(func(op vfs.Op) error {
		if op.Kind.Changes() || op.Kind == vfs.OpLock {
			t.Errorf("fsck does %v on %s", op.Kind, op.Name)
		}
		return nil
	})
	defer m.SetFault(nil)
	c := &fsckCheck{fs: m, paths: paths, workers: 2, deep: true, nodeID: kafka.NoBroker, locked: map[string]bool{}}
	r, err := c.run()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func fsckLines(r *fsckReport, least fsckSeverity) string {
	var b strings.Builder
	r.text(&b, least, false)
	return b.String()
}

func (r *fsckReport) partition(name string) *fsckForecast {
	for _, p := range r.Partitions {
		if path.Base(p.Partition) == name {
			return p
		}
	}
	return &fsckForecast{TruncatedTo: -2}
}

// has tells whether there is a finding of a kind about a file.
func (r *fsckReport) has(file, check string, s fsckSeverity) bool {
	return slices.ContainsFunc(r.Findings, func(f *fsckFinding) bool {
		return f.File == file && f.Check == check && f.Severity == s
	})
}

// TestFsckArchives checks every directory that Kafka left behind in order: nothing is wrong with it, and each partition's
// offsets are those that Kafka tells of it.
func TestFsckArchives(t *testing.T) {
	for _, c := range []struct {
		archive, node string
		dirs          []string
		offsets       string // what Kafka says, in the archive's .expect
		notes         int
	}{
		{"single-4.4", "1", []string{"data"}, "offsets.jsonl", 3},
		{"single-4.4-unclean", "1", []string{"data"}, "offsets.jsonl", 1},
		{"jbod-4.4", "1", []string{"a", "b"}, "offsets.jsonl", 1},
		{"cluster-4.4", "1", []string{"data"}, "", 0},
		{"cluster-4.4", "2", []string{"data"}, "", 7},
		{"cluster-4.4", "3", []string{"data"}, "", 1},
		{"cluster-4.4-formatted", "1", []string{"data"}, "", 1},
		{"formatted-4.4", "standalone", []string{"data"}, "", 1},
		{"formatted-4.4", "release-3.3-IV3", []string{"data"}, "", 1},
		{"formatted-4.4", "broker", []string{"data"}, "", 0},
		{"3.9.2-single", "1", []string{"data"}, "own/offsets.jsonl", 1},
		{"3.9.2-migrated", "1", []string{"data"}, "own/offsets.jsonl", 1},
		{"3.9.2-migrated", "3000", []string{"data"}, "", 0},
		{"3.9.2-zookeeper", "1", []string{"data"}, "", 2},
		{"3.3.2-single", "1", []string{"data"}, "own/offsets.jsonl", 2},
	} {
		t.Run(c.archive+"/"+c.node, func(t *testing.T) {
			t.Parallel()
			var paths []string
			for _, d := range c.dirs {
				paths = append(paths, c.node+"/"+d)
			}
			r := fsckRun(t, fsckMem(t, c.archive, paths...), paths...)
			if r.Errors > 0 || r.Warnings > 0 || r.Notes != c.notes {
				t.Errorf("%d errors, %d warnings, %d notes instead of %d:\n%s", r.Errors, r.Warnings, r.Notes, c.notes, fsckLines(r, fsckNote))
			}
			if c.offsets == "" {
				return
			}
			compared := 0
			type said struct {
				T        string
				P        int32
				Earliest []json.Number
				Latest   []json.Number
			}
			for _, s := range fixture.Lines[said](t, "data/"+c.archive+".expect/"+c.offsets) {
				if kafka.IsInternalTopic(s.T) {
					continue // grown since
				}
				name := fmt.Sprintf("%s-%d", s.T, s.P)
				p := r.partition(name)
				if fmt.Sprint(p.StartOffset) != string(s.Earliest[0]) || fmt.Sprint(p.EndOffset) != string(s.Latest[0]) {
					t.Errorf("%s: offsets %d to %d, and Kafka says %s to %s", name, p.StartOffset, p.EndOffset, s.Earliest[0], s.Latest[0])
				}
				compared++
			}
			if compared < 3 {
				t.Errorf("only %d partitions compared", compared)
			}
		})
	}
}

// recovery is what Kafka logged about a recovery.
type fsckRecovery struct {
	recovered map[string][]int64 // by partition
	truncated map[string]int64
	stray     []string
}

func fsckReadRecovery(t *testing.T, archive string) fsckRecovery {
	t.Helper()
	r := fsckRecovery{recovered: map[string][]int64{}, truncated: map[string]int64{}}
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	unflushed := regexp.MustCompile(`partition=(\S+), dir=\S+\] Recovering unflushed segment (\d+)\.`)
	corruption := regexp.MustCompile(`partition=(\S+), dir=\S+\] Corruption found in segment (\d+), truncating to offset (\d+)`)
	stray := regexp.MustCompile(`Log in \S+/(\S+) marked stray`)
	for _, line := range strings.Split(string(fixture.Read(t, "data/"+archive+".expect/recovery.log")), "\n") {
		if m := unflushed.FindStringSubmatch(line); m != nil && !slices.Contains(r.recovered[m[1]], number(m[2])) {
			r.recovered[m[1]] = append(r.recovered[m[1]], number(m[2]))
		}
		if m := corruption.FindStringSubmatch(line); m != nil {
			r.truncated[m[1]] = number(m[3])
		}
		if m := stray.FindStringSubmatch(line); m != nil {
			r.stray = append(r.stray, m[1])
		}
	}
	if len(r.recovered) < 10 {
		t.Fatalf("recovery.log tells of %d partitions", len(r.recovered))
	}
	return r
}

func fsckSizes(t *testing.T, archive, file string) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	for _, l := range strings.Split(strings.TrimSpace(string(fixture.Read(t, "data/"+archive+".expect/"+file))), "\n") {
		f := strings.Split(l, "\t")
		n, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		out[f[0]] = n
	}
	return out
}

// fsckForetold compares a forecast with what Kafka then did.
func fsckForetold(t *testing.T, archive string, r *fsckReport) {
	t.Helper()
	did := fsckReadRecovery(t, archive)
	before, after := fsckSizes(t, archive, "files-before.tsv"), fsckSizes(t, archive, "files-after.tsv")
	seen := 0
	for _, p := range r.Partitions {
		name := path.Base(p.Partition)
		if !slices.Equal(p.Recovers, did.recovered[name]) {
			t.Errorf("%s: forecast recovers %v, and Kafka recovered %v", name, p.Recovers, did.recovered[name])
		}
		truncated, ok := did.truncated[name]
		if !ok {
			truncated = -1
		}
		if p.TruncatedTo != truncated {
			// Kafka has no word for the cut of a segment of which a rebuild of its indexes took the bad end already.
			var cut int64
			for file, size := range before {
				if path.Dir(file) == "1/data/"+name && strings.HasSuffix(file, ".log") {
					cut += size - after[file]
				}
			}
			if ok || cut != p.TruncatedBytes {
				t.Errorf("%s: forecast truncates to %d (%d bytes), and Kafka truncated to %d (%d bytes)", name, p.TruncatedTo, p.TruncatedBytes, truncated, cut)
			}
		}
		if p.Stray != slices.Contains(did.stray, name) {
			t.Errorf("%s: forecast stray %v, and Kafka's strays are %v", name, p.Stray, did.stray)
		}
		if p.TruncatedBytes > 0 && name != fsckMetadataDir {
			for file, size := range before {
				if path.Dir(file) == "1/data/"+name && strings.HasSuffix(file, fmt.Sprintf("%d.log", p.Recovers[len(p.Recovers)-1])) && after[file] != size-p.TruncatedBytes {
					t.Errorf("%s: forecast cuts %d bytes off %s, and Kafka left %d of %d", name, p.TruncatedBytes, file, after[file], size)
				}
			}
		}
		seen++
	}
	if seen != len(did.recovered) {
		t.Errorf("%d partitions in the forecast, %d in recovery.log", seen, len(did.recovered))
	}
}

// TestFsckUnclean compares the forecast for a directory whose broker was killed with what Kafka then did with it.
func TestFsckUnclean(t *testing.T) {
	r := fsckRun(t, fsckMem(t, "single-4.4-unclean", "1/data"), "1/data")
	fsckForetold(t, "single-4.4-unclean", r)
}

// TestFsckDamage checks a directory with known damage: every piece is found, and the forecast is what Kafka did.
func TestFsckDamage(t *testing.T) {
	r := fsckRun(t, fsckMem(t, "single-4.4-torn", "1/data"), "1/data")
	fsckForetold(t, "single-4.4-torn", r)
	kinds := map[string][]string{ // first words of the damage → checks and severities
		"truncated inside the last batch":             {"torn-batch", "error"},
		"one bit flipped in the last batch":           {"batch-crc", "error"},
		"4096 zero bytes appended":                    {"zero-tail", "warning"},
		"removed":                                     {"index-missing", "warning"},
		"48 random bytes over the start":              {"index", "warning"},
		"truncated to 29 bytes":                       {"index", "warning"},
		"one bit of the checksum flipped":             {"producer-snapshot", "warning"},
		"truncated to 45 bytes":                       {"txn-index", "warning"},
		"777 random bytes appended":                   {"no-batch", "error"},
		"left behind by a cleaner that died":          {"leftover", "note"},
		"left behind by a deletion that died":         {"leftover", "note"},
		"an epoch that starts beyond the end":         {"leader-epochs", "warning"},
		"a high watermark beyond the end":             {"checkpoint", "warning"},
		"a batch without its last 7 bytes appended":   {"torn-batch", "error"},
		"a partition of a topic that the metadata do": {"stray", "warning"},
	}
	lines := strings.Split(strings.TrimSpace(string(fixture.Read(t, "data/single-4.4-torn.expect/damage.tsv"))), "\n")
	if len(lines) < 19 {
		t.Fatalf("%d pieces of damage", len(lines))
	}
	for _, l := range lines {
		f := strings.Split(l, "\t")
		var want []string
		for words, k := range kinds {
			if strings.HasPrefix(f[0], words) {
				want = k
			}
		}
		found := slices.ContainsFunc(r.Findings, func(x *fsckFinding) bool {
			if want == nil || x.Check != want[0] || x.Severity.String() != want[1] {
				return false
			}
			dir, base := path.Split(f[1])
			switch want[0] {
			case "index-missing":
				return path.Dir(x.File)+"/" == dir && strings.HasPrefix(x.Text, base+" is missing")
			case "leftover":
				// Those of one kind are named together, by the first.
				return path.Dir(x.File)+"/" == dir && path.Ext(x.File) == path.Ext(base)
			}
			return x.File == f[1]
		})
		if !found {
			t.Errorf("not found: %s", l)
		}
		if len(f) > 2 && want != nil && want[1] == "error" {
			if m := regexp.MustCompile(`(?:at|at byte) (\d+)`).FindStringSubmatch(f[2]); m != nil && want[0] == "torn-batch" {
				if !slices.ContainsFunc(r.Findings, func(x *fsckFinding) bool { return x.File == f[1] && fmt.Sprint(x.Position) == m[1] }) {
					t.Errorf("not at its place: %s", l)
				}
			}
		}
	}
	// Nothing else is wrong with it than what was damaged, and what follows from that.
	for _, x := range r.Findings {
		if x.Severity == fsckError && !strings.Contains(string(fixture.Read(t, "data/single-4.4-torn.expect/damage.tsv")), x.File) {
			t.Errorf("an error in a file that was not damaged: %s: %s", x.File, x.Text)
		}
	}
	if r.Errors != 5 {
		t.Errorf("%d errors instead of 5:\n%s", r.Errors, fsckLines(r, fsckError))
	}
}

// TestFsckFaults makes one thing wrong at a time in directories that were stopped cleanly.
func TestFsckFaults(t *testing.T) {
	const a, b = "1/a", "1/b"
	var m *vfs.Mem
	edit := func(file string, change func([]byte) []byte) {
		fsckPut(t, m, file, change(slices.Clone(fsckGet(t, m, file))))
	}
	replace := func(file, old, new string) {
		edit(file, func(b []byte) []byte {
			if !bytes.Contains(b, []byte(old)) {
				t.Fatalf("%s has no %q: %q", file, old, b)
			}
			return bytes.ReplaceAll(b, []byte(old), []byte(new))
		})
	}
	put := func(file, data string) { fsckPut(t, m, file, []byte(data)) }
	remove := func(file string) {
		if err := m.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
	}
	copyDir := func(from, to string) {
		entries, err := m.List(from)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			fsckPut(t, m, to+"/"+e.Name(), fsckGet(t, m, from+"/"+e.Name()))
		}
	}
	// Partitions of the archive with a log, and its files.
	fsckMem(t, "jbod-4.4", a, b)
	var log string
	for file, data := range fsckArchive(t, "jbod-4.4") {
		if strings.HasPrefix(file, b+"/") && strings.HasSuffix(file, ".log") && !strings.Contains(file, "__") && !strings.Contains(file, "-future") && len(data) > 50000 && (log == "" || file < log) {
			log = file
		}
	}
	if log == "" {
		t.Fatal("no log")
	}
	part := path.Dir(log)
	name := path.Base(part)
	seg := strings.TrimSuffix(log, ".log")
	tp, _ := kafka.ParseTopicPartition(name)
	firstBatch := func(d []byte) int { return record.Batch(d).Size() }

	for _, c := range []struct {
		what   string
		change func()
		file   string
		check  string
		want   fsckSeverity
		kafka  string // part of what it says that Kafka does
	}{
		{"a directory's node id differs", func() { replace(b+"/meta.properties", "node.id=1", "node.id=2") }, b + "/meta.properties", "meta-properties", fsckError, "ends"},
		{"a cluster id differs", func() { replace(b+"/meta.properties", "cluster.id=", "cluster.id=x") }, b + "/meta.properties", "meta-properties", fsckError, "ends"},
		{"a directory id twice", func() { put(b+"/meta.properties", string(fsckGet(t, m, a+"/meta.properties"))) }, b + "/meta.properties", "meta-properties", fsckError, "ends"},
		{"no meta.properties", func() { remove(b + "/meta.properties") }, b, "meta-properties", fsckWarning, "ends at its start"},
		{"a bad meta.properties", func() { replace(b+"/meta.properties", "version=1", "version=9") }, b + "/meta.properties", "meta-properties", fsckError, "offline"},
		{"a directory that is no partition", func() { put(b+"/backup/x", "") }, b + "/backup", "unknown-dir", fsckError, "ends"},
		{"lost+found", func() { put(b+"/lost+found/x", "") }, b + "/lost+found", "unknown-dir", fsckError, "ends"},
		{"a file that is none of ours", func() { put(b+"/README", "") }, b + "/README", "unknown-file", fsckNote, "passes"},
		{"a checkpoint of a newer version", func() { edit(b+"/recovery-point-offset-checkpoint", func(d []byte) []byte { d[0] = '1'; return d }) }, b + "/recovery-point-offset-checkpoint", "checkpoint", fsckError, "offline"},
		{"a checkpoint with a line too few", func() { replace(b+"/replication-offset-checkpoint", "0\n", "0\n9") }, b + "/replication-offset-checkpoint", "checkpoint", fsckError, "offline"},
		{"a high watermark beyond the end", func() {
			edit(b+"/replication-offset-checkpoint", func(d []byte) []byte {
				return regexp.MustCompile(`(?m)^`+tp.Topic+` `+fmt.Sprint(tp.Partition)+` \d+$`).ReplaceAll(d, []byte(tp.Topic+" "+fmt.Sprint(tp.Partition)+" 99999"))
			})
		}, b + "/replication-offset-checkpoint", "checkpoint", fsckError, "high watermark"},
		{"a log start beyond the end", func() {
			put(b+"/log-start-offset-checkpoint", fmt.Sprintf("0\n1\n%s %d 99999\n", tp.Topic, tp.Partition))
		}, b + "/log-start-offset-checkpoint", "checkpoint", fsckError, "removes all segments"},
		{"a line twice", func() { put(b+"/cleaner-offset-checkpoint", "0\n2\nx 0 1\nx 0 2\n") }, b + "/cleaner-offset-checkpoint", "checkpoint", fsckWarning, "last line"},
		{"a partition in both directories", func() { copyDir(part, a+"/"+name) }, part, "duplicate", fsckError, "ends"},
		{"a partition is not there", func() { remove(part) }, b, "absent", fsckError, "lost"},
		{"the first segment is not there", func() {
			put(part+"/00000000000000000300.log", "")
			remove(log)
		}, part + "/leader-epoch-checkpoint", "leader-epochs", fsckWarning, "before the log's start"},
		{"a log with a name that is no number", func() { put(part+"/abc.log", "") }, part + "/abc.log", "unknown-file", fsckError, "ends"},
		{"an empty meta.properties", func() { put(b+"/meta.properties", "") }, b + "/meta.properties", "meta-properties", fsckError, "ends at its start"},
		{"a metadata log that is gone", func() {
			remove(a + "/__cluster_metadata-0")
			put(a+"/recovery-point-offset-checkpoint", "0\n1\n__cluster_metadata 0 40\n")
		}, a + "/__cluster_metadata-0", "metadata-lost", fsckError, "renames"},
		{"a metadata log that is empty", func() {
			put(a+"/recovery-point-offset-checkpoint", "0\n1\n__cluster_metadata 0 40\n")
			put(a+"/__cluster_metadata-0/00000000000000000000.log", "")
		}, a + "/recovery-point-offset-checkpoint", "checkpoint", fsckError, "lost"},
		{"a segment is not there", func() { remove(log) }, part, "no-segment", fsckError, "empty segment"},
		{"a log without its second half", func() { edit(log, func(d []byte) []byte { return d[:len(d)/2] }) }, log, "torn-batch", fsckError, "appends behind"},
		{"a recovery point beyond the end", func() { edit(log, func(d []byte) []byte { return d[:firstBatch(d)] }) }, b + "/recovery-point-offset-checkpoint", "checkpoint", fsckError, "lost"},
		{"a batch is missing", func() { edit(log, func(d []byte) []byte { return d[firstBatch(d):] }) }, log, "gap", fsckWarning, "after the gap"},
		{"a segment that was set aside", func() { put(seg+".log.aside.2", "x") }, log + ".aside.2", "aside", fsckWarning, "passes"},
		{"a batch twice", func() { edit(log, func(d []byte) []byte { return append(d[:firstBatch(d):firstBatch(d)], d...) }) }, log, "batch-order", fsckError, "does not notice"},
		{"a batch with a wrong checksum", func() { edit(log, func(d []byte) []byte { d[100] ^= 4; return d }) }, log, "batch-crc", fsckError, "goes no further"},
		{"a batch of a lower leader epoch", func() {
			edit(log, func(d []byte) []byte { record.Batch(d).SetPartitionLeaderEpoch(7); return d })
		}, log, "batch-epoch", fsckError, "does not notice"},
		{"a count that the records do not have", func() {
			edit(log, func(d []byte) []byte {
				x := record.Batch(d[:firstBatch(d)])
				d[57+3]++
				d[23+3]++
				x.SetCRC()
				return d
			})
		}, log, "records", fsckError, "look into"},
		{"a batch of a later format", func() { edit(log, func(d []byte) []byte { d[16] = 3; return d }) }, log, "batch-magic", fsckError, "as one of magic 2"},
		{"zeros behind the log", func() { edit(log, func(d []byte) []byte { return append(d, make([]byte, 8192)...) }) }, log, "zero-tail", fsckError, "behind the zeros"},
		{"no offset index", func() { remove(seg + ".index") }, log, "index-missing", fsckWarning, "recovers"},
		{"no time index", func() { remove(seg + ".timeindex") }, log, "index-missing", fsckWarning, "empty one"},
		{"a wrong entry in the offset index", func() { edit(seg+".index", func(d []byte) []byte { d[7] ^= 1; return d }) }, seg + ".index", "index", fsckError, "does not notice"},
		{"a cut offset index", func() { edit(seg+".index", func(d []byte) []byte { return d[:len(d)-3] }) }, seg + ".index", "index", fsckError, "does not notice"},
		{"an offset index of more than the log", func() { edit(seg+".index", func(d []byte) []byte { return append(d, 0x7f, 1, 1, 1, 0x7f, 1, 1, 1) }) }, seg + ".index", "index", fsckError, "does not notice"},
		{"a wrong entry in the time index", func() { edit(seg+".timeindex", func(d []byte) []byte { d[7] ^= 1; return d }) }, seg + ".timeindex", "index", fsckError, "retention"},
		{"a time index without its end", func() { edit(seg+".timeindex", func(d []byte) []byte { return d[:len(d)-12] }) }, seg + ".timeindex", "index", fsckWarning, "retention"},
		{"an index with room ahead", func() { edit(seg+".timeindex", func(d []byte) []byte { return append(d, make([]byte, 120)...) }) }, seg + ".timeindex", "index-zeros", fsckWarning, "1970"},
		{"an index without a log", func() { put(part+"/00000000000000099999.index", "") }, part + "/00000000000000099999.index", "orphan-index", fsckWarning, "removes"},
		{"no partition.metadata", func() { remove(part + "/partition.metadata") }, part, "partition-metadata", fsckWarning, "stray"},
		{"a bad partition.metadata", func() { put(part+"/partition.metadata", "version: 7\ntopic_id: x") }, part + "/partition.metadata", "partition-metadata", fsckError, "offline"},
		{"another topic's id", func() {
			put(part+"/partition.metadata", string(fsckGet(t, m, a+"/__consumer_offsets-0/partition.metadata")))
		}, part, "topic-id", fsckError, "serves it"},
		{"nobody's id", func() { put(part+"/partition.metadata", "version: 0\ntopic_id: "+kafka.UUID{1, 2, 3}.String()) }, part, "stray", fsckWarning, "-stray"},
		{"no leader epochs", func() { remove(part + "/leader-epoch-checkpoint") }, part, "leader-epochs", fsckWarning, "without a history"},
		{"bad leader epochs", func() { put(part+"/leader-epoch-checkpoint", "0\n1\nx y\n") }, part + "/leader-epoch-checkpoint", "leader-epochs", fsckError, "offline"},
		{"other leader epochs", func() { put(part+"/leader-epoch-checkpoint", "0\n1\n5 0\n") }, part + "/leader-epoch-checkpoint", "leader-epochs", fsckWarning, "does not notice"},
		{"an unfinished compaction", func() { put(part+"/00000000000000000000.log.cleaned", "abc") }, part + "/00000000000000000000.log.cleaned", "leftover", fsckNote, "removes"},
		{"a compaction whose last step is missing", func() { put(log+".swap", string(fsckGet(t, m, log))) }, log + ".swap", "leftover", fsckNote, "gives it its name"},
		{"a swap of an unfinished split", func() { put(log+".swap", string(fsckGet(t, m, log))); put(log+".cleaned", "") }, log + ".swap", "leftover", fsckNote, "removes"},
		{"a bad quorum-state", func() { put(a+"/__cluster_metadata-0/quorum-state", "{}") }, a + "/__cluster_metadata-0/quorum-state", "quorum-state", fsckError, "ends"},
		{"no quorum-state", func() { remove(a + "/__cluster_metadata-0/quorum-state") }, a + "/__cluster_metadata-0", "quorum-state", fsckWarning, "vote"},
		{"an epoch behind the log's", func() {
			edit(a+"/__cluster_metadata-0/quorum-state", func(d []byte) []byte {
				return regexp.MustCompile(`"leaderEpoch":\d+`).ReplaceAll(d, []byte(`"leaderEpoch":0`))
			})
		}, a + "/__cluster_metadata-0/quorum-state", "quorum-state", fsckWarning, "log's epoch"},
		{"a bad snapshot of the metadata", func() {
			edit(a+"/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint", func(d []byte) []byte { d[80] ^= 1; return d })
		}, a + "/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint", "metadata-snapshot", fsckError, "ends"},
		{"a snapshot that was not finished", func() { put(a+"/__cluster_metadata-0/00000000000000000012-0000000001-7.checkpoint.part", "") }, a + "/__cluster_metadata-0/00000000000000000012-0000000001-7.checkpoint.part", "leftover", fsckNote, "removes"},
		{"a metadata log in two directories", func() { copyDir(a+"/__cluster_metadata-0", b+"/__cluster_metadata-0") }, b + "/__cluster_metadata-0", "metadata-place", fsckError, "ends"},
		{"a metadata log without its beginning", func() {
			copyDir(a+"/__cluster_metadata-0", a+"/x")
			remove(a + "/__cluster_metadata-0")
			for _, e := range []string{".log", ".index", ".timeindex"} {
				put(a+"/__cluster_metadata-0/00000000000000000001"+e, string(fsckGet(t, m, a+"/x/00000000000000000000"+e)))
			}
			remove(a + "/x")
		}, a + "/__cluster_metadata-0", "metadata-start", fsckError, "ends"},
		{"a file half replaced", func() { put(b+"/recovery-point-offset-checkpoint.tmp", "0\n") }, b + "/recovery-point-offset-checkpoint.tmp", "leftover", fsckNote, "writes over"},
		{"a bad bootstrap.checkpoint", func() { put(a+"/bootstrap.checkpoint", "x") }, a + "/bootstrap.checkpoint", "bootstrap", fsckError, "ends"},
	} {
		t.Run(c.what, func(t *testing.T) {
			m = fsckMem(t, "jbod-4.4", a, b)
			c.change()
			r := fsckRun(t, m, a, b)
			for _, f := range r.Findings {
				if f.File == c.file && f.Check == c.check && f.Severity == c.want && strings.Contains(f.Kafka, c.kafka) {
					return
				}
			}
			t.Errorf("no %v %s about %s in\n%s", c.want, c.check, c.file, fsckLines(r, fsckNote))
		})
	}
}

// TestFsckBitFlips flips bits in every kind of file. Nothing makes the check fail, and what a checksum or an exact rule covers is
// always found.
func TestFsckBitFlips(t *testing.T) {
	m := fsckMem(t, "single-4.4", "1/data")
	var files []string
	for file, data := range fsckArchive(t, "single-4.4") {
		if strings.HasPrefix(file, "1/data/") && len(data) > 0 && !strings.HasSuffix(file, ".deleted") && !strings.Contains(file, "-delete/") {
			files = append(files, file)
		}
	}
	slices.Sort(files)
	byKind := map[string][]string{}
	for _, f := range files {
		kind := path.Ext(f)
		if kind == "" || kind == ".metadata" || kind == ".properties" || kind == ".kafka_cleanshutdown" {
			kind = path.Base(f)
		}
		if strings.Contains(f, fsckMetadataDir) {
			kind = "metadata " + kind
		}
		byKind[kind] = append(byKind[kind], f)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	before := fsckRun(t, m, "1/data")
	if before.Errors+before.Warnings > 0 {
		t.Fatal(fsckLines(before, fsckWarning))
	}
	covered := map[string]int{}
	for _, kind := range slices.Sorted(func(yield func(string) bool) {
		for k := range byKind {
			if !yield(k) {
				return
			}
		}
	}) {
		rounds := 25
		switch {
		case strings.Count(byKind[kind][0], "/") < 3:
			rounds = 1 // all of the directory is checked each time
		case strings.HasPrefix(kind, "metadata "):
			rounds = 8
		}
		for range rounds {
			file := byKind[kind][rng.IntN(len(byKind[kind]))]
			data := fsckGet(t, m, file)
			at := rng.IntN(len(data))
			paths := []string{"1/data"}
			if rounds > 1 {
				paths = []string{path.Dir(file)}
			}
			if err := m.FlipBit(file, int64(at*8+rng.IntN(8))); err != nil {
				t.Fatal(err)
			}
			r := fsckRun(t, m, paths...)
			must := fsckCovered(kind, data, at) || kind == ".txnindex" && !strings.Contains(file, "compacted") // else compaction may have taken what it says
			if must {
				covered[kind]++
			}
			if must && r.Errors+r.Warnings == 0 {
				t.Errorf("a flipped bit in byte %d of %s is not found:\n%s", at, file, fsckLines(r, fsckNote))
			}
			fsckPut(t, m, file, data)
		}
	}
	for _, kind := range []string{".log", ".index", ".timeindex", ".txnindex", ".snapshot", "metadata .log", "metadata .checkpoint"} {
		if covered[kind] < 3 {
			t.Errorf("only %d flips in %s files were of bytes that are checked", covered[kind], kind)
		}
	}
}

// fsckCovered tells whether a change of a byte cannot stay unseen.
func fsckCovered(kind string, data []byte, at int) bool {
	switch kind {
	case ".log", "metadata .log", "metadata .checkpoint":
		for pos := 0; pos < len(data); {
			b := record.Batch(data[pos:])
			if at < pos+b.Size() {
				return at >= pos+8 && (at < pos+12 || at >= pos+16) // not the offset, and not the leader epoch
			}
			pos += b.Size()
		}
	case ".index", ".snapshot":
		return true
	case ".timeindex":
		return at%12 < 8 // older Kafkas have any offset of the batch
	}
	return false
}

// TestFsckAgreesWithRecovery damages a directory whose broker was killed in random places, and compares the forecast with what
// Highwater's own recovery then does.
func TestFsckAgreesWithRecovery(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	files := fsckArchive(t, "single-4.4-unclean")
	var logs []string
	for file, data := range files {
		if strings.HasPrefix(file, "1/data/") && strings.HasSuffix(file, ".log") && !strings.Contains(file, fsckMetadataDir) && len(data) > 0 {
			logs = append(logs, file)
		}
	}
	slices.Sort(logs)
	cuts := 0
	for round := range 40 {
		file := logs[rng.IntN(len(logs))]
		dir := path.Dir(file)
		m := fsckMem(t, "single-4.4-unclean", dir)
		fsckPut(t, m, "1/data/meta.properties", files["1/data/meta.properties"])
		data := slices.Clone(files[file])
		at := rng.IntN(len(data))
		switch what := rng.IntN(4); what {
		case 0:
			data = data[:at]
		case 1:
			// Not where no checksum reaches.
			for !fsckCovered(".log", data, at) {
				at = rng.IntN(len(data))
			}
			data[at] ^= 1 << rng.IntN(8)
		case 2:
			data = append(data, make([]byte, 1+rng.IntN(5000))...)
		case 3:
			for range 1 + rng.IntN(2000) {
				data = append(data, byte(rng.Uint32()))
			}
		}
		fsckPut(t, m, file, data)
		r := fsckRun(t, m, dir)
		p := r.partition(path.Base(dir))
		d, err := storage.OpenDir("1/data", storage.Options{FS: m, Files: storage.NewFiles(m, 100)})
		if err != nil {
			t.Fatal(err)
		}
		c := storage.DefaultConfig()
		c.Compact = strings.Contains(file, "keys-") || strings.Contains(file, "__")
		part, _ := storage.ParsePartitionDirName(path.Base(dir))
		l, recovery, err := d.Open(part, c, fsckNow(t))
		if err != nil {
			t.Fatalf("round %d: %s: %v", round, file, err)
		}
		if slices.ContainsFunc(r.Findings, func(f *fsckFinding) bool { return f.Check == "batch-magic" }) {
			// Kafka reads on, and we do not.
		} else if slices.ContainsFunc(r.Findings, func(f *fsckFinding) bool {
			return f.Check == "zero-tail" && strings.Contains(f.Highwater, "keeps")
		}) {
			if l.EndOffset() <= p.EndOffset || recovery.DroppedSegments > 0 {
				t.Errorf("round %d: %s: zeros behind a segment: recovery ends at %d, %v", round, file, l.EndOffset(), recovery.Notes)
			}
		} else if l.EndOffset() != p.EndOffset || recovery.TruncatedBytes != p.TruncatedBytes && recovery.DroppedSegments == 0 {
			t.Errorf("round %d: %s: the forecast ends at %d (%d bytes cut), recovery at %d (%d bytes cut, %v)", round, file, p.EndOffset, p.TruncatedBytes, l.EndOffset(), recovery.TruncatedBytes, recovery.Notes)
		}
		if p.TruncatedBytes > 0 {
			cuts++
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if cuts < 20 {
		t.Errorf("only %d of 40 logs were cut", cuts)
	}
}

// TestFsckAbsent: a partition without a directory is lost, unless it may have been created just before the node was killed.
func TestFsckAbsent(t *testing.T) {
	m := fsckMem(t, "single-4.4-unclean", "1/data")
	if err := m.RemoveAll("1/data/stream-0"); err != nil {
		t.Fatal(err)
	}
	if r := fsckRun(t, m, "1/data"); !r.has("1/data", "absent", fsckError) {
		t.Errorf("with a high watermark: %s", fsckLines(r, fsckNote))
	}
	fsckPut(t, m, "1/data/replication-offset-checkpoint", nil)
	if r := fsckRun(t, m, "1/data"); !r.has("1/data", "absent", fsckWarning) || r.Errors > 0 {
		t.Errorf("nowhere but in the metadata: %s", fsckLines(r, fsckNote))
	}
	fsckPut(t, m, "1/data/.kafka_cleanshutdown", nil)
	if r := fsckRun(t, m, "1/data"); !r.has("1/data", "absent", fsckError) {
		t.Errorf("after a clean stop: %s", fsckLines(r, fsckNote))
	}
}

// fsckTool runs the tool in this process.
func fsckTool(args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	e := &Env{Name: "fsck", Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Context: context.Background(), Stoppable: func() {}}
	status = runFsck(e)
	// How far it is it says where it takes long.
	return status, out.String(), regexp.MustCompile(`(?m)^\d+ of \d+ partitions, .*\n`).ReplaceAllString(errs.String(), "")
}

// TestFsckTool runs the tool on the real file system, in directories that nobody may write to, and compares every file's
// bytes, mode and times before and after.
func TestFsckTool(t *testing.T) {
	good, bad := unpackData(t, "jbod-4.4"), unpackData(t, "single-4.4-torn")
	type state struct {
		size int64
		mod  int64
		mode fs.FileMode
		data string
	}
	look := func() map[string]state {
		out := map[string]state{}
		for _, dir := range []string{good, bad} {
			err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				i, err := d.Info()
				s := state{i.Size(), i.ModTime().UnixNano(), i.Mode(), ""}
				if err == nil && !d.IsDir() {
					var b []byte
					b, err = os.ReadFile(p)
					s.data = string(b)
				}
				out[p] = s
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		return out
	}
	protect := func(mode, dirMode fs.FileMode) {
		for p, s := range look() {
			m := mode
			if s.mode.IsDir() {
				m = dirMode
			}
			if err := os.Chmod(p, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	lost := filepath.Join(t.TempDir(), "server.properties") // there is b, which Kafka never had the metadata log in
	if err := os.WriteFile(lost, []byte("node.id=1\nprocess.roles=broker,controller\nlog.dirs="+good+"/1/b\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if status, out, _ := fsckTool("--config", lost); status != 1 || !strings.Contains(out, "/1/b/__cluster_metadata-0: error: it is missing, and there are partitions") {
		t.Errorf("without the metadata log: status %d\n%s", status, out)
	}
	protect(0o444, 0o555)
	defer protect(0o644, 0o755) // so that they can be removed
	before := look()

	properties := filepath.Join(t.TempDir(), "server.properties")
	if err := os.WriteFile(properties, []byte("node.id=1\nprocess.roles=broker,controller\nlog.dirs="+good+"/1/a,"+good+"/1/b\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	status, out, errs := fsckTool("--config", properties)
	if status != 0 || !strings.Contains(out, "0 errors, 0 warnings") || errs != "" {
		t.Errorf("status %d\n%s%s", status, out, errs)
	}
	status, out, errs = fsckTool("--json", bad+"/1/data")
	var raw map[string]any
	if err := json.Unmarshal([]byte(out), &raw); err != nil || status != 1 || raw["errors"] != 5.0 || errs != "" {
		t.Errorf("status %d, %v, %v errors\n%s", status, err, raw["errors"], errs)
	}
	status, out, _ = fsckTool("--quiet", bad+"/1/data/stream-0", bad+"/1/data/wide-0")
	if status != 1 || !strings.Contains(out, "truncates the log to offset 7749") || strings.Contains(out, "txn-0") || strings.Contains(out, "note:") {
		t.Errorf("status %d\n%s", status, out)
	}
	status, out, _ = fsckTool("--shallow", "--verbose", "--threads", "1", good+"/1/a")
	if status != 0 || !strings.Contains(out, "offsets 0 to") {
		t.Errorf("status %d\n%s", status, out)
	}
	for _, args := range [][]string{{}, {"--no-such"}, {good + "/nowhere"}, {properties}, {"--threads", "0", good}, {"--config", good + "/nowhere"}} {
		if status, out, errs := fsckTool(args...); status != 2 || errs == "" || out != "" {
			t.Errorf("%v: status %d\n%s%s", args, status, out, errs)
		}
	}
	if status, _, errs := fsckTool("--help"); status != 0 || !strings.Contains(errs, "--shallow") {
		t.Errorf("help: status %d\n%s", status, errs)
	}
	after := look()
	if len(after) != len(before) {
		t.Errorf("%d files before, %d after", len(before), len(after))
	}
	for p, s := range before {
		if after[p] != s {
			t.Errorf("%s was changed", p)
		}
	}
}

// TestFsckDiskErrors has one file at a time that cannot be read. It is named, and everything else is checked; under a running
// broker a file that has vanished is no error.
func TestFsckDiskErrors(t *testing.T) {
	m := fsckMem(t, "jbod-4.4", "1/a", "1/b")
	run := func(live bool, name string, kind vfs.OpKind, err error) *fsckReport {
		hit := false
		m.SetFault(func(op vfs.Op) error {
			if op.Name == name && op.Kind == kind {
				hit = true
				return err
			}
			return nil
		})
		defer m.SetFault(nil)
		c := &fsckCheck{fs: m, paths: []string{"1/a", "1/b"}, workers: 2, deep: true, live: live, nodeID: kafka.NoBroker, locked: map[string]bool{}}
		r, rerr := c.run()
		if rerr != nil || !hit {
			t.Fatalf("%s: %v, asked for %v", name, rerr, hit)
		}
		return r
	}
	eio := errors.New("input/output error")
	for _, c := range []struct {
		name, check string
		kind        vfs.OpKind
	}{
		{"1/b/slow-0/00000000000000000000.log", "unreadable", vfs.OpOpen},
		{"1/b/slow-0/00000000000000000000.log", "unreadable", vfs.OpRead},
		{"1/b/slow-0/00000000000000000000.index", "unreadable", vfs.OpRead},
		{"1/b/slow-0/partition.metadata", "unreadable", vfs.OpRead},
		{"1/b/slow-0/leader-epoch-checkpoint", "unreadable", vfs.OpRead},
		{"1/b/slow-0", "unreadable", vfs.OpList},
		{"1/b/meta.properties", "meta-properties", vfs.OpRead},
		{"1/b/recovery-point-offset-checkpoint", "checkpoint", vfs.OpRead},
		{"1/a/__cluster_metadata-0/00000000000000000000.log", "unreadable", vfs.OpRead},
	} {
		r := run(false, c.name, c.kind, eio)
		if !slices.ContainsFunc(r.Findings, func(f *fsckFinding) bool {
			return f.Check == c.check && f.Severity == fsckError && strings.HasPrefix(c.name, strings.TrimSuffix(f.File, ".log")) && strings.Contains(f.Text, "input/output error")
		}) {
			t.Errorf("%v of %s: not said in\n%s", c.kind, c.name, fsckLines(r, fsckNote))
		}
		if len(r.Partitions) != 10 {
			t.Errorf("%v of %s: %d partitions are checked", c.kind, c.name, len(r.Partitions))
		}
	}
	if r := run(true, "1/b/slow-0/00000000000000000000.log", vfs.OpOpen, fs.ErrNotExist); !r.has("1/b/slow-0/00000000000000000000.log", "vanished", fsckNote) || !r.Live {
		t.Errorf("a file that vanished is not said in\n%s", fsckLines(r, fsckNote))
	}
}
