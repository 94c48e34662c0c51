package chaos

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash/crc32"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/highwater/highwater/test/peer"
)

func crc(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// refused is a way to start a node wrongly. {HOME} stands for the node's directory, {DATA} for its log directory.
type refused struct {
	name   string
	config []string // lines put after the node's own, which may be taken back with "!key"
	setup  func(t *testing.T, home string)
	says   string // what the output must match, whoever is tried
	ours   string // what Highwater's must match besides: the way out
	exit   int    // 0: 1, which is Kafka's for what it cannot start with
}

var refusals = []refused{
	{name: "a number that is none", config: []string{"log.segment.bytes=many"}, says: `log\.segment\.bytes`, ours: `many`},
	{name: "a number out of range", config: []string{"num.io.threads=0"}, says: `num\.io\.threads`, ours: `0`},
	{name: "a word that is none of those allowed", config: []string{"compression.type=brotli"}, says: `compression\.type`, ours: `brotli`},
	{name: "a role that is none", config: []string{"process.roles=broker,king"}, says: `process\.roles`, ours: `king`},
	{name: "no roles", config: []string{"!process.roles"}, says: `process\.roles`, ours: "highwater config check \\S+/attempt\\.properties` explains"},
	{name: "no node id", config: []string{"!node.id"}, says: `node\.id`},
	{name: "a node id that is not that of the directory", config: []string{"node.id=7", "controller.quorum.voters=7@127.0.0.1:{CPORT}"}, says: `(?i)node.?id`, ours: `meta\.properties`},
	{name: "no controller listener", config: []string{"!controller.listener.names"}, says: `controller\.listener\.names`},
	{name: "a listener of unknown protocol", config: []string{"listeners=STRANGE://127.0.0.1:0,CONTROLLER://127.0.0.1:{CPORT}", "advertised.listeners=STRANGE://127.0.0.1:1"}, says: `STRANGE`, ours: `listener\.security\.protocol\.map`},
	{name: "two listeners on one port", config: []string{"listeners=PLAINTEXT://127.0.0.1:{PORT},CONTROLLER://127.0.0.1:{PORT}"}, says: `listeners|port`},
	{name: "advertised to nowhere", config: []string{"advertised.listeners=PLAINTEXT://0.0.0.0:{PORT}"}, says: `advertised\.listeners`},
	{name: "a log directory that is a file", config: []string{"log.dirs={HOME}/file"}, setup: func(t *testing.T, home string) { write(t, filepath.Join(home, "file"), "x") }, says: `file`},
	{name: "an unformatted directory", config: []string{"log.dirs={HOME}/empty"}, says: `meta\.properties|formatted`, ours: `format`},
	{name: "a second directory of a foreign cluster", config: []string{"log.dirs={DATA},{HOME}/foreign"}, setup: func(t *testing.T, home string) {
		write(t, filepath.Join(home, "foreign", "meta.properties"), "version=1\ncluster.id=BBBBBBBBBBBBBBBBBBBBBQ\nnode.id=1\ndirectory.id=CCCCCCCCCCCCCCCCCCCCCQ\n")
	}, says: `cluster\.?[iI]d`, ours: `foreign`},
	{name: "meta.properties of an unknown version", config: []string{"log.dirs={HOME}/future"}, setup: func(t *testing.T, home string) {
		write(t, filepath.Join(home, "future", "meta.properties"), "version=9\ncluster.id="+peer.DefaultClusterID+"\nnode.id=1\n")
	}, says: `version|meta\.properties`, ours: `future`},
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestRefuse starts a node wrongly in many ways: each ends with Kafka's exit status and an error that names the key or file (and,
// ours, the way out), and leaves every file as it was. At the end the node starts as before and has its records.
func TestRefuse(t *testing.T) {
	software := peer.Software(*brokerFlag)
	n := peer.Started(t, peer.Options{Software: software})
	create(t, n.Addr(), "probe", 1)
	if err := acknowledges(n.Addr(), time.Now().Add(30*time.Second)); err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile(n.Config())
	if err != nil {
		t.Fatal(err)
	}

	t.Run("a second process on the directory", func(t *testing.T) {
		if software == peer.Kafka {
			return // its combined node opens the metadata log before it takes the lock, and ruins it for the first process
		}
		// Other ports, the same directory.
		text := strings.NewReplacer(port(n.Addr()), "0", port(n.Controller()), "19").Replace(string(own))
		out, status := attempt(t, software, n.Home(), text+"advertised.listeners=PLAINTEXT://127.0.0.1:9\n")
		check(t, software, out, status, refused{says: `(?i)lock`, ours: regexp.QuoteMeta(n.Data())})
		if err := acknowledges(n.Addr(), time.Now().Add(10*time.Second)); err != nil {
			t.Errorf("the first process does not serve any more: %v", err)
		}
	})
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	before := fingerprint(t, n.Data())

	t.Run("a port in use", func(t *testing.T) {
		l, err := net.Listen("tcp", n.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		out, status := attempt(t, software, n.Home(), string(own))
		check(t, software, out, status, refused{says: `(?i)address already in use`, ours: port(n.Addr())})
	})
	before = afterPort(t, software, n, before)

	fill := strings.NewReplacer("{HOME}", n.Home(), "{DATA}", n.Data(), "{PORT}", port(n.Addr()), "{CPORT}", port(n.Controller()))
	for _, r := range refusals {
		t.Run(r.name, func(t *testing.T) {
			if r.setup != nil {
				r.setup(t, n.Home())
			}
			lines := strings.Split(strings.TrimSpace(string(own)), "\n")
			for _, c := range r.config {
				key, _, _ := strings.Cut(strings.TrimPrefix(c, "!"), "=")
				lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, key+"=") })
				if !strings.HasPrefix(c, "!") {
					lines = append(lines, fill.Replace(c))
				}
			}
			out, status := attempt(t, software, n.Home(), strings.Join(lines, "\n")+"\n")
			check(t, software, out, status, r)
			if after := fingerprint(t, n.Data()); after != before {
				t.Errorf("the attempt changed the data directory:\n%s", diff(before, after))
			}
		})
	}
	t.Run("no configuration file", func(t *testing.T) {
		out, status := run(t, peer.Tool(software, "server-start", filepath.Join(n.Home(), "nothing.properties")).Args)
		check(t, software, out, status, refused{says: `nothing\.properties`})
	})
	if _, err := n.Start(); err != nil {
		t.Fatalf("the node does not start any more: %v", err)
	}
	if err := acknowledges(n.Addr(), time.Now().Add(30*time.Second)); err != nil {
		t.Fatal(err)
	}
	want := int64(3)
	if software == peer.Kafka {
		want = 2 // it was not asked beside a second process
	}
	if got := probeEnd(t, n.Addr()); got < want {
		t.Errorf("%d records in the log after all, want %d", got, want)
	}
}

// afterPort: a node that finds its port taken may have come so far that it wrote (Kafka has, Highwater has not opened a log).
func afterPort(t *testing.T, software peer.Software, n peer.Node, before string) string {
	t.Helper()
	after := fingerprint(t, n.Data())
	if software == peer.Highwater && after != before {
		t.Errorf("a start that found its port in use changed the data directory:\n%s", diff(before, after))
	}
	return after
}

func port(addr string) string { _, p, _ := net.SplitHostPort(addr); return p }

// attempt runs a node with a configuration that must not do.
func attempt(t *testing.T, software peer.Software, home, config string) (out string, status int) {
	t.Helper()
	file := filepath.Join(home, "attempt.properties")
	write(t, file, config)
	return run(t, peer.Tool(software, "server-start", file).Args)
}

func run(t *testing.T, argv []string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	c := command(ctx, argv)
	out, err := c.CombinedOutput()
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Errorf("the node runs on")
	}
	return string(out), c.ProcessState.ExitCode()
}

func check(t *testing.T, software peer.Software, out string, status int, r refused) {
	t.Helper()
	want := r.exit
	if want == 0 {
		want = 1
	}
	if status != want {
		t.Errorf("exit status %d, want %d", status, want)
	}
	patterns := []string{r.says}
	if software == peer.Highwater {
		patterns = append(patterns, r.ours)
		if lines := strings.Count(out, "\n"); lines > 20 {
			t.Errorf("%d lines where one error is enough", lines)
		}
	}
	for _, p := range patterns {
		if !regexp.MustCompile(p).MatchString(out) {
			t.Errorf("the output does not match %q", p)
		}
	}
	if strings.Contains(out, "goroutine ") || strings.Contains(out, "panic:") {
		t.Error("a panic")
	}
	if t.Failed() {
		t.Logf("printed:\n%.3000s", out)
	}
}

// fingerprint says what every file below a directory holds.
func fingerprint(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == ".lock" {
			return err
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		fmt.Fprintf(&b, "%s %d %x\n", rel, len(body), sha256.Sum256(body))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func diff(before, after string) string {
	var out []string
	old, new := strings.Split(before, "\n"), strings.Split(after, "\n")
	for _, l := range old {
		if !slices.Contains(new, l) {
			out = append(out, "- "+l)
		}
	}
	for _, l := range new {
		if !slices.Contains(old, l) {
			out = append(out, "+ "+l)
		}
	}
	return strings.Join(out, "\n")
}
