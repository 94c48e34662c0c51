package cli

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/node"
	"github.com/highwater/highwater/internal/vfs/osfs"
)

// devPort is where clients look for a Kafka.
const devPort = 9092

// runDev runs a single node for development: it formats a directory if there is none, and serves on 127.0.0.1.
func runDev(e *Env) int {
	var o Options
	dir := o.Value("dir", "directory", "Where the data is; made if it is not there.").Default("highwater-dev")
	port := o.Value("port", "port", "The port for clients; the controller's is the next one.").Default(strconv.Itoa(devPort))
	help := o.Flag("help", "Print usage information.")
	p, err := o.Parse(e.Args)
	if err != nil {
		e.Errorf("highwater dev: %v", err)
		o.PrintHelp(e.Stderr)
		return 1
	}
	if p.Has(help) {
		e.Errorf("Runs a single node for development, with its data in a directory, until Ctrl-C.")
		o.PrintHelp(e.Stderr)
		return 0
	}
	at, _, err := p.Int(port)
	if err != nil || at < 1 || at > 65534 {
		e.Errorf("highwater dev: --port must be a port number below 65535")
		return 1
	}
	path, err := p.Get(dir)
	if err != nil {
		e.Errorf("highwater dev: %v", err)
		return 1
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		e.Errorf("highwater dev: %v", err)
		return 1
	}
	file := filepath.Join(abs, "server.properties")
	if err := prepareDev(abs, file, at); err != nil {
		e.Errorf("highwater dev: %v", err)
		return 1
	}
	overrides := []string{
		fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", at, at+1),
		fmt.Sprintf("controller.quorum.voters=1@127.0.0.1:%d", at+1),
	}
	c, err := serverConfig(file, overrides)
	if err != nil {
		return fatalStart(e, err, "")
	}
	e.Stoppable()
	out := e.Stdout
	quiet := *e
	quiet.Stdout = io.Discard // the banner says what matters
	quiet.Context = e.Context
	begin := time.Now()
	return runNode(&quiet, c, func(n *node.Node) {
		addr := n.Addr("PLAINTEXT")
		fmt.Fprintf(out, `Highwater is running: a single node, broker and controller, in %v.

  bootstrap servers   %s
  data                %s

Next, in another terminal:
  highwater topics --bootstrap-server %[2]s --create --topic hello --partitions 3
  highwater console-producer --bootstrap-server %[2]s --topic hello
  highwater console-consumer --bootstrap-server %[2]s --topic hello --from-beginning
Any Kafka client or tool works with this address too. `+"`highwater links DIR`"+` makes Kafka's tool names.
Ctrl-C stops it.
`, time.Since(begin).Round(time.Millisecond), addr, filepath.Join(abs, "data"))
		e.Flush()
	})
}

// prepareDev writes server.properties and formats the directory, unless that was done before.
func prepareDev(dir, file string, port int) error {
	if _, err := os.Stat(file); err == nil {
		return nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err != nil {
		return fmt.Errorf("port %d is not free, choose another one with --port: %w", port, err)
	} else if err := l.Close(); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf(`# A node for development, made by highwater dev. The ports are given on the command line.
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d
controller.quorum.voters=1@127.0.0.1:%d
log.dirs=%s
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
`, port, port+1, port+1, filepath.Join(dir, "data"))
	tmp := file + ".tmp"
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		return err
	}
	p, err := config.ParseProperties([]byte(text))
	if err != nil {
		return err
	}
	c, err := config.NewBroker(p)
	if err != nil {
		return err
	}
	id, err := drawUUID()
	if err != nil {
		return err
	}
	f := storageFormatter{
		fs: osfs.New(""), now: time.Now(), random: drawUUID, out: io.Discard,
		nodeID: c.NodeID, clusterID: id.String(), writeSnapshot: true, ignoreFormatted: true,
		metadataDir: c.MetadataLogDir, dirs: storageDirs(c),
	}
	if err := f.run(); err != nil {
		return err
	}
	return os.Rename(tmp, file) // last, so that a half-made directory is made again
}
