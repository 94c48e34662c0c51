package replication

import (
	"github.com/highwater/highwater/internal/kafka"
)

// Fetched is the leader's answer to a follower's fetch, without the records.
type Fetched struct {
	HighWatermark kafka.Offset
	LogStart      kafka.Offset
	// Diverging: the leader's history parts from the follower's (fetch version 12): its newest epoch that is not above the
	// follower's last one, and where that epoch ends.
	Diverging       bool
	DivergingEpoch  kafka.LeaderEpoch
	DivergingEndOff kafka.Offset
}

// History tells where epochs end in the follower's own log.
type History interface {
	// EndOffsetForEpoch is the largest epoch that is not above epoch, and the offset where the next one begins (or the log
	// ends). ok is false if the log has no such epoch.
	EndOffsetForEpoch(epoch kafka.LeaderEpoch) (found kafka.LeaderEpoch, end kafka.Offset, ok bool)
}

// Decision is what a follower does with an answer.
type Decision struct {
	// TruncateTo is where to cut the log before anything else, or -1.
	TruncateTo kafka.Offset
	// Append tells whether the records of the answer are to be appended.
	Append bool
	// HighWatermark is the new one, to be applied after the append; it never passes the log's end.
	HighWatermark kafka.Offset
	// LogStart is the new log start offset, or -1 if it stays.
	LogStart kafka.Offset
}

// Follow decides over an answer: end and start are the follower's log's before it, appended what the answer's records add.
//
// Where histories part the follower cuts to the smaller of the leader's end of the common epoch and its own, and asks
// again from there; it may take several rounds, one an epoch, and never cuts what both have (KIP-101, KIP-279, KIP-595).
func Follow(f Fetched, h History, start, end, appended, highWatermark kafka.Offset) Decision {
	d := Decision{TruncateTo: kafka.NoOffset, HighWatermark: highWatermark, LogStart: kafka.NoOffset}
	if f.Diverging {
		to := f.DivergingEndOff
		if _, own, ok := h.EndOffsetForEpoch(f.DivergingEpoch); ok {
			to = min(to, own)
		} else {
			to = min(to, start)
		}
		d.TruncateTo = max(min(to, end), start)
		d.HighWatermark = min(highWatermark, d.TruncateTo)
		return d
	}
	d.Append = true
	d.HighWatermark = max(min(f.HighWatermark, end+appended), 0)
	if f.LogStart > start {
		d.LogStart = f.LogStart
	}
	return d
}

// OutOfRange decides what a follower does when the leader says OFFSET_OUT_OF_RANGE: leaderEnd and leaderStart were asked
// of the leader afterwards. It cuts to the leader's end if that is smaller, starts anew at the leader's start if it has
// nothing in common with what the leader still has, and otherwise goes on: the leader may just have grown (KAFKA-3410).
func OutOfRange(end, leaderStart, leaderEnd kafka.Offset) (truncateTo, startAnewAt kafka.Offset) {
	switch {
	case leaderEnd < end:
		return leaderEnd, kafka.NoOffset
	case end < leaderStart:
		return kafka.NoOffset, leaderStart
	}
	return kafka.NoOffset, kafka.NoOffset
}
