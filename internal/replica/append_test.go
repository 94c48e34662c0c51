package replica

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/schema"
	"github.com/highwater/highwater/internal/vfs"
)

// watch counts what a long poll is told.
func watch(r *Replica, log bool) (w *Watch, told *int) {
	told = new(int)
	w = &Watch{Notify: func() { *told++ }, Log: log}
	r.Watch(w)
	return w, told
}

func wantState(t *testing.T, what string, s *sent, want string) {
	t.Helper()
	if got := s.state(); got != want {
		t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// Alone, everything is committed at once, and an ack is settled before Append returns.
func TestAppendAlone(t *testing.T) {
	w := newWorld(t)
	r := w.led()
	consumer, told := watch(r, false)
	for i, acks := range []int16{0, 1, -1} {
		s := appendTo(t, r, acks, batch(t, 2, t0.UnixMilli(), -1, 0))
		if s.err != nil || s.FirstOffset != int64(2*i) || s.LastOffset != int64(2*i+1) || r.HighWatermark() != int64(2*i+2) {
			t.Errorf("acks %d: %+v, %v, high watermark %d", acks, s.Appended, s.err, r.HighWatermark())
		}
		if acks == -1 {
			wantState(t, "alone", s, "ok")
			if s.woken != 0 {
				t.Error("woken though it was settled before Seal")
			}
		}
		if *told != i+1 {
			t.Errorf("consumer told %d times after %d appends", *told, i+1)
		}
	}
	consumer.Unwatch()
	consumer.Unwatch()
	appendTo(t, r, 1, batch(t, 1, t0.UnixMilli(), -1, 0))
	if *told != 3 {
		t.Error("told after Unwatch")
	}
}

// With followers, acks=-1 waits until all in the ISR have the records, in the order of offsets.
func TestAppendReplicated(t *testing.T) {
	w := newWorld(t)
	r := w.led(2, 3)
	consumer, consumerTold := watch(r, false)
	follower, followerTold := watch(r, true)
	defer consumer.Unwatch()
	defer follower.Unwatch()
	one := appendTo(t, r, -1, batch(t, 2, t0.UnixMilli(), -1, 0))
	two := appendTo(t, r, -1, batch(t, 3, t0.UnixMilli(), -1, 0))
	if s := appendTo(t, r, 1, batch(t, 1, t0.UnixMilli(), -1, 0)); s.err != nil || s.LastOffset != 5 {
		t.Errorf("acks=1: %+v, %v", s.Appended, s.err)
	}
	if *consumerTold != 0 || *followerTold != 3 || r.HighWatermark() != 0 {
		t.Errorf("told %d and %d, high watermark %d", *consumerTold, *followerTold, r.HighWatermark())
	}
	step := func(id kafka.BrokerID, offset, hw kafka.Offset, first, second string) {
		t.Helper()
		out, err := w.fetch(r, id, offset)
		if err != nil || out.HighWatermark != hw || r.HighWatermark() != hw {
			t.Errorf("fetch of %d at %d: high watermark %d, told %d, %v", id, offset, r.HighWatermark(), out.HighWatermark, err)
		}
		wantState(t, "first", one, first)
		wantState(t, "second", two, second)
	}
	step(2, 2, 0, "open", "open")
	step(3, 0, 0, "open", "open")
	step(3, 2, 2, "ok", "open")
	step(2, 6, 2, "ok", "open")
	step(3, 4, 4, "ok", "open")
	step(3, 5, 5, "ok", "ok")
	step(3, 6, 6, "ok", "ok")
	if one.woken != 1 || two.woken != 1 || *consumerTold != 4 {
		t.Errorf("woken %d and %d, consumer told %d", one.woken, two.woken, *consumerTold)
	}
	if r.Log().HighWatermark() != 6 {
		t.Errorf("the log's high watermark is %d", r.Log().HighWatermark())
	}
	_, err := w.fetch(r, 9, 0)
	wantErr(t, "fetch of a broker that is no replica", err, kerr.NotLeaderOrFollower)
}

// Below min.insync.replicas acks=-1 is refused before the append, acks=1 is not, and what was appended before waits until the
// ISR is large enough again.
func TestAppendMinISR(t *testing.T) {
	w := newWorld(t)
	w.config.MinISR = 2
	r := w.led(2)
	s := appendTo(t, r, -1, batch(t, 1, t0.UnixMilli(), -1, 0))
	w.apply(change(1, 0, func(c *schema.PartitionChangeRecord) { c.ISR = []int32{self} }))
	wantState(t, "after the ISR shrank", s, "open")
	if r.HighWatermark() != 0 {
		t.Errorf("high watermark %d below min.insync.replicas", r.HighWatermark())
	}
	refused := appendTo(t, r, -1, batch(t, 1, t0.UnixMilli(), -1, 0))
	wantErr(t, "acks=-1", refused.err, kerr.NotEnoughReplicas)
	if s := appendTo(t, r, 1, batch(t, 1, t0.UnixMilli(), -1, 0)); s.err != nil || s.FirstOffset != 1 {
		t.Errorf("acks=1: %+v, %v", s.Appended, s.err)
	}
	if _, err := w.fetch(r, 2, 2); err != nil {
		t.Fatal(err)
	}
	wantState(t, "fetched by a follower outside the ISR", s, "open")
	if len(w.alters) != 1 || len(w.alters[0].ISR) != 2 || w.alters[0].ISR[1].Epoch != 102 {
		t.Fatalf("alters %+v", w.alters)
	}
	// The controller says no, then yes.
	r.Altered(t0, 0, nil, 0, false, kerr.InvalidUpdateVersion)
	if _, err := w.fetch(r, 2, 2); err != nil || len(w.alters) != 2 {
		t.Fatalf("%d alters, %v", len(w.alters), err)
	}
	r.Altered(t0, 5, []kafka.BrokerID{self, 2}, 2, false, nil)
	wantState(t, "an answer for another epoch", s, "open")
	r.Altered(t0, 0, []kafka.BrokerID{self, 2}, 2, false, nil)
	wantState(t, "the ISR is large enough", s, "ok")
	if s.woken != 1 || r.HighWatermark() != 2 {
		t.Errorf("woken %d, high watermark %d", s.woken, r.HighWatermark())
	}
	// min.insync.replicas of 1 would have done as well.
	w.apply(change(1, 0, func(c *schema.PartitionChangeRecord) { c.ISR = []int32{self} }))
	s = appendTo(t, r, 1, batch(t, 1, t0.UnixMilli(), -1, 0))
	w.config.MinISR = 1
	w.set.Configure(t0, w.set.Image(), "a")
	if s.err != nil || r.HighWatermark() != 2 {
		t.Errorf("%v, high watermark %d: follower 2 catches up still", s.err, r.HighWatermark())
	}
	if _, err := w.fetch(r, 2, 3); err != nil || r.HighWatermark() != 3 {
		t.Errorf("%v, high watermark %d", err, r.HighWatermark())
	}
}

// A follower that stops fetching is dropped from the ISR by Tick, and then holds nothing back.
func TestTickDropsFollower(t *testing.T) {
	w := newWorld(t)
	r := w.led(2)
	s := appendTo(t, r, -1, batch(t, 1, t0.UnixMilli(), -1, 0))
	r.Tick(t0.Add(30e9))
	if len(w.alters) != 0 {
		t.Fatalf("dropped after %v", w.alters)
	}
	r.Tick(t0.Add(30e9 + 1))
	if len(w.alters) != 1 || len(w.alters[0].ISR) != 1 || w.alters[0].ISR[0].ID != self {
		t.Fatalf("alters %+v", w.alters)
	}
	wantState(t, "before the controller's answer", s, "open")
	r.Altered(t0.Add(31e9), 0, []kafka.BrokerID{self}, 1, false, nil)
	wantState(t, "after it", s, "ok")
}

// Whoever waits when the leadership ends gets NOT_LEADER_OR_FOLLOWER, and those who watch are told.
func TestLeadershipLost(t *testing.T) {
	for what, lose := range map[string]func(w *world){
		"another leader": func(w *world) {
			w.apply(change(1, 0, func(c *schema.PartitionChangeRecord) { c.Leader = 2 }))
		},
		"no leader": func(w *world) {
			w.apply(change(1, 0, func(c *schema.PartitionChangeRecord) { c.Leader = -1 }))
		},
		"moved away": func(w *world) {
			w.apply(change(1, 0, func(c *schema.PartitionChangeRecord) { c.Replicas, c.ISR, c.Leader = []int32{2}, []int32{2}, 2 }))
		},
		"deleted": func(w *world) {
			r := schema.NewRemoveTopicRecord()
			r.TopicID = topicID(1)
			w.apply(r)
		},
	} {
		w := newWorld(t)
		r := w.led(2)
		_, consumer := watch(r, false)
		_, follower := watch(r, true)
		s := appendTo(t, r, -1, batch(t, 1, t0.UnixMilli(), -1, 0))
		*follower = 0
		lose(w)
		if settled, err := s.ack.Result(); !settled || !errors.Is(err, kerr.NotLeaderOrFollower) || s.woken != 1 {
			t.Errorf("%s: settled %v, %v, woken %d", what, settled, err, s.woken)
		}
		if *consumer != 1 || *follower != 1 {
			t.Errorf("%s: told %d and %d", what, *consumer, *follower)
		}
		wantErr(t, what, appendTo(t, r, -1, batch(t, 1, 0, -1, 0)).err, kerr.NotLeaderOrFollower)
	}
}

// A duplicate gets the first time's offsets and waits like the first time, also between appends that wait behind it.
func TestDuplicate(t *testing.T) {
	w := newWorld(t)
	r := w.led(2)
	first := appendTo(t, r, -1, batch(t, 2, t0.UnixMilli(), 7, 0))
	later := appendTo(t, r, -1, batch(t, 2, t0.UnixMilli(), 7, 2))
	again := appendTo(t, r, -1, batch(t, 2, t0.UnixMilli(), 7, 0))
	if again.err != nil || !again.Duplicate || again.FirstOffset != 0 || again.LastOffset != 1 || r.Log().EndOffset() != 4 {
		t.Errorf("%+v, %v; the log ends at %d", again.Appended, again.err, r.Log().EndOffset())
	}
	wantState(t, "duplicate before replication", again, "open")
	if _, err := w.fetch(r, 2, 2); err != nil {
		t.Fatal(err)
	}
	wantState(t, "first", first, "ok")
	wantState(t, "duplicate", again, "ok")
	wantState(t, "later", later, "open")
	if s := appendTo(t, r, -1, batch(t, 2, t0.UnixMilli(), 7, 0)); s.err != nil || s.state() != "ok" {
		t.Errorf("a duplicate of what is committed: %v, %s", s.err, s.state())
	}
	wantErr(t, "a gap", appendTo(t, r, -1, batch(t, 1, t0.UnixMilli(), 7, 9)).err, kerr.OutOfOrderSequenceNumber)
}

// What an appender believes of the epoch is checked.
func TestAppendFenced(t *testing.T) {
	w := newWorld(t)
	r := w.led()
	w.apply(change(1, 0, func(c *schema.PartitionChangeRecord) { c.Leader = self; c.ISR = []int32{self} }))
	_, epoch := r.Leads()
	o := r.Log().Config().Validation(r.Partition(), record.Client, t0)
	for delta, want := range map[kafka.LeaderEpoch]*kerr.Error{-1: kerr.FencedLeaderEpoch, 0: nil, 1: kerr.UnknownLeaderEpoch} {
		v, err := record.Validate(batch(t, 1, t0.UnixMilli(), -1, 0), &o)
		if err != nil {
			t.Fatal(err)
		}
		if epoch+delta >= 0 {
			_, err = r.Append(t0, v, AppendOptions{Acks: 1, Epoch: epoch + delta}, nil)
			wantErr(t, "append", err, want)
		}
		v.Release()
	}
}

// A disk that refuses a write or a sync takes the replica offline: everybody who waits gets KAFKA_STORAGE_ERROR, those who
// watch are told, nothing is served any more.
func TestDiskFails(t *testing.T) {
	for what, kind := range map[string]vfs.OpKind{"write": vfs.OpWrite, "sync": vfs.OpSync} {
		w := newWorld(t)
		if kind == vfs.OpSync {
			w.config.Log.FlushMessages = 2
		}
		r := w.led(2)
		first := appendTo(t, r, -1, batch(t, 1, t0.UnixMilli(), -1, 0))
		if first.err != nil {
			t.Fatal(first.err)
		}
		_, consumer := watch(r, false)
		_, follower := watch(r, true)
		broken := errors.New("bad block")
		w.fsys.SetFault(func(o vfs.Op) error {
			if o.Kind == kind {
				return broken
			}
			return nil
		})
		second := appendTo(t, r, -1, batch(t, 1, t0.UnixMilli(), -1, 0))
		wantErr(t, what, second.err, kerr.KafkaStorageError)
		if _, err := first.ack.Result(); !errors.Is(err, kerr.KafkaStorageError) || first.woken != 1 {
			t.Errorf("%s: the first append got %v, woken %d", what, err, first.woken)
		}
		if *consumer != 1 || *follower != 1 || len(w.failed) != 1 || !errors.Is(w.failed[0], broken) {
			t.Errorf("%s: told %d and %d, failed %v", what, *consumer, *follower, w.failed)
		}
		w.fsys.SetFault(nil)
		wantErr(t, what+", then append", appendTo(t, r, 1, batch(t, 1, 0, -1, 0)).err, kerr.KafkaStorageError)
		_, err := w.fetch(r, 2, 0)
		wantErr(t, what+", then read", err, kerr.KafkaStorageError)
		_, _, err = r.Offset(Reader{Follower: -1}, -1, LatestTimestamp)
		wantErr(t, what+", then offset", err, kerr.KafkaStorageError)
		if got := r.Available(Reader{Follower: -1}, 0, -1, 99); got != 99 {
			t.Errorf("%s: a poll would wait: %d", what, got)
		}
		// The metadata doesn't bring it back.
		w.apply(change(1, 0, func(c *schema.PartitionChangeRecord) { c.Leader = self }))
		wantErr(t, what+", then led again", appendTo(t, r, 1, batch(t, 1, 0, -1, 0)).err, kerr.KafkaStorageError)
		if len(w.failed) != 1 {
			t.Errorf("%s: failed %d times", what, len(w.failed))
		}
	}
}

// With flush.messages=1 nothing is acknowledged, nor counted as committed, before it is synced; appenders at once share syncs
// and their acks come in order.
func TestFlushEveryAppend(t *testing.T) {
	w := newWorld(t)
	w.config.Log.FlushMessages = 1
	r := w.led()
	s := appendTo(t, r, -1, batch(t, 1, t0.UnixMilli(), -1, 0))
	wantState(t, "alone", s, "ok")
	if p := r.Log().RecoveryPoint(); p != 1 {
		t.Errorf("recovery point %d", p)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				s := appendTo(t, r, -1, batch(t, 1, t0.UnixMilli(), -1, 0))
				if settled, err := s.ack.Result(); s.err != nil || !settled || err != nil || r.Log().RecoveryPoint() <= s.LastOffset {
					t.Errorf("append at %d: %v, settled %v with %v, recovery point %d", s.LastOffset, s.err, settled, err, r.Log().RecoveryPoint())
				}
				if hw, p := r.HighWatermark(), r.Log().RecoveryPoint(); hw > p {
					t.Errorf("high watermark %d is above the recovery point %d", hw, p)
				}
			}
		})
	}
	wg.Wait()
	if r.HighWatermark() != 161 {
		t.Errorf("high watermark %d", r.HighWatermark())
	}
}

// A leadership that ends while an append is synced fails it.
func TestFlushLosesLeadership(t *testing.T) {
	w := newWorld(t)
	w.config.Log.FlushMessages = 1
	r := w.led(2)
	lost := false
	w.fsys.SetFault(func(o vfs.Op) error {
		if o.Kind == vfs.OpSync && !lost {
			lost = true
			w.apply(change(1, 0, func(c *schema.PartitionChangeRecord) { c.Leader = 2 }))
		}
		return nil
	})
	wantErr(t, "append", appendTo(t, r, -1, batch(t, 1, t0.UnixMilli(), -1, 0)).err, kerr.NotLeaderOrFollower)
	if !lost {
		t.Error("nothing was synced")
	}
}

// ackQueue settles by offset whatever the order of the pushes, each once.
func TestAckQueue(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 300 {
		var q ackQueue
		var all []*Ack
		woken := 0
		hw := kafka.Offset(0)
		for step := range 60 {
			switch n := rng.IntN(10); {
			case n < 6:
				a := &Acks{}
				a.Reset(1, func() { woken++ })
				k := a.Add()
				a.Seal()
				k.end = hw + 1 + int64(rng.IntN(10))
				if n < 4 {
					k.end = hw + int64(step) + 10
				}
				q.push(k)
				all = append(all, k)
			case n < 9:
				hw += int64(rng.IntN(5))
				q.settle(hw, func() error { return nil })
			case n == 9 && rng.IntN(10) == 0:
				q.fail(kerr.NotLeaderOrFollower)
			}
			open := 0
			for _, k := range all {
				settled, err := k.Result()
				if !settled {
					open++
				}
				if !settled && k.end <= hw || settled && err == nil && k.end > hw {
					t.Fatalf("round %d: end %d is settled %v at %d", round, k.end, settled, hw)
				}
			}
			if open != q.n || woken != len(all)-open {
				t.Fatalf("round %d: %d are open, %d queued, %d of %d woken", round, open, q.n, woken, len(all))
			}
			var ends []kafka.Offset
			for i := range q.n {
				ends = append(ends, q.ring[(q.head+i)&(len(q.ring)-1)].end)
			}
			if !slices.IsSorted(ends) {
				t.Fatalf("round %d: %v", round, ends)
			}
		}
	}
}
