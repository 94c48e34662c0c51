package raft

import (
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/invariant"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

func (r *Raft) response(now time.Time, ev *Response) {
	n, req, ok := r.answered(ev.Corr)
	if !ok {
		return
	}
	if ev.Err != nil {
		if q, is := req.(*kmsg.VoteRequest); is && errors.Is(ev.Err, kerr.UnsupportedVersion) && q.Topics[0].Partitions[0].PreVote && r.role == Prospective {
			// A voter too old for pre-votes: without them then, as before KIP-996.
			r.note(false, "a voter does not know pre-votes", "voter", n.ID)
			r.stand(now)
			return
		}
		if c := r.pendingChange(); c != nil && c.corr == ev.Corr {
			r.apiVersionsAnswered(now, nil, ev.Err)
			return
		}
		r.backOff(now, n)
		return
	}
	good := false
	switch m := ev.Msg.(type) {
	case *kmsg.VoteResponse:
		q, is := req.(*kmsg.VoteRequest)
		good = is && r.voteAnswered(now, n, q, m)
	case *kmsg.BeginQuorumEpochResponse:
		good = r.beginAnswered(now, m)
	case *kmsg.EndQuorumEpochResponse:
		good = r.endAnswered(now, n, m)
	case *kmsg.FetchResponse:
		q, is := req.(*kmsg.FetchRequest)
		good = is && r.fetchAnswered(now, q, m, ev.Batches)
	case *kmsg.FetchSnapshotResponse:
		q, is := req.(*kmsg.FetchSnapshotRequest)
		good = is && r.fetchSnapshotAnswered(now, q, m)
	case *kmsg.UpdateRaftVoterResponse:
		good = r.updateVoterAnswered(now, m)
	case *kmsg.RemoveRaftVoterResponse:
		good = m.ErrorCode == 0
	case *kmsg.AddRaftVoterResponse:
		good = m.ErrorCode == 0
	case *kmsg.ApiVersionsResponse:
		if c := r.pendingChange(); c != nil && c.corr == ev.Corr {
			r.apiVersionsAnswered(now, m, nil)
		}
		good = true
	}
	if !good {
		r.backOff(now, n)
	}
}

// common takes in what every answer says of leader and epoch. done: there is nothing more to do with this answer; good:
// its sender need not be spared for a while.
func (r *Raft) common(now time.Time, errorCode int16, leader, epoch int32, endpoints []Endpoint) (done, good bool) {
	e := kafka.LeaderEpoch(epoch)
	l := kafka.BrokerID(leader)
	switch {
	case e < r.epoch || errorCode == kerr.UnknownLeaderEpoch.Code:
		// Old news; or they have not heard of this epoch yet.
		return true, errorCode != kerr.UnknownLeaderEpoch.Code
	case e > r.epoch || errorCode == kerr.FencedLeaderEpoch.Code || errorCode == kerr.NotLeaderOrFollower.Code:
		before, role := r.epoch, r.role
		err := r.learn(now, l, e, endpoints)
		// Nothing learnt: ask again only after a while.
		return true, err == nil && (r.epoch != before || r.role != role)
	case l >= 0 && r.leader != kafka.NoBroker && l != r.leader:
		r.learn(now, l, e, endpoints)
		return true, false
	case l >= 0 && l != r.cfg.ID && (r.leader == kafka.NoBroker || r.role != Follower && r.role != Leader && r.role != Resigned):
		if r.learn(now, l, e, endpoints) != nil {
			return true, false
		}
		return errorCode != 0, true
	case errorCode == kerr.BrokerNotAvailable.Code, errorCode == kerr.InvalidRequest.Code:
		return true, false
	case errorCode == kerr.InvalidVoterKey.Code:
		r.note(false, "another replica answered under a voter's address", "leader", leader)
		return true, false
	}
	return false, errorCode == 0
}

func (r *Raft) topLevel(errorCode int16, api string) bool {
	if errorCode == 0 {
		return true
	}
	if errorCode != kerr.BrokerNotAvailable.Code {
		r.note(true, "quorum request failed", "api", api, "err", kerr.ForCode(errorCode))
	}
	return false
}

func (r *Raft) named(host string, port uint16) []Endpoint {
	return []Endpoint{{r.cfg.Listener, host, port}}
}

func (r *Raft) voteRequest(to ReplicaKey) kmsg.Request {
	m := kmsg.NewPtrVoteRequest()
	m.ClusterID = &r.cfg.ClusterID
	m.VoterID = int32(to.ID)
	p := kmsg.NewVoteRequestTopicPartition()
	p.CandidateEpoch, p.CandidateID = int32(r.epoch), int32(r.cfg.ID)
	p.CandidateDirectoryID, p.VoterDirectoryID = r.cfg.Directory, to.Directory
	end := r.log.endOffsetAndEpoch()
	p.LastOffset, p.LastOffsetEpoch = end.Offset, int32(end.Epoch)
	p.PreVote = r.role == Prospective
	t := kmsg.NewVoteRequestTopic()
	t.Topic, t.Partitions = kafka.ClusterMetadataTopic, append(t.Partitions, p)
	m.Topics = append(m.Topics, t)
	return m
}

func (r *Raft) voteAnswered(now time.Time, n Node, q *kmsg.VoteRequest, m *kmsg.VoteResponse) bool {
	if m.ErrorCode == kerr.UnsupportedVersion.Code && r.role == Prospective {
		r.stand(now)
		return true
	}
	if !r.topLevel(m.ErrorCode, "Vote") || len(m.Topics) != 1 || len(m.Topics[0].Partitions) != 1 {
		return false
	}
	p := &m.Topics[0].Partitions[0]
	var endpoints []Endpoint
	for _, e := range m.NodeEndpoints {
		if e.NodeID == p.LeaderID {
			endpoints = r.named(e.Host, e.Port)
		}
	}
	asked := &q.Topics[0].Partitions[0]
	if done, good := r.common(now, p.ErrorCode, p.LeaderID, p.LeaderEpoch, endpoints); done && r.cfg.Mutant != StaleElectionResponse {
		return good
	}
	if r.cfg.Mutant != StaleElectionResponse {
		if kafka.LeaderEpoch(asked.CandidateEpoch) != r.epoch || asked.PreVote != (r.role == Prospective) {
			return true // of an election that is over
		}
	}
	if r.role != Prospective && r.role != Candidate {
		return true
	}
	if p.ErrorCode != 0 {
		r.note(true, "vote refused", "voter", n.ID, "err", kerr.ForCode(p.ErrorCode))
		return false
	}
	if p.VoteGranted {
		if !slices.Contains(r.granted, n.ID) {
			r.granted = append(r.granted, n.ID)
		}
		r.electionMaybeWon(now)
	} else {
		if !slices.Contains(r.rejected, n.ID) {
			r.rejected = append(r.rejected, n.ID)
		}
		r.electionMaybeLost(now)
	}
	return true
}

func (r *Raft) beginQuorumEpochRequest(to ReplicaKey) kmsg.Request {
	m := kmsg.NewPtrBeginQuorumEpochRequest()
	m.ClusterID = &r.cfg.ClusterID
	m.VoterID = int32(to.ID)
	p := kmsg.NewBeginQuorumEpochRequestTopicPartition()
	p.LeaderID, p.LeaderEpoch, p.VoterDirectoryID = int32(r.cfg.ID), int32(r.epoch), to.Directory
	t := kmsg.NewBeginQuorumEpochRequestTopic()
	t.Topic, t.Partitions = kafka.ClusterMetadataTopic, append(t.Partitions, p)
	m.Topics = append(m.Topics, t)
	for _, e := range r.cfg.Endpoints {
		l := kmsg.NewBeginQuorumEpochRequestLeaderEndpoint()
		l.Name, l.Host, l.Port = e.Listener, e.Host, e.Port
		m.LeaderEndpoints = append(m.LeaderEndpoints, l)
	}
	return m
}

func (r *Raft) beginAnswered(now time.Time, m *kmsg.BeginQuorumEpochResponse) bool {
	if !r.topLevel(m.ErrorCode, "BeginQuorumEpoch") || len(m.Topics) != 1 || len(m.Topics[0].Partitions) != 1 {
		return false
	}
	p := &m.Topics[0].Partitions[0]
	var endpoints []Endpoint
	for _, e := range m.NodeEndpoints {
		if e.NodeID == p.LeaderID {
			endpoints = r.named(e.Host, e.Port)
		}
	}
	_, good := r.common(now, p.ErrorCode, p.LeaderID, p.LeaderEpoch, endpoints)
	return good
}

func (r *Raft) endQuorumEpochRequest() kmsg.Request {
	m := kmsg.NewPtrEndQuorumEpochRequest()
	m.ClusterID = &r.cfg.ClusterID
	p := kmsg.NewEndQuorumEpochRequestTopicPartition()
	p.LeaderID, p.LeaderEpoch = int32(r.cfg.ID), int32(r.epoch)
	for _, k := range r.successors {
		p.PreferredSuccessors = append(p.PreferredSuccessors, int32(k.ID))
		c := kmsg.NewEndQuorumEpochRequestTopicPartitionPreferredCandidate()
		c.CandidateID, c.CandidateDirectoryID = int32(k.ID), k.Directory
		p.PreferredCandidates = append(p.PreferredCandidates, c)
	}
	t := kmsg.NewEndQuorumEpochRequestTopic()
	t.Topic, t.Partitions = kafka.ClusterMetadataTopic, append(t.Partitions, p)
	m.Topics = append(m.Topics, t)
	return m
}

func (r *Raft) endAnswered(now time.Time, n Node, m *kmsg.EndQuorumEpochResponse) bool {
	if !r.topLevel(m.ErrorCode, "EndQuorumEpoch") || len(m.Topics) != 1 || len(m.Topics[0].Partitions) != 1 {
		return false
	}
	p := &m.Topics[0].Partitions[0]
	var endpoints []Endpoint
	for _, e := range m.NodeEndpoints {
		if e.NodeID == p.LeaderID {
			endpoints = r.named(e.Host, e.Port)
		}
	}
	done, good := r.common(now, p.ErrorCode, p.LeaderID, p.LeaderEpoch, endpoints)
	if !done && good && r.role == Resigned {
		r.acked = append(r.acked, n.ID)
	}
	return good
}

func (r *Raft) fetchRequest() kmsg.Request {
	if r.fetching != noSnapshot && r.role == Follower {
		return r.fetchSnapshotRequest()
	}
	m := kmsg.NewPtrFetchRequest()
	m.ClusterID = &r.cfg.ClusterID
	m.ReplicaID, m.ReplicaState.ID, m.ReplicaState.Epoch = int32(r.cfg.ID), int32(r.cfg.ID), -1
	m.MaxWaitMillis, m.MinBytes, m.MaxBytes = int32(fetchMaxWait/time.Millisecond), 0, r.cfg.FetchMaxBytes
	m.SessionID, m.SessionEpoch = 0, -1
	p := kmsg.NewFetchRequestTopicPartition()
	end := r.log.endOffsetAndEpoch()
	p.CurrentLeaderEpoch = int32(r.epoch)
	p.FetchOffset, p.LastFetchedEpoch, p.LogStartOffset = end.Offset, int32(end.Epoch), -1
	p.ReplicaDirectoryID, p.HighWatermark = r.cfg.Directory, r.highWatermark
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID, t.Partitions = kafka.ClusterMetadataTopic, kafka.MetadataTopic, append(t.Partitions, p)
	m.Topics = append(m.Topics, t)
	return m
}

func (r *Raft) fetchAnswered(now time.Time, q *kmsg.FetchRequest, m *kmsg.FetchResponse, batches []BatchInfo) bool {
	if !r.topLevel(m.ErrorCode, "Fetch") || len(m.Topics) != 1 || len(m.Topics[0].Partitions) != 1 {
		return false
	}
	p := &m.Topics[0].Partitions[0]
	var endpoints []Endpoint
	for _, e := range m.Brokers {
		if e.NodeID == p.CurrentLeader.LeaderID && e.Port > 0 && e.Port < 1<<16 {
			endpoints = r.named(e.Host, uint16(e.Port))
		}
	}
	if done, good := r.common(now, p.ErrorCode, p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch, endpoints); done {
		return good
	}
	if p.ErrorCode != 0 {
		r.note(true, "fetch of metadata failed", "err", kerr.ForCode(p.ErrorCode))
		return false
	}
	if r.role != Follower || r.fetching != noSnapshot {
		return true
	}
	asked := &q.Topics[0].Partitions[0]
	if end := r.log.endOffsetAndEpoch(); asked.FetchOffset != end.Offset || kafka.LeaderEpoch(asked.LastFetchedEpoch) != end.Epoch ||
		kafka.LeaderEpoch(asked.CurrentLeaderEpoch) != r.epoch {
		return true // the log changed since
	}
	good := true
	switch {
	case p.DivergingEpoch.Epoch >= 0:
		r.truncate(kafka.OffsetAndEpoch{Offset: p.DivergingEpoch.EndOffset, Epoch: kafka.LeaderEpoch(p.DivergingEpoch.Epoch)})
	case p.SnapshotID.EndOffset >= 0 && p.SnapshotID.Epoch >= 0:
		id := kafka.OffsetAndEpoch{Offset: p.SnapshotID.EndOffset, Epoch: kafka.LeaderEpoch(p.SnapshotID.Epoch)}
		// Only what brings this log forward: a snapshot of the past is nothing that a leader sends.
		if r.log.hasSnapshot(id) && id != bootstrapSnapshot || id.Offset <= r.highWatermark {
			r.note(true, "leader offers a snapshot that is not needed", "snapshot", id)
			good = false
			break
		}
		r.fetching, r.fetchingAt = id, 0
		r.note(false, "fetching snapshot", "snapshot", id, "leader", r.leader)
	case p.SnapshotID.EndOffset >= 0 || p.SnapshotID.Epoch >= 0:
		r.note(true, "leader sent half a snapshot id", "endOffset", p.SnapshotID.EndOffset, "epoch", p.SnapshotID.Epoch)
		good = false
	default:
		if !r.appendFetched(p.RecordBatches, batches) {
			return false
		}
		// The leader tells its own, which may be beyond what is here.
		if hw := min(p.HighWatermark, r.log.end); hw > r.highWatermark {
			r.setHighWatermark(hw)
		}
	}
	r.fetched = true
	r.fetchAt = now.Add(r.cfg.FetchTimeout)
	return good
}

// appendFetched takes in what the leader sent, as far as it continues the log.
func (r *Raft) appendFetched(raw []byte, batches []BatchInfo) bool {
	size, last := 0, kafka.Offset(-1)
	base := r.log.end
	for _, b := range batches {
		if b.BaseOffset != r.log.end || b.LastOffset < b.BaseOffset || b.Epoch < r.log.lastEpoch() || b.Epoch > r.epoch {
			r.note(true, "leader sent a batch that does not continue the log", "baseOffset", b.BaseOffset, "logEnd", r.log.end, "batchEpoch", b.Epoch)
			break
		}
		r.log.append(b.BaseOffset, b.LastOffset, b.Epoch, b.Control)
		size += b.Size
		last = b.LastOffset
	}
	if last >= 0 {
		r.ready.Persist.Append = append(r.ready.Persist.Append, Append{BaseOffset: base, LastOffset: last, Epoch: r.log.lastEpoch(), Raw: raw[:size]})
		if r.cfg.Mutant != FetchUnflushed {
			// Its next Fetch acknowledges these records, so they are synced before (KAFKA-10533); an observer's too, for it
			// may become a voter.
			r.ready.Persist.Flush = true
		}
	}
	return last >= 0 || len(batches) == 0
}

func (r *Raft) truncate(end kafka.OffsetAndEpoch) {
	to := r.log.truncationFor(end)
	if r.cfg.Mutant == TruncateCommitted {
		to = max(0, min(to, end.Offset)-3)
		r.highWatermark = min(r.highWatermark, to)
	}
	to = max(to, r.log.start)
	if to >= r.log.end {
		return
	}
	invariant.Check(to >= r.highWatermark, "K5: the leader of epoch %d wants a truncation to %d, below the high watermark %d", r.epoch, to, r.highWatermark)
	r.log.truncate(to)
	r.ready.Persist.Truncate = &to
	r.note(false, "truncated metadata log", "logEndOffset", to, "divergingEpoch", end.Epoch, "leader", r.leader)
}

func (r *Raft) fetchSnapshotRequest() kmsg.Request {
	m := kmsg.NewPtrFetchSnapshotRequest()
	m.ClusterID = &r.cfg.ClusterID
	m.ReplicaID, m.MaxBytes = int32(r.cfg.ID), r.cfg.FetchSnapshotMaxBytes
	p := kmsg.NewFetchSnapshotRequestTopicPartition()
	p.CurrentLeaderEpoch = int32(r.epoch)
	p.SnapshotID.EndOffset, p.SnapshotID.Epoch = r.fetching.Offset, int32(r.fetching.Epoch)
	p.Position, p.ReplicaDirectoryID = r.fetchingAt, r.cfg.Directory
	t := kmsg.NewFetchSnapshotRequestTopic()
	t.Topic, t.Partitions = kafka.ClusterMetadataTopic, append(t.Partitions, p)
	m.Topics = append(m.Topics, t)
	return m
}

func (r *Raft) fetchSnapshotAnswered(now time.Time, q *kmsg.FetchSnapshotRequest, m *kmsg.FetchSnapshotResponse) bool {
	if !r.topLevel(m.ErrorCode, "FetchSnapshot") || len(m.Topics) != 1 || len(m.Topics[0].Partitions) != 1 {
		return false
	}
	p := &m.Topics[0].Partitions[0]
	var endpoints []Endpoint
	for _, e := range m.NodeEndpoints {
		if e.NodeID == p.CurrentLeader.LeaderID {
			endpoints = r.named(e.Host, e.Port)
		}
	}
	if done, good := r.common(now, p.ErrorCode, p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch, endpoints); done {
		return good
	}
	if r.role != Follower || r.fetching == noSnapshot || r.awaitSnapshot {
		return true
	}
	id := kafka.OffsetAndEpoch{Offset: p.SnapshotID.EndOffset, Epoch: kafka.LeaderEpoch(p.SnapshotID.Epoch)}
	switch {
	case p.ErrorCode == kerr.SnapshotNotFound.Code || p.ErrorCode == 0 && (id.Offset < 0 || id.Epoch < 0):
		// It has a newer one by now: Fetch will tell.
		r.note(false, "leader does not have the snapshot any more", "snapshot", r.fetching)
		r.dropFetching()
		r.fetchAt = now.Add(r.cfg.FetchTimeout)
		return true
	case p.ErrorCode != 0 || id != r.fetching || p.Position != r.fetchingAt || q.Topics[0].Partitions[0].Position != p.Position ||
		len(p.Bytes) == 0 || p.Position+int64(len(p.Bytes)) > p.Size:
		r.note(true, "leader sent a wrong piece of a snapshot", "snapshot", id, "position", p.Position, "bytes", len(p.Bytes), "size", p.Size, "err", kerr.ForCode(p.ErrorCode))
		r.dropFetching()
		return false
	}
	r.fetchingAt += int64(len(p.Bytes))
	r.awaitSnapshot = r.fetchingAt == p.Size
	r.ready.Persist.SnapshotChunk = &SnapshotChunk{ID: id, Position: p.Position, Data: p.Bytes, Last: r.awaitSnapshot}
	r.fetched = true
	r.fetchAt = now.Add(r.cfg.FetchTimeout)
	return true
}

// snapshotFetched begins the log anew at a snapshot that is in place.
func (r *Raft) snapshotFetched(now time.Time, ev *SnapshotFetched) {
	if r.fetching != ev.ID {
		return
	}
	r.dropFetching()
	if ev.Err != nil {
		r.note(true, "fetched snapshot is not sound", "snapshot", ev.ID, "err", ev.Err)
		if n, ok := r.leaderNode(); ok {
			r.backOff(now, n)
		}
		return
	}
	invariant.Check(r.lead == nil, "K7: a leader loads a snapshot")
	invariant.Check(ev.ID.Offset > r.highWatermark, "K7: snapshot %v below the high watermark %d", ev.ID, r.highWatermark)
	r.log.resetTo(ev.ID, ev.Control)
	id := ev.ID
	r.ready.Persist.ResetTo = &id
	r.setHighWatermark(ev.ID.Offset)
	r.fetchAt = now.Add(r.cfg.FetchTimeout)
}
