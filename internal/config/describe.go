package config

import (
	"maps"
	"slices"
	"strings"
)

// Source says where a value comes from. The numbers are those of the wire (DescribeConfigs).
type Source int8

// The sources, from Kafka's protocol.
const (
	SourceUnknown       Source = 0
	SourceTopic         Source = 1
	SourceBroker        Source = 2 // dynamic, this broker's
	SourceDefaultBroker Source = 3 // dynamic, the cluster's default
	SourceStatic        Source = 4
	SourceDefault       Source = 5
	SourceBrokerLogger  Source = 6
	SourceClientMetrics Source = 7
	SourceGroup         Source = 8
)

func (s Source) String() string {
	switch s {
	case SourceTopic:
		return "DYNAMIC_TOPIC_CONFIG"
	case SourceBroker:
		return "DYNAMIC_BROKER_CONFIG"
	case SourceDefaultBroker:
		return "DYNAMIC_DEFAULT_BROKER_CONFIG"
	case SourceStatic:
		return "STATIC_BROKER_CONFIG"
	case SourceDefault:
		return "DEFAULT_CONFIG"
	case SourceBrokerLogger:
		return "DYNAMIC_BROKER_LOGGER_CONFIG"
	case SourceClientMetrics:
		return "DYNAMIC_CLIENT_METRICS_CONFIG"
	case SourceGroup:
		return "DYNAMIC_GROUP_CONFIG"
	}
	return "UNKNOWN"
}

// EntrySynonym is one place where a value was looked up.
type EntrySynonym struct {
	Name   string
	Value  *string // nil if null or secret
	Source Source
}

// Entry is one key as DescribeConfigs tells it.
type Entry struct {
	Name      string
	Value     *string // nil if null or secret
	Source    Source
	ReadOnly  bool
	Sensitive bool
	Type      Type // 0 for a key that isn't known
	Doc       string
	Synonyms  []EntrySynonym
}

// listenerPrefix cuts listener.name.NAME. off a key; for SASL keys the mechanism too, as in
// listener.name.sasl.scram-sha-256.sasl.jaas.config. ok is false for keys without a prefix.
func listenerPrefix(key string) (base string, ok bool) {
	rest, ok := strings.CutPrefix(key, "listener.name.")
	if !ok {
		return key, false
	}
	i := strings.IndexByte(rest, '.')
	if i <= 0 || i == len(rest)-1 {
		return key, false
	}
	base = rest[i+1:]
	for _, m := range mechanismKeys {
		if strings.HasSuffix(base, m) {
			return m, true
		}
	}
	return base, true
}

// mechanismKeys may be set for one mechanism of one listener.
var mechanismKeys = []string{"sasl.jaas.config", "sasl.login.callback.handler.class", "sasl.login.class",
	"sasl.server.callback.handler.class", "connections.max.reauth.ms"}

// brokerSynonyms are the keys that are looked up for a broker's key, in turn.
func brokerSynonyms(key string) []string {
	switch key {
	case "log.roll.ms", "log.roll.hours":
		return []string{"log.roll.ms", "log.roll.hours"}
	case "log.roll.jitter.ms", "log.roll.jitter.hours":
		return []string{"log.roll.jitter.ms", "log.roll.jitter.hours"}
	case "log.flush.interval.ms":
		return []string{"log.flush.interval.ms", "log.flush.scheduler.interval.ms"}
	case "log.retention.ms", "log.retention.minutes", "log.retention.hours":
		return []string{"log.retention.ms", "log.retention.minutes", "log.retention.hours"}
	}
	if base, ok := listenerPrefix(key); ok {
		return []string{key, base}
	}
	return []string{key}
}

// brokerKey is what is known of a broker's key, with or without a listener's prefix, or nil.
func brokerKey(name string) *Key {
	if k := BrokerTable.Lookup(name); k != nil {
		return k
	}
	if k := BrokerQuotaTable.Lookup(name); k != nil {
		return k
	}
	if base, ok := listenerPrefix(name); ok {
		return BrokerTable.Lookup(base)
	}
	return nil
}

// lookedUp lists the places that give a broker's key a value. Those before the first under the key's own name are left
// out, as Kafka does.
func (b *Broker) lookedUp(name string, sensitive bool) []EntrySynonym {
	var out []EntrySynonym
	add := func(n, value string, s Source) {
		e := EntrySynonym{Name: n, Source: s}
		if !sensitive {
			e.Value = &value
		}
		out = append(out, e)
	}
	names := brokerSynonyms(name)
	for _, from := range []struct {
		m map[string]string
		s Source
	}{{b.node, SourceBroker}, {b.cluster, SourceDefaultBroker}, {b.static, SourceStatic}} {
		for _, n := range names {
			if v, ok := from.m[n]; ok {
				add(n, v, from.s)
			}
		}
	}
	for _, n := range names {
		if k := BrokerTable.Lookup(n); k != nil && !k.Null && !k.Required {
			add(n, k.DefaultValue().Text(), SourceDefault)
		}
	}
	for len(out) > 0 && out[0].Name != name {
		out = out[1:]
	}
	return out
}

func (b *Broker) brokerEntry(name string, value *string, perBroker bool) Entry {
	e := Entry{Name: name, Source: SourceDefault, ReadOnly: !dynamicKey(name), Sensitive: true}
	if k := brokerKey(name); k != nil {
		e.Type, e.Doc, e.Sensitive = k.Type, k.Doc, k.Type == Password
	}
	if !e.Sensitive {
		e.Value = value
	}
	for _, s := range b.lookedUp(name, e.Sensitive) {
		if perBroker || s.Source == SourceDefaultBroker {
			e.Synonyms = append(e.Synonyms, s)
		}
	}
	if len(e.Synonyms) > 0 {
		e.Source = e.Synonyms[0].Source
	}
	return e
}

// Describe is every key of this node, sorted: those of the table that aren't internal, and whatever else the file or a
// dynamic config sets.
func (b *Broker) Describe() []Entry {
	values := make(map[string]*string)
	for _, m := range []map[string]string{b.static, b.cluster, b.node} {
		for k, v := range m { // into a map: any order
			values[k] = &v
		}
	}
	for _, k := range BrokerTable.Keys {
		if k.Internal {
			continue
		}
		v := b.values[k.Name]
		values[k.Name] = textOf(v)
	}
	names := slices.Sorted(maps.Keys(values))
	out := make([]Entry, len(names))
	for i, n := range names {
		out[i] = b.brokerEntry(n, values[n], true)
	}
	return out
}

// DescribeClusterDefault is the cluster's dynamic defaults, sorted.
func (b *Broker) DescribeClusterDefault() []Entry {
	var out []Entry
	for _, n := range slices.Sorted(maps.Keys(b.cluster)) {
		out = append(out, b.brokerEntry(n, new(b.cluster[n]), false))
	}
	return out
}

func textOf(v Value) *string {
	if v.Null {
		return nil
	}
	t := v.Text()
	return &t
}

// DescribeTopic is every key of a topic that has these overrides, sorted, as it is in force on this broker.
func (b *Broker) DescribeTopic(overrides map[string]string) []Entry {
	var out []Entry
	for _, k := range TopicTable.Sorted() {
		if _, set := overrides[k.Name]; k.Internal && !set {
			continue // as in Kafka, one that is set is described
		}
		v := b.topicValue(k, overrides)
		e := Entry{Name: k.Name, Value: textOf(v), Source: SourceDefault, Type: k.Type, Doc: k.Doc}
		if text, ok := overrides[k.Name]; ok {
			stored := e.Value
			if _, _, err := k.ParseStored(text); err != nil { // not in force, but there to be taken back
				stored = &text
			}
			e.Synonyms = append(e.Synonyms, EntrySynonym{k.Name, stored, SourceTopic})
		}
		if len(k.Synonyms) > 0 {
			e.Synonyms = append(e.Synonyms, b.lookedUp(k.Synonyms[0].Name, false)...)
		}
		if len(e.Synonyms) > 0 {
			e.Source = e.Synonyms[0].Source
		}
		out = append(out, e)
	}
	return out
}

// DescribeGroup is every key of a group that has these overrides, sorted.
func (b *Broker) DescribeGroup(overrides map[string]string) []Entry {
	var out []Entry
	for _, k := range GroupTable.Sorted() {
		if _, set := overrides[k.Name]; k.Internal && !set {
			continue
		}
		v := b.GroupValue(k.Name, overrides)
		e := Entry{Name: k.Name, Value: textOf(v), Source: SourceDefault, Type: k.Type, Doc: k.Doc}
		if _, ok := overrides[k.Name]; ok {
			e.Synonyms = append(e.Synonyms, EntrySynonym{k.Name, e.Value, SourceGroup})
		}
		if len(k.Synonyms) > 0 {
			e.Synonyms = append(e.Synonyms, b.lookedUp(k.Synonyms[0].Name, false)...)
		} else {
			e.Synonyms = append(e.Synonyms, EntrySynonym{k.Name, textOf(k.DefaultValue()), SourceDefault})
		}
		e.Source = e.Synonyms[0].Source
		out = append(out, e)
	}
	return out
}

// GroupValue is a group's key: its override, or what the broker's synonym gives.
func (b *Broker) GroupValue(key string, overrides map[string]string) Value {
	k := GroupTable.Lookup(key)
	if k == nil {
		panic("config: no key " + key)
	}
	if text, ok := overrides[key]; ok {
		if v, err := k.Type.parse(key, text); err == nil {
			return v
		}
	}
	if len(k.Synonyms) > 0 {
		v := b.Value(k.Synonyms[0].Name)
		if k.Name == "streams.assignor.name" { // the first of a list
			if len(v.List) == 0 {
				return Value{Type: String, Null: true}
			}
			return Value{Type: String, Str: v.List[0]}
		}
		return v
	}
	return k.DefaultValue()
}

// DescribeClientMetrics is every key of a client metrics subscription, sorted.
func DescribeClientMetrics(overrides map[string]string) []Entry {
	var out []Entry
	for _, k := range ClientMetricsTable.Sorted() {
		e := Entry{Name: k.Name, Value: textOf(k.DefaultValue()), Source: SourceDefault, Type: k.Type, Doc: k.Doc}
		if text, ok := overrides[k.Name]; ok {
			if v, err := k.Type.parse(k.Name, text); err == nil {
				e.Value = textOf(v)
			}
			e.Source = SourceClientMetrics
			e.Synonyms = []EntrySynonym{{k.Name, e.Value, SourceClientMetrics}}
		}
		out = append(out, e)
	}
	return out
}
