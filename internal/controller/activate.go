package controller

import (
	"errors"
	"fmt"

	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/schema"
)

// Activate is what a new controller writes first.
//
// In a log without any metadata record, which formatting leaves behind, that is what the first checkpoint has: levels of
// features, SCRAM credentials. Without such a checkpoint (a log from before Kafka 4) it is the newest metadata.version.
// All of it is one transaction where the metadata.version knows those, so that a crash half-way leaves nothing. With
// eligible leader replicas the cluster's min.insync.replicas joins it.
//
// In any other log it ends the transaction that the controller before left open, if there is one.
func (c *Controller) Activate(empty bool, bootstrap []Record) (Result, error) {
	if !empty {
		return c.activateOld()
	}
	if len(bootstrap) == 0 {
		bootstrap = []Record{{&schema.FeatureLevelRecord{Name: metadata.MetadataVersionFeature, FeatureLevel: int16(metadata.LatestProductionVersion)}, 0}}
	}
	var version metadata.Version
	elr, minISR := false, false
	for _, r := range bootstrap {
		switch r := r.Message.(type) {
		case *schema.FeatureLevelRecord:
			switch r.Name {
			case metadata.MetadataVersionFeature:
				version = metadata.Version(r.FeatureLevel)
			case metadata.EligibleLeaderReplicasVersionFeature:
				elr = r.FeatureLevel > 0
			}
		case *schema.ConfigRecord:
			minISR = minISR || r.Name == minISRKey && r.ResourceName == "" && metadata.ResourceType(r.ResourceType) == metadata.ResourceBroker
		}
	}
	if version == 0 {
		return Result{}, errors.New("the first checkpoint has no metadata.version")
	}
	if !version.Known() {
		return Result{}, fmt.Errorf("the first checkpoint has metadata.version %d, which this software doesn't know", version)
	}
	var records []Record
	transaction := version.Facts().MetadataTransactionSupported
	if transaction {
		if c.delta.InTransaction() {
			records = append(records, Record{&schema.AbortTransactionRecord{Reason: new("Controller failover")}, 0})
		}
		records = append(records, Record{&schema.BeginTransactionRecord{Name: new("Bootstrap records")}, 0})
	}
	records = append(records, bootstrap...)
	if elr && !minISR {
		records = append(records, c.elrSafety()...)
	}
	if transaction {
		records = append(records, Record{&schema.EndTransactionRecord{}, 0})
	}
	return Result{Records: records, Atomic: len(records) <= MaxRecords}, nil
}

func (c *Controller) activateOld() (Result, error) {
	var records []Record
	if c.delta.InTransaction() {
		if v := c.Image().MetadataVersion(); !v.Facts().MetadataTransactionSupported {
			return Result{}, fmt.Errorf("the metadata log has an open transaction, which metadata.version %s doesn't know", v)
		}
		records = append(records, Record{&schema.AbortTransactionRecord{Reason: new("Controller failover")}, 0})
	}
	return Result{Records: records, Atomic: true}, nil
}
