package server

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/internal/rpc"
)

// Kafka's request headers of every API and version.
func TestHeaderVectors(t *testing.T) {
	type vector struct {
		API           int16
		Type          string
		Version       int16
		HeaderVersion int
		Hex           string
		JSON          struct {
			CorrelationID int32   `json:"correlationId"`
			ClientID      *string `json:"clientId"`
		}
		Unknown json.RawMessage
	}
	n := 0
	for _, v := range fixture.Lines[vector](t, "vectors/messages-headers.jsonl.gz") {
		if v.Type != "requestHeader" {
			continue
		}
		n++
		b, err := hex.DecodeString(v.Hex)
		if err != nil {
			t.Fatal(err)
		}
		var h header
		frame := append(bytes.Clone(b), "body"...)
		if err := h.parseFixed(frame); err != nil {
			t.Fatal(err)
		}
		if err := h.parseRest(frame, v.HeaderVersion == 2); err != nil {
			t.Fatalf("API %d version %d: %v", v.API, v.Version, err)
		}
		id := v.JSON.ClientID
		if h.key != v.API || h.version != v.Version || h.correlationID != v.JSON.CorrelationID || string(h.body) != "body" ||
			(h.clientID != nil) != (id != nil) || id != nil && string(h.clientID) != *id {
			t.Errorf("API %d version %d: %+v", v.API, v.Version, h)
		}
		for cut := range b {
			var h header
			if h.parseFixed(b[:cut]) == nil && h.parseRest(b[:cut], v.HeaderVersion == 2) == nil {
				t.Errorf("API %d version %d: parses with %d of %d bytes", v.API, v.Version, cut, len(b))
			}
		}
	}
	if n < 500 {
		t.Errorf("%d headers", n)
	}
}

func TestClassOf(t *testing.T) {
	sizes := map[int]int{}
	for n := 1; n <= 9<<20; n += 1 + n/300 {
		class, size := classOf(n)
		if size < n || n > smallest && size > 4*n || n > 256<<10 && size > n*5/4 {
			t.Fatalf("%d bytes: class %d of %d", n, class, size)
		}
		if old, ok := sizes[class]; ok && old != size {
			t.Fatalf("class %d has sizes %d and %d", class, old, size)
		}
		sizes[class] = size
		if class >= len(pools) {
			t.Fatalf("class %d", class)
		}
	}
	for _, n := range []int{256<<10 + 1, 1 << 20, 1<<20 + 1, 8 << 20} {
		b := getBuffer(n)
		if len(b.b) < n {
			t.Errorf("%d bytes for %d", len(b.b), n)
		}
		b.put()
	}
}

func FuzzHeader(f *testing.F) {
	f.Add(frame(3, 0, 1, false, nil)[4:], true)
	f.Add(frame(3, 1, 1, true, []byte("body"))[4:], true)
	f.Add([]byte{0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 1, 5, 2, 1, 2}, true)
	f.Fuzz(func(t *testing.T, b []byte, flexible bool) {
		var h header
		if h.parseFixed(b) != nil || h.parseRest(b, flexible) != nil {
			return
		}
		if len(h.clientID)+len(h.body)+10 > len(b) {
			t.Fatalf("%d and %d bytes out of %d", len(h.clientID), len(h.body), len(b))
		}
	})
}

// Anything at all sent to a server: it answers or closes, and serves the next client.
func FuzzConnection(f *testing.F) {
	f.Add(frame(echoKey, 0, 1, false, []byte("x")))
	f.Add(append(frame(echoKey, 1, 1, true, nil), frame(waitKey, 0, 1, false, nil)...))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 20, 0, 3})
	f.Add(bytes.Repeat([]byte{0}, 100))
	w := start(f, Config{MaxRequestBytes: 1 << 20, QueuedBytes: 1 << 20}, map[int16]rpc.Handler{waitKey: func(r *rpc.Request) *rpc.Pending {
		return &rpc.Pending{Deadline: r.Received, Finish: func(*rpc.Request, bool) {}}
	}})
	a, _ := w.Addr("PLAINTEXT")
	f.Fuzz(func(t *testing.T, b []byte) {
		nc, err := net.Dial("tcp", a.String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
		go func() {
			_, _ = nc.Write(b)
			_ = nc.(*net.TCPConn).CloseWrite()
		}()
		if _, err := io.Copy(io.Discard, nc); err != nil {
			if e, ok := err.(net.Error); ok && e.Timeout() {
				t.Fatal("neither answered nor closed")
			}
		}
	})
}
