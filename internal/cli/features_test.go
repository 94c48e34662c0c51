package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/highwater/highwater/internal/fixture"
)

// TestFeaturesWithoutServer: what only asks what this program knows needs no server, nor one that answers.
func TestFeaturesWithoutServer(t *testing.T) {
	var cases []struct {
		Name           string
		Argv           []string
		Exit           int
		Stdout, Stderr []string
	}
	fixture.JSON(t, "golden/tools/features.json", &cases)
	seen := 0
	for _, c := range cases {
		at := slices.Index(c.Argv, "{BOOTSTRAP}")
		if at < 0 || !slices.Contains(c.Argv, "version-mapping") && !slices.Contains(c.Argv, "feature-dependencies") {
			continue
		}
		seen++
		nowhere := slices.Clone(c.Argv)
		nowhere[at] = "127.0.0.1:1"
		for _, args := range [][]string{nowhere, slices.Delete(slices.Clone(c.Argv), at-1, at+1)} {
			var out, errs bytes.Buffer
			status := runFeatures(&Env{Name: "kafka-features", Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Context: t.Context(), Stoppable: func() {}})
			lines := func(s string) []string {
				return slices.DeleteFunc(strings.Split(s, "\n"), func(l string) bool { return l == "" })
			}
			if got := lines(out.String()); status != c.Exit || !slices.Equal(got, c.Stdout) {
				t.Errorf("%q: status %d, %q, want %d, %q", args, status, got, c.Exit, c.Stdout)
			}
			if got := lines(errs.String()); !slices.Equal(got, c.Stderr) {
				t.Errorf("%q: %q, want %q", args, got, c.Stderr)
			}
		}
	}
	if seen < 8 {
		t.Errorf("%d cases", seen)
	}
}
