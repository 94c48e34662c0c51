package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/vfs"
)

var cleanNow = time.UnixMilli(1_700_000_000_000)

// keyed makes a compacted log of small segments in which four keys are written in each of rounds.
func keyed(t *testing.T, fsys *vfs.Mem, rounds int) (*Dir, *Log) {
	t.Helper()
	d := newDir(t, fsys)
	c := smallSegments()
	c.Compact, c.Delete = true, false
	l, err := d.Create(modelPartition, kafka.TopicID{1}, c, cleanNow)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rounds {
		b := record.NewBuilder(record.DefaultBatchOptions(0))
		for k := range 4 {
			b.Append(cleanNow.UnixMilli(), fmt.Appendf(nil, "k%d", k), fmt.Appendf(nil, "%d %s", i, strings.Repeat("v", 80)))
		}
		batch, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		appendClean(t, l, batch, record.Client)
	}
	return d, l
}

func appendClean(t *testing.T, l *Log, b []byte, origin record.Origin) {
	t.Helper()
	o := l.Config().Validation(modelPartition, origin, cleanNow)
	o.LeaderEpoch = math.MaxInt32
	v, err := record.Validate(b, &o)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Release()
	if origin == record.Replica {
		_, err = l.AppendAsFollower(v, cleanNow)
	} else {
		_, err = l.AppendAsLeader(v, LeaderAppend{Now: cleanNow, Origin: origin})
	}
	if err != nil {
		t.Fatal(err)
	}
	l.SetHighWatermark(l.EndOffset())
}

// clean compacts a log; pace is called between its parts.
func clean(t *testing.T, l *Log, now time.Time, pace func(int) error) (CleanStats, error) {
	t.Helper()
	r, err := l.CleanRange(now)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewCleaner(CleanerOptions{DedupeBytes: 1 << 20, LoadFactor: 0.9, Pace: pace})
	if err != nil {
		t.Fatal(err)
	}
	return c.Clean(l, r, now)
}

// TestCleanGivesWay truncates, restarts, closes and deletes a log while it is cleaned: the clean is broken off, nothing of it is left,
// and the log is what the other has made of it.
func TestCleanGivesWay(t *testing.T) {
	f := func(what string, do func(d *Dir, l *Log) error, end kafka.Offset) {
		t.Helper()
		fsys := vfs.NewMem()
		d, l := keyed(t, fsys, 20)
		_, err := clean(t, l, cleanNow, func(int) error {
			return do(d, l)
		})
		if !errors.Is(err, ErrCleaningAborted) && !errors.Is(err, ErrClosed) || l.CleanedTo() != -1 || d.Err() != nil {
			t.Errorf("%s: %v; cleaned to %d, %v", what, err, l.CleanedTo(), d.Err())
		}
		if end >= 0 && l.EndOffset() != end {
			t.Errorf("%s: the log ends at %d, want %d", what, l.EndOffset(), end)
		}
		for name := range contents(t, fsys, l.Path()) {
			// After a close whoever opens it next removes that.
			if strings.HasSuffix(name, cleanedSuffix) && what != "close" || strings.HasSuffix(name, swapSuffix) {
				t.Errorf("%s: left behind %s", what, name)
			}
		}
	}
	f("truncate", func(_ *Dir, l *Log) error { l.SetHighWatermark(10); return l.TruncateTo(10, cleanNow) }, 8)
	f("truncate fully", func(_ *Dir, l *Log) error { return l.TruncateFullyAndStartAt(5, -1, cleanNow) }, 5)
	f("close", func(_ *Dir, l *Log) error { return l.Close() }, 80)
	f("move to another directory", func(_ *Dir, l *Log) error { l.SetMoving(true); return nil }, 80)
	f("stop", func(*Dir, *Log) error { return errors.New("stop") }, 80)
}

// TestTruncationMakesDirty cleans a log and truncates it below what is clean: what comes there later is dirty, on the disk, too.
func TestTruncationMakesDirty(t *testing.T) {
	fsys := vfs.NewMem()
	d, l := keyed(t, fsys, 20)
	s, err := clean(t, l, cleanNow, nil)
	if err != nil || l.CleanedTo() != s.EndOffset || s.EndOffset < 20 {
		t.Fatal(s, err)
	}
	if err := d.CheckpointCleanedOffsets(); err != nil {
		t.Fatal(err)
	}
	l.SetHighWatermark(10)
	if err := l.TruncateTo(10, cleanNow); err != nil {
		t.Fatal(err)
	}
	if l.CleanedTo() != 10 {
		t.Errorf("cleaned to %d, want 10", l.CleanedTo())
	}
	if err := d.Abandon(); err != nil {
		t.Fatal(err)
	}
	d = newDir(t, fsys)
	l, _, err = d.Open(PartitionDir{Name: "m-3", Partition: modelPartition}, *l.Config(), cleanNow)
	if err != nil || l.CleanedTo() != 10 {
		t.Errorf("after a start cleaned to %d, %v; want 10", l.CleanedTo(), err)
	}
	// A checkpoint that lies beyond the log makes all of it dirty, and is said.
	l.SetCleanedTo(1000)
	r, err := l.CleanRange(cleanNow)
	if err != nil || r.FirstDirty != 0 || r.Note == "" || l.CleanedTo() != 0 {
		t.Errorf("%+v %v, cleaned to %d", r, err, l.CleanedTo())
	}
}

// legacyMessage is a message of magic 0 or 1. An empty key or value is null.
func legacyMessage(magic byte, offset kafka.Offset, key, value string) []byte {
	body := []byte{magic, 0}
	if magic == 1 {
		body = binary.BigEndian.AppendUint64(body, uint64(cleanNow.UnixMilli()))
	}
	for _, p := range []string{key, value} {
		if p == "" {
			body = binary.BigEndian.AppendUint32(body, math.MaxUint32)
		} else {
			body = append(binary.BigEndian.AppendUint32(body, uint32(len(p))), p...)
		}
	}
	out := binary.BigEndian.AppendUint64(nil, uint64(offset))
	out = binary.BigEndian.AppendUint32(out, uint32(4+len(body)))
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(body))
	return append(out, body...)
}

// TestCleanLegacyTombstones: messages of magic 0 and 1 have no room for a delete horizon. Of those, as in Kafka, the tombstones go that stand
// in a file which was changed delete.retention.ms before the last one that is clean already, or earlier; the first clean takes none.
// Those that stay get a horizon, as batches of magic 2, and go when that has passed.
func TestCleanLegacyTombstones(t *testing.T) {
	const tombstones = 4
	retention := time.Hour
	for _, c := range []struct {
		magic   byte
		cleaned kafka.Offset    // the first dirty offset
		age     []time.Duration // of the tombstones' files, each a segment of its own, against the one of offset cleaned-1
		left    string
	}{
		{1, 0, []time.Duration{1000 * time.Hour, 2 * time.Hour, time.Hour, 0}, "[0 1 2 3]"},
		{1, 4, []time.Duration{retention + time.Millisecond, retention, retention - time.Millisecond, 0}, "[2 3]"},
		{0, 4, []time.Duration{retention + time.Millisecond, retention, retention - time.Millisecond, 0}, "[2 3]"},
		{1, 3, []time.Duration{retention + time.Millisecond, 0, 0, -time.Hour}, "[1 2 3]"},
		{1, 3, []time.Duration{0, 0, 0, 1000 * time.Hour}, "[0 1 2]"}, // also one that is dirty
	} {
		fsys := vfs.NewMem()
		d := newDir(t, fsys)
		config := smallSegments()
		config.Compact, config.Delete, config.SegmentBytes, config.DeleteRetention = true, false, 50, retention
		l, err := d.Create(modelPartition, kafka.TopicID{1}, config, cleanNow)
		if err != nil {
			t.Fatal(err)
		}
		for i := range kafka.Offset(tombstones) {
			appendClean(t, l, legacyMessage(c.magic, i, fmt.Sprint("key ", i), ""), record.Replica)
		}
		for i := range kafka.Offset(3) {
			appendClean(t, l, legacyMessage(c.magic, tombstones+i, "other", "value"), record.Replica)
		}
		changed := cleanNow.Add(-time.Hour)
		for i, age := range c.age {
			s := l.view.Load().segments[i]
			if s.base != int64(i) {
				t.Fatalf("segment %d begins at %d", i, s.base)
			}
			if err := fsys.SetModTime(s.log.path(), changed.Add(-age)); err != nil {
				t.Fatal(err)
			}
		}
		if c.cleaned > 0 {
			l.SetCleanedTo(c.cleaned)
		}
		config.SegmentBytes = 10_000 // what is left goes into one
		l.SetConfig(config)
		left := func(now time.Time) string {
			if _, err := clean(t, l, now, nil); err != nil {
				t.Fatal(err)
			}
			var out []kafka.Offset
			for _, s := range l.view.Load().segments {
				err := l.eachBatch(s, 0, func(b record.Batch) (bool, error) {
					for r, err := range b.All() {
						if err != nil {
							return false, err
						}
						if r.Value != nil {
							continue
						}
						out = append(out, r.Offset)
						if h, ok := b.DeleteHorizon(); b.Magic() != 2 || !ok || h != cleanNow.Add(retention).UnixMilli() {
							t.Errorf("%+v: the tombstone at %d is in a batch of magic %d, horizon %d %v", c, r.Offset, b.Magic(), h, ok)
						}
					}
					return true, nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			return fmt.Sprint(out)
		}
		if got := left(cleanNow); got != c.left {
			t.Errorf("%+v: tombstones %s are left", c, got)
		}
		l.SetCleanedTo(0)
		if got := left(cleanNow.Add(retention - time.Millisecond)); got != c.left {
			t.Errorf("%+v: just before their horizon tombstones %s are left", c, got)
		}
		l.SetCleanedTo(0)
		if got := left(cleanNow.Add(retention)); got != "[]" {
			t.Errorf("%+v: at their horizon tombstones %s are left", c, got)
		}
	}
}

// TestReplacedTwice: a segment that was replaced waits for its removal as .deleted, and its successor is to get that name, too: by a clean, by
// retention, by a truncation. Who still has the first one hears that it is gone, and never reads the other file by its name; and both are
// removed.
func TestReplacedTwice(t *testing.T) {
	for name, replace := range map[string]func(t *testing.T, l *Log) error{
		"clean": func(t *testing.T, l *Log) error {
			l.cleaned.Store(0)
			_, err := clean(t, l, cleanNow, nil)
			return err
		},
		"retention": func(_ *testing.T, l *Log) error {
			if _, err := l.AdvanceStartOffset(l.HighWatermark()); err != nil {
				return err
			}
			_, err := l.DeleteOldSegments(cleanNow)
			return err
		},
		"truncation": func(_ *testing.T, l *Log) error {
			l.SetHighWatermark(0)
			return l.TruncateFullyAndStartAt(0, 0, cleanNow)
		},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := vfs.NewMem()
			d, l := keyed(t, fsys, 20)
			d.o.Files.limit = 1 // what isn't in use is closed
			c := *l.Config()
			c.FileDeleteDelay = time.Hour
			l.SetConfig(c)
			first := l.view.Load().segments[0]
			was := contents(t, fsys, l.Path())[segmentName(0, logSuffix)]
			if _, err := clean(t, l, cleanNow, nil); err != nil {
				t.Fatal(err)
			}
			second := l.view.Load().segments[0]
			if first == second || second.base != 0 {
				t.Fatal("the first segment wasn't replaced")
			}
			if err := replace(t, l); err != nil {
				t.Fatal(err)
			}
			if l.view.Load().segments[0] == second {
				t.Fatal("the first segment wasn't replaced again")
			}
			for _, x := range []*file{first.log, first.idx.offsets.file, first.idx.times.file} {
				f, err := x.use()
				if err == nil {
					b := make([]byte, len(was))
					n, _ := f.ReadAt(b, 0)
					t.Errorf("%s is still read: %d bytes, as they were: %v", x.path(), n, bytes.Equal(b[:n], was))
					x.release()
				} else if !isNotExist(err) {
					t.Error(err)
				}
			}
			if n, err := l.RemoveDeleted(cleanNow.Add(59 * time.Minute)); n != 0 || err != nil {
				t.Errorf("%d files were removed before file.delete.delay.ms, %v", n, err)
			}
			if _, err := l.RemoveDeleted(cleanNow.Add(2 * time.Hour)); err != nil {
				t.Fatal(err)
			}
			for name := range contents(t, fsys, l.Path()) {
				if strings.HasSuffix(name, deletedSuffix) {
					t.Errorf("left behind: %s", name)
				}
			}
		})
	}
}

// TestCleanLegacyTail cleans a log whose last message before the active segment is of magic 1 and of no use: Kafka's cleaner fails there.
// The log's next offset is kept by a header of magic 2.
func TestCleanLegacyTail(t *testing.T) {
	fsys := vfs.NewMem()
	d := newDir(t, fsys)
	c := smallSegments()
	c.Compact, c.SegmentBytes = true, 110
	l, err := d.Create(modelPartition, kafka.TopicID{1}, c, cleanNow)
	if err != nil {
		t.Fatal(err)
	}
	appendClean(t, l, legacyMessage(1, 0, "a", "1"), record.Replica)
	appendClean(t, l, legacyMessage(1, 1, "a", "2"), record.Replica)
	appendClean(t, l, legacyMessage(1, 2, "", "no key"), record.Replica)
	appendClean(t, l, legacyMessage(1, 3, "b", "1"), record.Replica)
	r, err := l.CleanRange(cleanNow)
	if err != nil || r.FirstUncleanable != 2 && r.FirstUncleanable != 3 {
		t.Fatalf("%+v %v", r, err)
	}
	for range 3 {
		if _, err := clean(t, l, cleanNow, nil); err != nil {
			t.Fatal(err)
		}
		l.SetCleanedTo(0)
	}
	s, err := l.Read(r.FirstUncleanable-1, 1000, true, l.EndOffset())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	buf := make([]byte, s.Len())
	_, _ = s.ReadAt(buf, 0)
	b, _, err := record.Next(buf)
	if err != nil || b == nil || b.Magic() != 2 || b.LastOffset() != r.FirstUncleanable-1 {
		t.Errorf("the batch at %d: %v %v", r.FirstUncleanable-1, b, err)
	}
}

// TestCleanOversized keeps a batch as it is that would unpack to more than the cleaner holds, and cleans what is around it.
func TestCleanOversized(t *testing.T) {
	if testing.Short() || underRace {
		return
	}
	fsys := vfs.NewMem()
	_, l := keyed(t, fsys, 3)
	o := record.DefaultBatchOptions(0)
	o.Codec = 4
	b := record.NewBuilder(o)
	for range 130 {
		b.Append(cleanNow.UnixMilli(), []byte("k0"), make([]byte, 1<<20))
	}
	batch, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	c := *l.Config()
	c.SegmentBytes = 1 << 20
	l.SetConfig(c)
	appendClean(t, l, batch, record.Client)
	c.SegmentBytes = 1000
	l.SetConfig(c)
	for range 3 {
		b := record.NewBuilder(record.DefaultBatchOptions(0))
		b.Append(cleanNow.UnixMilli(), []byte("k1"), bytes.Repeat([]byte("v"), 600))
		batch, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		appendClean(t, l, batch, record.Client)
	}
	s, err := clean(t, l, cleanNow, nil)
	if err != nil || s.RecordsRead-s.RecordsKept < 5 {
		t.Fatalf("%+v %v", s, err)
	}
	if got, want := s.RecordsKept, int64(130); got < want {
		t.Errorf("%d records kept, want %d and more", got, want)
	}
}

// TestTruncatedWhileCleaned truncates just before a clean would move the border of what is clean: what comes instead is dirty.
func TestTruncatedWhileCleaned(t *testing.T) {
	_, l := keyed(t, vfs.NewMem(), 6)
	cuts, end := l.cuts.Load(), l.EndOffset()
	if err := l.TruncateTo(end-4, cleanNow); err != nil {
		t.Fatal(err)
	}
	if err := l.setCleaned(end, cuts); !errors.Is(err, ErrCleaningAborted) || l.CleanedTo() > end-4 {
		t.Errorf("%v, cleaned to %d of %d", err, l.CleanedTo(), l.EndOffset())
	}
}

// TestCleanKeepsModTime: the segment that takes the place of several has the time of the last one's change, by which records without
// timestamps age.
func TestCleanKeepsModTime(t *testing.T) {
	fsys := vfs.NewMem()
	_, l := keyed(t, fsys, 20)
	if _, err := clean(t, l, cleanNow, nil); err != nil {
		t.Fatal(err)
	}
	l.cleaned.Store(0) // as if all were dirty; now there is little left in each segment
	segments := l.view.Load().segments
	for i, s := range segments {
		if err := fsys.SetModTime(s.log.path(), cleanNow.Add(time.Duration(i)*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	stats, err := clean(t, l, cleanNow.Add(time.Hour), nil)
	if err != nil || stats.Segments >= stats.SegmentsRead {
		t.Fatalf("%+v %v", stats, err)
	}
	first := l.view.Load().segments[0]
	replaced := 0
	for _, s := range segments {
		if s.base < l.view.Load().segments[1].base {
			replaced++
		}
	}
	got, err := l.modified(first)
	if want := cleanNow.Add(time.Duration(replaced-1) * time.Minute).UnixMilli(); err != nil || replaced < 2 || got != want {
		t.Errorf("in place of %d segments: changed at %d, want %d, %v", replaced, got, want, err)
	}
}

// TestCleanDropsLoneMarkers: the marker of a transaction of which nothing is left goes a delete horizon later, and not sooner; that of one
// of which a record stays never goes before it, also of the same producer.
func TestCleanDropsLoneMarkers(t *testing.T) {
	_, l := keyed(t, vfs.NewMem(), 0)
	write := func(id kafka.ProducerID, sequence int32, key string) {
		o := record.DefaultBatchOptions(0)
		if id >= 0 {
			o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = id, 0, sequence, true
		}
		b := record.NewBuilder(o)
		b.Append(cleanNow.UnixMilli(), []byte(key), bytes.Repeat([]byte("v"), 200))
		batch, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		appendClean(t, l, batch, record.Client)
	}
	var markers []kafka.Offset
	commit := func(id kafka.ProducerID) {
		markers = append(markers, l.EndOffset())
		appendClean(t, l, record.MarkerBatch(0, 0, cleanNow.UnixMilli(), id, 0, record.Marker{Type: record.Commit, CoordinatorEpoch: 1}), record.Coordinator)
	}
	write(5, 0, "stays")
	commit(5)
	write(5, 1, "goes")
	commit(5)
	write(5, 2, "also stays")
	commit(5)
	for range 20 {
		write(-1, 0, "goes")
	}
	there := func(now time.Time) (at []kafka.Offset) {
		l.cleaned.Store(0) // as if all were dirty
		if _, err := clean(t, l, now, nil); err != nil {
			t.Fatal(err)
		}
		for _, s := range l.view.Load().segments {
			err := l.eachBatch(s, 0, func(b record.Batch) (bool, error) {
				if b.Control() && b.Count() > 0 {
					at = append(at, b.BaseOffset())
				}
				return true, nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		return at
	}
	later := l.Config().DeleteRetention
	for range 2 { // the first takes the data, and the second finds that the marker is alone
		if got := there(cleanNow); !slices.Equal(got, markers) {
			t.Errorf("at once: markers at %v, want %v", got, markers)
		}
	}
	if got := there(cleanNow.Add(later - 1)); !slices.Equal(got, markers) {
		t.Errorf("just before the horizon: markers at %v, want %v", got, markers)
	}
	if got, want := there(cleanNow.Add(later)), []kafka.Offset{markers[0], markers[2]}; !slices.Equal(got, want) {
		t.Errorf("at the horizon: markers at %v, want %v", got, want)
	}
}
