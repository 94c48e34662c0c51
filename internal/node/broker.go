package node

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"strconv"
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
		ID: n.id, Dirs: n.brokerDirs(), Lost: n.lostDirs(), LagMax: c.Millis("replica.lag.time.max.ms"),
		Config: func(image *metadata.Image, topic string) replica.TopicConfig {
			return topicConfig(n.Config(), image, topic)
		},
		Alter:    n.alters.add,
		Failed:   n.replicaFailed,
		Assigned: n.uplink.Assign,
		Moving:   func(r *replica.Replica) { n.mover.Add(r) },
		Cordoned: n.isCordoned,
		Rolled:   func(l *storage.Log) { n.disks.Rolled(l) },
		Removed:  func(d *storage.Dir, name string, delay time.Duration) { n.disks.RemovePartition(d, name, delay) },
		Note: func(msg string, tp kafka.TopicPartition, err error) {
			if err == nil {
				n.log.Info(msg, "partition", tp.String())
				return
			}
			n.log.Warn(msg, "partition", tp.String(), "error", err)
		},
		Unique: randomBytes,
	})
	n.mover = n.newMover()
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
			n.replicas.Broken(p, err) // it was told by who tried to open it
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
	n.mover.Start()
	n.ticks.start(n.Config().Millis("replica.lag.time.max.ms")/2, func(now time.Time) {
		for _, r := range n.replicas.All() {
			r.Tick(now)
		}
	})
	return nil
}

func (n *Node) stopLogs(context.Context) error {
	n.ticks.stop()
	n.mover.Stop()
	n.alters.close()
	n.disks.Stop()
	return nil
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
	if n.static.Bool("controlled.shutdown.enable") && n.life.Err() == nil {
		// A node that loses its disks or its controller has nobody to ask any more.
		ask, cancel := context.WithCancel(ctx)
		forget := context.AfterFunc(n.life, cancel)
		if err = n.uplink.Stop(ask); ask.Err() != nil {
			err = nil
		}
		forget()
		cancel()
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
	level := slog.LevelError
	if r.Log().Dir().Err() != nil {
		level = slog.LevelDebug // thousands may lie in a directory, which tells of its failure itself
	}
	n.log.Log(context.Background(), level, "replica is offline", "partition", r.Partition().String(), "error", err)
	n.disks.Rolled(r.Log()) // wakes what looks whether the directory is to blame
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
