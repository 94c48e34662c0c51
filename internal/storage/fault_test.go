package storage

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/vfs"
)

var faultPartition = kafka.TopicPartition{Topic: "f", Partition: 0}

// plain appends one batch with one record of size bytes.
func plain(l *Log, size int) (Appended, error) {
	r := record.NewBuilder(record.DefaultBatchOptions(0))
	r.Append(1000, nil, bytes.Repeat([]byte("v"), size))
	b, err := r.Build()
	if err != nil {
		return Appended{}, err
	}
	o := l.Config().Validation(l.Partition(), record.Client, time.UnixMilli(1000))
	v, err := record.Validate(b, &o)
	if err != nil {
		return Appended{}, err
	}
	defer v.Release()
	return l.AppendAsLeader(v, LeaderAppend{Now: time.UnixMilli(1000), LeaderEpoch: 1, Origin: record.Client})
}

func faultLog(t *testing.T, fsys *vfs.Mem, c Config) (*Dir, *Log) {
	t.Helper()
	d := newDir(t, fsys)
	l, err := d.Create(faultPartition, kafka.TopicID{1}, c, time.UnixMilli(0))
	if err != nil {
		t.Fatal(err)
	}
	return d, l
}

// TestWriteFaults: after a failed write or sync nothing of that append is visible, every further append and Flush fails, the
// directory is offline and gets no clean mark, and the next start has what was there before.
func TestWriteFaults(t *testing.T) {
	for _, c := range []struct {
		name  string
		kind  vfs.OpKind
		err   error
		space int64
	}{
		{"EIO on write", vfs.OpWrite, syscall.EIO, 0},
		{"EIO on sync", vfs.OpSync, syscall.EIO, 0},
		{"EIO on create", vfs.OpCreate, syscall.EIO, 0},
		{"disk full", 0, syscall.ENOSPC, 3000},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys := vfs.NewMem()
			config := DefaultConfig()
			config.SegmentBytes = 1500
			d, l := faultLog(t, fsys, config)
			if _, err := plain(l, 100); err != nil {
				t.Fatal(err)
			}
			if err := l.Flush(1); err != nil {
				t.Fatal(err)
			}
			if c.space > 0 {
				fsys.SetCapacity(c.space)
			} else {
				fsys.SetFault(vfs.FailNth(1, c.err, func(op vfs.Op) bool { return op.Kind == c.kind }))
			}
			var err error
			end := kafka.Offset(0)
			for range 20 {
				end = l.EndOffset()
				if _, err = plain(l, 400); err == nil {
					err = l.Flush(l.EndOffset())
				}
				if err != nil {
					break
				}
			}
			if !errors.Is(err, c.err) || !errors.Is(err, ErrFailed) {
				t.Fatalf("append and flush: %v", err)
			}
			if c.kind != vfs.OpSync && l.EndOffset() != end {
				t.Errorf("the failed append is visible: end %d, was %d", l.EndOffset(), end)
			}
			fsys.SetFault(nil)
			fsys.SetCapacity(0)
			if _, err := plain(l, 10); !errors.Is(err, ErrFailed) {
				t.Errorf("append after the fault: %v", err)
			}
			if err := l.Flush(l.EndOffset() + 1); !errors.Is(err, ErrFailed) {
				t.Errorf("flush after the fault: %v", err)
			}
			if !errors.Is(d.Err(), c.err) {
				t.Errorf("directory: %v", d.Err())
			}
			if err := d.CheckpointRecoveryPoints(); err == nil {
				t.Error("a checkpoint of an offline directory was written")
			}
			// What was there is still served.
			s, err := l.Read(0, 1000, true, l.EndOffset())
			if err != nil || s.Len() == 0 {
				t.Errorf("read after the fault: %d bytes, %v", s.Len(), err)
			}
			s.Release()
			fsys.SetFault(func(op vfs.Op) error {
				if op.Kind.Changes() {
					t.Errorf("an offline directory is closed with %v %s", op.Kind, op.Name)
				}
				return nil
			})
			if err := d.Close(1); err == nil {
				t.Error("close of an offline directory succeeded")
			}
			fsys.SetFault(nil)
			if _, err := fsys.Stat("d/" + cleanShutdownName); err == nil {
				t.Error("an offline directory was marked clean")
			}
			d = newDir(t, fsys)
			l, _, err = d.Open(PartitionDir{Name: "f-0", Partition: faultPartition}, config, time.UnixMilli(0))
			if err != nil || l.EndOffset() < end {
				t.Fatalf("recovery: %v; end %d, want at least %d", err, l.EndOffset(), end)
			}
			if _, err := plain(l, 10); err != nil {
				t.Errorf("append after recovery: %v", err)
			}
		})
	}
}

// TestBitFlipBelowRecoveryPoint: after an unclean start a bad batch that lies below the recovery point, which recovery doesn't
// read, is refused by name, and what is before and after it is served.
func TestBitFlipBelowRecoveryPoint(t *testing.T) {
	fsys := vfs.NewMem()
	config := DefaultConfig()
	config.SegmentBytes = 2000
	d, l := faultLog(t, fsys, config)
	for range 40 {
		if _, err := plain(l, 300); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(l.Flush(l.EndOffset()), d.CheckpointRecoveryPoints(), d.Abandon()); err != nil {
		t.Fatal(err)
	}
	// The third batch of the first segment.
	size := int64(len(contents(t, fsys, "d/f-0")["00000000000000000000.log"])) / int64(l.view.Load().segments[1].base)
	if err := fsys.FlipBit("d/f-0/00000000000000000000.log", (2*size+100)*8); err != nil {
		t.Fatal(err)
	}
	d = newDir(t, fsys)
	l, r, err := d.Open(PartitionDir{Name: "f-0", Partition: faultPartition}, config, time.UnixMilli(0))
	if err != nil || l.EndOffset() != 40 || r.Recovered > 2 {
		t.Fatal(err, l.EndOffset(), r)
	}
	for range 2 { // also when the good ones are known
		s, err := l.Read(0, 1<<20, true, 40)
		if err != nil || int64(s.Len()) != 2*size {
			t.Fatalf("read at 0: %d bytes, %v; the two good batches have %d", s.Len(), err, 2*size)
		}
		s.Release()
		var c *CorruptError
		if _, err := l.Read(2, 1<<20, true, 40); !errors.As(err, &c) || c.File != "d/f-0/00000000000000000000.log" || c.Position != 2*size {
			t.Fatalf("read of the bad batch: %v", err)
		}
		for offset := kafka.Offset(3); offset < 40; offset++ {
			s, err := l.Read(offset, 100, true, 40)
			if err != nil || int64(s.Len()) != size {
				t.Fatalf("read at %d: %d bytes, %v", offset, s.Len(), err)
			}
			s.Release()
		}
	}
	if err := l.Err(); err != nil {
		t.Fatalf("the log failed as a whole: %v", err)
	}
	// After a clean stop nobody would check it any more.
	if err := d.Close(1); err != nil {
		t.Fatal(err)
	}
	if d = newDir(t, fsys); d.clean {
		t.Error("a mark of a clean stop over a batch that is known to be bad")
	}
}

// TestRollRules: size, age by the records' timestamps, age by the clock without timestamps, a full index, and an offset that is
// too far from the base.
func TestRollRules(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	add := func(l *Log, o record.BatchOptions, ts int64, size int, follower bool) Appended {
		t.Helper()
		r := record.NewBuilder(o)
		r.Append(ts, nil, bytes.Repeat([]byte("v"), size))
		b, err := r.Build()
		if err != nil {
			t.Fatal(err)
		}
		origin := record.Client
		if follower {
			origin = record.Replica
			b.SetPartitionLeaderEpoch(1)
		}
		vo := l.Config().Validation(l.Partition(), origin, now)
		vo.LeaderEpoch = 1
		v, err := record.Validate(b, &vo)
		if err != nil {
			t.Fatal(err)
		}
		defer v.Release()
		var a Appended
		if follower {
			a, err = l.AppendAsFollower(v, now)
		} else {
			a, err = l.AppendAsLeader(v, LeaderAppend{Now: now, LeaderEpoch: 1, Origin: record.Client})
		}
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	d := newDir(t, vfs.NewMem())
	n := int32(0)
	fresh := func(change func(c *Config)) *Log {
		c := DefaultConfig()
		change(&c)
		n++
		l, err := d.Create(kafka.TopicPartition{Topic: "t", Partition: n}, kafka.TopicID{1}, c, now)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	at := record.DefaultBatchOptions
	if l := fresh(func(c *Config) { c.SegmentBytes = 1000 }); add(l, at(0), 1, 600, false).Rolled || !add(l, at(0), 1, 600, false).Rolled {
		t.Error("size")
	}
	l := fresh(func(c *Config) { c.SegmentAge = time.Minute })
	if add(l, at(0), 5_000, 1, false).Rolled || add(l, at(0), 65_000, 1, false).Rolled || !add(l, at(0), 65_001, 1, false).Rolled {
		t.Error("age by timestamps")
	}
	l = fresh(func(c *Config) { c.SegmentAge = time.Minute })
	add(l, at(0), record.NoTimestamp, 1, false)
	now = now.Add(time.Minute + time.Millisecond)
	if !add(l, at(0), record.NoTimestamp, 1, false).Rolled {
		t.Error("age by the clock")
	}
	l = fresh(func(c *Config) { c.IndexIntervalBytes, c.SegmentIndexBytes = 0, 48 })
	rolls := 0
	for i := range 12 {
		if add(l, at(0), int64(i), 1, false).Rolled {
			rolls++
		}
	}
	if rolls == 0 {
		t.Error("full index")
	}
	l = fresh(func(*Config) {})
	add(l, at(0), 1, 1, true)
	if add(l, at(1<<31-1), 1, 1, true).Rolled || !add(l, at(1<<31), 1, 1, true).Rolled {
		t.Error("offset too far from the base")
	}
	if got := l.view.Load().active().base; got != 1<<31 {
		t.Errorf("the new segment begins at %d", got)
	}
	if _, err := l.Read(1<<31, 100, true, l.EndOffset()); err != nil {
		t.Error(err)
	}
}

// TestFollowerRefusals: a replica takes what its leader has, gaps included, but nothing that it has already.
func TestFollowerRefusals(t *testing.T) {
	_, l := faultLog(t, vfs.NewMem(), DefaultConfig())
	batch := func(offsets ...kafka.Offset) error {
		var raw []byte
		for _, o := range offsets {
			r := record.NewBuilder(record.DefaultBatchOptions(o))
			r.Append(1, nil, []byte("x"))
			b, err := r.Build()
			if err != nil {
				t.Fatal(err)
			}
			b.SetPartitionLeaderEpoch(3)
			raw = append(raw, b...)
		}
		o := l.Config().Validation(l.Partition(), record.Replica, time.UnixMilli(1))
		o.LeaderEpoch = 3
		v, err := record.Validate(raw, &o)
		if err != nil {
			return err
		}
		defer v.Release()
		_, err = l.AppendAsFollower(v, time.UnixMilli(1))
		return err
	}
	if err := batch(0, 1, 5); err != nil {
		t.Fatal(err)
	}
	var u *UnexpectedOffsetError
	if err := batch(5, 6); !errors.As(err, &u) || u.FirstOffset != 5 || u.EndOffset != 6 || l.EndOffset() != 6 {
		t.Fatalf("%v, end %d", err, l.EndOffset())
	}
	if e, ok := l.LatestEpoch(); !ok || e != 3 {
		t.Fatal(e, ok)
	}
	if got := l.Epochs(); len(got) != 1 || got[0] != (EpochStart{3, 0}) {
		t.Fatal(got)
	}
}

func TestEndOffsetForEpoch(t *testing.T) {
	var h EpochHistory
	for _, e := range []EpochStart{{0, 0}, {2, 10}, {3, 10}, {5, 20}} {
		h.assign(e.Epoch, e.Start) // 3 at 10 takes the place of 2, which has no records
	}
	f := func(asked kafka.LeaderEpoch, wantEpoch kafka.LeaderEpoch, want kafka.Offset) {
		t.Helper()
		if e, o := h.endOffset(asked, 30); e != wantEpoch || o != want {
			t.Errorf("epoch %d: (%d, %d), want (%d, %d)", asked, e, o, wantEpoch, want)
		}
	}
	f(-1, -1, -1)
	f(0, 0, 10)
	f(1, 0, 10)
	f(2, 0, 10)
	f(3, 3, 20)
	f(4, 3, 20)
	f(5, 5, 30)
	f(6, -1, -1)
	h.truncateStart(12)
	f(0, 0, 12)
	f(3, 3, 20)
	h.truncateEnd(20)
	f(3, 3, 30)
	f(5, -1, -1)
}

// TestRefusals: what is out of range, or closed.
func TestRefusals(t *testing.T) {
	d, l := faultLog(t, vfs.NewMem(), DefaultConfig())
	for range 3 {
		if _, err := plain(l, 10); err != nil {
			t.Fatal(err)
		}
	}
	l.SetHighWatermark(2)
	if _, err := l.AdvanceStartOffset(3); !errors.Is(err, kerr.OffsetOutOfRange) {
		t.Error(err)
	}
	if moved, err := l.AdvanceStartOffset(1); !moved || err != nil {
		t.Error(moved, err)
	}
	for offset, want := range map[kafka.Offset]string{0: "starting from offset: 1.", 4: "upto 3."} {
		if _, err := l.Read(offset, 1, true, 9); !errors.Is(err, kerr.OffsetOutOfRange) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%d: %v", offset, err)
		}
	}
	if err := l.SetTopicID(kafka.TopicID{2}); err == nil {
		t.Error("another topic id was taken")
	}
	if _, err := d.Create(faultPartition, kafka.TopicID{2}, DefaultConfig(), time.UnixMilli(0)); err == nil {
		t.Error("made twice")
	}
	if _, err := OpenDir("d", d.o); !errors.Is(err, vfs.ErrLocked) {
		t.Error(err)
	}
	name, err := d.Delete(l, [16]byte{1, 2})
	if err != nil || name != "f-0.01020000000000000000000000000000-delete" || d.Log(faultPartition) != nil {
		t.Error(name, err)
	}
	if _, err := plain(l, 10); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := l.Read(1, 1, true, 2); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := d.RemovePartition("f-0"); err == nil {
		t.Error("a partition that isn't deleted was removed")
	}
	if err := d.RemovePartition(name); err != nil {
		t.Error(err)
	}
	long := renamedDir(kafka.TopicPartition{Topic: strings.Repeat("x", 249), Partition: 12}, [16]byte{}, deleteDirSuffix)
	if p, ok := parseDirName(long); len(long) != 255 || !ok || p.Kind != Deleted || p.Partition.Partition != 12 {
		t.Error(long, p, ok)
	}
}

// TestConcurrency lets appends, fetches, syncs, retention, checkpoints and questions run at once, under the race detector: every
// fetch sees whole, checked batches of consecutive offsets.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	fsys := vfs.NewMem()
	c := DefaultConfig()
	c.SegmentBytes, c.IndexIntervalBytes, c.RetentionBytes, c.FileDeleteDelay = 20_000, 500, 60_000, 0
	d, l := faultLog(t, fsys, c)
	var stop atomic.Bool
	var wg sync.WaitGroup
	run := func(f func() error) {
		wg.Go(func() {
			for !stop.Load() {
				if err := f(); err != nil {
					t.Error(err)
					stop.Store(true)
				}
			}
		})
	}
	for range 2 {
		offset := kafka.Offset(0)
		run(func() error {
			s, err := l.Read(offset, 3000, true, l.HighWatermark())
			if errors.Is(err, kerr.OffsetOutOfRange) {
				offset = l.StartOffset()
				return nil
			}
			if err != nil {
				return err
			}
			defer s.Release()
			buf := make([]byte, s.Len())
			if n, err := s.ReadAt(buf, 0); n != len(buf) {
				return fmt.Errorf("%d of %d bytes: %w", n, len(buf), err)
			}
			if _, err := l.AbortedTxns(nil, &s); err != nil {
				return err
			}
			for {
				b, rest, err := record.Next(buf)
				if err != nil || b == nil {
					return err
				}
				if err := b.Check(); err != nil {
					return err
				}
				if b.BaseOffset() != offset {
					return fmt.Errorf("batch at %d, want %d", b.BaseOffset(), offset)
				}
				offset, buf = b.NextOffset(), rest
			}
		})
	}
	run(func() error { return l.Flush(l.EndOffset()) })
	run(func() error {
		_, err := l.DeleteOldSegments(time.UnixMilli(2000))
		if err == nil {
			_, err = l.RemoveDeleted(time.UnixMilli(3000))
		}
		return err
	})
	run(func() error { return errors.Join(d.CheckpointRecoveryPoints(), d.CheckpointHighWatermarks()) })
	run(func() error {
		if _, _, err := l.OffsetForTimestamp(1000, l.HighWatermark()); err != nil {
			return err
		}
		if _, _, err := l.OffsetOfMaxTimestamp(); err != nil {
			return err
		}
		l.EndOffsetForEpoch(1)
		l.LastStableOffset(l.HighWatermark())
		l.Size()
		return nil
	})
	late := time.Now().Add(time.Minute)
	for i := 0; i < 3000 || l.StartOffset() == 0 && time.Now().Before(late); i++ { // on a busy machine retention may come to run late
		if _, err := plain(l, 200); err != nil {
			t.Error(err)
			break
		}
		l.SetHighWatermark(l.EndOffset())
	}
	stop.Store(true)
	wg.Wait()
	if l.StartOffset() == 0 {
		t.Error("retention didn't run")
	}
	if err := d.Close(1); err != nil {
		t.Fatal(err)
	}
}
