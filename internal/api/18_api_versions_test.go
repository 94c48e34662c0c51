package api

// ApiVersions against what a node of Apache Kafka 4.4.0 answered, byte for byte, and its refusals.

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/highwater/highwater/internal/rpc"
	"github.com/highwater/highwater/internal/schema"
)

const testCluster = "2vSRgbjhTBCTxU0bTAPzLg"

// allAPIs is a table of everything that a fresh Kafka advertises on a kind of listener.
func allAPIs(kind Listener, av *APIVersions) {
	var routes []Route
	for key := range int16(schema.MaxAPIKey + 1) {
		a := schema.LookupAPI(key)
		if a == nil || !kind.serves(a) || key == 71 || key == 72 { // telemetry is advertised with a receiver only
			continue
		}
		h := func(*rpc.Request) *rpc.Pending { return nil }
		if key == 18 {
			h = av.Handle
		}
		routes = append(routes, Route{key, h})
	}
	av.Table = NewTable(kind, false, routes...)
}

func testAPIVersions(kind Listener, epoch int64) *APIVersions {
	av := &APIVersions{ClusterID: testCluster, NodeID: 1, Compare: kind == BrokerListener}
	av.Features = func() Features {
		return Features{
			Supported: []SupportedFeature{{"group.version", 0, 1}, {"kraft.version", 0, 1}, {"metadata.version", 7, 33}, {"share.version", 0, 2},
				{"streams.version", 0, 1}, {"transaction.version", 0, 2}, {"eligible.leader.replicas.version", 0, 1}},
			Finalized: []FinalizedFeature{{"group.version", 1}, {"streams.version", 1}, {"transaction.version", 2},
				{"eligible.leader.replicas.version", 1}, {"share.version", 2}, {"metadata.version", 33}},
			Epoch: epoch,
		}
	}
	allAPIs(kind, av)
	return av
}

func TestApiVersionsAsKafka(t *testing.T) {
	f, err := os.Open("testdata/api_versions.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := 0
	for s := bufio.NewScanner(f); s.Scan(); {
		if strings.HasPrefix(s.Text(), "#") {
			continue
		}
		var kindName, want string
		var version int16
		if _, err := fmt.Sscan(s.Text(), &kindName, &version, &want); err != nil {
			t.Fatal(err)
		}
		kind, epoch := BrokerListener, int64(942)
		if kindName == "controller" {
			kind, epoch = ControllerListener, 9
		}
		r := &rpc.Request{Key: 18, Version: version, Conn: new(rpc.Conn)}
		if version >= 3 {
			r.Body = append(appendCompact(appendCompact(nil, "a"), "1"), 0)
		}
		if version >= 5 {
			r.Body = versions5("a", "1", testCluster, 1)
		}
		testAPIVersions(kind, epoch).Handle(r)
		if got := hex.EncodeToString(r.Response.Buf); got != want {
			t.Errorf("%s version %d:\n got %s\nwant %s", kindName, version, got, want)
		}
		lines++
	}
	if lines != 12 {
		t.Errorf("%d lines", lines)
	}
}

// versions5 is the body of a request of version 5; cluster "-" is null.
func versions5(name, version, cluster string, node int32) []byte {
	b := appendCompact(appendCompact(nil, name), version)
	if cluster == "-" {
		b = append(b, 0)
	} else {
		b = appendCompact(b, cluster)
	}
	return append(appendInt32(b, node), 0)
}

func TestApiVersionsRefusals(t *testing.T) {
	const invalid, rebootstrap = "002a010000000000", "0081010000000000"
	f := func(kind Listener, version int16, body []byte, want string) {
		t.Helper()
		r := &rpc.Request{Key: 18, Version: version, Body: body, Conn: new(rpc.Conn)}
		testAPIVersions(kind, 9).Handle(r)
		got := hex.EncodeToString(r.Response.Buf)
		if r.Response.Fail != nil {
			got = "closed"
		}
		if want == "answer" {
			if !strings.HasPrefix(got, "0000") || len(got) < 300 || r.Conn.Software != "a" || r.Conn.SoftwareVersion != "1" {
				t.Errorf("version %d, %x: %s, software %q %q", version, body, got, r.Conn.Software, r.Conn.SoftwareVersion)
			}
			return
		}
		if got != want || r.Conn.Software != "" {
			t.Errorf("version %d, %x: %s, want %s", version, body, got, want)
		}
	}
	for _, kind := range []Listener{BrokerListener, ControllerListener} {
		mismatch := rebootstrap
		if kind == ControllerListener {
			mismatch = "answer"
		}
		f(kind, 5, versions5("a", "1", "-", -1), "answer")
		f(kind, 5, versions5("a", "1", testCluster, 1), "answer")
		f(kind, 5, versions5("a", "1", testCluster, 2), mismatch)
		f(kind, 5, versions5("a", "1", testCluster, -2), mismatch)
		f(kind, 5, versions5("a", "1", "", 1), mismatch)
		f(kind, 5, versions5("a", "1", "xxxxxxxxxxxxxxxxxxxxxx", 1), mismatch)
		f(kind, 5, versions5("a", "1", testCluster, -1), invalid)
		f(kind, 5, versions5("a", "1", "-", 1), invalid)
		f(kind, 5, versions5("a", "1", "-", -2), invalid)
		f(kind, 5, versions5("a b", "1", "x", 1), invalid)
		for _, v := range []int16{6, 99, 32767, -1, -32768} {
			f(kind, v, nil, "002300000001001200000005")
			f(kind, v, []byte{1, 2, 3}, "002300000001001200000005")
		}
		f(kind, 3, nil, "closed")
		f(kind, 3, []byte{0, 2, 'a', 0}, "closed") // null
		f(kind, 3, []byte{2, 'a', 2, '1'}, "closed")
		f(kind, 3, []byte{2, 'a', 2, '1', 1, 5, 2, 7, 7}, "answer")
		f(kind, 3, []byte{2, 'a', 2, '1', 0, 7, 7}, "answer")
	}
	for _, name := range []string{"", "a b", "-a", "a_", "a-", ".a", "a.", "a_b", "ä", "a+"} {
		f(BrokerListener, 3, append(appendCompact(appendCompact(nil, name), "1"), 0), invalid)
		f(BrokerListener, 3, append(appendCompact(appendCompact(nil, "a"), name), 0), invalid)
	}
	for _, name := range []string{"9", strings.Repeat("a", 1000), "apache-kafka.java", "A.-9"} {
		if !softwareName([]byte(name)) {
			t.Errorf("%q is refused", name)
		}
	}
}

// What the listener has no route for is not told.
func TestApiVersionsOnlyWhatIsServed(t *testing.T) {
	av := new(APIVersions)
	av.Table = NewTable(BrokerListener, false, Route{18, av.Handle}, Route{0, func(*rpc.Request) *rpc.Pending { return nil }})
	r := &rpc.Request{Key: 18, Conn: new(rpc.Conn)}
	av.Handle(r)
	// Produce from version 0 on, which is not served: librdkafka would not talk to a broker without it.
	if want, _ := hex.DecodeString("000000000002" + "00000000000d" + "001200000005"); !bytes.Equal(r.Response.Buf, want) {
		t.Errorf("%x", r.Response.Buf)
	}
	r = &rpc.Request{Key: 18, Version: 4, Body: []byte{2, 'a', 2, '1', 0}, Conn: new(rpc.Conn)}
	av.Handle(r)
	// No features known: none told.
	if want, _ := hex.DecodeString("000003" + "00000000000d00" + "00120000000500" + "00000000" + "00"); !bytes.Equal(r.Response.Buf, want) {
		t.Errorf("%x", r.Response.Buf)
	}
	if newest := NewTable(BrokerListener, true, Route{22, av.Handle}).APIs[22].Max; newest != 6 {
		t.Errorf("unstable InitProducerId: %d", newest)
	}
	defer func() {
		if recover() == nil {
			t.Error("a broker's listener took Vote")
		}
	}()
	NewTable(BrokerListener, false, Route{52, av.Handle})
}
