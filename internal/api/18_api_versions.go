package api

// ApiVersions (18), versions 0-5. KIP-35; KIP-511 (client software, version fallback), KIP-584 (features), v5: the
// cluster and node that the client means to talk to.
//
// It is the first request on a connection and must be answered whatever its version: one that we don't know gets the
// answer of version 0 with UNSUPPORTED_VERSION and the one row that the client needs to try again.

import (
	"encoding/binary"
	"errors"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/rpc"
)

// APIVersions answers ApiVersions on one kind of listener.
type APIVersions struct {
	// Table is what is advertised: the table that this handler stands in. Set it before the first request.
	Table *rpc.Table
	// ClusterID and NodeID are compared with what a client of version 5 means to talk to. Kafka's controllers don't
	// compare them.
	ClusterID string
	NodeID    kafka.BrokerID
	Compare   bool
	// Features tells what this node supports and the cluster has finalized. It is called for each request of version 3 up.
	Features func() Features
}

// Features are the feature levels as ApiVersions tells them, in the order in which they are to be written: Kafka's is
// that of a hash map and means nothing.
type Features struct {
	Supported []SupportedFeature
	Finalized []FinalizedFeature
	Epoch     int64 // offset of the metadata that Finalized is from; -1 = not known, then Finalized is not told
}

// SupportedFeature is a feature with the levels that this node can work with.
type SupportedFeature struct {
	Name     string
	Min, Max int16
}

// FinalizedFeature is a feature with the level that the cluster works with.
type FinalizedFeature struct {
	Name  string
	Level int16
}

var errAPIVersions = errors.New("cannot decode ApiVersions")

// Handle is the rpc.Handler.
func (a *APIVersions) Handle(r *rpc.Request) *rpc.Pending {
	own := a.Table.Lookup(18)
	if r.Version < own.Min || r.Version > own.Max {
		b := binary.BigEndian.AppendUint16(r.Response.Buf, uint16(kerr.UnsupportedVersion.Code))
		b = binary.BigEndian.AppendUint32(b, 1)
		r.Response.Buf = appendAPI(b, own)
		return nil
	}
	err := a.check(r)
	if errors.Is(err, errAPIVersions) {
		r.Response.Fail = err
		return nil
	}
	a.answer(r, kerr.Code(err))
	return nil
}

// check reads the request and tells what is wrong with it.
func (a *APIVersions) check(r *rpc.Request) error {
	if r.Version < 3 {
		return nil
	}
	d := decoder{src: r.Body}
	software, version := d.compactBytes(false), d.compactBytes(false)
	var cluster []byte
	node := int32(-1)
	if r.Version >= 5 {
		cluster = d.compactBytes(true)
		node = d.int32()
	}
	d.skipTags()
	if d.failed {
		return errAPIVersions
	}
	if !softwareName(software) || !softwareName(version) || (cluster == nil) != (node == -1) {
		return kerr.InvalidRequest
	}
	if a.Compare && cluster != nil && (string(cluster) != a.ClusterID || node != int32(a.NodeID)) {
		return kerr.RebootstrapRequired
	}
	if r.Conn.Software != string(software) || r.Conn.SoftwareVersion != string(version) {
		r.Conn.Software, r.Conn.SoftwareVersion = string(software), string(version)
	}
	return nil
}

// softwareName is KIP-511's rule for name and version of a client: letters, digits, dots and dashes, the latter two
// neither first nor last.
func softwareName(s []byte) bool {
	for i, c := range s {
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9':
		case (c == '-' || c == '.') && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return len(s) > 0
}

func (a *APIVersions) answer(r *rpc.Request, code int16) {
	flexible := r.Version >= 3
	b := binary.BigEndian.AppendUint16(r.Response.Buf, uint16(code))
	n := 0
	if code == 0 {
		for _, row := range a.Table.APIs {
			if row != nil {
				n++
			}
		}
	}
	if flexible {
		b = appendUvarint(b, uint32(n+1))
	} else {
		b = binary.BigEndian.AppendUint32(b, uint32(n))
	}
	if n > 0 {
		for _, row := range a.Table.APIs {
			if row == nil {
				continue
			}
			b = appendAPI(b, row)
			if flexible {
				b = append(b, 0)
			}
		}
	}
	if r.Version >= 1 {
		b = binary.BigEndian.AppendUint32(b, 0) // throttle time
	}
	if flexible {
		var f Features
		if code == 0 && a.Features != nil {
			f = a.Features()
		} else {
			f.Epoch = -1
		}
		b = f.appendTags(b, r.Version)
	}
	r.Response.Buf = b
}

func appendAPI(b []byte, row *rpc.API) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(row.Key))
	b = binary.BigEndian.AppendUint16(b, uint16(row.Advertised))
	return binary.BigEndian.AppendUint16(b, uint16(row.Max))
}

// appendTags writes the tagged fields. Clients below version 4 cannot read a lowest level of 0, so they aren't told of
// such features at all (KAFKA-17011).
func (f *Features) appendTags(b []byte, version int16) []byte {
	shown := func(s *SupportedFeature) bool { return version >= 4 || s.Min > 0 }
	supported, size := 0, 0
	for i := range f.Supported {
		if s := &f.Supported[i]; shown(s) {
			supported++
			size += compactLen(len(s.Name)) + 2 + 2 + 1
		}
	}
	size += uvarintLen(uint32(supported + 1))
	tags := uint32(0)
	if supported > 0 {
		tags++
	}
	if f.Epoch != -1 {
		tags++
		if len(f.Finalized) > 0 {
			tags++
		}
	}
	b = appendUvarint(b, tags)
	if supported > 0 {
		b = append(b, 0)
		b = appendUvarint(b, uint32(size))
		b = appendUvarint(b, uint32(supported+1))
		for i := range f.Supported {
			if s := &f.Supported[i]; shown(s) {
				b = appendCompact(b, s.Name)
				b = binary.BigEndian.AppendUint16(b, uint16(s.Min))
				b = binary.BigEndian.AppendUint16(b, uint16(s.Max))
				b = append(b, 0)
			}
		}
	}
	if f.Epoch == -1 {
		return b
	}
	b = append(b, 1, 8)
	b = binary.BigEndian.AppendUint64(b, uint64(f.Epoch))
	if len(f.Finalized) == 0 {
		return b
	}
	size = uvarintLen(uint32(len(f.Finalized) + 1))
	for i := range f.Finalized {
		size += compactLen(len(f.Finalized[i].Name)) + 2 + 2 + 1
	}
	b = append(b, 2)
	b = appendUvarint(b, uint32(size))
	b = appendUvarint(b, uint32(len(f.Finalized)+1))
	for i := range f.Finalized {
		b = appendCompact(b, f.Finalized[i].Name)
		b = binary.BigEndian.AppendUint16(b, uint16(f.Finalized[i].Level)) // highest
		b = binary.BigEndian.AppendUint16(b, uint16(f.Finalized[i].Level)) // lowest
		b = append(b, 0)
	}
	return b
}
