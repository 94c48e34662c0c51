package raftloop

import (
	"encoding/binary"
	"testing"
	"time"
)

// BenchmarkPropose is one proposer of a quorum of one that waits for each commit: a sync of the disk each.
func BenchmarkPropose(b *testing.B) {
	f := startNode(b, b.TempDir(), func(o *Options) { o.QuorumAppendLinger = time.Nanosecond })
	f.wait(func() bool { return f.epoch >= 0 })
	v := binary.BigEndian.AppendUint64(make([]byte, 0, 100), 1)[:100]
	b.ReportAllocs()
	for b.Loop() {
		last, err := f.loop.Propose(f.epoch, [][]byte{v})
		if err != nil {
			b.Fatal(err)
		}
		f.wait(func() bool { return f.next > last })
	}
	f.close()
}

// BenchmarkProposePipelined has a thousand proposals under way: they share syncs.
func BenchmarkProposePipelined(b *testing.B) {
	f := startNode(b, b.TempDir(), func(o *Options) { o.QuorumAppendLinger = time.Nanosecond })
	f.wait(func() bool { return f.epoch >= 0 })
	v := binary.BigEndian.AppendUint64(make([]byte, 0, 100), 1)[:100]
	b.ReportAllocs()
	before := f.flushes.Load()
	n := 0
	for b.Loop() {
		last, err := f.loop.Propose(f.epoch, [][]byte{v})
		if err != nil {
			b.Fatal(err)
		}
		n++
		f.wait(func() bool { return f.next+1000 > last })
	}
	b.ReportMetric(float64(f.flushes.Load()-before)/float64(n), "syncs/op")
	f.close()
}
