package cli

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/highwater/highwater/internal/codec"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/schema"
)

// dumpSegment prints a .log file or a snapshot of the metadata log: each batch, and with --deep-iteration each record.
func (d *dumpLog) dumpSegment(path string) error {
	decode, err := d.decoder()
	if err != nil {
		return err
	}
	maxBytes, _, err := d.p.Int(d.maxBytes)
	if err != nil {
		return err
	}
	name := base(path)
	switch {
	case strings.HasSuffix(name, ".log"):
		first, err := firstOffset(path)
		if err != nil {
			return err
		}
		d.e.Printf("Log starting offset: %d\n", first)
	case name == "bootstrap.checkpoint":
		d.e.Println("KRaft bootstrap snapshot")
	default:
		offset, epoch, err := snapshotName(name)
		if err != nil {
			return err
		}
		d.e.Printf("Snapshot end offset: %d, epoch: %d\n", offset, epoch)
	}
	s, err := openSegment(path)
	if err != nil {
		return err
	}
	defer s.Close()
	view, err := s.slice(0, int64(maxBytes))
	if err != nil {
		return err
	}
	contents := d.contents()
	deep := contents || d.p.Has(d.deep)
	lastOffset, pos := int64(-1), int64(0)
	defer d.gaps.unique(path, false)
	for {
		b, ok, err := view.next(pos)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		header, err := d.printBatch(&b)
		if err != nil {
			return err
		}
		if deep {
			control := b.magic >= 2 && header.Control()
			kind := header.TimestampType().String()
			err := b.records(func(r *record.Record, message record.Batch) error {
				if r.Offset != lastOffset+1 {
					d.gaps.add(path, lastOffset, r.Offset)
				}
				lastOffset = r.Offset
				return d.printRecord(r, message, b.magic, kind, control, contents, decode)
			})
			if err != nil {
				// What was printed of the line stays there, as it does when Java's tool ends within one.
				return errors.Join(d.write(), err)
			}
		}
		pos = b.end()
	}
	if left := view.end - view.start - pos; left > 0 && maxBytes == math.MaxInt32 {
		d.e.Printf("Found %d invalid bytes at the end of %s\n", left, name)
	}
	return nil
}

// contents says whether keys and values are printed.
func (d *dumpLog) contents() bool {
	for _, o := range []*Option{d.print, d.offsets, d.transactions, d.clusterMetadata, d.remoteMetadata, d.valueDecoder, d.keyDecoder, d.shareState} {
		if d.p.Has(o) {
			return true
		}
	}
	return false
}

// snapshotName takes a snapshot's name apart: 20 digits, a dash, 10 digits. The exceptions are Java's, of substring and parse.
func snapshotName(name string) (offset int64, epoch int32, err error) {
	units := utf16.Encode([]rune(name))
	part := func(from, to int) (string, error) {
		if to > len(units) {
			return "", &JavaError{Class: "java.lang.StringIndexOutOfBoundsException", Text: fmt.Sprintf("begin %d, end %d, length %d", from, to, len(units))}
		}
		return string(utf16.Decode(units[from:to])), nil
	}
	s, err := part(0, 20)
	if err != nil {
		return 0, 0, err
	}
	if offset, err = strconv.ParseInt(s, 10, 64); err != nil {
		return 0, 0, notANumber(s)
	}
	if s, err = part(21, 31); err != nil {
		return 0, 0, err
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return 0, 0, notANumber(s)
	}
	return offset, int32(n), nil
}

// printBatch prints the line of a batch, and gives its header.
func (d *dumpLog) printBatch(b *foundBatch) (record.Batch, error) {
	last, err := b.lastOffset()
	if err != nil {
		return nil, err
	}
	if b.magic < 2 {
		d.line = appendInt(append(d.line, "offset: "...), last)
		if err := d.write(); err != nil {
			return nil, err
		}
	}
	h, err := b.loadHeader()
	if err != nil {
		return nil, err
	}
	l := d.line
	if b.magic >= 2 {
		l = appendInt(append(l, "baseOffset: "...), b.offset)
		l = appendInt(append(l, " lastOffset: "...), last)
		l = appendInt(append(l, " count: "...), int64(h.Count()))
		l = appendInt(append(l, " baseSequence: "...), int64(h.BaseSequence()))
		l = appendInt(append(l, " lastSequence: "...), int64(h.LastSequence()))
		l = appendInt(append(l, " producerId: "...), h.ProducerID())
		l = appendInt(append(l, " producerEpoch: "...), int64(h.ProducerEpoch()))
		l = appendInt(append(l, " partitionLeaderEpoch: "...), int64(h.PartitionLeaderEpoch()))
		l = strconv.AppendBool(append(l, " isTransactional: "...), h.Transactional())
		l = strconv.AppendBool(append(l, " isControl: "...), h.Control())
		l = append(l, " deleteHorizonMs: "...)
		if ms, ok := h.DeleteHorizon(); ok {
			l = append(appendInt(append(l, "OptionalLong["...), ms), ']')
		} else {
			l = append(l, "OptionalLong.empty"...)
		}
	}
	d.line = l
	if err := d.write(); err != nil {
		return nil, err
	}
	c := codec.Type(h.Attributes() & 7)
	if !c.Valid() {
		return nil, illegalArgument(fmt.Sprintf("Unknown compression type id: %d", c))
	}
	valid, err := b.valid(h)
	if err != nil {
		return nil, err
	}
	l = appendInt(append(d.line, " position: "...), b.pos)
	l = append(append(l, ' '), h.TimestampType().String()...)
	l = appendInt(append(l, ": "...), h.MaxTimestamp())
	l = appendInt(append(l, " size: "...), int64(b.size))
	l = appendInt(append(l, " magic: "...), int64(b.magic))
	l = append(append(l, " compresscodec: "...), c.String()...)
	l = appendInt(append(l, " crc: "...), int64(h.CRC()))
	l = strconv.AppendBool(append(l, " isvalid: "...), valid)
	d.line = append(l, '\n')
	return h, d.write()
}

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }

// printRecord prints the line of a record. After an error the line is as far as it came.
func (d *dumpLog) printRecord(r *record.Record, message record.Batch, magic int8, kind string, control, contents bool, decode decoder) error {
	l := d.line
	short := d.p.Has(d.short)
	if !short {
		l = appendInt(append(l, "| offset: "...), r.Offset)
		l = append(append(l, ' '), kind...)
		l = appendInt(append(l, ": "...), r.Timestamp)
		l = appendInt(append(l, " keySize: "...), sizeOf(r.Key))
		l = appendInt(append(l, " valueSize: "...), sizeOf(r.Value))
		if magic >= 2 {
			l = appendInt(append(l, " sequence: "...), int64(r.Sequence))
			l = append(l, " headerKeys: ["...)
			first := true
			for key := range r.Headers.All() {
				if !first {
					l = append(l, ',')
				}
				first = false
				l = appendJavaString(l, key)
			}
			l = append(l, ']')
		} else {
			l = strconv.AppendBool(append(l, " isValid: "...), message.ComputeCRC() == message.CRC())
			l = appendInt(append(l, " crc: "...), int64(message.CRC()))
		}
		if control {
			var err error
			if l, err = appendControl(l, r); err != nil {
				d.line = l
				return err
			}
		}
	}
	if contents && !control {
		prefix := " "
		if short {
			prefix = "| "
		}
		var err error
		if l, err = decode(l, prefix, r); err != nil {
			d.line = l
			return err
		}
	}
	d.line = append(l, '\n')
	return d.write()
}

func sizeOf(b []byte) int64 {
	if b == nil {
		return -1
	}
	return int64(len(b))
}

// appendControl appends what a control record says.
func appendControl(dst []byte, r *record.Record) ([]byte, error) {
	if r.Key == nil {
		return dst, nullPointer("duplicate", "key")
	}
	t, err := record.ParseControlKey(r.Key)
	if err != nil {
		return dst, recordError(err)
	}
	show := func(name string, x schema.Record, version *int16) ([]byte, error) {
		if r.Value == nil {
			return dst, nullPointer("slice", "data")
		}
		// Kafka decodes the first version of the schema whatever the record says, and prints in the version that it says.
		if _, err := x.ReadFrom(r.Value, 0); err != nil {
			return dst, javaReadException(err)
		}
		return x.AppendJSON(append(append(append(dst, ' '), name...), ' '), *version), nil
	}
	switch t {
	case record.Abort, record.Commit:
		const size = 6 // version and coordinator epoch
		switch {
		case r.Value == nil:
			return dst, nullPointer("getShort", "value")
		case len(r.Value) < size:
			return dst, &JavaError{Class: "java.nio.BufferUnderflowException"}
		}
		m, err := record.ParseMarker(r.Key, r.Value)
		if err != nil {
			return dst, recordError(err)
		}
		dst = append(append(dst, " endTxnMarker: "...), t.String()...)
		return appendInt(append(dst, " coordinatorEpoch: "...), int64(m.CoordinatorEpoch)), nil
	case record.LeaderChange:
		x := schema.NewLeaderChangeMessage()
		return show("LeaderChange:", x, &x.Version)
	case record.SnapshotHeader:
		x := schema.NewSnapshotHeaderRecord()
		return show("SnapshotHeader", x, &x.Version)
	case record.SnapshotFooter:
		x := schema.NewSnapshotFooterRecord()
		return show("SnapshotFooter", x, &x.Version)
	case record.KRaftVersion:
		x := schema.NewKRaftVersionRecord()
		return show("KRaftVersion", x, &x.Version)
	case record.KRaftVoters:
		x := schema.NewVotersRecord()
		return show("KRaftVoters", x, &x.Version)
	}
	id := int16(binary.BigEndian.Uint16(r.Key[2:]))
	return append(appendInt(append(dst, " controlType: UNKNOWN("...), int64(id)), ')'), nil
}

// nullPointer is what Java says of a record that lacks what its kind must have.
func nullPointer(method, variable string) error {
	return &JavaError{Class: "java.lang.NullPointerException", Text: fmt.Sprintf("Cannot invoke \"java.nio.ByteBuffer.%s()\" because \"%s\" is null", method, variable)}
}

// recordError is the exception for what package record found wrong.
func recordError(err error) error {
	var k *kerr.Error
	if err == nil || !errors.As(err, &k) {
		return err
	}
	text := k.Message()
	switch {
	case strings.HasPrefix(text, "Failed to decompress record stream"):
		why := strings.TrimPrefix(strings.TrimPrefix(text, "Failed to decompress record stream"), ": ")
		return &JavaError{Class: "org.apache.kafka.common.KafkaException", Text: "Failed to decompress record stream", Inner: &JavaError{Class: "java.io.IOException", Text: why}}
	case errors.Is(err, kerr.CorruptMessage):
		return exception("CorruptRecordException", text)
	}
	return &JavaError{Class: "org.apache.kafka.common.InvalidRecordException", Text: text}
}
