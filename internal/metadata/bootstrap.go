package metadata

import (
	"cmp"
	"slices"

	"github.com/highwater/highwater/internal/schema"
)

// FeatureSetting is a feature at a level.
type FeatureSetting struct {
	Name  string
	Level int16
}

// BootstrapOptions says what a new cluster begins with.
type BootstrapOptions struct {
	Version Version // metadata.version
	// Features other than metadata.version that shall have another level than DefaultLevel.
	Features []FeatureSetting
	Scram    []*ScramCredential
}

// Levels gives the level of every feature that will be finalized: metadata.version first, then those above 0 by name.
// kraft.version is not among them: it stands in a control record of its own.
func (o *BootstrapOptions) Levels() []FeatureSetting {
	levels := []FeatureSetting{{MetadataVersionFeature, int16(o.Version)}}
	names := slices.Sorted(slices.Values(featureNames[:]))
	for _, name := range names {
		if name == KRaftVersionFeature {
			continue
		}
		level := DefaultLevel(name, o.Version)
		for _, f := range o.Features {
			if f.Name == name {
				level = f.Level
			}
		}
		if level > 0 {
			levels = append(levels, FeatureSetting{name, level})
		}
	}
	return levels
}

// Bootstrap gives the metadata records of a freshly formatted cluster, all to be encoded at version 0: they stand in the
// first checkpoint (snapshot 0-0) behind its control records.
func Bootstrap(o BootstrapOptions) []schema.Record {
	var out []schema.Record
	for _, f := range o.Levels() {
		out = append(out, &schema.FeatureLevelRecord{Name: f.Name, FeatureLevel: f.Level})
	}
	for _, c := range o.Scram {
		out = append(out, c.record())
	}
	return out
}

// Voter is a member of the quorum as it stands in a VotersRecord.
type Voter struct {
	ID          int32
	DirectoryID [16]byte
	Endpoints   []Endpoint // Protocol isn't used
}

// BootstrapControl gives the control records at the head of the first checkpoint. With kraft.version 0 that is the
// snapshot header alone. With 1 the voters follow; without any (controllers that wait to be told) only the version.
func BootstrapControl(timestamp int64, kraftVersion int16, voters []Voter) []schema.Record {
	out := []schema.Record{&schema.SnapshotHeaderRecord{LastContainedLogTimestamp: timestamp}}
	if kraftVersion == 0 {
		return out
	}
	out = append(out, &schema.KRaftVersionRecord{KRaftVersion: kraftVersion})
	if len(voters) == 0 {
		return out
	}
	v := schema.NewVotersRecord()
	for _, m := range slices.SortedFunc(slices.Values(voters), func(a, b Voter) int { return cmp.Compare(a.ID, b.ID) }) {
		r := schema.VotersRecordVoter{VoterID: m.ID, VoterDirectoryID: m.DirectoryID}
		r.KRaftVersionFeature.MinSupportedVersion, r.KRaftVersionFeature.MaxSupportedVersion = 0, kraftVersion
		for _, e := range m.Endpoints {
			r.Endpoints = append(r.Endpoints, schema.VotersRecordEndpoint{Name: e.Name, Host: e.Host, Port: e.Port})
		}
		v.Voters = append(v.Voters, r)
	}
	return append(out, v)
}
