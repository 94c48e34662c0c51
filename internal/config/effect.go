package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Effect is what setting a key does in this program. A key without one does not pass the tests: none is passed over in
// silence.
type Effect int8

const (
	// InForce: something reads the key.
	InForce Effect = iota + 1
	// NoEffect: the key is taken, checked, described and handed on as Kafka does, but nothing depends on it. A node says so
	// when it is set to something else than its default.
	NoEffect
	// Refused: a value other than the default ends the start, because passing it over would be less safe than what it asks
	// for.
	Refused
)

func (e Effect) String() string { return [...]string{"unknown", "in force", "no effect", "refused"}[e] }

// effectGroup is the keys that share an effect and its reason. Which keys those are is written out, never a pattern: a
// new key must be judged by somebody.
type effectGroup struct {
	effect Effect
	why    string // why the key has no effect, or is refused; a part of a sentence
	keys   string // separated by white space
}

// effects writes the effect of each key into the table.
func (t *Table) effects(groups []effectGroup) *Table {
	for _, g := range groups {
		for _, name := range strings.Fields(g.keys) {
			k := t.byName[name]
			if k == nil || k.Effect != 0 {
				panic("config: effect of " + name + " in " + t.Area + ": no such key, or twice")
			}
			k.Effect, k.Why = g.effect, g.why
		}
	}
	return t
}

// Notice is one sentence about a key that an operator should read.
type Notice struct {
	Key   string
	Value string // as set; Hidden for secrets
	Text  string // why, and the way out
}

func shownText(k *Key, text string) string {
	if k == nil || k.Type == Password {
		return Hidden
	}
	return text
}

// WithoutEffect lists the keys of the file that are set to something else than their default and have no effect here,
// sorted, with the reason.
func (b *Broker) WithoutEffect() []Notice { return withoutEffect(b.static) }

func withoutEffect(set map[string]string) []Notice {
	var out []Notice
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if why, k := noEffect(name, set[name]); why != "" {
			out = append(out, Notice{name, shownText(k, set[name]), why})
		}
	}
	return out
}

// noEffect is why a broker's key with this value does nothing, "" if it does something or asks for the default.
func noEffect(name, text string) (why string, k *Key) {
	if k = BrokerTable.Lookup(name); k == nil {
		k = BrokerQuotaTable.Lookup(name)
	}
	if k != nil {
		if k.Effect != NoEffect {
			return "", k
		}
		if v, err := k.Parse(text); err == nil && sameValue(v, k.DefaultValue()) {
			return "", k
		}
		return k.Why, k
	}
	if base, ok := listenerPrefix(name); ok {
		k = BrokerTable.Lookup(base)
		if k != nil && !perListener[base] && k.Effect == NoEffect {
			return k.Why, k
		}
		return "", k
	}
	for _, p := range prefixes {
		if p.why != "" && (name == p.prefix || strings.HasSuffix(p.prefix, ".") && strings.HasPrefix(name, p.prefix)) {
			if secret(name) {
				return p.why, nil
			}
			return p.why, &Key{Type: String}
		}
	}
	return "", nil
}

func sameValue(a, b Value) bool {
	return a.Null == b.Null && a.Text() == b.Text()
}

// perListener are the keys that are read for one listener, with listener.name.NAME. before them.
var perListener = map[string]bool{"max.connections": true, "max.connection.creation.rate": true}

// prefixes are the families of keys, and the single keys, that are in no table because plug-ins or providers define them;
// why says that nothing reads them here.
var prefixes = []struct{ prefix, why string }{
	{"config.providers.", ""},
	{"rsm.config.", noTiers},
	{"rlmm.config.", noTiers},
	{"metrics.context.", noMetrics},
	{"super.users", noAuthorizer},
	{"allow.everyone.if.no.acl.found", noAuthorizer},
}

// The reasons.
const (
	noTiers       = "there is no tiered storage yet"
	noFollowers   = "partitions are not replicated to other brokers yet"
	noGroups      = "there is no group coordinator yet"
	noShares      = "there are no share groups yet"
	noStreams     = "there are no streams groups yet"
	noTxns        = "there are no transactions yet"
	noSecurity    = "there are no TLS and SASL listeners yet; a node does not start with one"
	noAuthorizer  = "there is no authorizer yet; a node does not start with one"
	noTokens      = "there are no delegation tokens yet"
	noQuotas      = "quotas are stored and shown but not enforced yet"
	noMetrics     = "there are no metrics yet"
	noReporters   = "Java plug-ins cannot be loaded"
	noPools       = "work is not done by pools of threads: each connection has a goroutine, and the Go runtime spreads them over the cores"
	noPurgatory   = "requests that wait leave their list when they are answered; there is nothing to purge"
	noClientPush  = "clients' metrics are not taken yet"
	internalKnobs = "a knob of Kafka's own tests"
)

// RefuseError is a configuration that is valid for Kafka but asks for what this program does not have.
type RefuseError struct {
	Key  string
	Text string
	Hint string // the way out
}

func (e *RefuseError) Error() string { return e.Text }

// Refuse holds a configuration against what this program serves. What would be less safe than it was asked for, were it
// passed over, is refused. The error is a *RefuseError.
func (b *Broker) Refuse() error {
	if all := b.refusals(); len(all) > 0 {
		return all[0]
	}
	return nil
}

func (b *Broker) refusals() (out []*RefuseError) {
	if v := b.Text("authorizer.class.name"); v != "" {
		out = append(out, &RefuseError{
			Key:  "authorizer.class.name",
			Text: fmt.Sprintf("Invalid value %s for configuration authorizer.class.name: this version has no authorizer", v),
			Hint: "Remove authorizer.class.name: the listeners then serve everybody who reaches them.",
		})
	}
	if b.Bool("remote.log.storage.system.enable") {
		out = append(out, &RefuseError{
			Key:  "remote.log.storage.system.enable",
			Text: "Invalid value true for configuration remote.log.storage.system.enable: this version has no tiered storage, and records that lie only in remote storage could not be read",
			Hint: "Set remote.log.storage.system.enable=false if no topic has remote.storage.enable=true.",
		})
	}
	for _, e := range b.Listeners {
		if e.Protocol != "PLAINTEXT" {
			out = append(out, &RefuseError{
				Key:  "listeners",
				Text: fmt.Sprintf("Invalid value %s for configuration listeners: the listener has the security protocol %s, which this version does not serve", e, e.Protocol),
				Hint: fmt.Sprintf("Give %s the protocol PLAINTEXT in listener.security.protocol.map, or take it out of listeners.", e.Listener),
			})
		}
	}
	return out
}

// secret tells whether the name of a key that no table has speaks of one.
func secret(key string) bool {
	key = strings.ToLower(key)
	for _, word := range []string{"password", "secret", "jaas", "token", "credential", "private"} {
		if strings.Contains(key, word) {
			return true
		}
	}
	return false
}
