package record

import (
	"github.com/highwater/highwater/internal/kerr"
)

// rawRecord is where the parts of an encoded record lie, counted from the record's first byte.
type rawRecord struct {
	timestampDelta int64
	offsetDelta    int32
	attributes     int8
	key, keySize   int // size < 0: null
	value          int
	valueSize      int
	headers        int // first byte of the first header
	headerCount    int
	body           int // the record's length field
}

// What parseRecord returns beside a size.
const (
	recordCut = 0  // b ends within the record
	recordBad = -1 // malformed; recordFault says how
)

// minRecordBody is the least body: attributes, two deltas, two lengths, the number of headers.
const minRecordBody = 6

// parseRecord takes the record at the start of b to pieces and returns its size, recordCut or recordBad. It checks all that Kafka's
// decoder checks. It is the hot loop's body: no allocation, no error value, and numbers of one and two bytes are read in place, because a
// call for each makes it half as fast.
func parseRecord(b []byte, r *rawRecord) int {
	if len(b) == 0 {
		return recordCut
	}
	var n int32
	i := 1
	if b[0] < 0x80 {
		n = int32(b[0]>>1) ^ -int32(b[0]&1)
	} else if len(b) > 1 && b[1] < 0x80 {
		u := uint32(b[0]&0x7f) | uint32(b[1])<<7
		n = int32(u>>1) ^ -int32(u&1)
		i = 2
	} else if n, i = readVarintSlow(b, 0); i < 0 {
		if i == varintCut {
			return recordCut
		}
		return recordBad
	}
	if n < minRecordBody {
		return recordBad
	}
	if len(b)-i < int(n) {
		return recordCut
	}
	b = b[:i+int(n)]
	r.body = int(n)
	r.attributes = int8(b[i])
	i++
	var delta int64
	if i < len(b) && b[i] < 0x80 {
		delta = int64(b[i]>>1) ^ -int64(b[i]&1)
		i++
	} else if i+1 < len(b) && b[i+1] < 0x80 {
		u := uint32(b[i]&0x7f) | uint32(b[i+1])<<7
		delta = int64(u>>1) ^ -int64(u&1)
		i += 2
	} else if delta, i = readVarlongSlow(b, i); i < 0 {
		return recordBad
	}
	r.timestampDelta = delta
	if i < len(b) && b[i] < 0x80 {
		n = int32(b[i]>>1) ^ -int32(b[i]&1)
		i++
	} else if i+1 < len(b) && b[i+1] < 0x80 {
		u := uint32(b[i]&0x7f) | uint32(b[i+1])<<7
		n = int32(u>>1) ^ -int32(u&1)
		i += 2
	} else if n, i = readVarintSlow(b, i); i < 0 {
		return recordBad
	}
	r.offsetDelta = n
	if i < len(b) && b[i] < 0x80 {
		n = int32(b[i]>>1) ^ -int32(b[i]&1)
		i++
	} else if i+1 < len(b) && b[i+1] < 0x80 {
		u := uint32(b[i]&0x7f) | uint32(b[i+1])<<7
		n = int32(u>>1) ^ -int32(u&1)
		i += 2
	} else if n, i = readVarintSlow(b, i); i < 0 {
		return recordBad
	}
	r.key, r.keySize = i, int(n)
	if n > 0 {
		if int(n) > len(b)-i {
			return recordBad
		}
		i += int(n)
	}
	if i < len(b) && b[i] < 0x80 {
		n = int32(b[i]>>1) ^ -int32(b[i]&1)
		i++
	} else if i+1 < len(b) && b[i+1] < 0x80 {
		u := uint32(b[i]&0x7f) | uint32(b[i+1])<<7
		n = int32(u>>1) ^ -int32(u&1)
		i += 2
	} else if n, i = readVarintSlow(b, i); i < 0 {
		return recordBad
	}
	r.value, r.valueSize = i, int(n)
	if n > 0 {
		if int(n) > len(b)-i {
			return recordBad
		}
		i += int(n)
	}
	if i < len(b) && b[i] < 0x80 {
		n = int32(b[i]>>1) ^ -int32(b[i]&1)
		i++
	} else if i+1 < len(b) && b[i+1] < 0x80 {
		u := uint32(b[i]&0x7f) | uint32(b[i+1])<<7
		n = int32(u>>1) ^ -int32(u&1)
		i += 2
	} else if n, i = readVarintSlow(b, i); i < 0 {
		return recordBad
	}
	r.headers, r.headerCount = i, int(n)
	if n != 0 {
		if n < 0 || int(n) > len(b)-i {
			return recordBad
		}
		if i = skipHeaders(b, i, int(n)); i < 0 {
			return recordBad
		}
	}
	if i != len(b) {
		return recordBad
	}
	return i
}

// skipHeaders returns the index after n headers from i on, or something negative.
func skipHeaders(b []byte, i, n int) int {
	var size int32
	for ; n > 0; n-- {
		if size, i = readVarint(b, i); i < 0 || size < 0 || int(size) > len(b)-i {
			return recordBad
		}
		i += int(size)
		if size, i = readVarint(b, i); i < 0 || int(size) > len(b)-i {
			return recordBad
		}
		if size > 0 {
			i += int(size)
		}
	}
	return i
}

func structureFault() error { return kerr.InvalidRecord.With("Found invalid record structure") }

func recordTooLarge(size, limit int) error {
	return kerr.InvalidRecord.With("Invalid record size: %d exceeds the configured maximum record size of %d.", size, limit)
}

func prematureEOF() error {
	return kerr.InvalidRecord.With("Incorrect declared batch size, premature EOF reached")
}

func stillRemaining() error {
	return kerr.InvalidRecord.With("Incorrect declared batch size, records still remaining in file")
}

// recordFault says, in Kafka's words, what is wrong with the record at the start of b, of which parseRecord returned recordBad or, at
// the end of the data, recordCut. Kafka's decoder looks beyond the record's declared end; so does this.
func recordFault(b []byte) error {
	length, i := readVarint(b, 0)
	switch {
	case i == varintCut:
		return prematureEOF()
	case i == varintLong:
		return kerr.InvalidRecord.With("Varint is too long, the most significant bit in the 5th byte is set")
	case len(b)-i < int(length):
		return kerr.InvalidRecord.With("Invalid record size: expected %d bytes in record payload, but instead the buffer has only %d remaining bytes.", length, len(b)-i)
	}
	start := i
	if i++; i > len(b) { // attributes
		return structureFault()
	}
	if _, i = readVarlong(b, i); i < 0 {
		return structureFault()
	}
	if _, i = readVarint(b, i); i < 0 {
		return structureFault()
	}
	var n int32
	for range 2 { // key, value
		if n, i = readVarint(b, i); i < 0 || int(n) > len(b)-i {
			return structureFault()
		}
		i += max(0, int(n))
	}
	if n, i = readVarint(b, i); i < 0 {
		return structureFault()
	}
	if n < 0 {
		return kerr.InvalidRecord.With("Found invalid number of record headers %d", n)
	}
	if int(n) > len(b)-i {
		return kerr.InvalidRecord.With("Found invalid number of record headers. %d is larger than the remaining size of the buffer", n)
	}
	for ; n > 0; n-- {
		var size int32
		if size, i = readVarint(b, i); i < 0 {
			return structureFault()
		}
		if size < 0 {
			return kerr.InvalidRecord.With("Invalid negative header key size %d", size)
		}
		if int(size) > len(b)-i {
			return structureFault()
		}
		i += int(size)
		if size, i = readVarint(b, i); i < 0 || int(size) > len(b)-i {
			return structureFault()
		}
		i += max(0, int(size))
	}
	return kerr.InvalidRecord.With("Invalid record size: expected to read %d bytes in record payload, but instead read %d", length, i-start)
}
