package raft

import (
	"testing"

	"github.com/highwater/highwater/internal/kafka"
)

// TestLogCheck is what a leader says of a follower's end, and where such a follower truncates: cases of fast elections
// (KIP-279) among them.
func TestLogCheck(t *testing.T) {
	at := func(o kafka.Offset, e kafka.LeaderEpoch) kafka.OffsetAndEpoch {
		return kafka.OffsetAndEpoch{Offset: o, Epoch: e}
	}
	var whole, cut, empty logState
	whole.init(LogState{EndOffset: 30, Epochs: []EpochStart{{1, 0}, {3, 10}, {5, 20}}}, VoterSet{})
	cut.init(LogState{StartOffset: 10, EndOffset: 30, Epochs: []EpochStart{{3, 10}, {5, 20}}, Snapshots: []kafka.OffsetAndEpoch{at(10, 1), at(25, 5)}}, VoterSet{})
	empty.init(LogState{Snapshots: []kafka.OffsetAndEpoch{{}}}, VoterSet{})
	for _, c := range []struct {
		log    *logState
		offset kafka.Offset
		epoch  kafka.LeaderEpoch
		want   verdict
		at     kafka.OffsetAndEpoch
	}{
		{&whole, 0, 0, valid, at(0, 0)},
		{&whole, 30, 5, valid, at(0, 0)},
		{&whole, 25, 5, valid, at(0, 0)},
		{&whole, 10, 1, valid, at(0, 0)},
		{&whole, 11, 1, diverging, at(10, 1)}, // wrote on in epoch 1 when others were at 3
		{&whole, 31, 5, diverging, at(30, 5)},
		{&whole, 15, 2, diverging, at(10, 1)}, // an epoch that this log never saw
		{&whole, 25, 4, diverging, at(20, 3)},
		{&whole, 40, 9, diverging, at(30, 5)},
		{&empty, 0, 0, valid, at(0, 0)},
		{&empty, 5, 2, diverging, at(0, 0)},
		{&cut, 0, 0, needsSnapshot, at(25, 5)},
		{&cut, 5, 1, needsSnapshot, at(25, 5)},
		{&cut, 10, 1, valid, at(0, 0)},
		{&cut, 10, 2, needsSnapshot, at(25, 5)},
		{&cut, 12, 0, needsSnapshot, at(25, 5)},
		{&cut, 20, 3, valid, at(0, 0)},
		{&cut, 22, 3, diverging, at(20, 3)},
		{&cut, 12, 1, diverging, at(10, 1)},
	} {
		v, where := c.log.check(c.offset, c.epoch)
		if v != c.want || v != valid && where != c.at {
			t.Errorf("log %d..%d %v: check(%d, %d) = %d %v, want %d %v", c.log.start, c.log.end, c.log.epochs, c.offset, c.epoch, v, where, c.want, c.at)
		}
	}
	for _, c := range []struct {
		end  kafka.OffsetAndEpoch
		want kafka.Offset
	}{{at(25, 5), 25}, {at(50, 5), 30}, {at(15, 3), 15}, {at(12, 2), 10}, {at(30, 4), 20}, {at(0, 0), 0}} {
		if got := whole.truncationFor(c.end); got != c.want {
			t.Errorf("truncationFor(%v) = %d, want %d", c.end, got, c.want)
		}
	}
}

func TestVotersFollowTheLog(t *testing.T) {
	set := func(ids ...kafka.BrokerID) VoterSet {
		var s VoterSet
		for _, id := range ids {
			s = s.With(Voter{Key: ReplicaKey{ID: id}})
		}
		return s
	}
	var l logState
	l.init(LogState{}, set(1, 2))
	if l.votersOffset() != -1 || l.voters().Len() != 2 {
		t.Errorf("%v at %d", l.voters(), l.votersOffset())
	}
	l.append(0, 2, 1, []ControlAt{{1, KRaftVersion(1)}, {2, Voters{set(1, 2, 3)}}})
	l.append(3, 3, 1, []ControlAt{{3, Voters{set(1, 2)}}})
	if l.votersOffset() != 3 || l.voters().Len() != 2 || l.kraftVersion() != 1 {
		t.Errorf("%v at %d", l.voters(), l.votersOffset())
	}
	if s, v := l.votersAt(3); s.Len() != 3 || v != 1 {
		t.Errorf("at 3: %v, %d", s, v)
	}
	l.truncate(3)
	if l.votersOffset() != 2 || l.voters().Len() != 3 {
		t.Errorf("after truncation: %v at %d", l.voters(), l.votersOffset())
	}
	l.truncate(0)
	if l.votersOffset() != -1 || l.voters().Len() != 2 || l.kraftVersion() != 0 {
		t.Errorf("after truncation: %v at %d", l.voters(), l.votersOffset())
	}
	l.resetTo(kafka.OffsetAndEpoch{Offset: 10, Epoch: 2}, []ControlRecord{KRaftVersion(1), Voters{set(5)}})
	if l.votersOffset() != 9 || l.voters().Len() != 1 || l.start != 10 || l.end != 10 || l.lastEpoch() != 2 {
		t.Errorf("after a snapshot: %+v", l)
	}
}
