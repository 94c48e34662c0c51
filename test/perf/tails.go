package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// tailRow names the ratio of a p99.9 on a node where other topics roll, flush, are compacted and lose segments to that on a quiet one.
func tailRow(depth int) string {
	return fmt.Sprintf("p99.9 of produce, %d in flight, busy / quiet", depth)
}

// noise is what goes on in other topics: each gets a request of some 16 KB every 10 ms.
var noise = map[string][]string{
	"rolls":    {"segment.bytes=1048576"},
	"flushes":  {"flush.messages=1"},
	"compacts": {"segment.bytes=1048576", "cleanup.policy=compact", "min.cleanable.dirty.ratio=0.01"},
	"deletes":  {"segment.bytes=1048576", "retention.bytes=1048576", "file.delete.delay.ms=500"},
}

func tails(r *rival, o *options, put func(row string, value float64)) error {
	properties := []string{"log.cleaner.backoff.ms=100", "log.retention.check.interval.ms=500", "log.initial.task.delay.ms=500"}
	return beside(r, o, "tails", properties, func(n *rival) error {
		for topic, configs := range noise {
			if err := makeTopic(n.addr, topic, configs...); err != nil {
				return err
			}
		}
		if err := makeTopic(n.addr, "tail"); err != nil {
			return err
		}
		for _, depth := range []int{1, 10} {
			if _, err := tail(n, depth, int(10_000*o.scale)); err != nil { // warms up
				return err
			}
			quiet, err := tail(n, depth, int(100_000*o.scale))
			if err != nil {
				return err
			}
			var busy time.Duration
			err = amid(n, func() error {
				busy, err = tail(n, depth, int(100_000*o.scale))
				return err
			})
			if err != nil {
				return err
			}
			put(fmt.Sprintf("p99.9 of produce, %d in flight, quiet", depth), float64(quiet.Microseconds())/1000)
			put(fmt.Sprintf("p99.9 of produce, %d in flight, busy", depth), float64(busy.Microseconds())/1000)
			put(tailRow(depth), busy.Seconds()/quiet.Seconds())
		}
		return nil
	})
}

// tail is the p99.9 of produce requests of 1 KB with acks=all.
func tail(n *rival, depth, requests int) (time.Duration, error) {
	batch, err := recordBatch(1024, 900, "")
	if err != nil {
		return 0, err
	}
	frame := produceFrame("tail", -1, batch)
	left := max(requests, 1000)
	more := func() bool { left--; return left >= 0 }
	lat, err := pipeline(n.addr, 1, depth, more, frame, func(a []byte) ([]byte, error) { return frame, taken(a, "tail") })
	if err != nil {
		return 0, err
	}
	slices.Sort(lat)
	return lat[len(lat)*999/1000], nil
}

// amid runs f while the topics of noise are written to.
func amid(n *rival, f func() error) error {
	end := make(chan struct{})
	var wg sync.WaitGroup
	errs := make(chan error, len(noise))
	for topic := range noise {
		wg.Go(func() { errs <- disturb(n, topic, end) })
	}
	err := f()
	close(end)
	wg.Wait()
	for range noise {
		err = errors.Join(err, <-errs)
	}
	return err
}

// disturb writes to a topic every 10 ms until end is closed.
func disturb(n *rival, topic string, end chan struct{}) error {
	c, err := dial(n.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	frame := produceFrame(topic, -1, keyedBatch(rand.New(rand.NewPCG(1, 9)), 16<<10, 100))
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	var buf []byte
	for {
		select {
		case <-end:
			return nil
		case <-t.C:
		}
		if _, err := c.Write(frame); err != nil {
			return err
		}
		if buf, err = c.frame(buf); err != nil {
			return err
		}
		if err := taken(buf, topic); err != nil {
			return err
		}
	}
}
