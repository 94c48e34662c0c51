package codec

import (
	"encoding/binary"
	"io"

	"github.com/klauspost/compress/s2"
)

// The framing of xerial's snappy-java: a header of 16 bytes, then chunks of a big-endian length and a snappy block. The
// header may come again, where streams were joined. Data without the header is a single block.
const (
	xerialMagic      = "\x82SNAPPY\x00"
	xerialHeaderSize = 16
	xerialChunk      = 32 << 10 // what Java's client puts into a block

	// snappyRatio bounds what a block can expand to: its densest element makes 64 bytes of 3.
	snappyRatio = 22
)

func snappyCompress(dst, src []byte) []byte {
	dst = append(dst, xerialMagic...)
	dst = append(dst, 0, 0, 0, 1, 0, 0, 0, 1) // version, compatible from
	for len(src) > 0 {
		chunk := src[:min(len(src), xerialChunk)]
		src = src[len(chunk):]
		at := len(dst)
		dst = grow(dst, 4+s2.MaxEncodedLen(len(chunk)))
		block := s2.EncodeSnappy(dst[at+4:cap(dst)], chunk)
		dst = dst[:at+4+len(block)]
		binary.BigEndian.PutUint32(dst[at:], uint32(len(block)))
	}
	return dst
}

func (r *Reader) moreSnappy(dst []byte) ([]byte, error) {
	if !r.begun {
		r.begun = true
		if len(r.rest) == 0 {
			return dst, corrupt(Snappy, "empty stream")
		}
		if len(r.rest) < xerialHeaderSize || string(r.rest[:len(xerialMagic)]) != xerialMagic {
			dst, err := snappyBlock(dst, r.rest)
			if err == nil {
				err = io.EOF
			}
			return dst, err
		}
		// Java reads any version.
		r.rest = r.rest[xerialHeaderSize:]
	}
	if len(r.rest) < 4 {
		return dst, io.EOF // up to three bytes more are no error for Java's reader
	}
	size := binary.BigEndian.Uint32(r.rest)
	if size == binary.BigEndian.Uint32([]byte(xerialMagic)) {
		if len(r.rest) < xerialHeaderSize {
			return dst, corrupt(Snappy, "header cut short")
		}
		r.rest = r.rest[xerialHeaderSize:]
		return dst, nil
	}
	if uint64(size) > uint64(len(r.rest)-4) {
		return dst, corrupt(Snappy, "chunk of %d bytes where %d are left", size, len(r.rest)-4)
	}
	block := r.rest[4 : 4+size]
	r.rest = r.rest[4+size:]
	return snappyBlock(dst, block)
}

func snappyBlock(dst, block []byte) ([]byte, error) {
	n, err := s2.DecodedLen(block)
	if err != nil {
		return dst, corrupt(Snappy, "%v", err)
	}
	if n > snappyRatio*len(block) {
		return dst, corrupt(Snappy, "block of %d bytes claims %d", len(block), n)
	}
	if !snappyStrict(block) {
		return dst, corrupt(Snappy, "copy of offset 0")
	}
	dst = grow(dst, n)
	out, err := s2.Decode(dst[len(dst):len(dst)+n], block)
	if err != nil {
		return dst, corrupt(Snappy, "%v", err)
	}
	return dst[:len(dst)+len(out)], nil
}

// snappyStrict tells whether no copy has the offset 0, with which S2, an extension of snappy that our decoder speaks too, repeats
// the last offset. Java's decoder refuses it, so such a batch must not get into a log. Other faults are the decoder's to find.
func snappyStrict(block []byte) bool {
	_, i := binary.Uvarint(block)
	if i <= 0 {
		return true
	}
	for i < len(block) {
		tag := block[i]
		switch tag & 3 {
		case 0:
			n := int(tag >> 2)
			i++
			if n >= 60 {
				extra := n - 59
				if i+extra > len(block) {
					return true
				}
				n = 0
				for k := extra - 1; k >= 0; k-- {
					n = n<<8 | int(block[i+k])
				}
				i += extra
			}
			i += n + 1
		case 1:
			if i+1 >= len(block) {
				return true
			}
			if tag>>5 == 0 && block[i+1] == 0 {
				return false
			}
			i += 2
		case 2:
			if i+2 >= len(block) {
				return true
			}
			if block[i+1]|block[i+2] == 0 {
				return false
			}
			i += 3
		default:
			if i+4 >= len(block) {
				return true
			}
			if block[i+1]|block[i+2]|block[i+3]|block[i+4] == 0 {
				return false
			}
			i += 5
		}
	}
	return true
}
