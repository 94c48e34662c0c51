package schema

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/highwater/highwater/internal/fixture"
)

type recordVector struct {
	Log     string          `json:"log"`
	Kind    string          `json:"kind"`
	ID      int16           `json:"id"`
	Name    string          `json:"name"`
	Version int16           `json:"version"`
	Case    string          `json:"case"`
	Prefix  int             `json:"prefix"`
	Hex     string          `json:"hex"`
	JSON    json.RawMessage `json:"json"`
	Unknown []struct {
		Path string `json:"path"`
		Tag  uint32 `json:"tag"`
		Hex  string `json:"hex"`
	} `json:"unknown"`
}

var vectorFiles = []string{"records-metadata", "records-coordinator", "records-raft", "records-other"}

func vectors(t testing.TB) []recordVector {
	var out []recordVector
	for _, f := range vectorFiles {
		out = append(out, fixture.Lines[recordVector](t, "vectors/"+f+".jsonl.gz")...)
	}
	return out
}

func (v *recordVector) bytes(t testing.TB) []byte {
	b, err := hex.DecodeString(v.Hex)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func byName(name string) *Info {
	for _, i := range Types() {
		if i.Name == name {
			return i
		}
	}
	return nil
}

// tokens is a JSON text cut into tokens, so that escapes and order of members compare as what they mean.
func tokens(t testing.TB, b []byte) []json.Token {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var out []json.Token
	for {
		tok, err := d.Token()
		if err != nil {
			if err.Error() != "EOF" {
				t.Fatalf("%v in %s", err, b)
			}
			return out
		}
		out = append(out, tok)
	}
}

func sameTokens(a, b []json.Token) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// decode decodes a vector with its framing.
func (v *recordVector) decode(b []byte) (r Record, version int16, err error) {
	switch {
	case v.Log == "metadata" || v.Log == "remote":
		return ReadFramed(Log(v.Log), b)
	case v.Kind == "key":
		r, err = ReadKey(Log(v.Log), b)
		return r, 0, err
	case v.Kind == "value":
		return ReadValue(Log(v.Log), v.ID, b)
	case v.Prefix == 2:
		r = byName(v.Name).New()
		version, err = ReadVersioned(r, b)
		return r, version, err
	}
	r = byName(v.Name).New()
	return r, v.Version, ReadAll(r, b, v.Version)
}

func (v *recordVector) encode(r Record) ([]byte, error) {
	switch {
	case v.Log == "metadata" || v.Log == "remote":
		return AppendFrame(nil, r, v.Version)
	case v.Kind == "key":
		return AppendKey(nil, r)
	case v.Prefix == 2:
		return AppendValue(nil, r, v.Version)
	}
	return r.AppendTo(nil, v.Version)
}

// Every record vector of the real Kafka decodes, prints to Kafka's JSON, and encodes to Kafka's bytes.
func TestVectors(t *testing.T) {
	seen := make(map[string]bool)
	for _, v := range vectors(t) {
		where := v.Name + " v" + string(rune('0'+v.Version)) + " " + v.Case
		b := v.bytes(t)
		r, version, err := v.decode(b)
		if err != nil {
			t.Errorf("%s: %v", where, err)
			continue
		}
		if version != v.Version || r.Info().Name != v.Name {
			t.Errorf("%s: decoded as %s version %d", where, r.Info().Name, version)
		}
		got, err := v.encode(r)
		if err != nil || !bytes.Equal(got, b) {
			t.Errorf("%s: encodes to %x, %v\nwant %x", where, got, err, b)
		}
		if j := r.AppendJSON(nil, version); !sameTokens(tokens(t, j), tokens(t, v.JSON)) {
			t.Errorf("%s: prints %s\nwant %s", where, j, v.JSON)
		}
		seen[v.Name] = true
		for _, c := range strings.Split(v.Case, ",") {
			if c != "default" {
				continue
			}
			fresh := r.Info().New()
			fresh.SetDefaults()
			if got, err := v.encode(fresh); err != nil || !bytes.Equal(got, b) {
				t.Errorf("%s: defaults encode to %x, %v\nwant %x", where, got, err, b)
			}
		}
	}
	for _, i := range Types() {
		if !seen[i.Name] {
			t.Errorf("no vector of %s", i.Name)
		}
	}
}

// A vector that is cut short anywhere is refused, and decoding it doesn't panic.
func TestTruncated(t *testing.T) {
	for _, v := range vectors(t) {
		b := v.bytes(t)
		for n := range b {
			if n > 300 && n < len(b)-50 {
				continue // long texts and arrays
			}
			if r, _, err := v.decode(b[:n:n]); err == nil {
				t.Errorf("%s v%d %s cut at %d decodes to %s", v.Name, v.Version, v.Case, n, r.AppendJSON(nil, v.Version))
			}
		}
	}
}

func FuzzRecord(f *testing.F) {
	for i, v := range vectors(f) {
		if i%7 == 0 {
			b := v.bytes(f)
			for j, t := range Types() {
				if t.Name == v.Name {
					f.Add(uint8(j), uint8(v.Version), b[v.Prefix:])
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, which, version uint8, b []byte) {
		info := Types()[int(which)%len(Types())]
		r, again := info.New(), info.New()
		v := info.Min + int16(version)%(info.Max-info.Min+1)
		if _, err := r.ReadFrom(b, v); err != nil {
			return
		}
		r.AppendJSON(nil, v)
		out, err := r.AppendTo(nil, v)
		if err != nil {
			return // unknown tags in an order that cannot be written
		}
		rest, err := again.ReadFrom(out, v)
		if err != nil || len(rest) > 0 {
			t.Fatalf("%s v%d: %x encodes to %x, which decodes with %d left, %v", info.Name, v, b, out, len(rest), err)
		}
		if x, _ := again.AppendTo(nil, v); !bytes.Equal(x, out) {
			t.Fatalf("%s v%d: %x then %x", info.Name, v, out, x)
		}
	})
}

func FuzzFramed(f *testing.F) {
	for i, v := range vectors(f) {
		if i%11 == 0 {
			f.Add(v.bytes(f))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, l := range []Log{LogMetadata, LogRemote} {
			if r, v, err := ReadFramed(l, b); err == nil {
				r.AppendJSON(nil, v)
			}
		}
		for _, l := range []Log{LogGroup, LogTransaction, LogShare} {
			if r, err := ReadKey(l, b); err == nil {
				r.AppendJSON(nil, 0)
			}
			for id := int16(-1); id < 25; id++ {
				if r, v, err := ReadValue(l, id, b); err == nil {
					r.AppendJSON(nil, v)
				}
			}
		}
	})
}

// What Kafka's encoder and decoder refuse.
func TestRefused(t *testing.T) {
	p := NewPartitionRecord()
	p.EligibleLeaderReplicas = []int32{1}
	if _, err := p.AppendTo(nil, 1); err == nil || !strings.Contains(err.Error(), "eligibleLeaderReplicas at version 1") {
		t.Errorf("field of version 2 at version 1: %v", err)
	}
	if _, err := p.AppendTo(nil, 3); err == nil {
		t.Error("version 3 of PartitionRecord was written")
	}
	var unknown *VersionError
	if _, _, err := ReadFramed(LogMetadata, []byte{1, 77, 0}); !errors.As(err, &unknown) || unknown.ID != 77 {
		t.Errorf("unknown id: %v", err)
	}
	if _, _, err := ReadFramed(LogMetadata, []byte{1, 2, 9}); !errors.As(err, &unknown) || unknown.Name != "TopicRecord" {
		t.Errorf("unknown version: %v", err)
	}
	for _, b := range [][]byte{{}, {2, 2, 0}, {1}, {1, 2}, {1, 20, 0, 0, 0}, {1, 20, 0}, {0xff, 0xff, 0xff, 0xff, 0xff, 1}} {
		if _, _, err := ReadFramed(LogMetadata, b); err == nil {
			t.Errorf("%x decodes", b)
		}
	}
	// 1,000,001 elements, and they are there.
	big := append(appendUvarint(make([]byte, 0, 17_000_100), 1_000_002), make([]byte, 16_000_100)...)
	r := Reader{src: big}
	if r.ArrayLen(true, false, 16); r.err == nil {
		t.Error("an array of 1,000,001 elements was taken")
	}
	// A count that the bytes left cannot hold allocates nothing.
	hostile := append([]byte{1, 3, 0, 0, 0, 0, 0}, make([]byte, 16)...)
	hostile = append(hostile, 0xff, 0xff, 0x3c)
	if n := allocated(func() {
		var p PartitionRecord
		if _, err := p.ReadFrom(hostile[3:], 0); err == nil {
			t.Error("hostile count decodes")
		}
	}); n > 1<<20 {
		t.Errorf("%d bytes allocated", n)
	}
	x := NewNoOpRecord()
	x.UnknownTags = []RawTag{{2, nil}, {1, nil}}
	if _, err := x.AppendTo(nil, 0); err == nil {
		t.Error("tags out of order were written")
	}
	d := NewPartitionRecord()
	d.UnknownTags = []RawTag{{0, nil}}
	if _, err := d.AppendTo(nil, 2); err != nil {
		t.Logf("tag 0 beside a default tag 0: %v", err)
	}
}

// allocated is how much memory f takes from the heap; another goroutine may add a little.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestTypeName(t *testing.T) {
	for name, want := range map[string]string{
		"TopicRecord": "TOPIC_RECORD", "NoOpRecord": "NO_OP_RECORD", "BrokerRegistrationChangeRecord": "BROKER_REGISTRATION_CHANGE_RECORD",
		"ClearElrRecord": "CLEAR_ELR_RECORD",
	} {
		if got := byName(name).TypeName(); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestJavaDouble(t *testing.T) {
	f := func(v float64, want string) {
		t.Helper()
		if got := JavaDouble(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
	f(0, "0.0")
	f(1, "1.0")
	f(100.5, "100.5")
	f(9999999, "9999999.0")
	f(1e7, "1.0E7")
	f(1.048576e6, "1048576.0")
	f(12345678.9, "1.23456789E7")
	f(0.001, "0.001")
	f(0.0001, "1.0E-4")
	f(-1e-10, "-1.0E-10")
	f(1.7976931348623157e308, "1.7976931348623157E308")
}
