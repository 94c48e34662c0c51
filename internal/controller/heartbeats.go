package controller

import (
	"math"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/schema"
	"github.com/tidwall/btree"
)

// heartbeats is what this controller heard from the brokers. It is not in the log: a new controller counts every session
// from its own beginning.
type heartbeats struct {
	brokers btree.Map[kafka.BrokerID, *pulse]
}

// pulse is one broker's.
type pulse struct {
	last     time.Time    // when it was heard, or registered
	offset   kafka.Offset // of the metadata that it has, as it told last
	recorded kafka.Offset // of its registration, as far as it is known; its epoch, else
	heard    bool         // in this epoch, not only in that of a controller before
	shutdown kafka.Offset // up to where others must have the metadata before it may stop; -1: not shutting down
}

func (h *heartbeats) begin(base *metadata.Image, now time.Time) {
	for b := range base.Brokers() {
		h.brokers.Set(b.ID, &pulse{last: now, offset: -1, recorded: kafka.Offset(b.Epoch), shutdown: -1})
	}
}

func (h *heartbeats) replay(at kafka.Offset, r schema.Record, now time.Time) {
	switch r := r.(type) {
	case *schema.RegisterBrokerRecord:
		h.brokers.Set(kafka.BrokerID(r.BrokerID), &pulse{last: now, offset: -1, recorded: at, shutdown: -1, heard: true})
	case *schema.UnregisterBrokerRecord:
		h.brokers.Delete(kafka.BrokerID(r.BrokerID))
	case *schema.BrokerRegistrationChangeRecord:
		h.fenced(r.BrokerID, r.Fenced == 1)
	case *schema.FenceBrokerRecord:
		h.fenced(r.ID, true)
	}
}

func (h *heartbeats) fenced(id int32, yes bool) {
	if p := h.get(kafka.BrokerID(id)); yes && p != nil {
		p.shutdown = -1
	}
}

func (h *heartbeats) get(id kafka.BrokerID) *pulse {
	p, _ := h.brokers.Get(id)
	return p
}

func (h *heartbeats) shuttingDown(id kafka.BrokerID) bool {
	p := h.get(id)
	return p != nil && p.shutdown >= 0
}

// lowestActive is the metadata that every active broker has.
func (h *heartbeats) lowestActive(img *metadata.Image) kafka.Offset {
	low := kafka.Offset(math.MaxInt64)
	for b := range img.Brokers() {
		if p := h.get(b.ID); p != nil && !b.Fenced && p.shutdown < 0 {
			low = min(low, p.offset)
		}
	}
	return low
}

// stale is the unfenced broker that was silent longest, if it is for longer than the session.
func (h *heartbeats) stale(img *metadata.Image, session time.Duration, now time.Time) (kafka.BrokerID, bool) {
	found := kafka.NoBroker
	var since time.Time
	for b := range img.Brokers() {
		p := h.get(b.ID)
		if b.Fenced || p == nil || !now.After(p.last.Add(session)) {
			continue
		}
		if found == kafka.NoBroker || p.last.Before(since) {
			found, since = b.ID, p.last
		}
	}
	return found, found != kafka.NoBroker
}
