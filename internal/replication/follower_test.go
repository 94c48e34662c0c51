package replication

// Shows what a follower does with the leader's answers, by table.

import (
	"testing"

	"github.com/highwater/highwater/internal/kafka"
)

type history []struct {
	epoch kafka.LeaderEpoch
	start kafka.Offset
}

func (h history) EndOffsetForEpoch(e kafka.LeaderEpoch) (kafka.LeaderEpoch, kafka.Offset, bool) {
	for i := len(h) - 2; i >= 0; i-- { // the last entry only marks the log's end
		if h[i].epoch <= e {
			return h[i].epoch, h[i+1].start, true
		}
	}
	return 0, 0, false
}

func TestFollow(t *testing.T) {
	h := history{{1, 0}, {3, 10}, {5, 20}, {0, 25}}
	f := func(in Fetched, appended int64, want Decision) {
		t.Helper()
		if got := Follow(in, h, 2, 25, appended, 18); got != want {
			t.Errorf("Follow(%+v) = %+v, want %+v", in, got, want)
		}
	}
	f(Fetched{HighWatermark: 30, LogStart: 0}, 4, Decision{TruncateTo: -1, Append: true, HighWatermark: 29, LogStart: -1})
	f(Fetched{HighWatermark: 27, LogStart: 5}, 4, Decision{TruncateTo: -1, Append: true, HighWatermark: 27, LogStart: 5})
	f(Fetched{Diverging: true, DivergingEpoch: 3, DivergingEndOff: 15}, 0, Decision{TruncateTo: 15, HighWatermark: 15, LogStart: -1})
	f(Fetched{Diverging: true, DivergingEpoch: 3, DivergingEndOff: 40}, 0, Decision{TruncateTo: 20, HighWatermark: 18, LogStart: -1})
	f(Fetched{Diverging: true, DivergingEpoch: 4, DivergingEndOff: 22}, 0, Decision{TruncateTo: 20, HighWatermark: 18, LogStart: -1})
	f(Fetched{Diverging: true, DivergingEpoch: 0, DivergingEndOff: 9}, 0, Decision{TruncateTo: 2, HighWatermark: 2, LogStart: -1})
}

func TestOutOfRange(t *testing.T) {
	f := func(end, leaderStart, leaderEnd, wantTruncate, wantStart int64) {
		t.Helper()
		if tr, st := OutOfRange(end, leaderStart, leaderEnd); tr != wantTruncate || st != wantStart {
			t.Errorf("OutOfRange(%d, %d, %d) = %d, %d", end, leaderStart, leaderEnd, tr, st)
		}
	}
	f(100, 0, 90, 90, -1)
	f(100, 0, 105, -1, -1) // the leader grew meanwhile: nothing is cut
	f(100, 150, 200, -1, 150)
}
