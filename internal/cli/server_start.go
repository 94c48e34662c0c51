package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/node"
	"github.com/highwater/highwater/internal/vfs/osfs"
)

// stopTimeout bounds a clean stop; what is not done then is left to the next start's recovery.
const stopTimeout = 5 * time.Minute

// runServerStart is kafka-server-start: it runs a node until SIGTERM or SIGINT.
func runServerStart(e *Env) int {
	args := e.Args
	daemon := false
	for len(args) > 0 && (args[0] == "-daemon" || args[0] == "-loggc" || args[0] == "-name") {
		switch args[0] {
		case "-daemon":
			daemon = true
		case "-name": // of the process, for Kafka's own scripts
			args = args[min(1, len(args)-1):]
		}
		args = args[1:]
	}
	usage := func(message string) int {
		e.Errorf("%s", message)
		e.Errorf("%-50s %s", "Option", "Description")
		e.Errorf("%-50s %s", "------", "-----------")
		e.Errorf("%-50s %s", "--override <String>", "A property that is to replace the one in server.properties")
		e.Errorf("%-50s %s", "--version", "Print the version and exit.")
		return 1
	}
	about := fmt.Sprintf("USAGE: %s.sh [-daemon] server.properties [--override property=value]*", e.Name)
	if len(args) == 0 || args[0] == "--help" {
		return usage(about)
	}
	if args[0] == "--version" {
		e.Println(KafkaVersion)
		return 0
	}
	file := args[0]
	var overrides []string
	for rest := args[1:]; len(rest) > 0; rest = rest[1:] {
		switch {
		case rest[0] == "--version":
			e.Println(KafkaVersion)
			return 0
		case rest[0] == "--help":
			return usage(about)
		case rest[0] == "--override" && len(rest) > 1:
			overrides = append(overrides, rest[1])
			rest = rest[1:]
		case strings.HasPrefix(rest[0], "--override="):
			overrides = append(overrides, strings.TrimPrefix(rest[0], "--override="))
		default:
			return usage("Found non argument parameters: " + strings.Join(rest, ","))
		}
	}
	if daemon {
		run := []string{"server-start", file}
		for _, o := range overrides {
			run = append(run, "--override", o)
		}
		return startDaemon(e, "kafkaServer.out", run)
	}
	c, err := serverConfig(file, overrides)
	if err != nil {
		return fatalStart(e, err, file)
	}
	e.Stoppable()
	return runNode(e, c, nil)
}

// serverConfig reads a node's file, with what --override replaces.
func serverConfig(file string, overrides []string) (*config.Broker, error) {
	b, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &node.StartError{Class: "java.nio.file.NoSuchFileException", Text: file, Hint: "There is no such file: name the node's properties file.", Err: err}
	case errors.Is(err, fs.ErrPermission):
		return nil, &node.StartError{Class: "java.nio.file.AccessDeniedException", Text: file, Hint: "Let this user read the properties file.", Err: err}
	case err != nil:
		return nil, err
	}
	p, err := parseServerConfig(b, overrides)
	if err != nil {
		return nil, err
	}
	c, err := config.NewBroker(p)
	var bad *config.Error
	if _, zookeeper := p.Get("zookeeper.connect"); zookeeper && errors.As(err, &bad) && bad.Key == "process.roles" {
		return nil, &node.StartError{Class: bad.Class, Text: bad.Text, Hint: "This is the file of a broker in ZooKeeper mode, which Kafka left in 4.0. " +
			"Migrate the cluster to KRaft with Kafka 3.9, then start this node with process.roles=broker on the same directories.", Err: err}
	}
	return c, err
}

// parseServerConfig reads the text of a node's file: what --override replaces, then the variables of config providers.
func parseServerConfig(text []byte, overrides []string) (*config.Properties, error) {
	p, err := config.ParseProperties(text)
	if err == nil {
		p.Override(overrides)
		err = p.Resolve(config.Providers{Env: os.LookupEnv, File: os.ReadFile})
	}
	return p, err
}

// runNode runs a node until it is asked to stop or fails. started, if not nil, is called when it serves.
func runNode(e *Env, c *config.Broker, started func(*node.Node)) int {
	loggers := node.NewLoggers(slog.LevelInfo)
	log := slog.New(&serverLog{w: e.Stdout, flush: e.Flush, loggers: loggers, mu: new(sync.Mutex)})
	begin := time.Now()
	for _, w := range c.Warnings {
		if strings.Contains(w, "broker.heartbeat.interval.ms") { // the one that Kafka logs as an error
			(&toolLog{w: e.Stderr}).Line("ERROR", "kafka.server.KafkaConfig", w)
			continue
		}
		log.Warn(w)
	}
	for _, u := range c.Unknown() {
		hint := u.Hint
		if hint == "" {
			hint = "nothing reads it"
		}
		log.Warn("configuration is unknown and passed over", "key", u.Key, "hint", hint)
	}
	for _, w := range c.WithoutEffect() {
		log.Warn("configuration has no effect here", "key", w.Key, "value", w.Value, "reason", w.Text)
	}
	n, err := node.Start(e.Context, node.Options{Config: c, FS: osfs.New(""), OpenFiles: tuneRuntime(log), Log: log, Loggers: loggers})
	if err != nil {
		if e.Context.Err() != nil { // asked to stop while it started
			return 0
		}
		return fatalStart(e, err, "")
	}
	log.Info(fmt.Sprintf("[KafkaRaftServer nodeId=%d] Kafka Server started", c.NodeID), "version", KafkaVersion, "took", time.Since(begin).Round(time.Millisecond))
	if started != nil {
		started(n)
		e.Flush()
	}
	status := 0
	select {
	case <-e.Context.Done():
		log.Info("terminating process due to signal")
	case err := <-n.Failed():
		log.Error("node cannot go on", "error", err)
		status = 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		log.Error("node did not stop cleanly", "error", err)
		return 1
	}
	log.Info(fmt.Sprintf("[KafkaRaftServer nodeId=%d] shut down completed", c.NodeID))
	return status
}

// tuneRuntime sets what the process is given: how the heap may grow, and how many descriptors there are, of which it returns the logs'
// share.
func tuneRuntime(log *slog.Logger) (openFiles int) {
	if os.Getenv("GOGC") == "" {
		paceCollector()
	}
	limit, err := osfs.Descriptors()
	if err != nil || limit < 1024 {
		log.Warn("few file descriptors: connections and logs share them; raise the limit (ulimit -n)", "limit", limit, "error", err)
	}
	return node.FilesOf(limit)
}

// Garbage is little, because buffers are pooled, so letting a small heap grow to three times its live part costs little memory and
// saves half of the collector's time. With 100,000 partitions the live part alone is large: then it may grow by as much as
// garbageBytes, but at least by leastGrowth percent.
const (
	mostGrowth   = 200
	leastGrowth  = 50
	garbageBytes = 128 << 20
)

// growth is by how many percent the heap may outgrow its live part.
func growth(live uint64) int {
	if live == 0 {
		return mostGrowth
	}
	return int(min(max(garbageBytes*100/live, leastGrowth), mostGrowth))
}

// paceCollector looks at the live heap after each collection, for a cleanup of an object that nobody holds runs after each.
func paceCollector() {
	debug.SetGCPercent(mostGrowth)
	set := mostGrowth
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	var arm func()
	arm = func() {
		sentinel := new([64]byte)
		runtime.AddCleanup(sentinel, func(struct{}) {
			metrics.Read(sample)
			// Changing it stops the program for a moment, so small differences are let be.
			if want := growth(sample[0].Value.Uint64()); want < set*9/10 || want > set*11/10 {
				set = want
				debug.SetGCPercent(want)
			}
			arm()
		}, struct{}{})
	}
	arm()
}

// fatalStart says why a node could not start, as Kafka logs it, and the way out. file is the node's configuration if that is why.
func fatalStart(e *Env, err error, file string) int {
	log := &toolLog{w: e.Stderr}
	fatal, text, hint := "Exiting Kafka due to fatal exception", javaLine(err), ""
	var start *node.StartError
	var conf *config.Error
	switch {
	case errors.As(err, &start):
		class := start.Class
		if class == "" {
			class = "java.lang.RuntimeException"
		}
		if start.Fatal != "" {
			fatal = start.Fatal
		}
		text, hint = class+": "+start.Text, start.Hint
	case errors.As(err, &conf):
		text = conf.Class + ": " + conf.Text
		hint = config.FixOf(conf)
		if file != "" {
			hint += " `highwater config check " + file + "` explains every key of the file."
		}
	}
	log.Line("ERROR", "kafka.Kafka$", fatal, text)
	if hint != "" {
		log.Line("WARN", "highwater", hint)
	}
	return 1
}

// startDaemon runs this binary in the background, detached from the terminal, with its output in a file of LOG_DIR or of the
// directory logs.
func startDaemon(e *Env, output string, args []string) int {
	dir := os.Getenv("LOG_DIR")
	if dir == "" {
		dir = "logs"
	}
	self, err := os.Executable()
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	var out *os.File
	if err == nil {
		out, err = os.OpenFile(filepath.Join(dir, output), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	}
	if err != nil {
		e.Errorf("%s: %v", e.Name, err)
		return 1
	}
	defer out.Close()
	cmd := exec.Command(self, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		e.Errorf("%s: %v", e.Name, err)
		return 1
	}
	return 0
}

// serverLog writes a node's log in the form that Kafka's default log4j configuration has.
type serverLog struct {
	mu      *sync.Mutex // guards w, of this handler and all that come from it
	w       io.Writer
	flush   func()
	loggers *node.Loggers
	attrs   string
}

func (l *serverLog) Enabled(_ context.Context, level slog.Level) bool {
	return l.loggers.Enabled(level)
}

func (l *serverLog) Handle(_ context.Context, r slog.Record) error {
	pkg := packageOf(r.PC)
	if !l.loggers.Says(pkg, r.Level) {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "[%s] %s %s", r.Time.Format("2006-01-02 15:04:05,000"), r.Level, r.Message)
	b.WriteString(l.attrs)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	b.WriteString(" (highwater." + pkg + ")\n")
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := io.WriteString(l.w, b.String())
	l.flush()
	return err
}

// packageOf names the package that logged.
func packageOf(pc uintptr) string {
	f, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	name := f.Function[strings.LastIndexByte(f.Function, '/')+1:]
	if i := strings.IndexByte(name, '.'); i > 0 {
		name = name[:i]
	}
	return name
}

func (l *serverLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *l
	for _, a := range attrs {
		c.attrs += fmt.Sprintf(" %s=%v", a.Key, a.Value)
	}
	return &c
}

func (l *serverLog) WithGroup(string) slog.Handler { return l }
