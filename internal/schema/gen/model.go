package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"sort"
	"strconv"
	"strings"
)

// versions is a closed range; none if hi < lo.
type versions struct{ lo, hi int16 }

var none = versions{0, -1}

func (v versions) empty() bool             { return v.hi < v.lo }
func (v versions) has(x int16) bool        { return v.lo <= x && x <= v.hi }
func (v versions) covers(o versions) bool  { return o.empty() || v.lo <= o.lo && o.hi <= v.hi }
func (v versions) and(o versions) versions { return versions{max(v.lo, o.lo), min(v.hi, o.hi)} }

func (v *versions) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	r, err := parseVersions(s)
	*v = r
	return err
}

func parseVersions(s string) (versions, error) {
	if s == "none" || s == "-" || s == "" {
		return none, nil
	}
	lo, hi, ranged := strings.Cut(s, "-")
	if !ranged {
		hi = lo
	}
	a, err := strconv.ParseInt(lo, 10, 16)
	if err != nil {
		return none, fmt.Errorf("versions %q: %w", s, err)
	}
	b, err := strconv.ParseInt(hi, 10, 16)
	if err != nil {
		return none, fmt.Errorf("versions %q: %w", s, err)
	}
	return versions{int16(a), int16(b)}, nil
}

// field is a field of a schema file; README-tables.md says what each key means.
type field struct {
	Name      string          `json:"name"`
	Type      string          `json:"type"`
	Versions  versions        `json:"versions"`
	Nullable  *versions       `json:"nullable"`
	Tag       *uint32         `json:"tag"`
	Tagged    *versions       `json:"tagged"`
	Default   json.RawMessage `json:"default"`
	Ignorable bool            `json:"ignorable"`
	Fields    []*field        `json:"fields"`

	goName string
	sub    *structType // of a struct or an array of structs
}

type schema struct {
	Name     string   `json:"name"`
	Kind     string   `json:"kind"`
	ID       *int16   `json:"id"`
	Versions versions `json:"versions"`
	Flexible versions `json:"flexible"`
	Fields   []*field `json:"fields"`

	log  string // of vectors/records.json, which also says what is a record
	kind string
	root *structType
	all  []*structType
}

type structType struct {
	schema   *schema
	goName   string
	kafka    string
	versions versions
	fields   []*field
	equal    bool // needs isDefault
}

func (f *field) array() bool     { return strings.HasPrefix(f.Type, "[]") }
func (f *field) element() string { return strings.TrimPrefix(f.Type, "[]") }

func (f *field) nullable() versions {
	if f.Nullable == nil {
		return none
	}
	return *f.Nullable
}

func (f *field) tagged() versions {
	switch {
	case f.Tag == nil:
		return none
	case f.Tagged != nil:
		return *f.Tagged
	}
	return f.Versions
}

func (f *field) defaultsToNull() bool { return string(f.Default) == "null" }

// goName turns Kafka's name into Go's spelling of it.
func goName(name string) string {
	for _, w := range []string{"Id", "Isr", "Elr"} {
		upper := strings.ToUpper(w)
		for i := strings.Index(name, w); i >= 0; {
			end := i + len(w)
			if end == len(name) || name[end] >= 'A' && name[end] <= 'Z' || name[end:] == "s" {
				name = name[:i] + upper + name[end:]
			}
			next := strings.Index(name[end:], w)
			if next < 0 {
				break
			}
			i = end + next
		}
	}
	return name
}

func jsonName(name string) string { return strings.ToLower(name[:1]) + name[1:] }

type recordRow struct {
	Log  string `json:"log"`
	Kind string `json:"kind"`
	ID   *int16 `json:"id"`
	Name string `json:"name"`
}

// load reads every record schema that vectors/records.json lists.
func load(td fs.FS) ([]*schema, error) {
	b, err := fs.ReadFile(td, "vectors/records.json")
	if err != nil {
		return nil, err
	}
	var rows []recordRow
	if err := json.Unmarshal(b, &rows); err != nil {
		return nil, fmt.Errorf("vectors/records.json: %w", err)
	}
	var out []*schema
	for _, row := range rows {
		b, err := fs.ReadFile(td, "schemas/records/"+row.Name+".json")
		if err != nil {
			return nil, err
		}
		s := new(schema)
		d := json.NewDecoder(bytes.NewReader(b))
		if err := d.Decode(s); err != nil {
			return nil, fmt.Errorf("%s: %w", row.Name, err)
		}
		s.log, s.kind = row.Log, row.Kind
		s.root = s.structOf(s.Name, s.Name, s.Versions, s.Fields)
		out = append(out, s)
	}
	rank := map[string]int{"metadata": 0, "group": 1, "transaction": 2, "share": 3, "remote": 4, "raft": 5, "log": 6, "client": 7}
	sort.SliceStable(out, func(i, j int) bool { return rank[out[i].log] < rank[out[j].log] })
	return out, nil
}

func (s *schema) structOf(goType, kafka string, v versions, fields []*field) *structType {
	for _, t := range s.all {
		if s.log != "" && t.goName == goType { // two fields of one struct type
			if len(t.fields) != len(fields) {
				panic(s.Name + " has two struct types " + kafka)
			}
			for i, f := range fields {
				if g := t.fields[i]; f.Name != g.Name || f.Type != g.Type || f.Versions != g.Versions {
					panic(s.Name + " has two struct types " + kafka)
				}
			}
			t.versions = versions{min(t.versions.lo, v.lo), max(t.versions.hi, v.hi)}
			return t
		}
	}
	t := &structType{schema: s, goName: goType, kafka: kafka, versions: v, fields: fields}
	s.all = append(s.all, t)
	for _, f := range fields {
		f.goName = goName(f.Name)
		if f.Fields != nil {
			f.sub = s.structOf(s.Name+f.element(), f.element(), v.and(f.Versions), f.Fields)
			if !f.array() {
				f.sub.needEqual()
			}
		}
	}
	return t
}

func (t *structType) needEqual() {
	t.equal = true
	for _, f := range t.fields {
		if f.sub != nil && !f.array() {
			f.sub.needEqual()
		}
	}
}

// least is the smallest encoding, over all versions, of one element of an array of f's type.
func (f *field) least(s *schema, of versions) int {
	if f.sub != nil {
		return f.sub.least()
	}
	best := math.MaxInt
	for v := of.lo; v <= of.hi; v++ {
		best = min(best, leastOf(f.element(), s.Flexible.has(v)))
	}
	return best
}

func leastOf(kind string, flexible bool) int {
	switch kind {
	case "bool", "int8":
		return 1
	case "int16", "uint16":
		return 2
	case "int32", "uint32":
		return 4
	case "int64", "float64":
		return 8
	case "uuid":
		return 16
	case "string":
		if flexible {
			return 1
		}
		return 2
	default: // bytes, arrays
		if flexible {
			return 1
		}
		return 4
	}
}

func (t *structType) least() int {
	best := math.MaxInt
	for v := t.versions.lo; v <= t.versions.hi; v++ {
		n := 0
		flexible := t.schema.Flexible.has(v)
		if flexible {
			n++
		}
		for _, f := range t.fields {
			switch {
			case !f.Versions.has(v) || f.tagged().has(v):
			case f.array():
				n += leastOf("[]", flexible)
			case f.sub != nil && f.nullable().has(v):
				n++
			case f.sub != nil:
				n += f.sub.least()
			default:
				n += leastOf(f.Type, flexible)
			}
		}
		best = min(best, n)
	}
	return max(best, 1)
}
