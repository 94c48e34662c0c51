package storage

import (
	"encoding/binary"
	"fmt"

	"github.com/highwater/highwater/internal/kafka"
)

// The transaction index (.txnindex) lists the aborted transactions whose marker lies in the segment, in order of the marker.
// The file is made with its first entry, of 34 bytes:
//
//	int16 version = 0
//	int64 producer id
//	int64 first offset of the transaction, which may lie in an earlier segment
//	int64 last offset: the marker's
//	int64 last stable offset when the marker was appended: all transactions below it were decided

const (
	abortedEntrySize  = 34
	maxAbortedVersion = 0
)

type abortedEntry struct {
	producerID       kafka.ProducerID
	firstOffset      kafka.Offset
	lastOffset       kafka.Offset
	lastStableOffset kafka.Offset
}

func (e abortedEntry) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, maxAbortedVersion)
	dst = binary.BigEndian.AppendUint64(dst, uint64(e.producerID))
	dst = binary.BigEndian.AppendUint64(dst, uint64(e.firstOffset))
	dst = binary.BigEndian.AppendUint64(dst, uint64(e.lastOffset))
	return binary.BigEndian.AppendUint64(dst, uint64(e.lastStableOffset))
}

// decodeAborted reads a whole transaction index of a segment that begins at base.
func decodeAborted(b []byte, base kafka.Offset) ([]abortedEntry, error) {
	if len(b)%abortedEntrySize != 0 {
		return nil, fmt.Errorf("size %d is not a multiple of %d", len(b), abortedEntrySize)
	}
	out := make([]abortedEntry, 0, len(b)/abortedEntrySize)
	for ; len(b) > 0; b = b[abortedEntrySize:] {
		if v := int16(binary.BigEndian.Uint16(b)); v != maxAbortedVersion {
			return nil, fmt.Errorf("entry %d has version %d, not %d", len(out), v, maxAbortedVersion)
		}
		e := abortedEntry{
			producerID:       int64(binary.BigEndian.Uint64(b[2:])),
			firstOffset:      int64(binary.BigEndian.Uint64(b[10:])),
			lastOffset:       int64(binary.BigEndian.Uint64(b[18:])),
			lastStableOffset: int64(binary.BigEndian.Uint64(b[26:])),
		}
		if e.lastOffset < base {
			return nil, fmt.Errorf("last offset %d of entry %d is less than the segment's first offset %d", e.lastOffset, len(out), base)
		}
		if n := len(out); n > 0 && out[n-1].lastOffset >= e.lastOffset {
			return nil, fmt.Errorf("last offset %d of entry %d is not larger than that of the entry before", e.lastOffset, n)
		}
		out = append(out, e)
	}
	return out, nil
}
