package raft

import (
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

// parkedFetch is a Fetch that waits for records, or for the high watermark to move (KIP-1166).
type parkedFetch struct {
	id       uint64
	listener string
	msg      *kmsg.FetchRequest
	until    time.Time
}

func (f *parkedFetch) partition() *kmsg.FetchRequestTopicPartition {
	return &f.msg.Topics[0].Partitions[0]
}

// knownHighWatermark is what the follower knows; those before version 18 don't tell and wait for records only.
func (f *parkedFetch) knownHighWatermark() kafka.Offset {
	if f.msg.Version < 18 {
		return math.MaxInt64
	}
	return f.partition().HighWatermark
}

func (r *Raft) handleFetch(now time.Time, ev *Request, m *kmsg.FetchRequest) {
	top := func(e *kerr.Error) {
		resp := m.ResponseKind().(*kmsg.FetchResponse)
		resp.ErrorCode = e.Code
		r.reply(ev.ID, resp)
	}
	if !r.validClusterID(m.ClusterID) {
		top(kerr.InconsistentClusterID)
		return
	}
	if len(m.Topics) != 1 || len(m.Topics[0].Partitions) != 1 || m.Topics[0].Partitions[0].Partition != 0 ||
		m.Version < 13 && m.Topics[0].Topic != kafka.ClusterMetadataTopic ||
		m.Version >= 13 && m.Topics[0].TopicID != kafka.MetadataTopic {
		top(kerr.InvalidRequest)
		return
	}
	f := parkedFetch{id: ev.ID, listener: ev.Listener, msg: m}
	p := f.partition()
	if m.MaxWaitMillis < 0 || p.FetchOffset < 0 || p.LastFetchedEpoch < 0 || p.LastFetchedEpoch > p.CurrentLeaderEpoch {
		r.reply(ev.ID, r.emptyFetchResponse(&f, kerr.InvalidRequest))
		return
	}
	key := r.fetcher(m)
	if key.ID == r.cfg.ID && r.forLeader(kafka.LeaderEpoch(p.CurrentLeaderEpoch)) == nil {
		// A node with this leader's id: another directory, or a copy. Its fetches must not count as this node's.
		r.reply(ev.ID, r.emptyFetchResponse(&f, kerr.InvalidRequest))
		return
	}
	reply, wait := r.tryFetch(now, &f, true)
	if !wait || m.MaxWaitMillis == 0 || len(r.parked) >= maxParked {
		r.ready.Reply = append(r.ready.Reply, reply)
		return
	}
	f.until = now.Add(time.Duration(m.MaxWaitMillis) * time.Millisecond)
	r.parked = append(r.parked, f)
}

func (r *Raft) fetcher(m *kmsg.FetchRequest) ReplicaKey {
	id := m.ReplicaID
	if m.Version >= 15 {
		id = m.ReplicaState.ID
	}
	return ReplicaKey{kafka.BrokerID(id), m.Topics[0].Partitions[0].ReplicaDirectoryID}
}

// tryFetch makes the answer to a Fetch. wait says that it holds no news and may wait for some. Only when the request
// comes, not when it is answered, its sender is known to be alive.
func (r *Raft) tryFetch(now time.Time, f *parkedFetch, arrived bool) (reply Reply, wait bool) {
	p := f.partition()
	if err := r.forLeader(kafka.LeaderEpoch(p.CurrentLeaderEpoch)); err != nil {
		return Reply{ID: f.id, Msg: r.emptyFetchResponse(f, err)}, false
	}
	v, at := r.log.check(p.FetchOffset, kafka.LeaderEpoch(p.LastFetchedEpoch))
	if r.cfg.Mutant == NoDivergenceCheck && v == diverging && p.FetchOffset <= r.log.end {
		v = valid
	}
	if v == valid && arrived {
		key := r.fetcher(f.msg)
		r.lead.fetchedUpTo(now, key, p.FetchOffset, r.log.end)
		r.lead.heard(now, r, key)
		r.updateHighWatermark(now)
		if r.lead == nil {
			return Reply{ID: f.id, Msg: r.emptyFetchResponse(f, kerr.NotLeaderOrFollower)}, false
		}
	}
	resp := r.emptyFetchResponse(f, nil)
	rp := &resp.Topics[0].Partitions[0]
	rp.HighWatermark = r.highWatermark
	reply = Reply{ID: f.id, Msg: resp}
	switch v {
	case diverging:
		rp.DivergingEpoch.Epoch, rp.DivergingEpoch.EndOffset = int32(at.Epoch), at.Offset
	case needsSnapshot:
		rp.SnapshotID.Epoch, rp.SnapshotID.EndOffset = int32(at.Epoch), at.Offset
	case valid:
		if p.FetchOffset < r.log.end {
			// Kafka's controllers send PartitionMaxBytes 0 and mean the request's.
			most := f.msg.MaxBytes
			if most <= 0 || most > r.cfg.FetchMaxBytes {
				most = r.cfg.FetchMaxBytes
			}
			reply.Read = &Read{Offset: p.FetchOffset, MaxBytes: most}
		} else {
			wait = f.knownHighWatermark() >= r.highWatermark
		}
	}
	return reply, wait
}

func (r *Raft) emptyFetchResponse(f *parkedFetch, err *kerr.Error) *kmsg.FetchResponse {
	resp := f.msg.ResponseKind().(*kmsg.FetchResponse)
	p := kmsg.NewFetchResponseTopicPartition()
	p.ErrorCode = code(err)
	p.HighWatermark, p.LastStableOffset, p.LogStartOffset, p.PreferredReadReplica = -1, -1, r.log.start, -1
	p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = int32(r.leader), int32(r.epoch)
	p.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
	p.RecordBatches = []byte{}
	t := kmsg.NewFetchResponseTopic()
	t.Topic, t.TopicID, t.Partitions = kafka.ClusterMetadataTopic, kafka.MetadataTopic, append(t.Partitions, p)
	resp.Topics = append(resp.Topics, t)
	if e, ok := r.leaderAddress(f.listener); ok && f.msg.Version >= 16 {
		b := kmsg.NewFetchResponseBroker()
		b.NodeID, b.Host, b.Port = int32(r.leader), e.Host, int32(e.Port)
		resp.Brokers = append(resp.Brokers, b)
	}
	return resp
}

// wakeParked answers those who wait and for whom there is news now.
func (r *Raft) wakeParked(now time.Time) {
	kept := r.parked[:0]
	for _, f := range r.parked {
		if reply, wait := r.tryFetch(now, &f, false); !wait {
			r.ready.Reply = append(r.ready.Reply, reply)
		} else {
			kept = append(kept, f)
		}
	}
	clear(r.parked[len(kept):])
	r.parked = kept
}

// failParked answers all who wait: this node does not lead their epoch any more.
func (r *Raft) failParked() {
	for i := range r.parked {
		f := &r.parked[i]
		r.reply(f.id, r.emptyFetchResponse(f, kerr.NotLeaderOrFollower))
	}
	clear(r.parked)
	r.parked = nil
}

// pollParked answers those whose time is up.
func (r *Raft) pollParked(now time.Time) {
	kept := r.parked[:0]
	for _, f := range r.parked {
		if !now.Before(f.until) {
			reply, _ := r.tryFetch(now, &f, false)
			r.ready.Reply = append(r.ready.Reply, reply)
		} else {
			r.at(f.until)
			kept = append(kept, f)
		}
	}
	clear(r.parked[len(kept):])
	r.parked = kept
}

func (r *Raft) handleFetchSnapshot(now time.Time, ev *Request, m *kmsg.FetchSnapshotRequest) {
	resp := m.ResponseKind().(*kmsg.FetchSnapshotResponse)
	if !r.validClusterID(m.ClusterID) {
		resp.ErrorCode = kerr.InconsistentClusterID.Code
		r.reply(ev.ID, resp)
		return
	}
	if len(m.Topics) != 1 || len(m.Topics[0].Partitions) != 1 {
		resp.ErrorCode = kerr.InvalidRequest.Code
		r.reply(ev.ID, resp)
		return
	}
	p := &m.Topics[0].Partitions[0]
	id := kafka.OffsetAndEpoch{Offset: p.SnapshotID.EndOffset, Epoch: kafka.LeaderEpoch(p.SnapshotID.Epoch)}
	known := m.Topics[0].Topic == kafka.ClusterMetadataTopic && p.Partition == 0

	rp := kmsg.NewFetchSnapshotResponseTopicPartition()
	rp.Partition = p.Partition
	rp.Bytes = []byte{}
	t := kmsg.NewFetchSnapshotResponseTopic()
	t.Topic = m.Topics[0].Topic
	var read *SnapshotRead
	if !known {
		rp.ErrorCode = kerr.UnknownTopicOrPartition.Code
	} else {
		rp.CurrentLeader.LeaderID, rp.CurrentLeader.LeaderEpoch = int32(r.leader), int32(r.epoch)
		if err := r.forLeader(kafka.LeaderEpoch(p.CurrentLeaderEpoch)); err != nil {
			rp.ErrorCode = err.Code
		} else if id == bootstrapSnapshot || !r.log.hasSnapshot(id) {
			rp.ErrorCode = kerr.SnapshotNotFound.Code
		} else {
			most := m.MaxBytes
			if most <= 0 || most > r.cfg.FetchSnapshotMaxBytes {
				most = r.cfg.FetchSnapshotMaxBytes
			}
			rp.SnapshotID.EndOffset, rp.SnapshotID.Epoch = id.Offset, int32(id.Epoch)
			rp.Position = p.Position
			read = &SnapshotRead{ID: id, Position: p.Position, MaxBytes: most}
			r.lead.heard(now, r, ReplicaKey{kafka.BrokerID(m.ReplicaID), p.ReplicaDirectoryID})
		}
	}
	t.Partitions = append(t.Partitions, rp)
	resp.Topics = append(resp.Topics, t)
	if e, ok := r.leaderAddress(ev.Listener); ok && m.Version >= 1 {
		resp.NodeEndpoints = []kmsg.FetchSnapshotResponseNodeEndpoint{{NodeID: int32(r.leader), Host: e.Host, Port: e.Port}}
	}
	r.ready.Reply = append(r.ready.Reply, Reply{ID: ev.ID, Msg: resp, Snapshot: read})
}
