package storageloop

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
)

// CleanerOptions is what compaction needs. Threads of them choose, each for itself, the filthiest log of all directories, compact it,
// and begin again; when there is nothing to do they rest.
type CleanerOptions struct {
	Disabled          bool          // log.cleaner.enable is false
	Threads           int           // log.cleaner.threads
	DedupeBytes       int64         // log.cleaner.dedupe.buffer.size, of all threads together; taken only while a log is compacted
	LoadFactor        float64       // log.cleaner.io.buffer.load.factor
	Backoff           time.Duration // log.cleaner.backoff.ms
	MaxBytesPerSecond float64       // log.cleaner.io.max.bytes.per.second, read and written, of all threads together
}

func (o *CleanerOptions) setDefaults() {
	if o.Threads <= 0 {
		o.Threads = 1
	}
	if o.DedupeBytes <= 0 {
		o.DedupeBytes = 128 << 20
	}
	if o.LoadFactor <= 0 {
		o.LoadFactor = 0.9
	}
	if o.Backoff <= 0 {
		o.Backoff = 15 * time.Second
	}
}

// Uncleanable is a log that compaction has set aside, since it failed on its content. It is tried again after the next start, or when
// SetCleaner changes something.
type Uncleanable struct {
	Partition kafka.TopicPartition
	Dir       *storage.Dir
	Reason    error
	Bytes     int64 // that would be compacted
}

// CleanerState is what compaction tells of itself: Kafka's metrics of LogCleaner and LogCleanerManager.
type CleanerState struct {
	MaxDirtyRatio      float64       // of the filthiest log in the last round
	LastRun            time.Time     // of the last round
	MaxCompactionDelay time.Duration // by which max.compaction.lag.ms was exceeded in the last round
	// Of the last clean of each thread: the largest, and for Recopied the sum of bytes written by that of bytes read.
	MaxBufferUtilization float64
	MaxCleanTime         time.Duration
	Recopied             float64
	Cleans               int64 // since the start
	DeadThreads          int
	Uncleanable          []Uncleanable
}

// cleaners are the threads of one setting, and what they share.
type cleaners struct {
	changing sync.Mutex // one SetCleaner, start or stop at a time

	picking sync.Mutex // one thread chooses a log at a time; taken before mu
	key     [2]uint64  // of the hashes, drawn once: who could foretell them could make a record vanish

	mu      sync.Mutex // guards what follows
	options CleanerOptions
	stop    chan struct{} // nil while no threads run
	threads sync.WaitGroup
	busy    map[*storage.Log]bool
	aside   map[*storage.Log]error
	resting map[*storage.Log]time.Time // logs for which there was no room on the disk, until when
	last    map[int]lastClean          // by thread
	state   CleanerState
}

type lastClean struct {
	stats storage.CleanStats
	took  time.Duration
}

// noRoomRest is how long a log is left alone after its disk had no room for a clean. Guess.
const noRoomRest = time.Minute

// SetCleaner changes how compaction runs. Cleans under way are broken off, as in Kafka; a log that was set aside gets another try.
// It waits for the threads.
func (l *Loop) SetCleaner(o CleanerOptions) {
	o.setDefaults()
	c := &l.clean
	c.changing.Lock()
	defer c.changing.Unlock()
	c.mu.Lock()
	same := c.options == o
	c.mu.Unlock()
	if same {
		return
	}
	l.stopCleaners()
	c.mu.Lock()
	c.options = o
	clear(c.aside)
	clear(c.resting)
	c.mu.Unlock()
	l.mu.Lock()
	run := l.started && !l.stopped
	l.mu.Unlock()
	if run {
		l.startCleaners()
	}
}

// startCleaners is called with changing held.
func (l *Loop) startCleaners() {
	c := &l.clean
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.options
	if o.Disabled || c.stop != nil {
		return
	}
	if c.key == [2]uint64{} {
		var b [16]byte
		_, _ = rand.Read(b[:]) // never fails
		c.key = [2]uint64{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])}
	}
	stop := make(chan struct{})
	c.stop, c.state.DeadThreads = stop, 0
	pace := &pace{rate: o.MaxBytesPerSecond}
	clear(c.last)
	for id := range o.Threads {
		c.threads.Go(func() { l.cleanerThread(id, o, pace, stop) })
	}
}

// stopCleaners waits until all threads have ended. It is called with changing held.
func (l *Loop) stopCleaners() {
	c := &l.clean
	c.mu.Lock()
	if c.stop != nil {
		close(c.stop)
		c.stop = nil
	}
	c.mu.Unlock()
	c.threads.Wait()
}

var errStopping = errors.New("the cleaner is stopping")

// cleanerThread is one of the goroutines that compact.
func (l *Loop) cleanerThread(id int, o CleanerOptions, p *pace, stop <-chan struct{}) {
	cleaner, err := storage.NewCleaner(storage.CleanerOptions{
		DedupeBytes: o.DedupeBytes / int64(o.Threads), LoadFactor: o.LoadFactor, HashKey: l.clean.key,
		Pace: func(bytes int) error {
			select {
			case <-stop:
				return errStopping
			default:
			}
			if d := p.took(float64(bytes), time.Now()); d > 0 {
				t := time.NewTimer(d)
				defer t.Stop()
				select {
				case <-stop:
					return errStopping
				case <-t.C:
				}
			}
			runtime.Gosched() // who serves clients goes first
			return nil
		},
	})
	if err != nil {
		l.o.Log.Error("log cleaner thread ended", "thread", id, "error", err)
		l.clean.mu.Lock()
		l.clean.state.DeadThreads++
		l.clean.mu.Unlock()
		return
	}
	for {
		if !l.cleanFilthiest(id, cleaner, o.Backoff) {
			cleaner.Release()
			t := time.NewTimer(o.Backoff)
			select {
			case <-stop:
				t.Stop()
				return
			case <-t.C:
			}
		}
		select {
		case <-stop:
			return
		default:
		}
	}
}

// cleanFilthiest compacts the log that needs it most. It tells whether one was compacted.
func (l *Loop) cleanFilthiest(id int, cleaner *storage.Cleaner, backoff time.Duration) bool {
	log, r := l.pickFilthiest(time.Now())
	if log == nil {
		return false
	}
	began := time.Now()
	stats, err := cleaner.Clean(log, r, began)
	if err == nil {
		err = log.Dir().CheckpointCleanedOffsets()
	}
	took := time.Since(began)
	c := &l.clean
	c.mu.Lock()
	delete(c.busy, log)
	if err == nil {
		c.last[id] = lastClean{stats, took}
		c.state.Cleans++
	}
	c.mu.Unlock()
	switch {
	case err == nil:
		l.o.Log.Info("log cleaned", "partition", log.Partition(), "thread", id, "from", r.FirstDirty, "to", stats.EndOffset, "took", took,
			"bytesRead", stats.Read, "bytesMapped", stats.MapRead, "bytesWritten", stats.Written, "recordsRead", stats.RecordsRead, "recordsKept", stats.RecordsKept,
			"segments", stats.SegmentsRead, "segmentsLeft", stats.Segments, "bufferUtilization", stats.Utilization)
		if stats.Invalid > 0 {
			l.o.Log.Warn("compaction dropped records without a key", "partition", log.Partition(), "records", stats.Invalid)
		}
		return true
	case errors.Is(err, storage.ErrCleaningAborted), errors.Is(err, storage.ErrFailed), errors.Is(err, storage.ErrClosed):
		l.o.Log.Debug("cleaning was aborted", "partition", log.Partition(), "error", err)
	case errors.Is(err, vfs.ErrNoSpace):
		l.o.Log.Warn("there is no room to compact a log", "partition", log.Partition(), "dir", log.Dir().Path(), "error", err)
		c.mu.Lock()
		c.resting[log] = time.Now().Add(max(backoff, noRoomRest))
		c.mu.Unlock()
	default:
		l.setAside(log, err)
	}
	return false
}

// setAside keeps a log from being tried again and again.
func (l *Loop) setAside(log *storage.Log, reason error) {
	l.o.Log.Warn("log can't be cleaned and is left as it is", "partition", log.Partition(), "dir", log.Dir().Path(), "error", reason)
	l.clean.mu.Lock()
	defer l.clean.mu.Unlock()
	l.clean.aside[log] = reason
}

// pickFilthiest chooses the log with the largest dirty part of those that are dirty or overdue enough, and marks it as busy.
func (l *Loop) pickFilthiest(now time.Time) (*storage.Log, storage.CleanRange) {
	c := &l.clean
	c.picking.Lock()
	defer c.picking.Unlock()
	var (
		best    *storage.Log
		found   storage.CleanRange
		maxDirt float64
		late    time.Duration
	)
	open := make(map[*storage.Log]bool)
	for _, d := range l.dirs {
		if d.dir.Err() != nil {
			continue
		}
		for _, log := range d.dir.CompactedLogs() {
			open[log] = true
			if c.leave(log, now) {
				continue
			}
			r, err := log.CleanRange(now)
			if err != nil {
				if !errors.Is(err, storage.ErrClosed) && !errors.Is(err, storage.ErrFailed) && !errors.Is(err, vfs.ErrNoDescriptors) && d.dir.Log(log.Partition()) == log {
					l.setAside(log, fmt.Errorf("find what to clean: %w", err))
				}
				continue
			}
			if r.Note != "" {
				l.o.Log.Warn("cleaner checkpoint", "partition", log.Partition(), "note", r.Note)
			}
			late = max(late, r.Overdue)
			ratio := r.Ratio()
			maxDirt = max(maxDirt, ratio)
			due := r.Overdue > 0 && r.CleanableBytes > 0 || ratio > log.Config().MinCleanableDirtyRatio
			if due && (best == nil || ratio > found.Ratio()) {
				best, found = log, r
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for log := range c.aside {
		if !open[log] {
			delete(c.aside, log)
		}
	}
	for log, until := range c.resting {
		if !open[log] || !now.Before(until) {
			delete(c.resting, log)
		}
	}
	c.state.LastRun, c.state.MaxDirtyRatio, c.state.MaxCompactionDelay = now, maxDirt, late
	if best != nil {
		c.busy[best] = true
	}
	return best, found
}

// leave tells whether a log is not to be cleaned now.
func (c *cleaners) leave(log *storage.Log, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.busy[log] || c.aside[log] != nil || now.Before(c.resting[log])
}

// CleanerState tells how compaction is doing.
func (l *Loop) CleanerState(now time.Time) CleanerState {
	c := &l.clean
	c.mu.Lock()
	s := c.state
	var read, written int64
	for _, last := range c.last {
		s.MaxBufferUtilization = max(s.MaxBufferUtilization, last.stats.Utilization)
		s.MaxCleanTime = max(s.MaxCleanTime, last.took)
		read, written = read+last.stats.Read, written+last.stats.Written
	}
	s.Recopied = float64(written) / float64(max(read, 1))
	for log, reason := range c.aside {
		s.Uncleanable = append(s.Uncleanable, Uncleanable{Partition: log.Partition(), Dir: log.Dir(), Reason: reason})
	}
	c.mu.Unlock()
	for i := range s.Uncleanable {
		u := &s.Uncleanable[i]
		if log := u.Dir.Log(u.Partition); log != nil {
			if r, err := log.CleanRange(now); err == nil {
				u.Bytes = r.CleanableBytes
			}
		}
	}
	return s
}

// pace keeps the bytes of all cleaners below a rate.
type pace struct {
	rate float64 // bytes a second; 0 or +Inf for no bound

	mu    sync.Mutex
	since time.Time // guarded by mu, as bytes
	bytes float64
}

// paceInterval is over what time the rate is measured, as in Kafka's throttler.
const paceInterval = 300 * time.Millisecond

// took notes that so many bytes were read or written, and says how long to wait before more.
func (p *pace) took(bytes float64, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rate <= 0 {
		return 0
	}
	if p.since.IsZero() {
		p.since = now
	}
	p.bytes += bytes
	elapsed := now.Sub(p.since)
	needed := p.bytes / p.rate // seconds
	if needed-elapsed.Seconds() < paceInterval.Seconds() {
		if elapsed >= paceInterval && needed <= elapsed.Seconds() {
			p.since, p.bytes = now, 0 // unused room isn't saved up
		}
		return 0
	}
	wait := time.Duration(min(needed-elapsed.Seconds(), 3600) * float64(time.Second))
	p.since, p.bytes = now.Add(wait), 0
	return wait
}
