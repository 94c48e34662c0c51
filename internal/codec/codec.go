package codec

import (
	"errors"
	"fmt"
	"strings"
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
