package cli

import (
	"errors"
	"strings"
	"testing"
)

// TestOptions shows that command lines are read, and refused, as joptsimple does.
func TestOptions(t *testing.T) {
	f := func(line string, want string) {
		t.Helper()
		var o Options
		flag := o.Flag("list", "")
		topic := o.Value("topic", "topic", "")
		codec := o.Optional("codec", "codec", "")
		number := o.Value("number|n", "n", "").Default("7")
		list := o.Value("keys", "k", "").Split()
		p, err := o.Parse(strings.Fields(line))
		got := ""
		if err == nil {
			var n int
			var all string
			if n, _, err = p.Int(number); err == nil {
				all, err = p.Get(topic)
			}
			if err == nil {
				c, _ := p.Get(codec)
				got = strings.Join([]string{map[bool]string{true: "list"}[p.Has(flag)], all, map[bool]string{true: "codec=" + c}[p.Has(codec)],
					map[bool]string{true: "n"}[n != 7], strings.Join(p.All(list), "+"), strings.Join(p.Rest, "+")}, "|")
			}
		}
		if err != nil {
			var e *OptionError
			if !errors.As(err, &e) {
				t.Fatalf("%q: error %T", line, err)
			}
			got = e.Class + ": " + e.Text
		}
		if got != want {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
	}
	f("", "|||||")
	f("--list --topic a", "list|a||||")
	f("--topic=a=b", "|a=b||||")
	f("-topic a -list", "list|a||||")
	f("--topic -5", "|-5||||")
	f("--topic --list", "|--list||||")
	f("--codec --list", "list||codec=|||")
	f("--codec lz4", "||codec=lz4|||")
	f("--number 8", "|||n||")
	f("-n 8", "|||n||")
	f("--keys a,b --keys c", "||||a+b+c|")
	f("x --list y -- --topic", "list|||||x+y+--topic")
	f("--top a", "UnrecognizedOptionException: top is not a recognized option")
	f("-x", "UnrecognizedOptionException: x is not a recognized option")
	f("-xyz", "UnrecognizedOptionException: x is not a recognized option")
	f("--topic", "OptionMissingRequiredArgumentException: Option topic requires an argument")
	f("--topic a --topic b", "MultipleArgumentsForOptionException: Found multiple arguments for option topic, but you asked for only one")
	f("--number many", "OptionArgumentConversionException: Cannot parse argument 'many' of option number")
	f("--number 1_0", "OptionArgumentConversionException: Cannot parse argument '1_0' of option number")
	f("--number 2147483648", "OptionArgumentConversionException: Cannot parse argument '2147483648' of option number")
}

// TestAbbreviations shows the one thing that Kafka's tools switch off.
func TestAbbreviations(t *testing.T) {
	o := Options{Abbreviate: true}
	list, topic := o.Flag("list", ""), o.Value("topic", "t", "")
	o.Flag("topic-id", "")
	p, err := o.Parse([]string{"--li", "--topic", "a"})
	if err != nil || !p.Has(list) || !p.Has(topic) {
		t.Errorf("%v, %v", p, err)
	}
	if _, err := o.Parse([]string{"--top"}); err == nil {
		t.Error("an ambiguous beginning is taken")
	}
}

// TestArgParser shows that command lines are read, and refused, as argparse4j does.
func TestArgParser(t *testing.T) {
	f := func(line string, want string) {
		t.Helper()
		p := &ArgParser{Prog: "kafka-x"}
		p.Add(Arg{Names: []string{"--verbose", "-v"}})
		s := p.Sub("format", "")
		s.Add(Arg{Names: []string{"--cluster-id", "-t"}, Meta: "ID", Required: true})
		s.Add(Arg{Names: []string{"--number"}, Meta: "N", Type: "Long"})
		s.Add(Arg{Names: []string{"--feature", "-f"}, Meta: "F", Repeat: true})
		s.Add(Arg{Names: []string{"--props"}, Meta: "P", Many: true})
		s.Add(Arg{Names: []string{"--kind"}, Meta: "K", Choices: []string{"a", "b"}, Default: "a"})
		s.Group(false, Arg{Names: []string{"--one", "-1"}}, Arg{Names: []string{"--two", "-2"}, Meta: "T"})
		p.Sub("info", "").Group(true, Arg{Names: []string{"--left"}}, Arg{Names: []string{"--right"}})
		var out strings.Builder
		n, err := p.Parse(strings.Fields(line), &out)
		got := ""
		switch {
		case errors.Is(err, ErrHelp):
			got = "help"
		case err != nil:
			got = err.Error()
		default:
			got = strings.Join([]string{n.Command, n.Get("cluster-id"), n.Get("number"), strings.Join(n.All("feature"), "+"), strings.Join(n.All("props"), "+"), n.Get("kind"), n.Get("two")}, "|")
		}
		if got != want {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
	}
	f("format -t x", "format|x||||a|")
	f("-v format --cluster-id=x -f a=1 -f b=2 --props p q --kind b", "format|x||a=1+b=2|p+q|b|")
	f("format -tx --number -5", "format|x|-5|||a|")
	f("format --clu x", "format|x||||a|")
	f("", "too few arguments")
	f("explain", "invalid choice: 'explain' (choose from 'format', 'info')")
	f("format", "argument --cluster-id/-t is required")
	f("format -t", "argument --cluster-id/-t: expected one argument")
	f("format -t x --props", "argument --props: expected at least one argument")
	f("format -t x --number ten", `argument --number: could not convert 'ten' to Long (For input string: "ten")`)
	f("format -t x --kind c", "argument --kind: invalid choice: 'c' (choose from {a,b})")
	f("format -t x --one --two y", "argument --two/-2: not allowed with argument --one/-1")
	f("format -t x --three", "unrecognized arguments: '--three'")
	f("format -t x y", "unrecognized arguments: 'y'")
	f("info", "one of the arguments --left --right is required")
	f("--help", "help")
	f("format -h", "help")
}

// TestWrap shows where error lines of argparse4j break: recorded from Kafka's tools, its stretching blanks taken out.
func TestWrap(t *testing.T) {
	f := func(lines ...string) {
		t.Helper()
		text := strings.ReplaceAll(strings.Join(lines, " "), "-- ", "--")
		if got := wrapJava(text, 74); strings.Join(got, "\n") != strings.Join(lines, "\n") {
			t.Errorf("%q", got)
		}
	}
	f("kafka-producer-perf-test: error: argument --payload-file: not allowed with", "argument --record-size")
	f("kafka-producer-perf-test: error: one of the arguments --record-size --", "payload-file --payload-monotonic is required")
	f("kafka-producer-perf-test: error: --record-size should be greater than", "zero.")
	f("kafka-producer-perf-test: error: The value for --warmup-records must be", "strictly fewer than the number of records in the test, --num-records.")
	f("kafka-storage: error: invalid choice: 'explain' (choose from 'info',", "'format', 'version-mapping', 'feature-dependencies', 'random-uuid')")
}
