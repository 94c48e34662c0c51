package cli

import (
	"math/bits"
	"sort"
	"unicode/utf16"
)

// javaHash is String.hashCode.
func javaHash(s string) uint32 {
	var h uint32
	for _, u := range utf16.Encode([]rune(s)) {
		h = 31*h + uint32(u)
	}
	return h
}

// javaOrder gives keys, all different and in the order in which they were put, in the order in which a HashMap of the
// given initial capacity (0: Java's default) walks over them. Some tools of Kafka print in that order, and scripts and
// golden files hold it.
func javaOrder(keys []string, capacity int) []string {
	n := 16
	if capacity > 0 {
		n = 1
		if capacity > 1 {
			n = 1 << bits.Len(uint(capacity-1))
		}
	}
	for len(keys) > n*3/4 {
		n *= 2
	}
	bucket := func(s string) uint32 {
		h := javaHash(s)
		return (h ^ h>>16) & uint32(n-1)
	}
	out := append([]string(nil), keys...)
	sort.SliceStable(out, func(i, j int) bool { return bucket(out[i]) < bucket(out[j]) })
	return out
}
