package storageloop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
)

// pass lets time go by on the clock of a synctest bubble, until everything that was due then is done. Outside of one it panics.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func openDir(t *testing.T, fsys vfs.FS, path string) *storage.Dir {
	t.Helper()
	if err := fsys.MkdirAll(path); err != nil {
		t.Fatal(err)
	}
	d, err := storage.OpenDir(path, storage.Options{FS: fsys, Files: storage.NewFiles(fsys, 100), ProducerExpiration: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func appendTo(t testing.TB, l *storage.Log, producer int64, sequence int32) storage.Appended {
	t.Helper()
	o := record.DefaultBatchOptions(0)
	o.ProducerID, o.ProducerEpoch, o.BaseSequence = producer, 0, sequence
	b := record.NewBuilder(o)
	b.Append(time.Now().UnixMilli(), nil, []byte(strings.Repeat("v", 400)))
	batch, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	vo := l.Config().Validation(l.Partition(), record.Client, time.Now())
	v, err := record.Validate(batch, &vo)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Release()
	a, err := l.AppendAsLeader(v, storage.LeaderAppend{Now: time.Now(), Origin: record.Client})
	if err != nil {
		t.Fatal(err)
	}
	l.SetHighWatermark(l.EndOffset())
	return a
}

func names(t *testing.T, fsys vfs.FS, dir string) string {
	t.Helper()
	entries, err := fsys.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return strings.Join(out, " ")
}

func text(t *testing.T, fsys vfs.FS, name string) string {
	t.Helper()
	b, err := fsys.ReadFile(name, 1<<20)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// TestGapIsTold: half a minute after the start, once, a line names the offsets that are missing in the middle of a log.
func TestGapIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		dir := openDir(t, fsys, "d")
		c := storage.DefaultConfig()
		c.SegmentBytes = 1000
		if err := dir.Begin(); err != nil {
			t.Fatal(err)
		}
		log, err := dir.Create(kafka.TopicPartition{Topic: "t"}, kafka.TopicID{1}, c, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for i := range int32(30) {
			appendTo(t, log, 7, i)
		}
		if err := dir.Close(-1); err != nil {
			t.Fatal(err)
		}
		var bases []string
		for name := range strings.FieldsSeq(names(t, fsys, "d/t-0")) {
			if base, ok := strings.CutSuffix(name, ".log"); ok {
				bases = append(bases, base)
			}
		}
		if len(bases) < 4 {
			t.Fatalf("segments %v", bases)
		}
		if err := fsys.Remove("d/t-0/" + bases[1] + ".log"); err != nil {
			t.Fatal(err)
		}
		var lines bytes.Buffer
		dir = openDir(t, fsys, "d")
		loop := New(Options{Dirs: []*storage.Dir{dir}, Log: slog.New(slog.NewTextHandler(&lines, nil)), RetentionCheck: time.Minute})
		if err := loop.Load(t.Context(), func(kafka.TopicPartition) storage.Config { return c }); err != nil {
			t.Fatal(err)
		}
		loop.Start()
		loop.Start() // does nothing
		pass(5 * time.Minute)
		loop.Stop()
		want := "level=WARN msg=\"offsets are missing in the middle of a log"
		if n := strings.Count(lines.String(), want); n != 1 || !strings.Contains(lines.String(), "d/t-0/"+bases[2]+".log") {
			t.Errorf("said %d times:\n%s", n, lines.String())
		}
	})
}

// TestBackground lets two minutes of a node pass: a rolled segment is synced at once, flush.ms is kept, retention deletes and
// later removes, producers expire, checkpoints are written, a deleted partition goes after its delay.
func TestBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		dir := openDir(t, fsys, "d")
		loop := New(Options{Dirs: []*storage.Dir{dir}, Log: quiet, RetentionCheck: 10 * time.Second})
		c := storage.DefaultConfig()
		c.SegmentBytes, c.RetentionBytes, c.FileDeleteDelay, c.FlushInterval = 1000, 1000, 20*time.Second, 5*time.Second
		if err := loop.Load(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		loop.Start()
		log, err := dir.Create(kafka.TopicPartition{Topic: "t"}, kafka.TopicID{1}, c, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		gone, err := dir.Create(kafka.TopicPartition{Topic: "gone", Partition: 1}, kafka.TopicID{2}, c, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		name, err := dir.Delete(gone, [16]byte{0xab})
		if err != nil {
			t.Fatal(err)
		}
		loop.RemovePartition(dir, name, 30*time.Second)

		rolled := false
		for i := range int32(4) {
			if a := appendTo(t, log, 7, i); a.Rolled {
				rolled = true
				loop.Rolled(log)
			}
		}
		synctest.Wait()
		if !rolled || log.RecoveryPoint() == 0 {
			t.Errorf("rolled %v, recovery point %d: a rolled segment isn't synced", rolled, log.RecoveryPoint())
		}
		appendTo(t, log, 7, 4)
		time.Sleep(6500 * time.Millisecond)
		synctest.Wait()
		if log.RecoveryPoint() != 5 {
			t.Errorf("recovery point %d after flush.ms", log.RecoveryPoint())
		}
		if got := text(t, fsys, "d/replication-offset-checkpoint"); got != "0\n1\nt 0 5\n" {
			t.Errorf("high watermarks after 6.5 s: %q", got)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if log.StartOffset() == 0 || !strings.Contains(names(t, fsys, "d/t-0"), ".log.deleted") {
			t.Errorf("start %d, files %s after a retention check", log.StartOffset(), names(t, fsys, "d/t-0"))
		}
		if !strings.Contains(names(t, fsys, "d"), "gone-1.ab000000000000000000000000000000-delete") {
			t.Errorf("partitions %s before the delay", names(t, fsys, "d"))
		}
		time.Sleep(25 * time.Second)
		synctest.Wait()
		if got := names(t, fsys, "d/t-0"); strings.Contains(got, ".deleted") {
			t.Errorf("files %s after file.delete.delay.ms", got)
		}
		if got := names(t, fsys, "d"); strings.Contains(got, "gone") {
			t.Errorf("partitions %s after the delay", got)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if got := text(t, fsys, "d/recovery-point-offset-checkpoint"); got != "0\n1\nt 0 5\n" {
			t.Errorf("recovery points: %q", got)
		}
		if len(log.Producers()) != 1 {
			t.Error("the producer isn't known")
		}
		time.Sleep(71 * time.Minute)
		synctest.Wait()
		if len(log.Producers()) != 0 {
			t.Error("the producer isn't forgotten")
		}
		if err := loop.Close(9); err != nil {
			t.Fatal(err)
		}
		if got := text(t, fsys, "d/.kafka_cleanshutdown"); got != `{"version":0,"brokerEpoch":9}` {
			t.Errorf("clean shutdown: %q", got)
		}
		if again, err := storage.OpenDir("d", storage.Options{FS: fsys, Files: storage.NewFiles(fsys, 10)}); err != nil {
			t.Errorf("the lock was not given back: %v", err)
		} else if clean, epoch := again.Clean(); !clean || epoch != 9 {
			t.Errorf("clean %v, epoch %d", clean, epoch)
		}
	})
}

// TestLoad closes many logs in two directories cleanly, loads them, and loads them again after a crash.
func TestLoad(t *testing.T) {
	fsys := vfs.NewMem()
	config := func(kafka.TopicPartition) storage.Config { return storage.DefaultConfig() }
	for life := range 3 {
		dirs := []*storage.Dir{openDir(t, fsys, "a"), openDir(t, fsys, "b")}
		loop := New(Options{Dirs: dirs, Log: quiet, RecoveryThreads: 4})
		if err := loop.Load(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		for i := range 60 {
			p := kafka.TopicPartition{Topic: "t", Partition: int32(i)}
			d := dirs[i%2]
			if life == 0 {
				l, err := d.Create(p, kafka.TopicID{1}, storage.DefaultConfig(), time.Now())
				if err != nil {
					t.Fatal(err)
				}
				appendTo(t, l, 1, 0)
				continue
			}
			if l := d.Log(p); l == nil || l.EndOffset() != 1 || l.TopicID() != (kafka.TopicID{1}) {
				t.Fatalf("life %d: log of %v: %v", life, p, l)
			}
		}
		if life == 1 { // a kill
			loop.Stop()
			if err := errors.Join(dirs[0].Abandon(), dirs[1].Abandon()); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := loop.Close(1); err != nil {
			t.Fatal(err)
		}
	}
}

// TestForeignDirectory: a directory that is no partition's stops the start, in Kafka's words; lost+found is passed over.
func TestForeignDirectory(t *testing.T) {
	fsys := vfs.NewMem()
	for _, name := range []string{"d/lost+found", "d/photos"} {
		if err := fsys.MkdirAll(name); err != nil {
			t.Fatal(err)
		}
	}
	loop := New(Options{Dirs: []*storage.Dir{openDir(t, fsys, "d")}, Log: quiet})
	err := loop.Load(t.Context(), nil)
	var foreign *storage.ForeignDirError
	if !errors.As(err, &foreign) || !strings.HasPrefix(err.Error(), "Found directory d/photos, 'photos' is not in the form of topic-partition") {
		t.Fatal(err)
	}
}

// TestDirFailure: a failed sync takes its directory offline and nothing else, is reported once, and leaves no clean mark.
func TestDirFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, good := vfs.NewMem(), vfs.NewMem()
		dirs := []*storage.Dir{openDir(t, bad, "bad"), openDir(t, good, "good")}
		var mu sync.Mutex
		var failed []string
		loop := New(Options{Dirs: dirs, Log: quiet, DirFailed: func(d *storage.Dir, err error) {
			mu.Lock()
			defer mu.Unlock()
			failed = append(failed, d.Path())
		}})
		if err := loop.Load(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		loop.Start()
		c := storage.DefaultConfig()
		c.FlushInterval = time.Second
		logs := make([]*storage.Log, 2)
		for i, d := range dirs {
			l, err := d.Create(kafka.TopicPartition{Topic: fmt.Sprint("t", i)}, kafka.TopicID{1}, c, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			logs[i] = l
			appendTo(t, l, 1, 0)
		}
		bad.SetFault(vfs.FailNth(1, syscall.EIO, func(op vfs.Op) bool { return op.Kind == vfs.OpSync }))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		mu.Lock()
		if len(failed) != 1 || failed[0] != "bad" {
			t.Errorf("failed directories: %v", failed)
		}
		mu.Unlock()
		if logs[0].RecoveryPoint() != 0 || !errors.Is(logs[0].Err(), storage.ErrFailed) || !errors.Is(dirs[0].Err(), syscall.EIO) {
			t.Errorf("recovery point %d, log %v, directory %v", logs[0].RecoveryPoint(), logs[0].Err(), dirs[0].Err())
		}
		if logs[1].RecoveryPoint() != 1 || logs[1].Err() != nil {
			t.Errorf("the other log: %d, %v", logs[1].RecoveryPoint(), logs[1].Err())
		}
		if err := loop.Close(1); err != nil { // it was reported when it happened: the rest stops cleanly
			t.Errorf("close: %v", err)
		}
		if _, err := bad.Stat("bad/.kafka_cleanshutdown"); err == nil {
			t.Error("a failed directory was marked clean")
		}
		if _, err := good.Stat("good/.kafka_cleanshutdown"); err != nil {
			t.Error("the good directory isn't marked clean")
		}
	})
}
