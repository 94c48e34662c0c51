package api

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/rpc"
	"github.com/highwater/highwater/internal/schema"
)

// decode reads the body of r into req, behind the checks that bound what kmsg allocates. If the body is not a request of
// this API and version the connection ends, as in Kafka, and decode returns false.
func decode(r *rpc.Request, req kmsg.Request) bool { return decodeBody(r, req, r.Body) }

// decodeBody decodes a copy of the body that lives longer.
func decodeBody(r *rpc.Request, req kmsg.Request, body []byte) bool {
	req.SetVersion(r.Version)
	if err := schema.ReadRequest(req, body); err != nil {
		r.Response.Fail = err
		return false
	}
	return true
}

// respond appends the body of the answer.
func respond(r *rpc.Request, resp kmsg.Response) {
	resp.SetVersion(r.Version)
	r.Response.Buf = schema.AppendMessage(r.Response.Buf, resp)
}
