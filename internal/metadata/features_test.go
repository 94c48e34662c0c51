package metadata

import (
	"fmt"
	"strings"
	"testing"

	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/schema"
)

// The tables in Go are the tables of the fixtures, and what the package makes of them is right at each level.
func TestFeatureTables(t *testing.T) {
	for _, row := range fixture.Table(t, "tables/feature-defaults.tsv") {
		v, ok := VersionFromName(row["metadata.version"])
		if !ok || fmt.Sprint(int16(v)) != row["level"] {
			t.Fatalf("%s: %d", row["metadata.version"], v)
		}
		for _, name := range FeatureNames() {
			if got := fmt.Sprint(DefaultLevel(name, v)); got != row[name] {
				t.Errorf("%s at %s: %s, want %s", name, v, got, row[name])
			}
		}
	}
	n := 0
	for _, row := range fixture.Table(t, "tables/features.tsv") {
		for _, l := range LevelsOf(row["feature"]) {
			if fmt.Sprint(l.Level) == row["level"] {
				n++
				if l.Name != row["name"] || l.Bootstrap.String() != row["bootstrapMetadataVersion"] {
					t.Errorf("%s %s: %+v", row["feature"], row["level"], l)
				}
			}
		}
	}
	if n != len(featureLevels) {
		t.Errorf("%d levels", n)
	}
	f := func(name, want string) {
		t.Helper()
		if v, ok := VersionFromName(name); v.String() != want && ok || !ok && want != "" {
			t.Errorf("%s: %s %v, want %s", name, v, ok, want)
		}
	}
	f("4.4", "4.4-IV2")
	f("4.4.0", "4.4-IV2")
	f("3.3", "3.3-IV3")
	f("3.9.2", "3.9-IV0")
	f("4.5", "4.5-IV0")
	f("4.4-IV9", "")
	f("5.0", "")
	f("x", "")
	if lo, hi, ok := SupportedRange(MetadataVersionFeature, false); lo != 7 || hi != 33 || !ok {
		t.Error(lo, hi)
	}
	if _, hi, ok := SupportedRange(ShareVersionFeature, false); hi != 2 || !ok {
		t.Error(hi)
	}
	if _, _, ok := SupportedRange("x", false); ok {
		t.Error("x is supported")
	}
	levels := func(mv int16) func(string) int16 { return func(string) int16 { return mv } }
	if err := CheckDependencies(EligibleLeaderReplicasVersionFeature, 1, levels(22)); err == nil {
		t.Error("ELR without metadata.version 23")
	}
	if err := CheckDependencies(EligibleLeaderReplicasVersionFeature, 1, levels(23)); err != nil {
		t.Error(err)
	}
}

// A new cluster's checkpoint, for every way in which the real Kafka's tool was asked to format one.
func TestBootstrap(t *testing.T) {
	n := 0
	logs := metadataLogs(t, "formatted-4.4")
	for dir, files := range logs {
		way, _, _ := strings.Cut(dir, "/")
		for _, b := range files {
			n++
			o := BootstrapOptions{Version: LatestProductionVersion}
			if _, v, ok := strings.Cut(way, "-3."); ok {
				o.Version, _ = VersionFromName("3." + v)
			} else if v, ok := strings.CutPrefix(way, "release-"); ok {
				o.Version, _ = VersionFromName(v)
			}
			if way == "features" {
				o.Features = []FeatureSetting{{TransactionVersionFeature, 1}, {GroupVersionFeature, 0}, {EligibleLeaderReplicasVersionFeature, 0}}
			}
			var control, records [][]byte
			var timestamp int64
			var voters []Voter
			kraft := int16(0)
			for _, r := range recordsOf(t, b) {
				if !r.control {
					records = append(records, r.value)
					continue
				}
				control = append(control, r.value)
				switch len(control) {
				case 1:
					var h schema.SnapshotHeaderRecord
					if err := schema.ReadAll(&h, r.value, 0); err != nil {
						t.Fatal(err)
					}
					timestamp = h.LastContainedLogTimestamp
				case 3:
					var v schema.VotersRecord
					if len(r.value) > 3 && schema.ReadAll(&v, r.value, 0) == nil {
						for _, m := range v.Voters {
							e := m.Endpoints[0]
							voters = append([]Voter{{m.VoterID, m.VoterDirectoryID, []Endpoint{{Name: e.Name, Host: e.Host, Port: e.Port}}}}, voters...)
						}
					}
				}
			}
			control = control[:len(control)-1] // the footer
			if len(control) > 1 {
				kraft = 1
			}
			if way == "scram" {
				img, _ := snapshot(t, "00000000000000000000-0000000000.checkpoint", b)
				for c := range img.Scrams() {
					o.Scram = append(o.Scram, c)
				}
			}
			got := Bootstrap(o)
			if len(got) != len(records) {
				t.Errorf("%s: %d records, want %d", way, len(got), len(records))
				continue
			}
			for i, r := range got {
				if b, err := schema.AppendFrame(nil, r, 0); err != nil || string(b) != string(records[i]) {
					t.Errorf("%s: record %d is %s (%v)", way, i, r.AppendJSON(nil, 0), err)
				}
			}
			for i, r := range BootstrapControl(timestamp, kraft, voters) {
				if b, err := r.AppendTo(nil, 0); err != nil || i >= len(control) || string(b) != string(control[i]) {
					t.Errorf("%s: control record %d is %s (%v)", way, i, r.AppendJSON(nil, 0), err)
				}
			}
		}
	}
	if n < 20 {
		t.Errorf("%d formatted directories", n)
	}
}

func TestFeaturesInOrder(t *testing.T) {
	d := NewDelta(Empty())
	for _, f := range []FeatureSetting{{"z", 1}, {MetadataVersionFeature, 30}, {"a", 2}, {"gone", 1}, {"gone", 0}} {
		replay(t, d, &schema.FeatureLevelRecord{Name: f.Name, FeatureLevel: f.Level})
	}
	got := ""
	for name, level := range d.Image().Features() {
		got += fmt.Sprint(name, "=", level, " ")
	}
	if got != "a=2 metadata.version=30 z=1 " {
		t.Error(got)
	}
}

func record1M(b testing.TB, topics, partitions int) [][]byte {
	var out [][]byte
	for n := range topics {
		t := kafka.UUID{0: byte(n >> 16), 1: byte(n >> 8), 2: byte(n), 15: 200}
		v, err := schema.AppendFrame(nil, &schema.TopicRecord{Name: fmt.Sprintf("topic-%06d", n), TopicID: t}, 0)
		if err != nil {
			b.Fatal(err)
		}
		out = append(out, v)
		for p := range partitions {
			r := schema.NewPartitionRecord()
			r.TopicID, r.PartitionID, r.Leader, r.LeaderEpoch, r.PartitionEpoch = t, int32(p), int32(p%9), 0, 0
			r.Replicas = []int32{int32(p % 9), int32((p + 1) % 9), int32((p + 2) % 9)}
			r.ISR = r.Replicas
			r.Directories = []kafka.UUID{{1: 3, 15: byte(p % 9)}, {1: 4, 15: byte(p % 9)}, {1: 5, 15: byte(p % 9)}}
			if v, err = schema.AppendFrame(nil, r, 2); err != nil {
				b.Fatal(err)
			}
			out = append(out, v)
		}
	}
	return out
}
