package server

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/highwater/highwater/internal/rpc"
)

// header is a request header as it lies in a frame.
type header struct {
	key, version  int16
	correlationID int32
	clientID      []byte // of the frame; nil for null
	body          []byte
}

var (
	errShortHeader = errors.New("the request ends within its header")
	errManyTags    = errors.New("more than 10000 tagged fields in the request header")
	errVarint      = errors.New("a varint in the request header is too long")
)

// maxTags is Kafka's bound on tagged fields.
const maxTags = 10000

// parseFixed reads key, version and correlation id.
func (h *header) parseFixed(frame []byte) error {
	if len(frame) < 8 {
		return errShortHeader
	}
	h.key = int16(binary.BigEndian.Uint16(frame))
	h.version = int16(binary.BigEndian.Uint16(frame[2:]))
	h.correlationID = int32(binary.BigEndian.Uint32(frame[4:]))
	return nil
}

// parseRest reads client id and, in header version 2, the tagged fields, which mean nothing yet. The client id keeps its
// two-byte length in both versions.
func (h *header) parseRest(frame []byte, flexible bool) error {
	b := frame[8:]
	if len(b) < 2 {
		return errShortHeader
	}
	n := int(int16(binary.BigEndian.Uint16(b)))
	b = b[2:]
	h.clientID = nil
	if n >= 0 { // Kafka takes every negative length for null
		if n > len(b) {
			return errShortHeader
		}
		h.clientID, b = b[:n:n], b[n:]
	}
	if flexible {
		var err error
		if b, err = skipTags(b); err != nil {
			return err
		}
	}
	h.body = b
	return nil
}

func skipTags(b []byte) ([]byte, error) {
	n, b, err := uvarint(b)
	if err != nil {
		return nil, err
	}
	if n > maxTags {
		return nil, errManyTags
	}
	for ; n > 0; n-- {
		var size uint32
		if _, b, err = uvarint(b); err != nil {
			return nil, err
		}
		if size, b, err = uvarint(b); err != nil {
			return nil, err
		}
		if uint64(size) > uint64(len(b)) {
			return nil, errShortHeader
		}
		b = b[size:]
	}
	return b, nil
}

// uvarint reads an unsigned varint of at most five bytes; like Kafka's it drops what overflows 32 bits.
func uvarint(b []byte) (uint32, []byte, error) {
	var v uint32
	for i := 0; i < 5; i++ {
		if i == len(b) {
			return 0, nil, errShortHeader
		}
		c := b[i]
		v |= uint32(c&0x7f) << (7 * i)
		if c < 0x80 {
			return v, b[i+1:], nil
		}
	}
	return 0, nil, errVarint
}

// checkSize is Kafka's check of the four bytes before a frame, made before anything is allocated for it.
func checkSize(size int32, max int32) error {
	switch {
	case size < 0:
		return fmt.Errorf("invalid receive (size = %d)", size)
	case size > max:
		return fmt.Errorf("invalid receive (size = %d larger than %d)", size, max)
	}
	return nil
}

// route finds the API of a request. Kafka closes a connection that asks for what is not served on its listener; only
// ApiVersions may come in any version, so that a newer client gets an answer from which it learns (KIP-511).
func route(t *rpc.Table, h *header) (*rpc.API, error) {
	a := t.Lookup(h.key)
	if a == nil {
		return nil, fmt.Errorf("received request api key %d which is not enabled", h.key)
	}
	if (h.version < a.Min || h.version > a.Max) && h.key != apiVersionsKey {
		return nil, fmt.Errorf("received request for api %s with version %d which is not supported", a.Name, h.version)
	}
	return a, nil
}

const apiVersionsKey = 18
