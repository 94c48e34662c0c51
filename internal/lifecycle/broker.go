package lifecycle

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

// State is what Kafka calls the broker's state; the numbers are those of its BrokerState metric.
type State int8

// The states.
const (
	NotRunning                State = 0
	Starting                  State = 1
	Recovery                  State = 2
	Running                   State = 3
	PendingControlledShutdown State = 6
	ShuttingDown              State = 7
)

func (s State) String() string {
	switch s {
	case NotRunning:
		return "NOT_RUNNING"
	case Starting:
		return "STARTING"
	case Recovery:
		return "RECOVERY"
	case Running:
		return "RUNNING"
	case PendingControlledShutdown:
		return "PENDING_CONTROLLED_SHUTDOWN"
	case ShuttingDown:
		return "SHUTTING_DOWN"
	}
	return fmt.Sprintf("State(%d)", int8(s))
}

// Options are the timings, named as in server.properties.
type Options struct {
	HeartbeatInterval   time.Duration // broker.heartbeat.interval.ms (2 s)
	SessionTimeout      time.Duration // broker.session.timeout.ms (9 s): a controlled shutdown without answers ends after it
	RegistrationTimeout time.Duration // initial.broker.registration.timeout.ms (60 s)
	DirFailureTimeout   time.Duration // log.dir.failure.timeout.ms (30 s): the controller must have heard of a failed directory by then
	RetryBackoff        time.Duration // first wait after a failed request; doubles up to HeartbeatInterval
}

// Kind is what a request is.
type Kind int8

// The kinds of request.
const (
	Registration Kind = iota
	Heartbeat
)

// Request is what to send to the active controller.
type Request struct {
	Kind Kind
	// Of a heartbeat:
	BrokerEpoch  kafka.BrokerEpoch
	MetadataEnd  kafka.Offset // highest metadata offset applied
	WantFence    bool
	WantShutDown bool
	OfflineDirs  []kafka.DirectoryID
}

// Answer is what the controller said. Err is a kerr value or what went wrong on the way.
type Answer struct {
	Err          error
	BrokerEpoch  kafka.BrokerEpoch // of a registration
	CaughtUp     bool              // of a heartbeat, as the rest
	Fenced       bool
	ShouldShutDn bool
}

// ErrRegistrationTimeout ends a start that the controller did not accept in time.
var ErrRegistrationTimeout = errors.New("the controller quorum did not accept this broker's registration within initial.broker.registration.timeout.ms")

// ErrDirFailureTimeout ends a broker that could not tell the controller of a failed log directory: whoever leads there would be
// taken for alive.
var ErrDirFailureTimeout = errors.New("the controller did not take note of a failed log directory within log.dir.failure.timeout.ms")

// offlineDir is a log directory that has failed.
type offlineDir struct {
	id     kafka.DirectoryID
	failed time.Time
	sent   bool // in the heartbeat that is out
	told   bool // a heartbeat with it was answered
}

// Broker is the machine. Not safe for concurrent use.
type Broker struct {
	opts        Options
	state       State
	epoch       kafka.BrokerEpoch
	registered  bool
	ready       bool
	fenced      bool
	inFlight    bool
	due         time.Time // when the next request is to go
	backoff     time.Duration
	started     time.Time
	stopping    time.Time
	metadataEnd kafka.Offset
	listed      bool // the metadata applied show this broker unfenced
	// registration is the broker epoch under which the metadata applied have this broker's id; -1 if they do not.
	registration kafka.BrokerEpoch
	offline      []offlineDir
	err          error
}

// New is a broker that registers at once.
func New(opts Options, now time.Time) *Broker {
	return &Broker{opts: opts, state: Starting, epoch: -1, fenced: true, due: now, started: now, backoff: opts.RetryBackoff, metadataEnd: -1, registration: -1}
}

// State is where the broker stands.
func (b *Broker) State() State { return b.state }

// Epoch is the broker epoch, or -1 before the registration.
func (b *Broker) Epoch() kafka.BrokerEpoch { return b.epoch }

// Fenced tells what the controller last said.
func (b *Broker) Fenced() bool { return b.fenced }

// CaughtUp tells whether the broker has read the metadata up to its own registration.
func (b *Broker) CaughtUp() bool { return b.state >= Recovery }

// Err is why the broker cannot go on, or nil.
func (b *Broker) Err() error { return b.err }

// Ready says that logs are recovered and everything is in place: from now on the broker asks to be unfenced.
func (b *Broker) Ready(now time.Time) {
	if !b.ready {
		b.ready = true
		b.hurry(now)
	}
}

// MetadataApplied says how far the broker has taken in the metadata log (the last offset), whether it stands there as unfenced, and under
// which broker epoch its id is registered there; -1 if it is not.
func (b *Broker) MetadataApplied(now time.Time, last kafka.Offset, unfenced bool, registration kafka.BrokerEpoch) {
	b.registration = registration
	behind := b.metadataEnd < kafka.Offset(b.epoch)
	b.metadataEnd, b.listed = last, unfenced
	b.run()
	if b.registered && behind && last >= kafka.Offset(b.epoch) && b.state == Starting {
		b.hurry(now) // the controller waits for just this
	}
}

// run lets a recovered broker serve: the controller said that it is unfenced, and its own metadata say so too. With the former alone
// the first clients would be told of a cluster without this broker.
func (b *Broker) run() {
	if b.state == Recovery && !b.fenced && b.listed {
		b.state = Running
	}
}

// DirsFailed adds log directories that went offline.
func (b *Broker) DirsFailed(now time.Time, dirs ...kafka.DirectoryID) {
	for _, id := range dirs {
		if !slices.ContainsFunc(b.offline, func(d offlineDir) bool { return d.id == id }) {
			b.offline = append(b.offline, offlineDir{id: id, failed: now})
		}
	}
	b.hurry(now)
}

// Stop begins a controlled shutdown, or ends the broker at once if it never ran.
func (b *Broker) Stop(now time.Time) {
	switch b.state {
	case Running, Recovery:
		if b.registered {
			b.state, b.stopping = PendingControlledShutdown, now
			b.hurry(now)
			return
		}
		b.state = ShuttingDown
	case Starting:
		b.state = ShuttingDown
	}
}

func (b *Broker) hurry(now time.Time) {
	if now.Before(b.due) {
		b.due = now
	}
}

// Deadline is when Next may have something; zero while an answer is awaited or nothing is left to do.
func (b *Broker) Deadline() time.Time {
	if b.state == ShuttingDown || b.err != nil {
		return time.Time{}
	}
	at := b.due
	if b.inFlight {
		at = time.Time{}
	}
	if give := b.giveUp(); !give.IsZero() && (at.IsZero() || give.Before(at)) {
		at = give
	}
	return at
}

// giveUp is when the controller must have heard of the directories that failed; zero if it has, or can't yet.
func (b *Broker) giveUp() (at time.Time) {
	if !b.registered {
		return time.Time{}
	}
	for _, d := range b.offline {
		if t := d.failed.Add(b.opts.DirFailureTimeout); !d.told && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	return at
}

// Next is the request to send now, if one is due.
func (b *Broker) Next(now time.Time) (Request, bool) {
	if give := b.giveUp(); !give.IsZero() && !now.Before(give) && b.state != ShuttingDown && b.err == nil {
		b.err = ErrDirFailureTimeout
		return Request{}, false
	}
	switch {
	case b.inFlight || b.state == ShuttingDown || b.err != nil || now.Before(b.due):
		return Request{}, false
	case !b.registered:
		if now.Sub(b.started) > b.opts.RegistrationTimeout {
			b.err = ErrRegistrationTimeout
			return Request{}, false
		}
		b.inFlight = true
		return Request{Kind: Registration}, true
	case b.state == PendingControlledShutdown && now.Sub(b.stopping) > b.opts.SessionTimeout:
		b.state = ShuttingDown
		return Request{}, false
	}
	b.inFlight = true
	var offline []kafka.DirectoryID
	for i := range b.offline {
		b.offline[i].sent = true
		offline = append(offline, b.offline[i].id)
	}
	return Request{
		Kind: Heartbeat, BrokerEpoch: b.epoch, MetadataEnd: b.metadataEnd, OfflineDirs: offline,
		WantFence: !b.ready, WantShutDown: b.state == PendingControlledShutdown,
	}, true
}

// Answered takes in what came back for the request that was out.
func (b *Broker) Answered(now time.Time, a Answer) {
	b.inFlight = false
	if a.Err != nil {
		for i := range b.offline {
			b.offline[i].sent = false
		}
		b.failed(now, a.Err)
		return
	}
	b.backoff = b.opts.RetryBackoff
	if !b.registered {
		b.registered, b.epoch = true, a.BrokerEpoch
		for i := range b.offline {
			b.offline[i].failed = now
		}
		b.due = now
		return
	}
	for i := range b.offline {
		b.offline[i].told = b.offline[i].told || b.offline[i].sent
	}
	b.fenced = a.Fenced
	b.due = now.Add(b.opts.HeartbeatInterval)
	if !b.giveUp().IsZero() {
		b.due = now // one failed while the heartbeat was out
	}
	switch b.state {
	case Starting:
		if a.CaughtUp {
			b.state = Recovery
			b.due = now // says at once whether it is ready, too
			if !b.ready {
				b.due = now.Add(b.opts.HeartbeatInterval)
			}
			return
		}
		b.due = now.Add(min(b.opts.HeartbeatInterval, 10*time.Millisecond)) // nobody waits two seconds for a start
	case Recovery:
		if b.run(); a.Fenced && b.ready {
			b.due = now.Add(min(b.opts.HeartbeatInterval, 10*time.Millisecond))
		}
	case PendingControlledShutdown:
		if a.ShouldShutDn {
			b.state = ShuttingDown
			return
		}
		b.due = now.Add(min(b.opts.HeartbeatInterval, 50*time.Millisecond))
	}
}

func (b *Broker) failed(now time.Time, err error) {
	if b.state == PendingControlledShutdown && now.Sub(b.stopping) > b.opts.SessionTimeout {
		b.state = ShuttingDown
		return
	}
	switch kerr.Code(err) {
	case kerr.StaleBrokerEpoch.Code, kerr.BrokerIDNotRegistered.Code:
		// The broker was unregistered: as in Kafka it runs on, out of the cluster, and only a restart registers it anew; its process may
		// be a controller besides. If another process took the id this one must not go on.
		if b.registered && b.state != PendingControlledShutdown && (b.state != Running || b.registration > b.epoch) {
			b.err = fmt.Errorf("heartbeat with broker epoch %d: %w", b.epoch, err)
			return
		}
		if b.state == PendingControlledShutdown {
			b.state = ShuttingDown
			return
		}
	case kerr.InconsistentClusterID.Code, kerr.InvalidRegistration.Code, kerr.UnsupportedVersion.Code:
		if !b.registered {
			b.err = fmt.Errorf("register: %w", err)
			return
		}
	}
	b.due = now.Add(b.backoff)
	b.backoff = min(2*b.backoff, b.opts.HeartbeatInterval)
}
