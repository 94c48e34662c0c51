package compat

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/test/peer"
)

// step is one request, sent in every version that Kafka serves from from on (below until, if that is not 0).
type step struct {
	name        string
	build       func(s *scene, v int16) kmsg.Request
	from, until int16
	controller  bool // to the controller listener
}

// answered is one answer as it stands in testdata/requests.jsonl.gz.
type answered struct {
	Step    string          `json:"step"`
	Key     int16           `json:"key"`
	Version int16           `json:"version"`
	Answer  json.RawMessage `json:"answer"` // normalised; a string if there was none: why
}

func (a answered) id() string {
	return fmt.Sprintf("%s/%s/v%d", kmsg.NameForKey(a.Key), a.Step, a.Version)
}

// scene is a node in a known state and what was learned from its answers.
type scene struct {
	t      *testing.T
	node   peer.Node
	conns  [2]*rawConn // broker, controller
	topics map[[16]byte]string
	ids    map[string][16]byte

	sessionID int32 // of the last Fetch that opened a session
}

func newScene(t *testing.T) *scene {
	n := peer.Started(t, peer.Options{Software: software(), Properties: []string{"num.partitions=2", keep}})
	return &scene{t: t, node: n, topics: map[[16]byte]string{}, ids: map[string][16]byte{}}
}

func (s *scene) conn(controller bool) *rawConn {
	i, addr := 0, s.node.Addr()
	if controller {
		i, addr = 1, s.node.Controller()
	}
	if s.conns[i] == nil {
		s.conns[i] = dialRaw(s.t, addr)
		s.t.Cleanup(func() {
			if s.conns[i] != nil {
				s.conns[i].Close()
			}
		})
	}
	return s.conns[i]
}

// send sends a request and normalises the answer.
func (s *scene) send(q kmsg.Request, v int16, controller bool) any {
	a, err := s.conn(controller).call(q, v)
	for end := time.Now().Add(5 * time.Second); err == nil && time.Now().Before(end); a, err = s.conn(controller).call(q, v) {
		// The first producer of a node may have to wait for the node's block of ids.
		if p, ok := a.(*kmsg.InitProducerIDResponse); !ok || p.ErrorCode != coordinatorLoading {
			break
		}
	}
	if err != nil {
		i := 0
		if controller {
			i = 1
		}
		s.conns[i].Close()
		s.conns[i] = nil
		return closed(err)
	}
	if f, ok := a.(*kmsg.FetchResponse); ok && f.SessionID != 0 {
		s.sessionID = f.SessionID
	}
	return s.normalise(a)
}

// coordinatorLoading is COORDINATOR_LOAD_IN_PROGRESS.
const coordinatorLoading = 14

// closed tells a connection that was closed from an answer that cannot be read.
func closed(err error) string {
	if e := err.Error(); strings.Contains(e, "EOF") || strings.Contains(e, "reset") {
		return "closed"
	}
	return err.Error()
}

// served are the API versions that Kafka serves on a listener, of those that kmsg knows.
func served(t *testing.T, controller bool) map[int16][2]int16 {
	column := "broker"
	if controller {
		column = "controller"
	}
	out := map[int16][2]int16{}
	for _, row := range fixture.Table(t, "tables/apis.tsv") {
		if row[column] == "-" || row[column] == "" {
			continue
		}
		key, err := strconv.Atoi(row["key"])
		if err != nil {
			t.Fatal(err)
		}
		lo, hi, both := strings.Cut(row[column], "-")
		if !both {
			hi = lo
		}
		low, err1 := strconv.Atoi(lo)
		high, err2 := strconv.Atoi(hi)
		if err1 != nil || err2 != nil {
			t.Fatalf("versions %q", row[column])
		}
		out[int16(key)] = [2]int16{int16(low), int16(high)}
	}
	return out
}

// advertisedBy asks a node which APIs it serves.
func (s *scene) advertisedBy(controller bool) map[int16][2]int16 {
	s.t.Helper()
	a, err := s.conn(controller).call(kmsg.NewPtrApiVersionsRequest(), 0)
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[int16][2]int16{}
	for _, k := range a.(*kmsg.ApiVersionsResponse).ApiKeys {
		out[k.ApiKey] = [2]int16{k.MinVersion, k.MaxVersion}
	}
	return out
}

// mustServe are the APIs that a single node owes its clients, per listener.
var mustServe = map[bool][]string{
	false: {"Produce", "Fetch", "ListOffsets", "Metadata", "ApiVersions", "CreateTopics", "DeleteTopics", "CreatePartitions", "DescribeTopicPartitions", "DescribeConfigs",
		"AlterConfigs", "IncrementalAlterConfigs", "OffsetForLeaderEpoch", "DescribeCluster", "InitProducerID", "DescribeQuorum",
		"DeleteRecords", "AlterReplicaLogDirs", "DescribeLogDirs"},
	true: {"ApiVersions", "CreateTopics", "DeleteTopics", "CreatePartitions", "AlterConfigs", "IncrementalAlterConfigs", "DescribeCluster", "DescribeQuorum",
		"AllocateProducerIDs", "BrokerRegistration", "BrokerHeartbeat", "ControllerRegistration", "Envelope",
		"DescribeConfigs", "AlterClientQuotas", "DescribeUserSCRAMCredentials", "AlterUserSCRAMCredentials", "UpdateFeatures", "UnregisterBroker", "UnregisterController"},
}

// TestAdvertised: a node advertises the versions that Kafka does, of every API that it must serve and of every other that it does.
func TestAdvertised(t *testing.T) {
	s := newScene(t)
	for _, controller := range []bool{false, true} {
		theirs, got := served(t, controller), s.advertisedBy(controller)
		for key, versions := range got {
			if want, ok := theirs[key]; !ok {
				t.Errorf("controller=%v: %s is advertised, Kafka does not", controller, kmsg.NameForKey(key))
			} else if versions != want {
				t.Errorf("controller=%v: %s is advertised as %v, Kafka says %v", controller, kmsg.NameForKey(key), versions, want)
			}
		}
		for _, name := range mustServe[controller] {
			if _, ok := got[keyOf(t, name)]; !ok {
				t.Errorf("controller=%v: %s is not advertised", controller, name)
			}
		}
	}
}

func keyOf(t *testing.T, name string) int16 {
	t.Helper()
	for key := range int16(kmsg.MaxKey + 1) {
		if kmsg.NameForKey(key) == name {
			return key
		}
	}
	t.Fatalf("no API %s", name)
	return 0
}

// recording reads or writes the answers of Kafka.
type recording struct {
	name, file string
	want       map[string]json.RawMessage
	got        []answered
	used       map[int]bool // rules that were needed
}

func openRecording(t *testing.T, name string) *recording {
	t.Helper()
	r := &recording{name: name, file: filepath.Join("testdata", name), want: map[string]json.RawMessage{}, used: map[int]bool{}}
	if *record {
		return r
	}
	f, err := os.Open(r.file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(z); d.More(); {
		var a answered
		if err := d.Decode(&a); err != nil {
			t.Fatal(err)
		}
		r.want[a.id()] = a.Answer
	}
	return r
}

// judge compares an answer with Kafka's, or keeps it as that.
func (r *recording) judge(t *testing.T, a answered) {
	t.Helper()
	r.got = append(r.got, a)
	if *record {
		return
	}
	want, ok := r.want[a.id()]
	if ok {
		want, a.Answer = r.meant(a.Key, want, a.Answer)
	}
	switch {
	case !ok:
		t.Errorf("%s: nothing recorded: run with -broker=kafka -record", a.id())
	case deviates(a.id()):
		if bytes.Equal(want, a.Answer) {
			t.Errorf("%s does not deviate any more", a.id())
		}
	case !bytes.Equal(want, a.Answer):
		t.Errorf("%s:\n%s", a.id(), jsonDiff(want, a.Answer))
	}
}

func (r *recording) close(t *testing.T) {
	t.Helper()
	for _, why := range r.unused() {
		t.Errorf("this does not deviate any more: %s", why)
	}
	if !*record || t.Failed() {
		return
	}
	var out bytes.Buffer
	z, _ := gzip.NewWriterLevel(&out, gzip.BestCompression)
	e := json.NewEncoder(z)
	e.SetEscapeHTML(false)
	for _, a := range r.got {
		if err := e.Encode(a); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.file, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// jsonDiff names the places where two JSON values differ.
func jsonDiff(want, got json.RawMessage) string {
	var w, g any
	json.Unmarshal(want, &w)
	json.Unmarshal(got, &g)
	var out []string
	var walk func(path string, w, g any)
	show := func(x any) string {
		b, _ := json.Marshal(x)
		return string(b)
	}
	walk = func(path string, w, g any) {
		if len(out) >= 8 {
			return
		}
		switch wt := w.(type) {
		case map[string]any:
			if gt, ok := g.(map[string]any); ok {
				keys := map[string]bool{}
				for k := range wt {
					keys[k] = true
				}
				for k := range gt {
					keys[k] = true
				}
				var names []string
				for k := range keys {
					names = append(names, k)
				}
				slices.Sort(names)
				for _, k := range names {
					walk(path+"."+k, wt[k], gt[k])
				}
				return
			}
		case []any:
			if gt, ok := g.([]any); ok && len(gt) == len(wt) {
				for i := range wt {
					walk(fmt.Sprintf("%s[%d]", path, i), wt[i], gt[i])
				}
				return
			}
		}
		if ws, gs := show(w), show(g); ws != gs {
			out = append(out, fmt.Sprintf("\t%s: got %.300s, want %.300s", path, gs, ws))
		}
	}
	walk("", w, g)
	return strings.Join(out, "\n")
}

func marshal(t *testing.T, v any) json.RawMessage {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(b.Bytes())
}

// changes are the APIs that write to the metadata log.
var changes = map[int16]bool{3: true, 19: true, 20: true, 33: true, 37: true, 44: true} // 3: topics made by asking

// barrier returns when the broker has taken in all metadata that were committed before: it writes something and waits until it
// can be read, n being new each time.
func (s *scene) barrier(n int) {
	s.t.Helper()
	value := fmt.Sprint(1000000 + n)
	set := incremental("", false, change{topicType, "barrier", []string{"retention.ms=" + value}}).build(s, 1)
	if _, err := s.conn(false).call(set, 1); err != nil {
		s.t.Fatal(err)
	}
	get := describe("", resource(topicType, "barrier", "retention.ms")).build(s, 4)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); <-tick.C {
		a, err := s.conn(false).call(get, 4)
		if err != nil {
			s.t.Fatal(err)
		}
		if r := a.(*kmsg.DescribeConfigsResponse).Resources; len(r) == 1 && len(r[0].Configs) == 1 && *r[0].Configs[0].Value == value {
			return
		}
	}
	s.t.Fatal("metadata do not reach the broker")
}

// TestRequests sends the same requests, right and wrong, in every version, and compares the answers with those of Kafka.
func TestRequests(t *testing.T) {
	s := newScene(t)
	rec := openRecording(t, "requests.jsonl.gz")
	kafka := [2]map[int16][2]int16{served(t, false), served(t, true)}
	ours := [2]map[int16][2]int16{s.advertisedBy(false), s.advertisedBy(true)}
	s.create("barrier", 1)
	sent, changed := 0, false
	for _, st := range slices.Concat(topicSteps, configSteps, dataSteps, clusterSteps) {
		side := 0
		if st.controller {
			side = 1
		}
		key := st.build(s, 0).Key()
		versions, ok := kafka[side][key]
		if !ok {
			t.Fatalf("%s: Kafka does not serve %s there", st.name, kmsg.NameForKey(key))
		}
		hi := min(versions[1], st.build(s, 0).MaxVersion())
		if st.until > 0 {
			hi = min(hi, st.until-1)
		}
		for v := max(versions[0], st.from); v <= hi; v++ {
			if r, ok := ours[side][key]; !ok || v < r[0] || v > r[1] {
				continue // TestAdvertised tells whether that is right
			}
			sent++
			q := st.build(s, v)
			if !changes[q.Key()] && changed {
				s.barrier(sent)
			}
			changed = changes[q.Key()]
			answer := s.send(q, v, st.controller)
			rec.judge(t, answered{Step: st.name, Key: key, Version: v, Answer: marshal(t, answer)})
		}
	}
	if sent < 300 {
		t.Errorf("only %d requests were sent", sent)
	}
	rec.close(t)
}

// TestBatches sends every faulty batch of the fixtures and compares what becomes of it: the error, its text, the record errors.
func TestBatches(t *testing.T) {
	s := newScene(t)
	rec := openRecording(t, "batches.jsonl.gz")
	s.create("batches", 1)
	s.create("batches-compacted", 1, "cleanup.policy=compact")
	s.create("batches-stamped", 1, "message.timestamp.type=LogAppendTime")
	s.create("batches-gzip", 1, "compression.type=gzip")
	type vector struct {
		Case   string         `json:"case"`
		Config map[string]any `json:"config"`
		Hex    string         `json:"hex"`
	}
	seen := map[string]int{}
	for _, v := range fixture.Lines[vector](t, "vectors/batches-invalid.jsonl.gz") {
		seen[v.Case]++
		for _, topic := range []string{"batches", "batches-compacted", "batches-stamped", "batches-gzip"} {
			q := kmsg.NewPtrProduceRequest()
			q.Acks, q.TimeoutMillis = -1, 10000
			q.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: unhex(t, v.Hex)}}}}
			answer := s.send(q, 12, false)
			rec.judge(t, answered{Step: fmt.Sprintf("%s: %s #%d", topic, v.Case, seen[v.Case]), Key: 0, Version: 12, Answer: marshal(t, answer)})
		}
	}
	rec.close(t)
}

// TestFrames sends what is no request, or a hostile one: the node closes the connection or answers as Kafka does, and lives on.
func TestFrames(t *testing.T) {
	s := newScene(t)
	rec := openRecording(t, "frames.jsonl.gz")
	s.create("frames", 1)
	for _, f := range frames(t) {
		c := dialRaw(t, s.node.Addr())
		body, err := c.exchange(f.bytes)
		var port int
		fmt.Sscanf(s.node.Addr(), "127.0.0.1:%d", &port)
		var answer any = strings.ReplaceAll(fmt.Sprintf("%x", body), fmt.Sprintf("%08x", port), "{PORT}")
		if err != nil {
			answer = closed(err)
		}
		c.Close()
		rec.judge(t, answered{Step: f.name, Key: 0, Version: 0, Answer: marshal(t, answer)})
		if !peer.Answers(s.node.Addr()) {
			t.Fatalf("%s: the node does not answer any more", f.name)
		}
	}
	rec.close(t)
}

type frame struct {
	name  string
	bytes []byte
}

func frames(t *testing.T) []frame {
	t.Helper()
	f := func(name string, hex string) frame { return frame{name, unhex(t, hex)} }
	head := func(key, version int) string { return fmt.Sprintf("%04x%04x00000007000178", key, version) } // correlation 7, client "x"
	framed := func(body string) string { return fmt.Sprintf("%08x%s", len(body)/2, body) }
	return []frame{
		f("a negative size", "ffffffff"),
		f("a size of 0", "00000000"),
		f("a size above socket.request.max.bytes", "7fffffff"+head(18, 0)),
		f("HTTP", fmt.Sprintf("%x", "GET / HTTP/1.1\r\nHost: x\r\n\r\n")),
		f("a header cut off", framed("0012")),
		f("an unknown API", framed(head(999, 0))),
		f("a negative API", framed(head(-1&0xffff, 0))),
		f("an API of ZooKeeper's days", framed(head(4, 0))),
		f("an API of the controller", framed(head(62, 0)+"00")),
		f("a version too high", framed(head(3, 99)+"00")),
		f("a version too low", framed(head(1, 0))),
		f("Produce v2, advertised but not served", framed(head(0, 2)+"0001000003e800000000")),
		f("ApiVersions of an unknown version", framed(head(18, 99)+"00")),
		f("ApiVersions of an unknown version, without tags", framed(head(18, 99))),
		f("ApiVersions v3 without a body", framed(head(18, 3))),
		f("Metadata with 2 billion topics", framed(head(3, 1)+"7fffffff")),
		f("Metadata with a negative count", framed(head(3, 1)+"fffffffe")),
		f("Metadata v9 with a varint that never ends", framed(head(3, 9)+"00"+"ffffffffffffffffffff")),
		f("Metadata v9 with 4 billion topics", framed(head(3, 9)+"00"+"ffffffff0f")),
		f("Metadata, a topic name longer than the frame", framed(head(3, 1)+"00000001"+"7fff"+"61")),
		f("Metadata, a topic name that is null", framed(head(3, 1)+"00000001"+"ffff")),
		f("Produce with 2 billion topics", framed(head(0, 3)+"ffff0001000003e87fffffff")),
		f("Produce with records longer than the frame", framed(head(0, 3)+"ffff0001000003e8000000010006"+fmt.Sprintf("%x", "frames")+"00000001000000007fffffff00")),
		f("Fetch with 2 billion partitions", framed(head(1, 4)+"ffffffff000001f40000000100100000000000000100066672616d65737fffffff")),
		f("CreateTopics with 2 billion configs", framed(head(19, 2)+"00000001000161000000010001000000007fffffff")),
		f("ListOffsets cut off", framed(head(2, 1)+"ffffffff000000010006"+fmt.Sprintf("%x", "frames"))),
		f("tagged fields cut off", framed(head(18, 3)+"ff")),
		f("a tagged field longer than the frame", framed(head(18, 3)+"0107ff7f")),
	}
}
