package config

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write docs/config.md anew")

// TestDocs: the reference page in docs is what the tables say. `make docs` writes it anew.
func TestDocs(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "config.md")
	if *rewrite {
		if err := os.WriteFile(path, []byte(Markdown()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != Markdown() {
		t.Error("docs/config.md is not what the tables say: run `make docs`, read the diff and commit it")
	}
}
