package record

// What the real Kafka decoded, accepted, refused and stored (testdata/vectors/batches*.jsonl.gz) is what this package decodes,
// accepts, refuses and stores: same values, same error codes, same bytes.

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/highwater/highwater/internal/codec"
	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

type batchVector struct {
	Case string
	Hex  string
	JSON []map[string]any
	CRC  int64
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// split is buf's batches.
func split(t testing.TB, buf []byte) (all []Batch) {
	t.Helper()
	for {
		b, rest, err := Next(buf)
		if err != nil {
			t.Fatal(err)
		}
		if b == nil {
			return all
		}
		all, buf = append(all, b), rest
	}
}

func number(n int64) json.Number { return json.Number(strconv.FormatInt(n, 10)) }

func bytesOrNull(p []byte) any {
	if p == nil {
		return nil
	}
	return base64.StdEncoding.EncodeToString(p)
}

// describe prints b as the vectors do.
func describe(t *testing.T, b Batch) map[string]any {
	t.Helper()
	first, err := b.FirstOffset()
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]any{
		"magic":         number(int64(b.Magic())),
		"baseOffset":    number(first),
		"lastOffset":    number(b.LastOffset()),
		"nextOffset":    number(b.NextOffset()),
		"sizeInBytes":   number(int64(b.Size())),
		"crc":           number(int64(b.CRC())),
		"maxTimestamp":  number(b.MaxTimestamp()),
		"compression":   b.Codec().String(),
		"timestampType": b.TimestampType().String(),
	}
	if b.Magic() >= 2 {
		m["count"] = number(int64(b.Count()))
		m["attributes"] = number(int64(b.Attributes()))
		m["lastOffsetDelta"] = number(int64(b.LastOffsetDelta()))
		m["baseTimestamp"] = number(b.BaseTimestamp())
		m["partitionLeaderEpoch"] = number(int64(b.PartitionLeaderEpoch()))
		m["producerId"] = number(b.ProducerID())
		m["producerEpoch"] = number(int64(b.ProducerEpoch()))
		m["baseSequence"] = number(int64(b.BaseSequence()))
		m["lastSequence"] = number(int64(b.LastSequence()))
		m["transactional"] = b.Transactional()
		m["control"] = b.Control()
		if ms, ok := b.DeleteHorizon(); ok {
			m["deleteHorizonMs"] = number(ms)
		}
	}
	records := []any{}
	for r, err := range b.All() {
		if err != nil {
			t.Fatal(err)
		}
		j := map[string]any{
			"offset":      number(r.Offset),
			"timestamp":   number(r.Timestamp),
			"sizeInBytes": number(int64(r.Size)),
			"key":         bytesOrNull(r.Key),
			"value":       bytesOrNull(r.Value),
		}
		if b.Magic() >= 2 {
			j["sequence"] = number(int64(r.Sequence))
		}
		if r.Headers.Len() > 0 {
			var headers []any
			for k, v := range r.Headers.All() {
				headers = append(headers, map[string]any{"key": string(k), "value": bytesOrNull(v)})
			}
			j["headers"] = headers
		}
		if b.Control() {
			c, err := ParseControlKey(r.Key)
			if err != nil {
				t.Fatal(err)
			}
			j["controlType"] = c.String()
			if c == Abort || c == Commit {
				m, err := ParseMarker(r.Key, r.Value)
				if err != nil {
					t.Fatal(err)
				}
				j["control"] = map[string]any{"coordinatorEpoch": number(int64(m.CoordinatorEpoch))}
			}
		}
		records = append(records, j)
	}
	m["records"] = records
	return m
}

func TestVectorsDecode(t *testing.T) {
	for _, v := range fixture.Lines[batchVector](t, "vectors/batches.jsonl.gz") {
		t.Run(v.Case, func(t *testing.T) {
			batches := split(t, unhex(t, v.Hex))
			if len(batches) > 0 && int64(batches[0].CRC()) != v.CRC {
				t.Errorf("CRC %d, want %d", batches[0].CRC(), v.CRC)
			}
			if len(batches) != len(v.JSON) {
				t.Fatalf("%d batches, want %d", len(batches), len(v.JSON))
			}
			for i, b := range batches {
				if err := b.Check(); err != nil {
					t.Error(err)
				}
				for _, r := range v.JSON[i]["records"].([]any) {
					// What schema decodes is not ours.
					if r := r.(map[string]any); r["controlType"] != "ABORT" && r["controlType"] != "COMMIT" {
						delete(r, "control")
					}
				}
				if d := cmp.Diff(v.JSON[i], describe(t, b)); d != "" {
					t.Errorf("batch %d, -want +got:\n%s", i, d)
				}
			}
		})
	}
}

// TestVectorsEncode reads each batch of magic 2 and builds it anew: the same bytes, but for what a compressor decides.
func TestVectorsEncode(t *testing.T) {
	for _, v := range fixture.Lines[batchVector](t, "vectors/batches.jsonl.gz") {
		for _, b := range split(t, unhex(t, v.Hex)) {
			if b.Magic() < 2 {
				continue
			}
			builder := NewBuilder(OptionsOf(b))
			plain := Batch(bytes.Clone(b)) // its records show their own timestamps, not the append time
			plain.putTimestampType(CreateTime)
			for r, err := range plain.All() {
				if err != nil {
					t.Fatalf("%s: %v", v.Case, err)
				}
				builder.AppendRecord(r)
			}
			builder.SetLastOffset(b.LastOffset())
			if b.Count() == 0 {
				builder.SetMaxTimestamp(b.MaxTimestamp())
			}
			got, err := builder.Build()
			if err != nil {
				t.Fatalf("%s: %v", v.Case, err)
			}
			sameBatch(t, v.Case, b, got)
		}
	}
}

// sameBatch compares two batches of magic 2 byte by byte or, if they are compressed, all but length, CRC and the compressed bytes.
func sameBatch(t testing.TB, name string, want, got Batch) {
	t.Helper()
	if want.Codec() == codec.None {
		if !bytes.Equal(want, got) {
			t.Errorf("%s:\nwant %x\ngot  %x", name, want, got)
		}
		return
	}
	blank := func(b Batch) []byte {
		h := bytes.Clone(b[:HeaderSize])
		clear(h[posLength : posLength+4])
		clear(h[posCRC : posCRC+4])
		return h
	}
	if !bytes.Equal(blank(want), blank(got)) {
		t.Errorf("%s:\nwant %x\ngot  %x", name, want[:HeaderSize], got[:HeaderSize])
	}
	w, err := codec.Decompress(nil, want.Codec(), want.Payload(), math.MaxInt32)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	g, err := codec.Decompress(nil, got.Codec(), got.Payload(), math.MaxInt32)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if !bytes.Equal(w, g) {
		t.Errorf("%s: records differ:\nwant %x\ngot  %x", name, w, g)
	}
	if err := got.Check(); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

type verdict struct {
	Error        string
	Code         int16
	Class        string
	Message      string
	RecordErrors []struct {
		BatchIndex int32
		Message    string
	}
	Batches, Bytes, Records int
	FirstOffset, LastOffset int64
	MaxTimestamp            int64
	LogAppendTime           int64
	ValidBytes              int
	Stored                  string
}

type invalidVector struct {
	Case                                                   string
	Config                                                 map[string]string
	Hex                                                    string
	Frame, EnsureValid, Iterate, Produce, Leader, Follower verdict
}

const (
	vectorNow   = 1700000000000
	vectorStart = 100
	vectorEpoch = 7
)

func vectorOptions(t testing.TB, config map[string]string) Options {
	o := Options{
		Partition:          kafka.TopicPartition{Topic: "t", Partition: 0},
		Codec:              ProducerCodec,
		Level:              codec.DefaultLevel,
		TimestampBeforeMax: math.MaxInt64,
		TimestampAfterMax:  3600_000,
		Now:                vectorNow,
		MaxMessageBytes:    1048588,
		SegmentBytes:       1 << 30,
		LeaderEpoch:        vectorEpoch,
	}
	for k, v := range config {
		n, _ := strconv.ParseInt(v, 10, 64)
		switch k {
		case "cleanup.policy":
			o.Compacted = v == "compact"
		case "message.timestamp.type":
			if v == "LogAppendTime" {
				o.TimestampType = LogAppendTime
			}
		case "message.timestamp.after.max.ms":
			o.TimestampAfterMax = n
		case "message.timestamp.before.max.ms":
			o.TimestampBeforeMax = n
		case "max.message.bytes":
			o.MaxMessageBytes = int(n)
		case "segment.bytes":
			o.SegmentBytes = int(n)
		case "max.decompressed.message.bytes":
			o.MaxDecompressedMessageBytes = int(n)
		case "compression.type":
			if v != "producer" {
				c, ok := codec.Parse(v)
				if !ok {
					t.Fatalf("compression.type %q", v)
				}
				o.Codec = c
			}
		default:
			t.Fatalf("unknown config %q", k)
		}
	}
	return o
}

// checkVerdict compares codes and record errors. Where Kafka answers UNKNOWN_SERVER_ERROR, we say something better.
func checkVerdict(t *testing.T, what string, want verdict, err error) {
	t.Helper()
	code := kerr.Code(err)
	if want.Code == -1 {
		if code != kerr.CorruptMessage.Code && code != kerr.InvalidRecord.Code {
			t.Errorf("%s: Kafka fell into %s %q, so we must refuse; got %v", what, want.Class, want.Message, err)
		}
		return
	}
	if code != want.Code {
		t.Errorf("%s: want %s %q, got %v", what, want.Error, want.Message, err)
		return
	}
	var r *RecordErrors
	errors.As(err, &r)
	if (r != nil) != (len(want.RecordErrors) > 0) {
		t.Errorf("%s: want record errors %v, got %v", what, want.RecordErrors, r)
	}
	if r != nil {
		var got []string
		var expected []string
		for _, e := range r.Records {
			got = append(got, fmt.Sprint(e.Index, e.Message))
		}
		for _, e := range want.RecordErrors {
			expected = append(expected, fmt.Sprint(e.BatchIndex, e.Message))
		}
		if d := cmp.Diff(expected, got); d != "" {
			t.Errorf("%s: record errors, -want +got:\n%s", what, d)
		}
	}
}

// laxIterate are the cases in which Kafka's iteration ends well because it never looks at the keys; ours refuses them, as Kafka's
// broker does.
var laxIterate = map[string]bool{
	"format v0, key size -2": true, "format v0, key size 100": true, "format v0, key size 2147483647": true,
	"format v1, key size -2": true, "format v1, key size 100": true, "format v1, key size 2147483647": true,
}

func TestVectorsInvalid(t *testing.T) {
	for _, v := range fixture.Lines[invalidVector](t, "vectors/batches-invalid.jsonl.gz") {
		t.Run(v.Case, func(t *testing.T) {
			data := unhex(t, v.Hex)
			fresh := func() []byte { return bytes.Clone(data) }

			count, size, err := 0, 0, error(nil)
			var batches []Batch
			for rest := fresh(); ; {
				var b Batch
				if b, rest, err = Next(rest); err != nil || b == nil {
					break
				}
				batches = append(batches, b)
				count, size = count+1, size+len(b)
			}
			checkVerdict(t, "frame", v.Frame, err)
			if err == nil && (count != v.Frame.Batches || size != v.Frame.Bytes) {
				t.Errorf("frame: %d batches of %d bytes, want %d of %d", count, size, v.Frame.Batches, v.Frame.Bytes)
			}

			frameErr := err
			for _, b := range batches {
				if err = b.Check(); err != nil {
					break
				}
			}
			if err == nil {
				err = frameErr
			}
			checkVerdict(t, "ensureValid", v.EnsureValid, err)

			records := 0
			err = nil
		iterate:
			for _, b := range batches {
				for _, e := range b.All() {
					if err = e; err != nil {
						break iterate
					}
					records++
				}
			}
			if err == nil {
				err = frameErr
			}
			if laxIterate[v.Case] {
				if v.Iterate.Code != 0 || kerr.Code(err) != kerr.InvalidRecord.Code {
					t.Errorf("iterate: %v, Kafka: %+v", err, v.Iterate)
				}
			} else {
				checkVerdict(t, "iterate", v.Iterate, err)
				if err == nil && records != v.Iterate.Records {
					t.Errorf("iterate: %d records, want %d", records, v.Iterate.Records)
				}
			}

			checkVerdict(t, "produce", v.Produce, CheckProduce(13, fresh()))

			o := vectorOptions(t, v.Config)
			valid, err := Validate(fresh(), &o)
			checkVerdict(t, "leader", v.Leader, err)
			if err == nil {
				valid.Assign(vectorStart, vectorEpoch, vectorNow)
				checkValidated(t, "leader", v.Leader, valid)
				stored := unhex(t, v.Leader.Stored)
				if len(stored) > 0 && Batch(stored).Codec() != codec.None && valid.Rebuilt {
					sameBatch(t, "leader", stored, valid.Bytes)
				} else if !bytes.Equal(stored, valid.Bytes) {
					t.Errorf("leader stores\n%x, want\n%x", valid.Bytes, stored)
				}
				valid.Release()
			}

			follower := fresh()
			if b := Batch(follower); len(b) >= PeekHeader {
				// As the vectors were made: base offset 0 and leader epoch -1 give way to the follower's.
				if b.BaseOffset() == 0 {
					b.SetBaseOffset(vectorStart)
				}
				if b.Magic() == 2 && b.PartitionLeaderEpoch() == -1 {
					b.SetPartitionLeaderEpoch(vectorEpoch)
				}
			}
			o.Origin = Replica
			valid, err = Validate(follower, &o)
			if err == nil && v.Follower.Code == -1 && len(valid.Batches) > 0 && valid.FirstOffset < vectorStart {
				valid.Release()
				return // the log's own check, UnexpectedAppendOffsetException
			}
			checkVerdict(t, "follower", v.Follower, err)
			if err == nil {
				if len(valid.Batches) > 0 && batches[0].Magic() < 2 {
					v.Follower.FirstOffset = valid.LastOffset // Kafka leaves it out here, to save a look inside of a wrapper
				}
				checkValidated(t, "follower", v.Follower, valid)
				if !bytes.Equal(valid.Bytes, follower[:len(valid.Bytes)]) {
					t.Error("a follower changed the bytes")
				}
				valid.Release()
			}
		})
	}
}

func checkValidated(t *testing.T, what string, want verdict, v *Validated) {
	t.Helper()
	got := verdict{Error: want.Error, FirstOffset: v.FirstOffset, LastOffset: v.LastOffset, MaxTimestamp: v.MaxTimestamp, LogAppendTime: v.LogAppendTime, ValidBytes: v.InputBytes}
	want.Stored = ""
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s, -want +got:\n%s", what, d)
	}
}
