package main

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/test/peer"
)

// A node of 100,000 partitions under a hard limit of 20,000 descriptors: more partitions than it may have files open are written to, and
// read after a restart. It runs if -starts asks for as many partitions.
const (
	limitedPartitions  = 100_000
	limitedDescriptors = 20_000
	limitedUsed        = 26_000
)

func limited(r *rival, o *options, put func(row string, value float64)) error {
	counts, err := o.counts()
	if err != nil || slices.Max(counts) < limitedPartitions || r.name == string(peer.Kafka) {
		return err
	}
	// This program keeps the limit: it is the last trial, and needs few itself.
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: limitedDescriptors, Max: limitedDescriptors}); err != nil {
		return fmt.Errorf("limit the descriptors: %w", err)
	}
	return beside(r, o, "limited", nil, func(n *rival) error {
		if err := makePartitions(n.addr, 0, limitedPartitions); err != nil {
			return err
		}
		most := 0
		for _, w := range []struct {
			row string
			do  func(c *conn, topic string, first, end int) error
		}{{"produce", writeEach}, {"fetch", readEach}} {
			c, err := dial(n.addr)
			if err != nil {
				return err
			}
			begin := time.Now()
			for at := 0; at < limitedUsed; at += 500 { // topics have 1000 partitions each
				topic, first := fmt.Sprintf("many-%d", at/1000*1000), at%1000
				if err := w.do(c, topic, first, first+500); err != nil {
					return errors.Join(err, c.Close())
				}
				most = max(most, descriptors(n.pid()))
			}
			put(fmt.Sprintf("%s %d partitions, limit %d", w.row, limitedUsed, limitedDescriptors), time.Since(begin).Seconds())
			if err := errors.Join(c.Close(), n.node.Stop()); err != nil {
				return err
			}
			if _, err := n.node.Start(); err != nil {
				return err
			}
		}
		put(fmt.Sprintf("descriptors at most, limit %d", limitedDescriptors), float64(most))
		return nil
	})
}

// writeEach sends a batch to each of some partitions in one request.
func writeEach(c *conn, topic string, first, end int) error {
	batch, err := recordBatch(300, 100, "")
	if err != nil {
		return err
	}
	q := kmsg.NewPtrProduceRequest()
	q.Version, q.Acks, q.TimeoutMillis = 7, -1, 30_000
	t := kmsg.ProduceRequestTopic{Topic: topic}
	for p := first; p < end; p++ {
		t.Partitions = append(t.Partitions, kmsg.ProduceRequestTopicPartition{Partition: int32(p), Records: batch})
	}
	q.Topics = append(q.Topics, t)
	a, err := c.call(q)
	if err != nil {
		return err
	}
	for _, p := range a.(*kmsg.ProduceResponse).Topics[0].Partitions {
		if p.ErrorCode != 0 {
			return fmt.Errorf("produce to %s-%d: error code %d", topic, p.Partition, p.ErrorCode)
		}
	}
	return nil
}

// readEach fetches from the start of each of some partitions in one request.
func readEach(c *conn, topic string, first, end int) error {
	q := kmsg.NewPtrFetchRequest()
	q.Version, q.ReplicaID, q.MaxBytes, q.SessionEpoch = 11, -1, 50<<20, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	for p := first; p < end; p++ {
		f := kmsg.NewFetchRequestTopicPartition()
		f.Partition, f.PartitionMaxBytes = int32(p), 1<<20
		t.Partitions = append(t.Partitions, f)
	}
	q.Topics = append(q.Topics, t)
	a, err := c.call(q)
	if err != nil {
		return err
	}
	seen := 0
	for _, t := range a.(*kmsg.FetchResponse).Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 || len(p.RecordBatches) == 0 {
				return fmt.Errorf("fetch from %s-%d: error code %d, %d bytes", topic, p.Partition, p.ErrorCode, len(p.RecordBatches))
			}
			seen++
		}
	}
	if seen != end-first {
		return fmt.Errorf("fetch from %s: %d of %d partitions", topic, seen, end-first)
	}
	return nil
}
