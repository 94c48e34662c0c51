package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// Hidden is what stands for a password wherever a configuration is shown.
const Hidden = "[hidden]"

// Value is a parsed property. Which field counts depends on Type; all are zero if Null.
type Value struct {
	Type Type
	Null bool
	Bool bool
	Int  int64 // Int, Short, Long
	Num  float64
	Str  string // String, Class, Password
	List []string
}

// Text is the value as Kafka prints it in DescribeConfigs; passwords are shown. It is "" for null: ask Null.
func (v Value) Text() string {
	if v.Null {
		return ""
	}
	switch v.Type {
	case Boolean:
		return strconv.FormatBool(v.Bool)
	case Int, Short, Long:
		return strconv.FormatInt(v.Int, 10)
	case Double:
		return JavaDouble(v.Num)
	case List:
		return strings.Join(v.List, ",")
	}
	return v.Str
}

// shown is the value as Java prints it in an error message.
func (v Value) shown() string {
	switch {
	case v.Null:
		return "null"
	case v.Type == List:
		return "[" + strings.Join(v.List, ", ") + "]"
	case v.Type == Password:
		return Hidden
	}
	return v.Text()
}

// Error is a configuration that cannot be used, in Kafka's words.
type Error struct {
	Class string // the Java exception that Kafka throws, for tools that print its name
	Key   string // the key at fault, "" if several
	Text  string
}

func (e *Error) Error() string { return e.Text }

// The exceptions' names.
const (
	ConfigException          = "org.apache.kafka.common.config.ConfigException"
	IllegalArgumentException = "java.lang.IllegalArgumentException"
)

func configError(key, format string, args ...any) *Error {
	return &Error{ConfigException, key, fmt.Sprintf(format, args...)}
}

func requirement(key, format string, args ...any) *Error {
	return &Error{IllegalArgumentException, key, "requirement failed: " + fmt.Sprintf(format, args...)}
}

func invalid(key, value, why string) *Error {
	if why == "" {
		return configError(key, "Invalid value %s for configuration %s", value, key)
	}
	return configError(key, "Invalid value %s for configuration %s: %s", value, key, why)
}

// Parse reads the text of a property and checks it. A list loses repeated elements first, as Kafka does with a warning.
func (k *Key) Parse(text string) (Value, error) {
	v, err := k.Type.parse(k.Name, text)
	if err != nil {
		return Value{}, err
	}
	if l, ok := k.Check.(listCheck); ok && len(v.List) > 1 && l.unique() {
		v.List = distinct(v.List)
	}
	if k.Check != nil {
		if err := k.Check.check(k.Name, v); err != nil {
			return Value{}, err
		}
	}
	return v, nil
}

// oldBounds are the least values that some Kafka from 3.3 on took for keys whose bound has risen since. Such values live on
// in metadata, and a node must start with what its log holds. (All others of the topics' and dynamic brokers' keys are as
// they were, except that a list may not repeat an element any more, which Parse mends.)
var oldBounds = map[string]int64{"segment.bytes": 14, "log.segment.bytes": 14}

// ParseStored reads a value that stands in the metadata. One that an older Kafka allowed and 4.4 refuses is good; note
// then says what today's bound is.
func (k *Key) ParseStored(text string) (v Value, note string, err error) {
	if v, err = k.Parse(text); err == nil {
		return v, "", nil
	}
	if least, ok := oldBounds[k.Name]; ok {
		if v, perr := k.Type.parse(k.Name, text); perr == nil && v.Int >= least {
			return v, fmt.Sprintf("an older Kafka allowed it; Kafka 4.4 refuses it: %v", err), nil
		}
	}
	return Value{}, "", err
}

// DefaultValue is the default, parsed. A required key has null.
func (k *Key) DefaultValue() Value {
	if k.Null || k.Required {
		return Value{Type: k.Type, Null: true}
	}
	v, err := k.Type.parse(k.Name, k.Default)
	if err != nil {
		panic(err)
	}
	return v
}

func distinct(list []string) []string {
	var out []string
	for i, s := range list {
		if indexOf(list[:i], s) < 0 {
			out = append(out, s)
		}
	}
	return out
}

func indexOf(list []string, s string) int {
	for i, x := range list {
		if x == s {
			return i
		}
	}
	return -1
}

// trim cuts what java.lang.String.trim cuts: everything up to the space character.
func trim(s string) string { return strings.TrimFunc(s, func(r rune) bool { return r <= ' ' }) }

func (t Type) parse(name, text string) (Value, error) {
	v := Value{Type: t}
	s := trim(text)
	switch t {
	case Boolean:
		switch {
		case strings.EqualFold(s, "true"):
			v.Bool = true
		case strings.EqualFold(s, "false"):
		default:
			return v, invalid(name, text, "Expected value to be either true or false")
		}
	case Int, Short, Long:
		bits := 64
		if t == Int {
			bits = 32
		} else if t == Short {
			bits = 16
		}
		n, err := strconv.ParseInt(javaDigits(s), 10, bits)
		if err != nil {
			return v, invalid(name, text, "Not a number of type "+t.String())
		}
		v.Int = n
	case Double:
		n, ok := parseJavaDouble(s)
		if !ok {
			return v, invalid(name, text, "Not a number of type DOUBLE")
		}
		v.Num = n
	case List:
		v.List = splitList(s)
	case Password:
		v.Str = s
	case String, Class:
		v.Str = s
	}
	return v, nil
}

// splitList splits at commas and the spaces around them. The empty text is the empty list; empty elements stay.
func splitList(s string) []string {
	if s == "" {
		return []string{}
	}
	parts := strings.Split(s, ",")
	for i, p := range parts {
		if i > 0 {
			p = strings.TrimLeft(p, " \t\n\v\f\r")
		}
		if i < len(parts)-1 {
			p = strings.TrimRight(p, " \t\n\v\f\r")
		}
		parts[i] = p
	}
	return parts
}

// javaDigits replaces decimal digits of other scripts by ASCII ones, as Java's Integer.parseInt reads them, and takes the
// underscore, which Go would read, for the error that it is.
func javaDigits(s string) string {
	for i := 0; i < len(s); i++ {
		if s[i] == '_' {
			return ""
		}
		if s[i] >= 0x80 {
			return strings.Map(func(r rune) rune {
				if r >= 0x80 && unicode.Is(unicode.Nd, r) {
					// Blocks of decimal digits begin at a multiple of ten code points after their zero.
					z := r
					for unicode.Is(unicode.Nd, z-1) && r-z < 9 {
						z--
					}
					return '0' + r - z
				}
				return r
			}, s)
		}
	}
	return s
}

// parseJavaDouble reads what Double.parseDouble reads: no underscores, no "inf", "nan" spelt as Java does, an optional
// suffix d or f, hexadecimal with an exponent.
func parseJavaDouble(s string) (float64, bool) {
	body := strings.TrimLeft(s, "+-")
	if len(s)-len(body) > 1 {
		return 0, false
	}
	switch body {
	case "NaN":
		return math.NaN(), true
	case "Infinity":
		if s[0] == '-' {
			return math.Inf(-1), true
		}
		return math.Inf(1), true
	}
	if body == "" || !(body[0] >= '0' && body[0] <= '9' || body[0] == '.') || strings.Contains(body, "_") {
		return 0, false
	}
	hex := strings.HasPrefix(body, "0x") || strings.HasPrefix(body, "0X")
	if hex && !strings.ContainsAny(body, "pP") {
		return 0, false
	}
	if n := len(s); strings.ContainsRune("dDfF", rune(s[n-1])) {
		s = s[:n-1]
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		if ne, ok := err.(*strconv.NumError); !ok || ne.Err != strconv.ErrRange {
			return 0, false
		}
	}
	return f, true
}

// JavaDouble prints f as java.lang.Double.toString does.
func JavaDouble(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case f == 0:
		if math.Signbit(f) {
			return "-0.0"
		}
		return "0.0"
	}
	if a := math.Abs(f); a >= 1e-3 && a < 1e7 {
		s := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	mant, exp, _ := strings.Cut(s, "e")
	if !strings.Contains(mant, ".") {
		mant += ".0"
	}
	n, err := strconv.Atoi(exp)
	if err != nil {
		panic(err)
	}
	return mant + "E" + strconv.Itoa(n)
}
