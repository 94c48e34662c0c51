package schema

import (
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
)

// Message is a request or a response of kmsg.
type Message interface {
	Key() int16
	GetVersion() int16
	AppendTo([]byte) []byte
	ReadFrom([]byte) error
}

// AppendMessage appends the body of a request or response as Kafka encodes it at the message's version. It calls Prepare.
func AppendMessage(dst []byte, m Message) []byte {
	Prepare(m)
	n := len(dst)
	dst = m.AppendTo(dst)
	if r, ok := m.(*kmsg.StopReplicaRequest); ok && r.Version == 4 {
		swapStopReplica(dst[n:], 4)
	}
	return dst
}

// ReadRequest decodes a request's body at r's version, after CheckRequest. Strings and bytes are copies.
func ReadRequest(r kmsg.Request, body []byte) error {
	if _, err := CheckRequest(r.Key(), r.GetVersion(), body); err != nil {
		return err
	}
	return readMessage(r, body)
}

// ReadResponse decodes a response's body at r's version, after CheckResponse.
func ReadResponse(r kmsg.Response, body []byte) error {
	if _, err := CheckResponse(r.Key(), r.GetVersion(), body); err != nil {
		return err
	}
	return readMessage(r, body)
}

func readMessage(m Message, body []byte) error {
	if r, ok := m.(*kmsg.StopReplicaRequest); ok && r.Version == 4 {
		body = append([]byte(nil), body...)
		swapStopReplica(body, 1)
	}
	if err := m.ReadFrom(body); err != nil {
		return fmt.Errorf("API key %d version %d: %w", m.Key(), m.GetVersion(), err)
	}
	return nil
}

// swapStopReplica puts controllerEpoch (four bytes) and isKRaftController (one) into the other order: Kafka's has the
// flag first, kmsg's the epoch. n is the length of what stands first now.
func swapStopReplica(body []byte, n int) {
	const at, both = 4, 5 // behind controllerId
	if len(body) < at+both {
		return
	}
	var b [both]byte
	k := copy(b[:], body[at+n:at+both])
	copy(b[k:], body[at:at+n])
	copy(body[at:], b[:])
}

// Prepare resets the tagged fields that m's version lacks. kmsg writes a tagged field whenever it is not at its default,
// and Kafka refuses a whole message for a tagged field at a version without it. Everything that encodes a kmsg message
// for a peer calls it before, or AppendMessage.
func Prepare(m Message) {
	v := m.GetVersion()
	switch m := m.(type) {
	case *kmsg.ProduceResponse:
		if v >= 10 {
			return
		}
		m.Brokers = nil
		for i := range m.Topics {
			for j := range m.Topics[i].Partitions {
				m.Topics[i].Partitions[j].CurrentLeader.Default()
				m.Topics[i].Partitions[j].CurrentLeader.UnknownTags = kmsg.Tags{}
			}
		}
	case *kmsg.FetchRequest:
		if v < 15 {
			m.ReplicaState = kmsg.NewFetchRequestReplicaState()
		}
		if v >= 18 {
			return
		}
		for i := range m.Topics {
			for j := range m.Topics[i].Partitions {
				p := &m.Topics[i].Partitions[j]
				p.HighWatermark = math.MaxInt64
				if v < 17 {
					p.ReplicaDirectoryID = [16]byte{}
				}
			}
		}
	case *kmsg.FetchResponse:
		if v < 16 {
			m.Brokers = nil
		}
	case *kmsg.VoteResponse:
		if v < 1 {
			m.NodeEndpoints = nil
		}
	case *kmsg.FetchSnapshotRequest:
		if v >= 1 {
			return
		}
		for i := range m.Topics {
			for j := range m.Topics[i].Partitions {
				m.Topics[i].Partitions[j].ReplicaDirectoryID = [16]byte{}
			}
		}
	case *kmsg.FetchSnapshotResponse:
		if v < 1 {
			m.NodeEndpoints = nil
		}
	case *kmsg.BrokerHeartbeatRequest:
		if v < 1 {
			m.OfflineLogDirs = nil
		}
		if v < 2 {
			m.CordonedLogDirs = nil
		}
	case *kmsg.UpdateMetadataRequest:
		if v < 8 {
			var others kmsg.Tags
			m.UnknownTags.Each(func(tag uint32, b []byte) {
				if tag != updateMetadataType {
					others.Set(tag, b)
				}
			})
			m.UnknownTags = others
		}
	}
}

// updateMetadataType is the tag of UpdateMetadata's type, which kmsg doesn't know (3.x only).
const updateMetadataType = 0

// UpdateMetadataType is the field type of an UpdateMetadata request, version 8: 0 unknown, 1 incremental, 2 full.
func UpdateMetadataType(r *kmsg.UpdateMetadataRequest) (t int8) {
	r.UnknownTags.Each(func(tag uint32, b []byte) {
		if tag == updateMetadataType && len(b) == 1 {
			t = int8(b[0])
		}
	})
	return t
}

// InitProducerIDRequest is kmsg's with version 6 (unstable in 4.4: two-phase commit, KIP-939).
type InitProducerIDRequest struct {
	kmsg.InitProducerIDRequest
	Enable2PC       bool
	KeepPreparedTxn bool
}

// MaxVersion is 6.
func (*InitProducerIDRequest) MaxVersion() int16 { return 6 }

// ResponseKind is a response of the same version.
func (r *InitProducerIDRequest) ResponseKind() kmsg.Response {
	p := new(InitProducerIDResponse)
	p.Default()
	p.Version = r.Version
	p.OngoingTxnProducerEpoch = -1
	return p
}

// AppendTo encodes the body.
func (r *InitProducerIDRequest) AppendTo(dst []byte) []byte {
	if r.Version < 6 {
		return r.InitProducerIDRequest.AppendTo(dst)
	}
	w := writer{dst: dst}
	w.nullString(r.TransactionalID, true, true, "transactionalId")
	w.int32(r.TransactionTimeoutMillis)
	w.int64(r.ProducerID)
	w.int16(r.ProducerEpoch)
	w.bool(r.Enable2PC)
	w.bool(r.KeepPreparedTxn)
	return appendTags(w.dst, &r.UnknownTags)
}

// ReadFrom decodes the body.
func (r *InitProducerIDRequest) ReadFrom(src []byte) error {
	if r.Version < 6 {
		r.Enable2PC, r.KeepPreparedTxn = false, false
		return r.InitProducerIDRequest.ReadFrom(src)
	}
	b := Reader{src: src}
	r.TransactionalID = b.NullString(true, true)
	r.TransactionTimeoutMillis = b.Int32()
	r.ProducerID, r.ProducerEpoch = b.Int64(), b.Int16()
	r.Enable2PC, r.KeepPreparedTxn = b.Bool(), b.Bool()
	r.UnknownTags = readTags(&b)
	return b.err
}

// InitProducerIDResponse is kmsg's with version 6.
type InitProducerIDResponse struct {
	kmsg.InitProducerIDResponse
	OngoingTxnProducerID    int64
	OngoingTxnProducerEpoch kafka.ProducerEpoch
}

// MaxVersion is 6.
func (*InitProducerIDResponse) MaxVersion() int16 { return 6 }

// RequestKind is a request of the same version.
func (r *InitProducerIDResponse) RequestKind() kmsg.Request {
	q := new(InitProducerIDRequest)
	q.Default()
	q.Version = r.Version
	return q
}

// AppendTo encodes the body.
func (r *InitProducerIDResponse) AppendTo(dst []byte) []byte {
	if r.Version < 6 {
		return r.InitProducerIDResponse.AppendTo(dst)
	}
	w := writer{dst: dst}
	w.int32(r.ThrottleMillis)
	w.int16(r.ErrorCode)
	w.int64(r.ProducerID)
	w.int16(r.ProducerEpoch)
	w.int64(r.OngoingTxnProducerID)
	w.int16(r.OngoingTxnProducerEpoch)
	return appendTags(w.dst, &r.UnknownTags)
}

// ReadFrom decodes the body.
func (r *InitProducerIDResponse) ReadFrom(src []byte) error {
	if r.Version < 6 {
		r.OngoingTxnProducerID, r.OngoingTxnProducerEpoch = 0, -1
		return r.InitProducerIDResponse.ReadFrom(src)
	}
	b := Reader{src: src}
	r.ThrottleMillis, r.ErrorCode = b.Int32(), b.Int16()
	r.ProducerID, r.ProducerEpoch = b.Int64(), b.Int16()
	r.OngoingTxnProducerID, r.OngoingTxnProducerEpoch = b.Int64(), b.Int16()
	r.UnknownTags = readTags(&b)
	return b.err
}

func appendTags(dst []byte, t *kmsg.Tags) []byte {
	return t.AppendEach(appendUvarint(dst, uint32(t.Len())))
}

func readTags(b *Reader) (t kmsg.Tags) {
	for _, raw := range b.tags(nil) {
		t.Set(raw.Tag, raw.Data)
	}
	return t
}

// RequestForKey is an empty request of an API at a version; nil if Kafka 4.4 has no such API or version.
func RequestForKey(key, version int16) kmsg.Request {
	a := LookupAPI(key)
	if a == nil || version < a.Min || version > a.MaxUnstable {
		return nil
	}
	var r kmsg.Request
	if key == initProducerID {
		r = new(InitProducerIDRequest)
		r.(*InitProducerIDRequest).Default()
	} else {
		r = kmsg.RequestForKey(key)
	}
	r.SetVersion(version)
	return r
}

const initProducerID = 22
