package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// dynamicKey tells whether a broker's key can be changed while it runs.
func dynamicKey(name string) bool {
	if BrokerQuotaTable.Lookup(name) != nil {
		return true
	}
	if base, ok := listenerPrefix(name); ok {
		k := BrokerTable.Lookup(base)
		return k == nil || k.Update == PerBroker || listenerOnly[base]
	}
	k := BrokerTable.Lookup(name)
	return k != nil && k.Update != ReadOnly
}

// listenerOnly are limits that are read-only as such but dynamic for one listener.
var listenerOnly = map[string]bool{"max.connections": true, "max.connection.creation.rate": true, "num.network.threads": true,
	"connections.max.reauth.ms": true, "sasl.server.max.receive.size": true}

// sslReconfigurable are the security keys that can be changed only for one listener.
var sslReconfigurable = map[string]bool{"ssl.keystore.type": true, "ssl.keystore.location": true, "ssl.keystore.password": true,
	"ssl.key.password": true, "ssl.truststore.type": true, "ssl.truststore.location": true, "ssl.truststore.password": true,
	"ssl.keystore.certificate.chain": true, "ssl.keystore.key": true, "ssl.truststore.certificates": true}

// ValidateDynamic checks the dynamic configs of a broker (perBroker) or the cluster's default, all of them as they would
// be after a change, as Kafka does before it lets the controller write them. Unknown keys pass. The error is an *Error,
// and goes to the client as INVALID_REQUEST.
func (b *Broker) ValidateDynamic(props map[string]string, perBroker bool) error {
	if err := checkDynamic(props, perBroker); err != nil {
		return err
	}
	cluster, node := b.cluster, props
	if !perBroker {
		cluster, node = props, b.node
	}
	n, err := newBroker(b.static, cluster, node)
	if err != nil {
		return err
	}
	return b.validateChange(n)
}

func sortedKeys(m map[string]string, keep func(string) bool) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if keep(k) {
			out = append(out, k)
		}
	}
	return out
}

func checkDynamic(props map[string]string, perBroker bool) *Error {
	refuse := func(why string, bad []string) *Error {
		if bad == nil {
			return nil
		}
		return configError(bad[0], "%s: [%s]", why, strings.Join(bad, ", "))
	}
	if err := refuse("Cannot update these configs dynamically", sortedKeys(props, func(k string) bool { return brokerKey(k) != nil && !dynamicKey(k) })); err != nil {
		return err
	}
	if err := refuse("These security configs can be dynamically updated only per-listener using the listener prefix",
		sortedKeys(props, func(k string) bool { return sslReconfigurable[k] })); err != nil {
		return err
	}
	for _, k := range sortedKeys(props, func(string) bool { return true }) {
		key := brokerKey(k)
		if key == nil {
			continue
		}
		if _, err := key.Parse(props[k]); err != nil {
			return err.(*Error)
		}
	}
	if perBroker {
		return nil
	}
	return refuse("Cannot update these configs at default cluster level, broker id must be specified", sortedKeys(props, func(k string) bool {
		if _, ok := listenerPrefix(k); ok {
			return true
		}
		key := BrokerTable.Lookup(k)
		return key != nil && key.Update == PerBroker
	}))
}

// pools are the keys of thread counts, which may at most double or halve in one change.
var pools = []string{"num.io.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir", "background.threads"}

// validateChange is what Kafka's reconfigurable parts check of a change from b to n.
func (b *Broker) validateChange(n *Broker) error {
	for _, k := range pools {
		now, then := b.Int(k), n.Int(k)
		if now == then {
			continue
		}
		text := "Dynamic thread count update validation failed for " + k + "=" + n.Text(k) + ", "
		switch {
		case then <= 0:
			return configError(k, "%svalue should be at least 1", text)
		case then < now/2:
			return configError(k, "%svalue should be at least half the current value %d", text, now)
		case then > now*2:
			return configError(k, "%svalue should not be greater than double the current value %d", text, now)
		}
	}
	now, then := b.Int("log.cleaner.threads"), n.Int("log.cleaner.threads")
	switch {
	case then < 1:
		return configError("log.cleaner.threads", "Log cleaner threads should be at least 1")
	case then < now/2:
		return configError("log.cleaner.threads", "Log cleaner threads cannot be reduced to less than half the current value %d", now)
	case then > now*2:
		return configError("log.cleaner.threads", "Log cleaner threads cannot be increased to more than double the current value %d", now)
	}
	if len(n.Listeners) == 0 {
		return configError("listeners", "Listeners cannot be empty")
	}
	return nil
}

// Rejected is a dynamic config that was stored but cannot be used here.
type Rejected struct {
	Key string
	Err error
}

// WithDynamic is the configuration with other dynamic configs. A stored config that cannot be used is left out and
// named: a broker must start with what the log holds.
func (b *Broker) WithDynamic(cluster, node map[string]string) (*Broker, []Rejected) {
	var bad []Rejected
	clean := func(m map[string]string, perBroker bool) map[string]string {
		out := make(map[string]string, len(m))
		for _, k := range sortedKeys(m, func(string) bool { return true }) {
			if err := checkDynamic(map[string]string{k: m[k]}, perBroker); err != nil {
				bad = append(bad, Rejected{k, err})
				continue
			}
			out[k] = m[k]
		}
		return out
	}
	c, n := clean(cluster, false), clean(node, true)
	clampIntervals(b, c)
	clampIntervals(b, n)
	out, err := newBroker(b.static, c, n)
	for err != nil {
		// Two that are fine alone but not together: give up the one at fault, or all if that is unknown.
		key := err.(*Error).Key
		_, inNode := n[key]
		_, inCluster := c[key]
		switch {
		case inNode:
			delete(n, key)
		case inCluster:
			delete(c, key)
		default:
			n, c = nil, nil
		}
		bad = append(bad, Rejected{key, err})
		out, err = newBroker(b.static, c, n)
	}
	return out, bad
}

// clampIntervals brings stored assignment intervals within the bounds that the file sets today.
func clampIntervals(b *Broker, m map[string]string) {
	for _, kind := range []string{"consumer", "share", "streams"} {
		key := "group." + kind + ".assignment.interval.ms"
		v, err := Int.parse(key, m[key])
		if err != nil {
			continue
		}
		min, max := b.Int("group."+kind+".min.assignment.interval.ms"), b.Int("group."+kind+".max.assignment.interval.ms")
		if v.Int < min {
			m[key] = strconv.FormatInt(min, 10)
		} else if v.Int > max {
			m[key] = strconv.FormatInt(max, 10)
		}
	}
}
