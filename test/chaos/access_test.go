package chaos

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/highwater/highwater/test/peer"
)

// nobody is a user to whom modes apply, which they do not to root.
const nobody = "65534"

// readOnly makes a directory one of a file system that can't be written.
func readOnly(t *testing.T, dir string) {
	t.Helper()
	sh(t, "mount", "--bind", dir, dir)
	t.Cleanup(func() { sh(t, "umount", dir) })
	sh(t, "mount", "-o", "remount,bind,ro", dir)
}

// unreadable takes everybody's rights to a directory away; the node that runs then is nobody's.
func unreadable(t *testing.T, dir string) {
	t.Helper()
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Error(err)
		}
	})
}

// TestAccess starts a node one of whose log directories can't be written or read: if it is the one of the metadata log, or the only one,
// there is one error that names it and the way out; else the others serve, and it is left as it is.
func TestAccess(t *testing.T) {
	if peer.Software(*brokerFlag) == peer.Kafka {
		t.Log("it is Highwater's errors that are looked at")
		return
	}
	home := t.TempDir()
	for d := home; d != filepath.Dir(os.TempDir()) && d != "/"; d = filepath.Dir(d) { // nobody must get there
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	binary, err := peer.Binary()
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(home, "highwater") // where nobody can reach it
	sh(t, "cp", binary, own)
	nobodys := func(file string) []string {
		return []string{"setpriv", "--reuid=" + nobody, "--regid=" + nobody, "--clear-groups", own, "server-start", file}
	}

	one, two := filepath.Join(home, "one"), filepath.Join(home, "two")
	n := peer.New(t, peer.Options{Home: filepath.Join(home, "node"), Software: peer.Highwater, Properties: []string{"log.dirs=" + one + "," + two}})
	if _, err := n.Start(); err != nil {
		t.Fatal(err)
	}
	copies := map[bool]string{false: filepath.Join(home, "stopped"), true: filepath.Join(home, "killed")}
	total := fill(t, n, one, copies)[false]
	sh(t, "chown", "-R", nobody, copies[false])
	properties, err := os.ReadFile(n.Config())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		deny  func(t *testing.T, dir string)
		dir   string // which is denied
		only  bool   // it is the only one in log.dirs
		serve bool
		says  string
	}{
		{"the second is read-only", readOnly, two, false, true, `read-only file system`},
		{"the second is unreadable", unreadable, two, false, true, `permission denied`},
		{"the metadata log's is read-only", readOnly, one, false, false, `read-only file system`},
		{"the metadata log's is unreadable", unreadable, one, false, false, `permission denied`},
		{"the only one is read-only", readOnly, one, true, false, `read-only file system`},
		{"the only one is unreadable", unreadable, one, true, false, `permission denied`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, dir := range []string{one, two} {
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
				sh(t, "cp", "-a", filepath.Join(copies[false], filepath.Base(dir)), home)
			}
			before := fingerprint(t, c.dir)
			c.deny(t, c.dir)
			named := regexp.QuoteMeta(c.dir) + `[\s\S]*` + c.says
			if !c.serve {
				text := string(properties)
				if c.only {
					text += "log.dirs=" + one + "\n"
				}
				file := filepath.Join(home, "attempt.properties")
				write(t, file, text)
				out, status := run(t, nobodys(file))
				check(t, peer.Highwater, out, status, refused{says: named, ours: `(?i)owner|permission|remount|disk`})
			} else {
				stop := background(t, nobodys(n.Config()), n.Addr())
				for p, got := range count(t, n.Addr(), true) {
					_, err := os.Stat(fmt.Sprintf("%s/t-%d", one, p))
					switch {
					case err != nil && got >= 0:
						t.Errorf("t-%d, which is not in the first directory, has %d records", p, got)
					case err == nil && got != total[p]:
						t.Errorf("t-%d has %d records of %d", p, got, total[p])
					}
				}
				errs := slices.DeleteFunc(strings.Split(stop(), "\n"), func(l string) bool { return !strings.Contains(l, "] ERROR ") })
				if len(errs) != 1 || !regexp.MustCompile(named).MatchString(errs[0]) {
					t.Errorf("the errors are not one that matches %q:\n%s", named, strings.Join(errs, "\n"))
				}
			}
			if after := fingerprint(t, c.dir); after != before { // root reads it all the same
				t.Errorf("files changed:\n%s", diff(before, after))
			}
		})
	}
}

// background runs a node until stop, which gives what it printed, and returns when it serves.
func background(t *testing.T, argv []string, addr string) (stop func() string) {
	t.Helper()
	var out bytes.Buffer
	c := command(t.Context(), argv)
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	for begin := time.Now(); !peer.Answers(addr); pause(10 * time.Millisecond) {
		select {
		case err := <-ended:
			t.Fatalf("the node ended: %v\n%s", err, out.String())
		default:
		}
		if time.Since(begin) > time.Minute {
			t.Fatal("the node does not serve")
		}
	}
	return func() string {
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		return out.String()
	}
}
