package storage

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/codec"
	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/vfs"
)

// newDir opens a directory "d" on fsys.
func newDir(t testing.TB, fsys vfs.FS) *Dir {
	t.Helper()
	if err := fsys.MkdirAll("d"); err != nil {
		t.Fatal(err)
	}
	d, err := OpenDir("d", Options{FS: fsys, Files: NewFiles(fsys, 64), ProducerExpiration: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Begin(); err != nil {
		t.Fatal(err)
	}
	return d
}

func contents(t testing.TB, fsys vfs.FS, dir string) map[string][]byte {
	t.Helper()
	entries, err := fsys.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, e := range entries {
		if out[e.Name()], err = fsys.ReadFile(dir+"/"+e.Name(), 1<<30); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// finalState is what the real Kafka's log knew and had written after the appends.
type finalState struct {
	LogEndOffset     int64
	LastStableOffset int64
	Producers        []struct {
		ProducerID            int64
		Epoch                 int16
		CoordinatorEpoch      int32
		LastTimestamp         int64
		CurrentTxnFirstOffset int64
		Batches               []struct {
			FirstSeq, LastSeq       int32
			FirstOffset, LastOffset int64
			Timestamp               int64
		}
	}
	AbortedTxns []struct {
		ProducerID, FirstOffset, LastOffset, LastStableOffset int64
	}
	Stored string
	Files  map[string]string
}

type appendCase struct {
	Case           string
	Config         map[string]string
	LogStartOffset int64
	Now            int64
	LeaderEpoch    int32
	Steps          []struct {
		Origin             string
		TransactionVersion int16
		Hex                string
		Result             struct {
			Error         string
			Message       string
			FirstOffset   int64
			LastOffset    int64
			MaxTimestamp  int64
			LogAppendTime int64
			ValidBytes    int
		}
	}
	Final finalState
}

func configOf(t testing.TB, m map[string]string) Config {
	t.Helper()
	c := DefaultConfig()
	for k, v := range m {
		switch k {
		case "compression.type":
			if v != "producer" {
				var ok bool
				if c.Compression, ok = codec.Parse(v); !ok {
					t.Fatal(v)
				}
			}
		case "message.timestamp.type":
			if v == "LogAppendTime" {
				c.TimestampType = record.LogAppendTime
			}
		default:
			t.Fatalf("config %s", k)
		}
	}
	return c
}

// TestAppendVectors replays every append that the real Kafka's log was given, and compares each answer, the bytes stored, what
// is known of the producers, and the small files.
func TestAppendVectors(t *testing.T) {
	for _, c := range fixture.Lines[appendCase](t, "vectors/appends.jsonl.gz") {
		t.Run(c.Case, func(t *testing.T) {
			fsys := vfs.NewMem()
			d := newDir(t, fsys)
			tp := kafka.TopicPartition{Topic: "t", Partition: 0}
			config := configOf(t, c.Config)
			now := time.UnixMilli(c.Now)
			l, err := d.Create(tp, kafka.TopicID{1}, config, now)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.TruncateFullyAndStartAt(c.LogStartOffset, -1, now); err != nil {
				t.Fatal(err)
			}
			rebuilt := false
			for i, s := range c.Steps {
				in, err := hex.DecodeString(s.Hex)
				if err != nil {
					t.Fatal(err)
				}
				origin := record.Client
				if s.Origin == "coordinator" {
					origin = record.Coordinator
				}
				o := config.Validation(tp, origin, now)
				v, err := record.Validate(in, &o)
				var a Appended
				if err == nil {
					rebuilt = rebuilt || v.Rebuilt
					a, err = l.AppendAsLeader(v, LeaderAppend{Now: now, LeaderEpoch: kafka.LeaderEpoch(c.LeaderEpoch), Origin: origin, TransactionVersion: s.TransactionVersion})
					if v.InputBytes != s.Result.ValidBytes && err == nil {
						t.Errorf("step %d: %d valid bytes, want %d", i, v.InputBytes, s.Result.ValidBytes)
					}
					v.Release()
				}
				if s.Result.Error != "NONE" {
					var e *kerr.Error
					if !errors.As(err, &e) || e.Name != s.Result.Error || e.Message() != s.Result.Message {
						t.Errorf("step %d: %v\nwant %s: %s", i, err, s.Result.Error, s.Result.Message)
					}
					continue
				}
				if err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
				got := fmt.Sprint(a.FirstOffset, a.LastOffset, a.MaxTimestamp, a.LogAppendTime)
				if want := fmt.Sprint(s.Result.FirstOffset, s.Result.LastOffset, s.Result.MaxTimestamp, s.Result.LogAppendTime); got != want && !a.Duplicate || a.Duplicate && (a.FirstOffset != s.Result.FirstOffset || a.LastOffset != s.Result.LastOffset || a.LogAppendTime != s.Result.LogAppendTime) {
					t.Errorf("step %d: offsets, timestamps %s, want %s", i, got, want)
				}
			}
			f := c.Final
			l.SetHighWatermark(l.EndOffset())
			if l.EndOffset() != f.LogEndOffset || l.LastStableOffset(l.HighWatermark()) != f.LastStableOffset {
				t.Errorf("end %d, stable %d; want %d, %d", l.EndOffset(), l.LastStableOffset(l.HighWatermark()), f.LogEndOffset, f.LastStableOffset)
			}
			checkProducers(t, l, &f)
			base := segmentName(c.LogStartOffset, "")
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			files := contents(t, fsys, "d/t-0")
			// Recompressed data depends on the compressor; package record's tests compare it decompressed.
			if got := hex.EncodeToString(files[base+logSuffix]); got != f.Stored && !rebuilt {
				t.Errorf("stored %s\nwant   %s", got, f.Stored)
			}
			for name, want := range f.Files {
				if got := hex.EncodeToString(files[name]); got != want {
					t.Errorf("%s: %s\nwant %s", name, got, want)
				}
			}
			if _, ok := files[base+txnIndexSuffix]; ok != (f.Files[base+txnIndexSuffix] != "") {
				t.Errorf("transaction index is there: %v", ok)
			}
			reopenVector(t, fsys, d, &f)
		})
	}
}

func checkProducers(t *testing.T, l *Log, f *finalState) {
	t.Helper()
	got := l.producers.sorted()
	if len(got) != len(f.Producers) {
		t.Fatalf("%d producers, want %d", len(got), len(f.Producers))
	}
	for i, w := range f.Producers {
		p := got[i]
		g := fmt.Sprint(p.id, p.epoch, p.coordinatorEpoch, p.lastTimestamp, p.txnFirstOffset)
		want := fmt.Sprint(w.ProducerID, w.Epoch, w.CoordinatorEpoch, w.LastTimestamp, w.CurrentTxnFirstOffset)
		for j := range p.n {
			b := &p.batches[j]
			g += fmt.Sprint(" ", b.firstSequence(), b.lastSequence, b.firstOffset(), b.lastOffset, b.timestamp)
		}
		for _, b := range w.Batches {
			want += fmt.Sprint(" ", b.FirstSeq, b.LastSeq, b.FirstOffset, b.LastOffset, b.Timestamp)
		}
		if g != want {
			t.Errorf("producer %s\nwant     %s", g, want)
		}
	}
	var aborted []abortedEntry
	for _, s := range l.view.Load().segments {
		aborted = append(aborted, s.idx.aborted...)
	}
	want := []abortedEntry{}
	for _, a := range f.AbortedTxns {
		want = append(want, abortedEntry{a.ProducerID, a.FirstOffset, a.LastOffset, a.LastStableOffset})
	}
	if fmt.Sprint(aborted) != fmt.Sprint(want) {
		t.Errorf("aborted %v, want %v", aborted, want)
	}
}

// reopenVector opens the log again, first trusting it, then without its indexes and snapshots and not trusting it: both must know
// the same as before, and recovery must write the same small files again.
func reopenVector(t *testing.T, fsys *vfs.Mem, d *Dir, f *finalState) {
	t.Helper()
	before := contents(t, fsys, "d/t-0")
	if err := d.Close(7); err != nil {
		t.Fatal(err)
	}
	for _, clean := range []bool{true, false} {
		if !clean {
			for name := range before {
				if _, suffix, ok := parseSegmentName(name); ok && suffix != logSuffix {
					if err := fsys.Remove("d/t-0/" + name); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := fsys.Remove("d/" + cleanShutdownName); err != nil {
				t.Fatal(err)
			}
			if err := fsys.Remove("d/" + recoveryPointsName); err != nil {
				t.Fatal(err)
			}
		}
		d := newDir(t, fsys)
		if was, epoch := d.Clean(); was != clean || clean && epoch != 7 {
			t.Fatalf("clean %v, broker epoch %d", was, epoch)
		}
		dirs, err := d.Partitions()
		if err != nil || len(dirs) != 1 {
			t.Fatal(dirs, err)
		}
		l, r, err := d.Open(dirs[0], DefaultConfig(), time.UnixMilli(1700000000000))
		if err != nil {
			t.Fatal(err)
		}
		if r.TruncatedBytes != 0 || r.Recovered > 0 == clean {
			t.Errorf("recovery %+v", r)
		}
		if l.EndOffset() != f.LogEndOffset || l.TopicID() != (kafka.TopicID{1}) {
			t.Errorf("end %d, want %d", l.EndOffset(), f.LogEndOffset)
		}
		l.SetHighWatermark(l.EndOffset())
		if lso := l.LastStableOffset(l.HighWatermark()); lso != f.LastStableOffset {
			t.Errorf("clean %v: last stable offset %d, want %d", clean, lso, f.LastStableOffset)
		}
		if len(l.Producers()) != len(f.Producers) {
			t.Errorf("clean %v: %d producers, want %d", clean, len(l.Producers()), len(f.Producers))
		}
		if err := d.Close(7); err != nil {
			t.Fatal(err)
		}
		if after := contents(t, fsys, "d/t-0"); !maps.EqualFunc(before, after, bytes.Equal) {
			t.Errorf("clean %v: files changed: %v, now %v", clean, slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
			for name := range after {
				if !bytes.Equal(before[name], after[name]) {
					t.Errorf("%s: %x, now %x", name, before[name], after[name])
				}
			}
		}
	}
}
