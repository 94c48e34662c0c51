package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Broker is the configuration of one node, broker or controller or both: parsed, checked, immutable.
type Broker struct {
	static  map[string]string // the file's, after synonyms
	cluster map[string]string // dynamic, the cluster's default
	node    map[string]string // dynamic, this broker's
	values  map[string]Value  // effective

	// NodeID is node.id. IsBroker and IsController are process.roles.
	NodeID       int32
	IsBroker     bool
	IsController bool
	// Listeners is where the node listens. AdvertisedBroker and AdvertisedController are what it registers.
	Listeners            []Endpoint
	AdvertisedBroker     []Endpoint
	AdvertisedController []Endpoint
	// ControllerListenerNames are upper case; the first is the one that others use.
	ControllerListenerNames []string
	// InterBrokerListener is the listener name over which brokers talk.
	InterBrokerListener string
	InterBrokerProtocol string
	// Protocols is the security protocol of each listener name.
	Protocols map[string]string
	// Voters is the static quorum; Bootstrap the addresses of a dynamic one.
	Voters    []Voter
	Bootstrap []HostPort
	// LogDirs are the data directories, as given; CordonedLogDirs those of them that get no new replicas.
	LogDirs         []string
	CordonedLogDirs []string
	// MetadataLogDir is where __cluster_metadata-0 lies.
	MetadataLogDir string
	// Warnings are what Kafka only logs: one sentence each.
	Warnings []string
}

// NewBroker parses and checks the configuration of a node, as Kafka does before it starts. The error is an *Error.
func NewBroker(p *Properties) (*Broker, error) {
	static := p.Map()
	synonyms(static)
	return newBroker(static, nil, nil, false)
}

// synonyms makes node.id and broker.id stand for each other.
func synonyms(m map[string]string) {
	node, hasNode := m["node.id"]
	old, hasOld := m["broker.id"]
	switch {
	case hasOld && !hasNode:
		m["node.id"] = old
	case hasNode && !hasOld:
		m["broker.id"] = node
	}
}

// newBroker makes a configuration of its layers. stored tells that the dynamic ones come from the metadata, where values
// may be older than today's bounds.
func newBroker(static, cluster, node map[string]string, stored bool) (*Broker, error) {
	b := &Broker{static: static, cluster: cluster, node: node, values: make(map[string]Value, len(BrokerTable.Keys))}
	for _, k := range BrokerTable.Keys {
		text, ok := b.text(k.Name)
		if !ok {
			if k.Required {
				return nil, configError(k.Name, "Missing required configuration \"%s\" which has no default value.", k.Name)
			}
			b.values[k.Name] = k.DefaultValue()
			continue
		}
		v, err := k.Parse(text)
		if err != nil && stored && b.dynamic(k.Name) {
			v, _, err = k.ParseStored(text)
		}
		if err != nil {
			return nil, err
		}
		if k.Type == Class && !knownClass(v.Str) {
			return nil, invalid(k.Name, v.Str, "Class "+v.Str+" could not be found.")
		}
		b.values[k.Name] = v
	}
	if err := b.derive(); err != nil {
		return nil, err
	}
	return b, nil
}

// text is the effective text of a key, the default aside.
func (b *Broker) text(key string) (string, bool) {
	if v, ok := b.node[key]; ok {
		return v, true
	}
	if v, ok := b.cluster[key]; ok {
		return v, true
	}
	v, ok := b.static[key]
	return v, ok
}

// dynamic tells whether a key's text comes from the metadata.
func (b *Broker) dynamic(key string) bool {
	_, node := b.node[key]
	_, cluster := b.cluster[key]
	return node || cluster
}

// explicit tells whether the file or a dynamic config sets the key.
func (b *Broker) explicit(key string) bool {
	_, ok := b.text(key)
	return ok
}

// Value is the effective value of a key of BrokerTable; an unknown key is a bug.
func (b *Broker) Value(key string) Value {
	v, ok := b.values[key]
	if !ok {
		panic("config: no key " + key)
	}
	return v
}

// Int is a number, 0 if null.
func (b *Broker) Int(key string) int64 { return b.Value(key).Int }

// Bool is a switch.
func (b *Broker) Bool(key string) bool { return b.Value(key).Bool }

// Text is a text, "" if null.
func (b *Broker) Text(key string) string { return b.Value(key).Text() }

// Float is a fraction.
func (b *Broker) Float(key string) float64 { return b.Value(key).Num }

// List is a list.
func (b *Broker) List(key string) []string { return b.Value(key).List }

// Millis is a number of milliseconds. Numbers too large for a Duration become the longest one.
func (b *Broker) Millis(key string) time.Duration { return millis(b.Int(key)) }

func millis(n int64) time.Duration {
	const max = int64(1<<63-1) / int64(time.Millisecond)
	if n > max {
		return 1<<63 - 1
	}
	return time.Duration(n) * time.Millisecond
}

// Static is the file's text of a key, known or not.
func (b *Broker) Static(key string) (string, bool) {
	v, ok := b.static[key]
	return v, ok
}

// StaticMap is a copy of the file's keys and values.
func (b *Broker) StaticMap() map[string]string { return maps.Clone(b.static) }

// WithPrefix is the effective texts of all keys that begin with prefix, which is cut off: the properties of a plug-in.
func (b *Broker) WithPrefix(prefix string) map[string]string {
	out := make(map[string]string)
	for _, m := range []map[string]string{b.static, b.cluster, b.node} {
		for k, v := range m { // into a map: any order
			if rest, ok := strings.CutPrefix(k, prefix); ok && rest != "" {
				out[rest] = v
			}
		}
	}
	return out
}

// ForListener is the value of a key for one listener: listener.name.NAME.key if set, else the key's own.
func (b *Broker) ForListener(listener, key string) (Value, error) {
	k := BrokerTable.Lookup(key)
	if k == nil {
		panic("config: no key " + key)
	}
	text, ok := b.text("listener.name." + strings.ToLower(listener) + "." + key)
	if !ok {
		return b.Value(key), nil
	}
	return k.Parse(text)
}

// LogFlushInterval is log.flush.interval.ms or, if that is not set, log.flush.scheduler.interval.ms.
func (b *Broker) LogFlushInterval() int64 {
	if v := b.Value("log.flush.interval.ms"); !v.Null {
		return v.Int
	}
	return b.Int("log.flush.scheduler.interval.ms")
}

// LogRetentionMs is the finest of log.retention.ms, .minutes and .hours that is set; -1 is for ever.
func (b *Broker) LogRetentionMs() int64 {
	n := b.Int("log.retention.hours") * 3600000
	if v := b.Value("log.retention.minutes"); !v.Null {
		n = v.Int * 60000
	}
	if v := b.Value("log.retention.ms"); !v.Null {
		n = v.Int
	}
	if n < 0 {
		return -1
	}
	return n
}

// LogRollMs is log.roll.ms or log.roll.hours.
func (b *Broker) LogRollMs() int64 {
	if v := b.Value("log.roll.ms"); !v.Null {
		return v.Int
	}
	return b.Int("log.roll.hours") * 3600000
}

// LogRollJitterMs is log.roll.jitter.ms or log.roll.jitter.hours.
func (b *Broker) LogRollJitterMs() int64 {
	if v := b.Value("log.roll.jitter.ms"); !v.Null {
		return v.Int
	}
	return b.Int("log.roll.jitter.hours") * 3600000
}

// BrokerQuota is a key of BrokerQuotaTable, which only dynamic configs set: this broker's, the cluster's, or the default.
func (b *Broker) BrokerQuota(key string) int64 {
	k := BrokerQuotaTable.Lookup(key)
	if k == nil {
		panic("config: no key " + key)
	}
	for _, m := range []map[string]string{b.node, b.cluster} {
		if text, ok := m[key]; ok {
			if v, err := k.Parse(text); err == nil {
				return v.Int
			}
		}
	}
	return k.DefaultValue().Int
}

// MaxConnectionsPerIPOverrides is the limit of each address that has one of its own.
func (b *Broker) MaxConnectionsPerIPOverrides() map[string]int32 {
	out := make(map[string]int32)
	_, m, _ := parsePairs("max.connections.per.ip.overrides", b.Text("max.connections.per.ip.overrides"))
	for k, v := range m { // into a map: any order
		n, _ := (&Key{Name: "max.connections.per.ip.overrides", Type: Int}).Parse(v)
		out[k] = int32(n.Int)
	}
	return out
}

// derive computes the fields and runs Kafka's checks across keys, in its order.
func (b *Broker) derive() error {
	if err := b.checkGroups(); err != nil {
		return err
	}
	b.NodeID = int32(b.Int("node.id"))
	for _, r := range b.List("process.roles") {
		b.IsBroker = b.IsBroker || r == "broker"
		b.IsController = b.IsController || r == "controller"
	}
	b.LogDirs = b.List("log.dirs")
	if b.Value("log.dirs").Null {
		b.LogDirs = b.List("log.dir")
	}
	b.MetadataLogDir = b.Text("metadata.log.dir")
	if b.Value("metadata.log.dir").Null && len(b.LogDirs) > 0 {
		b.MetadataLogDir = b.LogDirs[0]
	}
	b.ControllerListenerNames = append([]string(nil), b.List("controller.listener.names")...)
	var verr *Error
	if b.Voters, verr = parseVoters("controller.quorum.voters", b.List("controller.quorum.voters")); verr != nil {
		return verr
	}
	if b.Bootstrap, verr = parseBootstrap("controller.quorum.bootstrap.servers", b.List("controller.quorum.bootstrap.servers")); verr != nil {
		return verr
	}
	if err := b.checkEarly(); err != nil {
		return err
	}
	return b.validate()
}

// Unknown is a key in the file that is neither Kafka's nor ours.
type Unknown struct {
	Key  string
	Hint string // what to do about it, "" if nothing is known of the key
}

// Unknown lists the file's keys that nothing here reads, sorted: keys that older versions had come with a hint. Like
// Kafka the node starts with them, but it names them.
func (b *Broker) Unknown() []Unknown {
	var out []Unknown
	for _, k := range slices.Sorted(maps.Keys(b.static)) {
		if BrokerTable.Lookup(k) == nil && !prefixed(k) {
			out = append(out, Unknown{k, hint(k)})
		}
	}
	return out
}

// prefixed tells whether k belongs to a family of keys that plug-ins, listeners or providers define.
func prefixed(k string) bool {
	if base, ok := listenerPrefix(k); ok {
		return BrokerTable.Lookup(base) != nil
	}
	for _, p := range prefixes {
		if k == p.prefix || strings.HasSuffix(p.prefix, ".") && strings.HasPrefix(k, p.prefix) {
			return true
		}
	}
	return false
}

// byteOrderMark is that of UTF-8, read as a properties file is: in Latin-1.
const byteOrderMark = "\u00ef\u00bb\u00bf"

// hint is what to do about a key of a file that no table has, "" if nothing is known of it.
func hint(key string) string {
	if rest, ok := strings.CutPrefix(key, byteOrderMark); ok {
		return "the file begins with a byte order mark, which Java takes for a part of the first key, " + rest + ": save the file without it"
	}
	if h, ok := removed[key]; ok {
		return h
	}
	for _, p := range removedPrefixes {
		if strings.HasPrefix(key, p.prefix) {
			return p.hint
		}
	}
	if h := misplaced(key); h != "" {
		return h
	}
	if base, ok := listenerPrefix(key); ok {
		if near := nearest(base); near != "" {
			return fmt.Sprintf("no such key; did you mean %s%s?", strings.TrimSuffix(key, base), near)
		}
		return "no such key of a listener"
	}
	if near := nearest(key); near != "" {
		return fmt.Sprintf("no such key; did you mean %s?", near)
	}
	return ""
}

// misplaced is what to write for a key that belongs to a topic, a group, a quota or a client.
func misplaced(key string) string {
	if k := TopicTable.Lookup(key); k != nil {
		if len(k.Synonyms) > 0 {
			return fmt.Sprintf("a topic's key: the default of all topics is %s", k.Synonyms[0].Name)
		}
		return "a topic's key: set it with kafka-configs --entity-type topics"
	}
	if k := GroupTable.Lookup(key); k != nil {
		if len(k.Synonyms) > 0 {
			return fmt.Sprintf("a group's key: the default of all groups is %s", k.Synonyms[0].Name)
		}
		return "a group's key: set it with kafka-configs --entity-type groups"
	}
	switch {
	case BrokerQuotaTable.Lookup(key) != nil:
		return "only a dynamic key: set it with kafka-configs --entity-type brokers"
	case UserQuotaTable.Lookup(key) != nil:
		return "a quota: set it with kafka-configs --entity-type users or clients"
	case IPQuotaTable.Lookup(key) != nil:
		return "a quota: set it with kafka-configs --entity-type ips"
	case clientKeys[key]:
		return "a client's key, not a broker's"
	}
	return ""
}

// nearest is the known key that differs from key by two letters at most.
func nearest(key string) string {
	best, at := "", 3
	for _, k := range BrokerTable.Sorted() {
		if d := distance(key, k.Name, at); d < at {
			best, at = k.Name, d
		}
	}
	return best
}

// distance is the number of letters to insert, delete or change, or max if it is not less.
func distance(a, b string, max int) int {
	if len(a)-len(b) >= max || len(b)-len(a) >= max {
		return max
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag, least := row[0], i
		row[0] = i
		for j := 1; j <= len(b); j++ {
			d := diag
			if a[i-1] != b[j-1] {
				d++
			}
			diag = row[j]
			row[j] = min(d, row[j]+1, row[j-1]+1)
			least = min(least, row[j])
		}
		if least >= max {
			return max
		}
	}
	return min(row[len(b)], max)
}
