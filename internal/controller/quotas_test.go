package controller

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/schema"
)

// quota is a request that sets (or removes) one quota of one entity, written "user=alice,client-id=".
func quota(entity, key string, value float64, remove bool) *kmsg.AlterClientQuotasRequest {
	req := kmsg.NewPtrAlterClientQuotasRequest()
	e := kmsg.NewAlterClientQuotasRequestEntry()
	for _, part := range strings.Split(entity, ",") {
		kind, name, _ := strings.Cut(part, "=")
		p := kmsg.NewAlterClientQuotasRequestEntryEntity()
		if p.Type = kind; name != "" {
			p.Name = &name
		}
		e.Entity = append(e.Entity, p)
	}
	op := kmsg.NewAlterClientQuotasRequestEntryOp()
	op.Key, op.Value, op.Remove = key, value, remove
	e.Ops = append(e.Ops, op)
	req.Entries = append(req.Entries, e)
	return req
}

// The records of quotas, for what differs and for what does not. (The answers to all that can be wrong are compared with
// Kafka's in internal/node.)
func TestQuotaRecords(t *testing.T) {
	k := newCluster(t, bootstrap(33))
	f := func(entity, key string, value float64, remove bool, want ...string) {
		t.Helper()
		from := len(k.log)
		r := k.do(quota(entity, key, value, remove)).(*kmsg.AlterClientQuotasResponse)
		if r.Entries[0].ErrorCode != 0 {
			t.Fatalf("%s: %s", entity, *r.Entries[0].ErrorMessage)
		}
		var got []string
		for _, r := range k.log[from:] {
			got = append(got, string(schema.AppendTypedJSON(nil, r.Message, r.Version)))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s %s:\n got %s\nwant %s", entity, key, got, want)
		}
	}
	set := `{"type":"CLIENT_QUOTA_RECORD","version":0,"data":{"entity":[{"entityType":"user","entityName":"alice"},{"entityType":"client-id","entityName":null}],"key":"producer_byte_rate","value":1024.0,"remove":false}}`
	f("user=alice,client-id=", "producer_byte_rate", 1024, false, set)
	f("client-id=,user=alice", "producer_byte_rate", 1024, false)
	f("user=alice", "producer_byte_rate", 0, true)
	f("user=alice,client-id=", "producer_byte_rate", 0, true, strings.Replace(set, `"value":1024.0,"remove":false`, `"value":0.0,"remove":true`, 1))
	if n := len(slices.Collect(k.c.Image().ClientQuotas())); n != 0 {
		t.Errorf("%d entities are left", n)
	}
	f("ip=", "connection_creation_rate", 10, false, `{"type":"CLIENT_QUOTA_RECORD","version":0,"data":{"entity":[{"entityType":"ip","entityName":null}],"key":"connection_creation_rate","value":10.0,"remove":false}}`)
	k.checkReplay()
}

// Values that only a hostile client sends never reach the log; hosts are judged by their form.
func TestQuotaBounds(t *testing.T) {
	k := newCluster(t, bootstrap(33))
	f := func(ok bool, entity, key string, value float64) {
		t.Helper()
		from := len(k.log)
		r := k.do(quota(entity, key, value, false)).(*kmsg.AlterClientQuotasResponse).Entries[0]
		if (r.ErrorCode == 0) != ok || (len(k.log) > from) != ok {
			t.Errorf("%s %s=%v: %v, %d records", entity, key, value, kerr.ForCode(r.ErrorCode), len(k.log)-from)
		}
	}
	f(false, "user=a", "producer_byte_rate", math.NaN())
	f(false, "user=a", "producer_byte_rate", math.Inf(1))
	f(false, "user=a", "producer_byte_rate", math.Inf(-1))
	f(false, "user=a", "request_percentage", math.NaN())
	f(true, "user=a", "producer_byte_rate", math.MaxInt64)
	f(false, "ip=1.2.3.4", "connection_creation_rate", math.MaxInt32+1)
	f(true, "ip=1.2.3.4", "connection_creation_rate", math.MaxInt32)
	for host, ok := range map[string]bool{
		"10.0.0.1": true, "::1": true, "fe80::1%eth0": true, "localhost": true, "a.example.org": true, "a.example.org.": true, "my_host": true,
		"300.1.1.1": false, "not a host": false, "-a": false, "a-.b": false, "a..b": false, ".": false, "ä": false, strings.Repeat("a", 64): false,
	} {
		f(ok, "ip="+host, "connection_creation_rate", 5)
	}
}

// The keys that are stored are those of RFC 7677's example.
func TestScramKeys(t *testing.T) {
	salt, err := base64.StdEncoding.DecodeString("W22ZaJ0SNY7soEsUEjb6gQ==")
	if err != nil {
		t.Fatal(err)
	}
	salted, err := pbkdf2.Key(sha256.New, "pencil", salt, 4096, sha256.Size)
	if err != nil {
		t.Fatal(err)
	}
	k := newCluster(t, bootstrap(33))
	req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	req.Upsertions = []kmsg.AlterUserSCRAMCredentialsRequestUpsertion{{Name: "user", Mechanism: 1, Iterations: 4096, Salt: salt, SaltedPassword: salted}}
	if r := k.at(req).(*kmsg.AlterUserSCRAMCredentialsResponse); len(r.Results) != 1 || r.Results[0].ErrorCode != 0 {
		t.Fatalf("%+v", r)
	}
	c := k.c.Image().Scram(metadata.ScramSHA256, "user")
	if got := base64.StdEncoding.EncodeToString(c.StoredKey); got != "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=" {
		t.Errorf("StoredKey %s", got)
	}
	if got := base64.StdEncoding.EncodeToString(c.ServerKey); got != "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=" {
		t.Errorf("ServerKey %s", got)
	}
	k.checkReplay()

	// Before 3.5-IV2 there is no record for them.
	old := newCluster(t, bootstrap(10))
	if r := old.at(req).(*kmsg.AlterUserSCRAMCredentialsResponse); r.Results[0].ErrorCode != kerr.UnsupportedVersion.Code || *r.Results[0].ErrorMessage != "The current metadata.version does not support SCRAM" {
		t.Errorf("%+v", r)
	}
}
