package metadata

import (
	"cmp"
	"slices"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/schema"
)

// RegisterBrokerRecord: a broker registers, for the first time or again with a higher epoch; all that was known of its
// former process is replaced.
func (d *Delta) replayRegisterBroker(r *schema.RegisterBrokerRecord) error {
	b := &Broker{
		ID: kafka.BrokerID(r.BrokerID), Epoch: kafka.BrokerEpoch(r.BrokerEpoch), Incarnation: r.IncarnationID,
		Rack: clone(r.Rack), Fenced: r.Fenced, ShuttingDown: r.InControlledShutdown, MigratingZk: r.IsMigratingZkBroker,
		LogDirs: sortedIDs(r.LogDirs), CordonedDirs: cordoned(r.CordonedLogDirs),
	}
	for _, e := range r.EndPoints {
		b.Endpoints = append(b.Endpoints, Endpoint{e.Name, e.Host, e.Port, e.SecurityProtocol})
	}
	for _, f := range r.Features {
		b.Features = append(b.Features, SupportedFeature{f.Name, f.MinSupportedVersion, f.MaxSupportedVersion})
	}
	sortEndpoints(b.Endpoints)
	sortFeatures(b.Features)
	d.setBroker(b)
	return nil
}

func (d *Delta) setBroker(b *Broker) {
	d.img.brokers.Set(b.ID, b)
	d.changes.brokers.Insert(b.ID)
}

func clone(s *string) *string {
	if s == nil {
		return nil
	}
	c := *s
	return &c
}

// sortedIDs is a copy in ascending order, as Kafka keeps directories; nil if there are none.
func sortedIDs(ids []kafka.UUID) []kafka.UUID {
	if len(ids) == 0 {
		return nil
	}
	out := slices.Clone(ids)
	slices.SortFunc(out, compareIDs)
	return out
}

// cordoned is a copy in the order of the record, which Kafka keeps here, and keeps null, which is not the same as none.
func cordoned(ids []kafka.UUID) []kafka.UUID {
	if ids == nil {
		return nil
	}
	return append([]kafka.UUID{}, ids...)
}

func sortFeatures(f []SupportedFeature) {
	slices.SortStableFunc(f, func(a, b SupportedFeature) int { return cmp.Compare(a.Name, b.Name) })
}

// sortEndpoints orders by listener: Kafka keeps a map, and its snapshots have the order of a Java hash map.
func sortEndpoints(e []Endpoint) {
	slices.SortStableFunc(e, func(a, b Endpoint) int { return cmp.Compare(a.Name, b.Name) })
}
