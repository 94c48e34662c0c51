package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// clientKind is whose properties: their names and defaults differ.
type clientKind string

const (
	producerClient clientKind = "producer"
	consumerClient clientKind = "consumer"
	adminClient    clientKind = "admin"
)

// configKey is one property as Kafka defines it.
type configKey struct{ name, kind, def, valid string }

func (k clientKind) keys() []configKey {
	text := map[clientKind]string{producerClient: producerConfigs, consumerClient: consumerConfigs, adminClient: adminConfigs}[k]
	var out []configKey
	for _, l := range strings.Split(strings.TrimSpace(text), "\n") {
		f := strings.Split(l, "\t")
		out = append(out, configKey{f[0], f[1], f[2], f[3]})
	}
	return out
}

// clientConfig is a checked set of properties. Unknown names are kept and mean nothing, as with Kafka's clients.
type clientConfig struct {
	kind   clientKind
	values map[string]string
	set    map[string]bool // given, not a default
}

// newClientConfig checks props, in which later entries win. The error is a *JavaError of class ConfigException.
func newClientConfig(kind clientKind, props []Property) (*clientConfig, error) {
	c := &clientConfig{kind: kind, values: make(map[string]string), set: make(map[string]bool)}
	for _, p := range props {
		c.values[p.Key] = p.Value
		c.set[p.Key] = true
	}
	for _, k := range kind.keys() {
		v, ok := c.values[k.name]
		if !ok {
			if k.def == "(required)" {
				switch k.name {
				case "bootstrap.servers", "key.serializer", "value.serializer", "key.deserializer", "value.deserializer":
				default:
					return nil, configError("Missing required configuration \"%s\" which has no default value.", k.name)
				}
			}
			switch k.def {
			case "-", "null", "(required)", `""`:
			default:
				c.values[k.name] = k.def
			}
			continue
		}
		if text := k.check(strings.TrimSpace(v)); text != "" {
			return nil, configError("Invalid value %s for configuration %s: %s", strings.TrimSpace(v), k.name, text)
		}
		c.values[k.name] = strings.TrimSpace(v)
	}
	return c, nil
}

func configError(format string, args ...any) *JavaError {
	return &JavaError{Class: "org.apache.kafka.common.config.ConfigException", Text: fmt.Sprintf(format, args...)}
}

// check says what is wrong with a value, "" if nothing.
func (k configKey) check(v string) string {
	var n float64
	switch k.kind {
	case "INT", "LONG", "SHORT":
		bits := map[string]int{"INT": 32, "LONG": 64, "SHORT": 16}[k.kind]
		i, err := strconv.ParseInt(v, 10, bits)
		if err != nil {
			return "Not a number of type " + k.kind
		}
		n = float64(i)
	case "DOUBLE":
		var err error
		if n, err = strconv.ParseFloat(v, 64); err != nil {
			return "Not a number of type DOUBLE"
		}
	case "BOOLEAN":
		if l := strings.ToLower(v); l != "true" && l != "false" {
			return "Expected value to be either true or false"
		}
		return ""
	case "STRING":
		return k.checkChoice(v)
	default:
		return ""
	}
	if k.valid == "[1,...,9] or -1" && n == -1 {
		return ""
	}
	lo, hi, ok := bounds(k.valid)
	switch {
	case !ok:
	case n < lo:
		return "Value must be at least " + trimRange(k.valid, 0)
	case n > hi:
		return "Value must be no more than " + trimRange(k.valid, 1)
	}
	return ""
}

// bounds reads "[0,...]" and "[1,...,9] or -1".
func bounds(valid string) (lo, hi float64, ok bool) {
	if !strings.Contains(valid, ",...") {
		return 0, 0, false
	}
	var err error
	if lo, err = strconv.ParseFloat(trimRange(valid, 0), 64); err != nil {
		return 0, 0, false
	}
	hi = math.Inf(1)
	if s := trimRange(valid, 1); s != "" {
		if hi, err = strconv.ParseFloat(s, 64); err != nil {
			return 0, 0, false
		}
	}
	return lo, hi, true
}

func trimRange(valid string, side int) string {
	in, _, _ := strings.Cut(strings.TrimPrefix(valid, "["), "]")
	lo, hi, _ := strings.Cut(in, ",...")
	if side == 0 {
		return lo
	}
	return strings.TrimPrefix(hi, ",")
}

func (k configKey) checkChoice(v string) string {
	list, fold := k.valid, false
	if s, ok := strings.CutPrefix(list, "(case insensitive) "); ok {
		list, fold = s, true
	}
	if !strings.HasPrefix(list, "[") {
		if k.valid == "non-empty string" && v == "" {
			return "String must be non-empty"
		}
		return ""
	}
	if k.name == "auto.offset.reset" { // one of its values is a form, not a word
		switch l := strings.ToLower(v); {
		case l == "earliest", l == "latest", l == "none":
			return ""
		case strings.HasPrefix(l, "by_duration:"):
			if _, ok := isoDuration(v[len("by_duration:"):]); ok {
				return ""
			}
		}
		return fmt.Sprintf("Invalid value `%s` for configuration %s. The value must be either 'earliest', 'latest', 'none' or of the format 'by_duration:<PnDTnHnMn.nS.>'.", v, k.name)
	}
	choices := strings.Split(strings.Trim(list, "[]"), ", ")
	for _, c := range choices {
		if c == v || (fold && strings.EqualFold(c, v)) {
			return ""
		}
	}
	if fold {
		return "String must be one of (case insensitive): " + strings.Join(choices, ", ")
	}
	return "String must be one of: " + strings.Join(choices, ", ")
}

// isoDuration reads PnDTnHnMn.nS.
func isoDuration(s string) (time.Duration, bool) {
	s, ok := strings.CutPrefix(strings.ToUpper(s), "P")
	if !ok || s == "" {
		return 0, false
	}
	day, rest, _ := strings.Cut(s, "T")
	var d time.Duration
	for _, part := range []struct {
		text  string
		units string
	}{{day, "D"}, {rest, "HMS"}} {
		t := part.text
		for t != "" {
			i := strings.IndexAny(t, part.units)
			if i <= 0 {
				return 0, false
			}
			n, err := strconv.ParseFloat(t[:i], 64)
			if err != nil {
				return 0, false
			}
			unit := map[byte]time.Duration{'D': 24 * time.Hour, 'H': time.Hour, 'M': time.Minute, 'S': time.Second}[t[i]]
			d += time.Duration(n * float64(unit))
			t = t[i+1:]
		}
	}
	return d, true
}

func (c *clientConfig) str(key string) string { return c.values[key] }

func (c *clientConfig) has(key string) bool { return c.set[key] }

func (c *clientConfig) boolean(key string) bool { return strings.EqualFold(c.values[key], "true") }

func (c *clientConfig) int(key string) int64 {
	n, err := strconv.ParseInt(c.values[key], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// ms is a property in milliseconds as a duration; what would overflow is as long as a duration can be.
func (c *clientConfig) ms(key string) time.Duration {
	n := c.int(key)
	if n > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Millisecond
}

func (c *clientConfig) list(key string) []string {
	var out []string
	for _, s := range strings.Split(c.values[key], ",") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}
