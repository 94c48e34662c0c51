package record

import (
	"encoding/binary"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

// ControlType is the type in a control record's key.
type ControlType int16

// The control record types.
const (
	UnknownControl ControlType = -1
	Abort          ControlType = 0
	Commit         ControlType = 1
	LeaderChange   ControlType = 2
	SnapshotHeader ControlType = 3
	SnapshotFooter ControlType = 4
	KRaftVersion   ControlType = 5
	KRaftVoters    ControlType = 6
)

var controlNames = [...]string{"ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS"}

// String is the type's name as Kafka's tools print it.
func (t ControlType) String() string {
	if t < 0 || int(t) >= len(controlNames) {
		return "UNKNOWN"
	}
	return controlNames[t]
}

// controlKeySize is that of a control record's key: version and type.
const controlKeySize = 4

// Key is the key of a control record of this type. Values are package schema's but for the transaction markers'.
func (t ControlType) Key() []byte { return []byte{0, 0, byte(t >> 8), byte(t)} }

// ParseControlKey reads a control record's key. A type that is not known is UnknownControl and no error; so is a key that is
// longer, or of a newer version.
func ParseControlKey(key []byte) (ControlType, error) {
	if len(key) < controlKeySize {
		return UnknownControl, kerr.InvalidRecord.With("Invalid value size found for control record key. Must have at least %d bytes, but found only %d", controlKeySize, len(key))
	}
	if version := int16(binary.BigEndian.Uint16(key)); version < 0 {
		return UnknownControl, kerr.InvalidRecord.With("Invalid version found for control record: %d. May indicate data corruption", version)
	}
	t := ControlType(binary.BigEndian.Uint16(key[2:]))
	if t < 0 || int(t) >= len(controlNames) {
		t = UnknownControl
	}
	return t, nil
}

// Marker is the content of a transaction marker.
type Marker struct {
	Type             ControlType // Abort or Commit
	CoordinatorEpoch int32
}

// markerSize is that of a marker's value: version and coordinator epoch.
const markerSize = 6

// Value is the value of the marker's control record.
func (m Marker) Value() []byte {
	return binary.BigEndian.AppendUint32([]byte{0, 0}, uint32(m.CoordinatorEpoch))
}

// ParseMarker reads a transaction marker out of a control record's key and value.
func ParseMarker(key, value []byte) (Marker, error) {
	t, err := ParseControlKey(key)
	if err != nil {
		return Marker{Type: UnknownControl}, err
	}
	if t != Abort && t != Commit {
		return Marker{Type: t}, kerr.InvalidRecord.With("Invalid control record type for end transaction marker %s", t)
	}
	if len(value) < markerSize {
		return Marker{Type: t}, kerr.InvalidRecord.With("Invalid value size found for end transaction marker. Must have at least %d bytes, but found only %d", markerSize, len(value))
	}
	if version := int16(binary.BigEndian.Uint16(value)); version < 0 {
		return Marker{Type: t}, kerr.InvalidRecord.With("Invalid version found for end transaction marker: %d. May indicate data corruption", version)
	}
	return Marker{Type: t, CoordinatorEpoch: int32(binary.BigEndian.Uint32(value[2:]))}, nil
}

// MarkerBatch is the control batch that ends a producer's transaction in a partition, uncompressed, at offset base.
func MarkerBatch(base kafka.Offset, epoch kafka.LeaderEpoch, timestamp int64, producer kafka.ProducerID, producerEpoch kafka.ProducerEpoch, m Marker) Batch {
	o := DefaultBatchOptions(base)
	o.LeaderEpoch, o.ProducerID, o.ProducerEpoch = epoch, producer, producerEpoch
	o.Transactional, o.Control = true, true
	b := NewBuilder(o)
	b.Append(timestamp, m.Type.Key(), m.Value())
	batch, _ := b.Build() // one small record cannot fail
	return batch
}
