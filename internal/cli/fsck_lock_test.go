package cli

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/vfs/osfs"
)

func fsckNow(t testing.TB) time.Time {
	t.Helper()
	return time.UnixMilli(1_800_000_000_000)
}

// TestFsckLocked lets another process have a directory's lock, as a running broker does.
func TestFsckLocked(t *testing.T) {
	dir := unpackData(t, "jbod-4.4") + "/1/a"
	c := exec.Command(os.Args[0], "-test.run=^TestFsckLockHolder$", "-test.v")
	c.Env = append(os.Environ(), "FSCK_LOCK="+dir+"/.lock")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	locked := false
	for s := bufio.NewScanner(out); !locked && s.Scan(); {
		locked = strings.Contains(s.Text(), "LOCKED")
	}
	if !locked {
		t.Fatal("the other process has no lock")
	}
	status, stdout, stderr := fsckTool(dir)
	if status != 2 || stdout != "" || !strings.Contains(stderr, fmt.Sprintf("process %d has %s open", c.Process.Pid, dir)) || !strings.Contains(stderr, "--force") {
		t.Errorf("status %d\n%s%s", status, stdout, stderr)
	}
	if status, _, _ := fsckTool(dir + "/__cluster_metadata-0"); status != 2 {
		t.Errorf("a partition's directory in a locked one: status %d", status)
	}
	status, stdout, _ = fsckTool("--force", dir)
	if status != 0 || !strings.Contains(stdout, "changing while they were read") || !strings.Contains(stdout, "in use") {
		t.Errorf("status %d\n%s", status, stdout)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	if status, _, stderr := fsckTool(dir); status != 0 {
		t.Errorf("after the lock is given back: status %d\n%s", status, stderr)
	}
}

// TestFsckLockHolder is the other process: it holds a lock until its standard input ends. Without one to hold it is done.
func TestFsckLockHolder(t *testing.T) {
	name := os.Getenv("FSCK_LOCK")
	if name == "" {
		return
	}
	l, err := osfs.New("").Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("LOCKED")
	bufio.NewScanner(os.Stdin).Scan()
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
}
