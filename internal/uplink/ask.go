package uplink

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kerr"
)

const (
	askBackoffFirst = 20 * time.Millisecond // as controller.quorum.retry.backoff.ms
	askBackoffMax   = 500 * time.Millisecond
)

// ErrTimedOut means that no controller answered in time. Whether it did what it was asked is not known.
var ErrTimedOut = kerr.RequestTimedOut.With("no controller answered in time")

// Ask sends a request to the active controller and calls done once, from any goroutine: with the answer, or with
// ErrTimedOut at the latest at deadline. It asks again when there is no controller, when the node asked is none any more,
// and when the connection broke before an answer came; so the request must bear being done twice.
func (u *Uplink) Ask(req kmsg.Request, deadline time.Time, done func(kmsg.Response, error)) {
	u.ask(req, deadline, askBackoffFirst, done)
}

func (u *Uplink) ask(req kmsg.Request, deadline time.Time, backoff time.Duration, done func(kmsg.Response, error)) {
	left := time.Until(deadline)
	if left <= 0 {
		done(nil, ErrTimedOut)
		return
	}
	u.opts.Controller(req, min(left, u.opts.RequestTimeout), func(m kmsg.Response, err error) {
		if err == nil && topCode(m) != kerr.NotController.Code {
			done(m, nil)
			return
		}
		select {
		case <-u.stop:
			done(nil, ErrTimedOut)
			return
		default:
		}
		if time.Until(deadline) <= backoff {
			done(nil, ErrTimedOut)
			return
		}
		time.AfterFunc(backoff, func() { u.ask(req, deadline, min(2*backoff, askBackoffMax), done) })
	})
}

// topCode is the error code of a whole answer, of the kinds that Ask is used for.
func topCode(m kmsg.Response) int16 {
	switch m := m.(type) {
	case *kmsg.EnvelopeResponse:
		return m.ErrorCode
	case *kmsg.AlterPartitionResponse:
		return m.ErrorCode
	case *kmsg.AllocateProducerIDsResponse:
		return m.ErrorCode
	case *kmsg.AssignReplicasToDirsResponse:
		return m.ErrorCode
	case *kmsg.BrokerRegistrationResponse:
		return m.ErrorCode
	case *kmsg.BrokerHeartbeatResponse:
		return m.ErrorCode
	}
	return 0
}

// AlterPartition asks the controller for new ISRs of any number of partitions.
func (u *Uplink) AlterPartition(topics []kmsg.AlterPartitionRequestTopic, deadline time.Time, done func(*kmsg.AlterPartitionResponse, error)) {
	req := kmsg.NewPtrAlterPartitionRequest()
	_, epoch := u.State()
	req.BrokerID, req.BrokerEpoch, req.Topics = u.opts.Registration.BrokerID, int64(epoch), topics
	u.Ask(req, deadline, func(m kmsg.Response, err error) {
		resp, ok := m.(*kmsg.AlterPartitionResponse)
		switch {
		case err != nil:
		case !ok:
			err = errors.New("the answer to AlterPartition is of another kind")
		default:
			err = kerr.ForCode(resp.ErrorCode)
		}
		done(resp, err)
	})
}
