package metadata

import (
	"fmt"
	"slices"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/schema"
)

// noLeaderChange in a PartitionChangeRecord leaves leader and leader epoch as they are.
const noLeaderChange = -2

// PartitionChangeRecord: what the record says replaces what was; the partition epoch always grows by one, the leader
// epoch if the record names a leader, be it the same.
func (d *Delta) replayPartitionChange(r *schema.PartitionChangeRecord) error {
	t, err := d.topic(r.TopicID)
	if err != nil {
		return err
	}
	p, ok := t.Partition(r.PartitionID)
	if !ok {
		return fmt.Errorf("there is no partition %s-%d", t.Name, r.PartitionID)
	}
	if p, err = p.Changed(r); err != nil {
		return fmt.Errorf("partition %s-%d: %w", t.Name, r.PartitionID, err)
	}
	return d.setPartition(t, r.PartitionID, &p)
}

// Changed is the partition after a PartitionChangeRecord.
func (p Partition) Changed(r *schema.PartitionChangeRecord) (Partition, error) {
	replicas := p.Replicas
	if r.Replicas != nil {
		replicas = brokerIDs(r.Replicas)
	}
	switch {
	case len(r.Directories) > 0:
		if len(r.Directories) != len(replicas) {
			return p, fmt.Errorf("%d directories for %d replicas", len(r.Directories), len(replicas))
		}
		p.Directories = r.Directories
	case r.Replicas != nil:
		p.Directories = p.directoriesFor(replicas)
	}
	p.Replicas = replicas
	if r.ISR != nil {
		p.ISR = brokerIDs(r.ISR)
	}
	if r.RemovingReplicas != nil {
		p.Removing = brokerIDs(r.RemovingReplicas)
	}
	if r.AddingReplicas != nil {
		p.Adding = brokerIDs(r.AddingReplicas)
	}
	if r.EligibleLeaderReplicas != nil {
		p.ELR = brokerIDs(r.EligibleLeaderReplicas)
	}
	if r.LastKnownELR != nil {
		p.LastKnownELR = brokerIDs(r.LastKnownELR)
	}
	if r.Leader != noLeaderChange {
		p.Leader = kafka.BrokerID(r.Leader)
		p.LeaderEpoch++
	}
	if r.LeaderRecoveryState != -1 {
		recovery, err := recoveryState(r.LeaderRecoveryState)
		if err != nil {
			return p, err
		}
		p.Recovery = recovery
	}
	p.PartitionEpoch++
	return p, nil
}

// directoriesFor is what the directories become when the replicas change and the record doesn't tell: those that stay
// keep theirs, new ones are not assigned yet.
func (p *Partition) directoriesFor(replicas []kafka.BrokerID) []kafka.DirectoryID {
	if p.Directories == nil {
		return nil
	}
	out := make([]kafka.DirectoryID, len(replicas))
	for i, id := range replicas {
		if n := slices.Index(p.Replicas, id); n >= 0 {
			out[i] = p.Directories[n]
		} else {
			out[i] = kafka.DirUnassigned
		}
	}
	return out
}
