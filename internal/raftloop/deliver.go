package raftloop

import (
	"fmt"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raft"
	"github.com/highwater/highwater/internal/record"
)

// Behind tells that Deliver has something to do.
func (r *Replica) Behind() bool {
	if !r.registered {
		return false
	}
	return r.delivered < r.highWatermark || r.role != nil && r.mayTellRole()
}

// Deliver tells the callbacks the next piece of what is committed, and who leads.
func (r *Replica) Deliver(now time.Time) error {
	if !r.registered {
		return nil
	}
	if r.delivered < r.highWatermark {
		if err := r.deliver(); err != nil {
			return err
		}
	}
	if r.role != nil && r.mayTellRole() {
		change := LeaderChange{Leader: r.role.Leader, Epoch: r.role.Epoch, Local: r.role.Role == raft.Leader}
		r.role = nil
		if r.cb.Leader != nil {
			r.cb.Leader(change)
		}
	}
	return nil
}

// mayTellRole: a leader's controller claims its epoch only with all in hand that was committed before it began, its
// LeaderChange included; else it would decide on an old image.
func (r *Replica) mayTellRole() bool {
	return r.role.Role != raft.Leader || r.delivered > r.role.EpochStart
}

func (r *Replica) deliver() error {
	if id, ok := r.snapshotFor(); ok {
		return r.deliverSnapshot(id)
	}
	buf, err := r.log.Read(r.delivered, deliverBytes)
	if err != nil {
		return err
	}
	for r.delivered < r.highWatermark {
		b, rest, err := record.Next(buf)
		if err != nil {
			return fmt.Errorf("metadata log at %d: %w", r.delivered, err)
		}
		if b == nil {
			break
		}
		buf = rest
		if err := b.Check(); err != nil {
			return fmt.Errorf("metadata log at %d: %w", r.delivered, err)
		}
		if b.LastOffset() >= r.highWatermark {
			// The high watermark lies inside of a batch: it will move on.
			return nil
		}
		if b.BaseOffset() != r.delivered {
			return fmt.Errorf("metadata log: batch at %d where %d is next", b.BaseOffset(), r.delivered)
		}
		if err := r.deliverBatch(b); err != nil {
			return err
		}
	}
	return nil
}

func (r *Replica) deliverBatch(b record.Batch) error {
	p, err := payload(b)
	if err != nil {
		return err
	}
	if r.cb.Commit != nil {
		r.cb.Commit(p)
	}
	r.delivered = p.LastOffset + 1
	if p.Control {
		return nil
	}
	r.bytesSince += int64(p.Size)
	if r.firstSince.IsZero() {
		r.firstSince = p.Timestamp
	}
	if r.cb.SnapshotDue == nil {
		return nil
	}
	reason := ""
	switch every := r.opt.MetadataLogMaxSnapshotInterval; {
	case r.bytesSince >= r.opt.MetadataLogMaxRecordBytesBetweenSnapshots:
		reason = "max bytes were exceeded"
	case every > 0 && p.Timestamp.Sub(r.firstSince) >= every:
		reason = "max time was exceeded"
	}
	if reason != "" {
		r.bytesSince, r.firstSince = 0, time.Time{}
		r.cb.SnapshotDue(kafka.OffsetAndEpoch{Offset: r.delivered, Epoch: p.Epoch}, p.Timestamp, reason)
	}
	return nil
}

// snapshotFor tells whether a snapshot is to be loaded before the log goes on: at the start, the newest, and when the log
// begins above of what was delivered. The bootstrap checkpoint is no state: its records are the first controller's to write.
func (r *Replica) snapshotFor() (kafka.OffsetAndEpoch, bool) {
	id, ok := r.LatestSnapshot()
	if !ok || id == (kafka.OffsetAndEpoch{}) || id.Offset > r.highWatermark {
		return id, false
	}
	return id, r.delivered == 0 && id.Offset > 0 || r.delivered < r.log.StartOffset()
}

func (r *Replica) deliverSnapshot(id kafka.OffsetAndEpoch) (err error) {
	s, err := OpenSnapshot(r.opt.FS, r.dir, id)
	if err != nil {
		return err
	}
	if r.cb.Snapshot != nil {
		err = r.cb.Snapshot(s)
	}
	if cerr := s.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("load snapshot %v: %w", id, err)
	}
	r.delivered = id.Offset
	r.bytesSince, r.firstSince = 0, time.Time{}
	return nil
}
