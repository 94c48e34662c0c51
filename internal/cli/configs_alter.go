package cli

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"hash"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// alterTimeout is how long kafka-configs waits for a change.
const alterTimeout = 30 * time.Second

var (
	scramMechanisms = map[string]int8{"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
	clientQuotas    = map[string]bool{"producer_byte_rate": true, "consumer_byte_rate": true, "request_percentage": true, "controller_mutation_rate": true}
	scramValue      = regexp.MustCompile(`^(?s)(?:iterations=(-?[0-9]*),)?password=(.*)$`)
)

// minIterations is the least that both mechanisms allow, and Kafka's default. The most is for the broker to refuse.
const minIterations = 4096

func (t *configsTool) alterConfig() error {
	kind, name := t.types[0], t.names[0]
	add, err := t.toAdd()
	if err != nil {
		return err
	}
	var del []string
	for _, s := range t.p.All(t.del) {
		del = append(del, strings.TrimSpace(s))
	}
	switch kind {
	case entityTopics, entityBrokers, entityClientMetrics, entityGroups:
		if err := t.alterResource(kind, name, add, del); err != nil {
			return err
		}
	case entityBrokerLoggers:
		if err := t.alterLoggers(name, add, del); err != nil {
			return err
		}
	case entityUsers, entityClients:
		if err := t.alterUsersAndClients(add, del); err != nil {
			return err
		}
	case entityIPs:
		var unknown []string
		for _, p := range add {
			if p.Key != "connection_creation_rate" {
				unknown = append(unknown, p.Key)
			}
		}
		for _, d := range del {
			if d != "connection_creation_rate" {
				unknown = append(unknown, d)
			}
		}
		if len(unknown) > 0 {
			return illegalArgument("Only connection quota configs can be added for 'ips' using --bootstrap-server. Unexpected config names: " + strings.Join(unknown, ","))
		}
		if err := t.alterQuotas(add, del); err != nil {
			return err
		}
	}
	if name != "" {
		t.e.Printf("Completed updating config for %s %s.\n", strings.TrimSuffix(kind, "s"), name)
	} else {
		t.e.Printf("Completed updating default config for %s in the cluster.\n", kind)
	}
	return nil
}

var resourceTypes = map[string]kmsg.ConfigResourceType{
	entityTopics: 2, entityBrokers: 4, entityBrokerLoggers: 8, entityClientMetrics: 16, entityGroups: 32,
}

// resourceNode is who must be asked about a resource: a broker about its own, anyone about others (-1).
func (t *configsTool) resourceNode(kind, name string) int32 {
	if kind != entityBrokers && kind != entityBrokerLoggers || name == "" || t.admin.controllers && kind == entityBrokers {
		return -1
	}
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return -1
	}
	return int32(id)
}

func (t *configsTool) alterResource(kind, name string, add []Property, del []string) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	rr := kmsg.NewIncrementalAlterConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = resourceTypes[kind], name
	for _, p := range add {
		rc := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		rc.Name, rc.Op, rc.Value = p.Key, kmsg.IncrementalAlterConfigOpSet, kmsg.StringPtr(p.Value)
		rr.Configs = append(rr.Configs, rc)
	}
	for _, d := range del {
		rc := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		rc.Name, rc.Op = d, kmsg.IncrementalAlterConfigOpDelete
		rr.Configs = append(rr.Configs, rc)
	}
	req.Resources = append(req.Resources, rr)
	const call = "incrementalAlterConfigs"
	var r kmsg.Response
	var err error
	if node := t.resourceNode(kind, name); node >= 0 {
		r, err = t.admin.broker(call, node, alterTimeout, req)
	} else {
		r, err = t.admin.controller(call, req)
	}
	if err != nil {
		var j *JavaError
		if errors.As(err, &j) && strings.HasSuffix(j.Class, ".UnsupportedVersionException") {
			return exception("UnsupportedVersionException", "The INCREMENTAL_ALTER_CONFIGS API is not supported by the cluster. The API is supported starting from version 2.3.0. You may want to use an older version of this tool to interact with your cluster, or upgrade your brokers to version 2.3.0 or newer to avoid this error.")
		}
		return executionError(err)
	}
	for _, res := range r.(*kmsg.IncrementalAlterConfigsResponse).Resources {
		if err := codeError(res.ErrorCode, res.ErrorMessage); err != nil {
			return executionError(err)
		}
	}
	return nil
}

func (t *configsTool) alterLoggers(name string, add []Property, del []string) error {
	all, err := t.resource(entityBrokerLoggers, name)
	if err != nil {
		return err
	}
	var invalid []string
	for _, d := range del {
		if _, ok := all[d]; !ok {
			invalid = append(invalid, d)
		}
	}
	for _, p := range add {
		if _, ok := all[p.Key]; !ok {
			invalid = append(invalid, p.Key)
		}
	}
	if len(invalid) > 0 {
		return exception("InvalidConfigurationException", "Invalid broker logger(s): "+strings.Join(invalid, ","))
	}
	return t.alterResource(entityBrokerLoggers, name, add, del)
}

func (t *configsTool) alterUsersAndClients(add []Property, del []string) error {
	var addScram []Property
	var delScram, addScramNames, addUnknown, delUnknown []string
	quotas := false
	for _, p := range add {
		switch {
		case scramMechanisms[p.Key] != 0:
			addScram = append(addScram, p)
			addScramNames = append(addScramNames, p.Key)
		case clientQuotas[p.Key]:
			quotas = true
		default:
			addUnknown = append(addUnknown, p.Key)
		}
	}
	for _, d := range del {
		switch {
		case scramMechanisms[d] != 0:
			delScram = append(delScram, d)
		case clientQuotas[d]:
			quotas = true
		default:
			delUnknown = append(delUnknown, d)
		}
	}
	unexpected := func(what, verb, kind string, names []string) error {
		if len(names) == 0 {
			return nil
		}
		return illegalArgument(fmt.Sprintf("Only %s configs can be %s for '%s' using --bootstrap-server. Unexpected config names: %s", what, verb, kind, strings.Join(names, ",")))
	}
	if t.types[0] == entityClients || len(t.types) == 2 {
		if err := unexpected("quota", "added", entityClients, append(addUnknown, addScramNames...)); err != nil {
			return err
		}
		if err := unexpected("quota", "deleted", entityClients, append(delUnknown, delScram...)); err != nil {
			return err
		}
	} else {
		if err := unexpected("quota and SCRAM credential", "added", entityUsers, addUnknown); err != nil {
			return err
		}
		if err := unexpected("quota and SCRAM credential", "deleted", entityUsers, delUnknown); err != nil {
			return err
		}
		if len(addScram)+len(delScram) > 0 {
			for _, n := range t.names {
				if n == "" {
					return illegalArgument("The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials using --bootstrap-server.")
				}
			}
			if quotas {
				return illegalArgument("Cannot alter both quota and SCRAM credential configs simultaneously for 'users' using --bootstrap-server.")
			}
		}
	}
	if quotas {
		return t.alterQuotas(add, del)
	}
	if len(t.names) != 1 {
		return &JavaError{Class: "java.lang.IllegalStateException", Text: fmt.Sprintf("Altering user SCRAM credentials should never occur for more zero or multiple users: [%s]", strings.Join(t.names, ", "))}
	}
	return t.alterScram(t.names[0], addScram, delScram)
}

// quotaEntity is Kafka's word for an entity type in quota requests.
var quotaEntity = map[string]string{entityUsers: "user", entityClients: "client-id", entityIPs: "ip"}

func (t *configsTool) alterQuotas(add []Property, del []string) error {
	old, err := t.quotas()
	if err != nil {
		return err
	}
	var invalid []string
	for _, d := range del {
		found := false
		if len(old) > 0 {
			for _, v := range old[0].Values {
				found = found || v.Key == d
			}
		}
		if !found {
			invalid = append(invalid, d)
		}
	}
	if len(invalid) > 0 {
		return exception("InvalidConfigurationException", "Invalid config(s): "+strings.Join(invalid, ","))
	}
	req := kmsg.NewPtrAlterClientQuotasRequest()
	re := kmsg.NewAlterClientQuotasRequestEntry()
	for i, kind := range t.types {
		ent := kmsg.NewAlterClientQuotasRequestEntryEntity()
		ent.Type = quotaEntity[kind]
		if t.names[i] != "" {
			ent.Name = kmsg.StringPtr(t.names[i])
		}
		re.Entity = append(re.Entity, ent)
	}
	for _, p := range add {
		v, err := strconv.ParseFloat(strings.TrimSpace(p.Value), 64)
		if err != nil {
			return illegalArgument(fmt.Sprintf("Cannot parse quota configuration value for %s: %s", p.Key, p.Value))
		}
		op := kmsg.NewAlterClientQuotasRequestEntryOp()
		op.Key, op.Value = p.Key, v
		re.Ops = append(re.Ops, op)
	}
	for _, d := range del {
		op := kmsg.NewAlterClientQuotasRequestEntryOp()
		op.Key, op.Remove = d, true
		re.Ops = append(re.Ops, op)
	}
	req.Entries = append(req.Entries, re)
	r, err := t.admin.controller("alterClientQuotas", req)
	if err != nil {
		return executionError(err)
	}
	for _, res := range r.(*kmsg.AlterClientQuotasResponse).Entries {
		if err := codeError(res.ErrorCode, res.ErrorMessage); err != nil {
			return executionError(err)
		}
	}
	return nil
}

func (t *configsTool) alterScram(user string, add []Property, del []string) error {
	req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	for _, d := range del {
		rd := kmsg.NewAlterUserSCRAMCredentialsRequestDeletion()
		rd.Name, rd.Mechanism = user, scramMechanisms[d]
		req.Deletions = append(req.Deletions, rd)
	}
	for _, p := range add {
		m := scramValue.FindStringSubmatch(p.Value)
		if m == nil {
			return illegalArgument(fmt.Sprintf("Invalid credential property %s=%s", strings.ReplaceAll(p.Key, "-", "_"), p.Value))
		}
		iterations := minIterations
		if m[1] != "" {
			n, err := strconv.ParseInt(m[1], 10, 32)
			if err != nil {
				return illegalArgument(fmt.Sprintf("For input string: \"%s\"", m[1]))
			}
			if n != -1 {
				iterations = int(n)
			}
		}
		if iterations < minIterations {
			return illegalArgument(fmt.Sprintf("Iterations %d is less than the minimum %d required for %s", iterations, minIterations, p.Key))
		}
		ru := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
		ru.Name, ru.Mechanism, ru.Iterations = user, scramMechanisms[p.Key], int32(iterations)
		salt, err := scramSalt()
		if err != nil {
			return err
		}
		ru.Salt = salt
		h, size := func() hash.Hash { return sha256.New() }, sha256.Size
		if p.Key == "SCRAM-SHA-512" {
			h, size = func() hash.Hash { return sha512.New() }, sha512.Size
		}
		if ru.SaltedPassword, err = pbkdf2.Key(h, m[2], salt, iterations, size); err != nil {
			return fmt.Errorf("salt the password: %w", err)
		}
		req.Upsertions = append(req.Upsertions, ru)
	}
	r, err := t.admin.controller("alterUserScramCredentials", req)
	if err != nil {
		return executionError(err)
	}
	for _, res := range r.(*kmsg.AlterUserSCRAMCredentialsResponse).Results {
		if err := codeError(res.ErrorCode, res.ErrorMessage); err != nil {
			return executionError(err)
		}
	}
	return nil
}

// scramSalt is a random number in base 36, as Kafka's formatter makes it.
func scramSalt() ([]byte, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 130))
	if err != nil {
		return nil, fmt.Errorf("draw a salt: %w", err)
	}
	return []byte(n.Text(36)), nil
}
