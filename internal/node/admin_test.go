package node_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/node"
)

// What an administrator asks, right or wrong, in every version: quotas, SCRAM credentials, features, configs of groups,
// client metrics and loggers, partitions. The answers are those that Kafka gave to the same requests. All that was set is
// there after a restart.
func TestAdminAnswersAreKafkas(t *testing.T) {
	c := format(t)
	n := start(t, c)
	fixture.JudgeAdmin(t, n.Addr("PLAINTEXT"), n.Addr("CONTROLLER"), fixture.AdminDeviations)
	before := settings(n)
	stop(t, n)
	n = start(t, c)
	defer stop(t, n)
	after := settings(n)
	if !slices.Equal(before, after) {
		t.Errorf("before the restart\n%q\nafter it\n%q", before, after)
	}
	if len(after) < 30 {
		t.Errorf("only %d settings", len(after))
	}
}

// settings are what an administrator set.
func settings(n *node.Node) []string {
	var out []string
	image := n.Image()
	for q := range image.ClientQuotas() {
		for _, v := range q.Values {
			name := ""
			for _, e := range q.Entity {
				name += e.Type + "="
				if e.Name != nil {
					name += *e.Name
				}
				name += ","
			}
			out = append(out, name+v.Key)
		}
	}
	for s := range image.Scrams() {
		out = append(out, "SCRAM "+s.User+string(s.StoredKey)+string(s.ServerKey)+string(s.Salt))
	}
	for c := range image.Configs() {
		if c.Resource.Type == metadata.ResourceGroup || c.Resource.Type == metadata.ResourceClientMetrics {
			for _, e := range c.Entries {
				out = append(out, c.Resource.Name+" "+e.Name+"="+e.Value)
			}
		}
	}
	return append(out, slices.Sorted(maps.Keys(maps.Collect(image.Features())))...)
}
