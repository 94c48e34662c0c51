package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Check is a rule about a parsed value. String is the short form in which Kafka's documentation prints it.
type Check interface {
	check(key string, v Value) *Error
	String() string
}

// rangeCheck bounds a number on both sides.
type rangeCheck struct {
	min, max float64
	text     string // as Kafka prints the bounds
}

func atLeast(min int64) Check {
	return rangeCheck{float64(min), math.Inf(1), fmt.Sprintf("[%d,...]", min)}
}

func between(min, max float64) Check {
	f := func(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
	return rangeCheck{min, max, "[" + f(min) + ",...," + f(max) + "]"}
}

func (r rangeCheck) String() string { return r.text }

func (r rangeCheck) check(key string, v Value) *Error {
	if v.Null {
		return invalid(key, "null", "Value must be non-null")
	}
	n := v.Num
	if v.Type != Double {
		n = float64(v.Int)
	}
	bound := func(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
	if n < r.min {
		return invalid(key, v.shown(), "Value must be at least "+bound(r.min))
	}
	if n > r.max {
		return invalid(key, v.shown(), "Value must be no more than "+bound(r.max))
	}
	return nil
}

// gzipLevel is the odd range of a gzip level.
type gzipLevel struct{}

func (gzipLevel) String() string { return "[1,...,9] or -1" }

func (gzipLevel) check(key string, v Value) *Error {
	switch {
	case v.Null:
		return invalid(key, "null", "Value must be non-null")
	case v.Int != -1 && (v.Int < 1 || v.Int > 9):
		return invalid(key, v.shown(), "Value must be between 1 and 9 or equal to -1")
	}
	return nil
}

// oneOf is a choice of texts.
type oneOf struct {
	values []string
	fold   bool
}

func choice(values ...string) Check     { return oneOf{values, false} }
func choiceFold(values ...string) Check { return oneOf{values, true} }

func (o oneOf) String() string {
	s := "[" + strings.Join(o.values, ", ") + "]"
	if o.fold {
		return "(case insensitive) " + s
	}
	return s
}

func (o oneOf) check(key string, v Value) *Error {
	if !v.Null {
		for _, x := range o.values {
			if x == v.Str || o.fold && strings.EqualFold(x, v.Str) {
				return nil
			}
		}
	}
	how := ""
	if o.fold {
		how = " (case insensitive)"
	}
	return invalid(key, v.shown(), "String must be one of"+how+": "+strings.Join(o.values, ", "))
}

// listCheck is a list without repetitions or empty elements.
type listCheck struct {
	values     []string // if any: the only elements allowed
	empty, nul bool
}

func listOf(values ...string) Check      { return listCheck{values: values} }
func listOfMayBeEmpty(v ...string) Check { return listCheck{values: v, empty: true} }

func list(empty, null bool) Check { return listCheck{empty: empty, nul: null} }

func (l listCheck) unique() bool { return true }

func (l listCheck) String() string {
	s := "no duplicates; "
	if l.values != nil {
		s = "[" + strings.Join(l.values, ", ") + "] " + s
	}
	if !l.empty {
		s += "not "
	}
	s += "empty; "
	if !l.nul {
		s += "not "
	}
	return s + "null"
}

func (l listCheck) check(key string, v Value) *Error {
	if v.Null {
		if l.nul {
			return nil
		}
		return configError(key, "Configuration '%s' values must not be null.", key)
	}
	if len(v.List) == 0 && !l.empty {
		which := "any non-empty value"
		if l.values != nil {
			which = "[" + strings.Join(l.values, ", ") + "]"
		}
		return configError(key, "Configuration '%s' must not be empty. Valid values include: %s", key, which)
	}
	for i, s := range v.List {
		if indexOf(v.List[:i], s) >= 0 {
			return configError(key, "Configuration '%s' values must not be duplicated.", key)
		}
	}
	for _, s := range v.List {
		if s == "" {
			return configError(key, "Configuration '%s' values must not be empty.", key)
		}
		if l.values != nil && indexOf(l.values, s) < 0 {
			return invalid(key, s, "String must be one of: "+strings.Join(l.values, ", "))
		}
	}
	return nil
}

// nonEmpty is a text that may be null but not empty.
type nonEmpty struct{}

func (nonEmpty) String() string { return "non-empty string" }

func (nonEmpty) check(key string, v Value) *Error {
	if !v.Null && v.Str == "" {
		return invalid(key, "", "String must be non-empty")
	}
	return nil
}

// nonNull is any text.
type nonNull struct{}

func (nonNull) String() string { return "non-null string" }

func (nonNull) check(key string, v Value) *Error {
	if v.Null {
		return invalid(key, "null", "entry must be non null")
	}
	return nil
}

// throttledReplicas is "*", "none" or partition:broker pairs.
type throttledReplicas struct{}

func (throttledReplicas) String() string {
	return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
}

func (t throttledReplicas) check(key string, v Value) *Error {
	if v.Null {
		return invalid(key, "null", "")
	}
	if len(v.List) == 1 && v.List[0] == "*" {
		return nil
	}
	for _, s := range v.List {
		if s == "" && allEmpty(v.List) {
			continue
		}
		p, b, ok := strings.Cut(s, ":")
		if !ok || !digits(p) || !digits(b) {
			return invalid(key, v.shown(), key+" must be the literal '*' or a list of replicas in the following format: "+t.String())
		}
	}
	return nil
}

func allEmpty(list []string) bool {
	for _, s := range list {
		if s != "" {
			return false
		}
	}
	return true
}

func digits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// offsetReset is where a share group begins.
type offsetReset struct{}

func (offsetReset) String() string { return "[latest, earliest, by_duration:PnDTnHnMn.nS]" }

func (offsetReset) check(key string, v Value) *Error {
	if !v.Null {
		if v.Str == "latest" || v.Str == "earliest" {
			return nil
		}
		if d, ok := strings.CutPrefix(v.Str, "by_duration:"); ok {
			if n, ok := parseISODuration(d); ok && n >= 0 {
				return nil
			}
		}
	}
	return invalid(key, v.shown(), fmt.Sprintf("Invalid value `%s` for configuration %s. The value must be either 'earliest', "+
		"'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.", v.shown(), key))
}

// parseISODuration reads java.time.Duration's text, PnDTnHnMn.nS, as seconds.
func parseISODuration(s string) (seconds float64, ok bool) {
	sign := 1.0
	if s != "" && (s[0] == '-' || s[0] == '+') {
		if s[0] == '-' {
			sign = -1
		}
		s = s[1:]
	}
	if s == "" || s[0] != 'P' && s[0] != 'p' {
		return 0, false
	}
	s = strings.ToUpper(s[1:])
	units := []struct {
		letter byte
		size   float64
	}{{'D', 86400}, {'H', 3600}, {'M', 60}, {'S', 1}}
	next, any, inTime, timeParts := 0, false, false, 0
	for s != "" {
		if s[0] == 'T' {
			if inTime {
				return 0, false
			}
			inTime, s = true, s[1:]
			continue
		}
		n := 0
		for n < len(s) && (s[n] >= '0' && s[n] <= '9' || s[n] == '-' || s[n] == '+' || s[n] == '.') {
			n++
		}
		if n == 0 || n == len(s) {
			return 0, false
		}
		u := -1
		for i := next; i < len(units); i++ {
			if units[i].letter == s[n] {
				u = i
			}
		}
		if u < 0 || (u == 0) == inTime {
			return 0, false
		}
		if strings.Contains(s[:n], ".") && u != 3 {
			return 0, false
		}
		f, err := strconv.ParseFloat(s[:n], 64)
		if err != nil {
			return 0, false
		}
		seconds += f * units[u].size
		next, any, s = u+1, true, s[n+1:]
		if inTime {
			timeParts++
		}
	}
	return sign * seconds, any && (!inTime || timeParts > 0)
}

// voters is the check of controller.quorum.voters.
type voters struct{}

func (voters) String() string { return "non-empty list" }

func (voters) check(key string, v Value) *Error {
	if v.Null {
		return invalid(key, "null", "")
	}
	_, err := parseVoters(key, v.List)
	return err
}

// bootstrapServers is the check of controller.quorum.bootstrap.servers.
type bootstrapServers struct{}

func (bootstrapServers) String() string { return "non-empty list" }

func (bootstrapServers) check(key string, v Value) *Error {
	if v.Null {
		return invalid(key, "null", "")
	}
	_, err := parseBootstrap(key, v.List)
	return err
}

// knownClass holds a CLASS to what this implementation can be: the classes that Kafka itself brings are known by name,
// others cannot be loaded, which Kafka says of a class that isn't on its path.
func knownClass(name string) bool {
	return strings.HasPrefix(name, "org.apache.kafka.") || strings.HasPrefix(name, "java.")
}
