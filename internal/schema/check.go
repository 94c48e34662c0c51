package schema

import "fmt"

// shape is a request or response as Check sees it: what may stand where, without names and meaning.
type shape struct {
	lo, hi   int16
	flexible int16
	fields   []shapeField
}

type shapeField struct {
	kind           kind
	array          bool
	null           bool
	tagged         bool
	lo, hi         int16 // versions that have it
	nullLo, nullHi int16
	tagLo, tagHi   int16
	tag            uint32
	size           int // about what one decoded element takes in memory
	sub            []shapeField
}

type kind uint8

const (
	fixed1 kind = iota
	fixed2
	fixed4
	fixed8
	fixed16
	text
	blob
	group
)

// CheckRequest walks a request's body, without decoding it, and refuses what Kafka's decoder refuses and kmsg takes, and
// every count that the bytes left cannot hold: null where it is not allowed, strings above 32,767 bytes, arrays above a
// million elements, more than ten thousand tagged fields, a tagged field at a version without it, a body that ends too
// early. cost is about how many bytes of memory kmsg will take for the body: up to twenty times its size, so a server
// that bounds memory counts cost and not the frame.
func CheckRequest(key, version int16, body []byte) (cost int, err error) {
	return check(requestShapes[:], key, version, body, "request")
}

// CheckResponse does the same for a response's body.
func CheckResponse(key, version int16, body []byte) (cost int, err error) {
	return check(responseShapes[:], key, version, body, "response")
}

func check(shapes []*shape, key, version int16, body []byte, what string) (int, error) {
	if key < 0 || int(key) >= len(shapes) || shapes[key] == nil {
		return 0, fmt.Errorf("unknown API key %d", key)
	}
	s := shapes[key]
	if version < s.lo || version > s.hi {
		return 0, fmt.Errorf("%s %s has no version %d", APIs[key].Name, what, version)
	}
	c := checker{r: Reader{src: body, strict: true}, version: version, flexible: s.flexible >= 0 && version >= s.flexible, cost: len(body)}
	c.fields(s.fields)
	if c.r.err != nil {
		return c.cost, fmt.Errorf("%s %s version %d: %w", APIs[key].Name, what, version, c.r.err)
	}
	return c.cost, nil
}

type checker struct {
	r        Reader
	version  int16
	flexible bool
	cost     int
}

func (c *checker) fields(fields []shapeField) {
	for i := range fields {
		f := &fields[i]
		if c.version < f.lo || c.version > f.hi || f.tagged && c.version >= f.tagLo && c.version <= f.tagHi {
			continue
		}
		c.value(f, c.flexible, false)
	}
	if c.flexible && c.r.err == nil {
		c.tags(fields)
	}
}

// tagCost is what an unknown tagged field costs in kmsg: an entry of a map.
const tagCost = 100

func (c *checker) tags(fields []shapeField) {
	n := c.r.Uvarint()
	if n > maxTags {
		c.r.fail(fmt.Errorf("%d tagged fields are too many", n))
		return
	}
next:
	for ; n > 0 && c.r.err == nil; n-- {
		tag, size := c.r.Uvarint(), c.r.Uvarint()
		if c.r.err != nil {
			return
		}
		if uint64(size) > uint64(len(c.r.src)) {
			c.r.fail(ErrTruncated)
			return
		}
		for i := range fields {
			f := &fields[i]
			if !f.tagged || f.tag != tag {
				continue
			}
			if c.version < f.tagLo || c.version > f.tagHi {
				c.r.badTag(tag, c.version)
				return
			}
			// Kafka ignores the declared size of a known tag; kmsg reads within it. Who sends another size than the
			// value has is refused here, before the two could see different messages.
			before := len(c.r.src)
			c.value(f, true, true)
			if c.r.err == nil && before-len(c.r.src) != int(size) {
				c.r.fail(fmt.Errorf("tag %d has %d bytes and declares %d", tag, before-len(c.r.src), size))
			}
			continue next
		}
		c.r.take(int(size))
		c.cost += tagCost
	}
}

func (c *checker) value(f *shapeField, flexible, tagged bool) {
	nullable := f.null && c.version >= f.nullLo && c.version <= f.nullHi
	if !f.array {
		if f.kind == group {
			if nullable && !c.r.Present(tagged) {
				return
			}
			c.fields(f.sub)
			return
		}
		c.scalar(f.kind, flexible, nullable)
		return
	}
	n := c.r.ArrayLen(flexible, nullable, 1)
	if n <= 0 {
		return
	}
	c.cost += n * f.size
	switch f.kind {
	case group:
		for ; n > 0 && c.r.err == nil; n-- {
			c.fields(f.sub)
		}
	case text, blob:
		for ; n > 0 && c.r.err == nil; n-- {
			c.scalar(f.kind, flexible, false)
		}
	default:
		c.r.take(n * widths[f.kind])
	}
}

var widths = [...]int{fixed1: 1, fixed2: 2, fixed4: 4, fixed8: 8, fixed16: 16}

func (c *checker) scalar(k kind, flexible, nullable bool) {
	switch k {
	case text:
		n := c.size(flexible, true)
		switch {
		case c.r.err != nil:
		case n > maxString:
			c.r.fail(fmt.Errorf("string of %d bytes is too long", n))
		case n >= 0:
			c.r.take(n)
		case !nullable:
			c.r.fail(fmt.Errorf("null string where it is not allowed"))
		}
	case blob:
		n := c.size(flexible, false)
		switch {
		case c.r.err != nil:
		case n >= 0:
			c.r.take(n)
		case !nullable:
			c.r.fail(fmt.Errorf("null bytes where they are not allowed"))
		}
	default:
		c.r.take(widths[k])
	}
}

// size is the length of a string or of bytes.
func (c *checker) size(flexible, short bool) int {
	n := c.r.length(flexible, short)
	if flexible && n < -1 {
		c.r.fail(fmt.Errorf("length %d is too large", uint32(n+1)))
	}
	return n
}
