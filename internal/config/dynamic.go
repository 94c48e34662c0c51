package config

import (
	"errors"
	"fmt"
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
	if err := checkDynamic(props, perBroker, false); err != nil {
		return err
	}
	cluster, node := b.cluster, props
	if !perBroker {
		cluster, node = props, b.node
	}
	// The layer that changes has been judged; the other may hold an older Kafka's values, which are no obstacle.
	n, err := newBroker(b.static, cluster, node, true)
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

func checkDynamic(props map[string]string, perBroker, stored bool) *Error {
	refuse := func(why string, bad []string) *Error {
		if bad == nil {
			return nil
		}
		return configError(bad[0], "%s: [%s]", why, strings.Join(bad, ", "))
	}
	if err := refuse("Cannot update these configs dynamically", sortedKeys(props, func(k string) bool {
		_, prefixed := listenerPrefix(k) // those are never looked at, as in Kafka
		return !prefixed && brokerKey(k) != nil && !dynamicKey(k)
	})); err != nil {
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
		_, err := key.Parse(props[k])
		if err != nil && stored {
			_, _, err = key.ParseStored(props[k])
		}
		if err != nil {
			return err.(*Error)
		}
	}
	if perBroker {
		return nil
	}
	return refuse("Cannot update these configs at default cluster level, broker id must be specified", sortedKeys(props, func(k string) bool {
		base, _ := listenerPrefix(k)
		key := BrokerTable.Lookup(base)
		return key != nil && key.Update == PerBroker
	}))
}

// pools are the keys of thread counts, which may at most double or halve in one change.
var pools = []string{"num.io.threads", "num.network.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir", "background.threads",
	"remote.log.reader.threads", "remote.log.manager.copier.thread.pool.size", "remote.log.manager.expiration.thread.pool.size",
	"remote.log.manager.follower.thread.pool.size"}

// validateChange is what Kafka's reconfigurable parts, and this program, check of a change from b to n.
func (b *Broker) validateChange(n *Broker) error {
	for _, check := range []func(*Broker) *Error{b.changePools, b.changeCleaner, b.changeTiers, b.changeLimits, b.changeReporters, b.changeListeners} {
		if err := check(n); err != nil {
			err.Text = "Invalid value " + err.Class + ": " + err.Text + " for configuration Invalid dynamic configuration"
			return err
		}
	}
	var r *RefuseError
	if b.Refuse() == nil && errors.As(n.Refuse(), &r) {
		return configError(r.Key, "%s", r.Text)
	}
	return nil
}

func (b *Broker) changePools(n *Broker) *Error {
	check := func(k string, now, then int64) *Error {
		text := fmt.Sprintf("Dynamic thread count update validation failed for %s=%d, ", k, then)
		switch {
		case now == then:
		case then <= 0:
			return configError(k, "%svalue should be at least 1", text)
		case then < now/2:
			return configError(k, "%svalue should be at least half the current value %d", text, now)
		case then > now*2:
			return configError(k, "%svalue should not be greater than double the current value %d", text, now)
		}
		return nil
	}
	for _, k := range pools {
		if err := check(k, b.Int(k), n.Int(k)); err != nil {
			return err
		}
	}
	const network = "num.network.threads"
	for _, e := range n.Listeners {
		now, err := b.ForListener(e.Listener, network)
		then, err2 := n.ForListener(e.Listener, network)
		if err != nil || err2 != nil { // of the file
			continue
		}
		if err := check(network, now.Int, then.Int); err != nil {
			return err
		}
	}
	return nil
}

func (b *Broker) changeCleaner(n *Broker) *Error {
	now, then := b.Int("log.cleaner.threads"), n.Int("log.cleaner.threads")
	switch {
	case then < 1:
		return configError("log.cleaner.threads", "Log cleaner threads should be at least 1")
	case then < now/2:
		return configError("log.cleaner.threads", "Log cleaner threads cannot be reduced to less than half the current value %d", now)
	case then > now*2:
		return configError("log.cleaner.threads", "Log cleaner threads cannot be increased to more than double the current value %d", now)
	}
	return nil
}

// changeTiers holds what stays here of a tiered topic by default against its whole retention.
func (b *Broker) changeTiers(n *Broker) *Error {
	for _, k := range []struct {
		all, local, lag string
		retention       int64
	}{
		{"log.retention.ms", "log.local.retention.ms", "log.remote.copy.lag.ms", n.LogRetentionMs()},
		{"log.retention.bytes", "log.local.retention.bytes", "log.remote.copy.lag.bytes", n.Int("log.retention.bytes")},
	} {
		local := n.Int(k.local)
		if k.retention != -1 && local != -2 {
			if local == -1 {
				return invalid(k.local, "-1", fmt.Sprintf("Value must not be -1 as %s value is set as %d.", k.all, k.retention))
			}
			if local > k.retention {
				return invalid(k.local, strconv.FormatInt(local, 10), fmt.Sprintf("Value must not be more than %s property value: %d", k.all, k.retention))
			}
		}
		if local == -2 {
			local = k.retention
		}
		if lag := n.Int(k.lag); lag > 0 && local != -1 && lag > local {
			return invalid(k.lag, strconv.FormatInt(lag, 10), fmt.Sprintf("Value must not exceed %s (effective value: %d)", k.local, local))
		}
	}
	return nil
}

// changeLimits: a limit of no connections at all is taken from a file only.
func (b *Broker) changeLimits(n *Broker) *Error {
	for _, k := range []string{"max.connections", "max.connection.creation.rate"} {
		if n.dynamic(k) && n.Int(k) <= 0 {
			return configError(k, "Invalid %s %d", k, n.Int(k))
		}
		for _, e := range n.Listeners {
			if v, err := n.ForListener(e.Listener, k); err == nil && v.Int <= 0 && n.dynamic("listener.name."+strings.ToLower(e.Listener)+"."+k) {
				return configError(k, "Invalid %s %d", k, v.Int)
			}
		}
	}
	return nil
}

func (b *Broker) changeReporters(n *Broker) *Error {
	const key = "metric.reporters"
	if n.dynamic(key) && !slices.Equal(b.List(key), n.List(key)) {
		for _, class := range n.List(key) {
			if !knownClass(class) {
				return configError(key, "Validation of dynamic config update of Set(%s) failed with class class kafka.server.DynamicMetricsReporters", key)
			}
		}
	}
	return nil
}

// changeListeners: listeners may come and go, but one that stays stays as it is.
func (b *Broker) changeListeners(n *Broker) *Error {
	names := listenerNames(n.Listeners)
	for _, name := range listenerNames(b.AdvertisedBroker) {
		if indexOf(names, name) < 0 {
			return configError("listeners", "Advertised listeners '[%s]' must be a subset of listeners '[%s]'",
				strings.Join(listenerNames(b.AdvertisedBroker), ", "), strings.Join(names, ", "))
		}
	}
	if slices.Equal(b.List("listeners"), n.List("listeners")) && maps.Equal(b.Protocols, n.Protocols) {
		return nil
	}
	for _, e := range b.Listeners {
		if indexOf(names, e.Listener) < 0 {
			continue
		}
		fixed := func(c *Broker) map[string]string {
			m := c.WithPrefix("listener.name." + strings.ToLower(e.Listener) + ".")
			maps.DeleteFunc(m, func(k, _ string) bool { return dynamicKey("listener.name.x." + k) })
			return m
		}
		if !maps.Equal(fixed(b), fixed(n)) {
			return configError("listeners", "Configs cannot be updated dynamically for existing listener ListenerName(%s), restart broker or create a new listener for update", e.Listener)
		}
		if b.Protocols[e.Listener] != n.Protocols[e.Listener] {
			return configError("listener.security.protocol.map", "Security protocol cannot be updated for existing listener ListenerName(%s)", e.Listener)
		}
	}
	return nil
}

// WithDynamic is the configuration with other dynamic configs. A stored config that cannot be used is left out and
// named: a node must start with what the log holds. One that an older Kafka allowed stays in force and is named.
func (b *Broker) WithDynamic(cluster, node map[string]string) (*Broker, []Notice) {
	var bad []Notice
	say := func(key, text, why string) {
		bad = append(bad, Notice{key, shownText(brokerKey(key), text), why})
	}
	refused := func(key, text string, err error) {
		say(key, text, fmt.Sprintf("cannot be used and is left out: %v", err))
	}
	clean := func(m map[string]string, perBroker bool) map[string]string {
		out := make(map[string]string, len(m))
		for _, k := range sortedKeys(m, func(string) bool { return true }) {
			if err := checkDynamic(map[string]string{k: m[k]}, perBroker, true); err != nil {
				refused(k, m[k], err)
				continue
			}
			if key := BrokerTable.Lookup(k); key != nil {
				if _, note, _ := key.ParseStored(m[k]); note != "" {
					say(k, m[k], "stays in force: "+note)
				}
			}
			out[k] = m[k]
		}
		return out
	}
	c, n := clean(cluster, false), clean(node, true)
	clampIntervals(b, c)
	clampIntervals(b, n)
	out, err := newBroker(b.static, c, n, true)
	out, err = servable(b, out, err)
	for err != nil {
		// Fine alone but not together: give up the one at fault, or all if that is unknown.
		key := err.(*Error).Key
		text, inNode := n[key]
		atDefault, inCluster := c[key]
		switch {
		case inNode:
			delete(n, key)
		case inCluster:
			text = atDefault
			delete(c, key)
		default:
			n, c = nil, nil
			key = "all dynamic configs"
		}
		refused(key, text, err)
		out, err = newBroker(b.static, c, n, true)
		out, err = servable(b, out, err)
	}
	return out, bad
}

// servable makes an error of a configuration that asks for what this program refuses to start with.
func servable(b, n *Broker, err error) (*Broker, error) {
	var r *RefuseError
	if err == nil && b.Refuse() == nil && errors.As(n.Refuse(), &r) {
		return n, configError(r.Key, "%s", r.Text)
	}
	return n, err
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

// DynamicWithoutEffect lists the dynamic configs that have no effect here, with the reason: known keys, then unknown ones.
func (b *Broker) DynamicWithoutEffect() []Notice {
	set := maps.Clone(b.cluster)
	if set == nil {
		set = make(map[string]string)
	}
	maps.Copy(set, b.node)
	out := withoutEffect(set)
	for _, k := range slices.Sorted(maps.Keys(set)) {
		if brokerKey(k) == nil && !prefixed(k) {
			why := hint(k)
			if why == "" {
				why = "nothing reads it"
			}
			out = append(out, Notice{k, Hidden, why})
		}
	}
	return out
}

// Change is a key whose value another configuration has changed. Secrets are hidden.
type Change struct {
	Key, Value, Was string
	Source          Source
}

// Changed lists the keys in force whose value in n differs from that in b, sorted, the settings of single listeners among
// them.
func (b *Broker) Changed(n *Broker) []Change {
	shown := func(c *Broker, name string, k *Key) string {
		if BrokerTable.Lookup(name) != nil {
			if v := c.Value(name); !v.Null {
				return shownText(k, v.Text())
			}
		} else if text, ok := c.text(name); ok {
			return shownText(k, text)
		}
		return "null"
	}
	names := make(map[string]bool)
	for _, m := range []map[string]string{b.cluster, b.node, n.cluster, n.node} {
		for k := range m { // into a map: any order
			names[k] = true
		}
	}
	var out []Change
	for _, name := range slices.Sorted(maps.Keys(names)) {
		k := brokerKey(name)
		base, _ := listenerPrefix(name)
		if k == nil || k.Effect != InForce || base != name && !perListener[base] {
			continue
		}
		was, now := shown(b, name, k), shown(n, name, k)
		if was == now {
			continue
		}
		source := SourceDefault
		if in := n.lookedUp(name, false); len(in) > 0 {
			source = in[0].Source
		}
		out = append(out, Change{name, now, was, source})
	}
	return out
}
