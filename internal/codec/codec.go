package codec

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

// Type is a compression codec, numbered as in the lowest three bits of a batch's attributes.
type Type int8

// The codecs.
const (
	None   Type = 0
	Gzip   Type = 1
	Snappy Type = 2
	LZ4    Type = 3
	Zstd   Type = 4
)

var names = [...]string{"none", "gzip", "snappy", "lz4", "zstd"}

// String is the codec's name as in compression.type.
func (t Type) String() string {
	if t.Valid() {
		return names[t]
	}
	return fmt.Sprintf("unknown(%d)", int8(t))
}

// Valid tells whether t is one of the five codecs.
func (t Type) Valid() bool { return t >= None && t <= Zstd }

// Parse reads a codec's name as in compression.type; "uncompressed" is the broker's other word for none.
func Parse(s string) (Type, bool) {
	s = strings.ToLower(s)
	if s == "uncompressed" {
		return None, true
	}
	for i, n := range names {
		if n == s {
			return Type(i), true
		}
	}
	return None, false
}

// DefaultLevel stands for the level that Kafka uses where none is configured.
const DefaultLevel = -1 << 31

// LevelRange is the range and the default of compression.<codec>.level. Gzip also allows its default, -1, which lies
// outside of the range. ok is false for codecs without levels.
func LevelRange(t Type) (low, high, byDefault int, ok bool) {
	switch t {
	case Gzip:
		return 1, 9, -1, true
	case LZ4:
		return 1, 17, 9, true
	case Zstd:
		return -131072, 22, 3, true
	}
	return 0, 0, 0, false
}

// CheckLevel tells whether level may be configured for t.
func CheckLevel(t Type, level int) error {
	low, high, byDefault, ok := LevelRange(t)
	if !ok || level == DefaultLevel || level == byDefault || level >= low && level <= high {
		return nil
	}
	return fmt.Errorf("compression level %d of %s is outside of [%d, %d]", level, t, low, high)
}

// ErrCorrupt is wrapped by every error that malformed compressed data causes.
var ErrCorrupt = errors.New("corrupt compressed data")

// ErrTooLarge means that the output would exceed the caller's limit.
var ErrTooLarge = errors.New("decompressed data exceeds the limit")

func corrupt(t Type, format string, args ...any) error {
	return fmt.Errorf("%s: %s: %w", t, fmt.Sprintf(format, args...), ErrCorrupt)
}

// Compress appends src, compressed, to dst. Snappy gets the xerial framing and lz4 a frame of blocks of 64 KB, as Java's
// client writes them. level is as in compression.<codec>.level; DefaultLevel for Kafka's default.
func Compress(dst []byte, t Type, level int, src []byte) ([]byte, error) {
	if err := CheckLevel(t, level); err != nil {
		return dst, err
	}
	if _, _, byDefault, _ := LevelRange(t); level == DefaultLevel {
		level = byDefault
	}
	switch t {
	case None:
		return append(dst, src...), nil
	case Gzip:
		return gzipCompress(dst, level, src)
	case Snappy:
		return snappyCompress(dst, src), nil
	case LZ4:
		return lz4Compress(dst, level, src), nil
	case Zstd:
		return zstdCompress(dst, level, src), nil
	}
	return dst, fmt.Errorf("unknown compression type id: %d", int8(t))
}

// Decompress appends what src holds to dst. It stops with ErrTooLarge as soon as that is more than limit bytes, having
// allocated little more than these.
func Decompress(dst []byte, t Type, src []byte, limit int) ([]byte, error) {
	r, err := NewReader(t, src)
	if err != nil {
		return dst, err
	}
	defer r.Close()
	start := len(dst)
	for {
		dst, err = r.More(dst)
		if len(dst)-start > limit {
			return dst[:start], ErrTooLarge
		}
		if err == io.EOF {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
	}
}

// Reader decompresses a buffer piece by piece. It is pooled: Close it.
type Reader struct {
	t       Type
	lenient bool   // magic 0: lz4 frames have a wrong header checksum
	begun   bool   // lz4: inside of a frame; snappy: framing is known
	rest    []byte // input not consumed yet
	err     error  // sticky
	lz4     lz4Frame
	gzip    *gzipReader
	zstd    *zstdReader
}

var readers = sync.Pool{New: func() any { return new(Reader) }}

// NewReader begins to decompress src, which must not change until Close. It fails only for a t that is no codec.
func NewReader(t Type, src []byte) (*Reader, error) {
	if !t.Valid() {
		return nil, fmt.Errorf("unknown compression type id: %d: %w", int8(t), ErrCorrupt)
	}
	r := readers.Get().(*Reader)
	*r = Reader{t: t, rest: src}
	return r, nil
}

// NewLegacyReader is NewReader for what a wrapper message of magic 0 holds: lz4 frames with the broken header checksum that
// Kafka wrote then are read, too.
func NewLegacyReader(t Type, src []byte) (*Reader, error) {
	r, err := NewReader(t, src)
	if err == nil {
		r.lenient = true
	}
	return r, err
}

// More appends the next piece of output to dst, at least one byte if err is nil. At the end of the data it returns io.EOF. How
// large pieces are is the codec's matter: gzip fills up dst's capacity, the others append a block.
func (r *Reader) More(dst []byte) ([]byte, error) {
	start := len(dst)
	for r.err == nil {
		switch r.t {
		case None:
			dst, r.rest, r.err = append(dst, r.rest...), nil, io.EOF
		case Gzip:
			dst, r.err = r.moreGzip(dst)
		case Snappy:
			dst, r.err = r.moreSnappy(dst)
		case LZ4:
			dst, r.err = r.moreLZ4(dst)
		case Zstd:
			dst, r.err = r.moreZstd(dst)
		}
		if len(dst) > start {
			return dst, nil
		}
	}
	return dst, r.err
}

// Close gives the Reader back to its pool.
func (r *Reader) Close() {
	if r.gzip != nil {
		r.gzip.release()
	}
	if r.zstd != nil {
		r.zstd.release()
	}
	*r = Reader{}
	readers.Put(r)
}

// grow makes room for n bytes behind dst's length.
func grow(dst []byte, n int) []byte { return slices.Grow(dst, n) }
