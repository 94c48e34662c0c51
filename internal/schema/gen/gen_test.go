package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The generated files in the tree are what the generator makes of the schemas in the tree.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	files, err := generate(os.DirFS(filepath.Join("..", "..", "..", "testdata")))
	if err != nil {
		t.Fatal(err)
	}
	have, err := filepath.Glob("../zz_generated_*.go")
	if err != nil || len(have) != len(files) {
		t.Errorf("%d generated files, want %d (%v)", len(have), len(files), err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("..", name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the generator makes (%v): run go generate ./internal/schema", name, err)
		}
	}
}
