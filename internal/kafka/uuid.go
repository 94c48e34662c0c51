package kafka

import (
	"bytes"
	"encoding/base64"
	"fmt"
)

// UUID is Kafka's 128-bit id: of topics, directories, incarnations. Its text form is base64url without padding, 22
// characters.
type UUID [16]byte

// TopicID names one incarnation of a topic; a topic that is deleted and created again gets another.
type TopicID = UUID

// DirectoryID names one log directory of one node, for ever (meta.properties, directory.id; KIP-858).
type DirectoryID = UUID

// The reserved ids. Kafka keeps the first hundred for itself.
var (
	ZeroUUID       = UUID{}
	MetadataTopic  = UUID{15: 1} // the topic id of __cluster_metadata
	DirMigrating   = UUID{}      // replica's directory unknown since it came from ZooKeeper
	DirUnassigned  = UUID{15: 1} // replica's directory not yet reported
	DirLost        = UUID{15: 2} // replica's directory is offline
	uuidEncoding   = base64.RawURLEncoding
	errUUIDMessage = "22 characters of base64url"
)

// ParseUUID reads the base64url form, padded or not.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	if len(s) > 24 {
		return u, fmt.Errorf("input string with prefix `%s` is too long to be decoded as a base64 UUID", s[:24])
	}
	for len(s) > 0 && s[len(s)-1] == '=' {
		s = s[:len(s)-1]
	}
	b, err := uuidEncoding.DecodeString(s)
	if err != nil || len(b) != len(u) {
		return u, fmt.Errorf("parse uuid %q: want %s", s, errUUIDMessage)
	}
	copy(u[:], b)
	return u, nil
}

// String is the base64url form, 22 characters.
func (u UUID) String() string { return uuidEncoding.EncodeToString(u[:]) }

// IsZero tells whether u is the zero id, which stands for "none" on the wire.
func (u UUID) IsZero() bool { return u == ZeroUUID }

// IsReserved tells whether u is one of the hundred ids that Kafka never gives to a topic or directory.
func (u UUID) IsReserved() bool {
	for _, b := range u[:15] {
		if b != 0 {
			return false
		}
	}
	return u[15] < 100
}

// Compare orders ids by their bytes: -1, 0 or 1.
func (u UUID) Compare(v UUID) int { return bytes.Compare(u[:], v[:]) }

// RandomUUID makes a version-4 id out of 16 random bytes, as Kafka does: never reserved, and never beginning with a dash
// when printed, so that it can be an argument of a command line. ok is false if these bytes must be drawn again.
func RandomUUID(random [16]byte) (u UUID, ok bool) {
	u = random
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	return u, !u.IsReserved() && u.String()[0] != '-'
}
