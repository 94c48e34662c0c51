package uplink

import (
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

// producerIDs hands out ids from blocks of 1000 that the controller allots to this broker. The next block is fetched when
// a tenth of the current one is left, so that nobody waits for it.
type producerIDs struct {
	uplink *Uplink

	mu       sync.Mutex
	next     kafka.ProducerID
	end      kafka.ProducerID // exclusive
	later    [2]kafka.ProducerID
	fetching bool
	waiting  []func(kafka.ProducerID, error)
}

// errNoBlock means that an answer holds no ids; to ask again at once would go on for ever.
var errNoBlock = errors.New("the controller's answer holds no producer ids")

// prefetchBelow is how many ids are left when the next block is fetched (Kafka: a tenth of a block).
const prefetchBelow = 100

// ProducerID calls done with an id that no producer has had: at once, or when the controller has answered. If that takes
// too long done gets COORDINATOR_LOAD_IN_PROGRESS, which clients retry.
func (u *Uplink) ProducerID(done func(kafka.ProducerID, error)) {
	p := &u.producerIDs
	p.mu.Lock()
	if p.next == p.end {
		p.next, p.end, p.later = p.later[0], p.later[1], [2]kafka.ProducerID{}
	}
	if p.next < p.end {
		id := p.next
		p.next++
		fetch := p.wantLocked()
		p.mu.Unlock()
		if fetch {
			p.fetch()
		}
		done(id, nil)
		return
	}
	p.waiting = append(p.waiting, done)
	fetch := p.wantLocked()
	p.mu.Unlock()
	if fetch {
		p.fetch()
	}
}

// wantLocked tells whether the next block is to be fetched; then the caller does so, without the lock.
func (p *producerIDs) wantLocked() bool {
	if p.fetching || p.later[1] > 0 || p.end-p.next > prefetchBelow {
		return false
	}
	p.fetching = true
	return true
}

func (p *producerIDs) fetch() {
	u := p.uplink
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	_, epoch := u.State()
	req.BrokerID, req.BrokerEpoch = u.opts.Registration.BrokerID, int64(epoch)
	u.Ask(req, time.Now().Add(u.opts.RequestTimeout), p.fetched)
}

func (p *producerIDs) fetched(m kmsg.Response, err error) {
	if resp, ok := m.(*kmsg.AllocateProducerIDsResponse); err == nil {
		switch {
		case !ok:
			err = errNoBlock
		case resp.ErrorCode != 0:
			err = kerr.ForCode(resp.ErrorCode)
		case resp.ProducerIDStart < 0 || resp.ProducerIDLen <= 0:
			err = errNoBlock
		default:
			p.mu.Lock()
			p.later = [2]kafka.ProducerID{resp.ProducerIDStart, resp.ProducerIDStart + int64(resp.ProducerIDLen)}
			p.mu.Unlock()
		}
	}
	p.mu.Lock()
	p.fetching = false
	waiting := p.waiting
	p.waiting = nil
	p.mu.Unlock()
	for _, done := range waiting {
		if err != nil {
			done(kafka.NoProducerID, kerr.CoordinatorLoadInProgress.With("no block of producer ids: %v", err))
			continue
		}
		p.uplink.ProducerID(done)
	}
}
