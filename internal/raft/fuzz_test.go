package raft_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raft"
)

// FuzzDecodeControl: no control record panics; what is decoded encodes to something that decodes to the same.
func FuzzDecodeControl(f *testing.F) {
	for _, c := range []raft.ControlRecord{
		raft.LeaderChange{Leader: 1, Voters: []raft.ReplicaKey{{ID: 1}, {ID: 2}}, Granting: []raft.ReplicaKey{{ID: 1}}},
		raft.KRaftVersion(1), raft.Voters{Set: mixedVoters()},
	} {
		typ, value := raft.EncodeControl(c)
		f.Add(typ, value)
		for i := range value {
			if _, err := raft.DecodeControl(typ, value[:i]); err == nil {
				f.Errorf("%T taken with %d of %d bytes", c, i, len(value))
			}
		}
	}
	f.Fuzz(func(t *testing.T, typ int16, value []byte) {
		c, err := raft.DecodeControl(typ, value)
		if err != nil || c == nil {
			return
		}
		again, data := raft.EncodeControl(c)
		d, err := raft.DecodeControl(again, data)
		if err != nil {
			t.Fatalf("%+v does not decode again: %v", c, err)
		}
		if v, ok := c.(raft.Voters); ok && !v.Set.Equal(d.(raft.Voters).Set) {
			t.Errorf("%v became %v", c, d)
		}
	})
}

var protocolKeys = []int16{1, 52, 53, 54, 55, 59, 80, 81, 82}

// FuzzRequest: whatever comes in on a controller's listener, in every role it is answered, or parked if it is a Fetch,
// and nothing breaks. Epochs may go up by it; the high watermark may not.
func FuzzRequest(f *testing.F) {
	add := func(m kmsg.Request) {
		m.SetVersion(m.MaxVersion())
		f.Add(uint8(0), m.Key(), m.MaxVersion(), m.AppendTo(nil))
	}
	for _, key := range protocolKeys {
		add(kmsg.RequestForKey(key))
	}
	now := time.UnixMilli(1_000_000)
	for _, s := range mixedNode(now, 2, 7, raft.Election{Epoch: 1, Leader: 3, Voted: none()}).Ready().Send {
		add(s.Msg)
	}
	f.Fuzz(func(t *testing.T, role uint8, key, version int16, body []byte) {
		m := kmsg.RequestForKey(key)
		if m == nil || version < 0 || version > m.MaxVersion() {
			return
		}
		m.SetVersion(version)
		if m.ReadFrom(body) != nil {
			return
		}
		var r *raft.Raft
		switch role % 4 {
		case 0:
			r = mixedNode(now, 2, 7, raft.Election{Epoch: 1, Leader: 3, Voted: none()})
		case 1:
			r = mixedNode(now, 2, 7, raft.Election{Epoch: 1, Leader: 2, Voted: none()})
		case 2:
			r = elected(&testing.T{}, now, 2, 7, 1)
		case 3:
			r = mixedNode(now, 2, 0, raft.Election{Leader: kafka.NoBroker, Voted: none()})
		}
		r.Ready()
		before := r.Status()
		if err := r.Step(now, raft.Request{ID: 1, Listener: "CONTROLLER", Msg: m}); err != nil {
			t.Fatal(err)
		}
		rd := r.Ready()
		if err := r.Step(now.Add(100*time.Hour), raft.Tick{}); err != nil {
			t.Fatal(err)
		}
		rd2 := r.Ready()
		known := false
		for _, k := range protocolKeys {
			known = known || k == key
		}
		answers := 0
		for _, p := range append(rd.Reply, rd2.Reply...) {
			if p.ID == 1 {
				answers++
			}
		}
		if after := r.Status(); after.HighWatermark != before.HighWatermark && after.Role != raft.Leader || after.Epoch < before.Epoch {
			t.Errorf("%+v became %+v", before, after)
		}
		if known && answers != 1 {
			t.Errorf("%d answers to %T", answers, m)
		}
	})
}

// FuzzResponse: whatever another node answers, nothing breaks.
func FuzzResponse(f *testing.F) {
	now := time.UnixMilli(1_000_000)
	for _, key := range protocolKeys {
		m := kmsg.ResponseForKey(key)
		m.SetVersion(m.MaxVersion())
		f.Add(uint8(0), key, m.MaxVersion(), m.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, role uint8, key, version int16, body []byte) {
		m := kmsg.ResponseForKey(key)
		if m == nil || version < 0 || version > m.MaxVersion() {
			return
		}
		m.SetVersion(version)
		if m.ReadFrom(body) != nil {
			return
		}
		r := mixedNode(now, 2, 7, raft.Election{Epoch: 1, Leader: 3, Voted: none()})
		if role%2 == 1 {
			r.Ready()
			if err := r.Step(now.Add(3*time.Second), raft.Tick{}); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range r.Ready().Send {
			if err := r.Step(now.Add(3*time.Second), raft.Response{Corr: s.Corr, Msg: m}); err != nil {
				t.Fatal(err)
			}
		}
	})
}
