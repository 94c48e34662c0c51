package metadata

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/highwater/highwater/internal/schema"
)

// ClientQuotaRecord: one quota of one entity is set or removed.
func (d *Delta) replayClientQuota(r *schema.ClientQuotaRecord) error {
	entity := make([]QuotaEntity, 0, len(r.Entity))
	for _, e := range r.Entity {
		entity = append(entity, QuotaEntity{e.EntityType, clone(e.EntityName)})
	}
	entity = sortedEntity(entity)
	for i := 1; i < len(entity); i++ {
		if entity[i].Type == entity[i-1].Type {
			return fmt.Errorf("entity has two parts of type %s", entity[i].Type)
		}
	}
	key := quotaKey(entity)
	d.changes.quotas.Set(key, entity)
	var values []QuotaValue
	if old, ok := d.img.quotas.Get(key); ok {
		values = old.Values
	}
	n, found := slices.BinarySearchFunc(values, r.Key, func(v QuotaValue, key string) int { return cmp.Compare(v.Key, key) })
	next := make([]QuotaValue, 0, len(values)+1)
	next = append(next, values[:n]...)
	if !r.Remove {
		next = append(next, QuotaValue{r.Key, r.Value})
	}
	if found {
		n++
	}
	next = append(next, values[n:]...)
	if len(next) == 0 {
		d.img.quotas.Delete(key)
	} else {
		d.img.quotas.Set(key, &ClientQuota{entity, next})
	}
	return nil
}
