package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/api"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/lifecycle"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/replica"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/storageloop"
)

func (n *Node) idText() string { return strconv.Itoa(int(n.id)) }

func randomBytes() (b [16]byte) {
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return b
}

// recoverLogs opens every log, takes in the image as it is now, and begins the background work.
func (n *Node) recoverLogs(ctx context.Context) error {
	c := n.Config()
	n.alters = newAlters(n)
	n.replicas = replica.NewSet(replica.Options{
		ID: n.id, Dirs: n.brokerDirs(), LagMax: c.Millis("replica.lag.time.max.ms"),
		Config: func(image *metadata.Image, topic string) replica.TopicConfig {
			return topicConfig(n.Config(), image, topic)
		},
		Alter:    n.alters.add,
		Failed:   n.replicaFailed,
		Assigned: n.alters.assigned,
		Rolled:   func(l *storage.Log) { n.disks.Rolled(l) },
		Removed:  func(d *storage.Dir, name string, delay time.Duration) { n.disks.RemovePartition(d, name, delay) },
		Note: func(msg string, tp kafka.TopicPartition, err error) {
			n.log.Warn(msg, "partition", tp.String(), "error", err)
		},
		Unique: randomBytes,
	})
	var dirs []*storage.Dir
	for _, d := range n.brokerDirs() {
		dirs = append(dirs, d.Dir)
	}
	n.disks = storageloop.New(storageloop.Options{
		Dirs: dirs, Log: n.log,
		RecoveryThreads:         int(c.Int("num.recovery.threads.per.data.dir")),
		RetentionCheck:          c.Millis("log.retention.check.interval.ms"),
		RecoveryPointCheckpoint: c.Millis("log.flush.offset.checkpoint.interval.ms"),
		StartOffsetCheckpoint:   c.Millis("log.flush.start.offset.checkpoint.interval.ms"),
		HighWatermarkCheckpoint: c.Millis("replica.high.watermark.checkpoint.interval.ms"),
		ProducerExpirationCheck: c.Millis("producer.id.expiration.check.interval.ms"),
		DeletedPartitionDelay:   c.Millis("log.segment.delete.delay.ms"),
		Cleaner:                 cleanerOptions(c),
		DirFailed:               n.dirFailed,
		PartitionFailed: func(_ *storage.Dir, p kafka.TopicPartition, err error) {
			n.log.Error("partition is offline: its files failed their check", "partition", p.String(), "error", err)
			n.replicas.Broken(p, err)
		},
	})
	image := n.Image()
	if err := n.disks.Load(ctx, func(tp kafka.TopicPartition) storage.Config {
		return topicConfig(n.Config(), image, tp.Topic).Log
	}); err != nil {
		return loadError(err)
	}
	n.applyMu.Lock()
	n.replicas.Start(time.Now(), n.Image())
	n.started = true
	n.applyMu.Unlock()
	n.disks.Start()
	n.ticks.start(n.Config().Millis("replica.lag.time.max.ms")/2, func(now time.Time) {
		for _, r := range n.replicas.All() {
			r.Tick(now)
		}
	})
	return nil
}

// brokerDirs are the directories for partitions: all but a metadata directory that stands alone.
func (n *Node) brokerDirs() []*replica.Dir {
	var out []*replica.Dir
	for _, d := range n.dirs {
		for _, path := range n.static.LogDirs {
			if d.Path() == path {
				out = append(out, d)
			}
		}
	}
	return out
}

func (n *Node) stopLogs(context.Context) error {
	n.ticks.stop()
	n.alters.close()
	n.disks.Stop()
	return nil
}

// dirFailed takes a log directory's replicas offline and tells the controller. Without the metadata log, or without any
// directory, the node cannot go on.
func (n *Node) dirFailed(failed *storage.Dir, err error) {
	n.log.Error("log directory is offline", "dir", failed.Path(), "error", err)
	online := 0
	for _, d := range n.brokerDirs() {
		if d.Dir.Err() == nil {
			online++
		}
		if d.Dir == failed && !d.ID.IsZero() {
			n.uplink.DirsFailed(d.ID)
		}
	}
	if failed.Path() == n.static.MetadataLogDir || online == 0 {
		n.fail(fmt.Errorf("log directory %s failed: %w", failed.Path(), err))
		return
	}
	for _, r := range n.replicas.All() {
		if r.Log().Dir() == failed {
			r.Fail(err)
		}
	}
}

// serve asks to be unfenced and, when that is done, lets clients in.
func (n *Node) serve(ctx context.Context) error {
	n.uplink.Ready()
	if err := n.uplink.Await(ctx, lifecycle.Running); err != nil {
		return err
	}
	return n.serveListeners(ctx)
}

// drainTime is how long connections may take to finish what they asked before the listeners closed: long polls mostly.
const drainTime = 2 * time.Second

// shutDown lets the controller move leaders away while this broker still serves, and then closes the listeners: nothing is
// appended any more when the background work stops and the logs close.
func (n *Node) shutDown(ctx context.Context) error {
	n.applyMu.Lock()
	n.serving = false
	n.applyMu.Unlock()
	var err error
	if n.static.Bool("controlled.shutdown.enable") {
		if err = n.uplink.Stop(ctx); errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
	}
	drain, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	return errors.Join(err, n.server.Stop(drain))
}

func (n *Node) isControllerListener(name string) bool {
	for _, c := range n.static.ControllerListenerNames {
		if c == name {
			return true
		}
	}
	return false
}

// replicaFailed is called with a replica's lock held.
func (n *Node) replicaFailed(r *replica.Replica, err error) {
	n.log.Error("replica is offline", "partition", r.Partition().String(), "error", err)
}

// brokerAPI is what the handlers of a broker's listeners work with.
func (n *Node) brokerAPI() *api.Broker {
	c := n.static
	return &api.Broker{
		ID: n.id, ClusterID: n.identity.clusterID, Replicas: func() *replica.Set { return n.replicas },
		Image: n.Image, Config: n.Config,
		Ask:        n.ask,
		AutoCreate: n.autoCreate,
		ProducerID: func(done func(kafka.ProducerID, error)) { n.uplink.ProducerID(done) },
		Loggers:    n.opts.Loggers,
		Random:     mathrand.IntN,
		Sessions:   api.NewSessions(int(c.Int("max.incremental.fetch.session.cache.slots")), newRand()),
		Limits: api.Limits{
			FetchMaxBytes:           int(c.Int("fetch.max.bytes")),
			MaxRequestPartitionSize: int(c.Int("max.request.partition.size.limit")),
			AutoCreateTopicsEnable:  c.Bool("auto.create.topics.enable"),
			RequestTimeout:          c.Millis("request.timeout.ms"),
		},
	}
}

func (n *Node) ask(req kmsg.Request, deadline time.Time, done func(kmsg.Response, error)) {
	n.uplink.Ask(req, deadline, done)
}

// alters sends changes of ISRs, and of the directories of replicas, to the controller: one request at a time, with
// everything that has come meanwhile.
type alters struct {
	n    *Node
	mu   sync.Mutex
	isrs map[*replica.Replica]kmsg.AlterPartitionRequestTopicPartition
	dirs map[kafka.DirectoryID]map[kafka.TopicID][]int32
	busy [2]bool // a request of ISRs, of directories, is out
	over bool
}

const alterTimeout = 30 * time.Second

func newAlters(n *Node) *alters {
	return &alters{n: n, isrs: make(map[*replica.Replica]kmsg.AlterPartitionRequestTopicPartition), dirs: make(map[kafka.DirectoryID]map[kafka.TopicID][]int32)}
}

func (a *alters) close() {
	a.mu.Lock()
	a.over = true
	a.mu.Unlock()
}

func (a *alters) assigned(p kafka.TopicIDPartition, dir kafka.DirectoryID) {
	a.mu.Lock()
	if a.dirs[dir] == nil {
		a.dirs[dir] = make(map[kafka.TopicID][]int32)
	}
	a.dirs[dir][p.TopicID] = append(a.dirs[dir][p.TopicID], p.Partition)
	a.mu.Unlock()
	a.sendDirs()
}

func (a *alters) sendDirs() {
	a.mu.Lock()
	if a.busy[1] || a.over || len(a.dirs) == 0 {
		a.mu.Unlock()
		return
	}
	send := a.dirs
	a.dirs, a.busy[1] = make(map[kafka.DirectoryID]map[kafka.TopicID][]int32), true
	a.mu.Unlock()
	a.n.uplink.AssignDirectories(send, time.Now().Add(alterTimeout), func(err error) {
		a.mu.Lock()
		a.busy[1] = false
		if err != nil && !a.over {
			a.n.log.Warn("controller didn't take the directories of replicas", "error", err)
		}
		a.mu.Unlock()
		a.sendDirs()
	})
}
