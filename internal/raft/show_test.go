package raft_test

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/raft"
)

func show(m kmsg.Request) string {
	switch m := m.(type) {
	case *kmsg.VoteRequest:
		p := m.Topics[0].Partitions[0]
		pre := ""
		if p.PreVote {
			pre = "Pre"
		}
		return fmt.Sprintf("%sVote epoch=%d log=%d(%d)", pre, p.CandidateEpoch, p.LastOffset, p.LastOffsetEpoch)
	case *kmsg.BeginQuorumEpochRequest:
		return fmt.Sprintf("BeginQuorumEpoch epoch=%d", m.Topics[0].Partitions[0].LeaderEpoch)
	case *kmsg.EndQuorumEpochRequest:
		p := m.Topics[0].Partitions[0]
		return fmt.Sprintf("EndQuorumEpoch epoch=%d successors=%v", p.LeaderEpoch, p.PreferredSuccessors)
	case *kmsg.FetchRequest:
		p := m.Topics[0].Partitions[0]
		return fmt.Sprintf("Fetch epoch=%d at=%d(%d) hw=%d", p.CurrentLeaderEpoch, p.FetchOffset, p.LastFetchedEpoch, p.HighWatermark)
	case *kmsg.FetchSnapshotRequest:
		p := m.Topics[0].Partitions[0]
		return fmt.Sprintf("FetchSnapshot epoch=%d id=%d(%d) position=%d", p.CurrentLeaderEpoch, p.SnapshotID.EndOffset, p.SnapshotID.Epoch, p.Position)
	case *kmsg.UpdateRaftVoterRequest:
		return fmt.Sprintf("UpdateRaftVoter epoch=%d voter=%d listeners=%v", m.CurrentLeaderEpoch, m.VoterID, m.Listeners)
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", m), "*kmsg.")
}

func showCode(c int16) string {
	if c == 0 {
		return ""
	}
	return " " + kerr.ForCode(c).(*kerr.Error).Name
}

func showResponse(m kmsg.Response) string {
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return ": " + *s
	}
	switch m := m.(type) {
	case *kmsg.VoteResponse:
		if m.ErrorCode != 0 {
			return "Vote" + showCode(m.ErrorCode)
		}
		p := m.Topics[0].Partitions[0]
		return fmt.Sprintf("Vote%s granted=%v epoch=%d leader=%d%s", showCode(p.ErrorCode), p.VoteGranted, p.LeaderEpoch, p.LeaderID, at(len(m.NodeEndpoints)))
	case *kmsg.BeginQuorumEpochResponse:
		if m.ErrorCode != 0 {
			return "BeginQuorumEpoch" + showCode(m.ErrorCode)
		}
		p := m.Topics[0].Partitions[0]
		return fmt.Sprintf("BeginQuorumEpoch%s epoch=%d leader=%d%s", showCode(p.ErrorCode), p.LeaderEpoch, p.LeaderID, at(len(m.NodeEndpoints)))
	case *kmsg.EndQuorumEpochResponse:
		if m.ErrorCode != 0 {
			return "EndQuorumEpoch" + showCode(m.ErrorCode)
		}
		p := m.Topics[0].Partitions[0]
		return fmt.Sprintf("EndQuorumEpoch%s epoch=%d leader=%d%s", showCode(p.ErrorCode), p.LeaderEpoch, p.LeaderID, at(len(m.NodeEndpoints)))
	case *kmsg.FetchResponse:
		if m.ErrorCode != 0 {
			return "Fetch" + showCode(m.ErrorCode)
		}
		p := m.Topics[0].Partitions[0]
		s := fmt.Sprintf("Fetch%s epoch=%d leader=%d%s hw=%d", showCode(p.ErrorCode), p.CurrentLeader.LeaderEpoch, p.CurrentLeader.LeaderID, at(len(m.Brokers)), p.HighWatermark)
		if p.DivergingEpoch.EndOffset >= 0 {
			s += fmt.Sprintf(" diverging=%d(%d)", p.DivergingEpoch.EndOffset, p.DivergingEpoch.Epoch)
		}
		if p.SnapshotID.EndOffset >= 0 {
			s += fmt.Sprintf(" snapshot=%d(%d)", p.SnapshotID.EndOffset, p.SnapshotID.Epoch)
		}
		return s + fmt.Sprintf(" batches=%d", len(p.RecordBatches)/3)
	case *kmsg.FetchSnapshotResponse:
		if m.ErrorCode != 0 {
			return "FetchSnapshot" + showCode(m.ErrorCode)
		}
		p := m.Topics[0].Partitions[0]
		return fmt.Sprintf("FetchSnapshot%s epoch=%d leader=%d%s position=%d bytes=%d size=%d", showCode(p.ErrorCode), p.CurrentLeader.LeaderEpoch, p.CurrentLeader.LeaderID, at(len(m.NodeEndpoints)), p.Position, len(p.Bytes), p.Size)
	case *kmsg.DescribeQuorumResponse:
		p := m.Topics[0].Partitions[0]
		s := fmt.Sprintf("DescribeQuorum%s leader=%d epoch=%d hw=%d", showCode(p.ErrorCode), p.LeaderID, p.LeaderEpoch, p.HighWatermark)
		for _, v := range p.CurrentVoters {
			s += fmt.Sprintf(" voter %d@%d fetched=%d caughtUp=%d", v.ReplicaID, v.LogEndOffset, v.LastFetchTimestamp, v.LastCaughtUpTimestamp)
		}
		for _, v := range p.Observers {
			s += fmt.Sprintf(" observer %d@%d fetched=%d caughtUp=%d", v.ReplicaID, v.LogEndOffset, v.LastFetchTimestamp, v.LastCaughtUpTimestamp)
		}
		return s
	case *kmsg.AddRaftVoterResponse:
		return "AddRaftVoter" + showCode(m.ErrorCode) + text(m.ErrorMessage)
	case *kmsg.RemoveRaftVoterResponse:
		return "RemoveRaftVoter" + showCode(m.ErrorCode) + text(m.ErrorMessage)
	case *kmsg.UpdateRaftVoterResponse:
		return fmt.Sprintf("UpdateRaftVoter%s epoch=%d leader=%d", showCode(m.ErrorCode), m.CurrentLeader.LeaderEpoch, m.CurrentLeader.LeaderID)
	}
	return fmt.Sprintf("%T", m)
}

func at(endpoints int) string {
	if endpoints > 0 {
		return "@"
	}
	return ""
}

// ask sends a request that no node of the quorum sent.
func (m *member) ask(kind string, args []string) error {
	v := map[string]int64{}
	cluster := "cluster"
	for _, a := range args {
		k, s, _ := strings.Cut(a, "=")
		if k == "cluster" {
			cluster = s
			continue
		}
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return err
		}
		v[k] = n
	}
	get := func(k string, def int64) int64 {
		if n, ok := v[k]; ok {
			return n
		}
		return def
	}
	dir := func(k string) (d [16]byte) {
		if n, ok := v[k]; ok {
			d = directory(kafka.BrokerID(n))
		}
		return d
	}
	epoch := int32(get("epoch", int64(m.r.Status().Epoch)))
	const topic = kafka.ClusterMetadataTopic
	var req kmsg.Request
	switch kind {
	case "vote":
		q := kmsg.NewPtrVoteRequest()
		q.ClusterID, q.VoterID = &cluster, int32(get("to", int64(m.id)))
		p := kmsg.VoteRequestTopicPartition{Partition: int32(get("partition", 0)), CandidateEpoch: epoch, CandidateID: int32(get("from", 9)), CandidateDirectoryID: dir("fromdir"), VoterDirectoryID: dir("todir"),
			LastOffset: get("offset", 0), LastOffsetEpoch: int32(get("last", 0)), PreVote: get("pre", 0) == 1}
		q.Topics = []kmsg.VoteRequestTopic{{Topic: topic, Partitions: []kmsg.VoteRequestTopicPartition{p}}}
		req = q
	case "begin":
		q := kmsg.NewPtrBeginQuorumEpochRequest()
		q.ClusterID, q.VoterID = &cluster, int32(get("to", int64(m.id)))
		p := kmsg.BeginQuorumEpochRequestTopicPartition{LeaderID: int32(get("from", 9)), LeaderEpoch: epoch, VoterDirectoryID: dir("todir")}
		q.Topics = []kmsg.BeginQuorumEpochRequestTopic{{Topic: topic, Partitions: []kmsg.BeginQuorumEpochRequestTopicPartition{p}}}
		q.LeaderEndpoints = []kmsg.BeginQuorumEpochRequestLeaderEndpoint{{Name: "CONTROLLER", Host: fmt.Sprintf("n%d", p.LeaderID), Port: 9093}}
		req = q
	case "end":
		q := kmsg.NewPtrEndQuorumEpochRequest()
		q.ClusterID = &cluster
		p := kmsg.EndQuorumEpochRequestTopicPartition{LeaderID: int32(get("from", 9)), LeaderEpoch: epoch}
		q.Topics = []kmsg.EndQuorumEpochRequestTopic{{Topic: topic, Partitions: []kmsg.EndQuorumEpochRequestTopicPartition{p}}}
		req = q
	case "fetch":
		q := kmsg.NewPtrFetchRequest()
		q.ClusterID = &cluster
		q.ReplicaState.ID = int32(get("from", 9))
		q.MaxWaitMillis = int32(get("wait", 0))
		p := kmsg.NewFetchRequestTopicPartition()
		p.CurrentLeaderEpoch, p.FetchOffset, p.LastFetchedEpoch, p.HighWatermark = epoch, get("offset", 0), int32(get("last", 0)), get("hw", 1<<60)
		p.ReplicaDirectoryID = dir("fromdir")
		q.Topics = []kmsg.FetchRequestTopic{{Topic: topic, TopicID: kafka.MetadataTopic, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
		req = q
	case "fetchsnapshot":
		q := kmsg.NewPtrFetchSnapshotRequest()
		q.ClusterID, q.ReplicaID, q.MaxBytes = &cluster, int32(get("from", 9)), 1<<20
		p := kmsg.NewFetchSnapshotRequestTopicPartition()
		p.CurrentLeaderEpoch, p.Position = epoch, get("position", 0)
		p.SnapshotID.EndOffset, p.SnapshotID.Epoch = get("offset", 0), int32(get("last", 0))
		q.Topics = []kmsg.FetchSnapshotRequestTopic{{Topic: topic, Partitions: []kmsg.FetchSnapshotRequestTopicPartition{p}}}
		req = q
	case "describe":
		q := kmsg.NewPtrDescribeQuorumRequest()
		q.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: topic, Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{}}}}
		req = q
	case "update":
		q := kmsg.NewPtrUpdateRaftVoterRequest()
		q.ClusterID, q.CurrentLeaderEpoch, q.VoterID, q.VoterDirectoryID = &cluster, epoch, int32(get("id", 9)), dir("id")
		q.Listeners = []kmsg.UpdateRaftVoterRequestListener{{Name: "CONTROLLER", Host: fmt.Sprintf("n%d", q.VoterID), Port: 9093}}
		q.KRaftVersionFeature.MaxSupportedVersion = int16(get("max", 1))
		req = q
	case "add":
		q := kmsg.NewPtrAddRaftVoterRequest()
		q.ClusterID, q.VoterID, q.VoterDirectoryID, q.AckWhenCommitted = &cluster, int32(get("id", 9)), dir("id"), get("ack", 1) == 1
		if get("listener", 1) == 1 {
			q.Listeners = []kmsg.AddRaftVoterRequestListener{{Name: "CONTROLLER", Host: fmt.Sprintf("n%d", q.VoterID), Port: 9093}}
		}
		req = q
	case "remove":
		q := kmsg.NewPtrRemoveRaftVoterRequest()
		q.ClusterID, q.VoterID, q.VoterDirectoryID = &cluster, int32(get("id", 9)), dir("id")
		req = q
	default:
		return fmt.Errorf("no request %q", kind)
	}
	req.SetVersion(int16(get("version", int64(req.MaxVersion()))))
	m.lastID++
	m.asked[m.lastID] = func(r kmsg.Response) { m.q.printf("%d: answers %s", m.id, showResponse(r)) }
	m.step(raft.Request{ID: m.lastID, Listener: "CONTROLLER", Msg: req})
	return nil
}
