package schema

import (
	"errors"
	"fmt"
)

// Record is a value of a generated record type. The implementations are pointers.
type Record interface {
	// Info describes the type.
	Info() *Info
	// SetDefaults gives every field Kafka's default.
	SetDefaults()
	// AppendTo appends the encoding at version, without framing. It returns an error for a version that the type lacks,
	// for a field that is set though the version lacks it (unless Kafka drops it), and for a string that is too long.
	AppendTo(dst []byte, version int16) ([]byte, error)
	// ReadFrom decodes at version, without framing, and returns what stands behind. Every field is set; slices and
	// strings do not share memory with src. After an error the record's content is undefined.
	ReadFrom(src []byte, version int16) (rest []byte, err error)
	// AppendJSON appends what Kafka's JSON converter gives at version: fields in schema order, those that the version
	// lacks and tagged ones at their default left out.
	AppendJSON(dst []byte, version int16) []byte
}

// Log says which log a record type lives in. Ids of record types are unique within one log only.
type Log string

// The logs.
const (
	LogMetadata    Log = "metadata"    // __cluster_metadata
	LogGroup       Log = "group"       // __consumer_offsets
	LogTransaction Log = "transaction" // __transaction_state
	LogShare       Log = "share"       // __share_group_state
	LogRemote      Log = "remote"      // __remote_log_metadata
	LogRaft        Log = "raft"        // control records, quorum-state
	LogFile        Log = "log"         // files beside segments
	LogClient      Log = "client"      // bytes that clients give to the group coordinator
)

// Info describes a record type.
type Info struct {
	Name     string // Kafka's
	Log      Log
	Kind     string // record, key, value or data
	ID       int16  // -1 for kind data
	Min, Max int16  // versions
	Flexible int16  // first flexible version, or -1
	New      func() Record
}

// TypeName is the name of the type as Kafka's tools print it: TOPIC_RECORD for TopicRecord.
func (i *Info) TypeName() string { return screaming(i.Name) }

func screaming(name string) string {
	var b []byte
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c >= 'A' && c <= 'Z' {
			if i > 0 {
				b = append(b, '_')
			}
		} else if c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		b = append(b, c)
	}
	return string(b)
}

// RawTag is a tagged field that the schema doesn't know.
type RawTag struct {
	Tag  uint32
	Data []byte
}

// ErrTruncated is the error of input that ends too early.
var ErrTruncated = errors.New("ends too early")

// A VersionError says that a record type has no such version, or that no record type has this id.
type VersionError struct {
	Log     Log
	Name    string // of the type; "" if the id is unknown
	ID      int16
	Version int16
}

func (e *VersionError) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("unknown %s record id %d", e.Log, e.ID)
	}
	return fmt.Sprintf("%s has no version %d", e.Name, e.Version)
}

// Lookup is the type of a record of log by kind (record, key, value) and id, or nil.
func Lookup(log Log, kind string, id int16) *Info {
	if id < 0 {
		return nil
	}
	var of []*Info
	switch {
	case log == LogMetadata && kind == "record":
		of = metadataTypes[:]
	case log == LogRemote && kind == "record":
		of = remoteTypes[:]
	case log == LogGroup && kind == "key":
		of = groupKeyTypes[:]
	case log == LogGroup && kind == "value":
		of = groupValueTypes[:]
	case log == LogTransaction && kind == "key":
		of = transactionKeyTypes[:]
	case log == LogTransaction && kind == "value":
		of = transactionValueTypes[:]
	case log == LogShare && kind == "key":
		of = shareKeyTypes[:]
	case log == LogShare && kind == "value":
		of = shareValueTypes[:]
	}
	if int(id) >= len(of) {
		return nil
	}
	return of[id]
}

// Types is every record type, by log and id, keys before their values.
func Types() []*Info { return allTypes }

// frameVersion is the only version of the frame around metadata and remote log metadata records.
const frameVersion = 1

// AppendFrame appends a record of LogMetadata or LogRemote with its frame, as it stands in a record's value.
func AppendFrame(dst []byte, r Record, version int16) ([]byte, error) {
	dst = appendUvarint(dst, frameVersion)
	dst = appendUvarint(dst, uint32(r.Info().ID))
	dst = appendUvarint(dst, uint32(uint16(version)))
	return r.AppendTo(dst, version)
}

// ReadFrameHeader takes the frame off a record of LogMetadata or LogRemote.
func ReadFrameHeader(src []byte) (id, version int16, body []byte, err error) {
	r := Reader{src: src}
	frame := r.Uvarint()
	if r.err == nil && frame != frameVersion {
		return 0, 0, nil, fmt.Errorf("unsupported frame version %d", int32(frame))
	}
	i, v := r.Uvarint(), r.Uvarint()
	if r.err != nil {
		return 0, 0, nil, fmt.Errorf("record frame: %w", r.err)
	}
	if i > 0x7fff || v > 0x7fff {
		return 0, 0, nil, fmt.Errorf("record id %d or version %d out of range", i, v)
	}
	return int16(i), int16(v), r.src, nil
}

// ReadFramed decodes a framed record of LogMetadata or LogRemote. Bytes behind it are an error, as in Kafka.
func ReadFramed(log Log, src []byte) (Record, int16, error) {
	id, version, body, err := ReadFrameHeader(src)
	if err != nil {
		return nil, 0, err
	}
	t := Lookup(log, "record", id)
	if t == nil {
		return nil, version, &VersionError{Log: log, ID: id, Version: version}
	}
	r := t.New()
	if err := ReadAll(r, body, version); err != nil {
		return nil, version, err
	}
	return r, version, nil
}

// ReadAll decodes src, which must hold nothing but r.
func ReadAll(r Record, src []byte, version int16) error {
	rest, err := r.ReadFrom(src, version)
	if err != nil {
		return fmt.Errorf("%s version %d: %w", r.Info().Name, version, err)
	}
	if len(rest) > 0 {
		return fmt.Errorf("%s version %d: %d byte(s) of garbage behind the record", r.Info().Name, version, len(rest))
	}
	return nil
}

// AppendKey appends a coordinator record's key with its frame.
func AppendKey(dst []byte, key Record) ([]byte, error) {
	dst = appendInt16(dst, key.Info().ID)
	return key.AppendTo(dst, 0)
}

// AppendValue appends a coordinator record's value with its frame; it serves every other type, too, that stands behind
// an int16 version (AbortedTxn, ProducerSnapshot, EndTxnMarker, ConsumerProtocol…, DefaultPrincipalData).
func AppendValue(dst []byte, value Record, version int16) ([]byte, error) {
	dst = appendInt16(dst, version)
	return value.AppendTo(dst, version)
}

// ReadKey decodes a coordinator record's key. The error is a *VersionError if no type has its id: Kafka's loaders skip
// such records with a warning, for a newer version may have written them.
func ReadKey(log Log, src []byte) (Record, error) {
	r := Reader{src: src}
	id := r.Int16()
	if r.err != nil {
		return nil, fmt.Errorf("record key: %w", r.err)
	}
	t := Lookup(log, "key", id)
	if t == nil {
		return nil, &VersionError{Log: log, ID: id}
	}
	k := t.New()
	if err := readLeft(k, r.src, 0); err != nil {
		return nil, err
	}
	return k, nil
}

// ReadValue decodes the value that goes with a key of the given id.
func ReadValue(log Log, id int16, src []byte) (value Record, version int16, err error) {
	t := Lookup(log, "value", id)
	if t == nil {
		return nil, 0, &VersionError{Log: log, ID: id}
	}
	v := t.New()
	version, err = ReadVersioned(v, src)
	if err != nil {
		return nil, version, err
	}
	return v, version, nil
}

// ReadVersioned decodes a record that stands behind an int16 version. Bytes behind it are ignored, as in Kafka.
func ReadVersioned(v Record, src []byte) (version int16, err error) {
	r := Reader{src: src}
	version = r.Int16()
	if r.err != nil {
		return 0, fmt.Errorf("%s: %w", v.Info().Name, r.err)
	}
	return version, readLeft(v, r.src, version)
}

func readLeft(r Record, src []byte, version int16) error {
	if _, err := r.ReadFrom(src, version); err != nil {
		return fmt.Errorf("%s version %d: %w", r.Info().Name, version, err)
	}
	return nil
}

// AppendTypedJSON appends the object that kafka-dump-log and the metadata tools print for a record:
// {"type":"TOPIC_RECORD","version":0,"data":{…}}.
func AppendTypedJSON(dst []byte, r Record, version int16) []byte {
	dst = append(dst, `{"type":"`...)
	dst = append(dst, r.Info().TypeName()...)
	dst = append(dst, `","version":`...)
	dst = appendJSONInt(dst, int64(version))
	dst = append(dst, `,"data":`...)
	dst = r.AppendJSON(dst, version)
	return append(dst, '}')
}
