package compat

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// rawConn speaks to a broker one request at a time, in exactly the version asked.
type rawConn struct {
	net.Conn
	correlation int32
}

func dialRaw(t *testing.T, addr string) *rawConn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return &rawConn{Conn: c}
}

// call sends a request and decodes the answer.
func (c *rawConn) call(q kmsg.Request, version int16) (kmsg.Response, error) {
	q.SetVersion(version)
	c.correlation++
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("compat")).AppendRequest(nil, q, c.correlation)
	body, err := c.exchange(frame)
	if err != nil {
		return nil, err
	}
	if got := int32(binary.BigEndian.Uint32(body)); got != c.correlation {
		return nil, fmt.Errorf("correlation id %d, want %d", got, c.correlation)
	}
	body = body[4:]
	a := q.ResponseKind()
	if a.IsFlexible() && a.Key() != 18 {
		if len(body) == 0 || body[0] != 0 {
			return nil, fmt.Errorf("tagged fields in the response header: %x", body)
		}
		body = body[1:]
	}
	return a, a.ReadFrom(body)
}

// exchange sends a whole frame and reads the answer's.
func (c *rawConn) exchange(frame []byte) ([]byte, error) {
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Write(frame); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 4 || n > 100<<20 {
		return nil, fmt.Errorf("an answer of %d bytes", n)
	}
	body := make([]byte, n)
	_, err := io.ReadFull(c, body)
	return body, err
}

// waitForLeaders returns when every partition of a topic has a leader, as Metadata tells clients.
func waitForLeaders(t *testing.T, c *rawConn, topic string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); <-tick.C {
		m := kmsg.NewPtrMetadataRequest()
		mt := kmsg.NewMetadataRequestTopic()
		mt.Topic = &topic
		m.Topics = append(m.Topics, mt)
		a, err := c.call(m, 7)
		if err != nil {
			t.Fatal(err)
		}
		r := a.(*kmsg.MetadataResponse).Topics[0]
		ready := r.ErrorCode == 0 && len(r.Partitions) > 0
		for _, p := range r.Partitions {
			ready = ready && p.ErrorCode == 0 && p.Leader >= 0
		}
		if ready {
			return
		}
	}
	t.Fatalf("topic %s has no leaders", topic)
}
