package record

import "hash/crc32"

// A batch whose timestamp type and maximum change under the partition's lock needs a new CRC, but its records didn't change. The
// CRC of two joined pieces follows from theirs, in constant time once the power of x that stands for the second's length is known:
// crc(A+B) = crc(A)*x^(8*len(B)) + crc(B), in the polynomials over GF(2) modulo Castagnoli's.

// multiplyCRC multiplies two polynomials modulo Castagnoli's, bits reflected: the highest bit is x^0.
func multiplyCRC(a, b uint32) uint32 {
	var p uint32
	for m := uint32(1) << 31; ; m >>= 1 {
		if a&m != 0 {
			p ^= b
			if a&(m-1) == 0 {
				return p
			}
		}
		if m == 1 {
			return p
		}
		b = b>>1 ^ crc32.Castagnoli&-(b&1)
	}
}

// crcPowers are x^(2^n).
var crcPowers = func() (t [40]uint32) {
	t[0] = 1 << 30
	for i := 1; i < len(t); i++ {
		t[i] = multiplyCRC(t[i-1], t[i-1])
	}
	return t
}()

// shiftCRC is x^(8*n).
func shiftCRC(n int) uint32 {
	p := uint32(1) << 31
	for k := 3; n > 0; k, n = k+1, n>>1 {
		if n&1 != 0 {
			p = multiplyCRC(crcPowers[k], p)
		}
	}
	return p
}

// joinCRC is the CRC of two pieces with the CRCs a and b; shift is shiftCRC of the second's length.
func joinCRC(a, b, shift uint32) uint32 { return multiplyCRC(shift, a) ^ b }
