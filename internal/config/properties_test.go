package config

import (
	"errors"
	"strings"
	"testing"
)

// A file is read as java.util.Properties reads it.
func TestParseProperties(t *testing.T) {
	f := func(text string, want map[string]string) {
		t.Helper()
		p, err := ParseProperties([]byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			return
		}
		got := p.Map()
		if len(got) != len(want) {
			t.Errorf("%q: got %q", text, got)
		}
		for k, v := range want {
			if got[k] != v {
				t.Errorf("%q: %s is %q, want %q", text, k, got[k], v)
			}
		}
	}
	m := func(kv ...string) map[string]string {
		out := make(map[string]string)
		for i := 0; i < len(kv); i += 2 {
			out[kv[i]] = kv[i+1]
		}
		return out
	}
	f("", m())
	f("a=1", m("a", "1"))
	f("a=1\nb=2\n", m("a", "1", "b", "2"))
	f("a=1\r\nb=2\rc=3", m("a", "1", "b", "2", "c", "3"))
	f("  a  =  1 2  ", m("a", "1 2  "))
	f("a:1\nb 2\nc\t3\nd", m("a", "1", "b", "2", "c", "3", "d", ""))
	f("a = = b", m("a", "= b"))
	f("a==b", m("a", "=b"))
	f("a : = b", m("a", "= b"))
	f("=x", m("", "x"))
	f("# a=1\n ! b=2\n\n \t\f\nc=3", m("c", "3"))
	f("a=1\na=2", m("a", "2"))
	f("a=b\\\n   c\\\n\td", m("a", "bcd"))
	f("a=b\\\\\nc=d", m("a", `b\`, "c", "d"))
	f("a=b\\\n# no comment", m("a", "b# no comment"))
	f("# comment \\\na=1", m("a", "1"))
	f("a=b\\", m("a", "b"))
	f("a=b\\\n\nc=1", m("a", "b", "c", "1"))
	f("a=b\\\n   \n c=1", m("a", "b", "c", "1"))
	f(`a\=b\:c\ d=\t\n\r\f\q\\`, m("a=b:c d", "\t\n\r\fq\\"))
	f(`a=\u0041\u00e9\uD83D\uDE00`, m("a", "Aé😀"))
	f("a=\xe9", m("a", "é")) // the file is ISO 8859-1
	f("a=x\\\r\n y", m("a", "xy"))
	f("a=#no comment", m("a", "#no comment"))

	for _, text := range []string{`a=\u12`, "x=1\n" + `a=\u12g4`, `\u=1`} {
		_, err := ParseProperties([]byte(text))
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(e.Text, `Malformed \uxxxx encoding.`) || !strings.HasPrefix(e.Text, "line ") {
			t.Errorf("%q: %v", text, err)
		}
	}
	p, err := ParseProperties([]byte("# x\na=1\nb=2\\\n3\nc=4\na=5"))
	if err != nil {
		t.Fatal(err)
	}
	if p.Line("a") != 6 || p.Line("b") != 3 || p.Line("c") != 5 || p.Line("d") != 0 {
		t.Errorf("lines %d %d %d %d", p.Line("a"), p.Line("b"), p.Line("c"), p.Line("d"))
	}
	p.Override([]string{"a=7=8", "e", "=x", "c="})
	if got := p.Map(); got["a"] != "7=8" || got["c"] != "" || len(got) != 4 {
		t.Errorf("overridden: %q", got)
	}
}

// Providers replace what they know and leave the rest.
func TestProviders(t *testing.T) {
	p := NewProperties(map[string]string{
		"config.providers":                             "env,file,dir",
		"config.providers.env.class":                   envProvider,
		"config.providers.env.param.allowlist.pattern": "K_.*",
		"config.providers.file.class":                  fileProvider,
		"config.providers.file.param.allowed.paths":    "/run/secrets",
		"config.providers.dir.class":                   directoryProvider,
		"a":                                            "x${env:K_A}y${env:OTHER}${env:K_NONE}z",
		"b":                                            "${file:/run/secrets/f.properties:pass}",
		"c":                                            "${file:/etc/passwd:root}",
		"d":                                            "${dir:/run/d:key}",
		"e":                                            "${nobody:x} ${unclosed",
		"f":                                            "${dir:/run/d:a/b}",
	})
	files := map[string]string{"/run/secrets/f.properties": "pass=s3cret\n", "/run/d/key": "line\n", "/etc/passwd": "root=x"}
	err := p.Resolve(Providers{
		Env: func(n string) (string, bool) { v, ok := map[string]string{"K_A": "1", "OTHER": "2"}[n]; return v, ok },
		File: func(n string) ([]byte, error) {
			if v, ok := files[n]; ok {
				return []byte(v), nil
			}
			return nil, errors.New("none")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]string{"a": "x1y${env:OTHER}${env:K_NONE}z", "b": "s3cret", "c": "${file:/etc/passwd:root}", "d": "line\n",
		"e": "${nobody:x} ${unclosed", "f": "${dir:/run/d:a/b}"} {
		if got, _ := p.Get(k); got != want {
			t.Errorf("%s is %q, want %q", k, got, want)
		}
	}
	for _, bad := range []map[string]string{
		{"config.providers": "x"},
		{"config.providers": "x", "config.providers.x.class": "com.acme.Vault"},
		{"config.providers": "f", "config.providers.f.class": fileProvider, "a": "${f:/none:x}"},
		{"config.providers": "f", "config.providers.f.class": fileProvider, "config.providers.f.param.allowed.paths": "etc"},
	} {
		if err := NewProperties(bad).Resolve(Providers{File: func(string) ([]byte, error) { return nil, errors.New("none") }}); err == nil {
			t.Errorf("%v: accepted", bad)
		}
	}
}

// Paths outside of those that are allowed are not read, however they are written.
func TestAllowedPaths(t *testing.T) {
	f := func(name string, want bool) {
		t.Helper()
		if got := pathAllowed([]string{"/run/secrets/", "/etc/one"}, name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	f("/run/secrets/a", true)
	f("/run/secrets", true)
	f("/run/secrets/../secrets/a", true)
	f("/etc/one", true)
	f("/run/secrets/..", false)
	f("/run/secrets/../a", false)
	f("/run/secrets2/a", false)
	f("/etc/one/../two", false)
	f("run/secrets/a", false)
	f("/", false)
}

// Whatever the bytes, reading ends; what it gives can be written and read back.
func FuzzParseProperties(f *testing.F) {
	for _, s := range []string{"a=1\n", "a\\\n=b\\\\", `k=\u0041`, "#x\n!y\r\na:b c", "\\", "a=\\\r\n", "a=\\u"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParseProperties(data)
		if err != nil {
			return
		}
		for _, k := range p.Keys() {
			if _, ok := p.Get(k); !ok || p.Line(k) < 1 {
				t.Fatalf("key %q without value or line", k)
			}
		}
		if b, err := NewBroker(p); err == nil {
			b.Describe()
			b.Unknown()
		}
		Explain("f", p)
	})
}

// No text makes the parser of a key panic, and what it takes it takes again in the form in which it prints it.
func FuzzParseValue(f *testing.F) {
	for _, s := range []string{"1", "-1", "1.5e3", "true", "a,b", "by_duration:PT1S", "1@h:1", "0x1p3", "PLAINTEXT://:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, table := range []*Table{TopicTable, GroupTable, BrokerTable} {
			for _, k := range table.Keys {
				v, err := k.Parse(s)
				if err != nil || k.Type == List {
					continue
				}
				again, err := k.Parse(v.Text())
				if err != nil || again.Text() != v.Text() {
					t.Fatalf("%s: %q printed %q, read again: %v", k.Name, s, v.Text(), err)
				}
			}
		}
	})
}
