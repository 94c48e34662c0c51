package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/highwater/highwater/internal/fixture"
)

// dumpRun runs the tool within this process.
func dumpRun(args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	e := &Env{Name: "kafka-dump-log", Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Context: context.Background(), Stoppable: func() {}}
	status = runDumpLog(e)
	return status, out.String(), errs.String()
}

// unpackData unpacks a data directory of testdata/data.
func unpackData(t testing.TB, name string) string {
	t.Helper()
	dir := t.TempDir()
	for r := tar.NewReader(bytes.NewReader(fixture.Read(t, "data/"+name+".tar.gz"))); ; { // Read unpacks gzip
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		b, err := io.ReadAll(r)
		if err == nil {
			path := filepath.Join(dir, filepath.FromSlash(h.Name))
			if err = os.MkdirAll(filepath.Dir(path), 0o777); err == nil {
				err = os.WriteFile(path, b, 0o666)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

type dumpCase struct {
	Name      string            `json:"name"`
	Argv      []string          `json:"argv"`
	Files     map[string]string `json:"files"`
	Exit      int               `json:"exit"`
	Stdout    []string          `json:"stdout"`
	Stderr    []string          `json:"stderr"`
	UsageOnly bool              `json:"usage_only"`
	Normalise [][2]string       `json:"normalise"`
}

// lines is a stream as golden cases have it: usage texts and stack traces cut, of which we print only the causes.
func (c *dumpCase) lines(text string, places map[string]string) []string {
	for name, place := range places {
		text = strings.ReplaceAll(text, place, name)
	}
	var out []string
	for _, l := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		switch {
		case strings.HasPrefix(l, "Caused by: "):
			continue
		case strings.HasPrefix(l, "Option  "):
			if c.UsageOnly {
				return []string{"{USAGE}"}
			}
			return append(out, "{USAGE}")
		case strings.TrimSpace(l) == "":
			l = ""
		}
		for _, n := range c.Normalise {
			l = regexp.MustCompile(n[0]).ReplaceAllString(l, n[1])
		}
		out = append(out, l)
	}
	if text == "" {
		return nil
	}
	return out
}

func (c *dumpCase) want(lines []string) []string {
	var out []string
	for _, l := range lines {
		if l != "{TRACE}" {
			out = append(out, l)
		}
	}
	return out
}

// TestDumpLogGolden replays what Kafka's tool answered.
func TestDumpLogGolden(t *testing.T) {
	var cases []dumpCase
	fixture.JSON(t, "golden/tools/dump-log.json", &cases)
	if len(cases) < 51 {
		t.Fatalf("%d cases", len(cases))
	}
	data := unpackData(t, "single-4.4")
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			c.run(t, map[string]string{"{DATA}": data, "{FILES}": t.TempDir()}, true)
		})
	}
}

// run replays a case; places are what its placeholders stand for.
func (c *dumpCase) run(t *testing.T, places map[string]string, withErrors bool) {
	t.Helper()
	for name, text := range c.Files {
		b := []byte(text)
		if s, ok := strings.CutPrefix(text, "b64:"); ok {
			var err error
			if b, err = base64.StdEncoding.DecodeString(s); err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join(places["{FILES}"], name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	var args []string
	for _, a := range c.Argv {
		for name, place := range places {
			a = strings.ReplaceAll(a, name, place)
		}
		args = append(args, a)
	}
	status, out, errs := dumpRun(args...)
	if status != c.Exit {
		t.Errorf("exit status %d, want %d", status, c.Exit)
	}
	if d := cmp.Diff(c.want(c.Stdout), c.lines(out, places)); d != "" {
		t.Errorf("standard output (- Kafka, + here):\n%s", d)
	}
	if d := cmp.Diff(c.want(c.Stderr), c.lines(errs, places)); d != "" && withErrors {
		t.Errorf("standard error (- Kafka, + here):\n%s", d)
	}
	if status != 0 && errs == "" {
		t.Error("failed without a word")
	}
}

// TestDumpLogDamaged replays what Kafka's tool answered to files that were broken on purpose, one byte or many, to odd names,
// and to records that no broker writes. Of the cases in exceptionTexts only the text of the exception is another.
func TestDumpLogDamaged(t *testing.T) {
	exceptionTexts := regexp.MustCompile(`^(gzip-byte-7|v0gzip-byte-[015]|v1-byte-[34]|v1snappy-byte-[02346]|(gzip|lz4|snappy)-not|control-[26]-v[19]|tx-gzip-broken)$`)
	f, err := os.Open("testdata/dump-log-damaged.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for d := json.NewDecoder(z); ; n++ {
		var c dumpCase
		if err := d.Decode(&c); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		t.Run(c.Name, func(t *testing.T) {
			c.run(t, map[string]string{"{FILES}": t.TempDir()}, !exceptionTexts.MatchString(c.Name))
		})
	}
	if n < 300 {
		t.Errorf("%d cases", n)
	}
}

// decoderOf is the option with which the dumps in testdata were made.
func decoderOf(rel string) []string {
	if !strings.HasSuffix(rel, ".log") && !strings.HasSuffix(rel, ".checkpoint") {
		return nil
	}
	for prefix, option := range map[string]string{
		"__consumer_offsets-": "--offsets-decoder", "__transaction_state-": "--transaction-log-decoder",
		"__share_group_state-": "--share-group-state-decoder", "__cluster_metadata-": "--cluster-metadata-decoder", "bootstrap.checkpoint": "--cluster-metadata-decoder",
	} {
		if strings.HasPrefix(rel, prefix) {
			return []string{option}
		}
	}
	return []string{"--print-data-log"}
}

var (
	oldCRC      = regexp.MustCompile(`(isValid: (?:true|false) crc: \d+)\}`)
	oldSome     = regexp.MustCompile(`Some\((\d+)\)`)
	coordinated = regexp.MustCompile(` key: .*`)
	newLeader   = regexp.MustCompile(` LeaderChange: \{.*`)
)

// oldLines takes out of a dump what versions before 4.4 printed in another way: a brace too many, no content of one kind of
// control record, Scala's options, the records of coordinators in a format of their own.
func oldLines(rel, s string) string {
	s = newLeader.ReplaceAllString(oldCRC.ReplaceAllString(s, "$1"), " controlType: LEADER_CHANGE(2)")
	s = oldSome.ReplaceAllString(strings.ReplaceAll(s, "currentTxnFirstOffset: None", "currentTxnFirstOffset: OptionalLong.empty"), "OptionalLong[$1]")
	if strings.HasPrefix(rel, "__transaction_state-") || strings.HasPrefix(rel, "__consumer_offsets-") {
		s = coordinated.ReplaceAllString(s, "")
	}
	return s
}

// TestDumpLogDirectories dumps files of whole data directories, and compares with what Kafka's tool printed of them: all
// formats of records, codecs, internal topics, indexes and snapshots.
func TestDumpLogDirectories(t *testing.T) {
	for _, c := range []struct {
		archive, dump, data string
		files               int
		old                 bool
	}{
		{"single-4.4", "dump", "1/data", 250, false},
		{"cluster-4.4", "dump/1", "1/data", 25, false},
		{"cluster-4.4", "dump/2", "2/data", 8, false},
		{"cluster-4.4", "dump/3", "3/data", 6, false},
		{"jbod-4.4", "dump", "1/a", 1, false},
		{"3.9.2-migrated", "dump-4.4.0", "1/data", 50, false},
		{"3.9.2-migrated", "dump-3.9.2", "1/data", 50, true},
		{"3.9.2-migrated", "dump-3.9.2-3000", "3000/data", 3, true},
		{"3.9.2-zookeeper", "dump-3.9.2", "1/data", 50, true},
		{"3.9.2-single", "dump-3.9.2", "1/data", 25, true},
		{"3.3.2-single", "dump-3.3.2", "1/data", 25, true},
	} {
		t.Run(c.archive+"/"+c.dump, func(t *testing.T) {
			dir := filepath.Join(unpackData(t, c.archive), c.data)
			root := fixture.Path("data/" + c.archive + ".expect/" + c.dump)
			n := 0
			err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
				if err != nil || e.IsDir() {
					return err
				}
				n++
				want, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				rel, _ := filepath.Rel(root, path)
				if s, ok := strings.CutSuffix(rel, ".gz"); ok {
					rel = s
					z, err := gzip.NewReader(bytes.NewReader(want))
					if err != nil {
						return err
					}
					if want, err = io.ReadAll(z); err != nil {
						return err
					}
				}
				rel = strings.TrimSuffix(rel, ".txt")
				_, out, _ := dumpRun(append(decoderOf(rel), "--files", filepath.Join(dir, rel))...)
				out = strings.ReplaceAll(out, dir, "{DIR}")
				text := string(want)
				// Where the dumps were made, carriage returns became line feeds.
				for _, s := range []*string{&out, &text} {
					*s = strings.ReplaceAll(strings.ReplaceAll(*s, "\r\n", "\n"), "\r", "\n")
				}
				if c.old {
					out, text = oldLines(rel, out), oldLines(rel, text)
				}
				compareDump(t, rel, text, out)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if n < c.files {
				t.Errorf("%d dumps, there should be at least %d", n, c.files)
			}
			t.Logf("%d dumps", n)
		})
	}
}

// TestDumpLogFormatted dumps what kafka-storage format wrote, in every way that it knows.
func TestDumpLogFormatted(t *testing.T) {
	dir := unpackData(t, "formatted-4.4")
	dumps, err := filepath.Glob(filepath.Join(dir, "*", "*.dump.txt"))
	if err != nil || len(dumps) < 10 {
		t.Fatalf("%d dumps, %v", len(dumps), err)
	}
	for _, path := range dumps {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".dump.txt")
		at := strings.LastIndex(name, "__")
		top, _, _ := strings.Cut(name, "__")
		file := filepath.Join(filepath.Dir(path), top, "__cluster_metadata-0", name[at+2:])
		_, out, _ := dumpRun("--cluster-metadata-decoder", "--files", file)
		compareDump(t, file, string(want), strings.ReplaceAll(out, filepath.Dir(path), "{DIR}"))
	}
}

// compareDump shows the first line that differs.
func compareDump(t *testing.T, name, want, got string) {
	t.Helper()
	if want == got {
		return
	}
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := 0; i < len(w) || i < len(g); i++ {
		var a, b string
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			b = g[i]
		}
		if a != b || i >= len(w) || i >= len(g) {
			t.Errorf("%s, line %d of %d (here %d):\nKafka %s\nhere  %s", name, i+1, len(w), len(g), a, b)
			return
		}
	}
}

// TestDumpLogTruncated dumps files that end at any byte: whatever is in them, the tool ends in order.
func TestDumpLogTruncated(t *testing.T) {
	data := unpackData(t, "single-4.4")
	for _, c := range []struct{ file, option string }{
		{"edge-0/00000000000000000000.log", "--print-data-log"},
		{"__transaction_state-0/00000000000000000000.log", "--transaction-log-decoder"},
		{"__cluster_metadata-0/00000000000000000000-0000000000.checkpoint", "--cluster-metadata-decoder"},
		{"steps-0/00000000000000000006.index", "--print-data-log"},
		{"steps-0/00000000000000000006.timeindex", "--print-data-log"},
		{"txn-0/00000000000000000005.txnindex", "--print-data-log"},
		{"idempotent-0/00000000000000000064.snapshot", "--print-data-log"},
	} {
		path := filepath.Join(data, "1", "data", c.file)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for n := min(len(b), 700); n >= 0; n-- {
			if err := os.WriteFile(path, b[:n], 0o666); err != nil {
				t.Fatal(err)
			}
			if status, _, errs := dumpRun(c.option, "--files", path); status != 0 && !strings.Contains(errs, "Exception") {
				t.Fatalf("%s, %d bytes: status %d, %q", c.file, n, status, errs)
			}
		}
	}
}

// FuzzDumpLog dumps any bytes as a file of any kind, with any decoder.
func FuzzDumpLog(f *testing.F) {
	kinds := []string{".log", "-0000000003.checkpoint", ".index", ".timeindex", ".snapshot", ".txnindex"}
	options := []string{"--print-data-log", "--offsets-decoder", "--transaction-log-decoder", "--share-group-state-decoder", "--cluster-metadata-decoder", "--remote-log-metadata-decoder", "--index-sanity-check"}
	data := unpackData(f, "single-4.4")
	for i, name := range []string{"edge-0/00000000000000000000.log", "__consumer_offsets-2/00000000000000000000.log", "__transaction_state-0/00000000000000000000.log", "__share_group_state-1/00000000000000000000.log", "__cluster_metadata-0/00000000000000000000.log"} {
		b, err := os.ReadFile(filepath.Join(data, "1", "data", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(0), uint8(i), b[:min(len(b), 1500)])
		f.Add(uint8(1), uint8(i), b[:min(len(b), 100)])
	}
	for i, name := range []string{"steps-0/00000000000000000006.index", "steps-0/00000000000000000006.timeindex", "idempotent-0/00000000000000000064.snapshot", "txn-0/00000000000000000005.txnindex"} {
		b, err := os.ReadFile(filepath.Join(data, "1", "data", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i+2), uint8(0), b)
	}
	log, err := os.ReadFile(filepath.Join(data, "1", "data", "steps-0", "00000000000000000006.log"))
	if err != nil {
		f.Fatal(err)
	}
	// One directory for all runs of this process, and a run puts back what the one before changed. The files stay open: to
	// create or to empty them each time would be most of the work.
	dir := f.TempDir()
	files, fresh := map[string]*os.File{}, map[string]bool{}
	put := func(t *testing.T, name string, b []byte) {
		file := files[name]
		if file == nil {
			var err error
			if file, err = os.Create(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			files[name] = file
		}
		if _, err := file.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
		if err := file.Truncate(int64(len(b))); err != nil {
			t.Fatal(err)
		}
	}
	f.Cleanup(func() {
		for _, file := range files {
			file.Close()
		}
	})
	const base = "00000000000000000006"
	f.Fuzz(func(t *testing.T, kind, option uint8, b []byte) {
		name := base + kinds[int(kind)%len(kinds)]
		for _, beside := range []string{base + ".log", base + ".index"} {
			if beside != name && !fresh[beside] {
				put(t, beside, log)
				fresh[beside] = true
			}
		}
		put(t, name, b)
		fresh[name] = false
		if status, _, errs := dumpRun(options[int(option)%len(options)], "--files", filepath.Join(dir, name)); status != 0 && !strings.Contains(errs, "Exception") {
			t.Fatalf("status %d, %q", status, errs)
		}
	})
}
