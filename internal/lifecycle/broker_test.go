package lifecycle

// Shows a broker's life by scripts: each line is what the controller answers, each check what the broker asks next.

import (
	"errors"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

var opts = Options{HeartbeatInterval: 2 * time.Second, SessionTimeout: 9 * time.Second, RegistrationTimeout: 60 * time.Second, DirFailureTimeout: 30 * time.Second, RetryBackoff: 100 * time.Millisecond}

type script struct {
	t   *testing.T
	b   *Broker
	now time.Time
}

func start(t *testing.T) *script {
	now := time.Unix(1700000000, 0)
	return &script{t, New(opts, now), now}
}

// ask moves to the deadline and returns the request that is due then.
func (s *script) ask() Request {
	s.t.Helper()
	d := s.b.Deadline()
	if d.IsZero() {
		s.t.Fatalf("no deadline in state %v", s.b.State())
	}
	if d.After(s.now) {
		s.now = d
	}
	r, ok := s.b.Next(s.now)
	if !ok {
		s.t.Fatalf("nothing to send in state %v", s.b.State())
	}
	if _, twice := s.b.Next(s.now.Add(time.Second)); twice {
		s.t.Fatal("two requests at a time")
	}
	return r
}

func (s *script) state(want State) {
	s.t.Helper()
	if s.b.State() != want {
		s.t.Fatalf("state %v, want %v", s.b.State(), want)
	}
}

func (s *script) running() {
	s.t.Helper()
	if r := s.ask(); r.Kind != Registration {
		s.t.Fatalf("first request %+v", r)
	}
	s.b.Answered(s.now, Answer{BrokerEpoch: 40})
	if r := s.ask(); r.Kind != Heartbeat || !r.WantFence || r.BrokerEpoch != 40 {
		s.t.Fatalf("first heartbeat %+v", r)
	}
	s.b.Answered(s.now, Answer{Fenced: true})
	s.state(Starting)
	s.b.MetadataApplied(s.now, 41, false, -1)
	if r := s.ask(); r.MetadataEnd != 41 {
		s.t.Fatalf("heartbeat %+v, want metadata 41", r)
	}
	s.b.Answered(s.now, Answer{Fenced: true, CaughtUp: true})
	s.state(Recovery)
	s.b.Ready(s.now)
	before := s.now
	if r := s.ask(); r.WantFence || s.now != before {
		s.t.Fatalf("heartbeat %+v %v after Ready", r, s.now.Sub(before))
	}
	s.b.Answered(s.now, Answer{CaughtUp: true})
	s.state(Recovery) // clients would not be told of this broker yet
	s.b.MetadataApplied(s.now, 42, true, -1)
	s.state(Running)
}

func TestMetadataBeforeTheAnswerThatUnfences(t *testing.T) {
	s := start(t)
	s.ask()
	s.b.Answered(s.now, Answer{BrokerEpoch: 40})
	s.b.MetadataApplied(s.now, 39, true, -1) // as another incarnation left it
	s.ask()
	s.b.Answered(s.now, Answer{Fenced: true})
	s.b.MetadataApplied(s.now, 40, false, -1)
	s.ask()
	s.b.Answered(s.now, Answer{Fenced: true, CaughtUp: true})
	s.b.Ready(s.now)
	s.b.MetadataApplied(s.now, 41, true, -1)
	s.state(Recovery)
	s.ask()
	s.b.Answered(s.now, Answer{CaughtUp: true})
	s.state(Running)
}

func TestFromStartToControlledShutdown(t *testing.T) {
	s := start(t)
	s.running()
	before := s.now
	s.ask()
	if s.now.Sub(before) != 2*time.Second {
		t.Fatalf("heartbeat after %v", s.now.Sub(before))
	}
	s.b.Answered(s.now, Answer{CaughtUp: true})
	s.b.Stop(s.now)
	s.state(PendingControlledShutdown)
	before = s.now
	if r := s.ask(); !r.WantShutDown || s.now != before {
		t.Fatalf("heartbeat %+v", r)
	}
	s.b.Answered(s.now, Answer{CaughtUp: true})
	s.ask()
	s.b.Answered(s.now, Answer{CaughtUp: true, Fenced: true, ShouldShutDn: true})
	s.state(ShuttingDown)
	if !s.b.Deadline().IsZero() {
		t.Fatal("still something to do")
	}
}

func TestControlledShutdownEndsWithoutAnswers(t *testing.T) {
	s := start(t)
	s.running()
	s.b.Stop(s.now)
	begin := s.now
	for s.b.State() != ShuttingDown {
		if s.now.Sub(begin) > 12*time.Second {
			t.Fatal("never ends")
		}
		if d := s.b.Deadline(); d.After(s.now) {
			s.now = d
		}
		if _, ok := s.b.Next(s.now); ok {
			s.now = s.now.Add(500 * time.Millisecond)
			s.b.Answered(s.now, Answer{Err: errors.New("connection refused")})
		}
	}
}

func TestRegistrationIsRetriedUntilItsTimeout(t *testing.T) {
	s := start(t)
	begin, tries := s.now, 0
	for s.b.Err() == nil {
		d := s.b.Deadline()
		s.now = d
		if _, ok := s.b.Next(s.now); ok {
			tries++
			s.b.Answered(s.now, Answer{Err: kerr.DuplicateBrokerRegistration})
		}
	}
	if !errors.Is(s.b.Err(), ErrRegistrationTimeout) || s.now.Sub(begin) < 60*time.Second || tries < 20 {
		t.Fatalf("%v after %v and %d tries", s.b.Err(), s.now.Sub(begin), tries)
	}
}

func TestFatalAnswers(t *testing.T) {
	s := start(t)
	s.ask()
	s.b.Answered(s.now, Answer{Err: kerr.InconsistentClusterID})
	if !errors.Is(s.b.Err(), kerr.InconsistentClusterID) {
		t.Fatalf("err %v", s.b.Err())
	}
	s = start(t)
	s.running()
	s.b.MetadataApplied(s.now, 100, true, s.b.Epoch()+1) // another process has the id
	s.ask()
	s.b.Answered(s.now, Answer{Err: kerr.StaleBrokerEpoch})
	if !errors.Is(s.b.Err(), kerr.StaleBrokerEpoch) {
		t.Fatalf("err %v", s.b.Err())
	}
}

// TestUnregistered: a broker that was unregistered runs on and asks at its heartbeats' pace, as Kafka's does, and it can be stopped.
func TestUnregistered(t *testing.T) {
	s := start(t)
	s.running()
	s.b.MetadataApplied(s.now, 100, false, -1)
	for range 20 {
		if r := s.ask(); r.Kind != Heartbeat {
			t.Fatalf("asks %+v", r)
		}
		s.b.Answered(s.now, Answer{Err: kerr.StaleBrokerEpoch})
	}
	if s.b.Err() != nil || s.b.State() != Running {
		t.Fatalf("state %v, %v", s.b.State(), s.b.Err())
	}
	before := s.now
	s.ask()
	if waited := s.now.Sub(before); waited != s.b.opts.HeartbeatInterval {
		t.Errorf("the next heartbeat came after %v", waited)
	}
	s.b.Answered(s.now, Answer{Err: kerr.StaleBrokerEpoch})
	s.b.Stop(s.now)
	s.ask()
	s.b.Answered(s.now, Answer{Err: kerr.StaleBrokerEpoch})
	if s.b.State() != ShuttingDown {
		t.Errorf("state %v after a stop", s.b.State())
	}
}

func TestFailedDirectoriesAreToldAtOnce(t *testing.T) {
	s := start(t)
	s.running()
	before := s.now
	s.b.DirsFailed(s.now, kafka.UUID{1})
	if r := s.ask(); len(r.OfflineDirs) != 1 || s.now != before {
		t.Fatalf("heartbeat %+v", r)
	}
}

// A broker that can't tell of a failed directory ends, for the controller takes what lies there for alive; one that told in time goes
// on, whatever becomes of later heartbeats.
func TestFailedDirectoriesMustBeTold(t *testing.T) {
	down := errors.New("connection refused")
	life := func(answers func(begin, now time.Time) bool) (*script, time.Duration) {
		s := start(t)
		s.running()
		begin := s.now
		s.b.DirsFailed(s.now, kafka.UUID{1}, kafka.UUID{1})
		for s.b.Err() == nil && s.now.Sub(begin) < time.Hour {
			if d := s.b.Deadline(); d.After(s.now) {
				s.now = d
			}
			r, ok := s.b.Next(s.now)
			if !ok {
				continue
			}
			if len(r.OfflineDirs) != 1 {
				t.Fatalf("heartbeat %+v", r)
			}
			s.now = s.now.Add(100 * time.Millisecond)
			if answers(begin, s.now) {
				s.b.Answered(s.now, Answer{CaughtUp: true})
			} else {
				s.b.Answered(s.now, Answer{Err: down})
			}
		}
		return s, s.now.Sub(begin)
	}
	s, after := life(func(_, _ time.Time) bool { return false })
	if !errors.Is(s.b.Err(), ErrDirFailureTimeout) || after < 30*time.Second || after > 33*time.Second {
		t.Errorf("never told: %v after %v", s.b.Err(), after)
	}
	s, after = life(func(begin, now time.Time) bool {
		return now.Sub(begin) > 20*time.Second && now.Sub(begin) < 23*time.Second
	})
	if s.b.Err() != nil {
		t.Errorf("told after 20 s: %v after %v", s.b.Err(), after)
	}
	// One that fails while a heartbeat is out is told with the next, at once.
	s = start(t)
	s.running()
	s.ask()
	s.b.DirsFailed(s.now, kafka.UUID{2})
	s.b.Answered(s.now, Answer{CaughtUp: true})
	before := s.now
	if r := s.ask(); len(r.OfflineDirs) != 1 || s.now != before {
		t.Errorf("heartbeat %+v after %v", r, s.now.Sub(before))
	}
	// No answer at all.
	s = start(t)
	s.running()
	s.b.DirsFailed(s.now, kafka.UUID{3})
	if _, ok := s.b.Next(s.now); !ok || s.b.Err() != nil {
		t.Fatalf("no heartbeat: %v", s.b.Err())
	}
	s.now = s.b.Deadline()
	if _, ok := s.b.Next(s.now); ok || !errors.Is(s.b.Err(), ErrDirFailureTimeout) {
		t.Errorf("no answer: %v", s.b.Err())
	}
}
