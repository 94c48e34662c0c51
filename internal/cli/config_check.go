package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/highwater/highwater/internal/config"
)

const configUsage = `usage: highwater config check [--json] [--strict] [--override KEY=VALUE]… FILE…
Explains each FILE, a node's server.properties: what every key is and does here, mistakes with the way out, and what a
cluster lacks that should survive the loss of a machine. With several files, of the nodes of one cluster, it also says
where they contradict each other. Nothing is started, opened or changed.
  --json            print one JSON object
  --strict          the advice and the checklist count as mistakes
  --override K=V    as kafka-server-start takes it, for every file
Exit status: 0 without mistakes, 1 with some, 2 if a file cannot be read.`

// checked is what `config check` found, as --json prints it.
type checked struct {
	Files    []*config.Report `json:"files"`
	Together []config.Finding `json:"together"`
	Errors   int              `json:"errors"`
	Mistakes int              `json:"mistakes"`
	Advice   int              `json:"advice"` // lines of the checklist that don't hold among them
}

// runConfig is `highwater config`, whose one command is check.
func runConfig(e *Env) int {
	args := e.Args
	if len(args) == 0 || args[0] != "check" {
		e.Errorf("%s", configUsage)
		return 2
	}
	var files, overrides []string
	asJSON, strict := false, false
	for rest := args[1:]; len(rest) > 0; rest = rest[1:] {
		switch a := rest[0]; {
		case a == "--json":
			asJSON = true
		case a == "--strict":
			strict = true
		case a == "--override" && len(rest) > 1:
			overrides = append(overrides, rest[1])
			rest = rest[1:]
		case strings.HasPrefix(a, "--override="):
			overrides = append(overrides, strings.TrimPrefix(a, "--override="))
		case strings.HasPrefix(a, "-"):
			e.Errorf("%s", configUsage)
			return 2
		default:
			files = append(files, a)
		}
	}
	if len(files) == 0 {
		e.Errorf("%s", configUsage)
		return 2
	}
	all := checked{Together: []config.Finding{}}
	for _, name := range files {
		r, err := explainFile(name, overrides)
		if err != nil {
			e.Errorf("highwater config check: %v", err)
			return 2
		}
		all.Files = append(all.Files, r)
	}
	if len(files) > 1 {
		all.Together = append(all.Together, config.CheckTogether(all.Files)...)
	}
	all.count()
	if asJSON {
		text, err := json.MarshalIndent(all, "", "  ")
		if err != nil {
			e.Errorf("highwater config check: %v", err)
			return 2
		}
		e.Println(string(text))
	} else {
		all.print(e)
	}
	if all.Errors+all.Mistakes > 0 || strict && all.Advice > 0 {
		return 1
	}
	return 0
}

// explainFile explains one file; the error is that of reading it.
func explainFile(name string, overrides []string) (*config.Report, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	p, err := parseServerConfig(text, overrides)
	if err == nil {
		return config.Explain(name, p), nil
	}
	// Not even its keys can be told apart, or a provider is at fault: say that, and explain what there is.
	var bad *config.Error
	if !errors.As(err, &bad) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	first := config.Finding{Level: config.LevelError, Key: bad.Key, Text: bad.Text, Fix: config.FixOf(bad)}
	if p == nil {
		first.Fix = "Correct the line."
		return &config.Report{File: name, Roles: []string{}, Keys: []config.ReportKey{}, Checklist: []config.CheckItem{}, Findings: []config.Finding{first}}, nil
	}
	first.Line = p.Line(bad.Key)
	r := config.Explain(name, p)
	r.Findings = append([]config.Finding{first}, r.Findings...)
	return r, nil
}

func (c *checked) count() {
	count := func(findings []config.Finding) {
		for _, f := range findings {
			switch f.Level {
			case config.LevelError:
				c.Errors++
			case config.LevelMistake:
				c.Mistakes++
			default:
				c.Advice++
			}
		}
	}
	for _, r := range c.Files {
		count(r.Findings)
		for _, i := range r.Checklist {
			if !i.OK {
				c.Advice++
			}
		}
	}
	count(c.Together)
}

func (c *checked) print(e *Env) {
	for i, r := range c.Files {
		if i > 0 {
			e.Println()
		}
		printReport(e, r)
	}
	if len(c.Together) > 0 {
		e.Println("\nThe files together")
		printFindings(e, c.Together)
	}
	if len(c.Files) > 1 || c.Errors+c.Mistakes+c.Advice > 0 {
		e.Println()
	}
	switch {
	case c.Errors > 0:
		e.Printf("%s, %s, %s: a node does not start with this.\n", many(c.Errors, "error"), many(c.Mistakes, "mistake"), adviceText(c.Advice))
	case c.Mistakes > 0:
		e.Printf("%s, %s.\n", many(c.Mistakes, "mistake"), adviceText(c.Advice))
	case c.Advice > 0:
		e.Printf("No mistakes, %s.\n", adviceText(c.Advice))
	default:
		e.Println("No mistakes.")
	}
}

func many(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func adviceText(n int) string {
	if n == 1 {
		return "1 piece of advice"
	}
	return fmt.Sprintf("%d pieces of advice", n)
}

func printReport(e *Env, r *config.Report) {
	e.Printf("%s: node %d, %s\n", r.File, r.NodeID, cmp.Or(strings.Join(r.Roles, " and "), "of no role"))
	if len(r.Keys) > 0 {
		e.Println("\nKeys")
	}
	for _, k := range r.Keys {
		e.Printf("  %s=%s\n", k.Key, k.Value)
		var about []string
		if k.Line > 0 {
			about = append(about, fmt.Sprintf("line %d", k.Line))
		} else {
			about = append(about, "overridden")
		}
		switch {
		case k.Why != "" && k.Effect != "unknown":
			about = append(about, k.Effect+": "+k.Why)
		default:
			about = append(about, k.Effect)
		}
		if k.Type != "" {
			switch {
			case k.Value == config.Hidden:
			case k.Default == k.Value:
				about = append(about, "the default")
			case k.Default == "":
				about = append(about, `default ""`)
			default:
				about = append(about, "default "+k.Default)
			}
			if k.Valid != "" {
				about = append(about, "valid "+k.Valid)
			}
			if k.Update != "" && k.Update != "read-only" {
				about = append(about, "dynamic, "+k.Update)
			}
		}
		e.Printf("      %s\n", strings.Join(about, " · "))
		if k.Doc != "" {
			e.Printf("      %s\n", k.Doc)
		}
	}
	if len(r.Checklist) > 0 {
		e.Println("\nTo survive the loss of a machine")
	}
	for _, i := range r.Checklist {
		mark := "ok "
		if !i.OK {
			mark = "-- "
		}
		e.Printf("  %s %s\n", mark, i.Text)
		if i.Fix != "" {
			e.Printf("      %s\n", i.Fix)
		}
	}
	if len(r.Findings) > 0 {
		e.Println("\nFound")
		printFindings(e, r.Findings)
	}
}

func printFindings(e *Env, findings []config.Finding) {
	for _, f := range findings {
		at := ""
		if f.Line > 0 {
			at = fmt.Sprintf("line %d: ", f.Line)
		}
		e.Printf("  %-8s%s%s\n", f.Level, at, f.Text)
		if f.Fix != "" {
			e.Printf("          %s\n", f.Fix)
		}
	}
}
