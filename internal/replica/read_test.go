package replica

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/schema"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
)

var consumer = Reader{Follower: -1, FollowerEpoch: -1}

// read reads and returns how far the records go: the offset after the last of them, or -1.
func read(t *testing.T, r *Replica, reader Reader, q ReadRequest) (next kafka.Offset, out Read, err error) {
	t.Helper()
	if q.MaxBytes == 0 {
		q.MaxBytes = 1 << 20
	}
	err = r.Read(t0, reader, q, &out)
	defer func() { out.Records.Release() }()
	next = -1
	if out.Records.FirstEntryIncomplete {
		return next, out, err
	}
	b := make([]byte, out.Records.Len())
	if _, err := out.Records.ReadAt(b, 0); len(b) > 0 && err != nil {
		t.Fatal(err)
	}
	for len(b) > 0 {
		batch, rest, err := record.Next(b)
		if err != nil || batch == nil {
			t.Fatalf("%d bytes are no batch: %v", len(b), err)
		}
		next, b = batch.LastOffset()+1, rest
	}
	return next, out, err
}

// What a reader sees ends at the high watermark, at the last stable offset, or for a follower at the log's end.
func TestReadBounds(t *testing.T) {
	w := newWorld(t)
	r := w.led(2)
	for range 3 {
		appendTo(t, r, 1, batch(t, 2, t0.UnixMilli(), -1, 0))
	}
	if _, err := w.fetch(r, 2, 4); err != nil {
		t.Fatal(err)
	}
	f := func(what string, reader Reader, q ReadRequest, next, hw kafka.Offset, want *kerr.Error) {
		t.Helper()
		q.LastFetchedEpoch = kafka.NoLeaderEpoch
		got, out, err := read(t, r, reader, q)
		wantErr(t, what, err, want)
		if got != next || err == nil && out.HighWatermark != hw {
			t.Errorf("%s: read up to %d, high watermark %d; want %d, %d", what, got, out.HighWatermark, next, hw)
		}
	}
	f("consumer", consumer, ReadRequest{LeaderEpoch: -1}, 4, 4, nil)
	f("consumer in the middle of a batch", consumer, ReadRequest{Offset: 3, LeaderEpoch: 0}, 4, 4, nil)
	f("consumer at the high watermark", consumer, ReadRequest{Offset: 4, LeaderEpoch: -1}, -1, 4, nil)
	f("consumer above the high watermark", consumer, ReadRequest{Offset: 5, LeaderEpoch: -1}, -1, 4, nil)
	f("consumer at the end", consumer, ReadRequest{Offset: 6, LeaderEpoch: -1}, -1, 4, nil)
	f("consumer above the end", consumer, ReadRequest{Offset: 7, LeaderEpoch: -1}, -1, 0, kerr.OffsetOutOfRange)
	f("consumer below zero", consumer, ReadRequest{Offset: -1, LeaderEpoch: -1}, -1, 0, kerr.OffsetOutOfRange)
	f("consumer of a later epoch", consumer, ReadRequest{LeaderEpoch: 1}, -1, 0, kerr.UnknownLeaderEpoch)
	f("one batch", consumer, ReadRequest{LeaderEpoch: -1, MaxBytes: 1, MinOneBatch: true}, 2, 4, nil)
	f("less than one batch", consumer, ReadRequest{LeaderEpoch: -1, MaxBytes: 1}, -1, 4, nil)
	f("committed", Reader{Follower: -1, Committed: true}, ReadRequest{LeaderEpoch: -1}, 4, 4, nil)
	f("follower", Reader{Follower: 2, FollowerEpoch: 102}, ReadRequest{LeaderEpoch: 0, Offset: 4}, 6, 4, nil)
	f("follower above the end", Reader{Follower: 2, FollowerEpoch: 102}, ReadRequest{LeaderEpoch: 0, Offset: 7}, -1, 0, kerr.OffsetOutOfRange)
	if r.HighWatermark() != 4 {
		t.Errorf("high watermark %d", r.HighWatermark())
	}

	w.apply(change(1, 0, func(c *schema.PartitionChangeRecord) { c.Leader = 2 }))
	f("consumer of a follower", consumer, ReadRequest{LeaderEpoch: -1}, -1, 0, kerr.NotLeaderOrFollower)
	f("consumer that may read anywhere", Reader{Follower: -1, AnyReplica: true}, ReadRequest{LeaderEpoch: 1}, 4, 4, nil)
	f("consumer of an older epoch", Reader{Follower: -1, AnyReplica: true}, ReadRequest{LeaderEpoch: 0}, -1, 0, kerr.FencedLeaderEpoch)
	f("follower of a follower", Reader{Follower: 3}, ReadRequest{LeaderEpoch: 1}, -1, 0, kerr.NotLeaderOrFollower)
}

// read_committed ends where a transaction is open.
func TestReadCommitted(t *testing.T) {
	w := newWorld(t)
	r := w.led()
	appendTo(t, r, 1, batch(t, 2, t0.UnixMilli(), -1, 0))
	o := record.DefaultBatchOptions(0)
	o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = 9, 0, 0, true
	b := record.NewBuilder(o)
	b.Append(t0.UnixMilli(), nil, []byte("in a transaction"))
	open, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if s := appendTo(t, r, 1, open); s.err != nil {
		t.Fatal(s.err)
	}
	appendTo(t, r, 1, batch(t, 2, t0.UnixMilli(), -1, 0))
	committed := Reader{Follower: -1, Committed: true}
	next, out, err := read(t, r, committed, ReadRequest{LeaderEpoch: -1, LastFetchedEpoch: -1})
	if next != 2 || out.LastStableOffset != 2 || out.HighWatermark != 5 || err != nil {
		t.Errorf("read up to %d, last stable %d, high watermark %d, %v", next, out.LastStableOffset, out.HighWatermark, err)
	}
	if got, _, err := r.Offset(committed, -1, LatestTimestamp); got.Offset != 2 || err != nil {
		t.Errorf("latest for read_committed is %d, %v", got.Offset, err)
	}
	if got := r.Available(committed, 2, -1, 100); got != 0 {
		t.Errorf("%d bytes are available above the last stable offset", got)
	}
}

// A follower whose history parts from the leader's is told where.
func TestReadDiverging(t *testing.T) {
	w := newWorld(t)
	r := w.led(2)
	add := func() { appendTo(t, r, 1, batch(t, 3, t0.UnixMilli(), -1, 0)) }
	add() // 0 to 2 in epoch 0
	for range 2 {
		w.apply(change(1, 0, func(c *schema.PartitionChangeRecord) { c.Leader = 2 }))
		w.apply(change(1, 0, func(c *schema.PartitionChangeRecord) { c.Leader = self }))
		add() // 3 to 5 in epoch 2, 6 to 8 in epoch 4
	}
	_, epoch := r.Leads()
	f := func(last kafka.LeaderEpoch, offset kafka.Offset, diverging bool, wantEpoch kafka.LeaderEpoch, wantEnd kafka.Offset) {
		t.Helper()
		next, out, err := read(t, r, Reader{Follower: 2, FollowerEpoch: 102}, ReadRequest{Offset: offset, LeaderEpoch: epoch, LastFetchedEpoch: last})
		if err != nil || out.Diverging != diverging || diverging && (out.DivergingEpoch != wantEpoch || out.DivergingEnd != wantEnd) || diverging != (next == -1) {
			t.Errorf("last %d, offset %d: up to %d, %v, %+v", last, offset, next, err, out)
		}
	}
	f(0, 3, false, 0, 0)
	f(0, 4, true, 0, 3)
	f(1, 4, true, 0, 3)
	f(2, 6, false, 0, 0)
	f(2, 7, true, 2, 6)
	f(3, 7, true, 2, 6)
	f(4, 8, false, 0, 0)
	f(4, 20, true, 4, 9)
	_, _, err := read(t, r, Reader{Follower: 2}, ReadRequest{Offset: 0, LeaderEpoch: epoch, LastFetchedEpoch: 9})
	wantErr(t, "an epoch that is still to come", err, kerr.OffsetOutOfRange)
	if r.Log().EndOffset() != 9 || r.HighWatermark() > 8 {
		t.Errorf("high watermark %d", r.HighWatermark())
	}
}

// What a follower asked for in one leader epoch doesn't count in the next: it may have to cut its log first.
func TestFetchAcrossEpochs(t *testing.T) {
	w := newWorld(t)
	r := w.led(2)
	appendTo(t, r, 1, batch(t, 3, t0.UnixMilli(), -1, 0))
	changed := false
	w.fsys.SetFault(func(o vfs.Op) error {
		if o.Kind == vfs.OpRead && !changed { // within the follower's Read
			changed = true
			w.apply(change(1, 0, func(c *schema.PartitionChangeRecord) { c.Leader = self; c.ISR = []int32{self, 2} }))
		}
		return nil
	})
	if _, err := w.fetch(r, 2, 2); err != nil {
		t.Fatal(err)
	}
	_, epoch := r.Leads()
	if !changed || epoch != 1 {
		t.Fatalf("epoch %d", epoch)
	}
	if r.HighWatermark() != 0 {
		t.Errorf("high watermark %d by a fetch of another epoch", r.HighWatermark())
	}
}

// All special timestamps, and times.
func TestOffset(t *testing.T) {
	w := newWorld(t)
	r := w.led(2)
	ms := t0.UnixMilli()
	appendTo(t, r, 1, batch(t, 1, ms+10, -1, 0)) // 0
	appendTo(t, r, 1, batch(t, 1, ms+30, -1, 0)) // 1
	appendTo(t, r, 1, batch(t, 1, ms+20, -1, 0)) // 2
	appendTo(t, r, 1, batch(t, 1, ms+40, -1, 0)) // 3, not committed
	if _, err := w.fetch(r, 2, 3); err != nil {
		t.Fatal(err)
	}
	f := func(reader Reader, timestamp int64, want storage.Timestamped, found bool) {
		t.Helper()
		got, ok, err := r.Offset(reader, -1, timestamp)
		if err != nil || ok != found || got != want {
			t.Errorf("%d: %+v, found %v, %v; want %+v", timestamp, got, ok, err, want)
		}
	}
	none := storage.Timestamped{Offset: -1, Timestamp: -1, Epoch: -1}
	follower := Reader{Follower: 2}
	f(consumer, LatestTimestamp, storage.Timestamped{Offset: 3, Timestamp: -1, Epoch: 0}, true)
	f(follower, LatestTimestamp, storage.Timestamped{Offset: 4, Timestamp: -1, Epoch: 0}, true)
	f(consumer, EarliestTimestamp, storage.Timestamped{Offset: 0, Timestamp: -1, Epoch: 0}, true)
	f(consumer, EarliestLocalTimestamp, storage.Timestamped{Offset: 0, Timestamp: -1, Epoch: 0}, true)
	f(consumer, LatestTieredTimestamp, none, false)
	f(consumer, EarliestPendingUpload, none, false)
	f(follower, MaxTimestamp, storage.Timestamped{Offset: 3, Timestamp: ms + 40, Epoch: 0}, true)
	f(consumer, MaxTimestamp, none, false) // it is not committed yet
	f(consumer, 0, storage.Timestamped{Offset: 0, Timestamp: ms + 10, Epoch: 0}, true)
	f(consumer, ms+11, storage.Timestamped{Offset: 1, Timestamp: ms + 30, Epoch: 0}, true)
	f(consumer, ms+30, storage.Timestamped{Offset: 1, Timestamp: ms + 30, Epoch: 0}, true)
	f(consumer, ms+31, none, false)
	f(follower, ms+31, storage.Timestamped{Offset: 3, Timestamp: ms + 40, Epoch: 0}, true)
	f(consumer, ms+41, none, false)

	// A leader that is new doesn't tell the latest offset before it knows what its predecessor told.
	w.apply(change(1, 0, func(c *schema.PartitionChangeRecord) { c.Leader = 2 }))
	_, _, err := r.Offset(consumer, -1, LatestTimestamp)
	wantErr(t, "of a follower", err, kerr.NotLeaderOrFollower)
	w.apply(change(1, 0, func(c *schema.PartitionChangeRecord) { c.Leader = self }))
	for _, ts := range []int64{LatestTimestamp, ms + 31, MaxTimestamp} {
		_, _, err = r.Offset(consumer, -1, ts)
		wantErr(t, "of a new leader", err, kerr.OffsetNotAvailable)
	}
	f(consumer, 0, storage.Timestamped{Offset: 0, Timestamp: ms + 10, Epoch: 0}, true)
	f(consumer, EarliestTimestamp, storage.Timestamped{Offset: 0, Timestamp: -1, Epoch: 0}, true)
	_, _, err = r.Offset(consumer, 1, LatestTimestamp)
	wantErr(t, "of an older epoch", err, kerr.FencedLeaderEpoch)
	if _, err := w.fetch(r, 2, 4); err != nil {
		t.Fatal(err)
	}
	f(consumer, LatestTimestamp, storage.Timestamped{Offset: 4, Timestamp: -1, Epoch: 2}, true)
	f(consumer, MaxTimestamp, storage.Timestamped{Offset: 3, Timestamp: ms + 40, Epoch: 0}, true)

	if e, end, err := r.EndOffsetForEpoch(2, 0); e != 0 || end != 4 || err != nil {
		t.Errorf("epoch 0 ends at %d (%d), %v", end, e, err)
	}
	_, _, err = r.EndOffsetForEpoch(3, 0)
	wantErr(t, "end of an epoch for a reader ahead", err, kerr.UnknownLeaderEpoch)
}

// A disk that refuses a read takes the replica offline.
func TestReadFails(t *testing.T) {
	for what, f := range map[string]func(r *Replica) error{
		"read": func(r *Replica) error {
			_, _, err := read(t, r, consumer, ReadRequest{LeaderEpoch: -1, LastFetchedEpoch: -1, Offset: 3})
			return err
		},
		"offset": func(r *Replica) error {
			_, _, err := r.Offset(consumer, -1, t0.UnixMilli())
			return err
		},
	} {
		w := newWorld(t)
		r := w.led()
		appendTo(t, r, 1, batch(t, 5, t0.UnixMilli(), -1, 0))
		appendTo(t, r, 1, batch(t, 5, t0.UnixMilli(), -1, 0))
		w.fsys.SetFault(func(o vfs.Op) error {
			if o.Kind == vfs.OpRead || o.Kind == vfs.OpOpen {
				return errors.New("bad block")
			}
			return nil
		})
		wantErr(t, what, f(r), kerr.KafkaStorageError)
		if len(w.failed) != 1 {
			t.Errorf("%s: failed %v", what, w.failed)
		}
	}
}

// No wake-up is lost: a poll that looks, watches, and looks again sees every append, either with its own eyes or because it is
// told. Several poll while several append; with the race detector this also shows that Watch and Unwatch may race with all.
func TestWatchLosesNothing(t *testing.T) {
	w := newWorld(t)
	r := w.led()
	const appenders, each, pollers = 3, 60, 4
	var wg sync.WaitGroup
	for range appenders {
		wg.Go(func() {
			for range each {
				if s := appendTo(t, r, -1, batch(t, 1, t0.UnixMilli(), -1, 0)); s.err != nil || s.state() != "ok" {
					t.Error(s.err, s.state())
				}
			}
		})
	}
	for i := range pollers {
		wg.Go(func() {
			reader := consumer
			for next := kafka.Offset(0); next < appenders*each; {
				news := make(chan struct{}, 1)
				watch := &Watch{Log: i%2 == 0, Notify: func() {
					select {
					case news <- struct{}{}:
					default:
					}
				}}
				r.Watch(watch)
				if r.Available(reader, next, -1, 1) == 0 {
					<-news // the test hangs if it is lost
				}
				watch.Unwatch()
				got, _, err := read(t, r, reader, ReadRequest{Offset: next, LeaderEpoch: -1, LastFetchedEpoch: -1})
				if err != nil {
					t.Error(err)
					return
				}
				next = max(next, got)
			}
		})
	}
	wg.Wait()
	if n := len(r.consumers) + len(r.followers); n != 0 {
		t.Errorf("%d watches are left", n)
	}
}

// Everything at once on one partition, for the race detector: appends with all acks, fetches of two followers, changes of
// leadership and configuration, long polls. At the end every ack is settled, and those that were told "ok" are in the log.
func TestConcurrent(t *testing.T) {
	w := newWorld(t)
	r := w.led(2, 3)
	var stop atomic.Bool
	var others, appenders sync.WaitGroup
	var mu sync.Mutex
	var all []*sent
	for i := range 3 {
		appenders.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 4))
			for range 150 {
				s := appendTo(t, r, int16(rng.IntN(3)-1), batch(t, 1+rng.IntN(3), t0.UnixMilli(), -1, 0))
				if s.err == nil && s.ack != nil {
					mu.Lock()
					all = append(all, s)
					mu.Unlock()
				}
			}
		})
	}
	for id := kafka.BrokerID(2); id <= 3; id++ {
		others.Go(func() {
			for offset := kafka.Offset(0); !stop.Load(); {
				_, epoch := r.Leads()
				next, _, err := read(t, r, Reader{Follower: id, FollowerEpoch: 100 + kafka.BrokerEpoch(id)}, ReadRequest{Offset: offset, LeaderEpoch: epoch, LastFetchedEpoch: -1})
				if err == nil {
					offset = max(offset, next)
				}
			}
		})
	}
	others.Go(func() {
		for i := 0; !stop.Load(); i++ {
			watch := &Watch{Log: i%2 == 0, Notify: func() {}}
			r.Watch(watch)
			r.Available(consumer, r.HighWatermark(), -1, 100)
			_, _, _ = r.Offset(consumer, -1, LatestTimestamp)
			watch.Unwatch()
		}
	})
	appended := make(chan struct{})
	go func() { appenders.Wait(); close(appended) }()
	for i := 0; ; i++ {
		done := false
		select {
		case <-appended:
			done = true
		default:
			leader := []int32{self, self, self, 2}[i%4]
			w.apply(change(1, 0, func(c *schema.PartitionChangeRecord) { c.Leader, c.ISR = leader, []int32{self, 2, 3} }))
			w.set.Configure(t0, w.set.Image(), "a")
			r.Tick(t0)
		}
		if done {
			break
		}
	}
	stop.Store(true)
	others.Wait()
	w.apply(change(1, 0, func(c *schema.PartitionChangeRecord) { c.Leader = -1 })) // fails what still waits
	ok := 0
	for _, s := range all {
		switch settled, err := s.ack.Result(); {
		case !settled || s.woken > 1:
			t.Errorf("append at %d: settled %v, woken %d", s.FirstOffset, settled, s.woken)
		case err == nil:
			ok++
			if s.LastOffset >= r.HighWatermark() {
				t.Errorf("append at %d is acknowledged above the high watermark %d", s.FirstOffset, r.HighWatermark())
			}
		case !errors.Is(err, kerr.NotLeaderOrFollower):
			t.Error(err)
		}
	}
	t.Logf("%d of %d acknowledged, the log ends at %d", ok, len(all), r.Log().EndOffset())
}
