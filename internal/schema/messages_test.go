package schema

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/fixture"
)

type messageVector struct {
	API           int16           `json:"api"`
	Name          string          `json:"name"`
	Type          string          `json:"type"`
	Version       int16           `json:"version"`
	HeaderVersion int16           `json:"headerVersion"`
	Case          string          `json:"case"`
	Hex           string          `json:"hex"`
	JSON          json.RawMessage `json:"json"`
	Exception     string          `json:"exception"`
}

func (v *messageVector) bytes(t testing.TB) []byte {
	b, err := hex.DecodeString(v.Hex)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (v *messageVector) message() Message {
	q := RequestForKey(v.API, v.Version)
	if q == nil { // a version of 3.x
		q = kmsg.RequestForKey(v.API)
		q.SetVersion(v.Version)
	}
	if v.Type == "request" {
		return q
	}
	r := q.ResponseKind()
	r.SetVersion(v.Version)
	return r
}

func (v *messageVector) check(b []byte) (int, error) {
	if v.Type == "request" {
		return CheckRequest(v.API, v.Version, b)
	}
	return CheckResponse(v.API, v.Version, b)
}

// Every request and response that the real Kafka wrote passes the check, decodes by kmsg and our overrides, and encodes
// to the same bytes; cut short anywhere the check refuses it.
func TestMessages(t *testing.T) {
	n := 0
	for _, file := range []string{"messages-requests", "messages-responses", "messages-removed"} {
		for _, v := range fixture.Lines[messageVector](t, "vectors/"+file+".jsonl.gz") {
			n++
			b := v.bytes(t)
			where := v.Name + " " + v.Type + " " + v.Case
			m := v.message()
			if file != "messages-removed" {
				cost, err := v.check(b)
				if err != nil || cost < len(b) {
					t.Errorf("%s v%d: %v, cost %d of %d bytes", where, v.Version, err, cost, len(b))
					continue
				}
				for i := 0; i < len(b); i += 1 + i/40 {
					if _, err := v.check(b[:i]); err == nil {
						t.Errorf("%s v%d cut at %d passes", where, v.Version, i)
					}
				}
				if q, ok := m.(kmsg.Request); ok {
					err = ReadRequest(q, b)
				} else {
					err = ReadResponse(m.(kmsg.Response), b)
				}
				if err != nil {
					t.Errorf("%s v%d: %v", where, v.Version, err)
				}
			} else if err := readMessage(m, b); err != nil {
				t.Errorf("%s v%d: %v", where, v.Version, err)
			}
			if got := AppendMessage([]byte{1, 2, 3}, m); !bytes.Equal(got[3:], b) {
				t.Errorf("%s v%d: encodes to\n%x\nwant\n%x", where, v.Version, got[3:], b)
			}
		}
	}
	if n < 8000 {
		t.Errorf("only %d vectors", n)
	}
}

// What is wrong in one way: our verdict is Kafka's, but that we refuse a known tagged field whose declared size is not
// its size, which Kafka doesn't look at, and a varint of more than 32 bits, which it cuts,
// and a null struct marked with a negative number other than -1.
func TestInvalidMessages(t *testing.T) {
	stricter := 0
	for _, v := range fixture.Lines[messageVector](t, "vectors/messages-invalid.jsonl.gz") {
		_, err := v.check(v.bytes(t))
		switch {
		case (err != nil) == (v.JSON == nil):
			if err == nil {
				if err := readMessage(v.message(), v.bytes(t)); err != nil {
					t.Errorf("%s v%d %s: passes the check, then %v", v.Name, v.Version, v.Case, err)
				}
			}
		case strings.HasPrefix(v.Case, "cluster id, size") || v.Case == "array length a varint of five bytes, too large",
			v.Case == "nullable struct marked fe", v.Case == "nullable struct marked 80":
			stricter++
		default:
			t.Errorf("%s v%d %s: %v, Kafka: %s %s", v.Name, v.Version, v.Case, err, v.Exception, v.JSON)
		}
	}
	if stricter != 6 {
		t.Errorf("%d cases where we are stricter", stricter)
	}
}

// The header versions that APIs gives are Kafka's.
func TestHeaderVersions(t *testing.T) {
	for _, v := range fixture.Lines[messageVector](t, "vectors/messages-headers.jsonl.gz") {
		a := LookupAPI(v.API)
		if a == nil {
			t.Errorf("%s is no API", v.Name)
			continue
		}
		got := a.RequestHeaderVersion(v.Version)
		if v.Type == "responseHeader" {
			got = a.ResponseHeaderVersion(v.Version)
		}
		if got != v.HeaderVersion || a.Name != v.Name {
			t.Errorf("%s v%d %s: %d, want %d", v.Name, v.Version, v.Type, got, v.HeaderVersion)
		}
	}
}

// The table says what apis.json says.
func TestAPIs(t *testing.T) {
	var rows []struct {
		API             int16    `json:"api"`
		Name            string   `json:"name"`
		Min             int16    `json:"min"`
		Max             int16    `json:"max"`
		MaxUnstable     int16    `json:"maxUnstable"`
		FlexibleRequest int16    `json:"flexibleRequest"`
		Listeners       []string `json:"listeners"`
		Removed         bool     `json:"removed"`
	}
	fixture.JSON(t, "vectors/apis.json", &rows)
	if len(rows) != len(APIs) {
		t.Errorf("%d APIs", len(rows))
	}
	for _, r := range rows {
		a := &APIs[r.API]
		if a.Name != r.Name || a.Removed() != r.Removed || a.Key != r.API {
			t.Errorf("%+v, want %+v", a, r)
		}
		if r.Removed {
			continue
		}
		l := strings.Join(r.Listeners, ",")
		if a.Min != r.Min || a.Max != r.Max || a.MaxUnstable != r.MaxUnstable || a.Flexible != r.FlexibleRequest ||
			a.Broker != strings.Contains(l, "broker") || a.Controller != strings.Contains(l, "controller") {
			t.Errorf("%+v, want %+v", a, r)
		}
		if want := r.Min; a.Advertised != want && r.API != 0 || r.API == 0 && a.Advertised != 0 {
			t.Errorf("%s advertises %d", a.Name, a.Advertised)
		}
		if RequestForKey(r.API, r.Max) == nil || RequestForKey(r.API, r.Max).ResponseKind() == nil || RequestForKey(r.API, r.MaxUnstable+1) != nil {
			t.Errorf("%s has no message", a.Name)
		}
	}
}

// Tagged fields that a version lacks do not go out: what Prepare leaves passes the check at every version.
func TestPrepare(t *testing.T) {
	f := func(make func() Message, key int16, response bool) {
		t.Helper()
		a := LookupAPI(key)
		for v := a.Min; v <= a.Max; v++ {
			m := make()
			m.(interface{ SetVersion(int16) }).SetVersion(v)
			b := AppendMessage(nil, m)
			check := CheckRequest
			if response {
				check = CheckResponse
			}
			if _, err := check(key, v, b); err != nil {
				t.Errorf("%s v%d: %v", a.Name, v, err)
			}
		}
	}
	f(func() Message {
		m := kmsg.NewPtrProduceResponse()
		p := kmsg.NewProduceResponseTopicPartition()
		p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = 1, 1
		m.Topics = []kmsg.ProduceResponseTopic{{Partitions: []kmsg.ProduceResponseTopicPartition{p}}}
		m.Brokers = []kmsg.ProduceResponseBroker{{NodeID: 1}}
		return m
	}, 0, true)
	f(func() Message {
		m := kmsg.NewPtrFetchRequest()
		m.ReplicaState.ID = 1
		p := kmsg.NewFetchRequestTopicPartition()
		p.HighWatermark, p.ReplicaDirectoryID = 1, [16]byte{1}
		m.Topics = []kmsg.FetchRequestTopic{{Partitions: []kmsg.FetchRequestTopicPartition{p}}}
		return m
	}, 1, false)
	f(func() Message {
		m := kmsg.NewPtrFetchResponse()
		m.Brokers = []kmsg.FetchResponseBroker{{NodeID: 1}}
		return m
	}, 1, true)
	f(func() Message {
		m := kmsg.NewPtrVoteResponse()
		m.NodeEndpoints = []kmsg.VoteResponseNodeEndpoint{{NodeID: 1}}
		return m
	}, 52, true)
	f(func() Message {
		m := kmsg.NewPtrFetchSnapshotRequest()
		p := kmsg.NewFetchSnapshotRequestTopicPartition()
		p.ReplicaDirectoryID = [16]byte{1}
		m.Topics = []kmsg.FetchSnapshotRequestTopic{{Partitions: []kmsg.FetchSnapshotRequestTopicPartition{p}}}
		return m
	}, 59, false)
	f(func() Message {
		m := kmsg.NewPtrFetchSnapshotResponse()
		m.NodeEndpoints = []kmsg.FetchSnapshotResponseNodeEndpoint{{NodeID: 1}}
		return m
	}, 59, true)
	f(func() Message {
		m := kmsg.NewPtrBrokerHeartbeatRequest()
		m.OfflineLogDirs, m.CordonedLogDirs = [][16]byte{{1}}, [][16]byte{{1}}
		return m
	}, 63, false)
	u := kmsg.NewPtrUpdateMetadataRequest()
	u.Version = 8
	u.UnknownTags.Set(0, []byte{2})
	if UpdateMetadataType(u) != 2 {
		t.Error("type of UpdateMetadata")
	}
	u.Version = 7
	if AppendMessage(nil, u); UpdateMetadataType(u) != 0 {
		t.Error("type of UpdateMetadata goes out at version 7")
	}
}

// A small frame must not cost much: counts are bounded by the bytes there are, and cost tells what the rest will take.
func TestHostileCounts(t *testing.T) {
	body := binary.AppendUvarint(nil, 900_000+1) // topics of a Metadata request
	body = append(body, make([]byte, 17*1000)...)
	if n := allocated(func() {
		if _, err := CheckRequest(3, 12, body); err == nil {
			t.Error("900,000 topics in 17 kB pass")
		}
	}); n > 1<<20 {
		t.Errorf("%d bytes allocated", n)
	}
	// Many real elements: cost is of the order of what decoding allocates.
	var m kmsg.MetadataRequest
	m.Version = 12
	for range 10_000 {
		m.Topics = append(m.Topics, kmsg.NewMetadataRequestTopic())
	}
	b := m.AppendTo(nil)
	cost, err := CheckRequest(3, 12, b)
	if err != nil || cost < 3*len(b)/2 || cost > 40*len(b) {
		t.Errorf("cost %d of %d bytes, %v", cost, len(b), err)
	}
}

// A compact length above 2^31 is a negative one for Kafka, so null, and too long for kmsg.
func TestCompactLengthsThatAreNegative(t *testing.T) {
	for _, length := range []string{"8280808008", "8d94ffff08", "ffffffff0f"} {
		body, err := hex.DecodeString("00000000" + "0001" + length + "00")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := CheckResponse(81, 0, body); err == nil {
			t.Errorf("an error message of length %s passes", length)
		}
	}
	if _, err := CheckResponse(81, 0, []byte{0, 0, 0, 0, 0, 1, 0, 0}); err != nil {
		t.Errorf("none: %v", err)
	}
}

func BenchmarkCheck(b *testing.B) {
	m := kmsg.NewPtrCreateTopicsRequest()
	m.Version = 7
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic = "topic"
	m.Topics = append(m.Topics, topic)
	body := m.AppendTo(nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := CheckRequest(19, 7, body); err != nil {
			b.Fatal(err)
		}
	}
}

// What passes the check never panics kmsg, and what kmsg takes and Kafka refuses doesn't pass.
func FuzzMessages(f *testing.F) {
	for _, file := range []string{"messages-requests", "messages-responses", "messages-invalid"} {
		for i, v := range fixture.Lines[messageVector](f, "vectors/"+file+".jsonl.gz") {
			if i%23 == 0 && len(v.Hex) < 2000 {
				f.Add(v.API, v.Version, v.Type == "response", v.bytes(f))
			}
		}
	}
	f.Fuzz(func(t *testing.T, api, version int16, response bool, b []byte) {
		q := RequestForKey(api, version)
		if q == nil {
			if _, err := CheckRequest(api, version, b); err == nil {
				t.Fatalf("API %d version %d passes", api, version)
			}
			return
		}
		var m Message = q
		check := CheckRequest
		if response {
			p := q.ResponseKind()
			p.SetVersion(version)
			m, check = p, CheckResponse
		}
		if _, err := check(api, version, b); err != nil {
			return
		}
		if err := readMessage(m, b); err != nil {
			t.Fatalf("API %d version %d: passes the check, then %v", api, version, err)
		}
		out := AppendMessage(nil, m)
		if _, err := check(api, version, out); err != nil {
			t.Fatalf("API %d version %d: %x encodes to %x: %v", api, version, b, out, err)
		}
	})
}
