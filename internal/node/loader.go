package node

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/highwater/highwater/internal/invariant"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/raftloop"
	"github.com/highwater/highwater/internal/schema"
)

// loader replays what the quorum committed, on the metadata log's goroutine, and gives images to the applier on another,
// which may take long (it makes directories). While the applier is busy changes add up in the Delta, and it gets them in one.
type loader struct {
	log   *slog.Logger
	apply func(old, image *metadata.Image, changes *metadata.Changes)
	// snapshots makes the writer of a snapshot.
	snapshots func(kafka.OffsetAndEpoch, time.Time) (*raftloop.SnapshotWriter, error)

	mu       sync.Mutex
	delta    *metadata.Delta
	image    *metadata.Image // the last one that was given out
	replaced bool            // changes since image are known only by comparing
	records  bool            // there was a record beside those of the first checkpoint

	wake    chan struct{} // capacity 1
	stop    chan struct{}
	done    chan struct{}
	writing sync.WaitGroup // snapshots
}

func newLoader(log *slog.Logger) *loader {
	return &loader{
		log: log, delta: metadata.NewDelta(metadata.Empty()), image: metadata.Empty(),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
}

func (l *loader) start() { go l.run() }

func (l *loader) close() {
	close(l.stop)
	<-l.done
	l.writing.Wait()
}

func (l *loader) run() {
	defer close(l.done)
	for {
		select {
		case <-l.stop:
			return
		case <-l.wake:
		}
		l.mu.Lock()
		old := l.image
		image, changes := l.delta.Apply()
		if l.replaced {
			changes, l.replaced = metadata.Diff(old, image), false
		}
		l.image = image
		l.mu.Unlock()
		if image != old {
			l.apply(old, image, changes)
		}
	}
}

func (l *loader) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// commit replays one committed batch. A record that this program cannot take in ends it: going on would be guessing.
func (l *loader) commit(b raftloop.Batch) {
	err := l.replay(b)
	invariant.Check(err == nil, "metadata: %v", err)
	l.signal()
}

func (l *loader) replay(b raftloop.Batch) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := metadata.Provenance{Offset: b.LastOffset, Epoch: b.Epoch, Timestamp: b.Timestamp.UnixMilli()}
	if b.Control {
		l.delta.Skip(at)
		return nil
	}
	l.records = true
	for i, value := range b.Records {
		at.Offset = b.BaseOffset + kafka.Offset(i)
		if err := l.delta.ReplayBytes(at, value); err != nil {
			return err
		}
	}
	return nil
}

// snapshot replaces everything by the content of a snapshot.
func (l *loader) snapshot(r *raftloop.SnapshotReader) error {
	d := metadata.NewDelta(metadata.Empty())
	at := metadata.Provenance{Offset: r.ID.Offset - 1, Epoch: r.ID.Epoch, Timestamp: r.LastTimestamp.UnixMilli()}
	for {
		b, ok, err := r.Next()
		if err != nil {
			return fmt.Errorf("read metadata snapshot %v: %w", r.ID, err)
		}
		if !ok {
			break
		}
		for _, value := range b.Records {
			if err := d.ReplayBytes(at, value); err != nil {
				return err
			}
		}
	}
	d.Skip(at)
	l.mu.Lock()
	l.delta, l.replaced = d, true
	l.records = l.records || r.ID.Offset > 0
	l.mu.Unlock()
	l.signal()
	return nil
}

// freezeLocked is all that is committed, as an image.
func (l *loader) freezeLocked() *metadata.Image {
	image, _ := l.delta.Apply()
	l.replaced = true
	return image
}

// committed is all that is committed, for a controller that begins. empty: nothing but the first checkpoint's records.
func (l *loader) committed() (image *metadata.Image, empty bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.freezeLocked(), !l.records
}

// snapshotDue writes a snapshot of what is committed, on a goroutine of its own.
func (l *loader) snapshotDue(id kafka.OffsetAndEpoch, last time.Time, reason string) {
	l.mu.Lock()
	if l.delta.InTransaction() {
		l.mu.Unlock()
		return // it will be due again
	}
	image := l.freezeLocked()
	l.mu.Unlock()
	l.writing.Add(1)
	go func() {
		defer l.writing.Done()
		begin := time.Now()
		err := l.writeSnapshot(id, last, image)
		switch {
		case errors.Is(err, raftloop.ErrSnapshotExists):
		case err != nil:
			l.log.Error("metadata snapshot could not be written", "id", id.String(), "error", err)
		default:
			l.log.Info("wrote metadata snapshot", "id", id.String(), "reason", reason, "took", time.Since(begin))
		}
	}()
}

func (l *loader) writeSnapshot(id kafka.OffsetAndEpoch, last time.Time, image *metadata.Image) error {
	w, err := l.snapshots(id, last)
	if err != nil {
		return err
	}
	var buf []byte
	err = image.Write(metadata.WriteOptions{}, func(r schema.Record, version int16) error {
		var err error
		if buf, err = schema.AppendFrame(buf[:0], r, version); err != nil {
			return err
		}
		return w.Append(buf)
	})
	if err != nil {
		return errors.Join(err, w.Abort())
	}
	return w.Freeze()
}
