package sim

import (
	"fmt"
	"time"

	"github.com/highwater/highwater/internal/raft"
)

// RaftConfig is what a seed draws before it runs: not every fault at every time, for that hides what a few of them do.
type RaftConfig struct {
	Voters    int
	Observers int
	// Dynamic: kraft.version 1 with voters by record; else controller.quorum.voters.
	Dynamic  bool
	OldNodes bool // everybody speaks versions from before pre-votes and directory ids
	Linger   time.Duration

	Net NetConfig

	CrashEvery     time.Duration // a node loses power; 0: never
	PowerCut       bool          // sometimes all at once
	StopEvery      time.Duration // a node stops gracefully
	PauseEvery     time.Duration // a node stands still, as in a long garbage collection
	PartitionEvery time.Duration
	OneWay         bool
	DownFor        time.Duration // at most

	ProposeEvery  time.Duration
	RecordSize    int
	SnapshotBytes int64 // metadata.log.max.record.bytes.between.snapshots
	Retention     int64 // metadata.max.retention.bytes
	FetchBytes    int32
	ChunkBytes    int32

	// Storage: the log is package storage's, with segments of SegmentBytes; else raftloop.FileLog.
	Storage      bool
	SegmentBytes int64

	ReconfigureEvery time.Duration
	// UpgradeEvery is how often somebody tries to raise kraft.version of a static quorum to 1, until it is; 0: never.
	UpgradeEvery time.Duration

	Chaos time.Duration // how long faults rage
	Heal  time.Duration // how long the healed cluster has to make progress

	Mutant raft.Mutant
}

// DrawRaft draws a configuration.
func DrawRaft(w *World) RaftConfig {
	r := w.Rand("swarm")
	c := RaftConfig{
		Voters:       []int{1, 2, 3, 3, 3, 5}[r.IntN(6)],
		Observers:    r.IntN(3),
		Dynamic:      r.IntN(2) == 0,
		OldNodes:     r.IntN(6) == 0,
		Linger:       time.Duration(r.IntN(2)*r.IntN(26)) * time.Millisecond,
		DownFor:      time.Duration(100+r.IntN(6000)) * time.Millisecond,
		ProposeEvery: time.Duration(30+r.IntN(250)) * time.Millisecond,
		RecordSize:   1 + r.IntN(300),
		// So small that snapshots and gaps in the log are everyday.
		SnapshotBytes: 1 << 40,
		Retention:     1 << 40,
		FetchBytes:    int32(1500 + r.IntN(20_000)),
		ChunkBytes:    int32(50 + r.IntN(2000)),
		Chaos:         30 * time.Second,
		Heal:          25 * time.Second,
	}
	if c.Dynamic {
		c.OldNodes = false // kraft.version 1 needs the versions that carry directory ids
	}
	c.Net = NetConfig{MinDelay: 200 * time.Microsecond, MaxDelay: time.Duration(1+r.IntN(30)) * time.Millisecond}
	often := func(most time.Duration) time.Duration {
		if r.IntN(2) == 0 {
			return 0
		}
		return time.Second + time.Duration(r.Int64N(int64(most)))
	}
	c.CrashEvery = often(8 * time.Second)
	c.PowerCut = r.IntN(3) == 0
	c.StopEvery = often(12 * time.Second)
	c.PauseEvery = often(8 * time.Second)
	c.PartitionEvery = often(8 * time.Second)
	c.OneWay = r.IntN(2) == 0
	if r.IntN(2) == 0 {
		c.Net.Drop = r.Float64() * 0.1
	}
	if r.IntN(2) == 0 {
		c.Net.Duplicate = r.Float64() * 0.2
	}
	if r.IntN(2) == 0 {
		c.Net.Reset = r.Float64() * 0.1
	}
	if r.IntN(2) == 0 {
		c.Net.Slow, c.Net.SlowDelay = r.Float64()*0.1, time.Duration(r.IntN(3000))*time.Millisecond
	}
	if r.IntN(2) == 0 {
		c.SnapshotBytes = int64(500 + r.IntN(20_000))
		if r.IntN(2) == 0 {
			c.Retention = int64(1000 + r.IntN(30_000))
		}
	}
	if c.Dynamic && r.IntN(2) == 0 {
		c.ReconfigureEvery = time.Second + time.Duration(r.Int64N(int64(6*time.Second)))
	}
	c.Storage = r.IntN(2) == 0
	c.SegmentBytes = int64(1000 + r.IntN(100_000))
	if !c.Dynamic && !c.OldNodes && r.IntN(2) == 0 {
		c.UpgradeEvery = time.Second + time.Duration(r.Int64N(int64(6*time.Second)))
	}
	return c
}

func (c RaftConfig) String() string {
	return fmt.Sprintf("%d voters, %d observers, dynamic %v, old %v, linger %v, crash %v (power cut %v), stop %v, pause %v, partition %v (one way %v), net %+v, propose %v, snapshots %d, retention %d, storage %v (segments %d), reconfigure %v, upgrade %v",
		c.Voters, c.Observers, c.Dynamic, c.OldNodes, c.Linger, c.CrashEvery, c.PowerCut, c.StopEvery, c.PauseEvery, c.PartitionEvery, c.OneWay, c.Net, c.ProposeEvery, c.SnapshotBytes, c.Retention, c.Storage, c.SegmentBytes, c.ReconfigureEvery, c.UpgradeEvery)
}
