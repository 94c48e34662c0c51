// Command gen writes the generated files of package schema from the schema files in testdata. It is run by go generate
// in internal/schema; with an argument it writes to that directory instead.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	out := "."
	if len(os.Args) > 1 {
		out = os.Args[1]
	}
	files, err := generate(os.DirFS(filepath.Join("..", "..", "testdata")))
	if err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(out, name), text, 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "gen:", err)
			os.Exit(1)
		}
	}
}
