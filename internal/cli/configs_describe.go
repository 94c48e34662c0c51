package cli

import (
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func (t *configsTool) describeConfig() error {
	switch t.types[0] {
	case entityUsers, entityClients:
		if err := t.describeQuotas(); err != nil {
			return err
		}
		return t.describeScram()
	case entityIPs:
		return t.describeQuotas()
	}
	return t.describeResource(t.types[0])
}

func (t *configsTool) describeResource(kind string) error {
	all := t.p.Has(t.all)
	var entities []string
	if len(t.names) > 0 {
		name := t.names[0]
		if !all {
			ok, err := t.exists(kind, name)
			if err != nil {
				return err
			}
			if !ok {
				t.e.Printf("The %s '%s' doesn't exist and doesn't have dynamic config.\n", strings.TrimSuffix(kind, "s"), name)
				return nil
			}
		}
		entities = []string{name}
	} else {
		var err error
		if entities, err = t.entitiesOf(kind); err != nil {
			return err
		}
	}
	for _, name := range entities {
		if name == "" {
			t.e.Printf("Default configs for %s in the cluster are:\n", kind)
		} else {
			what := "Dynamic"
			if all {
				what = "All"
			}
			t.e.Printf("%s configs for %s %s are:\n", what, strings.TrimSuffix(kind, "s"), name)
		}
		entries, err := t.resource(kind, name)
		if err != nil {
			return err
		}
		for _, n := range sortedKeys(entries) {
			t.e.Println(entries[n].line())
		}
	}
	return nil
}

// resource is the configurations of one resource that are shown.
func (t *configsTool) resource(kind, name string) (resourceConfigs, error) {
	got, err := describeConfigs(t.admin, resourceTypes[kind], []string{name}, true, t.resourceNode(kind, name))
	if err != nil {
		return nil, executionError(err)
	}
	only := map[string]configSource{entityTopics: 1, entityBrokers: 2, entityClientMetrics: 7, entityGroups: 8}[kind]
	if kind == entityBrokers && name == "" {
		only = 3
	}
	if t.p.Has(t.all) || only == 0 {
		return got[name], nil
	}
	out := make(resourceConfigs)
	for n, e := range got[name] {
		if e.source == only {
			out[n] = e
		}
	}
	return out, nil
}

// exists says whether there is something to describe.
func (t *configsTool) exists(kind, name string) (bool, error) {
	if kind == entityBrokers && name == "" {
		return true, nil
	}
	list, err := t.entitiesOf(kind)
	if err != nil {
		return false, err
	}
	for _, n := range list {
		if n == name {
			return true, nil
		}
	}
	return false, nil
}

// entitiesOf lists the entities of a type.
func (t *configsTool) entitiesOf(kind string) ([]string, error) {
	switch kind {
	case entityTopics:
		names, err := topicNames(t.admin)
		if err != nil {
			return nil, executionError(err)
		}
		return names, nil
	case entityBrokers, entityBrokerLoggers:
		nodes, err := t.nodes()
		if err != nil {
			return nil, executionError(err)
		}
		if kind == entityBrokers {
			nodes = append(nodes, "")
		}
		return nodes, nil
	case entityClientMetrics:
		return t.configResources(16)
	default:
		names, err := t.configResources(32)
		if err != nil {
			return nil, err
		}
		groups, err := t.groups()
		if err != nil {
			return nil, err
		}
		seen := make(map[string]bool)
		for _, n := range append(names, groups...) {
			seen[n] = true
		}
		return sortedKeys(seen), nil
	}
}

// nodes lists the ids of brokers, or of controllers.
func (t *configsTool) nodes() ([]string, error) {
	req := kmsg.NewPtrDescribeClusterRequest()
	if t.admin.controllers {
		req.EndpointType = 2
	}
	r, err := t.admin.any("listNodes", req)
	if err != nil {
		return nil, err
	}
	resp := r.(*kmsg.DescribeClusterResponse)
	if err := codeError(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return nil, err
	}
	var ids []int
	for _, b := range resp.Brokers {
		ids = append(ids, int(b.NodeID))
	}
	sort.Ints(ids)
	var out []string
	for _, id := range ids {
		out = append(out, strconv.Itoa(id))
	}
	return out, nil
}

func (t *configsTool) configResources(kind int8) ([]string, error) {
	req := kmsg.NewPtrListConfigResourcesRequest()
	req.ResourceTypes = []int8{kind}
	r, err := t.admin.any("listConfigResources", req)
	if err != nil {
		return nil, executionError(err)
	}
	resp := r.(*kmsg.ListConfigResourcesResponse)
	if err := codeError(resp.ErrorCode, nil); err != nil {
		return nil, executionError(err)
	}
	var out []string
	for _, c := range resp.ConfigResources {
		if resp.Version == 0 && kind != 16 { // version 0 lists client metrics whatever is asked
			break
		}
		out = append(out, c.Name)
	}
	return out, nil
}

// groups lists the groups of all brokers.
func (t *configsTool) groups() ([]string, error) {
	nodes, err := t.nodes()
	if err != nil {
		return nil, executionError(err)
	}
	var out []string
	for _, n := range nodes {
		id, err := strconv.ParseInt(n, 10, 32)
		if err != nil {
			return nil, err
		}
		r, err := t.admin.broker("listGroups", int32(id), t.admin.timeout, kmsg.NewPtrListGroupsRequest())
		if err != nil {
			var j *JavaError
			if errors.As(err, &j) && strings.HasSuffix(j.Class, ".UnsupportedVersionException") {
				return nil, nil
			}
			return nil, executionError(err)
		}
		resp := r.(*kmsg.ListGroupsResponse)
		if err := codeError(resp.ErrorCode, nil); err != nil {
			return nil, executionError(err)
		}
		for _, g := range resp.Groups {
			out = append(out, g.Group)
		}
	}
	return out, nil
}

// quotas are the quotas of exactly the entities that are meant.
func (t *configsTool) quotas() ([]kmsg.DescribeClientQuotasResponseEntry, error) {
	req := kmsg.NewPtrDescribeClientQuotasRequest()
	req.Strict = true
	for i := range max(len(t.types), len(t.names)) {
		if i >= len(t.types) {
			return nil, illegalArgument("More entity names specified than entity types")
		}
		c := kmsg.NewDescribeClientQuotasRequestComponent()
		c.EntityType = quotaEntity[t.types[i]]
		switch {
		case i >= len(t.names):
			c.MatchType = 2 // any
		case t.names[i] == "":
			c.MatchType = 1 // the default
		default:
			c.MatchType, c.Match = 0, kmsg.StringPtr(t.names[i])
		}
		req.Components = append(req.Components, c)
	}
	r, err := t.admin.any("describeClientQuotas", req)
	if err != nil {
		return nil, executionError(err)
	}
	resp := r.(*kmsg.DescribeClientQuotasResponse)
	if err := codeError(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return nil, executionError(err)
	}
	return resp.Entries, nil
}

func (t *configsTool) describeQuotas() error {
	entries, err := t.quotas()
	if err != nil {
		return err
	}
	for _, e := range entries {
		var who []string
		for _, kind := range []struct{ kind, shown string }{{"user", "user-principal"}, {"client-id", "client-id"}, {"ip", "ip"}} {
			for _, c := range e.Entity {
				switch {
				case c.Type != kind.kind:
				case c.Name == nil:
					who = append(who, "the default "+kind.shown)
				default:
					who = append(who, fmt.Sprintf("%s '%s'", kind.shown, *c.Name))
				}
			}
		}
		values := make(map[string]float64)
		var keys, list []string
		for _, v := range e.Values {
			values[v.Key] = v.Value
			keys = append(keys, v.Key)
		}
		for _, k := range javaOrder(keys, len(keys)) {
			list = append(list, k+"="+javaDouble(values[k]))
		}
		t.e.Printf("Quota configs for %s are %s\n", strings.Join(who, ", "), strings.Join(list, ", "))
	}
	return nil
}

func (t *configsTool) describeScram() error {
	if t.hasType(entityClients) {
		return nil
	}
	req := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
	for _, n := range t.names {
		if n == "" {
			return nil
		}
		ru := kmsg.NewDescribeUserSCRAMCredentialsRequestUser()
		ru.Name = n
		req.Users = append(req.Users, ru)
	}
	r, err := t.admin.any("describeUserScramCredentials", req)
	if err != nil {
		return executionError(err)
	}
	resp := r.(*kmsg.DescribeUserSCRAMCredentialsResponse)
	if err := codeError(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return executionError(err)
	}
	for _, u := range resp.Results {
		if u.ErrorCode == 91 { // RESOURCE_NOT_FOUND: a user without credentials
			continue
		}
		if err := codeError(u.ErrorCode, u.ErrorMessage); err != nil {
			t.e.Printf("Error retrieving SCRAM credential configs for user-principal '%s': ExecutionException: %s\n", u.User, err.Line())
			continue
		}
		var list []string
		for _, c := range u.CredentialInfos {
			mechanism := "UNKNOWN"
			for n, id := range scramMechanisms {
				if id == c.Mechanism {
					mechanism = n
				}
			}
			list = append(list, fmt.Sprintf("%s=iterations=%d", mechanism, c.Iterations))
		}
		t.e.Printf("SCRAM credential configs for user-principal '%s' are %s\n", u.User, strings.Join(list, ", "))
	}
	return nil
}
