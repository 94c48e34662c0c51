package controller

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/schema"
)

// maxConfigValue is what a record can hold.
const maxConfigValue = 32767

const minISRKey = "min.insync.replicas"

var (
	errConfigTooLong     = kerr.InvalidConfig.With("The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes.")
	errBrokerMinISR      = kerr.InvalidConfig.With("Broker-level min.insync.replicas cannot be altered while ELR is enabled.")
	errClusterMinISR     = kerr.InvalidConfig.With("Cluster-level min.insync.replicas cannot be removed while ELR is enabled.")
	errCordonedVersion   = kerr.InvalidConfig.With("The cordoned.log.dirs configuration value cannot be set because it requires metadata.version >= 4.3-IV0")
	errCordonedDirect    = kerr.InvalidConfig.With("When updating cordoned.log.dirs via controllers,  the new value must be a subset of the current configuration value.")
	errDuplicateResource = kerr.InvalidRequest.With("Duplicate resource.")
)

func configRecord(r metadata.Resource, name string, value *string) Record {
	return Record{&schema.ConfigRecord{ResourceType: int8(r.Type), ResourceName: r.Name, Name: name, Value: value}, 0}
}

// configChange is one key that a request sets, or deletes if value is nil.
type configChange struct {
	name  string
	value *string
}

// IncrementalAlterConfigs is API 44, versions 0 and 1. Each resource is changed wholly or not at all.
func (c *Controller) IncrementalAlterConfigs(x Context, req *kmsg.IncrementalAlterConfigsRequest) Result {
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	records := c.alterEach(len(req.Resources), func(i int) metadata.Resource {
		return metadata.Resource{Type: metadata.ResourceType(req.Resources[i].ResourceType), Name: req.Resources[i].ResourceName}
	}, func(i int, res metadata.Resource) ([]Record, error) {
		return c.incrementalAlter(&x, res, req.Resources[i].Configs)
	}, func(i int, err error) {
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = req.Resources[i].ResourceType, req.Resources[i].ResourceName
		setError(&out.ErrorCode, &out.ErrorMessage, err)
		resp.Resources = append(resp.Resources, out)
	})
	return together(req, records, resp, req.ValidateOnly)
}

// alterEach alters those of n resources that are named once, and answers for each resource once.
func (c *Controller) alterEach(n int, at func(i int) metadata.Resource, alter func(i int, res metadata.Resource) ([]Record, error), answer func(i int, err error)) []Record {
	seen := make(map[metadata.Resource]int)
	for i := range n {
		seen[at(i)]++
	}
	told := make(map[metadata.Resource]bool)
	var records []Record
	for i := range n {
		res := at(i)
		if seen[res] > 1 {
			if !told[res] {
				answer(i, errDuplicateResource)
			}
			told[res] = true
			continue
		}
		add, err := alter(i, res)
		if err == nil {
			records = append(records, add...)
		}
		answer(i, err)
	}
	return append(records, c.clearELRs(records)...)
}

func (c *Controller) incrementalAlter(x *Context, res metadata.Resource, ops []kmsg.IncrementalAlterConfigsRequestResourceConfig) ([]Record, error) {
	if err := checkResourceType(res); err != nil {
		return nil, err
	}
	now := c.Image().Config(res)
	var changes []configChange
	for _, op := range ops {
		old, has := now.Get(op.Name)
		next := op.Value
		switch op.Op {
		case kmsg.IncrementalAlterConfigOpSet:
		case kmsg.IncrementalAlterConfigOpDelete:
			next = nil
		case kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract:
			list, err := c.combine(res, op, old, has)
			if err != nil {
				return nil, err
			}
			next = &list
		default:
			return nil, kerr.InvalidRequest.With("Unknown operation %d for config %s", op.Op, op.Name)
		}
		changes = append(changes, configChange{op.Name, next})
	}
	return c.alter(x, res, now, changes, nil)
}

// combine appends to or takes from a list. Elements are compared as they stand, spaces included, as Kafka does.
func (c *Controller) combine(res metadata.Resource, op kmsg.IncrementalAlterConfigsRequestResourceConfig, old string, has bool) (string, error) {
	verb := "APPEND"
	if op.Op == kmsg.IncrementalAlterConfigOpSubtract {
		verb = "SUBTRACT"
	}
	var k *config.Key
	switch res.Type { // Kafka's controller knows no lists of other resources
	case metadata.ResourceTopic:
		k = config.TopicTable.Lookup(op.Name)
	case metadata.ResourceBroker:
		k = config.BrokerTable.Lookup(op.Name)
	}
	if k == nil || k.Type != config.List {
		return "", kerr.InvalidConfig.With("Can't %s to key %s because its type is not LIST.", verb, op.Name)
	}
	if op.Value == nil {
		return "", kerr.InvalidRequest.With("Null value not supported for : %s", op.Name)
	}
	if !has && !k.Null {
		old = k.Default
	}
	var parts []string
	for _, s := range strings.Split(old, ",") {
		if s != "" {
			parts = append(parts, s)
		}
	}
	for _, s := range javaSplit(*op.Value) {
		i := slices.Index(parts, s)
		switch {
		case op.Op == kmsg.IncrementalAlterConfigOpAppend && i < 0:
			parts = append(parts, s)
		case op.Op == kmsg.IncrementalAlterConfigOpSubtract && i >= 0:
			parts = slices.Delete(parts, i, i+1)
		}
	}
	return strings.Join(parts, ","), nil
}

// javaSplit splits at commas as String.split does: empty texts at the end are dropped, but the empty text is one element.
func javaSplit(s string) []string {
	if s == "" {
		return []string{""}
	}
	parts := strings.Split(s, ",")
	for len(parts) > 0 && parts[len(parts)-1] == "" {
		parts = parts[:len(parts)-1]
	}
	return parts
}

// AlterConfigs is API 33, versions 0 to 2: what is not named is deleted.
func (c *Controller) AlterConfigs(x Context, req *kmsg.AlterConfigsRequest) Result {
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	records := c.alterEach(len(req.Resources), func(i int) metadata.Resource {
		return metadata.Resource{Type: metadata.ResourceType(req.Resources[i].ResourceType), Name: req.Resources[i].ResourceName}
	}, func(i int, res metadata.Resource) ([]Record, error) {
		return c.replaceConfigs(&x, res, req.Resources[i].Configs)
	}, func(i int, err error) {
		out := kmsg.NewAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = req.Resources[i].ResourceType, req.Resources[i].ResourceName
		setError(&out.ErrorCode, &out.ErrorMessage, err)
		resp.Resources = append(resp.Resources, out)
	})
	return together(req, records, resp, req.ValidateOnly)
}

func (c *Controller) replaceConfigs(x *Context, res metadata.Resource, configs []kmsg.AlterConfigsRequestResourceConfig) ([]Record, error) {
	if err := checkResourceType(res); err != nil {
		return nil, err
	}
	now := c.Image().Config(res)
	var set, drop []configChange
	for _, e := range configs {
		set = append(set, configChange{e.Name, e.Value})
	}
	if now != nil {
		for _, e := range now.Entries {
			if !slices.ContainsFunc(configs, func(o kmsg.AlterConfigsRequestResourceConfig) bool { return o.Name == e.Name }) {
				drop = append(drop, configChange{e.Name, nil})
			}
		}
	}
	return c.alter(x, res, now, set, drop)
}

func checkResourceType(r metadata.Resource) error {
	switch r.Type {
	case metadata.ResourceTopic, metadata.ResourceBroker, metadata.ResourceClientMetrics, metadata.ResourceGroup:
		return nil
	case metadata.ResourceBrokerLogger:
		return kerr.InvalidRequest.With("Unexpected resource type BROKER_LOGGER.")
	}
	return kerr.InvalidRequest.With("Unknown resource type %d.", r.Type)
}

// alter checks the configs of one resource as they will be, and gives the records. drop is what a request deletes by not
// naming it.
func (c *Controller) alter(x *Context, res metadata.Resource, now *metadata.Config, set, drop []configChange) ([]Record, error) {
	before := entries(now)
	after := entries(now)
	var records []Record
	for i, ch := range append(slices.Clone(set), drop...) {
		if err := c.checkChange(x, res, ch, before); err != nil {
			return nil, err
		}
		old, had := before[ch.name]
		same := ch.value == nil && !had || ch.value != nil && had && *ch.value == old
		// A broker's config is written even if it is the same: that makes it read files such as key stores again.
		if i >= len(set) || !same || res.Type == metadata.ResourceBroker {
			records = append(records, configRecord(res, ch.name, ch.value))
		}
		if ch.value == nil {
			delete(after, ch.name)
		} else {
			if len(utf16.Encode([]rune(*ch.value))) > maxConfigValue {
				return nil, errConfigTooLong
			}
			after[ch.name] = *ch.value
		}
	}
	if err := c.validateConfigs(res, after, before); err != nil {
		return nil, err
	}
	return records, c.checkExists(res)
}

func (c *Controller) checkChange(x *Context, res metadata.Resource, ch configChange, before map[string]string) error {
	if res.Type != metadata.ResourceBroker {
		return nil
	}
	img := c.Image()
	switch ch.name {
	case minISRKey:
		switch {
		case !img.ELREnabled():
		case res.Name != "" && ch.value != nil:
			return errBrokerMinISR
		case res.Name == "" && ch.value == nil:
			return errClusterMinISR
		}
	case "cordoned.log.dirs":
		if ch.value == nil {
			return nil
		}
		if !img.MetadataVersion().Facts().CordonedLogDirsSupported {
			return errCordonedVersion
		}
		if x.Direct {
			was := strings.Split(before[ch.name], ",")
			for _, d := range strings.Split(*ch.value, ",") {
				if d = strings.TrimSpace(d); d != "" && !slices.ContainsFunc(was, func(s string) bool { return strings.TrimSpace(s) == d }) {
					return errCordonedDirect
				}
			}
		}
	}
	return nil
}

// validateConfigs checks all configs that a resource will have.
func (c *Controller) validateConfigs(res metadata.Resource, after, before map[string]string) error {
	var err error
	switch res.Type {
	case metadata.ResourceTopic:
		if res.Name == "" {
			return kerr.InvalidRequest.With("Default topic resources are not allowed.")
		}
		if why := kafka.CheckTopicName(res.Name); why != "" {
			return kerr.InvalidTopicException.With("Topic name is invalid: %s", why)
		}
		remote := c.opt.Config != nil && c.opt.Config.Bool("remote.log.storage.system.enable")
		err = config.ValidateTopic(before, after, c.layers(), remote)
	case metadata.ResourceBroker:
		if res.Name == "" {
			return nil
		}
		id, perr := strconv.ParseInt(res.Name, 10, 32)
		if perr != nil {
			return kerr.InvalidRequest.With("Unable to parse broker name as a base 10 number.")
		}
		if id < 0 {
			return kerr.InvalidRequest.With("Invalid negative broker ID.")
		}
	case metadata.ResourceClientMetrics:
		err = config.ValidateClientMetrics(res.Name, after)
	case metadata.ResourceGroup:
		if res.Name == "" {
			return kerr.InvalidRequest.With("Default group resources are not allowed.")
		}
		if c.opt.Config != nil {
			err = c.opt.Config.ValidateGroup(after)
		}
	}
	var e *config.Error
	if errors.As(err, &e) {
		if e.Class == config.InvalidRequest {
			return kerr.InvalidRequest.With("%s", e.Text)
		}
		return kerr.InvalidConfig.With("%s", e.Text)
	}
	return err
}

func (c *Controller) checkExists(res metadata.Resource) error {
	switch res.Type {
	case metadata.ResourceTopic:
		if c.Image().Topic(res.Name) == nil {
			return kerr.UnknownTopicOrPartition.With("The topic '%s' does not exist.", res.Name)
		}
	case metadata.ResourceBroker:
		if res.Name == "" {
			return nil
		}
		id, err := strconv.ParseInt(res.Name, 10, 32)
		if err != nil {
			return kerr.InvalidRequest.With("Invalid broker name %s", res.Name)
		}
		b := kafka.BrokerID(id)
		if c.registration(b) == nil && b != c.opt.NodeID && !slices.Contains(c.opt.QuorumNodes, b) {
			return kerr.BrokerIDNotRegistered.With("No broker with id %d found.", id)
		}
	}
	return nil
}

// clearELRs forgets eligible leader replicas where min.insync.replicas changes: they were computed with the old value.
func (c *Controller) clearELRs(records []Record) []Record {
	if !c.Image().ELREnabled() {
		return nil
	}
	var out []Record
	for _, r := range records {
		if e, ok := r.Message.(*schema.ConfigRecord); ok && e.Name == minISRKey {
			clear := &schema.ClearElrRecord{}
			if metadata.ResourceType(e.ResourceType) == metadata.ResourceTopic {
				clear.TopicName = e.ResourceName
			}
			out = append(out, Record{clear, 0})
		}
	}
	return out
}

// elrSafety are the records that must stand beside the switching on of eligible leader replicas: every controller has to
// compute with the same min.insync.replicas, so the value of this node's file becomes the cluster's, and single brokers
// lose theirs.
func (c *Controller) elrSafety() []Record {
	img := c.Image()
	var out []Record
	cluster := metadata.Resource{Type: metadata.ResourceBroker}
	if _, ok := img.ConfigValue(cluster, minISRKey); !ok {
		text, _, _ := config.Layers{Static: c.static()}.Resolve(minISRKey)
		out = append(out, configRecord(cluster, minISRKey, &text))
	}
	var ids []int
	for cfg := range img.Configs() {
		if cfg.Resource.Type == metadata.ResourceBroker && cfg.Resource.Name != "" {
			if _, ok := cfg.Get(minISRKey); ok {
				if id, err := strconv.Atoi(cfg.Resource.Name); err == nil {
					ids = append(ids, id)
				}
			}
		}
	}
	slices.SortFunc(ids, cmp.Compare)
	for _, id := range ids {
		out = append(out, configRecord(metadata.Resource{Type: metadata.ResourceBroker, Name: strconv.Itoa(id)}, minISRKey, nil))
	}
	return out
}
