package cli

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/raftloop"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/vfs"
)

// fsckMetadata replays the metadata log while its partition is checked, and compares each snapshot with what the log below it
// comes to. It ends with the image that a node would have at the log's end.
type fsckMetadata struct {
	fs  vfs.FS
	dir string
	p   *fsckPartition // the check of its segments, which findings go to

	snapshots []kafka.OffsetAndEpoch
	bad       map[kafka.OffsetAndEpoch]bool
	delta     *metadata.Delta // nil until it is known where to begin
	next      int             // the snapshot to be compared next
	end       kafka.Offset    // of what was replayed
	epoch     kafka.LeaderEpoch
	epochs    bool // epoch is known
	failed    bool
	image     *metadata.Image
}

const maxQuorumState = 1 << 20

// begin finds the snapshots, and with which the replay begins.
func (m *fsckMetadata) begin() {
	m.bad = map[kafka.OffsetAndEpoch]bool{}
	entries, err := m.fs.List(m.dir)
	if err != nil {
		return // the partition's check says so
	}
	hasState := false
	for _, e := range entries {
		if id, ok := raftloop.ParseSnapshotName(e.Name()); ok && !e.IsDir() {
			m.snapshots = append(m.snapshots, id)
		}
		hasState = hasState || e.Name() == raftloop.QuorumStateFile
	}
	if !hasState && len(m.snapshots)+len(entries) > 2 {
		m.p.findings.add(fsckWarning, m.dir, "quorum-state", "takes the log's last epoch for the present one, and may vote again in an epoch in which it has voted.", "%s is missing", raftloop.QuorumStateFile)
	}
	slices.SortFunc(m.snapshots, func(a, b kafka.OffsetAndEpoch) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Epoch, b.Epoch))
	})
	if n := len(m.snapshots); n > 0 {
		m.p.newestSnapshot = m.snapshots[n-1].Offset
	}
	m.p.eachBatch = m.batch
}

// load reads a snapshot into a Delta of its own.
func (m *fsckMetadata) load(id kafka.OffsetAndEpoch) *metadata.Delta {
	name := m.dir + "/" + raftloop.SnapshotName(id)
	d := metadata.NewDelta(metadata.Empty())
	at := metadata.Provenance{Offset: id.Offset - 1, Epoch: id.Epoch}
	_, _, err := raftloop.ReadCheckpoint(m.fs, name, id, func(b raftloop.Batch) error {
		for _, v := range b.Records {
			if err := d.ReplayBytes(at, v); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		return d
	}
	m.bad[id] = true
	if id == m.snapshots[len(m.snapshots)-1] {
		f := m.p.findings.add(fsckError, name, "metadata-snapshot", "ends when it comes to load it.", "%v", err)
		f.WayOut = "a controller or broker gets the metadata anew from the quorum's leader, if there is one on another node: move " + fsckMetadataDir + " elsewhere while the node is stopped, but never on a majority of the voters."
		if id.Offset == 0 {
			f.WayOut = "if the cluster has been started before, remove the file while the node is stopped: the log says all that it said."
		}
	} else {
		m.p.findings.add(fsckWarning, name, "metadata-snapshot", "does not read it: there is a newer one.", "%v", err)
	}
	return nil
}

// from begins the replay: at the log's start if that is 0, else at the first snapshot in it.
func (m *fsckMetadata) from(start kafka.Offset) {
	for ; m.delta == nil && m.next < len(m.snapshots); m.next++ {
		id := m.snapshots[m.next]
		if id.Offset < start {
			continue
		}
		if start == 0 && id.Offset > 0 {
			break
		}
		if m.delta = m.load(id); m.delta != nil {
			m.end = id.Offset
		}
	}
	if m.delta != nil {
		return
	}
	m.delta = metadata.NewDelta(metadata.Empty())
	if start > 0 {
		m.failed = true
		m.p.findings.add(fsckError, m.dir, "metadata-start", "ends at its start.", "the log begins at offset %d, and no sound snapshot holds what was before", start).
			WayOut = "as for a metadata log that is lost: get it anew from the quorum, or restore a backup."
	}
}

// batch takes in the next batch of the log.
func (m *fsckMetadata) batch(b record.Batch) {
	if m.delta == nil {
		m.from(m.p.segments[0].base)
	}
	base, epoch := b.BaseOffset(), b.PartitionLeaderEpoch()
	m.compare(base)
	defer func() { m.epoch, m.epochs = epoch, true }()
	in, err := raftloop.InspectBatch(b)
	if err != nil {
		m.fail(base, err)
		return
	}
	if m.failed || base < m.end {
		return
	}
	at := metadata.Provenance{Offset: in.LastOffset, Epoch: in.Epoch, Timestamp: in.Timestamp.UnixMilli()}
	if in.Batch.Control {
		m.delta.Skip(at)
	}
	for i, v := range in.Records {
		at.Offset = base + kafka.Offset(i)
		if err := m.delta.ReplayBytes(at, v); err != nil {
			m.fail(at.Offset, err)
			return
		}
	}
	m.end = in.LastOffset + 1
}

func (m *fsckMetadata) fail(offset kafka.Offset, err error) {
	if m.failed {
		return
	}
	m.failed = true
	m.p.findings.add(fsckError, m.dir, "metadata-record", "its controller ends when it comes to the record; a broker logs an error and goes on without it.", "offset %d: %v", offset, err).at(-1, offset).
		Highwater = "ends when it comes to the record."
}

// compare compares the snapshots up to an offset with the replay.
func (m *fsckMetadata) compare(upTo kafka.Offset) {
	for ; m.next < len(m.snapshots) && m.snapshots[m.next].Offset <= upTo; m.next++ {
		id := m.snapshots[m.next]
		name := m.dir + "/" + raftloop.SnapshotName(id)
		if m.epochs && id.Offset == upTo && m.epoch != id.Epoch {
			m.p.findings.add(fsckWarning, name, "metadata-snapshot", "does not notice; a follower that asks for it may be refused.", "it is of epoch %d, and the record before its end of epoch %d", id.Epoch, m.epoch)
		}
		d := m.load(id)
		if d == nil || m.failed || m.end != id.Offset || m.delta.InTransaction() {
			continue
		}
		image, _ := m.delta.Apply()
		d.Skip(image.Provenance())
		snapshot, _ := d.Apply()
		if c := metadata.Diff(snapshot, image); !c.Empty() {
			m.p.findings.add(fsckError, name, "metadata-snapshot", "does not notice: nodes that load the snapshot differ from those that read the log.", "it is not what the log below it comes to: %s", fsckChanges(c, snapshot, image)).
				Highwater = ""
		}
	}
}

// fsckChanges names what differs.
func fsckChanges(c *metadata.Changes, a, b *metadata.Image) string {
	var out []string
	for t := range c.Topics() {
		name := t.Name
		out = append(out, "topic "+name)
	}
	for id := range c.Brokers() {
		out = append(out, fmt.Sprintf("broker %d", id))
	}
	for id := range c.Controllers() {
		out = append(out, fmt.Sprintf("controller %d", id))
	}
	for f := range c.Features() {
		out = append(out, fmt.Sprintf("feature %s (%d, %d)", f, a.FeatureLevel(f), b.FeatureLevel(f)))
	}
	for r := range c.Configs() {
		out = append(out, fmt.Sprintf("configuration of %q", r.Name))
	}
	if n := len(out); n == 0 {
		return "quotas, credentials, ACLs, tokens or producer ids"
	}
	if n := len(out); n > 5 {
		out = append(out[:5], fmt.Sprintf("and %d more", n-5))
	}
	s := out[0]
	for _, o := range out[1:] {
		s += ", " + o
	}
	return s
}

// finish takes in what lies beyond the log's end, and reads quorum-state.
func (m *fsckMetadata) finish() {
	end := m.p.forecast.EndOffset
	if m.delta == nil {
		start := kafka.Offset(0)
		if len(m.p.segments) > 0 {
			start = m.p.segments[0].base
		}
		m.from(start)
	}
	m.compare(end)
	for ; m.next < len(m.snapshots); m.next++ {
		id := m.snapshots[m.next]
		d := m.load(id)
		m.p.findings.add(fsckNote, m.dir+"/"+raftloop.SnapshotName(id), "metadata-snapshot", "lets its log begin anew at the snapshot's end.", "it ends at offset %d, beyond the log's end %d, as when a node stopped right after it had fetched it", id.Offset, end)
		if d != nil {
			m.delta, m.failed = d, false
		}
	}
	m.image, _ = m.delta.Apply()
	m.quorumState()
}

func (m *fsckMetadata) quorumState() {
	name := m.dir + "/" + raftloop.QuorumStateFile
	b, err := m.fs.ReadFile(name, maxQuorumState)
	if err != nil {
		return // that it is missing was said
	}
	e, err := raftloop.ParseQuorumState(b)
	if err != nil {
		m.p.findings.add(fsckError, name, "quorum-state", "ends at its start.", "%v", err).
			WayOut = "remove it while the node is stopped, if the other voters are up and agree on a leader: else this node might vote twice in one epoch."
		return
	}
	if m.epochs && e.Epoch < m.epoch {
		m.p.findings.add(fsckWarning, name, "quorum-state", "takes the log's epoch.", "its epoch %d is less than %d, that of the log's last batch", e.Epoch, m.epoch)
	}
}
