package schema

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/highwater/highwater/internal/kafka"
)

// Kafka 4.4's own bounds.
const (
	maxElements = 1_000_000 // of an array
	maxTags     = 10_000    // of a struct
	maxString   = 32_767    // bytes
)

// Reader takes primitive values off its input. The first error sticks; from then on every value is zero.
type Reader struct {
	src []byte
	err error
	// strict refuses what Kafka and kmsg read differently and nobody writes: a varint with bits above the 32nd, which Kafka
	// cuts off, a string or bytes of a compact length above 2^31, which is negative and so null for Kafka only, and a null struct
	// marked with a negative number other than -1, likewise.
	strict bool
}

// NewReader reads src.
func NewReader(src []byte) Reader { return Reader{src: src} }

// Err is the first error.
func (r *Reader) Err() error { return r.err }

// Rest is what wasn't read yet.
func (r *Reader) Rest() []byte { return r.src }

func (r *Reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.src = nil
}

func (r *Reader) take(n int) []byte {
	if n > len(r.src) {
		r.fail(ErrTruncated)
		return nil
	}
	b := r.src[:n]
	r.src = r.src[n:]
	return b
}

// Bool takes one byte; any but 0 is true.
func (r *Reader) Bool() bool { return r.Int8() != 0 }

// Int8 takes one byte.
func (r *Reader) Int8() int8 {
	if b := r.take(1); b != nil {
		return int8(b[0])
	}
	return 0
}

// Int16 takes two bytes.
func (r *Reader) Int16() int16 { return int16(r.Uint16()) }

// Uint16 takes two bytes.
func (r *Reader) Uint16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

// Int32 takes four bytes.
func (r *Reader) Int32() int32 { return int32(r.Uint32()) }

// Uint32 takes four bytes.
func (r *Reader) Uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// Int64 takes eight bytes.
func (r *Reader) Int64() int64 {
	if b := r.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// Float64 takes eight bytes.
func (r *Reader) Float64() float64 { return math.Float64frombits(uint64(r.Int64())) }

// UUID takes sixteen bytes.
func (r *Reader) UUID() (u kafka.UUID) {
	copy(u[:], r.take(16))
	return u
}

// Uvarint takes up to five bytes; bits above the 32nd are cut off, as Kafka does.
func (r *Reader) Uvarint() uint32 {
	var v uint32
	for i := 0; i < 5; i++ {
		if i >= len(r.src) {
			r.fail(ErrTruncated)
			return 0
		}
		b := r.src[i]
		if i == 4 && r.strict && b > 0x0f {
			break
		}
		v |= uint32(b&0x7f) << (7 * i)
		if b < 0x80 {
			r.src = r.src[i+1:]
			return v
		}
	}
	r.fail(errors.New("varint is longer than 32 bits"))
	return 0
}

// length of a string (16 bits unless flexible), or of bytes or an array (32 bits); a negative one is null.
func (r *Reader) length(flexible, short bool) int {
	var n int
	switch {
	case flexible:
		n = int(int32(r.Uvarint() - 1))
	case short:
		n = int(r.Int16())
	default:
		n = int(r.Int32())
	}
	if r.err != nil {
		return 0
	}
	return n
}

// String takes a string that must not be null.
func (r *Reader) String(flexible bool) string {
	n := r.length(flexible, true)
	if n < 0 {
		r.fail(fmt.Errorf("null string where it is not allowed"))
		return ""
	}
	return r.stringOf(n)
}

func (r *Reader) stringOf(n int) string {
	if n > maxString {
		r.fail(fmt.Errorf("string of %d bytes is too long", n))
		return ""
	}
	return string(r.take(n))
}

// NullString takes a string or null.
func (r *Reader) NullString(flexible, nullable bool) *string {
	n := r.length(flexible, true)
	if n < 0 {
		if !nullable {
			r.fail(fmt.Errorf("null string where it is not allowed"))
		}
		return nil
	}
	s := r.stringOf(n)
	return &s
}

// Bytes takes bytes; nil is null, which is an error unless nullable.
func (r *Reader) Bytes(flexible, nullable bool) []byte {
	n := r.length(flexible, false)
	if n < 0 {
		if !nullable {
			r.fail(fmt.Errorf("null bytes where they are not allowed"))
		}
		return nil
	}
	b := r.take(n)
	if r.err != nil {
		return nil
	}
	return append(make([]byte, 0, n), b...)
}

// ArrayLen takes the number of elements of an array whose elements have at least least bytes each; -1 is null, which is
// an error unless nullable.
func (r *Reader) ArrayLen(flexible, nullable bool, least int) int {
	n := r.length(flexible, false)
	switch {
	case r.err != nil:
		return 0
	case n < 0:
		if !nullable {
			r.fail(fmt.Errorf("null array where it is not allowed"))
			return 0
		}
		return -1
	case n > maxElements:
		r.fail(fmt.Errorf("array of %d elements is too long", n))
		return 0
	case n*least > len(r.src):
		r.fail(fmt.Errorf("array of %d elements in %d bytes: %w", n, len(r.src), ErrTruncated))
		return 0
	}
	return n
}

// Present takes the mark of a nullable struct.
func (r *Reader) Present(tagged bool) bool {
	if tagged {
		return r.Uvarint() != 0
	}
	mark := r.Int8()
	if r.strict && mark < -1 {
		r.fail(fmt.Errorf("struct marked with %d", mark))
	}
	return mark >= 0
}

// tags takes the tagged fields. known reads the value of a tag of this version and reports false for one that it
// doesn't know.
func (r *Reader) tags(known func(tag uint32) bool) (unknown []RawTag) {
	n := r.Uvarint()
	if n > maxTags {
		r.fail(fmt.Errorf("%d tagged fields are too many", n))
		return nil
	}
	for ; n > 0 && r.err == nil; n-- {
		tag, size := r.Uvarint(), r.Uvarint()
		if r.err != nil {
			break
		}
		if known != nil && known(tag) {
			continue
		}
		if uint64(size) > uint64(len(r.src)) {
			r.fail(ErrTruncated)
			break
		}
		unknown = append(unknown, RawTag{tag, append([]byte{}, r.take(int(size))...)})
	}
	return unknown
}

// badTag says that a known tag doesn't belong to this version.
func (r *Reader) badTag(tag uint32, version int16) {
	r.fail(fmt.Errorf("tag %d is not valid for version %d", tag, version))
}

func arrayOf[T any](r *Reader, n int, each func() T) []T {
	if n < 0 || r.err != nil {
		return nil
	}
	a := make([]T, 0, n)
	for i := 0; i < n && r.err == nil; i++ {
		a = append(a, each())
	}
	return a
}

func (r *Reader) int32s(n int) []int32 {
	if n < 0 || r.err != nil {
		return nil
	}
	b := r.take(4 * n)
	if r.err != nil {
		return nil
	}
	a := make([]int32, n)
	for i := range a {
		a[i] = int32(binary.BigEndian.Uint32(b[4*i:]))
	}
	return a
}

// writer appends primitive values. The first error sticks.
type writer struct {
	dst []byte
	err error
}

func (w *writer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *writer) missing(field string, version int16) {
	w.fail(fmt.Errorf("attempted to write a non-default %s at version %d", field, version))
}

func appendUvarint(dst []byte, v uint32) []byte {
	for v >= 0x80 {
		dst = append(dst, byte(v)|0x80)
		v >>= 7
	}
	return append(dst, byte(v))
}

func appendInt16(dst []byte, v int16) []byte { return binary.BigEndian.AppendUint16(dst, uint16(v)) }

func (w *writer) bool(v bool) {
	if v {
		w.dst = append(w.dst, 1)
	} else {
		w.dst = append(w.dst, 0)
	}
}
func (w *writer) int8(v int8)     { w.dst = append(w.dst, byte(v)) }
func (w *writer) int16(v int16)   { w.dst = binary.BigEndian.AppendUint16(w.dst, uint16(v)) }
func (w *writer) uint16(v uint16) { w.dst = binary.BigEndian.AppendUint16(w.dst, v) }
func (w *writer) int32(v int32)   { w.dst = binary.BigEndian.AppendUint32(w.dst, uint32(v)) }
func (w *writer) uint32(v uint32) { w.dst = binary.BigEndian.AppendUint32(w.dst, v) }
func (w *writer) int64(v int64)   { w.dst = binary.BigEndian.AppendUint64(w.dst, uint64(v)) }
func (w *writer) float64(v float64) {
	w.dst = binary.BigEndian.AppendUint64(w.dst, math.Float64bits(v))
}
func (w *writer) uuid(v kafka.UUID) { w.dst = append(w.dst, v[:]...) }
func (w *writer) uvarint(v uint32)  { w.dst = appendUvarint(w.dst, v) }

func (w *writer) length(n int, flexible, short bool) {
	switch {
	case flexible:
		w.uvarint(uint32(n + 1))
	case short:
		w.int16(int16(n))
	default:
		w.int32(int32(n))
	}
}

func (w *writer) string(v string, flexible bool) {
	if len(v) > maxString {
		w.fail(fmt.Errorf("string of %d bytes is too long", len(v)))
		return
	}
	w.length(len(v), flexible, true)
	w.dst = append(w.dst, v...)
}

func (w *writer) nullString(v *string, flexible, nullable bool, field string) {
	if v != nil {
		w.string(*v, flexible)
		return
	}
	if !nullable {
		w.fail(fmt.Errorf("%s must not be null", field))
	}
	w.length(-1, flexible, true)
}

func (w *writer) bytes(v []byte, flexible, nullable bool) {
	if v == nil && nullable {
		w.length(-1, flexible, false)
		return
	}
	w.length(len(v), flexible, false)
	w.dst = append(w.dst, v...)
}

func (w *writer) arrayLen(n int, null, flexible, nullable bool) {
	if null && nullable {
		n = -1
	}
	w.length(n, flexible, false)
}

func (w *writer) present(is, tagged bool) {
	switch {
	case tagged && is:
		w.uvarint(1)
	case tagged:
		w.uvarint(0)
	case is:
		w.int8(1)
	default:
		w.int8(-1)
	}
}

// tagOpen and tagClose stand around the value of a tagged field: the size is known only behind it.
func (w *writer) tagOpen(tag uint32) (start int) {
	w.uvarint(tag)
	return len(w.dst)
}

func (w *writer) tagClose(start int) {
	size := len(w.dst) - start
	var b [5]byte
	n := len(appendUvarint(b[:0], uint32(size)))
	w.dst = append(w.dst, b[:n]...)
	copy(w.dst[start+n:], w.dst[start:start+size])
	copy(w.dst[start:], b[:n])
}

// rawTags appends the unknown tags below limit and returns those above; all must ascend, else nobody could read them.
func (w *writer) rawTags(raw []RawTag, limit int64) []RawTag {
	for len(raw) > 0 && int64(raw[0].Tag) < limit {
		w.uvarint(raw[0].Tag)
		w.uvarint(uint32(len(raw[0].Data)))
		w.dst = append(w.dst, raw[0].Data...)
		if len(raw) > 1 && raw[1].Tag <= raw[0].Tag {
			w.fail(fmt.Errorf("tag %d comes after tag %d", raw[1].Tag, raw[0].Tag))
			return nil
		}
		raw = raw[1:]
	}
	if len(raw) > 0 && int64(raw[0].Tag) == limit {
		w.fail(fmt.Errorf("tag %d is unknown and known", limit))
		return nil
	}
	return raw
}

const noTag = int64(1) << 40

// What follows prints JSON as Jackson does.

func appendJSONInt(dst []byte, v int64) []byte { return strconv.AppendInt(dst, v, 10) }

func appendJSONBool(dst []byte, v bool) []byte { return strconv.AppendBool(dst, v) }

func appendJSONUUID(dst []byte, v kafka.UUID) []byte {
	dst = append(dst, '"')
	dst = base64.RawURLEncoding.AppendEncode(dst, v[:])
	return append(dst, '"')
}

func appendJSONBytes(dst []byte, v []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, v)
	return append(dst, '"')
}

func appendJSONFloat(dst []byte, v float64) []byte {
	s := JavaDouble(v)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(append(append(dst, '"'), s...), '"')
	}
	return append(dst, s...)
}

// JavaDouble is java.lang.Double.toString.
func JavaDouble(v float64) string {
	switch {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 1):
		return "Infinity"
	case math.IsInf(v, -1):
		return "-Infinity"
	}
	a := math.Abs(v)
	if a == 0 || a >= 1e-3 && a < 1e7 {
		s := strconv.FormatFloat(v, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(v, 'e', -1, 64), "e")
	if !strings.Contains(mantissa, ".") {
		// Java takes the two digits nearest to v: 4.9E-324, not 5.0E-324.
		mantissa, exponent, _ = strings.Cut(strconv.FormatFloat(v, 'e', 1, 64), "e")
	}
	sign := ""
	if exponent[0] == '-' {
		sign = "-"
	}
	return mantissa + "E" + sign + strings.TrimLeft(exponent[1:], "0")
}

const upperHex = "0123456789ABCDEF"

// AppendJSONString appends s as Jackson prints a string: it escapes only what JSON demands.
func AppendJSONString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			dst = utf8.AppendRune(dst, r)
			i += n
			continue
		}
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c >= 0x20:
			dst = append(dst, c)
		case c == '\b':
			dst = append(dst, `\b`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\f':
			dst = append(dst, `\f`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		default:
			dst = append(dst, '\\', 'u', '0', '0', upperHex[c>>4], upperHex[c&15])
		}
		i++
	}
	return append(dst, '"')
}

func appendJSONNullString(dst []byte, s *string) []byte {
	if s == nil {
		return append(dst, "null"...)
	}
	return AppendJSONString(dst, *s)
}

// jsonComma puts a comma unless the object has just been opened.
func jsonComma(dst []byte) []byte {
	if dst[len(dst)-1] == '{' {
		return dst
	}
	return append(dst, ',')
}
