package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

// NetConfig is how bad the network is.
type NetConfig struct {
	MinDelay, MaxDelay time.Duration
	// SlowDelay is a delay that Slow of the messages have on top: a heavy tail.
	SlowDelay time.Duration
	Slow      float64
	// Drop loses a message; its sender learns of it by its timeout.
	Drop float64
	// Duplicate lets a request arrive twice, as after a reconnect.
	Duplicate float64
	// Reset fails a request at once, as a refused connection does.
	Reset float64
}

type link struct{ from, to kafka.BrokerID }

// Net carries requests between nodes, encoded, in order for each pair of nodes.
type Net struct {
	w   *World
	cfg NetConfig
	// cut are the directions that carry nothing.
	cut map[link]bool
	// last is when the newest message of a direction arrives: no later one overtakes it.
	last    map[link]time.Time
	deliver func(from, to kafka.BrokerID, req kmsg.Request, answer func(kmsg.Response)) bool
	// versions bounds the version of each API key, for clusters with old nodes.
	versions map[int16]int16
}

var errNetwork = errors.New("connection lost")

// NewNet makes a network; deliver gives a request to a node and returns false if that node is down.
func NewNet(w *World, cfg NetConfig, deliver func(from, to kafka.BrokerID, req kmsg.Request, answer func(kmsg.Response)) bool) *Net {
	return &Net{w: w, cfg: cfg, cut: make(map[link]bool), last: make(map[link]time.Time), deliver: deliver, versions: make(map[int16]int16)}
}

// Heal makes the network good.
func (n *Net) Heal() {
	clear(n.cut)
	n.cfg = NetConfig{MinDelay: n.cfg.MinDelay, MaxDelay: n.cfg.MaxDelay}
}

// Cut stops or restores one direction.
func (n *Net) Cut(from, to kafka.BrokerID, cut bool) { n.cut[link{from, to}] = cut }

func (n *Net) arrival(from, to kafka.BrokerID) (time.Time, bool) {
	r := n.w.Rand(fmt.Sprintf("net %d>%d", from, to))
	d := n.cfg.MinDelay + time.Duration(r.Int64N(int64(n.cfg.MaxDelay-n.cfg.MinDelay)+1))
	if r.Float64() < n.cfg.Slow {
		d += time.Duration(r.Int64N(int64(n.cfg.SlowDelay) + 1))
	}
	lost := r.Float64() < n.cfg.Drop || n.cut[link{from, to}]
	t := n.w.Now.Add(d)
	if last := n.last[link{from, to}]; t.Before(last) {
		t = last
	}
	if !lost {
		n.last[link{from, to}] = t
	}
	return t, lost
}

// Send sends a request; done gets the answer or an error, once.
func (n *Net) Send(from, to kafka.BrokerID, req kmsg.Request, timeout time.Duration, done func(kmsg.Response, error)) {
	version := req.MaxVersion()
	if v, ok := n.versions[req.Key()]; ok {
		version = min(version, v)
	}
	answered := false
	finish := func(m kmsg.Response, err error) {
		if !answered {
			answered = true
			done(m, err)
		}
	}
	if v, ok := req.(*kmsg.VoteRequest); ok && version < 2 && v.Topics[0].Partitions[0].PreVote {
		n.w.After(time.Millisecond, func() { finish(nil, kerr.UnsupportedVersion) })
		return
	}
	req.SetVersion(version)
	lower(req)
	raw := req.AppendTo(nil)
	key := req.Key()
	r := n.w.Rand("net faults")
	if r.Float64() < n.cfg.Reset {
		n.w.After(time.Millisecond, func() { finish(nil, errNetwork) })
		return
	}
	copies := 1
	if r.Float64() < n.cfg.Duplicate {
		copies = 2
	}
	n.w.After(timeout, func() { finish(nil, errNetwork) })
	for range copies {
		at, lost := n.arrival(from, to)
		if lost {
			continue
		}
		n.w.At(at, func() {
			in := kmsg.RequestForKey(key)
			in.SetVersion(version)
			if err := in.ReadFrom(raw); err != nil {
				n.w.Fail("X1", "request %d v%d does not decode: %v", key, version, err)
				return
			}
			ok := n.deliver(from, to, in, func(m kmsg.Response) {
				if m == nil {
					return
				}
				n.answer(from, to, m, finish)
			})
			if !ok {
				// Nobody listens: refused.
				n.w.After(n.cfg.MinDelay, func() { finish(nil, errNetwork) })
			}
		})
	}
}

func (n *Net) answer(from, to kafka.BrokerID, m kmsg.Response, finish func(kmsg.Response, error)) {
	raw := m.AppendTo(nil)
	key, version := m.Key(), m.GetVersion()
	at, lost := n.arrival(to, from)
	if lost {
		return
	}
	n.w.At(at, func() {
		in := kmsg.ResponseForKey(key)
		in.SetVersion(version)
		if err := in.ReadFrom(raw); err != nil {
			n.w.Fail("X1", "response %d v%d does not decode: %v", key, version, err)
			return
		}
		finish(in, nil)
	})
}

// lower resets the tagged fields that a version lacks, as a peer does before it encodes.
func lower(req kmsg.Request) {
	switch m := req.(type) {
	case *kmsg.FetchRequest:
		if m.Version < 15 {
			m.ReplicaState = kmsg.NewFetchRequestReplicaState()
		}
		p := &m.Topics[0].Partitions[0]
		d := kmsg.NewFetchRequestTopicPartition()
		if m.Version < 17 {
			p.ReplicaDirectoryID = d.ReplicaDirectoryID
		}
		if m.Version < 18 {
			p.HighWatermark = d.HighWatermark
		}
	case *kmsg.FetchSnapshotRequest:
		if m.Version < 1 {
			m.Topics[0].Partitions[0].ReplicaDirectoryID = [16]byte{}
		}
	}
}
