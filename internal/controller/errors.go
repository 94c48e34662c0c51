package controller

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

// ErrorResponse is the answer to a request of which nothing could be done: the error stands for the whole, or for each of
// its topics, partitions or resources, as Kafka puts it. It panics for a request that is not the controller's.
func ErrorResponse(req kmsg.Request, err error) kmsg.Response {
	code, text := kerr.Code(err), kerr.Message(err)
	switch q := req.(type) {
	case *kmsg.CreateTopicsRequest:
		r := q.ResponseKind().(*kmsg.CreateTopicsResponse)
		for i := range q.Topics {
			t := kmsg.NewCreateTopicsResponseTopic()
			t.Topic, t.ErrorCode, t.ErrorMessage = q.Topics[i].Topic, code, text
			t.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
			r.Topics = append(r.Topics, t)
		}
		return r
	case *kmsg.DeleteTopicsRequest:
		r := q.ResponseKind().(*kmsg.DeleteTopicsResponse)
		add := func(name *string, id kafka.TopicID) {
			t := kmsg.NewDeleteTopicsResponseTopic()
			t.Topic, t.TopicID, t.ErrorCode, t.ErrorMessage = name, id, code, text
			r.Topics = append(r.Topics, t)
		}
		for _, n := range q.TopicNames {
			add(&n, kafka.TopicID{})
		}
		for _, t := range q.Topics {
			add(t.Topic, t.TopicID)
		}
		return r
	case *kmsg.CreatePartitionsRequest:
		r := q.ResponseKind().(*kmsg.CreatePartitionsResponse)
		for i := range q.Topics {
			t := kmsg.NewCreatePartitionsResponseTopic()
			t.Topic, t.ErrorCode, t.ErrorMessage = q.Topics[i].Topic, code, text
			r.Topics = append(r.Topics, t)
		}
		return r
	case *kmsg.IncrementalAlterConfigsRequest:
		r := q.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
		for i := range q.Resources {
			o := kmsg.NewIncrementalAlterConfigsResponseResource()
			o.ResourceType, o.ResourceName, o.ErrorCode, o.ErrorMessage = q.Resources[i].ResourceType, q.Resources[i].ResourceName, code, text
			r.Resources = append(r.Resources, o)
		}
		return r
	case *kmsg.AlterConfigsRequest:
		r := q.ResponseKind().(*kmsg.AlterConfigsResponse)
		for i := range q.Resources {
			o := kmsg.NewAlterConfigsResponseResource()
			o.ResourceType, o.ResourceName, o.ErrorCode, o.ErrorMessage = q.Resources[i].ResourceType, q.Resources[i].ResourceName, code, text
			r.Resources = append(r.Resources, o)
		}
		return r
	case *kmsg.ElectLeadersRequest:
		r := q.ResponseKind().(*kmsg.ElectLeadersResponse)
		r.ErrorCode = code
		for _, t := range q.Topics {
			o := kmsg.NewElectLeadersResponseTopic()
			o.Topic = t.Topic
			for _, id := range t.Partitions {
				p := kmsg.NewElectLeadersResponseTopicPartition()
				p.Partition, p.ErrorCode, p.ErrorMessage = id, code, text
				o.Partitions = append(o.Partitions, p)
			}
			r.Topics = append(r.Topics, o)
		}
		return r
	case *kmsg.AlterPartitionAssignmentsRequest:
		r := q.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
		r.ErrorCode, r.ErrorMessage = code, text
		for i := range q.Topics {
			o := kmsg.NewAlterPartitionAssignmentsResponseTopic()
			o.Topic = q.Topics[i].Topic
			for j := range q.Topics[i].Partitions {
				p := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
				p.Partition, p.ErrorCode, p.ErrorMessage = q.Topics[i].Partitions[j].Partition, code, text
				o.Partitions = append(o.Partitions, p)
			}
			r.Topics = append(r.Topics, o)
		}
		return r
	case *kmsg.ListPartitionReassignmentsRequest:
		r := q.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
		r.ErrorCode, r.ErrorMessage = code, text
		return r
	case *kmsg.UpdateFeaturesRequest:
		r := q.ResponseKind().(*kmsg.UpdateFeaturesResponse)
		r.ErrorCode, r.ErrorMessage = code, text
		return r
	case *kmsg.AlterClientQuotasRequest:
		r := q.ResponseKind().(*kmsg.AlterClientQuotasResponse)
		for i := range q.Entries {
			o := kmsg.NewAlterClientQuotasResponseEntry()
			o.ErrorCode, o.ErrorMessage = code, text
			for _, e := range q.Entries[i].Entity {
				p := kmsg.NewAlterClientQuotasResponseEntryEntity()
				p.Type, p.Name = e.Type, e.Name
				o.Entity = append(o.Entity, p)
			}
			r.Entries = append(r.Entries, o)
		}
		return r
	case *kmsg.AlterUserSCRAMCredentialsRequest:
		r := q.ResponseKind().(*kmsg.AlterUserSCRAMCredentialsResponse)
		told := make(map[string]bool)
		add := func(user string) {
			if !told[user] {
				told[user] = true
				o := kmsg.NewAlterUserSCRAMCredentialsResponseResult()
				o.User, o.ErrorCode, o.ErrorMessage = user, code, text
				r.Results = append(r.Results, o)
			}
		}
		for i := range q.Deletions {
			add(q.Deletions[i].Name)
		}
		for i := range q.Upsertions {
			add(q.Upsertions[i].Name)
		}
		return r
	case *kmsg.AlterPartitionRequest:
		r := q.ResponseKind().(*kmsg.AlterPartitionResponse)
		r.ErrorCode = code
		return r
	case *kmsg.BrokerRegistrationRequest:
		r := q.ResponseKind().(*kmsg.BrokerRegistrationResponse)
		r.ErrorCode, r.BrokerEpoch = code, -1
		return r
	case *kmsg.BrokerHeartbeatRequest:
		r := q.ResponseKind().(*kmsg.BrokerHeartbeatResponse)
		r.ErrorCode, r.IsFenced = code, true
		return r
	case *kmsg.UnregisterBrokerRequest:
		r := q.ResponseKind().(*kmsg.UnregisterBrokerResponse)
		r.ErrorCode, r.ErrorMessage = code, text
		return r
	case *kmsg.AssignReplicasToDirsRequest:
		r := q.ResponseKind().(*kmsg.AssignReplicasToDirsResponse)
		r.ErrorCode = code
		return r
	case *kmsg.ControllerRegistrationRequest:
		r := q.ResponseKind().(*kmsg.ControllerRegistrationResponse)
		r.ErrorCode, r.ErrorMessage = code, text
		return r
	case *kmsg.UnregisterControllerRequest:
		r := q.ResponseKind().(*kmsg.UnregisterControllerResponse)
		r.ErrorCode, r.ErrorMessage = code, text
		return r
	case *kmsg.AllocateProducerIDsRequest:
		r := q.ResponseKind().(*kmsg.AllocateProducerIDsResponse)
		r.ErrorCode = code
		return r
	}
	panic(fmt.Sprintf("controller: no answer to API %d", req.Key()))
}

// Handle is the operation of a request: one place where the loop, the API table and the simulator find it. ok is false if
// the request is not the controller's.
func (c *Controller) Handle(x Context, req kmsg.Request) (Result, bool) {
	switch q := req.(type) {
	case *kmsg.CreateTopicsRequest:
		return c.CreateTopics(x, q), true
	case *kmsg.DeleteTopicsRequest:
		return c.DeleteTopics(x, q), true
	case *kmsg.CreatePartitionsRequest:
		return c.CreatePartitions(x, q), true
	case *kmsg.IncrementalAlterConfigsRequest:
		return c.IncrementalAlterConfigs(x, q), true
	case *kmsg.AlterConfigsRequest:
		return c.AlterConfigs(x, q), true
	case *kmsg.ElectLeadersRequest:
		return c.ElectLeaders(x, q), true
	case *kmsg.AlterPartitionAssignmentsRequest:
		return c.AlterPartitionReassignments(x, q), true
	case *kmsg.ListPartitionReassignmentsRequest:
		return c.ListPartitionReassignments(x, q), true
	case *kmsg.UpdateFeaturesRequest:
		return c.UpdateFeatures(x, q), true
	case *kmsg.AlterClientQuotasRequest:
		return c.AlterClientQuotas(x, q), true
	case *kmsg.AlterUserSCRAMCredentialsRequest:
		return c.AlterUserScramCredentials(x, q), true
	case *kmsg.AlterPartitionRequest:
		return c.AlterPartition(x, q), true
	case *kmsg.BrokerRegistrationRequest:
		return c.BrokerRegistration(x, q), true
	case *kmsg.BrokerHeartbeatRequest:
		return c.BrokerHeartbeat(x, q), true
	case *kmsg.UnregisterBrokerRequest:
		return c.UnregisterBroker(x, q), true
	case *kmsg.AssignReplicasToDirsRequest:
		return c.AssignReplicasToDirs(x, q), true
	case *kmsg.ControllerRegistrationRequest:
		return c.ControllerRegistration(x, q), true
	case *kmsg.UnregisterControllerRequest:
		return c.UnregisterController(x, q), true
	case *kmsg.AllocateProducerIDsRequest:
		return c.AllocateProducerIDs(x, q), true
	}
	return Result{}, false
}
