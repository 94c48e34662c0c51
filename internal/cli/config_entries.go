package cli

import (
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// configSource says where a configuration's value comes from, in the protocol's numbers.
type configSource int8

const sourceDefault configSource = 5

// String is Kafka's name of the source.
func (s configSource) String() string {
	names := [...]string{"UNKNOWN", "DYNAMIC_TOPIC_CONFIG", "DYNAMIC_BROKER_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG", "STATIC_BROKER_CONFIG",
		"DEFAULT_CONFIG", "DYNAMIC_BROKER_LOGGER_CONFIG", "DYNAMIC_CLIENT_METRICS_CONFIG", "DYNAMIC_GROUP_CONFIG"}
	if s < 0 || int(s) >= len(names) {
		s = 0
	}
	return names[s]
}

// configEntry is one configuration of a resource.
type configEntry struct {
	name      string
	value     *string
	source    configSource
	sensitive bool
	synonyms  []configSynonym
}

type configSynonym struct {
	name   string
	value  *string
	source configSource
}

func (e configEntry) text() string { return orNull(e.value) }

func orNull(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

// line is the entry as kafka-configs shows it.
func (e configEntry) line() string {
	var syn []string
	for _, s := range e.synonyms {
		syn = append(syn, s.source.String()+":"+s.name+"="+orNull(s.value))
	}
	sensitive := "false"
	if e.sensitive {
		sensitive = "true"
	}
	return "  " + e.name + "=" + e.text() + " sensitive=" + sensitive + " synonyms={" + strings.Join(syn, ", ") + "}"
}

// resourceConfigs is the configurations of one resource by name, with the order in which the broker gave them.
type resourceConfigs map[string]configEntry

func configNames(r resourceConfigs) []string {
	out := make([]string, 0, len(r))
	for n := range r {
		out = append(out, n)
	}
	sort.Strings(out) // names with one bucket come in the broker's order, which is alphabetical
	return out
}

// describeConfigs asks for the configurations of resources of one type. node is the broker to ask, -1 any.
func describeConfigs(a *admin, kind kmsg.ConfigResourceType, names []string, synonyms bool, node int32) (map[string]resourceConfigs, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms = synonyms
	for _, n := range names {
		rr := kmsg.NewDescribeConfigsRequestResource()
		rr.ResourceType, rr.ResourceName, rr.ConfigNames = kind, n, nil
		req.Resources = append(req.Resources, rr)
	}
	r, err := a.broker("describeConfigs", node, max(a.timeout, time.Millisecond), req)
	if err != nil {
		return nil, err
	}
	out := make(map[string]resourceConfigs)
	for _, res := range r.(*kmsg.DescribeConfigsResponse).Resources {
		if err := codeError(res.ErrorCode, res.ErrorMessage); err != nil {
			return nil, err
		}
		m := make(resourceConfigs, len(res.Configs))
		for _, c := range res.Configs {
			e := configEntry{name: c.Name, value: c.Value, source: configSource(c.Source), sensitive: c.IsSensitive}
			for _, s := range c.ConfigSynonyms {
				e.synonyms = append(e.synonyms, configSynonym{s.Name, s.Value, configSource(s.Source)})
			}
			m[c.Name] = e
		}
		out[res.ResourceName] = m
	}
	return out, nil
}
