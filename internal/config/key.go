package config

import (
	"sort"
	"strings"
)

// Type is how a property's text is read. The numbers are those of the wire (DescribeConfigs).
type Type int8

// The types of Kafka's ConfigDef.
const (
	Boolean  Type = 1
	String   Type = 2
	Int      Type = 3
	Short    Type = 4
	Long     Type = 5
	Double   Type = 6
	List     Type = 7
	Class    Type = 8
	Password Type = 9
)

func (t Type) String() string {
	switch t {
	case Boolean:
		return "BOOLEAN"
	case String:
		return "STRING"
	case Int:
		return "INT"
	case Short:
		return "SHORT"
	case Long:
		return "LONG"
	case Double:
		return "DOUBLE"
	case List:
		return "LIST"
	case Class:
		return "CLASS"
	case Password:
		return "PASSWORD"
	}
	return "UNKNOWN"
}

// Importance is Kafka's rating of a key.
type Importance int8

// Kafka's three ratings.
const (
	High Importance = iota
	Medium
	Low
)

func (i Importance) String() string { return [...]string{"HIGH", "MEDIUM", "LOW"}[i] }

// Update says how a broker's key can be changed while the node runs.
type Update int8

// Kafka's dynamic update modes. NoUpdate is for tables where the question makes no sense (topics, groups).
const (
	NoUpdate    Update = iota
	ReadOnly           // only by the file and a restart
	PerBroker          // for one broker or as the cluster's default
	ClusterWide        // for one broker, as Kafka allows for testing, or as the cluster's default
)

func (u Update) String() string {
	return [...]string{"-", "read-only", "per-broker", "cluster-wide"}[u]
}

// Key is one property.
type Key struct {
	Name       string
	Type       Type
	Default    string // its text; see NullDefault and Required
	Null       bool   // the default is null
	Required   bool   // there is no default
	Check      Check  // nil: every value of the type is valid
	Importance Importance
	Update     Update
	Internal   bool // not documented by Kafka; described only where a topic or group has it
	Deprecated bool
	// Synonyms are the other keys that are looked up for this one, in turn. For a topic's or group's key they are the
	// broker's keys that give its default.
	Synonyms []Synonym
	Doc      string // one sentence, ours
	Ours     bool   // not Kafka's
	// Effect says what setting the key does here; Why, if it is no effect or a refusal, the reason (effect.go).
	Effect Effect
	Why    string
}

// Synonym is another key whose value, times a factor, stands in for the key's own.
type Synonym struct {
	Name   string
	Factor int64 // 1, or milliseconds per minute or hour
}

func syn(names ...string) []Synonym {
	out := make([]Synonym, len(names))
	for i, n := range names {
		f := int64(1)
		if name, unit, ok := strings.Cut(n, "*"); ok {
			n = name
			switch unit {
			case "60000":
				f = 60000
			case "3600000":
				f = 3600000
			default:
				panic("config: factor " + unit)
			}
		}
		out[i] = Synonym{n, f}
	}
	return out
}

// Table is the keys of one area.
type Table struct {
	Area   string
	Keys   []*Key // in the order in which Kafka defines, and so checks, them
	byName map[string]*Key
	sorted []*Key
}

func newTable(area string, keys ...[]*Key) *Table {
	t := &Table{Area: area, byName: make(map[string]*Key)}
	for _, ks := range keys {
		for _, k := range ks {
			if t.byName[k.Name] != nil {
				panic("config: key twice: " + k.Name)
			}
			t.byName[k.Name] = k
			t.Keys = append(t.Keys, k)
		}
	}
	t.sorted = append([]*Key(nil), t.Keys...)
	sort.Slice(t.sorted, func(i, j int) bool { return t.sorted[i].Name < t.sorted[j].Name })
	return t
}

// Lookup is the key of that name, or nil.
func (t *Table) Lookup(name string) *Key { return t.byName[name] }

// Sorted is the keys by name. The slice is shared: don't change it.
func (t *Table) Sorted() []*Key { return t.sorted }

// The tables.
var (
	BrokerTable        = newTable("broker", brokerKeys, ownBrokerKeys).effects(brokerEffects).withDocs()
	TopicTable         = newTable("topic", topicKeys).effects(topicEffects).withDocs()
	GroupTable         = newTable("group", groupKeys).effects(groupEffects).withDocs()
	ClientMetricsTable = newTable("client-metrics", clientMetricsKeys).effects(clientMetricsEffects).withDocs()
	// UserQuotaTable has the quotas of users, client ids and both together; IPQuotaTable those of addresses.
	UserQuotaTable = newTable("user quota", userQuotaKeys).effects(userQuotaEffects).withDocs()
	IPQuotaTable   = newTable("ip quota", ipQuotaKeys).effects(ipQuotaEffects).withDocs()
	// BrokerQuotaTable has the keys that exist only as dynamic broker configs: the replication throttles.
	BrokerQuotaTable = newTable("broker quota", brokerQuotaKeys).effects(brokerQuotaEffects).withDocs()
)
