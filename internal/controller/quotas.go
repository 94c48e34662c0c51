package controller

import (
	"math"
	"net/netip"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/schema"
)

// Types of a quota's entity.
const (
	quotaUser     = "user"
	quotaClientID = "client-id"
	quotaIP       = "ip"
)

// quotaType is what a quota's value is, although all of them travel as doubles.
type quotaType int

const (
	quotaLong quotaType = iota
	quotaInt
	quotaDouble
)

var (
	clientQuotas = map[string]quotaType{
		"producer_byte_rate": quotaLong, "consumer_byte_rate": quotaLong,
		"request_percentage": quotaDouble, "controller_mutation_rate": quotaDouble,
	}
	ipQuotas = map[string]quotaType{"connection_creation_rate": quotaInt}
)

var (
	errQuotaEntity      = kerr.InvalidRequest.With("Invalid empty client quota entity")
	errQuotaCombination = kerr.InvalidRequest.With("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
)

// AlterClientQuotas is API 49, versions 0 and 1 (KIP-546). Each entity is changed wholly or not at all; of an entity that
// stands there several times, the first change is made, as in Kafka, although the answer is an error.
func (c *Controller) AlterClientQuotas(x Context, req *kmsg.AlterClientQuotasRequest) Result {
	resp := req.ResponseKind().(*kmsg.AlterClientQuotasResponse)
	place := make(map[string]int) // of an entity in the response
	var records []Record
	for i := range req.Entries {
		q := &req.Entries[i]
		name := quotaEntityName(q.Entity)
		at, seen := place[name]
		if !seen {
			at = len(resp.Entries)
			place[name] = at
			out := kmsg.NewAlterClientQuotasResponseEntry()
			for _, e := range q.Entity {
				o := kmsg.NewAlterClientQuotasResponseEntryEntity()
				o.Type, o.Name = e.Type, e.Name
				out.Entity = append(out.Entity, o)
			}
			resp.Entries = append(resp.Entries, out)
		}
		var add []Record
		err := error(kerr.InvalidRequest.With("Ignoring duplicate entity ClientQuotaEntity(entries=%s)", name))
		if !seen && !repeatsKey(q.Ops) {
			add, err = c.alterQuotas(q)
		}
		setError(&resp.Entries[at].ErrorCode, &resp.Entries[at].ErrorMessage, err)
		records = append(records, add...)
	}
	if len(records) > MaxRecords {
		return Result{Response: ErrorResponse(req, tooLarge)}
	}
	if req.ValidateOnly {
		records = nil
	}
	return atomic(records, resp)
}

func repeatsKey(ops []kmsg.AlterClientQuotasRequestEntryOp) bool {
	seen := make(map[string]bool)
	for _, op := range ops {
		if seen[op.Key] {
			return true
		}
		seen[op.Key] = true
	}
	return false
}

// quotaEntityName is how Kafka prints an entity, the same for any order of its parts.
func quotaEntityName(entity []kmsg.AlterClientQuotasRequestEntryEntity) string {
	var parts []string
	done := make(map[string]bool)
	add := func(kind string) {
		if done[kind] {
			return
		}
		done[kind] = true
		name := ""
		found := false
		for _, e := range entity { // the last one of a type counts
			if e.Type == kind {
				found, name = true, "null"
				if e.Name != nil {
					name = *e.Name
				}
			}
		}
		if found {
			parts = append(parts, kind+"="+name)
		}
	}
	add(quotaIP)
	add(quotaClientID)
	add(quotaUser)
	for _, e := range entity {
		add(e.Type)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func (c *Controller) alterQuotas(q *kmsg.AlterClientQuotasRequestEntry) ([]Record, error) {
	var entity []metadata.QuotaEntity
	for _, e := range q.Entity {
		switch {
		case e.Type != quotaUser && e.Type != quotaClientID && e.Type != quotaIP:
			return nil, kerr.InvalidRequest.With("Unhandled client quota entity type: %s", e.Type)
		case e.Name != nil && *e.Name == "":
			return nil, kerr.InvalidRequest.With("Empty %s not supported", e.Type)
		}
		part := metadata.QuotaEntity{Type: e.Type, Name: e.Name}
		repeated := false
		for i := range entity {
			if entity[i].Type == e.Type {
				entity[i], repeated = part, true
			}
		}
		if !repeated {
			entity = append(entity, part)
		}
	}
	if len(entity) == 0 {
		return nil, errQuotaEntity
	}
	keys := clientQuotas
	for _, e := range entity {
		if e.Type != quotaIP {
			continue
		}
		if len(entity) > 1 {
			return nil, errQuotaCombination
		}
		if e.Name != nil && !isHost(*e.Name) {
			return nil, kerr.InvalidRequest.With("%s is not a valid IP or resolvable host.", *e.Name)
		}
		keys = ipQuotas
	}
	now := c.Image().ClientQuota(entity)
	var records []Record
	for _, op := range q.Ops {
		old, has := quotaValue(now, op.Key)
		if !op.Remove {
			if err := checkQuota(keys, op.Key, op.Value); err != nil {
				return nil, err
			}
			if has && old == op.Value {
				continue
			}
		} else if !has {
			continue
		}
		r := &schema.ClientQuotaRecord{Key: op.Key, Value: op.Value, Remove: op.Remove}
		if op.Remove {
			r.Value = 0
		}
		for _, e := range entity {
			r.Entity = append(r.Entity, schema.ClientQuotaRecordEntityData{EntityType: e.Type, EntityName: e.Name})
		}
		records = append(records, Record{r, 0})
	}
	return records, nil
}

func quotaValue(q *metadata.ClientQuota, key string) (float64, bool) {
	if q != nil {
		for _, v := range q.Values {
			if v.Key == key {
				return v.Value, true
			}
		}
	}
	return 0, false
}

// checkQuota checks the value of one quota. Whole numbers may be off by a millionth, as doubles come from clients.
func checkQuota(keys map[string]quotaType, key string, value float64) error {
	const epsilon = 1e-6
	kind, ok := keys[key]
	switch {
	case !ok:
		return kerr.InvalidRequest.With("Invalid configuration key %s", key)
	case !(value > 0):
		return kerr.InvalidRequest.With("Quota %s must be greater than 0", key)
	case kind == quotaDouble:
		return nil
	case kind == quotaLong && value > math.MaxInt64:
		return kerr.InvalidRequest.With("Proposed value for %s is too large for a LONG.", key)
	case kind == quotaInt && value > math.MaxInt32:
		return kerr.InvalidRequest.With("Proposed value for %s is too large for an INT.", key)
	case math.Abs(math.Trunc(value+epsilon)-value) > epsilon:
		return kerr.InvalidRequest.With("%s cannot be a fractional value.", key)
	}
	return nil
}

// isHost tells whether a name is an address or may be a host's. (Kafka's controller asks the resolver; a decision that
// every replay and every node must agree on has no use for one.)
func isHost(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	s = strings.TrimSuffix(s, ".")
	if len(s) == 0 || len(s) > 253 {
		return false
	}
	numeric := true
	for _, label := range strings.Split(s, ".") {
		if len(label) == 0 || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		numeric = strings.Trim(label, "0123456789") == ""
		for _, r := range label {
			if !(r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
				return false
			}
		}
	}
	return !numeric // 300.1.1.1 is neither
}
