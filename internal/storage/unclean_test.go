package storage

// Shows that a start after a kill costs little where nothing is to be done: it lists a directory once, reads nothing of an empty log, and
// writes to no file that is right already; and that what isn't right is made so, durably.

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/vfs"
)

// killedLogs are logs as a kill may find them.
var killedLogs = map[string]func(t *testing.T, d *Dir, l *Log){
	"never written": func(*testing.T, *Dir, *Log) {},
	"a batch that isn't synced": func(t *testing.T, _ *Dir, l *Log) {
		sequenced(t, l, 1)
	},
	"a batch below the recovery point": func(t *testing.T, d *Dir, l *Log) {
		sequenced(t, l, 1)
		if err := errors.Join(l.Flush(1), d.CheckpointRecoveryPoints()); err != nil {
			t.Fatal(err)
		}
	},
	"several segments": func(t *testing.T, d *Dir, l *Log) {
		sequenced(t, l, 20)
		if err := errors.Join(l.Flush(12), d.CheckpointRecoveryPoints()); err != nil {
			t.Fatal(err)
		}
		if n := len(l.view.Load().segments); n < 4 {
			t.Fatalf("%d segments", n)
		}
	},
	"emptied by a leader that begins at 1000": func(t *testing.T, d *Dir, l *Log) {
		if err := errors.Join(l.TruncateFullyAndStartAt(1000, 1000, time.UnixMilli(0)), d.CheckpointStartOffsets()); err != nil {
			t.Fatal(err)
		}
	},
	"emptied by retention": func(t *testing.T, d *Dir, l *Log) {
		sequenced(t, l, 5)
		l.SetHighWatermark(5)
		if _, err := l.AdvanceStartOffset(5); err != nil {
			t.Fatal(err)
		}
		_, err := l.DeleteOldSegments(time.UnixMilli(0))
		if err == nil {
			_, err = l.RemoveDeleted(time.UnixMilli(1 << 40))
		}
		if err = errors.Join(err, d.CheckpointStartOffsets()); err != nil || l.Size() > 0 {
			t.Fatal(err, l.Size())
		}
	},
}

// sequenced appends batches of a producer.
func sequenced(t *testing.T, l *Log, n int) {
	t.Helper()
	for range n {
		o := record.DefaultBatchOptions(0)
		o.ProducerID, o.ProducerEpoch, o.BaseSequence = 7, 0, int32(l.EndOffset())
		r := record.NewBuilder(o)
		r.Append(1000+l.EndOffset(), nil, make([]byte, 300))
		b, err := r.Build()
		if err != nil {
			t.Fatal(err)
		}
		vo := l.Config().Validation(l.Partition(), record.Client, time.UnixMilli(1000))
		v, err := record.Validate(b, &vo)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.AppendAsLeader(v, LeaderAppend{Now: time.UnixMilli(1000), LeaderEpoch: 1, Origin: record.Client}); err != nil {
			t.Fatal(err)
		}
		v.Release()
	}
}

// killed makes a log, kills its process, and opens and kills it once more: the first recovery may have to make files.
func killed(t *testing.T, make func(t *testing.T, d *Dir, l *Log)) (*vfs.Mem, Config) {
	t.Helper()
	fsys := vfs.NewMem()
	c := DefaultConfig()
	c.SegmentBytes = 1500
	d, l := faultLog(t, fsys, c)
	if err := l.AssignEpoch(1, 0); err != nil {
		t.Fatal(err)
	}
	make(t, d, l)
	if err := d.Abandon(); err != nil {
		t.Fatal(err)
	}
	d, _, _ = reopen(t, fsys, c)
	if err := d.Abandon(); err != nil {
		t.Fatal(err)
	}
	return fsys, c
}

// surveyedOpen opens the log of faultLog as a start after a kill does, and says what that did to the disk.
func surveyedOpen(t *testing.T, fsys *vfs.Mem, c Config) (d *Dir, l *Log, r Recovery, ops []vfs.Op) {
	t.Helper()
	d = newDir(t, fsys)
	fsys.SetFault(func(op vfs.Op) error {
		ops = append(ops, op)
		return nil
	})
	defer fsys.SetFault(nil)
	p := faultDir
	d.Survey(&p)
	l, r, err := d.Open(p, c, time.UnixMilli(0))
	if err != nil {
		t.Fatal(err)
	}
	return d, l, r, ops
}

// TestUncleanStartChangesNothing: whatever a kill has left and is right stays untouched; the directory is listed once; of an empty log no
// segment or index is opened. Afterwards the log is as it was, and takes more.
func TestUncleanStartChangesNothing(t *testing.T) {
	t.Parallel()
	for name, make := range killedLogs {
		t.Run(name, func(t *testing.T) {
			fsys, c := killed(t, make)
			before := contents(t, fsys, "d/f-0")
			d, l, _, ops := surveyedOpen(t, fsys, c)
			lists := 0
			for _, op := range ops {
				if op.Kind == vfs.OpList {
					lists++
				}
				if op.Kind.Changes() {
					t.Errorf("%v %s", op.Kind, op.Name)
				}
				if l.Size() == 0 && op.Kind == vfs.OpOpen && !strings.HasSuffix(op.Name, snapshotSuffix) && !strings.HasSuffix(op.Name, epochsName) && !strings.HasSuffix(op.Name, partitionMetadataName) {
					t.Errorf("%v %s of an empty log", op.Kind, op.Name)
				}
			}
			if want := 1 + len(before)/(surveyed+1); lists != want {
				t.Errorf("listed %d times, want %d: it has %d files", lists, want, len(before))
			}
			next := l.EndOffset()
			sequenced(t, l, 3)
			if err := d.Close(1); err != nil {
				t.Fatal(err)
			}
			_, l, r := reopen(t, fsys, c)
			if l.EndOffset() != next+3 || r.Recovered > 0 || len(r.Notes) > 0 {
				t.Errorf("the log ends at %d, want %d; %+v", l.EndOffset(), next+3, r)
			}
		})
	}
}

// TestUncleanStartMends: an index that is missing, has what isn't of its log, or lacks something, and a producer snapshot that is bad,
// stale or missing, are made as they were, in logs empty or not. After a clean stop a power cut changes nothing of that.
func TestUncleanStartMends(t *testing.T) {
	t.Parallel()
	junk := func(n int) func([]byte) []byte { return func(b []byte) []byte { return append(b, make([]byte, n)...) } }
	damages := map[string]func(b []byte) []byte{
		"missing":                          nil,
		"with zeros behind":                junk(24),
		"with half an entry":               junk(5),
		"with an entry of another segment": func(b []byte) []byte { return append(b, "\x00\x00\x00\x01\x00\x00\x00\x07\x00\x00\x00\x01"...) },
		"short":                            func(b []byte) []byte { return b[:len(b)/2] },
		"other bytes": func(b []byte) []byte {
			for i := range b {
				b[i] ^= 0x55
			}
			return b
		},
	}
	for name, make := range killedLogs {
		for _, suffix := range []string{indexSuffix, timeIndexSuffix, snapshotSuffix} {
			for what, damage := range damages {
				t.Run(fmt.Sprintf("%s/%s %s", name, suffix, what), func(t *testing.T) {
					fsys, c := killed(t, make)
					before := contents(t, fsys, "d/f-0")
					var bases []string
					for n := range before {
						if base, ok := strings.CutSuffix(n, suffix); ok {
							bases = append(bases, base)
						}
					}
					if len(bases) == 0 || suffix == snapshotSuffix && name == "emptied by retention" {
						return // it has none, or one of which nothing else is left
					}
					file := "d/f-0/" + slices.Max(bases) + suffix
					if damage == nil {
						if err := fsys.Remove(file); err != nil {
							t.Fatal(err)
						}
					} else {
						edit(t, fsys, file, damage)
					}
					if err := errors.Join(fsys.SyncDir("d/f-0"), fsys.SyncDir("d"), fsys.SyncDir(".")); err != nil {
						t.Fatal(err)
					}
					d, l, _, _ := surveyedOpen(t, fsys, c)
					compare := func(when string, fsys *vfs.Mem) {
						t.Helper()
						for n, want := range before {
							if got := contents(t, fsys, "d/f-0")[n]; string(got) != string(want) {
								t.Errorf("%s: %s is %x, was %x", when, n, got, want)
							}
						}
					}
					compare("after the start", fsys)
					end := l.EndOffset()
					if err := d.Close(1); err != nil {
						t.Fatal(err)
					}
					stopped := contents(t, fsys, "d/f-0")
					for seed := range uint64(6) {
						after := fsys.Crash(rand.New(rand.NewPCG(seed, 5)))
						before = stopped
						compare("after a stop and a power cut", after)
						if d, l, r := reopen(t, after, c); !d.clean || l.EndOffset() != end || r.Recovered > 0 {
							t.Errorf("after a stop and a power cut: clean %v, end %d, %+v", d.clean, l.EndOffset(), r)
						}
					}
				})
			}
		}
	}
}

// TestUncleanEmptyTransactionIndex: an empty segment has no aborted transactions: what a truncation that a power cut undid in part may have left
// must not hide what comes there.
func TestUncleanEmptyTransactionIndex(t *testing.T) {
	fsys, c := killed(t, killedLogs["never written"])
	name := "d/f-0/" + segmentName(0, txnIndexSuffix)
	put(t, fsys, name, abortedEntry{9, 0, 5, 6}.append(nil))
	_, l, _, _ := surveyedOpen(t, fsys, c)
	if _, err := fsys.Stat(name); !isNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
	sequenced(t, l, 10)
	l.SetHighWatermark(10)
	s, err := l.Read(0, 1<<20, true, 10)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	if list, err := l.AbortedTxns(nil, &s); err != nil || len(list) > 0 {
		t.Errorf("aborted: %v %v", list, err)
	}
}

// TestRecoveryAfterCleanStop: a transaction index that is bad in spite of a clean stop has the log recovered. What that makes is on the disk
// before the next mark of a clean stop is.
func TestRecoveryAfterCleanStop(t *testing.T) {
	fsys := vfs.NewMem()
	d, l := faultLog(t, fsys, DefaultConfig())
	abortedTxn(t, l, 10)
	if err := d.Close(1); err != nil {
		t.Fatal(err)
	}
	want := contents(t, fsys, "d/f-0")
	edit(t, fsys, "d/f-0/"+segmentName(0, txnIndexSuffix), func(b []byte) []byte { return b[:len(b)-1] })
	if err := fsys.Remove("d/f-0/" + segmentName(0, indexSuffix)); err != nil {
		t.Fatal(err)
	}
	syncAll(t, fsys)
	d, l, r := reopen(t, fsys, DefaultConfig())
	if r.Recovered != 1 || len(r.Notes) != 1 || l.EndOffset() != 11 {
		t.Errorf("%+v; the log ends at %d", r, l.EndOffset())
	}
	if err := d.Close(1); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(8) {
		got := contents(t, fsys.Crash(rand.New(rand.NewPCG(seed, 3))), "d/f-0")
		for name := range want {
			if b, ok := got[name]; !ok || !bytes.Equal(b, want[name]) {
				t.Errorf("after a power cut %s is %x (%v), was %x", name, b, ok, want[name])
			}
		}
	}
}

// TestTrusted: a recovery point isn't written down beyond a segment whose indexes aren't synced, as when one rolls while a Flush is under way.
func TestTrusted(t *testing.T) {
	fsys, _, d, l := shortSegments(t, 3)
	segments := l.view.Load().segments
	l.recovery.Store(l.EndOffset())
	for i, want := range []kafka.Offset{0, segments[1].base, l.EndOffset()} {
		if err := d.CheckpointRecoveryPoints(); err != nil {
			t.Fatal(err)
		}
		b, err := fsys.ReadFile("d/"+recoveryPointsName, 1000)
		if err != nil || string(b) != fmt.Sprintf("0\n1\nf 0 %d\n", want) {
			t.Errorf("with %d segments synced: %q %v, want %d", i, b, err, want)
		}
		segments[i].indexUnsynced.Store(false)
	}
}

// TestNamesAfterKill: the name of a log's directory that a process made before it was killed is on the disk when the next one has flushed.
func TestNamesAfterKill(t *testing.T) {
	fsys := vfs.NewMem()
	d, l := faultLog(t, fsys, DefaultConfig())
	if err := fsys.SyncDir("."); err != nil {
		t.Fatal(err)
	}
	write(t, l, 3, 100)
	if err := d.Abandon(); err != nil {
		t.Fatal(err)
	}
	_, l, _ = reopen(t, fsys, DefaultConfig())
	if err := l.Flush(3); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(8) {
		after := fsys.Crash(rand.New(rand.NewPCG(seed, 3)))
		if _, err := after.Stat("d/f-0"); err != nil {
			t.Fatal(err)
		}
		if _, l, _ := reopen(t, after, DefaultConfig()); l.EndOffset() != 3 || l.TopicID() != (kafka.TopicID{1}) {
			t.Errorf("the log ends at %d, topic %v", l.EndOffset(), l.TopicID())
		}
	}
}

// TestSameNameAgain: what the checkpoints say of a deleted partition isn't held of a new one of the same name, also after a kill.
func TestSameNameAgain(t *testing.T) {
	fsys := vfs.NewMem()
	d, l := faultLog(t, fsys, DefaultConfig())
	write(t, l, 10, 100)
	l.SetHighWatermark(10)
	if _, err := l.AdvanceStartOffset(5); err != nil {
		t.Fatal(err)
	}
	l.SetCleanedTo(7)
	checkpoints := []string{recoveryPointsName, startOffsetsName, highWatermarksName, cleanerOffsetsName}
	if err := errors.Join(l.Flush(10), d.CheckpointRecoveryPoints(), d.CheckpointStartOffsets(), d.CheckpointHighWatermarks(), d.CheckpointCleanedOffsets()); err != nil {
		t.Fatal(err)
	}
	for _, name := range checkpoints {
		if b, err := fsys.ReadFile("d/"+name, 1000); err != nil || !bytes.Contains(b, []byte("f 0 ")) {
			t.Fatalf("%s: %q %v", name, b, err)
		}
	}
	if _, err := d.Delete(l, [16]byte{1}); err != nil {
		t.Fatal(err)
	}
	l, err := d.Create(faultPartition, kafka.TopicID{2}, DefaultConfig(), time.UnixMilli(0))
	if err != nil {
		t.Fatal(err)
	}
	write(t, l, 3, 100)
	if err := d.Abandon(); err != nil {
		t.Fatal(err)
	}
	for _, name := range checkpoints {
		if b, err := fsys.ReadFile("d/"+name, 1000); err != nil || bytes.Contains(b, []byte("f 0 ")) {
			t.Errorf("%s: %q %v", name, b, err)
		}
	}
	if _, l, r := reopen(t, fsys, DefaultConfig()); l.EndOffset() != 3 || l.StartOffset() != 0 || l.RecoveryPoint() != 0 || l.CleanedTo() != -1 || len(r.Notes) > 0 {
		t.Errorf("the log is [%d, %d), recovery point %d, cleaned to %d; %v", l.StartOffset(), l.EndOffset(), l.RecoveryPoint(), l.CleanedTo(), r.Notes)
	}
}

// TestSnapshotAtNewEnd: the log ends where an older snapshot is, since what came after it is lost. That snapshot stays as it is, and the
// newer one goes.
func TestSnapshotAtNewEnd(t *testing.T) {
	fsys := vfs.NewMem()
	d, l := faultLog(t, fsys, DefaultConfig())
	var size int64
	for range 2 {
		size = l.Size()
		sequenced(t, l, 5)
		l.mu.Lock()
		err := l.takeSnapshotLocked()
		l.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Abandon(); err != nil {
		t.Fatal(err)
	}
	edit(t, fsys, "d/f-0/"+segmentName(0, logSuffix), func(b []byte) []byte { return b[:size] })
	_, l, _, ops := surveyedOpen(t, fsys, DefaultConfig())
	if l.EndOffset() != 5 || !slices.Equal(l.snapshots, []kafka.Offset{5}) {
		t.Errorf("the log ends at %d, snapshots %v", l.EndOffset(), l.snapshots)
	}
	for _, op := range ops {
		if op.Kind.Changes() && op.Name == "d/f-0/"+segmentName(5, snapshotSuffix) {
			t.Errorf("%v %s", op.Kind, op.Name)
		}
	}
}
