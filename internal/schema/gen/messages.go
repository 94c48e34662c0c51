package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
)

// apiTable is the Go form of tables/apis.tsv.
func apiTable(td fs.FS) (string, error) {
	b, err := fs.ReadFile(td, "tables/apis.tsv")
	if err != nil {
		return "", err
	}
	e := new(emitter)
	e.f("package schema\n\n// APIs is every API of Kafka 4.4 by key; those without a version are removed ones.\nvar APIs = [MaxAPIKey + 1]API{")
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	column := make(map[string]int)
	for i, c := range strings.Split(lines[0], "\t") {
		column[c] = i
	}
	for _, l := range lines[1:] {
		cells := strings.Split(l, "\t")
		get := func(c string) string { return cells[column[c]] }
		var v [4]versions
		for i, c := range []string{"schema", "flexible", "unstable", "broker"} {
			if v[i], err = parseVersions(get(c)); err != nil {
				return "", fmt.Errorf("apis.tsv: %w", err)
			}
		}
		served, flexible, unstable, advertised := v[0], v[1], v[2], v[3]
		stable := served
		if !unstable.empty() {
			stable.hi = unstable.lo - 1
		}
		if advertised.empty() {
			advertised = stable
		}
		first := int16(-1)
		if !flexible.empty() {
			first = flexible.lo
		}
		listeners := get("listeners")
		e.f("%s: {Key: %s, Name: %q, Min: %d, Max: %d, MaxUnstable: %d, Advertised: %d, Flexible: %d, Broker: %v, Controller: %v, ClusterAction: %v, Forwardable: %v},",
			get("key"), get("key"), get("name"), served.lo, stable.hi, served.hi, advertised.lo, first,
			strings.Contains(listeners, "broker"), strings.Contains(listeners, "controller"), get("clusterAction") == "yes", get("forwardable") == "yes")
	}
	e.f("}\n\n// MaxAPIKey is the highest API key.\nconst MaxAPIKey = %d", len(lines)-2)
	return e.String(), nil
}

type message struct {
	schema
	APIKey *int16 `json:"apiKey"`
}

// shapeTable is what Check walks a message by: for each request and response its fields, without their names.
func shapeTable(td fs.FS) (string, error) {
	names, err := fs.Glob(td, "schemas/messages/*.json")
	if err != nil {
		return "", err
	}
	requests, responses := make(map[int16]string), make(map[int16]string)
	e := new(emitter)
	e.f("package schema\n")
	top := int16(0)
	for _, n := range names {
		b, err := fs.ReadFile(td, n)
		if err != nil {
			return "", err
		}
		m := new(message)
		if err := json.Unmarshal(b, m); err != nil {
			return "", fmt.Errorf("%s: %w", n, err)
		}
		if m.APIKey == nil || m.Versions.empty() {
			continue
		}
		m.root = m.structOf(m.Name, m.Name, m.Versions, m.Fields)
		e.f("var shape%s = shape{lo: %d, hi: %d, flexible: %d, fields: %s}\n", m.Name, m.Versions.lo, m.Versions.hi, firstOf(m.Flexible), shapeOf(&m.schema, m.root))
		if m.Kind == "request" {
			requests[*m.APIKey] = m.Name
		} else {
			responses[*m.APIKey] = m.Name
		}
		top = max(top, *m.APIKey)
	}
	for _, t := range []struct {
		name string
		of   map[int16]string
	}{{"requestShapes", requests}, {"responseShapes", responses}} {
		e.f("var %s = [%d]*shape{", t.name, top+1)
		for k := int16(0); k <= top; k++ {
			if n := t.of[k]; n != "" {
				e.f("%d: &shape%s,", k, n)
			}
		}
		e.f("}\n")
	}
	return e.String(), nil
}

func firstOf(v versions) int16 {
	if v.empty() {
		return -1
	}
	return v.lo
}

var kinds = map[string]string{
	"bool": "fixed1", "int8": "fixed1", "int16": "fixed2", "uint16": "fixed2", "int32": "fixed4", "uint32": "fixed4",
	"int64": "fixed8", "float64": "fixed8", "uuid": "fixed16", "string": "text", "bytes": "blob", "records": "blob",
}

// shapeOf is the Go literal of t's fields.
func shapeOf(s *schema, t *structType) string {
	var b strings.Builder
	b.WriteString("[]shapeField{\n")
	for _, f := range t.fields {
		kind := kinds[f.element()]
		sub := ""
		if f.sub != nil {
			kind = "group"
			sub = ", sub: " + shapeOf(s, f.sub)
		}
		fmt.Fprintf(&b, "{kind: %s, array: %v, lo: %d, hi: %d", kind, f.array(), f.Versions.lo, f.Versions.hi)
		if n := f.nullable(); !n.empty() {
			fmt.Fprintf(&b, ", null: true, nullLo: %d, nullHi: %d", n.lo, n.hi)
		}
		if g := f.tagged(); !g.empty() {
			fmt.Fprintf(&b, ", tagged: true, tag: %d, tagLo: %d, tagHi: %d", *f.Tag, g.lo, g.hi)
		}
		if f.array() || f.sub != nil {
			fmt.Fprintf(&b, ", size: %d", memory(f))
		}
		b.WriteString(sub + "},\n")
	}
	b.WriteString("}")
	return b.String()
}

// memory is about what a decoded element takes in kmsg.
func memory(f *field) int {
	if f.sub == nil {
		return leastMemory(f.element())
	}
	n := 8 // unknown tags
	for _, g := range f.sub.fields {
		switch {
		case g.array():
			n += 24
		case g.sub != nil && !g.nullable().empty():
			n += 8
		case g.sub != nil:
			n += memory(g)
		default:
			n += leastMemory(g.Type)
		}
	}
	return n
}

func leastMemory(kind string) int {
	switch kind {
	case "string":
		return 24 // with a pointer, if it is nullable, and a small allocation
	case "bytes", "records":
		return 24
	}
	return (leastOf(kind, true) + 7) / 8 * 8
}
