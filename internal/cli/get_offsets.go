package cli

import (
	"errors"
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// terseError is an error of which a tool prints the text alone.
type terseError struct{ text string }

func (e terseError) Error() string { return e.text }

// runGetOffsets is kafka-get-offsets.
func runGetOffsets(e *Env) int {
	return runTool(func() error { return getOffsets(e) }, func(err error) {
		e.Errorf("Error occurred: %s", err.Error())
		var t terseError
		var o *OptionError
		if !errors.As(err, &t) && !errors.As(err, &o) {
			printTrace(e, err)
		}
	})
}

func getOffsets(e *Env) error {
	a := newToolArgs(e)
	bootstrap := a.Value("bootstrap-server", "HOST1:PORT1,…", "REQUIRED. The servers to connect to.")
	rules := a.Value("topic-partitions", "topic1:1,topic2:0-3,topic3,topic4:5-,topic5:-3", "Which partitions: with commas, each a regular expression for topics and, after a colon, a partition or a range of partitions whose end isn't part of it.")
	topic := a.Value("topic", "topic", "The topic, or a regular expression. Without it: all topics. Not together with --topic-partitions.")
	partitions := a.Value("partitions", "partition ids", "Ids of partitions, with commas. Without it: all. Not together with --topic-partitions.")
	at := a.Value("time", "<timestamp> / -1 or latest / -2 or earliest / -3 or max-timestamp / -4 or earliest-local / -5 or latest-tiered / -6 or earliest-pending-upload", "Which offset: of the first record at or after a time in milliseconds, or one of the words. A partition without such an offset isn't printed.").Default("latest")
	config := a.Value("command-config", "config file", "Properties for the AdminClient.")
	exclude := a.Flag("exclude-internal-topics", "Leave internal topics out.")
	if err := a.parse(); err != nil {
		return err
	}
	if len(e.Args) == 0 {
		return a.usage("An interactive shell for getting topic-partition offsets.")
	}
	if err := a.helpOrVersion("An interactive shell for getting topic-partition offsets."); err != nil {
		return err
	}
	if err := a.require(bootstrap); err != nil {
		return err
	}
	servers, err := a.text(bootstrap)
	if err != nil {
		return err
	}
	if !validHostPorts(servers) {
		return a.usage("Please provide valid host:port like host1:9091,host2:9092\n")
	}
	if a.p.Has(rules) && (a.p.Has(topic) || a.p.Has(partitions)) {
		return terseError{"--topic-partitions cannot be used with --topic or --partitions"}
	}
	when, err := a.text(at)
	if err != nil {
		return err
	}
	timestamp, err := offsetSpec(when)
	if err != nil {
		return err
	}
	accept, err := partitionFilter(a, rules, topic, partitions)
	if err != nil {
		return err
	}
	props, err := a.bootstrapProps(config, "bootstrap.servers", servers)
	if err != nil {
		return err
	}
	ad, err := newAdmin(e, setProperty(props, "client.id", "GetOffsetShell"))
	if err != nil {
		return err
	}
	defer ad.Close()
	resp, err := allTopics(ad)
	if err != nil {
		return executionError(err)
	}
	var want []partitionKey
	for _, t := range resp.Topics {
		if t.Topic == nil || t.ErrorCode != 0 || a.p.Has(exclude) && (t.IsInternal || internalTopic(*t.Topic)) {
			continue
		}
		for _, p := range t.Partitions {
			if accept(*t.Topic, p.Partition) {
				want = append(want, partitionKey{*t.Topic, p.Partition})
			}
		}
	}
	if len(want) == 0 {
		return terseError{"Could not match any topic-partitions with the specified filters"}
	}
	results := listOffsets(ad, want, timestamp)
	// Kafka sorts by "topic-partition" as text.
	sort.Slice(want, func(i, j int) bool { return want[i].String() < want[j].String() })
	for _, k := range want {
		switch r := results[k]; {
		case r.err != nil:
			e.Errorf("Skip getting offsets for topic-partition %s due to error: %s", k, executionError(r.err).Text)
		case r.offset >= 0:
			e.Printf("%s:%d:%d\n", k.topic, k.partition, r.offset)
		}
	}
	return nil
}

// String is Kafka's way to write a partition.
func (k partitionKey) String() string { return k.topic + "-" + strconv.Itoa(int(k.partition)) }

func offsetSpec(s string) (int64, error) {
	words := map[string]int64{"latest": -1, "earliest": -2, "max-timestamp": -3, "earliest-local": -4, "latest-tiered": -5, "earliest-pending-upload": -6}
	if n, ok := words[s]; ok {
		return n, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, terseError{"Malformed time argument " + s + ". Please use -1 or latest / -2 or earliest / -3 or max-timestamp / -4 or earliest-local / -5 or latest-tiered / -6 or earliest-pending-upload, or a specified long format timestamp"}
	}
	return n, nil
}

var partitionRule = regexp.MustCompile(`^([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?$`)

// partitionFilter is what the options pick.
func partitionFilter(a *toolArgs, rules, topic, partitions *Option) (func(string, int32) bool, error) {
	type rule struct {
		topics   *regexp.Regexp
		from, to int64 // to is exclusive
		set      map[int64]bool
	}
	var list []rule
	if a.p.Has(rules) {
		text, err := a.text(rules)
		if err != nil {
			return nil, err
		}
		for _, s := range strings.Split(text, ",") {
			m := partitionRule.FindStringSubmatch(s)
			if m == nil {
				terse := &JavaError{Class: "org.apache.kafka.tools.TerseException", Text: "Invalid rule specification: " + s}
				return nil, &JavaError{Class: "java.lang.RuntimeException", Text: terse.Line(), Inner: terse}
			}
			r := rule{from: 0, to: 1 << 31}
			name := m[1]
			if name == "" {
				name = ".*"
			}
			if r.topics, err = topicFilter(name); err != nil {
				return nil, err
			}
			number := func(s string, or int64) int64 {
				n, err := strconv.ParseInt(s, 10, 64)
				if err != nil {
					return or
				}
				return n
			}
			if m[2] != "" {
				r.from = number(m[2], 0)
				r.to = r.from + 1
			} else {
				r.from, r.to = number(m[3], r.from), number(m[4], r.to)
			}
			list = append(list, r)
		}
	} else {
		r := rule{from: 0, to: 1 << 31}
		name, err := a.text(topic)
		if err != nil {
			return nil, err
		}
		if !a.p.Has(topic) {
			name = ".*"
		}
		if r.topics, err = topicFilter(name); err != nil {
			return nil, err
		}
		ids, err := a.text(partitions)
		if err != nil {
			return nil, err
		}
		if ids != "" {
			r.set = make(map[int64]bool)
			for _, s := range strings.Split(ids, ",") {
				n, err := strconv.ParseInt(s, 10, 32)
				if err != nil {
					return nil, terseError{"--partitions expects a comma separated list of numeric partition ids, but received: " + ids}
				}
				r.set[n] = true
			}
		}
		list = append(list, r)
	}
	return func(topic string, partition int32) bool {
		for _, r := range list {
			p := int64(partition)
			if r.topics.MatchString(topic) && p >= r.from && p < r.to && (r.set == nil || r.set[p]) {
				return true
			}
		}
		return false
	}, nil
}

type offsetResult struct {
	offset    int64
	timestamp int64
	err       error
}

// listOffsets asks the leaders of partitions; it goes on asking while leaders move, for as long as the AdminClient does.
func listOffsets(a *admin, of []partitionKey, timestamp int64) map[partitionKey]offsetResult {
	out := make(map[partitionKey]offsetResult)
	deadline := time.Now().Add(a.timeout)
	pending := of
	for {
		again := listOffsetsOnce(a, pending, timestamp, out)
		if len(again) == 0 {
			return out
		}
		if time.Now().After(deadline) || a.ctx.Err() != nil {
			for _, k := range again {
				out[k] = offsetResult{err: exception("TimeoutException", fmt.Sprintf("Call(callName=listOffsets(api=METADATA), deadlineMs=%d) timed out: %s", deadline.UnixMilli(), cause(out[k].err)))}
			}
			return out
		}
		pending = again
		t := time.NewTimer(max(a.conf.ms("retry.backoff.ms"), 50*time.Millisecond))
		select {
		case <-t.C:
		case <-a.ctx.Done():
			t.Stop()
		}
	}
}

// listOffsetsOnce fills in out and returns what must be asked again.
func listOffsetsOnce(a *admin, of []partitionKey, timestamp int64, out map[partitionKey]offsetResult) (again []partitionKey) {
	fail := func(k partitionKey, err *JavaError) {
		out[k] = offsetResult{err: err}
		switch err.Code {
		case 3, 5, 6, 7, 9, 13, 74, 75, 76, 78: // leadership moves, or the broker isn't ready
			again = append(again, k)
		}
	}
	wanted := make(map[partitionKey]bool)
	meta := kmsg.NewPtrMetadataRequest()
	meta.AllowAutoTopicCreation = false
	for _, k := range of {
		if !wanted[partitionKey{k.topic, -1}] {
			rt := kmsg.NewMetadataRequestTopic()
			rt.Topic = kmsg.StringPtr(k.topic)
			meta.Topics = append(meta.Topics, rt)
		}
		wanted[partitionKey{k.topic, -1}] = true
		wanted[k] = true
	}
	r, err := a.any("listOffsets(api=METADATA)", meta)
	if err != nil {
		for _, k := range of {
			out[k] = offsetResult{err: err}
		}
		return nil
	}
	byLeader := make(map[int32]map[string][]int32)
	found := make(map[partitionKey]bool)
	for _, t := range r.(*kmsg.MetadataResponse).Topics {
		if t.Topic == nil {
			continue
		}
		for _, p := range t.Partitions {
			k := partitionKey{*t.Topic, p.Partition}
			if !wanted[k] {
				continue
			}
			found[k] = true
			if p.ErrorCode != 0 && p.Leader < 0 {
				fail(k, codeError(p.ErrorCode, nil))
				continue
			}
			if byLeader[p.Leader] == nil {
				byLeader[p.Leader] = make(map[string][]int32)
			}
			byLeader[p.Leader][k.topic] = append(byLeader[p.Leader][k.topic], p.Partition)
		}
	}
	for _, k := range of {
		if !found[k] {
			fail(k, codeError(3, nil))
		}
	}
	for leader, topics := range byLeader {
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID = -1
		req.TimeoutMillis = int32(min(a.conf.int("request.timeout.ms"), 1<<31-1))
		for _, name := range sortedKeys(topics) {
			rt := kmsg.NewListOffsetsRequestTopic()
			rt.Topic = name
			for _, p := range topics[name] {
				rp := kmsg.NewListOffsetsRequestTopicPartition()
				rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = p, timestamp, -1
				rt.Partitions = append(rt.Partitions, rp)
			}
			req.Topics = append(req.Topics, rt)
		}
		r, err := a.broker("listOffsets(api=LIST_OFFSETS)", leader, a.timeout, req)
		if err != nil {
			for name, ids := range topics {
				for _, p := range ids {
					out[partitionKey{name, p}] = offsetResult{err: err}
				}
			}
			continue
		}
		for _, t := range r.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				k := partitionKey{t.Topic, p.Partition}
				if err := codeError(p.ErrorCode, nil); err != nil {
					fail(k, err)
					continue
				}
				out[k] = offsetResult{offset: p.Offset, timestamp: p.Timestamp}
			}
		}
	}
	return again
}
