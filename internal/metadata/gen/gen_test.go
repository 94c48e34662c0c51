package main

import (
	"bytes"
	"os"
	"testing"
)

// The generated file in the tree is what the generator makes of the tables in the tree.
func TestGeneratedFileIsCurrent(t *testing.T) {
	want, err := generate(os.DirFS("../../../testdata/tables"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile("../zz_generated_features.go"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("zz_generated_features.go is not what the generator makes (%v): run go generate ./internal/metadata", err)
	}
}
