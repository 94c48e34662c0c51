package compat

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// oneGroup is a proxy before a broker that has no groups: it plays their coordinator for one member at a time, says so in ApiVersions,
// names itself as every broker's address, and passes all else on. Versions are the last before the flexible ones.
type oneGroup struct {
	listener net.Listener
	broker   string
	wg       sync.WaitGroup

	mu    sync.Mutex
	open  map[net.Conn]bool
	error error // the first that isn't a connection's end
}

// groupAPIs are those that it answers, with the versions that it knows.
var groupAPIs = map[int16]kmsg.ApiVersionsResponseApiKey{
	8:  {ApiKey: 8, MinVersion: 2, MaxVersion: 7},  // OffsetCommit
	9:  {ApiKey: 9, MinVersion: 1, MaxVersion: 5},  // OffsetFetch
	10: {ApiKey: 10, MinVersion: 0, MaxVersion: 2}, // FindCoordinator
	11: {ApiKey: 11, MinVersion: 2, MaxVersion: 5}, // JoinGroup
	12: {ApiKey: 12, MinVersion: 0, MaxVersion: 3}, // Heartbeat
	13: {ApiKey: 13, MinVersion: 0, MaxVersion: 3}, // LeaveGroup
	14: {ApiKey: 14, MinVersion: 0, MaxVersion: 3}, // SyncGroup
}

// withGroup starts a proxy before a broker and returns its address. It ends with the test.
func withGroup(t *testing.T, broker string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &oneGroup{listener: l, broker: broker, open: map[net.Conn]bool{}}
	g.wg.Go(g.accept)
	t.Cleanup(func() {
		l.Close()
		g.mu.Lock()
		for c := range g.open {
			c.Close()
		}
		g.mu.Unlock()
		g.wg.Wait()
		if g.error != nil {
			t.Errorf("the proxy for groups: %v", g.error)
		}
	})
	return l.Addr().String()
}

func (g *oneGroup) accept() {
	for {
		c, err := g.listener.Accept()
		if err != nil {
			return
		}
		g.wg.Go(func() {
			err := g.serve(c)
			if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
				return
			}
			var broken *net.OpError
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.error == nil && !errors.As(err, &broken) {
				g.error = err
			}
		})
	}
}

func (g *oneGroup) serve(c net.Conn) error {
	up, err := net.Dial("tcp", g.broker)
	if err != nil {
		return errors.Join(err, c.Close())
	}
	for _, conn := range []net.Conn{c, up} {
		g.mu.Lock()
		g.open[conn] = true
		g.mu.Unlock()
		defer func() {
			conn.Close()
			g.mu.Lock()
			delete(g.open, conn)
			g.mu.Unlock()
		}()
	}
	for {
		request, err := readFrame(c)
		if err != nil {
			return err
		}
		if len(request) < 12 {
			return fmt.Errorf("a request of %d bytes", len(request))
		}
		key, version := int16(binary.BigEndian.Uint16(request[4:])), int16(binary.BigEndian.Uint16(request[6:]))
		var response []byte
		if _, ours := groupAPIs[key]; ours {
			response, err = g.answer(request, key, version)
		} else {
			if _, err := up.Write(request); err != nil {
				return err
			}
			noAcks := key == 0 && producesWithoutAcks(request, version)
			if noAcks {
				continue
			}
			if response, err = readFrame(up); err == nil {
				response, err = g.change(response, key, version)
			}
		}
		if err != nil {
			return err
		}
		if _, err := c.Write(response); err != nil {
			return err
		}
	}
}

// producesWithoutAcks tells whether a Produce request wants no answer. The client id, and from version 9 on tagged fields, come first.
func producesWithoutAcks(request []byte, version int16) bool {
	i := 12
	i += 2 + max(0, int(int16(binary.BigEndian.Uint16(request[i:]))))
	if version >= 9 {
		i += 2 // no tags; a null transactional id
	} else {
		i += 2 + max(0, int(int16(binary.BigEndian.Uint16(request[i:]))))
	}
	return int16(binary.BigEndian.Uint16(request[i:])) == 0
}

// readFrame reads a request or response with its length.
func readFrame(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > 200<<20 {
		return nil, fmt.Errorf("a frame of %d bytes", n)
	}
	b := make([]byte, 4+n)
	copy(b, head[:])
	_, err := io.ReadFull(r, b[4:])
	return b, err
}

// framed puts length and correlation id before a response.
func framed(correlation []byte, flexible bool, r kmsg.Response) []byte {
	b := append(make([]byte, 4), correlation...)
	if flexible {
		b = append(b, 0)
	}
	b = r.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// change makes the broker's answers name this proxy, and groups.
func (g *oneGroup) change(response []byte, key, version int16) ([]byte, error) {
	body := response[8:]
	switch key {
	case 3:
		r := kmsg.NewPtrMetadataResponse()
		r.Version = version
		if r.IsFlexible() {
			body = body[1:]
		}
		if err := r.ReadFrom(body); err != nil {
			return nil, fmt.Errorf("metadata: %w", err)
		}
		host, port := g.address()
		for i := range r.Brokers {
			r.Brokers[i].Host, r.Brokers[i].Port = host, port
		}
		return framed(response[4:8], r.IsFlexible(), r), nil
	case 18:
		r := kmsg.NewPtrApiVersionsResponse()
		r.Version = version
		if err := r.ReadFrom(body); err != nil {
			return nil, fmt.Errorf("api versions: %w", err)
		}
		kept := r.ApiKeys[:0]
		for _, k := range r.ApiKeys {
			// Without new groups the client takes the old protocol.
			if _, ours := groupAPIs[k.ApiKey]; !ours && k.ApiKey != 68 {
				kept = append(kept, k)
			}
		}
		r.ApiKeys = kept
		for _, k := range groupAPIs {
			r.ApiKeys = append(r.ApiKeys, k)
		}
		return framed(response[4:8], false, r), nil
	}
	return response, nil
}

func (g *oneGroup) address() (string, int32) {
	host, p, _ := net.SplitHostPort(g.listener.Addr().String())
	port, _ := strconv.Atoi(p)
	return host, int32(port)
}

// answer is the coordinator of a group whose only member leads it.
func (g *oneGroup) answer(request []byte, key, version int16) ([]byte, error) {
	i := 12
	i += 2 + max(0, int(int16(binary.BigEndian.Uint16(request[i:]))))
	req := kmsg.RequestForKey(key)
	req.SetVersion(version)
	if err := req.ReadFrom(request[i:]); err != nil {
		return nil, fmt.Errorf("%s: %w", kmsg.NameForKey(key), err)
	}
	resp := req.ResponseKind()
	const member = "the-only-one"
	switch q := req.(type) {
	case *kmsg.FindCoordinatorRequest:
		r := resp.(*kmsg.FindCoordinatorResponse)
		r.NodeID = 1
		r.Host, r.Port = g.address()
	case *kmsg.JoinGroupRequest:
		r := resp.(*kmsg.JoinGroupResponse)
		r.Generation, r.LeaderID, r.MemberID = 1, member, member
		r.Protocol = &q.Protocols[0].Name
		m := kmsg.NewJoinGroupResponseMember()
		m.MemberID, m.ProtocolMetadata = member, q.Protocols[0].Metadata
		r.Members = append(r.Members, m)
	case *kmsg.SyncGroupRequest:
		for _, a := range q.GroupAssignment {
			resp.(*kmsg.SyncGroupResponse).MemberAssignment = a.MemberAssignment
		}
	case *kmsg.OffsetFetchRequest:
		r := resp.(*kmsg.OffsetFetchResponse)
		for _, t := range q.Topics {
			rt := kmsg.NewOffsetFetchResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetFetchResponseTopicPartition()
				rp.Partition, rp.Offset = p, -1
				rt.Partitions = append(rt.Partitions, rp)
			}
			r.Topics = append(r.Topics, rt)
		}
	case *kmsg.OffsetCommitRequest:
		r := resp.(*kmsg.OffsetCommitResponse)
		for _, t := range q.Topics {
			rt := kmsg.NewOffsetCommitResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetCommitResponseTopicPartition()
				rp.Partition = p.Partition
				rt.Partitions = append(rt.Partitions, rp)
			}
			r.Topics = append(r.Topics, rt)
		}
	case *kmsg.LeaveGroupRequest:
		r := resp.(*kmsg.LeaveGroupResponse)
		for _, m := range q.Members {
			rm := kmsg.NewLeaveGroupResponseMember()
			rm.MemberID, rm.InstanceID = m.MemberID, m.InstanceID
			r.Members = append(r.Members, rm)
		}
	}
	return framed(request[8:12], false, resp), nil
}
