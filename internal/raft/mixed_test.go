package raft_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raft"
)

// exchange is a request that a node of a real Kafka 4.4 quorum got or sent, and its answer. testdata/mixed has some of
// what three controllers (dynamic voters, kraft.version 1) said to each other.
type exchange struct {
	API               string
	V                 int16
	Request, Response json.RawMessage
}

func exchanges(t *testing.T, name string) []exchange {
	t.Helper()
	f, err := os.Open("testdata/mixed/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []exchange
	s := bufio.NewScanner(f)
	for s.Scan() {
		var e exchange
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// fill decodes a body: names are kmsg's, ids are in Kafka's text form.
func fill(t *testing.T, body json.RawMessage, into any) {
	t.Helper()
	var v any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	var walk func(v any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for k, x := range v {
				if s, ok := x.(string); ok && (strings.HasSuffix(k, "DirectoryID") || k == "TopicID") {
					id, err := kafka.ParseUUID(s)
					if err != nil {
						t.Fatal(err)
					}
					v[k] = id
					continue
				}
				v[k] = walk(x)
			}
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		}
		return v
	}
	data, err := json.Marshal(walk(v))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

const mixedCluster = "MTK8O0WtRiGeLF7AOYuFWQ"

func mixedVoters() raft.VoterSet {
	v := func(id kafka.BrokerID, dir string, port uint16) raft.Voter {
		d, err := kafka.ParseUUID(dir)
		if err != nil {
			panic(err)
		}
		return raft.Voter{Key: raft.ReplicaKey{ID: id, Directory: d}, Endpoints: []raft.Endpoint{{Listener: "CONTROLLER", Host: "127.0.0.1", Port: port}}, MaxKRaft: 1}
	}
	return raft.NewVoterSet(v(1, "jDGiLhGrTTSMqgeIkZa6zw", 23461), v(2, "32X9O6aDTomUcneApPjcvg", 23462), v(3, "S_SgHS3aSTqBp28QfTzKBQ", 23463))
}

// mixedNode is one of the three, with a log of one epoch that ends at end.
func mixedNode(now time.Time, id kafka.BrokerID, end kafka.Offset, e raft.Election) *raft.Raft {
	own, _ := mixedVoters().Get(id)
	s := raft.LogState{EndOffset: end, Snapshots: []kafka.OffsetAndEpoch{{}},
		Control: []raft.ControlAt{{Offset: -1, Record: raft.KRaftVersion(1)}, {Offset: -1, Record: raft.Voters{Set: mixedVoters()}}}}
	if end > 0 {
		s.Epochs = []raft.EpochStart{{Epoch: e.Epoch, Offset: 0}}
	}
	return raft.New(now, raft.Config{
		ID: id, Directory: own.Key.Directory, ClusterID: mixedCluster, CanVote: true, Listener: "CONTROLLER", Endpoints: own.Endpoints,
		ElectionTimeout: time.Second, ElectionBackoffMax: time.Second, FetchTimeout: 2 * time.Second, RequestTimeout: 2 * time.Second,
		RetryBackoff: 20 * time.Millisecond, FetchMaxBytes: 1 << 20, FetchSnapshotMaxBytes: 1 << 20, Rand: rand.New(rand.NewPCG(1, 1)),
	}, s, e)
}

func none() raft.ReplicaKey { return raft.ReplicaKey{ID: kafka.NoBroker} }

// TestAnswersAsKafka puts this machine in the place of a real controller: it gets the requests that that one got, and
// gives byte for byte the answers that that one gave.
func TestAnswersAsKafka(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	for _, c := range []struct {
		file  string
		node  kafka.BrokerID
		end   kafka.Offset
		state raft.Election
		wait  time.Duration // before the requests come
		role  raft.Role     // that it then has
	}{
		// A new quorum: two pre-votes, two candidates in one epoch, the winner's announcement.
		{"election-first-c2.jsonl", 2, 0, raft.Election{Leader: kafka.NoBroker, Voted: none()}, 0, raft.Unattached},
		// The leader, 3, died; this one stands already when the other asks.
		{"election-kill-c2.jsonl", 2, 707, raft.Election{Epoch: 1, Leader: 3, Voted: none()}, 2 * time.Second, raft.Prospective},
		// The leader has resigned.
		{"election-stop-c1.jsonl", 1, 784, raft.Election{Epoch: 2, Leader: 1, Voted: none()}, 0, raft.Resigned},
	} {
		r := mixedNode(now, c.node, c.end, c.state)
		at := now.Add(c.wait)
		if err := r.Step(at, raft.Tick{}); err != nil {
			t.Fatal(err)
		}
		r.Ready()
		if got := r.Status().Role; got != c.role {
			t.Errorf("%s: is %v, want %v", c.file, got, c.role)
		}
		for i, x := range exchanges(t, c.file) {
			var req kmsg.Request
			switch x.API {
			case "Vote":
				req = kmsg.NewPtrVoteRequest()
			case "BeginQuorumEpoch":
				req = kmsg.NewPtrBeginQuorumEpochRequest()
			default:
				t.Fatalf("%s: %s", c.file, x.API)
			}
			fill(t, x.Request, req)
			req.SetVersion(x.V)
			want := req.ResponseKind()
			fill(t, x.Response, want)
			want.SetVersion(x.V)
			if err := r.Step(at, raft.Request{ID: 1, Listener: "CONTROLLER", Msg: req}); err != nil {
				t.Fatal(err)
			}
			rd := r.Ready()
			if len(rd.Reply) != 1 {
				t.Fatalf("%s %d: %d answers", c.file, i, len(rd.Reply))
			}
			if got := rd.Reply[0].Msg; !bytes.Equal(got.AppendTo(nil), want.AppendTo(nil)) {
				t.Errorf("%s %d, %s: answered %s, Kafka %s", c.file, i, show(req), showResponse(got), showResponse(want))
			}
		}
	}
}

// TestAsksAsKafka: what this machine sends is byte for byte what a controller of Kafka sent in the same place.
func TestAsksAsKafka(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	sent := func(r *raft.Raft, to kafka.BrokerID) kmsg.Request {
		t.Helper()
		var found kmsg.Request
		for _, s := range r.Ready().Send {
			if s.To.ID == to {
				found = s.Msg
			}
		}
		if found == nil {
			t.Fatalf("nothing sent to %d", to)
		}
		return found
	}
	step := func(r *raft.Raft, at time.Time, ev raft.Event) {
		t.Helper()
		if err := r.Step(at, ev); err != nil {
			t.Fatal(err)
		}
	}
	for i, x := range exchanges(t, "sent.jsonl") {
		var want, got kmsg.Request
		switch x.API {
		case "Vote":
			// 2 misses its leader.
			want = kmsg.NewPtrVoteRequest()
			r := mixedNode(now, 2, 707, raft.Election{Epoch: 1, Leader: 3, Voted: none()})
			r.Ready()
			step(r, now.Add(2*time.Second), raft.Tick{})
			got = sent(r, 1)
		case "Fetch":
			// 2 follows 3, with an empty log.
			want = kmsg.NewPtrFetchRequest()
			got = sent(mixedNode(now, 2, 0, raft.Election{Epoch: 1, Leader: 3, Voted: none()}), 3)
		case "BeginQuorumEpoch":
			// 3 is elected in epoch 1.
			want = kmsg.NewPtrBeginQuorumEpochRequest()
			got = sent(elected(t, now, 3, 0, 0), 2)
		case "EndQuorumEpoch":
			// 1 leads epoch 2 and stops.
			want = kmsg.NewPtrEndQuorumEpochRequest()
			r := elected(t, now, 1, 784, 1)
			r.Ready()
			step(r, now.Add(20*time.Second), raft.Shutdown{Timeout: time.Minute})
			got = sent(r, 2)
		case "FetchSnapshot":
			// 4, no voter, was told of a snapshot by leader 2 in epoch 3.
			want = kmsg.NewPtrFetchSnapshotRequest()
			got = fetchingSnapshot(t, now)
		}
		fill(t, x.Request, want)
		want.SetVersion(x.V)
		got.SetVersion(x.V)
		if m, ok := got.(*kmsg.FetchRequest); ok {
			// Since version 13 and 15 these are not sent.
			m.Topics[0].Topic, m.ReplicaID = "", -1
		}
		if !bytes.Equal(got.AppendTo(nil), want.AppendTo(nil)) {
			a, _ := json.Marshal(got)
			b, _ := json.Marshal(want)
			t.Errorf("%d, %s:\nsent  %s\nKafka %s", i, x.API, a, b)
		}
	}
}

// elected is a node that has just won the epoch after lastEpoch, in which its log ends at end.
func elected(t *testing.T, now time.Time, id kafka.BrokerID, end kafka.Offset, lastEpoch kafka.LeaderEpoch) *raft.Raft {
	t.Helper()
	r := mixedNode(now, id, end, raft.Election{Epoch: lastEpoch, Leader: kafka.NoBroker, Voted: none()})
	now = now.Add(10 * time.Second)
	if err := r.Step(now, raft.Tick{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, s := range r.Ready().Send {
			q, ok := s.Msg.(*kmsg.VoteRequest)
			if !ok {
				continue
			}
			m := kmsg.NewPtrVoteResponse()
			p := kmsg.NewVoteResponseTopicPartition()
			p.LeaderID, p.LeaderEpoch, p.VoteGranted = -1, q.Topics[0].Partitions[0].CandidateEpoch, true
			m.Topics = []kmsg.VoteResponseTopic{{Topic: kafka.ClusterMetadataTopic, Partitions: []kmsg.VoteResponseTopicPartition{p}}}
			if err := r.Step(now, raft.Response{Corr: s.Corr, Msg: m}); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if s := r.Status(); s.Role != raft.Leader || s.Epoch != lastEpoch+1 {
		t.Fatalf("not elected: %+v", s)
	}
	return r
}

func fetchingSnapshot(t *testing.T, now time.Time) kmsg.Request {
	t.Helper()
	dir, err := kafka.ParseUUID("Sx4K4kEa5cOAKan8Cm335w")
	if err != nil {
		t.Fatal(err)
	}
	r := raft.New(now, raft.Config{
		ID: 4, Directory: dir, ClusterID: mixedCluster, CanVote: true, Listener: "CONTROLLER",
		Bootstrap:       []raft.Endpoint{{Host: "127.0.0.1", Port: 23462}},
		ElectionTimeout: time.Second, FetchTimeout: 2 * time.Second, RequestTimeout: 2 * time.Second, FetchMaxBytes: 1 << 20, FetchSnapshotMaxBytes: 1 << 20,
		Rand: rand.New(rand.NewPCG(1, 1)),
	}, raft.LogState{}, raft.Election{Leader: kafka.NoBroker, Voted: none()})
	answer := func(s raft.Send, errorCode int16, snapshot kafka.Offset) {
		m := kmsg.NewPtrFetchResponse()
		p := kmsg.NewFetchResponseTopicPartition()
		p.ErrorCode, p.HighWatermark = errorCode, 1025
		p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = 2, 3
		if snapshot > 0 {
			p.SnapshotID.EndOffset, p.SnapshotID.Epoch = snapshot, 3
		}
		m.Topics = []kmsg.FetchResponseTopic{{TopicID: kafka.MetadataTopic, Partitions: []kmsg.FetchResponseTopicPartition{p}}}
		m.Brokers = []kmsg.FetchResponseBroker{{NodeID: 2, Host: "127.0.0.1", Port: 23462}}
		if err := r.Step(now, raft.Response{Corr: s.Corr, Msg: m}); err != nil {
			t.Fatal(err)
		}
	}
	answer(r.Ready().Send[0], 74, 0)   // its epoch 0 is fenced, and it learns who leads
	answer(r.Ready().Send[0], 0, 1025) // the log starts with a snapshot
	return r.Ready().Send[0].Msg
}
