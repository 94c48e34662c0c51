package storage

import "encoding/binary"

// The time index (.timeindex) is a list of entries of 12 bytes, in order of both fields:
//
//	int64 timestamp                              the largest in the segment up to here, ms
//	int32 offset - base offset of the segment    the last offset of the batch that has it
//
// An entry is added together with one of the offset index if its timestamp is larger than that of the one before, and one
// more when the segment rolls or closes: so the last entry has the segment's largest timestamp.

const timeEntrySize = 12

type timeEntry struct {
	timestamp int64
	relative  uint32
}

func (e timeEntry) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(e.timestamp))
	return binary.BigEndian.AppendUint32(dst, e.relative)
}

// decodeTimeEntry reads the entry at the front of b, which must have timeEntrySize bytes.
func decodeTimeEntry(b []byte) timeEntry {
	return timeEntry{int64(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint32(b[8:])}
}
