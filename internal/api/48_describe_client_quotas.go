package api

// DescribeClientQuotas, versions 0 and 1 (KIP-546): the quotas that match a filter.

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/rpc"
)

// How a part of the filter matches.
const (
	matchExact   = 0 // this name
	matchDefault = 1 // the default entity
	matchAny     = 2 // any name, and the default
)

// quotaFilter is a filter by type of entity. A nil part is a type that the filter doesn't name.
type quotaFilter struct {
	parts  map[string]quotaPart
	strict bool
}

type quotaPart struct {
	any  bool
	name *string // nil: the default entity
}

// DescribeClientQuotas answers API 48.
func (b *Broker) DescribeClientQuotas(r *rpc.Request) *rpc.Pending {
	var req kmsg.DescribeClientQuotasRequest
	if !decode(r, &req) {
		return nil
	}
	resp := kmsg.NewPtrDescribeClientQuotasResponse()
	f, err := newQuotaFilter(&req)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = kerr.Code(err), kerr.Message(err)
		respond(r, resp)
		return nil
	}
	resp.ErrorMessage = new("")
	resp.Entries = []kmsg.DescribeClientQuotasResponseEntry{}
	for q := range b.Image().ClientQuotas() {
		if !f.matches(q) {
			continue
		}
		e := kmsg.NewDescribeClientQuotasResponseEntry()
		for _, p := range q.Entity {
			re := kmsg.NewDescribeClientQuotasResponseEntryEntity()
			re.Type, re.Name = p.Type, p.Name
			e.Entity = append(e.Entity, re)
		}
		for _, v := range q.Values {
			rv := kmsg.NewDescribeClientQuotasResponseEntryValue()
			rv.Key, rv.Value = v.Key, v.Value
			e.Values = append(e.Values, rv)
		}
		resp.Entries = append(resp.Entries, e)
	}
	respond(r, resp)
	return nil
}

func newQuotaFilter(req *kmsg.DescribeClientQuotasRequest) (*quotaFilter, error) {
	f := &quotaFilter{parts: make(map[string]quotaPart), strict: req.Strict}
	for _, c := range req.Components {
		_, twice := f.parts[c.EntityType]
		switch {
		case c.EntityType == "":
			return nil, kerr.InvalidRequest.With("Invalid empty entity type.")
		case twice:
			return nil, kerr.InvalidRequest.With("Entity type %s cannot appear more than once in the filter.", c.EntityType)
		case c.EntityType != "user" && c.EntityType != "client-id" && c.EntityType != "ip":
			return nil, kerr.UnsupportedVersion.With("Unsupported entity type %s", c.EntityType)
		}
		switch c.MatchType {
		case matchExact:
			if c.Match == nil {
				return nil, kerr.InvalidRequest.With("Request specified MATCH_TYPE_EXACT, but set match string to null.")
			}
			f.parts[c.EntityType] = quotaPart{name: c.Match}
		case matchDefault:
			if c.Match != nil {
				return nil, kerr.InvalidRequest.With("Request specified MATCH_TYPE_DEFAULT, but also specified a match string.")
			}
			f.parts[c.EntityType] = quotaPart{}
		case matchAny:
			if c.Match != nil {
				return nil, kerr.InvalidRequest.With("Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.")
			}
			f.parts[c.EntityType] = quotaPart{any: true}
		default:
			return nil, kerr.InvalidRequest.With("Unknown match type %d", int8(c.MatchType))
		}
	}
	if _, ip := f.parts["ip"]; ip && len(f.parts) > 1 {
		return nil, kerr.InvalidRequest.With("Invalid entity filter component combination. IP filter component should not be used with user or clientId filter component.")
	}
	return f, nil
}

// matches: every part of the filter has its counterpart in the entity; strictly, the entity has no others either.
func (f *quotaFilter) matches(q *metadata.ClientQuota) bool {
	if f.strict && len(q.Entity) != len(f.parts) {
		return false
	}
	found := 0
	for _, e := range q.Entity {
		p, ok := f.parts[e.Type]
		switch {
		case !ok:
			continue
		case p.any:
		case (p.name == nil) != (e.Name == nil) || p.name != nil && *p.name != *e.Name:
			return false
		}
		found++
	}
	return found == len(f.parts)
}
