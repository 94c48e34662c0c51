package replica

import (
	"errors"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/storage"
)

// Reader says who reads and how much it may see.
type Reader struct {
	// Follower is the id of a replica that fetches, or -1 for a consumer.
	Follower      kafka.BrokerID
	FollowerEpoch kafka.BrokerEpoch // -1 if it doesn't say
	Committed     bool              // isolation.level=read_committed
	AnyReplica    bool              // a consumer that may read from a follower (KIP-392; fetch version 11 and later)
}

// ReadRequest is one partition's part of a fetch.
type ReadRequest struct {
	Offset           kafka.Offset
	MaxBytes         int
	MinOneBatch      bool
	LeaderEpoch      kafka.LeaderEpoch // that the reader believes in, or -1
	LastFetchedEpoch kafka.LeaderEpoch // of the last record that a follower has, or -1
	LogStart         kafka.Offset      // of a follower's log
}

// Read is what a partition answers to a fetch. Records must be released.
type Read struct {
	Records          storage.Slice
	HighWatermark    kafka.Offset
	LastStableOffset kafka.Offset
	LogStart         kafka.Offset
	// Diverging: the follower's history parts from ours: it must cut to DivergingEnd.
	Diverging      bool
	DivergingEpoch kafka.LeaderEpoch
	DivergingEnd   kafka.Offset
	// Log is what Records were read from.
	Log *storage.Log
}

// Read fills out for a fetch, without the partition's lock unless a follower's progress is to be noted.
func (r *Replica) Read(now time.Time, reader Reader, q ReadRequest, out *Read) error {
	for {
		log := r.Log()
		err := r.read(now, log, reader, q, out)
		if err == nil || forClient(err) {
			return err
		}
		if r.Log() == log {
			return r.readFailed(err)
		}
		// The replica moved into another directory meanwhile, and the old log was closed.
	}
}

// forClient tells whether an error is one that clients are told as it is.
func forClient(err error) bool {
	var k *kerr.Error
	return errors.As(err, &k)
}

// read is Read from one log. An error that is no *kerr.Error is the disk's, or that log was closed.
func (r *Replica) read(now time.Time, log *storage.Log, reader Reader, q ReadRequest, out *Read) error {
	follower := reader.Follower >= 0
	ro, err := r.serving(q.LeaderEpoch, follower || !reader.AnyReplica)
	if err != nil {
		return err
	}
	if follower && !r.hasFollower(reader.Follower) {
		return kerr.NotLeaderOrFollower.With("broker %d is no replica of %v", reader.Follower, r.partition)
	}
	end := log.EndOffset()
	hw := r.highWatermark.Load()
	out.Log, out.HighWatermark, out.LogStart = log, hw, log.StartOffset()
	out.LastStableOffset = log.LastStableOffset(hw)

	if q.LastFetchedEpoch != kafka.NoLeaderEpoch {
		epoch, epochEnd := log.EndOffsetForEpoch(q.LastFetchedEpoch)
		if epochEnd == kafka.NoOffset {
			return kerr.OffsetOutOfRange.With("Could not determine the end offset of the last fetched epoch %d from the request", q.LastFetchedEpoch)
		}
		if epoch < q.LastFetchedEpoch || epochEnd < q.Offset {
			out.Diverging, out.DivergingEpoch, out.DivergingEnd = true, epoch, epochEnd
			return nil
		}
	}
	limit := hw
	switch {
	case follower:
		limit = end
	case reader.Committed:
		limit = out.LastStableOffset
	}
	if out.Records, err = log.Read(q.Offset, q.MaxBytes, q.MinOneBatch, limit); err != nil {
		return err
	}
	if follower {
		r.followerFetched(now, ro.epoch, reader, q, end)
		out.HighWatermark = r.highWatermark.Load()
	}
	return nil
}

// hasFollower tells whether a broker is one of the partition's replicas. A leader that stepped down a moment ago knows none.
func (r *Replica) hasFollower(id kafka.BrokerID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leader != nil && r.leader.HasFollower(id)
}

// readFailed takes the replica offline because its disk refused a read.
func (r *Replica) readFailed(err error) error {
	r.Fail(err)
	return r.offlineErr(r.role.Load().offline)
}

// followerFetched notes how far a follower is. What it asked for in one leader epoch says nothing in the next, where its log
// may have to be cut first.
func (r *Replica) followerFetched(now time.Time, epoch kafka.LeaderEpoch, reader Reader, q ReadRequest, end kafka.Offset) {
	defer r.guard(nil)
	r.mu.Lock()
	if r.leader == nil || r.leader.Epoch() != epoch {
		r.mu.Unlock()
		return
	}
	r.unlockAndApply(r.leader.FollowerFetched(now, reader.Follower, reader.FollowerEpoch, q.Offset, q.LogStart, end), false)
}

// Available is how many bytes a reader at offset could get now, at most limit; for a long poll that wants a minimum. An
// error or an offset out of range counts as limit: the poll must end and tell.
func (r *Replica) Available(reader Reader, offset kafka.Offset, epoch kafka.LeaderEpoch, limit int) int {
	if _, err := r.serving(epoch, reader.Follower >= 0 || !reader.AnyReplica); err != nil {
		return limit
	}
	log := r.Log()
	end := log.EndOffset()
	if reader.Follower < 0 {
		end = r.highWatermark.Load()
		if reader.Committed {
			end = log.LastStableOffset(end)
		}
	}
	if offset >= end {
		return 0
	}
	s, err := log.Read(offset, limit, true, end)
	if err != nil {
		return limit
	}
	defer s.Release()
	return min(s.Len(), limit)
}

// Special timestamps of ListOffsets.
const (
	LatestTimestamp        = -1
	EarliestTimestamp      = -2
	MaxTimestamp           = -3
	EarliestLocalTimestamp = -4
	LatestTieredTimestamp  = -5
	EarliestPendingUpload  = -6
)

// Offset answers ListOffsets for a consumer (or a follower: reader.Follower). found is false where Kafka answers with
// offset and timestamp -1 and no error.
func (r *Replica) Offset(reader Reader, asked kafka.LeaderEpoch, timestamp int64) (t storage.Timestamped, found bool, err error) {
	for {
		log := r.Log()
		t, found, err = r.offset(log, reader, asked, timestamp)
		if err == nil || forClient(err) {
			return t, found, err
		}
		if r.Log() == log {
			return t, false, r.readFailed(err)
		}
	}
}

func (r *Replica) offset(log *storage.Log, reader Reader, asked kafka.LeaderEpoch, timestamp int64) (t storage.Timestamped, found bool, err error) {
	ro, err := r.serving(asked, true)
	if err != nil {
		return t, false, err
	}
	hw := r.highWatermark.Load()
	limit := hw
	switch {
	case reader.Follower >= 0:
		limit = log.EndOffset()
	case reader.Committed:
		limit = log.LastStableOffset(hw)
	}
	// A leader that is new doesn't know yet what its predecessor told consumers (KIP-207).
	settling := reader.Follower < 0 && ro.epochStart > hw
	switch timestamp {
	case LatestTimestamp:
		if settling {
			return t, false, kerr.OffsetNotAvailable
		}
		return log.Latest(limit), true, nil
	case EarliestTimestamp, EarliestLocalTimestamp:
		return log.Earliest(), true, nil
	case MaxTimestamp:
		t, found, err = log.OffsetOfMaxTimestamp()
	case LatestTieredTimestamp, EarliestPendingUpload:
		return storage.Timestamped{Offset: kafka.NoOffset, Timestamp: -1, Epoch: kafka.NoLeaderEpoch}, false, nil
	default:
		t, found, err = log.OffsetForTimestamp(timestamp, limit)
	}
	if err != nil {
		return t, false, err
	}
	if !found || t.Offset >= limit {
		if settling {
			return t, false, kerr.OffsetNotAvailable
		}
		return storage.Timestamped{Offset: kafka.NoOffset, Timestamp: -1, Epoch: kafka.NoLeaderEpoch}, false, nil
	}
	return t, true, nil
}

// EndOffsetForEpoch answers OffsetForLeaderEpoch.
func (r *Replica) EndOffsetForEpoch(current, asked kafka.LeaderEpoch) (kafka.LeaderEpoch, kafka.Offset, error) {
	if _, err := r.serving(current, true); err != nil {
		return kafka.NoLeaderEpoch, kafka.NoOffset, err
	}
	epoch, end := r.Log().EndOffsetForEpoch(asked)
	return epoch, end, nil
}
