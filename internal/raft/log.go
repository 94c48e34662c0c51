package raft

import (
	"slices"

	"github.com/highwater/highwater/internal/invariant"
	"github.com/highwater/highwater/internal/kafka"
)

var noSnapshot = kafka.OffsetAndEpoch{Offset: -1, Epoch: -1}

// bootstrapSnapshot is the checkpoint that format writes. It is never sent: each node has its own.
var bootstrapSnapshot = kafka.OffsetAndEpoch{}

// logState is the machine's picture of the log.
type logState struct {
	// start <= end. start is 0, or the end offset of a snapshot on disk (K7).
	start, end kafka.Offset
	// flushed is up to where the log is durable. flushed <= end.
	flushed kafka.Offset
	// epochs is where each epoch begins. Offsets and epochs ascend strictly.
	epochs []EpochStart
	// snapshots ascend; (0, 0) is the bootstrap checkpoint.
	snapshots []kafka.OffsetAndEpoch

	static   VoterSet
	voterLog []votersAt // ascending; the last counts
	kraftLog []kraftAt
}

type votersAt struct {
	offset kafka.Offset
	set    VoterSet
}

type kraftAt struct {
	offset  kafka.Offset
	version int16
}

func (l *logState) init(s LogState, static VoterSet) {
	l.start, l.end, l.flushed = s.StartOffset, s.EndOffset, s.EndOffset
	l.epochs = slices.Clone(s.Epochs)
	l.snapshots = slices.Clone(s.Snapshots)
	l.static = static
	for _, c := range s.Control {
		l.control(c)
	}
	invariant.Check(l.start <= l.end, "K7: log start %d > end %d", l.start, l.end)
	invariant.Check(l.start == 0 || l.hasSnapshotAt(l.start), "K7: log starts at %d without a snapshot", l.start)
}

func (l *logState) hasSnapshotAt(offset kafka.Offset) bool {
	return slices.ContainsFunc(l.snapshots, func(s kafka.OffsetAndEpoch) bool { return s.Offset == offset })
}

func (l *logState) latestSnapshot() (kafka.OffsetAndEpoch, bool) {
	if len(l.snapshots) == 0 {
		return noSnapshot, false
	}
	return l.snapshots[len(l.snapshots)-1], true
}

// sendable is the newest snapshot that a follower may fetch.
func (l *logState) sendable() (kafka.OffsetAndEpoch, bool) {
	s, ok := l.latestSnapshot()
	return s, ok && s != bootstrapSnapshot
}

func (l *logState) addSnapshot(id kafka.OffsetAndEpoch) {
	i, ok := slices.BinarySearchFunc(l.snapshots, id, compareOffsetAndEpoch)
	if !ok {
		l.snapshots = slices.Insert(l.snapshots, i, id)
	}
}

func compareOffsetAndEpoch(a, b kafka.OffsetAndEpoch) int {
	if a.Epoch != b.Epoch {
		return int(a.Epoch) - int(b.Epoch)
	}
	switch {
	case a.Offset < b.Offset:
		return -1
	case a.Offset > b.Offset:
		return 1
	}
	return 0
}

// lastEpoch is the epoch of the last record, of the snapshot where the log begins if it is empty, or 0.
func (l *logState) lastEpoch() kafka.LeaderEpoch {
	if n := len(l.epochs); n > 0 {
		return l.epochs[n-1].Epoch
	}
	for _, s := range l.snapshots {
		if s.Offset == l.start {
			return s.Epoch
		}
	}
	return 0
}

func (l *logState) endOffsetAndEpoch() kafka.OffsetAndEpoch {
	return kafka.OffsetAndEpoch{Offset: l.end, Epoch: l.lastEpoch()}
}

// endOf is the largest epoch at or below e that the log has, and where it ends.
func (l *logState) endOf(e kafka.LeaderEpoch) kafka.OffsetAndEpoch {
	i, found := slices.BinarySearchFunc(l.epochs, e, func(s EpochStart, e kafka.LeaderEpoch) int { return int(s.Epoch) - int(e) })
	if found {
		i++
	}
	// epochs[i] is the first above e.
	end := l.end
	if i < len(l.epochs) {
		end = l.epochs[i].Offset
	}
	if i > 0 {
		return kafka.OffsetAndEpoch{Offset: end, Epoch: l.epochs[i-1].Epoch}
	}
	// All of the log is of later epochs: what is before is the snapshot, or nothing.
	for _, s := range l.snapshots {
		if s.Offset == l.start && s.Epoch <= e {
			return kafka.OffsetAndEpoch{Offset: end, Epoch: s.Epoch}
		}
	}
	return kafka.OffsetAndEpoch{Offset: l.start, Epoch: 0}
}

// verdict is what a leader says of a follower's position.
type verdict int8

const (
	valid verdict = iota
	diverging
	needsSnapshot
)

// check compares a follower's end (offset, epoch of its last record) with this log.
func (l *logState) check(offset kafka.Offset, epoch kafka.LeaderEpoch) (verdict, kafka.OffsetAndEpoch) {
	if offset == 0 {
		// An empty follower is served the newest snapshot rather than the whole log (Kafka does so since 3.9).
		if s, ok := l.sendable(); ok {
			return needsSnapshot, s
		}
	}
	if l.start == 0 && offset == 0 && epoch == 0 {
		return valid, kafka.OffsetAndEpoch{}
	}
	if len(l.snapshots) > 0 {
		first := l.snapshots[0]
		if s, ok := l.sendable(); ok &&
			(offset < l.start || offset == l.start && l.start == first.Offset && epoch != first.Epoch || epoch < first.Epoch) {
			return needsSnapshot, s
		}
	}
	end := l.endOf(epoch)
	if end.Epoch != epoch || end.Offset < offset {
		return diverging, end
	}
	return valid, kafka.OffsetAndEpoch{}
}

// truncationFor is to where a follower truncates whose leader says that its log diverges after end.
func (l *logState) truncationFor(end kafka.OffsetAndEpoch) kafka.Offset {
	local := l.endOf(end.Epoch)
	if local.Epoch == end.Epoch {
		return min(local.Offset, end.Offset)
	}
	return local.Offset
}

// append takes in a batch at the end.
func (l *logState) append(base, last kafka.Offset, epoch kafka.LeaderEpoch, control []ControlAt) {
	invariant.Check(base == l.end && last >= base, "K2: batch %d..%d appended at %d", base, last, l.end)
	prev := l.lastEpoch()
	invariant.Check(epoch >= prev, "K2: epoch %d appended after %d", epoch, prev)
	if n := len(l.epochs); n == 0 || l.epochs[n-1].Epoch < epoch {
		l.epochs = append(l.epochs, EpochStart{epoch, base})
	}
	l.end = last + 1
	for _, c := range control {
		l.control(c)
	}
}

func (l *logState) control(c ControlAt) {
	switch r := c.Record.(type) {
	case Voters:
		l.voterLog = append(l.voterLog, votersAt{c.Offset, r.Set})
	case KRaftVersion:
		l.kraftLog = append(l.kraftLog, kraftAt{c.Offset, int16(r)})
	}
}

func (l *logState) truncate(end kafka.Offset) {
	invariant.Check(end >= l.start && end <= l.end, "K7: truncation to %d of a log %d..%d", end, l.start, l.end)
	l.end = end
	l.flushed = min(l.flushed, end)
	for n := len(l.epochs); n > 0 && l.epochs[n-1].Offset >= end; n-- {
		l.epochs = l.epochs[:n-1]
	}
	for n := len(l.voterLog); n > 0 && l.voterLog[n-1].offset >= end; n-- {
		l.voterLog = l.voterLog[:n-1]
	}
	for n := len(l.kraftLog); n > 0 && l.kraftLog[n-1].offset >= end; n-- {
		l.kraftLog = l.kraftLog[:n-1]
	}
}

// resetTo makes the log begin and end at a snapshot.
func (l *logState) resetTo(id kafka.OffsetAndEpoch, control []ControlRecord) {
	l.start, l.end, l.flushed = id.Offset, id.Offset, id.Offset
	l.epochs = nil
	l.snapshots = []kafka.OffsetAndEpoch{id}
	l.voterLog, l.kraftLog = nil, nil
	for _, c := range control {
		l.control(ControlAt{id.Offset - 1, c})
	}
}

func (l *logState) startMoved(ev LogStart) {
	invariant.Check(ev.Offset >= l.start && ev.Offset <= l.end, "K7: log start %d set to %d, end %d", l.start, ev.Offset, l.end)
	l.start = ev.Offset
	l.snapshots = slices.Clone(ev.Snapshots)
	invariant.Check(l.start == 0 || l.hasSnapshotAt(l.start), "K7: log starts at %d without a snapshot", l.start)
	// An epoch that ended below is forgotten; the one that reaches over begins at the start now.
	i := 0
	for i+1 < len(l.epochs) && l.epochs[i+1].Offset <= l.start {
		i++
	}
	l.epochs = l.epochs[i:]
	if len(l.epochs) > 0 && l.epochs[0].Offset < l.start {
		if l.end == l.start {
			l.epochs = nil
		} else {
			l.epochs = slices.Clone(l.epochs)
			l.epochs[0].Offset = l.start
		}
	}
	// Of what the snapshot holds, the newest is enough.
	for len(l.voterLog) > 1 && l.voterLog[1].offset < l.start {
		l.voterLog = l.voterLog[1:]
	}
	for len(l.kraftLog) > 1 && l.kraftLog[1].offset < l.start {
		l.kraftLog = l.kraftLog[1:]
	}
}

func (l *logState) flushedTo(end kafka.Offset) {
	l.flushed = max(l.flushed, min(end, l.end))
}

func (l *logState) voters() VoterSet {
	if n := len(l.voterLog); n > 0 {
		return l.voterLog[n-1].set
	}
	return l.static
}

func (l *logState) votersOffset() kafka.Offset {
	if n := len(l.voterLog); n > 0 {
		return l.voterLog[n-1].offset
	}
	return -1
}

func (l *logState) kraftVersion() int16 {
	if n := len(l.kraftLog); n > 0 {
		return l.kraftLog[n-1].version
	}
	return 0
}

func (l *logState) votersAt(end kafka.Offset) (VoterSet, int16) {
	set, version := l.static, int16(0)
	for _, v := range l.voterLog {
		if v.offset < end {
			set = v.set
		}
	}
	for _, v := range l.kraftLog {
		if v.offset < end {
			version = v.version
		}
	}
	return set, version
}

func (l *logState) hasSnapshot(id kafka.OffsetAndEpoch) bool { return slices.Contains(l.snapshots, id) }
