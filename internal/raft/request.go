package raft

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

func (r *Raft) request(now time.Time, ev *Request) {
	switch m := ev.Msg.(type) {
	case *kmsg.VoteRequest:
		r.reply(ev.ID, r.handleVote(now, ev.Listener, m))
	case *kmsg.BeginQuorumEpochRequest:
		r.reply(ev.ID, r.handleBeginQuorumEpoch(now, ev.Listener, m))
	case *kmsg.EndQuorumEpochRequest:
		r.reply(ev.ID, r.handleEndQuorumEpoch(now, ev.Listener, m))
	case *kmsg.FetchRequest:
		r.handleFetch(now, ev, m)
	case *kmsg.FetchSnapshotRequest:
		r.handleFetchSnapshot(now, ev, m)
	case *kmsg.DescribeQuorumRequest:
		r.reply(ev.ID, r.handleDescribeQuorum(now, m))
	case *kmsg.AddRaftVoterRequest:
		r.handleAddVoter(now, ev.ID, m)
	case *kmsg.RemoveRaftVoterRequest:
		r.handleRemoveVoter(now, ev.ID, m)
	case *kmsg.UpdateRaftVoterRequest:
		r.handleUpdateVoter(now, ev, m)
	default:
		r.note(true, "request that the quorum does not know", "key", ev.Msg.Key())
		r.reply(ev.ID, nil)
	}
}

// validClusterID accepts a request without one, as Kafka does.
func (r *Raft) validClusterID(id *string) bool { return id == nil || *id == r.cfg.ClusterID }

// forVoter is the check that what only voters ask begins with.
func (r *Raft) forVoter(remote int32, epoch kafka.LeaderEpoch) *kerr.Error {
	switch {
	case epoch < r.epoch:
		return kerr.FencedLeaderEpoch
	case remote < 0:
		return kerr.InvalidRequest
	}
	return nil
}

// forLeader is the check that what only a leader answers begins with.
func (r *Raft) forLeader(epoch kafka.LeaderEpoch) *kerr.Error {
	switch {
	case epoch < r.epoch:
		return kerr.FencedLeaderEpoch
	case epoch > r.epoch:
		return kerr.UnknownLeaderEpoch
	case r.lead == nil:
		return kerr.NotLeaderOrFollower
	case r.stopping():
		return kerr.BrokerNotAvailable
	}
	return nil
}

// isSelf tells whether a message that names its receiver means this replica; unnamed parts match.
func (r *Raft) isSelf(id int32, directory [16]byte) bool {
	if id < 0 {
		return true
	}
	return kafka.BrokerID(id) == r.cfg.ID && (kafka.DirectoryID(directory).IsZero() || kafka.DirectoryID(directory) == r.cfg.Directory)
}

func code(e *kerr.Error) int16 {
	if e == nil {
		return 0
	}
	return e.Code
}

// leaderAddress is the leader's endpoint of a listener, for answers.
func (r *Raft) leaderAddress(listener string) (Endpoint, bool) {
	if r.leader == kafka.NoBroker {
		return Endpoint{}, false
	}
	return endpointOf(r.leaderEndpoints, listener)
}

func (r *Raft) handleVote(now time.Time, listener string, m *kmsg.VoteRequest) kmsg.Response {
	resp := m.ResponseKind().(*kmsg.VoteResponse)
	if !r.validClusterID(m.ClusterID) {
		resp.ErrorCode = kerr.InconsistentClusterID.Code
		return resp
	}
	if len(m.Topics) != 1 || m.Topics[0].Topic != kafka.ClusterMetadataTopic || len(m.Topics[0].Partitions) != 1 ||
		m.Topics[0].Partitions[0].Partition != 0 || !r.cfg.CanVote {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp
	}
	p := &m.Topics[0].Partitions[0]
	granted, err := r.considerVote(now, m.VoterID, p)
	part := kmsg.NewVoteResponseTopicPartition()
	part.ErrorCode, part.VoteGranted = code(err), granted
	part.LeaderID, part.LeaderEpoch = int32(r.leader), int32(r.epoch)
	t := kmsg.NewVoteResponseTopic()
	t.Topic, t.Partitions = kafka.ClusterMetadataTopic, append(t.Partitions, part)
	resp.Topics = append(resp.Topics, t)
	if e, ok := r.leaderAddress(listener); ok && m.Version >= 1 {
		resp.NodeEndpoints = []kmsg.VoteResponseNodeEndpoint{{NodeID: int32(r.leader), Host: e.Host, Port: e.Port}}
	}
	return resp
}

func (r *Raft) considerVote(now time.Time, voterID int32, p *kmsg.VoteRequestTopicPartition) (bool, *kerr.Error) {
	epoch, lastEpoch := kafka.LeaderEpoch(p.CandidateEpoch), kafka.LeaderEpoch(p.LastOffsetEpoch)
	// A candidate raised its epoch above that of its log; who only asks beforehand did not.
	if p.LastOffset < 0 || lastEpoch < 0 || lastEpoch > epoch || lastEpoch == epoch && !p.PreVote {
		return false, kerr.InvalidRequest
	}
	if err := r.forVoter(p.CandidateID, epoch); err != nil {
		return false, err
	}
	if epoch > r.epoch {
		r.toEpoch(now, epoch)
	}
	if !r.isSelf(voterID, p.VoterDirectoryID) {
		r.note(false, "vote request for another replica", "voter", ReplicaKey{kafka.BrokerID(voterID), p.VoterDirectoryID})
		return false, kerr.InvalidVoterKey
	}
	candidate := ReplicaKey{kafka.BrokerID(p.CandidateID), p.CandidateDirectoryID}
	theirs := kafka.OffsetAndEpoch{Offset: p.LastOffset, Epoch: lastEpoch}
	upToDate := compareOffsetAndEpoch(theirs, r.log.endOffsetAndEpoch()) >= 0
	granted := r.canVoteFor(candidate, upToDate, p.PreVote)
	if granted && !p.PreVote {
		r.vote(candidate)
	}
	r.note(false, "vote request", "candidate", candidate, "leaderEpoch", epoch, "preVote", p.PreVote, "granted", granted)
	return granted, nil
}

func (r *Raft) handleBeginQuorumEpoch(now time.Time, listener string, m *kmsg.BeginQuorumEpochRequest) kmsg.Response {
	resp := m.ResponseKind().(*kmsg.BeginQuorumEpochResponse)
	if !r.validClusterID(m.ClusterID) {
		resp.ErrorCode = kerr.InconsistentClusterID.Code
		return resp
	}
	if len(m.Topics) != 1 || m.Topics[0].Topic != kafka.ClusterMetadataTopic || len(m.Topics[0].Partitions) != 1 ||
		m.Topics[0].Partitions[0].Partition != 0 || !r.cfg.CanVote {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp
	}
	p := &m.Topics[0].Partitions[0]
	err := r.forVoter(p.LeaderID, kafka.LeaderEpoch(p.LeaderEpoch))
	if err == nil {
		var endpoints []Endpoint
		for _, e := range m.LeaderEndpoints {
			endpoints = append(endpoints, Endpoint{e.Name, e.Host, e.Port})
		}
		err = r.learn(now, kafka.BrokerID(p.LeaderID), kafka.LeaderEpoch(p.LeaderEpoch), endpoints)
		if err == nil && !r.isSelf(m.VoterID, p.VoterDirectoryID) {
			err = kerr.InvalidVoterKey
		}
	}
	part := kmsg.NewBeginQuorumEpochResponseTopicPartition()
	part.ErrorCode, part.LeaderID, part.LeaderEpoch = code(err), int32(r.leader), int32(r.epoch)
	t := kmsg.NewBeginQuorumEpochResponseTopic()
	t.Topic, t.Partitions = kafka.ClusterMetadataTopic, append(t.Partitions, part)
	resp.Topics = append(resp.Topics, t)
	if e, ok := r.leaderAddress(listener); ok && m.Version >= 1 {
		resp.NodeEndpoints = []kmsg.BeginQuorumEpochResponseNodeEndpoint{{NodeID: int32(r.leader), Host: e.Host, Port: e.Port}}
	}
	return resp
}

func (r *Raft) handleEndQuorumEpoch(now time.Time, listener string, m *kmsg.EndQuorumEpochRequest) kmsg.Response {
	resp := m.ResponseKind().(*kmsg.EndQuorumEpochResponse)
	if !r.validClusterID(m.ClusterID) {
		resp.ErrorCode = kerr.InconsistentClusterID.Code
		return resp
	}
	if len(m.Topics) != 1 || m.Topics[0].Topic != kafka.ClusterMetadataTopic || len(m.Topics[0].Partitions) != 1 ||
		m.Topics[0].Partitions[0].Partition != 0 || !r.cfg.CanVote {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp
	}
	p := &m.Topics[0].Partitions[0]
	err := r.forVoter(p.LeaderID, kafka.LeaderEpoch(p.LeaderEpoch))
	if err == nil {
		var endpoints []Endpoint
		for _, e := range m.LeaderEndpoints {
			endpoints = append(endpoints, Endpoint{e.Name, e.Host, e.Port})
		}
		err = r.learn(now, kafka.BrokerID(p.LeaderID), kafka.LeaderEpoch(p.LeaderEpoch), endpoints)
	}
	if err == nil && r.role == Follower && r.leader == kafka.BrokerID(p.LeaderID) {
		// The first of the successors stands at once, the others later, each twice as late as the one before.
		r.fetchAt = now.Add(r.successionDelay(p))
		// It heard that the leader goes: it may help another to become one.
		r.fetched = false
	}
	part := kmsg.NewEndQuorumEpochResponseTopicPartition()
	part.ErrorCode, part.LeaderID, part.LeaderEpoch = code(err), int32(r.leader), int32(r.epoch)
	t := kmsg.NewEndQuorumEpochResponseTopic()
	t.Topic, t.Partitions = kafka.ClusterMetadataTopic, append(t.Partitions, part)
	resp.Topics = append(resp.Topics, t)
	if e, ok := r.leaderAddress(listener); ok && m.Version >= 1 {
		resp.NodeEndpoints = []kmsg.EndQuorumEpochResponseNodeEndpoint{{NodeID: int32(r.leader), Host: e.Host, Port: e.Port}}
	}
	return resp
}

func (r *Raft) successionDelay(p *kmsg.EndQuorumEpochRequestTopicPartition) time.Duration {
	position, total := 0, 0
	if len(p.PreferredCandidates) > 0 {
		total = len(p.PreferredCandidates)
		position = slices.IndexFunc(p.PreferredCandidates, func(c kmsg.EndQuorumEpochRequestTopicPartitionPreferredCandidate) bool {
			return c.CandidateID >= 0 && r.isSelf(c.CandidateID, c.CandidateDirectoryID)
		})
	} else {
		total = len(p.PreferredSuccessors)
		position = slices.Index(p.PreferredSuccessors, int32(r.cfg.ID))
	}
	switch {
	case position == 0:
		return 0
	case position < 0:
		return r.cfg.ElectionBackoffMax
	}
	base := r.cfg.ElectionBackoffMax >> min(total-1, 30)
	return min(r.cfg.ElectionBackoffMax, base<<min(position-1, 30))
}

// learn takes in who leads which epoch, from any message. It refuses what contradicts what this node knows.
func (r *Raft) learn(now time.Time, leader kafka.BrokerID, epoch kafka.LeaderEpoch, endpoints []Endpoint) *kerr.Error {
	if leader < 0 {
		leader = kafka.NoBroker
	}
	if leader != kafka.NoBroker && len(endpoints) == 0 {
		if v, ok := r.Voters().Get(leader); ok {
			endpoints = v.Endpoints
		}
	}
	switch {
	case leader == r.cfg.ID && (epoch != r.epoch || r.leader != r.cfg.ID),
		leader != kafka.NoBroker && epoch == r.epoch && r.leader != kafka.NoBroker && leader != r.leader:
		r.note(true, "two leaders named for one epoch", "leaderEpoch", epoch, "leader", r.leader, "other", leader)
		return kerr.InvalidRequest
	case epoch > r.epoch:
		switch {
		case leader == kafka.NoBroker:
			r.toEpoch(now, epoch)
		case len(endpoints) == 0:
			// It leads, but where is not known: an epoch to be in, and somebody to ask.
			r.toEpoch(now, epoch)
			r.leader = leader
		default:
			r.follow(now, epoch, leader, endpoints)
		}
	case epoch == r.epoch && leader != kafka.NoBroker && leader != r.cfg.ID && len(endpoints) > 0 &&
		(r.leader == kafka.NoBroker || len(endpoints) > len(r.leaderEndpoints)):
		r.follow(now, epoch, leader, endpoints)
	case epoch == r.epoch && leader == r.leader && r.role == Follower && !now.Before(r.fetchAt):
		// An observer that lost its leader asked around, and was told that it still leads: try it again.
		r.fetchAt = now.Add(r.cfg.FetchTimeout)
		if len(endpoints) > 0 {
			r.leaderEndpoints = endpoints
		}
	}
	return nil
}

func (r *Raft) handleDescribeQuorum(now time.Time, m *kmsg.DescribeQuorumRequest) kmsg.Response {
	resp := m.ResponseKind().(*kmsg.DescribeQuorumResponse)
	resp.ErrorMessage = new("")
	ok := len(m.Topics) == 1 && m.Topics[0].Topic == kafka.ClusterMetadataTopic && len(m.Topics[0].Partitions) == 1 && m.Topics[0].Partitions[0].Partition == 0
	if !ok {
		for _, t := range m.Topics {
			rt := kmsg.NewDescribeQuorumResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewDescribeQuorumResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, kerr.UnknownTopicOrPartition.Code
				rp.ErrorMessage = new(kerr.UnknownTopicOrPartition.Message())
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp
	}
	p := kmsg.NewDescribeQuorumResponseTopicPartition()
	p.ErrorMessage = new("")
	if r.lead == nil {
		p.ErrorCode = kerr.NotLeaderOrFollower.Code
		p.ErrorMessage = new(kerr.NotLeaderOrFollower.Message())
	} else {
		p.LeaderID, p.LeaderEpoch, p.HighWatermark = int32(r.leader), int32(r.epoch), r.highWatermark
		for _, v := range r.Voters().Voters() {
			s := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
			s.ReplicaID, s.ReplicaDirectoryID = int32(v.Key.ID), v.Key.Directory
			if v.Key.Matches(r.self) {
				s.LogEndOffset, s.LastFetchTimestamp, s.LastCaughtUpTimestamp = r.log.end, now.UnixMilli(), now.UnixMilli()
			} else if q := r.lead.find(v.Key); q != nil {
				q.describe(&s)
			}
			p.CurrentVoters = append(p.CurrentVoters, s)
			if m.Version >= 2 {
				n := kmsg.NewDescribeQuorumResponseNode()
				n.NodeID = int32(v.Key.ID)
				for _, e := range v.Endpoints {
					l := kmsg.NewDescribeQuorumResponseNodeListener()
					l.Name, l.Host, l.Port = e.Listener, e.Host, e.Port
					n.Listeners = append(n.Listeners, l)
				}
				resp.Nodes = append(resp.Nodes, n)
			}
		}
		for i := range r.lead.observers {
			o := &r.lead.observers[i]
			if now.Sub(o.lastFetch) > observerSession {
				continue
			}
			s := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
			s.ReplicaID, s.ReplicaDirectoryID = int32(o.key.ID), o.key.Directory
			o.describe(&s)
			p.Observers = append(p.Observers, s)
		}
	}
	t := kmsg.NewDescribeQuorumResponseTopic()
	t.Topic, t.Partitions = kafka.ClusterMetadataTopic, append(t.Partitions, p)
	resp.Topics = append(resp.Topics, t)
	return resp
}

func (p *progress) describe(s *kmsg.DescribeQuorumResponseTopicPartitionReplicaState) {
	s.LogEndOffset, s.LastFetchTimestamp, s.LastCaughtUpTimestamp = p.end, -1, -1
	if !p.lastFetch.IsZero() {
		s.LastFetchTimestamp = p.lastFetch.UnixMilli()
	}
	if !p.lastCaughtUp.IsZero() {
		s.LastCaughtUpTimestamp = p.lastCaughtUp.UnixMilli()
	}
}
