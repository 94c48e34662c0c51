package uplink

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/lifecycle"
)

// newUplink is one whose controller is f, which answers at once or returns nil, nil for never.
func newUplink(f func(req kmsg.Request) (kmsg.Response, error)) *Uplink {
	r := kmsg.NewPtrBrokerRegistrationRequest()
	r.BrokerID = 1
	return New(Options{
		Registration: r, Cordoned: func() []kafka.DirectoryID { return nil }, RequestTimeout: 30 * time.Second, Log: slog.New(slog.DiscardHandler),
		Lifecycle: lifecycle.Options{HeartbeatInterval: 2 * time.Second, SessionTimeout: 9 * time.Second, RegistrationTimeout: time.Minute, RetryBackoff: 50 * time.Millisecond},
		Controller: func(req kmsg.Request, timeout time.Duration, done func(kmsg.Response, error)) {
			m, err := f(req)
			if m == nil && err == nil {
				time.AfterFunc(timeout, func() { done(nil, errors.New("no answer")) })
				return
			}
			done(m, err)
		},
	})
}

// Ask asks again until somebody is the controller, answers; or the deadline, and calls done once in any case.
func TestAsk(t *testing.T) {
	notController := &kmsg.EnvelopeResponse{ErrorCode: kerr.NotController.Code}
	good := &kmsg.EnvelopeResponse{ResponseData: []byte("x")}
	f := func(what string, script []any, want kmsg.Response, wantErr error, least, most time.Duration) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			u := newUplink(func(kmsg.Request) (kmsg.Response, error) {
				step := script[min(asked, len(script)-1)]
				asked++
				switch s := step.(type) {
				case error:
					return nil, s
				case kmsg.Response:
					return s, nil
				}
				return nil, nil
			})
			begin := time.Now()
			done := make(chan struct{}, 5)
			var got kmsg.Response
			var err error
			u.Ask(kmsg.NewPtrEnvelopeRequest(), begin.Add(10*time.Second), func(m kmsg.Response, e error) {
				got, err = m, e
				done <- struct{}{}
			})
			<-done
			took := time.Since(begin)
			if got != want || !errors.Is(err, wantErr) || took < least || took > most {
				t.Errorf("%s: %+v, %v after %v and %d tries", what, got, err, took, asked)
			}
			time.Sleep(time.Minute) // of the bubble
			synctest.Wait()
			if len(done) != 0 {
				t.Errorf("%s: done was called again", what)
			}
		})
	}
	f("at once", []any{good}, good, nil, 0, 0)
	f("another controller", []any{notController, notController, good}, good, nil, 60*time.Millisecond, 60*time.Millisecond)
	f("no controller for a while", []any{ErrNoController, ErrNoController, ErrNoController, notController, errors.New("broken"), good}, good, nil, 620*time.Millisecond, 620*time.Millisecond)
	f("never a controller", []any{ErrNoController}, nil, ErrTimedOut, 9*time.Second, 10*time.Second)
	f("never an answer", []any{nil}, nil, ErrTimedOut, 10*time.Second, 10*time.Second)
	other := &kmsg.EnvelopeResponse{ErrorCode: kerr.InvalidRequest.Code}
	f("an error that is an answer", []any{other}, other, nil, 0, 0)
}

// Ids come once each, over blocks that don't follow each other; the next block is asked for before the last id is gone, once
// at a time; an error reaches those who wait and the next one asks again.
func TestProducerIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		blocks, asking := 0, 0
		var answer func() // of the request that is under way
		u := New(Options{
			Registration: kmsg.NewPtrBrokerRegistrationRequest(), RequestTimeout: 30 * time.Second, Log: slog.New(slog.DiscardHandler),
			Controller: func(req kmsg.Request, _ time.Duration, done func(kmsg.Response, error)) {
				mu.Lock()
				defer mu.Unlock()
				if asking++; asking > 1 {
					t.Error("two blocks are asked for at once")
				}
				if _, ok := req.(*kmsg.AllocateProducerIDsRequest); !ok {
					t.Errorf("%T", req)
				}
				n := blocks
				blocks++
				answer = func() {
					mu.Lock()
					asking--
					answer = nil
					mu.Unlock()
					done(&kmsg.AllocateProducerIDsResponse{ProducerIDStart: int64(n) * 5000, ProducerIDLen: 1000}, nil)
				}
			},
		})
		var got []kafka.ProducerID
		take := func(n int) {
			for range n {
				u.ProducerID(func(id kafka.ProducerID, err error) {
					if err != nil {
						t.Error(err)
					}
					got = append(got, id)
				})
			}
		}
		take(3)
		if len(got) != 0 || blocks != 1 {
			t.Fatalf("%d ids, %d blocks asked for", len(got), blocks)
		}
		answer()
		if !slices.Equal(got, []kafka.ProducerID{0, 1, 2}) {
			t.Fatalf("ids %v", got)
		}
		take(896)
		if blocks != 1 {
			t.Errorf("the second block is asked for with %d ids left", 1000-len(got))
		}
		take(1)
		if blocks != 2 {
			t.Errorf("the second block isn't asked for with %d ids left", 1000-len(got))
		}
		take(150) // more than there are: some wait
		if len(got) != 1000 {
			t.Errorf("%d ids out of one block", len(got))
		}
		answer()
		if len(got) != 1050 || got[1000] != 5000 || got[1049] != 5049 {
			t.Errorf("%d ids, %v…", len(got), got[1000:])
		}
		take(2500) // more than a block waits
		for answer != nil && len(got) < 3550 {
			answer()
		}
		if len(got) != 3550 {
			t.Errorf("%d ids", len(got))
		}
		slices.Sort(got)
		if len(slices.Compact(got)) != 3550 {
			t.Error("an id came twice")
		}
	})
}

// An answer without ids is an error that clients retry, not a reason to ask for ever.
func TestProducerIDsRefused(t *testing.T) {
	for what, resp := range map[string]kmsg.Response{
		"an error code": &kmsg.AllocateProducerIDsResponse{ErrorCode: kerr.StaleBrokerEpoch.Code},
		"no ids":        &kmsg.AllocateProducerIDsResponse{},
		"another kind":  kmsg.NewPtrVoteResponse(),
	} {
		good := false
		u := newUplink(func(kmsg.Request) (kmsg.Response, error) {
			if good {
				return &kmsg.AllocateProducerIDsResponse{ProducerIDStart: 7, ProducerIDLen: 1}, nil
			}
			return resp, nil
		})
		called := 0
		u.ProducerID(func(id kafka.ProducerID, err error) {
			called++
			if id != kafka.NoProducerID || !errors.Is(err, kerr.CoordinatorLoadInProgress) {
				t.Errorf("%s: %d, %v", what, id, err)
			}
		})
		good = true
		u.ProducerID(func(id kafka.ProducerID, err error) {
			called++
			if id != 7 || err != nil {
				t.Errorf("%s, then good: %d, %v", what, id, err)
			}
		})
		if called != 2 {
			t.Errorf("%s: called %d times", what, called)
		}
	}
}

// A broker's life: it registers, is refused a while, catches up, is let in, beats, and is let go.
func TestLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		registrations, beats := 0, 0
		unfence, letGo := false, false
		u := newUplink(func(req kmsg.Request) (kmsg.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			switch q := req.(type) {
			case *kmsg.BrokerRegistrationRequest:
				if registrations++; registrations < 3 {
					return &kmsg.BrokerRegistrationResponse{ErrorCode: kerr.DuplicateBrokerRegistration.Code}, nil
				}
				return &kmsg.BrokerRegistrationResponse{BrokerEpoch: 42}, nil
			case *kmsg.BrokerHeartbeatRequest:
				beats++
				if q.BrokerEpoch != 42 || q.BrokerID != 1 {
					t.Errorf("heartbeat %+v", q)
				}
				return &kmsg.BrokerHeartbeatResponse{IsCaughtUp: q.CurrentMetadataOffset >= 10, IsFenced: !unfence || q.WantFence, ShouldShutdown: letGo && q.WantShutdown}, nil
			}
			t.Errorf("%T", req)
			return nil, errors.New("no")
		})
		u.Start()
		defer u.Close()
		await := func(s lifecycle.State) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if err := u.Await(ctx, s); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := u.Await(ctx, lifecycle.Recovery); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("caught up without metadata: %v", err)
		}
		u.MetadataApplied(10, false, -1)
		await(lifecycle.Recovery)
		if _, epoch := u.State(); epoch != 42 || registrations != 3 {
			t.Errorf("epoch %d after %d registrations", epoch, registrations)
		}
		mu.Lock()
		unfence = true
		mu.Unlock()
		u.Ready()
		u.MetadataApplied(11, true, -1)
		await(lifecycle.Running)
		mu.Lock()
		beats = 0
		mu.Unlock()
		time.Sleep(20 * time.Second) // of the bubble
		synctest.Wait()
		mu.Lock()
		if beats < 9 || beats > 11 {
			t.Errorf("%d heartbeats in 20 s, every 2 s wanted", beats)
		}
		letGo = true
		mu.Unlock()
		stop, cancelStop := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancelStop()
		if err := u.Stop(stop); err != nil {
			t.Error(err)
		}
		u.Close()
		u.Close()
		if err := u.Await(t.Context(), lifecycle.ShuttingDown); err != nil {
			t.Error(err)
		}
	})
}

// Who waits for a state when the uplink is closed is told.
func TestAwaitClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUplink(func(kmsg.Request) (kmsg.Response, error) { return nil, ErrNoController })
		u.Start()
		got := make(chan error, 1)
		go func() { got <- u.Await(t.Context(), lifecycle.Running) }()
		synctest.Wait()
		u.Close()
		if err := <-got; err == nil {
			t.Error("no error")
		}
	})
}

// AlterPartition carries this broker's id and epoch, and bring back the answer's error.
func TestRequestsOfThisBroker(t *testing.T) {
	code := int16(0)
	var last kmsg.Request
	u := newUplink(func(req kmsg.Request) (kmsg.Response, error) {
		last = req
		return &kmsg.AlterPartitionResponse{ErrorCode: code}, nil
	})
	for _, want := range []*kerr.Error{nil, kerr.StaleBrokerEpoch} {
		code = 0
		if want != nil {
			code = want.Code
		}
		check := func(err error) {
			t.Helper()
			if want == nil && err != nil || want != nil && !errors.Is(err, want) {
				t.Errorf("%T: %v, want %v", last, err, want)
			}
		}
		deadline := time.Now().Add(time.Minute)
		u.AlterPartition([]kmsg.AlterPartitionRequestTopic{{TopicID: [16]byte{1}}}, deadline, func(_ *kmsg.AlterPartitionResponse, err error) { check(err) })
		if q := last.(*kmsg.AlterPartitionRequest); q.BrokerID != 1 || len(q.Topics) != 1 {
			t.Errorf("%+v", q)
		}
	}
}
