package storage

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/highwater/highwater/internal/kafka"
)

// Checkpoint files are text: a line with the version, 0; a line with the number of entries; an entry a line. They are
// replaced atomically.
//
// The offset checkpoints of a log directory have "topic partition offset"; leader-epoch-checkpoint of a partition has
// "epoch start-offset", both ascending.

// maxCheckpointSize bounds what is read: a million partitions with names of 250 bytes.
const maxCheckpointSize = 300 << 20

// decodeCheckpoint checks version and count and calls entry with the fields of each line.
func decodeCheckpoint(b []byte, fields int, entry func(f [][]byte) error) error {
	line := func() ([]byte, bool) {
		if len(b) == 0 {
			return nil, false
		}
		l, rest, _ := bytes.Cut(b, []byte{'\n'})
		b = rest
		return l, true
	}
	l, ok := line()
	if !ok {
		return fmt.Errorf("no version line")
	}
	if v, err := strconv.Atoi(string(l)); err != nil || v != 0 {
		return fmt.Errorf("unrecognized version %q", clip(l))
	}
	l, _ = line()
	n, err := strconv.Atoi(string(l))
	if err != nil || n < 0 {
		return fmt.Errorf("malformed number of entries %q", clip(l))
	}
	var parts [3][]byte
	for i := range n {
		l, ok := line()
		if !ok {
			return fmt.Errorf("expected %d entries, found %d", n, i)
		}
		// Kafka splits at runs of white space.
		f := bytes.Fields(l)
		if len(f) != fields {
			return fmt.Errorf("malformed line %q", clip(l))
		}
		copy(parts[:], f)
		if err := entry(parts[:fields]); err != nil {
			return fmt.Errorf("malformed line %q: %w", clip(l), err)
		}
	}
	if len(bytes.TrimSpace(b)) > 0 {
		return fmt.Errorf("more than the %d entries announced", n)
	}
	return nil
}

func clip(b []byte) []byte { return b[:min(len(b), 80)] }

func appendCheckpointHeader(dst []byte, n int) []byte {
	dst = append(dst, "0\n"...)
	dst = strconv.AppendInt(dst, int64(n), 10)
	return append(dst, '\n')
}

// checkpointEntry is a line of an offset checkpoint.
type checkpointEntry struct {
	partition kafka.TopicPartition
	offset    kafka.Offset
}

func encodeOffsets(entries []checkpointEntry) []byte {
	b := appendCheckpointHeader(make([]byte, 0, 16+32*len(entries)), len(entries))
	for _, e := range entries {
		b = append(b, e.partition.Topic...)
		b = append(b, ' ')
		b = strconv.AppendInt(b, int64(e.partition.Partition), 10)
		b = append(b, ' ')
		b = strconv.AppendInt(b, e.offset, 10)
		b = append(b, '\n')
	}
	return b
}

// decodeOffsets reads an offset checkpoint. An empty file, as Kafka makes them when a directory is new, has no entries.
func decodeOffsets(b []byte) (map[kafka.TopicPartition]kafka.Offset, error) {
	out := map[kafka.TopicPartition]kafka.Offset{}
	if len(b) == 0 {
		return out, nil
	}
	err := decodeCheckpoint(b, 3, func(f [][]byte) error {
		p, err := strconv.ParseInt(string(f[1]), 10, 32)
		if err != nil {
			return err
		}
		o, err := strconv.ParseInt(string(f[2]), 10, 64)
		if err != nil {
			return err
		}
		out[kafka.TopicPartition{Topic: string(f[0]), Partition: int32(p)}] = o
		return nil
	})
	return out, err
}

func encodeEpochs(entries []EpochStart) []byte {
	b := appendCheckpointHeader(make([]byte, 0, 16+16*len(entries)), len(entries))
	for _, e := range entries {
		b = strconv.AppendInt(b, int64(e.Epoch), 10)
		b = append(b, ' ')
		b = strconv.AppendInt(b, e.Start, 10)
		b = append(b, '\n')
	}
	return b
}

// decodeEpochs reads leader-epoch-checkpoint. Entries that break the order are refused: a history must ascend in both.
func decodeEpochs(b []byte) ([]EpochStart, error) {
	var out []EpochStart
	if len(b) == 0 {
		return nil, nil
	}
	err := decodeCheckpoint(b, 2, func(f [][]byte) error {
		epoch, err := strconv.ParseInt(string(f[0]), 10, 32)
		if err != nil {
			return err
		}
		start, err := strconv.ParseInt(string(f[1]), 10, 64)
		if err != nil {
			return err
		}
		e := EpochStart{kafka.LeaderEpoch(epoch), start}
		if n := len(out); epoch < 0 || start < 0 || n > 0 && (e.Epoch <= out[n-1].Epoch || e.Start < out[n-1].Start) {
			return fmt.Errorf("out of order")
		}
		out = append(out, e)
		return nil
	})
	return out, err
}
