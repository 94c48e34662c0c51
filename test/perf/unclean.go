package main

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// A start after kill -9 of a log that has ten times as much below its recovery point as above. What it costs beyond a clean start of the
// same log is held against reading, and checking the CRC of, the bytes above from the page cache by one thread.
const (
	uncleanBelow = 10e9
	uncleanAbove = 1e9
	uncleanRow   = "start after kill -9, / reading what is new"
)

func uncleanStart(r *rival, o *options, put func(row string, value float64)) error {
	scale := o.scale
	if o.short {
		scale /= 4
	}
	// The recovery point that is written down stays where the clean stop leaves it.
	properties := []string{"log.flush.offset.checkpoint.interval.ms=86400000", "log.segment.bytes=1073741824", "log.retention.bytes=-1"}
	return beside(r, o, "unclean", properties, func(n *rival) error {
		const topic = "unclean"
		if err := makeTopic(n.addr, topic); err != nil {
			return err
		}
		write := produce(writing{topic: topic, batch: 1_000_000, record: 1024, gb: 1, depth: 5, conns: 1})
		if _, err := write(n, uncleanBelow/1e9*scale); err != nil {
			return err
		}
		if err := n.node.Stop(); err != nil {
			return err
		}
		_, below, err := segments(n, topic)
		if err != nil {
			return err
		}
		start := func() (time.Duration, error) {
			begin := time.Now()
			if _, err := n.node.Start(); err != nil {
				return 0, err
			}
			err := acknowledged(n.addr, topic)
			return time.Since(begin), err
		}
		clean, err := start()
		if err != nil {
			return err
		}
		if _, err := write(n, uncleanAbove/1e9*scale); err != nil {
			return err
		}
		if err := n.node.Kill(); err != nil {
			return err
		}
		var read, checked time.Duration
		for range 2 { // the first may find something that isn't in the page cache
			if read, err = readAbove(n, topic, below, false); err != nil {
				return err
			}
		}
		if checked, err = readAbove(n, topic, below, true); err != nil {
			return err
		}
		unclean, err := start()
		if err != nil {
			return err
		}
		put("start, before it was killed", clean.Seconds())
		put("start after kill -9", unclean.Seconds())
		put("reading what is new", read.Seconds())
		put("reading and checking what is new", checked.Seconds())
		put(uncleanRow, (unclean-clean).Seconds()/checked.Seconds())
		return nil
	})
}

// readAbove reads what partition 0 of a topic has beyond the sizes that its first segments had, and takes its CRC if check says so.
func readAbove(n *rival, topic string, below []int64, check bool) (time.Duration, error) {
	bases, sizes, err := segments(n, topic)
	if err != nil {
		return 0, err
	}
	buf := make([]byte, 1<<20)
	table := crc32.MakeTable(crc32.Castagnoli)
	var total int64
	begin := time.Now()
	for i, base := range bases {
		var from int64
		if i < len(below) {
			from = below[i]
		}
		if from == sizes[i] {
			continue
		}
		f, err := os.Open(filepath.Join(n.node.Data(), topic+"-0", fmt.Sprintf("%020d.log", base)))
		if err != nil {
			return 0, err
		}
		sum := uint32(0)
		for at := from; ; {
			m, err := f.ReadAt(buf, at)
			if check {
				sum = crc32.Update(sum, table, buf[:m])
			}
			at, total = at+int64(m), total+int64(m)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return 0, errors.Join(err, f.Close())
			}
		}
		if err := f.Close(); err != nil {
			return 0, err
		}
	}
	took := time.Since(begin)
	if total == 0 {
		return 0, fmt.Errorf("%s has nothing new: %v", topic, slices.Max(sizes))
	}
	return took, nil
}
