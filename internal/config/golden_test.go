package config

import (
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/highwater/highwater/internal/fixture"
)

// describe prints entries as kafka-configs --describe --all does.
func describe(entries []Entry) []string {
	var out []string
	show := func(v *string) string {
		if v == nil {
			return "null"
		}
		return *v
	}
	for _, e := range entries {
		var syns []string
		for _, s := range e.Synonyms {
			syns = append(syns, s.Source.String()+":"+s.Name+"="+show(s.Value))
		}
		sensitive := "false"
		if e.Sensitive {
			sensitive = "true"
		}
		out = append(out, "  "+e.Name+"="+show(e.Value)+" sensitive="+sensitive+" synonyms={"+strings.Join(syns, ", ")+"}")
	}
	return out
}

func compare(t *testing.T, name string, got []string) {
	t.Helper()
	want := strings.Split(strings.TrimSuffix(string(fixture.Read(t, "tables/golden/configs-describe-"+name+".txt")), "\n"), "\n")[1:]
	in := func(list []string, s string) bool { return indexOf(list, s) >= 0 }
	for _, l := range got {
		if !in(want, l) {
			t.Errorf("%s: too much: %s", name, l)
		}
	}
	for _, l := range want {
		if !in(got, l) {
			t.Errorf("%s: missing: %s", name, l)
		}
	}
	names := make([]string, len(got))
	for i, l := range got {
		names[i], _, _ = strings.Cut(l, "=")
	}
	if !sort.StringsAreSorted(names) {
		t.Errorf("%s: not sorted", name)
	}
}

// What kafka-configs --describe --all printed of a fresh node comes out of the tables. The file that the node was started
// with is read back from the lines whose source is STATIC_BROKER_CONFIG.
func TestDescribeIsKafkas(t *testing.T) {
	static := make(map[string]string)
	text := string(fixture.Read(t, "tables/golden/configs-describe-broker.txt"))
	pair := regexp.MustCompile(`STATIC_BROKER_CONFIG:([a-z.]+)=(.*?)(?:, [A-Z_]+_CONFIG:.*)?}$`)
	for _, l := range strings.Split(text, "\n") {
		if m := pair.FindStringSubmatch(l); m != nil {
			static[m[1]] = m[2]
		}
	}
	if len(static) < 5 {
		t.Fatalf("only %d keys: %v", len(static), static)
	}
	b, err := NewBroker(NewProperties(static))
	if err != nil {
		t.Fatal(err)
	}
	b, bad := b.WithDynamic(map[string]string{"min.insync.replicas": "1"}, nil)
	if bad != nil {
		t.Fatal(bad)
	}
	var entries []Entry
	for _, e := range b.Describe() {
		if !strings.HasPrefix(e.Name, "highwater.") {
			entries = append(entries, e)
		}
	}
	compare(t, "broker", describe(entries))
	compare(t, "topic", describe(b.DescribeTopic(nil)))
	compare(t, "group", describe(b.DescribeGroup(nil)))
	compare(t, "client-metrics", describe(DescribeClientMetrics(nil)))

	// With overrides, as the tool's golden cases show.
	has := func(entries []Entry, line string) {
		t.Helper()
		if indexOf(describe(entries), line) < 0 {
			t.Errorf("missing: %s", line)
		}
	}
	topic := b.DescribeTopic(map[string]string{"cleanup.policy": "compact,delete", "retention.ms": "60000", "internal.segment.bytes": "20000"})
	if !slices.ContainsFunc(topic, func(e Entry) bool {
		return e.Name == "internal.segment.bytes" && e.Value != nil && *e.Value == "20000" && e.Source == SourceTopic
	}) {
		t.Error("an internal key of a topic that is set is not described")
	}
	has(topic, "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete}")
	has(topic, "  retention.ms=60000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=60000}")
	group := b.DescribeGroup(map[string]string{"consumer.session.timeout.ms": "50000"})
	has(group, "  consumer.session.timeout.ms=50000 sensitive=false synonyms={DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000, DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000}")
	has(DescribeClientMetrics(map[string]string{"match": "a=b,c=d"}), "  match=a=b,c=d sensitive=false synonyms={DYNAMIC_CLIENT_METRICS_CONFIG:match=a=b,c=d}")
	n, bad := b.WithDynamic(map[string]string{"min.insync.replicas": "1"}, map[string]string{"log.cleaner.threads": "2"})
	if bad != nil {
		t.Fatal(bad)
	}
	has(n.Describe(), "  log.cleaner.threads=2 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.cleaner.threads=2, DEFAULT_CONFIG:log.cleaner.threads=1}")
	if d := describe(n.DescribeClusterDefault()); len(d) != 1 || d[0] != "  min.insync.replicas=1 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:min.insync.replicas=1}" {
		t.Errorf("cluster default: %v", d)
	}
}

type goldenCase struct {
	Name   string
	Argv   []string
	Files  map[string]string
	Stderr []string
	Exit   int
}

// Of the files that kafka-server-start and kafka-storage were given, those with a fault of configuration are refused with
// the same words, and the others pass.
func TestServerStartCases(t *testing.T) {
	refused := 0
	exception := regexp.MustCompile(`^(?:Exception in thread "main" )?([a-z]+(?:\.[a-zA-Z]+)+(?:Exception|Error)): (.*)$`)
	for _, file := range []string{"server-start", "storage"} {
		var cases []goldenCase
		fixture.JSON(t, "golden/tools/"+file+".json", &cases)
		for _, c := range cases {
			name := "s.properties"
			text, ok := c.Files[name]
			if !ok {
				continue
			}
			p, err := ParseProperties([]byte(strings.ReplaceAll(text, "{B1}", "127.0.0.1:22201")))
			if err != nil {
				t.Fatal(err)
			}
			for i, a := range c.Argv {
				if a == "--override" {
					p.Override(c.Argv[i+1 : i+2])
				}
			}
			_, err = NewBroker(p)
			class, want := "", ""
			for _, l := range c.Stderr {
				if m := exception.FindStringSubmatch(l); m != nil && class == "" {
					class, want = m[1], m[2]
				}
			}
			later := class != ConfigException && class != IllegalArgumentException ||
				strings.Contains(want, "feature level") || strings.Contains(want, "following port") || // of the tool's arguments
				strings.Contains(want, "JAAS") || strings.Contains(want, "SSLHandshake") || strings.Contains(text, "ok.properties")
			switch {
			case err == nil && !later:
				t.Errorf("%s %s: accepted, Kafka says %s", file, c.Name, want)
			case err != nil && later:
				t.Errorf("%s %s: refused: %v; Kafka: %s", file, c.Name, err, c.Stderr)
			case err != nil:
				refused++
				if err.Error() != want || err.(*Error).Class != class {
					t.Errorf("%s %s:\n got %s: %v\nwant %s: %s", file, c.Name, err.(*Error).Class, err, class, want)
				}
			}
		}
	}
	if refused < 30 {
		t.Errorf("only %d cases refused", refused)
	}
}

// A topic's configs are judged as LogConfig judges them, with the same words.
func TestTopicConfigsAreJudgedAsKafkaJudgesThem(t *testing.T) {
	static := map[string]string{"process.roles": "broker,controller", "node.id": "1"}
	for _, l := range lines(t, "topicconfig.tsv") {
		f := strings.Split(l, "\t")
		parse := func(s string) map[string]string {
			m := make(map[string]string)
			for _, kv := range strings.Split(s, "|") {
				if k, v, ok := strings.Cut(kv, "="); ok {
					m[k] = v
				}
			}
			return m
		}
		err := ValidateTopic(parse(f[1]), parse(f[2]), Layers{Static: static}, f[0] == "true")
		switch {
		case f[3] == "ok" && err != nil:
			t.Errorf("%s: refused: %v", l, err)
		case f[3] != "ok" && err == nil:
			t.Errorf("%s: accepted", l)
		case err != nil && (err.Error() != f[4] || err.(*Error).Class != f[3]):
			t.Errorf("%s:\n got %s %s", l, err.(*Error).Class, err)
		}
	}
}
