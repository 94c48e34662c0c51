package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/test/peer"
)

type conn struct {
	net.Conn
	r *bufio.Reader
}

func dial(addr string) (*conn, error) {
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	return &conn{c, bufio.NewReaderSize(c, 256<<10)}, nil
}

var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("load"))

// call sends one request that is not flexible and decodes the answer.
func (c *conn) call(q kmsg.Request) (kmsg.Response, error) {
	if _, err := c.Write(formatter.AppendRequest(nil, q, 7)); err != nil {
		return nil, err
	}
	b, err := c.frame(nil)
	if err != nil {
		return nil, err
	}
	a := q.ResponseKind()
	return a, a.ReadFrom(b[4:])
}

// frame reads one answer into buf, if it fits.
func (c *conn) frame(buf []byte) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(c.r, size[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(size[:]))
	if n < 4 || n > 100<<20 {
		return nil, fmt.Errorf("an answer of %d bytes", n)
	}
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	_, err := io.ReadFull(c.r, buf[:n])
	return buf[:n], err
}

// pipeline keeps depth requests in flight on each of some connections as long as more says so; handle sees each answer and
// returns the next request (only heeded if depth is 1). It returns the latency of each.
func pipeline(addr string, conns, depth int, more func() bool, first []byte, handle func(answer []byte) ([]byte, error)) ([]time.Duration, error) {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		all   []time.Duration
		fault error
	)
	for range conns {
		wg.Go(func() {
			one := deep
			if depth == 1 {
				one = shallow
			}
			lat, err := one(addr, depth, more, first, handle)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, lat...)
			if err != nil && fault == nil {
				fault = err
			}
		})
	}
	wg.Wait()
	return all, fault
}

func shallow(addr string, _ int, more func() bool, next []byte, handle func([]byte) ([]byte, error)) (lat []time.Duration, err error) {
	c, err := dial(addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var buf []byte
	for more() {
		t := time.Now()
		if _, err = c.Write(next); err != nil {
			return lat, err
		}
		if buf, err = c.frame(buf); err != nil {
			return lat, err
		}
		lat = append(lat, time.Since(t))
		if next, err = handle(buf); err != nil {
			return lat, err
		}
	}
	return lat, nil
}

func deep(addr string, depth int, more func() bool, frame []byte, handle func([]byte) ([]byte, error)) (lat []time.Duration, err error) {
	c, err := dial(addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	sent := make(chan time.Time, depth-1)
	done := make(chan error, 1)
	go func() { // the reader; it ends when sent is closed
		var buf []byte
		var err error
		for t := range sent {
			if err != nil {
				continue
			}
			if buf, err = c.frame(buf); err == nil {
				lat = append(lat, time.Since(t))
				_, err = handle(buf)
			}
			if err != nil {
				c.Close() // the writer shall not wait
			}
		}
		done <- err
	}()
	for more() {
		sent <- time.Now()
		if _, err := c.Write(frame); err != nil {
			break
		}
	}
	close(sent)
	return lat, <-done
}

// ready makes sure of a topic with a leader for every partition, and returns each partition's address.
func ready(addr, topic string, partitions int) ([]string, error) {
	c, err := dial(addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	create := peer.CreateTopics(peer.NewTopic(topic, int32(partitions), 1))
	create.Version = 4
	a, err := c.call(create)
	if err != nil {
		return nil, err
	}
	const exists = 36
	if code := a.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; code != 0 && code != exists {
		return nil, fmt.Errorf("create %s: error code %d", topic, code)
	}
	for begin := time.Now(); time.Since(begin) < time.Minute; <-time.After(10 * time.Millisecond) {
		m := kmsg.NewPtrMetadataRequest()
		m.Version = 4
		m.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
		a, err := c.call(m)
		if err != nil {
			return nil, err
		}
		md := a.(*kmsg.MetadataResponse)
		brokers := map[int32]string{}
		for _, b := range md.Brokers {
			brokers[b.NodeID] = fmt.Sprintf("%s:%d", b.Host, b.Port)
		}
		leaders := make([]string, partitions)
		ok := len(md.Topics) == 1 && len(md.Topics[0].Partitions) >= min(partitions, 1)
		if ok {
			for _, p := range md.Topics[0].Partitions {
				if int(p.Partition) < partitions {
					leaders[p.Partition] = brokers[p.Leader]
				}
				ok = ok && p.ErrorCode == 0
			}
		}
		for _, l := range leaders {
			ok = ok && l != ""
		}
		if ok {
			return leaders, nil
		}
	}
	return nil, fmt.Errorf("%s has no leaders after a minute", topic)
}

// acknowledged returns when partition 0 of a topic takes a write.
func acknowledged(addr, topic string) error {
	batch, err := recordBatch(200, 100, "")
	if err != nil {
		return err
	}
	frame := produceFrame(topic, 1, batch)
	for begin := time.Now(); time.Since(begin) < time.Minute; <-time.After(time.Millisecond) {
		c, err := dial(addr)
		if err != nil {
			continue
		}
		c.SetDeadline(time.Now().Add(5 * time.Second))
		c.Write(frame)
		b, err := c.frame(nil)
		c.Close()
		if err == nil && binary.BigEndian.Uint16(b[4+4+2+len(topic)+4+4:]) == 0 {
			return nil
		}
	}
	return fmt.Errorf("%s takes no write within a minute", topic)
}

// recordBatch builds one batch of about size bytes before compression, of values that look like JSON and compress about 3 to 1.
func recordBatch(size, record int, codec string) ([]byte, error) {
	rng := rand.New(rand.NewPCG(1, 2))
	var body []byte
	n := 0
	for n == 0 || len(body)+record < size {
		var value []byte
		for len(value) < record {
			value = fmt.Appendf(value, `{"id":%d,"user":"u%06d","amount":%d.%02d,"state":"shipped"},`, rng.Uint32(), rng.IntN(1e6), rng.IntN(1e4), rng.IntN(100))
		}
		r := []byte{0}
		r = binary.AppendVarint(r, int64(n%1000))
		r = binary.AppendVarint(r, int64(n))
		r = binary.AppendVarint(r, -1)
		r = binary.AppendVarint(r, int64(record))
		r = append(append(r, value[:record]...), 0)
		body = append(binary.AppendVarint(body, int64(len(r))), r...)
		n++
	}
	var attributes uint16
	switch codec {
	case "":
	case "lz4":
		attributes = 3
		var out bytes.Buffer
		w := lz4.NewWriter(&out)
		if err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb)); err != nil { // as Kafka's clients write it
			return nil, err
		}
		if _, err := w.Write(body); err != nil {
			return nil, err
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
		body = out.Bytes()
	case "zstd":
		attributes = 4
		w, err := zstd.NewWriter(nil)
		if err != nil {
			return nil, err
		}
		body = w.EncodeAll(body, nil)
	default:
		return nil, fmt.Errorf("unknown codec %q", codec)
	}
	return batchOf(body, n, attributes, time.Now().UnixMilli(), int64(min(n-1, 999))), nil
}

// batchOf puts the header before n records, the first of which has the timestamp first and the youngest spread milliseconds more.
func batchOf(body []byte, n int, attributes uint16, first, spread int64) []byte {
	be := binary.BigEndian
	b := append(make([]byte, 61), body...)
	be.PutUint32(b[8:], uint32(len(b)-12))
	be.PutUint32(b[12:], 0xffffffff)
	b[16] = 2
	be.PutUint16(b[21:], attributes)
	be.PutUint32(b[23:], uint32(n-1))
	be.PutUint64(b[27:], uint64(first))
	be.PutUint64(b[35:], uint64(first+spread))
	be.PutUint64(b[43:], ^uint64(0))
	be.PutUint16(b[51:], 0xffff)
	be.PutUint32(b[53:], 0xffffffff)
	be.PutUint32(b[57:], uint32(n))
	return stamped(b)
}

// stamped sets a batch's CRC.
func stamped(b []byte) []byte {
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// produceFrame is a whole Produce v7 request for partition 0.
func produceFrame(topic string, acks int, batch []byte) []byte {
	be := binary.BigEndian
	b := make([]byte, 4, len(batch)+128)
	b = be.AppendUint32(b, 7) // Produce, version 7
	b = be.AppendUint32(b, 1)
	b = append(be.AppendUint16(b, 4), "load"...)
	b = be.AppendUint16(b, 0xffff)
	b = be.AppendUint16(b, uint16(acks))
	b = be.AppendUint32(b, 30000)
	b = be.AppendUint32(b, 1)
	b = append(be.AppendUint16(b, uint16(len(topic))), topic...)
	b = be.AppendUint32(b, 1)
	b = be.AppendUint32(b, 0)
	b = append(be.AppendUint32(b, uint32(len(batch))), batch...)
	be.PutUint32(b, uint32(len(b)-4))
	return b
}

// fetchFrame is a Fetch v11 request for partition 0, without a session.
func fetchFrame(topic string, offset int64, maxBytes int) []byte {
	be := binary.BigEndian
	b := make([]byte, 4, 128)
	b = be.AppendUint32(b, 1<<16|11)
	b = be.AppendUint32(b, 1)
	b = append(be.AppendUint16(b, 4), "load"...)
	b = be.AppendUint32(b, 0xffffffff)       // replica
	b = be.AppendUint32(b, 500)              // max wait
	b = be.AppendUint32(b, 1)                // min bytes
	b = be.AppendUint32(b, uint32(maxBytes)) // max bytes
	b = append(b, 0)                         // read uncommitted
	b = be.AppendUint32(b, 0)                // session
	b = be.AppendUint32(b, 0xffffffff)       // session epoch
	b = be.AppendUint32(b, 1)
	b = append(be.AppendUint16(b, uint16(len(topic))), topic...)
	b = be.AppendUint32(b, 1)
	b = be.AppendUint32(b, 0)
	b = be.AppendUint32(b, 0xffffffff) // leader epoch
	b = be.AppendUint64(b, uint64(offset))
	b = be.AppendUint64(b, ^uint64(0)) // log start
	b = be.AppendUint32(b, uint32(maxBytes))
	b = be.AppendUint32(b, 0) // forgotten
	b = be.AppendUint16(b, 0) // rack
	be.PutUint32(b, uint32(len(b)-4))
	return b
}

// nextOffset walks the batch headers of a Fetch v11 answer: the offset after the last whole batch, or −1, and the bytes of records.
func nextOffset(answer []byte, topic string) (next int64, size int, err error) {
	be := binary.BigEndian
	p := 4 + 4 // correlation, throttle
	if code := be.Uint16(answer[p:]); code != 0 {
		return 0, 0, fmt.Errorf("fetch: error code %d", code)
	}
	p += 2 + 4 + 4 + 2 + len(topic) + 4 + 4 // error, session, topics, name, partitions, index
	const outOfRange = 1
	if code := be.Uint16(answer[p:]); code == outOfRange {
		return -1, 0, nil
	} else if code != 0 {
		return 0, 0, fmt.Errorf("fetch: error code %d of the partition", code)
	}
	p += 2 + 8 + 8 + 8
	if aborted := int32(be.Uint32(answer[p:])); aborted > 0 {
		p += int(aborted) * 16
	}
	p += 4 + 4
	size = int(int32(be.Uint32(answer[p:])))
	next = -1
	for data := answer[p+4:]; len(data) >= 61; {
		n := 12 + int(be.Uint32(data[8:]))
		if n > len(data) {
			break
		}
		next = int64(be.Uint64(data)) + int64(be.Uint32(data[23:])) + 1
		data = data[n:]
	}
	return next, max(size, 0), nil
}
