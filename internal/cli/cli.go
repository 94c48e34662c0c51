package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
)

// KafkaVersion is the release whose tools these are; --version prints it as Kafka's do.
const KafkaVersion = "4.4.0"

// Env is what a tool has of the world.
type Env struct {
	Name   string   // the tool's own name, "kafka-topics"
	Args   []string // what follows the name
	Stdin  io.Reader
	Stdout io.Writer // buffered; flushed when the tool returns, and by Flush
	Stderr io.Writer // not buffered; Stdout is flushed before it is written to
	// Context ends when the process is asked to stop (SIGINT, SIGTERM). A tool that runs until then returns after it; one
	// that doesn't look at it is ended by the signal all the same, see Main.
	Context context.Context
	// Stoppable is called by a tool that wants to end by itself after Context is done; otherwise the first signal ends the
	// process at once, with the status that a shell gives it.
	Stoppable func()
}

// Tool is one entry of the table.
type Tool struct {
	Name    string // "topics": kafka-topics, kafka-topics.sh and `highwater topics`
	Summary string
	Run     func(*Env) int // returns the exit status
	Own     bool           // ours, not Kafka's: no kafka- name for it
}

// Printf writes to standard output.
func (e *Env) Printf(format string, args ...any) { fmt.Fprintf(e.Stdout, format, args...) }

// Println writes to standard output.
func (e *Env) Println(args ...any) { fmt.Fprintln(e.Stdout, args...) }

// Errorf writes a line to standard error.
func (e *Env) Errorf(format string, args ...any) { fmt.Fprintf(e.Stderr, format+"\n", args...) }

// Flush hands on what was written to standard output so far.
func (e *Env) Flush() {
	if f, ok := e.Stdout.(interface{ Flush() error }); ok {
		// A reader that went away ends a tool by SIGPIPE; any other error would come again at the next write.
		_ = f.Flush()
	}
}

// lockedOut is standard output as tools see it: buffered, safe for several goroutines.
type lockedOut struct {
	mu sync.Mutex
	w  *bufio.Writer // guarded by mu
}

func (o *lockedOut) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Write(p)
}

func (o *lockedOut) Flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Flush()
}

// flushingErr keeps the two streams in order where they end in one file.
type flushingErr struct {
	out *lockedOut
	w   io.Writer
}

func (f flushingErr) Write(p []byte) (int, error) {
	if err := f.out.Flush(); err != nil {
		return 0, err
	}
	return f.w.Write(p)
}

// Main runs the tool that argv asks for and returns the exit status.
func Main(argv []string) int {
	tool, args := find(argv)
	if tool == nil {
		return 1
	}
	out := &lockedOut{w: bufio.NewWriterSize(os.Stdout, 1<<16)}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var once sync.Once
	stoppable := func() {
		once.Do(func() {
			c := make(chan os.Signal, 1)
			signal.Notify(c, os.Interrupt, syscall.SIGTERM)
			go func() { // ends with the process: the tool's own end is what the signal asks for
				select {
				case <-c:
					// As in a JVM, a second TERM does not break off an orderly end: supervisors that signal a process and its group send
					// two. So c goes on taking it; to ignore the signal from here on would leave a moment in which it kills. A second
					// interrupt, which is somebody at a terminal, ends the process at once.
					signal.Reset(os.Interrupt)
					cancel()
				case <-ctx.Done():
				}
			}()
		})
	}
	name := tool.Name
	if !tool.Own {
		name = "kafka-" + name
	}
	e := &Env{
		Name: name, Args: args, Stdin: os.Stdin, Stdout: out, Stderr: flushingErr{out, os.Stderr},
		Context: ctx, Stoppable: stoppable,
	}
	status := tool.Run(e)
	if err := out.Flush(); err != nil && status == 0 {
		fmt.Fprintf(os.Stderr, "%s: write standard output: %v\n", name, err)
		status = 1
	}
	return status
}

// find picks the tool by the program's name or by the first word. It returns nil after saying what is wrong.
func find(argv []string) (*Tool, []string) {
	if len(argv) == 0 {
		argv = []string{"highwater"}
	}
	base := strings.TrimSuffix(filepath.Base(argv[0]), ".sh")
	if t := lookup(strings.TrimPrefix(base, "kafka-")); t != nil && !t.Own && strings.HasPrefix(base, "kafka-") {
		return t, argv[1:]
	}
	if len(argv) < 2 {
		return lookup("help"), nil
	}
	word := argv[1]
	switch word {
	case "-h", "-help", "--help":
		word = "help"
	case "-v", "-version", "--version":
		word = "version"
	}
	if t := lookup(strings.TrimPrefix(strings.TrimSuffix(word, ".sh"), "kafka-")); t != nil {
		return t, argv[2:]
	}
	fmt.Fprintf(os.Stderr, "highwater: unknown tool %q; `highwater help` lists them\n", argv[1])
	return nil, nil
}

func lookup(name string) *Tool {
	list := tools()
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

func runHelp(e *Env) int {
	if len(e.Args) > 0 {
		if t := lookup(strings.TrimPrefix(strings.TrimSuffix(e.Args[0], ".sh"), "kafka-")); t != nil && t.Name != "help" {
			inner := *e
			inner.Args = []string{"--help"}
			inner.Name = t.Name
			if !t.Own {
				inner.Name = "kafka-" + t.Name
			}
			inner.Stderr = e.Stdout // asked for, so it is the answer
			t.Run(&inner)
			return 0
		}
		e.Errorf("highwater: unknown tool %q", e.Args[0])
		return 1
	}
	e.Println("highwater TOOL [ARGUMENT…]: Apache Kafka's log and quorum, and its tools, in one binary.")
	for _, own := range []bool{true, false} {
		if own {
			e.Println("\nOwn commands:")
		} else {
			e.Println("\nKafka's tools (`highwater links DIR` makes kafka-NAME and kafka-NAME.sh of each):")
		}
		var list []Tool
		for _, t := range tools() {
			if t.Own == own {
				list = append(list, t)
			}
		}
		sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
		for _, t := range list {
			e.Printf("  %-22s %s\n", t.Name, t.Summary)
		}
	}
	e.Println("\n`highwater help TOOL` shows a tool's options.")
	return 0
}

func runVersion(e *Env) int {
	e.Printf("highwater, compatible with Apache Kafka %s\n", KafkaVersion)
	return 0
}

// runLinks makes Kafka's names as symbolic links to this binary, so that scripts written for a Kafka distribution's bin
// directory find all tools where they expect them.
func runLinks(e *Env) int {
	if len(e.Args) != 1 || strings.HasPrefix(e.Args[0], "-") {
		e.Errorf("usage: highwater links DIR\nMakes kafka-NAME and kafka-NAME.sh in DIR, links to this binary, for every tool.")
		return 1
	}
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		e.Errorf("highwater links: find this binary: %v", err)
		return 1
	}
	dir := e.Args[0]
	if err := os.MkdirAll(dir, 0o777); err != nil {
		e.Errorf("highwater links: %v", err)
		return 1
	}
	n := 0
	for _, t := range tools() {
		if t.Own {
			continue
		}
		for _, name := range []string{"kafka-" + t.Name, "kafka-" + t.Name + ".sh"} {
			if err := link(self, filepath.Join(dir, name)); err != nil {
				e.Errorf("highwater links: %v", err)
				return 1
			}
			n++
		}
	}
	e.Printf("%d links to %s in %s\n", n, self, dir)
	return 0
}

// link makes one link. One that is there already is replaced; a file of any other kind is left alone.
func link(self, path string) error {
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.Mode()&os.ModeSymlink == 0:
		return fmt.Errorf("%s exists and is no link; remove it or choose another directory", path)
	case err == nil:
		if err := os.Remove(path); err != nil {
			return err
		}
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	return os.Symlink(self, path)
}
