package metadata

import (
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/schema"
)

// RegisterControllerRecord: a controller registers.
func (d *Delta) replayRegisterController(r *schema.RegisterControllerRecord) error {
	c := &Controller{ID: kafka.BrokerID(r.ControllerID), Incarnation: r.IncarnationID, ZkMigrationReady: r.ZkMigrationReady}
	for _, e := range r.EndPoints {
		c.Endpoints = append(c.Endpoints, Endpoint{e.Name, e.Host, e.Port, e.SecurityProtocol})
	}
	for _, f := range r.Features {
		c.Features = append(c.Features, SupportedFeature{f.Name, f.MinSupportedVersion, f.MaxSupportedVersion})
	}
	sortEndpoints(c.Endpoints)
	sortFeatures(c.Features)
	d.img.controllers.Set(c.ID, c)
	d.changes.controllers.Insert(c.ID)
	return nil
}
