package compat

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/codec"
	"github.com/highwater/highwater/internal/kafka"
	rec "github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
	"github.com/highwater/highwater/test/peer"
)

// TestCompactsAsKafka makes logs of random histories (transactions, idempotent producers, tombstones, all codecs, magic 0 to 2, epochs,
// gaps in time), lets Kafka's own cleaner compact a copy of each and ours the other, and compares the directories byte by byte. What is
// compacted gets more records and is compacted again, three times over. Where a batch was compressed anew its bytes may differ and its
// records must not. No broker takes part.
func TestCompactsAsKafka(t *testing.T) {
	const cases, rounds = 40, 3
	all := make([]*history, cases)
	for i := range all {
		all[i] = newHistory(t, uint64(i))
	}
	for round := range rounds {
		var argv []string
		for _, h := range all {
			argv = append(argv, h.grow(round))
		}
		r := jvm(t).Must(t, "org.apache.kafka.storage.internals.log.Compact", "", argv...)
		lines := strings.Split(strings.TrimSpace(r.Stdout), "\n")
		if r.Exit != 0 || len(lines) != cases {
			t.Fatalf("Kafka compacted %d of %d logs: exit %d\n%s\n%s", len(lines), cases, r.Exit, r.Stderr, tail(r.Log))
		}
		for i, h := range all {
			if err := h.compact(lines[i]); err != nil {
				t.Fatalf("history %d, round %d: %v\n(%+v)", i, round, err, h.config)
			}
		}
	}
	rewritten, tombstones, full := 0, 0, 0
	for _, h := range all {
		rewritten, tombstones, full = rewritten+h.cleans, tombstones+h.dropped, full+h.full
	}
	t.Logf("%d cleans, of %d of which the map was too small; %d records dropped", rewritten, full, tombstones)
	if rewritten < cases || full == 0 {
		t.Errorf("the histories don't test much: %d cleans, %d with a full map", rewritten, full)
	}
}

func tail(s string) string { return s[max(0, len(s)-4000):] }

// history is one log, and what happened to it.
type history struct {
	t      *testing.T
	rng    *rand.Rand
	disk   *vfs.Mem // of our log
	home   string   // of Kafka's copy
	config storage.Config
	tp     kafka.TopicPartition
	now    time.Time
	epoch  kafka.LeaderEpoch
	slots  int
	codecs []codec.Type
	legacy bool
	// plain is a history without transactions. Where the dirty section begins inside of a segment, after an abort marker there, Kafka takes
	// the producer's next transaction for aborted when it fills its map, and forgets its keys. There we are meant to differ.
	plain bool

	log      *storage.Log
	dir      *storage.Dir
	cleaned  kafka.Offset
	sequence map[kafka.ProducerID]int32
	pepoch   map[kafka.ProducerID]kafka.ProducerEpoch
	open     map[kafka.ProducerID]bool
	value    int

	cleans, dropped, full int
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{
		t: t, rng: rand.New(rand.NewPCG(seed, 99)), disk: vfs.NewMem(), home: t.TempDir(), tp: kafka.TopicPartition{Topic: "t", Partition: 0},
		now: time.UnixMilli(1_700_000_000_000), sequence: map[kafka.ProducerID]int32{}, pepoch: map[kafka.ProducerID]kafka.ProducerEpoch{},
		open: map[kafka.ProducerID]bool{}, cleaned: -1, codecs: []codec.Type{codec.None}, slots: 100_000, legacy: seed%7 == 3,
	}
	if seed%3 == 1 {
		h.codecs = []codec.Type{codec.None, codec.Gzip, codec.Snappy, codec.LZ4, codec.Zstd}
	}
	c := storage.DefaultConfig()
	c.SegmentBytes = 1500 + int32(h.rng.IntN(4000))
	c.IndexIntervalBytes = 50 + int32(h.rng.IntN(400))
	c.SegmentIndexBytes = 800 + 24*int32(h.rng.IntN(20))
	c.SegmentAge = time.Hour
	c.RetentionTime = -1
	c.Compact, c.Delete = true, h.rng.IntN(3) == 0
	c.DeleteRetention = time.Duration(h.rng.IntN(3)) * 10 * time.Minute
	if h.rng.IntN(4) == 0 {
		c.MinCompactionLag = time.Duration(1+h.rng.IntN(10)) * time.Minute
	}
	if h.rng.IntN(5) == 0 {
		c.TimestampType = rec.LogAppendTime
	}
	if h.rng.IntN(3) == 0 {
		h.slots, h.plain = 3+h.rng.IntN(20), true
	}
	h.config = c
	must(t, h.disk.MkdirAll("d"))
	return h
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (h *history) theirs() string { return filepath.Join(h.home, "t-0") }

func (h *history) start() {
	d, err := storage.OpenDir("d", storage.Options{FS: h.disk, Files: storage.NewFiles(h.disk, 10), ProducerExpiration: 24 * time.Hour})
	must(h.t, err)
	must(h.t, d.Begin())
	h.dir = d
	dirs, err := d.Partitions()
	must(h.t, err)
	if len(dirs) == 0 {
		h.log, err = d.Create(h.tp, kafka.TopicID{7}, h.config, h.now)
	} else {
		h.log, _, err = d.Open(dirs[0], h.config, h.now)
	}
	must(h.t, err)
	h.log.SetHighWatermark(h.log.EndOffset())
}

func (h *history) stop() { must(h.t, h.dir.Close(1)) }

// grow appends to the log, closes it, and makes the copy for Kafka. It returns what Compact.java is to be told.
func (h *history) grow(round int) string {
	h.start()
	for range 40 + h.rng.IntN(120) {
		h.append()
		h.now = h.now.Add(time.Duration(h.rng.IntN(20_000)) * time.Millisecond)
		if h.rng.IntN(60) == 0 {
			h.epoch++
		}
	}
	if h.rng.IntN(2) == 0 {
		for id := range h.open {
			h.append1(h.marker(id), rec.Coordinator)
		}
	}
	limit := h.log.EndOffset()
	if !h.plain {
		limit = h.cleaned // as above
	}
	if start := h.log.StartOffset(); round > 0 && h.rng.IntN(4) == 0 && limit > start {
		_, err := h.log.AdvanceStartOffset(start + h.rng.Int64N(limit-start))
		must(h.t, err)
	}
	h.stop()
	theirs := h.theirs()
	must(h.t, os.RemoveAll(theirs))
	must(h.t, os.MkdirAll(theirs, 0o755))
	for name, f := range h.ours() {
		// Both must see the same times of change.
		when := h.now.Add(-time.Duration(h.rng.IntN(1200)) * time.Second)
		must(h.t, h.disk.SetModTime("d/t-0/"+name, when))
		must(h.t, os.WriteFile(filepath.Join(theirs, name), f.content, 0o644))
		must(h.t, os.Chtimes(filepath.Join(theirs, name), when, when))
	}
	c := h.config
	policy := "compact"
	if c.Delete {
		policy = "compact,delete"
	}
	properties := fmt.Sprintf("internal.segment.bytes=%d\nindex.interval.bytes=%d\nsegment.index.bytes=%d\nsegment.ms=%d\ncleanup.policy=%s\ndelete.retention.ms=%d\nmin.compaction.lag.ms=%d\nretention.ms=-1\n",
		c.SegmentBytes, c.IndexIntervalBytes, c.SegmentIndexBytes, c.SegmentAge.Milliseconds(), policy, c.DeleteRetention.Milliseconds(), c.MinCompactionLag.Milliseconds())
	must(h.t, os.WriteFile(theirs+".properties", []byte(properties), 0o644))
	return fmt.Sprintf("%s %d %d %d %d", theirs, h.now.UnixMilli(), h.cleaned, h.log.StartOffset(), h.slots*24)
}

func (h *history) append() {
	switch n := h.rng.IntN(20); {
	case n < 7:
		h.append1(h.batch(-1), rec.Client)
	case n < 11:
		h.append1(h.batch(kafka.ProducerID(1+h.rng.IntN(3))), rec.Client)
	case n < 17 && !h.plain:
		id := kafka.ProducerID(11 + h.rng.IntN(3))
		b := h.batch(id)
		h.open[id] = true
		h.append1(b, rec.Client)
	case n < 19 && !h.plain:
		id := kafka.ProducerID(11 + h.rng.IntN(3))
		if h.open[id] || h.rng.IntN(6) == 0 {
			h.append1(h.marker(id), rec.Coordinator)
		}
	case h.legacy:
		h.appendLegacy()
	}
}

func (h *history) marker(id kafka.ProducerID) rec.Batch {
	delete(h.open, id)
	kind := rec.Commit
	if h.rng.IntN(2) == 0 {
		kind = rec.Abort
	}
	if h.rng.IntN(4) == 0 { // as with transaction version 2
		h.pepoch[id]++
		h.sequence[id] = 0
	}
	return rec.MarkerBatch(0, 0, h.now.UnixMilli(), id, h.pepoch[id], rec.Marker{Type: kind, CoordinatorEpoch: 3})
}

func (h *history) key() []byte {
	if h.rng.IntN(30) == 0 {
		return nil
	}
	return []byte("k" + strconv.Itoa(h.rng.IntN(25)))
}

func (h *history) valueBytes() []byte {
	h.value++
	if h.rng.IntN(5) == 0 {
		return nil
	}
	return fmt.Appendf(nil, "%d %s", h.value, bytes.Repeat([]byte("v"), h.rng.IntN(80)))
}

func (h *history) batch(id kafka.ProducerID) rec.Batch {
	o := rec.DefaultBatchOptions(0)
	o.Codec = h.codecs[h.rng.IntN(len(h.codecs))]
	n := 1 + h.rng.IntN(5)
	if id > 0 {
		o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = id, h.pepoch[id], h.sequence[id], id > 10
		h.sequence[id] += int32(n)
	}
	b := rec.NewBuilder(o)
	for range n {
		var headers []rec.Header
		if h.rng.IntN(5) == 0 {
			headers = append(headers, rec.Header{Key: "h", Value: []byte("x")}, rec.Header{Key: "null"})
		}
		b.Append(h.now.UnixMilli()-int64(h.rng.IntN(100_000)), h.key(), h.valueBytes(), headers...)
	}
	out, err := b.Build()
	must(h.t, err)
	return out
}

func (h *history) append1(b rec.Batch, origin rec.Origin) {
	o := h.config.Validation(h.tp, origin, h.now)
	o.Compacted = false // records from before the topic was compacted have no key
	v, err := rec.Validate(b, &o)
	must(h.t, err)
	defer v.Release()
	_, err = h.log.AppendAsLeader(v, storage.LeaderAppend{Now: h.now, LeaderEpoch: h.epoch, Origin: origin})
	must(h.t, err)
	h.log.SetHighWatermark(h.log.EndOffset())
}

// appendLegacy appends a message of magic 0 or 1, or a compressed set of them.
func (h *history) appendLegacy() {
	magic := byte(h.rng.IntN(2))
	base := h.log.EndOffset()
	n, c := 1, codec.None
	if h.rng.IntN(2) == 0 {
		n, c = 1+h.rng.IntN(4), []codec.Type{codec.Gzip, codec.Snappy}[h.rng.IntN(2)]
	}
	var set []byte
	for i := range n {
		at := base + int64(i)
		if c != codec.None && magic == 1 {
			at = int64(i)
		}
		set = append(set, h.message(magic, at, 0, h.key(), h.valueBytes())...)
	}
	if c != codec.None {
		packed, err := codec.Compress(nil, c, codec.DefaultLevel, set)
		must(h.t, err)
		set = h.message(magic, base+int64(n)-1, byte(c), nil, packed)
	}
	o := h.config.Validation(h.tp, rec.Replica, h.now)
	o.LeaderEpoch = math.MaxInt32
	v, err := rec.Validate(set, &o)
	must(h.t, err)
	defer v.Release()
	_, err = h.log.AppendAsFollower(v, h.now)
	must(h.t, err)
	h.log.SetHighWatermark(h.log.EndOffset())
}

func (h *history) message(magic byte, offset int64, attributes byte, key, value []byte) []byte {
	body := []byte{magic, attributes}
	if magic == 1 {
		body = binary.BigEndian.AppendUint64(body, uint64(h.now.UnixMilli()))
	}
	for _, p := range [][]byte{key, value} {
		if p == nil {
			body = binary.BigEndian.AppendUint32(body, math.MaxUint32)
			continue
		}
		body = append(binary.BigEndian.AppendUint32(body, uint32(len(p))), p...)
	}
	out := binary.BigEndian.AppendUint64(nil, uint64(offset))
	out = binary.BigEndian.AppendUint32(out, uint32(4+len(body)))
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(body))
	return append(out, body...)
}

// compact cleans our log and compares it with what Kafka made of the copy. line is what Compact.java printed.
func (h *history) compact(line string) error {
	h.start()
	r, err := h.log.CleanRange(h.now)
	if err != nil {
		return err
	}
	end, before := kafka.Offset(-1), h.log.EndOffset()
	if r.CleanableBytes > 0 {
		c, err := storage.NewCleaner(storage.CleanerOptions{DedupeBytes: int64(h.slots * 24), LoadFactor: 0.9, HashKey: [2]uint64{1, 2}})
		if err != nil {
			return err
		}
		s, err := c.Clean(h.log, r, h.now)
		if err != nil {
			return err
		}
		end = s.EndOffset
		h.cleaned = end
		h.cleans++
		h.dropped += int(s.RecordsRead - s.RecordsKept)
		if end < r.FirstUncleanable {
			h.full++
		}
	} else {
		h.cleaned = r.FirstDirty
	}
	got := fmt.Sprintf("%s %d %d %d %d %d", h.theirs(), r.FirstDirty, r.FirstUncleanable, r.CleanBytes, r.CleanableBytes, end)
	if got != line {
		return fmt.Errorf("ours: %s\nKafka's: %s", got, line)
	}
	if h.log.EndOffset() != before {
		return fmt.Errorf("the end offset moved from %d to %d", before, h.log.EndOffset())
	}
	h.stop()
	ours := h.ours()
	maps.DeleteFunc(ours, func(name string, _ content) bool { // Kafka drops those from before the log start when it opens a log
		base, err := strconv.ParseInt(strings.TrimSuffix(name, ".snapshot"), 10, 64)
		return err == nil && base <= h.log.StartOffset()
	})
	return sameFiles(ours, h.kafkas())
}

// content is a file as it is compared.
type content struct {
	content []byte
	time    time.Time
}

// ours are our log's files but for those that wait for their removal.
func (h *history) ours() map[string]content {
	return h.files(func() ([]fs.DirEntry, error) { return h.disk.List("d/t-0") }, func(name string) ([]byte, error) { return h.disk.ReadFile("d/t-0/"+name, 1<<30) })
}

func (h *history) kafkas() map[string]content {
	return h.files(func() ([]fs.DirEntry, error) { return os.ReadDir(h.theirs()) }, func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(h.theirs(), name)) })
}

func (h *history) files(list func() ([]fs.DirEntry, error), read func(name string) ([]byte, error)) map[string]content {
	entries, err := list()
	must(h.t, err)
	out := map[string]content{}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".deleted") {
			continue
		}
		b, err := read(e.Name())
		must(h.t, err)
		i, err := e.Info()
		must(h.t, err)
		out[e.Name()] = content{b, i.ModTime()}
	}
	return out
}

func sameFiles(ours, kafkas map[string]content) error {
	maps.DeleteFunc(kafkas, func(name string, _ content) bool { // those that it makes only when it needs them
		_, ok := ours[name]
		return !ok && strings.HasSuffix(name, "index")
	})
	names, theirs := slices.Sorted(maps.Keys(ours)), slices.Sorted(maps.Keys(kafkas))
	if !slices.Equal(names, theirs) {
		return fmt.Errorf("our files: %v\nKafka's:   %v", names, theirs)
	}
	var errs []error
	for _, name := range names {
		x, y := ours[name], kafkas[name]
		base, suffix, _ := strings.Cut(name, ".")
		log := base + ".log"
		switch {
		case suffix == "log":
			if !x.time.Equal(y.time) {
				errs = append(errs, fmt.Errorf("%s: changed at %v, Kafka's at %v", name, x.time, y.time))
			}
			if err := sameBatches(x.content, y.content); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
			continue
		case suffix == "index" || suffix == "timeindex":
			if !bytes.Equal(ours[log].content, kafkas[log].content) {
				continue // other positions
			}
			y.content = y.content[:min(len(y.content), max(len(x.content), len(bytes.TrimRight(y.content, "\x00"))))] // the active one's is longer
		}
		if !bytes.Equal(x.content, y.content) {
			errs = append(errs, fmt.Errorf("%s:\nours    %x\nKafka's %x", name, x.content, y.content))
		}
	}
	return errors.Join(errs...)
}

// sameBatches compares batches whose compression differs.
func sameBatches(x, y []byte) error {
	for n := 0; ; n++ {
		a, xs, err := rec.Next(x)
		b, ys, berr := rec.Next(y)
		if err != nil || berr != nil {
			return errors.Join(err, berr)
		}
		if a == nil || b == nil {
			if len(xs)+len(ys) > 0 {
				return fmt.Errorf("%d and %d bytes after batch %d", len(xs), len(ys), n)
			}
			return nil
		}
		x, y = xs, ys
		if bytes.Equal(a, b) {
			continue
		}
		if p, q := batchText(a), batchText(b); p != q || a.Codec() == codec.None {
			return fmt.Errorf("batch %d:\nours    %s\nKafka's %s", n, p, q)
		}
		if err := errors.Join(a.Check(), b.Check()); err != nil {
			return err
		}
	}
}

func batchText(b rec.Batch) string {
	out := fmt.Sprintf("magic %d offsets %d-%d epoch %d attributes %x times %d %d producer %d %d %d count %d", b.Magic(), b.BaseOffset(), b.LastOffset(), b.PartitionLeaderEpoch(),
		b.Attributes(), b.BaseTimestamp(), b.MaxTimestamp(), b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.Count())
	for r, err := range b.All() {
		if err != nil {
			return out + " " + err.Error()
		}
		out += fmt.Sprintf(" [%d %d %q %q (%v)", r.Offset, r.Timestamp, r.Key, r.Value, r.Value == nil)
		for k, v := range r.Headers.All() {
			out += fmt.Sprintf(" %q=%q", k, v)
		}
		out += "]"
	}
	return out
}

// TestLogCompactionTester runs Kafka's own test of compaction against a node that compacts all the while: it writes keys again and again,
// deletes some, reads what is left and compares the last value of each key with what it wrote.
func TestLogCompactionTester(t *testing.T) {
	n := peer.Started(t, peer.Options{Software: software(), Properties: []string{
		keep, "log.roll.ms=300", "log.cleaner.backoff.ms=100", "log.cleaner.min.cleanable.ratio=0.01", "log.cleaner.threads=2",
		"log.cleaner.delete.retention.ms=1000",
	}})
	r := jvm(t).Must(t, "org.apache.kafka.tools.LogCompactionTester", "", "--bootstrap-server", withGroup(t, n.Addr()), "--messages", "60000",
		"--topics", "2", "--duplicates", "20", "--percent-deletes", "10", "--compression-type", "zstd", "--sleep", "1")
	reduction := regexp.MustCompile(`\(([\d.-]+)% reduction\)`).FindStringSubmatch(r.Stdout)
	if r.Exit != 0 || !strings.Contains(r.Stdout, "Data verification is completed") || reduction == nil {
		t.Fatalf("exit %d\n%s\n%s\n%s", r.Exit, r.Stdout, r.Stderr, tail(r.Log))
	}
	t.Log(strings.TrimSpace(r.Stdout))
	if percent, err := strconv.ParseFloat(reduction[1], 64); err != nil || percent < 30 {
		t.Errorf("compaction took away only %s%%", reduction[1])
	}
}
