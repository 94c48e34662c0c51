package config

import (
	"compress/gzip"
	"fmt"
	"os"
	"sort"
	"strings"
	"testing"

	"github.com/highwater/highwater/internal/fixture"
)

// The tables say of every key what Kafka's own tables say, and know no others.
func TestTablesAreKafkas(t *testing.T) {
	check := func(file, scope string, table *Table) {
		t.Helper()
		n := 0
		for _, row := range fixture.Table(t, "tables/configs-"+file+".tsv") {
			if row["scope"] != scope || strings.HasPrefix(row["name"], "SCRAM") {
				continue
			}
			n++
			k := table.Lookup(row["name"])
			if k == nil {
				t.Errorf("%s: no key %s", file, row["name"])
				continue
			}
			def := k.Default
			switch {
			case k.Required:
				def = "(required)"
			case k.Null:
				def = "null"
			case def == "" && row["default"] == `""`: // the reader may or may not have cut the quotes
				def = row["default"]
			}
			yes := func(b bool) string {
				if b {
					return "yes"
				}
				return "-"
			}
			valid := "-"
			if k.Check != nil {
				valid = k.Check.String()
			}
			var syns []string
			for _, s := range k.Synonyms {
				n := s.Name
				if s.Factor != 1 {
					n += fmt.Sprintf("*%d", s.Factor)
				}
				syns = append(syns, n)
			}
			if syns == nil {
				syns = []string{"-"}
			}
			upd := k.Update.String()
			if table == BrokerQuotaTable {
				upd = "-"
			}
			got := []string{k.Type.String(), def, valid, k.Importance.String(), upd, yes(k.Internal), yes(k.Deprecated), strings.Join(syns, ",")}
			want := []string{row["type"], row["default"], row["valid"], row["importance"], row["update"], row["internal"], row["deprecated"], row["synonyms"]}
			for i := range got {
				if got[i] != want[i] {
					t.Errorf("%s %s: got %q, want %q", file, k.Name, got[i], want[i])
				}
			}
		}
		own := 0
		for _, k := range table.Keys {
			if k.Ours {
				own++
				if k.Doc == "" || !strings.HasPrefix(k.Name, "highwater.") {
					t.Errorf("%s: a key of ours must begin with highwater. and say what it is", k.Name)
				}
			}
			if !k.Null && !k.Required {
				if _, err := k.Parse(k.Default); err != nil {
					t.Errorf("%s: default: %v", k.Name, err)
				}
			}
		}
		if n != len(table.Keys)-own {
			t.Errorf("%s: %d keys, Kafka has %d", file, len(table.Keys)-own, n)
		}
	}
	check("broker", "", BrokerTable)
	check("topic", "", TopicTable)
	check("group", "", GroupTable)
	check("client-metrics", "", ClientMetricsTable)
	check("quota", "user+client", UserQuotaTable)
	check("quota", "ip", IPQuotaTable)
	check("quota", "broker", BrokerQuotaTable)
}

// Every key is explained in one sentence.
func TestEveryKeyIsExplained(t *testing.T) {
	for _, table := range allTables {
		for _, k := range table.Keys {
			if k.Doc == "" || !strings.HasSuffix(k.Doc, ".") || strings.Contains(k.Doc, "|") {
				t.Errorf("%s %s: %q", table.Area, k.Name, k.Doc)
			}
		}
	}
	for line := range strings.Lines(strings.TrimSpace(docs)) {
		name, _, _ := strings.Cut(line, " ")
		if BrokerTable.Lookup(name) == nil && TopicTable.Lookup(name) == nil && GroupTable.Lookup(name) == nil {
			t.Errorf("a sentence about %s, which is no key", name)
		}
	}
}

func lines(t *testing.T, name string) []string {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b strings.Builder
	if strings.HasSuffix(name, ".gz") {
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 1<<20)
		for {
			n, err := z.Read(buf)
			b.Write(buf[:n])
			if err != nil {
				break
			}
		}
	} else {
		data, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		b.Write(data)
	}
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

var unquote = strings.NewReplacer(`\\`, `\`, `\t`, "\t", `\n`, "\n", `\r`, "\r")

// Every kind of type and validator reads every probe as ConfigDef does, with the same message.
func TestValuesAreReadAsKafkaReadsThem(t *testing.T) {
	tables := map[string]*Table{"broker": BrokerTable, "topic": TopicTable, "group": GroupTable, "client-metrics": ClientMetricsTable}
	n := 0
	for _, l := range lines(t, "values.tsv.gz") {
		f := strings.Split(l, "\t")
		k := tables[f[0]].Lookup(f[1])
		if k == nil {
			t.Fatalf("no key %s", f[1])
		}
		want := f[3] + " " + unquote.Replace(f[4])
		var v Value
		var err error
		if f[2] == `\N` {
			v = Value{Type: k.Type, Null: true}
		} else if v, err = k.Type.parse(k.Name, unquote.Replace(f[2])); err == nil && k.Type == Class && !knownClass(v.Str) {
			err = invalid(k.Name, v.Str, "Class "+v.Str+" could not be found.")
		}
		if err == nil && k.Check != nil {
			if e := k.Check.check(k.Name, v); e != nil {
				err = e
			}
		}
		if f[3] == "throw" { // Kafka's own slips: any error will do
			if err == nil {
				t.Errorf("%s=%s: accepted, Kafka: %s", f[1], f[2], f[4])
			}
			continue
		}
		got := ""
		switch {
		case err != nil:
			got = "error " + err.Error()
		case v.Null:
			got = `ok \N`
			want = f[3] + " " + f[4]
		case k.Type == Password:
			got, want = "ok", f[3]
		default:
			got = "ok " + v.Text()
		}
		if got != want {
			t.Errorf("%s %s=%q:\n got %s\nwant %s", f[0], f[1], f[2], got, want)
		}
		n++
	}
	if n < 6000 {
		t.Errorf("only %d values", n)
	}
}

func endpointsText(list []Endpoint) string {
	var s []string
	for _, e := range list {
		h := "'" + e.Host + "'"
		if e.Host == "" {
			h = "'null'"
		}
		s = append(s, fmt.Sprintf("Endpoint(listenerName='%s', securityProtocol=%s, host=%s, port=%d)", e.Listener, e.Protocol, h, e.Port))
	}
	return strings.Join(s, ", ")
}

func cases(t *testing.T) (out [][4]string) {
	for _, l := range lines(t, "kafkaconfig.tsv") {
		f := strings.Split(l, "\t")
		out = append(out, [4]string{f[0], f[1], f[2], unquote.Replace(f[3])})
	}
	return out
}

// A file that KafkaConfig takes we take, with the same listeners; one that it refuses we refuse, with the same words.
func TestFilesAreJudgedAsKafkaJudgesThem(t *testing.T) {
	for _, c := range cases(t) {
		m := make(map[string]string)
		for _, part := range []string{c[0], c[1]} {
			for _, kv := range strings.Split(part, "|") {
				if k, v, ok := strings.Cut(kv, "="); ok {
					m[k] = v
				}
			}
		}
		b, err := NewBroker(NewProperties(m))
		if c[2] != "ok" {
			if err == nil {
				t.Errorf("%s: accepted, Kafka says %s", c[1], c[3])
			} else if strings.Contains(c[3], "HashSet(") && strings.HasPrefix(err.Error(), c[3][:strings.Index(c[3], "HashSet(")]) {
				continue // the order in Scala's HashSet is its own
			} else if err.Error() != c[3] || err.(*Error).Class != c[2] {
				t.Errorf("%s:\n got %s: %s\nwant %s: %s", c[1], err.(*Error).Class, err, c[2], c[3])
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: refused: %v", c[1], err)
			continue
		}
		var names []string
		for n, p := range b.Protocols {
			names = append(names, n+"="+p)
		}
		sort.Strings(names)
		got := fmt.Sprintf("(%s) (%s) %s {%s} [%s] %s %d %d", endpointsText(b.AdvertisedBroker), endpointsText(b.AdvertisedController),
			b.InterBrokerListener, strings.Join(names, ", "), strings.Join(b.LogDirs, ", "), b.MetadataLogDir, b.LogRetentionMs(), b.LogRollMs())
		want := strings.NewReplacer("ArrayBuffer(", "(", "List(", "(", "Vector(", "(", "ListBuffer(", "(").Replace(c[3])
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", c[1], got, want)
		}
	}
}
