package config

import (
	"fmt"
	"regexp"
	"strings"
)

// groupBound is the broker's bounds of a group's key; min or max may be missing.
type groupBound struct{ key, min, max string }

var groupBounds = []groupBound{
	{"consumer.heartbeat.interval.ms", "group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"},
	{"consumer.session.timeout.ms", "group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"},
	{"consumer.assignment.interval.ms", "group.consumer.min.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"},
	{"share.heartbeat.interval.ms", "group.share.min.heartbeat.interval.ms", "group.share.max.heartbeat.interval.ms"},
	{"share.session.timeout.ms", "group.share.min.session.timeout.ms", "group.share.max.session.timeout.ms"},
	{"share.record.lock.duration.ms", "group.share.min.record.lock.duration.ms", "group.share.max.record.lock.duration.ms"},
	{"share.delivery.count.limit", "group.share.min.delivery.count.limit", "group.share.max.delivery.count.limit"},
	{"share.partition.max.record.locks", "group.share.min.partition.max.record.locks", "group.share.max.partition.max.record.locks"},
	{"share.assignment.interval.ms", "group.share.min.assignment.interval.ms", "group.share.max.assignment.interval.ms"},
	{"streams.heartbeat.interval.ms", "group.streams.min.heartbeat.interval.ms", "group.streams.max.heartbeat.interval.ms"},
	{"streams.session.timeout.ms", "group.streams.min.session.timeout.ms", "group.streams.max.session.timeout.ms"},
	{"streams.num.standby.replicas", "", "group.streams.max.standby.replicas"},
	{"streams.assignment.interval.ms", "group.streams.min.assignment.interval.ms", "group.streams.max.assignment.interval.ms"},
	{"streams.task.offset.interval.ms", "group.streams.min.task.offset.interval.ms", ""},
	{"streams.num.warmup.replicas", "", "group.streams.max.warmup.replicas"},
}

// ValidateGroup checks the overrides of a group against the bounds that this node's file sets, as the controller does.
// The error is an *Error.
func (b *Broker) ValidateGroup(overrides map[string]string) error {
	refuse := func(key, format string, args ...any) error {
		return &Error{InvalidConfiguration, key, fmt.Sprintf(format, args...)}
	}
	for _, k := range sortedKeys(overrides, func(string) bool { return true }) {
		if GroupTable.Lookup(k) == nil {
			return refuse(k, "Unknown group config name: %s", k)
		}
	}
	const tags = "streams.rack.aware.assignment.tags"
	if list := splitList(trim(overrides[tags])); len(distinct(list)) != len(list) {
		return refuse(tags, "%s must not contain duplicate tag keys.", tags)
	}
	values := make(map[string]Value)
	for _, k := range GroupTable.Keys {
		text, ok := overrides[k.Name]
		if !ok {
			continue
		}
		v, err := k.Parse(text)
		if err != nil {
			return err
		}
		values[k.Name] = v
	}
	for _, g := range groupBounds {
		v, ok := values[g.key]
		if !ok {
			continue
		}
		switch {
		case g.max == "":
			if min := b.Int(g.min); v.Int < min {
				return refuse(g.key, "%s must be greater than or equal to %d", g.key, min)
			}
		case g.min == "":
			if max := b.Int(g.max); v.Int > max {
				return refuse(g.key, "%s must be less than or equal to %d", g.key, max)
			}
		default:
			if min, max := b.Int(g.min), b.Int(g.max); v.Int < min || v.Int > max {
				return refuse(g.key, "%s must be in the range %d to %d inclusive.", g.key, min, max)
			}
		}
	}
	const assignor = "streams.assignor.name"
	if v, ok := values[assignor]; ok && indexOf(b.List("group.streams.assignors"), v.Str) < 0 {
		return refuse(assignor, "streams.assignor.name '%s' is not a registered task assignor. Registered assignors are: [%s].",
			v.Str, strings.Join(b.List("group.streams.assignors"), ", "))
	}
	for _, kind := range []string{"consumer", "share", "streams"} {
		session, heartbeat := kind+".session.timeout.ms", kind+".heartbeat.interval.ms"
		s, hasSession := values[session]
		h, hasHeartbeat := values[heartbeat]
		if !hasSession && !hasHeartbeat {
			continue
		}
		if !hasSession {
			s = b.Value("group." + session)
		}
		if !hasHeartbeat {
			h = b.Value("group." + heartbeat)
		}
		if s.Int <= h.Int {
			return refuse(session, "%s must be greater than %s", session, heartbeat)
		}
	}
	const dlq = "errors.deadletterqueue.topic.name"
	if strings.HasPrefix(values[dlq].Str, "__") {
		return refuse(dlq, "%s: DLQ topic name must not start with '__'", dlq)
	}
	return nil
}

// InvalidRequest is the exception of a request that makes no sense.
const InvalidRequest = "org.apache.kafka.common.errors.InvalidRequestException"

// clientMatchers are what a subscription may select clients by.
var clientMatchers = map[string]bool{"client_instance_id": true, "client_id": true, "client_software_name": true,
	"client_software_version": true, "client_source_address": true, "client_source_port": true}

// ValidateClientMetrics checks the overrides of a client metrics subscription. The error is an *Error; its Class tells
// InvalidRequest from InvalidConfiguration.
func ValidateClientMetrics(name string, overrides map[string]string) error {
	if name == "" {
		return &Error{InvalidRequest, "", "Subscription name can't be empty"}
	}
	for _, k := range sortedKeys(overrides, func(string) bool { return true }) {
		if ClientMetricsTable.Lookup(k) == nil {
			return &Error{InvalidRequest, k, "Unknown client metrics configuration: " + k}
		}
	}
	if text, ok := overrides["interval.ms"]; ok {
		v, err := ClientMetricsTable.Lookup("interval.ms").Parse(text)
		if err != nil {
			return err
		}
		if v.Int < 100 || v.Int > 3600000 {
			return &Error{InvalidRequest, "interval.ms", fmt.Sprintf("Invalid value %d for interval.ms, interval must be between 100 and 3600000 (1 hour)", v.Int)}
		}
	}
	if text, ok := overrides["match"]; ok {
		v, err := ClientMetricsTable.Lookup("match").Parse(text)
		if err != nil {
			return err
		}
		for _, p := range v.List {
			parts := strings.Split(strings.TrimRight(p, "="), "=")
			ok := len(parts) == 2 && clientMatchers[trim(parts[0])]
			if ok {
				_, err := regexp.Compile(trim(parts[1]))
				ok = err == nil
			}
			if !ok {
				return &Error{InvalidConfiguration, "match", "Illegal client matching pattern: " + p}
			}
		}
	}
	return nil
}
