package cli

import "unicode/utf8"

// appendJavaString appends b as Java decodes UTF-8: what is malformed becomes U+FFFD, one for each piece that Java's decoder
// takes as a unit, which is not what Go or the Unicode standard do (a surrogate is one piece of three bytes).
func appendJavaString(dst, b []byte) []byte {
	for len(b) > 0 {
		n := 0
		for n < len(b) && b[n] < utf8.RuneSelf {
			n++
		}
		dst = append(dst, b[:n]...)
		if b = b[n:]; len(b) == 0 {
			break
		}
		if r, n := utf8.DecodeRune(b); r != utf8.RuneError || n > 1 {
			dst = append(dst, b[:n]...)
			b = b[n:]
			continue
		}
		dst = append(dst, "\uFFFD"...)
		b = b[malformed(b):]
	}
	return dst
}

// malformed is how many bytes at the front of b, which is no valid UTF-8 there, become one U+FFFD.
func malformed(b []byte) int {
	follows := func(i int) bool { return b[i]&0xc0 == 0x80 }
	switch c := b[0]; {
	case c>>4 == 0xe: // three bytes
		switch {
		case len(b) == 1, c == 0xe0 && b[1]&0xe0 == 0x80, !follows(1):
			return 1
		case len(b) == 2:
			return 2
		case !follows(2):
			return 2
		}
		return 3 // a surrogate
	case c>>3 == 0x1e: // four bytes
		switch {
		case len(b) == 1, c > 0xf4, c == 0xf0 && b[1] < 0x90, c == 0xf4 && b[1]&0xf0 != 0x80, !follows(1):
			return 1
		case len(b) == 2:
			return 2
		case !follows(2):
			return 2
		}
		return 3
	}
	return 1
}
