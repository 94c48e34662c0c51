package controller

import (
	"slices"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/schema"
)

// election says how far an election may go.
type election int8

const (
	electOnline    election = iota // keep the partition online with a member of the ISR (or, if it is empty, the ELR)
	electPreferred                 // the same, but move to the preferred replica if that is possible
	electUnclean                   // the same, but take any live replica if there is no other way
)

// noLeaderChange in a PartitionChangeRecord leaves the leader and its epoch as they are.
const noLeaderChange = -2

// change computes the record that brings a partition from its present state to a wanted one: it completes a
// reassignment whose replicas are all in sync, elects a leader, keeps the eligible leader replicas (KIP-966), and decides
// whether the leader epoch must grow. What is not set stays as it is.
//
// The rules, in order:
//  1. A reassignment is complete when every replica that it adds is in the ISR and, if it removes more than it adds, all
//     that stay: replicas and ISR lose those that are being removed.
//  2. With ELR: a replica that leaves an ISR which is below min.insync.replicas becomes eligible, unless its broker went
//     down uncleanly or it is no replica any more (Kafka keeps those). An ISR at or above it empties the ELR.
//  3. The leader stays if it is still valid; else the first of the replicas (their order is the preference) that is in
//     the ISR, or in the ELR when the ISR is empty, and whose broker and directory are up. If nobody is eligible and the
//     last leader is known, that one, as an unclean election (balanced recovery). Any live replica in an unclean one.
//     When a partition loses its leader, that is the last known one.
//  4. The leader epoch grows whenever the leader changes or a replica is taken away.
type change struct {
	topic     kafka.TopicID
	partition int32
	now       *metadata.Partition
	facts     *metadata.VersionFacts
	elr       bool
	minISR    int
	// acceptable tells whether a broker's replica may lead: broker active, directory online.
	acceptable func(kafka.BrokerID) bool
	// defaultDir is where a broker's new replica will lie.
	defaultDir func(kafka.BrokerID) kafka.DirectoryID

	election election
	replicas []kafka.BrokerID
	isr      []kafka.BrokerID
	adding   []kafka.BrokerID
	removing []kafka.BrokerID
	elrNext  []kafka.BrokerID
	recovery metadata.RecoveryState
	unclean  kafka.BrokerID // the broker that went down uncleanly, or NoBroker
	moved    kafka.BrokerID // the broker whose replica lies in dir, or NoBroker
	dir      kafka.DirectoryID
}

func (c *Controller) change(topic *metadata.Topic, id int32, p *metadata.Partition) *change {
	img := c.Image()
	return &change{
		topic: topic.ID, partition: id, now: p,
		facts: img.MetadataVersion().Facts(), elr: img.ELREnabled(), minISR: c.minISR(topic.Name, p),
		acceptable: func(b kafka.BrokerID) bool { return c.mayLead(b, p) },
		defaultDir: c.defaultDir,
		replicas:   p.Replicas, isr: p.ISR, adding: p.Adding, removing: p.Removing, elrNext: p.ELR, recovery: p.Recovery,
		unclean: kafka.NoBroker, moved: kafka.NoBroker,
	}
}

// build gives the record, or nil if nothing changes.
func (b *change) build() *schema.PartitionChangeRecord {
	r := schema.NewPartitionChangeRecord()
	r.TopicID, r.PartitionID = b.topic, b.partition
	b.completeReassignment()
	b.eligible()
	leader, unclean := b.elect()
	if leader != b.now.Leader {
		switch {
		case unclean:
			r.ISR = []int32{int32(leader)}
			if b.now.Recovery != metadata.Recovering {
				r.LeaderRecoveryState = int8(metadata.Recovering)
			}
		case slices.Contains(b.elrNext, leader):
			b.isr = []kafka.BrokerID{leader}
			b.elrNext = without(b.elrNext, leader)
		}
		r.Leader = int32(leader)
	}
	if r.Leader == noLeaderChange && !containsAll(b.replicas, b.now.Replicas) {
		r.Leader = int32(b.now.Leader)
	}
	if r.ISR != nil || !b.elr {
		b.elrNext = nil
	}
	if !slices.Equal(b.elrNext, b.now.ELR) {
		r.EligibleLeaderReplicas = int32s(b.elrNext)
	}
	// Without ELR the ISR never becomes empty: its last member stays in it, and only it can lead again.
	if r.ISR == nil && (len(b.isr) > 0 || b.elr) && !slices.Equal(b.isr, b.now.ISR) {
		r.ISR = int32s(b.isr)
	}
	// Before 3.6 a shrinking ISR needs a new leader epoch (KAFKA-15021).
	if b.facts.LeaderEpochBumpRequiredOnIsrShrink && r.Leader == noLeaderChange && r.ISR != nil && !containsAll(brokerIDs(r.ISR), b.now.ISR) {
		r.Leader = int32(b.now.Leader)
	}
	b.lastKnownLeader(r)
	b.assignment(r)
	if b.recovery != b.now.Recovery {
		r.LeaderRecoveryState = int8(b.recovery)
	}
	if r.ISR == nil && r.EligibleLeaderReplicas == nil && r.LastKnownELR == nil && r.Leader == noLeaderChange && r.Replicas == nil &&
		r.RemovingReplicas == nil && r.AddingReplicas == nil && r.LeaderRecoveryState == -1 && r.Directories == nil {
		return nil
	}
	return r
}

// completeReassignment ends a reassignment whose target replicas are all in sync.
func (b *change) completeReassignment() {
	if len(b.removing) == 0 && len(b.adding) == 0 {
		return
	}
	isr, replicas := withoutAll(b.isr, b.removing), withoutAll(b.replicas, b.removing)
	if len(b.removing) > 0 && (len(isr) == 0 || len(replicas) == 0) || !containsAll(isr, b.adding) {
		return
	}
	if len(b.adding) < len(b.removing) && !containsAll(isr, replicas) {
		return // it would leave fewer in sync than before
	}
	b.isr, b.replicas, b.removing, b.adding = isr, replicas, nil, nil
}

// eligible computes the eligible leader replicas.
func (b *change) eligible() {
	if !b.elr {
		return
	}
	if len(b.isr) >= b.minISR {
		b.elrNext = nil
		return
	}
	var next []kafka.BrokerID
	for _, id := range append(slices.Clone(b.now.ISR), b.elrNext...) {
		if !slices.Contains(b.isr, id) && id != b.unclean && !slices.Contains(next, id) && slices.Contains(b.replicas, id) {
			next = append(next, id)
		}
	}
	slices.Sort(next)
	b.elrNext = next
}

// valid tells whether a broker may lead without loss.
func (b *change) valid(id kafka.BrokerID) bool {
	return (slices.Contains(b.isr, id) || len(b.isr) == 0 && slices.Contains(b.elrNext, id)) && b.acceptable(id)
}

func (b *change) elect() (leader kafka.BrokerID, unclean bool) {
	if b.election == electPreferred && len(b.replicas) > 0 && b.valid(b.replicas[0]) {
		return b.replicas[0], false
	}
	if b.valid(b.now.Leader) {
		return b.now.Leader, false
	}
	for _, id := range b.replicas {
		if b.valid(id) {
			return id, false
		}
	}
	if last := b.now.LastKnownELR; b.elr && len(b.isr) == 0 && len(b.elrNext) == 0 && len(last) == 1 && slices.Contains(b.replicas, last[0]) && b.acceptable(last[0]) {
		return last[0], true
	}
	if b.election == electUnclean {
		for _, id := range b.replicas {
			if b.acceptable(id) {
				return id, true
			}
		}
	}
	return kafka.NoBroker, false
}

// lastKnownLeader remembers who led when nobody can any more, and forgets it when somebody does.
func (b *change) lastKnownLeader(r *schema.PartitionChangeRecord) {
	known := b.now.LastKnownELR
	switch {
	case !b.elr:
	case r.Leader == int32(kafka.NoBroker) && b.now.Leader != kafka.NoBroker && len(known) == 0:
		r.LastKnownELR = []int32{int32(b.now.Leader)}
	case r.Leader >= 0 && len(known) > 0:
		r.LastKnownELR = []int32{}
	}
}

// assignment sets replicas, those on their way, and directories.
func (b *change) assignment(r *schema.PartitionChangeRecord) {
	if len(b.replicas) > 0 {
		if b.facts.DirectoryAssignmentSupported {
			dirs := make([]kafka.DirectoryID, len(b.replicas))
			for i, id := range b.replicas {
				switch n := slices.Index(b.now.Replicas, id); {
				case id == b.moved:
					dirs[i] = b.dir
				case n < 0:
					dirs[i] = b.defaultDir(id)
				case n < len(b.now.Directories):
					dirs[i] = b.now.Directories[n]
				default:
					dirs[i] = kafka.DirMigrating
				}
			}
			if !sameDirectories(dirs, b.now.Directories) {
				r.Directories = dirs
			}
		}
		if !slices.Equal(b.replicas, b.now.Replicas) {
			r.Replicas = int32s(b.replicas)
		}
	}
	if !slices.Equal(b.removing, b.now.Removing) {
		r.RemovingReplicas = int32s(b.removing)
	}
	if !slices.Equal(b.adding, b.now.Adding) {
		r.AddingReplicas = int32s(b.adding)
	}
}

// sameDirectories holds a partition without directories for one whose directories are all unknown, as the image does.
func sameDirectories(next, now []kafka.DirectoryID) bool {
	if len(now) == 0 {
		return !slices.ContainsFunc(next, func(d kafka.DirectoryID) bool { return d != kafka.DirMigrating })
	}
	return slices.Equal(next, now)
}

func containsAll(list, wanted []kafka.BrokerID) bool {
	for _, id := range wanted {
		if !slices.Contains(list, id) {
			return false
		}
	}
	return true
}

func without(list []kafka.BrokerID, id kafka.BrokerID) []kafka.BrokerID {
	return withoutAll(list, []kafka.BrokerID{id})
}

// withoutAll is a copy.
func withoutAll(list, ids []kafka.BrokerID) []kafka.BrokerID {
	out := make([]kafka.BrokerID, 0, len(list))
	for _, x := range list {
		if !slices.Contains(ids, x) {
			out = append(out, x)
		}
	}
	return out
}

// int32s is a copy, never nil.
func int32s(ids []kafka.BrokerID) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}

func brokerIDs(ids []int32) []kafka.BrokerID {
	out := make([]kafka.BrokerID, len(ids))
	for i, id := range ids {
		out[i] = kafka.BrokerID(id)
	}
	return out
}
