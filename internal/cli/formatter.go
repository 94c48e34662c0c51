package cli

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/highwater/highwater/internal/schema"
)

// formatter writes a record as one of Kafka's MessageFormatter classes does.
type formatter func(w io.Writer, r *kgo.Record) error

// newFormatter makes the formatter of a class, configured with its properties.
func newFormatter(class string, props []Property, log *toolLog) (formatter, error) {
	switch short := class[strings.LastIndexByte(class, '.')+1:]; {
	case !strings.HasPrefix(class, "org.apache.kafka.tools.consumer.") && !strings.HasPrefix(class, "kafka.tools."):
	case short == "DefaultMessageFormatter":
		return newDefaultFormatter(props, log).write, nil
	case short == "LoggingMessageFormatter": // what it logs is below the level that the tools show
		return newDefaultFormatter(props, log).write, nil
	case short == "NoOpMessageFormatter":
		return func(io.Writer, *kgo.Record) error { return nil }, nil
	case short == "OffsetsMessageFormatter":
		return coordinatorFormatter(schema.LogGroup, func(id int16) bool { return id == 0 || id == 1 }), nil
	case short == "GroupMetadataMessageFormatter":
		return coordinatorFormatter(schema.LogGroup, func(id int16) bool { return id == 2 }), nil
	case short == "TransactionLogMessageFormatter":
		return coordinatorFormatter(schema.LogTransaction, func(int16) bool { return true }), nil
	case short == "ShareGroupStateMessageFormatter":
		return coordinatorFormatter(schema.LogShare, func(int16) bool { return true }), nil
	}
	return nil, &JavaError{Class: "java.lang.ClassNotFoundException", Text: class}
}

// defaultFormatter is DefaultMessageFormatter.
type defaultFormatter struct {
	timestamp, key, offset, partition, headers, value, delivery, epoch bool
	keySeparator, lineSeparator, headersSeparator, null                []byte
	keyText, valueText, headersText                                    deserializer
	buf                                                                []byte
}

func newDefaultFormatter(props []Property, log *toolLog) *defaultFormatter {
	f := &defaultFormatter{value: true, keySeparator: []byte("\t"), lineSeparator: []byte("\n"), headersSeparator: []byte(","), null: []byte("null")}
	byKey := make(map[string]string, len(props))
	for _, p := range props {
		byKey[p.Key] = p.Value
	}
	for key, at := range map[string]*bool{"print.timestamp": &f.timestamp, "print.key": &f.key, "print.offset": &f.offset, "print.partition": &f.partition,
		"print.headers": &f.headers, "print.value": &f.value, "print.delivery": &f.delivery, "print.epoch": &f.epoch} {
		if v, ok := byKey[key]; ok {
			*at = strings.EqualFold(strings.TrimSpace(v), "true")
		}
	}
	for key, at := range map[string]*[]byte{"key.separator": &f.keySeparator, "line.separator": &f.lineSeparator, "headers.separator": &f.headersSeparator, "null.literal": &f.null} {
		if v, ok := byKey[key]; ok {
			*at = []byte(v)
		}
	}
	for _, d := range []struct {
		key string
		at  *deserializer
	}{{"key.deserializer", &f.keyText}, {"value.deserializer", &f.valueText}, {"headers.deserializer", &f.headersText}} {
		class, ok := byKey[d.key]
		if !ok {
			continue
		}
		var err error
		if *d.at, err = newDeserializer(class, byKey[d.key+".deserializer.encoding"]); err != nil {
			log.Line("ERROR", "org.apache.kafka.tools.consumer.DefaultMessageFormatter", "Unable to instantiate a deserializer from "+class, javaLine(err))
		}
	}
	return f
}

func (f *defaultFormatter) write(w io.Writer, r *kgo.Record) error {
	b := f.buf[:0]
	sep := func(more ...bool) {
		for _, m := range more {
			if m {
				b = append(b, f.keySeparator...)
				return
			}
		}
		b = append(b, f.lineSeparator...)
	}
	var err error
	text := func(d deserializer, v []byte) {
		switch {
		case v == nil:
			b = append(b, f.null...)
		case d == nil:
			b = append(b, v...)
		case err == nil:
			b, err = d(b, v)
		}
	}
	if f.timestamp {
		switch r.Attrs.TimestampType() {
		case 0:
			b = append(b, "CreateTime:"...)
			b = strconv.AppendInt(b, r.Timestamp.UnixMilli(), 10)
		case 1:
			b = append(b, "LogAppendTime:"...)
			b = strconv.AppendInt(b, r.Timestamp.UnixMilli(), 10)
		default:
			b = append(b, "NO_TIMESTAMP"...)
		}
		sep(f.offset, f.partition, f.delivery, f.epoch, f.headers, f.key, f.value)
	}
	if f.partition {
		b = append(b, "Partition:"...)
		b = strconv.AppendInt(b, int64(r.Partition), 10)
		sep(f.offset, f.delivery, f.epoch, f.headers, f.key, f.value)
	}
	if f.offset {
		b = append(b, "Offset:"...)
		b = strconv.AppendInt(b, r.Offset, 10)
		sep(f.delivery, f.epoch, f.headers, f.key, f.value)
	}
	if f.delivery { // of share groups only
		b = append(b, "Delivery:NOT_PRESENT"...)
		sep(f.epoch, f.headers, f.key, f.value)
	}
	if f.epoch { // ConsoleConsumer hands records on without their leader epoch
		b = append(b, "Epoch:NOT_PRESENT"...)
		sep(f.headers, f.key, f.value)
	}
	if f.headers {
		if len(r.Headers) == 0 {
			b = append(b, "NO_HEADERS"...)
		}
		for i, h := range r.Headers {
			if i > 0 {
				b = append(b, f.headersSeparator...)
			}
			b = append(b, h.Key...)
			b = append(b, ':')
			text(f.headersText, h.Value)
		}
		sep(f.key, f.value)
	}
	if f.key {
		text(f.keyText, r.Key)
		sep(f.value)
	}
	if f.value {
		text(f.valueText, r.Value)
		b = append(b, f.lineSeparator...)
	}
	f.buf = b
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// deserializer appends a value as the text that Java's toString gives of what one of Kafka's deserializers reads.
type deserializer func(dst, value []byte) ([]byte, error)

func newDeserializer(class, encoding string) (deserializer, error) {
	const prefix = "org.apache.kafka.common.serialization."
	short, ok := strings.CutPrefix(class, prefix)
	if !ok {
		return nil, &JavaError{Class: "java.lang.ClassNotFoundException", Text: class}
	}
	// sized reads a number of n bytes.
	sized := func(name string, n int, text func(dst, v []byte) []byte) deserializer {
		return func(dst, v []byte) ([]byte, error) {
			if len(v) != n {
				return dst, &JavaError{Class: "org.apache.kafka.common.errors.SerializationException", Text: "Size of data received by " + name + " is not " + strconv.Itoa(n)}
			}
			return text(dst, v), nil
		}
	}
	switch short {
	case "StringDeserializer":
		if e := strings.ToUpper(encoding); strings.HasPrefix(e, "UTF-16") || strings.HasPrefix(e, "UTF_16") {
			return func(dst, v []byte) ([]byte, error) {
				u := make([]uint16, len(v)/2)
				for i := range u {
					u[i] = binary.BigEndian.Uint16(v[2*i:])
				}
				return append(dst, string(utf16.Decode(u))...), nil
			}, nil
		}
		return func(dst, v []byte) ([]byte, error) {
			return append(dst, strings.ToValidUTF8(string(v), "\uFFFD")...), nil
		}, nil
	case "ByteArrayDeserializer", "ByteBufferDeserializer":
		return func(dst, v []byte) ([]byte, error) { return append(dst, v...), nil }, nil
	case "BytesDeserializer": // its toString shows printable ASCII, and other bytes as \xNN
		return func(dst, v []byte) ([]byte, error) {
			for _, c := range v {
				if c >= ' ' && c <= '~' && c != '\\' {
					dst = append(dst, c)
				} else {
					dst = fmt.Appendf(dst, "\\x%02X", c)
				}
			}
			return dst, nil
		}, nil
	case "ShortDeserializer":
		return sized(short, 2, func(dst, v []byte) []byte {
			return strconv.AppendInt(dst, int64(int16(binary.BigEndian.Uint16(v))), 10)
		}), nil
	case "IntegerDeserializer":
		return sized(short, 4, func(dst, v []byte) []byte {
			return strconv.AppendInt(dst, int64(int32(binary.BigEndian.Uint32(v))), 10)
		}), nil
	case "LongDeserializer":
		return sized(short, 8, func(dst, v []byte) []byte { return strconv.AppendInt(dst, int64(binary.BigEndian.Uint64(v)), 10) }), nil
	case "FloatDeserializer":
		return sized(short, 4, func(dst, v []byte) []byte {
			return append(dst, javaFloat(float64(math.Float32frombits(binary.BigEndian.Uint32(v))), 32)...)
		}), nil
	case "DoubleDeserializer":
		return sized(short, 8, func(dst, v []byte) []byte {
			return append(dst, javaDouble(math.Float64frombits(binary.BigEndian.Uint64(v)))...)
		}), nil
	case "BooleanDeserializer":
		return func(dst, v []byte) ([]byte, error) {
			if len(v) != 1 || v[0] > 1 {
				return dst, &JavaError{Class: "org.apache.kafka.common.errors.SerializationException", Text: "Unexpected byte received by BooleanDeserializer"}
			}
			return strconv.AppendBool(dst, v[0] == 1), nil
		}, nil
	case "UUIDDeserializer":
		return func(dst, v []byte) ([]byte, error) {
			s := strings.ToLower(string(v))
			if !uuidText.MatchString(s) {
				return dst, &JavaError{Class: "org.apache.kafka.common.errors.SerializationException", Text: "Error parsing data into UUID"}
			}
			return append(dst, s...), nil
		}, nil
	case "VoidDeserializer":
		return func(dst, v []byte) ([]byte, error) {
			return dst, illegalArgument("Data should be null for a VoidDeserializer.")
		}, nil
	}
	return nil, &JavaError{Class: "java.lang.ClassNotFoundException", Text: class}
}

var uuidText = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// transactionStates are the names that Kafka prints for the states in its transaction log.
var transactionStates = []string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"}

var transactionStatus = regexp.MustCompile(`"transactionStatus":(\d+)`)

// coordinatorFormatter prints the records of a coordinator's topic as JSON, those whose types are wanted; one behind the
// other without a line end, as Kafka does.
func coordinatorFormatter(log schema.Log, want func(id int16) bool) formatter {
	return func(w io.Writer, r *kgo.Record) error {
		if r.Key == nil {
			return nil
		}
		key, err := schema.ReadKey(log, r.Key)
		if err != nil {
			var v *schema.VersionError
			if errors.As(err, &v) { // a newer release may have written it
				return nil
			}
			return coordinatorError(r, err)
		}
		id := key.Info().ID
		if !want(id) {
			return nil
		}
		out := append([]byte(`{"key":{"type":`), strconv.Itoa(int(id))...)
		out = append(out, `,"data":`...)
		out = key.AppendJSON(out, 0)
		out = append(out, `},"value":`...)
		if r.Value == nil {
			out = append(out, "null}"...)
		} else {
			info := schema.Lookup(log, "value", id)
			if info == nil || len(r.Value) < 2 {
				return coordinatorError(r, fmt.Errorf("no value of type %d", id))
			}
			version := int16(binary.BigEndian.Uint16(r.Value))
			value := info.New()
			if version < info.Min || version > info.Max {
				return nil
			}
			if err := schema.ReadAll(value, r.Value[2:], version); err != nil {
				return coordinatorError(r, err)
			}
			data := value.AppendJSON(nil, version)
			if log == schema.LogTransaction {
				data = transactionStatus.ReplaceAllFunc(data, func(m []byte) []byte {
					n, err := strconv.Atoi(string(transactionStatus.FindSubmatch(m)[1]))
					if err != nil || n >= len(transactionStates) {
						return m
					}
					return []byte(`"transactionStatus":"` + transactionStates[n] + `"`)
				})
			}
			out = fmt.Appendf(out, `{"version":%d,"data":%s}}`, version, data)
		}
		_, err = w.Write(out)
		return err
	}
}

func coordinatorError(r *kgo.Record, err error) error {
	return &JavaError{Class: "java.lang.RuntimeException", Text: fmt.Sprintf("Could not read record at offset %d due to: %v", r.Offset, err)}
}
