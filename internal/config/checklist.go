package config

import (
	"fmt"
	"net/netip"
	"strings"
)

// loopback tells whether a host means only the machine itself.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && a.IsLoopback()
}

// checkListeners names addresses that others cannot use.
func (r *Report) checkListeners() {
	b := r.node.broker
	if b == nil {
		return
	}
	bound := make(map[string]Endpoint)
	for _, e := range b.Listeners {
		bound[e.Listener] = e
	}
	alone := len(b.Voters) <= 1
	for _, e := range append(append([]Endpoint(nil), b.AdvertisedBroker...), b.AdvertisedController...) {
		at, explicit := bound[e.Listener], r.node.set("advertised.listeners")
		switch {
		case e.Host == "" && !explicit:
			r.advise("listeners", fmt.Sprintf("Listener %s has no host: this machine's own name is advertised, which clients and other nodes must be able to resolve.", e.Listener),
				"Set advertised.listeners to a name or address that they know.")
		case loopback(e.Host) && !loopback(at.Host):
			r.mistake("advertised.listeners", fmt.Sprintf("Listener %s listens on %s but advertises %s: clients on other machines are sent to themselves.", e.Listener, hostOrAll(at.Host), e.Host),
				"Advertise a name or address by which they reach this machine.")
		case loopback(e.Host) && !alone:
			r.advise("listeners", fmt.Sprintf("Listener %s is only reachable from this machine.", e.Listener), "Let it listen on an address that the other nodes reach.")
		}
	}
	for _, v := range b.Voters {
		if v.ID != b.NodeID || len(b.ControllerListenerNames) == 0 {
			continue
		}
		if e, ok := find(b.AdvertisedController, b.ControllerListenerNames[0]); ok && e.Port != v.Port {
			r.mistake("controller.quorum.voters", fmt.Sprintf("controller.quorum.voters has this node at port %d, but listener %s is at port %d.", v.Port, e.Listener, e.Port),
				"Write the same port in both.")
		}
	}
}

func hostOrAll(host string) string {
	if host == "" {
		return "all addresses"
	}
	return host
}

// checklist is what a cluster needs to survive the loss of a machine without losing records or standing still.
func (r *Report) checklist() {
	l := r.node
	check := func(ok bool, text, fix string) {
		if ok {
			fix = ""
		}
		r.Checklist = append(r.Checklist, CheckItem{ok, text, fix})
	}
	atLeast := func(key string, n int64) {
		check(l.num(key) >= n, l.show(key), fmt.Sprintf("Set %s=%d.", key, n))
	}
	equal := func(key string, want bool, why string) {
		check(l.flag(key) == want, l.show(key), fmt.Sprintf("Set %s=%v: %s.", key, want, why))
	}
	if voters := l.voters(); len(voters) > 0 {
		n := len(voters)
		check(n >= 3 && n%2 == 1, fmt.Sprintf("controllers in controller.quorum.voters: %d", n), "Have three controllers, or five: a majority must be left.")
	} else {
		n := len(l.bootstrap())
		check(n >= 3, fmt.Sprintf("controllers in controller.quorum.bootstrap.servers: %d", n), "Name three controllers, or five, of a quorum of as many voters.")
	}
	check(!l.role("broker") || !l.role("controller"), l.show("process.roles"), "Let controllers run apart from brokers, so that a busy broker does not slow the quorum down.")
	atLeast("default.replication.factor", 3)
	atLeast("min.insync.replicas", 2)
	if l.num("default.replication.factor") >= 3 {
		check(l.num("min.insync.replicas") < l.num("default.replication.factor"), l.show("min.insync.replicas")+" below "+l.show("default.replication.factor"),
			"Keep min.insync.replicas below the replication factor, or the loss of one broker stops all writes with acks=all.")
	}
	equal("unclean.leader.election.enable", false, "a replica that is behind loses records when it leads")
	if l.role("broker") {
		atLeast("offsets.topic.replication.factor", 3)
		atLeast("transaction.state.log.replication.factor", 3)
		atLeast("transaction.state.log.min.isr", 2)
		atLeast("share.coordinator.state.topic.replication.factor", 3)
		atLeast("share.coordinator.state.topic.min.isr", 2)
		rack := l.text("broker.rack")
		text := "broker.rack is not set"
		if rack != "" {
			text = l.show("broker.rack")
		}
		check(rack != "", text, "Set broker.rack to the rack, zone or machine that fails as a whole.")
		equal("auto.create.topics.enable", false, "a mistyped name makes a topic, with the defaults")
		equal("controlled.shutdown.enable", true, "a broker that stops should hand its leaderships over")
	}
	if l.role("controller") {
		equal("auto.leader.rebalance.enable", true, "after a restart a broker would not lead again")
	}
	dirs := l.values["log.dirs"].List
	if l.values["log.dirs"].Null {
		dirs = l.values["log.dir"].List
	}
	if !l.values["metadata.log.dir"].Null {
		dirs = append(append([]string(nil), dirs...), l.text("metadata.log.dir"))
	}
	temporary := ""
	for _, d := range dirs {
		if d == "/tmp" || strings.HasPrefix(d, "/tmp/") || strings.HasPrefix(d, "/var/tmp/") || strings.HasPrefix(d, "/dev/shm") {
			temporary = d
		}
	}
	if temporary == "" {
		check(true, "data in "+strings.Join(dirs, ", "), "")
	} else {
		check(false, "data in "+temporary, "Put the data where a restart of the machine does not delete it.")
	}
}
