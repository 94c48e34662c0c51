package api

// DescribeUserScramCredentials, version 0 (KIP-554): which mechanisms users have, with how many iterations. Keys and salts
// are never told.

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/rpc"
)

// DescribeUserScramCredentials answers API 50 on a broker's listener.
func (b *Broker) DescribeUserScramCredentials(r *rpc.Request) *rpc.Pending {
	return describeScram(r, b.Image())
}

// DescribeUserScramCredentials answers API 50 on a controller's listener.
func (c *Controller) DescribeUserScramCredentials(r *rpc.Request) *rpc.Pending {
	return describeScram(r, c.Image())
}

func describeScram(r *rpc.Request, image *metadata.Image) *rpc.Pending {
	var req kmsg.DescribeUserSCRAMCredentialsRequest
	if !decode(r, &req) {
		return nil
	}
	resp := kmsg.NewPtrDescribeUserSCRAMCredentialsResponse()
	resp.ErrorMessage = new("")
	asked := make(map[string]int)
	var users []string
	for _, u := range req.Users {
		if asked[u.Name]++; asked[u.Name] == 1 {
			users = append(users, u.Name)
		}
	}
	if len(req.Users) == 0 { // all
		for c := range image.Scrams() {
			users = append(users, c.User)
		}
		slices.Sort(users)
		users = slices.Compact(users)
	}
	for _, user := range users {
		rr := kmsg.NewDescribeUserSCRAMCredentialsResponseResult()
		rr.User, rr.ErrorMessage = user, new("")
		var err error
		if asked[user] > 1 {
			err = kerr.DuplicateResource.With("Cannot describe SCRAM credentials for the same user twice in a single request: %s", user)
		} else {
			for _, m := range []metadata.ScramMechanism{metadata.ScramSHA256, metadata.ScramSHA512} {
				if c := image.Scram(m, user); c != nil {
					info := kmsg.NewDescribeUserSCRAMCredentialsResponseResultCredentialInfo()
					info.Mechanism, info.Iterations = int8(m), c.Iterations
					rr.CredentialInfos = append(rr.CredentialInfos, info)
				}
			}
			if rr.CredentialInfos == nil {
				err = kerr.ResourceNotFound.With("Attempt to describe a user credential that does not exist: %s", user)
			}
		}
		if err != nil {
			rr.ErrorCode, rr.ErrorMessage = kerr.Code(err), kerr.Message(err)
		}
		resp.Results = append(resp.Results, rr)
	}
	slices.SortFunc(resp.Results, func(a, b kmsg.DescribeUserSCRAMCredentialsResponseResult) int { return cmp.Compare(a.User, b.User) })
	respond(r, resp)
	return nil
}
