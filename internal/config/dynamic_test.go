package config

import (
	"strings"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/fixture"
)

func base(t *testing.T, more ...string) *Broker {
	t.Helper()
	m := map[string]string{"process.roles": "broker,controller", "node.id": "1", "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
		"controller.listener.names": "CONTROLLER", "controller.quorum.voters": "1@127.0.0.1:9093", "log.dirs": "/tmp/x"}
	for i := 0; i < len(more); i += 2 {
		m[more[i]] = more[i+1]
	}
	b, err := NewBroker(NewProperties(m))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A dynamic change is refused with the words that kafka-configs showed, or accepted.
func TestValidateDynamic(t *testing.T) {
	b := base(t)
	f := func(perBroker bool, key, value, want string) {
		t.Helper()
		err := b.ValidateDynamic(map[string]string{key: value}, perBroker)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s=%s:\n got %s\nwant %s", key, value, got, want)
		}
	}
	const wrapped, dynamically = "Invalid value org.apache.kafka.common.config.ConfigException: ", " for configuration Invalid dynamic configuration"
	f(true, "log.cleaner.threads", "2", "")
	f(true, "process.roles", "broker", "Cannot update these configs dynamically: [process.roles]")
	f(true, "no.such.config", "1", "")
	f(true, "num.io.threads", "few", "Invalid value few for configuration num.io.threads: Not a number of type INT")
	f(true, "num.io.threads", "100", wrapped+"Dynamic thread count update validation failed for num.io.threads=100, value should not be greater than double the current value 8"+dynamically)
	f(true, "num.io.threads", "16", "")
	f(true, "num.io.threads", "1", wrapped+"Dynamic thread count update validation failed for num.io.threads=1, value should be at least half the current value 8"+dynamically)
	f(false, "ssl.keystore.location", "/x", "These security configs can be dynamically updated only per-listener using the listener prefix: [ssl.keystore.location]")
	f(true, "listener.name.external.ssl.keystore.location", "/x", "")
	f(false, "listener.name.external.ssl.keystore.location", "/x", "Cannot update these configs at default cluster level, broker id must be specified: [listener.name.external.ssl.keystore.location]")
	f(false, "listeners", "PLAINTEXT://:1", "Cannot update these configs at default cluster level, broker id must be specified: [listeners]")
	f(false, "min.insync.replicas", "0", "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1")
	f(false, "log.retention.ms", "0", "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1")
	f(true, "leader.replication.throttled.rate", "5", "")
	f(false, "leader.replication.throttled.rate", "-1", "Invalid value -1 for configuration leader.replication.throttled.rate: Value must be at least 0")
	f(false, "message.max.bytes", "5", "")
}

// Stored configs that cannot be used are left out, the rest is in force, and the strongest layer wins.
func TestWithDynamic(t *testing.T) {
	b := base(t, "message.max.bytes", "100", "log.retention.hours", "1")
	n, bad := b.WithDynamic(map[string]string{"message.max.bytes": "200", "log.segment.bytes": "1", "log.cleaner.threads": "2"},
		map[string]string{"message.max.bytes": "300", "process.roles": "broker", "own.thing": "x"})
	if n.Int("message.max.bytes") != 300 || n.Int("log.cleaner.threads") != 2 || n.Int("log.segment.bytes") != 1<<30 {
		t.Errorf("values %d %d", n.Int("message.max.bytes"), n.Int("log.segment.bytes"))
	}
	var names []string
	for _, r := range bad {
		names = append(names, r.Key)
		if r.Text == "" || r.Value == "" {
			t.Errorf("%+v", r)
		}
	}
	if strings.Join(names, " ") != "log.segment.bytes process.roles" {
		t.Errorf("rejected %v", bad)
	}
	if b.Int("message.max.bytes") != 100 {
		t.Error("the old configuration changed")
	}
	// Fine alone, not together.
	n, bad = b.WithDynamic(map[string]string{"log.cleaner.threads": "100"}, map[string]string{"log.cleaner.dedupe.buffer.size": "10485760"})
	if len(bad) != 1 || bad[0].Key != "log.cleaner.dedupe.buffer.size" || n.Int("log.cleaner.threads") != 100 {
		t.Errorf("rejected %v", bad)
	}
	// From a release that allowed it.
	n, bad = b.WithDynamic(map[string]string{"log.segment.bytes": "20000"}, nil)
	if len(bad) != 1 || !strings.HasPrefix(bad[0].Text, "stays in force") || n.Int("log.segment.bytes") != 20000 {
		t.Errorf("%v", bad)
	}
	topic := n.Topic(map[string]string{"segment.bytes": "20000", "retention.bytes": "junk", "cleanup.policy": "compact"})
	if topic.SegmentBytes != 20000 || topic.RetentionMs != 3600000 || topic.RetentionBytes != -1 || !topic.Compact || topic.Delete ||
		topic.FileDeleteDelay != time.Minute || topic.MaxMessageBytes != 100 {
		t.Errorf("topic %+v", topic)
	}
}

// What topics have in the metadata never stops anything: old values stay, what nobody can use counts as absent, both are
// named.
func TestStoredTopic(t *testing.T) {
	b := base(t, "log.segment.bytes", "2097152", "min.insync.replicas", "2")
	stored := map[string]string{"segment.bytes": "14", "retention.ms": "1000", "delete.retention.ms": "-1", "cleanup.policy": "foo", "min.insync.replicas": "0",
		"index.interval.bytes": "abc", "message.format.version": "2.8", "no.such": "1", "flush.messages": "0"}
	var got []string
	for _, n := range StoredTopic(stored) {
		got = append(got, n.Key+"="+n.Value+" "+strings.SplitN(n.Text, ":", 2)[0])
	}
	const unusable = " cannot be used, the broker's default is in force"
	want := []string{"cleanup.policy=foo" + unusable, "delete.retention.ms=-1" + unusable, "flush.messages=0" + unusable, "index.interval.bytes=abc" + unusable,
		"message.format.version=2.8 has no effect", "min.insync.replicas=0" + unusable, "no.such=1 has no effect", "segment.bytes=14 stays in force"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	c := b.Topic(stored)
	if c.SegmentBytes != 14 || c.RetentionMs != 1000 || c.DeleteRetention != 24*time.Hour || !c.Delete || c.Compact || c.MinInsyncReplicas != 2 ||
		c.IndexIntervalBytes != 4096 || c.FlushMessages != 1<<63-1 {
		t.Errorf("%+v", c)
	}
	if c := b.Topic(map[string]string{"segment.bytes": "13"}); c.SegmentBytes != 2097152 {
		t.Errorf("below what any Kafka allowed: %d", c.SegmentBytes)
	}
	for _, e := range b.DescribeTopic(stored) {
		if e.Name == "min.insync.replicas" && (*e.Value != "2" || *e.Synonyms[0].Value != "0" || e.Source != SourceTopic) {
			t.Errorf("%+v", e)
		}
	}
}

// Keys that nothing reads are named, with what to write instead.
func TestUnknown(t *testing.T) {
	b := base(t, "zookeeper.connect", "h:1", "num.partition", "3", "snapshot.interval.ms", "1", "super.users", "User:a", "listener.name.x.y", "1", "com.acme.thing", "1",
		"inter.broker.protocol.version", "3.0")
	got := make(map[string]string)
	for _, u := range b.Unknown() {
		got[u.Key] = u.Hint
	}
	if len(got) != 6 || !strings.Contains(got["listener.name.x.y"], "listener") || !strings.Contains(got["zookeeper.connect"], "removed") || got["num.partition"] != "no such key; did you mean num.partitions?" ||
		!strings.Contains(got["snapshot.interval.ms"], "metadata.log.max.snapshot.interval.ms") || got["com.acme.thing"] != "" ||
		!strings.Contains(got["inter.broker.protocol.version"], "metadata.version") {
		t.Errorf("unknown: %v", got)
	}
	for _, row := range fixture.Table(t, "tables/configs-3.9-to-4.4.tsv") {
		h := hint(row["name"])
		if row["change"] == "removed" && row["table"] == "broker" && h == "" || row["table"] == "topic" && row["change"] == "removed" && removedTopicKeys[row["name"]] == "" {
			t.Errorf("%s was removed after 3.9 and is not named", row["name"])
		}
	}
	for k, want := range map[string]string{"retention.ms": "log.retention.ms", "linger.ms": "client's", "producer_byte_rate": "quota",
		"share.isolation.level": "group's", "leader.replication.throttled.rate": "dynamic", "replication.factor": "default.replication.factor", byteOrderMark + "process.roles": "process.roles: save the file without it",
		"listener.name.x.max.connection": "listener.name.x.max.connections"} {
		if h := hint(k); !strings.Contains(h, want) {
			t.Errorf("%s: %q does not name %s", k, h, want)
		}
	}
	for k := range removed {
		if BrokerTable.Lookup(k) != nil {
			t.Errorf("%s is no removed key", k)
		}
	}
}

// The controller's view of a topic: each layer in turn, units converted.
func TestLayers(t *testing.T) {
	l := Layers{Static: map[string]string{"log.retention.hours": "2", "log.segment.bytes": "2097152"}, Cluster: map[string]string{"log.segment.bytes": "3145728"},
		Topic: map[string]string{"max.message.bytes": "9"}}
	f := func(key, want string, from Source) {
		t.Helper()
		text, null, s := l.Resolve(key)
		if text != want || s != from || null {
			t.Errorf("%s: %s %v", key, text, s)
		}
	}
	f("retention.ms", "7200000", SourceStatic)
	f("segment.bytes", "3145728", SourceDefaultBroker)
	f("max.message.bytes", "9", SourceTopic)
	f("flush.ms", "9223372036854775807", SourceDefault)
	l.Cluster["log.retention.ms"] = "5"
	f("retention.ms", "5", SourceDefaultBroker)
	if n := len(l.ResolveAll()); n != 37 {
		t.Errorf("%d keys", n)
	}
}

// A group's overrides stay within the bounds of the broker.
func TestValidateGroup(t *testing.T) {
	b := base(t)
	f := func(want string, kv ...string) {
		t.Helper()
		m := make(map[string]string)
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		got := ""
		if err := b.ValidateGroup(m); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%v:\n got %s\nwant %s", kv, got, want)
		}
	}
	f("", "consumer.session.timeout.ms", "50000", "share.record.lock.duration.ms", "20000")
	f("Unknown group config name: session.timeout.ms", "session.timeout.ms", "1")
	f("consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.", "consumer.session.timeout.ms", "1")
	f("Invalid value x for configuration consumer.session.timeout.ms: Not a number of type INT", "consumer.session.timeout.ms", "x")
	f("streams.num.standby.replicas must be less than or equal to 2", "streams.num.standby.replicas", "3")
	f("streams.assignor.name 'x' is not a registered task assignor. Registered assignors are: [sticky].", "streams.assignor.name", "x")
	f("errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'", "errors.deadletterqueue.topic.name", "__x")
	f("streams.rack.aware.assignment.tags must not contain duplicate tag keys.", "streams.rack.aware.assignment.tags", "a,a")
}

func TestValidateClientMetrics(t *testing.T) {
	f := func(want, name, key, value string) {
		t.Helper()
		got := ""
		if err := ValidateClientMetrics(name, map[string]string{key: value}); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s=%s:\n got %s\nwant %s", key, value, got, want)
		}
	}
	f("", "a", "interval.ms", "5000")
	f("Subscription name can't be empty", "", "interval.ms", "5000")
	f("Unknown client metrics configuration: interval", "a", "interval", "1")
	f("Invalid value 1 for interval.ms, interval must be between 100 and 3600000 (1 hour)", "a", "interval.ms", "1")
	f("", "a", "match", "client_id=x.*,client_software_name=y")
	f("Illegal client matching pattern: foo=x", "a", "match", "foo=x")
	f("Illegal client matching pattern: client_id", "a", "match", "client_id")
	f("Illegal client matching pattern: client_id=(", "a", "match", "client_id=(")
}

func TestMarkdown(t *testing.T) {
	page := Markdown()
	for _, want := range []string{"| `highwater.compression.validation` | string | `full` | [full, header] | read-only | in force | How much", "| `retention.ms` | long | `604800000` | [-1,...] | `log.retention.ms`, `log.retention.minutes`, `log.retention.hours` | in force |", "| `num.io.threads` | int | `8` | [1,...] | cluster-wide | no effect: work is", "| `node.id` | int | required |"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(page, "unclean.leader.election.interval.ms") {
		t.Error("internal keys are shown")
	}
}

// What a change of the dynamic configs changed is told with its source; what has no effect is told apart.
func TestChanged(t *testing.T) {
	b := base(t, "message.max.bytes", "100")
	n, bad := b.WithDynamic(map[string]string{"message.max.bytes": "200", "num.io.threads": "12"},
		map[string]string{"log.retention.ms": "5", "listener.name.plaintext.max.connections": "7", "min.insync.replicas": "1", "leader.replication.throttled.rate": "9", "log.retention.hour": "1"})
	if bad != nil {
		t.Fatal(bad)
	}
	f := func(from, to *Broker, want string) {
		t.Helper()
		var got []string
		for _, c := range from.Changed(to) {
			got = append(got, c.Key+":"+c.Was+">"+c.Value+"@"+c.Source.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
		}
	}
	f(b, n, "listener.name.plaintext.max.connections:null>7@DYNAMIC_BROKER_CONFIG log.retention.ms:null>5@DYNAMIC_BROKER_CONFIG "+
		"message.max.bytes:100>200@DYNAMIC_DEFAULT_BROKER_CONFIG")
	f(n, b, "listener.name.plaintext.max.connections:7>null@DEFAULT_CONFIG log.retention.ms:5>null@DEFAULT_CONFIG message.max.bytes:200>100@STATIC_BROKER_CONFIG")
	var got []string
	for _, x := range n.DynamicWithoutEffect() {
		got = append(got, x.Key+"="+x.Value)
	}
	if strings.Join(got, " ") != "leader.replication.throttled.rate=9 num.io.threads=12 log.retention.hour=[hidden]" {
		t.Error(got)
	}
	if n.BrokerQuota("leader.replication.throttled.rate") != 9 || b.BrokerQuota("leader.replication.throttled.rate") != 1<<63-1 {
		t.Error("the throttle's rate")
	}
}
