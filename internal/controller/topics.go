package controller

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/schema"
)

// maxPartitionsPerRequest is Kafka's bound on the partitions that one request may create.
const maxPartitionsPerRequest = 10000

// CreateTopics is API 19, versions 2 to 7. A topic that cannot be created doesn't keep the others from it.
func (c *Controller) CreateTopics(x Context, req *kmsg.CreateTopicsRequest) Result {
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	var total int64
	for i := range req.Topics {
		switch t := &req.Topics[i]; {
		case len(t.ReplicaAssignment) > 0:
			total += int64(len(t.ReplicaAssignment))
		case t.NumPartitions == -1:
			total += int64(c.opt.NumPartitions)
		case t.NumPartitions > 0:
			total += int64(t.NumPartitions)
		}
	}
	if total > maxPartitionsPerRequest {
		return Result{Response: ErrorResponse(req, kerr.PolicyViolation.With("Excessively large number of partitions per request."))}
	}
	var records []Record
	seen := make(map[string]int)
	for i := range req.Topics {
		seen[req.Topics[i].Topic]++
	}
	told := make(map[string]bool)
	var place *placer
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewCreateTopicsResponseTopic()
		out.Topic, out.Configs = t.Topic, []kmsg.CreateTopicsResponseTopicConfig{}
		var err error
		switch {
		case seen[t.Topic] > 1:
			if told[t.Topic] {
				continue
			}
			told[t.Topic] = true
			err = kerr.InvalidRequest.With("Duplicate topic name.")
		case t.Topic == kafka.ClusterMetadataTopic:
			err = kerr.InvalidRequest.With("Creation of internal topic %s is prohibited.", t.Topic)
		case !x.authorized(t.Topic):
			err = kerr.TopicAuthorizationFailed.With("Authorization failed.")
		default:
			if place == nil && len(t.ReplicaAssignment) == 0 {
				place = newPlacer(c.opt.Rand, c.usableBrokers())
			}
			var add []Record
			if add, err = c.createTopic(&x, t, &out, place); err == nil {
				records = append(records, add...)
			}
			place = nil // Kafka begins anew for each topic
		}
		if err != nil {
			setError(&out.ErrorCode, &out.ErrorMessage, err)
			if err == error(kerr.UnknownTopicOrPartition) {
				out.ErrorMessage = nil // as Kafka does
			}
		}
		resp.Topics = append(resp.Topics, out)
	}
	return together(req, records, resp, req.ValidateOnly)
}

// together is the result of an operation whose records are written all or, if they are too many or it is only to be validated, not at all.
func together(req kmsg.Request, records []Record, resp kmsg.Response, validateOnly bool) Result {
	if len(records) > MaxRecords {
		return Result{Response: ErrorResponse(req, tooLarge)}
	}
	if validateOnly {
		records = nil
	}
	return atomic(records, resp)
}

// tooLarge is for operations that would write more than MaxRecords.
var tooLarge = kerr.PolicyViolation.With("Unable to perform excessively large batch operation.")

func (c *Controller) createTopic(x *Context, t *kmsg.CreateTopicsRequestTopic, out *kmsg.CreateTopicsResponseTopic, place *placer) ([]Record, error) {
	img := c.Image()
	if img.Topic(t.Topic) != nil {
		return nil, kerr.TopicAlreadyExists.With("Topic '%s' already exists.", t.Topic)
	}
	if why := kafka.CheckTopicName(t.Topic); why != "" {
		return nil, kerr.InvalidTopicException.With("Topic name is invalid: %s", why)
	}
	if other, ok := c.names.collision(t.Topic); ok {
		return nil, kerr.InvalidTopicException.With("Topic '%s' collides with existing topic: %s", t.Topic, other)
	}
	configs, configRecords, err := c.creationConfigs(t)
	if err != nil {
		return nil, err
	}
	id := c.randomID()
	records := append([]Record{c.version(&schema.TopicRecord{Name: t.Topic, TopicID: id})}, configRecords...)
	n := len(records)
	if len(t.ReplicaAssignment) > 0 {
		records, err = c.assignedPartitions(records, id, t)
	} else {
		records, err = c.placedPartitions(records, id, t, place)
	}
	if err != nil {
		return nil, err
	}
	out.TopicID = id
	if !x.describable(t.Topic) {
		out.ConfigErrorCode = kerr.TopicAuthorizationFailed.Code
		return records, nil
	}
	out.NumPartitions = int32(len(records) - n)
	out.ReplicationFactor = int16(len(records[n].Message.(*schema.PartitionRecord).Replicas))
	if x.base == nil {
		x.base = c.layers().ResolveAll()
	}
	out.Configs = make([]kmsg.CreateTopicsResponseTopicConfig, 0, len(x.base))
	for _, e := range x.base {
		o := kmsg.NewCreateTopicsResponseTopicConfig()
		o.Name, o.Value, o.ReadOnly, o.Source, o.IsSensitive = e.Name, e.Value, false, int8(e.Source), e.Sensitive
		if v, ok := configs[e.Name]; ok {
			o.Value, o.Source = &v, int8(config.SourceTopic)
		}
		out.Configs = append(out.Configs, o)
	}
	return records, nil
}

// creationConfigs checks the configs of a topic that is to be created.
func (c *Controller) creationConfigs(t *kmsg.CreateTopicsRequestTopic) (map[string]string, []Record, error) {
	configs := make(map[string]string, len(t.Configs))
	var names, null []string
	for _, e := range t.Configs {
		if e.Value == nil {
			null = append(null, e.Name)
			continue
		}
		if _, ok := configs[e.Name]; !ok {
			names = append(names, e.Name)
		}
		configs[e.Name] = *e.Value
	}
	if null != nil {
		return nil, nil, kerr.InvalidConfig.With("Null value not supported for topic configs: %s", strings.Join(null, ","))
	}
	if len(configs) == 0 {
		return configs, nil, nil
	}
	res := metadata.Resource{Type: metadata.ResourceTopic, Name: t.Topic}
	var records []Record
	for _, n := range names {
		if len(configs[n]) > maxConfigValue {
			return nil, nil, errConfigTooLong
		}
		records = append(records, configRecord(res, n, new(configs[n])))
	}
	return configs, records, c.validateConfigs(res, configs, nil)
}

func (c *Controller) assignedPartitions(records []Record, id kafka.TopicID, t *kmsg.CreateTopicsRequestTopic) ([]Record, error) {
	switch {
	case t.ReplicationFactor != -1:
		return nil, kerr.InvalidRequest.With("A manual partition assignment was specified, but replication factor was not set to -1.")
	case t.NumPartitions != -1:
		return nil, kerr.InvalidRequest.With("A manual partition assignment was specified, but numPartitions was not set to -1.")
	}
	factor := -1
	made := make([]Record, len(t.ReplicaAssignment))
	hole := false
	given := make(map[int32]bool)
	for _, a := range t.ReplicaAssignment {
		if given[a.Partition] {
			return nil, kerr.InvalidReplicaAssignment.With("Found multiple manual partition assignments for partition %d", a.Partition)
		}
		given[a.Partition] = true
		replicas := brokerIDs(a.Replicas)
		if err := c.checkAssignment(replicas, factor); err != nil {
			return nil, err
		}
		factor = len(replicas)
		isr := c.activeOf(replicas)
		if len(isr) == 0 {
			return nil, kerr.InvalidReplicaAssignment.With("All brokers specified in the manual partition assignment for partition %d are fenced or in controlled shutdown.", a.Partition)
		}
		if a.Partition < 0 || int(a.Partition) >= len(made) {
			hole = true
			continue
		}
		made[a.Partition] = c.partitionRecord(id, a.Partition, replicas, isr)
	}
	if hole {
		return nil, kerr.InvalidReplicaAssignment.With("partitions should be a consecutive 0-based integer sequence")
	}
	return append(records, made...), nil
}

// checkAssignment checks the replicas that a client chose; factor is how many the other partitions have, or -1.
func (c *Controller) checkAssignment(replicas []kafka.BrokerID, factor int) error {
	if len(replicas) == 0 {
		return kerr.InvalidReplicaAssignment.With("The manual partition assignment includes an empty replica list.")
	}
	sorted := slices.Sorted(slices.Values(replicas))
	for i, id := range sorted {
		b := c.registration(id)
		switch {
		case b == nil:
			return kerr.InvalidReplicaAssignment.With("The manual partition assignment includes broker %d, but no such broker is registered.", id)
		case allCordoned(b.LogDirs, b.CordonedDirs):
			return kerr.InvalidReplicaAssignment.With("The manual partition assignment includes broker %d, but all its log directories are cordoned.", id)
		case i > 0 && sorted[i-1] == id:
			return kerr.InvalidReplicaAssignment.With("The manual partition assignment includes the broker %d more than once.", id)
		}
	}
	if factor >= 0 && len(sorted) != factor {
		return kerr.InvalidReplicaAssignment.With("The manual partition assignment includes a partition with %d replica(s), but this is not consistent with previous partitions, which have %d replica(s).", len(sorted), factor)
	}
	return nil
}

func (c *Controller) placedPartitions(records []Record, id kafka.TopicID, t *kmsg.CreateTopicsRequestTopic, place *placer) ([]Record, error) {
	switch {
	case t.ReplicationFactor < -1 || t.ReplicationFactor == 0:
		return nil, kerr.InvalidReplicationFactor.With("Replication factor must be larger than 0, or -1 to use the default value.")
	case t.NumPartitions < -1 || t.NumPartitions == 0:
		return nil, kerr.InvalidPartitions.With("Number of partitions was set to an invalid non-positive value.")
	}
	n, factor := t.NumPartitions, t.ReplicationFactor
	if n == -1 {
		n = c.opt.NumPartitions
	}
	if factor == -1 {
		factor = c.opt.DefaultReplicationFactor
	}
	return c.place(records, id, 0, int(n), int(factor), place)
}

// place appends the records of n new partitions from start on.
func (c *Controller) place(records []Record, id kafka.TopicID, start int32, n, factor int, place *placer) ([]Record, error) {
	if err := place.check(factor); err != nil {
		return nil, kerr.InvalidReplicationFactor.With("Unable to replicate the partition %d time(s): %s", factor, *kerr.Message(err))
	}
	for i := range n {
		replicas := place.place(factor)
		isr := c.activeOf(replicas)
		if len(isr) == 0 {
			return nil, kerr.InvalidReplicationFactor.With("Unable to replicate the partition %d time(s): All brokers are currently fenced or in controlled shutdown.", factor)
		}
		records = append(records, c.partitionRecord(id, start+int32(i), replicas, isr))
	}
	return records, nil
}

// DeleteTopics is API 20, versions 1 to 6. Topics may be named by name or by id.
func (c *Controller) DeleteTopics(x Context, req *kmsg.DeleteTopicsRequest) Result {
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	if !c.opt.DeleteTopicEnable {
		err := error(kerr.TopicDeletionDisabled)
		if req.Version < 3 {
			err = kerr.InvalidRequest.With("This version does not support topic deletion.")
		}
		return Result{Response: ErrorResponse(req, err)}
	}
	type asked struct {
		name *string
		id   kafka.TopicID
	}
	var list []asked
	for _, n := range req.TopicNames {
		list = append(list, asked{name: &n})
	}
	for _, t := range req.Topics {
		list = append(list, asked{t.Topic, t.TopicID})
	}
	names, ids := make(map[string]int), make(map[kafka.TopicID]int)
	for _, a := range list {
		switch {
		case a.name != nil && a.id.IsZero():
			names[*a.name]++
		case a.name == nil && !a.id.IsZero():
			ids[a.id]++
		}
	}
	var records []Record
	told := make(map[kafka.TopicID]bool) // ids whose duplicate was answered
	answer := func(name *string, id kafka.TopicID, err error) {
		out := kmsg.NewDeleteTopicsResponseTopic()
		out.Topic, out.TopicID = name, id
		setError(&out.ErrorCode, &out.ErrorMessage, err)
		resp.Topics = append(resp.Topics, out)
	}
	remove := func(t *metadata.Topic) {
		records = append(records, c.version(&schema.RemoveTopicRecord{TopicID: t.ID}))
		answer(new(t.Name), t.ID, nil)
	}
	img := c.Image()
	for _, a := range list {
		switch {
		case a.name == nil && a.id.IsZero():
			answer(nil, a.id, kerr.InvalidRequest.With("Neither topic name nor id were specified."))
		case a.name != nil && !a.id.IsZero():
			answer(a.name, a.id, kerr.InvalidRequest.With("You may not specify both topic name and topic id."))
		case a.name != nil:
			switch n := names[*a.name]; {
			case n > 1:
				names[*a.name] = -1 // told
				answer(a.name, kafka.TopicID{}, kerr.InvalidRequest.With("Duplicate topic name."))
				continue
			case n < 0:
				continue
			}
			t := img.Topic(*a.name)
			switch {
			case !x.describable(*a.name):
				answer(a.name, kafka.TopicID{}, kerr.TopicAuthorizationFailed)
			case t == nil:
				answer(a.name, kafka.TopicID{}, kerr.UnknownTopicOrPartition)
			case !x.authorized(*a.name):
				answer(a.name, kafka.TopicID{}, kerr.TopicAuthorizationFailed)
			case ids[t.ID] > 0:
				answer(a.name, t.ID, kerr.InvalidRequest.With("The provided topic name maps to an ID that was already supplied."))
			default:
				remove(t)
			}
		default:
			if ids[a.id] > 1 {
				if !told[a.id] {
					told[a.id] = true
					answer(nil, a.id, kerr.InvalidRequest.With("Duplicate topic id."))
				}
				continue
			}
			t := img.TopicByID(a.id)
			switch {
			case t == nil:
				answer(nil, a.id, kerr.UnknownTopicID)
			case !x.authorized(t.Name) && !x.describable(t.Name):
				answer(nil, a.id, kerr.TopicAuthorizationFailed)
			case !x.authorized(t.Name):
				answer(new(t.Name), a.id, kerr.TopicAuthorizationFailed)
			case names[t.Name] == 1:
				// Its name is in the list too and is answered with that; Kafka deletes neither.
			default:
				remove(t)
			}
		}
	}
	if len(records) > MaxRecords {
		return Result{Response: ErrorResponse(req, tooLarge)}
	}
	return atomic(records, resp)
}

// CreatePartitions is API 37, versions 0 to 3.
func (c *Controller) CreatePartitions(x Context, req *kmsg.CreatePartitionsRequest) Result {
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	seen := make(map[string]int)
	var total int64
	for i := range req.Topics {
		t := &req.Topics[i]
		seen[t.Topic]++
		if m := c.Image().Topic(t.Topic); m != nil {
			total += max(0, int64(t.Count)-int64(m.Len()))
		}
	}
	if total > maxPartitionsPerRequest {
		return Result{Response: ErrorResponse(req, kerr.PolicyViolation.With("Excessively large number of additional partitions per request."))}
	}
	var records []Record
	told := make(map[string]bool)
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewCreatePartitionsResponseTopic()
		out.Topic = t.Topic
		var err error
		switch {
		case seen[t.Topic] > 1:
			if told[t.Topic] {
				continue
			}
			told[t.Topic] = true
			err = kerr.InvalidRequest.With("Duplicate topic name.")
		case !x.authorized(t.Topic):
			err = kerr.TopicAuthorizationFailed
		default:
			var add []Record
			if add, err = c.createPartitions(t); err == nil {
				records = append(records, add...)
			}
		}
		if err != nil {
			setError(&out.ErrorCode, &out.ErrorMessage, err)
			if err == error(kerr.UnknownTopicOrPartition) {
				out.ErrorMessage = nil // as Kafka does
			}
		}
		resp.Topics = append(resp.Topics, out)
	}
	return together(req, records, resp, req.ValidateOnly)
}

func (c *Controller) createPartitions(t *kmsg.CreatePartitionsRequestTopic) ([]Record, error) {
	m := c.Image().Topic(t.Topic)
	if m == nil {
		return nil, kerr.UnknownTopicOrPartition
	}
	start := m.Len()
	switch {
	case int(t.Count) == start:
		return nil, kerr.InvalidPartitions.With("Topic already has %d partition(s).", start)
	case int(t.Count) < start:
		return nil, kerr.InvalidPartitions.With("The topic %s currently has %d partition(s); %d would not be an increase.", t.Topic, start, t.Count)
	}
	n := int(t.Count) - start
	if t.Assignment != nil && len(t.Assignment) != n {
		return nil, kerr.InvalidReplicaAssignment.With("Attempted to add %d additional partition(s), but only %d assignment(s) were specified.", n, len(t.Assignment))
	}
	p, ok := m.Partition(0)
	if !ok {
		return nil, kerr.UnknownServerError.With("Invalid state: topic %s appears to have no partitions.", t.Topic)
	}
	factor := len(p.Replicas)
	var records []Record
	if t.Assignment == nil {
		place := newPlacer(c.opt.Rand, c.usableBrokers())
		if err := place.check(factor); err != nil {
			return nil, err
		}
		return c.place(nil, m.ID, int32(start), n, factor, place)
	}
	for i, a := range t.Assignment {
		replicas := brokerIDs(a.Replicas)
		if err := c.checkAssignment(replicas, factor); err != nil {
			return nil, err
		}
		isr := c.activeOf(replicas)
		if len(isr) == 0 {
			return nil, kerr.InvalidReplicaAssignment.With("All brokers specified in the manual partition assignment for partition %d are fenced or in controlled shutdown.", start+i)
		}
		records = append(records, c.partitionRecord(m.ID, int32(start+i), replicas, isr))
	}
	return records, nil
}
