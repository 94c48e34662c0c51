package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/internal/record"
)

type storageCase struct {
	Name      string            `json:"name"`
	Argv      []string          `json:"argv"`
	Setup     [][]string        `json:"setup"`
	Files     map[string]string `json:"files"`
	Exit      int               `json:"exit"`
	Stdout    []string          `json:"stdout"`
	Stderr    []string          `json:"stderr"`
	UsageOnly bool              `json:"usage_only"`
	Sort      bool              `json:"sort"`
	AnyOrder  bool              `json:"any_order"`
	Normalise [][2]string       `json:"normalise"`
}

// storageRun runs the tool within this process.
func storageRun(t *testing.T, args []string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	e := &Env{Name: "kafka-storage", Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Context: context.Background(), Stoppable: func() {}}
	status = runStorage(e)
	return status, out.String(), errs.String()
}

// normalised cuts what golden cases cut: usage texts, and, since we print none, the place of a stack trace.
func (c *storageCase) normalised(text, dir string) []string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if text == "" {
		lines = nil
	}
	var out []string
	for i := 0; i < len(lines); i++ {
		if strings.HasPrefix(lines[i], "usage: ") {
			out = append(out, "{USAGE}")
			for i+1 < len(lines) && !regexp.MustCompile(`^\S+:\s+error:\s`).MatchString(lines[i+1]) {
				i++
			}
			continue
		}
		l := strings.ReplaceAll(lines[i], dir, "{FILES}")
		for _, n := range c.Normalise {
			l = regexp.MustCompile(n[0]).ReplaceAllString(l, strings.ReplaceAll(n[1], `\1`, "${1}"))
		}
		out = append(out, l)
	}
	return c.tidy(out)
}

func (c *storageCase) tidy(lines []string) []string {
	var out []string
	for _, l := range lines {
		if l == "{TRACE}" {
			continue
		}
		if c.AnyOrder {
			w := strings.Fields(l)
			slices.Sort(w)
			l = strings.Join(w, " ")
		}
		out = append(out, strings.TrimRight(l, " "))
	}
	if c.Sort {
		slices.Sort(out)
	}
	return out
}

func squeeze(lines []string) []string {
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	return lines
}

// Every golden case of kafka-storage: what the real tool printed on both streams, and its exit status.
func TestStorageGolden(t *testing.T) {
	var cases []storageCase
	fixture.JSON(t, "golden/tools/storage.json", &cases)
	if len(cases) < 59 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			dir := t.TempDir()
			fill := func(args []string) []string {
				out := slices.Clone(args)
				for i := range out {
					out[i] = strings.ReplaceAll(out[i], "{FILES}", dir)
				}
				return out
			}
			for name, text := range c.Files {
				path := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "{FILES}", dir)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for _, s := range c.Setup {
				if status, _, errs := storageRun(t, fill(s[1:])); status != 0 {
					t.Fatalf("setup %q: %d %s", s, status, errs)
				}
			}
			status, out, errs := storageRun(t, fill(c.Argv))
			if status != c.Exit {
				t.Errorf("exit status %d, want %d", status, c.Exit)
			}
			if got, want := c.normalised(out, dir), c.tidy(c.Stdout); !slices.Equal(got, want) {
				t.Errorf("standard output\n%q\nwant\n%q", got, want)
			}
			// argparse4j stretches the lines of its complaints with blanks.
			if got, want := squeeze(c.normalised(errs, dir)), squeeze(c.tidy(c.Stderr)); !slices.Equal(got, want) {
				t.Errorf("standard error\n%q\nwant\n%q", got, want)
			}
		})
	}
}

// mask takes out of a formatted directory's files what time and chance put in.
func mask(t *testing.T, name string, b []byte) string {
	if strings.HasSuffix(name, "meta.properties") {
		s := regexp.MustCompile(`(?m)^#\w{3} \w{3} \d\d \d\d:\d\d:\d\d \w+ \d{4}$`).ReplaceAllString(string(b), "#DATE")
		return regexp.MustCompile(`directory\.id=[\w-]{22}`).ReplaceAllString(s, "directory.id=ID")
	}
	// A checkpoint: each batch's shape and each record, without its times.
	var out strings.Builder
	for len(b) > 0 {
		batch, rest, err := record.Next(b)
		if err != nil || len(batch) == 0 {
			t.Fatalf("%s: %v", name, err)
		}
		if err := batch.Check(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		b = rest
		out.WriteString(strings.Join([]string{"batch", itoa(batch.BaseOffset()), itoa(batch.LastOffset()), itoa(int64(batch.Attributes())),
			itoa(int64(batch.PartitionLeaderEpoch())), itoa(batch.ProducerID()), itoa(int64(batch.Size()))}, " ") + "\n")
		for r, err := range batch.All() {
			if err != nil {
				t.Fatal(err)
			}
			v := bytes.Clone(r.Value)
			if batch.Control() && r.Offset == 0 {
				copy(v[2:10], make([]byte, 8)) // lastContainedLogTimestamp
			}
			if !bytes.Contains(v, []byte("CONTROLLER")) || strings.Contains(name, "initial") {
				out.WriteString(itoa(r.Offset) + " " + string(r.Key) + " " + string(v) + "\n")
			} else {
				out.WriteString(itoa(r.Offset) + " " + string(r.Key) + " voters, with an id by chance\n")
			}
		}
	}
	return out.String()
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// Formatting in each of the ways that the fixtures have gives the same files, modes and content, but for times and random
// ids.
func TestStorageFormatsLikeKafka(t *testing.T) {
	type node struct {
		files map[string][]byte
		modes map[string]os.FileMode
	}
	ways := make(map[string]*node)
	f, err := os.Open(fixture.Path("data/formatted-4.4.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var how string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(h.Name, "./")
		if filepath.Base(name) == "how.tsv" {
			how = string(b)
			continue
		}
		way, rest, _ := strings.Cut(name, "/")
		if ways[way] == nil {
			ways[way] = &node{make(map[string][]byte), make(map[string]os.FileMode)}
		}
		ways[way].files[rest], ways[way].modes[rest] = b, os.FileMode(h.Mode).Perm()
	}
	n := 0
	for _, l := range strings.Split(strings.TrimSpace(how), "\n") {
		cells := strings.Split(l, "\t")
		want := ways[cells[0]]
		if want == nil {
			continue
		}
		n++
		t.Run(cells[0], func(t *testing.T) {
			base := t.TempDir()
			dir := filepath.Join(base, cells[0])
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			properties := filepath.Join(dir, "server.properties")
			if err := os.WriteFile(properties, bytes.ReplaceAll(want.files["server.properties"], []byte("{DIR}"), []byte(base)), 0o644); err != nil {
				t.Fatal(err)
			}
			args := strings.Fields(strings.TrimPrefix(cells[2], "kafka-storage "))
			for i, a := range args {
				if a == "server.properties" {
					args[i] = properties
				}
			}
			status, out, errs := storageRun(t, args)
			if status != 0 || errs != "" {
				t.Fatalf("%d %s", status, errs)
			}
			wantOut := strings.TrimRight(strings.TrimPrefix(string(want.files["format.txt"]), "exit 0\n"), "\n")
			got := strings.Split(strings.TrimRight(strings.ReplaceAll(out, dir, "{DIR}"), "\n"), "\n")
			lines := strings.Split(wantOut, "\n")
			slices.Sort(got)
			slices.Sort(lines)
			if !slices.Equal(got, lines) {
				t.Errorf("prints %q\nwant %q", got, lines)
			}
			seen := 0
			err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
				if err != nil || d.IsDir() || path == properties {
					return err
				}
				name, err := filepath.Rel(dir, path)
				if err != nil {
					return err
				}
				seen++
				b, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				w, ok := want.files[name]
				if !ok {
					t.Errorf("%s: Kafka makes no such file", name)
					return nil
				}
				if got, want := mask(t, cells[0]+name, b), mask(t, cells[0]+name, w); got != want {
					t.Errorf("%s is\n%q\nwant\n%q", name, got, want)
				}
				if st, err := d.Info(); err != nil || st.Mode().Perm() != want.modes[name] {
					t.Errorf("%s has mode %v, want %v (%v)", name, st.Mode(), want.modes[name], err)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			for name := range want.files {
				if strings.Contains(name, "/") && !strings.HasSuffix(name, ".dump.txt") {
					seen--
				}
			}
			if seen != 0 {
				t.Errorf("%d files more than Kafka makes", seen)
			}
		})
	}
	if n < 21 {
		t.Errorf("%d ways", n)
	}
}
