package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// runDeleteRecords is kafka-delete-records.
func runDeleteRecords(e *Env) int {
	return runTool(func() error { return deleteRecords(e) }, func(err error) {
		e.Errorf("%s", err.Error())
		printTrace(e, err)
	})
}

const aboutDeleteRecords = "This tool helps to delete records of the given partitions down to the specified offset."

// maxOffsetFile bounds what is read of --offset-json-file: a million partitions.
const maxOffsetFile = 256 << 20

func deleteRecords(e *Env) error {
	a := newToolArgs(e)
	bootstrap := a.Value("bootstrap-server", "server(s) to use for bootstrapping", "REQUIRED: The server to connect to.")
	file := a.Value("offset-json-file", "Offset json file path", "REQUIRED: A file that names the first offset that stays in each partition, or -1 for none: "+
		`{"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}`)
	config := a.Value("command-config", "command config property file path", "Properties for the AdminClient.")
	if err := a.parse(); err != nil {
		return err
	}
	if err := a.helpOrVersion(aboutDeleteRecords); err != nil {
		return err
	}
	if err := a.require(bootstrap, file); err != nil {
		return err
	}
	servers, err := a.text(bootstrap)
	if err != nil {
		return err
	}
	path, err := a.text(file)
	if err != nil {
		return err
	}
	props, err := a.bootstrapProps(config, "bootstrap.servers", servers)
	if err != nil {
		return err
	}
	ad, err := newAdmin(e, props)
	if err != nil {
		return err
	}
	defer ad.Close()
	text, err := readOffsetFile(path)
	if err != nil {
		return err
	}
	keys, offsets, err := parseOffsetFile(text)
	if err != nil {
		return err
	}
	e.Println("Executing records delete operation")
	e.Flush() // it may wait for a partition that isn't there
	results := deleteBefore(ad, keys, offsets)
	e.Println("Records delete operation completed:")
	for _, k := range keys {
		if r := results[k]; r.err != nil {
			e.Println(fmt.Sprintf("partition: %s\terror: %s", k, r.err.Line()))
		} else {
			e.Println(fmt.Sprintf("partition: %s\tlow_watermark: %d", k, r.low))
		}
	}
	return nil
}

func readOffsetFile(path string) ([]byte, error) {
	unreadable := &JavaError{Class: "java.io.IOException", Text: "Unable to read file " + path}
	f, err := os.Open(path)
	if err != nil {
		return nil, unreadable
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxOffsetFile+1))
	if err != nil || len(b) > maxOffsetFile {
		return nil, unreadable
	}
	return b, nil
}

// parseOffsetFile reads the partitions, in the order in which a Java hash map gives them, and their offsets.
func parseOffsetFile(text []byte) ([]partitionKey, map[partitionKey]int64, error) {
	operation := func(text string) error {
		return &JavaError{Class: "org.apache.kafka.tools.AdminOperationException", Text: text}
	}
	root, ok := parseJSON(text)
	if !ok {
		return nil, nil, operation("The input string is not a valid JSON")
	}
	top, err := root.object()
	if err != nil {
		return nil, nil, err
	}
	if v, ok := top["version"]; ok {
		n, err := v.number("Integer", 32)
		if err != nil {
			return nil, nil, err
		}
		if n != 1 {
			return nil, nil, operation(fmt.Sprintf("Not supported version field value %d", n))
		}
	}
	list, ok := top["partitions"]
	if !ok {
		return nil, nil, operation("Missing partitions field")
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(list, &elements); err != nil || elements == nil {
		return nil, nil, mapping("Expected JSON array, received %s", list)
	}
	var keys []partitionKey
	offsets := make(map[partitionKey]int64)
	twice := make(map[partitionKey]bool)
	for _, raw := range elements {
		o, err := jsonValue(raw).object()
		if err != nil {
			return nil, nil, err
		}
		var k partitionKey
		if k.topic, err = o.text("topic"); err != nil {
			return nil, nil, err
		}
		partition, err := o.number("partition", "Integer", 32)
		if err != nil {
			return nil, nil, err
		}
		k.partition = int32(partition)
		offset, err := o.number("offset", "Long", 64)
		if err != nil {
			return nil, nil, err
		}
		if _, known := offsets[k]; known {
			twice[k] = true
		} else {
			keys = append(keys, k)
			offsets[k] = offset
		}
	}
	keys = javaPartitions(keys)
	var named []string
	for _, k := range keys {
		if twice[k] {
			named = append(named, k.String())
		}
	}
	if named != nil {
		return nil, nil, &JavaError{Class: "org.apache.kafka.tools.AdminCommandFailedException", Text: "Offset json file contains duplicate topic partitions: " + strings.Join(named, ",")}
	}
	return keys, offsets, nil
}

// jsonValue is a piece of JSON as Kafka's tools take it: with the errors of their reader.
type jsonValue []byte

type jsonObject map[string]jsonValue

func mapping(format string, raw []byte) *JavaError {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		b.Write(raw)
	}
	return &JavaError{Class: "com.fasterxml.jackson.databind.JsonMappingException", Text: fmt.Sprintf(format, b.String())}
}

// parseJSON takes the first value of a text, as Jackson does.
func parseJSON(text []byte) (jsonValue, bool) {
	var raw json.RawMessage
	if json.NewDecoder(bytes.NewReader(text)).Decode(&raw) != nil {
		return nil, false
	}
	return jsonValue(raw), true
}

func (v jsonValue) object() (jsonObject, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(v, &m); err != nil || m == nil {
		return nil, mapping("Expected JSON object, received %s", v)
	}
	o := make(jsonObject, len(m))
	for k, raw := range m {
		o[k] = jsonValue(raw)
	}
	return o, nil
}

// number is a whole number of at most so many bits, of the Java class of that name.
func (v jsonValue) number(class string, bits int) (int64, error) {
	n, err := strconv.ParseInt(string(bytes.TrimSpace(v)), 10, bits)
	if err != nil {
		return 0, mapping("Expected `"+class+"` value, received %s", v)
	}
	return n, nil
}

func (o jsonObject) get(name string) (jsonValue, error) {
	v, ok := o[name]
	if !ok {
		return nil, &JavaError{Class: "com.fasterxml.jackson.databind.JsonMappingException", Text: "No such field exists: `" + name + "`"}
	}
	return v, nil
}

func (o jsonObject) number(name, class string, bits int) (int64, error) {
	v, err := o.get(name)
	if err != nil {
		return 0, err
	}
	return v.number(class, bits)
}

func (o jsonObject) text(name string) (string, error) {
	v, err := o.get(name)
	if err != nil {
		return "", err
	}
	var s *string
	if json.Unmarshal(v, &s) != nil || s == nil {
		return "", mapping("Expected `String` value, received %s", v)
	}
	return *s, nil
}

type deletedBefore struct {
	low int64
	err *JavaError
}

// deleteBefore asks the leaders of partitions; it goes on asking while leaders move, for as long as the AdminClient does.
func deleteBefore(a *admin, keys []partitionKey, offsets map[partitionKey]int64) map[partitionKey]deletedBefore {
	out := make(map[partitionKey]deletedBefore)
	start := time.Now()
	deadline := start.Add(a.timeout)
	backoff := max(a.conf.ms("retry.backoff.ms"), 10*time.Millisecond)
	pending := keys
	for tries := 1; ; tries++ {
		pending = deleteOnce(a, pending, offsets, out)
		if len(pending) == 0 {
			return out
		}
		left := time.Until(deadline)
		if left <= 0 || a.ctx.Err() != nil {
			now := time.Now().UnixMilli()
			for _, k := range pending {
				out[k] = deletedBefore{err: exception("TimeoutException", fmt.Sprintf("Call(callName=deleteRecords(api=METADATA), deadlineMs=%d, tries=%d, nextAllowedTryMs=%d) timed out at %d after %d attempt(s)",
					deadline.UnixMilli(), tries, now+backoff.Milliseconds(), now, tries))}
			}
			return out
		}
		t := time.NewTimer(min(backoff, left))
		select {
		case <-t.C:
		case <-a.ctx.Done():
			t.Stop()
		}
		backoff = min(2*backoff, max(a.conf.ms("retry.backoff.max.ms"), backoff))
	}
}

// deleteOnce fills in out and returns what must be asked again.
func deleteOnce(a *admin, keys []partitionKey, offsets map[partitionKey]int64, out map[partitionKey]deletedBefore) (again []partitionKey) {
	fail := func(list []partitionKey, err error) {
		var j *JavaError
		if !errors.As(err, &j) {
			j = &JavaError{Class: "org.apache.kafka.common.KafkaException", Text: err.Error()}
		}
		for _, k := range list {
			out[k] = deletedBefore{err: j}
		}
	}
	leaders, missing, err := leadersOf(a, "deleteRecords(api=METADATA)", keys)
	if err != nil {
		fail(keys, err)
		return nil
	}
	again = missing
	for leader, list := range leaders {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.TimeoutMillis = int32(min(a.conf.int("request.timeout.ms"), 1<<31-1))
		at := make(map[string]int)
		for _, k := range list {
			n, ok := at[k.topic]
			if !ok {
				n = len(req.Topics)
				at[k.topic] = n
				t := kmsg.NewDeleteRecordsRequestTopic()
				t.Topic = k.topic
				req.Topics = append(req.Topics, t)
			}
			p := kmsg.NewDeleteRecordsRequestTopicPartition()
			p.Partition, p.Offset = k.partition, offsets[k]
			req.Topics[n].Partitions = append(req.Topics[n].Partitions, p)
		}
		r, err := a.broker("deleteRecords(api=DELETE_RECORDS)", leader, a.timeout, req)
		if err != nil {
			fail(list, err)
			continue
		}
		for _, t := range r.(*kmsg.DeleteRecordsResponse).Topics {
			for _, p := range t.Partitions {
				k := partitionKey{t.Topic, p.Partition}
				switch err := codeError(p.ErrorCode, nil); {
				case err == nil:
					out[k] = deletedBefore{low: p.LowWatermark}
				case retriableLeader[p.ErrorCode]:
					again = append(again, k)
				default:
					out[k] = deletedBefore{err: err}
				}
			}
		}
	}
	return again
}

// retriableLeader are the errors after which the AdminClient asks again: the leader moves, or isn't ready.
var retriableLeader = map[int16]bool{3: true, 5: true, 6: true, 7: true, 9: true, 13: true, 56: true, 74: true, 75: true, 76: true, 78: true, 100: true, 103: true}

// leadersOf finds the leaders of partitions. missing are those without one, or that aren't known: they may come.
func leadersOf(a *admin, call string, keys []partitionKey) (leaders map[int32][]partitionKey, missing []partitionKey, err error) {
	meta := kmsg.NewPtrMetadataRequest()
	meta.AllowAutoTopicCreation = false
	asked := make(map[string]bool)
	for _, k := range keys {
		if !asked[k.topic] {
			asked[k.topic] = true
			t := kmsg.NewMetadataRequestTopic()
			t.Topic = kmsg.StringPtr(k.topic)
			meta.Topics = append(meta.Topics, t)
		}
	}
	r, err := a.any(call, meta)
	if err != nil {
		return nil, nil, err
	}
	of := make(map[partitionKey]int32)
	for _, t := range r.(*kmsg.MetadataResponse).Topics {
		if t.Topic == nil {
			continue
		}
		for _, p := range t.Partitions {
			if p.Leader >= 0 {
				of[partitionKey{*t.Topic, p.Partition}] = p.Leader
			}
		}
	}
	leaders = make(map[int32][]partitionKey)
	for _, k := range keys {
		if leader, ok := of[k]; ok {
			leaders[leader] = append(leaders[leader], k)
		} else {
			missing = append(missing, k)
		}
	}
	return leaders, missing, nil
}
