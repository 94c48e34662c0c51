package osfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/highwater/highwater/internal/vfs"
	"github.com/highwater/highwater/internal/vfs/vfstest"
)

func TestConformance(t *testing.T) {
	vfstest.Run(t, func(t *testing.T) vfs.FS { return New(t.TempDir()) })
}

// TestLockAcrossProcesses runs itself again as another process, which must find the lock taken, and free after it is given
// back. That second process is also why opening and closing the file elsewhere in this process must not happen.
func TestLockAcrossProcesses(t *testing.T) {
	if name := os.Getenv("OSFS_LOCK"); name != "" {
		l, err := New("").Lock(name)
		if errors.Is(err, vfs.ErrLocked) {
			os.Exit(7)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Unlock(); err != nil {
			t.Fatal(err)
		}
		return
	}
	name := filepath.Join(t.TempDir(), ".lock")
	other := func() int {
		t.Helper()
		c := exec.Command(os.Args[0], "-test.run=^TestLockAcrossProcesses$")
		c.Env = append(os.Environ(), "OSFS_LOCK="+name)
		out, err := c.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatalf("%v: %s", err, out)
		}
		return c.ProcessState.ExitCode()
	}
	l, err := New("").Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New("").Lock(name); !errors.Is(err, vfs.ErrLocked) {
		t.Fatal("a second lock in this process:", err)
	}
	if got := other(); got != 7 {
		t.Fatalf("the other process ended with %d: the lock doesn't exclude it", got)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	if got := other(); got != 0 {
		t.Fatalf("the other process ended with %d after the lock was given back", got)
	}
}

// TestList compares List with the standard library's, over more names than one call of the kernel gives.
func TestList(t *testing.T) {
	dir := t.TempDir()
	for i := range 3000 {
		name := filepath.Join(dir, fmt.Sprintf("%0*d", 1+i%200, i))
		switch i % 50 {
		case 0:
			if err := os.Mkdir(name, 0o755); err != nil {
				t.Fatal(err)
			}
		case 1:
			if err := os.Symlink("nowhere", name); err != nil {
				t.Fatal(err)
			}
		default:
			if err := os.WriteFile(name, []byte("x"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, err := New(dir).List(".")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("%d names, want %d", len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		if g.Name() != w.Name() || g.IsDir() != w.IsDir() || g.Type() != w.Type() {
			t.Fatalf("%v, want %v", g, w)
		}
		if i%500 == 0 {
			info, err := g.Info()
			if err != nil || info.Name() != w.Name() {
				t.Error(info, err)
			}
		}
	}
	if _, err := New(dir).List("missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestReadFileSizes reads around the size up to which one call is enough.
func TestReadFileSizes(t *testing.T) {
	fsys := New(t.TempDir())
	for _, n := range []int{0, 1, 4095, 4096, 4097, 100_000} {
		name := fmt.Sprint("f", n)
		f, err := fsys.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		data := bytes.Repeat([]byte("abc"), n/3+1)[:n]
		if _, err := f.WriteAt(data, 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if b, err := fsys.ReadFile(name, int64(n)); err != nil || !bytes.Equal(b, data) {
			t.Errorf("%d bytes: %d, %v", n, len(b), err)
		}
		if _, err := fsys.ReadFile(name, int64(n)-1); !errors.Is(err, vfs.ErrTooLarge) {
			t.Errorf("%d bytes, one too many: %v", n, err)
		}
	}
}
