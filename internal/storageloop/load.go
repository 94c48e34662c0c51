package storageloop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/storage"
)

// progressInterval is how often a start that takes long says how far it is.
const progressInterval = 10 * time.Second

// maxNotes is how many lines recovery may write about single partitions in one directory.
const maxNotes = 200

// cleanThreads is how many logs of a directory are opened at a time at least after a clean shutdown: then nothing is recovered, which
// num.recovery.threads.per.data.dir bounds, and each waits for a few small reads of a disk that does many at once. A guess.
const cleanThreads = 16

// Load opens the logs of all directories, several at a time, and recovers those that weren't closed cleanly. A partition whose
// files are corrupt where recovery can't help is left out and reported to PartitionFailed. An error of the disk takes its
// directory offline (DirFailed) and not the others. Load fails if a directory holds what is no partition, or ctx ends.
func (l *Loop) Load(ctx context.Context, config func(p kafka.TopicPartition) storage.Config) error {
	errs := make([]error, len(l.dirs))
	var wg sync.WaitGroup
	for i, d := range l.dirs {
		wg.Go(func() { errs[i] = d.load(ctx, config) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// opening is a partition to be opened.
type opening struct {
	storage.PartitionDir
	config storage.Config
	bytes  int64 // what recovery has to read of it at most
}

func (d *dirLoop) load(ctx context.Context, config func(p kafka.TopicPartition) storage.Config) error {
	began := time.Now()
	all, err := d.dir.Partitions()
	if err != nil {
		return err
	}
	work := d.openings(all, config)
	clean, _ := d.dir.Clean()
	if clean {
		d.o.Log.Info(fmt.Sprintf("Skipping recovery of %d logs from %s since clean shutdown file was found", len(work), d.dir.Path()))
	} else {
		d.o.Log.Info(fmt.Sprintf("Attempting recovery for all logs in %s since no clean shutdown file was found", d.dir.Path()))
	}
	if err := d.dir.Begin(); err != nil {
		return err
	}
	p := &progress{dir: d.dir, log: d.o.Log, began: began, logs: len(work)}
	if !clean {
		if err := d.survey(ctx, work); err != nil {
			return err
		}
		for i := range work {
			p.bytes += work[i].bytes
		}
		p.left.Store(p.bytes)
	}
	stop := p.start()
	defer stop()
	threads := int(d.threads.Load())
	if clean {
		threads = max(threads, cleanThreads)
	}
	err = d.each(ctx, threads, work, func(o *opening) {
		r, ok := d.open(o, p)
		p.done.Add(1)
		p.left.Add(-o.bytes)
		if ok {
			p.opened.Add(1)
		}
		p.segments.Add(int64(r.Recovered))
		*o = opening{} // what the survey found
	})
	if err != nil {
		return err
	}
	d.dir.Loaded()
	if left := p.notes.Load() - maxNotes; left > 0 {
		d.o.Log.Warn("log recovery said more about single partitions than is written here", "dir", d.dir.Path(), "left out", left)
	}
	d.reportFailure()
	took := time.Since(began)
	d.o.Log.Info(fmt.Sprintf("Loaded %d logs in %dms", p.opened.Load(), took.Milliseconds()), "dir", d.dir.Path(), "clean", clean,
		"recoveredSegments", p.segments.Load(), "recoveredMB", d.dir.RecoveredBytes()/1e6)
	return nil
}

// openings are the logs to open. Directories of a topic stand together, so its configuration is looked up once.
func (d *dirLoop) openings(all []storage.PartitionDir, config func(p kafka.TopicPartition) storage.Config) []opening {
	work := make([]opening, 0, len(all))
	for _, p := range all {
		if p.Kind == storage.Deleted {
			d.remove(p.Name, d.o.DeletedPartitionDelay)
		}
		if p.Kind != storage.Current && p.Kind != storage.Future {
			continue
		}
		o := opening{PartitionDir: p}
		if n := len(work); n > 0 && work[n-1].Partition.Topic == p.Partition.Topic {
			o.config = work[n-1].config
		} else {
			o.config = config(p.Partition)
		}
		work = append(work, o)
	}
	return work
}

// survey finds out how much there is to recover, and puts the largest first: so the threads end together.
func (d *dirLoop) survey(ctx context.Context, work []opening) error {
	err := d.each(ctx, int(d.threads.Load()), work, func(o *opening) { o.bytes = d.dir.Survey(&o.PartitionDir) })
	slices.SortStableFunc(work, func(a, b opening) int { return cmp.Compare(b.bytes, a.bytes) })
	return err
}

// each calls f for every partition, on so many goroutines, until ctx ends or the directory fails.
func (d *dirLoop) each(ctx context.Context, threads int, work []opening, f func(o *opening)) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range threads {
		wg.Go(func() {
			for ctx.Err() == nil && d.dir.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(work) {
					return
				}
				f(&work[i])
			}
		})
	}
	wg.Wait()
	return ctx.Err()
}

// open opens one partition's log. What recovery did is logged; what it couldn't do is reported.
func (d *dirLoop) open(o *opening, p *progress) (storage.Recovery, bool) {
	_, r, err := d.dir.Open(o.PartitionDir, o.config, time.Now())
	for _, n := range r.Notes {
		if p.notes.Add(1) <= maxNotes {
			d.o.Log.Warn("log recovery", "partition", o.Partition, "note", n)
		}
	}
	if err == nil {
		return r, true
	}
	d.o.Log.Error("log could not be opened and is offline", "partition", o.Partition, "dir", d.dir.Path(), "name", o.Name, "error", err)
	if o.Kind == storage.Future {
		// The replica that it is a copy of may be whole.
		if d.dir.Err() == nil {
			if err := d.dir.SetAside(o.PartitionDir); err != nil {
				d.o.Log.Error("future replica could not be set aside", "partition", o.Partition, "error", err)
			}
		}
		return r, false
	}
	d.o.PartitionFailed(d.dir, o.Partition, err)
	return r, false
}

// progress tells how far a directory is. A start after a crash may take minutes, and whoever waits for it wants to know how many.
type progress struct {
	dir   *storage.Dir
	log   *slog.Logger
	began time.Time
	logs  int
	bytes int64 // to be read at most, by the survey

	done, opened, segments, notes atomic.Int64
	left                          atomic.Int64 // of bytes: those of logs that aren't done
}

// start starts the goroutine that speaks; the function it returns ends it.
func (p *progress) start() (stop func()) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(progressInterval)
		defer t.Stop()
		for {
			select {
			case <-end:
				return
			case now := <-t.C:
				p.tell(now)
			}
		}
	})
	return func() {
		close(end)
		wg.Wait()
	}
}

func (p *progress) tell(now time.Time) {
	done, read := int(p.done.Load()), p.dir.RecoveredBytes()
	took := now.Sub(p.began)
	p.log.Info("loading logs", "dir", p.dir.Path(), "done", done, "remaining", p.logs-done, "recoveredSegments", p.segments.Load(),
		"readMB", read/1e6, "remainingMB", max(p.bytes-read, 0)/1e6, "MBps", int64(float64(read)/1e6/took.Seconds()),
		"secondsLeft", forecast(took, done, p.logs, read, min(p.left.Load(), p.bytes-read)))
}

// forecast is how many seconds are left: by bytes, or by logs if that is longer, since small ones cost as much as their files do.
// -1 if there is nothing to go by yet.
func forecast(took time.Duration, done, logs int, read, left int64) int64 {
	if done == 0 && read == 0 {
		return -1
	}
	var byLogs, byBytes float64
	if done > 0 {
		byLogs = took.Seconds() / float64(done) * float64(logs-done)
	}
	if read > 0 && left > 0 {
		byBytes = took.Seconds() / float64(read) * float64(left)
		if done < logs/10 {
			byLogs = 0 // the largest come first, and say little of the small ones
		}
	}
	return int64(max(byLogs, byBytes) + 0.5)
}
