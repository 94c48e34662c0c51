package metadata

import (
	"fmt"
	"strconv"
	"strings"
)

// Names of features.
const (
	MetadataVersionFeature               = "metadata.version"
	KRaftVersionFeature                  = "kraft.version"
	TransactionVersionFeature            = "transaction.version"
	GroupVersionFeature                  = "group.version"
	EligibleLeaderReplicasVersionFeature = "eligible.leader.replicas.version"
	ShareVersionFeature                  = "share.version"
	StreamsVersionFeature                = "streams.version"
)

// Version is a level of metadata.version, 33 for 4.4-IV2; 0 is "not known yet".
type Version int16

// The ends of what this software knows.
const (
	MinVersion              Version = 7  // 3.3-IV3
	LatestProductionVersion Version = 33 // 4.4-IV2
	LatestVersion           Version = 34 // 4.5-IV0, not yet for production
)

// FeatureLevel is one level of a feature other than metadata.version.
type FeatureLevel struct {
	Feature      string
	Level        int16
	Name         string
	Production   bool
	Bootstrap    Version // the metadata.version from which on a new cluster has at least this level
	Dependencies []Dependency
}

// Dependency is the level of a feature that another one needs.
type Dependency struct {
	Feature string
	Level   int16
}

// Facts is what this level means; for a level that we don't know the facts of the nearest that we know.
func (v Version) Facts() *VersionFacts {
	i := min(max(int(v)-int(MinVersion), 0), len(metadataVersions)-1)
	return &metadataVersions[i]
}

// Known tells whether v is a level that Kafka 4.4 knows.
func (v Version) Known() bool { return v >= MinVersion && v <= LatestVersion }

// String is Kafka's name, "4.4-IV2".
func (v Version) String() string {
	if !v.Known() {
		return "level " + strconv.Itoa(int(v))
	}
	return v.Facts().Name
}

// VersionFromName finds a metadata.version by its name ("4.4-IV2"), or by a release ("4.4", "4.4.0", "4.4.1"): then it is
// the newest of that release, the newest for production if there is one.
func VersionFromName(name string) (Version, bool) {
	for i := range metadataVersions {
		if metadataVersions[i].Name == name {
			return Version(metadataVersions[i].Level), true
		}
	}
	parts := strings.Split(name, ".")
	if len(parts) < 2 || strings.Contains(name, "-") {
		return 0, false
	}
	release := parts[0] + "." + parts[1]
	var found Version
	for i := range metadataVersions {
		m := &metadataVersions[i]
		if m.Release == release && (m.Production || found == 0 || !found.Facts().Production) {
			found = Version(m.Level)
		}
	}
	return found, found != 0
}

// Versions gives every level of metadata.version that Kafka 4.4 knows, ascending.
func Versions() []Version {
	out := make([]Version, len(metadataVersions))
	for i := range metadataVersions {
		out[i] = Version(metadataVersions[i].Level)
	}
	return out
}

// FeatureNames gives the features other than metadata.version, in the order in which Kafka lists them.
func FeatureNames() []string { return featureNames[:] }

// LevelsOf gives the levels of a feature other than metadata.version, ascending; none if there is no such feature.
func LevelsOf(feature string) []FeatureLevel {
	lo := 0
	for lo < len(featureLevels) && featureLevels[lo].Feature != feature {
		lo++
	}
	hi := lo
	for hi < len(featureLevels) && featureLevels[hi].Feature == feature {
		hi++
	}
	return featureLevels[lo:hi]
}

// SupportedRange gives the lowest and the highest level of a feature that a node of this software supports, as it
// registers them; unstable adds levels that aren't for production.
func SupportedRange(feature string, unstable bool) (lo, hi int16, ok bool) {
	if feature == MetadataVersionFeature {
		if unstable {
			return int16(MinVersion), int16(LatestVersion), true
		}
		return int16(MinVersion), int16(LatestProductionVersion), true
	}
	for _, l := range LevelsOf(feature) {
		if l.Production || unstable {
			hi, ok = l.Level, true
		}
	}
	return 0, hi, ok
}

// DefaultLevel is the level of a feature in a new cluster of metadata.version v.
func DefaultLevel(feature string, v Version) int16 {
	if feature == MetadataVersionFeature {
		return int16(v)
	}
	i := min(max(int(v)-int(MinVersion), 0), len(featureDefaults)-1)
	for j, n := range featureNames {
		if n == feature {
			return featureDefaults[i][j]
		}
	}
	return 0
}

// CheckDependencies says whether level of feature may be had together with the levels that other features have or will
// have.
func CheckDependencies(feature string, level int16, others func(feature string) int16) error {
	if level > 0 {
		if v := Version(others(MetadataVersionFeature)); v != 0 && v < MinVersion {
			return fmt.Errorf("%s could not be set to %d because it depends on metadata.version=%d (%s)", feature, level, MinVersion, MinVersion)
		}
	}
	for _, l := range LevelsOf(feature) {
		if l.Level != level {
			continue
		}
		for _, d := range l.Dependencies {
			if others(d.Feature) < d.Level {
				return fmt.Errorf("%s could not be set to %d because it depends on %s level %d", feature, level, d.Feature, d.Level)
			}
		}
	}
	return nil
}
