package osfs

import (
	"errors"
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
