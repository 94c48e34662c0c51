package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/rpc"
)

// respondError answers a forwardable request as a whole with err, in the shape of its API: the code for every part that was
// asked about. body is the request's.
func respondError(r *rpc.Request, body []byte, err error) {
	code, text := kerr.Code(err), kerr.Message(err)
	switch r.Key {
	case kmsg.CreateTopics.Int16():
		var req kmsg.CreateTopicsRequest
		if !reread(r, &req, body) {
			return
		}
		resp := kmsg.NewPtrCreateTopicsResponse()
		for _, t := range req.Topics {
			rt := kmsg.NewCreateTopicsResponseTopic()
			rt.Topic, rt.ErrorCode, rt.ErrorMessage = t.Topic, code, text
			rt.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
			resp.Topics = append(resp.Topics, rt)
		}
		respond(r, resp)
	case kmsg.DeleteTopics.Int16():
		var req kmsg.DeleteTopicsRequest
		if !reread(r, &req, body) {
			return
		}
		resp := kmsg.NewPtrDeleteTopicsResponse()
		for _, name := range req.TopicNames {
			rt := kmsg.NewDeleteTopicsResponseTopic()
			rt.Topic, rt.ErrorCode, rt.ErrorMessage = &name, code, text
			resp.Topics = append(resp.Topics, rt)
		}
		for _, t := range req.Topics {
			rt := kmsg.NewDeleteTopicsResponseTopic()
			rt.Topic, rt.TopicID, rt.ErrorCode, rt.ErrorMessage = t.Topic, t.TopicID, code, text
			resp.Topics = append(resp.Topics, rt)
		}
		respond(r, resp)
	case kmsg.CreatePartitions.Int16():
		var req kmsg.CreatePartitionsRequest
		if !reread(r, &req, body) {
			return
		}
		resp := kmsg.NewPtrCreatePartitionsResponse()
		for _, t := range req.Topics {
			rt := kmsg.NewCreatePartitionsResponseTopic()
			rt.Topic, rt.ErrorCode, rt.ErrorMessage = t.Topic, code, text
			resp.Topics = append(resp.Topics, rt)
		}
		respond(r, resp)
	case kmsg.AlterConfigs.Int16():
		var req kmsg.AlterConfigsRequest
		if !reread(r, &req, body) {
			return
		}
		resp := kmsg.NewPtrAlterConfigsResponse()
		for _, q := range req.Resources {
			rr := kmsg.NewAlterConfigsResponseResource()
			rr.ResourceType, rr.ResourceName, rr.ErrorCode, rr.ErrorMessage = q.ResourceType, q.ResourceName, code, text
			resp.Resources = append(resp.Resources, rr)
		}
		respond(r, resp)
	case kmsg.IncrementalAlterConfigs.Int16():
		var req kmsg.IncrementalAlterConfigsRequest
		if !reread(r, &req, body) {
			return
		}
		resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
		for _, q := range req.Resources {
			rr := kmsg.NewIncrementalAlterConfigsResponseResource()
			rr.ResourceType, rr.ResourceName, rr.ErrorCode, rr.ErrorMessage = q.ResourceType, q.ResourceName, code, text
			resp.Resources = append(resp.Resources, rr)
		}
		respond(r, resp)
	case kmsg.DescribeQuorum.Int16():
		resp := kmsg.NewPtrDescribeQuorumResponse()
		resp.ErrorCode, resp.ErrorMessage = code, text
		respond(r, resp)
	case kmsg.ElectLeaders.Int16():
		resp := kmsg.NewPtrElectLeadersResponse()
		resp.ErrorCode = code
		respond(r, resp)
	case kmsg.AlterPartitionAssignments.Int16():
		resp := kmsg.NewPtrAlterPartitionAssignmentsResponse()
		resp.ErrorCode, resp.ErrorMessage = code, text
		respond(r, resp)
	case kmsg.ListPartitionReassignments.Int16():
		resp := kmsg.NewPtrListPartitionReassignmentsResponse()
		resp.ErrorCode, resp.ErrorMessage = code, text
		respond(r, resp)
	case kmsg.UpdateFeatures.Int16():
		resp := kmsg.NewPtrUpdateFeaturesResponse()
		resp.ErrorCode, resp.ErrorMessage = code, text
		respond(r, resp)
	case kmsg.UnregisterBroker.Int16():
		resp := kmsg.NewPtrUnregisterBrokerResponse()
		resp.ErrorCode, resp.ErrorMessage = code, text
		respond(r, resp)
	case kmsg.AlterClientQuotas.Int16():
		var req kmsg.AlterClientQuotasRequest
		if !reread(r, &req, body) {
			return
		}
		resp := kmsg.NewPtrAlterClientQuotasResponse()
		for _, q := range req.Entries {
			re := kmsg.NewAlterClientQuotasResponseEntry()
			re.ErrorCode, re.ErrorMessage = code, text
			for _, e := range q.Entity {
				o := kmsg.NewAlterClientQuotasResponseEntryEntity()
				o.Type, o.Name = e.Type, e.Name
				re.Entity = append(re.Entity, o)
			}
			resp.Entries = append(resp.Entries, re)
		}
		respond(r, resp)
	case kmsg.AlterUserSCRAMCredentials.Int16():
		var req kmsg.AlterUserSCRAMCredentialsRequest
		if !reread(r, &req, body) {
			return
		}
		resp := kmsg.NewPtrAlterUserSCRAMCredentialsResponse()
		told := make(map[string]bool)
		add := func(user string) {
			if !told[user] {
				told[user] = true
				rr := kmsg.NewAlterUserSCRAMCredentialsResponseResult()
				rr.User, rr.ErrorCode, rr.ErrorMessage = user, code, text
				resp.Results = append(resp.Results, rr)
			}
		}
		for _, d := range req.Deletions {
			add(d.Name)
		}
		for _, u := range req.Upsertions {
			add(u.Name)
		}
		respond(r, resp)
	case kmsg.BrokerRegistration.Int16():
		resp := kmsg.NewPtrBrokerRegistrationResponse()
		resp.ErrorCode = code
		respond(r, resp)
	case kmsg.BrokerHeartbeat.Int16():
		resp := kmsg.NewPtrBrokerHeartbeatResponse()
		resp.ErrorCode = code
		respond(r, resp)
	case kmsg.ControllerRegistration.Int16():
		resp := kmsg.NewPtrControllerRegistrationResponse()
		resp.ErrorCode, resp.ErrorMessage = code, text
		respond(r, resp)
	case kmsg.AllocateProducerIDs.Int16():
		resp := kmsg.NewPtrAllocateProducerIDsResponse()
		resp.ErrorCode = code
		respond(r, resp)
	case kmsg.AlterPartition.Int16():
		resp := kmsg.NewPtrAlterPartitionResponse()
		resp.ErrorCode = code
		respond(r, resp)
	case kmsg.AssignReplicasToDirs.Int16():
		resp := kmsg.NewPtrAssignReplicasToDirsResponse()
		resp.ErrorCode = code
		respond(r, resp)
	case kmsg.UnregisterController.Int16():
		resp := kmsg.NewPtrUnregisterControllerResponse()
		resp.ErrorCode, resp.ErrorMessage = code, text
		respond(r, resp)
	default:
		r.Response.Fail = err
	}
}

func reread(r *rpc.Request, req kmsg.Request, body []byte) bool {
	return decodeBody(r, req, body)
}
