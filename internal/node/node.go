package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/lifecycle"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/raftloop"
	"github.com/highwater/highwater/internal/replica"
	"github.com/highwater/highwater/internal/server"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/storageloop"
	"github.com/highwater/highwater/internal/uplink"
	"github.com/highwater/highwater/internal/vfs"
)

// Options is what a node is made of.
type Options struct {
	Config *config.Broker
	FS     vfs.FS
	Log    *slog.Logger
	// Loggers are the levels that Log obeys and that tools change; nil: they are told and change nothing.
	Loggers *Loggers
	// OpenFiles bounds the descriptors that logs hold; 0 is 1024. See FilesOf.
	OpenFiles int
}

// FilesOf is how many descriptors of a process that may have limit the logs should hold: half, so that as many are left for
// connections and for what a start, a checkpoint or a removal opens for a moment. Beyond 16384 one more saves nothing: a file that is
// opened again for an append costs a few microseconds.
func FilesOf(limit int) int { return min(max(limit/2, 1), 16384) }

// Node is a running broker, controller or both.
type Node struct {
	opts     Options
	log      *slog.Logger
	id       kafka.BrokerID
	identity identity
	hostName string // of this machine, if a listener advertises it

	static *config.Broker                // the file's
	config atomic.Pointer[config.Broker] // with the dynamic configs of the newest image
	image  atomic.Pointer[metadata.Image]

	dirs        []*replica.Dir
	quorum      *raftloop.Loop
	controllers *peers
	loader      *loader
	server      *server.Server
	control     *controllerSide // nil without the controller role
	replicas    *replica.Set    // nil without the broker role, as all below
	disks       *storageloop.Loop
	mover       *storageloop.Mover
	uplink      *uplink.Uplink // set under applyMu, for images come in before it is there
	alters      *alters
	ticks       ticker

	applyMu   sync.Mutex
	started   bool                       // replicas hold what the image says
	serving   bool                       // brokers' listeners serve: those that a dynamic config names may come and go; under applyMu
	listening map[string]config.Endpoint // brokers' listeners that are bound, by name; under applyMu once serving
	told      map[string]bool            // notices that were logged, under applyMu
	failed    chan error
	life      context.Context // ends, by abort, when the node cannot go on
	abort     context.CancelCauseFunc
	running   []step // what Stop must undo, in the order of starting
	stopOnce  sync.Once
	stopErr   error
}

// step is one entry of the list that Start goes through forwards and Stop backwards.
type step struct {
	name  string
	start func(context.Context) error
	stop  func(context.Context) error
}

// steps is the one place that knows the order. It is Kafka's: nothing is served before the broker is unfenced.
func (n *Node) steps() []step {
	var s []step
	add := func(name string, start, stop func(context.Context) error) { s = append(s, step{name, start, stop}) }
	add("lock log directories", n.openDirs, n.closeDirs)
	add("bind listeners", n.bind, n.unbind) // before anything is written: a port in use changes nothing
	add("open metadata log", n.openQuorum, n.closeQuorum)
	if n.static.IsController {
		add("start controller", n.startController, n.stopController)
	}
	add("follow metadata", n.startMetadata, n.stopMetadata)
	if n.static.IsBroker {
		add("register broker", n.register, n.unregister)
		add("recover logs", n.recoverLogs, n.stopLogs)
		add("serve brokers' listeners", n.serve, n.shutDown)
	}
	return s
}

// Start brings a node up. It returns when the node serves, or with the first error, after undoing what was done.
func Start(ctx context.Context, o Options) (*Node, error) {
	if err := refuse(o.Config); err != nil {
		return nil, err
	}
	if o.Loggers == nil {
		o.Loggers = NewLoggers(slog.LevelInfo)
	}
	n := &Node{opts: o, log: o.Log, static: o.Config, id: kafka.BrokerID(o.Config.NodeID), failed: make(chan error, 1)}
	n.config.Store(o.Config)
	n.image.Store(metadata.Empty())
	// What fails while a later step waits, for the controller or for the metadata, ends the start.
	n.life, n.abort = context.WithCancelCause(context.WithoutCancel(ctx))
	ctx, cancel := context.WithCancelCause(ctx)
	defer context.AfterFunc(n.life, func() { cancel(context.Cause(n.life)) })()
	for _, s := range n.steps() {
		begin := time.Now()
		err := s.start(ctx)
		if lost := context.Cause(n.life); lost != nil && !errors.Is(err, lost) {
			if err == nil {
				n.running = append(n.running, s)
			}
			err = lost
		}
		if err != nil {
			stop, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			return nil, errors.Join(err, n.Stop(stop))
		}
		n.running = append(n.running, s)
		n.log.Debug("started", "step", s.name, "took", time.Since(begin))
	}
	return n, nil
}

// Stop takes a node down in the reverse order. It is idempotent and reports every error.
func (n *Node) Stop(ctx context.Context) error {
	n.stopOnce.Do(func() {
		var errs []error
		for i := len(n.running) - 1; i >= 0; i-- {
			s := n.running[i]
			begin := time.Now()
			if err := s.stop(ctx); err != nil {
				errs = append(errs, fmt.Errorf("undo %q: %w", s.name, err))
			}
			n.log.Debug("stopped", "step", s.name, "took", time.Since(begin))
		}
		n.stopErr = errors.Join(errs...)
	})
	return n.stopErr
}

// Failed delivers the error after which the process must end: the metadata log or the registration is lost.
func (n *Node) Failed() <-chan error { return n.failed }

func (n *Node) fail(err error) {
	n.abort(err)
	select {
	case n.failed <- err:
	default:
	}
}

// Image is the metadata that the node stands at.
func (n *Node) Image() *metadata.Image { return n.image.Load() }

// Config is the configuration in force.
func (n *Node) Config() *config.Broker { return n.config.Load() }

// State is the broker's state.
func (n *Node) State() lifecycle.State {
	if n.uplink == nil {
		return lifecycle.NotRunning
	}
	s, _ := n.uplink.State()
	return s
}

// Addr is where a listener is bound.
func (n *Node) Addr(listener string) string {
	a, ok := n.server.Addr(listener)
	if !ok {
		return ""
	}
	return a.String()
}

// openDirs checks and locks every log directory.
func (n *Node) openDirs(context.Context) error {
	var err error
	if n.identity, err = checkDirs(n.opts.FS, n.static); err != nil {
		return err
	}
	open := n.opts.OpenFiles
	if open <= 0 {
		open = 1024
	}
	files := storage.NewFiles(n.opts.FS, open)
	for _, path := range allDirs(n.static) {
		if n.identity.lost[path] != nil {
			continue
		}
		d, err := storage.OpenDir(path, storage.Options{
			FS: n.opts.FS, Files: files, Rand: newRand(), ProducerExpiration: n.static.Millis("producer.id.expiration.ms"),
		})
		if unreadable(err) && path != n.static.MetadataLogDir {
			n.identity.lost[path] = err
			continue
		}
		if err != nil {
			return errors.Join(dirError(path, err), n.abandonDirs())
		}
		for _, note := range d.Notes() {
			n.log.Warn("log directory", "dir", path, "note", note)
		}
		n.dirs = append(n.dirs, &replica.Dir{Dir: d, ID: n.identity.dirs[path], Name: absolute(path)})
	}
	if n.static.IsBroker && len(n.brokerDirs()) == 0 {
		return errors.Join(noDirError(n.identity.lost), n.abandonDirs())
	}
	for _, d := range n.brokerDirs() {
		// What is no partition ends the start, so it is looked for before anything is written.
		if _, err := d.Partitions(); err != nil && n.static.IsBroker {
			return errors.Join(loadError(err), n.abandonDirs())
		}
	}
	for path, err := range n.identity.lost {
		n.log.Error("log directory can't be read and stays offline", "dir", path, "error", err)
	}
	return nil
}

// abandonDirs gives directories back as they are, without a mark of a clean shutdown.
func (n *Node) abandonDirs() error {
	var errs []error
	for _, d := range n.dirs {
		errs = append(errs, d.Abandon())
	}
	n.dirs = nil
	return errors.Join(errs...)
}

// closeDirs writes the marks of a clean shutdown, if the logs were opened at all, and gives the locks back.
func (n *Node) closeDirs(context.Context) error {
	if !n.started {
		return n.abandonDirs()
	}
	_, epoch := n.uplink.State()
	err := n.disks.Close(epoch)
	for _, d := range n.dirs {
		if !slices.Contains(n.brokerDirs(), d) { // the metadata log's own: raft has closed what is in it
			err = errors.Join(err, d.Abandon())
		}
	}
	n.dirs = nil
	return err
}
