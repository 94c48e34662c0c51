package raftloop

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/invariant"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/raft"
	"github.com/highwater/highwater/internal/vfs"
)

const (
	// deliverBytes bounds what one Deliver reads, so that the protocol is not kept waiting. Guess.
	deliverBytes = 1 << 20
)

// Replica is the metadata log of one node without goroutine or clock. All methods but Propose, Status, LatestSnapshot
// and CreateSnapshot belong to one caller, the Loop or the simulator.
type Replica struct {
	opt  Options
	dir  string
	log  Log
	slog *slog.Logger

	// mu guards core: between its steps, while the disk works, others may Propose and ask for Status.
	mu   sync.Mutex
	core *raft.Raft
	// latest is the newest snapshot, for LatestSnapshot and CreateSnapshot.
	latest    kafka.OffsetAndEpoch
	hasLatest bool

	send    func(raft.Send)
	answers map[uint64]func(kmsg.Response) // by request id: who waits for a Reply
	lastID  uint64

	cb         Callbacks
	registered bool
	// delivered is the offset of the next record that callbacks get. delivered <= highWatermark.
	delivered     kafka.Offset
	highWatermark kafka.Offset
	// role is the newest role, to be told to Callbacks.Leader; nil once it was told.
	role *raft.RoleChange

	snapshots []snapshotFile // ascending
	fetching  vfs.File       // the .part file of a snapshot that comes from the leader
	fetchName string

	// Since the newest snapshot: bytes of records, and when the first of them was appended.
	bytesSince   int64
	firstSince   time.Time
	cleanAt      time.Time
	stopped      chan struct{} // closed when a graceful shutdown is over
	stoppedOnce  bool
	appendBuffer []byte
}

type snapshotFile struct {
	id   kafka.OffsetAndEpoch
	size int64
	last time.Time // of its last record
}

// OpenReplica recovers the replica: leftovers go, the newest snapshot is checked, the log is recovered and read for its
// control records.
func OpenReplica(opt Options, now time.Time, send func(raft.Send)) (*Replica, error) {
	opt.Defaults()
	r := &Replica{opt: opt, dir: opt.MetadataLogDir + "/" + kafka.ClusterMetadataTopic + "-0", slog: opt.Log, send: send,
		answers: make(map[uint64]func(kmsg.Response)), stopped: make(chan struct{}), cleanAt: now.Add(opt.CleanInterval)}
	if r.slog == nil {
		r.slog = slog.New(slog.DiscardHandler)
	}
	if err := opt.FS.MkdirAll(r.dir); err != nil {
		return nil, fmt.Errorf("make %s: %w", r.dir, err)
	}
	if err := opt.FS.SyncDir(opt.MetadataLogDir); err != nil {
		return nil, fmt.Errorf("sync %s: %w", opt.MetadataLogDir, err)
	}
	if err := r.findSnapshots(); err != nil {
		return nil, err
	}
	election, err := readQuorumState(opt.FS, r.dir)
	if err != nil {
		return nil, err
	}
	recoveryPoint := kafka.Offset(0)
	if r.hasLatest {
		recoveryPoint = r.latest.Offset
	}
	if r.log, err = opt.OpenLog(r.dir, recoveryPoint); err != nil {
		return nil, err
	}
	state, err := r.recover(now)
	if err != nil {
		return nil, errors.Join(err, r.log.Close())
	}
	cfg := raft.Config{
		ID: opt.NodeID, Directory: opt.DirectoryID, ClusterID: opt.ClusterID, CanVote: opt.Controller,
		Listener: opt.ControllerListener, Endpoints: opt.Endpoints, StaticVoters: opt.QuorumVoters,
		Bootstrap: opt.QuorumBootstrapServers, AutoJoin: opt.QuorumAutoJoinEnable,
		ElectionTimeout: opt.QuorumElectionTimeout, ElectionBackoffMax: opt.QuorumElectionBackoffMax,
		FetchTimeout: opt.QuorumFetchTimeout, RequestTimeout: opt.QuorumRequestTimeout,
		RetryBackoff: opt.QuorumRetryBackoff, AppendLinger: opt.QuorumAppendLinger,
		FetchMaxBytes: opt.QuorumFetchMaxBytes, FetchSnapshotMaxBytes: opt.QuorumFetchSnapshotMaxBytes,
		Rand: opt.Rand, Mutant: opt.Mutant,
	}
	r.core = raft.New(now, cfg, state, election)
	if err := r.settle(now); err != nil {
		return nil, errors.Join(err, r.log.Close())
	}
	return r, nil
}

// findSnapshots lists the snapshots and removes what a crash left.
func (r *Replica) findSnapshots() error {
	entries, err := r.opt.FS.List(r.dir)
	if err != nil {
		return fmt.Errorf("list %s: %w", r.dir, err)
	}
	for _, e := range entries {
		name := e.Name()
		if strings.HasSuffix(name, partSuffix) || strings.HasSuffix(name, checkpointSuffix+deletedSuffix) {
			if err := r.opt.FS.Remove(r.dir + "/" + name); err != nil {
				return fmt.Errorf("remove %s: %w", name, err)
			}
			continue
		}
		id, ok := ParseSnapshotName(name)
		if !ok {
			continue
		}
		info, err := r.opt.FS.Stat(r.dir + "/" + name)
		if err != nil {
			return fmt.Errorf("stat %s: %w", name, err)
		}
		r.snapshots = append(r.snapshots, snapshotFile{id: id, size: info.Size()})
	}
	// Names sort as offsets do; in a sound directory epochs do not contradict.
	if n := len(r.snapshots); n > 0 {
		r.latest, r.hasLatest = r.snapshots[n-1].id, true
	}
	return nil
}

// recover brings log and snapshots together and reads the control records.
func (r *Replica) recover(now time.Time) (raft.LogState, error) {
	var state raft.LogState
	if r.hasLatest {
		control, err := verifySnapshot(r.opt.FS, r.dir+"/"+SnapshotName(r.latest), r.latest, r.opt.Survey)
		if err != nil {
			return state, err
		}
		for _, c := range control {
			state.Control = append(state.Control, raft.ControlAt{Offset: r.latest.Offset - 1, Record: c})
		}
		for i := range r.snapshots {
			s := &r.snapshots[i]
			f, err := OpenSnapshot(r.opt.FS, r.dir, s.id)
			if err != nil {
				return state, err
			}
			s.last = f.LastTimestamp
			if err := f.Close(); err != nil {
				return state, err
			}
		}
		if r.latest.Offset > r.log.EndOffset() {
			// A crash between the arrival of a snapshot and the truncation of the log.
			r.slog.Info("metadata log begins anew at its snapshot", "snapshot", r.latest, "logEnd", r.log.EndOffset())
			if err := r.log.Reset(now, r.latest.Offset); err != nil {
				return state, err
			}
		}
	}
	if start := r.log.StartOffset(); start > 0 {
		at := kafka.Offset(-1)
		for _, s := range r.snapshots {
			if s.id.Offset >= start {
				at = s.id.Offset
				break
			}
		}
		if at < 0 {
			return state, fmt.Errorf("%s: log starts at %d, and there is no snapshot of what was before", r.dir, start)
		}
		// The log may begin with a segment that reaches below the oldest snapshot.
		if at > start {
			if err := r.log.DeletePrefix(now, at); err != nil {
				return state, err
			}
		}
		if err := r.dropSnapshotsBelow(r.log.StartOffset()); err != nil {
			return state, err
		}
	}
	for _, s := range r.snapshots {
		state.Snapshots = append(state.Snapshots, s.id)
	}
	state.StartOffset, state.EndOffset = r.log.StartOffset(), r.log.EndOffset()
	for _, e := range r.log.Epochs() {
		if e.Offset < state.EndOffset {
			state.Epochs = append(state.Epochs, e)
		}
	}
	// What is in the log counts as flushed from now on.
	if err := r.log.Flush(); err != nil {
		return state, err
	}
	from := state.StartOffset
	if r.hasLatest {
		from = max(from, r.latest.Offset)
	}
	for from < state.EndOffset {
		buf, err := r.log.Read(from, deliverBytes)
		if err != nil {
			return state, err
		}
		infos, size, err := parse(buf)
		if err != nil || len(infos) == 0 {
			return state, fmt.Errorf("%s: read log at %d: %d batches: %w", r.dir, from, len(infos), err)
		}
		if err := survey(buf[:size], r.opt.Survey); err != nil {
			return state, fmt.Errorf("%s: read log at %d: %w", r.dir, from, err)
		}
		for _, b := range infos {
			state.Control = append(state.Control, b.Control...)
			from = b.LastOffset + 1
		}
	}
	if r.opt.Admit != nil {
		return state, r.opt.Admit()
	}
	return state, nil
}

// Register sets the callbacks; delivery begins with the next Deliver.
func (r *Replica) Register(cb Callbacks) {
	r.cb, r.registered = cb, true
}

// Step gives raft an event and does what it asks for.
func (r *Replica) Step(now time.Time, ev raft.Event) error {
	if err := r.stepCore(now, ev); err != nil {
		return err
	}
	return r.settle(now)
}

func (r *Replica) stepCore(now time.Time, events ...raft.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock() // a broken invariant is a panic
	for _, ev := range events {
		if err := r.core.Step(now, ev); err != nil {
			return err
		}
	}
	return nil
}

func (r *Replica) takeReady() (ready raft.Ready, stopped bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.Ready(), r.core.Status().Stopped
}

// settle takes Ready until there is nothing more to do.
func (r *Replica) settle(now time.Time) error {
	for {
		ready, stopped := r.takeReady()
		if stopped && !r.stoppedOnce {
			r.stoppedOnce = true
			close(r.stopped)
		}
		if ready.Empty() {
			break
		}
		events, err := r.apply(now, &ready)
		if err != nil {
			return err
		}
		if err := r.stepCore(now, events...); err != nil {
			return err
		}
	}
	if !now.Before(r.cleanAt) {
		r.cleanAt = now.Add(r.opt.CleanInterval)
		return r.clean(now)
	}
	return nil
}

// apply does what raft asks, in the order that makes it safe: what must survive a crash is on disk before anything that
// depends on it leaves this node. It is the only place where that order is written.
func (r *Replica) apply(now time.Time, ready *raft.Ready) (events []raft.Event, err error) {
	for _, n := range ready.Notes {
		if n.Warn {
			r.slog.Warn(n.Text, n.Args...)
		} else {
			r.slog.Info(n.Text, n.Args...)
		}
	}
	if events, err = r.persist(now, &ready.Persist); err != nil {
		return nil, err
	}
	for _, s := range ready.Send {
		r.send(s)
	}
	for i := range ready.Reply {
		if err := r.reply(&ready.Reply[i]); err != nil {
			return nil, err
		}
	}
	if ready.Committed {
		invariant.Check(ready.HighWatermark >= r.highWatermark || r.opt.Mutant != raft.NoMutant, "K5: high watermark %d after %d", ready.HighWatermark, r.highWatermark)
		r.highWatermark = ready.HighWatermark
	}
	if ready.Role != nil {
		r.role = ready.Role
		r.slog.Info("quorum role", "role", ready.Role.Role.String(), "leaderEpoch", ready.Role.Epoch, "leader", ready.Role.Leader)
	}
	return events, nil
}

func (r *Replica) persist(now time.Time, p *raft.Persist) (events []raft.Event, err error) {
	if p.Election != nil {
		if err := vfs.WriteFileAtomic(r.opt.FS, r.dir, QuorumStateFile, AppendQuorumState(nil, *p.Election)); err != nil {
			return nil, fmt.Errorf("write %s/%s: %w", r.dir, QuorumStateFile, err)
		}
	}
	if p.Truncate != nil {
		if err := r.log.Truncate(now, *p.Truncate); err != nil {
			return nil, err
		}
	}
	if p.SnapshotChunk != nil {
		ev, err := r.fetchedChunk(p.SnapshotChunk)
		if err != nil {
			return nil, err
		}
		if ev != nil {
			events = append(events, *ev)
		}
	}
	if p.ResetTo != nil {
		if err := r.log.Reset(now, p.ResetTo.Offset); err != nil {
			return nil, err
		}
		if err := r.dropSnapshotsBelow(p.ResetTo.Offset); err != nil {
			return nil, err
		}
	}
	if len(p.Append) > 0 {
		buf := r.appendBuffer[:0]
		for i := range p.Append {
			if buf, err = build(buf, &p.Append[i]); err != nil {
				return nil, fmt.Errorf("build metadata batch at %d: %w", p.Append[i].BaseOffset, err)
			}
		}
		if err := r.log.Append(now, buf); err != nil {
			return nil, err
		}
		if last := p.Append[len(p.Append)-1].LastOffset; r.log.EndOffset() != last+1 {
			return nil, fmt.Errorf("%s: log ends at %d after an append up to %d", r.dir, r.log.EndOffset(), last)
		}
		if cap(buf) <= 1<<20 {
			r.appendBuffer = buf
		}
	}
	if p.Flush {
		if err := r.log.Flush(); err != nil {
			return nil, err
		}
		events = append(events, raft.Flushed{EndOffset: r.log.EndOffset()})
	}
	return events, nil
}

// fetchedChunk writes a piece of a snapshot that the leader sent.
func (r *Replica) fetchedChunk(c *raft.SnapshotChunk) (*raft.SnapshotFetched, error) {
	if c.Position == 0 {
		if r.fetching != nil {
			if err := errors.Join(r.fetching.Close(), r.opt.FS.Remove(r.fetchName)); err != nil {
				return nil, err
			}
		}
		r.fetchName = fmt.Sprintf("%s/%020d-%010d-1%s", r.dir, c.ID.Offset, c.ID.Epoch, partSuffix)
		f, err := r.opt.FS.Create(r.fetchName)
		if err != nil {
			return nil, fmt.Errorf("create %s: %w", r.fetchName, err)
		}
		r.fetching = f
	}
	if _, err := r.fetching.WriteAt(c.Data, c.Position); err != nil {
		return nil, fmt.Errorf("write %s: %w", r.fetchName, err)
	}
	if !c.Last {
		return nil, nil
	}
	f := r.fetching
	r.fetching = nil
	size, err := f.Size()
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("sync %s: %w", r.fetchName, err)
	}
	control, err := verifySnapshot(r.opt.FS, r.fetchName, c.ID, nil)
	if err != nil {
		if rerr := r.opt.FS.Remove(r.fetchName); rerr != nil {
			return nil, rerr
		}
		return &raft.SnapshotFetched{ID: c.ID, Err: err}, nil
	}
	if err := putInPlace(r.opt.FS, r.dir, r.fetchName, c.ID); err != nil {
		return nil, err
	}
	r.addSnapshot(snapshotFile{id: c.ID, size: size})
	return &raft.SnapshotFetched{ID: c.ID, Control: control}, nil
}

func (r *Replica) addSnapshot(s snapshotFile) {
	r.snapshots = append(r.snapshots, s)
	r.mu.Lock()
	r.latest, r.hasLatest = s.id, true
	r.mu.Unlock()
}

// dropSnapshotsBelow removes the snapshots below offset.
func (r *Replica) dropSnapshotsBelow(offset kafka.Offset) error {
	kept := r.snapshots[:0:0]
	for _, s := range r.snapshots {
		if s.id.Offset >= offset {
			kept = append(kept, s)
			continue
		}
		name := r.dir + "/" + SnapshotName(s.id)
		if err := r.opt.FS.Rename(name, name+deletedSuffix); err != nil {
			return fmt.Errorf("rename %s: %w", name, err)
		}
		if err := r.opt.FS.Remove(name + deletedSuffix); err != nil {
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	r.snapshots = kept
	return nil
}

// Handle serves a request of the quorum's APIs; see Loop.Handle.
func (r *Replica) Handle(now time.Time, listener string, req kmsg.Request, answer func(kmsg.Response)) error {
	r.lastID++
	r.answers[r.lastID] = answer
	return r.Step(now, raft.Request{ID: r.lastID, Listener: listener, Msg: req})
}

func (r *Replica) reply(p *raft.Reply) error {
	answer := r.answers[p.ID]
	delete(r.answers, p.ID)
	if answer == nil {
		return nil
	}
	switch {
	case p.Read != nil:
		part := &p.Msg.(*kmsg.FetchResponse).Topics[0].Partitions[0]
		buf, err := r.log.Read(p.Read.Offset, int(p.Read.MaxBytes))
		if err != nil {
			return err
		}
		part.RecordBatches = buf
	case p.Snapshot != nil:
		part := &p.Msg.(*kmsg.FetchSnapshotResponse).Topics[0].Partitions[0]
		if err := r.readSnapshot(p.Snapshot, part); err != nil {
			return err
		}
	}
	answer(p.Msg)
	return nil
}

func (r *Replica) readSnapshot(s *raft.SnapshotRead, part *kmsg.FetchSnapshotResponseTopicPartition) (err error) {
	f, err := r.opt.FS.Open(r.dir+"/"+SnapshotName(s.ID), vfs.ReadOnly)
	if errors.Is(err, fs.ErrNotExist) {
		part.ErrorCode = kerr.SnapshotNotFound.Code
		return nil
	}
	if err != nil {
		return fmt.Errorf("open snapshot %v: %w", s.ID, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return fmt.Errorf("size of snapshot %v: %w", s.ID, err)
	}
	if s.Position < 0 || s.Position >= size {
		part.ErrorCode = kerr.PositionOutOfRange.Code
		return nil
	}
	part.Size = size
	part.Bytes = make([]byte, min(int64(s.MaxBytes), size-s.Position))
	if _, err := f.ReadAt(part.Bytes, s.Position); err != nil {
		return fmt.Errorf("read snapshot %v: %w", s.ID, err)
	}
	return nil
}

// Answered gives raft the answer to a Send.
func (r *Replica) Answered(now time.Time, corr uint64, m kmsg.Response, err error) error {
	ev := raft.Response{Corr: corr, Msg: m, Err: err}
	if f, ok := m.(*kmsg.FetchResponse); ok && err == nil && len(f.Topics) == 1 && len(f.Topics[0].Partitions) == 1 {
		p := &f.Topics[0].Partitions[0]
		infos, _, perr := parse(p.RecordBatches)
		if perr != nil && len(infos) == 0 {
			r.slog.Warn("leader sent records that cannot be read", "err", perr)
			ev.Msg, ev.Err = nil, perr
		}
		ev.Batches = infos
	}
	return r.Step(now, ev)
}

// Propose is Loop.Propose. It takes the lock only.
func (r *Replica) Propose(now time.Time, epoch kafka.LeaderEpoch, records [][]byte) (kafka.Offset, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.Propose(now, epoch, records)
}

// UpgradeKRaftVersion is Loop.UpgradeKRaftVersion. It takes the lock only.
func (r *Replica) UpgradeKRaftVersion(now time.Time, epoch kafka.LeaderEpoch, level int16) (kafka.Offset, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.UpgradeKRaftVersion(now, epoch, level)
}

// CheckKRaftVersion is Loop.CheckKRaftVersion.
func (r *Replica) CheckKRaftVersion(level int16) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.CheckKRaftVersion(level)
}

// Status tells where the replica stands.
func (r *Replica) Status() raft.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.core.Status()
}

// Deadline is when Step must come with a Tick.
func (r *Replica) Deadline() time.Time {
	r.mu.Lock()
	d := r.core.Deadline()
	r.mu.Unlock()
	if r.cleanAt.Before(d) {
		return r.cleanAt
	}
	return d
}

// LatestSnapshot is the newest snapshot.
func (r *Replica) LatestSnapshot() (kafka.OffsetAndEpoch, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.latest, r.hasLatest
}

// CreateSnapshot begins a snapshot of the state at end offset id.Offset.
func (r *Replica) CreateSnapshot(id kafka.OffsetAndEpoch, lastTimestamp time.Time) (*SnapshotWriter, error) {
	r.mu.Lock()
	latest, has := r.latest, r.hasLatest
	voters, version := r.core.VotersAt(id.Offset)
	hw := r.core.Status().HighWatermark
	r.mu.Unlock()
	if id.Offset > hw {
		return nil, fmt.Errorf("snapshot %v is above the high watermark %d", id, hw)
	}
	if has && latest.Offset >= id.Offset {
		return nil, fmt.Errorf("snapshot %v: %w", id, ErrSnapshotExists)
	}
	return createSnapshot(r.opt.FS, r.dir, id, lastTimestamp, voters, version)
}

// SnapshotCreated takes in a snapshot that was frozen.
func (r *Replica) SnapshotCreated(now time.Time, id kafka.OffsetAndEpoch) error {
	r.mu.Lock()
	latest, has := r.latest, r.hasLatest
	r.mu.Unlock()
	name := r.dir + "/" + SnapshotName(id)
	if has && latest.Offset >= id.Offset {
		// One from the leader overtook it.
		if latest == id {
			return nil
		}
		if err := r.opt.FS.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", name, err)
		}
		return nil
	}
	s, err := OpenSnapshot(r.opt.FS, r.dir, id)
	if err != nil {
		return err
	}
	f := snapshotFile{id: id, size: s.size, last: s.LastTimestamp}
	if err := s.Close(); err != nil {
		return err
	}
	r.addSnapshot(f)
	return r.Step(now, raft.SnapshotCreated{ID: id})
}

// clean removes the oldest snapshots, and the log below the next one, while together they are above
// metadata.max.retention.bytes or the oldest is older than metadata.max.retention.ms. One snapshot always stays.
func (r *Replica) clean(now time.Time) error {
	for len(r.snapshots) >= 2 {
		total := r.log.Size()
		for _, s := range r.snapshots {
			total += s.size
		}
		first, next := r.snapshots[0], r.snapshots[1]
		tooLarge := r.opt.MetadataMaxRetentionBytes >= 0 && total > r.opt.MetadataMaxRetentionBytes
		tooOld := r.opt.MetadataMaxRetention >= 0 && !first.last.IsZero() && now.Sub(first.last) > r.opt.MetadataMaxRetention
		if !tooLarge && !tooOld || next.id.Offset > r.delivered {
			return nil
		}
		if err := r.log.DeletePrefix(now, next.id.Offset); err != nil {
			return err
		}
		if err := r.dropSnapshotsBelow(next.id.Offset); err != nil {
			return err
		}
		r.slog.Info("deleted metadata log below snapshot", "snapshot", next.id, "deleted", first.id)
		ev := raft.LogStart{Offset: next.id.Offset}
		for _, s := range r.snapshots {
			ev.Snapshots = append(ev.Snapshots, s.id)
		}
		if err := r.stepCore(now, ev); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the log and answers who waits with nil.
func (r *Replica) Close() error {
	for id, answer := range r.answers {
		delete(r.answers, id)
		answer(nil)
	}
	var err error
	if r.fetching != nil {
		err = r.fetching.Close()
	}
	return errors.Join(err, r.log.Close())
}
