package metadata

import (
	"slices"

	"github.com/highwater/highwater/internal/schema"
)

// ConfigRecord: one config of one resource is set, or deleted if the value is null.
func (d *Delta) replayConfig(r *schema.ConfigRecord) error {
	res := Resource{ResourceType(r.ResourceType), r.ResourceName}
	d.changes.configs.Set(res.key(), res)
	var entries []ConfigEntry
	if old := d.img.Config(res); old != nil {
		entries = old.Entries
	}
	n, found := slices.BinarySearchFunc(entries, r.Name, compareEntry)
	next := make([]ConfigEntry, 0, len(entries)+1)
	next = append(next, entries[:n]...)
	if r.Value != nil {
		next = append(next, ConfigEntry{r.Name, *r.Value})
	}
	if found {
		n++
	}
	next = append(next, entries[n:]...)
	if len(next) == 0 {
		d.img.configs.Delete(res.key())
	} else {
		d.img.configs.Set(res.key(), &Config{res, next})
	}
	return nil
}
