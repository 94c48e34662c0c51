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

// TestResume: with most of a segment below the recovery point, recovery reads little more than what is above, whatever the state of
// the indexes, and makes the same files as a recovery that reads all.
func TestResume(t *testing.T) {
	const index, times = "d/f-0/00000000000000000000.index", "d/f-0/00000000000000000000.timeindex"
	keep := func(b []byte) []byte { return b }
	zeros := func(b []byte) []byte { return append(b, make([]byte, 10<<20/24*24-len(b))...) } // as Kafka leaves it
	for _, c := range []struct {
		name         string
		index, times func(b []byte) []byte
		most         int64 // bytes that may be read; 0: the whole segment
	}{
		{"as they were", keep, keep, 70_000},
		{"with zeros after them, as Kafka leaves them", zeros, zeros, 70_000},
		{"an offset index that lost its end", func(b []byte) []byte { return b[:len(b)/2/8*8] }, keep, 150_000},
		{"a time index that lost its end", keep, func(b []byte) []byte { return b[:len(b)/2/12*12] }, 150_000},
		{"an offset index that lost a block", func(b []byte) []byte { clear(b[160:240]); return b }, keep, 0},
		{"a time index that lost all", keep, func(b []byte) []byte { return nil }, 0},
		{"an offset index torn inside of an entry", func(b []byte) []byte { return b[:len(b)-3] }, keep, 70_000},
		{"entries of another log", func(b []byte) []byte {
			for i := len(b) - 80; i < len(b); i += 8 {
				binary.BigEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:])+1)
			}
			return b
		}, keep, 150_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys := vfs.NewMem()
			d, l := faultLog(t, fsys, DefaultConfig())
			r := rand.New(rand.NewPCG(1, 2))
			for i := range 200 { // timestamps must advance, or the time index has one entry
				if err := timed(l, int64(1000+i), 500+r.IntN(500)); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(l.Flush(l.EndOffset()), d.CheckpointRecoveryPoints()); err != nil {
				t.Fatal(err)
			}
			for i := range 50 {
				if err := timed(l, int64(2000+i), 1000); err != nil {
					t.Fatal(err)
				}
			}
			whole := l.Size()
			if err := l.syncIndexes(l.view.Load().active()); err != nil { // the tail that is in memory
				t.Fatal(err)
			}
			if err := d.Abandon(); err != nil {
				t.Fatal(err)
			}
			edit(t, fsys, index, c.index)
			edit(t, fsys, times, c.times)
			d, l, _ = reopen(t, fsys, DefaultConfig())
			if l.EndOffset() != 250 || l.Size() != whole {
				t.Fatalf("the log ends at %d with %d bytes", l.EndOffset(), l.Size())
			}
			most := c.most
			if most == 0 {
				most = whole
			}
			if got := d.RecoveredBytes(); got > most || got < 50_000 {
				t.Errorf("recovery read %d of %d bytes; what is above the recovery point has 53,350", got, whole)
			}
			for offset := range kafka.Offset(250) {
				s, err := l.Read(offset, 1, true, 250)
				if err != nil || s.Len() == 0 {
					t.Fatalf("read at %d: %v", offset, err)
				}
				s.Release()
			}
			got := contents(t, fsys, "d/f-0")
			if err := d.Abandon(); err != nil {
				t.Fatal(err)
			}
			edit(t, fsys, "d/"+recoveryPointsName, func([]byte) []byte { return []byte("0\n0\n") })
			_, _, _ = reopen(t, fsys, DefaultConfig())
			want := contents(t, fsys, "d/f-0")
			for _, name := range []string{"00000000000000000000.index", "00000000000000000000.timeindex", "00000000000000000000.log"} {
				if !bytes.Equal(got[name], want[name]) {
					t.Errorf("%s has %d bytes, made anew from all it has %d or others", name, len(got[name]), len(want[name]))
				}
			}
		})
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
			d, l, rec := reopen(t, fsys, config)
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

// timed appends a batch with one record of a timestamp.
func timed(l *Log, timestamp int64, size int) error {
	r := record.NewBuilder(record.DefaultBatchOptions(0))
	r.Append(timestamp, nil, bytes.Repeat([]byte("v"), size))
	b, err := r.Build()
	if err != nil {
		return err
	}
	o := l.Config().Validation(l.Partition(), record.Client, time.UnixMilli(timestamp))
	v, err := record.Validate(b, &o)
	if err != nil {
		return err
	}
	defer v.Release()
	_, err = l.AppendAsLeader(v, LeaderAppend{Now: time.UnixMilli(timestamp), LeaderEpoch: 1, Origin: record.Client})
	return err
}
