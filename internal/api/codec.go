package api

import (
	"encoding/binary"

	"github.com/highwater/highwater/internal/kafka"
)

// decoder reads the primitive types of a request without allocating: what it returns lies in src. After something that
// Kafka would refuse failed is set and everything that follows is zero, so callers look once, at the end, and in loops.
type decoder struct {
	src    []byte
	failed bool
}

// Kafka 4.4's bounds on what a peer may send.
const (
	maxElements = 1_000_000
	maxTags     = 10_000
	maxString   = 32_767
)

func (d *decoder) fail() {
	d.failed = true
	d.src = nil
}

func (d *decoder) take(n int) []byte {
	if n > len(d.src) || n < 0 {
		d.fail()
		return nil
	}
	b := d.src[:n:n]
	d.src = d.src[n:]
	return b
}

func (d *decoder) int8() int8 {
	if len(d.src) < 1 {
		d.fail()
		return 0
	}
	v := d.src[0]
	d.src = d.src[1:]
	return int8(v)
}

func (d *decoder) int16() int16 {
	if len(d.src) < 2 {
		d.fail()
		return 0
	}
	v := binary.BigEndian.Uint16(d.src)
	d.src = d.src[2:]
	return int16(v)
}

func (d *decoder) int32() int32 {
	if len(d.src) < 4 {
		d.fail()
		return 0
	}
	v := binary.BigEndian.Uint32(d.src)
	d.src = d.src[4:]
	return int32(v)
}

func (d *decoder) int64() int64 {
	if len(d.src) < 8 {
		d.fail()
		return 0
	}
	v := binary.BigEndian.Uint64(d.src)
	d.src = d.src[8:]
	return int64(v)
}

func (d *decoder) uuid() (u kafka.UUID) {
	if len(d.src) < len(u) {
		d.fail()
		return u
	}
	copy(u[:], d.src)
	d.src = d.src[len(u):]
	return u
}

// uvarint reads at most five bytes and, like Kafka, drops what overflows 32 bits.
func (d *decoder) uvarint() uint32 {
	if len(d.src) > 0 && d.src[0] < 0x80 {
		v := d.src[0]
		d.src = d.src[1:]
		return uint32(v)
	}
	var v uint32
	for i := 0; i < 5 && i < len(d.src); i++ {
		c := d.src[i]
		v |= uint32(c&0x7f) << (7 * i)
		if c < 0x80 {
			d.src = d.src[i+1:]
			return v
		}
	}
	d.fail()
	return 0
}

// string reads a string: nil for null, where that is allowed, else not nil.
func (d *decoder) string(flexible, nullable bool) []byte {
	var n int
	if flexible {
		n = int(int32(d.uvarint())) - 1
	} else {
		n = int(d.int16())
	}
	if d.failed {
		return nil
	}
	if n < 0 {
		if !nullable {
			d.fail()
		}
		return nil
	}
	if n > maxString {
		d.fail()
		return nil
	}
	return d.take(n)
}

func (d *decoder) compactBytes(nullable bool) []byte { return d.string(true, nullable) }

// records reads a nullable field of type records, which lies where it lies.
func (d *decoder) records(flexible bool) []byte {
	var n int
	if flexible {
		n = int(int32(d.uvarint())) - 1
	} else {
		n = int(d.int32())
	}
	if d.failed || n < 0 {
		return nil
	}
	return d.take(n)
}

// arrayLen reads the length of an array that may not be null, whose elements take at least size bytes: an announced
// length that the bytes left cannot hold is refused before anything is made for it.
func (d *decoder) arrayLen(flexible bool, size int) int {
	var n int
	if flexible {
		n = int(int32(d.uvarint())) - 1
	} else {
		n = int(d.int32())
	}
	if d.failed || n < 0 || n > maxElements || n*size > len(d.src) {
		d.fail()
		return 0
	}
	return n
}

// skipTags reads tagged fields of which none is known.
func (d *decoder) skipTags() {
	n := d.tags()
	for ; n > 0 && !d.failed; n-- {
		d.uvarint()
		d.skip(d.uvarint())
	}
}

// tags reads how many tagged fields follow.
func (d *decoder) tags() uint32 {
	n := d.uvarint()
	if n > maxTags {
		d.fail()
		return 0
	}
	return n
}

func (d *decoder) skip(n uint32) {
	if uint64(n) > uint64(len(d.src)) {
		d.fail()
		return
	}
	d.src = d.src[n:]
}

// Encoding.

func appendUvarint(b []byte, v uint32) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

func uvarintLen(v uint32) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

// appendCompact appends a string with a compact length.
func appendCompact(b []byte, s string) []byte {
	return append(appendUvarint(b, uint32(len(s)+1)), s...)
}

// compactLen is how many bytes a compact string of n bytes takes.
func compactLen(n int) int { return uvarintLen(uint32(n+1)) + n }

// appendString appends a string in either encoding.
func appendString(b []byte, flexible bool, s string) []byte {
	if flexible {
		return appendCompact(b, s)
	}
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

// appendNullable appends a string that may be null.
func appendNullable(b []byte, flexible bool, s *string) []byte {
	switch {
	case s != nil:
		return appendString(b, flexible, *s)
	case flexible:
		return append(b, 0)
	}
	return append(b, 0xff, 0xff)
}

// appendArrayLen appends the length of an array; -1 is null.
func appendArrayLen(b []byte, flexible bool, n int) []byte {
	if flexible {
		return appendUvarint(b, uint32(n+1))
	}
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

func appendInt16(b []byte, v int16) []byte { return binary.BigEndian.AppendUint16(b, uint16(v)) }

func appendInt32(b []byte, v int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(v)) }

func appendInt64(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }
