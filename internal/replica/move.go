package replica

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/storage"
)

// A replica's move into another log directory, under Replica.mu. The steps are those of Kafka (KIP-113, KIP-858): copy until the
// future log has everything; tell the controller where the replica will lie and wait until that is committed; copy what came
// meanwhile; let the future log take the current one's place. If this broker dies in between, the next start finds the
// future log and goes on.
type move struct {
	log *storage.Log
	dir *Dir
	// asked means that the controller was told of the new directory, accepted that it knows. If the move ends without the
	// replica there it must be told again.
	asked, accepted bool
	failed          bool // the current log can't be read: nothing more is tried before the next start
}

// MoveState is what is to be done next for a replica's move.
type MoveState int8

// The states.
const (
	MoveDone  MoveState = iota // there is nothing to do: moved, ended or failed
	MoveMore                   // there is more to copy: call Move again
	MoveAsked                  // the controller was asked: Options.Moving tells when to call Move again
)

// finishBytes is how much may be copied while appends wait for the logs to be exchanged. A guess: some milliseconds.
const finishBytes = 1 << 20

// movesTo is the directory that the replica is on its way into, or nil.
func (r *Replica) movesTo() *Dir {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.move == nil {
		return nil
	}
	return r.move.dir
}

// beginMove notes that a future log exists. The caller holds Set.changing.
func (r *Replica) beginMove(future *storage.Log, to *Dir) {
	r.mu.Lock()
	r.move = &move{log: future, dir: to}
	r.Log().SetMoving(true)
	r.mu.Unlock()
	r.set.opts.Moving(r)
}

// forgetMove takes the move from the replica, and tells the controller, if it thinks that the replica lies in the new directory,
// that it doesn't.
func (s *Set) forgetMove(r *Replica) *move {
	r.mu.Lock()
	m := r.move
	r.move = nil
	r.Log().SetMoving(false)
	r.settleDeletionsLocked()
	r.mu.Unlock()
	if m == nil {
		return nil
	}
	if d := s.dirOf(r.Log()); m.asked && !d.ID.IsZero() && d.online() {
		s.opts.Assigned(kafka.TopicIDPartition{TopicID: r.topicID, Partition: r.partition.Partition}, d.ID, nil)
	}
	return m
}

// endMove ends a move and deletes what was copied or, if its directory failed, only forgets it.
func (s *Set) endMove(r *Replica, failed bool) {
	m := s.forgetMove(r)
	switch {
	case m == nil:
	case failed:
		m.dir.Drop(m.log)
	default:
		s.deleteDir(m.dir, m.log)
	}
}

// abandonMove ends a move because the log that it copied is lost. What was copied stays where it is, for the next start.
func (s *Set) abandonMove(r *Replica) { s.forgetMove(r) }

// deleteDir renames a log's directory for deletion. The caller holds changing.
func (s *Set) deleteDir(d *Dir, l *storage.Log) {
	if !d.online() {
		d.Drop(l) // it can't be renamed; the next start, which knows the partition no more, sets it aside
		return
	}
	delay := l.Config().FileDeleteDelay
	name, err := d.Delete(l, s.opts.Unique())
	if err != nil {
		s.opts.Note("directory could not be renamed for deletion", l.Partition(), err)
		return
	}
	s.opts.Removed(d.Dir, name, delay)
}

// Move takes the next step of the replica's move: it copies at most limit bytes, or a batch, or exchanges the logs when everything
// is copied. buf is used for copying, and returned. n is how many bytes were copied. It is called by one goroutine at a time
// for a replica, without a lock.
func (r *Replica) Move(now time.Time, limit int, buf []byte) (state MoveState, n int, _ []byte) {
	r.mu.Lock()
	m, log := r.move, r.Log()
	if m == nil || m.failed || r.role.Load().offline != nil {
		r.mu.Unlock()
		return MoveDone, 0, buf
	}
	asked, accepted := m.asked, m.accepted
	r.mu.Unlock()
	n, caughtUp, buf, err := m.log.CopyFrom(log, limit, buf, now)
	if err == nil && caughtUp && !asked {
		err = m.log.PrepareTakeOver()
	}
	if err != nil {
		return r.moveFailed(m, log, err), n, buf
	}
	r.mu.Lock()
	r.settleDeletionsLocked() // the copy's log start counts
	r.mu.Unlock()
	switch {
	case !caughtUp:
		return MoveMore, n, buf
	case accepted || m.dir.ID.IsZero() || !r.set.Image().MetadataVersion().Facts().DirectoryAssignmentSupported:
		return r.finishMove(now, m, buf), n, buf
	case !asked:
		r.askMove(m)
	}
	return MoveAsked, n, buf
}

// askMove tells the controller where the replica will lie.
func (r *Replica) askMove(m *move) {
	r.mu.Lock()
	if r.move != m {
		r.mu.Unlock()
		return
	}
	m.asked = true
	r.mu.Unlock()
	r.set.opts.Assigned(kafka.TopicIDPartition{TopicID: r.topicID, Partition: r.partition.Partition}, m.dir.ID, func() {
		r.mu.Lock()
		m.accepted = true
		r.mu.Unlock()
		r.set.opts.Moving(r)
	})
}

// finishMove exchanges the logs. Appends wait meanwhile, and nothing else changes the partition.
func (r *Replica) finishMove(now time.Time, m *move, buf []byte) MoveState {
	s := r.set
	s.changing.Lock()
	defer s.changing.Unlock()
	r.mu.Lock()
	old := r.Log()
	if r.move != m || r.role.Load().offline != nil {
		r.mu.Unlock()
		return MoveDone
	}
	_, caughtUp, _, err := m.log.CopyFrom(old, finishBytes, buf, now)
	if err == nil && !caughtUp {
		r.mu.Unlock()
		return MoveMore
	}
	if err == nil {
		err = m.log.TakeOver(old)
	}
	if err != nil {
		r.mu.Unlock()
		return r.moveFailedChanging(m, old, err)
	}
	r.log.Store(m.log)
	r.move = nil
	old.SetMoving(false)
	r.settleDeletionsLocked()
	r.mu.Unlock()
	from := s.dirOf(old)
	s.deleteDir(from, old)
	for _, d := range []*Dir{from, m.dir} {
		err := errors.Join(d.CheckpointRecoveryPoints(), d.CheckpointStartOffsets(), d.CheckpointHighWatermarks(), d.CheckpointCleanedOffsets())
		if err != nil && d.online() {
			s.opts.Note("checkpoints after a move between log directories", r.partition, err)
		}
	}
	s.opts.Note("replica moved into another log directory", r.partition, nil)
	return MoveDone
}

func (r *Replica) moveFailed(m *move, from *storage.Log, err error) MoveState {
	r.set.changing.Lock()
	defer r.set.changing.Unlock()
	return r.moveFailedChanging(m, from, err)
}

// moveFailedChanging decides what becomes of a move after an error. If the disk with the copy is to blame the replica stays where it
// is; if the log that is copied can't be read it is offline, like after any other read that failed; and where a batch of it is
// bad the rest of it serves on, but can't move.
func (r *Replica) moveFailedChanging(m *move, from *storage.Log, err error) MoveState {
	s := r.set
	r.mu.Lock()
	current := r.move == m && r.Log() == from
	r.mu.Unlock()
	var bad *storage.CorruptError
	switch {
	case !current || errors.Is(err, storage.ErrClosed):
		return MoveDone // somebody ended it
	case m.log.Err() != nil || m.dir.Err() != nil:
		s.opts.Note("move into another log directory ended: the directory failed", r.partition, err)
		s.endMove(r, true)
	case errors.As(err, &bad):
		s.opts.Note("replica can't move into another log directory: what it has is corrupt", r.partition, err)
		r.mu.Lock()
		m.failed = true
		r.mu.Unlock()
	default:
		s.opts.Note("move into another log directory failed", r.partition, err)
		s.abandonMove(r)
		_ = r.readFailed(err) // clients hear of it by their next request
	}
	return MoveDone
}

// resumeMoves takes up the moves that the process before left: a future log whose partition is here goes on copying, or, if no
// current log is there and the metadata say that the replica lies where the future log is, becomes the current one.
func (s *Set) resumeMoves(image *metadata.Image) {
	found := make(map[kafka.TopicPartition]bool)
	for _, d := range s.opts.Dirs {
		for _, l := range d.Futures() {
			tp := l.Partition()
			why := s.strayBecause(image, l)
			switch {
			case why != nil:
			case found[tp]:
				why = errors.New("another directory has a future replica, too")
			case d.Log(tp) != nil:
				why = errors.New("the current replica lies in the same directory")
			default:
				found[tp] = true
				s.mu.RLock()
				broken := s.broken[tp]
				s.mu.RUnlock()
				if broken != nil || s.currentLog(tp) != nil {
					continue
				}
				p, _ := image.Topic(tp.Topic).Partition(tp.Partition)
				if !d.ID.IsZero() && p.Directory(s.opts.ID) == d.ID {
					s.opts.Note("future replica takes the place of the current one, which is gone", tp, nil)
					if err := l.TakeOver(nil); err != nil {
						s.opts.Note("future replica could not be renamed", tp, err)
					}
					continue
				}
				if len(s.offlineDirs()) > 0 {
					continue // what it is a copy of may come back
				}
				why = errors.New("there is no current replica, and the metadata don't say that this is one")
			}
			s.strand("future replica", d, l, why)
		}
	}
}

// resumeMove lets a replica that was just entered go on with a move of the process before.
func (s *Set) resumeMove(r *Replica) {
	for _, d := range s.opts.Dirs {
		if l := d.Future(r.partition); l != nil && d.Dir != r.Log().Dir() && d.online() {
			l.SetConfig(*r.Log().Config())
			r.beginMove(l, d)
			return
		}
	}
}

// currentLog is the open log of a partition, in whichever directory.
func (s *Set) currentLog(p kafka.TopicPartition) *storage.Log {
	for _, d := range s.opts.Dirs {
		if l := d.Log(p); l != nil && d.online() {
			return l
		}
	}
	return nil
}

// chooseDoubles decides where two directories have a log of a partition: a power cut between the two renames of a move leaves
// that. The one that moved in has everything that the other has, so the longer one stays. The shorter is deleted if the
// metadata say that the replica lies with the longer one, and set aside otherwise.
func (s *Set) chooseDoubles(image *metadata.Image) {
	if len(s.opts.Dirs) < 2 {
		return
	}
	type found struct {
		dir *Dir
		log *storage.Log
	}
	have := make(map[kafka.TopicPartition]found)
	for _, d := range s.opts.Dirs {
		for _, l := range d.Logs() {
			tp := l.Partition()
			a, twice := have[tp]
			b := found{d, l}
			if !twice {
				have[tp] = b
				continue
			}
			directory := kafka.DirMigrating
			if t := image.Topic(tp.Topic); t != nil && t.ID == l.TopicID() {
				if p, ok := t.Partition(tp.Partition); ok {
					directory = p.Directory(s.opts.ID)
				}
			}
			keep, drop := a, b
			if further(b.log, a.log) || !further(a.log, b.log) && b.dir.ID == directory {
				keep, drop = b, a
			}
			have[tp] = keep
			why := fmt.Errorf("%s and %s both have the partition: %s stays", a.log.Path(), b.log.Path(), keep.log.Path())
			if keep.dir.ID == directory && !directory.IsReserved() && keep.log.TopicID() == drop.log.TopicID() {
				s.opts.Note("deleted what a move between log directories left behind", tp, why)
				s.deleteDir(drop.dir, drop.log)
				continue
			}
			s.strand("partition", drop.dir, drop.log, why)
		}
	}
}

// further tells whether a has something that b lacks.
func further(a, b *storage.Log) bool {
	ea, _ := a.LatestEpoch()
	eb, _ := b.LatestEpoch()
	return ea > eb || ea == eb && a.EndOffset() > b.EndOffset()
}

// strayBecause says why a log on the disk is none of this broker's replicas; nil if it is one.
func (s *Set) strayBecause(image *metadata.Image, l *storage.Log) error {
	tp := l.Partition()
	t := image.Topic(tp.Topic)
	switch {
	case t == nil:
		return errors.New("the metadata has no such topic")
	case !l.TopicID().IsZero() && l.TopicID() != t.ID:
		return fmt.Errorf("the metadata has another topic id, %v; the directory's is %v", t.ID, l.TopicID())
	}
	p, ok := t.Partition(tp.Partition)
	if !ok || !slices.Contains(p.Replicas, s.opts.ID) {
		return errors.New("the metadata has no such replica on this broker")
	}
	return nil
}
