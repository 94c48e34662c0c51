package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// topicValue is a topic's key in force on this broker: the topic's override, or what the broker's synonyms give. A stored
// override that cannot be used counts as absent (StoredTopic names it).
func (b *Broker) topicValue(k *Key, overrides map[string]string) Value {
	if text, ok := overrides[k.Name]; ok {
		if v, _, err := k.ParseStored(text); err == nil {
			return v
		}
	}
	switch k.Name {
	case "retention.ms":
		return Value{Type: Long, Int: b.LogRetentionMs()}
	case "segment.ms":
		return Value{Type: Long, Int: b.LogRollMs()}
	case "segment.jitter.ms":
		return Value{Type: Long, Int: b.LogRollJitterMs()}
	case "flush.ms":
		return Value{Type: Long, Int: b.LogFlushInterval()}
	}
	if len(k.Synonyms) > 0 {
		return b.Value(k.Synonyms[0].Name)
	}
	return k.DefaultValue()
}

// TopicValue is a topic's key in force on this broker.
func (b *Broker) TopicValue(key string, overrides map[string]string) Value {
	k := TopicTable.Lookup(key)
	if k == nil {
		panic("config: no key " + key)
	}
	return b.topicValue(k, overrides)
}

// StoredTopic is what an operator should know of the configs that a topic has in the metadata: values that an older Kafka
// allowed and today's refuses, which stay in force; values that nobody can use, and keys that are no more, which don't.
func StoredTopic(overrides map[string]string) []Notice {
	var out []Notice
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		text := overrides[name]
		k := TopicTable.Lookup(name)
		if k == nil {
			why := removedTopicKeys[name]
			if why == "" {
				why = "no such key of a topic"
			}
			out = append(out, Notice{name, text, "has no effect: " + why})
			continue
		}
		switch _, note, err := k.ParseStored(text); {
		case err != nil:
			out = append(out, Notice{name, text, fmt.Sprintf("cannot be used, the broker's default is in force: %v", err)})
		case note != "":
			out = append(out, Notice{name, text, "stays in force: " + note})
		}
	}
	return out
}

// Topic is the configuration of one topic, as typed fields.
type Topic struct {
	Compact, Delete        bool // cleanup.policy; neither keeps everything
	CompressionType        string
	GzipLevel              int
	LZ4Level               int
	ZstdLevel              int
	DeleteRetention        time.Duration
	FileDeleteDelay        time.Duration
	FlushMessages          int64
	Flush                  time.Duration
	IndexIntervalBytes     int32
	MaxMessageBytes        int32
	MaxDecompressedBytes   int32
	LogAppendTime          bool
	TimestampBeforeMaxMs   int64
	TimestampAfterMaxMs    int64
	MinCleanableDirtyRatio float64
	MinCompactionLag       time.Duration
	MaxCompactionLag       time.Duration
	MinInsyncReplicas      int
	Preallocate            bool
	RetentionBytes         int64 // -1 is all
	RetentionMs            int64 // -1 is for ever
	SegmentBytes           int32
	SegmentIndexBytes      int32
	Segment                time.Duration
	SegmentJitter          time.Duration
	UncleanLeaderElection  bool
	LeaderThrottled        []string
	FollowerThrottled      []string
	RemoteStorage          bool
	LocalRetentionMs       int64
	LocalRetentionBytes    int64
}

// Topic is the configuration of a topic that has these overrides.
func (b *Broker) Topic(overrides map[string]string) Topic {
	get := func(key string) Value { return b.TopicValue(key, overrides) }
	n := func(key string) int64 { return get(key).Int }
	policy := get("cleanup.policy").List
	segment := n("segment.bytes")
	if v := get("internal.segment.bytes"); !v.Null {
		segment = v.Int
	}
	return Topic{
		Compact: indexOf(policy, "compact") >= 0, Delete: indexOf(policy, "delete") >= 0,
		CompressionType:        get("compression.type").Str,
		GzipLevel:              int(n("compression.gzip.level")),
		LZ4Level:               int(n("compression.lz4.level")),
		ZstdLevel:              int(n("compression.zstd.level")),
		DeleteRetention:        millis(n("delete.retention.ms")),
		FileDeleteDelay:        millis(n("file.delete.delay.ms")),
		FlushMessages:          n("flush.messages"),
		Flush:                  millis(n("flush.ms")),
		IndexIntervalBytes:     int32(n("index.interval.bytes")),
		MaxMessageBytes:        int32(n("max.message.bytes")),
		MaxDecompressedBytes:   int32(n("max.decompressed.message.bytes")),
		LogAppendTime:          get("message.timestamp.type").Str == "LogAppendTime",
		TimestampBeforeMaxMs:   n("message.timestamp.before.max.ms"),
		TimestampAfterMaxMs:    n("message.timestamp.after.max.ms"),
		MinCleanableDirtyRatio: get("min.cleanable.dirty.ratio").Num,
		MinCompactionLag:       millis(n("min.compaction.lag.ms")),
		MaxCompactionLag:       millis(n("max.compaction.lag.ms")),
		MinInsyncReplicas:      int(n("min.insync.replicas")),
		Preallocate:            get("preallocate").Bool,
		RetentionBytes:         n("retention.bytes"),
		RetentionMs:            n("retention.ms"),
		SegmentBytes:           int32(segment),
		SegmentIndexBytes:      int32(n("segment.index.bytes")),
		Segment:                millis(n("segment.ms")),
		SegmentJitter:          millis(n("segment.jitter.ms")),
		UncleanLeaderElection:  get("unclean.leader.election.enable").Bool,
		LeaderThrottled:        get("leader.replication.throttled.replicas").List,
		FollowerThrottled:      get("follower.replication.throttled.replicas").List,
		RemoteStorage:          get("remote.storage.enable").Bool,
		LocalRetentionMs:       n("local.retention.ms"),
		LocalRetentionBytes:    n("local.retention.bytes"),
	}
}

// Layers are the texts that a topic's value may come from, strongest first. The controller resolves with them: it has
// the records' texts and its own file, and needs no Broker.
type Layers struct {
	Topic, Node, Cluster, Static map[string]string
}

// Resolve is the effective text of a topic's key and where it comes from.
func (l Layers) Resolve(key string) (text string, null bool, from Source) {
	k := TopicTable.Lookup(key)
	if k == nil {
		panic("config: no key " + key)
	}
	if v, ok := l.Topic[key]; ok {
		return v, false, SourceTopic
	}
	for _, layer := range []struct {
		m map[string]string
		s Source
	}{{l.Node, SourceBroker}, {l.Cluster, SourceDefaultBroker}, {l.Static, SourceStatic}} {
		for _, s := range k.Synonyms {
			if v, ok := layer.m[s.Name]; ok {
				return s.convert(v), false, layer.s
			}
		}
	}
	return k.DefaultValue().Text(), k.Null, SourceDefault
}

func (s Synonym) convert(text string) string {
	if s.Factor == 1 {
		return text
	}
	n, err := strconv.ParseInt(trim(text), 10, 64)
	if err != nil {
		return text
	}
	if n < 0 && s.Name != "log.roll.jitter.hours" && s.Name != "log.roll.hours" {
		return "-1"
	}
	return strconv.FormatInt(n*s.Factor, 10)
}

// ResolveAll is every key of a topic, sorted, without synonyms: the answer to CreateTopics.
func (l Layers) ResolveAll() []Entry {
	out := make([]Entry, 0, len(TopicTable.Keys))
	for _, k := range TopicTable.Sorted() {
		if k.Internal {
			continue
		}
		text, null, from := l.Resolve(k.Name)
		e := Entry{Name: k.Name, Source: from, Type: k.Type, Doc: k.Doc}
		if !null {
			e.Value = &text
		}
		out = append(out, e)
	}
	return out
}

// ValidateTopic checks the overrides of a topic as Kafka does before it writes them. before is what the topic had. The
// error is an *Error.
func ValidateTopic(before, overrides map[string]string, l Layers, remoteStorage bool) error {
	for _, n := range sortedKeys(overrides, func(string) bool { return true }) {
		if TopicTable.Lookup(n) == nil {
			return &Error{InvalidConfiguration, n, "Unknown topic config name: " + n}
		}
	}
	l.Topic = overrides
	values := make(map[string]Value, len(TopicTable.Keys))
	for _, k := range TopicTable.Keys {
		text, null, from := l.Resolve(k.Name)
		if null {
			values[k.Name] = Value{Type: k.Type, Null: true}
			continue
		}
		v, err := k.Parse(text)
		if err != nil {
			if from != SourceTopic {
				v = k.DefaultValue() // the broker's own value is checked where it was set
			} else {
				return err
			}
		}
		values[k.Name] = v
	}
	n := func(key string) int64 { return values[key].Int }
	if min, max := n("min.compaction.lag.ms"), n("max.compaction.lag.ms"); min > max {
		return &Error{InvalidConfiguration, "min.compaction.lag.ms", "conflict topic config setting min.compaction.lag.ms (" +
			strconv.FormatInt(min, 10) + ") > max.compaction.lag.ms (" + strconv.FormatInt(max, 10) + ")"}
	}
	return validateRemote(before, values, remoteStorage)
}

// InvalidConfiguration is the exception of a topic's, group's or subscription's bad key.
const InvalidConfiguration = "org.apache.kafka.common.errors.InvalidConfigurationException"

func validateRemote(before map[string]string, values map[string]Value, enabled bool) error {
	n := func(key string) int64 { return values[key].Int }
	if !values["remote.storage.enable"].Bool {
		if was, err := Boolean.parse("", before["remote.storage.enable"]); err == nil && was.Bool && !values["remote.log.delete.on.disable"].Bool {
			return &Error{InvalidConfiguration, "remote.storage.enable", "It is invalid to disable remote storage without deleting remote data. " +
				"If you want to keep the remote data and turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. " +
				"If you want to disable remote storage and delete all remote data, please set `remote.storage.enable=false,remote.log.delete.on.disable=true`."}
		}
		return nil
	}
	if !enabled {
		return configError("remote.storage.enable", "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.")
	}
	if p := values["cleanup.policy"].List; len(p) > 0 && (len(p) > 1 || p[0] != "delete") {
		return configError("cleanup.policy", "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list.")
	}
	kinds := []struct{ all, local, lag string }{{"retention.bytes", "local.retention.bytes", "remote.copy.lag.bytes"}, {"retention.ms", "local.retention.ms", "remote.copy.lag.ms"}}
	for _, k := range kinds {
		all, local := n(k.all), n(k.local)
		if all <= -1 || local == -2 {
			continue
		}
		if local == -1 {
			return invalid(k.local, "-1", "Value must not be -1 as "+k.all+" value is set as "+strconv.FormatInt(all, 10)+".")
		}
		if local > all {
			return invalid(k.local, strconv.FormatInt(local, 10), "Value must not be more than "+k.all+" property value: "+strconv.FormatInt(all, 10))
		}
	}
	if values["remote.log.copy.disable"].Bool {
		for _, k := range kinds {
			if local := n(k.local); local != -2 && local != n(k.all) {
				return &Error{InvalidConfiguration, k.local, "When `remote.log.copy.disable` is set to true, the `" + k.local + "` and `" + k.all +
					"` must be set to the identical value because there will be no more logs copied to the remote storage."}
			}
		}
	}
	for _, k := range []int{1, 0} {
		lag, local := n(kinds[k].lag), n(kinds[k].local)
		if local == -2 {
			local = n(kinds[k].all)
		}
		if lag > 0 && local != -1 && lag > local {
			return invalid(kinds[k].lag, strconv.FormatInt(lag, 10), "Value must not exceed "+kinds[k].local+" (effective value: "+strconv.FormatInt(local, 10)+")")
		}
	}
	return nil
}
