package storage

import (
	"encoding/binary"
)

// The offset index (.index) is a list of entries of 8 bytes, in order of both fields, without header or checksum:
//
//	int32 offset - base offset of the segment    the last offset of a batch
//	int32 position                               of that batch in the .log file
//
// One entry is added when more than index.interval.bytes came into the segment since the one before. Kafka makes the active
// segment's file segment.index.bytes long, the rest zero, and cuts it when the segment rolls or closes; ours is never
// longer than its content, which Kafka reads as well.

const offsetEntrySize = 8

type offsetEntry struct{ relative, position uint32 }

func (e offsetEntry) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, e.relative)
	return binary.BigEndian.AppendUint32(dst, e.position)
}

// decodeOffsetEntry reads the entry at the front of b, which must have offsetEntrySize bytes.
func decodeOffsetEntry(b []byte) offsetEntry {
	return offsetEntry{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])}
}
