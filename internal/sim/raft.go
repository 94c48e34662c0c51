package sim

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raft"
	"github.com/highwater/highwater/internal/raftloop"
	"github.com/highwater/highwater/internal/vfs"
)

// RaftCluster is a metadata quorum and its observers.
type RaftCluster struct {
	w      *World
	cfg    RaftConfig
	net    *Net
	nodes  []*raftNode // by id - 1; the first cfg.Voters are the voters at the start
	static raft.VoterSet
	calm   bool // faults are over
	logger *slog.Logger

	proposed uint64
	checks   []raftCheck
	logs     *logCheck
	commit   *commitCheck
	// stats say what the run reached, so that a run that reaches nothing is noticed.
	Stats map[string]int
}

// raftCheck is a family of invariants; see check_*.go. Methods are called as things happen.
type raftCheck interface {
	observe(n *raftNode, s raft.Status)                                              // after every step of n
	applied(n *raftNode, offset kafka.Offset, epoch kafka.LeaderEpoch, value []byte) // a record reached n's state machine
	loaded(n *raftNode, s *raftloop.SnapshotReader)                                  // a snapshot did
	truncated(n *raftNode, end kafka.Offset)                                         // before n truncates
	claimed(n *raftNode, epoch kafka.LeaderEpoch)                                    // n's controller begins
	message(from, to kafka.BrokerID, req kmsg.Request, resp kmsg.Response)           // an answer leaves to
	end()                                                                            // after the healed phase
}

// noCheck is embedded by checks that look at some of it.
type noCheck struct{}

func (noCheck) observe(*raftNode, raft.Status)                                      {}
func (noCheck) applied(*raftNode, kafka.Offset, kafka.LeaderEpoch, []byte)          {}
func (noCheck) loaded(*raftNode, *raftloop.SnapshotReader)                          {}
func (noCheck) truncated(*raftNode, kafka.Offset)                                   {}
func (noCheck) claimed(*raftNode, kafka.LeaderEpoch)                                {}
func (noCheck) message(kafka.BrokerID, kafka.BrokerID, kmsg.Request, kmsg.Response) {}
func (noCheck) end()                                                                {}

// NewRaftCluster makes the nodes and formats their disks.
func NewRaftCluster(w *World, cfg RaftConfig, logger *slog.Logger) *RaftCluster {
	c := &RaftCluster{w: w, cfg: cfg, logger: logger, Stats: make(map[string]int)}
	c.net = NewNet(w, cfg.Net, c.deliver)
	if cfg.OldNodes {
		c.net.versions = map[int16]int16{1: 12, 52: 0, 53: 0, 54: 0, 59: 0}
	}
	for i := range cfg.Voters + cfg.Observers {
		n := &raftNode{c: c, id: kafka.BrokerID(i + 1), disk: vfs.NewMem()}
		n.dir[0], n.dir[15] = 0xd0, byte(i+1)
		// In dynamic quorums an observer may become a voter.
		n.canVote = i < cfg.Voters || cfg.Dynamic
		c.nodes = append(c.nodes, n)
	}
	for _, n := range c.nodes[:cfg.Voters] {
		c.static = c.static.With(n.voter())
	}
	for _, n := range c.nodes {
		c.format(n)
	}
	c.logs, c.commit = newLogCheck(c), newCommitCheck(c)
	c.checks = []raftCheck{newElectionCheck(c), c.logs, c.commit, newSnapshotCheck(c), newVotersCheck(c), newPreVoteCheck(c), newProgressCheck(c)}
	return c
}

// format does what kafka-storage does: with a dynamic quorum the bootstrap checkpoint has the voters.
func (c *RaftCluster) format(n *raftNode) {
	dir := "data/" + kafka.ClusterMetadataTopic + "-0"
	err := n.disk.MkdirAll(dir)
	if err == nil && c.cfg.Dynamic && int(n.id) <= c.cfg.Voters {
		err = raftloop.FormatBootstrap(n.disk, dir, start, c.static, 1)
	}
	for _, d := range []string{"", "data"} {
		if err == nil {
			err = n.disk.SyncDir(d)
		}
	}
	if err != nil {
		c.w.Fail("S", "format node %d: %v", n.id, err)
	}
}

// commits is what was committed, as far as any node told.
func (c *RaftCluster) commits() *commitCheck { return c.commit }

func (c *RaftCluster) node(id kafka.BrokerID) *raftNode {
	if id < 1 || int(id) > len(c.nodes) {
		return nil
	}
	return c.nodes[id-1]
}

func (c *RaftCluster) send(n *raftNode, life int, s raft.Send) {
	var to kafka.BrokerID
	if _, err := fmt.Sscanf(s.To.Host, "node%d", &to); err != nil {
		c.w.Fail("X1", "node %d sends to %+v", n.id, s.To)
		return
	}
	c.w.Log("n%d>n%d %s", n.id, to, describe(s.Msg))
	c.net.Send(n.id, to, s.Msg, s.Timeout, func(m kmsg.Response, err error) {
		if m != nil {
			c.w.Log("n%d<n%d %s", n.id, to, describeResponse(m))
		}
		n.do(life, func() error { return n.replica.Answered(c.w.Now, s.Corr, m, err) })
	})
}

func (c *RaftCluster) deliver(from, to kafka.BrokerID, req kmsg.Request, answer func(kmsg.Response)) bool {
	n := c.node(to)
	if n == nil {
		return false
	}
	if v, ok := req.(*kmsg.ApiVersionsRequest); ok {
		if !n.up {
			return false
		}
		m := v.ResponseKind().(*kmsg.ApiVersionsResponse)
		m.SupportedFeatures = append(m.SupportedFeatures, kmsg.ApiVersionsResponseSupportedFeature{Name: "kraft.version", MinVersion: 0, MaxVersion: 1})
		answer(m)
		return true
	}
	if !n.canVote {
		return false // a broker has no controller listener
	}
	return n.handle(req, func(m kmsg.Response) {
		if m != nil {
			for _, k := range c.checks {
				k.message(from, to, req, m)
			}
		}
		answer(m)
	})
}

func (c *RaftCluster) observe(n *raftNode) {
	s := n.replica.Status()
	if s.Role != n.role.Role || s.Epoch != n.role.Epoch || s.Leader != n.role.Leader {
		c.w.Log("n%d is %v in epoch %d, leader %d, log %d..%d, hw %d", n.id, s.Role, s.Epoch, s.Leader, s.LogStart, s.LogEnd, s.HighWatermark)
		if s.Role == raft.Leader && n.role.Role != raft.Leader {
			c.Stats["elections"]++
		}
		if s.Role == raft.Resigned && n.role.Role == raft.Leader {
			c.Stats["resignations"]++
		}
	}
	for _, k := range c.checks {
		k.observe(n, s)
	}
	n.role = s
}

func (c *RaftCluster) applied(n *raftNode, offset kafka.Offset, epoch kafka.LeaderEpoch, value []byte) {
	for _, k := range c.checks {
		k.applied(n, offset, epoch, value)
	}
	c.Stats["applied"]++
}

func (c *RaftCluster) loaded(n *raftNode, s *raftloop.SnapshotReader) {
	c.Stats["snapshots loaded"]++
	for _, k := range c.checks {
		k.loaded(n, s)
	}
}

func (c *RaftCluster) truncated(n *raftNode, end kafka.Offset) {
	c.Stats["truncations"]++
	c.w.Log("n%d truncates to %d", n.id, end)
	for _, k := range c.checks {
		k.truncated(n, end)
	}
}

func (c *RaftCluster) claimed(n *raftNode, epoch kafka.LeaderEpoch) {
	for _, k := range c.checks {
		k.claimed(n, epoch)
	}
}

// leader is the running leader with the highest epoch, or nil.
func (c *RaftCluster) leader() *raftNode {
	var best *raftNode
	for _, n := range c.nodes {
		if n.up && n.role.Role == raft.Leader && (best == nil || n.role.Epoch > best.role.Epoch) {
			best = n
		}
	}
	return best
}

// Run is one whole life of the cluster: faults, healing, the last checks.
func (c *RaftCluster) Run() error {
	w := c.w
	for _, n := range c.nodes {
		w.After(time.Duration(w.Rand("start").IntN(1000))*time.Millisecond, n.start)
	}
	end := w.Now.Add(c.cfg.Chaos)
	c.workload(end.Add(c.cfg.Heal - 5*time.Second))
	c.faults(end)
	if err := w.Run(end); err != nil {
		return err
	}
	w.Log("healed")
	c.calm = true
	c.net.Heal()
	for _, n := range c.nodes {
		n.paused = time.Time{}
		if !n.up {
			n.start()
		} else {
			todo := n.inbox
			n.inbox = nil
			for _, f := range todo {
				f()
			}
		}
	}
	if err := w.Run(end.Add(c.cfg.Heal)); err != nil {
		return err
	}
	for _, k := range c.checks {
		k.end()
	}
	if v := w.Failed(); v != nil {
		return v
	}
	return nil
}

// workload proposes at every node that believes to lead: a deposed leader must not get its records committed.
func (c *RaftCluster) workload(until time.Time) {
	r := c.w.Rand("workload")
	var next func()
	next = func() {
		if c.w.Now.After(until) {
			return
		}
		for _, n := range c.nodes {
			if !n.up || n.role.Role != raft.Leader {
				continue
			}
			var records [][]byte
			for range 1 + r.IntN(3) {
				c.proposed++
				v := binary.BigEndian.AppendUint64(nil, c.proposed)
				records = append(records, append(v, make([]byte, r.IntN(c.cfg.RecordSize))...))
			}
			epoch := n.role.Epoch
			n.do(n.life, func() error {
				last, err := n.replica.Propose(c.w.Now, epoch, records)
				if err != nil {
					return nil // it does not lead any more
				}
				c.w.Log("n%d proposes up to %d", n.id, last)
				return n.replica.Step(c.w.Now, raft.Tick{})
			})
		}
		c.w.After(time.Duration(r.Int64N(int64(2*c.cfg.ProposeEvery)))+time.Millisecond, next)
	}
	c.w.After(c.cfg.ProposeEvery, next)
	if c.cfg.ReconfigureEvery > 0 {
		c.reconfigurations(until.Add(-20 * time.Second))
	}
	if c.cfg.UpgradeEvery > 0 {
		c.upgrades(until)
	}
}

// reconfigurations adds and removes voters, never below two.
func (c *RaftCluster) reconfigurations(until time.Time) {
	r := c.w.Rand("reconfigure")
	c.every(r.Int64N, c.cfg.ReconfigureEvery, until, func() {
		l := c.leader()
		if l == nil {
			return
		}
		n := c.nodes[r.IntN(len(c.nodes))]
		voters := l.role.Voters
		cluster := "simulated-cluster-0000"
		var req kmsg.Request
		if voters.Contains(raft.ReplicaKey{ID: n.id, Directory: n.dir}) {
			if voters.Len() <= 2 {
				return
			}
			m := kmsg.NewPtrRemoveRaftVoterRequest()
			m.ClusterID, m.VoterID, m.VoterDirectoryID = &cluster, int32(n.id), n.dir
			req = m
		} else {
			m := kmsg.NewPtrAddRaftVoterRequest()
			m.Version = 1
			m.ClusterID, m.VoterID, m.VoterDirectoryID, m.AckWhenCommitted = &cluster, int32(n.id), n.dir, r.IntN(2) == 0
			e := n.endpoint()
			m.Listeners = append(m.Listeners, kmsg.AddRaftVoterRequestListener{Name: e.Listener, Host: e.Host, Port: e.Port})
			req = m
		}
		c.w.Log("reconfigure: %T of n%d at n%d", req, n.id, l.id)
		l.handle(req, func(m kmsg.Response) {
			switch m := m.(type) {
			case *kmsg.AddRaftVoterResponse:
				c.w.Log("reconfigured: add of n%d: %d", n.id, m.ErrorCode)
				if m.ErrorCode == 0 {
					c.Stats["voters added"]++
				}
			case *kmsg.RemoveRaftVoterResponse:
				c.w.Log("reconfigured: removal of n%d: %d", n.id, m.ErrorCode)
				if m.ErrorCode == 0 {
					c.Stats["voters removed"]++
				}
			}
		})
	})
}

// upgrades raises kraft.version of a static quorum: the voters tell the leader of themselves, some now and some later, and it takes the
// level when it knows all.
func (c *RaftCluster) upgrades(until time.Time) {
	r := c.w.Rand("upgrade")
	cluster := "simulated-cluster-0000"
	c.every(r.Int64N, c.cfg.UpgradeEvery, until, func() {
		l := c.leader()
		if l == nil || l.role.KRaftVersion > 0 {
			return
		}
		for _, n := range c.nodes[:c.cfg.Voters] {
			if n == l || r.IntN(4) == 0 {
				continue
			}
			m := kmsg.NewPtrUpdateRaftVoterRequest()
			m.ClusterID, m.CurrentLeaderEpoch, m.VoterID, m.VoterDirectoryID = &cluster, int32(l.role.Epoch), int32(n.id), n.dir
			m.KRaftVersionFeature.MaxSupportedVersion = 1
			e := n.endpoint()
			m.Listeners = append(m.Listeners, kmsg.UpdateRaftVoterRequestListener{Name: e.Listener, Host: e.Host, Port: e.Port})
			l.handle(m, func(kmsg.Response) {})
		}
		epoch := l.role.Epoch
		l.do(l.life, func() error {
			last, err := l.replica.UpgradeKRaftVersion(c.w.Now, epoch, 1)
			if err != nil || last < 0 {
				return nil // it does not know all voters yet, does not lead any more, or did it before
			}
			c.w.Log("n%d raises kraft.version at %d", l.id, last)
			return l.replica.Step(c.w.Now, raft.Tick{})
		})
	})
}

// every calls f at random times, on average each period.
func (c *RaftCluster) every(random func(int64) int64, period time.Duration, until time.Time, f func()) {
	var next func()
	next = func() {
		if c.w.Now.After(until) || c.w.failed != nil {
			return
		}
		f()
		c.w.After(time.Duration(random(int64(2*period)))+time.Millisecond, next)
	}
	c.w.After(time.Duration(random(int64(2*period)))+time.Millisecond, next)
}

// faults plans what goes wrong until end.
func (c *RaftCluster) faults(end time.Time) {
	r := c.w.Rand("faults")
	pick := func() *raftNode { return c.nodes[r.IntN(len(c.nodes))] }
	restart := func(n *raftNode) {
		life := n.life
		c.w.After(time.Duration(r.Int64N(int64(c.cfg.DownFor)))+time.Millisecond, func() {
			if !n.up && n.life == life && !c.calm {
				n.start()
			}
		})
	}
	if c.cfg.CrashEvery > 0 {
		c.every(r.Int64N, c.cfg.CrashEvery, end, func() {
			victims := []*raftNode{pick()}
			if c.cfg.PowerCut && r.IntN(4) == 0 {
				victims = slices.Clone(c.nodes)
			} else if l := c.leader(); l != nil && r.IntN(2) == 0 {
				victims[0] = l
			}
			for _, n := range victims {
				if n.up {
					n.crash()
					restart(n)
				}
			}
		})
	}
	if c.cfg.StopEvery > 0 {
		c.every(r.Int64N, c.cfg.StopEvery, end, func() {
			n := pick()
			if !n.up {
				return
			}
			n.stop()
			life := n.life
			c.w.After(3*time.Second, func() {
				if !n.up && n.life == life && !c.calm {
					n.start()
				}
			})
		})
	}
	if c.cfg.PauseEvery > 0 {
		c.every(r.Int64N, c.cfg.PauseEvery, end, func() {
			n := pick()
			if l := c.leader(); l != nil && r.IntN(2) == 0 {
				n = l
			}
			if n.up {
				n.pause(time.Duration(r.Int64N(int64(6 * time.Second))))
			}
		})
	}
	if c.cfg.PartitionEvery > 0 {
		c.every(r.Int64N, c.cfg.PartitionEvery, end, func() { c.partition(r.IntN(4), r.IntN(1<<len(c.nodes)), r.Int64N(int64(6*time.Second))) })
	}
}

// partition separates nodes for a while: a random set, one node, or the leader, both ways or one way.
func (c *RaftCluster) partition(kind, set int, d int64) {
	switch kind {
	case 0:
		set = 1 << (set % len(c.nodes))
	case 1:
		if l := c.leader(); l != nil {
			set = 1 << (l.id - 1)
		}
	}
	oneWay := c.cfg.OneWay && kind%2 == 0
	c.w.Log("partition %b for %v, one way %v", set, time.Duration(d), oneWay)
	change := func(cut bool) {
		for _, a := range c.nodes {
			for _, b := range c.nodes {
				in := func(n *raftNode) bool { return set&(1<<(n.id-1)) != 0 }
				if in(a) && !in(b) {
					c.net.Cut(a.id, b.id, cut)
					if !oneWay {
						c.net.Cut(b.id, a.id, cut)
					}
				}
			}
		}
	}
	change(true)
	c.w.After(time.Duration(d), func() {
		if !c.calm {
			c.w.Log("partition %b over", set)
			change(false)
		}
	})
}

func describe(m kmsg.Request) string {
	switch m := m.(type) {
	case *kmsg.VoteRequest:
		p := m.Topics[0].Partitions[0]
		return fmt.Sprintf("Vote epoch=%d log=(%d,%d) pre=%v", p.CandidateEpoch, p.LastOffset, p.LastOffsetEpoch, p.PreVote)
	case *kmsg.BeginQuorumEpochRequest:
		return fmt.Sprintf("BeginQuorumEpoch epoch=%d", m.Topics[0].Partitions[0].LeaderEpoch)
	case *kmsg.EndQuorumEpochRequest:
		return fmt.Sprintf("EndQuorumEpoch epoch=%d", m.Topics[0].Partitions[0].LeaderEpoch)
	case *kmsg.FetchRequest:
		p := m.Topics[0].Partitions[0]
		return fmt.Sprintf("Fetch epoch=%d at=(%d,%d) hw=%d", p.CurrentLeaderEpoch, p.FetchOffset, p.LastFetchedEpoch, p.HighWatermark)
	case *kmsg.FetchSnapshotRequest:
		p := m.Topics[0].Partitions[0]
		return fmt.Sprintf("FetchSnapshot epoch=%d id=(%d,%d) position=%d", p.CurrentLeaderEpoch, p.SnapshotID.EndOffset, p.SnapshotID.Epoch, p.Position)
	}
	return fmt.Sprintf("%T", m)
}

func describeResponse(m kmsg.Response) string {
	switch m := m.(type) {
	case *kmsg.VoteResponse:
		if len(m.Topics) == 1 {
			p := m.Topics[0].Partitions[0]
			return fmt.Sprintf("Vote err=%d epoch=%d leader=%d granted=%v", p.ErrorCode, p.LeaderEpoch, p.LeaderID, p.VoteGranted)
		}
	case *kmsg.FetchResponse:
		if len(m.Topics) == 1 {
			p := m.Topics[0].Partitions[0]
			return fmt.Sprintf("Fetch err=%d epoch=%d leader=%d hw=%d bytes=%d diverging=%v snapshot=%v", p.ErrorCode, p.CurrentLeader.LeaderEpoch, p.CurrentLeader.LeaderID,
				p.HighWatermark, len(p.RecordBatches), p.DivergingEpoch.EndOffset, p.SnapshotID.EndOffset)
		}
	case *kmsg.FetchSnapshotResponse:
		if len(m.Topics) == 1 {
			p := m.Topics[0].Partitions[0]
			return fmt.Sprintf("FetchSnapshot err=%d epoch=%d position=%d bytes=%d size=%d", p.ErrorCode, p.CurrentLeader.LeaderEpoch, p.Position, len(p.Bytes), p.Size)
		}
	}
	return fmt.Sprintf("%T", m)
}
