package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/schema"
)

// AlterPartitionReassignments is API 45, versions 0 and 1: replicas move to other brokers, or a move is given up.
func (c *Controller) AlterPartitionReassignments(x Context, req *kmsg.AlterPartitionAssignmentsRequest) Result {
	resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	resp.AllowReplicationFactorChange = req.AllowReplicationFactorChange
	var records []Record
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		out.Topic = t.Topic
		for j := range t.Partitions {
			q := &t.Partitions[j]
			o := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			o.Partition = q.Partition
			r, err := c.reassign(t.Topic, q, req.Version == 0 || req.AllowReplicationFactorChange)
			if err != nil {
				setError(&o.ErrorCode, &o.ErrorMessage, err)
			} else if r != nil {
				records = append(records, c.version(r))
			}
			out.Partitions = append(out.Partitions, o)
		}
		resp.Topics = append(resp.Topics, out)
	}
	if len(records) > MaxRecords {
		return Result{Response: ErrorResponse(req, tooLarge)}
	}
	return atomic(records, resp)
}

func (c *Controller) reassign(topic string, q *kmsg.AlterPartitionAssignmentsRequestTopicPartition, anyFactor bool) (*schema.PartitionChangeRecord, error) {
	t := c.Image().Topic(topic)
	if t == nil {
		return nil, kerr.UnknownTopicOrPartition.With("Unable to find a topic named %s.", topic)
	}
	p, ok := t.Partition(q.Partition)
	if !ok {
		return nil, kerr.UnknownTopicOrPartition.With("Unable to find partition %s:%d.", topic, q.Partition)
	}
	if q.Replicas == nil {
		return c.cancelReassignment(t, q.Partition, &p)
	}
	target := brokerIDs(q.Replicas)
	if err := c.checkAssignment(target, -1); err != nil {
		return nil, err
	}
	if was := len(p.Replicas) - len(p.Adding); !anyFactor && len(target) != was {
		return nil, kerr.InvalidReplicationFactor.With("The replication factor is changed from %d to %d", was, len(target))
	}
	// If a reassignment is under way, what it was adding and the new one wants too is still being added, and what it was
	// adding in vain is being removed. Kafka leaves such a replica in both lists, and the reassignment never ends.
	ch := c.change(t, q.Partition, &p)
	ch.removing = slices.Sorted(slices.Values(withoutAll(p.Replicas, target)))
	ch.adding = slices.Sorted(slices.Values(withoutAll(target, withoutAll(p.Replicas, p.Adding))))
	ch.replicas = append(slices.Clone(target), ch.removing...)
	return ch.build(), nil
}

// cancelReassignment goes back to the replicas before, without those that were being added.
func (c *Controller) cancelReassignment(t *metadata.Topic, id int32, p *metadata.Partition) (*schema.PartitionChangeRecord, error) {
	if !p.Reassigning() {
		return nil, kerr.NoReassignmentInProgress
	}
	replicas, isr := withoutAll(p.Replicas, p.Adding), withoutAll(p.ISR, p.Adding)
	unclean := c.uncleanElection(t.Name)
	if len(isr) == 0 {
		// Only replicas that leave are in sync: one of the others takes over, without what it lacks.
		if len(replicas) == 0 {
			return nil, kerr.InvalidReplicaAssignment.With("Invalid replica assignment: addingReplicas contains all replicas.")
		}
		if !unclean {
			return nil, kerr.InvalidReplicaAssignment.With("Unable to revert partition assignment for %s:%d because it would require an unclean leader election.", t.Name, id)
		}
		isr = []kafka.BrokerID{replicas[0]}
		if i := slices.IndexFunc(replicas, func(b kafka.BrokerID) bool { return c.mayLead(b, p) }); i >= 0 {
			isr[0] = replicas[i]
		} else if c.Image().ELREnabled() {
			isr = nil // Kafka would put a fenced broker into the ISR
		}
	}
	ch := c.change(t, id, p)
	if unclean {
		ch.election = electUnclean
	}
	ch.isr, ch.replicas, ch.removing, ch.adding = isr, replicas, nil, nil
	return ch.build(), nil
}

// ListPartitionReassignments is API 46, version 0.
func (c *Controller) ListPartitionReassignments(x Context, req *kmsg.ListPartitionReassignmentsRequest) Result {
	resp := req.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
	list := func(t *metadata.Topic, wanted func(id int32) bool) {
		out := kmsg.NewListPartitionReassignmentsResponseTopic()
		out.Topic = t.Name
		for id, p := range t.Partitions() {
			if !p.Reassigning() || !wanted(id) {
				continue
			}
			o := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
			o.Partition, o.Replicas = id, int32s(p.Replicas)
			o.AddingReplicas, o.RemovingReplicas = int32s(p.Adding), int32s(p.Removing)
			out.Partitions = append(out.Partitions, o)
		}
		if len(out.Partitions) > 0 {
			resp.Topics = append(resp.Topics, out)
		}
	}
	if req.Topics == nil {
		for t := range c.Image().Topics() {
			list(t, func(int32) bool { return true })
		}
		return Result{Response: resp}
	}
	for _, q := range req.Topics {
		if t := c.Image().Topic(q.Topic); t != nil {
			list(t, func(id int32) bool { return slices.Contains(q.Partitions, id) })
		}
	}
	return Result{Response: resp}
}
