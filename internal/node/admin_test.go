package node_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/internal/kafka"
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

// A node whose voters stand in its configuration moves them into its log, by the step that Kafka's documentation has for every upgrade.
func TestUpgradeOfKRaftVersion(t *testing.T) {
	c := format(t)
	n := start(t, c)
	cl := client(t, n)
	finalized := func() int16 {
		r, err := kmsg.NewPtrApiVersionsRequest().RequestWith(t.Context(), cl)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.FinalizedFeatures {
			if f.Name == metadata.KRaftVersionFeature {
				return f.MaxVersionLevel
			}
		}
		return 0
	}
	upgrade := func(validateOnly bool) {
		t.Helper()
		req := kmsg.NewPtrUpdateFeaturesRequest()
		req.ValidateOnly = validateOnly
		for name, level := range map[string]int16{metadata.KRaftVersionFeature: 1, metadata.MetadataVersionFeature: int16(metadata.LatestProductionVersion)} {
			u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
			u.Feature, u.MaxVersionLevel, u.UpgradeType = name, level, 1
			req.FeatureUpdates = append(req.FeatureUpdates, u)
		}
		r, err := req.RequestWith(t.Context(), cl)
		if err != nil || r.ErrorCode != 0 {
			t.Fatalf("%v %+v", err, r)
		}
	}
	upgrade(true)
	if level := finalized(); level != 0 {
		t.Errorf("level %d after a validation", level)
	}
	upgrade(false)
	becomes(t, "1", func() string { return fmt.Sprint(finalized()) })
	req := kmsg.NewPtrDescribeQuorumRequest()
	req.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: kafka.ClusterMetadataTopic, Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{}}}}
	r, err := req.RequestWith(t.Context(), cl)
	if err != nil {
		t.Fatal(err)
	}
	if v := r.Topics[0].Partitions[0].CurrentVoters; len(v) != 1 || v[0].ReplicaDirectoryID != [16]byte(kafka.UUID{0: 9}) {
		t.Errorf("voters %+v", v)
	}
	upgrade(false) // nothing to do any more
	cl.Close()
	stop(t, n)
	n = start(t, c)
	defer func() { stop(t, n) }()
	cl = client(t, n)
	if level := finalized(); level != 1 {
		t.Errorf("level %d after a restart", level)
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
