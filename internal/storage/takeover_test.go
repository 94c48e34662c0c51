package storage

// Shows that a log that takes the place of its original, in another directory, has on the disk what the copied batches don't say.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/vfs"
)

// TestTakeOverInherits: a producer all of whose batches are gone, the log start, and the leader epochs are those of the original right after
// TakeOver, and after a power cut. A copy that doesn't end where the original does takes nothing over.
func TestTakeOverInherits(t *testing.T) {
	for _, batches := range []int{2, 9} { // in one segment, and in several
		t.Run(fmt.Sprint(batches), func(t *testing.T) { takeOver(t, batches) })
	}
}

func takeOver(t *testing.T, batches int) {
	now := time.UnixMilli(0)
	fsys := vfs.NewMem()
	c := DefaultConfig()
	c.SegmentBytes, c.RetentionBytes = 1000, 0
	_, l := faultLog(t, fsys, c)
	if err := fsys.MkdirAll("e"); err != nil {
		t.Fatal(err)
	}
	open := func(fsys *vfs.Mem) *Dir {
		t.Helper()
		d, err := OpenDir("e", Options{FS: fsys, Files: NewFiles(fsys, 64), ProducerExpiration: 24 * time.Hour})
		if err == nil {
			err = d.Begin()
		}
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	to := open(fsys)
	if err := fsys.SyncDir("."); err != nil {
		t.Fatal(err)
	}
	sequenced(t, l, 5)
	l.SetHighWatermark(5)
	if _, err := l.DeleteOldSegments(now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	c.RetentionBytes = -1
	l.SetConfig(c)
	write(t, l, batches, 300)
	l.SetHighWatermark(l.EndOffset())
	copied, err := to.CreateFuture(faultPartition, kafka.TopicID{1}, [16]byte{1}, c, now)
	if err != nil {
		t.Fatal(err)
	}
	catchUp := func() {
		t.Helper()
		for done := false; !done; {
			if _, done, _, err = copied.CopyFrom(l, 1<<20, nil, now); err != nil {
				t.Fatal(err)
			}
		}
	}
	catchUp()
	write(t, l, 1, 100)
	if err := copied.TakeOver(l); err == nil || to.Log(faultPartition) != nil || to.Future(faultPartition) != copied || copied.Err() != nil {
		t.Fatalf("a copy that lacks a batch has taken over: %v", err)
	}
	catchUp()
	if err := copied.PrepareTakeOver(); err != nil || copied.RecoveryPoint() != l.EndOffset() {
		t.Fatalf("recovery point %d of %d, %v", copied.RecoveryPoint(), l.EndOffset(), err)
	}
	if _, err := l.AdvanceStartOffset(6); err != nil || l.view.Load().segments[0].base == 6 {
		t.Fatal(err)
	}
	if err := copied.TakeOver(l); err != nil {
		t.Fatal(err)
	}
	state := func(l *Log) string {
		return fmt.Sprintf("[%d, %d) producers %+v epochs %v", l.StartOffset(), l.EndOffset(), l.producers.entries(), l.Epochs())
	}
	want := state(l)
	if got := state(copied); got != want || len(l.producers.entries()) != 1 {
		t.Errorf("after the takeover %s\noriginal %s", got, want)
	}
	for seed := range uint64(8) {
		d := open(fsys.Crash(rand.New(rand.NewPCG(seed, 2))))
		again, _, err := d.Open(faultDir, c, now)
		if err != nil {
			t.Fatal(err)
		}
		if got := state(again); got != want {
			t.Errorf("after a power cut %s\noriginal %s", got, want)
		}
	}
}

// TestCommonEnd: two logs are the same up to the end of the newest epoch that both have, in the one that ends it first.
func TestCommonEnd(t *testing.T) {
	f := func(a []EpochStart, aEnd kafka.Offset, b []EpochStart, bEnd, want kafka.Offset) {
		t.Helper()
		for range 2 {
			if got := commonEnd(a, aEnd, b, bEnd); got != want {
				t.Errorf("%v to %d, %v to %d: %d, want %d", a, aEnd, b, bEnd, got, want)
			}
			a, aEnd, b, bEnd = slices.Clone(b), bEnd, slices.Clone(a), aEnd
		}
	}
	one := []EpochStart{{1, 0}}
	f(one, 10, one, 10, 10)
	f(one, 10, one, 7, 7)
	f(one, 10, []EpochStart{{1, 0}, {2, 5}}, 20, 5)
	f([]EpochStart{{1, 0}, {3, 8}}, 10, []EpochStart{{1, 0}, {2, 5}}, 20, 5)
	f([]EpochStart{{1, 0}, {3, 8}}, 10, []EpochStart{{1, 0}, {2, 5}, {3, 8}}, 9, 9)
	f([]EpochStart{{1, 0}}, 10, []EpochStart{{2, 0}}, 10, -1)
	f(nil, 10, one, 10, -1)
}
