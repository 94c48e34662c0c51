package metadata

import (
	"fmt"

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

// Changed is the partition after a PartitionChangeRecord. Directories that the record doesn't name stay, by position.
func (p Partition) Changed(r *schema.PartitionChangeRecord) (Partition, error) {
	replicas := p.Replicas
	if r.Replicas != nil {
		replicas = brokerIDs(r.Replicas)
	}
	if r.Directories != nil {
		p.Directories = r.Directories
	}
	if len(p.Directories) == 0 {
		p.Directories = nil // all DirMigrating, however many
	} else if len(p.Directories) != len(replicas) {
		return p, fmt.Errorf("%d directories for %d replicas", len(p.Directories), len(replicas))
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
