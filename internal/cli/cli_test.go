package cli

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/fixture"
)

// call runs a tool in this process.
func call(t *testing.T, run func(*Env) int, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	status = run(&Env{Name: "kafka-test", Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Context: ctx, Stoppable: func() {}})
	return status, out.String(), errs.String()
}

// TestTools shows that every tool of the table answers --help without a cluster, and Kafka's also --version, and that names
// are found in every form.
func TestTools(t *testing.T) {
	seen := map[string]bool{}
	for _, tool := range tools() {
		if seen[tool.Name] || tool.Summary == "" || tool.Run == nil {
			t.Errorf("tool %q is there twice or incomplete", tool.Name)
		}
		seen[tool.Name] = true
		if tool.Own {
			continue
		}
		for _, argv := range [][]string{{"kafka-" + tool.Name + ".sh", "x"}, {"/opt/bin/kafka-" + tool.Name, "x"}, {"highwater", tool.Name, "x"}, {"/bin/highwater", "kafka-" + tool.Name + ".sh", "x"}} {
			got, args := find(argv)
			if got == nil || got.Name != tool.Name || len(args) != 1 || args[0] != "x" {
				t.Errorf("%q is not %s", argv, tool.Name)
			}
		}
		status, out, errs := call(t, tool.Run, "--help")
		if out+errs == "" || status > 1 {
			t.Errorf("%s --help: %d, %q", tool.Name, status, out+errs)
		}
	}
	if got, _ := find([]string{"highwater", "--help"}); got == nil || got.Name != "help" {
		t.Error("highwater --help")
	}
	if got, _ := find([]string{"kafka-help"}); got == nil || got.Name != "help" {
		t.Error("a name that is no tool's shows help")
	}
}

// TestLinks shows that links are made, made again, and never replace a file.
func TestLinks(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		if status, _, errs := call(t, runLinks, dir); status != 0 {
			t.Fatal(errs)
		}
	}
	if target, err := os.Readlink(filepath.Join(dir, "kafka-topics.sh")); err != nil || !filepath.IsAbs(target) {
		t.Errorf("kafka-topics.sh: %q, %v", target, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "kafka-links")); err == nil {
		t.Error("our own commands get no Kafka name")
	}
	path := filepath.Join(dir, "kafka-configs")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("mine"), 0o666); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := call(t, runLinks, dir); status != 1 || !strings.Contains(errs, "kafka-configs exists and is no link") {
		t.Errorf("%d, %q", status, errs)
	}
}

// TestProperties shows Java's file format.
func TestProperties(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		var got []string
		for _, p := range parseProperties(text) {
			got = append(got, p.Key, p.Value)
		}
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	f("a=1\nb: 2\r\nc 3\n# x=y\n ! z\n\n", "a", "1", "b", "2", "c", "3")
	f("a = b = c", "a", "b = c")
	f("a=1\na=2\nb=3", "a", "2", "b", "3")
	f("a=one\\\n   two\\\\\nb", "a", "onetwo\\", "b", "")
	f(`a\=b=\u0041\t\q`, "a=b", "A\tq")
	f("a\\", "a", "")
	f(`a=\u00`, "a", "u00")
	f("sasl.jaas.config=x required username=\"u\";", "sasl.jaas.config", `x required username="u";`)
}

// FuzzProperties shows that no file makes the reader panic.
func FuzzProperties(f *testing.F) {
	for _, s := range []string{"a=1", "a\\=b\\\n c", `\u12`, "=", "\\", "#", "a\\ b:c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { parseProperties(s) })
}

// TestClientConfig shows what is refused, in Kafka's words, and that the names and defaults are those of the tables.
func TestClientConfig(t *testing.T) {
	f := func(kind clientKind, key, value, want string) {
		t.Helper()
		_, err := newClientConfig(kind, []Property{{key, value}})
		got := ""
		if err != nil {
			got = javaLine(err)
		}
		if want != "" {
			want = "org.apache.kafka.common.config.ConfigException: Invalid value " + value + " for configuration " + key + ": " + want
		}
		if got != want {
			t.Errorf("%s %s=%s: %q, want %q", kind, key, value, got, want)
		}
	}
	f(producerClient, "no.such.key", "x", "")
	f(producerClient, "linger.ms", "soon", "Not a number of type LONG")
	f(producerClient, "linger.ms", "-1", "Value must be at least 0")
	f(producerClient, "batch.size", "99999999999", "Not a number of type INT")
	f(producerClient, "acks", "7", "String must be one of: all, -1, 0, 1")
	f(producerClient, "compression.type", "rar", "String must be one of: none, gzip, snappy, lz4, zstd")
	f(producerClient, "compression.gzip.level", "-1", "")
	f(producerClient, "compression.gzip.level", "10", "Value must be no more than 9")
	f(producerClient, "enable.idempotence", "yes", "Expected value to be either true or false")
	f(producerClient, "security.protocol", "tls", "String must be one of (case insensitive): SASL_SSL, PLAINTEXT, SSL, SASL_PLAINTEXT")
	f(consumerClient, "isolation.level", "serial", "String must be one of: read_committed, read_uncommitted")
	f(consumerClient, "auto.offset.reset", "by_duration:PT1H30M", "")
	f(consumerClient, "auto.offset.reset", "LATEST", "")
	for _, kind := range []clientKind{producerClient, consumerClient, adminClient} {
		rows := fixture.Table(t, "tables/configs-"+string(kind)+".tsv")
		keys := kind.keys()
		if len(keys) != len(rows) {
			t.Fatalf("%s: %d keys, %d in the table: run gentables", kind, len(keys), len(rows))
		}
		for i, k := range keys {
			r := rows[i]
			if k.def == `""` {
				k.def = "" // the table's reader takes the quotes off
			}
			if k != (configKey{r["name"], r["type"], r["default"], r["valid"]}) {
				t.Errorf("%s: %v, in the table %v: run gentables", kind, k, r)
			}
		}
	}
	for _, r := range fixture.Table(t, "tables/errors.tsv") {
		if r["code"] == "41" && classOf(41) != r["exception"] {
			t.Errorf("41 is %s, not %s: run gentables", classOf(41), r["exception"])
		}
	}
	if d, ok := isoDuration("P1DT2H3M4.5S"); !ok || d != 26*time.Hour+3*time.Minute+4500*time.Millisecond {
		t.Errorf("%v %v", d, ok)
	}
}

// TestIdempotence shows when the producer is idempotent, and which wishes contradict each other.
func TestIdempotence(t *testing.T) {
	f := func(want string, props ...Property) {
		t.Helper()
		c, err := newClientConfig(producerClient, props)
		if err != nil {
			t.Fatal(err)
		}
		got := "no"
		if on, err := c.idempotence(); err != nil {
			got = err.Error()
		} else if on {
			got = "yes"
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%v: %s, want %s", props, got, want)
		}
	}
	f("yes")
	f("yes", Property{"acks", "-1"})
	f("no", Property{"acks", "1"})
	f("no", Property{"retries", "0"})
	f("no", Property{"max.in.flight.requests.per.connection", "6"})
	f("no", Property{"enable.idempotence", "false"})
	f("Must set acks to all", Property{"acks", "1"}, Property{"enable.idempotence", "true"})
	f("Must set max.in.flight", Property{"max.in.flight.requests.per.connection", "6"}, Property{"transactional.id", "x"})
	f("Cannot set a transactional.id", Property{"enable.idempotence", "false"}, Property{"transactional.id", "x"})
}

// TestLineReader shows how lines become records, and what is refused.
func TestLineReader(t *testing.T) {
	f := func(line string, want string, props ...string) {
		t.Helper()
		r, err := newLineReader("t", parseKeyValueArgs(props))
		got := ""
		if err == nil {
			var rec *kgo.Record
			if rec, err = r.record(line); err == nil {
				text := func(b []byte) string {
					if b == nil {
						return "null"
					}
					return string(b)
				}
				for _, h := range rec.Headers {
					got += h.Key + "=" + text(h.Value) + ","
				}
				got += "|" + text(rec.Key) + "|" + text(rec.Value)
			}
		}
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q %q: %q, want %q", line, props, got, want)
		}
	}
	f("a\tb", "|null|a\tb")
	f("", "|null|")
	f("a\tb", "|a|b", "parse.key=true")
	f("a:b:c", "|a|b:c", "parse.key=true", "key.separator=:")
	f("x:1,y:\tk\tv", "x=1,y=,|k|v", "parse.key=true", "parse.headers=true")
	f("N\tN\tN", "|null|null", "parse.key=true", "parse.headers=true", "null.marker=N")
	f("x:N\tv", "x=null,|null|v", "parse.headers=true", "null.marker=N")
	f("nothing", "No key separator found on line number 1: 'nothing'", "parse.key=true")
	f("nothing", "|null|nothing", "parse.key=true", "ignore.error=true")
	f("nothing", "No headers delimiter found on line number 1: 'nothing'", "parse.headers=true")
	f("x\tv", "No header key separator found in pair 'x' on line number 1", "parse.headers=true")
	f("x\tv", "x=null,|null|v", "parse.headers=true", "ignore.error=true")
	f("N:1\tv", "Header keys should not be equal to the null marker 'N' as they can't be null", "parse.headers=true", "null.marker=N")
	f("", "headers.delimiter and headers.separator may not be equal", "headers.separator=\t")
	f("", "null.marker and key.separator may not be equal", "null.marker=\t")
	var got []string
	if err := lines(strings.NewReader("a\rb\r\nc\n\nd"), func(l string) bool { got = append(got, l); return true }); err != nil || strings.Join(got, "|") != "a|b|c||d" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestFormatter shows what is printed of a record.
func TestFormatter(t *testing.T) {
	rec := &kgo.Record{Topic: "t", Partition: 3, Offset: 5, Key: []byte("k"), Value: []byte("v"), Timestamp: time.UnixMilli(77), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "i"}}}
	f := func(r *kgo.Record, want string, props ...string) {
		t.Helper()
		form, err := newFormatter("org.apache.kafka.tools.consumer.DefaultMessageFormatter", parseKeyValueArgs(props), &toolLog{w: io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		got := ""
		if err := form(&b, r); err != nil {
			got = err.Error()
		} else {
			got = b.String()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", props, got, want)
		}
	}
	f(rec, "v\n")
	f(rec, "k\tv\n", "print.key=true")
	f(rec, "CreateTime:77\tPartition:3\tOffset:5\tDelivery:NOT_PRESENT\tEpoch:NOT_PRESENT\th:1,i:null\tk\tv\n", "print.key=true", "print.timestamp=true", "print.partition=TRUE", "print.offset=true", "print.headers=true", "print.delivery=true", "print.epoch=true")
	f(rec, "Offset:5!", "print.value=false", "print.offset=true", "line.separator=!")
	f(&kgo.Record{}, "NO_HEADERS;-;-\n", "print.headers=true", "print.key=true", "key.separator=;", "null.literal=-")
	f(&kgo.Record{Value: []byte{0, 0, 1, 0}}, "256\n", "value.deserializer=org.apache.kafka.common.serialization.IntegerDeserializer")
	f(&kgo.Record{Value: []byte{1}}, "Size of data received by LongDeserializer is not 8", "value.deserializer=org.apache.kafka.common.serialization.LongDeserializer")
	f(&kgo.Record{Value: binary.BigEndian.AppendUint64(nil, 0x4170000000000000)}, "1.6777216E7\n", "value.deserializer=org.apache.kafka.common.serialization.DoubleDeserializer")
	f(&kgo.Record{Value: []byte("a\x01b")}, "a\\x01b\n", "value.deserializer=org.apache.kafka.common.serialization.BytesDeserializer")
	f(&kgo.Record{Value: []byte("v")}, "v\n", "value.deserializer=no.such.Class")
	if _, err := newFormatter("no.such.Formatter", nil, nil); err == nil || err.Error() != "no.such.Formatter" {
		t.Errorf("%v", err)
	}
}

// TestJava shows numbers, hash order and dates as Java has them.
func TestJava(t *testing.T) {
	for f, want := range map[float64]string{2048: "2048.0", 25.5: "25.5", 1e7: "1.0E7", 1.25e-4: "1.25E-4", 0: "0.0", 123456789: "1.23456789E8", -0.001: "-0.001"} {
		if got := javaDouble(f); got != want {
			t.Errorf("%v: %s, want %s", f, got, want)
		}
	}
	if h := javaHash("request_percentage"); int32(h) != 0 && h != javaHash("request_percentage") || javaHash("a") != 97 || javaHash("ab") != 97*31+98 {
		t.Error("hash")
	}
	var names, some []string
	for _, r := range fixture.Table(t, "tables/configs-topic.tsv") {
		names = append(names, r["name"])
	}
	for _, n := range javaOrder(names, 0) {
		switch n {
		case "min.insync.replicas", "cleanup.policy", "retention.ms", "segment.index.bytes":
			some = append(some, n)
		}
	}
	// as kafka-topics --describe prints a topic's configurations
	if got := strings.Join(some, " "); got != "min.insync.replicas cleanup.policy retention.ms segment.index.bytes" {
		t.Error(got)
	}
	if c, err := newClientConfig(consumerClient, nil); err != nil || c.str("client.rack") != "" || c.clientID() != "consumer-1" {
		t.Errorf("empty defaults: %q %q %v", c.str("client.rack"), c.clientID(), err)
	}
	at := time.Date(2026, 3, 4, 15, 6, 7, 8e6, time.UTC)
	for pattern, want := range map[string]string{"yyyy-MM-dd HH:mm:ss:SSS": "2026-03-04 15:06:07:008", "EEE, d MMM yy 'at' h a": "Wed, 4 Mar 26 at 3 PM", "MMMM''": "March'"} {
		if got := javaDate(pattern, at); got != want {
			t.Errorf("%s: %s, want %s", pattern, got, want)
		}
	}
	if err := checkDateFormat("QQ"); err == nil || err.Error() != "Illegal pattern character 'Q'" {
		t.Error(err)
	}
}

// TestSplitOutside shows how --add-config is taken apart.
func TestSplitOutside(t *testing.T) {
	if got := splitOutside("a=1,b=[x,y],c=[z]", ','); strings.Join(got, "|") != "a=1|b=[x,y]|c=[z]" {
		t.Errorf("%q", got)
	}
	if got := splitOutside("S=[iterations=8,password=p]", '='); len(got) != 2 {
		t.Errorf("%q", got)
	}
}

// TestServerArgs shows which processes server-stop takes for nodes.
func TestServerArgs(t *testing.T) {
	f := func(line, want string) {
		t.Helper()
		args, ok := serverArgs(strings.Fields(line))
		got := "-"
		if ok {
			got = strings.Join(args, " ")
		}
		if got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	f("java -Xmx1G -cp x kafka.Kafka a.properties --override node.id=1", "a.properties --override node.id=1")
	f("/opt/kafka-server-start.sh a.properties", "a.properties")
	f("/usr/bin/highwater server-start a.properties", "a.properties")
	f("/usr/bin/highwater run-class -name x kafka.Kafka a.properties", "a.properties")
	f("/opt/kafka-run-class.sh kafka.Kafka a.properties", "a.properties")
	f("highwater dev --dir x", "--dir x")
	f("highwater topics --list", "-")
	f("java -cp x kafka.Other", "-")
	f("vi kafka.Kafka", "-")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.properties"), []byte("node.id=3\nprocess.roles=broker\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	n := runningNode{dir: dir, args: []string{"a.properties", "--override", "process.roles=controller"}}
	if n.property("node.id", "broker.id") != "3" || n.property("process.roles") != "controller" {
		t.Error("properties of a node")
	}
}

// fakeBroker answers ApiVersions with the given keys until the test ends.
func fakeBroker(t *testing.T, keys ...int16) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { // ends when the listener closes
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // ends when the client closes
				defer conn.Close()
				for {
					var size [4]byte
					if _, err := io.ReadFull(conn, size[:]); err != nil {
						return
					}
					body := make([]byte, min(binary.BigEndian.Uint32(size[:]), 1<<16))
					if _, err := io.ReadFull(conn, body); err != nil || binary.BigEndian.Uint16(body) != 18 {
						return
					}
					resp := kmsg.NewPtrApiVersionsResponse()
					resp.Version = int16(binary.BigEndian.Uint16(body[2:]))
					for _, k := range append([]int16{0, 18}, keys...) {
						rk := kmsg.NewApiVersionsResponseApiKey()
						rk.ApiKey, rk.MaxVersion = k, 3
						resp.ApiKeys = append(resp.ApiKeys, rk)
					}
					out := append([]byte{0, 0, 0, 0}, body[4:8]...)
					out = resp.AppendTo(out)
					binary.BigEndian.PutUint32(out, uint32(len(out)-4))
					if _, err := conn.Write(out); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// TestGroupsOffered shows that a consumer sees whether the broker has group coordinators, and does without them.
func TestGroupsOffered(t *testing.T) {
	f := func(want bool, addr string) {
		t.Helper()
		e := &Env{Stderr: io.Discard, Context: t.Context()}
		c, err := newConsumer(e, []Property{{"bootstrap.servers", addr}, {"group.id", "g"}}, subscription{topics: []string{"t"}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.client.Close()
		if c.group != want {
			t.Errorf("group %v, want %v", c.group, want)
		}
	}
	f(true, fakeBroker(t, 1, 3, 10, 11, 12))
	f(false, fakeBroker(t, 1, 3))
	f(true, "127.0.0.1:1") // nobody answers: a cluster has groups
}

// TestUnreachable shows the AdminClient's two time-outs.
func TestUnreachable(t *testing.T) {
	f := func(addr, want string) {
		t.Helper()
		e := &Env{Stderr: io.Discard, Context: t.Context()}
		a, err := newAdmin(e, []Property{{"bootstrap.servers", addr}, {"request.timeout.ms", "150"}, {"default.api.timeout.ms", "300"}})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		_, err = topicNames(a)
		var j *JavaError
		if !errors.As(err, &j) || !strings.HasPrefix(j.Line(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	f("127.0.0.1:1", "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment. Call: listTopics")
	f(fakeBroker(t, 3), "org.apache.kafka.common.errors.TimeoutException: Call(callName=listTopics, deadlineMs=")
	f(fakeBroker(t), "org.apache.kafka.common.errors.UnsupportedVersionException: ")
	if _, err := newAdmin(&Env{Stderr: io.Discard, Context: t.Context()}, []Property{{"bootstrap.servers", "nonsense"}}); err == nil || err.Error() != "Failed to create new KafkaAdminClient" || cause(err).Error() != "Invalid url in bootstrap.servers: nonsense" {
		t.Errorf("%v", err)
	}
}

// A call's time must hold at least one request; what was not asked for gives way.
func TestAdminTimeouts(t *testing.T) {
	f := func(want time.Duration, text string, props ...Property) {
		t.Helper()
		a, err := newAdmin(&Env{Context: t.Context(), Stderr: io.Discard}, append(props, Property{"bootstrap.servers", "127.0.0.1:1"}))
		if err != nil {
			var j *JavaError
			if !errors.As(err, &j) || j.Inner == nil || j.Inner.Text != text {
				t.Errorf("%v: %v, want %q", props, err, text)
			}
			return
		}
		defer a.Close()
		if text != "" || a.timeout != want {
			t.Errorf("%v: %v, want %v %q", props, a.timeout, want, text)
		}
	}
	f(time.Minute, "")
	f(5*time.Second, "", Property{"default.api.timeout.ms", "5000"}, Property{"request.timeout.ms", "5000"})
	f(2*time.Minute, "", Property{"request.timeout.ms", "120000"})
	f(0, "The specified value of default.api.timeout.ms must be no smaller than the value of request.timeout.ms.", Property{"default.api.timeout.ms", "5000"})
}
