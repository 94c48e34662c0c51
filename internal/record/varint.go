package record

// The variable-length integers of records: zigzag, seven bits a byte, low bits first. As in Java's decoder, needless bytes are
// fine, the bits that don't fit are dropped, and a varint may have five bytes, a varlong ten. All return the index after the
// number, or -1 if b ends within it, or -2 if it has too many bytes.

const (
	varintCut  = -1
	varintLong = -2
)

// readVarint is small enough to be inlined; most numbers have one byte.
func readVarint(b []byte, i int) (int32, int) {
	if uint(i) < uint(len(b)) && b[i] < 0x80 {
		return int32(b[i]>>1) ^ -int32(b[i]&1), i + 1
	}
	return readVarintSlow(b, i)
}

func readVarintSlow(b []byte, i int) (int32, int) {
	if i+1 < len(b) && b[i+1] < 0x80 {
		v := uint32(b[i]&0x7f) | uint32(b[i+1])<<7
		return int32(v>>1) ^ -int32(v&1), i + 2
	}
	var v uint32
	for shift := 0; shift < 35; shift += 7 {
		if i >= len(b) {
			return 0, varintCut
		}
		c := b[i]
		i++
		v |= uint32(c&0x7f) << shift
		if c < 0x80 {
			return int32(v>>1) ^ -int32(v&1), i
		}
	}
	return 0, varintLong
}

func readVarlong(b []byte, i int) (int64, int) {
	if uint(i) < uint(len(b)) && b[i] < 0x80 {
		return int64(b[i]>>1) ^ -int64(b[i]&1), i + 1
	}
	return readVarlongSlow(b, i)
}

func readVarlongSlow(b []byte, i int) (int64, int) {
	var v uint64
	for shift := 0; shift < 70; shift += 7 {
		if i >= len(b) {
			return 0, varintCut
		}
		c := b[i]
		i++
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return int64(v>>1) ^ -int64(v&1), i
		}
	}
	return 0, varintLong
}

func appendVarint(dst []byte, v int32) []byte { return appendVarlong(dst, int64(v)) }

func appendVarlong(dst []byte, v int64) []byte {
	u := uint64(v)<<1 ^ uint64(v>>63)
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}

func sizeOfVarint(v int32) int { return sizeOfVarlong(int64(v)) }

func sizeOfVarlong(v int64) int {
	n := 1
	for u := (uint64(v)<<1 ^ uint64(v>>63)) >> 7; u > 0; u >>= 7 {
		n++
	}
	return n
}
