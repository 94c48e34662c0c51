package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// load is one row of the table.
type load struct {
	name string
	unit string // cpu_s_gb or cpu_us_req
	goal string // what the ratio of Highwater to the null broker shall be at most
	run  func(r *rival, scale float64) (*sample, error)
}

// loads are all rows. What consume reads, the rows above it wrote.
var loads = []load{
	{"produce 1 KB", "µs/req", "1.5", produce(writing{topic: "b1k", batch: 1024, record: 900, gb: 0.06, depth: 5, conns: 1})},
	{"produce 1 KB × 10 connections", "µs/req", "", produce(writing{topic: "b1k", batch: 1024, record: 900, gb: 0.1, depth: 5, conns: 10})},
	{"produce 16 KB", "CPU-s/GB", "1.3", produce(writing{topic: "b16k", batch: 16384, record: 100, gb: 0.6, depth: 5, conns: 1})},
	{"produce 100 KB", "CPU-s/GB", "1.25", produce(writing{topic: "b100k", batch: 102400, record: 1024, gb: 2, depth: 5, conns: 1})},
	{"produce 1 MB", "CPU-s/GB", "1.15", produce(writing{topic: "b1m", batch: 1000000, record: 1024, gb: 2, depth: 5, conns: 1})},
	{"produce 100 KB lz4", "CPU-s/GB", "1.1", produce(writing{topic: "blz4", batch: 102400, record: 1024, codec: "lz4", gb: 0.4, depth: 5, conns: 1})},
	{"produce 100 KB zstd", "CPU-s/GB", "1.1", produce(writing{topic: "bzstd", batch: 102400, record: 1024, codec: "zstd", gb: 0.2, depth: 5, conns: 1})},
	{"produce 1 KB, one at a time", "µs/req", "", produce(writing{topic: "b1k", batch: 1024, record: 900, gb: 0.015, depth: 1, conns: 1})},
	{"consume 1 MB", "CPU-s/GB", "1.3", consume("b100k", 1<<20, 4)},
	{"small request", "µs/req", "1.3", small(40000, 1, 1)},
	{"small request 10 × 10 deep", "µs/req", "1.0", small(300000, 10, 10)},
}

// sample is what one run of a row gave.
type sample struct {
	Requests int     `json:"requests"`
	GB       float64 `json:"gb"`
	Wall     float64 `json:"wall_s"`
	CPU      float64 `json:"cpu_s"`
	P50, P99 float64 // µs
}

func (s *sample) cost(unit string) float64 {
	if unit == "CPU-s/GB" {
		return s.CPU / s.GB
	}
	return s.CPU / float64(s.Requests) * 1e6
}

// cost is a process's user and system CPU seconds and resident megabytes.
func cost(pid int) (cpu, mb float64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	s := string(b)
	f := strings.Fields(s[strings.LastIndexByte(s, ')')+2:])
	user, _ := strconv.ParseFloat(f[11], 64)
	system, _ := strconv.ParseFloat(f[12], 64)
	pages, _ := strconv.ParseFloat(f[21], 64)
	return (user + system) / 100, pages * float64(os.Getpagesize()) / 1e6
}

// measure runs work, which says how many bytes it moved, and takes the broker's cost.
func measure(r *rival, work func() (int64, []time.Duration, error)) (*sample, error) {
	before, _ := cost(r.pid())
	begin := time.Now()
	bytes, lat, err := work()
	if err != nil {
		return nil, err
	}
	wall := time.Since(begin).Seconds()
	after, _ := cost(r.pid())
	if len(lat) == 0 {
		return nil, errors.New("nothing was measured")
	}
	slices.Sort(lat)
	at := func(q float64) float64 { return float64(lat[int(q*float64(len(lat)-1))].Nanoseconds()) / 1000 }
	return &sample{Requests: len(lat), GB: float64(bytes) / 1e9, Wall: wall, CPU: after - before, P50: at(.5), P99: at(.99)}, nil
}

type writing struct {
	topic         string
	batch, record int
	codec         string
	gb            float64
	depth, conns  int
}

func produce(w writing) func(*rival, float64) (*sample, error) {
	return func(r *rival, scale float64) (*sample, error) {
		addrs, err := ready(r.addr, w.topic, 1)
		if err != nil {
			return nil, err
		}
		batch, err := recordBatch(w.batch, w.record, w.codec)
		if err != nil {
			return nil, err
		}
		frame := produceFrame(w.topic, 1, batch)
		var left atomic.Int64
		n := max(int64(w.gb*scale*1e9)/int64(len(batch)), 20)
		left.Store(n)
		return measure(r, func() (int64, []time.Duration, error) {
			lat, err := pipeline(addrs[0], w.conns, w.depth, func() bool { return left.Add(-1) >= 0 }, frame, func(answer []byte) ([]byte, error) {
				if code := binary.BigEndian.Uint16(answer[4+4+2+len(w.topic)+4+4:]); code != 0 {
					return nil, fmt.Errorf("error code %d", code)
				}
				return frame, nil
			})
			return n * int64(len(batch)), lat, err
		})
	}
}

func consume(topic string, bytes int, gb float64) func(*rival, float64) (*sample, error) {
	return func(r *rival, scale float64) (*sample, error) {
		addrs, err := ready(r.addr, topic, 1)
		if err != nil {
			return nil, err
		}
		var moved atomic.Int64
		limit := int64(gb * scale * 1e9)
		idle := 0
		return measure(r, func() (int64, []time.Duration, error) {
			start, err := earliest(addrs[0], topic)
			if err != nil {
				return 0, nil, err
			}
			lat, err := pipeline(addrs[0], 1, 1, func() bool { return moved.Load() < limit }, fetchFrame(topic, start, bytes), func(answer []byte) ([]byte, error) {
				next, size, err := nextOffset(answer, topic)
				switch {
				case err != nil:
				case next >= 0:
					idle = 0
				case idle > 3:
					err = errors.New("there is nothing to read: run the row that writes it too")
				default: // the end, or older than what is kept by now
					idle++
					next, err = earliest(addrs[0], topic)
				}
				moved.Add(int64(size))
				return fetchFrame(topic, next, bytes), err
			})
			return moved.Load(), lat, err
		})
	}
}

// earliest is the offset at which a topic's only partition begins; the null broker names its end, and gives from its beginning then.
func earliest(addr, topic string) (int64, error) {
	c, err := dial(addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	a, err := c.call(listOffsets(topic, -2))
	if err != nil {
		return 0, err
	}
	p := a.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		return 0, fmt.Errorf("offsets of %s: error code %d", topic, p.ErrorCode)
	}
	return p.Offset, nil
}

func listOffsets(topic string, at int64) *kmsg.ListOffsetsRequest {
	q := kmsg.NewPtrListOffsetsRequest()
	q.Version, q.ReplicaID = 5, -1
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp, p.CurrentLeaderEpoch = at, -1
	q.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
	return q
}

// small asks for the end offset of one partition.
func small(n, conns, depth int) func(*rival, float64) (*sample, error) {
	return func(r *rival, scale float64) (*sample, error) {
		addrs, err := ready(r.addr, "b1k", 1)
		if err != nil {
			return nil, err
		}
		frame := formatter.AppendRequest(nil, listOffsets("b1k", -1), 7)
		var left atomic.Int64
		left.Store(int64(float64(n) * scale))
		return measure(r, func() (int64, []time.Duration, error) {
			lat, err := pipeline(addrs[0], conns, depth, func() bool { return left.Add(-1) >= 0 }, frame, func(answer []byte) ([]byte, error) {
				// correlation, throttle, topics, name, partitions, partition, error
				if code := binary.BigEndian.Uint16(answer[4+4+4+2+3+4+4:]); code != 0 {
					return nil, fmt.Errorf("error code %d", code)
				}
				return frame, nil
			})
			return 0, lat, err
		})
	}
}
