package cli

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
)

// ArgParser reads command lines as those of Kafka's tools do that use argparse4j (storage, features, metadata-quorum,
// producer-perf-test, …): sub-commands, one-letter and long names, long names shortened to a unique beginning, groups of
// options of which only one may stand. Messages are argparse4j's, broken into lines where it breaks them.
type ArgParser struct {
	Prog        string // "kafka-storage"
	Description string

	args   []*Arg
	groups []*ArgGroup
	subs   []*ArgParser
	parent *ArgParser
	name   string
	help   string
}

// Arg is one option of an ArgParser.
type Arg struct {
	Names    []string // "--cluster-id", "-t"
	Meta     string   // the argument's name in help; "" = a flag
	Help     string
	Required bool
	Repeat   bool     // several times, or with Many several words at once
	Many     bool     // one or more words follow (nargs +)
	Choices  []string // allowed values
	Type     string   // "", "Integer", "Long", "Double": checked when read
	Default  string
	group    *ArgGroup
}

// ArgGroup is a group of options of which at most one may stand; exactly one if Required.
type ArgGroup struct {
	Required bool
	args     []*Arg
}

// Namespace is what was read.
type Namespace struct {
	Command string // the sub-command, "" without one
	values  map[string][]string
}

// ErrHelp is returned by Parse after it printed help: the tool exits with 0 (argparse4j's status for --help) or as it likes.
var ErrHelp = errors.New("help printed")

// ArgError is a complaint about the command line; Parse's caller prints it with Parser.PrintError.
type ArgError struct {
	Parser *ArgParser
	Text   string
}

func (e *ArgError) Error() string { return e.Text }

// Add adds an option.
func (p *ArgParser) Add(a Arg) *Arg {
	p.args = append(p.args, &a)
	return &a
}

// Group adds a group of options that exclude each other.
func (p *ArgParser) Group(required bool, args ...Arg) *ArgGroup {
	g := &ArgGroup{Required: required}
	for _, a := range args {
		q := p.Add(a)
		q.group = g
		g.args = append(g.args, q)
	}
	p.groups = append(p.groups, g)
	return g
}

// Sub adds a sub-command.
func (p *ArgParser) Sub(name, help string) *ArgParser {
	s := &ArgParser{Prog: p.Prog, name: name, help: help, parent: p}
	p.subs = append(p.subs, s)
	return s
}

func (a *Arg) long() string {
	for _, n := range a.Names {
		if strings.HasPrefix(n, "--") {
			return n
		}
	}
	return a.Names[0]
}

// Has says whether the option (its long name, without dashes) stood there.
func (n *Namespace) Has(name string) bool { return n.values["--"+name] != nil }

// Get is the last value of an option, or its default.
func (n *Namespace) Get(name string) string {
	v := n.values["--"+name]
	if len(v) == 0 {
		return ""
	}
	return v[len(v)-1]
}

// All is all values of an option in order.
func (n *Namespace) All(name string) []string { return n.values["--"+name] }

// Int64 is the last value as a number: Type made sure that it is one.
func (n *Namespace) Int64(name string) int64 {
	i, err := strconv.ParseInt(n.Get(name), 10, 64)
	if err != nil {
		return 0
	}
	return i
}

// Parse reads args. It prints help to stdout and returns ErrHelp when asked to; any other error is an *ArgError.
func (p *ArgParser) Parse(args []string, stdout io.Writer) (*Namespace, error) {
	n := &Namespace{values: make(map[string][]string)}
	if err := p.parse(n, args, stdout); err != nil {
		return nil, err
	}
	return n, nil
}

func (p *ArgParser) parse(n *Namespace, args []string, stdout io.Writer) error {
	fail := func(format string, v ...any) error { return &ArgError{p, fmt.Sprintf(format, v...)} }
	inGroup := make(map[*ArgGroup]*Arg)
	seen := make(map[*Arg]bool)
	for i := 0; i < len(args); i++ {
		word := args[i]
		if len(word) < 2 || word[0] != '-' || isNegative(word) {
			if len(p.subs) == 0 {
				return fail("unrecognized arguments: '%s'", word)
			}
			for _, s := range p.subs {
				if s.name == word {
					if err := p.complete(seen, inGroup, n); err != nil {
						return err
					}
					n.Command = word
					return s.parse(n, args[i+1:], stdout)
				}
			}
			var names []string
			for _, s := range p.subs {
				names = append(names, "'"+s.name+"'")
			}
			return fail("invalid choice: '%s' (choose from %s)", word, strings.Join(names, ", "))
		}
		name, value, inline := word, "", false
		if strings.HasPrefix(word, "--") {
			name, value, inline = strings.Cut(word, "=")
		}
		if name == "-h" || name == "--help" {
			p.PrintHelp(stdout)
			return ErrHelp
		}
		a, err := p.find(name)
		if err != nil {
			return err
		}
		if a == nil && !strings.HasPrefix(word, "--") { // -tVALUE
			if a, _ = p.find(word[:2]); a != nil {
				value, inline = strings.TrimPrefix(word[2:], "="), true
			}
		}
		if a == nil {
			return fail("unrecognized arguments: '%s'", word)
		}
		seen[a] = true
		if a.group != nil {
			if other := inGroup[a.group]; other != nil && other != a {
				return fail("argument %s: not allowed with argument %s", strings.Join(a.Names, "/"), strings.Join(other.Names, "/"))
			}
			inGroup[a.group] = a
		}
		key := a.long()
		if a.Meta == "" {
			n.values[key] = []string{"true"}
			continue
		}
		var got []string
		if inline {
			got = []string{value}
		} else {
			for i+1 < len(args) && (len(args[i+1]) < 2 || args[i+1][0] != '-' || isNegative(args[i+1])) {
				i++
				got = append(got, args[i])
				if !a.Many {
					break
				}
			}
		}
		if len(got) == 0 {
			if a.Many {
				return fail("argument %s: expected at least one argument", strings.Join(a.Names, "/"))
			}
			return fail("argument %s: expected one argument", strings.Join(a.Names, "/"))
		}
		for _, v := range got {
			if err := a.check(v); err != "" {
				return fail("argument %s: %s", strings.Join(a.Names, "/"), err)
			}
		}
		if a.Repeat {
			got = append(n.values[key], got...)
		}
		n.values[key] = got
	}
	if len(p.subs) > 0 {
		return fail("too few arguments")
	}
	return p.complete(seen, inGroup, n)
}

// isNegative: a negative number is an argument, not an option.
func isNegative(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}

func (p *ArgParser) find(name string) (*Arg, error) {
	var match []string
	var found *Arg
	for _, a := range p.args {
		for _, n := range a.Names {
			if n == name {
				return a, nil
			}
			if strings.HasPrefix(name, "--") && strings.HasPrefix(n, name) {
				match = append(match, n)
				found = a
			}
		}
	}
	if len(match) > 1 {
		return nil, &ArgError{p, fmt.Sprintf("ambiguous option: %s could match %s", name, strings.Join(match, ", "))}
	}
	return found, nil
}

func (a *Arg) check(v string) string {
	for i, c := range a.Choices {
		if c == v {
			break
		}
		if i == len(a.Choices)-1 {
			return fmt.Sprintf("invalid choice: '%s' (choose from {%s})", v, strings.Join(a.Choices, ","))
		}
	}
	var err error
	switch a.Type {
	case "Integer":
		_, err = strconv.ParseInt(v, 10, 32)
	case "Long":
		_, err = strconv.ParseInt(v, 10, 64)
	case "Double":
		if _, err = strconv.ParseFloat(v, 64); err != nil {
			return fmt.Sprintf("could not convert '%s' to Double (For input string: \"%s\")", v, v)
		}
	}
	if err != nil {
		return fmt.Sprintf("could not convert '%s' to %s (For input string: \"%s\")", v, a.Type, v)
	}
	return ""
}

// complete checks what is missing and fills in defaults.
func (p *ArgParser) complete(seen map[*Arg]bool, inGroup map[*ArgGroup]*Arg, n *Namespace) error {
	for _, a := range p.args {
		if a.Required && !seen[a] {
			return &ArgError{p, fmt.Sprintf("argument %s is required", strings.Join(a.Names, "/"))}
		}
		if !seen[a] && a.Default != "" {
			n.values[a.long()] = []string{a.Default}
		}
	}
	for _, g := range p.groups {
		if g.Required && inGroup[g] == nil {
			var names []string
			for _, a := range g.args {
				names = append(names, strings.Join(a.Names, "/"))
			}
			return &ArgError{p, fmt.Sprintf("one of the arguments %s is required", strings.Join(names, " "))}
		}
	}
	return nil
}

// PrintError writes usage and the error line, as argparse4j's handleError does.
func (p *ArgParser) PrintError(w io.Writer, text string) {
	p.printUsage(w)
	for _, l := range wrapJava(p.Prog+": error: "+text, 74) {
		fmt.Fprintln(w, l)
	}
}

// HandleError prints what Parse returned and gives the exit status that goes with it: 0 after help, 1 otherwise.
func HandleError(w io.Writer, err error) int {
	var a *ArgError
	switch {
	case errors.Is(err, ErrHelp):
		return 0
	case errors.As(err, &a):
		a.Parser.PrintError(w, a.Text)
	default:
		fmt.Fprintln(w, err)
	}
	return 1
}

func (p *ArgParser) prog() string {
	if p.parent != nil {
		return p.parent.prog() + " " + p.name
	}
	return p.Prog
}

func (p *ArgParser) printUsage(w io.Writer) {
	parts := []string{"[-h]"}
	for _, a := range p.args {
		s := a.usage()
		if a.group != nil {
			if a.group.args[0] != a {
				continue
			}
			var of []string
			for _, b := range a.group.args {
				of = append(of, b.usage())
			}
			s = strings.Join(of, " | ")
			if a.group.Required {
				s = "(" + s + ")"
			} else {
				s = "[" + s + "]"
			}
		} else if !a.Required {
			s = "[" + s + "]"
		}
		parts = append(parts, s)
	}
	if len(p.subs) > 0 {
		var names []string
		for _, s := range p.subs {
			names = append(names, s.name)
		}
		parts = append(parts, "{"+strings.Join(names, ",")+"} ...")
	}
	head := "usage: " + p.prog()
	indent := strings.Repeat(" ", min(len(head)+1, 24))
	line := head
	for _, s := range parts {
		if len(line)+1+len(s) > 75 && line != head {
			fmt.Fprintln(w, line)
			line = indent + s
			continue
		}
		line += " " + s
	}
	fmt.Fprintln(w, line)
}

func (a *Arg) usage() string {
	s := a.long()
	if a.Meta != "" {
		s += " " + a.Meta
		if a.Many {
			s += " [" + a.Meta + " ...]"
		}
	}
	return s
}

// PrintHelp writes usage, description and options.
func (p *ArgParser) PrintHelp(w io.Writer) {
	p.printUsage(w)
	if d := p.Description + p.help; d != "" {
		fmt.Fprintln(w)
		for _, l := range fold(d, 78) {
			fmt.Fprintln(w, l)
		}
	}
	row := func(head, text string) {
		const left = 26
		if len(head) >= left {
			fmt.Fprintln(w, head)
			head = ""
		}
		for _, l := range fold(text, 78-left) {
			fmt.Fprintf(w, "%-*s%s\n", left, head, l)
			head = ""
		}
	}
	if len(p.subs) > 0 {
		fmt.Fprintln(w, "\ncommands:")
		for _, s := range p.subs {
			row("  "+s.name, s.help)
		}
	}
	fmt.Fprintln(w, "\noptions:")
	row("  -h, --help", "show this help message and exit")
	for _, a := range p.args {
		var names []string
		for _, n := range a.Names {
			if a.Meta != "" {
				n += " " + a.Meta
			}
			names = append(names, n)
		}
		text := a.Help
		if a.Default != "" {
			text += " (default: " + a.Default + ")"
		}
		row("  "+strings.Join(names, ", "), text)
	}
}

// wrapJava breaks text into lines where Java's line-break iterator lets argparse4j break it: after blanks, and after
// hyphens that a letter follows. (argparse4j stretches the lines with blanks to the full width; we don't.)
func wrapJava(text string, width int) []string {
	var pieces []string
	start := 0
	r := []rune(text)
	for i := 1; i < len(r); i++ {
		if (r[i-1] == ' ' && r[i] != ' ') || (r[i-1] == '-' && unicode.IsLetter(r[i]) && i > 1) {
			pieces = append(pieces, string(r[start:i]))
			start = i
		}
	}
	pieces = append(pieces, string(r[start:]))
	var out []string
	line := ""
	for _, s := range pieces {
		if line != "" && len([]rune(line+strings.TrimRight(s, " "))) > width {
			out = append(out, strings.TrimRight(line, " "))
			line = ""
		}
		line += s
	}
	return append(out, strings.TrimRight(line, " "))
}
