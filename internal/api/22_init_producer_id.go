package api

// InitProducerId, versions 0 to 5 (KIP-98, 360). Ids for idempotent producers; transactional ones need a coordinator, which
// clients look for by FindCoordinator first.

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/rpc"
)

// InitProducerID answers API 22.
func (b *Broker) InitProducerID(r *rpc.Request) *rpc.Pending {
	var req kmsg.InitProducerIDRequest
	if !decode(r, &req) {
		return nil
	}
	fail := func(err error) *rpc.Pending {
		resp := kmsg.NewPtrInitProducerIDResponse()
		resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = kerr.Code(err), kafka.NoProducerID, kafka.NoProducerEpoch
		respond(r, resp)
		return nil
	}
	switch {
	case (req.ProducerID == kafka.NoProducerID) != (req.ProducerEpoch == kafka.NoProducerEpoch):
		return fail(kerr.InvalidRequest)
	case req.TransactionalID != nil && *req.TransactionalID == "":
		return fail(kerr.InvalidRequest)
	case req.TransactionalID != nil:
		return fail(kerr.NotCoordinator)
	}
	// Without a transactional id there is no state to go back to: whatever id the producer had, it gets a new one (KIP-360).
	var id kafka.ProducerID
	var err error
	p := &rpc.Pending{Finish: func(r *rpc.Request, expired bool) {
		resp := kmsg.NewPtrInitProducerIDResponse()
		resp.ErrorCode, resp.ProducerID = kerr.Code(err), id
		if err != nil {
			resp.ProducerID, resp.ProducerEpoch = kafka.NoProducerID, kafka.NoProducerEpoch
		}
		respond(r, resp)
	}}
	b.ProducerID(func(got kafka.ProducerID, e error) {
		id, err = got, e
		p.Complete()
	})
	return p
}
