package raftloop

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"path"
	"strings"
	"testing"

	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/internal/vfs"
)

// unpack puts what an archive of a data directory has below prefix into a file system of its own.
func unpack(t testing.TB, archive, prefix string) *vfs.Mem {
	t.Helper()
	m := vfs.NewMem()
	r := tar.NewReader(bytes.NewReader(fixture.Read(t, "data/"+archive+".tar.gz")))
	found := false
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", archive, err)
		}
		name, ok := strings.CutPrefix(h.Name, prefix+"/")
		if !ok || name == "" {
			continue
		}
		found = true
		if h.Typeflag == tar.TypeDir {
			if err := m.MkdirAll(path.Clean(name)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if dir := path.Dir(name); dir != "." {
			if err := m.MkdirAll(dir); err != nil {
				t.Fatal(err)
			}
		}
		put(t, m, name, data)
	}
	if !found {
		t.Fatalf("%s has nothing below %s", archive, prefix)
	}
	return m
}

func put(t testing.TB, fsys vfs.FS, name string, data []byte) {
	t.Helper()
	f, err := fsys.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}
