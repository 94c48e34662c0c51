package node_test

// Shows configs that change while a node runs, through a client: they take effect, survive a restart, can be taken back, and
// nothing that stands in the metadata stops a node.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	fkerr "github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/node"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/schema"
	"github.com/highwater/highwater/internal/vfs/osfs"
)

// logLines keeps what a node logs.
type logLines struct {
	t  *testing.T
	mu sync.Mutex
	b  strings.Builder
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	l.b.Write(p)
	l.mu.Unlock()
	return testWriter{l.t}.Write(p)
}

// count is how many lines have all of the parts.
func (l *logLines) count(parts ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			n++
		}
	}
	return n
}

func startLogged(t *testing.T, c *config.Broker) (*node.Node, *logLines) {
	t.Helper()
	l := &logLines{t: t}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	n, err := node.Start(ctx, node.Options{Config: c, FS: osfs.New(""), Log: slog.New(slog.NewTextHandler(l, nil))})
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	return n, l
}

// ask sends a request to broker 1.
func ask[T kmsg.Response](t *testing.T, cl *kgo.Client, req kmsg.Request) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, cl); err != nil { // so that the client knows broker 1
		t.Fatal(err)
	}
	resp, err := cl.Broker(1).RetriableRequest(ctx, req)
	if err != nil {
		t.Fatalf("%T: %v", req, err)
	}
	return resp.(T)
}

// alter sets ("key=value") or deletes ("-key") configs of one resource and returns the code.
func alter(t *testing.T, cl *kgo.Client, kind kmsg.ConfigResourceType, name string, validateOnly bool, changes ...string) int16 {
	t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.ValidateOnly = validateOnly
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	for _, ch := range changes {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		if key, ok := strings.CutPrefix(ch, "-"); ok {
			c.Name, c.Op = key, kmsg.IncrementalAlterConfigOpDelete
		} else if key, value, ok := strings.Cut(ch, "="); ok {
			c.Name, c.Value = key, &value
		} else {
			c.Name = ch // null
		}
		r.Configs = append(r.Configs, c)
	}
	req.Resources = append(req.Resources, r)
	answer := ask[*kmsg.IncrementalAlterConfigsResponse](t, cl, req).Resources[0]
	if answer.ErrorMessage != nil && *answer.ErrorMessage != "" {
		t.Logf("%v: %s", changes, *answer.ErrorMessage)
	}
	return answer.ErrorCode
}

func must(t *testing.T, code int16) {
	t.Helper()
	if code != 0 {
		t.Fatalf("altering: %v", fkerr.ErrorForCode(code))
	}
}

// describe is one config as "value/source sensitive [synonym/source …]".
func describe(t *testing.T, cl *kgo.Client, kind kmsg.ConfigResourceType, name, key string) string {
	t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms = true
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kind, name, []string{key}
	req.Resources = append(req.Resources, r)
	resp := ask[*kmsg.DescribeConfigsResponse](t, cl, req)
	if len(resp.Resources[0].Configs) == 0 {
		return "none"
	}
	text := func(s *string) string {
		if s == nil {
			return "null"
		}
		return *s
	}
	c := resp.Resources[0].Configs[0]
	var syns []string
	for _, s := range c.ConfigSynonyms {
		syns = append(syns, fmt.Sprintf("%s/%d", text(s.Value), s.Source))
	}
	return fmt.Sprintf("%s/%d %v %v", text(c.Value), c.Source, c.IsSensitive, syns)
}

// becomes waits until what a broker takes in a moment after the answer is there.
func becomes(t *testing.T, want string, is func() string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(15 * time.Second); ; <-tick.C {
		got := is()
		if got == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
}

const (
	onBroker = kmsg.ConfigResourceTypeBroker
	onTopic  = kmsg.ConfigResourceTypeTopic
)

// TestDynamicBrokerConfigs: each layer in turn is in force and described, over a restart, and falls back when it is taken
// away (F081).
func TestDynamicBrokerConfigs(t *testing.T) {
	c := format(t, "log.retention.ms=333", "num.io.threads=8")
	n, lines := startLogged(t, c)
	cl := client(t, n, kgo.ProducerBatchCompression(kgo.NoCompression()))
	is := func(key string) func() string {
		return func() string { return describe(t, cl, onBroker, "1", key) }
	}
	must(t, alter(t, cl, onBroker, "", false, "log.retention.ms=111", "message.max.bytes=500"))
	becomes(t, "111/3 false [111/3 333/4 168/5]", is("log.retention.ms"))
	must(t, alter(t, cl, onBroker, "1", false, "log.retention.ms=222", "leader.replication.throttled.rate=1000", "num.io.threads=12",
		"listener.name.plaintext.ssl.keystore.password=geheim"))
	becomes(t, "222/2 false [222/2 111/3 333/4 168/5]", is("log.retention.ms"))
	becomes(t, "1000/2 false [1000/2]", is("leader.replication.throttled.rate"))
	becomes(t, "null/2 true [null/2]", is("listener.name.plaintext.ssl.keystore.password"))
	if lines.count("has no effect here", "num.io.threads") != 1 || lines.count("dynamic configuration changed", "key=log.retention.ms", "value=222", "was=111") != 1 {
		t.Error("the log does not tell what changed")
	}
	if lines.count("geheim") != 0 {
		t.Error("the log shows a password")
	}

	// In force: a default of topics.
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	tooLarge := func(n int) func() string {
		return func() string {
			err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: make([]byte, n)}).FirstErr()
			if err != nil && !errors.Is(err, fkerr.MessageTooLarge) {
				t.Fatal(err)
			}
			return fmt.Sprint(err != nil)
		}
	}
	becomes(t, "true", tooLarge(1000))
	cl.Close()
	stop(t, n)

	n, _ = startLogged(t, c)
	defer func() { stop(t, n) }()
	cl = client(t, n, kgo.ProducerBatchCompression(kgo.NoCompression()))
	becomes(t, "222/2 false [222/2 111/3 333/4 168/5]", is("log.retention.ms"))
	becomes(t, "500/3 false [500/3 1048588/5]", is("message.max.bytes"))
	becomes(t, "true", tooLarge(1000))
	must(t, alter(t, cl, onBroker, "", false, "-message.max.bytes"))
	becomes(t, "false", tooLarge(1000))
	becomes(t, "1048588/5 false [1048588/5]", is("message.max.bytes"))
	must(t, alter(t, cl, onBroker, "1", false, "-log.retention.ms"))
	becomes(t, "111/3 false [111/3 333/4 168/5]", is("log.retention.ms"))
	must(t, alter(t, cl, onBroker, "", false, "-log.retention.ms"))
	becomes(t, "333/4 false [333/4 168/5]", is("log.retention.ms"))
	becomes(t, "none", func() string { return describe(t, cl, onBroker, "", "log.retention.ms") })
}

// TestDynamicListenersAndLimits: a listener comes and goes, over a restart; limits of connections hold from their change on.
func TestDynamicListenersAndLimits(t *testing.T) {
	c := format(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	// A listener that is advertised can't go, and without advertised.listeners all are.
	file := c.StaticMap()
	listeners := file["listeners"]
	file["advertised.listeners"], _, _ = strings.Cut(listeners, ",")
	if c, err = config.NewBroker(config.NewProperties(file)); err != nil {
		t.Fatal(err)
	}
	n, lines := startLogged(t, c)
	cl := client(t, n)
	serves := func(address string) func() string {
		return func() string {
			other, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.DialTimeout(time.Second), kgo.RetryTimeout(time.Second), kgo.RequestRetries(0))
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, other)
			return fmt.Sprint(err == nil)
		}
	}
	must(t, alter(t, cl, onBroker, "1", false, "listeners="+listeners+",MORE://"+address,
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,MORE:PLAINTEXT"))
	becomes(t, "true", serves(address))
	if code := alter(t, cl, onBroker, "1", false, "listeners="+listeners+",MORE://"+address,
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,MORE:SSL"); code != fkerr.InvalidRequest.Code {
		t.Errorf("a listener with TLS: %d", code)
	}
	cl.Close()
	stop(t, n)
	n, _ = startLogged(t, c)
	defer func() { stop(t, n) }()
	cl = client(t, n)
	becomes(t, "true", serves(address))

	// One connection more than there are, of this address.
	must(t, alter(t, cl, onBroker, "1", false, "listener.name.more.max.connections=1"))
	becomes(t, "1/2 false [1/2 2147483647/5]", func() string {
		return describe(t, cl, onBroker, "1", "listener.name.more.max.connections")
	})
	held, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	becomes(t, "false", serves(address))
	becomes(t, "true", serves(n.Addr("PLAINTEXT")))
	must(t, alter(t, cl, onBroker, "1", false, "-listener.name.more.max.connections"))
	becomes(t, "true", serves(address))

	must(t, alter(t, cl, onBroker, "1", false, "-listeners", "-listener.security.protocol.map"))
	becomes(t, "false", serves(address))
	becomes(t, "true", serves(n.Addr("PLAINTEXT")))
	if lines.count("level=ERROR") != 0 {
		t.Error("there were errors")
	}
}

// TestInvalidConfigsAreRefused: nothing of them is stored, validated or not, and the node serves on (F083); the old request
// replaces all of a topic's configs (F084).
func TestInvalidConfigsAreRefused(t *testing.T) {
	n, _ := startLogged(t, format(t))
	defer stop(t, n)
	cl := client(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, map[string]*string{"retention.ms": kadm.StringPtr("1"), "cleanup.policy": kadm.StringPtr("compact")}, "t"); err != nil {
		t.Fatal(err)
	}
	for _, ch := range []string{"delete.retention.ms=-1", "cleanup.policy=foo", "min.insync.replicas=0", "segment.bytes=1", "retention.ms=abc", "unknown.key=1"} {
		for _, only := range []bool{false, true} {
			if code := alter(t, cl, onTopic, "t", only, ch, "flush.messages=7"); code != fkerr.InvalidConfig.Code {
				t.Errorf("%s: code %d", ch, code)
			}
		}
	}
	if code := alter(t, cl, onTopic, "t", false, "retention.ms"); code != fkerr.InvalidRequest.Code {
		t.Errorf("null: code %d", code)
	}
	if code := alter(t, cl, onBroker, "1", false, "node.id=5"); code != fkerr.InvalidRequest.Code {
		t.Errorf("node.id: code %d", code)
	}
	must(t, alter(t, cl, onTopic, "t", true, "retention.ms=9"))
	is := func(key, want string) {
		t.Helper()
		becomes(t, want, func() string { return describe(t, cl, onTopic, "t", key) })
	}
	is("retention.ms", "1/1 false [1/1]")
	is("flush.messages", "9223372036854775807/5 false [9223372036854775807/5]")

	req := kmsg.NewPtrAlterConfigsRequest()
	r := kmsg.NewAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = onTopic, "t"
	kv := kmsg.NewAlterConfigsRequestResourceConfig()
	kv.Name, kv.Value = "retention.ms", kmsg.StringPtr("2")
	r.Configs = append(r.Configs, kv)
	req.Resources = append(req.Resources, r)
	must(t, ask[*kmsg.AlterConfigsResponse](t, cl, req).Resources[0].ErrorCode)
	is("retention.ms", "2/1 false [2/1]")
	is("cleanup.policy", "delete/5 false [delete/5]")
	must(t, alter(t, cl, onTopic, "t", false, "cleanup.policy=compact"))
	must(t, alter(t, cl, onTopic, "t", false, "retention.ms=3"))
	is("cleanup.policy", "compact/1 false [compact/1 delete/5]")
	is("retention.ms", "3/1 false [3/1]")
}

// TestStoredConfigsNeverStopANode: values that no Kafka could use, or only an older one, stand in the metadata; the node
// starts, serves, names them, and lets them be corrected.
func TestStoredConfigsNeverStopANode(t *testing.T) {
	var records []schema.Record
	put := func(kind metadata.ResourceType, name, key, value string) {
		records = append(records, &schema.ConfigRecord{ResourceType: int8(kind), ResourceName: name, Name: key, Value: &value})
	}
	put(metadata.ResourceTopic, "t", "segment.bytes", "20000")
	put(metadata.ResourceTopic, "t", "delete.retention.ms", "-1")
	put(metadata.ResourceTopic, "t", "cleanup.policy", "foo")
	put(metadata.ResourceTopic, "t", "min.insync.replicas", "0")
	put(metadata.ResourceTopic, "t", "index.interval.bytes", "abc")
	put(metadata.ResourceTopic, "t", "segment.index.bytes", "0")
	put(metadata.ResourceTopic, "t", "message.format.version", "2.8")
	put(metadata.ResourceBroker, "", "log.segment.bytes", "30000")
	put(metadata.ResourceBroker, "", "message.max.bytes", "-7")
	put(metadata.ResourceBroker, "1", "num.io.threads", "many")
	put(metadata.ResourceBroker, "1", "node.id", "9")
	put(metadata.ResourceBroker, "1", "listeners", "SSL://127.0.0.1:1,CONTROLLER://127.0.0.1:2")
	put(metadata.ResourceBroker, "1", "log.retention.ms", "0")
	c := formatWith(t, records)
	n, lines := startLogged(t, c)
	cl := client(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: make([]byte, 15_000)}, &kgo.Record{Topic: "t", Value: make([]byte, 100)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]string{
		{"topic=t", "key=segment.bytes", "value=20000", "stays in force", "at least 1048576"},
		{"topic=t", "key=delete.retention.ms", "value=-1", "cannot be used", "at least 0"},
		{"topic=t", "key=cleanup.policy", "value=foo", "cannot be used"},
		{"topic=t", "key=min.insync.replicas", "value=0", "cannot be used"},
		{"topic=t", "key=index.interval.bytes", "value=abc", "cannot be used"},
		{"topic=t", "key=message.format.version", "has no effect", "removed in Kafka 4.0"},
		{"key=log.segment.bytes", "value=30000", "stays in force"},
		{"key=message.max.bytes", "value=-7", "left out"},
		{"key=num.io.threads", "value=many", "left out"},
		{"key=node.id", "value=9", "left out", "dynamically"},
		{"key=listeners", "left out"},
		{"key=log.retention.ms", "value=0", "left out"},
	} {
		if got := lines.count(append(want, "level=WARN")...); got != 1 {
			t.Errorf("%d lines with %v", got, want)
		}
	}
	becomes(t, "20000/1 false [20000/1 30000/3 1073741824/5]", func() string { return describe(t, cl, onTopic, "t", "segment.bytes") })
	must(t, alter(t, cl, onTopic, "t", false, "segment.bytes=1048576", "-delete.retention.ms", "-cleanup.policy", "-min.insync.replicas", "-index.interval.bytes",
		"-segment.index.bytes", "-message.format.version"))
	must(t, alter(t, cl, onBroker, "", false, "-log.segment.bytes", "-message.max.bytes"))
	must(t, alter(t, cl, onBroker, "1", false, "-num.io.threads", "-node.id", "-listeners", "-log.retention.ms"))
	cl.Close()
	stop(t, n)
	n, lines = startLogged(t, c)
	defer stop(t, n)
	if got := lines.count("level=WARN", "key="); got != 0 {
		t.Errorf("%d lines about configs that were corrected", got)
	}
}

// TestDynamicProducerExpiration: producer.id.expiration.ms is in force at once, so that a batch which comes again is no duplicate any more, and
// no longer when it is taken back.
func TestDynamicProducerExpiration(t *testing.T) {
	n, _ := startLogged(t, format(t, "producer.id.expiration.check.interval.ms=20"))
	defer stop(t, n)
	cl := client(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	topic, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, nil, "t")
	if err != nil {
		t.Fatal(err)
	}
	o := record.DefaultBatchOptions(0)
	o.ProducerID, o.ProducerEpoch, o.BaseSequence = 4711, 0, 0
	b := record.NewBuilder(o)
	b.Append(time.Now().UnixMilli(), nil, []byte("v"))
	batch, err := b.AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	again := func() int64 {
		t.Helper()
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis = -1, 10_000
		rt := kmsg.NewProduceRequestTopic()
		rt.Topic, rt.TopicID = "t", topic.ID
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Records = batch
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		for {
			resp, err := cl.Broker(1).Request(ctx, req)
			if err != nil {
				t.Fatal(err)
			}
			p := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
			if p.ErrorCode == 0 {
				return p.BaseOffset
			}
			// The controller answers for a topic before the broker leads it.
			if p.ErrorCode != fkerr.NotLeaderForPartition.Code && p.ErrorCode != fkerr.UnknownTopicID.Code {
				t.Fatalf("code %d", p.ErrorCode)
			}
		}
	}
	stays := func(offset int64) {
		t.Helper()
		for begin := time.Now(); time.Since(begin) < 200*time.Millisecond; {
			if got := again(); got != offset {
				t.Fatalf("appended again at %d; it is at %d", got, offset)
			}
		}
	}
	stays(again())
	must(t, alter(t, cl, onBroker, "1", false, "producer.id.expiration.ms=1"))
	becomes(t, "true", func() string { return fmt.Sprint(again() > 1) })
	must(t, alter(t, cl, onBroker, "1", false, "-producer.id.expiration.ms"))
	becomes(t, "86400000/5 false [86400000/5]", func() string { return describe(t, cl, onBroker, "1", "producer.id.expiration.ms") })
	stays(again())
}
