package metadata

import (
	"fmt"

	"github.com/highwater/highwater/internal/schema"
)

// FeatureLevelRecord: a feature is finalized at a level; level 0 means that it is not finalized.
func (d *Delta) replayFeatureLevel(r *schema.FeatureLevelRecord) error {
	switch {
	case r.Name == MetadataVersionFeature:
		v := Version(r.FeatureLevel)
		if !v.Known() {
			return fmt.Errorf("metadata.version %d is unknown to this software, which knows %d (%s) to %d (%s)",
				v, MinVersion, MinVersion, LatestVersion, LatestVersion)
		}
		d.img.version = v
	case r.FeatureLevel < 0:
		return fmt.Errorf("level %d of feature %s is negative", r.FeatureLevel, r.Name)
	case r.FeatureLevel == 0:
		d.img.features.Delete(r.Name)
	default:
		d.img.features.Set(r.Name, r.FeatureLevel)
	}
	d.changes.features.Insert(r.Name)
	return nil
}
