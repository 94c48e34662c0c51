package raftloop

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/internal/vfs"
)

// metadata is what the archives of data directories hold of metadata logs and of small files beside them, read once.
var metadata = map[string]map[string][]byte{}

func archive(t testing.TB, name string) map[string][]byte {
	t.Helper()
	if files := metadata[name]; files != nil {
		return files
	}
	files := map[string][]byte{}
	r := tar.NewReader(bytes.NewReader(fixture.Read(t, "data/"+name+".tar.gz")))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if h.Typeflag == tar.TypeDir || !strings.Contains(h.Name, "/__cluster_metadata-0/") && strings.Count(h.Name, "/") != 2 {
			continue
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	metadata[name] = files
	return files
}

// unpack puts the metadata log of the node below prefix into a file system of its own. Tests that use it do not run in
// parallel.
func unpack(t testing.TB, name, prefix string) *vfs.Mem {
	t.Helper()
	m := vfs.NewMem()
	found := false
	files := archive(t, name)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		file, ok := strings.CutPrefix(path, prefix+"/")
		if !ok {
			continue
		}
		found = true
		if err := m.MkdirAll(file[:max(strings.LastIndexByte(file, '/'), 0)]); err != nil {
			t.Fatal(err)
		}
		put(t, m, file, files[path])
	}
	if !found {
		t.Fatalf("%s has nothing below %s", name, prefix)
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
