package cli

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
)

// The entity types of kafka-configs.
const (
	entityTopics        = "topics"
	entityClients       = "clients"
	entityUsers         = "users"
	entityBrokers       = "brokers"
	entityBrokerLoggers = "broker-loggers"
	entityIPs           = "ips"
	entityClientMetrics = "client-metrics"
	entityGroups        = "groups"
)

// configsTool is kafka-configs.
type configsTool struct {
	*toolArgs
	admin *admin

	server, controller, commandConfig     *Option
	alter, describe, all                  *Option
	entityType, entityName, entityDefault *Option
	add, addFile, del                     *Option
	named                                 []entityOption // --topic, --broker …
	defaults                              []entityOption // --user-defaults …
	types, names                          []string       // what is meant, in Kafka's order; the default entity's name is ""
}

type entityOption struct {
	*Option
	entity string
}

func runConfigs(e *Env) int {
	t := &configsTool{toolArgs: newToolArgs(e)}
	return runTool(t.run, func(err error) {
		var o *OptionError
		var j *JavaError
		terse := errors.As(err, &o)
		if errors.As(err, &j) {
			switch j.Class {
			case "java.lang.IllegalArgumentException", "org.apache.kafka.common.errors.InvalidConfigurationException", "org.apache.kafka.common.errors.UnsupportedVersionException":
				terse = true
			}
		}
		if terse {
			e.Errorf("%s", err.Error())
			return
		}
		e.Errorf("Error while executing config command with args '%s'", strings.Join(e.Args, " "))
		printTrace(e, err)
	})
}

func (t *configsTool) options() {
	t.server = t.Value("bootstrap-server", "server to connect to", "The brokers to connect to.")
	t.controller = t.Value("bootstrap-controller", "controller to connect to", "The controllers to connect to.")
	t.commandConfig = t.Value("command-config", "command config property file", "Properties for the AdminClient.")
	t.alter = t.Flag("alter", "Change the entity's configuration.")
	t.describe = t.Flag("describe", "Show the entity's configuration.")
	t.all = t.Flag("all", "Show all of it, static values and defaults too.")
	t.entityType = t.Value("entity-type", "String", "topics, clients, users, brokers, broker-loggers, ips, client-metrics or groups.")
	t.entityName = t.Value("entity-name", "String", "Name of the topic, client id, user, broker id, ip, client metrics resource or group.")
	t.entityDefault = t.Flag("entity-default", "The default entity of clients, users, brokers or ips.")
	t.add = t.Value("add-config", "String", "Configurations to set, k1=v1,k2=[v1,v2],k3=v3: brackets group a value with commas. SCRAM credentials of users: SCRAM-SHA-256=[iterations=8192,password=…].")
	t.addFile = t.Value("add-config-file", "String", "A properties file with configurations to set.")
	t.del = t.Value("delete-config", "String", "Configurations to remove, k1,k2.").Split()
	named := func(name, entity, help string) {
		t.named = append(t.named, entityOption{t.Value(name, "String", help), entity})
	}
	named("topic", entityTopics, "The topic's name.")
	named("client", entityClients, "The client's id.")
	named("user", entityUsers, "The user's name.")
	named("broker", entityBrokers, "The broker's id.")
	named("broker-logger", entityBrokerLoggers, "The id of the broker whose loggers are meant.")
	named("ip", entityIPs, "The IP address.")
	named("client-metrics", entityClientMetrics, "The client metrics resource's name.")
	named("group", entityGroups, "The group's id.")
	byDefault := func(name, entity, help string) {
		t.defaults = append(t.defaults, entityOption{t.Flag(name, help), entity})
	}
	byDefault("client-defaults", entityClients, "The defaults of all clients.")
	byDefault("user-defaults", entityUsers, "The defaults of all users.")
	byDefault("broker-defaults", entityBrokers, "The defaults of all brokers.")
	byDefault("ip-defaults", entityIPs, "The defaults of all IPs.")
}

// entities fills in types and names.
func (t *configsTool) entities() error {
	t.types = append(t.types, t.p.All(t.entityType)...)
	names := t.p.All(t.entityName)
	for _, o := range t.p.order {
		switch o {
		case t.entityName:
			t.names = append(t.names, names[0])
			names = names[1:]
		case t.entityDefault:
			t.names = append(t.names, "")
		}
	}
	for _, o := range t.named {
		if t.p.Has(o.Option) {
			name, err := t.text(o.Option)
			if err != nil {
				return err
			}
			t.types = append(t.types, o.entity)
			t.names = append(t.names, name)
		}
	}
	for _, o := range t.defaults {
		if t.p.Has(o.Option) {
			t.types = append(t.types, o.entity)
			t.names = append(t.names, "")
		}
	}
	return nil
}

func (t *configsTool) hasType(types ...string) bool {
	for _, have := range t.types {
		for _, want := range types {
			if have == want {
				return true
			}
		}
	}
	return false
}

func (t *configsTool) check() error {
	if t.p.Has(t.alter) == t.p.Has(t.describe) {
		return t.usage("Command must include exactly one action: --describe, --alter")
	}
	if err := t.exclude(t.describe, t.alter, t.add, t.del); err != nil {
		return err
	}
	if err := t.entities(); err != nil {
		return err
	}
	seen := map[string]bool{}
	var twice []string
	for _, s := range t.types {
		if seen[s] {
			twice = append(twice, s)
		}
		seen[s] = true
	}
	if len(twice) > 0 {
		return illegalArgument("Duplicate entity type(s) specified: " + strings.Join(twice, ","))
	}
	if !t.p.Has(t.server) && !t.p.Has(t.controller) {
		return illegalArgument("Either --bootstrap-server or --bootstrap-controller must be specified.")
	}
	allowed := []string{entityBrokerLoggers, entityTopics, entityClients, entityUsers, entityBrokers, entityIPs, entityClientMetrics, entityGroups}
	for _, s := range t.types {
		ok := false
		for _, a := range allowed {
			ok = ok || a == s
		}
		if !ok {
			return illegalArgument(fmt.Sprintf("Invalid entity type %s, the entity type must be one of %s with a --bootstrap-server or --bootstrap-controller argument", s, strings.Join(allowed, ", ")))
		}
	}
	if len(t.types) == 0 {
		return illegalArgument("At least one entity type must be specified")
	}
	if len(t.types) > 1 && !(len(t.types) == 2 && seen[entityUsers] && seen[entityClients]) {
		return illegalArgument("Only 'users' and 'clients' entity types may be specified together")
	}
	if t.p.Has(t.entityName) || t.p.Has(t.entityType) || t.p.Has(t.entityDefault) {
		for _, o := range append(append([]entityOption(nil), t.named...), t.defaults...) {
			if t.p.Has(o.Option) {
				return illegalArgument("--entity-{type,name,default} should not be used in conjunction with specific entity flags")
			}
		}
	}
	hasName, hasDefault := false, false
	for _, n := range t.names {
		hasName = hasName || n != ""
		hasDefault = hasDefault || n == ""
	}
	if t.p.Has(t.server) && t.p.Has(t.controller) {
		return illegalArgument("Only one of --bootstrap-server or --bootstrap-controller can be specified")
	}
	if hasName && t.hasType(entityBrokers, entityBrokerLoggers) {
		for _, n := range t.names {
			if _, err := strconv.ParseInt(n, 10, 32); n != "" && err != nil {
				return illegalArgument(fmt.Sprintf("The entity name for %s must be a valid integer broker id, but it is: %s", t.types[0], n))
			}
		}
	}
	if hasName && t.hasType(entityIPs) {
		for _, n := range t.names {
			if n != "" && net.ParseIP(n) == nil {
				if _, err := net.DefaultResolver.LookupHost(t.e.Context, n); err != nil {
					return illegalArgument(fmt.Sprintf("The entity name for %s must be a valid IP or resolvable host, but it is: %s", t.types[0], n))
				}
			}
		}
	}
	list := strings.Join(t.types, ",")
	if t.p.Has(t.describe) {
		if !t.hasType(entityUsers, entityClients, entityBrokers, entityIPs) && t.p.Has(t.entityDefault) {
			return illegalArgument("--entity-default must not be specified with --describe of " + list)
		}
		if t.hasType(entityBrokerLoggers) && !hasName {
			return illegalArgument("An entity name must be specified with --describe of " + list)
		}
		return nil
	}
	if t.hasType(entityUsers, entityClients, entityBrokers, entityIPs) {
		if !hasName && !hasDefault {
			return illegalArgument("An entity-name or default entity must be specified with --alter of users, clients, brokers or ips")
		}
	} else if !hasName {
		return illegalArgument("An entity name must be specified with --alter of " + list)
	}
	switch {
	case t.p.Has(t.add) && t.p.Has(t.addFile):
		return illegalArgument("Only one of --add-config or --add-config-file must be specified")
	case !t.p.Has(t.add) && !t.p.Has(t.addFile) && !t.p.Has(t.del):
		return illegalArgument("At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter")
	}
	return nil
}

func (t *configsTool) run() error {
	t.options()
	if err := t.parse(); err != nil {
		return err
	}
	if err := t.helpOrVersion("This tool helps to manipulate and describe entity config for a topic, client, user, broker, ip, client-metrics or group"); err != nil {
		return err
	}
	if err := t.check(); err != nil {
		return err
	}
	key, option := "bootstrap.servers", t.server
	if t.p.Has(t.controller) {
		key, option = "bootstrap.controllers", t.controller
	}
	servers, err := t.text(option)
	if err != nil {
		return err
	}
	props, err := t.bootstrapProps(t.commandConfig, key, servers)
	if err != nil {
		return err
	}
	if t.p.Has(t.alter) && len(t.types) != len(t.names) {
		return illegalArgument("An entity name must be specified for every entity type")
	}
	if t.admin, err = newAdmin(t.e, props); err != nil {
		return err
	}
	defer t.admin.Close()
	if t.p.Has(t.alter) {
		return t.alterConfig()
	}
	return t.describeConfig()
}

var configKeyPattern = regexp.MustCompile(`^[$a-zA-Z0-9._-]*$`)

// toAdd is what --add-config or --add-config-file sets.
func (t *configsTool) toAdd() ([]Property, error) {
	var props []Property
	if t.p.Has(t.addFile) {
		path, err := t.text(t.addFile)
		if err != nil {
			return nil, err
		}
		if props, err = ReadProperties(path); err != nil {
			return nil, err
		}
	}
	if t.p.Has(t.add) {
		text, err := t.text(t.add)
		if err != nil {
			return nil, err
		}
		for _, pair := range splitOutside(text, ',') {
			kv := splitOutside(pair, '=')
			if len(kv) != 2 {
				return nil, illegalArgument("Invalid entity config: all configs to be added must be in the format \"key=val\" or  \"key=[val1,val2]\" to group values which contain commas.")
			}
			v := strings.NewReplacer("[", "", "]", "").Replace(strings.TrimSpace(kv[1]))
			props = setProperty(props, strings.TrimSpace(kv[0]), v)
		}
	}
	for _, p := range props {
		if !configKeyPattern.MatchString(p.Key) {
			return nil, illegalArgument("Invalid character found for config key: " + p.Key)
		}
	}
	return props, nil
}

// splitOutside splits at sep, where it isn't inside brackets.
func splitOutside(s string, sep byte) []string {
	var out []string
	start := 0
	for i := 0; i < len(s); i++ {
		if s[i] != sep {
			continue
		}
		if open, shut := strings.IndexByte(s[i:], '['), strings.IndexByte(s[i:], ']'); shut >= 0 && (open < 0 || shut < open) {
			continue
		}
		out = append(out, s[start:i])
		start = i + 1
	}
	return append(out, s[start:])
}
