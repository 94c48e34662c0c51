package storage

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/highwater/highwater/internal/kafka"
)

// offsetMap knows the newest offset of each key in a dirty section. Keys aren't kept, only their hashes of 16 bytes: an entry has
// 24 bytes, as in Kafka's, so that a buffer holds as many keys. Kafka hashes with MD5, of which anybody can make two keys with the
// same hash, and so a record vanish; SipHash with a key of this process's own is faster, too.
//
// It is an open hash table with linear probing, since one cache line after the other is read faster than lines apart.
type offsetMap struct {
	key     [2]uint64
	slots   []mapSlot
	sizes   []int // of the tables that come when this one is half full
	entries int
	limit   int // of entries
	// latest is the last offset that the map covers: records beyond it stay.
	latest kafka.Offset
}

type mapSlot struct {
	h1, h2 uint64
	next   int64 // the offset + 1; 0 for an empty slot
}

// mapSlotSize is what an entry takes of log.cleaner.dedupe.buffer.size.
const mapSlotSize = 24

// mapSlots is how many entries a buffer of so many bytes has room for. As in Kafka no thread uses more than 2 GiB.
func mapSlots(bytes int64) int { return int(min(bytes, math.MaxInt32) / mapSlotSize) }

// smallMap is the size in slots of the first table: 400 KB. A table as large as there are records, of which there are many more than keys, would
// be read from memory at each look; one that grows is mostly in a core's cache.
const smallMap = 1 << 14

// reset empties the map. It will get n keys at most and never more than limit; slots is what the buffer has room for, which old and
// new table together stay below while it grows.
func (m *offsetMap) reset(n int64, slots, limit int) {
	m.entries, m.limit, m.latest = 0, min(limit, slots), -1
	last := slots
	if n < int64(slots)/2 {
		last = int(2*n) + 1 // half full is fast
	}
	m.sizes = m.sizes[:0]
	for size := smallMap; size < last; {
		next := min(2*size, last)
		if size > 64*smallMap {
			next = min(4*size, last) // less is thrown away
		}
		if size+next > slots {
			break
		}
		m.sizes = append(m.sizes, size)
		size = next
	}
	m.sizes = append(m.sizes, last)
	m.take()
}

// take makes an empty table of the next size.
func (m *offsetMap) take() {
	n := m.sizes[0]
	m.sizes = m.sizes[1:]
	if cap(m.slots) < n || cap(m.slots) > 2*n && cap(m.slots) > 2*smallMap {
		m.slots = make([]mapSlot, n)
		return
	}
	m.slots = m.slots[:n]
	clear(m.slots)
}

// grow moves what is there into a larger table.
func (m *offsetMap) grow() {
	old := m.slots
	m.slots = nil
	m.take()
	for i := range old {
		if s := &old[i]; s.next != 0 {
			*m.find(s.h1, s.h2) = *s
		}
	}
}

// put notes that offset is the newest of key. It returns false, and changes nothing, if there is no room for another key.
// Kafka asks for room before it looks whether the key is there already; so does this, to stop at the same record.
func (m *offsetMap) put(key []byte, offset kafka.Offset) bool {
	if m.entries >= m.limit {
		return false
	}
	h1, h2 := sipHash(m.key, key)
	s := m.find(h1, h2)
	if s == nil {
		return false
	}
	if s.next == 0 {
		if len(m.sizes) > 0 && m.entries >= len(m.slots)/8*5 {
			m.grow()
			s = m.find(h1, h2)
		}
		s.h1, s.h2 = h1, h2
		m.entries++
	}
	s.next = offset + 1
	m.latest = offset
	return true
}

// get is the newest offset of key, -1 if it isn't there.
func (m *offsetMap) get(key []byte) kafka.Offset {
	if m.entries == 0 {
		return -1
	}
	h1, h2 := sipHash(m.key, key)
	if s := m.find(h1, h2); s != nil {
		return s.next - 1
	}
	return -1
}

// find is the slot of a key with this hash, or the empty one where it belongs; nil if all are taken by others.
func (m *offsetMap) find(h1, h2 uint64) *mapSlot {
	from, _ := bits.Mul64(h1, uint64(len(m.slots)))
	for _, part := range [2][]mapSlot{m.slots[from:], m.slots[:from]} {
		for i := range part {
			if s := &part[i]; s.next == 0 || s.h1 == h1 && s.h2 == h2 {
				return s
			}
		}
	}
	return nil
}

// utilization is how much of the room that the buffer has is used.
func (m *offsetMap) utilization(slots int) float64 { return float64(m.entries) / float64(slots) }

// sipHash is SipHash-2-4 with 128 bits.
func sipHash(key [2]uint64, p []byte) (h1, h2 uint64) {
	v0, v1 := key[0]^0x736f6d6570736575, key[1]^0x646f72616e646f6d^0xee
	v2, v3 := key[0]^0x6c7967656e657261, key[1]^0x7465646279746573
	last := uint64(len(p)) << 56
	for ; len(p) >= 8; p = p[8:] {
		m := binary.LittleEndian.Uint64(p)
		v3 ^= m
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		v0 ^= m
	}
	for i, c := range p {
		last |= uint64(c) << (8 * i)
	}
	v3 ^= last
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0 ^= last
	v2 ^= 0xee
	for range 4 {
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	}
	h1 = v0 ^ v1 ^ v2 ^ v3
	v1 ^= 0xdd
	for range 4 {
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	}
	return h1, v0 ^ v1 ^ v2 ^ v3
}

func sipRound(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
	v0 += v1
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v3
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 += v3
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 += v1
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}
