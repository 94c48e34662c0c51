package controller

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"hash"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/schema"
)

// Bounds of SCRAM iterations, the same for both mechanisms: Kafka's.
const (
	minScramIterations = 4096
	maxScramIterations = 16384
)

var (
	errScramTwice      = kerr.DuplicateResource.With("A user credential cannot be altered twice in the same request")
	errScramVersion    = kerr.UnsupportedVersion.With("The current metadata.version does not support SCRAM")
	errScramUser       = kerr.UnacceptableCredential.With("Username must not be empty")
	errScramMechanism  = kerr.UnsupportedSASLMechanism.With("Unknown SCRAM mechanism")
	errScramFew        = kerr.UnacceptableCredential.With("Too few iterations")
	errScramMany       = kerr.UnacceptableCredential.With("Too many iterations")
	errScramNotThere   = kerr.ResourceNotFound.With("Attempt to delete a user credential that does not exist")
	errScramNoPassword = kerr.UnacceptableCredential.With("The salted password must not be empty")
)

// AlterUserScramCredentials is API 51, version 0 (KIP-554): each user is changed or refused. The request carries the salted
// password; what is stored are the keys that follow from it, from which it cannot be computed.
func (c *Controller) AlterUserScramCredentials(x Context, req *kmsg.AlterUserSCRAMCredentialsRequest) Result {
	resp := req.ResponseKind().(*kmsg.AlterUserSCRAMCredentialsResponse)
	type fate struct {
		err error
		add Record
	}
	users := make(map[string]*fate)
	var order []string
	decide := func(user string, check func() (Record, error)) {
		f, seen := users[user]
		if !seen {
			f = new(fate)
			users[user] = f
			order = append(order, user)
			f.add, f.err = check()
			return
		}
		if f.err == nil {
			f.err = errScramTwice
		}
	}
	for i := range req.Deletions {
		d := &req.Deletions[i]
		decide(d.Name, func() (Record, error) { return c.deleteScram(d) })
	}
	for i := range req.Upsertions {
		u := &req.Upsertions[i]
		decide(u.Name, func() (Record, error) { return c.upsertScram(u) })
	}
	var records []Record
	for _, user := range order {
		f := users[user]
		out := kmsg.NewAlterUserSCRAMCredentialsResponseResult()
		out.User = user
		setError(&out.ErrorCode, &out.ErrorMessage, f.err)
		resp.Results = append(resp.Results, out)
		if f.err == nil {
			records = append(records, f.add)
		}
	}
	if len(records) > MaxRecords {
		return Result{Response: ErrorResponse(req, tooLarge)}
	}
	return atomic(records, resp)
}

func (c *Controller) checkScram(user string, mechanism int8) error {
	switch m := metadata.ScramMechanism(mechanism); {
	case !c.Image().MetadataVersion().Facts().ScramSupported:
		return errScramVersion
	case user == "":
		return errScramUser
	case m != metadata.ScramSHA256 && m != metadata.ScramSHA512:
		return errScramMechanism
	}
	return nil
}

func (c *Controller) deleteScram(d *kmsg.AlterUserSCRAMCredentialsRequestDeletion) (Record, error) {
	if err := c.checkScram(d.Name, d.Mechanism); err != nil {
		return Record{}, err
	}
	if c.Image().Scram(metadata.ScramMechanism(d.Mechanism), d.Name) == nil {
		return Record{}, errScramNotThere
	}
	return Record{&schema.RemoveUserScramCredentialRecord{Name: d.Name, Mechanism: d.Mechanism}, 0}, nil
}

func (c *Controller) upsertScram(u *kmsg.AlterUserSCRAMCredentialsRequestUpsertion) (Record, error) {
	if err := c.checkScram(u.Name, u.Mechanism); err != nil {
		return Record{}, err
	}
	switch {
	case u.Iterations < minScramIterations:
		return Record{}, errScramFew
	case u.Iterations > maxScramIterations:
		return Record{}, errScramMany
	case len(u.SaltedPassword) == 0:
		return Record{}, errScramNoPassword
	}
	stored, server := ScramKeys(metadata.ScramMechanism(u.Mechanism), u.SaltedPassword)
	return Record{&schema.UserScramCredentialRecord{
		Name: u.Name, Mechanism: u.Mechanism, Salt: slices.Clone(u.Salt), StoredKey: stored, ServerKey: server, Iterations: u.Iterations,
	}, 0}, nil
}

// ScramKeys are the keys that RFC 5802 derives from a salted password: StoredKey checks a client's proof, ServerKey signs
// the server's.
func ScramKeys(m metadata.ScramMechanism, saltedPassword []byte) (stored, server []byte) {
	h := func() hash.Hash { return sha256.New() }
	if m == metadata.ScramSHA512 {
		h = func() hash.Hash { return sha512.New() }
	}
	mac := func(text string) []byte {
		k := hmac.New(h, saltedPassword)
		k.Write([]byte(text))
		return k.Sum(nil)
	}
	digest := h()
	digest.Write(mac("Client Key"))
	return digest.Sum(nil), mac("Server Key")
}
