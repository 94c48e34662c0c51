package raftloop

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/invariant"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raft"
)

// Loop owns the goroutine that drives a Replica. The order of its life: Open, Start, use, Close.
type Loop struct {
	replica *Replica
	log     *slog.Logger

	inbox chan func(now time.Time) error
	wake  chan struct{} // capacity 1: something was proposed or answered

	// mu guards answers: of peers, who may answer on the loop's own goroutine. One request a node is under way, so there
	// are few.
	mu      sync.Mutex
	answers []func(now time.Time) error
	done    chan struct{} // closed when the goroutine ended

	// failed gets the first fatal error: the disk, a callback, or a broken invariant. The process must exit.
	failed chan error

	// posting is held shared by who puts something into the inbox, so that after Close took it nothing more comes.
	posting sync.RWMutex
	closed  bool

	started  sync.Once // runs the goroutine, or closes done instead
	stopOnce sync.Once
	stop     chan struct{}
}

// inboxSize bounds what waits for the goroutine; a full inbox makes callers wait, which slows down the connection that
// brings more. Guess.
const inboxSize = 1024

// turnEvents bounds what one turn takes out of the inbox, so that timers and delivery have their turn. Guess.
const turnEvents = 256

// ErrClosed is for what comes after Close.
var ErrClosed = errors.New("metadata log is closed")

// Open recovers the replica from its directory. It does not start anything; a quorum of one already leads.
func Open(opt Options, now time.Time) (*Loop, error) {
	l := &Loop{
		log:    opt.Log,
		inbox:  make(chan func(time.Time) error, inboxSize),
		wake:   make(chan struct{}, 1),
		done:   make(chan struct{}),
		failed: make(chan error, 1),
		stop:   make(chan struct{}),
	}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	peer := opt.Peer
	r, err := OpenReplica(opt, now, func(s raft.Send) { l.send(peer, s) })
	if err != nil {
		return nil, err
	}
	l.replica = r
	return l, nil
}

// Start runs the goroutine. Callbacks come on it, from the newest snapshot on.
func (l *Loop) Start(cb Callbacks) {
	l.started.Do(func() {
		l.replica.Register(cb)
		go l.run()
	})
}

// Failed delivers the error after which this process cannot go on.
func (l *Loop) Failed() <-chan error { return l.failed }

func (l *Loop) run() {
	defer close(l.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		err := l.turn(timer)
		if errors.Is(err, errStopped) {
			return
		}
		if err != nil {
			l.log.Error("metadata log failed", "err", err)
			l.failed <- err
			return
		}
	}
}

var errStopped = errors.New("stopped")

// turn is one round: wait, act on all that waits, do what Ready asks, deliver a bounded piece, set the timer.
func (l *Loop) turn(timer *time.Timer) (err error) {
	defer invariant.Recover(&err)
	var first func(time.Time) error
	if !l.replica.Behind() {
		select {
		case first = <-l.inbox:
		case <-l.wake:
		case <-timer.C:
		case <-l.stop:
			return errStopped
		}
	} else {
		select {
		case first = <-l.inbox:
		case <-l.stop:
			return errStopped
		default:
		}
	}
	now := time.Now()
	for n, f := 0, first; f != nil; n++ {
		if err := f(now); err != nil {
			return err
		}
		f = nil
		if n < turnEvents {
			select {
			case f = <-l.inbox:
			default:
			}
		}
	}
	l.mu.Lock()
	answers := l.answers
	l.answers = nil
	l.mu.Unlock()
	for _, f := range answers {
		if err := f(now); err != nil {
			return err
		}
	}
	if err := l.replica.Step(now, raft.Tick{}); err != nil {
		return err
	}
	if err := l.replica.Deliver(now); err != nil {
		return err
	}
	timer.Reset(time.Until(l.replica.Deadline()))
	return nil
}

func (l *Loop) post(f func(now time.Time) error) bool {
	l.posting.RLock()
	defer l.posting.RUnlock()
	if l.closed {
		return false
	}
	select {
	case l.inbox <- f:
		return true
	case <-l.done:
		return false
	}
}

func (l *Loop) send(peer Peer, s raft.Send) {
	peer.Send(s.To, s.Msg, s.Timeout, func(m kmsg.Response, err error) {
		l.mu.Lock()
		l.answers = append(l.answers, func(now time.Time) error { return l.replica.Answered(now, s.Corr, m, err) })
		l.mu.Unlock()
		l.signal()
	})
}

func (l *Loop) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Propose appends records, at most 8 MiB, as one atomic batch, if this node still leads epoch, and returns the offset of
// the last one. They are committed when Commit gives that offset; if the leader changes before, they may vanish.
func (l *Loop) Propose(epoch kafka.LeaderEpoch, records [][]byte) (kafka.Offset, error) {
	last, err := l.replica.Propose(time.Now(), epoch, records)
	if err == nil {
		l.signal()
	}
	return last, err
}

// UpgradeKRaftVersion raises kraft.version by a batch of the quorum's own, if this node still leads epoch, and returns the offset of its
// last record; -1 if there is nothing to do. See raft.Raft.
func (l *Loop) UpgradeKRaftVersion(epoch kafka.LeaderEpoch, level int16) (kafka.Offset, error) {
	last, err := l.replica.UpgradeKRaftVersion(time.Now(), epoch, level)
	if err == nil {
		l.signal()
	}
	return last, err
}

// CheckKRaftVersion tells whether UpgradeKRaftVersion would take a level.
func (l *Loop) CheckKRaftVersion(level int16) error { return l.replica.CheckKRaftVersion(level) }

// Resign gives up the epoch, as a controller does that cannot go on.
func (l *Loop) Resign(epoch kafka.LeaderEpoch) {
	l.post(func(now time.Time) error { return l.replica.Step(now, raft.Resign{Epoch: epoch}) })
}

// Handle serves a request of the quorum's APIs: Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot,
// DescribeQuorum, AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter. req must not refer to memory that the caller reuses.
// answer is called once, on the loop's goroutine, at once or, for a Fetch that waits, later; nil means that there is no
// answer because the loop is closing. listener is the name of that on which the request came.
func (l *Loop) Handle(listener string, req kmsg.Request, answer func(kmsg.Response)) {
	if !l.post(func(now time.Time) error { return l.replica.Handle(now, listener, req, answer) }) {
		answer(nil)
	}
}

// Status tells where the replica stands.
func (l *Loop) Status() raft.Status { return l.replica.Status() }

// LatestSnapshot is the id of the newest snapshot, with ok false if there is none.
func (l *Loop) LatestSnapshot() (id kafka.OffsetAndEpoch, ok bool) { return l.replica.LatestSnapshot() }

// CreateSnapshot begins a snapshot of the state at the end offset id.Offset. It fails with ErrSnapshotExists if there is
// one at or above. Any goroutine but the loop's own, that is any but a callback, may write and freeze it.
func (l *Loop) CreateSnapshot(id kafka.OffsetAndEpoch, lastTimestamp time.Time) (*SnapshotWriter, error) {
	w, err := l.replica.CreateSnapshot(id, lastTimestamp)
	if err != nil {
		return nil, err
	}
	w.frozen = func() error {
		result := make(chan error, 1)
		if !l.post(func(now time.Time) error {
			err := l.replica.SnapshotCreated(now, id)
			result <- err
			return err
		}) {
			return ErrClosed
		}
		select {
		case err := <-result:
			return err
		case <-l.done:
			return ErrClosed
		}
	}
	return w, nil
}

// Shutdown resigns and waits until another leads, or ctx ends. A quorum of one returns at once.
func (l *Loop) Shutdown(ctx context.Context) {
	timeout := 5 * time.Second
	if d, ok := ctx.Deadline(); ok {
		timeout = time.Until(d)
	}
	if !l.post(func(now time.Time) error { return l.replica.Step(now, raft.Shutdown{Timeout: timeout}) }) {
		return
	}
	select {
	case <-l.replica.stopped:
	case <-ctx.Done():
	case <-l.done:
	}
}

// Close ends the goroutine and closes the log. Waiting requests are answered with nil.
func (l *Loop) Close() error {
	l.stopOnce.Do(func() { close(l.stop) })
	l.started.Do(func() { close(l.done) })
	<-l.done
	l.posting.Lock()
	l.closed = true
	l.posting.Unlock()
	for {
		select {
		case f := <-l.inbox:
			// What came too late: only answers matter now.
			if err := f(time.Now()); err != nil {
				l.log.Debug("dropped while closing", "err", err)
			}
			continue
		default:
		}
		break
	}
	return l.replica.Close()
}
