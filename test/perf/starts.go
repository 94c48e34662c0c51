package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/test/peer"
)

// most is how many partitions one CreateTopics request asks for: the answer to more than 10,000 records is POLICY_VIOLATION.
const most = 9000

// makePartitions makes topics many-0, many-1, … of 1000 partitions each (fewer if less is asked for) until there are n partitions
// in all, of which made exist already, and waits until the last has a leader.
func makePartitions(addr string, made, n int) error {
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	last, size := "", 0
	for made < n {
		create := peer.CreateTopics()
		create.Version, create.TimeoutMillis = 4, 300_000
		for asked := 0; asked < most && made < n; {
			last, size = fmt.Sprintf("many-%d", made), min(1000, n-made, most-asked)
			create.Topics = append(create.Topics, peer.NewTopic(last, int32(size), 1))
			asked, made = asked+size, made+size
		}
		a, err := c.call(create)
		if err != nil {
			return err
		}
		for _, t := range a.(*kmsg.CreateTopicsResponse).Topics {
			if t.ErrorCode != 0 {
				return fmt.Errorf("create %s: error code %d", t.Topic, t.ErrorCode)
			}
		}
		if _, err := ready(addr, last, size); err != nil {
			return err
		}
	}
	return nil
}

// counts are the numbers of partitions of the option -starts.
func (o *options) counts() (out []int, err error) {
	for _, f := range strings.Split(o.starts, ",") {
		var n int
		if _, err := fmt.Sscan(f, &n); err != nil {
			return nil, fmt.Errorf("-starts %q: %w", o.starts, err)
		}
		out = append(out, n)
	}
	return out, nil
}

// cleanStarts makes more and more partitions, and for each number takes the time of a clean stop, the time from there until the
// first write is acknowledged, and what the process then holds.
func cleanStarts(r *rival, o *options, put func(row string, value float64)) error {
	counts, err := o.counts()
	if err != nil {
		return err
	}
	limit, err := descriptorLimit()
	if err != nil {
		return err
	}
	made := 0
	for _, n := range counts {
		if r.name == string(peer.Kafka) && n+kafkaBesides > limit {
			continue // at its start it would end with "Too many open files"
		}
		begin := time.Now()
		if err := makePartitions(r.addr, made, n); err != nil {
			return err
		}
		made = n
		put(fmt.Sprintf("create up to %d partitions", n), time.Since(begin).Seconds())
		var best, stop time.Duration
		for i := range 3 {
			began := time.Now()
			if err := r.node.Stop(); err != nil {
				return err
			}
			if took := time.Since(began); i == 0 || took < stop {
				stop = took
			}
			began = time.Now()
			if _, err := r.node.Start(); err != nil {
				return err
			}
			// Started is when it acknowledges a write, not when it answers.
			if err := acknowledged(r.addr, "many-0"); err != nil {
				return err
			}
			if took := time.Since(began); i == 0 || took < best {
				best = took
			}
		}
		put(startRow(n), best.Seconds())
		put(fmt.Sprintf("clean stop, %d partitions", n), stop.Seconds())
		put(memoryRow(n), settled(r))
		put(fmt.Sprintf("descriptors, %d partitions", n), float64(descriptors(r.pid())))
	}
	return nil
}

func startRow(n int) string  { return fmt.Sprintf("clean start, %d partitions", n) }
func memoryRow(n int) string { return fmt.Sprintf("memory, %d partitions", n) }

// kafkaBesides is how many descriptors Kafka needs besides one for each partition: jars, sockets, indexes on their way into memory.
const kafkaBesides = 1500

// descriptorLimit is how many descriptors a process may have here: the hard limit, to which the JVM and Highwater raise theirs.
func descriptorLimit() (int, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, fmt.Errorf("ask for the limit of descriptors: %w", err)
	}
	return int(min(l.Max, math.MaxInt32)), nil
}

// descriptors is how many a process has open.
func descriptors(pid int) int {
	entries, err := os.ReadDir(filepath.Join("/proc", fmt.Sprint(pid), "fd"))
	if err != nil {
		return -1
	}
	return len(entries)
}
