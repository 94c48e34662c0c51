package cli

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
)

// topicDescription is one topic as a broker describes it.
type topicDescription struct {
	name       string
	id         kafka.TopicID
	partitions []partitionDescription
}

type partitionDescription struct {
	id, leader    int32
	replicas, isr []int32
	elr, lastElr  []int32
	hasElr        bool // the broker knows of eligible leader replicas
}

// describeTopics asks for topics by name, or for one by id. The order of the names is kept.
func describeTopics(a *admin, names []string, id *kafka.TopicID, limit int32) ([]topicDescription, error) {
	if id == nil {
		out, err := describeTopicPartitions(a, names, limit)
		var j *JavaError
		if err == nil || !errors.As(err, &j) || j.Class != "org.apache.kafka.common.errors.UnsupportedVersionException" {
			return out, err
		}
	}
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	if id != nil {
		rt := kmsg.NewMetadataRequestTopic()
		rt.TopicID = *id
		req.Topics = []kmsg.MetadataRequestTopic{rt}
	}
	for _, n := range names {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(n)
		req.Topics = append(req.Topics, rt)
	}
	r, err := a.any("describeTopics", req)
	if err != nil {
		return nil, err
	}
	byName := make(map[string]topicDescription)
	for _, t := range r.(*kmsg.MetadataResponse).Topics {
		if err := codeError(t.ErrorCode, nil); err != nil {
			return nil, err
		}
		d := topicDescription{id: t.TopicID}
		if t.Topic != nil {
			d.name = *t.Topic
		}
		d.partitions = make([]partitionDescription, 0, len(t.Partitions))
		for _, p := range t.Partitions {
			d.partitions = append(d.partitions, partitionDescription{id: p.Partition, leader: p.Leader, replicas: p.Replicas, isr: p.ISR})
		}
		sortPartitions(d.partitions)
		byName[d.name] = d
		if id != nil {
			return []topicDescription{d}, nil
		}
	}
	return inOrder(names, byName), nil
}

func inOrder(names []string, byName map[string]topicDescription) []topicDescription {
	var out []topicDescription
	for _, n := range names {
		if d, ok := byName[n]; ok {
			out = append(out, d)
		}
	}
	return out
}

func describeTopicPartitions(a *admin, names []string, limit int32) ([]topicDescription, error) {
	byName := make(map[string]topicDescription)
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.ResponsePartitionLimit = limit
	for _, n := range names {
		rt := kmsg.NewDescribeTopicPartitionsRequestTopic()
		rt.Topic = n
		req.Topics = append(req.Topics, rt)
	}
	for {
		r, err := a.any("describeTopicPartitions", req)
		if err != nil {
			return nil, err
		}
		resp := r.(*kmsg.DescribeTopicPartitionsResponse)
		for _, t := range resp.Topics {
			if t.Topic == nil {
				continue
			}
			if err := codeError(t.ErrorCode, nil); err != nil {
				return nil, err
			}
			d := byName[*t.Topic]
			d.name, d.id = *t.Topic, t.TopicID
			for _, p := range t.Partitions {
				d.partitions = append(d.partitions, partitionDescription{
					id: p.Partition, leader: p.LeaderID, replicas: p.Replicas, isr: p.ISR,
					elr: p.EligibleLeaderReplicas, lastElr: p.LastKnownELR, hasElr: true,
				})
			}
			byName[d.name] = d
		}
		next := resp.NextCursor
		if next == nil {
			break
		}
		cursor := kmsg.NewDescribeTopicPartitionsRequestCursor()
		cursor.Topic, cursor.Partition = next.Topic, next.Partition
		req.Cursor = &cursor
		rest := req.Topics[:0:0]
		for _, t := range req.Topics { // those before the cursor are done
			if t.Topic >= next.Topic {
				rest = append(rest, t)
			}
		}
		req.Topics = rest
	}
	for _, d := range byName {
		sortPartitions(d.partitions)
	}
	return inOrder(names, byName), nil
}

// reassignment is a partition's move in progress.
type reassignment struct{ replicas, adding, removing []int32 }

type partitionKey struct {
	topic     string
	partition int32
}

// reassignments lists the moves in progress; a broker that can't tell has none.
func reassignments(a *admin, of []topicDescription) map[partitionKey]reassignment {
	req := kmsg.NewPtrListPartitionReassignmentsRequest()
	req.TimeoutMillis = int32(min(a.conf.int("request.timeout.ms"), 1<<31-1))
	for _, d := range of {
		rt := kmsg.NewListPartitionReassignmentsRequestTopic()
		rt.Topic = d.name
		for _, p := range d.partitions {
			rt.Partitions = append(rt.Partitions, p.id)
		}
		req.Topics = append(req.Topics, rt)
	}
	r, err := a.controller("listPartitionReassignments", req)
	if err != nil {
		return nil
	}
	resp := r.(*kmsg.ListPartitionReassignmentsResponse)
	out := make(map[partitionKey]reassignment)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			out[partitionKey{t.Topic, p.Partition}] = reassignment{p.Replicas, p.AddingReplicas, p.RemovingReplicas}
		}
	}
	return out
}

// factor is the replication factor; replicas that a move only adds for now don't count.
func (p partitionDescription) factor(m *reassignment) int {
	if m != nil {
		moving := make(map[int32]bool)
		for _, r := range append(append([]int32(nil), m.adding...), m.removing...) {
			moving[r] = true
		}
		for _, r := range p.replicas {
			if moving[r] {
				return len(m.replicas) - len(m.adding)
			}
		}
	}
	return len(p.replicas)
}

// printDescribed prints what the options leave.
func (t *topicsTool) printDescribed(described []topicDescription) error {
	live := make(map[int32]bool)
	meta := kmsg.NewPtrMetadataRequest()
	meta.Topics = []kmsg.MetadataRequestTopic{}
	r, err := t.admin.any("listNodes", meta)
	if err != nil {
		return err
	}
	for _, b := range r.(*kmsg.MetadataResponse).Brokers {
		live[b.NodeID] = true
	}
	names := make([]string, 0, len(described))
	byName := make(map[string]topicDescription, len(described))
	for _, d := range described {
		names = append(names, d.name)
		byName[d.name] = d
	}
	configs, err := describeConfigs(t.admin, kmsg.ConfigResourceTypeTopic, names, false, -1)
	if err != nil {
		return err
	}
	moves := reassignments(t.admin, described)
	under, unavailable := t.p.Has(t.underReplicated), t.p.Has(t.unavailable)
	underMin, atMin := t.p.Has(t.underMinISR), t.p.Has(t.atMinISR)
	filtered := under || unavailable || underMin || atMin
	for _, name := range javaOrder(javaOrder(names, 0), len(names)) { // Kafka gathers the answers in two maps
		d := byName[name]
		var entries, own []configEntry
		for _, n := range javaOrder(configNames(configs[name]), 0) {
			e := configs[name][n]
			entries = append(entries, e)
			if e.source != sourceDefault {
				own = append(own, e)
			}
		}
		minISR := 1
		for _, e := range entries {
			if e.name == "min.insync.replicas" {
				fmt.Sscan(e.text(), &minISR)
			}
		}
		if !filtered && (!t.p.Has(t.overrides) || len(own) > 0) {
			factor := 0
			if len(d.partitions) > 0 {
				factor = d.partitions[0].factor(moveOf(moves, name, d.partitions[0].id))
			}
			var list []string
			for _, e := range own {
				list = append(list, e.name+"="+e.text())
			}
			id := ""
			if d.id != kafka.ZeroUUID {
				id = d.id.String()
			}
			t.e.Printf("Topic: %s\tTopicId: %s\tPartitionCount: %d\tReplicationFactor: %d\tConfigs: %s\n", name, id, len(d.partitions), factor, strings.Join(list, ","))
		}
		if t.p.Has(t.overrides) {
			continue
		}
		for _, p := range d.partitions {
			move := moveOf(moves, name, p.id)
			hasLeader := p.leader >= 0
			if !filtered || under && p.factor(move) > len(p.isr) || unavailable && (!hasLeader || !live[p.leader]) ||
				underMin && (!hasLeader || len(p.isr) < minISR) || atMin && len(p.isr) == minISR {
				t.e.Println(p.line(name, move))
			}
		}
	}
	return nil
}

func moveOf(moves map[partitionKey]reassignment, topic string, partition int32) *reassignment {
	if m, ok := moves[partitionKey{topic, partition}]; ok {
		return &m
	}
	return nil
}

func (p partitionDescription) line(topic string, move *reassignment) string {
	var b strings.Builder
	leader := "none"
	if p.leader >= 0 {
		leader = fmt.Sprint(p.leader)
	}
	fmt.Fprintf(&b, "\tTopic: %s\tPartition: %d\tLeader: %s\tReplicas: %s\tIsr: %s", topic, p.id, leader, joinInts(p.replicas, ","), joinInts(p.isr, ","))
	if move != nil {
		fmt.Fprintf(&b, "\tAdding Replicas: %s\tRemoving Replicas: %s", joinInts(move.adding, ","), joinInts(move.removing, ","))
	}
	if p.hasElr {
		fmt.Fprintf(&b, "\tElr: %s\tLastKnownElr: %s", joinInts(p.elr, ","), joinInts(p.lastElr, ","))
	} else {
		b.WriteString("\tElr: N/A\tLastKnownElr: N/A")
	}
	return b.String()
}

func sortPartitions(list []partitionDescription) {
	for i := 1; i < len(list); i++ { // nearly always sorted already
		for j := i; j > 0 && list[j].id < list[j-1].id; j-- {
			list[j], list[j-1] = list[j-1], list[j]
		}
	}
}

// parseUUID reads an id with Kafka's complaints.
func parseUUID(s string) (kafka.UUID, error) {
	if len(s) > 24 {
		return kafka.UUID{}, illegalArgument(fmt.Sprintf("Input string with prefix `%s` is too long to be decoded as a base64 UUID", s[:24]))
	}
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(s, "="))
	if err != nil {
		return kafka.UUID{}, illegalArgument("Illegal base64 character in " + s)
	}
	if len(b) != 16 {
		return kafka.UUID{}, illegalArgument(fmt.Sprintf("Input string `%s` decoded as %d bytes, which is not equal to the expected 16 bytes of a base64-encoded UUID", s, len(b)))
	}
	return kafka.UUID(b), nil
}
