package storageloop

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/storage"
)

// Options is what a Loop needs. Intervals that are 0 have Kafka's default.
type Options struct {
	Dirs []*storage.Dir
	Log  *slog.Logger

	RecoveryThreads int // num.recovery.threads.per.data.dir

	RetentionCheck          time.Duration // log.retention.check.interval.ms
	RecoveryPointCheckpoint time.Duration // log.flush.offset.checkpoint.interval.ms
	StartOffsetCheckpoint   time.Duration // log.flush.start.offset.checkpoint.interval.ms
	HighWatermarkCheckpoint time.Duration // replica.high.watermark.checkpoint.interval.ms
	ProducerExpirationCheck time.Duration // producer.id.expiration.check.interval.ms
	DeletedPartitionDelay   time.Duration // after which a …-delete directory from before the start goes; log.segment.delete.delay.ms
	Cleaner                 CleanerOptions
	DirFailed               func(d *storage.Dir, err error)
	PartitionFailed         func(d *storage.Dir, p kafka.TopicPartition, err error)
}

// tick is how often a directory is asked what is due. It bounds how late flush.ms and removals are.
const tick = time.Second

// Loop is the background work over all log directories.
type Loop struct {
	o    Options
	dirs []*dirLoop

	stop chan struct{}
	done sync.WaitGroup

	threads atomic.Int32 // RecoveryThreads as it is now
	clean   cleaners

	mu      sync.Mutex
	started bool
	stopped bool
}

// dirLoop is the work on one directory.
type dirLoop struct {
	*Loop
	dir  *storage.Dir
	wake chan struct{} // a segment has rolled

	mu       sync.Mutex
	removals []removal // deleted partitions
	failed   bool      // DirFailed was told
}

type removal struct {
	name string
	due  time.Time
}

// New makes a Loop; nothing happens before Load or Start.
func New(o Options) *Loop {
	byDefault := func(d *time.Duration, kafkas time.Duration) {
		if *d <= 0 {
			*d = kafkas
		}
	}
	byDefault(&o.RetentionCheck, 5*time.Minute)
	byDefault(&o.RecoveryPointCheckpoint, time.Minute)
	byDefault(&o.StartOffsetCheckpoint, time.Minute)
	byDefault(&o.HighWatermarkCheckpoint, 5*time.Second)
	byDefault(&o.ProducerExpirationCheck, 10*time.Minute)
	byDefault(&o.DeletedPartitionDelay, time.Minute)
	if o.RecoveryThreads <= 0 {
		o.RecoveryThreads = 2
	}
	if o.DirFailed == nil {
		o.DirFailed = func(*storage.Dir, error) {}
	}
	if o.PartitionFailed == nil {
		o.PartitionFailed = func(*storage.Dir, kafka.TopicPartition, error) {}
	}
	l := &Loop{o: o, stop: make(chan struct{})}
	l.SetRecoveryThreads(o.RecoveryThreads)
	o.Cleaner.setDefaults()
	l.clean = cleaners{
		options: o.Cleaner, busy: map[*storage.Log]bool{}, aside: map[*storage.Log]error{},
		resting: map[*storage.Log]time.Time{}, last: map[int]lastClean{},
	}
	for _, d := range o.Dirs {
		l.dirs = append(l.dirs, &dirLoop{Loop: l, dir: d, wake: make(chan struct{}, 1)})
	}
	return l
}

// SetRecoveryThreads changes how many logs of a directory are opened or closed at a time, from the next Load or Close on.
func (l *Loop) SetRecoveryThreads(n int) { l.threads.Store(int32(max(n, 1))) }

// Start starts the goroutines.
func (l *Loop) Start() {
	l.clean.changing.Lock()
	defer l.clean.changing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started || l.stopped {
		return
	}
	l.started = true
	for _, d := range l.dirs {
		l.done.Go(d.sync)
		l.done.Go(d.keep)
		l.done.Go(d.tellGaps)
		l.done.Go(d.checkpoint)
	}
	l.startCleaners()
}

// Stop ends the goroutines and waits for what they are doing. It may be called again.
func (l *Loop) Stop() {
	l.mu.Lock()
	if !l.stopped {
		l.stopped = true
		close(l.stop)
	}
	l.mu.Unlock()
	l.clean.changing.Lock()
	l.stopCleaners()
	l.clean.changing.Unlock()
	l.done.Wait()
}

// Close stops the background work, closes all logs, several at a time, writes the checkpoints and, in directories where nothing
// failed, the clean-shutdown mark with the broker's epoch, and gives the directories' locks back.
func (l *Loop) Close(epoch kafka.BrokerEpoch) error {
	l.Stop()
	errs := make([]error, len(l.dirs))
	var wg sync.WaitGroup
	for i, d := range l.dirs {
		wg.Go(func() { errs[i] = d.close(epoch) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (d *dirLoop) close(epoch kafka.BrokerEpoch) error {
	d.mu.Lock()
	offline := d.failed
	d.mu.Unlock()
	if offline {
		return d.dir.Abandon() // that was reported when it happened
	}
	all, failed := d.dir.CanSyncAll()
	if failed != nil {
		return errors.Join(failed, d.dir.Abandon())
	}
	closeLog := (*storage.Log).Close
	if all {
		closeLog = (*storage.Log).CloseUnsynced
	}
	work := make(chan *storage.Log)
	var wg sync.WaitGroup
	var mu sync.Mutex // guards failed
	for range d.threads.Load() {
		wg.Go(func() {
			for log := range work {
				if err := closeLog(log); err != nil {
					mu.Lock()
					failed = errors.Join(failed, fmt.Errorf("close log %v: %w", log.Partition(), err))
					mu.Unlock()
				}
			}
		})
	}
	for _, log := range d.dir.All() {
		work <- log
	}
	close(work)
	wg.Wait()
	if all {
		failed = errors.Join(failed, d.dir.SyncClosed())
	}
	if err := d.dir.Doubt(); err != nil && failed == nil {
		d.o.Log.Warn("no mark of a clean shutdown is written: the next start shall check what could be bad", "dir", d.dir.Path(), "because", err)
	}
	return d.dir.Finish(epoch, failed)
}

// Rolled asks for a sync of the segment that has just been completed (storage.Appended.Rolled). It doesn't wait.
func (l *Loop) Rolled(log *storage.Log) {
	for _, d := range l.dirs {
		if d.dir == log.Dir() {
			select {
			case d.wake <- struct{}{}:
			default: // it is awake already
			}
		}
	}
}

// RemovePartition removes a partition's directory, whose name ends in -delete, after delay.
func (l *Loop) RemovePartition(dir *storage.Dir, name string, delay time.Duration) {
	for _, d := range l.dirs {
		if d.dir == dir {
			d.remove(name, delay)
		}
	}
}

func (d *dirLoop) remove(name string, delay time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.removals = append(d.removals, removal{name, time.Now().Add(delay)})
}

// stopping tells whether Stop was called: a long round breaks off.
func (l *Loop) stopping() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// reportFailure tells DirFailed, once, that the directory went offline.
func (d *dirLoop) reportFailure() bool {
	err := d.dir.Err()
	if err == nil {
		return false
	}
	d.mu.Lock()
	told := d.failed
	d.failed = true
	d.mu.Unlock()
	if !told {
		d.o.Log.Error("log directory failed: its partitions are offline until the disk is seen to and the node started again",
			"dir", d.dir.Path(), "partitions", len(d.dir.Logs()), "error", err)
		d.o.DirFailed(d.dir, err)
	}
	return true
}

// sync is the goroutine that makes data durable: segments that have rolled, and logs whose flush.ms has passed.
func (d *dirLoop) sync() {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-d.stop:
			return
		case <-d.wake:
		case <-t.C:
		}
		if d.reportFailure() {
			return
		}
		now := time.Now()
		for _, log := range d.dir.FlushDue(now) {
			if d.stopping() {
				return
			}
			if err := log.FlushAt(now); err != nil && !errors.Is(err, storage.ErrClosed) {
				d.o.Log.Error("flush failed", "partition", log.Partition(), "error", err)
			}
		}
	}
}

// keep is the goroutine that deletes: by retention, what was deleted long enough ago, and the memory of old producers.
func (d *dirLoop) keep() {
	t := time.NewTicker(tick)
	defer t.Stop()
	began := time.Now()
	retention, producers := began.Add(d.firstRound()), began.Add(d.o.ProducerExpirationCheck)
	for {
		select {
		case <-d.stop:
			return
		case <-t.C:
		}
		if d.dir.Err() != nil {
			return
		}
		now := time.Now()
		if !now.Before(retention) {
			retention = now.Add(d.o.RetentionCheck)
			d.retain(now)
		}
		if !now.Before(producers) {
			producers = now.Add(d.o.ProducerExpirationCheck)
			for _, log := range d.dir.All() {
				log.ExpireProducers(now)
			}
		}
		d.removeDue(now)
	}
}

// retain applies retention to every log.
func (d *dirLoop) retain(now time.Time) {
	for _, log := range d.dir.All() {
		if d.stopping() || d.dir.Err() != nil {
			return
		}
		deleted, err := log.DeleteOldSegments(now)
		for _, s := range deleted {
			d.o.Log.Info("segment deleted", "partition", log.Partition(), "baseOffset", s.BaseOffset, "size", s.Size, "reason", s.Reason)
		}
		if err != nil && !errors.Is(err, storage.ErrClosed) && !errors.Is(err, storage.ErrFailed) {
			d.o.Log.Error("retention failed", "partition", log.Partition(), "error", err)
		}
	}
}

// firstRound is after how long what is done now and then is done for the first time: half a minute, as in Kafka
// (log.initial.task.delay.ms).
func (d *dirLoop) firstRound() time.Duration { return min(d.o.RetentionCheck, 30*time.Second) }

// tellGaps is the goroutine that looks once, after the start, for records that are missing in the middle of a log: it reads the end of
// every segment, which takes a slow disk with many of them a while.
func (d *dirLoop) tellGaps() {
	select {
	case <-d.stop:
		return
	case <-time.After(d.firstRound()):
	}
	for _, log := range d.dir.All() {
		if d.stopping() || d.dir.Err() != nil {
			return
		}
		gaps, err := log.Gaps()
		if err != nil && !errors.Is(err, storage.ErrClosed) {
			d.o.Log.Error("log could not be searched for gaps", "partition", log.Partition(), "error", err)
		}
		for _, g := range gaps[:min(len(gaps), maxGaps)] {
			d.o.Log.Warn("offsets are missing in the middle of a log, as if a file had been deleted: consumers and followers go on behind them. "+
				"If the file can be had from a backup, put it back while the node is stopped", "partition", log.Partition(), "firstMissing", g.First, "lastMissing", g.Last, "after", g.Before, "before", g.After, "gaps", len(gaps))
		}
	}
}

// maxGaps bounds the lines about one log.
const maxGaps = 10

// removeDue removes deleted segments and partitions whose delay has passed.
func (d *dirLoop) removeDue(now time.Time) {
	for _, log := range d.dir.RemovalDue(now) {
		if _, err := log.RemoveDeleted(now); err != nil && !errors.Is(err, storage.ErrClosed) {
			d.o.Log.Error("deleted segment could not be removed", "partition", log.Partition(), "error", err)
		}
	}
	d.mu.Lock()
	var due []string
	kept := d.removals[:0]
	for _, r := range d.removals {
		if r.due.After(now) {
			kept = append(kept, r)
		} else {
			due = append(due, r.name)
		}
	}
	d.removals = kept
	d.mu.Unlock()
	for _, name := range due {
		if d.stopping() {
			return // the next start finds what is left
		}
		if err := d.dir.RemovePartition(name); err != nil {
			d.o.Log.Error("deleted partition could not be removed", "name", name, "error", err)
			continue
		}
		d.o.Log.Info("deleted partition removed", "dir", d.dir.Path(), "name", name)
	}
}

// checkpoint is the goroutine that writes the checkpoint files.
func (d *dirLoop) checkpoint() {
	hw := time.NewTicker(d.o.HighWatermarkCheckpoint)
	defer hw.Stop()
	recovery := time.NewTicker(d.o.RecoveryPointCheckpoint)
	defer recovery.Stop()
	start := time.NewTicker(d.o.StartOffsetCheckpoint)
	defer start.Stop()
	for {
		var err error
		select {
		case <-d.stop:
			return
		case <-hw.C:
			err = d.dir.CheckpointHighWatermarks()
		case <-recovery.C:
			err = d.dir.CheckpointRecoveryPoints()
		case <-start.C:
			err = d.dir.CheckpointStartOffsets()
		}
		if err != nil {
			return // the directory is offline; sync reports it
		}
	}
}
