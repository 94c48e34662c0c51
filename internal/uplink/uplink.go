package uplink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/lifecycle"
)

// Controller finds the active controller and sends it one request, calling done exactly once, from any goroutine, at the
// latest after timeout. If it is not known who is the controller done gets ErrNoController at once.
type Controller func(req kmsg.Request, timeout time.Duration, done func(kmsg.Response, error))

// ErrNoController means that this node doesn't know an active controller.
var ErrNoController = errors.New("the active controller is not known")

// Options is what an Uplink is made of.
type Options struct {
	Registration *kmsg.BrokerRegistrationRequest // complete but for what changes: sent as it is
	Lifecycle    lifecycle.Options
	// RequestTimeout bounds one try, controller.socket.timeout.ms.
	RequestTimeout time.Duration
	Controller     Controller
	// Cordoned are the log directories that take no new replicas (cordoned.log.dirs), told with each heartbeat; nil if the
	// cluster's metadata.version doesn't know of such.
	Cordoned func() []kafka.DirectoryID
	Log      *slog.Logger
}

// Uplink is the talk. All methods are safe for concurrent use.
type Uplink struct {
	opts Options
	log  *slog.Logger

	mu      sync.Mutex // guards machine and what is derived from it
	machine *lifecycle.Broker
	state   lifecycle.State
	changed chan struct{} // closed and replaced whenever state or err changes

	wake chan struct{} // capacity 1
	stop chan struct{}
	once sync.Once
	done chan struct{}

	producerIDs producerIDs
	assignments assignments
}

// New is an uplink that does nothing before Start.
func New(o Options) *Uplink {
	u := &Uplink{
		opts: o, log: o.Log, machine: lifecycle.New(o.Lifecycle, time.Now()), state: lifecycle.Starting,
		changed: make(chan struct{}), wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	u.producerIDs.uplink, u.assignments.uplink = u, u
	return u
}

// Start begins to register.
func (u *Uplink) Start() { go u.run() }

// Close ends the goroutine without a controlled shutdown. Idempotent.
func (u *Uplink) Close() {
	u.once.Do(func() { close(u.stop) })
	<-u.done
}

// Done is closed when the uplink ended.
func (u *Uplink) Done() <-chan struct{} { return u.done }

func (u *Uplink) run() {
	defer close(u.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-u.stop:
			return
		case <-u.wake:
		case <-timer.C:
		}
		u.mu.Lock()
		now := time.Now()
		req, due := u.machine.Next(now)
		u.noteLocked()
		deadline := u.machine.Deadline()
		u.mu.Unlock()
		if due {
			u.send(req)
		}
		if deadline.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(deadline))
		}
	}
}

func (u *Uplink) send(q lifecycle.Request) {
	if q.Kind == lifecycle.Registration {
		u.opts.Controller(u.opts.Registration, u.opts.RequestTimeout, func(m kmsg.Response, err error) {
			a := lifecycle.Answer{Err: err}
			if resp, ok := m.(*kmsg.BrokerRegistrationResponse); ok && err == nil {
				a.Err, a.BrokerEpoch = kerr.ForCode(resp.ErrorCode), kafka.BrokerEpoch(resp.BrokerEpoch)
			}
			if a.Err != nil && !errors.Is(a.Err, ErrNoController) {
				u.log.Info("registration was not accepted, trying again", "error", a.Err)
			}
			u.answered(a)
		})
		return
	}
	hb := kmsg.NewPtrBrokerHeartbeatRequest()
	hb.BrokerID, hb.BrokerEpoch, hb.CurrentMetadataOffset = u.opts.Registration.BrokerID, int64(q.BrokerEpoch), q.MetadataEnd
	hb.WantFence, hb.WantShutdown = q.WantFence, q.WantShutDown
	for _, d := range q.OfflineDirs {
		hb.OfflineLogDirs = append(hb.OfflineLogDirs, d)
	}
	if dirs := u.opts.Cordoned(); dirs != nil {
		hb.CordonedLogDirs = make([][16]byte, len(dirs))
		for i, d := range dirs {
			hb.CordonedLogDirs[i] = d
		}
	}
	u.opts.Controller(hb, u.opts.RequestTimeout, func(m kmsg.Response, err error) {
		a := lifecycle.Answer{Err: err}
		if resp, ok := m.(*kmsg.BrokerHeartbeatResponse); ok && err == nil {
			a = lifecycle.Answer{Err: kerr.ForCode(resp.ErrorCode), CaughtUp: resp.IsCaughtUp, Fenced: resp.IsFenced, ShouldShutDn: resp.ShouldShutdown}
		}
		if errors.Is(a.Err, kerr.StaleBrokerEpoch) {
			u.log.Warn("heartbeat refused: this broker is not registered any more, and only a restart registers it again", "brokerEpoch", hb.BrokerEpoch, "error", a.Err)
		}
		u.answered(a)
	})
}

func (u *Uplink) answered(a lifecycle.Answer) {
	u.with(func(b *lifecycle.Broker, now time.Time) { b.Answered(now, a) })
}

// with steps the machine and wakes the goroutine.
func (u *Uplink) with(step func(*lifecycle.Broker, time.Time)) {
	u.mu.Lock()
	step(u.machine, time.Now())
	u.noteLocked()
	u.mu.Unlock()
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

func (u *Uplink) noteLocked() {
	s := u.machine.State()
	if s != u.state {
		u.log.Info("broker state changed", "from", u.state.String(), "to", s.String(), "brokerEpoch", int64(u.machine.Epoch()))
	}
	if s != u.state || u.machine.Err() != nil {
		u.state = s
		close(u.changed)
		u.changed = make(chan struct{})
	}
}

// Ready says that this broker can serve.
func (u *Uplink) Ready() { u.with((*lifecycle.Broker).Ready) }

// MetadataApplied says how far the broker has taken in the metadata log, whether it stands there as unfenced, and under which broker epoch
// its id is registered there; -1 if it is not.
func (u *Uplink) MetadataApplied(last kafka.Offset, unfenced bool, registration kafka.BrokerEpoch) {
	u.with(func(b *lifecycle.Broker, now time.Time) { b.MetadataApplied(now, last, unfenced, registration) })
}

// DirsFailed tells the controller of log directories that went offline.
func (u *Uplink) DirsFailed(dirs ...kafka.DirectoryID) {
	u.with(func(b *lifecycle.Broker, now time.Time) { b.DirsFailed(now, dirs...) })
}

// State is the broker's state and epoch.
func (u *Uplink) State() (lifecycle.State, kafka.BrokerEpoch) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.machine.State(), u.machine.Epoch()
}

// Await waits until the broker's state is at least s: Recovery is "registered and caught up", Running "unfenced",
// ShuttingDown "let go by the controller". It fails when the broker cannot go on.
func (u *Uplink) Await(ctx context.Context, s lifecycle.State) error {
	for {
		u.mu.Lock()
		state, err, changed := u.machine.State(), u.machine.Err(), u.changed
		u.mu.Unlock()
		switch {
		case err != nil:
			return err
		case state >= s:
			return nil
		}
		select {
		case <-changed:
		case <-u.done:
			return errors.New("uplink is closed")
		case <-ctx.Done():
			return fmt.Errorf("broker is %v: %w", state, ctx.Err())
		}
	}
}

// Stop begins a controlled shutdown and waits until the controller has moved the leaders away and lets the broker go.
func (u *Uplink) Stop(ctx context.Context) error {
	u.with((*lifecycle.Broker).Stop)
	return u.Await(ctx, lifecycle.ShuttingDown)
}

// Err is why the broker cannot go on, or nil; Changed is closed when that or the state changes.
func (u *Uplink) Err() (changed <-chan struct{}, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.changed, u.machine.Err()
}
