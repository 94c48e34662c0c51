package storage

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/highwater/highwater/internal/kafka"
)

// A producer snapshot (<offset>.snapshot) is what the log knew of its producers before offset:
//
//	int16 version = 1
//	int32 CRC-32C of what follows
//	int32 number of entries; each
//	  int64 producer id, int16 epoch
//	  int32 last sequence, int64 last offset, int32 last offset - first offset    of the last batch; -1, -1, 0 without one
//	  int64 timestamp of the last batch or marker, int32 epoch of the transaction coordinator (-1)
//	  int64 first offset of the open transaction (-1)
//
// Of each producer only the last batch is kept, so after a restart only that one is known as a duplicate.

const (
	snapshotVersion   = 1
	snapshotHeader    = 10
	snapshotEntrySize = 46
	// maxSnapshotSize bounds what is read: 20 million producers.
	maxSnapshotSize = 1 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type snapshotEntry struct {
	producerID       kafka.ProducerID
	producerEpoch    kafka.ProducerEpoch
	lastSequence     int32
	lastOffset       kafka.Offset
	offsetDelta      int32
	timestamp        int64
	coordinatorEpoch int32
	txnFirstOffset   kafka.Offset
}

func encodeSnapshot(entries []snapshotEntry) []byte {
	b := make([]byte, 0, snapshotHeader+len(entries)*snapshotEntrySize)
	b = binary.BigEndian.AppendUint16(b, snapshotVersion)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(entries)))
	for i := range entries {
		e := &entries[i]
		b = binary.BigEndian.AppendUint64(b, uint64(e.producerID))
		b = binary.BigEndian.AppendUint16(b, uint16(e.producerEpoch))
		b = binary.BigEndian.AppendUint32(b, uint32(e.lastSequence))
		b = binary.BigEndian.AppendUint64(b, uint64(e.lastOffset))
		b = binary.BigEndian.AppendUint32(b, uint32(e.offsetDelta))
		b = binary.BigEndian.AppendUint64(b, uint64(e.timestamp))
		b = binary.BigEndian.AppendUint32(b, uint32(e.coordinatorEpoch))
		b = binary.BigEndian.AppendUint64(b, uint64(e.txnFirstOffset))
	}
	binary.BigEndian.PutUint32(b[2:], crc32.Checksum(b[6:], castagnoli))
	return b
}

func decodeSnapshot(b []byte) ([]snapshotEntry, error) {
	if len(b) < snapshotHeader {
		return nil, fmt.Errorf("%d bytes are less than a header", len(b))
	}
	if v := binary.BigEndian.Uint16(b); v != snapshotVersion {
		return nil, fmt.Errorf("unknown version %d", v)
	}
	if stored, computed := binary.BigEndian.Uint32(b[2:]), crc32.Checksum(b[6:], castagnoli); stored != computed {
		return nil, fmt.Errorf("stored crc %d is not the computed %d", stored, computed)
	}
	count := int64(int32(binary.BigEndian.Uint32(b[6:])))
	b = b[snapshotHeader:]
	if count < 0 || count*snapshotEntrySize != int64(len(b)) {
		return nil, fmt.Errorf("%d entries don't take %d bytes", count, len(b))
	}
	out := make([]snapshotEntry, count)
	for i := range out {
		out[i] = snapshotEntry{
			producerID:       int64(binary.BigEndian.Uint64(b)),
			producerEpoch:    int16(binary.BigEndian.Uint16(b[8:])),
			lastSequence:     int32(binary.BigEndian.Uint32(b[10:])),
			lastOffset:       int64(binary.BigEndian.Uint64(b[14:])),
			offsetDelta:      int32(binary.BigEndian.Uint32(b[22:])),
			timestamp:        int64(binary.BigEndian.Uint64(b[26:])),
			coordinatorEpoch: int32(binary.BigEndian.Uint32(b[34:])),
			txnFirstOffset:   int64(binary.BigEndian.Uint64(b[38:])),
		}
		b = b[snapshotEntrySize:]
	}
	return out, nil
}
