package raftloop

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raft"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
)

const metadataDir = "data/__cluster_metadata-0"

var archives = []struct{ name, prefix string }{
	{"single-4.4", "1"}, {"single-4.4-unclean", "1"}, {"cluster-4.4", "1"}, {"cluster-4.4", "2"}, {"cluster-4.4", "3"},
	{"3.9.2-single", "1"}, {"3.3.2-single", "1"},
}

// TestQuorumStateGolden reads each quorum-state that Kafka wrote and writes the same bytes.
func TestQuorumStateGolden(t *testing.T) {
	check := func(name string, data []byte) {
		t.Helper()
		e, err := ParseQuorumState(data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if got := AppendQuorumState(nil, e); !bytes.Equal(got, data) {
			t.Errorf("%s: wrote\n%s\nwant\n%s", name, got, data)
		}
	}
	for _, a := range archives {
		data, err := unpack(t, a.name, a.prefix).ReadFile(metadataDir+"/"+QuorumStateFile, 1<<16)
		if err != nil {
			t.Fatal(err)
		}
		check(a.name+"/"+a.prefix, data)
	}
	// A voter that gave its vote away, and an observer: from a quorum of Kafka's with dynamic voters.
	check("voted", []byte(`{"leaderId":2,"leaderEpoch":3,"votedId":2,"votedDirectoryId":"32X9O6aDTomUcneApPjcvg","data_version":1}`))
	check("observer", []byte(`{"leaderId":2,"leaderEpoch":3,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}`))
}

func TestQuorumStateRefused(t *testing.T) {
	good := `{"clusterId":"","leaderId":1,"leaderEpoch":5,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}`
	for i := range len(good) {
		if _, err := ParseQuorumState([]byte(good[:i])); err == nil {
			t.Errorf("taken: %q", good[:i])
		}
	}
	for _, s := range []string{`{}`, `{"data_version":2,"leaderEpoch":1}`, `{"data_version":1,"leaderEpoch":-1}`, `[]`,
		`{"leaderId":1,"leaderEpoch":3,"votedId":2,"votedDirectoryId":"x","data_version":1}`} {
		if _, err := ParseQuorumState([]byte(s)); err == nil {
			t.Errorf("taken: %s", s)
		}
	}
}

// TestSnapshotsGolden reads every checkpoint that Kafka wrote to its footer, and its control records encode to the same.
func TestSnapshotsGolden(t *testing.T) {
	n := 0
	for _, a := range archives {
		m := unpack(t, a.name, a.prefix)
		entries, err := m.List(metadataDir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			id, ok := ParseSnapshotName(e.Name())
			if !ok {
				continue
			}
			n++
			if SnapshotName(id) != e.Name() {
				t.Errorf("%v is named %s, not %s", id, SnapshotName(id), e.Name())
			}
			if _, err := verifySnapshot(m, metadataDir+"/"+e.Name(), id, nil); err != nil {
				t.Errorf("%s: %v", a.name, err)
			}
			sameControl(t, m, metadataDir+"/"+e.Name())
		}
	}
	if n < 20 {
		t.Errorf("%d checkpoints", n)
	}
}

// sameControl decodes each control record of a file and encodes it again.
func sameControl(t *testing.T, m vfs.FS, name string) {
	t.Helper()
	data, err := m.ReadFile(name, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	for len(data) > 0 {
		b, rest, err := record.Next(data)
		if err != nil || b == nil {
			t.Fatalf("%s: %v", name, err)
		}
		data = rest
		if !b.Control() {
			continue
		}
		for r, err := range b.All() {
			if err != nil {
				t.Fatal(err)
			}
			typ, err := record.ParseControlKey(r.Key)
			if err != nil {
				t.Fatal(err)
			}
			c, err := raft.DecodeControl(int16(typ), r.Value)
			if err != nil {
				t.Fatal(err)
			}
			if c == nil {
				continue
			}
			if got, value := raft.EncodeControl(c); got != int16(typ) || !bytes.Equal(value, r.Value) {
				t.Errorf("%s: %+v is\n%x, not\n%x", name, c, value, r.Value)
			}
		}
	}
}

// TestBootstrapGolden: the feature records of a freshly formatted node, from the checkpoint of Kafka 4.4 or the file of
// older versions.
func TestBootstrapGolden(t *testing.T) {
	for _, c := range []struct {
		archive, prefix, source string
		records                 int
	}{
		{"formatted-4.4", "release-3.3-IV3", metadataDir + "/00000000000000000000-0000000000.checkpoint", 1},
		{"single-4.4", "1", metadataDir + "/00000000000000000000-0000000000.checkpoint", 7},
		{"3.9.2-single", "1", "data/bootstrap.checkpoint", 0},
		{"3.3.2-single", "1", "data/bootstrap.checkpoint", 0},
	} {
		records, source, ok, err := ReadBootstrap(unpack(t, c.archive, c.prefix), "data")
		if err != nil || !ok || source != c.source || c.records > 0 && len(records) != c.records {
			t.Errorf("%s: %d records from %s, %v, %v", c.archive, len(records), source, ok, err)
		}
		for _, r := range records {
			// frame version 1, FeatureLevelRecord or a config that 4.4 adds
			if len(r) < 3 || r[0] != 1 {
				t.Errorf("%s: record %x", c.archive, r)
			}
		}
	}
}

// options are those of a combined node with a static voter on a storage log.
func options(t testing.TB, m vfs.FS, id kafka.BrokerID, now time.Time) (Options, *storage.Dir) {
	t.Helper()
	d, err := storage.OpenDir("data", storage.Options{FS: m, Files: storage.NewFiles(m, 100)})
	if err != nil {
		t.Fatal(err)
	}
	e := raft.Endpoint{Listener: "CONTROLLER", Host: "localhost", Port: 9093}
	o := Options{
		NodeID: id, ClusterID: "c", FS: m, MetadataLogDir: "data", Controller: true, ControllerListener: "CONTROLLER",
		Endpoints:    []raft.Endpoint{e},
		QuorumVoters: raft.NewVoterSet(raft.Voter{Key: raft.ReplicaKey{ID: id}, Endpoints: []raft.Endpoint{e}}),
		Rand:         rand.New(rand.NewPCG(1, 2)),
	}
	o.DirectoryID[0] = 7
	o.OpenLog = func(dir string, recoveryPoint kafka.Offset) (Log, error) {
		l, _, err := OpenStorageLog(d, &o, recoveryPoint, now)
		return l, err
	}
	return o, d
}

// TestTakeOver opens the metadata logs of real Kafka nodes with one voter: this node leads at once, in the next epoch, has
// every record that Kafka's dump shows, and what it writes Kafka's format allows.
func TestTakeOver(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for a, dump := range map[string]string{
		"single-4.4":         "dump/__cluster_metadata-0/00000000000000000000.log.txt.gz",
		"single-4.4-unclean": "", // Kafka's dump is of what its own recovery left
		"3.9.2-single":       "dump-3.9.2/__cluster_metadata-0/00000000000000000000.log.txt.gz",
		"3.3.2-single":       "dump-3.3.2/__cluster_metadata-0/00000000000000000000.log.txt.gz",
	} {
		t.Run(a, func(t *testing.T) {
			m := unpack(t, a, "1")
			if err := m.RemoveAll("data/.lock"); err != nil {
				t.Fatal(err)
			}
			old, err := readQuorumState(m, metadataDir)
			if err != nil {
				t.Fatal(err)
			}
			o, d := options(t, m, 1, now)
			r, err := OpenReplica(o, now, func(s raft.Send) { t.Errorf("sends %T", s.Msg) })
			if err != nil {
				t.Fatal(err)
			}
			s := r.Status()
			if s.Role != raft.Leader || s.Epoch != old.Epoch+1 || s.LogEnd != s.EpochStart+1 || s.HighWatermark != s.LogEnd {
				t.Fatalf("status %+v", s)
			}
			records, snapshots, local := 0, 0, 0
			next := kafka.Offset(0)
			r.Register(Callbacks{
				Commit: func(b Batch) {
					if b.BaseOffset != next {
						t.Fatalf("batch at %d, want %d", b.BaseOffset, next)
					}
					next = b.LastOffset + 1
					records += len(b.Records)
				},
				Snapshot: func(sr *SnapshotReader) error {
					snapshots++
					next = sr.ID.Offset
					return nil
				},
				Leader: func(l LeaderChange) {
					if l.Local && next != s.LogEnd {
						t.Errorf("claimed at %d of %d", next, s.LogEnd)
					}
					local++
				},
			})
			for r.Behind() {
				if err := r.Deliver(now); err != nil {
					t.Fatal(err)
				}
			}
			want := 1
			if a == "single-4.4-unclean" {
				want = 0 // it had written none yet but the bootstrap checkpoint, which is no state
			}
			if snapshots != want || local != 1 || next != s.LogEnd {
				t.Errorf("%d snapshots, %d claims, delivered to %d of %d", snapshots, local, next, s.LogEnd)
			}
			if dump != "" {
				if last := lastDumped(t, "data/"+a+".expect/"+dump); s.EpochStart != last+1 {
					t.Errorf("epoch starts at %d; Kafka's dump ends with offset %d", s.EpochStart, last)
				}
			}
			data, err := m.ReadFile(metadataDir+"/"+QuorumStateFile, 1<<16)
			if err != nil {
				t.Fatal(err)
			}
			state := fmt.Sprintf(`{"clusterId":"","leaderId":1,"leaderEpoch":%d,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}`, s.Epoch)
			if string(data) != state {
				t.Errorf("quorum-state\n%s, want\n%s", data, state)
			}
			if err := errors.Join(r.Close(), d.Close(-1)); err != nil {
				t.Fatal(err)
			}
			// And again: a second start is one epoch later, and finds the LeaderChange of the first.
			o, d = options(t, m, 1, now)
			if r, err = OpenReplica(o, now, func(raft.Send) {}); err != nil {
				t.Fatal(err)
			}
			if s2 := r.Status(); s2.Epoch != s.Epoch+1 || s2.EpochStart != s.LogEnd {
				t.Errorf("second start: %+v", s2)
			}
			if err := errors.Join(r.Close(), d.Close(-1)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestRecoveryPoint: what was synced once, which a line of the recovery points' checkpoint says and a snapshot, is not cut off. A bad
// batch there refuses the start and leaves the file as it is. Above, or if the operator takes the line away, the log ends before it.
func TestRecoveryPoint(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	const log, checkpoint = metadataDir + "/00000000000000000000.log", "data/recovery-point-offset-checkpoint"
	open := func(m vfs.FS) (*Replica, *storage.Dir, error) {
		o, d := options(t, m, 1, now)
		r, err := OpenReplica(o, now, func(raft.Send) {})
		return r, d, err
	}
	m := unpack(t, "single-4.4", "1")
	if err := m.RemoveAll("data/.lock"); err != nil {
		t.Fatal(err)
	}
	r, d, err := open(m)
	if err != nil {
		t.Fatal(err)
	}
	end, newest := r.Status().LogEnd, r.latest.Offset
	if err := errors.Join(r.Close(), d.Close(-1)); err != nil {
		t.Fatal(err)
	}
	written, err := m.ReadFile(checkpoint, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	line := fmt.Sprintf("__cluster_metadata 0 %d\n", end)
	if !strings.Contains(string(written), line) {
		t.Fatalf("the checkpoint has no line %q:\n%s", line, written)
	}
	data, err := m.ReadFile(log, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	place := func(from kafka.Offset) (pos int64, base kafka.Offset) { // of the first batch from an offset on
		for rest := data; len(rest) > 0; {
			b := record.Batch(rest)
			if b.BaseOffset() >= from {
				return pos, b.BaseOffset()
			}
			rest, pos = rest[b.Size():], pos+int64(b.Size())
		}
		t.Fatalf("no batch at %d", from)
		return 0, 0
	}
	for _, c := range []struct {
		name    string
		bad     kafka.Offset
		without bool // the checkpoint's line
		refused bool
	}{
		{"below the line", newest + 1, false, true},
		{"below a snapshot, without a line", 0, true, true},
		{"above all snapshots, without a line", newest + 1, true, false},
	} {
		m := unpack(t, "single-4.4", "1")
		pos, base := place(c.bad)
		content := bytes.Clone(data)
		content[pos+70] ^= 4
		text := string(written)
		if c.without {
			// The number of lines comes first; this one takes the place of the lost one.
			text = strings.Replace(text, line, "gone 0 1\n", 1)
		}
		for name, b := range map[string][]byte{log: content, checkpoint: []byte(text)} {
			if err := vfs.WriteFileAtomic(m, name[:strings.LastIndex(name, "/")], name[strings.LastIndex(name, "/")+1:], b); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.RemoveAll("data/.lock"); err != nil {
			t.Fatal(err)
		}
		r, d, err := open(m)
		var corrupt *storage.CorruptError
		switch {
		case c.refused && (!errors.As(err, &corrupt) || corrupt.File != log || corrupt.Position != pos || !strings.Contains(err.Error(), checkpoint)):
			t.Errorf("%s: %v", c.name, err)
		case !c.refused && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case !c.refused && r.Status().EpochStart != base:
			t.Errorf("%s: the log ended at %d, not at %d", c.name, r.Status().EpochStart, base)
		}
		after, rerr := m.ReadFile(log, 1<<30)
		if rerr != nil {
			t.Fatal(rerr)
		}
		if c.refused && !bytes.Equal(after, content) {
			t.Errorf("%s: the file was changed", c.name)
		}
		if err == nil {
			err = r.Close()
		} else {
			err = nil
		}
		if err := errors.Join(err, d.Close(-1)); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// lastDumped is the last offset in Kafka's dump of a segment.
func lastDumped(t *testing.T, name string) kafka.Offset {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(string(fixture.Read(t, name))), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		var base, last kafka.Offset
		if _, err := fmt.Sscanf(lines[i], "baseOffset: %d lastOffset: %d", &base, &last); err == nil {
			return last
		}
	}
	t.Fatalf("%s has no batch", name)
	return -1
}

// TestClusterVoters opens the three metadata logs of a dynamic quorum: the voters are in the log or its snapshot, and
// nobody leads alone.
func TestClusterVoters(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for id := kafka.BrokerID(1); id <= 3; id++ {
		m := unpack(t, "cluster-4.4", fmt.Sprint(id))
		o, d := options(t, m, id, now)
		o.QuorumVoters = raft.VoterSet{}
		r, err := OpenReplica(o, now, func(raft.Send) {})
		if err != nil {
			t.Fatal(err)
		}
		s := r.Status()
		if s.KRaftVersion != 1 || s.Voters.Len() != 3 || s.Role == raft.Leader || s.VotersOffset < 0 {
			t.Errorf("node %d: %+v", id, s)
		}
		for _, v := range s.Voters.Voters() {
			if len(v.Endpoints) != 1 || v.Key.Directory.IsZero() || v.MaxKRaft != 1 {
				t.Errorf("node %d: voter %+v", id, v)
			}
		}
		if err := errors.Join(r.Close(), d.Close(-1)); err != nil {
			t.Fatal(err)
		}
	}
}
