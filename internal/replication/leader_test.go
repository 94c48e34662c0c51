package replication

// Shows the rules of the ISR and the high watermark on one partition with three replicas, 1 leading, by hand-written
// histories; and by random ones that I1 to I3 hold at every step.

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

type ids = []kafka.BrokerID

var t0 = time.Unix(1700000000, 0)

func at(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

func alive(kafka.BrokerID) (Broker, bool) { return Broker{Epoch: 7}, true }

func leader(t *testing.T, isr ids, minISR int, logEnd, hw int64, cluster Cluster) *Leader {
	t.Helper()
	return NewLeader(LeaderOptions{ID: 1, MinISR: minISR, LagMax: 30 * time.Second, Cluster: cluster},
		Partition{Replicas: ids{1, 2, 3}, ISR: isr, Leader: 1, LeaderEpoch: 4, PartitionEpoch: 9}, logEnd, hw, at(0))
}

func wantHW(t *testing.T, l *Leader, want int64) {
	t.Helper()
	if l.HighWatermark() != want {
		t.Fatalf("high watermark is %d, want %d", l.HighWatermark(), want)
	}
}

func members(c *ISRChange) ids {
	if c == nil {
		return nil
	}
	var out ids
	for _, m := range c.ISR {
		out = append(out, m.ID)
	}
	return out
}

func TestHighWatermarkWaitsForEveryMember(t *testing.T) {
	l := leader(t, ids{1, 2, 3}, 2, 0, 0, alive)
	l.Appended(10, at(1))
	wantHW(t, l, 0)
	l.FollowerFetched(at(1), 2, 7, 10, 0, 10)
	wantHW(t, l, 0)
	e := l.FollowerFetched(at(1), 3, 7, 6, 0, 10)
	if !e.Advanced || e.HighWatermark != 6 {
		t.Fatalf("effects %+v, want an advance to 6", e)
	}
	l.FollowerFetched(at(1), 3, 7, 10, 0, 10)
	wantHW(t, l, 10)
}

func TestOnlyReplicaAdvancesAtOnce(t *testing.T) {
	l := NewLeader(LeaderOptions{ID: 1, MinISR: 2, LagMax: time.Second, Cluster: alive},
		Partition{Replicas: ids{1}, ISR: ids{1}, Leader: 1}, 5, 3, at(0))
	if err := l.CheckAppend(-1); err != nil {
		t.Fatalf("min.insync.replicas 2 with one replica counts as 1, got %v", err)
	}
	if e := l.Appended(8, at(0)); !e.Advanced || e.HighWatermark != 8 {
		t.Fatalf("effects %+v, want an advance to 8", e)
	}
}

func TestUnderMinISR(t *testing.T) {
	l := leader(t, ids{1}, 2, 5, 5, alive)
	if err := l.CheckAppend(-1); kerr.Code(err) != kerr.NotEnoughReplicas.Code {
		t.Fatalf("acks=all got %v", err)
	}
	if err := l.CheckAppend(1); err != nil {
		t.Fatalf("acks=1 got %v", err)
	}
	l.Appended(9, at(1))
	wantHW(t, l, 5) // I3
	if err := l.CheckAck(); kerr.Code(err) != kerr.NotEnoughReplicasAfterAppend.Code {
		t.Fatalf("ack got %v", err)
	}
	l.SetMinISR(1, at(2))
	wantHW(t, l, 9)
}

func TestShrinkAfterLagAndGrowAgain(t *testing.T) {
	l := leader(t, ids{1, 2, 3}, 1, 0, 0, alive)
	l.Appended(10, at(1))
	l.FollowerFetched(at(2), 2, 7, 10, 0, 10)
	if e := l.Tick(at(30)); e.Alter != nil {
		t.Fatalf("dropped %v before the lag was over", e.Alter)
	}
	e := l.Tick(at(31))
	if got := members(e.Alter); !slices.Equal(got, ids{1, 2}) {
		t.Fatalf("proposes %v, want 1 and 2", got)
	}
	if e.Alter.ISR[1].Epoch != 7 || e.Alter.ISR[0].Epoch != 7 {
		t.Fatalf("broker epochs %v", e.Alter.ISR)
	}
	wantHW(t, l, 0) // 3 is a member until the controller says otherwise
	if l.Tick(at(60)).Alter != nil {
		t.Fatal("I4: a second change while one is under way")
	}
	l.Altered(ids{1, 2}, 10, false, at(61))
	wantHW(t, l, 10)

	l.FollowerFetched(at(62), 3, 7, 4, 0, 10)
	e = l.FollowerFetched(at(62), 3, 7, 10, 0, 10)
	if got := members(e.Alter); !slices.Equal(got, ids{1, 2, 3}) {
		t.Fatalf("proposes %v, want all", got)
	}
	l.Appended(12, at(63))
	l.FollowerFetched(at(63), 2, 7, 12, 0, 12)
	wantHW(t, l, 10) // I2: 3 may already be electable
	l.AlterFailed()
	wantHW(t, l, 10)
}

func TestWhoMayJoin(t *testing.T) {
	for name, b := range map[string]Broker{
		"fenced":              {Epoch: 7, Fenced: true},
		"controlled shutdown": {Epoch: 7, ControlledShutdown: true},
		"restarted since":     {Epoch: 8},
	} {
		l := leader(t, ids{1}, 1, 5, 5, func(id kafka.BrokerID) (Broker, bool) {
			if id == 2 {
				return b, true
			}
			return alive(id)
		})
		if e := l.FollowerFetched(at(1), 2, 7, 5, 0, 5); e.Alter != nil {
			t.Errorf("%s: proposes %v", name, members(e.Alter))
		}
		l.Appended(6, at(2))
		if l.HighWatermark() != 6 {
			t.Errorf("%s: holds the high watermark back at %d", name, l.HighWatermark())
		}
	}
	l := leader(t, ids{1}, 1, 5, 3, alive) // the epoch starts at 5, the high watermark is 5 at once with one member
	if e := l.FollowerFetched(at(1), 2, 7, 4, 0, 5); e.Alter != nil {
		t.Errorf("a follower before the start of the epoch joins: %v", members(e.Alter))
	}
	if e := l.FollowerFetched(at(1), 9, 7, 5, 0, 5); e.Alter != nil {
		t.Errorf("a broker that is no replica joins: %v", members(e.Alter))
	}
}

func TestUncleanLeaderReportsRecovered(t *testing.T) {
	l := NewLeader(LeaderOptions{ID: 1, MinISR: 1, LagMax: time.Second, Cluster: alive},
		Partition{Replicas: ids{1, 2}, ISR: ids{1}, Leader: 1, Recovering: true}, 5, 3, at(0))
	e := l.Tick(at(1))
	if e.Alter == nil || !e.Alter.Recovered {
		t.Fatalf("effects %+v, want a change to RECOVERED", e)
	}
	l.Altered(ids{1}, 1, false, at(1))
	if l.Partition().Recovering || l.Pending() {
		t.Fatal("still recovering")
	}
}

// TestInvariantsUnderRandomHistories runs followers that fetch, stall and are dropped, and a controller that answers late,
// refuses or commits. After each step it recomputes the bound on the high watermark from the followers' real ends.
func TestInvariantsUnderRandomHistories(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		minISR := 1 + r.IntN(3)
		l := leader(t, ids{1, 2, 3}, minISR, 0, 0, alive)
		ends := map[kafka.BrokerID]int64{2: 0, 3: 0}
		committed, epoch := ids{1, 2, 3}, kafka.PartitionEpoch(9)
		var logEnd, lastHW int64
		var sent *ISRChange
		now := 0
		for step := range 300 {
			now += r.IntN(9)
			var e Effects
			switch r.IntN(5) {
			case 0:
				logEnd += int64(r.IntN(5))
				e = l.Appended(logEnd, at(now))
			case 1, 2:
				id := kafka.BrokerID(2 + r.IntN(2))
				e = l.FollowerFetched(at(now), id, 7, ends[id], 0, logEnd)
				ends[id] = min(logEnd, ends[id]+int64(r.IntN(6))) // what it will have when it asks next
			case 3:
				e = l.Tick(at(now))
			case 4:
				if sent == nil {
					continue
				}
				if r.IntN(4) == 0 {
					l.AlterFailed()
				} else {
					committed, epoch = members(sent), epoch+1
					e = l.Altered(committed, epoch, false, at(now))
				}
				sent = nil
			}
			if e.Alter != nil {
				if sent != nil {
					t.Fatalf("seed %d step %d: I4", seed, step)
				}
				sent = e.Alter
			}
			hw := l.HighWatermark()
			if hw < lastHW || hw > logEnd {
				t.Fatalf("seed %d step %d: I1: %d after %d, end %d", seed, step, hw, lastHW, logEnd)
			}
			for _, id := range append(slices.Clone(committed), members(sent)...) {
				if id != 1 && hw > lastHW && ends[id] < hw {
					t.Fatalf("seed %d step %d: I2: %d has %d, high watermark %d", seed, step, id, ends[id], hw)
				}
			}
			if hw > lastHW && len(committed) < minISR {
				t.Fatalf("seed %d step %d: I3", seed, step)
			}
			lastHW = hw
		}
	}
}
