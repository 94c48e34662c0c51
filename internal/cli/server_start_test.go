package cli

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/internal/node"
)

// startDeviations are the cases whose text is ours, each with the reason; it is what must be printed, the line of the way out,
// a WARN, included.
var startDeviations = map[string]struct {
	why   string
	lines []string
}{
	"authorizer-missing": {
		"Kafka looks for a Java class; none can be loaded here, and a node without the authorizer that was asked for would let everybody in",
		[]string{
			"ERROR Exiting Kafka due to fatal exception",
			"org.apache.kafka.common.config.ConfigException: Invalid value no.such.Authorizer for configuration authorizer.class.name: this version has no authorizer",
			"WARN Remove authorizer.class.name: the listeners then serve everybody who reaches them.",
		},
	},
	"ssl-without-keystore": {
		"Kafka finds no key store; this version serves no SSL at all",
		[]string{
			"ERROR Exiting Kafka due to fatal exception",
			"org.apache.kafka.common.config.ConfigException: Invalid value SSL://127.0.0.1:22981 for configuration listeners: the listener has the security protocol SSL, which this version does not serve",
			"WARN Give SSL the protocol PLAINTEXT in listener.security.protocol.map, or take it out of listeners.",
		},
	},
	"sasl-without-jaas": {
		"Kafka finds no JAAS configuration; this version serves no SASL at all",
		[]string{
			"ERROR Exiting Kafka due to fatal exception",
			"org.apache.kafka.common.config.ConfigException: Invalid value SASL_PLAINTEXT://127.0.0.1:22981 for configuration listeners: the listener has the security protocol SASL_PLAINTEXT, which this version does not serve",
			"WARN Give SASL_PLAINTEXT the protocol PLAINTEXT in listener.security.protocol.map, or take it out of listeners.",
		},
	},
	"port-in-use": {
		"Kafka logs the error once for each part that it passes through, with the same end; here it is told once",
		[]string{
			"ERROR Unable to start acceptor for PLAINTEXT",
			"org.apache.kafka.common.KafkaException: Socket server failed to bind to {B1}: Address already in use.",
			"WARN Stop the process that listens there, or give PLAINTEXT another port in listeners.",
		},
	},
}

// startRun runs the tool within this process. A node that does start is stopped when the time is over.
func startRun(t *testing.T, args []string) (status int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out, errs bytes.Buffer
	e := &Env{Name: "kafka-server-start", Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Context: ctx, Stoppable: func() {}}
	status = runServerStart(e)
	if ctx.Err() != nil {
		t.Errorf("the node started and had to be stopped")
	}
	return status, out.String(), errs.String()
}

var (
	startLog   = regexp.MustCompile(`^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] (DEBUG|INFO|WARN|ERROR) (\[[^\]]*\] )?(.*) \([\w.$]+\)$`)
	startUsage = regexp.MustCompile(`^Option\s+Description\s*$`)
)

// startLines is what counts of what a start printed: log lines of the levels asked for, without time, logger and the part of
// the node that logs, what belongs to them, and plain text. A usage text, with what stands before it if usageOnly, is {USAGE}.
func startLines(text string, usageOnly bool, levels ...string) []string {
	var out []string
	for _, l := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if m := startLog.FindStringSubmatch(l); m != nil {
			if slices.Contains(levels, m[1]) {
				out = append(out, m[1]+" "+m[3])
			}
			continue
		}
		if startUsage.MatchString(l) {
			if usageOnly {
				out = nil
			}
			return append(out, "{USAGE}")
		}
		if l != "" {
			out = append(out, l)
		}
	}
	return out
}

// Every golden case of kafka-server-start: exit status, and what Kafka's printed about why it did not start. Each text of
// ours also tells the way out.
func TestServerStartGolden(t *testing.T) {
	var cases []storageCase
	fixture.JSON(t, "golden/tools/server-start.json", &cases)
	if len(cases) != 52 {
		t.Fatalf("%d cases", len(cases))
	}
	for name := range startDeviations {
		if !slices.ContainsFunc(cases, func(c storageCase) bool { return c.Name == name }) {
			t.Errorf("no case %s, which deviates", name)
		}
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			dir := t.TempDir()
			taken, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer taken.Close()
			// The cases' ports are fixed; other tests of this machine may have them.
			into, back := []string{"{FILES}", dir, "{B1}", taken.Addr().String()}, []string{dir, "{FILES}", taken.Addr().String(), "{B1}"}
			for port := 22981; port <= 22983; port++ {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				free := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				into, back = append(into, fmt.Sprint(port), free), append(back, free, fmt.Sprint(port))
			}
			fill, places := strings.NewReplacer(into...).Replace, strings.NewReplacer(back...).Replace
			args := func(list []string) []string {
				out := slices.Clone(list)
				for i := range out {
					out[i] = fill(out[i])
				}
				return out
			}
			for name, text := range c.Files {
				path := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(fill(text)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for _, s := range c.Setup {
				if status, _, errs := storageRun(t, args(s[1:])); status != 0 {
					t.Fatalf("setup %q: %d %s", s, status, errs)
				}
			}
			status, out, errs := startRun(t, args(c.Argv))
			out, errs = places(out), places(errs)
			if status != c.Exit {
				t.Errorf("exit status %d, want %d", status, c.Exit)
			}
			wantOut, wantErrs, levels := c.Stdout, c.tidy(c.Stderr), []string{"ERROR"}
			if d, ok := startDeviations[c.Name]; ok {
				wantErrs, levels = d.lines, append(levels, "WARN")
			}
			rules := func(lines []string) []string {
				for i := range lines {
					switch c.Name {
					case "version":
						lines[i] = regexp.MustCompile(`^\d+\.\d+\.\d+.*`).ReplaceAllString(lines[i], "{VERSION}")
					case "one-directory-id-twice": // Go has no look-around for the case's rule
						lines[i] = strings.ReplaceAll(lines[i], "JEXY6aqzQY-32P5TStzaFg", "{ID}")
					}
				}
				return lines
			}
			if got := rules(startLines(out, c.UsageOnly, "ERROR")); !slices.Equal(got, wantOut) {
				t.Errorf("standard output\n%q\nwant\n%q", got, wantOut)
			}
			if got := rules(startLines(errs, c.UsageOnly, levels...)); !slices.Equal(got, wantErrs) {
				t.Errorf("standard error\n%q\nwant\n%q", got, wantErrs)
			}
			if strings.Contains(errs, "] ERROR ") && !strings.Contains(errs, "] WARN ") {
				t.Errorf("no way out in %q", errs)
			}
		})
	}
}

// A node's log says what the levels of its loggers allow, also to loggers with attributes of their own, and names the package.
func TestServerLogLevels(t *testing.T) {
	var out strings.Builder
	loggers := node.NewLoggers(slog.LevelInfo)
	log := slog.New(&serverLog{w: &out, flush: func() {}, loggers: loggers, mu: new(sync.Mutex)})
	with := log.With("dir", "/d")
	f := func(want string, say func(string, ...any)) {
		t.Helper()
		out.Reset()
		say("hello", "n", 1)
		got := out.String()
		if _, rest, ok := strings.Cut(got, "] "); ok {
			got = rest
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	f("", log.Debug)
	f("INFO hello n=1 (highwater.cli)\n", log.Info)
	loggers.SetLevel("highwater.cli", "DEBUG")
	f("DEBUG hello n=1 (highwater.cli)\n", log.Debug)
	f("DEBUG hello dir=/d n=1 (highwater.cli)\n", with.Debug)
	loggers.SetLevel("highwater.cli", "ERROR")
	f("", with.Warn)
	f("ERROR hello n=1 (highwater.cli)\n", log.Error)
	loggers.SetLevel("highwater.cli", "")
	loggers.SetLevel("highwater.node", "TRACE") // another's
	f("", log.Debug)
}

// TestGrowth: a small heap may triple, a large one may grow by what is garbage in a busy node.
func TestGrowth(t *testing.T) {
	for live, want := range map[uint64]int{0: 200, 8 << 20: 200, 64 << 20: 200, 128 << 20: 100, 200 << 20: 64, 1 << 30: 50} {
		if got := growth(live); got != want {
			t.Errorf("%d MB live: %d %%, want %d", live>>20, got, want)
		}
	}
}

// TestServerStartZooKeeperMode: the file of a broker in ZooKeeper mode is refused with the way to KRaft.
func TestServerStartZooKeeperMode(t *testing.T) {
	file := filepath.Join(t.TempDir(), "server.properties")
	if err := os.WriteFile(file, []byte("broker.id=1\nzookeeper.connect=127.0.0.1:2181\nlog.dirs="+t.TempDir()+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	status, _, errs := startRun(t, []string{file})
	if status != 1 || !strings.Contains(errs, `Missing required configuration "process.roles"`) || !strings.Contains(errs, "Migrate the cluster to KRaft with Kafka 3.9") {
		t.Errorf("exit %d:\n%s", status, errs)
	}
}
