package golden

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	prefixFlag      = flag.String("prefix", "", "how a tool is called, {tool} for its name; default: highwater, built from this tree")
	bootstrapFlag   = flag.String("bootstrap", "", "host:port,… of a fresh cluster; default: three nodes of the real Kafka, started here")
	saslFlag        = flag.String("sasl", "", "the SASL_PLAINTEXT listeners of that cluster")
	controllersFlag = flag.String("controllers", "", "the controllers of that cluster")
	onlyFlag        = flag.String("only", "", "regular expression on tool/case")
	toolsFlag       = flag.String("tools", "configs,cluster,features,verifiable-producer,console-producer,console-consumer,get-offsets,broker-api-versions,producer-perf-test,consumer-perf-test,delete-records,log-dirs,topics", "the tools whose cases run; topics comes last, for it stops a node. Those that need no cluster, storage, dump-log and server-start, are replayed in internal/cli")
)

// module is the top of the tree.
func module() string {
	_, self, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(self), "..", "..")
}

// command is how tools are called, by -prefix or built from this tree.
func command(t *testing.T) func(string) []string {
	t.Helper()
	prefix := *prefixFlag
	if prefix == "" {
		binary := filepath.Join(t.TempDir(), "highwater")
		build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/highwater")
		build.Dir = module()
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build: %v\n%s", err, out)
		}
		prefix = binary + " {tool}"
	}
	return func(tool string) []string { return strings.Fields(strings.ReplaceAll(prefix, "{tool}", tool)) }
}

// outcome is what became of one case.
type outcome struct {
	name, diff string
	err        error
}

func replayAll(ctx context.Context, t *testing.T, r *Runner, tool string) []outcome {
	cases, err := Load(filepath.Join(module(), "testdata", "golden", "tools", tool+".json"))
	if err != nil {
		return []outcome{{name: "load", err: err}}
	}
	only, err := regexp.Compile(*onlyFlag)
	if err != nil {
		return []outcome{{name: "only", err: err}}
	}
	var out []outcome
	for i := range cases {
		if !only.MatchString(tool + "/" + cases[i].Name) {
			continue
		}
		diff, err := r.Replay(ctx, tool, &cases[i])
		out = append(out, outcome{cases[i].Name, diff, err})
	}
	return out
}

func report(t *testing.T, tool string, list []outcome) {
	for _, o := range list {
		t.Run(tool+"/"+o.name, func(t *testing.T) {
			switch {
			case errors.Is(o.err, ErrSkip):
				if os.Getenv("CI") == "true" {
					t.Fatal(o.err) // the cluster that is started for this has all that a case can want
				}
				t.Skip(o.err)
			case o.err != nil:
				t.Error(o.err)
			case o.diff != "":
				t.Error("differs from Kafka's tool (- it, + this one):\n" + o.diff)
			}
		})
	}
}

// TestTools replays the cases of the tools that are clients: against the cluster in the flags, else against three nodes of
// the real Kafka, started for it. The files of cases run at the same time, each in its order, since they use topics of their
// own; the cases of kafka-topics come last, because they stop a node.
func TestTools(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three JVMs and runs for minutes")
	}
	how := command(t)
	dir := t.TempDir()
	var fresh func() *Runner
	if *bootstrapFlag != "" {
		fresh = func() *Runner {
			return &Runner{Command: how, Dir: dir, Brokers: split(*bootstrapFlag), SASL: split(*saslFlag), Controllers: split(*controllersFlag)}
		}
	} else {
		if _, err := exec.LookPath("java"); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatal("no java in PATH: install a JDK 17 (and Maven, which brings Kafka's jars)")
			}
			t.Skip("no java in PATH: install a JDK 17 and Maven to run the tools against the real Kafka")
		}
		c, err := NewCluster(t.Context(), dir, filepath.Join(module(), "testdata", "golden", "cluster"), filepath.Join(module(), "test", "peer", "kafka"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		fresh = func() *Runner { return c.Runner(how, dir) }
	}
	tools := split(*toolsFlag)
	warm(t, fresh())
	results := make([][]outcome, len(tools))
	var wg sync.WaitGroup
	slots := make(chan struct{}, 4) // more at a time only starve the nodes on a small machine
	last := -1
	for i, tool := range tools {
		if tool == "topics" {
			last = i
			continue
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results[i] = replayAll(t.Context(), t, fresh(), tool)
		})
	}
	wg.Wait()
	if last >= 0 {
		results[last] = replayAll(t.Context(), t, fresh(), "topics")
	}
	n := 0
	for i, tool := range tools {
		report(t, tool, results[i])
		n += len(results[i])
	}
	if n == 0 {
		t.Fatal("no case ran")
	}
}

// warm makes the cluster create its internal topics and load its classes, so that no case waits so long for them that a tool
// reports on its progress. What fails here will fail in a case, too, and be told there.
func warm(t *testing.T, r *Runner) {
	t.Helper()
	for _, argv := range [][]string{
		{"producer-perf-test", "--bootstrap-server", "{BOOTSTRAP}", "--topic", "warm", "--num-records", "1000", "--record-size", "100", "--throughput", "-1", "--transactional-id", "warm"},
		{"console-consumer", "--bootstrap-server", "{BOOTSTRAP}", "--topic", "warm", "--group", "warm", "--from-beginning", "--max-messages", "1", "--timeout-ms", "20000"},
	} {
		exit, out, errs, err := r.call(t.Context(), argv[0], argv[1:], nil, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if exit != (Exit{}) {
			t.Logf("%q: exit %v\n%s%s", argv, exit, out, errs)
		}
	}
}

func split(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// TestCases shows that what Kafka printed survives our normalising: a recorded case equals itself, every regular expression
// in it compiles, and no case is without a check.
func TestCases(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(module(), "testdata", "golden", "tools", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	total := 0
	for _, f := range files {
		cases, err := Load(f)
		if err != nil {
			t.Fatal(err)
		}
		for i := range cases {
			c := &cases[i]
			total++
			if _, err := c.rules(); err != nil {
				t.Errorf("%s/%s: %v", filepath.Base(f), c.Name, err)
			}
			a, err := c.shaped(c.Exit, c.Stdout, c.Stderr)
			if err != nil {
				t.Errorf("%s/%s: %v", filepath.Base(f), c.Name, err)
			}
			b, err := c.shaped(c.Exit, tidy(strings.Join(c.Stdout, "\n")+"\n", false), tidy(strings.Join(c.Stderr, "\n")+"\n", false))
			if err != nil {
				t.Errorf("%s/%s: %v", filepath.Base(f), c.Name, err)
			}
			if d := a.diff(b); d != "" && !c.Log {
				t.Errorf("%s/%s differs from itself:\n%s", filepath.Base(f), c.Name, d)
			}
		}
	}
	if total < 1000 {
		t.Errorf("%d cases, there should be more than a thousand", total)
	}
}

// TestTidy shows what is dropped from a tool's output.
func TestTidy(t *testing.T) {
	f := func(in string, log bool, want ...string) {
		t.Helper()
		got := tidy(in, log)
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("tidy(%q) = %q, want %q", in, got, want)
		}
	}
	f("one\n[2026-01-02 03:04:05,678] WARN text (org.x.Y)\njava.lang.E: more\n\tat x\ntwo\n", false, "one", "two")
	f("[2026-01-02 03:04:05,678] ERROR text (org.x.Y)\njava.lang.E: more\n\tat x\n", true, "ERROR text", "java.lang.E: more", "{TRACE}")
	f("wrong\nOption                Description\n------     ----\n--x\n", false, "wrong", "{USAGE}")
	f("usage: kafka-x [-h]\n  more\nkafka-x: error: bad\n", false, "{USAGE}", "kafka-x: error: bad")
	f("usage: kafka-x [-h]\n  more\n", false, "{USAGE}")
	f("a\r\n  \nb", false, "a", "", "b")
}

// TestRule shows that Python's look-around, which Go lacks, is understood where the cases use it.
func TestRule(t *testing.T) {
	f := func(pattern, with, in, want string) {
		t.Helper()
		r, err := newRule(pattern, with)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.apply(in); got != want {
			t.Errorf("%q on %q: %q, want %q", pattern, in, got, want)
		}
	}
	const id = `(?<![\w-])[\w-]{8}[QRST][\w-][CGKOSWaeimquy26-][\w-]{10}[AQgw](?![\w-])`
	f(id, "{ID}", "TopicId: fXyJjFb7QsybYdAA1sFpLw\tx", "TopicId: {ID}\tx")
	f(id, "{ID}", "xfXyJjFb7QsybYdAA1sFpLw", "xfXyJjFb7QsybYdAA1sFpLw")
	f(id, "{ID}", "fXyJjFb7QsybYdAA1sFpLw,fXyJjFb7QsybYdAA1sFpLw", "{ID},{ID}")
	f(`(\d+) ms`, `{N} \1`, "5 ms, 6 ms", "{N} 5, {N} 6")
	f(`x`, `$1`, "x", "$1")
}
