package storage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/vfs"
)

// goldenNow is a little after the fixtures were made: nothing has expired.
var goldenNow = time.UnixMilli(1796000000000)

// archiveFiles are the files of an archive of a data directory of the real Kafka.
func archiveFiles(t testing.TB, name string) map[string][]byte {
	t.Helper()
	f, err := os.Open(fixture.Path("data/" + name + ".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		b := make([]byte, h.Size) // up to 10 MB of zeros, as Kafka makes its indexes
		if _, err := io.ReadFull(r, b); err != nil {
			t.Fatal(err)
		}
		out[h.Name] = b
	}
}

// smallFiles are those of archiveFiles that have at most 4 KiB, by archive: many tests want them, and unpacking takes a while.
var smallFiles sync.Map

// archiveSmallFiles are the files of an archive that have at most 4 KiB. They aren't the caller's to change.
func archiveSmallFiles(t testing.TB, name string) map[string][]byte {
	t.Helper()
	if known, ok := smallFiles.Load(name); ok {
		return known.(map[string][]byte)
	}
	out := map[string][]byte{}
	for file, b := range archiveFiles(t, name) {
		if len(b) <= 4096 {
			out[file] = bytes.Clone(b)
		}
	}
	smallFiles.Store(name, out)
	return out
}

// unpack puts an archive into memory.
func unpack(t testing.TB, name string) *vfs.Mem {
	t.Helper()
	m := vfs.NewMem()
	for name, b := range archiveFiles(t, name) {
		if err := m.MkdirAll(path.Dir(name)); err != nil {
			t.Fatal(err)
		}
		put(t, m, name, b)
	}
	return m
}

func put(t testing.TB, fsys vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fsys.Create(name)
	if errors.Is(err, fs.ErrExist) {
		if f, err = fsys.Open(name, vfs.ReadWrite); err == nil {
			err = f.Truncate(0)
		}
	}
	if err == nil {
		_, err = f.WriteAt(b, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// files reads a table "path, size, hash" of a fixture.
func files(t *testing.T, name string) map[string]string {
	t.Helper()
	r := csv.NewReader(bytes.NewReader(fixture.Read(t, name)))
	r.Comma = '\t'
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, row := range rows {
		out[row[0]] = row[1] + " " + row[2]
	}
	return out
}

func fileSum(t *testing.T, fsys vfs.FS, name string) string {
	t.Helper()
	b, err := fsys.ReadFile(name, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.Sum256(b)
	return fmt.Sprint(len(b), " ", hex.EncodeToString(h[:8]))
}

// openAll opens every partition of a directory.
func openAll(t *testing.T, fsys vfs.FS, dir string, config func(topic string) Config) (*Dir, map[string]*Log, map[string]Recovery) {
	t.Helper()
	d, err := OpenDir(dir, Options{FS: fsys, Files: NewFiles(fsys, 50), ProducerExpiration: 24 * 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range d.Notes() {
		t.Log(n)
	}
	if err := d.Begin(); err != nil {
		t.Fatal(err)
	}
	dirs, err := d.Partitions()
	if err != nil {
		t.Fatal(err)
	}
	logs, recoveries := map[string]*Log{}, map[string]Recovery{}
	for _, p := range dirs {
		if p.Kind != Current {
			continue
		}
		l, r, err := d.Open(p, config(p.Partition.Topic), goldenNow)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range r.Notes {
			t.Log(n)
		}
		logs[p.Name], recoveries[p.Name] = l, r
	}
	return d, logs, recoveries
}

func compactedByName(topic string) Config {
	c := DefaultConfig()
	c.SegmentIndexBytes = 262144
	c.Compact = strings.Contains(topic, "compact") || strings.HasPrefix(topic, "__") || topic == "keys"
	return c
}

type goldenOffsets struct {
	T                                          string
	P                                          int32
	Earliest, Latest, LastStable, MaxTimestamp any
	AtOrAfter                                  map[string]any
}

func triple(a Timestamped, ok bool) string {
	if !ok {
		return "[-1 -1 -1]"
	}
	return fmt.Sprintf("[%d %d %d]", a.Offset, a.Timestamp, a.Epoch)
}

// checkOffsets compares with what Kafka answered to ListOffsets. Kafka was asked after a start of its own, which gave every
// partition a new leader epoch.
func checkOffsets(t *testing.T, name string, logs map[string]*Log) {
	t.Helper()
	seen := 0
	for _, w := range fixture.Lines[goldenOffsets](t, name) {
		tp := kafka.TopicPartition{Topic: w.T, Partition: w.P}
		l := logs[tp.String()]
		if l == nil {
			t.Errorf("%v was not opened", tp)
			continue
		}
		seen++
		end := l.EndOffset()
		l.SetHighWatermark(end)
		if strings.HasPrefix(w.T, "__") {
			continue // Kafka's own topics went on while it was asked
		}
		if got, want := fmt.Sprint(l.StartOffset()), first(w.Earliest); got != want {
			t.Errorf("%v: earliest %s, want %s", tp, got, want)
		}
		if got, want := fmt.Sprint(end), first(w.Latest); got != want {
			t.Errorf("%v: latest %s, want %s", tp, got, want)
		}
		if got, want := fmt.Sprint(l.LastStableOffset(end)), first(w.LastStable); got != want {
			t.Errorf("%v: last stable %s, want %s", tp, got, want)
		}
		if got, want := triple(l.Earliest(), true), fmt.Sprint(w.Earliest); got != want && end > l.StartOffset() {
			t.Errorf("%v: earliest %s, want %s", tp, got, want)
		}
		ts, ok, err := l.OffsetOfMaxTimestamp()
		if err != nil {
			t.Errorf("%v: %v", tp, err)
		}
		if strings.Contains(name, "3.3.2") && ts.Offset >= 0 {
			ts.Epoch = 9 // Kafka 3.3.2 answered with the newest epoch, later ones with the record's
		}
		if got, want := triple(ts, ok), fmt.Sprint(w.MaxTimestamp); got != want {
			t.Errorf("%v: max timestamp %s, want %s", tp, got, want)
		}
		for at, want := range w.AtOrAfter {
			ms, err := strconv.ParseInt(at, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			ts, ok, err := l.OffsetForTimestamp(ms, end)
			if err != nil {
				t.Errorf("%v: %v", tp, err)
			}
			if got, want := triple(ts, ok), fmt.Sprint(want); got != want {
				t.Errorf("%v at or after %d: %s, want %s", tp, ms, got, want)
			}
		}
	}
	if seen == 0 {
		t.Error("no partition was compared")
	}
}

func first(v any) string {
	if l, ok := v.([]any); ok {
		return fmt.Sprint(l[0])
	}
	return fmt.Sprint(v)
}

type goldenRecord struct {
	T  string
	P  int32
	O  int64
	Ts int64
	E  int32
	C  *bool
}

// checkRecords reads every log as a consumer would, read_committed too, and compares each record's offset, time and epoch.
func checkRecords(t *testing.T, name string, logs map[string]*Log) {
	t.Helper()
	want := map[string][]string{}
	for _, r := range fixture.Lines[goldenRecord](t, name) {
		tp := kafka.TopicPartition{Topic: r.T, Partition: r.P}.String()
		want[tp] = append(want[tp], fmt.Sprint(r.O, r.Ts, r.E, r.C == nil))
	}
	for tp, l := range logs {
		if strings.HasPrefix(tp, "__") || tp == "nobody-0" {
			continue
		}
		got := consume(t, l, l.EndOffset(), 100_000)
		if !slices.Equal(got, want[tp]) {
			i := 0
			for i < len(got) && i < len(want[tp]) && got[i] == want[tp][i] {
				i++
			}
			g, w := "end", "end"
			if i < len(got) {
				g = got[i]
			}
			if i < len(want[tp]) {
				w = want[tp][i]
			}
			t.Errorf("%s: %d records, want %d; the first that differs is %q, want %q", tp, len(got), len(want[tp]), g, w)
		}
	}
}

// consume reads a log from its start to end in fetches of at most max bytes, and tells offset, timestamp, epoch and whether
// read_committed sees it for each record.
func consume(t testing.TB, l *Log, end kafka.Offset, max int) []string {
	t.Helper()
	var out []string
	for offset := l.StartOffset(); offset < end; {
		s, err := l.Read(offset, max, true, end)
		if err != nil {
			t.Fatalf("%v at %d: %v", l.Partition(), offset, err)
		}
		if s.Len() == 0 {
			s.Release()
			break
		}
		aborted, err := l.AbortedTxns(nil, &s)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(aborted, func(a, b AbortedTxn) int { return int(a.FirstOffset - b.FirstOffset) })
		buf := make([]byte, s.Len())
		if n, err := s.ReadAt(buf, 0); n != len(buf) {
			t.Fatal(n, err)
		}
		s.Release()
		skip := map[kafka.ProducerID]bool{}
		progress := false
		for {
			b, rest, err := record.Next(buf)
			if err != nil {
				t.Fatal(err)
			}
			if b == nil {
				break
			}
			buf = rest
			if err := b.Check(); err != nil {
				t.Fatalf("%v: served a bad batch: %v", l.Partition(), err)
			}
			progress = true
			for len(aborted) > 0 && aborted[0].FirstOffset <= b.LastOffset() {
				skip[aborted[0].ProducerID] = true
				aborted = aborted[1:]
			}
			if b.Control() {
				if f, err := factsOf(b, 0); err == nil && f.Marker == record.Abort {
					delete(skip, b.ProducerID())
				}
			}
			for r, err := range b.All() {
				if err != nil {
					t.Fatal(err)
				}
				if r.Offset >= offset && !b.Control() {
					seen := r.Offset < l.LastStableOffset(end) && !(b.Transactional() && skip[b.ProducerID()])
					out = append(out, fmt.Sprint(r.Offset, r.Timestamp, b.PartitionLeaderEpoch(), seen))
				}
			}
			offset = b.NextOffset()
		}
		if !progress {
			t.Fatalf("%v: no whole batch at %d", l.Partition(), offset)
		}
	}
	return out
}

// TestGoldenClean opens the directories that the real Kafka closed cleanly, compares what it says of them, closes them, and
// finds every file of every partition unchanged but for what was to be deleted anyway.
func TestGoldenClean(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, dir, expect string }{
		{"single-4.4", "1/data", "."},
		{"jbod-4.4", "1/a", ""},
		{"cluster-4.4", "1/data", ""},
		{"3.9.2-single", "1/data", "own"},
		{"3.3.2-single", "1/data", "own"},
		{"3.9.2-zookeeper", "1/data", ""},
		{"3.9.2-migrated", "1/data", "own"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, archive := unpack(t, c.name), unpack(t, c.name)
			d, logs, recoveries := openAll(t, m, c.dir, compactedByName)
			if len(logs) == 0 {
				t.Fatal("no partitions")
			}
			if clean, _ := d.Clean(); !clean {
				t.Fatal("the directory isn't clean")
			}
			for name, r := range recoveries {
				if r.Recovered > 0 || r.TruncatedBytes > 0 {
					t.Errorf("%s was recovered: %+v", name, r)
				}
			}
			for name, l := range logs {
				if s := l.view.Load().active(); s.idx != nil && s.size() > 0 && len(l.snapshots) > 0 {
					t.Errorf("%s was read at a clean start", name)
				}
			}
			if c.expect != "" {
				checkOffsets(t, path.Join("data", c.name+".expect", c.expect, "offsets.jsonl"), logs)
				checkRecords(t, path.Join("data", c.name+".expect", c.expect, "records.jsonl.gz"), logs)
			}
			if err := d.Close(1); err != nil {
				t.Fatal(err)
			}
			want := files(t, "data/"+c.name+".expect/files.tsv")
			compared := 0
			for _, name := range slices.Sorted(maps.Keys(logs)) {
				dir := c.dir + "/" + name + "/"
				now := contents(t, m, dir)
				for file := range now {
					if file == epochsName {
						compareEpochs(t, dir, logs[name], archive)
						continue
					}
					if got := fileSum(t, m, dir+file); got != want[dir+file] {
						t.Errorf("%s%s is %s, was %s", dir, file, got, want[dir+file])
					}
					compared++
				}
				for file := range want {
					p, base := path.Split(file)
					if _, ok := now[base]; p != dir || ok || strings.HasSuffix(base, deletedSuffix) {
						continue
					}
					// Kafka, too, drops snapshots that are neither a segment's nor the newest.
					if o, suffix, ok := parseSegmentName(base); ok && suffix == snapshotSuffix && !isSegment(logs[name], o) && o < logs[name].EndOffset() {
						continue
					}
					t.Errorf("%s is gone", file)
				}
			}
			t.Logf("%d logs, %d files compared", len(logs), compared)
		})
	}
}

func isSegment(l *Log, base kafka.Offset) bool {
	return slices.ContainsFunc(l.view.Load().segments, func(s *segment) bool { return s.base == base })
}

// compareEpochs: what was in the archive is there still, but for epochs that begin at the end of the log, which Kafka drops
// when it opens a log, too.
func compareEpochs(t *testing.T, dir string, l *Log, archive *vfs.Mem) {
	t.Helper()
	b, err := archive.ReadFile(dir+epochsName, 1<<20)
	if err != nil {
		t.Error(err)
		return
	}
	want, err := decodeEpochs(b)
	if err != nil {
		t.Fatal(err)
	}
	want = slices.DeleteFunc(want, func(e EpochStart) bool { return e.Start >= l.EndOffset() })
	if got := l.Epochs(); !slices.Equal(got, want) {
		t.Errorf("%s: epochs %v, want %v", dir, got, want)
	}
}

// TestGoldenRecovery recovers what SIGKILL and a power loss left of a running Kafka, closes it, and finds in every file what
// Kafka's own recovery and shutdown made of it, byte for byte. Doing it a second time changes nothing.
func TestGoldenRecovery(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"single-4.4-unclean", "single-4.4-torn"} {
		t.Run(name, func(t *testing.T) {
			m := unpack(t, name)
			d, logs, _ := openAll(t, m, "1/data", compactedByName)
			if clean, _ := d.Clean(); clean {
				t.Fatal("the directory is clean")
			}
			checkOffsets(t, "data/"+name+".expect/offsets.jsonl", logs)
			checkRecords(t, "data/"+name+".expect/records.jsonl.gz", logs)
			checkEpochs(t, name, logs)
			if err := d.Close(1); err != nil {
				t.Fatal(err)
			}
			checkAfter(t, m, files(t, "data/"+name+".expect/files-after.tsv"), logs)
			// Once more, as if the power had gone right after recovery: nothing may change, least of all an end offset.
			before := map[string]map[string][]byte{}
			for p := range logs {
				before[p] = contents(t, m, "1/data/"+p)
			}
			for _, f := range []string{cleanShutdownName, recoveryPointsName} {
				if err := m.Remove("1/data/" + f); err != nil {
					t.Fatal(err)
				}
			}
			d, again, recoveries := openAll(t, m, "1/data", compactedByName)
			for p, r := range recoveries {
				if r.TruncatedBytes > 0 || r.DroppedSegments > 0 || again[p].EndOffset() != logs[p].EndOffset() {
					t.Errorf("%s: second recovery: %+v", p, r)
				}
			}
			if err := d.Close(1); err != nil {
				t.Fatal(err)
			}
			for p := range logs {
				if after := contents(t, m, "1/data/"+p); !maps.EqualFunc(before[p], after, bytes.Equal) {
					t.Errorf("%s: the second recovery changed files: %v, now %v", p, slices.Sorted(maps.Keys(before[p])), slices.Sorted(maps.Keys(after)))
				}
			}
		})
	}
}

// checkEpochs compares the leader epoch history with that of Kafka, which has one epoch more since it led again.
func checkEpochs(t *testing.T, name string, logs map[string]*Log) {
	t.Helper()
	for p, l := range logs {
		file := "data/" + name + ".expect/epochs/" + p + ".txt"
		if _, err := os.Stat(fixture.Path(file)); err != nil {
			continue
		}
		entries, err := decodeEpochs(fixture.Read(t, file))
		if err != nil {
			t.Fatal(err)
		}
		want := slices.DeleteFunc(entries, func(e EpochStart) bool { return e.Start >= l.EndOffset() })
		if got := l.Epochs(); !slices.Equal(got, want) {
			t.Errorf("%s: epochs %v, want %v", p, got, want)
		}
	}
}

func checkAfter(t *testing.T, m *vfs.Mem, want map[string]string, logs map[string]*Log) {
	t.Helper()
	compared := 0
	for file, w := range want {
		dir, base := path.Split(file)
		p := path.Base(path.Clean(dir))
		l := logs[p]
		if _, _, ok := parseSegmentName(base); !ok || l == nil || strings.HasPrefix(p, "__") && l.EndOffset() != kafkaEnd(want, dir) {
			continue
		}
		if _, err := m.Stat(file); err != nil {
			t.Errorf("%s is missing", file)
			continue
		}
		compared++
		if got := fileSum(t, m, file); got != w {
			t.Errorf("%s is %s, want %s", file, got, w)
		}
	}
	for p := range logs {
		if p == "nobody-0" {
			continue // Kafka gave it another name
		}
		for base := range contents(t, m, "1/data/"+p) {
			if _, ok := want["1/data/"+p+"/"+base]; !ok && base != epochsName {
				t.Errorf("%s/%s shouldn't be there", p, base)
			}
		}
	}
	t.Logf("%d files compared", compared)
}

// kafkaEnd is the end offset of a partition after Kafka's stop, as the newest snapshot's name says; -1 without one.
func kafkaEnd(want map[string]string, dir string) kafka.Offset {
	end := kafka.Offset(math.MinInt64)
	for file := range want {
		if d, base := path.Split(file); d == dir {
			if o, suffix, ok := parseSegmentName(base); ok && suffix == snapshotSuffix {
				end = max(end, o)
			}
		}
	}
	return end
}
