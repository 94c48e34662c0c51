package config

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Endpoint is one listener: where a node listens, or what it tells others.
type Endpoint struct {
	Listener string // name, upper case
	Host     string // "" is every interface
	Port     int
	Protocol string // PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
}

func (e Endpoint) String() string {
	h := e.Host
	if strings.Contains(h, ":") {
		h = "[" + h + "]"
	}
	return e.Listener + "://" + h + ":" + strconv.Itoa(e.Port)
}

// Voter is one entry of controller.quorum.voters.
type Voter struct {
	ID   int32
	Host string
	Port int
}

var (
	endpointPattern = regexp.MustCompile(`^(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)$`)
	hostPattern     = regexp.MustCompile(`^(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)$`)
	validHost       = regexp.MustCompile(`^([0-9a-zA-Z\-%._:]*)$`)
)

// parseEndpoints reads listeners or advertised.listeners.
func parseEndpoints(list []string, protocols map[string]string, distinctPorts bool) ([]Endpoint, error) {
	shown := "[" + strings.Join(list, ", ") + "]"
	fail := func(format string, args ...any) error {
		return &Error{IllegalArgumentException, "listeners",
			"Error creating broker listeners from '" + shown + "': " + fmt.Sprintf(format, args...)}
	}
	var out []Endpoint
	for _, s := range list {
		m := endpointPattern.FindStringSubmatch(s)
		if m == nil {
			return nil, fail("Unable to parse %s to a broker endpoint", s)
		}
		name := strings.ToUpper(m[1])
		port, err := strconv.ParseInt(m[3], 10, 32)
		if err != nil {
			return nil, fail("For input string: \"%s\"", m[3])
		}
		protocol, ok := protocols[name]
		if !ok {
			return nil, fail("No security protocol defined for listener %s", name)
		}
		out = append(out, Endpoint{name, m[2], int(port), protocol})
	}
	for i, a := range out {
		for _, b := range out[:i] {
			if a.Listener == b.Listener {
				return nil, fail("Each listener must have a different name, listeners: %s", shown)
			}
		}
	}
	if !distinctPorts {
		return out, nil
	}
	// Two listeners may share a port if one is IPv4 and the other IPv6.
	for i, a := range out {
		if a.Port == 0 {
			continue
		}
		var ips []netip.Addr
		names, first := 0, true
		for j, b := range out {
			if b.Port != a.Port {
				continue
			}
			if j < i {
				first = false
			}
			if ip, err := netip.ParseAddr(b.Host); err == nil {
				ips = append(ips, ip)
			} else {
				names++
			}
		}
		if !first || len(ips)+names < 2 {
			continue
		}
		switch {
		case names > 1:
			return nil, fail("Each listener must have a different port, listeners: %s", shown)
		case len(ips) == 2 && (ips[0].Is4() == ips[1].Is4() || names > 0):
			return nil, fail("If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, listeners: %s, port: %d", shown, a.Port)
		case len(ips) > 2:
			return nil, fail("Each listener must have a different port unless exactly one listener has an IPv4 address and the other IPv6 address, listeners: %s, port: %d", shown, a.Port)
		}
	}
	return out, nil
}

// parsePairs reads "a:b,c:d", splitting at the last colon; the later of two equal keys wins. Order is kept.
func parsePairs(key, text string) (names []string, m map[string]string, err error) {
	m = make(map[string]string)
	if text == "" {
		return nil, m, nil
	}
	parts := splitList(trim(text))
	for len(parts) > 0 && parts[len(parts)-1] == "" { // as Java's split
		parts = parts[:len(parts)-1]
	}
	for _, s := range parts {
		i := strings.LastIndexByte(s, ':')
		if i < 0 {
			return nil, nil, &Error{IllegalArgumentException, key,
				fmt.Sprintf("Error parsing configuration property '%s': begin 0, end -1, length %d", key, len(s))}
		}
		k, v := trim(s[:i]), trim(s[i+1:])
		if _, ok := m[k]; !ok {
			names = append(names, k)
		}
		m[k] = v
	}
	return names, m, nil
}

func isProtocol(s string) bool {
	return s == "PLAINTEXT" || s == "SSL" || s == "SASL_PLAINTEXT" || s == "SASL_SSL"
}

func secured(s string) bool { return s == "SSL" || s == "SASL_PLAINTEXT" || s == "SASL_SSL" }

// protocolMap is the security protocol of every listener name. Controller listeners are PLAINTEXT by default as long as
// nothing else is set up.
func protocolMap(text string, explicit bool, controllers, listeners []string) (map[string]string, error) {
	const key = "listener.security.protocol.map"
	names, pairs, err := parsePairs(key, text)
	if err != nil {
		return nil, err
	}
	out := make(map[string]string)
	for _, n := range names {
		p := strings.ToUpper(pairs[n])
		if !isProtocol(p) {
			return nil, configError(key, "Invalid security protocol `%s` defined in %s", pairs[n], key)
		}
		if was, ok := out[strings.ToUpper(n)]; ok {
			return nil, &Error{"java.lang.IllegalStateException", key,
				fmt.Sprintf("Duplicate key ListenerName(%s) (attempted merging values %s and %s)", strings.ToUpper(n), was, p)}
		}
		out[strings.ToUpper(n)] = p
	}
	if explicit {
		return out, nil
	}
	for _, n := range controllers {
		if secured(n) {
			return out, nil
		}
	}
	for _, l := range listeners {
		i := strings.Index(l, ":")
		if i < 0 {
			return nil, &Error{"org.apache.kafka.common.KafkaException", "listeners", "Unable to parse a listener name from " + l}
		}
		if secured(strings.ToUpper(l[:i])) {
			return out, nil
		}
	}
	for _, n := range controllers {
		if n != "PLAINTEXT" {
			out[n] = "PLAINTEXT"
		}
	}
	return out, nil
}

func parseHostPort(s string) (host string, port int, ok bool, outOfRange error) {
	m := hostPattern.FindStringSubmatch(s)
	if m == nil {
		return "", 0, false, nil
	}
	n, err := strconv.ParseInt(m[2], 10, 32)
	if err != nil {
		return "", 0, false, nil
	}
	if n > 65535 {
		return "", 0, false, &Error{IllegalArgumentException, "", fmt.Sprintf("port out of range:%d", n)}
	}
	return m[1], int(n), true, nil
}

func parseVoters(key string, list []string) ([]Voter, *Error) {
	var out []Voter
	for _, s := range list {
		parts := strings.Split(s, "@")
		if len(parts) != 2 {
			return nil, configError(key, "Invalid configuration value for %s. Each entry should be in the form `{id}@{host}:{port}`.", key)
		}
		id, err := strconv.ParseInt(parts[0], 10, 32)
		if err != nil {
			return nil, configError(key, "Failed to parse voter ID as an integer from %s", parts[0])
		}
		host, port, ok, rangeErr := parseHostPort(parts[1])
		if rangeErr != nil {
			return nil, &Error{IllegalArgumentException, key, rangeErr.Error()}
		}
		if !ok {
			return nil, configError(key, "Failed to parse host name from entry %s for the configuration %s. Each entry should be in the form `{id}@{host}:{port}`.", s, key)
		}
		v := Voter{int32(id), host, port}
		replaced := false
		for i := range out {
			if out[i].ID == v.ID {
				out[i], replaced = v, true
			}
		}
		if !replaced {
			out = append(out, v)
		}
	}
	return out, nil
}

// HostPort is an address by name.
type HostPort struct {
	Host string
	Port int
}

func parseBootstrap(key string, list []string) ([]HostPort, *Error) {
	var out []HostPort
	for _, s := range list {
		host, port, ok, rangeErr := parseHostPort(s)
		if rangeErr != nil {
			return nil, &Error{IllegalArgumentException, key, rangeErr.Error()}
		}
		if !ok {
			return nil, configError(key, "Failed to parse host name from %s for the configuration %s. Each entry should be in the form \"{host}:{port}\"", s, key)
		}
		out = append(out, HostPort{host, port})
	}
	return out, nil
}
