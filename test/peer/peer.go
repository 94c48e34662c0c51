package peer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Node is one combined node (broker and controller) that runs as a process of its own.
type Node interface {
	Software() Software
	ID() int
	Addr() string       // of the listener PLAINTEXT, host:port
	Controller() string // of the listener CONTROLLER
	Home() string       // directory with server.properties, data/ and what the process printed
	Data() string       // its only log directory
	Config() string     // path of its server.properties

	// Start runs the node and returns when its broker listener answers a request, with the time that took.
	Start() (time.Duration, error)
	// Stop sends TERM and waits for the end; an exit status other than Kafka's for TERM is an error.
	Stop() error
	// Kill sends KILL and waits.
	Kill() error
	// PID is the process, or 0 if it does not run.
	PID() int
	// Exited is closed when the process that runs now ends.
	Exited() <-chan struct{}
	// Output is what the process printed and logged since it was started last.
	Output() string
}

// Software is who runs behind a Node.
type Software string

const (
	Kafka     Software = "kafka"
	Highwater Software = "highwater"
)

// Options say what node to make.
type Options struct {
	Software    Software
	ID          int      // node.id; default 1
	Home        string   // an empty or missing directory
	Properties  []string // "key=value" lines put after the usual ones; the last one of a key counts
	FormatArgs  []string // further arguments of storage format
	ClusterID   string   // default: DefaultClusterID
	Unformatted bool     // leave the directory as it is
}

// DefaultClusterID is the id of every cluster made here, so that recorded output is the same each time.
const DefaultClusterID = "AAAAAAAAAAAAAAAAAAAAAQ"

// startTimeout is how long a node may take to answer: a JVM on a busy machine of two cores has been seen at 25 s.
const startTimeout = 90 * time.Second

// stopTimeout is how long a clean stop may take: Kafka's combined node waits five minutes at most for its own controller.
const stopTimeout = 6 * time.Minute

// New makes a node for a test, which kills it at its end. It does not start it.
func New(t testing.TB, o Options) Node {
	t.Helper()
	if o.Home == "" {
		o.Home = t.TempDir()
	}
	n, err := Create(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("%s node %d printed:\n%s", n.Software(), n.ID(), tail(n.Output(), 4000))
		}
	})
	return n
}

// Started is New and Start.
func Started(t testing.TB, o Options) Node {
	t.Helper()
	n := New(t, o)
	if _, err := n.Start(); err != nil {
		t.Fatal(err)
	}
	return n
}

// Create formats a node without starting it.
func Create(o Options) (Node, error) {
	nodes, err := CreateCluster(1, o)
	if err != nil {
		return nil, err
	}
	return nodes[0], nil
}

// CreateCluster formats n combined nodes, IDs from o.ID up, in directories 1, 2, … of o.Home (in o.Home itself if n is 1).
func CreateCluster(n int, o Options) ([]Node, error) {
	if o.ID == 0 {
		o.ID = 1
	}
	if o.ClusterID == "" {
		o.ClusterID = DefaultClusterID
	}
	ports, err := FreePorts(2 * n)
	if err != nil {
		return nil, err
	}
	var voters []string
	for i := range n {
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", o.ID+i, ports[2*i+1]))
	}
	var nodes []Node
	for i := range n {
		home := o.Home
		if n > 1 {
			home = filepath.Join(o.Home, strconv.Itoa(o.ID+i))
		}
		p := &process{software: o.Software, id: o.ID + i, home: home, broker: ports[2*i], controller: ports[2*i+1]}
		if err := p.create(o, strings.Join(voters, ","), n); err != nil {
			return nil, err
		}
		nodes = append(nodes, p)
	}
	return nodes, nil
}

// Existing says where a node lies that was made otherwise: Home holds server.properties.
type Existing struct {
	Software Software
	Version  string // of Kafka, if it is not the usual one
	ID       int
	Home     string
	// Ports of the listeners of server.properties; 0 if the node has no such role.
	Broker, Controller int
}

// Open is a node over a directory that is there already, for a test, which kills it at its end. Its properties may be changed
// between two starts. Data is Home's data, whatever log.dirs says.
func Open(t testing.TB, e Existing) Node {
	t.Helper()
	p := &process{software: e.Software, version: e.Version, id: e.ID, home: e.Home, broker: e.Broker, controller: e.Controller}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// FreePorts asks the system for ports that nobody uses now. Another process could take one before the node does; a test that
// meets that fails at once with the node's own words.
func FreePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// process is a Node.
type process struct {
	software           Software
	version            string
	id                 int
	home               string
	broker, controller int

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd was waited for
	status error         // what cmd.Wait said; valid once exited is closed
}

func (p *process) Software() Software { return p.software }
func (p *process) ID() int            { return p.id }
func (p *process) Addr() string       { return fmt.Sprintf("127.0.0.1:%d", p.broker) }
func (p *process) Controller() string { return fmt.Sprintf("127.0.0.1:%d", p.controller) }
func (p *process) Home() string       { return p.home }
func (p *process) Data() string       { return filepath.Join(p.home, "data") }
func (p *process) Config() string     { return filepath.Join(p.home, "server.properties") }

// ready is the listener that answers once the node serves.
func (p *process) ready() string {
	if p.broker == 0 {
		return p.Controller()
	}
	return p.Addr()
}

func (p *process) create(o Options, voters string, n int) error {
	if err := os.MkdirAll(p.home, 0o755); err != nil {
		return err
	}
	rf, isr := min(n, 3), min(max(n-1, 1), 2)
	lines := []string{
		"process.roles=broker,controller",
		fmt.Sprintf("node.id=%d", p.id),
		"controller.quorum.voters=" + voters,
		fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", p.broker, p.controller),
		fmt.Sprintf("advertised.listeners=PLAINTEXT://127.0.0.1:%d", p.broker),
		"controller.listener.names=CONTROLLER",
		"listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
		"log.dirs=" + p.Data(),
		fmt.Sprintf("offsets.topic.replication.factor=%d", rf),
		fmt.Sprintf("transaction.state.log.replication.factor=%d", rf),
		fmt.Sprintf("transaction.state.log.min.isr=%d", isr),
		fmt.Sprintf("share.coordinator.state.topic.replication.factor=%d", rf),
		fmt.Sprintf("share.coordinator.state.topic.min.isr=%d", isr),
		"group.initial.rebalance.delay.ms=0",
	}
	lines = append(lines, o.Properties...)
	if err := os.WriteFile(p.Config(), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	if o.Unformatted {
		return nil
	}
	args := append([]string{"format", "-t", o.ClusterID, "-c", p.Config()}, o.FormatArgs...)
	out, err := Tool(p.software, "storage", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s storage %s: %w\n%s", p.software, strings.Join(args, " "), err, out)
	}
	return nil
}

// Tool is the command that runs a tool, by Kafka's name without kafka-, of Kafka or of Highwater.
func Tool(s Software, name string, args ...string) *exec.Cmd {
	if s == Kafka {
		return exec.Command(filepath.Join(here(), "kafka"), append([]string{name}, args...)...)
	}
	bin, err := Binary()
	if err != nil {
		c := exec.Command("false")
		c.Err = err
		return c
	}
	return exec.Command(bin, append([]string{name}, args...)...)
}

func (p *process) Start() (time.Duration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runs() {
		return 0, fmt.Errorf("%s node %d runs already", p.software, p.id)
	}
	c := Tool(p.software, "server-start", p.Config())
	if c.Err != nil {
		return 0, c.Err
	}
	out, err := os.Create(filepath.Join(p.home, "stdout"))
	if err != nil {
		return 0, err
	}
	defer out.Close()
	log := filepath.Join(p.home, "server.log") // log4j appends to it
	if err := os.Remove(log); err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	c.Stdout, c.Stderr = out, out
	c.Env = append(os.Environ(), "KAFKA_LOG="+log)
	if p.version != "" {
		c.Env = append(c.Env, "KAFKA_VERSION="+p.version)
	}
	// A test that is killed must not leave brokers behind.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	begin := time.Now()
	// Pdeathsig fires when the thread that forked ends; a goroutine that owns its thread for the life of the child keeps it.
	started, exited := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		if err := c.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		p.status = c.Wait()
		close(exited)
	}()
	if err := <-started; err != nil {
		return 0, fmt.Errorf("start %s node %d: %w", p.software, p.id, err)
	}
	p.cmd, p.exited = c, exited
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for time.Since(begin) < startTimeout {
		if Answers(p.ready()) {
			return time.Since(begin), nil
		}
		select {
		case <-exited:
			return 0, fmt.Errorf("%s node %d ended (%v) before it served:\n%s", p.software, p.id, p.status, tail(p.Output(), 4000))
		case <-tick.C:
		}
	}
	return 0, fmt.Errorf("%s node %d does not answer after %v:\n%s", p.software, p.id, startTimeout, tail(p.Output(), 4000))
}

func (p *process) runs() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

func (p *process) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.runs() {
		return fmt.Errorf("%s node %d does not run", p.software, p.id)
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(stopTimeout):
		p.cmd.Process.Kill()
		<-p.exited
		return fmt.Errorf("%s node %d did not stop within %v of TERM:\n%s", p.software, p.id, stopTimeout, tail(p.Output(), 4000))
	}
	var e *exec.ExitError
	// A JVM that ends by TERM says 128+15; Kafka's scripts hand that on.
	if p.status == nil || errors.As(p.status, &e) && e.ExitCode() == 143 {
		return nil
	}
	return fmt.Errorf("%s node %d stopped with %v:\n%s", p.software, p.id, p.status, tail(p.Output(), 4000))
}

func (p *process) Kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runs() {
		p.cmd.Process.Kill()
		<-p.exited
	}
	return nil
}

func (p *process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.runs() {
		return 0
	}
	return p.cmd.Process.Pid
}

func (p *process) Exited() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exited
}

func (p *process) Output() string {
	out, _ := os.ReadFile(filepath.Join(p.home, "stdout"))
	log, _ := os.ReadFile(filepath.Join(p.home, "server.log"))
	return string(out) + string(log)
}

func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return "…" + s[len(s)-n:]
}

// Answers tells whether a broker answers ApiVersions at addr.
func Answers(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	// ApiVersions v0, correlation 1, no client id.
	c.Write([]byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff})
	var head [8]byte
	_, err = io.ReadFull(c, head[:])
	return err == nil && binary.BigEndian.Uint32(head[4:]) == 1
}

// here is the directory of this package's sources.
func here() string {
	_, self, _, _ := runtime.Caller(0)
	return filepath.Dir(self)
}

// Binary is the path of Highwater, built from this tree once for each process; $HIGHWATER_BINARY names one that is built already.
var Binary = sync.OnceValues(func() (string, error) {
	if b := os.Getenv("HIGHWATER_BINARY"); b != "" {
		return filepath.Abs(b)
	}
	top := filepath.Join(here(), "..", "..")
	bin := filepath.Join(top, "bin", "highwater")
	c := exec.Command("go", "build", "-o", bin, "./cmd/highwater")
	c.Dir = top
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("build highwater: %w\n%s", err, out.String())
	}
	return bin, nil
})
