package api

// IncrementalAlterConfigs of resource type BROKER_LOGGER (KIP-412): levels of loggers, on brokers and controllers (KIP-919).
// They hold until the process ends; no record is written.

import (
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/rpc"
)

// Loggers are a node's loggers. Its methods may be called from any goroutine.
type Loggers interface {
	// Levels are the levels in force by the loggers' names, the logger "root" among them.
	Levels() map[string]string
	// SetLevel gives a logger a level of its own, or with "" takes that back.
	SetLevel(logger, level string)
}

// logLevels are those that loggers may have.
var logLevels = []string{"DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN"}

// alterLoggers changes all of the levels that a resource names, or none.
func alterLoggers(loggers Loggers, self kafka.BrokerID, q *kmsg.IncrementalAlterConfigsRequestResource, validateOnly bool) error {
	id, err := strconv.ParseInt(q.ResourceName, 10, 32)
	if err != nil {
		return kerr.InvalidRequest.With("Node id must be an integer, but it is: %s", q.ResourceName)
	}
	if kafka.BrokerID(id) != self {
		return kerr.InvalidRequest.With("Unexpected node id. Expected %d, but received %d", self, id)
	}
	known := loggers.Levels()
	for i := range q.Configs {
		c := &q.Configs[i]
		if _, ok := known[c.Name]; !ok && (c.Op == opSet || c.Op == opDelete) {
			return kerr.InvalidConfig.With("Logger %s does not exist!", c.Name)
		}
		switch c.Op {
		case opSet:
			if c.Value == nil {
				return kerr.InvalidRequest.With("Null value not supported for : %s", c.Name)
			}
			if !slices.Contains(logLevels, *c.Value) {
				return kerr.InvalidConfig.With("Cannot set the log level of %s to %s as it is not a supported log level. Valid log levels are %s",
					c.Name, *c.Value, strings.Join(logLevels, ", "))
			}
		case opDelete:
			if c.Name == "root" {
				return kerr.InvalidRequest.With("Removing the log level of the root logger is not allowed")
			}
		case opAppend:
			return kerr.InvalidRequest.With("APPEND operation is not allowed for the BROKER_LOGGER resource")
		case opSubtract:
			return kerr.InvalidRequest.With("SUBTRACT operation is not allowed for the BROKER_LOGGER resource")
		default:
			return kerr.InvalidRequest.With("Unknown operation type %d is not allowed for the BROKER_LOGGER resource", c.Op)
		}
	}
	if validateOnly {
		return nil
	}
	for i := range q.Configs {
		switch c := &q.Configs[i]; c.Op {
		case opSet:
			loggers.SetLevel(c.Name, *c.Value)
		case opDelete:
			loggers.SetLevel(c.Name, "")
		}
	}
	return nil
}

// IncrementalAlterConfigs answers API 44 on a controller's listener: loggers are this node's, the rest is decided.
func (c *Controller) IncrementalAlterConfigs(r *rpc.Request) *rpc.Pending {
	body := slices.Clone(r.Body)
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	if !decodeBody(r, req, body) {
		return nil
	}
	isLogger := func(q kmsg.IncrementalAlterConfigsRequestResource) bool {
		return metadata.ResourceType(q.ResourceType) == metadata.ResourceBrokerLogger
	}
	if !slices.ContainsFunc(req.Resources, isLogger) {
		return c.decideRequest(r, req, body, nil)
	}
	onward := *req
	var own []*result
	own, onward.Resources = divide(req.Resources, incrementalID, func(q *kmsg.IncrementalAlterConfigsRequestResource, duplicate bool) *result {
		switch {
		case !isLogger(*q):
			return nil
		case duplicate:
			return &result{kerr.InvalidRequest.With("Each resource must appear at most once.")}
		}
		return &result{alterLoggers(c.Loggers, c.ID, q, req.ValidateOnly)}
	})
	join := func(m kmsg.Response) kmsg.Response {
		resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
		answered, _ := m.(*kmsg.IncrementalAlterConfigsResponse)
		for i := range req.Resources {
			if own[i] != nil {
				rr := kmsg.NewIncrementalAlterConfigsResponseResource()
				rr.ResourceType, rr.ResourceName = req.Resources[i].ResourceType, req.Resources[i].ResourceName
				rr.ErrorCode, rr.ErrorMessage = kerr.Code(own[i].err), kerr.Message(own[i].err)
				resp.Resources = append(resp.Resources, rr)
			}
		}
		if answered != nil {
			resp.Resources = append(resp.Resources, answered.Resources...)
		}
		return resp
	}
	if len(onward.Resources) == 0 {
		respond(r, join(nil))
		return nil
	}
	return c.decideRequest(r, &onward, body, join)
}
