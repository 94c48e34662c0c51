package record

import "github.com/highwater/highwater/internal/kafka"

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

// Key is the key of a control record of this type. Values are package schema's but for the transaction markers'.
func (t ControlType) Key() []byte { panic("building") }

// ParseControlKey reads a control record's key. A type that is not known is UnknownControl and no error.
func ParseControlKey(key []byte) (ControlType, error) { panic("building") }

// Marker is the content of a transaction marker.
type Marker struct {
	Type             ControlType // Abort or Commit
	CoordinatorEpoch int32
}

// ParseMarker reads a transaction marker out of a control record's key and value.
func ParseMarker(key, value []byte) (Marker, error) { panic("building") }

// MarkerBatch is the control batch that ends a producer's transaction in a partition, uncompressed, at offset base.
func MarkerBatch(base kafka.Offset, epoch kafka.LeaderEpoch, timestamp int64, producer kafka.ProducerID, producerEpoch kafka.ProducerEpoch, m Marker) Batch {
	panic("building")
}
