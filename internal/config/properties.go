package config

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// Properties is a .properties file: keys and values in Java's form, the last of a repeated key wins.
type Properties struct {
	values  map[string]string
	lines   map[string]int
	earlier map[string][]int // lines of a repeated key whose values are lost
}

// NewProperties makes properties out of a map.
func NewProperties(values map[string]string) *Properties {
	p := &Properties{values: maps.Clone(values), lines: make(map[string]int), earlier: make(map[string][]int)}
	if p.values == nil {
		p.values = make(map[string]string)
	}
	return p
}

// ParseProperties reads a file as java.util.Properties does: ISO 8859-1, comments with # or !, lines joined by a
// backslash at their end, the escapes \t \n \r \f and \uXXXX, "=", ":" or blanks between key and value. The error names
// the line.
func ParseProperties(data []byte) (*Properties, error) {
	p := NewProperties(nil)
	for pos, line := 0, 1; pos < len(data); {
		first := line
		var logical []byte
		for more := true; more && pos < len(data); {
			var natural []byte
			natural, pos = cutLine(data, pos)
			line++
			natural = trimBlanks(natural)
			if len(logical) == 0 && more && (len(natural) == 0 || natural[0] == '#' || natural[0] == '!') && first == line-1 {
				break // a comment or blank line; neither can be continued
			}
			slashes := 0
			for slashes < len(natural) && natural[len(natural)-1-slashes] == '\\' {
				slashes++
			}
			if more = slashes%2 == 1; more {
				natural = natural[:len(natural)-1]
			}
			logical = append(logical, natural...)
		}
		if len(logical) == 0 {
			continue
		}
		key, value := splitProperty(logical)
		k, err := unescape(key)
		if err == nil {
			value, err2 := unescape(value)
			if err2 == nil {
				if was, again := p.lines[k]; again {
					p.earlier[k] = append(p.earlier[k], was)
				}
				p.values[k], p.lines[k] = value, first
				continue
			}
			err = err2
		}
		return nil, &Error{IllegalArgumentException, "", fmt.Sprintf("line %d: %v", first, err)}
	}
	return p, nil
}

func cutLine(data []byte, pos int) (line []byte, next int) {
	for i := pos; i < len(data); i++ {
		switch data[i] {
		case '\n':
			return data[pos:i], i + 1
		case '\r':
			if i+1 < len(data) && data[i+1] == '\n' {
				return data[pos:i], i + 2
			}
			return data[pos:i], i + 1
		}
	}
	return data[pos:], len(data)
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\f' }

func trimBlanks(b []byte) []byte {
	for len(b) > 0 && blank(b[0]) {
		b = b[1:]
	}
	return b
}

func splitProperty(b []byte) (key, value []byte) {
	i := 0
	for i < len(b) && !blank(b[i]) && b[i] != '=' && b[i] != ':' {
		if b[i] == '\\' {
			i++
		}
		i++
	}
	if i >= len(b) {
		return b, nil
	}
	key, value = b[:i], trimBlanks(b[i:])
	if len(value) > 0 && (value[0] == '=' || value[0] == ':') {
		value = trimBlanks(value[1:])
	}
	return key, value
}

func unescape(b []byte) (string, error) {
	var out []uint16
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c != '\\' {
			out = append(out, uint16(c))
			continue
		}
		i++
		if i == len(b) {
			break
		}
		switch c = b[i]; c {
		case 't':
			out = append(out, '\t')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 'f':
			out = append(out, '\f')
		case 'u':
			if i+4 >= len(b) {
				return "", fmt.Errorf("Malformed \\uxxxx encoding.") //nolint:staticcheck // Java's words
			}
			n, err := strconv.ParseUint(string(b[i+1:i+5]), 16, 16)
			if err != nil {
				return "", fmt.Errorf("Malformed \\uxxxx encoding.") //nolint:staticcheck // Java's words
			}
			out = append(out, uint16(n))
			i += 4
		default:
			out = append(out, uint16(c))
		}
	}
	return string(utf16.Decode(out)), nil
}

// Get is the value of key.
func (p *Properties) Get(key string) (string, bool) {
	v, ok := p.values[key]
	return v, ok
}

// Set replaces the value of key.
func (p *Properties) Set(key, value string) {
	p.values[key] = value
	delete(p.lines, key)
	delete(p.earlier, key)
}

// Line is where in the file the key stands, or 0.
func (p *Properties) Line(key string) int { return p.lines[key] }

// Earlier are the lines before Line where the key stands too: what they say is lost.
func (p *Properties) Earlier(key string) []int { return p.earlier[key] }

// Keys is all keys, sorted.
func (p *Properties) Keys() []string { return slices.Sorted(maps.Keys(p.values)) }

// Map is a copy of all values.
func (p *Properties) Map() map[string]string { return maps.Clone(p.values) }

// Override applies the arguments of --override, key=value. As in Kafka one without "=" sets the empty text, and one
// without a key is passed over.
func (p *Properties) Override(args []string) {
	for _, a := range args {
		k, v, _ := strings.Cut(a, "=")
		if k != "" {
			p.Set(k, v)
		}
	}
}

// Providers is what config providers read from. A nil function finds nothing.
type Providers struct {
	Env  func(name string) (string, bool)
	File func(name string) ([]byte, error) // whole file; for FileConfigProvider and DirectoryConfigProvider
}

// The providers that Kafka brings.
const (
	envProvider       = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
	fileProvider      = "org.apache.kafka.common.config.provider.FileConfigProvider"
	directoryProvider = "org.apache.kafka.common.config.provider.DirectoryConfigProvider"
)

// Resolve replaces ${provider:path:key} and ${provider:key} in values, if config.providers names any. A variable that
// its provider doesn't know stays as it is, as in Kafka.
func (p *Properties) Resolve(from Providers) error {
	names := splitList(trim(p.values["config.providers"]))
	if len(names) == 0 {
		return nil
	}
	get := make(map[string]func(dir, key string) (string, bool, error))
	for _, n := range names {
		class := trim(p.values["config.providers."+n+".class"])
		allowed := func(param string) []string {
			return splitList(trim(p.values["config.providers."+n+".param."+param]))
		}
		for _, a := range allowed("allowed.paths") {
			if !strings.HasPrefix(a, "/") {
				return configError("config.providers", "Path %s in config.providers.%s.param.allowed.paths is not absolute", a, n)
			}
		}
		switch class {
		case envProvider:
			pattern := trim(p.values["config.providers."+n+".param.allowlist.pattern"])
			re, err := regexp.Compile("^(?:" + pattern + ")$")
			if err != nil {
				return configError("config.providers", "Invalid value %s for configuration config.providers.%s.param.allowlist.pattern: %v", pattern, n, err)
			}
			get[n] = func(path, key string) (string, bool, error) {
				if path != "" {
					return "", false, configError("config.providers", "Path is not supported for EnvVarConfigProvider, invalid value '%s'", path)
				}
				if from.Env == nil || pattern != "" && !re.MatchString(key) {
					return "", false, nil
				}
				v, ok := from.Env(key)
				return v, ok, nil
			}
		case fileProvider:
			paths := allowed("allowed.paths")
			cache := make(map[string]*Properties)
			get[n] = func(path, key string) (string, bool, error) {
				if path == "" || from.File == nil || !pathAllowed(paths, path) {
					return "", false, nil
				}
				if cache[path] == nil {
					b, err := from.File(path)
					if err == nil {
						cache[path], err = ParseProperties(b)
					}
					if err != nil {
						return "", false, configError("config.providers", "Could not read properties from file %s", path)
					}
				}
				v, ok := cache[path].Get(key)
				return v, ok, nil
			}
		case directoryProvider:
			paths := allowed("allowed.paths")
			get[n] = func(path, key string) (string, bool, error) {
				if path == "" || strings.Contains(key, "/") || from.File == nil || !pathAllowed(paths, path) {
					return "", false, nil
				}
				b, err := from.File(strings.TrimSuffix(path, "/") + "/" + key)
				if err != nil {
					return "", false, nil
				}
				return string(b), true, nil
			}
		case "":
			return configError("config.providers", "Could not load config provider class or instantiate ConfigProvider: config.providers.%s.class is not set", n)
		default:
			return invalid("config.providers", class, "Could not load config provider class or instantiate ConfigProvider")
		}
	}
	for _, k := range p.Keys() {
		if k == "config.providers" || strings.HasPrefix(k, "config.providers.") {
			continue
		}
		v, err := expand(p.values[k], get)
		if err != nil {
			return err
		}
		p.values[k] = v
	}
	return nil
}

// expand replaces ${provider:[path:]key}. The path may contain colons: the key is what follows the last one.
func expand(v string, get map[string]func(path, key string) (string, bool, error)) (string, error) {
	var out strings.Builder
	for {
		start := strings.Index(v, "${")
		if start < 0 {
			break
		}
		end := strings.IndexByte(v[start:], '}')
		if end < 0 {
			break
		}
		end += start
		out.WriteString(v[:start])
		provider, rest, ok := strings.Cut(v[start+2:end], ":")
		text := v[start : end+1]
		if f := get[provider]; ok && f != nil {
			path, key := "", rest
			if i := strings.LastIndexByte(rest, ':'); i >= 0 {
				path, key = rest[:i], rest[i+1:]
			}
			x, found, err := f(path, key)
			if err != nil {
				return "", err
			}
			if found {
				text = x
			}
		}
		out.WriteString(text)
		v = v[end+1:]
	}
	out.WriteString(v)
	return out.String(), nil
}

// pathAllowed tells whether a path lies in one of those that allowed.paths names, as it is when every ".." is resolved.
func pathAllowed(allowed []string, name string) bool {
	if len(allowed) == 0 {
		return true
	}
	name = path.Clean(name)
	for _, a := range allowed {
		if a = path.Clean(a); name == a || strings.HasPrefix(name, strings.TrimSuffix(a, "/")+"/") {
			return true
		}
	}
	return false
}
