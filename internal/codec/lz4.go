package codec

import (
	"encoding/binary"
	"io"
	"math/bits"
	"sync"

	"github.com/pierrec/lz4/v4"
)

// The LZ4 frame format, as far as Kafka reads and writes it: independent blocks, optional checksums of blocks (checked) and of
// the content (skipped, as Java does), one frame; what follows the end mark is ignored.
const (
	lz4Magic      = 0x184d2204
	lz4BlockSize  = 64 << 10
	lz4RawBlock   = 1 << 31 // a block's length with this bit is not compressed
	lz4MaxRatio   = 255     // bytes that one byte of a block can stand for
	lz4HeaderSize = 7

	lz4FlagVersion         = 0xc0
	lz4FlagIndependent     = 0x20
	lz4FlagBlockChecksum   = 0x10
	lz4FlagContentSize     = 0x08
	lz4FlagContentChecksum = 0x04
	lz4FlagReserved        = 0x03
)

type lz4Frame struct {
	blockMax        int
	blockChecksum   bool
	contentChecksum bool
}

// lz4Header is the frame header that every frame of ours and of Java's client has; the last byte is its checksum.
var lz4Header = [lz4HeaderSize]byte{0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82}

var (
	lz4Fast = sync.Pool{New: func() any { return new(lz4.Compressor) }}
	lz4High = sync.Pool{New: func() any { return new(lz4.CompressorHC) }}
)

func lz4Compress(dst []byte, level int, src []byte) []byte {
	dst = append(dst, lz4Header[:]...)
	// Kafka takes the fast compressor for its default level, 9, and the slow one for all others.
	_, _, byDefault, _ := LevelRange(LZ4)
	var fast *lz4.Compressor
	var high *lz4.CompressorHC
	if level == byDefault {
		fast = lz4Fast.Get().(*lz4.Compressor)
		defer lz4Fast.Put(fast)
	} else {
		high = lz4High.Get().(*lz4.CompressorHC)
		defer lz4High.Put(high)
		high.Level = lz4.CompressionLevel(1 << min(level+8, 17)) // how deep it searches
	}
	for len(src) > 0 {
		block := src[:min(len(src), lz4BlockSize)]
		src = src[len(block):]
		at := len(dst)
		dst = grow(dst, 4+lz4.CompressBlockBound(len(block)))
		out := dst[at+4 : cap(dst)]
		var n int
		var err error
		if fast != nil {
			n, err = fast.CompressBlock(block, out)
		} else {
			n, err = high.CompressBlock(block, out)
		}
		if err == nil && n > 0 && n < len(block) {
			binary.LittleEndian.PutUint32(dst[at:at+4], uint32(n))
		} else {
			n = copy(out, block)
			binary.LittleEndian.PutUint32(dst[at:at+4], uint32(n)|lz4RawBlock)
		}
		dst = dst[:at+4+n]
	}
	return append(dst, 0, 0, 0, 0)
}

func (r *Reader) moreLZ4(dst []byte) ([]byte, error) {
	if !r.begun {
		r.begun = true
		if err := r.lz4ReadHeader(); err != nil {
			return dst, err
		}
	}
	if len(r.rest) < 4 {
		return dst, corrupt(LZ4, "stream ended prematurely")
	}
	head := binary.LittleEndian.Uint32(r.rest)
	r.rest = r.rest[4:]
	size, raw := int(head&^lz4RawBlock), head&lz4RawBlock != 0
	if size == 0 {
		if r.lz4.contentChecksum && len(r.rest) < 4 {
			return dst, corrupt(LZ4, "content checksum cut short")
		}
		return dst, io.EOF
	}
	checksum := 0
	if r.lz4.blockChecksum {
		checksum = 4
	}
	if size > r.lz4.blockMax {
		return dst, corrupt(LZ4, "block of %d bytes exceeds %d", size, r.lz4.blockMax)
	}
	if size+checksum > len(r.rest) {
		return dst, corrupt(LZ4, "stream ended prematurely")
	}
	block := r.rest[:size]
	if checksum > 0 && binary.LittleEndian.Uint32(r.rest[size:]) != xxh32(block) {
		return dst, corrupt(LZ4, "block checksum mismatch")
	}
	r.rest = r.rest[size+checksum:]
	if raw {
		return append(dst, block...), nil
	}
	// The frame says how large a block may get, its length how large it can.
	most := min(r.lz4.blockMax, lz4MaxRatio*size)
	dst = grow(dst, most)
	n, err := lz4.UncompressBlock(block, dst[len(dst):len(dst)+most])
	if err != nil {
		return dst, corrupt(LZ4, "%v", err)
	}
	return dst[:len(dst)+n], nil
}

func (r *Reader) lz4ReadHeader() error {
	if len(r.rest) < lz4HeaderSize {
		return corrupt(LZ4, "stream ended prematurely")
	}
	if binary.LittleEndian.Uint32(r.rest) != lz4Magic {
		return corrupt(LZ4, "invalid magic bytes")
	}
	flags, blocks := r.rest[4], r.rest[5]
	switch {
	case flags&lz4FlagVersion != 0x40:
		return corrupt(LZ4, "version %d is unsupported", flags>>6)
	case flags&lz4FlagReserved != 0:
		return corrupt(LZ4, "reserved bits are set")
	case flags&lz4FlagIndependent == 0:
		return corrupt(LZ4, "dependent blocks are unsupported")
	case blocks&0x8f != 0:
		return corrupt(LZ4, "reserved bits are set")
	case blocks>>4 < 4:
		return corrupt(LZ4, "block size %d is unsupported", blocks>>4)
	}
	end := 6
	if flags&lz4FlagContentSize != 0 {
		end += 8
	}
	if len(r.rest) <= end {
		return corrupt(LZ4, "stream ended prematurely")
	}
	// Kafka's first lz4 clients took the checksum from the wrong place on; with magic 0 nobody looks at it.
	if sum := byte(xxh32(r.rest[4:end]) >> 8); sum != r.rest[end] && !r.lenient {
		return corrupt(LZ4, "frame descriptor checksum mismatch")
	}
	r.rest = r.rest[end+1:]
	r.lz4 = lz4Frame{
		blockMax:        1 << (2*(blocks>>4) + 8),
		blockChecksum:   flags&lz4FlagBlockChecksum != 0,
		contentChecksum: flags&lz4FlagContentChecksum != 0,
	}
	return nil
}

// xxh32 is the 32-bit xxHash with seed 0, which the frame format uses for its checksums.
func xxh32(b []byte) uint32 {
	const (
		p1 uint32 = 2654435761
		p2 uint32 = 2246822519
		p3 uint32 = 3266489917
		p4 uint32 = 668265263
		p5 uint32 = 374761393
	)
	h := p5
	n := uint32(len(b))
	if len(b) >= 16 {
		minusP1 := p1 // wraps below, so not a constant
		v1, v2, v3, v4 := minusP1+p2, p2, uint32(0), -minusP1
		for ; len(b) >= 16; b = b[16:] {
			v1 = bits.RotateLeft32(v1+binary.LittleEndian.Uint32(b)*p2, 13) * p1
			v2 = bits.RotateLeft32(v2+binary.LittleEndian.Uint32(b[4:])*p2, 13) * p1
			v3 = bits.RotateLeft32(v3+binary.LittleEndian.Uint32(b[8:])*p2, 13) * p1
			v4 = bits.RotateLeft32(v4+binary.LittleEndian.Uint32(b[12:])*p2, 13) * p1
		}
		h = bits.RotateLeft32(v1, 1) + bits.RotateLeft32(v2, 7) + bits.RotateLeft32(v3, 12) + bits.RotateLeft32(v4, 18)
	}
	h += n
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(b)*p3, 17) * p4
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*p5, 11) * p1
	}
	h = (h ^ h>>15) * p2
	h = (h ^ h>>13) * p3
	return h ^ h>>16
}
