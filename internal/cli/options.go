package cli

import (
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
)

// Options is a parser of command lines as most of Kafka's tools read theirs, with joptsimple: `--opt value`, `--opt=value`,
// one dash for two; a required argument is the next word whatever it looks like; an option may stand several times; the
// number in an argument is only looked at when the tool asks for it. Messages are joptsimple's.
type Options struct {
	// Abbreviate accepts a unique beginning of a long name. Kafka's own tools have it switched off.
	Abbreviate bool
	list       []*Option
	byName     map[string]*Option
}

// Option is one option of a parser.
type Option struct {
	Names    []string
	Help     string
	Arg      string // what help calls the argument
	needs    argMode
	defaults []string
	split    bool // a value is a list with commas
	hidden   bool
}

type argMode int

const (
	noArg argMode = iota
	requiredArg
	optionalArg
)

// Flag adds an option without an argument.
func (o *Options) Flag(name, help string) *Option { return o.add(name, "", help, noArg) }

// Value adds an option with an argument, which help shows as arg.
func (o *Options) Value(name, arg, help string) *Option { return o.add(name, arg, help, requiredArg) }

// Optional adds an option whose argument may be missing.
func (o *Options) Optional(name, arg, help string) *Option {
	return o.add(name, arg, help, optionalArg)
}

func (o *Options) add(name, arg, help string, mode argMode) *Option {
	if o.byName == nil {
		o.byName = make(map[string]*Option)
	}
	opt := &Option{Names: strings.Split(name, "|"), Help: help, Arg: arg, needs: mode}
	o.list = append(o.list, opt)
	for _, n := range opt.Names {
		o.byName[n] = opt
	}
	return opt
}

// Default is what an absent option yields.
func (p *Option) Default(values ...string) *Option { p.defaults = values; return p }

// Split makes each value a list with commas.
func (p *Option) Split() *Option { p.split = true; return p }

// Hide keeps the option out of help.
func (p *Option) Hide() *Option { p.hidden = true; return p }

// String is how messages name an option: [topic].
func (p *Option) String() string { return "[" + strings.Join(p.Names, ", ") + "]" }

// OptionError is what joptsimple throws; Class is its exception without the package.
type OptionError struct {
	Class string
	Text  string
}

func (e *OptionError) Error() string { return e.Text }

// Parsed is a parsed command line.
type Parsed struct {
	values map[*Option][]string
	seen   map[*Option]bool
	order  []*Option // every time an option stood there
	Rest   []string  // arguments that belong to no option
}

// Parse reads args. Its error is an *OptionError.
func (o *Options) Parse(args []string) (*Parsed, error) {
	p := &Parsed{values: make(map[*Option][]string), seen: make(map[*Option]bool)}
	for i := 0; i < len(args); i++ {
		a := args[i]
		if a == "--" {
			p.Rest = append(p.Rest, args[i+1:]...)
			break
		}
		if !looksLikeOption(a) {
			p.Rest = append(p.Rest, a)
			continue
		}
		long := strings.HasPrefix(a, "--")
		name, value, inline := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(a, "-"), "-"), "=")
		opt, ok := o.find(name)
		if !ok {
			if !long { // -xyz is a cluster of one-letter options, of which the first is unknown
				return nil, unrecognized(string([]rune(name)[:1]))
			}
			return nil, unrecognized(name)
		}
		p.seen[opt] = true
		p.order = append(p.order, opt)
		switch {
		case opt.needs == noArg:
		case inline:
			p.values[opt] = append(p.values[opt], value)
		case opt.needs == requiredArg:
			if i+1 == len(args) {
				return nil, &OptionError{"OptionMissingRequiredArgumentException", fmt.Sprintf("Option %s requires an argument", opt.Names[0])}
			}
			i++
			p.values[opt] = append(p.values[opt], args[i])
		case i+1 < len(args) && !looksLikeOption(args[i+1]):
			i++
			p.values[opt] = append(p.values[opt], args[i])
		}
	}
	return p, nil
}

func looksLikeOption(a string) bool { return len(a) > 1 && a[0] == '-' }

func unrecognized(name string) error {
	return &OptionError{"UnrecognizedOptionException", name + " is not a recognized option"}
}

func (o *Options) find(name string) (*Option, bool) {
	if opt, ok := o.byName[name]; ok || !o.Abbreviate {
		return opt, ok
	}
	var found *Option
	for n, opt := range o.byName {
		if strings.HasPrefix(n, name) && opt != found {
			if found != nil {
				return nil, false
			}
			found = opt
		}
	}
	return found, found != nil
}

// Has says whether the option stood there.
func (p *Parsed) Has(o *Option) bool { return p.seen[o] }

// All is the values of an option in order, or its default.
func (p *Parsed) All(o *Option) []string {
	v := p.values[o]
	if len(v) == 0 {
		v = o.defaults
	}
	if !o.split {
		return v
	}
	var out []string
	for _, s := range v {
		out = append(out, strings.Split(s, ",")...)
	}
	return out
}

// Get is the only value of an option, "" without one. Its error is an *OptionError: more than one value.
func (p *Parsed) Get(o *Option) (string, error) {
	v := p.All(o)
	switch len(v) {
	case 0:
		return "", nil
	case 1:
		return v[0], nil
	}
	return "", &OptionError{"MultipleArgumentsForOptionException", fmt.Sprintf("Found multiple arguments for option %s, but you asked for only one", o.Names[0])}
}

// Int is the value as Java's Integer; ok is false without one.
func (p *Parsed) Int(o *Option) (n int, ok bool, err error) {
	n64, ok, err := p.number(o, 32)
	return int(n64), ok, err
}

// Long is the value as Java's Long; ok is false without one.
func (p *Parsed) Long(o *Option) (n int64, ok bool, err error) { return p.number(o, 64) }

func (p *Parsed) number(o *Option, bits int) (int64, bool, error) {
	s, err := p.Get(o)
	if err != nil || (s == "" && len(p.All(o)) == 0) {
		return 0, false, err
	}
	n, err := strconv.ParseInt(s, 10, bits)
	if err != nil || strings.Contains(s, "_") {
		return 0, false, &OptionError{"OptionArgumentConversionException", fmt.Sprintf("Cannot parse argument '%s' of option %s", s, o.Names[0])}
	}
	return n, true, nil
}

// PrintHelp writes the table of options.
func (o *Options) PrintHelp(w io.Writer) {
	const left, width = 40, 100
	fmt.Fprintf(w, "%-*s%s\n%-*s%s\n", left, "Option", "Description", left, "------", "-----------")
	list := make([]*Option, 0, len(o.list))
	for _, opt := range o.list {
		if !opt.hidden {
			list = append(list, opt)
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Names[0] < list[j].Names[0] })
	for _, opt := range list {
		var names []string
		for _, n := range opt.Names {
			if len(n) == 1 {
				names = append(names, "-"+n)
			} else {
				names = append(names, "--"+n)
			}
		}
		head := strings.Join(names, ", ")
		switch opt.needs {
		case requiredArg:
			head += " <" + opt.Arg + ">"
		case optionalArg:
			head += " [" + opt.Arg + "]"
		}
		text := opt.Help
		if len(opt.defaults) > 0 && opt.needs != noArg {
			text += " (default: " + strings.Join(opt.defaults, ",") + ")"
		}
		lines := fold(text, width-left)
		if len(head) >= left {
			fmt.Fprintln(w, head)
			head = ""
		}
		for i, l := range lines {
			if i > 0 {
				head = ""
			}
			fmt.Fprintf(w, "%-*s%s\n", left, head, l)
		}
	}
}

// fold breaks text into lines of at most width characters.
func fold(text string, width int) []string {
	var out []string
	line := ""
	for _, w := range strings.Fields(text) {
		if line != "" && len(line)+1+len(w) > width {
			out = append(out, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += w
	}
	return append(out, line)
}
