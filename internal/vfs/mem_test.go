package vfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/highwater/highwater/internal/vfs"
	"github.com/highwater/highwater/internal/vfs/vfstest"
)

func TestConformance(t *testing.T) {
	vfstest.Run(t, func(t *testing.T) vfs.FS { return vfs.NewMem() })
}

func rng(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

func write(t *testing.T, m vfs.FS, name, content string, sync bool) {
	t.Helper()
	f, err := m.Create(name)
	if err == nil {
		_, err = f.WriteAt([]byte(content), 0)
	}
	if err == nil && sync {
		err = f.Sync()
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// outcomes crashes what build makes 300 times and counts the states that look finds.
func outcomes(t *testing.T, build func(m *vfs.Mem), look func(m *vfs.Mem) string) map[string]int {
	t.Helper()
	seen := map[string]int{}
	for seed := range uint64(300) {
		m := vfs.NewMem()
		build(m)
		seen[look(m.Crash(rng(seed)))]++
	}
	return seen
}

func look(name string) func(m *vfs.Mem) string {
	return func(m *vfs.Mem) string {
		b, err := m.ReadFile(name, 1<<20)
		if errors.Is(err, fs.ErrNotExist) {
			return "gone"
		}
		return string(b)
	}
}

// TestCrashNames: what SyncDir saw stays; anything else may be there or not, and both happen.
func TestCrashNames(t *testing.T) {
	safe := func(m *vfs.Mem) {
		write(t, m, "a", "old", true)
		if err := m.SyncDir("."); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name  string
		build func(m *vfs.Mem)
		want  []string
	}{
		{"synced", safe, []string{"old"}},
		{"created", func(m *vfs.Mem) { write(t, m, "a", "new", true) }, []string{"new", "gone"}},
		{"removed", func(m *vfs.Mem) { safe(m); m.Remove("a") }, []string{"old", "gone"}},
		{"replaced", func(m *vfs.Mem) { safe(m); write(t, m, "b", "new", true); m.Rename("b", "a") }, []string{"old", "new"}},
		{"atomic", func(m *vfs.Mem) {
			safe(m)
			if err := vfs.WriteFileAtomic(m, ".", "a", []byte("new")); err != nil {
				t.Fatal(err)
			}
		}, []string{"new"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen := outcomes(t, c.build, look("a"))
			for _, w := range c.want {
				if seen[w] == 0 {
					t.Errorf("%q never happened: %v", w, seen)
				}
				delete(seen, w)
			}
			if len(seen) > 0 {
				t.Errorf("impossible states: %v", seen)
			}
		})
	}
}

// TestCrashAtEveryOperation cuts an atomic replacement at each operation: old or new, never a mix, and no name is doubled.
func TestCrashAtEveryOperation(t *testing.T) {
	seen := map[string]int{}
	for cut := 0; ; cut++ {
		finished := false
		for seed := range uint64(50) {
			m := vfs.NewMem()
			write(t, m, "a", "old", true)
			m.SyncDir(".")
			m.CutAfter(cut)
			err := vfs.WriteFileAtomic(m, ".", "a", []byte("new"))
			if err != nil && !errors.Is(err, vfs.ErrPowerCut) {
				t.Fatal(err)
			}
			finished = err == nil
			got := look("a")(m.Crash(rng(seed)))
			if got != "old" && got != "new" || finished && got != "new" {
				t.Fatalf("cut after %d, seed %d: %q", cut, seed, got)
			}
			seen[got]++
		}
		if finished {
			break
		}
	}
	if seen["old"] == 0 || seen["new"] == 0 {
		t.Fatal(seen)
	}
}

// TestCrashData: synced bytes stay; unsynced blocks are kept or lost one by one, and a last write may be torn.
func TestCrashData(t *testing.T) {
	const block = 4096
	seen := outcomes(t, func(m *vfs.Mem) {
		write(t, m, "a", strings.Repeat("s", block), true)
		m.SyncDir(".")
		f, _ := m.Open("a", vfs.ReadWrite)
		f.WriteAt([]byte(strings.Repeat("1", block)), block)
		f.WriteAt([]byte(strings.Repeat("2", block)), 2*block)
	}, func(m *vfs.Mem) string {
		b, err := m.ReadFile("a", 1<<20)
		if err != nil || len(b) < block || strings.Trim(string(b[:block]), "s") != "" {
			t.Fatalf("synced bytes are lost: %d bytes, %v", len(b), err)
		}
		// One letter a part: s, 1, 2 whole, . nothing, - zeros, ~ a mix.
		out := ""
		for i, want := range []string{"1", "2"} {
			part := b[min(len(b), (i+1)*block):min(len(b), (i+2)*block)]
			switch s := string(part); {
			case len(s) == 0:
				out += "."
			case strings.Trim(s, want) == "" && len(s) == block:
				out += want
			case strings.Trim(s, "\x00") == "":
				out += "-"
			case strings.Trim(s, want+"\x00") == "":
				out += "~"
			default:
				t.Fatalf("foreign bytes in part %d: %q", i, s[:20])
			}
		}
		return out
	})
	for _, w := range []string{"..", "12", "1.", "-2", "1~", "~~"} {
		if seen[w] == 0 {
			t.Errorf("%q never happened: %v", w, seen)
		}
	}
}

func TestCrashIsReproducible(t *testing.T) {
	state := func() string {
		m := vfs.NewMem()
		for i := range 20 {
			m.MkdirAll(fmt.Sprint("d", i%3))
			write(t, m, fmt.Sprintf("d%d/f%d", i%3, i), strings.Repeat("x", 3000), i%2 == 0)
		}
		c := m.Crash(rng(3))
		out := ""
		for i := range 20 {
			b, err := c.ReadFile(fmt.Sprintf("d%d/f%d", i%3, i), 1<<20)
			out += fmt.Sprintf("%q %v\n", b, err)
		}
		return out
	}
	a := state()
	for range 5 {
		if state() != a {
			t.Fatal("the same seed gave another crash")
		}
	}
}

func TestOldHandlesAfterCrash(t *testing.T) {
	m := vfs.NewMem()
	f, _ := m.Create("a")
	m.Crash(rng(1))
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, vfs.ErrPowerCut) {
		t.Fatal(err)
	}
	if _, err := m.Create("b"); !errors.Is(err, vfs.ErrPowerCut) {
		t.Fatal(err)
	}
}

// TestFailedSync is fsyncgate: after a failed Sync programs still see the data, the next Sync succeeds, and the data is gone
// with the power.
func TestFailedSync(t *testing.T) {
	m := vfs.NewMem()
	f, _ := m.Create("a")
	m.SyncDir(".")
	m.SetFault(vfs.FailNth(1, syscall.EIO, func(op vfs.Op) bool { return op.Kind == vfs.OpSync }))
	f.WriteAt([]byte("data"), 0)
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := look("a")(m); got != "data" {
		t.Fatal(got)
	}
	if got := look("a")(m.Crash(rng(1))); got != "" {
		t.Fatalf("%q survived", got)
	}
}

func TestFaults(t *testing.T) {
	m := vfs.NewMem()
	m.SetFault(vfs.FailNth(2, syscall.EIO, func(op vfs.Op) bool { return op.Kind == vfs.OpWrite && op.Name == "a" }))
	f, _ := m.Create("a")
	if _, err := f.WriteAt([]byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("2"), 0); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("3"), 1); err != nil || look("a")(m) != "13" {
		t.Fatal(err)
	}
	m.SetCapacity(6)
	if n, err := f.WriteAt([]byte("456789"), 2); n != 4 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(n, err)
	}
	if err := f.Allocate(7); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err := f.Truncate(2); err != nil {
		t.Fatal(err)
	}
	if _, free, _ := m.Space("."); free != 4 {
		t.Fatal(free)
	}
	if err := m.FlipBit("a", 8); err != nil || look("a")(m) != "12" {
		t.Fatal(err, look("a")(m))
	}
}

// TestSyncAll: everything below the directory is safe, whatever became of it before, and nothing beside it. One that fails loses what was
// unsynced in files, and one that isn't supported does nothing.
func TestSyncAll(t *testing.T) {
	build := func(fault error) func(m *vfs.Mem) {
		return func(m *vfs.Mem) {
			m.MkdirAll("d/p")
			m.MkdirAll("d/q")
			m.SyncDir(".")
			s, err := m.OpenSyncer("d")
			if err != nil {
				t.Fatal(err)
			}
			write(t, m, "d/p/moved", "twice", false)
			write(t, m, "d/p/gone", "x", false)
			write(t, m, "d/p/cut", "xx", false)
			write(t, m, "beside", "x", false)
			m.Rename("d/p/moved", "d/q/moved")
			m.Rename("d/q/moved", "d/moved")
			m.Remove("d/p/gone")
			f, _ := m.Open("d/p/cut", vfs.ReadWrite)
			f.Truncate(1)
			if fault != nil {
				m.SetFault(vfs.FailNth(1, fault, func(op vfs.Op) bool { return op.Kind == vfs.OpSyncAll }))
			}
			if err := s.SyncAll(); !errors.Is(err, fault) {
				t.Fatal(err)
			}
		}
	}
	names := func(m *vfs.Mem) string {
		return look("d/moved")(m) + " " + look("d/p/cut")(m) + " " + look("d/p/moved")(m) + " " + look("d/q/moved")(m) + " " + look("d/p/gone")(m)
	}
	if got := outcomes(t, build(nil), names); len(got) != 1 || got["twice x gone gone gone"] != 300 {
		t.Errorf("after a sync of everything: %v", got)
	}
	if got := outcomes(t, build(nil), look("beside")); len(got) < 2 {
		t.Errorf("what lies beside the directory: %v", got)
	}
	for fault, lost := range map[error]bool{syscall.EIO: true, errors.ErrUnsupported: false} {
		got := outcomes(t, build(fault), look("d/moved"))
		if (got["twice"] == 0) != lost || got["gone"] == 0 {
			t.Errorf("after %v: %v", fault, got)
		}
	}
}
