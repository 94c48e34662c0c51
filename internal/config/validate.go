package config

import (
	"fmt"
	"sort"
	"strings"
)

// A pair is a rule about two keys, as Kafka words it.
type pair struct{ a, rule, b string }

const (
	notBelow = "must be greater than or equal to"
	notAbove = "must be less than or equal to"
	below    = "must be less than"
)

// groupPairs in Kafka's order: the group coordinator's, then the share groups'.
var groupPairs = []pair{
	{"group.consumer.max.heartbeat.interval.ms", notBelow, "group.consumer.min.heartbeat.interval.ms"},
	{"group.consumer.heartbeat.interval.ms", notBelow, "group.consumer.min.heartbeat.interval.ms"},
	{"group.consumer.heartbeat.interval.ms", notAbove, "group.consumer.max.heartbeat.interval.ms"},
	{"group.consumer.max.session.timeout.ms", notBelow, "group.consumer.min.session.timeout.ms"},
	{"group.consumer.session.timeout.ms", notBelow, "group.consumer.min.session.timeout.ms"},
	{"group.consumer.session.timeout.ms", notAbove, "group.consumer.max.session.timeout.ms"},
	{"group.consumer.heartbeat.interval.ms", below, "group.consumer.session.timeout.ms"},
	{"group.consumer.max.assignment.interval.ms", notBelow, "group.consumer.min.assignment.interval.ms"},
	{"group.consumer.assignment.interval.ms", notBelow, "group.consumer.min.assignment.interval.ms"},
	{"group.consumer.assignment.interval.ms", notAbove, "group.consumer.max.assignment.interval.ms"},
	{"group.share.max.heartbeat.interval.ms", notBelow, "group.share.min.heartbeat.interval.ms"},
	{"group.share.heartbeat.interval.ms", notBelow, "group.share.min.heartbeat.interval.ms"},
	{"group.share.heartbeat.interval.ms", notAbove, "group.share.max.heartbeat.interval.ms"},
	{"group.share.max.session.timeout.ms", notBelow, "group.share.min.session.timeout.ms"},
	{"group.share.session.timeout.ms", notBelow, "group.share.min.session.timeout.ms"},
	{"group.share.session.timeout.ms", notAbove, "group.share.max.session.timeout.ms"},
	{"group.share.heartbeat.interval.ms", below, "group.share.session.timeout.ms"},
	{"group.share.assignors", "", ""},
	{"group.share.max.assignment.interval.ms", notBelow, "group.share.min.assignment.interval.ms"},
	{"group.share.assignment.interval.ms", notBelow, "group.share.min.assignment.interval.ms"},
	{"group.share.assignment.interval.ms", notAbove, "group.share.max.assignment.interval.ms"},
	{"group.streams.max.heartbeat.interval.ms", notBelow, "group.streams.min.heartbeat.interval.ms"},
	{"group.streams.heartbeat.interval.ms", notBelow, "group.streams.min.heartbeat.interval.ms"},
	{"group.streams.heartbeat.interval.ms", notAbove, "group.streams.max.heartbeat.interval.ms"},
	{"group.streams.max.session.timeout.ms", notBelow, "group.streams.min.session.timeout.ms"},
	{"group.streams.session.timeout.ms", notBelow, "group.streams.min.session.timeout.ms"},
	{"group.streams.session.timeout.ms", notAbove, "group.streams.max.session.timeout.ms"},
	{"group.streams.heartbeat.interval.ms", below, "group.streams.session.timeout.ms"},
	{"group.streams.max.assignment.interval.ms", notBelow, "group.streams.min.assignment.interval.ms"},
	{"group.streams.assignment.interval.ms", notBelow, "group.streams.min.assignment.interval.ms"},
	{"group.streams.assignment.interval.ms", notAbove, "group.streams.max.assignment.interval.ms"},
	{"group.streams.num.standby.replicas", notAbove, "group.streams.max.standby.replicas"},
	{"group.streams.task.offset.interval.ms", notBelow, "group.streams.min.task.offset.interval.ms"},
	{"group.streams.num.warmup.replicas", notAbove, "group.streams.max.warmup.replicas"},
	{"group.share.max.delivery.count.limit", notBelow, "group.share.delivery.count.limit"},
	{"group.share.delivery.count.limit", notBelow, "group.share.min.delivery.count.limit"},
	{"group.share.max.partition.max.record.locks", notBelow, "group.share.partition.max.record.locks"},
	{"group.share.partition.max.record.locks", notBelow, "group.share.min.partition.max.record.locks"},
	{"group.share.record.lock.duration.ms", notBelow, "group.share.min.record.lock.duration.ms"},
	{"group.share.max.record.lock.duration.ms", notBelow, "group.share.record.lock.duration.ms"},
	{"group.share.max.share.sessions", notBelow, "group.share.max.size"},
}

// assignors are those that the coordinators bring, by their short and their class names.
var assignors = map[string][]string{
	"group.consumer.assignors": {"uniform", "range", "org.apache.kafka.coordinator.group.assignor.UniformAssignor", "org.apache.kafka.coordinator.group.assignor.RangeAssignor"},
	"group.share.assignors":    {"simple", "org.apache.kafka.coordinator.group.assignor.SimpleAssignor"},
	"group.streams.assignors":  {"sticky", "org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor"},
}

// checkGroups is what the configuration of the group coordinator checks of itself.
func (b *Broker) checkGroups() error {
	for _, k := range []string{"group.consumer.assignors", "group.share.assignors", "group.streams.assignors"} {
		for _, a := range b.List(k) {
			if indexOf(assignors[k], a) < 0 {
				return invalid(k, a, "Class cannot be found")
			}
		}
	}
	for _, k := range []string{"offsets.topic.compression.codec", "share.coordinator.state.topic.compression.codec"} {
		if id := b.Int(k); id < 0 || id > 4 {
			return &Error{IllegalArgumentException, k, fmt.Sprintf("Unknown compression type id: %d", id)}
		}
	}
	for _, p := range groupPairs {
		if p.rule == "" {
			if n := len(b.List(p.a)); n != 1 {
				return &Error{IllegalArgumentException, p.a, fmt.Sprintf("%s must contain exactly one assignor, but found %d", p.a, n)}
			}
			continue
		}
		x, y := b.Int(p.a), b.Int(p.b)
		if p.a == "group.share.max.delivery.count.limit" {
			if err := b.checkTags(); err != nil {
				return err
			}
		}
		if p.rule == notBelow && x < y || p.rule == notAbove && x > y || p.rule == below && x >= y {
			return &Error{IllegalArgumentException, p.a, p.a + " " + p.rule + " " + p.b}
		}
	}
	return nil
}

func (b *Broker) checkTags() error {
	const key = "group.streams.rack.aware.assignment.tags"
	tags := b.static[key]
	if list := splitList(trim(tags)); len(distinct(list)) != len(list) {
		return &Error{IllegalArgumentException, key, key + " must not contain duplicate tag keys."}
	}
	return nil
}

// checkEarly is what KafkaConfig checks of single keys before it looks at them together.
func (b *Broker) checkEarly() error {
	if v := b.Value("early.start.listeners"); !v.Null {
		var err error
		protocols, err := protocolMap(b.Text("listener.security.protocol.map"), b.explicit("listener.security.protocol.map"),
			b.ControllerListenerNames, b.List("listeners"))
		if err != nil {
			return err
		}
		listeners, err := parseEndpoints(b.List("listeners"), protocols, true)
		if err != nil {
			return err
		}
		for _, n := range v.List {
			if indexOf(listenerNames(listeners), n) < 0 && indexOf(b.ControllerListenerNames, n) < 0 {
				return configError("early.start.listeners", "early.start.listeners contains listener %s, but this is not contained in listeners or controller.listener.names", n)
			}
		}
	}
	if indexOf(b.List("group.coordinator.rebalance.protocols"), "classic") < 0 {
		return configError("group.coordinator.rebalance.protocols", "Disabling the 'classic' protocol is not supported.")
	}
	return nil
}

// validate is KafkaConfig's check of everything that needs more than one key, in its order: the first that fails is the
// one that Kafka names.
func (b *Broker) validate() error {
	if b.Int("node.id") != b.Int("broker.id") {
		return configError("node.id", "`node.id` and `broker.id` must be set to the same value. `broker.id` is deprecated, please use `node.id` instead.")
	}
	if b.LogRollMs() < 1 {
		return requirement("log.roll.ms", "log.roll.ms must be greater than or equal to 1")
	}
	if b.LogRollJitterMs() < 0 {
		return requirement("log.roll.jitter.ms", "log.roll.jitter.ms must be greater than or equal to 0")
	}
	if r := b.LogRetentionMs(); r < 1 && r != -1 {
		return requirement("log.retention.ms", "log.retention.ms must be unlimited (-1) or, greater than or equal to 1")
	}
	if len(b.LogDirs) == 0 {
		return requirement("log.dirs", "At least one log directory must be defined via log.dirs or log.dir.")
	}
	if err := b.validateCordoned(); err != nil {
		return err
	}
	if t := b.Int("log.cleaner.threads"); t == 0 || b.Int("log.cleaner.dedupe.buffer.size")/t <= 1<<20 {
		if t == 0 {
			return &Error{"java.lang.ArithmeticException", "log.cleaner.threads", "/ by zero"}
		}
		return requirement("log.cleaner.dedupe.buffer.size", "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.")
	}
	wait := b.Int("replica.fetch.wait.max.ms")
	if wait > b.Int("replica.socket.timeout.ms") {
		return requirement("replica.fetch.wait.max.ms", "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent unnecessary socket timeouts")
	}
	if wait > b.Int("replica.lag.time.max.ms") {
		return requirement("replica.fetch.wait.max.ms", "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms to prevent frequent changes in ISR")
	}
	if err := b.endpoints(); err != nil {
		return err
	}
	if err := b.validateRoles(); err != nil {
		return err
	}
	if err := b.validateBrokerListeners(); err != nil {
		return err
	}
	return b.validateRest()
}

func (b *Broker) validateCordoned() error {
	cordoned := b.List("cordoned.log.dirs")
	if len(cordoned) == 1 && cordoned[0] == "*" {
		b.CordonedLogDirs = b.LogDirs
		return nil
	}
	b.CordonedLogDirs = cordoned
	if indexOf(cordoned, "*") >= 0 {
		return requirement("cordoned.log.dirs", "When cordoned.log.dirs is set to *, it must not contain other values")
	}
	var missing []string
	for _, d := range cordoned {
		if indexOf(b.LogDirs, d) < 0 {
			missing = append(missing, d)
		}
	}
	if missing != nil {
		return requirement("cordoned.log.dirs", "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : %s", strings.Join(missing, ", "))
	}
	return nil
}

// endpoints reads the listeners.
func (b *Broker) endpoints() error {
	listeners := b.List("listeners")
	var err error
	b.Protocols, err = protocolMap(b.Text("listener.security.protocol.map"), b.explicit("listener.security.protocol.map"),
		b.ControllerListenerNames, listeners)
	if err != nil {
		return err
	}
	advertised := []Endpoint(nil)
	if v := b.Value("advertised.listeners"); !v.Null {
		if advertised, err = parseEndpoints(v.List, b.Protocols, false); err != nil {
			return err
		}
	}
	if b.Listeners, err = parseEndpoints(listeners, b.Protocols, true); err != nil {
		return err
	}
	from := advertised
	if b.Value("advertised.listeners").Null {
		from = b.Listeners
	}
	b.AdvertisedBroker = nil
	for _, e := range from {
		if indexOf(b.ControllerListenerNames, e.Listener) < 0 {
			b.AdvertisedBroker = append(b.AdvertisedBroker, e)
		}
	}
	b.AdvertisedController = nil
	for i, n := range b.ControllerListenerNames {
		e, ok := find(advertised, n)
		if !ok || indexOf(b.ControllerListenerNames, e.Listener) < 0 {
			if e, ok = find(b.Listeners, n); !ok || indexOf(b.ControllerListenerNames, e.Listener) < 0 {
				continue
			}
			if e.Host == "0.0.0.0" {
				e.Host = ""
			}
			// A controller that listens everywhere tells the address by which the static quorum knows it.
			for _, v := range b.Voters {
				if i == 0 && e.Host == "" && v.ID == b.NodeID {
					e.Host, e.Port = v.Host, v.Port
				}
			}
		}
		b.AdvertisedController = append(b.AdvertisedController, e)
	}
	return nil
}

func find(list []Endpoint, listener string) (Endpoint, bool) {
	for _, e := range list {
		if e.Listener == strings.ToUpper(listener) {
			return e, true
		}
	}
	return Endpoint{}, false
}

// voterIDs prints the ids as Kafka does: in the order of a Java hash table.
func (b *Broker) voterIDs() string {
	sorted := append([]Voter(nil), b.Voters...)
	buckets := int32(1)
	for int(buckets)*3 < len(sorted)*4 {
		buckets *= 2
	}
	slot := func(id int32) int32 { return (id ^ int32(uint32(id)>>16)) & (buckets - 1) }
	sort.SliceStable(sorted, func(i, j int) bool { return slot(sorted[i].ID) < slot(sorted[j].ID) })
	ids := make([]string, len(sorted))
	for i, v := range sorted {
		ids[i] = fmt.Sprint(v.ID)
	}
	name := "Set"
	if len(ids) > 4 {
		name = "HashSet"
	}
	return name + "(" + strings.Join(ids, ", ") + ")"
}

func (b *Broker) validateRoles() error {
	inVoters := false
	for _, v := range b.Voters {
		inVoters = inVoters || v.ID == b.NodeID
	}
	if len(b.Voters) == 0 && len(b.Bootstrap) == 0 {
		return configError("controller.quorum.bootstrap.servers", "If using process.roles, either controller.quorum.bootstrap.servers must "+
			"contain the set of bootstrap controllers or controller.quorum.voters must contain a parseable set of controllers.")
	}
	names := b.ControllerListenerNames
	if !b.IsController {
		if inVoters {
			return requirement("node.id", "If process.roles contains just the 'broker' role, the node id %d must not be included in the set of voters controller.quorum.voters=%s", b.NodeID, b.voterIDs())
		}
		if len(names) == 0 {
			return requirement("controller.listener.names", "controller.listener.names must contain at least one value when running KRaft with just the broker role")
		}
		for _, n := range names {
			if _, ok := find(b.Listeners, n); ok {
				return requirement("controller.listener.names", "controller.listener.names must not contain a value appearing in the 'listeners' configuration when running KRaft with just the broker role")
			}
		}
		for _, n := range names {
			if _, ok := b.Protocols[strings.ToUpper(n)]; !ok {
				return configError("controller.listener.names", "Controller listener with name %s defined in controller.listener.names not found in listener.security.protocol.map  "+
					"(an explicit security mapping for each controller listener is required if listener.security.protocol.map is non-empty, or if there are security protocols other than PLAINTEXT in use)", strings.ToUpper(n))
			}
		}
		if b.Bool("controller.quorum.auto.join.enable") {
			return requirement("controller.quorum.auto.join.enable", "controller.quorum.auto.join.enable is only supported when process.roles contains the 'controller' role.")
		}
		if len(names) > 1 {
			b.Warnings = append(b.Warnings, fmt.Sprintf("controller.listener.names has multiple entries; only the first will be used since process.roles=broker: [%s]", strings.Join(names, ", ")))
		}
		return nil
	}
	if !b.IsBroker {
		if len(b.AdvertisedController) != len(b.Listeners) {
			return requirement("listeners", "The listeners config must only contain KRaft controller listeners from controller.listener.names when process.roles=controller")
		}
		if _, _, err := b.interBroker(); err != nil && !b.Value("inter.broker.listener.name").Null {
			return err
		}
		if n := b.Value("inter.broker.listener.name"); !n.Null && indexOf(names, strings.ToUpper(n.Str)) >= 0 {
			return requirement("inter.broker.listener.name", "controller.listener.names must not contain an explicitly set inter.broker.listener.name configuration value when process.roles=controller'")
		}
	}
	if len(b.Voters) > 0 && !inVoters {
		return requirement("node.id", "If process.roles contains the 'controller' role, the node id %d must be included in the set of voters controller.quorum.voters=%s", b.NodeID, b.voterIDs())
	}
	if len(b.AdvertisedController) == 0 {
		return requirement("controller.listener.names", "controller.listener.names must contain at least one value appearing in the 'listeners' configuration when running the KRaft controller role")
	}
	for _, n := range names {
		if e, ok := find(b.Listeners, n); !ok || e.Listener != n {
			return requirement("controller.listener.names", "controller.listener.names must only contain values appearing in the 'listeners' configuration when running the KRaft controller role")
		}
	}
	return nil
}

func (b *Broker) validateBrokerListeners() error {
	var err error
	if b.InterBrokerListener, b.InterBrokerProtocol, err = b.interBroker(); err != nil && b.IsBroker {
		return err
	}
	if b.IsBroker {
		if len(b.AdvertisedBroker) == 0 {
			return requirement("advertised.listeners", "There must be at least one broker advertised listener. Perhaps all listeners appear in controller.listener.names?")
		}
		names := listenerNames(b.AdvertisedBroker)
		if indexOf(names, b.InterBrokerListener) < 0 {
			return requirement("inter.broker.listener.name", "inter.broker.listener.name must be a listener name defined in advertised.listeners. The valid options based on currently configured listeners are %s", strings.Join(names, ","))
		}
		all := listenerNames(b.Listeners)
		for _, n := range names {
			if indexOf(all, n) < 0 {
				return requirement("advertised.listeners", "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. Found %s. The valid options based on the current configuration are %s",
					strings.Join(names, ","), strings.Join(all, ","))
			}
		}
	}
	for _, list := range [][]Endpoint{b.AdvertisedBroker, b.AdvertisedController} {
		for _, e := range list {
			if e.Host == "0.0.0.0" {
				return requirement("advertised.listeners", "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.")
			}
		}
	}
	return err
}

func listenerNames(list []Endpoint) []string {
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = e.Listener
	}
	return out
}

// interBroker is the listener name and protocol between brokers.
func (b *Broker) interBroker() (listener, protocol string, err error) {
	name := b.Value("inter.broker.listener.name")
	if name.Null {
		p := b.Text("security.inter.broker.protocol")
		return p, p, nil
	}
	if b.explicit("security.inter.broker.protocol") { // both
		return "", "", configError("inter.broker.listener.name", "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.")
	}
	if name.Str == "" {
		return "", "", configError("inter.broker.listener.name", "The provided listener name is null or empty string")
	}
	listener = strings.ToUpper(name.Str)
	p, ok := b.Protocols[listener]
	if !ok {
		return "", "", configError("inter.broker.listener.name", "Listener with name %s defined in inter.broker.listener.name not found in listener.security.protocol.map.", listener)
	}
	return listener, p, nil
}

func (b *Broker) validateRest() error {
	if strings.HasPrefix(b.InterBrokerProtocol, "SASL_") {
		enabled, err := b.ForListener(b.InterBrokerListener, "sasl.enabled.mechanisms")
		if err != nil {
			return err
		}
		if indexOf(enabled.List, b.Text("sasl.mechanism.inter.broker.protocol")) < 0 {
			return requirement("sasl.mechanism.inter.broker.protocol", "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms when SASL is used for inter-broker communication")
		}
	}
	if q := b.Int("queued.max.request.bytes"); q > 0 && q < b.Int("socket.request.max.bytes") {
		return requirement("queued.max.request.bytes", "queued.max.request.bytes must be larger or equal to socket.request.max.bytes")
	}
	const overrides = "max.connections.per.ip.overrides"
	hosts, limits, err := parsePairs(overrides, b.Text(overrides))
	if err != nil {
		return err
	}
	for _, h := range hosts {
		if _, err := (&Key{Name: overrides, Type: Int}).Parse(limits[h]); err != nil {
			return &Error{"java.lang.NumberFormatException", overrides, fmt.Sprintf("For input string: \"%s\"", limits[h])}
		}
	}
	if b.Int("max.connections.per.ip") == 0 && len(hosts) == 0 {
		return requirement("max.connections.per.ip", "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.")
	}
	var bad []string
	for _, h := range hosts {
		if !validHost.MatchString(h) {
			bad = append(bad, h)
		}
	}
	if bad != nil {
		return &Error{IllegalArgumentException, overrides, "max.connections.per.ip.overrides contains invalid addresses : " + strings.Join(bad, ",")}
	}
	if idle := b.Int("connections.max.idle.ms"); idle >= 0 {
		if d := b.Int("connection.failed.authentication.delay.ms"); d >= idle {
			return requirement("connection.failed.authentication.delay.ms", "connection.failed.authentication.delay.ms=%d should always be less than connections.max.idle.ms=%d to prevent failed authentication responses from timing out", d, idle)
		}
	}
	if c := b.Text("principal.builder.class"); c != "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder" {
		return requirement("principal.builder.class", "principal.builder.class must implement KafkaPrincipalSerde")
	}
	if b.IsBroker && b.Int("broker.heartbeat.interval.ms")*2 > b.Int("broker.session.timeout.ms") {
		h, s := b.Int("broker.heartbeat.interval.ms"), b.Int("broker.session.timeout.ms")
		b.Warnings = append(b.Warnings, fmt.Sprintf("broker.heartbeat.interval.ms (%d ms) must be less than or equal to half of the broker.session.timeout.ms (%d ms). "+
			"The broker.session.timeout.ms is configured on controller. The broker.heartbeat.interval.ms is configured on broker. "+
			"If a broker doesn't send heartbeat request within broker.session.timeout.ms, it loses broker lease. "+
			"Please increase broker.session.timeout.ms or decrease broker.heartbeat.interval.ms.", h, s))
	}
	return nil
}
