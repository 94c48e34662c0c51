// Command null is a broker that does nothing but what every broker must: take a Produce request off the socket, check its CRC, write
// its batches to the page cache and answer; send stored batches from a file with sendfile; answer small requests. It is the
// yardstick of the benchmark: what it costs is the machine's price, what a real broker costs more is its own.
//
// Compressed batches are decompressed and their records walked, as Kafka's broker must too; -walk does so for all batches.
// It keeps no metadata: every topic that is named exists. Each connection has one goroutine, which ends with it.
package main

import (
	"bufio"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	addr = flag.String("addr", "127.0.0.1:19092", "where to listen")
	dir  = flag.String("dir", "", "where to keep batches")
	walk = flag.Bool("walk", false, "walk the records of uncompressed batches too")
)

func main() {
	flag.Parse()
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	go func() { <-stop; l.Close() }()
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go serve(c.(*net.TCPConn))
	}
}

// topic is one log, whatever the partition: the load has one partition a topic.
type topic struct {
	mu    sync.Mutex
	name  string
	next  int64   // offset
	files []*data // oldest first, never empty
}

// data is one file of a topic's batches.
type data struct {
	file  *os.File
	size  int64
	bases []int64 // base offset of each batch
	at    []int64 // its position
}

// What the benchmark tells the real brokers to keep: the size of a segment, how much of a log, and for how long a deleted file
// stays on the disk. Both sides shall write and delete the same.
const (
	segmentBytes   = 512 << 20
	retentionBytes = 2_000_000_000
	deleteDelay    = time.Minute
)

var (
	topicsMu sync.RWMutex
	topics   = map[string]*topic{}
)

func find(name []byte) *topic {
	topicsMu.RLock()
	t := topics[string(name)]
	topicsMu.RUnlock()
	if t != nil {
		return t
	}
	topicsMu.Lock()
	defer topicsMu.Unlock()
	if t = topics[string(name)]; t == nil {
		t = &topic{name: filepath.Join(*dir, string(name))}
		t.begin()
		topics[string(name)] = t
	}
	return t
}

// begin opens another file, and has the oldest removed that are not needed to keep enough. A reader that still sends from one keeps
// it open by its own descriptor.
func (t *topic) begin() {
	name := fmt.Sprintf("%s-%020d", t.name, t.next)
	os.Remove(name)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		log.Fatal(err)
	}
	var kept int64
	for _, d := range t.files {
		kept += d.size
	}
	for len(t.files) > 0 && kept-t.files[0].size >= retentionBytes {
		old := t.files[0].file
		kept -= t.files[0].size
		t.files = t.files[1:]
		time.AfterFunc(deleteDelay, func() { os.Remove(old.Name()); old.Close() })
	}
	t.files = append(t.files, &data{file: f})
}

func (t *topic) append(batch []byte) (offset int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	offset = t.next
	binary.BigEndian.PutUint64(batch, uint64(offset))
	binary.BigEndian.PutUint32(batch[12:], 0)
	d := t.files[len(t.files)-1]
	if d.size+int64(len(batch)) > segmentBytes {
		t.begin()
		d = t.files[len(t.files)-1]
	}
	t.next += int64(binary.BigEndian.Uint32(batch[23:])) + 1
	if _, err := d.file.WriteAt(batch, d.size); err != nil {
		log.Fatal(err)
	}
	d.bases, d.at = append(d.bases, offset), append(d.at, d.size)
	d.size += int64(len(batch))
	return offset
}

// view finds whole batches from offset on, at most max bytes but at least one; an offset that is not there means the first.
func (t *topic) view(offset int64, max int) (f *os.File, from int64, n int, end int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.files[0]
	if offset < t.next {
		for _, later := range t.files[1:] {
			if len(later.bases) == 0 || later.bases[0] > offset {
				break
			}
			d = later
		}
	}
	if len(d.at) == 0 {
		return d.file, 0, 0, t.next
	}
	lo, hi := 0, len(d.bases) // first batch above offset
	for lo < hi {
		if m := (lo + hi) / 2; d.bases[m] <= offset {
			lo = m + 1
		} else {
			hi = m
		}
	}
	i := lo - 1
	if i < 0 || offset >= t.next {
		i = 0
	}
	from = d.at[i]
	j := i + 1
	for ; j < len(d.at) && d.at[j]-from <= int64(max) && (j+1 >= len(d.at) || d.at[j+1]-from <= int64(max)); j++ {
	}
	to := d.size
	if j < len(d.at) {
		to = d.at[j]
	}
	return d.file, from, int(to - from), t.next
}

// buffers are request frames by power of two.
var buffers [26]sync.Pool

func class(n int) int {
	c := 12
	for 1<<c < n {
		c++
	}
	return c
}

func buffer(n int) *[]byte {
	c := class(n)
	if v := buffers[c].Get(); v != nil {
		b := v.(*[]byte)
		*b = (*b)[:n]
		return b
	}
	b := make([]byte, n, 1<<c)
	return &b
}

func serve(c *net.TCPConn) {
	defer c.Close()
	r := bufio.NewReaderSize(c, 64<<10)
	var size [4]byte
	var out []byte
	for {
		if _, err := io.ReadFull(r, size[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint32(size[:]))
		if n < 10 || n > 1<<25 {
			return
		}
		b := buffer(n)
		if _, err := io.ReadFull(r, *b); err != nil {
			return
		}
		var err error
		out, err = answer(c, *b, out[:0])
		buffers[class(cap(*b))].Put(b)
		if err != nil {
			log.Print(err)
			return
		}
		if len(out) > 0 {
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	}
}

// answer appends a whole response to out; Fetch sends its own.
func answer(c *net.TCPConn, frame, out []byte) ([]byte, error) {
	be := binary.BigEndian
	key, version := int16(be.Uint16(frame)), int16(be.Uint16(frame[2:]))
	body := frame[10:]
	if n := int16(be.Uint16(frame[8:])); n > 0 {
		body = body[n:]
	}
	out = append(out, 0, 0, 0, 0)
	out = append(out, frame[4:8]...)
	switch {
	case key == 0 && version == 7:
		out = produce(body, out)
	case key == 1 && version == 11:
		return out[:0], fetch(c, out, body)
	default:
		q := kmsg.RequestForKey(key)
		if q == nil {
			return nil, fmt.Errorf("API %d", key)
		}
		q.SetVersion(version)
		if q.IsFlexible() {
			return nil, fmt.Errorf("%s v%d: too new", kmsg.NameForKey(key), version)
		}
		if err := q.ReadFrom(body); err != nil {
			return nil, err
		}
		a := q.ResponseKind()
		a.SetVersion(version)
		small(q, a)
		out = a.AppendTo(out)
	}
	be.PutUint32(out, uint32(len(out)-4))
	return out, nil
}

// produce handles Produce v7 with any number of topics and partitions.
func produce(b, out []byte) []byte {
	be := binary.BigEndian
	str := func() []byte {
		n := int(int16(be.Uint16(b)))
		b = b[2:]
		if n < 0 {
			return nil
		}
		s := b[:n]
		b = b[n:]
		return s
	}
	str() // transactional id
	b = b[2+4:]
	nt := int(be.Uint32(b))
	b = b[4:]
	out = be.AppendUint32(out, uint32(nt))
	for range nt {
		name := str()
		out = append(be.AppendUint16(out, uint16(len(name))), name...)
		t := find(name)
		np := int(be.Uint32(b))
		b = b[4:]
		out = be.AppendUint32(out, uint32(np))
		for range np {
			out = append(out, b[:4]...)
			n := int(be.Uint32(b[4:]))
			batch := b[8 : 8+n]
			b = b[8+n:]
			code, offset := uint16(0), int64(-1)
			if !valid(batch) {
				code = 2
			} else {
				offset = t.append(batch)
			}
			out = be.AppendUint16(out, code)
			out = be.AppendUint64(out, uint64(offset))
			out = be.AppendUint64(out, ^uint64(0)) // log append time
			out = be.AppendUint64(out, 0)          // log start
		}
	}
	return be.AppendUint32(out, 0) // throttle
}

// small answers what the load asks besides.
func small(q kmsg.Request, a kmsg.Response) {
	switch q := q.(type) {
	case *kmsg.ApiVersionsRequest:
		for _, k := range [][3]int16{{0, 7, 7}, {1, 11, 11}, {2, 1, 5}, {3, 4, 4}, {18, 0, 0}, {19, 4, 4}} {
			a := a.(*kmsg.ApiVersionsResponse)
			a.ApiKeys = append(a.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: k[0], MinVersion: k[1], MaxVersion: k[2]})
		}
	case *kmsg.CreateTopicsRequest:
		for _, t := range q.Topics {
			a := a.(*kmsg.CreateTopicsResponse)
			a.Topics = append(a.Topics, kmsg.CreateTopicsResponseTopic{Topic: t.Topic})
		}
	case *kmsg.MetadataRequest:
		a := a.(*kmsg.MetadataResponse)
		host, port := "127.0.0.1", 0
		fmt.Sscanf(*addr, "127.0.0.1:%d", &port)
		a.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 1, Host: host, Port: int32(port)}}
		a.ControllerID = 1
		for _, t := range q.Topics {
			p := kmsg.MetadataResponseTopicPartition{Leader: 1, Replicas: []int32{1}, ISR: []int32{1}}
			a.Topics = append(a.Topics, kmsg.MetadataResponseTopic{Topic: t.Topic, Partitions: []kmsg.MetadataResponseTopicPartition{p}})
		}
	case *kmsg.ListOffsetsRequest:
		a := a.(*kmsg.ListOffsetsResponse)
		for _, t := range q.Topics {
			x := kmsg.ListOffsetsResponseTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				f := find([]byte(t.Topic))
				f.mu.Lock()
				x.Partitions = append(x.Partitions, kmsg.ListOffsetsResponseTopicPartition{Partition: p.Partition, Timestamp: -1, Offset: f.next})
				f.mu.Unlock()
			}
			a.Topics = append(a.Topics, x)
		}
	}
}
