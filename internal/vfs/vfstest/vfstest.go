// Package vfstest is the test-suite that every vfs.FS must pass, so that what storage code learns on the one in memory holds
// on the real one.
package vfstest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/vfs"
)

// Run runs the suite; fresh returns an empty file system each time.
func Run(t *testing.T, fresh func(t *testing.T) vfs.FS) {
	for _, c := range []struct {
		name string
		f    func(t *testing.T, fsys vfs.FS)
	}{
		{"files", files}, {"read at the end", readAtEnd}, {"truncate and allocate", sizes}, {"names", names}, {"directories", directories},
		{"errors", wrongUse}, {"whole files", wholeFiles}, {"open file outlives its name", outlives}, {"locks", locking}, {"space", space},
		{"atomic write", atomicWrite}, {"sync of everything", syncAll}, {"times", times},
	} {
		t.Run(c.name, func(t *testing.T) { c.f(t, fresh(t)) })
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("error %v, want %v", got, want)
	}
}

func create(t *testing.T, fsys vfs.FS, name, content string) vfs.File {
	t.Helper()
	f, err := fsys.Create(name)
	must(t, err)
	n, err := f.WriteAt([]byte(content), 0)
	must(t, err)
	if n != len(content) {
		t.Fatalf("wrote %d of %d", n, len(content))
	}
	return f
}

func content(t *testing.T, fsys vfs.FS, name string) string {
	t.Helper()
	b, err := fsys.ReadFile(name, 1<<20)
	must(t, err)
	return string(b)
}

func list(t *testing.T, fsys vfs.FS, dir string) string {
	t.Helper()
	entries, err := fsys.List(dir)
	must(t, err)
	var out []string
	for _, e := range entries {
		s := e.Name()
		if e.IsDir() {
			s += "/"
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func files(t *testing.T, fsys vfs.FS) {
	f := create(t, fsys, "a", "hello")
	_, err := f.WriteAt([]byte("XY"), 7)
	must(t, err)
	if got := content(t, fsys, "a"); got != "hello\x00\x00XY" {
		t.Fatalf("%q", got)
	}
	must(t, f.Sync())
	if size, err := f.Size(); err != nil || size != 9 {
		t.Fatal(size, err)
	}
	must(t, f.Close())
	f, err = fsys.Open("a", vfs.ReadWrite)
	must(t, err)
	_, err = f.WriteAt([]byte("J"), 0)
	must(t, err)
	must(t, f.Close())
	r, err := fsys.Open("a", vfs.ReadOnly)
	must(t, err)
	if _, err := r.WriteAt([]byte("no"), 0); err == nil {
		t.Fatal("a file opened for reading was written")
	}
	buf := make([]byte, 5)
	_, err = r.ReadAt(buf, 0)
	must(t, err)
	if string(buf) != "Jello" {
		t.Fatalf("%q", buf)
	}
	must(t, r.Close())
	if _, err := r.ReadAt(buf, 0); err == nil {
		t.Fatal("a closed file was read")
	}
}

func readAtEnd(t *testing.T, fsys vfs.FS) {
	f := create(t, fsys, "a", "12345")
	defer f.Close()
	buf := make([]byte, 4)
	if n, err := f.ReadAt(buf, 3); n != 2 || err != io.EOF {
		t.Fatal(n, err)
	}
	if n, err := f.ReadAt(buf, 5); n != 0 || err != io.EOF {
		t.Fatal(n, err)
	}
	if n, err := f.ReadAt(buf, 99); n != 0 || err != io.EOF {
		t.Fatal(n, err)
	}
	if n, err := f.ReadAt(buf, 1); n != 4 || err != nil || string(buf) != "2345" {
		t.Fatal(n, err)
	}
}

func sizes(t *testing.T, fsys vfs.FS) {
	f := create(t, fsys, "a", "12345")
	defer f.Close()
	must(t, f.Truncate(2))
	must(t, f.Truncate(4))
	if got := content(t, fsys, "a"); got != "12\x00\x00" {
		t.Fatalf("%q", got)
	}
	must(t, f.Allocate(3))
	if size, _ := f.Size(); size != 4 {
		t.Fatal("Allocate made the file shorter")
	}
	must(t, f.Allocate(8192))
	if got := content(t, fsys, "a"); got != "12"+strings.Repeat("\x00", 8190) {
		t.Fatalf("%d bytes", len(got))
	}
}

func names(t *testing.T, fsys vfs.FS) {
	must(t, create(t, fsys, "b", "bee").Close())
	must(t, create(t, fsys, "a", "ay").Close())
	must(t, fsys.MkdirAll("d/e"))
	must(t, create(t, fsys, "d/e/f", "ef").Close())
	if got := list(t, fsys, "."); got != "a b d/" {
		t.Fatal(got)
	}
	must(t, fsys.Rename("a", "b"))
	if got := list(t, fsys, ""); got != "b d/" || content(t, fsys, "b") != "ay" {
		t.Fatal(got)
	}
	must(t, fsys.Rename("d", "c"))
	if got := content(t, fsys, "c/e/f"); got != "ef" {
		t.Fatal(got)
	}
	must(t, fsys.Rename("c/e/f", "g"))
	must(t, fsys.Remove("c/e"))
	must(t, fsys.SyncDir("c"))
	must(t, fsys.SyncDir("."))
	if got := list(t, fsys, "."); got != "b c/ g" {
		t.Fatal(got)
	}
	st, err := fsys.Stat("g")
	must(t, err)
	if st.Name() != "g" || st.Size() != 2 || st.IsDir() {
		t.Fatal(st)
	}
	if st, err = fsys.Stat("c"); err != nil || !st.IsDir() {
		t.Fatal(st, err)
	}
}

func directories(t *testing.T, fsys vfs.FS) {
	must(t, fsys.MkdirAll("a/b/c"))
	must(t, fsys.MkdirAll("a/b/c"))
	must(t, create(t, fsys, "a/b/x", "1").Close())
	want(t, fsys.Remove("a"), syscall.ENOTEMPTY)
	must(t, fsys.MkdirAll("empty"))
	must(t, fsys.Rename("empty", "a/b/c")) // over an empty directory
	must(t, fsys.MkdirAll("full/x"))
	want(t, fsys.Rename("full", "a"), syscall.ENOTEMPTY)
	must(t, fsys.RemoveAll("a"))
	must(t, fsys.RemoveAll("a"))
	if got := list(t, fsys, "."); got != "full/" {
		t.Fatal(got)
	}
	must(t, create(t, fsys, "file", "1").Close())
	want(t, fsys.MkdirAll("file/sub"), syscall.ENOTDIR)
	want(t, fsys.Rename("full", "file"), syscall.ENOTDIR)
}

func wrongUse(t *testing.T, fsys vfs.FS) {
	must(t, create(t, fsys, "a", "1").Close())
	must(t, fsys.MkdirAll("d"))
	_, err := fsys.Create("a")
	want(t, err, fs.ErrExist)
	_, err = fsys.Create("d")
	want(t, err, fs.ErrExist)
	_, err = fsys.Create("no/a")
	want(t, err, fs.ErrNotExist)
	_, err = fsys.Open("b", vfs.ReadOnly)
	want(t, err, fs.ErrNotExist)
	_, err = fsys.Open("d", vfs.ReadWrite)
	want(t, err, syscall.EISDIR)
	_, err = fsys.ReadFile("b", 10)
	want(t, err, fs.ErrNotExist)
	_, err = fsys.List("b")
	want(t, err, fs.ErrNotExist)
	_, err = fsys.Stat("d/b")
	want(t, err, fs.ErrNotExist)
	want(t, fsys.Remove("b"), fs.ErrNotExist)
	want(t, fsys.Rename("b", "c"), fs.ErrNotExist)
	want(t, fsys.Rename("a", "no/c"), fs.ErrNotExist)
	want(t, fsys.SyncDir("b"), fs.ErrNotExist)
}

func wholeFiles(t *testing.T, fsys vfs.FS) {
	must(t, create(t, fsys, "a", "12345").Close())
	if b, err := fsys.ReadFile("a", 5); err != nil || string(b) != "12345" {
		t.Fatal(b, err)
	}
	_, err := fsys.ReadFile("a", 4)
	want(t, err, vfs.ErrTooLarge)
	must(t, create(t, fsys, "b", "").Close())
	if b, err := fsys.ReadFile("b", 0); err != nil || len(b) != 0 {
		t.Fatal(b, err)
	}
}

func outlives(t *testing.T, fsys vfs.FS) {
	f := create(t, fsys, "a", "12345")
	must(t, fsys.Remove("a"))
	must(t, create(t, fsys, "a", "new").Close())
	buf := make([]byte, 5)
	_, err := f.ReadAt(buf, 0)
	must(t, err)
	if !bytes.Equal(buf, []byte("12345")) {
		t.Fatalf("%q", buf)
	}
	must(t, f.Close())
	if got := content(t, fsys, "a"); got != "new" {
		t.Fatal(got)
	}
}

func locking(t *testing.T, fsys vfs.FS) {
	l, err := fsys.Lock(".lock")
	must(t, err)
	_, err = fsys.Lock(".lock")
	want(t, err, vfs.ErrLocked)
	_, err = fsys.Lock("./.lock")
	want(t, err, vfs.ErrLocked)
	other, err := fsys.Lock("other")
	must(t, err)
	must(t, l.Unlock())
	l, err = fsys.Lock(".lock")
	must(t, err)
	must(t, l.Unlock())
	must(t, other.Unlock())
	if got := list(t, fsys, "."); got != ".lock other" {
		t.Fatal(got)
	}
}

func space(t *testing.T, fsys vfs.FS) {
	total, free, err := fsys.Space(".")
	if err != nil || free <= 0 || total < free {
		t.Fatal(total, free, err)
	}
	_, _, err = fsys.Space("no")
	want(t, err, fs.ErrNotExist)
}

func atomicWrite(t *testing.T, fsys vfs.FS) {
	must(t, fsys.MkdirAll("d"))
	must(t, create(t, fsys, "d/x.tmp", "left behind by a crash").Close())
	must(t, vfs.WriteFileAtomic(fsys, "d", "x", []byte("one")))
	must(t, vfs.WriteFileAtomic(fsys, "d", "x", []byte("two")))
	if got := list(t, fsys, "d"); got != "x" || content(t, fsys, "d/x") != "two" {
		t.Fatal(got)
	}
}

func times(t *testing.T, fsys vfs.FS) {
	must(t, create(t, fsys, "a", "x").Close())
	when := time.UnixMilli(1_600_000_000_123)
	must(t, fsys.SetModTime("a", when))
	must(t, fsys.Rename("a", "b"))
	st, err := fsys.Stat("b")
	must(t, err)
	if !st.ModTime().Equal(when) {
		t.Fatalf("modified %v, want %v", st.ModTime(), when)
	}
	want(t, fsys.SetModTime("none", when), fs.ErrNotExist)
}

func syncAll(t *testing.T, fsys vfs.FS) {
	must(t, fsys.MkdirAll("d/e"))
	s, err := fsys.OpenSyncer("d")
	if errors.Is(err, errors.ErrUnsupported) {
		return
	}
	must(t, err)
	open := create(t, fsys, "d/e/open", "1")
	must(t, create(t, fsys, "d/closed", "2").Close())
	if err := s.SyncAll(); !errors.Is(err, errors.ErrUnsupported) {
		must(t, err)
	}
	must(t, open.Close())
	must(t, vfs.BeginAtomic(fsys, "d/whole", []byte("3")))
	must(t, vfs.FinishAtomic(fsys, "d/whole"))
	if got := content(t, fsys, "d/e/open") + content(t, fsys, "d/closed") + content(t, fsys, "d/whole"); got != "123" {
		t.Fatalf("content %q", got)
	}
	must(t, s.Close())
	if err := s.SyncAll(); err == nil {
		t.Fatal("a closed one syncs")
	}
	_, err = fsys.OpenSyncer("none")
	want(t, err, fs.ErrNotExist)
}
