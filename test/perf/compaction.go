package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Compaction: 100-byte records over 50,000 keys are written while min.compaction.lag.ms keeps the cleaner away; then that is taken back, and
// the process's CPU time until the cleaner's checkpoint is at the active segment is what cleaning them cost.
const (
	compactBytes  = 64 << 20
	compactKeys   = 50_000
	compactRow    = "compaction, CPU"
	compactWall   = "compaction, wall"
	compactRounds = 4 // the first warms up; of the others the cheapest counts
)

func compaction(r *rival, o *options, put func(row string, value float64)) error {
	properties := []string{"log.cleaner.backoff.ms=100"}
	return beside(r, o, "compaction", properties, func(n *rival) error {
		var cpu, wall float64
		rounds := compactRounds
		if o.short {
			rounds = 2
		}
		for i := range rounds {
			c, w, err := compactOnce(n, fmt.Sprintf("compact%d", i), int(compactBytes*o.scale))
			if err != nil {
				return err
			}
			if i == 1 || i > 1 && c < cpu {
				cpu, wall = c, w
			}
		}
		put(compactRow, cpu)
		put(compactWall, wall)
		return nil
	})
}

// compactOnce writes and compacts a topic, and returns the CPU and wall seconds for a gigabyte.
func compactOnce(n *rival, topic string, bytes int) (cpu, wall float64, err error) {
	err = makeTopic(n.addr, topic, "cleanup.policy=compact", fmt.Sprintf("segment.bytes=%d", max(1<<20, min(4<<20, bytes/8))), "min.cleanable.dirty.ratio=0.01",
		"min.compaction.lag.ms=9000000000000")
	if err != nil {
		return 0, 0, err
	}
	rng := rand.New(rand.NewPCG(5, 6))
	var frames [][]byte
	for written := 0; written < bytes; {
		b := keyedBatch(rng, 16<<10, 100)
		written += len(b)
		frames = append(frames, produceFrame(topic, 1, b))
	}
	left := len(frames)
	next := func() []byte { left--; return frames[max(left, 0)] }
	first := next()
	if _, err := pipeline(n.addr, 1, 1, func() bool { return left >= 0 }, first, func(a []byte) ([]byte, error) { return next(), taken(a, topic) }); err != nil {
		return 0, 0, err
	}
	bases, sizes, err := segments(n, topic)
	if err != nil {
		return 0, 0, err
	}
	active := bases[len(bases)-1]
	var dirty int64
	for _, s := range sizes[:len(sizes)-1] {
		dirty += s
	}
	if dirty == 0 {
		return 0, 0, fmt.Errorf("%s has one segment: there is nothing to compact", topic)
	}
	before, _ := cost(n.pid())
	begin := time.Now()
	if err := alterTopic(n.addr, topic, "min.compaction.lag.ms", "0"); err != nil {
		return 0, 0, err
	}
	err = poll("compaction of "+topic, func() (bool, error) { return cleanedTo(n, topic) >= active, nil })
	if err != nil {
		return 0, 0, err
	}
	after, _ := cost(n.pid())
	gb := float64(dirty) / 1e9
	return (after - before) / gb, time.Since(begin).Seconds() / gb, nil
}

// cleanedTo is the offset that cleaner-offset-checkpoint has for partition 0 of a topic, or -1.
func cleanedTo(n *rival, topic string) int64 {
	b, err := os.ReadFile(filepath.Join(n.node.Data(), "cleaner-offset-checkpoint"))
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == topic && f[1] == "0" {
			if o, err := strconv.ParseInt(f[2], 10, 64); err == nil {
				return o
			}
		}
	}
	return -1
}

// keyedBatch is a batch of about size bytes of records with keys drawn out of compactKeys.
func keyedBatch(rng *rand.Rand, size, record int) []byte {
	var body []byte
	n := 0
	for len(body)+record+20 < size {
		key := fmt.Appendf(nil, "key-%08d", rng.IntN(compactKeys))
		value := make([]byte, record-len(key))
		for i := range value {
			value[i] = byte('a' + rng.IntN(26))
		}
		r := []byte{0}
		r = binary.AppendVarint(r, 0)
		r = binary.AppendVarint(r, int64(n))
		r = append(binary.AppendVarint(r, int64(len(key))), key...)
		r = append(binary.AppendVarint(r, int64(len(value))), value...)
		r = append(r, 0)
		body = append(binary.AppendVarint(body, int64(len(r))), r...)
		n++
	}
	return batchOf(body, n, 0, time.Now().UnixMilli(), 0)
}
