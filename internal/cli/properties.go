package cli

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// Property is one key of a Java properties file.
type Property struct{ Key, Value string }

// ReadProperties reads a Java properties file. A key that stands twice has its last value, at its first place. The error
// for a file that isn't there is a *JavaError: Kafka's tools name nothing but the file.
func ReadProperties(path string) ([]Property, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &JavaError{Class: "java.nio.file.NoSuchFileException", Text: path}
		}
		if errors.Is(err, fs.ErrPermission) {
			return nil, &JavaError{Class: "java.nio.file.AccessDeniedException", Text: path}
		}
		return nil, err
	}
	return parseProperties(string(b)), nil
}

// parseProperties reads the format that java.util.Properties documents: comments with # and !, `=`, `:` or blanks between
// key and value, lines continued by a backslash, escapes. Bytes are taken as UTF-8.
func parseProperties(text string) []Property {
	var out []Property
	at := make(map[string]int)
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := 0; i < len(lines); i++ {
		l := strings.TrimLeft(lines[i], " \t\f")
		if l == "" || l[0] == '#' || l[0] == '!' {
			continue
		}
		for continued(l) && i+1 < len(lines) {
			i++
			l = l[:len(l)-1] + strings.TrimLeft(lines[i], " \t\f")
		}
		if continued(l) {
			l = l[:len(l)-1]
		}
		end := 0
		for end < len(l) && !strings.ContainsRune("=: \t\f", rune(l[end])) {
			if l[end] == '\\' {
				end++
			}
			end++
		}
		end = min(end, len(l))
		rest := strings.TrimLeft(l[end:], " \t\f")
		if rest != "" && (rest[0] == '=' || rest[0] == ':') {
			rest = strings.TrimLeft(rest[1:], " \t\f")
		}
		k, v := unescapeProperty(l[:end]), unescapeProperty(rest)
		if j, ok := at[k]; ok {
			out[j].Value = v
			continue
		}
		at[k] = len(out)
		out = append(out, Property{k, v})
	}
	return out
}

// continued says whether the line ends in an odd number of backslashes.
func continued(l string) bool {
	n := len(l) - len(strings.TrimRight(l, `\`))
	return n%2 == 1
}

func unescapeProperty(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 't':
			b.WriteByte('\t')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 'f':
			b.WriteByte('\f')
		case 'u':
			if i+4 < len(s) {
				if n, err := strconv.ParseUint(s[i+1:i+5], 16, 32); err == nil {
					b.WriteRune(rune(n))
					i += 4
					continue
				}
			}
			b.WriteByte('u')
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}
