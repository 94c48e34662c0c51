package api

// DescribeConfigs, versions 1 to 4 (KIP-133, 226 synonyms, 569 types and docs, 714 client metrics, 848 groups).

import (
	"fmt"
	"slices"
	"sort"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/rpc"
)

// DescribeConfigs answers API 32.
func (b *Broker) DescribeConfigs(r *rpc.Request) *rpc.Pending {
	return describeConfigs(r, configView{image: b.Image(), config: b.Config(), id: b.ID, loggers: b.Loggers})
}

// configView is what a node knows of configs: a broker and a controller describe them alike.
type configView struct {
	image   *metadata.Image
	config  *config.Broker
	id      kafka.BrokerID
	loggers Loggers
}

func describeConfigs(r *rpc.Request, v configView) *rpc.Pending {
	var req kmsg.DescribeConfigsRequest
	if !decode(r, &req) {
		return nil
	}
	resp := kmsg.NewPtrDescribeConfigsResponse()
	// Kafka refuses the request as a whole if it doesn't know a kind of resource.
	for _, q := range req.Resources {
		switch metadata.ResourceType(q.ResourceType) {
		case metadata.ResourceTopic, metadata.ResourceBroker, metadata.ResourceBrokerLogger, metadata.ResourceClientMetrics, metadata.ResourceGroup:
			continue
		}
		for _, q := range req.Resources {
			rr := kmsg.NewDescribeConfigsResponseResource()
			rr.ResourceType, rr.ResourceName = q.ResourceType, q.ResourceName
			rr.ErrorCode, rr.ErrorMessage = kerr.InvalidRequest.Code, kerr.Message(kerr.InvalidRequest)
			resp.Resources = append(resp.Resources, rr)
		}
		respond(r, resp)
		return nil
	}
	for i := range req.Resources {
		q := &req.Resources[i]
		rr := kmsg.NewDescribeConfigsResponseResource()
		rr.ResourceType, rr.ResourceName, rr.ErrorMessage = q.ResourceType, q.ResourceName, new("")
		entries, err := v.entries(q)
		if err != nil {
			rr.ErrorCode, rr.ErrorMessage = kerr.Code(err), kerr.Message(err)
			if err == error(kerr.UnknownTopicOrPartition) {
				rr.ErrorMessage = new("")
			}
		}
		for _, e := range entries {
			if len(q.ConfigNames) > 0 && !slices.Contains(q.ConfigNames, e.Name) {
				continue
			}
			rr.Configs = append(rr.Configs, configEntry(&e, req.IncludeSynonyms, req.IncludeDocumentation))
		}
		resp.Resources = append(resp.Resources, rr)
	}
	respond(r, resp)
	return nil
}

func configEntry(e *config.Entry, synonyms, docs bool) kmsg.DescribeConfigsResponseResourceConfig {
	c := kmsg.NewDescribeConfigsResponseResourceConfig()
	c.Name, c.Value, c.ReadOnly, c.IsSensitive = e.Name, e.Value, e.ReadOnly, e.Sensitive
	c.Source, c.ConfigType = kmsg.ConfigSource(e.Source), kmsg.ConfigType(e.Type)
	if docs && e.Doc != "" {
		c.Documentation = &e.Doc
	}
	if synonyms {
		for _, s := range e.Synonyms {
			cs := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			cs.Name, cs.Value, cs.Source = s.Name, s.Value, kmsg.ConfigSource(s.Source)
			c.ConfigSynonyms = append(c.ConfigSynonyms, cs)
		}
	}
	return c
}

func (v *configView) overrides(t metadata.ResourceType, name string) map[string]string {
	m := make(map[string]string)
	if c := v.image.Config(metadata.Resource{Type: t, Name: name}); c != nil {
		for _, e := range c.Entries {
			m[e.Name] = e.Value
		}
	}
	return m
}

func (v *configView) entries(q *kmsg.DescribeConfigsRequestResource) ([]config.Entry, error) {
	name := q.ResourceName
	switch metadata.ResourceType(q.ResourceType) {
	case metadata.ResourceTopic:
		if why := kafka.CheckTopicName(name); why != "" {
			return nil, kerr.InvalidTopicException.With("Topic name is invalid: %s", why)
		}
		if v.image.Topic(name) == nil {
			return nil, kerr.UnknownTopicOrPartition
		}
		return v.config.DescribeTopic(v.overrides(metadata.ResourceTopic, name)), nil
	case metadata.ResourceBroker:
		if name == "" {
			return v.config.DescribeClusterDefault(), nil
		}
		if err := v.ownID(name, "or empty string, "); err != nil {
			return nil, err
		}
		return v.config.Describe(), nil
	case metadata.ResourceBrokerLogger:
		if name == "" {
			return nil, kerr.InvalidRequest.With("Broker id must not be empty")
		}
		if err := v.ownID(name, ""); err != nil {
			return nil, err
		}
		var out []config.Entry
		for logger, level := range v.loggers.Levels() {
			out = append(out, config.Entry{Name: logger, Value: &level, Source: config.SourceBrokerLogger})
		}
		sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
		return out, nil
	case metadata.ResourceClientMetrics:
		if name == "" {
			return nil, kerr.InvalidRequest.With("Client metrics subscription name must not be empty")
		}
		return config.DescribeClientMetrics(v.overrides(metadata.ResourceClientMetrics, name)), nil
	case metadata.ResourceGroup:
		if name == "" {
			return nil, kerr.InvalidRequest.With("Group name must not be empty")
		}
		return v.config.DescribeGroup(v.overrides(metadata.ResourceGroup, name)), nil
	}
	return nil, kerr.InvalidRequest.With("Unsupported resource type: %d", q.ResourceType)
}

func (v *configView) ownID(name, orEmpty string) error {
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return kerr.InvalidRequest.With("Broker id must be an integer, but it is: %s", name)
	}
	if kafka.BrokerID(id) != v.id {
		return kerr.InvalidRequest.With("%s", fmt.Sprintf("Unexpected broker id, expected %d %sbut received %s", v.id, orEmpty, name))
	}
	return nil
}
