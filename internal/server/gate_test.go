package server

// What TLS and SASL will need of the server: connections that are wrapped, and a gate that restricts them at first.

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/rpc"
)

func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Over TLS everything works as without: requests in pieces, answers that wait (the read is interrupted in the middle of
// TLS), files, which are copied.
func TestWrapped(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 40_000)
	name := filepath.Join(t.TempDir(), "segment")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var released atomic.Int64
	ws := newWaits()
	cfg := &tls.Config{Certificates: []tls.Certificate{certificate(t)}}
	w := start(t, Config{HandshakeTime: 5 * time.Second, Listeners: []Listener{{
		Name: "SSL", Host: "127.0.0.1",
		Table: table(map[int16]rpc.Handler{waitKey: ws.handle, fileKey: func(r *rpc.Request) *rpc.Pending {
			r.Response.AppendSource(&osFile{file, 0, len(content), false, &released})
			r.Response.Buf = append(r.Response.Buf, "end"...)
			return nil
		}}),
		Wrap: func(nc net.Conn) (net.Conn, error) {
			c := tls.Server(nc, cfg)
			return c, c.Handshake()
		},
	}}}, nil)
	c := w.dial()
	c.Conn = tls.Client(c.Conn, &tls.Config{InsecureSkipVerify: true})
	for i, n := range []string{"a", "b", "c"} {
		c.send(frame(waitKey, 0, int32(i), false, []byte(n)))
	}
	ws.complete(t, "b")
	ws.complete(t, "a")
	c.expect(0, "a")
	c.expect(1, "b")
	big := bytes.Repeat([]byte("x"), 500_000)
	half := frame(echoKey, 0, 7, false, big)
	c.send(half[:1000])
	ws.complete(t, "c")
	c.expect(2, "c")
	c.send(half[1000:])
	c.expect(7, string(big))
	c.send(frame(fileKey, 0, 8, false, nil))
	c.expect(8, string(content)+"end")
	if released.Load() != 1 {
		t.Error("not released")
	}

	// Somebody who does not speak TLS, and one who says nothing while the server stops.
	plain := w.dial()
	plain.send(frame(echoKey, 0, 1, false, nil))
	eventually(t, "refused", func() bool { return w.Metrics("SSL").FailedHandshakes.Load() == 1 })
	if !strings.Contains(w.log.String(), "handshake") {
		t.Error("not logged")
	}
	silent := w.dial()
	eventually(t, "accepted", func() bool { return w.Metrics("SSL").Accepted.Load() == 3 })
	c.Close()
	if err := w.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	silent.closed()
}

// secret is a gate: two frames without header, then a name, then it opens.
type secret struct {
	conn *rpc.Conn
	step int
}

func (s *secret) MaxRequestBytes() int32 { return 100 }

func (s *secret) Raw(frame []byte) ([]byte, bool, error) {
	if s.step >= 2 {
		return nil, false, nil
	}
	s.step++
	if string(frame) == "wrong" {
		return nil, false, errors.New("wrong password")
	}
	return append([]byte("re: "), frame...), true, nil
}

func (s *secret) Admit(key, version int16, now time.Time) error {
	if key != apiVersionsKey {
		return errors.New("only ApiVersions is allowed before authentication")
	}
	s.step, s.conn.Principal = 3, "User:alice"
	return nil
}

func (s *secret) Open() bool { return s.step == 3 }

func TestGate(t *testing.T) {
	who := func(r *rpc.Request) *rpc.Pending {
		r.Response.Buf = append(r.Response.Buf, r.Conn.Principal...)
		return nil
	}
	w := start(t, Config{Listeners: []Listener{{
		Name: "SASL", Host: "127.0.0.1", Table: table(map[int16]rpc.Handler{zeroKey: who}),
		Gate: func(c *rpc.Conn, _ net.Conn) Gate { return &secret{conn: c} },
	}}}, nil)
	raw := func(s string) []byte { return append([]byte{0, 0, 0, byte(len(s))}, s...) }
	answerOf := func(c *client, want string) {
		t.Helper()
		b := make([]byte, 4+len(want))
		if _, err := c.Read(b); err != nil || string(b[4:]) != want {
			t.Fatalf("%q, %v", b, err)
		}
	}
	good := w.dial()
	good.send(raw("one"))
	answerOf(good, "re: one")
	good.send(raw("two"))
	answerOf(good, "re: two")
	good.send(frame(apiVersionsKey, 0, 1, false, nil))
	good.expect(1, "")
	good.send(frame(zeroKey, 0, 2, false, nil), frame(echoKey, 0, 3, false, make([]byte, 1000)))
	good.expect(2, "User:alice")
	good.expect(3, string(make([]byte, 1000)))

	f := func(why string, frames ...[]byte) {
		t.Helper()
		c := w.dial()
		for _, b := range frames[:len(frames)-1] {
			c.send(b)
			b := make([]byte, 100)
			if _, err := c.Read(b); err != nil {
				t.Fatal(err)
			}
		}
		c.send(frames[len(frames)-1])
		c.closed()
		eventually(t, "the log has "+why, func() bool { return strings.Contains(w.log.String(), why) })
	}
	f("wrong password", raw("one"), raw("wrong"))
	f("before authentication", raw("one"), raw("two"), frame(zeroKey, 0, 1, false, nil))
	f("size = 101 larger than 100", []byte{0, 0, 0, 101})
}
