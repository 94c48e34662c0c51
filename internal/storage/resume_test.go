package storage

// Shows what a start after a crash reads, what it cuts off, and what it refuses.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/vfs"
)

var faultDir = PartitionDir{Name: "f-0", Partition: faultPartition}

// reopen opens the log of faultLog after its process died.
func reopen(t *testing.T, fsys *vfs.Mem, c Config) (*Dir, *Log, Recovery) {
	t.Helper()
	d := newDir(t, fsys)
	l, r, err := d.Open(faultDir, c, time.UnixMilli(0))
	if err != nil {
		t.Fatal(err)
	}
	return d, l, r
}

func write(t *testing.T, l *Log, batches, size int) {
	t.Helper()
	for range batches {
		if _, err := plain(l, size); err != nil {
			t.Fatal(err)
		}
	}
}

// edit changes a file.
func edit(t *testing.T, fsys *vfs.Mem, name string, change func(b []byte) []byte) {
	t.Helper()
	b, err := fsys.ReadFile(name, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	b = change(bytes.Clone(b))
	if err := fsys.Remove(name); err != nil {
		t.Fatal(err)
	}
	f, err := fsys.Create(name)
	if err == nil {
		_, err = f.WriteAt(b, 0)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// resumable makes a log whose last segment, from offset base on, lies below the recovery point but for its last fifth: batches of nobody, of
// an idempotent producer and of a transactional one, of whose transactions every second was aborted. Snapshots are at the offsets of base,
// if that isn't 0, and of middle. It returns the recovery point.
func resumable(t *testing.T, second bool) (fsys *vfs.Mem, base, middle, point kafka.Offset) {
	t.Helper()
	fsys = vfs.NewMem()
	c := DefaultConfig()
	d, l := faultLog(t, fsys, c)
	r := rand.New(rand.NewPCG(1, 2))
	sequences := map[kafka.ProducerID]int32{}
	// grow appends until the log ends at end; a marker ends every tenth transaction's batch.
	grow := func(end kafka.Offset) {
		for l.EndOffset() < end {
			now := 1000 + l.EndOffset() // it must advance, or the time index has one entry
			o := record.DefaultBatchOptions(0)
			id := kafka.ProducerID(7 + l.EndOffset()%3)
			if l.EndOffset() == 5 {
				id = 10 // says nothing again
			}
			if id > 7 {
				o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = id, 0, sequences[id], id == 9
			}
			if l.EndOffset()%10 == 9 {
				m := record.Marker{Type: []record.ControlType{record.Abort, record.Commit}[l.EndOffset()/10%2], CoordinatorEpoch: 1}
				appendBatch(t, l, record.MarkerBatch(0, 0, now, 9, 0, m), record.Coordinator, now)
				continue
			}
			b := record.NewBuilder(o)
			b.Append(now, nil, make([]byte, 500+r.IntN(500)))
			batch, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			appendBatch(t, l, batch, record.Client, now)
			sequences[id]++
		}
	}
	if second {
		grow(20)
		c.SegmentBytes = int32(l.Size())
		l.SetConfig(c)
		grow(21)
		l.SetConfig(DefaultConfig())
	}
	base = l.view.Load().active().base
	grow(base + 103)
	middle = l.EndOffset()
	l.mu.Lock()
	err := l.takeSnapshotLocked() // as a clean stop does
	l.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	grow(base + 200)
	if err := errors.Join(l.Flush(l.EndOffset()), d.CheckpointRecoveryPoints()); err != nil {
		t.Fatal(err)
	}
	point = l.EndOffset()
	grow(base + 240)
	l.mu.Lock()
	err = l.takeSnapshotLocked() // above the recovery point: nobody knows what else is there of that
	l.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	grow(base + 250)
	if err := l.syncIndexes(l.view.Load().active()); err != nil { // the tail that is in memory
		t.Fatal(err)
	}
	if err := d.Abandon(); err != nil {
		t.Fatal(err)
	}
	return fsys, base, middle, point
}

func appendBatch(t *testing.T, l *Log, b record.Batch, origin record.Origin, now int64) {
	t.Helper()
	o := l.Config().Validation(l.Partition(), origin, time.UnixMilli(now))
	v, err := record.Validate(b, &o)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Release()
	if _, err := l.AppendAsLeader(v, LeaderAppend{Now: time.UnixMilli(now), LeaderEpoch: 1, Origin: origin}); err != nil {
		t.Fatal(err)
	}
}

// learned is what a start knows of a log's active segment and its producers.
func learned(t *testing.T, l *Log) string {
	t.Helper()
	s := l.view.Load().active()
	x := s.idx
	return fmt.Sprintf("%d bytes to %d; newest %d at %d, first %d %v, last entries %+v %+v, %d since; aborted %v; producers %+v, unstable %d; epochs %v",
		s.size(), s.next(), x.maxTimestamp, x.maxTimestampOffset, x.firstTimestamp, x.hasFirst, x.lastOffsetEntry, x.lastTimeEntry, x.bytesSinceEntry,
		x.aborted, l.producers.entries(), l.producers.firstUnstable(), l.Epochs())
}

// TestResume: with most of a segment below the recovery point, recovery reads little more than what is above, whatever the state of
// the other files, and makes the same files, and knows the same, as a recovery that reads all.
func TestResume(t *testing.T) {
	t.Parallel()
	const little, some, all = 60_000, 160_000, 1 << 30 // bytes that may be read: what is above the recovery point has about 37,500
	keep := func(b []byte) []byte { return b }
	cut := func(part, width int) func(b []byte) []byte {
		return func(b []byte) []byte { return b[:len(b)/part/width*width] }
	}
	zeros := func(b []byte) []byte { return append(b, make([]byte, 10<<20/24*24-len(b))...) } // as Kafka leaves it
	flip := func(b []byte) []byte { b[len(b)/2] ^= 1; return b }
	// field changes one number of the entry that stands at a third of the index.
	field := func(width, at, size int, change func(before, old uint64) uint64) func(b []byte) []byte {
		number := func(b []byte) uint64 {
			if size == 8 {
				return binary.BigEndian.Uint64(b)
			}
			return uint64(binary.BigEndian.Uint32(b))
		}
		return func(b []byte) []byte {
			e := b[len(b)/3/width*width+at:]
			n := change(number(b[len(b)/3/width*width-width+at:]), number(e))
			if size == 8 {
				binary.BigEndian.PutUint64(e, n)
			} else {
				binary.BigEndian.PutUint32(e, uint32(n))
			}
			return b
		}
	}
	same := func(before, _ uint64) uint64 { return before }
	for _, c := range []struct {
		name   string
		suffix string // of the file that isn't as it was
		at     string // which, of the snapshots: base, middle
		damage func(b []byte) []byte
		most   int64
	}{
		{"as they were", indexSuffix, "", keep, little},
		{"an offset index with zeros behind, as Kafka leaves it", indexSuffix, "", zeros, little},
		{"a time index with zeros behind, as Kafka leaves it", timeIndexSuffix, "", zeros, little},
		{"an offset index that lost its end", indexSuffix, "", cut(2, 8), some},
		{"a time index that lost its end", timeIndexSuffix, "", cut(2, 12), some},
		{"a time index that lost all", timeIndexSuffix, "", cut(99, 12), all},
		{"no offset index", indexSuffix, "", nil, all},
		{"no time index", timeIndexSuffix, "", nil, all},
		{"an offset index that lost a block", indexSuffix, "", func(b []byte) []byte { clear(b[80:160]); return b }, some},
		{"an offset index torn inside of an entry", indexSuffix, "", func(b []byte) []byte { return b[:len(b)-3] }, little},
		{"the position of the entry before", indexSuffix, "", field(8, 4, 4, same), some},
		{"the offset of the entry before", indexSuffix, "", field(8, 0, 4, same), some},
		{"a position beyond the log", indexSuffix, "", field(8, 4, 4, func(_, _ uint64) uint64 { return 1 << 30 }), some},
		{"the timestamp of the entry before", timeIndexSuffix, "", field(12, 0, 8, same), some},
		{"an offset below that of the entry before", timeIndexSuffix, "", field(12, 8, 4, func(before, _ uint64) uint64 { return before - 1 }), some},
		{"offsets of another log", indexSuffix, "", func(b []byte) []byte {
			for i := len(b) * 2 / 3 / 8 * 8; i < len(b); i += 8 { // those above the recovery point, and 6 below
				binary.BigEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:])+1)
			}
			return b
		}, some},
		{"a transaction index without its last block", txnIndexSuffix, "", func(b []byte) []byte { clear(b[len(b)/2/34*34:]); return b }, all},
		{"a transaction index of zeros", txnIndexSuffix, "", func([]byte) []byte { return make([]byte, abortedEntrySize) }, all},
		{"a transaction index that is torn", txnIndexSuffix, "", func(b []byte) []byte { return b[:len(b)-1] }, all},
		{"a transaction index without what is above the recovery point", txnIndexSuffix, "", func(b []byte) []byte { return b[:len(b)-3*34] }, little},
		{"no snapshot in the middle", snapshotSuffix, "middle", nil, little},
		{"a bad snapshot in the middle", snapshotSuffix, "middle", flip, little},
		{"no snapshot at the beginning", snapshotSuffix, "base", nil, little},
		{"a bad snapshot at the beginning", snapshotSuffix, "base", flip, all},
	} {
		for _, second := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, second segment %v", c.name, second), func(t *testing.T) {
				fsys, base, middle, point := resumable(t, second)
				if c.at == "base" && !second {
					return // there is none
				}
				file := "d/f-0/" + segmentName(map[string]kafka.Offset{"": base, "base": base, "middle": middle}[c.at], c.suffix)
				if c.damage == nil {
					if err := fsys.Remove(file); err != nil {
						t.Fatal(err)
					}
				} else {
					edit(t, fsys, file, c.damage)
				}
				d, l, r := reopen(t, fsys, DefaultConfig())
				if got := d.RecoveredBytes(); got > c.most || got < 36_000 || c.most == all && got < l.view.Load().active().size() {
					t.Errorf("recovery read %d of %d bytes", got, l.Size())
				}
				for offset := range base + 250 {
					s, err := l.Read(offset, 1, true, base+250)
					if err != nil || s.Len() == 0 {
						t.Fatalf("read at %d: %v", offset, err)
					}
					s.Release()
				}
				if l.RecoveryPoint() != point || r.TruncatedBytes > 0 {
					t.Errorf("recovery point %d, was %d; %+v", l.RecoveryPoint(), point, r)
				}
				got, knows := contents(t, fsys, "d/f-0"), learned(t, l)
				if err := d.Abandon(); err != nil {
					t.Fatal(err)
				}
				edit(t, fsys, "d/"+recoveryPointsName, func([]byte) []byte { return []byte("0\n0\n") })
				if err := fsys.Remove("d/f-0/" + segmentName(base+250, snapshotSuffix)); err != nil {
					t.Fatal(err)
				}
				_, l, _ = reopen(t, fsys, DefaultConfig())
				if want := learned(t, l); knows != want {
					t.Errorf("knows %s\nreading all %s", knows, want)
				}
				want := contents(t, fsys, "d/f-0")
				for name := range want {
					if c.at == "base" && name == segmentName(base, snapshotSuffix) {
						continue // it is made by who reads the segment before
					}
					if !bytes.Equal(got[name], want[name]) {
						t.Errorf("%s has %d bytes, made anew from all it has %d or others", name, len(got[name]), len(want[name]))
					}
				}
				for name := range got {
					if _, ok := want[name]; !ok {
						t.Errorf("left over: %s", name)
					}
				}
			})
		}
	}
}

// TestResumeAgain: the segment before is gone, as by retention, so that one producer is known from snapshots alone. Whatever becomes of them,
// the next recovery must come to what this one did.
func TestResumeAgain(t *testing.T) {
	for name, damage := range map[string]func(fsys *vfs.Mem, base, middle string){
		"as they were":               func(*vfs.Mem, string, string) {},
		"none at the beginning":      func(fsys *vfs.Mem, base, _ string) { fsys.Remove(base) },
		"a bad one at the beginning": func(fsys *vfs.Mem, base, _ string) { fsys.FlipBit(base, 99) },
		"none in the middle":         func(fsys *vfs.Mem, _, middle string) { fsys.Remove(middle) },
		"a bad one in the middle":    func(fsys *vfs.Mem, _, middle string) { fsys.FlipBit(middle, 99) },
	} {
		t.Run(name, func(t *testing.T) {
			fsys, base, middle, _ := resumable(t, true)
			for _, suffix := range segmentSuffixes {
				if err := fsys.Remove("d/f-0/" + segmentName(0, suffix)); err != nil && !isNotExist(err) {
					t.Fatal(err)
				}
			}
			damage(fsys, "d/f-0/"+segmentName(base, snapshotSuffix), "d/f-0/"+segmentName(middle, snapshotSuffix))
			d, l, _ := reopen(t, fsys, DefaultConfig())
			known := strings.Contains(fmt.Sprintf("%+v", l.producers.entries()), "producerID:10")
			if want := !strings.Contains(name, "beginning"); known != want {
				t.Errorf("the producer of the segment before is known: %v, want %v", known, want)
			}
			before := learned(t, l)
			if err := d.Abandon(); err != nil {
				t.Fatal(err)
			}
			_, l, _ = reopen(t, fsys, DefaultConfig())
			if after := learned(t, l); after != before {
				t.Errorf("knows %s\nbefore %s", after, before)
			}
		})
	}
}

// TestResumeShorterLog: the file lost what a snapshot in it knows of, though it was synced: what is left counts, and nothing else.
func TestResumeShorterLog(t *testing.T) {
	fsys, base, middle, point := resumable(t, true)
	edit(t, fsys, "d/f-0/"+segmentName(base, logSuffix), func(b []byte) []byte {
		rest := b
		for len(rest) > len(b)*7/10 {
			batch, next, err := record.Next(rest)
			if err != nil || batch == nil {
				t.Fatal(err)
			}
			rest = next
		}
		return b[:len(b)-len(rest)]
	})
	d, l, r := reopen(t, fsys, DefaultConfig())
	end := l.EndOffset()
	if end >= middle || end < base+20 || !strings.Contains(fmt.Sprint(r.Notes), fmt.Sprintf("ends at offset %d, but everything below %d was synced once", end, point)) {
		t.Errorf("the log ends at %d; %v", end, r.Notes)
	}
	before := learned(t, l)
	if err := d.Abandon(); err != nil {
		t.Fatal(err)
	}
	edit(t, fsys, "d/"+recoveryPointsName, func([]byte) []byte { return []byte("0\n0\n") })
	_, l, _ = reopen(t, fsys, DefaultConfig())
	if after := learned(t, l); after != before {
		t.Errorf("knows %s\nreading all %s", before, after)
	}
}

// TestResumeLeavesUnread: a bad batch in the part of a segment that recovery hasn't read is refused to who reads it, and no other one is.
func TestResumeLeavesUnread(t *testing.T) {
	fsys := vfs.NewMem()
	d, l := faultLog(t, fsys, DefaultConfig())
	write(t, l, 100, 500)
	if err := errors.Join(l.Flush(100), d.CheckpointRecoveryPoints(), l.syncIndexes(l.view.Load().active())); err != nil {
		t.Fatal(err)
	}
	write(t, l, 20, 500)
	const bad = 30
	at := l.Size() / 120 * bad
	if err := d.Abandon(); err != nil {
		t.Fatal(err)
	}
	if err := fsys.FlipBit("d/f-0/"+segmentName(0, logSuffix), (at+100)*8); err != nil {
		t.Fatal(err)
	}
	_, l, _ = reopen(t, fsys, DefaultConfig())
	for offset := range l.EndOffset() {
		s, err := l.Read(offset, 1, true, 120)
		var c *CorruptError
		switch {
		case offset != bad && (err != nil || s.Len() == 0):
			t.Errorf("read at %d: %v", offset, err)
		case offset == bad && (!errors.As(err, &c) || c.Position != at):
			t.Errorf("read of the bad batch: %d bytes, %v", s.Len(), err)
		}
		s.Release()
	}
}

// shortSegments is a log of n short segments, each with a few batches.
func shortSegments(t *testing.T, n int) (*vfs.Mem, Config, *Dir, *Log) {
	t.Helper()
	fsys := vfs.NewMem()
	c := DefaultConfig()
	c.SegmentBytes = 1500
	d, l := faultLog(t, fsys, c)
	for len(l.view.Load().segments) < n {
		write(t, l, 1, 300)
	}
	return fsys, c, d, l
}

// TestRecoveryPointAtBorder: it may have been written when only the first of the two segments was there, whose indexes nobody had synced
// then.
func TestRecoveryPointAtBorder(t *testing.T) {
	fsys, c, d, l := shortSegments(t, 2)
	border := l.view.Load().segments[1].base
	if err := d.Abandon(); err != nil {
		t.Fatal(err)
	}
	put(t, fsys, "d/"+recoveryPointsName, fmt.Appendf(nil, "0\n1\nf 0 %d\n", border))
	const times = "00000000000000000000.timeindex"
	want := contents(t, fsys, "d/f-0")[times]
	edit(t, fsys, "d/f-0/"+times, func(b []byte) []byte { return nil })
	syncAll(t, fsys)
	d, l, _ = reopen(t, fsys, c)
	if got := contents(t, fsys, "d/f-0")[times]; len(want) == 0 || !bytes.Equal(got, want) {
		t.Errorf("the time index is %x, was %x", got, want)
	}
	// The recovery point may only move on with the index that was made anew on the disk.
	if err := errors.Join(l.Flush(l.EndOffset()), d.CheckpointRecoveryPoints()); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(8) {
		after := fsys.Crash(rand.New(rand.NewPCG(seed, 3)))
		if got := contents(t, after, "d/f-0")[times]; !bytes.Equal(got, want) {
			t.Errorf("after a flush and a power cut the time index is %x, was %x", got, want)
		}
	}
}

// syncAll makes all that is there durable.
func syncAll(t *testing.T, fsys *vfs.Mem) {
	t.Helper()
	s, err := fsys.OpenSyncer(".")
	if err == nil {
		err = errors.Join(s.SyncAll(), s.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestRecoveryIsCut cuts the power after each call that a recovery makes, which has something to mend: the next one comes to what it would
// have come to.
func TestRecoveryIsCut(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(t *testing.T, fsys *vfs.Mem, name func(suffix string) string){
		"a torn transaction index": func(t *testing.T, fsys *vfs.Mem, name func(string) string) {
			edit(t, fsys, name(txnIndexSuffix), func(b []byte) []byte { return b[:len(b)-1] })
		},
		"a torn transaction index of the segment before": func(t *testing.T, fsys *vfs.Mem, _ func(string) string) {
			edit(t, fsys, "d/f-0/"+segmentName(0, txnIndexSuffix), func(b []byte) []byte { return b[:len(b)-1] })
		},
		"no offset index": func(t *testing.T, fsys *vfs.Mem, name func(string) string) {
			if err := fsys.Remove(name(indexSuffix)); err != nil {
				t.Fatal(err)
			}
		},
		"a time index that lost its end": func(t *testing.T, fsys *vfs.Mem, name func(string) string) {
			edit(t, fsys, name(timeIndexSuffix), func(b []byte) []byte { return b[:len(b)/2/12*12] })
		},
		"a torn tail": func(t *testing.T, fsys *vfs.Mem, name func(string) string) {
			edit(t, fsys, name(logSuffix), func(b []byte) []byte { return b[:len(b)-100] })
		},
	} {
		t.Run(name, func(t *testing.T) {
			var want string
			// first are the files of the segment before.
			first := func(fsys *vfs.Mem) (out string) {
				all := contents(t, fsys, "d/f-0")
				for _, suffix := range segmentSuffixes {
					out += fmt.Sprintf("; %s %x", suffix, all[segmentName(0, suffix)])
				}
				return out
			}
			for cut := 0; ; cut++ {
				fsys, base, _, _ := resumable(t, true)
				damage(t, fsys, func(suffix string) string { return "d/f-0/" + segmentName(base, suffix) })
				syncAll(t, fsys)
				if cut == 0 {
					d, l, _ := reopen(t, fsys, DefaultConfig())
					want = learned(t, l) + first(fsys)
					if err := d.Abandon(); err != nil {
						t.Fatal(err)
					}
					continue
				}
				d := newDir(t, fsys)
				fsys.CutAfter(cut - 1)
				_, _, err := d.Open(faultDir, DefaultConfig(), time.UnixMilli(0))
				for seed := range uint64(3) {
					after := fsys.Crash(rand.New(rand.NewPCG(seed, uint64(cut))))
					_, l, _ := reopen(t, after, DefaultConfig())
					if got := learned(t, l) + first(after); got != want {
						t.Fatalf("cut after %d calls: knows %s\nwant %s", cut, got, want)
					}
				}
				if err == nil {
					if cut < 5 {
						t.Errorf("only %d calls", cut)
					}
					return
				}
			}
		})
	}
}

// TestBadMarkerBelowRecoveryPoint: of what lies between the newest snapshot and the place where recovery goes on the headers are read, and the
// markers as a whole: one that is bad is not believed.
func TestBadMarkerBelowRecoveryPoint(t *testing.T) {
	fsys, _, middle, _ := resumable(t, false)
	marker := middle/10*10 + 19
	edit(t, fsys, "d/f-0/"+segmentName(0, logSuffix), func(b []byte) []byte {
		for rest := b; ; {
			batch, next, err := record.Next(rest)
			if err != nil || batch == nil {
				t.Fatal(err)
			}
			if batch.BaseOffset() == marker {
				batch[len(batch)-2] ^= 1 // in the coordinator's epoch
				return b
			}
			rest = next
		}
	})
	var c *CorruptError
	if _, _, err := newDir(t, fsys).Open(faultDir, DefaultConfig(), time.UnixMilli(0)); !errors.As(err, &c) || !strings.Contains(err.Error(), fmt.Sprintf("the batch at offset %d", marker)) {
		t.Errorf("%v, want the marker at %d to be refused", err, marker)
	}
}

// TestRebuildTrustedSegment makes the files of a segment below the recovery point anew, with more index entries than stay in memory: they are
// what they were.
func TestRebuildTrustedSegment(t *testing.T) {
	fsys := vfs.NewMem()
	c := DefaultConfig()
	c.IndexIntervalBytes = 0
	d, l := faultLog(t, fsys, c)
	abortedTxn(t, l, 3*tailEntries)
	c.SegmentBytes = int32(l.Size())
	l.SetConfig(c)
	write(t, l, 3, 100)
	if err := errors.Join(l.Flush(l.EndOffset()), d.CheckpointRecoveryPoints(), d.Abandon()); err != nil {
		t.Fatal(err)
	}
	want := contents(t, fsys, "d/f-0")
	edit(t, fsys, "d/f-0/"+segmentName(0, txnIndexSuffix), func(b []byte) []byte { return b[:len(b)-1] })
	edit(t, fsys, "d/f-0/"+segmentName(0, indexSuffix), func(b []byte) []byte { return append(b, b...) })
	edit(t, fsys, "d/f-0/"+segmentName(0, timeIndexSuffix), func(b []byte) []byte { return b[:len(b)/2] })
	syncAll(t, fsys)
	_, _, _ = reopen(t, fsys, c)
	for seed := range uint64(4) { // the next start believes them: so they must be on the disk
		got := contents(t, fsys.Crash(rand.New(rand.NewPCG(seed, 1))), "d/f-0")
		for _, suffix := range segmentSuffixes {
			if name := segmentName(0, suffix); len(want[name]) == 0 || !bytes.Equal(got[name], want[name]) {
				t.Errorf("%s has %d bytes, had %d or others", name, len(got[name]), len(want[name]))
			}
		}
	}
}

// abortedTxn appends a transaction of n batches and its abort.
func abortedTxn(t *testing.T, l *Log, n int) {
	t.Helper()
	for i := range n {
		o := record.DefaultBatchOptions(0)
		o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = 9, 0, int32(i), true
		b := record.NewBuilder(o)
		b.Append(int64(1000+i), nil, make([]byte, 30))
		batch, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		appendBatch(t, l, batch, record.Client, int64(1000+i))
	}
	appendBatch(t, l, record.MarkerBatch(0, 0, 5000, 9, 0, record.Marker{Type: record.Abort, CoordinatorEpoch: 1}), record.Coordinator, 5000)
}

// TestSound counts the entries of an index that is longer than what is read of it at a time.
func TestSound(t *testing.T) {
	fsys := vfs.NewMem()
	const entries = 100_000
	b := make([]byte, 0, entries*offsetEntrySize)
	for i := range uint32(entries) {
		b = offsetEntry{i + 1, i + 1}.append(b)
	}
	f, err := fsys.Create("index")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int{0, 1, 40_000, entries} {
		e := entryFile{file: NewFiles(fsys, 1).file("index"), width: offsetEntrySize}
		next := uint32(0)
		n, err := e.sound(func(b []byte) bool {
			next++
			return decodeOffsetEntry(b) == offsetEntry{next, next} && next <= uint32(limit)
		})
		if err != nil || n != limit {
			t.Errorf("%d of %d entries are sound, %v", n, limit, err)
		}
	}
}

// TestShortSegmentBelowRecoveryPoint: of a segment before others something is missing that was synced once, up to the border of a batch. A
// power cut didn't do that, so what is behind stays.
func TestShortSegmentBelowRecoveryPoint(t *testing.T) {
	fsys, c, d, l := shortSegments(t, 3)
	second := l.view.Load().segments[1]
	point := second.next() - 1
	if err := errors.Join(l.Flush(point), d.Abandon()); err != nil {
		t.Fatal(err)
	}
	put(t, fsys, "d/"+recoveryPointsName, fmt.Appendf(nil, "0\n1\nf 0 %d\n", point))
	one := int(second.size()) / int(second.next()-second.base)
	edit(t, fsys, second.path(logSuffix), func(b []byte) []byte { return b[:len(b)-2*one] })
	end := l.EndOffset()
	_, l, r := reopen(t, fsys, c)
	if l.EndOffset() != end || r.DroppedSegments > 0 || len(l.view.Load().segments) != 3 {
		t.Errorf("the log ends at %d, before at %d: %+v", l.EndOffset(), end, r)
	}
}

// TestBadBatchBelowRecoveryPoint: what was synced is not cut off. The log is refused, with what to do, and nothing changes; each of the
// ways out that it names works.
func TestBadBatchBelowRecoveryPoint(t *testing.T) {
	setup := func() (*vfs.Mem, map[string][]byte) {
		fsys := vfs.NewMem()
		d, l := faultLog(t, fsys, DefaultConfig())
		write(t, l, 10, 100)
		if err := errors.Join(l.Flush(l.EndOffset()), d.CheckpointRecoveryPoints()); err != nil {
			t.Fatal(err)
		}
		write(t, l, 3, 100)
		size := l.Size() / 13
		if err := d.Abandon(); err != nil {
			t.Fatal(err)
		}
		if err := fsys.FlipBit("d/f-0/00000000000000000000.log", (7*size+90)*8); err != nil {
			t.Fatal(err)
		}
		return fsys, contents(t, fsys, "d/f-0")
	}
	fsys, before := setup()
	d := newDir(t, fsys)
	_, _, err := d.Open(faultDir, DefaultConfig(), time.UnixMilli(0))
	var c *CorruptError
	if !errors.As(err, &c) || c.File != "d/f-0/00000000000000000000.log" {
		t.Fatal(err)
	}
	for _, want := range []string{"the batch at offset 7", "recovery point is 10", "move d/f-0 away", "d/" + recoveryPointsName} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %q", err, want)
		}
	}
	after := contents(t, fsys, "d/f-0")
	if !bytes.Equal(before["00000000000000000000.log"], after["00000000000000000000.log"]) || d.Err() != nil {
		t.Errorf("the file was changed, or the directory failed: %v", d.Err())
	}
	if d.Log(faultPartition) != nil {
		t.Error("the log is there")
	}
	d.Loaded()
	other, err := d.Create(kafka.TopicPartition{Topic: "g"}, kafka.TopicID{2}, DefaultConfig(), time.UnixMilli(0))
	if err != nil {
		t.Fatal(err)
	}
	write(t, other, 3, 10)
	if err := d.Close(1); err != nil {
		t.Fatal(err)
	}
	// A clean stop of the others must not make the next start believe this one, nor forget what was synced.
	d = newDir(t, fsys)
	if clean, _ := d.Clean(); clean || d.Doubt() != nil {
		t.Error("there is a mark of a clean stop")
	}
	if _, _, err := d.Open(faultDir, DefaultConfig(), time.UnixMilli(0)); !errors.As(err, &c) {
		t.Fatalf("after a clean stop of the rest: %v", err)
	}
	if d.Doubt() == nil {
		t.Error("no doubt")
	}
	if err := d.Abandon(); err != nil {
		t.Fatal(err)
	}

	fsys, _ = setup()
	edit(t, fsys, "d/"+recoveryPointsName, func([]byte) []byte { return []byte("0\n0\n") })
	if _, l, _ := reopen(t, fsys, DefaultConfig()); l.EndOffset() != 7 {
		t.Errorf("without its recovery point the log ends at %d", l.EndOffset())
	}
}

// TestTornTail is every way in which the end of a log may be bad after a kill: it is cut off there, what comes before is served, and the
// log goes on from there, over a clean stop too.
func TestTornTail(t *testing.T) {
	config := DefaultConfig()
	config.SegmentBytes = 1500
	size := func(n uint32) func(b []byte, last int) []byte {
		return func(b []byte, last int) []byte { binary.BigEndian.PutUint32(b[last+8:], n); return b }
	}
	r := rand.New(rand.NewPCG(3, 4))
	for name, c := range map[string]struct {
		damage func(b []byte, last int) []byte
		lost   kafka.Offset
	}{
		"the last 7 bytes are missing":      {func(b []byte, last int) []byte { return b[:len(b)-7] }, 1},
		"only 5 bytes of the last are left": {func(b []byte, last int) []byte { return b[:last+5] }, 1},
		"a size that is huge":               {size(0x7fffffff), 1},
		"a size of 0":                       {size(0), 1},
		"a negative size":                   {size(0xffffffff), 1},
		"a size that is a little small":     {size(60), 1},
		"a flipped bit":                     {func(b []byte, last int) []byte { b[last+70] ^= 4; return b }, 1},
		"another magic":                     {func(b []byte, last int) []byte { b[last+16] = 9; return b }, 1},
		"another offset":                    {func(b []byte, last int) []byte { b[last+7]--; return b }, 1},
		"a leader epoch that is lower":      {func(b []byte, last int) []byte { binary.BigEndian.PutUint32(b[last+12:], 0); return b }, 1},
		"zeros in place of the last":        {func(b []byte, last int) []byte { clear(b[last:]); return b }, 1},
		"1 KB of zeros after it":            {func(b []byte, _ int) []byte { return append(b, make([]byte, 1024)...) }, 0},
		"random bytes after it": {func(b []byte, _ int) []byte {
			for range 1000 {
				b = append(b, byte(r.Uint32()))
			}
			return b
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := vfs.NewMem()
			d, l := faultLog(t, fsys, config)
			for len(l.view.Load().segments) < 3 {
				write(t, l, 1, 300)
			}
			write(t, l, 1, 300)
			v := l.view.Load()
			end, active := l.EndOffset(), v.active()
			if err := errors.Join(l.Flush(v.segments[2].base), d.CheckpointRecoveryPoints()); err != nil {
				t.Fatal(err)
			}
			file := active.path(logSuffix)
			last := int(active.size() / 2)
			if err := d.Abandon(); err != nil {
				t.Fatal(err)
			}
			// The recovery point is where the segment begins.
			edit(t, fsys, "d/"+recoveryPointsName, func([]byte) []byte { return fmt.Appendf(nil, "0\n1\nf 0 %d\n", active.base) })
			edit(t, fsys, file, func(b []byte) []byte { return c.damage(b, last) })
			var synced string // the last call that changed the segment
			fsys.SetFault(func(op vfs.Op) error {
				if op.Name == file && op.Kind.Changes() {
					synced = op.Kind.String()
				}
				return nil
			})
			d, l, rec := reopen(t, fsys, config)
			fsys.SetFault(nil)
			if synced != "sync" {
				// Another power cut could make the bad batch whole again with bytes of what is appended next.
				t.Errorf("the last call to %s was %q", file, synced)
			}
			if want := end - c.lost; l.EndOffset() != want {
				t.Fatalf("the log ends at %d, want %d (%v)", l.EndOffset(), want, rec.Notes)
			}
			if rec.Recovered > 2 {
				t.Errorf("%d segments were read", rec.Recovered)
			}
			for round := range 2 {
				for offset := range l.EndOffset() {
					s, err := l.Read(offset, 1, true, l.EndOffset())
					if err != nil || s.Len() == 0 {
						t.Fatalf("round %d, read at %d: %v", round, offset, err)
					}
					s.Release()
				}
				next := l.EndOffset()
				if a, err := plain(l, 10); err != nil || a.FirstOffset != next {
					t.Fatalf("round %d, append: %+v, %v", round, a, err)
				}
				if err := d.Close(1); err != nil {
					t.Fatal(err)
				}
				d = newDir(t, fsys)
				if clean, _ := d.Clean(); !clean {
					t.Fatal("no mark of a clean stop")
				}
				var err error
				if l, rec, err = d.Open(faultDir, config, time.UnixMilli(0)); err != nil || rec.Recovered != 0 || l.EndOffset() != next+1 {
					t.Fatalf("after a clean stop: %v, %+v, end %d", err, rec, l.EndOffset())
				}
			}
		})
	}
}

// TestPreallocate: a new segment's file has segment.bytes; it is cut to what is in it when the segment rolls and when the log closes,
// and after a kill by recovery.
func TestPreallocate(t *testing.T) {
	fsys := vfs.NewMem()
	config := DefaultConfig()
	config.SegmentBytes, config.Preallocate = 2000, true
	sizes := func() (out []int) {
		for _, s := range newestFirst(contents(t, fsys, "d/f-0")) {
			out = append(out, len(s))
		}
		return out
	}
	d, l := faultLog(t, fsys, config)
	if got := fmt.Sprint(sizes()); got != "[2000]" {
		t.Fatal(got)
	}
	for len(l.view.Load().segments) < 3 {
		write(t, l, 1, 300)
	}
	full := int(l.view.Load().segments[0].size())
	check := func(when string, active int) {
		t.Helper()
		if got, want := fmt.Sprint(sizes()), fmt.Sprint([]int{active, full, full}); got != want {
			t.Errorf("%s: files of %s bytes, want %s", when, got, want)
		}
		if l.Size() != int64(2*full)+l.view.Load().active().size() {
			t.Errorf("%s: the log has %d bytes", when, l.Size())
		}
		for offset := range l.EndOffset() {
			s, err := l.Read(offset, 1<<20, true, l.EndOffset())
			if err != nil || s.Len() == 0 || s.Len() > full {
				t.Errorf("%s: read at %d: %d bytes, %v", when, offset, s.Len(), err)
			}
			s.Release()
		}
	}
	check("running", 2000)
	if err := d.Abandon(); err != nil {
		t.Fatal(err)
	}
	end, one := l.EndOffset(), int(l.view.Load().active().size())
	d, l, r := reopen(t, fsys, config)
	check("after a kill", one)
	if l.EndOffset() != end || len(r.Notes) > 0 {
		t.Errorf("end %d, want %d; %v", l.EndOffset(), end, r.Notes)
	}
	if err := d.Close(1); err != nil {
		t.Fatal(err)
	}
	d, l, _ = reopen(t, fsys, config)
	for len(l.view.Load().segments) < 4 {
		write(t, l, 1, 300)
	}
	if err := d.Close(1); err != nil {
		t.Fatal(err)
	}
	if got := sizes(); got[0] != one || got[1] != full {
		t.Errorf("after a clean stop: %v", got)
	}
	d, l, r = reopen(t, fsys, config)
	if r.Recovered != 0 {
		t.Errorf("after a clean stop %d segments were recovered", r.Recovered)
	}
	if err := d.Close(1); err != nil {
		t.Fatal(err)
	}
}

// newestFirst are the .log files of a directory.
func newestFirst(files map[string][]byte) (out [][]byte) {
	for i := kafka.Offset(10_000); i >= 0; i-- {
		if b, ok := files[segmentName(i, logSuffix)]; ok {
			out = append(out, b)
		}
	}
	return out
}
