package metadata

import (
	"fmt"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/schema"
)

// PartitionRecord: the whole state of a partition, new or in a snapshot.
func (d *Delta) replayPartition(r *schema.PartitionRecord) error {
	t, err := d.topic(r.TopicID)
	if err != nil {
		return err
	}
	recovery, err := recoveryState(r.LeaderRecoveryState)
	if err != nil {
		return err
	}
	if len(r.Directories) > 0 && len(r.Directories) != len(r.Replicas) {
		return fmt.Errorf("partition %s-%d: %d directories for %d replicas", t.Name, r.PartitionID, len(r.Directories), len(r.Replicas))
	}
	p := Partition{
		Leader:         kafka.BrokerID(r.Leader),
		LeaderEpoch:    kafka.LeaderEpoch(r.LeaderEpoch),
		PartitionEpoch: kafka.PartitionEpoch(r.PartitionEpoch),
		Recovery:       recovery,
		Directories:    r.Directories,
	}
	// One buffer for all lists: they are copied into the topic's chunk anyway.
	n := len(r.Replicas) + len(r.ISR) + len(r.RemovingReplicas) + len(r.AddingReplicas) + len(r.EligibleLeaderReplicas) + len(r.LastKnownELR)
	var small [32]kafka.BrokerID
	buf := small[:0]
	if n > len(small) {
		buf = make([]kafka.BrokerID, 0, n)
	}
	take := func(ids []int32) []kafka.BrokerID {
		at := len(buf)
		for _, id := range ids {
			buf = append(buf, kafka.BrokerID(id))
		}
		return buf[at:]
	}
	p.Replicas, p.ISR = take(r.Replicas), take(r.ISR)
	p.Removing, p.Adding = take(r.RemovingReplicas), take(r.AddingReplicas)
	p.ELR, p.LastKnownELR = take(r.EligibleLeaderReplicas), take(r.LastKnownELR)
	return d.setPartition(t, r.PartitionID, &p)
}

func recoveryState(n int8) (RecoveryState, error) {
	if n != int8(Recovered) && n != int8(Recovering) {
		return 0, fmt.Errorf("unknown leader recovery state %d", n)
	}
	return RecoveryState(n), nil
}

func brokerIDs(ids []int32) []kafka.BrokerID {
	out := make([]kafka.BrokerID, len(ids))
	for i, id := range ids {
		out[i] = kafka.BrokerID(id)
	}
	return out
}
