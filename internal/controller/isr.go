package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/schema"
)

// leaderUpdate says what happened to a broker, NoBroker for none.
type leaderUpdate struct {
	remove  kafka.BrokerID // it leaves the ISRs and leads no more
	add     kafka.BrokerID // it may lead, though it isn't active yet
	unclean kafka.BrokerID // it leaves ISRs and ELRs
}

func inISR(id kafka.BrokerID) func(*metadata.Partition) bool {
	return func(p *metadata.Partition) bool { return p.InISR(id) }
}

func inELR(id kafka.BrokerID) func(*metadata.Partition) bool {
	return func(p *metadata.Partition) bool { return slices.Contains(p.ELR, id) }
}

func leaderless(p *metadata.Partition) bool { return p.Leader == kafka.NoBroker }

// updateLeaders gives every partition that is affected the leader and ISR that it must have now.
func (c *Controller) updateLeaders(records []Record, u leaderUpdate, affected func(*metadata.Partition) bool) []Record {
	for t := range c.Image().Topics() {
		for id, p := range t.Partitions() {
			if affected(&p) {
				records = c.updateLeader(records, u, t, id, &p)
			}
		}
	}
	return records
}

func (c *Controller) updateLeader(records []Record, u leaderUpdate, t *metadata.Topic, id int32, p *metadata.Partition) []Record {
	ch := c.change(t, id, p)
	ch.acceptable = func(b kafka.BrokerID) bool {
		r := c.registration(b)
		return r != nil && b != u.remove && b != u.unclean && (b == u.add || r.Active()) && r.HasDirectory(p.Directory(b))
	}
	if c.uncleanElection(t.Name) {
		ch.election = electUnclean
	}
	ch.unclean = u.unclean
	ch.isr = withoutAll(p.ISR, []kafka.BrokerID{u.remove, u.unclean})
	if r := ch.build(); r != nil {
		records = append(records, c.version(r))
	}
	return records
}

// AlterPartition is API 56, versions 2 and 3: a leader asks for another ISR.
func (c *Controller) AlterPartition(x Context, req *kmsg.AlterPartitionRequest) Result {
	if err := c.checkBrokerEpoch(req.BrokerID, req.BrokerEpoch); err != nil {
		return Result{Response: ErrorResponse(req, err)}
	}
	resp := req.ResponseKind().(*kmsg.AlterPartitionResponse)
	var records []Record
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewAlterPartitionResponseTopic()
		out.Topic, out.TopidID = t.Topic, t.TopicID
		topic, unknown := c.Image().TopicByID(t.TopicID), kerr.UnknownTopicID
		if req.Version < 2 {
			topic, unknown = c.Image().Topic(t.Topic), kerr.UnknownTopicOrPartition
		}
		for j := range t.Partitions {
			q := &t.Partitions[j]
			o := kmsg.NewAlterPartitionResponseTopicPartition()
			o.Partition = q.Partition
			err := error(unknown)
			if topic != nil {
				records, err = c.alterPartition(records, req, topic, q, &o)
			}
			o.ErrorCode = kerr.Code(err)
			out.Partitions = append(out.Partitions, o)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return Result{Records: records, Response: resp}
}

func (c *Controller) alterPartition(records []Record, req *kmsg.AlterPartitionRequest, t *metadata.Topic,
	q *kmsg.AlterPartitionRequestTopicPartition, out *kmsg.AlterPartitionResponseTopicPartition) ([]Record, error) {
	p, ok := t.Partition(q.Partition)
	if !ok {
		return records, kerr.UnknownTopicOrPartition
	}
	isr := q.NewEpochISR
	if req.Version < 3 {
		isr = nil
		for _, id := range q.NewISR {
			isr = append(isr, kmsg.AlterPartitionRequestTopicPartitionNewEpochISR{BrokerID: id, BrokerEpoch: -1})
		}
	}
	if err := c.checkAlterPartition(req, q, isr, &p); err != nil {
		return records, err
	}
	ch := c.change(t, q.Partition, &p)
	if c.uncleanElection(t.Name) {
		ch.election = electUnclean
	}
	ch.isr = make([]kafka.BrokerID, len(isr))
	for i, m := range isr {
		ch.isr[i] = kafka.BrokerID(m.BrokerID)
	}
	ch.recovery = metadata.RecoveryState(q.LeaderRecoveryState)
	if r := ch.build(); r != nil {
		after, err := p.Changed(r)
		if err != nil {
			return records, err
		}
		records, p = append(records, c.version(r)), after
		if r.Leader != noLeaderChange && r.Leader != req.BrokerID {
			// The change completed a reassignment and with it moved the leadership.
			if req.Version > 1 {
				return records, kerr.NewLeaderElected
			}
			return records, kerr.FencedLeaderEpoch
		}
	}
	out.LeaderID, out.LeaderEpoch, out.PartitionEpoch = int32(p.Leader), int32(p.LeaderEpoch), int32(p.PartitionEpoch)
	out.ISR, out.LeaderRecoveryState = int32s(p.ISR), int8(p.Recovery)
	return records, nil
}

func (c *Controller) checkAlterPartition(req *kmsg.AlterPartitionRequest, q *kmsg.AlterPartitionRequestTopicPartition,
	isr []kmsg.AlterPartitionRequestTopicPartitionNewEpochISR, p *metadata.Partition) error {
	leaderEpoch, partitionEpoch := kafka.LeaderEpoch(q.LeaderEpoch), kafka.PartitionEpoch(q.PartitionEpoch)
	switch {
	case leaderEpoch > p.LeaderEpoch || partitionEpoch > p.PartitionEpoch:
		return kerr.NotController // it knows more than we do: we are not the controller any more
	case leaderEpoch < p.LeaderEpoch:
		return kerr.FencedLeaderEpoch
	case kafka.BrokerID(req.BrokerID) != p.Leader:
		return kerr.InvalidRequest
	case partitionEpoch < p.PartitionEpoch:
		return kerr.InvalidUpdateVersion
	case q.LeaderRecoveryState < 0 || q.LeaderRecoveryState > 1:
		return kerr.InvalidRequest
	}
	leads := false
	for i, m := range isr {
		id := kafka.BrokerID(m.BrokerID)
		leads = leads || id == p.Leader
		if !p.HasReplica(id) || slices.ContainsFunc(isr[:i], func(o kmsg.AlterPartitionRequestTopicPartitionNewEpochISR) bool { return o.BrokerID == m.BrokerID }) {
			return kerr.InvalidRequest
		}
	}
	recovering := metadata.RecoveryState(q.LeaderRecoveryState) == metadata.Recovering
	if !leads || recovering && (len(isr) > 1 || p.Recovery == metadata.Recovered) {
		return kerr.InvalidRequest
	}
	for _, m := range isr {
		b := c.registration(kafka.BrokerID(m.BrokerID))
		if b == nil || !b.Active() || m.BrokerEpoch != -1 && int64(b.Epoch) != m.BrokerEpoch {
			if req.Version > 1 {
				return kerr.IneligibleReplica
			}
			return kerr.OperationNotAttempted
		}
	}
	return nil
}

// ElectLeaders is API 43, versions 0 to 2.
func (c *Controller) ElectLeaders(x Context, req *kmsg.ElectLeadersRequest) Result {
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	var kind election
	switch {
	case req.Version == 0 || req.ElectionType == 0:
		kind = electPreferred
	case req.ElectionType == 1:
		kind = electUnclean
	default:
		return Result{Response: ErrorResponse(req, kerr.InvalidRequest.With("Unknown election type %d", req.ElectionType))}
	}
	var records []Record
	add := func(out *kmsg.ElectLeadersResponseTopic, id int32, err error) {
		o := kmsg.NewElectLeadersResponseTopicPartition()
		o.Partition = id
		if err != nil {
			setError(&o.ErrorCode, &o.ErrorMessage, err)
		}
		out.Partitions = append(out.Partitions, o)
	}
	if req.Topics == nil {
		for t := range c.Image().Topics() {
			out := kmsg.NewElectLeadersResponseTopic()
			out.Topic = t.Name
			for id := range t.Partitions() {
				var err error
				if records, err = c.electLeader(records, t.Name, id, kind); kerr.Code(err) != kerr.ElectionNotNeeded.Code {
					add(&out, id, err)
				}
			}
			resp.Topics = append(resp.Topics, out)
		}
	} else {
		for _, t := range req.Topics {
			out := kmsg.NewElectLeadersResponseTopic()
			out.Topic = t.Topic
			for _, id := range t.Partitions {
				var err error
				records, err = c.electLeader(records, t.Topic, id, kind)
				add(&out, id, err)
			}
			resp.Topics = append(resp.Topics, out)
		}
	}
	if len(records) > MaxRecords {
		return Result{Response: ErrorResponse(req, tooLarge)}
	}
	return Result{Records: records, Response: resp}
}

func (c *Controller) electLeader(records []Record, topic string, id int32, kind election) ([]Record, error) {
	t := c.Image().Topic(topic)
	if t == nil {
		return records, kerr.UnknownTopicOrPartition.With("No such topic as %s", topic)
	}
	p, ok := t.Partition(id)
	if !ok {
		return records, kerr.UnknownTopicOrPartition.With("No such partition as %s-%d", topic, id)
	}
	if kind == electPreferred && p.Leader == p.PreferredLeader() || kind == electUnclean && p.Leader != kafka.NoBroker {
		return records, kerr.ElectionNotNeeded
	}
	r := c.elect(t, id, &p, kind)
	switch {
	case r == nil && kind == electPreferred:
		return records, kerr.PreferredLeaderNotAvailable
	case r == nil:
		return records, kerr.EligibleLeadersNotAvailable
	}
	return append(records, c.version(r)), nil
}

func (c *Controller) elect(t *metadata.Topic, id int32, p *metadata.Partition, kind election) *schema.PartitionChangeRecord {
	ch := c.change(t, id, p)
	ch.election = kind
	return ch.build()
}
