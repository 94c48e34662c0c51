package compat

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/highwater/highwater/test/peer"
)

// toolCase is one call of a real Kafka tool, and what it must print.
type toolCase struct {
	name  string
	tool  string
	argv  []string // {B} the broker, {C} the controller listener, {DIR} the node's home, {LOG} its log directory
	stdin string
	tidy  []func(text string) string // after the usual normalising, on standard output
	first int                        // compare only so many lines of each stream
}

// printed is what a tool printed, as it stands in testdata/tools.json.
type printed struct {
	Name   string   `json:"name"`
	Exit   int      `json:"exit"`
	Stdout []string `json:"stdout"`
	Stderr []string `json:"stderr,omitempty"`
}

func (p printed) equal(q printed) bool {
	return p.Exit == q.Exit && slices.Equal(p.Stdout, q.Stdout) && slices.Equal(p.Stderr, q.Stderr)
}

// reads tells that a call changes nothing, so that it may be repeated until the broker knows what the controller does.
func (c toolCase) reads() bool {
	return c.name != "api versions" && (slices.Contains([]string{"get-offsets", "cluster", "dump-log", "metadata-quorum", "features"}, c.tool) ||
		slices.Contains(c.argv, "--describe") || slices.Contains(c.argv, "--list"))
}

func call(name, tool string, argv ...string) toolCase {
	return toolCase{name: name, tool: tool, argv: argv}
}

func (c toolCase) in(stdin string) toolCase { c.stdin = stdin; return c }

func (c toolCase) head(n int) toolCase { c.first = n; return c }

func (c toolCase) with(f ...func(string) string) toolCase { c.tidy = append(c.tidy, f...); return c }

// blank replaces what a pattern matches by #.
func blank(pattern string) func(string) string {
	r := regexp.MustCompile(pattern)
	return func(s string) string { return r.ReplaceAllString(s, "#") }
}

// sorted compares lines whatever their order.
func sorted(s string) string {
	l := strings.Split(s, "\n")
	slices.Sort(l)
	return strings.Join(l, "\n")
}

// toolCases run in this order on a fresh node.
var toolCases = []toolCase{
	call("create", "topics", "--bootstrap-server", "{B}", "--create", "--topic", "orders", "--partitions", "3", "--config", "retention.ms=3600000"),
	call("create again", "topics", "--bootstrap-server", "{B}", "--create", "--topic", "orders"),
	call("create if not exists", "topics", "--bootstrap-server", "{B}", "--create", "--topic", "orders", "--if-not-exists"),
	call("create with a bad name", "topics", "--bootstrap-server", "{B}", "--create", "--topic", "or/ders"),
	call("create with a name too long", "topics", "--bootstrap-server", "{B}", "--create", "--topic", strings.Repeat("n", 250)),
	call("create with a dot", "topics", "--bootstrap-server", "{B}", "--create", "--topic", "a.b"),
	call("create a name that collides", "topics", "--bootstrap-server", "{B}", "--create", "--topic", "a_b"),
	call("create with too many replicas", "topics", "--bootstrap-server", "{B}", "--create", "--topic", "many", "--replication-factor", "2"),
	call("create with no partitions", "topics", "--bootstrap-server", "{B}", "--create", "--topic", "none", "--partitions", "0"),
	call("create with a bad config value", "topics", "--bootstrap-server", "{B}", "--create", "--topic", "bad", "--config", "segment.bytes=1"),
	call("create with a bad policy", "topics", "--bootstrap-server", "{B}", "--create", "--topic", "bad", "--config", "cleanup.policy=burn"),
	call("create with a given assignment", "topics", "--bootstrap-server", "{B}", "--create", "--topic", "placed", "--replica-assignment", "1,1"),
	call("create with an unknown broker", "topics", "--bootstrap-server", "{B}", "--create", "--topic", "lost", "--replica-assignment", "7"),
	call("list", "topics", "--bootstrap-server", "{B}", "--list"),
	call("describe", "topics", "--bootstrap-server", "{B}", "--describe", "--topic", "orders"),
	call("describe all", "topics", "--bootstrap-server", "{B}", "--describe").with(sorted),
	call("describe what is not there", "topics", "--bootstrap-server", "{B}", "--describe", "--topic", "nothing"),
	call("describe overridden", "topics", "--bootstrap-server", "{B}", "--describe", "--topics-with-overrides").with(sorted),
	call("describe under-replicated", "topics", "--bootstrap-server", "{B}", "--describe", "--under-replicated-partitions"),
	call("describe unavailable", "topics", "--bootstrap-server", "{B}", "--describe", "--unavailable-partitions"),
	call("more partitions", "topics", "--bootstrap-server", "{B}", "--alter", "--topic", "orders", "--partitions", "5"),
	call("fewer partitions", "topics", "--bootstrap-server", "{B}", "--alter", "--topic", "orders", "--partitions", "2"),
	call("describe after more", "topics", "--bootstrap-server", "{B}", "--describe", "--topic", "orders"),

	call("topic configs", "configs", "--bootstrap-server", "{B}", "--describe", "--entity-type", "topics", "--entity-name", "orders"),
	call("all topic configs", "configs", "--bootstrap-server", "{B}", "--describe", "--all", "--entity-type", "topics", "--entity-name", "orders"),
	call("alter topic configs", "configs", "--bootstrap-server", "{B}", "--alter", "--entity-type", "topics", "--entity-name", "orders", "--add-config", "cleanup.policy=[compact,delete],max.message.bytes=2000000", "--delete-config", "retention.ms"),
	call("topic configs after", "configs", "--bootstrap-server", "{B}", "--describe", "--entity-type", "topics", "--entity-name", "orders"),
	call("a topic config that is none", "configs", "--bootstrap-server", "{B}", "--alter", "--entity-type", "topics", "--entity-name", "orders", "--add-config", "colour=blue").head(2),
	call("a topic config of the wrong type", "configs", "--bootstrap-server", "{B}", "--alter", "--entity-type", "topics", "--entity-name", "orders", "--add-config", "retention.ms=soon").head(2),
	call("a topic that is not there", "configs", "--bootstrap-server", "{B}", "--alter", "--entity-type", "topics", "--entity-name", "nothing", "--add-config", "retention.ms=1").head(2),
	call("a dynamic broker config", "configs", "--bootstrap-server", "{B}", "--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config", "log.cleaner.threads=2"),
	call("a cluster-wide broker config", "configs", "--bootstrap-server", "{B}", "--alter", "--entity-type", "brokers", "--entity-default", "--add-config", "message.max.bytes=1500000"),
	call("a read-only broker config", "configs", "--bootstrap-server", "{B}", "--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config", "node.id=5").head(2),
	call("a broker config out of range", "configs", "--bootstrap-server", "{B}", "--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config", "num.io.threads=0").head(2),
	call("broker configs", "configs", "--bootstrap-server", "{B}", "--describe", "--entity-type", "brokers", "--entity-name", "1"),
	call("default broker configs", "configs", "--bootstrap-server", "{B}", "--describe", "--entity-type", "brokers", "--entity-default"),
	call("all broker configs", "configs", "--bootstrap-server", "{B}", "--describe", "--all", "--entity-type", "brokers", "--entity-name", "1").with(notOurs),
	call("all topic configs with a cluster-wide one", "configs", "--bootstrap-server", "{B}", "--describe", "--all", "--entity-type", "topics", "--entity-name", "placed"),
	call("take the dynamic ones back", "configs", "--bootstrap-server", "{B}", "--alter", "--entity-type", "brokers", "--entity-name", "1", "--delete-config", "log.cleaner.threads"),
	call("broker configs after", "configs", "--bootstrap-server", "{B}", "--describe", "--entity-type", "brokers", "--entity-name", "1"),

	call("produce", "console-producer", "--bootstrap-server", "{B}", "--topic", "placed", "--reader-property", "parse.key=true", "--reader-property", "key.separator=:").in("a:1\nb:2\nc:3\n"),
	call("produce more", "console-producer", "--bootstrap-server", "{B}", "--topic", "a.b", "--compression-codec", "zstd").in("one\ntwo\nthree\nfour\n"),
	call("consume", "console-consumer", "--bootstrap-server", "{B}", "--topic", "a.b", "--partition", "0", "--offset", "earliest", "--max-messages", "4"),
	call("consume from an offset", "console-consumer", "--bootstrap-server", "{B}", "--topic", "a.b", "--partition", "0", "--offset", "2", "--max-messages", "2", "--formatter-property", "print.offset=true", "--formatter-property", "print.partition=true"),
	call("consume until silence", "console-consumer", "--bootstrap-server", "{B}", "--topic", "a.b", "--partition", "0", "--offset", "earliest", "--timeout-ms", "1500").with(blank(`\d+ milliseconds`)),
	call("consume a partition that is not there", "console-consumer", "--bootstrap-server", "{B}", "--topic", "a.b", "--partition", "9", "--offset", "0", "--timeout-ms", "1500"),

	call("offsets", "get-offsets", "--bootstrap-server", "{B}", "--topic", "a.b"),
	call("offsets: earliest", "get-offsets", "--bootstrap-server", "{B}", "--topic", "a.b", "--time", "earliest"),
	call("offsets: latest by number", "get-offsets", "--bootstrap-server", "{B}", "--topic", "a.b", "--time", "-1"),
	call("offsets: highest timestamp", "get-offsets", "--bootstrap-server", "{B}", "--topic", "dumped", "--time", "max-timestamp"),
	call("offsets: local", "get-offsets", "--bootstrap-server", "{B}", "--topic", "a.b", "--time", "earliest-local"),
	call("offsets: tiered", "get-offsets", "--bootstrap-server", "{B}", "--topic", "a.b", "--time", "latest-tiered"),
	call("offsets: by time", "get-offsets", "--bootstrap-server", "{B}", "--topic", "dumped", "--time", fmt.Sprint(base+2500)),
	call("offsets: after the end", "get-offsets", "--bootstrap-server", "{B}", "--topic", "dumped", "--time", "4102444800000"),
	call("offsets: a pattern", "get-offsets", "--bootstrap-server", "{B}", "--topic-partitions", "orders:1-3,a\\..*:0"),
	call("offsets: all", "get-offsets", "--bootstrap-server", "{B}"),
	call("offsets: what is not there", "get-offsets", "--bootstrap-server", "{B}", "--topic", "nothing"),

	call("cluster id", "cluster", "cluster-id", "--bootstrap-server", "{B}"),
	call("cluster id from the controller", "cluster", "cluster-id", "--bootstrap-controller", "{C}"),
	call("endpoints", "cluster", "list-endpoints", "--bootstrap-server", "{B}"),
	call("endpoints of controllers", "cluster", "list-endpoints", "--bootstrap-controller", "{C}"),
	call("quorum status", "metadata-quorum", "--bootstrap-server", "{B}", "describe", "--status").with(blank(`\b\d+\b`)),
	call("quorum status from the controller", "metadata-quorum", "--bootstrap-controller", "{C}", "describe", "--status").with(blank(`\b\d+\b`)),
	call("quorum replication", "metadata-quorum", "--bootstrap-server", "{B}", "describe", "--replication").with(blank(`\b\d+\b`), blank(`[ \t]+`)),
	call("features", "features", "--bootstrap-server", "{B}", "describe").with(blank(`Epoch: \d+`)),
	call("features from the controller", "features", "--bootstrap-controller", "{C}", "describe").with(blank(`Epoch: \d+`)),
	call("api versions", "broker-api-versions", "--bootstrap-server", "{B}").with(blank(`\(id: \d+ rack: \w+ isFenced: \w+\)`)),

	call("quotas of a user", "configs", "--bootstrap-server", "{B}", "--alter", "--entity-type", "users", "--entity-name", "alice", "--add-config", "producer_byte_rate=1024,consumer_byte_rate=2048"),
	call("quotas of all users", "configs", "--bootstrap-server", "{B}", "--alter", "--user-defaults", "--add-config", "request_percentage=200"),
	call("quotas of a client", "configs", "--bootstrap-server", "{B}", "--alter", "--client", "app", "--add-config", "controller_mutation_rate=5000"),
	call("quotas of all clients", "configs", "--bootstrap-server", "{B}", "--alter", "--entity-type", "clients", "--entity-default", "--add-config", "producer_byte_rate=100000000"),
	call("quotas of a user with a client", "configs", "--bootstrap-server", "{B}", "--alter", "--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients", "--entity-name", "app", "--add-config", "producer_byte_rate=10"),
	call("quotas of a user with all clients", "configs", "--bootstrap-server", "{B}", "--alter", "--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients", "--entity-default", "--add-config", "producer_byte_rate=20"),
	call("quotas of an address", "configs", "--bootstrap-server", "{B}", "--alter", "--entity-type", "ips", "--entity-name", "127.0.0.1", "--add-config", "connection_creation_rate=10000"),
	call("quotas of all addresses", "configs", "--bootstrap-server", "{B}", "--alter", "--ip-defaults", "--add-config", "connection_creation_rate=20000"),
	call("a quota that is none", "configs", "--bootstrap-server", "{B}", "--alter", "--user", "alice", "--add-config", "colour=1").head(2),
	call("a quota of half a byte", "configs", "--bootstrap-server", "{B}", "--alter", "--user", "alice", "--add-config", "producer_byte_rate=0.5").head(2),
	call("a quota to delete that is not there", "configs", "--bootstrap-server", "{B}", "--alter", "--user", "alice", "--delete-config", "request_percentage").head(2),
	call("a credential", "configs", "--bootstrap-server", "{B}", "--alter", "--user", "alice", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret]"),
	call("another credential", "configs", "--bootstrap-server", "{B}", "--alter", "--user", "alice", "--add-config", "SCRAM-SHA-512=[password=secret]"),
	call("a credential with too few iterations", "configs", "--bootstrap-server", "{B}", "--alter", "--user", "bob", "--add-config", "SCRAM-SHA-256=[iterations=100,password=secret]").head(2),
	call("a credential with too many iterations", "configs", "--bootstrap-server", "{B}", "--alter", "--user", "bob", "--add-config", "SCRAM-SHA-256=[iterations=99999,password=secret]").head(2),
	call("a credential and a quota at once", "configs", "--bootstrap-server", "{B}", "--alter", "--user", "alice", "--add-config", "SCRAM-SHA-256=[password=secret],producer_byte_rate=1").head(2),
	call("a user", "configs", "--bootstrap-server", "{B}", "--describe", "--entity-type", "users", "--entity-name", "alice"),
	call("all users", "configs", "--bootstrap-server", "{B}", "--describe", "--entity-type", "users").with(sorted),
	call("the default user", "configs", "--bootstrap-server", "{B}", "--describe", "--user-defaults"),
	call("all clients", "configs", "--bootstrap-server", "{B}", "--describe", "--entity-type", "clients").with(sorted),
	call("users with clients", "configs", "--bootstrap-server", "{B}", "--describe", "--entity-type", "users", "--entity-type", "clients").with(sorted),
	call("a user with a client", "configs", "--bootstrap-server", "{B}", "--describe", "--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients", "--entity-name", "app"),
	call("all addresses", "configs", "--bootstrap-server", "{B}", "--describe", "--entity-type", "ips").with(sorted),
	call("a credential deleted", "configs", "--bootstrap-server", "{B}", "--alter", "--user", "alice", "--delete-config", "SCRAM-SHA-512"),
	call("a credential deleted that is not there", "configs", "--bootstrap-server", "{B}", "--alter", "--user", "carol", "--delete-config", "SCRAM-SHA-512").head(2),
	call("a quota deleted", "configs", "--bootstrap-server", "{B}", "--alter", "--user", "alice", "--delete-config", "consumer_byte_rate"),
	call("a user after", "configs", "--bootstrap-server", "{B}", "--describe", "--user", "alice"),
	call("a client's quota deleted", "configs", "--bootstrap-server", "{B}", "--alter", "--client", "app", "--delete-config", "controller_mutation_rate"),
	call("a group's config", "configs", "--bootstrap-server", "{B}", "--alter", "--group", "g1", "--add-config", "consumer.session.timeout.ms=50000,share.auto.offset.reset=earliest"),
	call("a group's config out of range", "configs", "--bootstrap-server", "{B}", "--alter", "--group", "g1", "--add-config", "consumer.session.timeout.ms=1").head(2),
	call("a group's config that is none", "configs", "--bootstrap-server", "{B}", "--alter", "--group", "g1", "--add-config", "colour=blue").head(2),
	call("a group's", "configs", "--bootstrap-server", "{B}", "--describe", "--group", "g1"),
	call("all of a group's", "configs", "--bootstrap-server", "{B}", "--describe", "--all", "--group", "g1").with(sorted),
	call("a group's taken back", "configs", "--bootstrap-server", "{B}", "--alter", "--entity-type", "groups", "--entity-name", "g1", "--delete-config", "consumer.session.timeout.ms"),
	call("client metrics", "configs", "--bootstrap-server", "{B}", "--alter", "--client-metrics", "m1", "--add-config", "metrics=[org.apache.kafka.producer.,org.apache.kafka.consumer.],interval.ms=60000,match=[client_id=app.*]"),
	call("client metrics, too often", "configs", "--bootstrap-server", "{B}", "--alter", "--client-metrics", "m1", "--add-config", "interval.ms=1").head(2),
	call("client metrics described", "configs", "--bootstrap-server", "{B}", "--describe", "--client-metrics", "m1"),
	call("all client metrics", "configs", "--bootstrap-server", "{B}", "--describe", "--entity-type", "client-metrics"),
	call("client metrics by their own tool", "client-metrics", "--bootstrap-server", "{B}", "--describe", "--name", "m1"),
	call("client metrics listed", "client-metrics", "--bootstrap-server", "{B}", "--list"),
	call("client metrics deleted", "client-metrics", "--bootstrap-server", "{B}", "--delete", "--name", "m1"),
	call("client metrics after", "configs", "--bootstrap-server", "{B}", "--describe", "--entity-type", "client-metrics"),
	call("a logger's level", "configs", "--bootstrap-server", "{B}", "--alter", "--broker-logger", "1", "--add-config", "kafka.server.ReplicaManager=DEBUG"),
	call("a logger that is none", "configs", "--bootstrap-server", "{B}", "--alter", "--broker-logger", "1", "--add-config", "no.such.Logger=DEBUG").head(2),
	call("a level that is none", "configs", "--bootstrap-server", "{B}", "--alter", "--broker-logger", "1", "--add-config", "kafka.server.ReplicaManager=LOUD").head(2),
	call("the loggers", "configs", "--bootstrap-server", "{B}", "--describe", "--broker-logger", "1").with(someLoggers),
	call("a logger's level taken back", "configs", "--bootstrap-server", "{B}", "--alter", "--broker-logger", "1", "--delete-config", "kafka.server.ReplicaManager"),
	call("the loggers after", "configs", "--bootstrap-server", "{B}", "--describe", "--broker-logger", "1").with(someLoggers),
	call("all brokers", "configs", "--bootstrap-server", "{B}", "--describe", "--entity-type", "brokers"),
	call("broker configs by the controller", "configs", "--bootstrap-controller", "{C}", "--describe", "--entity-type", "brokers", "--entity-name", "1"),
	call("a cluster-wide config by the controller", "configs", "--bootstrap-controller", "{C}", "--alter", "--entity-type", "brokers", "--entity-default", "--add-config", "log.cleaner.threads=3"),
	call("the cluster-wide ones by the controller", "configs", "--bootstrap-controller", "{C}", "--describe", "--entity-type", "brokers", "--entity-default"),
	call("and taken back", "configs", "--bootstrap-controller", "{C}", "--alter", "--entity-type", "brokers", "--entity-default", "--delete-config", "log.cleaner.threads"),
	call("a dynamic config to delete that is not there", "configs", "--bootstrap-server", "{B}", "--alter", "--entity-type", "brokers", "--entity-name", "1", "--delete-config", "nope").head(2),
	call("a level too high", "features", "--bootstrap-server", "{B}", "upgrade", "--feature", "group.version=9"),
	call("a feature that is none", "features", "--bootstrap-server", "{B}", "upgrade", "--feature", "no.such.version=1"),
	call("a downgrade tried", "features", "--bootstrap-server", "{B}", "downgrade", "--feature", "share.version=1", "--dry-run"),
	call("a downgrade", "features", "--bootstrap-server", "{B}", "downgrade", "--feature", "share.version=1"),
	call("an upgrade", "features", "--bootstrap-server", "{B}", "upgrade", "--feature", "share.version=2"),
	call("a feature disabled", "features", "--bootstrap-server", "{B}", "disable", "--feature", "streams.version"),
	call("features after", "features", "--bootstrap-server", "{B}", "describe").with(blank(`Epoch: \d+`)),
	call("the features of a release", "features", "--bootstrap-server", "{B}", "upgrade", "--feature", "streams.version=1"),
	call("a downgrade of the metadata", "features", "--bootstrap-server", "{B}", "downgrade", "--feature", "metadata.version=30"),
	call("an unsafe one", "features", "--bootstrap-server", "{B}", "downgrade", "--feature", "metadata.version=30", "--unsafe"),
	call("features of a node", "features", "--bootstrap-server", "{B}", "describe", "--node-id", "1").with(blank(`Epoch: \d+`)),
	call("forget a broker that is none", "cluster", "unregister", "--bootstrap-server", "{B}", "--id", "99").head(1),
	call("forget a controller that is none", "cluster", "unregister-controller", "--bootstrap-server", "{B}", "--id", "99").head(1),
	call("fenced endpoints too", "cluster", "list-endpoints", "--bootstrap-server", "{B}", "--include-fenced-brokers"),

	call("dump records", "dump-log", "--files", "{LOG}/dumped-0/00000000000000000000.log", "--print-data-log"),
	call("dump batches", "dump-log", "--files", "{LOG}/dumped-0/00000000000000000000.log"),
	call("dump offset index", "dump-log", "--files", "{LOG}/dumped-0/00000000000000000000.index", "--index-sanity-check"),
	call("dump the metadata log", "dump-log", "--files", "{LOG}/__cluster_metadata-0/00000000000000000000.log", "--cluster-metadata-decoder").with(metadataRecords),
	call("dump the first checkpoint", "dump-log", "--files", "{LOG}/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint", "--cluster-metadata-decoder").with(metadataRecords),

	call("delete", "topics", "--bootstrap-server", "{B}", "--delete", "--topic", "placed"),
	call("delete what is not there", "topics", "--bootstrap-server", "{B}", "--delete", "--topic", "nothing"),
	call("delete if exists", "topics", "--bootstrap-server", "{B}", "--delete", "--topic", "nothing", "--if-exists"),
	call("list after delete", "topics", "--bootstrap-server", "{B}", "--list"),
}

// toolCasesStopped run when the node was stopped cleanly.
var toolCasesStopped = []toolCase{
	call("storage info", "storage", "info", "-c", "{DIR}/server.properties"),
	call("dump a producer snapshot", "dump-log", "--files", "{LOG}/dumped-0/00000000000000000006.snapshot").with(blank(`\b\d{13}\b`)),
	call("dump an offset index", "dump-log", "--files", "{LOG}/dumped-0/00000000000000000000.index"),
	call("check an offset index", "dump-log", "--files", "{LOG}/dumped-0/00000000000000000000.index", "--index-sanity-check"),
	call("dump a time index", "dump-log", "--files", "{LOG}/dumped-0/00000000000000000000.timeindex"),
	call("no broker", "topics", "--bootstrap-server", "127.0.0.1:1", "--list", "--command-config", "{DIR}/short.properties").head(2),
}

// notOurs leaves out the configs that are our own, which are described like the others.
func notOurs(s string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(s, "\n"), func(l string) bool { return strings.HasPrefix(strings.TrimSpace(l), "highwater.") }), "\n")
}

// someLoggers keeps those that tests change.
func someLoggers(s string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(s, "\n"), func(l string) bool {
		return strings.HasPrefix(l, "  ") && !strings.HasPrefix(l, "  root=") && !strings.HasPrefix(l, "  kafka.server.ReplicaManager=")
	}), "\n")
}

// metadataRecords says which types of records a dump holds, in which versions, with which fields: how often and with what
// values depends on the moment.
func metadataRecords(s string) string {
	seen := map[string]bool{}
	for _, line := range strings.Split(s, "\n") {
		i := strings.Index(line, "payload: ")
		if i < 0 {
			for _, control := range []string{"LeaderChange", "SnapshotHeader", "SnapshotFooter", "KRaftVersion", "KRaftVoters"} {
				if j := strings.Index(line, control); j >= 0 {
					seen[blank(`\d+`)(line[j:])] = true
				}
			}
			continue
		}
		var r struct {
			Type    string
			Version int
			Data    map[string]any
		}
		payload := strings.NewReplacer("{BPORT}", "0", "{CPORT}", "0").Replace(line[i+len("payload: "):])
		if json.Unmarshal([]byte(payload), &r) != nil {
			seen[line[i:]] = true
			continue
		}
		var fields []string
		for f := range r.Data {
			fields = append(fields, f)
		}
		slices.Sort(fields)
		if r.Type != "NO_OP_RECORD" { // written when nothing else was for a while
			seen[fmt.Sprintf("%s v%d %s", r.Type, r.Version, strings.Join(fields, " "))] = true
		}
	}
	var out []string
	for x := range seen {
		out = append(out, x)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// ids matches what looks like one of Kafka's ids; words, what looks so and is a name: REGISTER_BROKER_RECORD.
var words = regexp.MustCompile(`^([A-Z_]+|([A-Z][a-z]+)+)$`)

var ids = regexp.MustCompile(`\b[A-Za-z0-9_-]{22}(?:\b|$)`)

// places replaces what is this run's own: addresses, paths, ids of topics and directories.
func places(n peer.Node, s string) string {
	s = strings.NewReplacer(n.Addr(), "{B}", n.Controller(), "{C}", n.Home(), "{DIR}", strings.TrimPrefix(n.Addr(), "127.0.0.1:"), "{BPORT}",
		strings.TrimPrefix(n.Controller(), "127.0.0.1:"), "{CPORT}", peer.DefaultClusterID, "{CLUSTER}").Replace(s)
	return ids.ReplaceAllStringFunc(s, func(id string) string {
		if words.MatchString(id) {
			return id
		}
		return "{ID}"
	})
}

// TestTools runs the real Kafka's tools against the node and compares what they print with what they print against Kafka.
func TestTools(t *testing.T) {
	n := peer.Started(t, peer.Options{Software: software(), Properties: []string{"auto.create.topics.enable=false", keep}})
	j := jvm(t)
	fill := strings.NewReplacer("{B}", n.Addr(), "{C}", n.Controller(), "{DIR}", n.Home(), "{LOG}", n.Data())
	golden := map[string]printed{}
	file := filepath.Join("testdata", "tools.json")
	var recorded []printed
	if !*record {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &recorded); err != nil {
			t.Fatal(err)
		}
		for _, p := range recorded {
			golden[p.Name] = p
		}
		recorded = nil
	}
	// Two topics of known content for dump-log and offsets by time.
	if r := j.Must(t, "topics", "", "--bootstrap-server", n.Addr(), "--create", "--topic", "dumped", "--config", "index.interval.bytes=100"); r.Exit != 0 {
		t.Fatalf("create: %+v", r)
	}
	for i := range 6 {
		e := entry{Key: fmt.Appendf(nil, "key%d", i), Value: []byte(strings.Repeat("v", 50)), Timestamp: base + int64(i)*1000, Headers: []header{{"h", []byte("x")}}}
		codec := []string{"none", "gzip", "snappy", "lz4", "zstd", "none"}[i]
		if codec != "none" {
			e.Value = []byte(strings.Repeat("v", 400)) // worth compressing, or the client sends it as it is
		}
		if err := (kgoDriver{}).produce(t, produce{Addr: n.Addr(), Topic: "dumped", Codec: codec, Idempotent: i == 5, Max: 1 << 20, Records: []entry{e}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(n.Home(), "short.properties"), []byte("default.api.timeout.ms=1500\nrequest.timeout.ms=1000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(c toolCase) {
		t.Run(c.name, func(t *testing.T) {
			var argv []string
			for _, a := range c.argv {
				argv = append(argv, fill.Replace(a))
			}
			lines := func(s string, tidy []func(string) string) []string {
				s = places(n, s)
				for _, f := range tidy {
					s = f(s)
				}
				l := strings.Split(strings.TrimRight(s, "\n"), "\n")
				l = slices.DeleteFunc(l, func(x string) bool { return x == "" || strings.HasPrefix(x, "\tat ") })
				if c.first > 0 && len(l) > c.first {
					l = l[:c.first]
				}
				return l
			}
			var log string
			call := func() printed {
				r := j.Must(t, c.tool, c.stdin, argv...)
				log = r.Log
				return printed{Name: c.name, Exit: r.Exit, Stdout: lines(r.Stdout, c.tidy), Stderr: lines(r.Stderr, nil)}
			}
			want, known := golden[c.name]
			if *record && c.reads() {
				<-time.After(time.Second) // a broker takes in metadata a little after the controller has answered
			}
			got := call()
			for end := time.Now().Add(3 * time.Second); !*record && c.reads() && !got.equal(want) && time.Now().Before(end); got = call() {
			}
			if *record {
				recorded = append(recorded, got)
				return
			}
			if !known {
				t.Fatalf("nothing recorded: run with -broker=kafka -record")
			}
			if deviates("tools/" + c.name) {
				if got.equal(want) {
					t.Error("this does not deviate any more")
				}
				return
			}
			if c.name == "api versions" {
				got.Stdout, want.Stdout = advertised(t, got.Stdout, want.Stdout)
			}
			if got.Exit != want.Exit {
				t.Errorf("exit %d, want %d", got.Exit, want.Exit)
			}
			compareLines(t, "stdout", got.Stdout, want.Stdout)
			compareLines(t, "stderr", got.Stderr, want.Stderr)
			if t.Failed() && log != "" {
				t.Logf("logged: %s", log)
			}
		})
	}
	for _, c := range toolCases {
		run(c)
	}
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, c := range toolCasesStopped {
		run(c)
	}
	if *record && !t.Failed() {
		b, err := json.MarshalIndent(recorded, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// advertised drops the APIs that this node does not serve, from both sides: kafka-broker-api-versions calls them UNSUPPORTED.
// Which ones must be served, TestAdvertised says.
func advertised(t *testing.T, got, want []string) (g, w []string) {
	t.Helper()
	missing := map[string]bool{}
	api := func(line string) string { name, _, _ := strings.Cut(strings.TrimSpace(line), ":"); return name }
	tidy := func(lines []string) []string {
		var out []string
		for _, l := range lines {
			if !missing[api(l)] {
				out = append(out, strings.TrimSuffix(l, ","))
			}
		}
		return out
	}
	for _, l := range got {
		if strings.Contains(l, "UNSUPPORTED") {
			missing[api(l)] = true
		}
	}
	return tidy(got), tidy(want)
}

// compareLines reports the first lines that differ.
func compareLines(t *testing.T, what string, got, want []string) {
	t.Helper()
	bad := 0
	for i := range max(len(got), len(want)) {
		g, w := "(nothing)", "(nothing)"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			if bad++; bad > 5 {
				t.Errorf("%s: %d lines, want %d; more differ", what, len(got), len(want))
				return
			}
			t.Errorf("%s, line %d:\n got %s\nwant %s", what, i+1, g, w)
		}
	}
}
