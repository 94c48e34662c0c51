package cli

import (
	"errors"
	"fmt"
	"regexp"
	"sort"
	"strings"
)

// stop ends a tool from deep inside with a status after everything was printed; runTool turns it into the exit status.
type stop struct{ status int }

func (s stop) Error() string { return fmt.Sprintf("exit status %d", s.status) }

// toolArgs is a tool's options and what Kafka's CommandLineUtils does with them.
type toolArgs struct {
	Options
	e       *Env
	help    *Option
	version *Option
	p       *Parsed
}

// newToolArgs starts a parser with --help and --version.
func newToolArgs(e *Env) *toolArgs {
	a := &toolArgs{e: e}
	a.help = a.Flag("help", "Print usage information.")
	a.version = a.Flag("version", "Display Kafka version.")
	return a
}

// parse reads the command line; what is wrong with it is an *OptionError.
func (a *toolArgs) parse() error {
	var err error
	a.p, err = a.Parse(a.e.Args)
	return err
}

// usage prints message and the options on standard error and ends the tool with 1.
func (a *toolArgs) usage(message string) error {
	a.e.Errorf("%s", message)
	a.PrintHelp(a.e.Stderr)
	return stop{1}
}

// helpOrVersion ends the tool where one of them is asked for, or nothing at all.
func (a *toolArgs) helpOrVersion(about string) error {
	if len(a.e.Args) == 0 || a.p.Has(a.help) {
		return a.usage(about)
	}
	if a.p.Has(a.version) {
		a.e.Println(KafkaVersion)
		return stop{0}
	}
	return nil
}

func (a *toolArgs) require(opts ...*Option) error {
	for _, o := range opts {
		if !a.p.Has(o) {
			return a.usage(fmt.Sprintf("Missing required argument \"%s\"", o))
		}
	}
	return nil
}

// exclude complains if used stands together with one of others.
func (a *toolArgs) exclude(used *Option, others ...*Option) error {
	if !a.p.Has(used) {
		return nil
	}
	for _, o := range others {
		if a.p.Has(o) {
			return a.usage(fmt.Sprintf("Option \"%s\" can't be used with option \"%s\"", used, o))
		}
	}
	return nil
}

func (a *toolArgs) exactlyOne(opts ...*Option) error {
	n := 0
	var names []string
	for _, o := range opts {
		if a.p.Has(o) {
			n++
		}
		names = append(names, o.String())
	}
	if n != 1 {
		return a.usage("Exactly one of the following arguments is required: " + strings.Join(names, ", "))
	}
	return nil
}

// text is the option's value; a tool that lets errors through gets them from its caller.
func (a *toolArgs) text(o *Option) (string, error) { return a.p.Get(o) }

// bootstrapProps are the properties in --command-config with a bootstrap property on top.
func (a *toolArgs) bootstrapProps(config *Option, key, servers string) ([]Property, error) {
	var props []Property
	if a.p.Has(config) {
		path, err := a.text(config)
		if err != nil {
			return nil, err
		}
		if props, err = ReadProperties(path); err != nil {
			return nil, err
		}
	}
	return setProperty(props, key, servers), nil
}

func setProperty(props []Property, key, value string) []Property {
	for i := range props {
		if props[i].Key == key {
			props[i].Value = value
			return props
		}
	}
	return append(props, Property{key, value})
}

func hasProperty(props []Property, key string) bool {
	for _, p := range props {
		if p.Key == key {
			return true
		}
	}
	return false
}

// parseKeyValueArgs reads options of the form key=value; a key without = has the value "".
func parseKeyValueArgs(args []string) []Property {
	var props []Property
	for _, a := range args {
		k, v, _ := strings.Cut(a, "=")
		if k != "" || v != "" {
			props = setProperty(props, k, v)
		}
	}
	return props
}

// runTool runs main and gives its exit status; report prints any error that isn't a stop.
func runTool(main func() error, report func(error)) int {
	err := main()
	var s stop
	switch {
	case err == nil:
		return 0
	case errors.As(err, &s):
		return s.status
	}
	report(err)
	return 1
}

// topicFilter is Kafka's IncludeList: a regular expression for whole topic names in which commas mean "or" and blanks and
// quotes around it mean nothing.
func topicFilter(raw string) (*regexp.Regexp, error) {
	s := strings.ReplaceAll(strings.TrimSpace(raw), ",", "|")
	s = strings.ReplaceAll(s, " ", "")
	s = strings.TrimLeft(s, `"'`)
	s = strings.TrimRight(s, `"'`)
	return wholeRegexp(s, raw)
}

// wholeRegexp compiles a Java regular expression to match whole strings. Both languages have the constructs that topic
// patterns use; what only Java has (back references, look-around) is refused as an invalid one.
func wholeRegexp(s, shown string) (*regexp.Regexp, error) {
	if _, err := regexp.Compile(s); err != nil {
		return nil, &JavaError{Class: "java.lang.RuntimeException", Text: shown + " is an invalid regex."}
	}
	return regexp.MustCompile("^(?:" + s + ")$"), nil
}

// internalTopic says whether a topic is one of Kafka's own.
func internalTopic(name string) bool {
	switch name {
	case "__consumer_offsets", "__transaction_state", "__share_group_state":
		return true
	}
	return false
}

func joinInts[T ~int32](list []T, sep string) string {
	var b strings.Builder
	for i, n := range list {
		if i > 0 {
			b.WriteString(sep)
		}
		fmt.Fprint(&b, n)
	}
	return b.String()
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
