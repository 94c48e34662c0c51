package golden

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Cluster is the cluster that the cases were recorded on: three combined nodes of the real Kafka in three racks with two log
// directories each, a SASL listener, an authorizer that lets ANONYMOUS do everything, and the users alice (alice-secret) and
// bob (bob-secret).
type Cluster struct {
	dir   string
	kafka string // the script that runs Kafka's tools and servers
	nodes [3]node
}

type node struct {
	broker, sasl, controller string
	command                  *exec.Cmd
	done                     chan struct{} // closed when the process has ended
}

const (
	clusterID = "golden-cluster-44AAAAA"
	nodes     = 3
)

// directoryIDs of the three nodes' metadata directories.
var directoryIDs = [nodes]string{"Z29sZGVuLURpcjEtQUFBQQ", "Z29sZGVuLURpcjItQUFBQQ", "Z29sZGVuLURpcjMtQUFBQQ"}

// NewCluster formats a cluster in dir; templates holds server.properties.N, kafka is the script that runs Kafka's tools.
func NewCluster(ctx context.Context, dir, templates, kafka string) (*Cluster, error) {
	c := &Cluster{dir: dir, kafka: kafka}
	ports, err := freePorts(3 * nodes)
	if err != nil {
		return nil, err
	}
	var voters, controllers []string
	for i := range c.nodes {
		addr := func(kind int) string { return fmt.Sprintf("127.0.0.1:%d", ports[3*i+kind]) }
		c.nodes[i] = node{broker: addr(0), sasl: addr(1), controller: addr(2)}
		controllers = append(controllers, addr(2))
		voters = append(voters, fmt.Sprintf("%d@%s:%s", i+1, addr(2), directoryIDs[i]))
	}
	for i := range c.nodes {
		id := strconv.Itoa(i + 1)
		text, err := os.ReadFile(filepath.Join(templates, "server.properties."+id))
		if err != nil {
			return nil, err
		}
		n := c.nodes[i]
		port := func(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }
		config := strings.NewReplacer("{CONTROLLERS}", strings.Join(controllers, ","), "{PORT"+id+"}", port(n.broker), "{SPORT"+id+"}", port(n.sasl),
			"{CPORT"+id+"}", port(n.controller), "{DIR}", dir).Replace(string(text))
		if err := os.MkdirAll(filepath.Join(dir, id), 0o777); err != nil {
			return nil, err
		}
		if err := os.WriteFile(c.config(i+1), []byte(config), 0o666); err != nil {
			return nil, err
		}
	}
	failed := make(chan error, nodes)
	for i := range c.nodes { // a JVM each: together they take little longer than one
		go func() {
			cmd := exec.CommandContext(ctx, kafka, "storage", "format", "-t", clusterID, "-c", c.config(i+1), "-I", strings.Join(voters, ","),
				"-S", "SCRAM-SHA-256=[name=alice,password=alice-secret]", "-S", "SCRAM-SHA-256=[name=bob,password=bob-secret]")
			out, err := cmd.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("format node %d: %w\n%s", i+1, err, out)
			}
			failed <- err
		}()
	}
	var errs []error
	for range c.nodes {
		errs = append(errs, <-failed)
	}
	return c, errors.Join(errs...)
}

// freePorts finds ports that nobody listens on, below those that the kernel gives to outgoing connections.
func freePorts(n int) ([]int, error) {
	for range 100 {
		base := 20000 + rand.IntN(10000)
		var held []net.Listener
		var ports []int
		for p := base; p < base+n; p++ {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
			if err != nil {
				break
			}
			held = append(held, l)
			ports = append(ports, p)
		}
		var errs []error
		for _, l := range held {
			errs = append(errs, l.Close())
		}
		if len(ports) == n {
			return ports, errors.Join(errs...)
		}
	}
	return nil, errors.New("no free ports between 20000 and 30000")
}

func (c *Cluster) config(id int) string {
	return filepath.Join(c.dir, strconv.Itoa(id), "server.properties")
}

// Runner gives a runner for this cluster.
func (c *Cluster) Runner(command func(string) []string, dir string) *Runner {
	r := &Runner{Command: command, Dir: dir, Control: c.Control}
	for _, n := range c.nodes {
		r.Brokers = append(r.Brokers, n.broker)
		r.SASL = append(r.SASL, n.sasl)
		r.Controllers = append(r.Controllers, n.controller)
	}
	return r
}

// Control does what a case asks for: "start", "stop" or "kill" a node.
func (c *Cluster) Control(verb string, id int) error {
	switch verb {
	case "start":
		if err := c.launch(id); err != nil {
			return err
		}
		return c.await(id)
	case "stop":
		return c.signal(id, syscall.SIGTERM)
	case "kill":
		return c.signal(id, syscall.SIGKILL)
	}
	return fmt.Errorf("cluster %s: unknown", verb)
}

// Start starts all nodes and waits until each serves.
func (c *Cluster) Start() error {
	for i := range c.nodes {
		if err := c.launch(i + 1); err != nil {
			return err
		}
	}
	for i := range c.nodes {
		if err := c.await(i + 1); err != nil {
			return err
		}
	}
	return nil
}

// Close ends all nodes.
func (c *Cluster) Close() error {
	var errs []error
	for i := range c.nodes {
		errs = append(errs, c.signal(i+1, syscall.SIGKILL))
	}
	return errors.Join(errs...)
}

func (c *Cluster) launch(id int) error {
	n := &c.nodes[id-1]
	out, err := os.Create(filepath.Join(c.dir, strconv.Itoa(id), "stdout"))
	if err != nil {
		return err
	}
	defer out.Close()
	n.command = exec.Command(c.kafka, "server-start", c.config(id))
	n.command.Env = append(os.Environ(), "KAFKA_HEAP_OPTS=-Xmx400m -Xms128m", "KAFKA_LOG="+c.log(id))
	n.command.Stdout, n.command.Stderr = out, out
	if err := n.command.Start(); err != nil {
		return err
	}
	n.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) { // ends with the process
		_ = cmd.Wait() // a node that dies early is seen by await
		close(done)
	}(n.command, n.done)
	return nil
}

func (c *Cluster) log(id int) string { return filepath.Join(c.dir, strconv.Itoa(id), "server.log") }

// await waits until a node's broker listener answers.
func (c *Cluster) await(id int) error {
	n := &c.nodes[id-1]
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); {
		conn, err := net.DialTimeout("tcp", n.broker, time.Second)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-n.done:
			return fmt.Errorf("node %d died:\n%s", id, c.tail(id))
		case <-time.After(100 * time.Millisecond):
		}
	}
	return fmt.Errorf("node %d doesn't answer:\n%s", id, c.tail(id))
}

// tail is the end of what a node logged.
func (c *Cluster) tail(id int) []byte {
	b, err := os.ReadFile(c.log(id))
	if err != nil {
		return []byte(err.Error())
	}
	if lines := bytes.Split(b, []byte("\n")); len(lines) > 40 {
		b = bytes.Join(lines[len(lines)-40:], []byte("\n"))
	}
	return b
}

// signal ends a node and waits for its end.
func (c *Cluster) signal(id int, s syscall.Signal) error {
	n := &c.nodes[id-1]
	if n.command == nil {
		return nil
	}
	if err := n.command.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-n.done:
	case <-time.After(60 * time.Second):
		if err := n.command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		<-n.done
	}
	n.command = nil
	return nil
}
