package metadata

import (
	"fmt"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/schema"
)

// WriteOptions says how an Image is written.
type WriteOptions struct {
	// Version is the metadata.version to write at; 0 is the Image's own.
	Version Version
	// Lost is told what the version cannot hold, in Kafka's words. If it is nil, Write ends with an *UnwritableError at
	// the first such thing.
	Lost func(what string)
}

// UnwritableError says what an Image has that cannot be written at a metadata.version.
type UnwritableError struct {
	Version Version
	Loss    string
}

func (e *UnwritableError) Error() string {
	return fmt.Sprintf("metadata has been lost because the following could not be represented in metadata.version %s: %s", e.Version, e.Loss)
}

type imageWriter struct {
	facts   *VersionFacts
	options WriteOptions
	elr     bool
	emit    func(schema.Record, int16) error
	err     error
}

func (w *imageWriter) put(r schema.Record, version int16) {
	if w.err == nil {
		w.err = w.emit(r, version)
	}
}

func (w *imageWriter) lost(what string) {
	if w.options.Lost != nil {
		w.options.Lost(what)
	} else if w.err == nil {
		w.err = &UnwritableError{w.options.Version, what}
	}
}

// Write gives the Image as records, each with the version to encode it at, in Kafka's order: features (metadata.version
// first), brokers and controllers, topics with their partitions, configs, client quotas, producer ids, ACLs, SCRAM
// credentials, delegation tokens. Replayed onto Empty they give an equal Image. emit must not keep the record, which is
// used again. The first error of emit ends it.
func (i *Image) Write(o WriteOptions, emit func(r schema.Record, version int16) error) error {
	if o.Version == 0 {
		o.Version = i.version
	}
	if o.Version == 0 {
		o.Version = MinVersion // nothing was finalized yet
	}
	if !o.Version.Known() {
		return fmt.Errorf("cannot write metadata.version %d", o.Version)
	}
	w := &imageWriter{facts: o.Version.Facts(), options: o, elr: i.ELREnabled(), emit: emit}
	for _, part := range []func(*imageWriter){
		i.writeFeatures, i.writeCluster, i.writeTopics, i.writeConfigs, i.writeQuotas, i.writeProducerIDs, i.writeACLs,
		i.writeScram, i.writeTokens,
	} {
		if part(w); w.err != nil {
			return w.err
		}
	}
	return nil
}

func (i *Image) writeFeatures(w *imageWriter) {
	if i.version != 0 {
		w.put(&schema.FeatureLevelRecord{Name: MetadataVersionFeature, FeatureLevel: int16(w.options.Version)}, 0)
	}
	i.features.Scan(func(name string, level int16) bool {
		w.put(&schema.FeatureLevelRecord{Name: name, FeatureLevel: level}, 0)
		return w.err == nil
	})
	// Software from 4.0 on (and so every cluster at its versions) has no use for it.
	const first4 = 22
	if i.zkMigration != 0 && w.facts.MigrationSupported && w.options.Version < first4 {
		w.put(&schema.ZkMigrationStateRecord{ZkMigrationState: i.zkMigration}, 0)
	}
}

func (i *Image) writeCluster(w *imageWriter) {
	for b := range i.Brokers() {
		if w.put(b.record(w), w.facts.RegisterBrokerRecordVersion); w.err != nil {
			return
		}
	}
	if w.facts.RegisterControllerRecordVersion < 0 {
		if i.NumControllers() > 0 {
			w.lost("controller registration data")
		}
		return
	}
	for c := range i.Controllers() {
		if w.put(c.record(), w.facts.RegisterControllerRecordVersion); w.err != nil {
			return
		}
	}
}

func (b *Broker) record(w *imageWriter) *schema.RegisterBrokerRecord {
	r := schema.NewRegisterBrokerRecord()
	r.BrokerID, r.BrokerEpoch, r.IncarnationID = int32(b.ID), int64(b.Epoch), b.Incarnation
	r.Rack, r.Fenced, r.InControlledShutdown = b.Rack, b.Fenced, b.ShuttingDown
	for _, e := range b.Endpoints {
		r.EndPoints = append(r.EndPoints, schema.RegisterBrokerRecordBrokerEndpoint{
			Name: e.Name, Host: e.Host, Port: e.Port, SecurityProtocol: e.Protocol,
		})
	}
	for _, f := range b.Features {
		r.Features = append(r.Features, schema.RegisterBrokerRecordBrokerFeature{
			Name: f.Name, MinSupportedVersion: f.Min, MaxSupportedVersion: f.Max,
		})
	}
	if b.MigratingZk {
		if w.facts.MigrationSupported {
			r.IsMigratingZkBroker = true
		} else {
			w.lost("the isMigratingZkBroker state of one or more brokers")
		}
	}
	if len(b.LogDirs) > 0 {
		if w.facts.DirectoryAssignmentSupported {
			r.LogDirs = b.LogDirs
		} else {
			w.lost("the online log directories of one or more brokers")
		}
	}
	if w.facts.CordonedLogDirsSupported {
		r.CordonedLogDirs = b.CordonedDirs
	} else if len(b.CordonedDirs) > 0 {
		w.lost("the cordoned log directories of one or more brokers")
	}
	return r
}

func (c *Controller) record() *schema.RegisterControllerRecord {
	r := schema.NewRegisterControllerRecord()
	r.ControllerID, r.IncarnationID, r.ZkMigrationReady = int32(c.ID), c.Incarnation, c.ZkMigrationReady
	for _, e := range c.Endpoints {
		r.EndPoints = append(r.EndPoints, schema.RegisterControllerRecordControllerEndpoint{
			Name: e.Name, Host: e.Host, Port: e.Port, SecurityProtocol: e.Protocol,
		})
	}
	for _, f := range c.Features {
		r.Features = append(r.Features, schema.RegisterControllerRecordControllerFeature{
			Name: f.Name, MinSupportedVersion: f.Min, MaxSupportedVersion: f.Max,
		})
	}
	return r
}

func (i *Image) writeTopics(w *imageWriter) {
	for t := range i.Topics() {
		w.put(&schema.TopicRecord{Name: t.Name, TopicID: t.ID}, 0)
		for id, p := range t.Partitions() {
			if w.put(p.record(t.ID, id, w), w.facts.PartitionRecordVersion); w.err != nil {
				return
			}
		}
	}
}

// lostELR has no words of Kafka's: its image and its encoder disagree there, and writing fails.
const lostELR = "the eligible leader replicas of one or more partitions"

func (p *Partition) record(topic kafka.TopicID, id int32, w *imageWriter) *schema.PartitionRecord {
	r := schema.NewPartitionRecord()
	r.TopicID, r.PartitionID = topic, id
	r.Leader, r.LeaderEpoch, r.PartitionEpoch, r.LeaderRecoveryState = int32(p.Leader), int32(p.LeaderEpoch), int32(p.PartitionEpoch), int8(p.Recovery)
	r.Replicas, r.ISR = int32s(p.Replicas), int32s(p.ISR)
	r.RemovingReplicas, r.AddingReplicas = int32s(p.Removing), int32s(p.Adding)
	switch {
	case !w.elr || len(p.ELR) == 0 && len(p.LastKnownELR) == 0:
	case w.facts.PartitionRecordVersion < 2:
		w.lost(lostELR)
	default:
		if len(p.ELR) > 0 {
			r.EligibleLeaderReplicas = int32s(p.ELR)
		}
		if len(p.LastKnownELR) > 0 {
			r.LastKnownELR = int32s(p.LastKnownELR)
		}
	}
	if w.facts.DirectoryAssignmentSupported {
		r.Directories = p.Directories
		if r.Directories == nil {
			r.Directories = make([]kafka.UUID, len(p.Replicas)) // all DirMigrating
		}
	} else if p.Directories != nil {
		w.lost("the directory assignment state of one or more replicas")
	}
	return r
}

func int32s(ids []kafka.BrokerID) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}

func (i *Image) writeConfigs(w *imageWriter) {
	for c := range i.Configs() {
		for _, e := range c.Entries {
			w.put(&schema.ConfigRecord{ResourceType: int8(c.Resource.Type), ResourceName: c.Resource.Name, Name: e.Name, Value: &e.Value}, 0)
		}
		if w.err != nil {
			return
		}
	}
}

func (i *Image) writeQuotas(w *imageWriter) {
	for q := range i.ClientQuotas() {
		r := schema.ClientQuotaRecord{}
		for _, e := range q.Entity {
			r.Entity = append(r.Entity, schema.ClientQuotaRecordEntityData{EntityType: e.Type, EntityName: e.Name})
		}
		for _, v := range q.Values {
			r.Key, r.Value = v.Key, v.Value
			w.put(&r, 0)
		}
		if w.err != nil {
			return
		}
	}
}

func (i *Image) writeProducerIDs(w *imageWriter) {
	if i.producer >= 0 {
		w.put(&schema.ProducerIdsRecord{BrokerID: -1, BrokerEpoch: -1, NextProducerID: i.producer}, 0)
	}
}

func (i *Image) writeACLs(w *imageWriter) {
	for a := range i.ACLs() {
		w.put(&schema.AccessControlEntryRecord{
			ID: a.ID, ResourceType: a.ResourceType, ResourceName: a.ResourceName, PatternType: a.PatternType,
			Principal: a.Principal, Host: a.Host, Operation: a.Operation, PermissionType: a.Permission,
		}, 0)
		if w.err != nil {
			return
		}
	}
}

func (i *Image) writeScram(w *imageWriter) {
	if !w.facts.ScramSupported {
		if i.scram.Len() > 0 {
			w.lost("scram credentials")
		}
		return
	}
	for c := range i.Scrams() {
		if w.put(c.record(), 0); w.err != nil {
			return
		}
	}
}

func (c *ScramCredential) record() *schema.UserScramCredentialRecord {
	return &schema.UserScramCredentialRecord{
		Name: c.User, Mechanism: int8(c.Mechanism), Salt: c.Salt, StoredKey: c.StoredKey, ServerKey: c.ServerKey, Iterations: c.Iterations,
	}
}

func (i *Image) writeTokens(w *imageWriter) {
	if !w.facts.DelegationTokenSupported {
		if i.tokens.Len() > 0 {
			w.lost("delegation tokens")
		}
		return
	}
	for t := range i.DelegationTokens() {
		w.put(&schema.DelegationTokenRecord{
			TokenID: t.ID, Owner: t.Owner, Requester: t.Requester, Renewers: t.Renewers,
			IssueTimestamp: t.Issued, MaxTimestamp: t.MaxTime, ExpirationTimestamp: t.Expiration,
		}, 0)
		if w.err != nil {
			return
		}
	}
}
