package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Level is how bad a Finding is.
type Level string

// From a node that does not start to what only a cluster that must survive the loss of a machine needs.
const (
	LevelError   Level = "error"   // a node does not start with it
	LevelMistake Level = "mistake" // a node starts, but not with what the file seems to want
	LevelAdvice  Level = "advice"
)

// Finding is something in a file that should be changed.
type Finding struct {
	Level Level  `json:"level"`
	Key   string `json:"key,omitempty"`
	Line  int    `json:"line,omitempty"` // 0 if it does not come from a line of the file
	Text  string `json:"text"`
	Fix   string `json:"fix,omitempty"`
}

// ReportKey is one key of a file, explained.
type ReportKey struct {
	Key     string `json:"key"`
	Value   string `json:"value"` // Hidden for secrets
	Line    int    `json:"line,omitempty"`
	Type    string `json:"type,omitempty"` // none: the key is unknown
	Default string `json:"default"`
	Valid   string `json:"valid,omitempty"`
	Update  string `json:"update,omitempty"`
	Effect  string `json:"effect"` // "in force", "no effect", "refused", "unknown"
	Why     string `json:"why,omitempty"`
	Doc     string `json:"doc,omitempty"`
}

// Report is what is to be said of a node's file.
type Report struct {
	File      string      `json:"file"`
	NodeID    int32       `json:"nodeId"`
	Roles     []string    `json:"roles"`
	Keys      []ReportKey `json:"keys"`
	Checklist []CheckItem `json:"checklist"`
	Findings  []Finding   `json:"findings"`

	node *lenient
}

// CheckItem is one line of the checklist of a cluster that survives the loss of a machine.
type CheckItem struct {
	OK   bool   `json:"ok"`
	Text string `json:"text"`
	Fix  string `json:"fix,omitempty"`
}

// lenient is a configuration that may have faults: a value that cannot be used counts as the default.
type lenient struct {
	p      *Properties
	static map[string]string
	broker *Broker // nil if the node would not start
	values map[string]Value
}

func (l *lenient) set(key string) bool          { _, ok := l.static[key]; return ok }
func (l *lenient) num(key string) int64         { return l.values[key].Int }
func (l *lenient) has(key, element string) bool { return indexOf(l.values[key].List, element) >= 0 }
func (l *lenient) flag(key string) bool         { return l.values[key].Bool }
func (l *lenient) text(key string) string       { return l.values[key].Text() }
func (l *lenient) show(key string) string       { return key + "=" + l.text(key) }
func (l *lenient) role(role string) bool        { return l.has("process.roles", role) }
func (l *lenient) line(key string) int          { return l.p.Line(key) }
func (l *lenient) voters() []Voter {
	v, _ := parseVoters("", l.values["controller.quorum.voters"].List)
	return v
}
func (l *lenient) bootstrap() []HostPort {
	b, _ := parseBootstrap("", l.values["controller.quorum.bootstrap.servers"].List)
	return b
}
func (r *Report) add(f Finding) { r.Findings = append(r.Findings, f) }
func (r *Report) mistake(key, text, fix string) {
	r.add(Finding{LevelMistake, key, r.node.line(key), text, fix})
}
func (r *Report) advise(key, text, fix string) {
	r.add(Finding{LevelAdvice, key, r.node.line(key), text, fix})
}
func (r *Report) refuse(e *Error, fix string) {
	r.add(Finding{LevelError, e.Key, r.node.line(e.Key), e.Text, fix})
}
func (r *Report) refused(key string) (found bool) {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Level == LevelError && f.Key == key })
}

// Explain reads a node's properties, variables replaced, as NewBroker does, but goes on after the first fault. file is
// only repeated.
func Explain(file string, p *Properties) *Report {
	static := p.Map()
	synonyms(static)
	r := &Report{File: file, node: &lenient{p: p, static: static, values: make(map[string]Value)}, Keys: []ReportKey{}, Findings: []Finding{}, Checklist: []CheckItem{}}
	l := r.node
	sound := maps.Clone(static) // without the values that are at fault, to find what else is
	for _, k := range BrokerTable.Keys {
		l.values[k.Name] = k.DefaultValue()
		text, ok := static[k.Name]
		switch {
		case ok:
			v, err := k.Parse(text)
			if err == nil && k.Type == Class && !knownClass(v.Str) {
				err = invalid(k.Name, v.Str, "Class "+v.Str+" could not be found.")
			}
			if err != nil {
				r.refuse(err.(*Error), fixOf(k, text))
				delete(sound, k.Name)
			} else {
				l.values[k.Name] = v
			}
		case k.Required:
			r.refuse(configError(k.Name, "Missing required configuration \"%s\" which has no default value.", k.Name), "Add "+k.Name+". "+k.Doc)
		}
	}
	var err error
	if l.broker, err = newBroker(sound, nil, nil, false); err != nil {
		if e := err.(*Error); !r.refused(e.Key) {
			r.refuse(e, FixOf(e))
		}
	} else {
		for _, not := range l.broker.refusals() {
			r.add(Finding{LevelError, not.Key, l.line(not.Key), not.Text, not.Hint})
		}
		for _, w := range l.broker.Warnings {
			r.mistake("", w, "")
		}
	}
	r.NodeID = int32(l.num("node.id"))
	r.Roles = append([]string{}, l.values["process.roles"].List...)
	r.explainKeys()
	r.checkKeys()
	r.checkConflicts()
	r.checkListeners()
	r.checklist()
	rank := map[Level]int{LevelError: 0, LevelMistake: 1, LevelAdvice: 2}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		if d := rank[a.Level] - rank[b.Level]; d != 0 {
			return d
		}
		return a.Line - b.Line
	})
	return r
}

// FixOf is the way out of an error of NewBroker.
func FixOf(e *Error) string {
	if _, name, ok := strings.Cut(e.Text, "No security protocol defined for listener "); ok {
		return fmt.Sprintf("Give it one in listener.security.protocol.map, for example %s:PLAINTEXT.", name)
	}
	k := BrokerTable.Lookup(e.Key)
	switch {
	case k != nil && k.Type == Class && strings.HasSuffix(e.Text, "could not be found."):
		return fmt.Sprintf("Java plug-ins cannot be loaded: remove %s, and see to what the plug-in did in another way.", e.Key)
	case e.Key != "":
		return "Correct " + e.Key + " in the properties file, or where --override replaces it."
	}
	return "Correct the properties file, or what --override replaces in it."
}

func fixOf(k *Key, text string) string {
	switch {
	case strings.Contains(text, "${"):
		return "The variable was not replaced: see that config.providers names its provider and that what it reads is there."
	case k.Type == Class:
		return FixOf(&Error{ConfigException, k.Name, "Class could not be found."})
	case k.Type == Boolean:
		return "Write true or false."
	case k.Check != nil:
		return fmt.Sprintf("Write a value of type %s: %s.", strings.ToLower(k.Type.String()), k.Check)
	}
	return fmt.Sprintf("Write a value of type %s.", strings.ToLower(k.Type.String()))
}

// explainKeys says of each key what it is.
func (r *Report) explainKeys() {
	for _, name := range r.node.p.Keys() {
		text, _ := r.node.p.Get(name)
		e := ReportKey{Key: name, Line: r.node.line(name), Value: Hidden, Effect: "unknown"}
		k := BrokerTable.Lookup(name)
		base, prefixed := listenerPrefix(name)
		if prefixed {
			k = BrokerTable.Lookup(base)
		}
		switch {
		case k != nil:
			e.Value = shownText(k, text)
			e.Type, e.Default, e.Update, e.Doc = strings.ToLower(k.Type.String()), k.Default, k.Update.String(), k.Doc
			if k.Null {
				e.Default = "null"
			}
			if k.Required {
				e.Default = "none: required"
			}
			if k.Check != nil {
				e.Valid = k.Check.String()
			}
			e.Effect, e.Why = k.Effect.String(), k.Why
			if prefixed && k.Effect == InForce && !perListener[base] {
				e.Effect, e.Why = NoEffect.String(), "it cannot be set for one listener"
			}
			if k.Deprecated {
				e.Doc = strings.TrimSpace("Deprecated. " + e.Doc)
			}
		case knownPrefix(name):
			why, _ := noEffect(name, text)
			e.Value, e.Effect, e.Why = text, InForce.String(), why
			if why != "" {
				e.Effect = NoEffect.String()
			}
			if secret(name) {
				e.Value = Hidden
			}
		default:
			if !secret(name) {
				e.Value = text
			}
			e.Why = hint(name)
		}
		r.Keys = append(r.Keys, e)
	}
}

func knownPrefix(name string) bool {
	_, listener := listenerPrefix(name)
	return !listener && prefixed(name)
}

// checkKeys names keys that nothing reads, that stand twice, that are old.
func (r *Report) checkKeys() {
	l := r.node
	for _, name := range l.p.Keys() {
		if at := l.p.Earlier(name); at != nil {
			r.mistake(name, fmt.Sprintf("%s stands in the file %d times (before in line %s): the last one counts.", name, len(at)+1, joinInts(at)), "Keep one.")
		}
		k := BrokerTable.Lookup(name)
		switch {
		case k == nil && !prefixed(name):
			what := hint(name)
			switch {
			case what == "":
				r.mistake(name, name+" is unknown: nothing reads it.", "Remove it, or leave it if it belongs to a plug-in of Kafka's.")
			case strings.HasPrefix(what, "no such key; did you mean "):
				r.mistake(name, name+" is unknown: nothing reads it.", "Did you mean "+strings.TrimPrefix(what, "no such key; did you mean "))
			case strings.HasPrefix(name, byteOrderMark):
				r.mistake(name, name+" is unknown: nothing reads it.", strings.ToUpper(what[:1])+what[1:]+".")
			default:
				r.mistake(name, name+": "+what+".", "Remove it from the file.")
			}
		case k != nil && k.Deprecated:
			fix := "Remove it."
			if name == "broker.id" {
				fix = "Write node.id."
			}
			r.advise(name, name+" is deprecated.", fix)
		}
		if base, ok := listenerPrefix(name); ok && BrokerTable.Lookup(base) != nil {
			rest := strings.TrimPrefix(name, "listener.name.")
			listener := rest[:strings.IndexByte(rest, '.')]
			switch {
			case listener != strings.ToLower(listener):
				r.mistake(name, name+" is not read: the listener's name must be in lower case there.", "Write "+strings.Replace(name, listener, strings.ToLower(listener), 1)+".")
			case l.broker != nil && l.broker.Protocols[strings.ToUpper(listener)] == "":
				r.mistake(name, fmt.Sprintf("%s is not read: there is no listener %s.", name, strings.ToUpper(listener)), "Correct the name, or remove the line.")
			}
		}
	}
}

func joinInts(list []int) string {
	s := make([]string, len(list))
	for i, n := range list {
		s[i] = fmt.Sprint(n)
	}
	return strings.Join(s, ", ")
}

// checkConflicts names keys that contradict each other.
func (r *Report) checkConflicts() {
	l := r.node
	for _, family := range [][]string{
		{"log.retention.ms", "log.retention.minutes", "log.retention.hours"},
		{"log.roll.ms", "log.roll.hours"},
		{"log.roll.jitter.ms", "log.roll.jitter.hours"},
		{"log.dirs", "log.dir"},
	} {
		first := ""
		for _, k := range family {
			switch {
			case !l.set(k):
			case first == "":
				first = k
			default:
				r.mistake(k, fmt.Sprintf("%s is passed over, because %s is set.", l.show(k), l.show(first)), "Remove one of them.")
			}
		}
	}
	above := func(isr, factor, what string) {
		if l.num(isr) > l.num(factor) {
			r.mistake(isr, fmt.Sprintf("%s is above %s: %s could never be written with acks=all.", l.show(isr), l.show(factor), what),
				fmt.Sprintf("Raise %s, or set %s to at most %d.", factor, isr, l.num(factor)))
		}
	}
	above("min.insync.replicas", "default.replication.factor", "a topic with the defaults")
	if l.role("broker") {
		above("transaction.state.log.min.isr", "transaction.state.log.replication.factor", "the topic of transactions")
		above("share.coordinator.state.topic.min.isr", "share.coordinator.state.topic.replication.factor", "the topic of share groups")
	}
	for _, k := range []string{"socket.request.max.bytes", "log.segment.bytes"} {
		if l.num("message.max.bytes") > l.num(k) {
			r.mistake("message.max.bytes", fmt.Sprintf("%s is above %s: batches of that size are refused all the same.", l.show("message.max.bytes"), l.show(k)), "Raise "+k+".")
		}
	}
	if n := l.num("log.retention.bytes"); n >= 0 && n < l.num("log.segment.bytes") {
		r.advise("log.retention.bytes", fmt.Sprintf("%s is below %s: only closed segments are deleted, so that a partition keeps up to the latter and more.",
			l.show("log.retention.bytes"), l.show("log.segment.bytes")), "Lower log.segment.bytes.")
	}
	if !l.flag("log.cleaner.enable") {
		r.mistake("log.cleaner.enable", "Without the cleaner compacted topics, that of consumer offsets among them, grow without end.", "Remove log.cleaner.enable.")
	}
	if !l.role("broker") && l.set("inter.broker.listener.name") {
		r.advise("inter.broker.listener.name", "A node that is only a controller has no listener between brokers.", "Remove inter.broker.listener.name.")
	}
}

// CheckTogether names what the files of several nodes of one cluster contradict each other in.
func CheckTogether(reports []*Report) []Finding {
	var out []Finding
	say := func(level Level, key, text, fix string) { out = append(out, Finding{level, key, 0, text, fix}) }
	nodes := make(map[int32][]string)
	racks := make(map[string]int)
	brokers, unracked := 0, 0
	for _, r := range reports {
		nodes[r.NodeID] = append(nodes[r.NodeID], r.File)
		if !r.node.role("broker") {
			continue
		}
		brokers++
		if rack := r.node.text("broker.rack"); rack != "" {
			racks[rack]++
		} else {
			unracked++
		}
	}
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		if files := nodes[id]; len(files) > 1 {
			say(LevelError, "node.id", fmt.Sprintf("node.id=%d is that of %s.", id, strings.Join(files, " and of ")), "Give each node a number of its own.")
		}
	}
	if len(racks) > 0 && unracked > 0 {
		say(LevelMistake, "broker.rack", fmt.Sprintf("%d of %d brokers have no broker.rack: replicas are then placed without regard to racks.", unracked, brokers), "Set broker.rack on all brokers.")
	}
	if len(racks) == 1 && brokers > 1 && unracked == 0 {
		say(LevelAdvice, "broker.rack", "All brokers are in one rack.", "Name the rack, zone or machine that fails as a whole.")
	}
	for _, k := range []string{"controller.quorum.voters", "controller.quorum.bootstrap.servers", "default.replication.factor", "num.partitions", "min.insync.replicas",
		"unclean.leader.election.enable", "offsets.topic.num.partitions", "transaction.state.log.num.partitions", "broker.session.timeout.ms", "auto.create.topics.enable"} {
		values := make(map[string][]string)
		for _, r := range reports {
			values[r.node.text(k)] = append(values[r.node.text(k)], r.File)
		}
		if len(values) < 2 {
			continue
		}
		level := LevelAdvice
		if strings.HasPrefix(k, "controller.quorum.") {
			level = LevelMistake
		}
		var each []string
		for _, v := range slices.Sorted(maps.Keys(values)) {
			each = append(each, fmt.Sprintf("%q in %s", v, strings.Join(values[v], ", ")))
		}
		say(level, k, k+" differs: "+strings.Join(each, "; ")+".", "Set it alike on all nodes.")
	}
	told := make(map[string]string)
	for _, r := range reports {
		if r.node.broker == nil {
			continue
		}
		for _, e := range append(slices.Clone(r.node.broker.AdvertisedBroker), r.node.broker.AdvertisedController...) {
			at := fmt.Sprintf("%s:%d", e.Host, e.Port)
			if other, taken := told[at]; taken && other != r.File && e.Host != "" {
				say(LevelMistake, "advertised.listeners", fmt.Sprintf("%s and %s both advertise %s.", other, r.File, at), "Give each node its own address.")
			}
			told[at] = r.File
		}
	}
	return out
}
