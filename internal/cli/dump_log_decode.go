package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/schema"
)

// decoder appends what is printed of a record's key and value; prefix stands before the first of the two.
type decoder func(dst []byte, prefix string, r *record.Record) ([]byte, error)

// decoder is what the options ask for. The first in this order wins.
func (d *dumpLog) decoder() (decoder, error) {
	switch {
	case d.p.Has(d.offsets):
		return coordinatorDecoder(schema.LogGroup, groupValueJSON), nil
	case d.p.Has(d.transactions):
		return coordinatorDecoder(schema.LogTransaction, transactionValueJSON), nil
	case d.p.Has(d.clusterMetadata):
		return decodeMetadata, nil
	case d.p.Has(d.remoteMetadata):
		return decodeRemoteMetadata, nil
	case d.p.Has(d.shareState):
		return coordinatorDecoder(schema.LogShare, plainValueJSON), nil
	}
	value, err := d.class(d.valueDecoder)
	if err != nil {
		return nil, err
	}
	key, err := d.class(d.keyDecoder)
	if err != nil {
		return nil, err
	}
	return func(dst []byte, prefix string, r *record.Record) ([]byte, error) {
		// Both are decoded before the first is printed.
		start := len(dst)
		var err error
		if r.Key != nil {
			dst = append(append(dst, prefix...), "key: "...)
			if dst, err = key(dst, r.Key); err != nil {
				return dst[:start], err
			}
			prefix = " "
		}
		if r.Value != nil {
			dst = append(append(dst, prefix...), "payload: "...)
			if dst, err = value(dst, r.Value); err != nil {
				return dst[:start], err
			}
		}
		return dst, nil
	}, nil
}

// class is a decoder by the name of Kafka's class.
func (d *dumpLog) class(o *Option) (func(dst, b []byte) ([]byte, error), error) {
	name, err := d.text(o)
	if err != nil {
		return nil, err
	}
	underflow := &JavaError{Class: "java.nio.BufferUnderflowException"}
	switch name {
	case "org.apache.kafka.tools.api.StringDecoder":
		return func(dst, b []byte) ([]byte, error) { return appendJavaString(dst, b), nil }, nil
	case "org.apache.kafka.tools.api.IntegerDecoder":
		return func(dst, b []byte) ([]byte, error) {
			if len(b) < 4 {
				return dst, underflow
			}
			return appendInt(dst, int64(int32(binary.BigEndian.Uint32(b)))), nil
		}, nil
	case "org.apache.kafka.tools.api.LongDecoder":
		return func(dst, b []byte) ([]byte, error) {
			if len(b) < 8 {
				return dst, underflow
			}
			return appendInt(dst, int64(binary.BigEndian.Uint64(b))), nil
		}, nil
	case "org.apache.kafka.tools.api.DefaultDecoder":
		// Kafka prints a Java array: its type, and the address by which the machine knew it. Here the hash of its content.
		return func(dst, b []byte) ([]byte, error) {
			h := uint32(1)
			for _, c := range b {
				h = 31*h + uint32(int32(int8(c)))
			}
			return strconv.AppendUint(append(dst, "[B@"...), uint64(h), 16), nil
		}, nil
	}
	return nil, &JavaError{Class: "java.lang.RuntimeException", Text: "Failed to load decoder class", Inner: &JavaError{Class: "java.lang.ClassNotFoundException", Text: name}}
}

// valueJSON appends a coordinator record's value.
type valueJSON func(dst []byte, value schema.Record, version int16) []byte

func plainValueJSON(dst []byte, value schema.Record, version int16) []byte {
	return value.AppendJSON(dst, version)
}

// coordinatorDecoder prints the records of a coordinator's topic. What it can't read it says in place of the key.
func coordinatorDecoder(log schema.Log, show valueJSON) decoder {
	return func(dst []byte, prefix string, r *record.Record) ([]byte, error) {
		if r.Key == nil {
			return dst, &JavaError{Class: "java.lang.RuntimeException", Text: fmt.Sprintf("Failed to decode message at offset %d using the specified decoder (message had a missing key)", r.Offset)}
		}
		dst = append(append(dst, prefix...), "key: "...)
		start := len(dst)
		out, err := appendCoordinatorRecord(dst, log, show, r)
		var unknown *schema.VersionError
		switch {
		case err == nil:
			return out, nil
		case errors.As(err, &unknown) && unknown.Name == "":
			return fmt.Appendf(dst[:start], "Unknown record type %d at offset %d, skipping.", unknown.ID, r.Offset), nil
		}
		return fmt.Appendf(dst[:start], "Error at offset %d, skipping. %s", r.Offset, err.Error()), nil
	}
}

func appendCoordinatorRecord(dst []byte, log schema.Log, show valueJSON, r *record.Record) ([]byte, error) {
	if len(r.Key) < 2 {
		return dst, errors.New("Could not read version from key's buffer.")
	}
	id := int16(binary.BigEndian.Uint16(r.Key))
	t := schema.Lookup(log, "key", id)
	if t == nil {
		return dst, &schema.VersionError{Log: log, ID: id}
	}
	key := t.New()
	if _, err := key.ReadFrom(r.Key[2:], 0); err != nil {
		return dst, unreadable("key", id, err)
	}
	dst = append(appendInt(append(dst, `{"type":"`...), int64(id)), `","data":`...)
	dst = append(key.AppendJSON(dst, 0), "} payload: "...)
	if r.Value == nil {
		return append(dst, "<DELETE>"...), nil
	}
	if t = schema.Lookup(log, "value", id); t == nil {
		return dst, &schema.VersionError{Log: log, ID: id}
	}
	if len(r.Value) < 2 {
		return dst, errors.New("Could not read version from value's buffer.")
	}
	version := int16(binary.BigEndian.Uint16(r.Value))
	if version < t.Min || version > t.Max {
		return dst, fmt.Errorf("Found an unknown record version %d for %d type", version, id)
	}
	value := t.New()
	if _, err := value.ReadFrom(r.Value[2:], version); err != nil {
		return dst, unreadable("value", version, err)
	}
	dst = append(appendInt(append(dst, `{"version":"`...), int64(version)), `","data":`...)
	return append(show(dst, value, version), '}'), nil
}

func unreadable(what string, version int16, err error) error {
	return fmt.Errorf("Could not read record with version %d from %s's buffer due to: %s.", version, what, javaReadError(err))
}

// javaReadError is the text of the exception that Kafka's generated classes throw for what package schema found wrong. Where
// the input ends within a number that exception has no text.
func javaReadError(err error) string {
	if errors.Is(err, schema.ErrTruncated) {
		return "null"
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// javaReadException is the exception itself.
func javaReadException(err error) error {
	if errors.Is(err, schema.ErrTruncated) {
		return &JavaError{Class: "java.nio.BufferUnderflowException"}
	}
	return &JavaError{Class: "java.lang.RuntimeException", Text: javaReadError(err)}
}

// transactionValueJSON prints the state by name.
func transactionValueJSON(dst []byte, value schema.Record, version int16) []byte {
	start := len(dst)
	dst = value.AppendJSON(dst, version)
	v, ok := value.(*schema.TransactionLogValue)
	if !ok {
		return dst
	}
	names := [...]string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"}
	name := strconv.Itoa(int(v.TransactionStatus))
	if i := int(v.TransactionStatus); i >= 0 && i < len(names) {
		name = names[i]
	}
	// No string comes before it in which the same could stand.
	field := fmt.Appendf(nil, `"transactionStatus":%d`, v.TransactionStatus)
	at := bytes.Index(dst[start:], field)
	if at < 0 {
		return dst
	}
	at += start
	rest := bytes.Clone(dst[at+len(field):])
	return append(fmt.Appendf(dst[:at], `"transactionStatus":"%s"`, name), rest...)
}

// groupValueJSON prints the subscriptions and assignments of the classic consumer protocol, which to the group coordinator
// are only bytes.
func groupValueJSON(dst []byte, value schema.Record, version int16) []byte {
	v, ok := value.(*schema.GroupMetadataValue)
	if !ok || v.ProtocolType != "consumer" {
		return value.AppendJSON(dst, version)
	}
	plain := value.AppendJSON(nil, version)
	for {
		// A quote within a string is escaped: what is found here are the fields.
		at, name, fresh := nextField(plain)
		if at < 0 {
			return append(dst, plain...)
		}
		dst, plain = append(dst, plain[:at]...), plain[at:]
		end := bytes.IndexByte(plain[len(name):], '"')
		if end < 0 {
			return append(dst, plain...)
		}
		end += len(name)
		raw, err := base64.StdEncoding.DecodeString(string(plain[len(name):end]))
		out, readable := appendProtocol(append(dst, name[:len(name)-1]...), raw, fresh())
		if err != nil || !readable {
			dst = append(dst, plain[:end+1]...)
		} else {
			dst = out
		}
		plain = plain[end+1:]
	}
}

// nextField finds the next subscription or assignment, up to and with the quote that begins its value.
func nextField(b []byte) (at int, name string, fresh func() schema.Record) {
	const subscription, assignment = `"subscription":"`, `"assignment":"`
	s, a := bytes.Index(b, []byte(subscription)), bytes.Index(b, []byte(assignment))
	if a < 0 || s >= 0 && s < a {
		return s, subscription, func() schema.Record { return schema.NewConsumerProtocolSubscription() }
	}
	return a, assignment, func() schema.Record { return schema.NewConsumerProtocolAssignment() }
}

// appendProtocol appends what a consumer sent. Later versions read as the last one that is known.
func appendProtocol(dst, raw []byte, x schema.Record) ([]byte, bool) {
	if len(raw) < 2 {
		return dst, false
	}
	version := min(int16(binary.BigEndian.Uint16(raw)), x.Info().Max)
	if _, err := x.ReadFrom(raw[2:], version); err != nil {
		return dst, false
	}
	return x.AppendJSON(dst, version), true
}

// readFramed takes a record out of its frame as Kafka's serde does, with its texts.
func readFramed(log schema.Log, b []byte) (x schema.Record, version int16, err error) {
	r := schema.NewReader(b)
	number := func(what string) int16 {
		if err != nil {
			return 0
		}
		n := int32(r.Uvarint())
		switch {
		case r.Err() != nil:
			err = fmt.Errorf("Error while reading %s", what)
		case n > math.MaxInt16:
			err = fmt.Errorf("Value for %s was too large.", what)
		}
		return int16(n)
	}
	frame := number("frame version")
	switch {
	case err != nil:
		return nil, 0, err
	case frame == 0:
		return nil, 0, errors.New("Could not deserialize metadata record with frame version 0. Note that upgrades from the preview release of KRaft in 2.8 to newer versions are not supported.")
	case frame != 1:
		return nil, 0, fmt.Errorf("Could not deserialize metadata record due to unknown frame version %d(only frame version 1 is supported)", frame)
	}
	id := number("type")
	version = number("version")
	if err != nil {
		return nil, 0, err
	}
	t := schema.Lookup(log, "record", id)
	if t == nil {
		return nil, 0, fmt.Errorf("org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id %d", id)
	}
	x = t.New()
	rest, err := x.ReadFrom(r.Rest(), version)
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("Failed to deserialize record with type %d", id)
	case len(rest) > 0:
		return nil, 0, fmt.Errorf("Found %d byte(s) of garbage after %d", len(rest), id)
	}
	return x, version, nil
}

// decodeMetadata prints a record of the metadata log, whose key nobody looks at.
func decodeMetadata(dst []byte, prefix string, r *record.Record) ([]byte, error) {
	dst = append(append(dst, prefix...), "payload: "...)
	x, version, err := readFramed(schema.LogMetadata, r.Value)
	if err != nil {
		return fmt.Appendf(dst, "Error at %d, skipping. %s", r.Offset, err.Error()), nil
	}
	return schema.AppendTypedJSON(dst, x, version), nil
}
