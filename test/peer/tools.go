package peer

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Result is what a program did.
type Result struct {
	Exit   int    `json:"exit"`
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	Log    string `json:"-"` // what it logged, which a tool that runs alone prints to standard error
}

// Tools is a warm JVM with the real Kafka's classes. Its calls run one after the other.
type Tools struct {
	mu      sync.Mutex
	in      io.WriteCloser
	out     *bufio.Reader
	cmd     *exec.Cmd
	log     *os.File
	classes map[string]string
}

// Home is where the real Kafka and other dear downloads are kept.
func Home() (string, error) {
	if h := os.Getenv("PEER_HOME"); h != "" {
		return h, nil
	}
	c, err := os.UserCacheDir()
	return filepath.Join(c, "highwater-peer"), err
}

// StartTools compiles the Java programs given besides ToolHost.java, if that was not done before, and starts the JVM.
func StartTools(programs ...string) (*Tools, error) { return startTools("", programs) }

// StartToolsAndShell is StartTools with the metadata shell, which is not among the usual jars.
func StartToolsAndShell(programs ...string) (*Tools, error) {
	shell, err := output(exec.Command(filepath.Join(here(), "install"), "4.4.0/shell"))
	if err != nil {
		return nil, err
	}
	return startTools(shell, programs)
}

// metadataShell is the class of the metadata shell. The registry has its jar at 4.3.1 only; behind the 4.4.0 classes it reads
// what 4.4 wrote.
const metadataShell = "org.apache.kafka.shell.MetadataShell"

func startTools(shell string, programs []string) (*Tools, error) {
	home, err := Home()
	if err != nil {
		return nil, err
	}
	logconf, err := output(exec.Command(filepath.Join(here(), "kafka"), "--log", "WARN")) // installs Kafka if need be
	if err != nil {
		return nil, err
	}
	lib := filepath.Join(home, "kafka-4.4.0", "lib", "*")
	classes, err := compile(home, lib, append([]string{filepath.Join(here(), "java", "ToolHost.java")}, programs...))
	if err != nil {
		return nil, err
	}
	log, err := os.CreateTemp("", "toolhost-*.log")
	if err != nil {
		return nil, err
	}
	path := classes + ":" + lib
	if shell != "" {
		path += ":" + filepath.Join(shell, "*")
	}
	c := exec.Command("java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.security.manager=allow",
		"-Dlog4j2.configurationFile="+logconf, "-cp", path, "ToolHost")
	c.Stderr = log
	t := &Tools{cmd: c, log: log, classes: map[string]string{}}
	if t.in, err = c.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	t.out = bufio.NewReader(out)
	if err := c.Start(); err != nil { // it ends with its standard input, so with this process at the latest
		return nil, fmt.Errorf("start the JVM: %w", err)
	}
	return t, nil
}

// compile returns a directory with the classes of sources, made once for each content.
func compile(home, lib string, sources []string) (string, error) {
	h := sha256.New()
	for _, s := range sources {
		b, err := os.ReadFile(s)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s", filepath.Base(s), len(b), b)
	}
	dir := filepath.Join(home, "classes-"+hex.EncodeToString(h.Sum(nil)[:8]))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	fresh, err := os.MkdirTemp(home, "new.")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	args := append([]string{"-Xlint:none", "-nowarn", "-d", fresh, "-cp", lib}, sources...)
	if out, err := exec.Command("javac", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("javac: %w (a JDK 17 is needed: openjdk-17-jdk-headless)\n%s", err, out)
	}
	if err := os.Rename(fresh, dir); err != nil {
		if _, there := os.Stat(dir); there != nil { // another process was faster otherwise
			return "", err
		}
	}
	return dir, nil
}

func output(c *exec.Cmd) (string, error) {
	var errs strings.Builder
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(c.Args, " "), err, errs.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// Run runs a tool by Kafka's name without kafka-, or a class of the JVM's class path, and waits a minute at most for its end.
func (t *Tools) Run(tool, stdin string, args ...string) (Result, error) {
	return t.run(tool, stdin, time.Minute, args)
}

// Shell runs the metadata shell of tools that were started with it until its answer is right, ten times at most. Now and then the shell
// answers before it has read the file, or waits for ever, whoever wrote the file; so it gets three seconds each time.
func (t *Tools) Shell(right func(Result) bool, args ...string) (r Result, err error) {
	for range 10 {
		if r, err = t.run(metadataShell, "", 3*time.Second, args); err != nil || right(r) {
			return r, err
		}
	}
	return r, fmt.Errorf("metadata-shell %s ended with %d and printed, at the last of ten times:\n%s%s", strings.Join(args, " "), r.Exit, r.Stdout, tail(r.Stderr, 1000))
}

// run waits for the tool's end as long as given, in whole seconds; then its exit is 124.
func (t *Tools) run(tool, stdin string, limit time.Duration, args []string) (Result, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	class, ok := t.classes[tool]
	if !ok {
		class = tool
		if strings.ToLower(tool) == tool && !strings.Contains(tool, ".") {
			var err error
			if class, err = output(exec.Command(filepath.Join(here(), "kafka"), "--class", tool)); err != nil {
				return Result{}, err
			}
		}
		t.classes[tool] = class
	}
	if args == nil {
		args = []string{}
	}
	q, err := json.Marshal(map[string]any{"class": class, "argv": args, "stdin": stdin, "timeout": int(limit.Seconds())})
	if err != nil {
		return Result{}, err
	}
	logged := len(t.Log())
	if _, err := t.in.Write(append(q, '\n')); err != nil {
		return Result{}, fmt.Errorf("ask the JVM for %s: %w", tool, err)
	}
	line, err := t.out.ReadBytes('\n')
	if err != nil {
		log, _ := os.ReadFile(t.log.Name())
		return Result{}, fmt.Errorf("%s: the JVM ended: %w\n%s", tool, err, tail(string(log), 2000))
	}
	var r Result
	if err := json.Unmarshal(line, &r); err != nil {
		return Result{}, fmt.Errorf("%s: answer of the JVM: %w", tool, err)
	}
	r.Log = t.Log()[logged:]
	return r, nil
}

// Log is what the tools logged.
func (t *Tools) Log() string {
	b, _ := os.ReadFile(t.log.Name())
	return string(b)
}

// Close ends the JVM.
func (t *Tools) Close() error {
	t.in.Close()
	err := t.cmd.Wait()
	t.log.Close()
	os.Remove(t.log.Name())
	return err
}

// Must is Run for a test that has no use for an error.
func (t *Tools) Must(tb testing.TB, tool, stdin string, args ...string) Result {
	tb.Helper()
	r, err := t.Run(tool, stdin, args...)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// Python is an interpreter that has the Python clients, installed on first use.
func Python() (string, error) {
	return output(exec.Command(filepath.Join(here(), "python")))
}
