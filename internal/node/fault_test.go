package node_test

// Shows that whatever call of the disk fails while a node starts, serves or stops, it says what failed, by name, and that the next
// start has everything that was acknowledged.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/node"
	"github.com/highwater/highwater/internal/vfs"
)

// faulty is a node on a disk in memory that fails when told.
type faulty struct {
	c    *config.Broker
	fsys *vfs.Mem
	out  lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// formatMem is format in memory, of two log directories.
func formatMem(t *testing.T) *faulty {
	t.Helper()
	c := configure(t, "m", "log.dirs=m/one,m/two", "offsets.topic.replication.factor=1")
	fsys := vfs.NewMem()
	formatOn(t, fsys, c)
	for _, d := range []string{".", "m", "m/one"} {
		if err := fsys.SyncDir(d); err != nil {
			t.Fatal(err)
		}
	}
	return &faulty{c: c, fsys: fsys}
}

func (f *faulty) start(t *testing.T, wait time.Duration) (*node.Node, error) {
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	return node.Start(ctx, node.Options{Config: f.c, FS: f.fsys, Log: slog.New(slog.NewTextHandler(&f.out, nil))})
}

func (f *faulty) stop(n *node.Node) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return n.Stop(ctx)
}

// TestEveryDiskCallFails lets one call of the disk after the other fail, from a start over a produce to a stop.
func TestEveryDiskCallFails(t *testing.T) {
	const partitions = 6
	base := formatMem(t)
	n, err := base.start(t, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	cl := client(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, partitions, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	acked := 0
	for acked < 2*partitions {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Partition: int32(acked % partitions), Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		acked++
	}
	cl.Close()
	if err := base.stop(n); err != nil {
		t.Fatal(err)
	}

	// How many calls are there?
	whole := acked
	rng := rand.New(rand.NewPCG(1, 1))
	calls := 0
	round := func(fault func(op vfs.Op) error) (f *faulty, hit string, startErr, stopErr error) {
		f = &faulty{c: base.c, fsys: base.fsys.Crash(rng)} // all is synced: a copy
		acked = whole
		var mu sync.Mutex
		calls = 0
		f.fsys.SetFault(func(op vfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			calls++
			err := fault(op)
			if err != nil && hit == "" {
				hit = op.Kind.String() + " " + op.Name
			}
			return err
		})
		n, err := f.start(t, 5*time.Second)
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			return f, hit, err, nil
		}
		cl := client(t, n, kgo.RetryTimeout(time.Second), kgo.RecordDeliveryTimeout(time.Second), kgo.ProduceRequestTimeout(time.Second), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
		pctx, done := context.WithTimeout(ctx, 2*time.Second)
		var taken atomic.Int32
		for i := range partitions {
			cl.Produce(pctx, &kgo.Record{Topic: "t", Partition: int32(i), Value: []byte("v")}, func(_ *kgo.Record, err error) {
				if err == nil {
					taken.Add(1)
				}
			})
		}
		_ = cl.Flush(pctx)
		done()
		cl.Close()
		acked += int(taken.Load())
		stopErr = f.stop(n)
		mu.Lock()
		defer mu.Unlock()
		return f, hit, nil, stopErr
	}
	if _, _, err1, err2 := round(func(vfs.Op) error { return nil }); err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	total := calls
	t.Logf("%d calls of the disk", total)
	rounds := 48
	if testing.Short() {
		rounds = 12
	}
	for i := range rounds {
		at, always := 1+i*total/rounds, i%2 == 1
		begin := time.Now()
		cause := []error{syscall.EIO, syscall.EIO, syscall.EACCES, syscall.ENOSPC}[i%4]
		f, hit, startErr, stopErr := round(func(op vfs.Op) error {
			if calls == at || always && calls > at {
				return fmt.Errorf("%s %s: %w", op.Kind, op.Name, cause) // as the operating system's errors have it
			}
			return nil
		})
		what := fmt.Sprintf("%v at call %d (%s), always %v", cause, at, hit, always)
		said := f.out.String()
		if startErr != nil {
			said += startErr.Error()
		}
		if stopErr != nil {
			said += stopErr.Error()
		}
		if took := time.Since(begin); took > 9*time.Second || errors.Is(startErr, context.DeadlineExceeded) {
			t.Errorf("%s: start and stop took %v:\n%s", what, took, said)
		}
		if (startErr != nil || stopErr != nil) && !strings.Contains(said, "m/") {
			t.Errorf("%s: nothing names a file:\n%s", what, said)
		}
		want := acked
		f.fsys.SetFault(nil)
		n, err := f.start(t, 20*time.Second)
		if err != nil {
			t.Fatalf("%s: started again: %v\nbefore: %s", what, err, said)
		}
		if got := count(t, ctx, n, partitions); got < want {
			t.Errorf("%s: %d records of %d that were acknowledged are there\n%s", what, got, want, said)
		}
		if err := f.stop(n); err != nil {
			t.Errorf("%s: stopped again: %v", what, err)
		}
	}
}

// count is how many records topic t has.
func count(t *testing.T, ctx context.Context, n *node.Node, partitions int32) int {
	t.Helper()
	cl := client(t, n)
	defer cl.Close()
	var ends kadm.ListedOffsets
	for begin := time.Now(); ; { // until all have a leader
		var err error
		if ends, err = kadm.NewClient(cl).ListEndOffsets(ctx, "t"); err == nil {
			err = ends.Error()
		}
		if err == nil {
			break
		}
		if time.Since(begin) > 10*time.Second {
			t.Fatal(err)
		}
	}
	sum, read := 0, 0
	ends.Each(func(o kadm.ListedOffset) { sum += int(o.Offset) })
	reader := client(t, n, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer reader.Close()
	for read < sum {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		read += fetches.NumRecords()
	}
	return read
}
