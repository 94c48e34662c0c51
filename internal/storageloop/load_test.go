package storageloop

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
)

// TestProgress: a start after a crash that takes long says how far it is and how long it will take, the largest logs go first, and
// what recovery has to say of single partitions is bounded.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		dir := openDir(t, fsys, "d")
		const logs = 250
		for i := range int32(logs) {
			l, err := dir.Create(kafka.TopicPartition{Topic: "t", Partition: i}, kafka.TopicID{1}, storage.DefaultConfig(), time.Now())
			if err != nil {
				t.Fatal(err)
			}
			for range 1 + 20*min(i/(logs-1), 1) { // the last one is large
				appendTo(t, l, -1, -1)
			}
			f, err := fsys.Open(l.Path()+"/00000000000000000000.log", vfs.ReadWrite)
			if err != nil {
				t.Fatal(err)
			}
			size, _ := f.Size()
			f.WriteAt([]byte("torn"), size)
			f.Close()
		}
		if err := dir.Abandon(); err != nil {
			t.Fatal(err)
		}
		dir = openDir(t, fsys, "d")
		var first string
		slow := false
		fsys.SetFault(func(op vfs.Op) error {
			if op.Kind == vfs.OpTruncate && strings.HasSuffix(op.Name, ".log") {
				if first == "" {
					first = op.Name
				}
				slow = true
				time.Sleep(100 * time.Millisecond)
			}
			return nil
		})
		var out bytes.Buffer
		loop := New(Options{Dirs: []*storage.Dir{dir}, Log: slog.New(slog.NewTextHandler(&out, nil)), RecoveryThreads: 1})
		if err := loop.Load(t.Context(), func(kafka.TopicPartition) storage.Config { return storage.DefaultConfig() }); err != nil {
			t.Fatal(err)
		}
		fsys.SetFault(nil)
		if !slow || first != "d/t-249/00000000000000000000.log" {
			t.Errorf("the first log recovered is %q, not the largest", first)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		var told, notes []string
		for _, l := range lines {
			if strings.Contains(l, `msg="loading logs"`) {
				told = append(told, l)
			}
			if strings.Contains(l, `msg="log recovery"`) {
				notes = append(notes, l)
			}
		}
		if len(told) != 2 || !strings.Contains(told[0], " remaining=15") || !strings.Contains(told[0], "secondsLeft=15") || !strings.Contains(told[1], "secondsLeft=5") {
			t.Errorf("progress after 10 and 20 of 25 seconds:\n%s", strings.Join(told, "\n"))
		}
		if len(notes) != maxNotes || !strings.Contains(out.String(), `"left out"=50`) {
			t.Errorf("%d notes of %d logs", len(notes), logs)
		}
		for _, want := range []string{"Attempting recovery for all logs in d since no clean shutdown file was found", "Loaded 250 logs in 25000ms", "recoveredSegments=250"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no line has %q:\n%s", want, lines[len(lines)-1])
			}
		}
		if err := loop.Close(1); err != nil {
			t.Fatal(err)
		}
		out.Reset()
		loop = New(Options{Dirs: []*storage.Dir{openDir(t, fsys, "d")}, Log: slog.New(slog.NewTextHandler(&out, nil))})
		if err := loop.Load(t.Context(), func(kafka.TopicPartition) storage.Config { return storage.DefaultConfig() }); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "Skipping recovery of 250 logs from d since clean shutdown file was found") || strings.Contains(out.String(), "log recovery") {
			t.Errorf("after a clean stop:\n%s", out.String())
		}
		if err := loop.Close(1); err != nil {
			t.Fatal(err)
		}
	})
}

func TestForecast(t *testing.T) {
	f := func(took time.Duration, done, logs int, read, left, want int64) {
		t.Helper()
		if got := forecast(took, done, logs, read, left); got != want {
			t.Errorf("after %v, %d of %d logs, %d bytes read and %d left: %d s, want %d", took, done, logs, read, left, got, want)
		}
	}
	f(10*time.Second, 0, 100, 0, 1000, -1)
	f(10*time.Second, 50, 100, 0, 0, 10)         // nothing to read, only files to open
	f(10*time.Second, 1, 100, 2000, 4000, 20)    // one large log says nothing of the small ones
	f(10*time.Second, 50, 100, 900, 90, 10)      // the rest is small, but many
	f(10*time.Second, 0, 1, 5_000, 15_000, 30)   // in the middle of the only one
	f(10*time.Second, 100, 100, 1_000_000, 0, 0) // done
}
