package compat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
)

// entry is one record as every client sees it. A nil key or value is null.
type entry struct {
	Offset    int64    `json:"o"`
	Timestamp int64    `json:"t,omitempty"` // 0 when producing: the client's clock
	Key       []byte   `json:"k"`
	Value     []byte   `json:"v"`
	Headers   []header `json:"h"`
}

type header struct {
	Name  string
	Value []byte
}

func (h header) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.Name, h.Value}) }

func (h *header) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &[]any{&h.Name, &h.Value}) }

// produce is a request to a client: write records to one partition and report the offset of each.
type produce struct {
	Addr       string  `json:"addr"`
	Topic      string  `json:"topic"`
	Partition  int32   `json:"partition"`
	Codec      string  `json:"codec"` // none, gzip, snappy, lz4, zstd
	Idempotent bool    `json:"idempotent"`
	Max        int     `json:"max"` // the client's own limit for a request
	Records    []entry `json:"records"`
}

// consume is a request to a client: read Count records of one partition from an offset or, if Timestamp is set, from the first
// record that is not older.
type consume struct {
	Addr      string `json:"addr"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Timestamp *int64 `json:"timestamp"`
	Count     int    `json:"count"`
}

// refusal is an error that a client reports, with Kafka's code, or −1 for one that is the client's own.
type refusal struct {
	Code int16
	Text string
}

func (r *refusal) Error() string { return fmt.Sprintf("code %d: %s", r.Code, r.Text) }

// driver is one client.
type driver interface {
	name() string
	// plain tells that the client moves text only: no line breaks or bytes that are no UTF-8, no empty keys or values, no null
	// header values.
	plain() bool
	// codes tells that refusals come with Kafka's codes.
	codes() bool
	// times tells that the client reads from a timestamp.
	times() bool
	// stamps tells that the client writes the timestamp that it is told.
	stamps() bool
	produce(t *testing.T, p produce) error
	consume(t *testing.T, c consume) ([]entry, error)
}

// drivers are all clients; each test runs all that fit.
func drivers(t *testing.T) []driver {
	t.Helper()
	all := []driver{kgoDriver{}, javaDriver{}, lineDriver{"librdkafka"}, lineDriver{"kafka_python"}, kcatDriver{}, consoleDriver{}}
	if software() == "highwater" {
		all = append(all, consoleDriver{own: true})
	}
	return all
}

// corpus is records of every shape: sizes from 1 B to 1 MB, with and without keys, null values, headers. A plain one holds only
// what consoles can move too.
func corpus(plain bool) []entry {
	text := func(n int) []byte { // compresses about three to one
		var b bytes.Buffer
		for i := 0; b.Len() < n; i++ {
			fmt.Fprintf(&b, `{"id":%d,"user":"u%06d","state":"shipped"} `, i*7919%100003, i*104729%1000000)
		}
		return b.Bytes()[:n]
	}
	var out []entry
	for _, n := range []int{1, 2, 10, 100, 1000, 16000, 100000, 1000000} {
		v := text(n)
		v[n-1] = '.' // no blank at the end
		out = append(out, entry{Value: v})
	}
	out = append(out,
		entry{Key: []byte("k"), Value: []byte("v")},
		entry{Key: text(1000), Value: []byte("long key")},
		entry{Key: []byte("dead")},
		entry{Key: []byte("h"), Value: []byte("one header"), Headers: []header{{"a", []byte("1")}}},
		entry{Value: []byte("several"), Headers: []header{{"a", []byte("1")}, {"b", []byte("two")}, {"a", []byte("again")}}},
		entry{Key: []byte("ключ"), Value: []byte("значение ☃")},
	)
	if !plain {
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		out = append(out,
			entry{Key: []byte{}, Value: []byte{}},
			entry{Key: all, Value: all},
			entry{},
			entry{Key: []byte("h"), Value: []byte("x"), Headers: []header{{"null", nil}, {"empty", []byte{}}, {"all", all}, {"имя", []byte("☃")}}},
		)
	}
	return out
}

// differ says how got differs from want, "" if it doesn't. Offsets and timestamps are compared where want has one.
func differ(want, got []entry) string {
	if len(want) != len(got) {
		return fmt.Sprintf("%d records, want %d", len(got), len(want))
	}
	short := func(b []byte) string {
		if b == nil {
			return "null"
		}
		if len(b) > 40 {
			return fmt.Sprintf("%q… (%d bytes)", b[:40], len(b))
		}
		return fmt.Sprintf("%q", b)
	}
	same := func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
	for i, w := range want {
		g := got[i]
		switch {
		case g.Offset != w.Offset:
			return fmt.Sprintf("record %d: offset %d, want %d", i, g.Offset, w.Offset)
		case w.Timestamp != 0 && g.Timestamp != w.Timestamp:
			return fmt.Sprintf("record %d: timestamp %d, want %d", i, g.Timestamp, w.Timestamp)
		case !same(g.Key, w.Key):
			return fmt.Sprintf("record %d: key %s, want %s", i, short(g.Key), short(w.Key))
		case !same(g.Value, w.Value):
			return fmt.Sprintf("record %d: value %s, want %s", i, short(g.Value), short(w.Value))
		case len(g.Headers) != len(w.Headers):
			return fmt.Sprintf("record %d: headers %v, want %v", i, g.Headers, w.Headers)
		}
		for j, h := range w.Headers {
			if g.Headers[j].Name != h.Name || !same(g.Headers[j].Value, h.Value) {
				return fmt.Sprintf("record %d: header %s=%s, want %s=%s", i, g.Headers[j].Name, short(g.Headers[j].Value), h.Name, short(h.Value))
			}
		}
	}
	return ""
}
