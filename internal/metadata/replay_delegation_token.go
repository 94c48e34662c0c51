package metadata

import (
	"slices"

	"github.com/highwater/highwater/internal/schema"
)

// DelegationTokenRecord: a token is made or, by the same record with another expiration, renewed.
func (d *Delta) replayDelegationToken(r *schema.DelegationTokenRecord) error {
	d.img.tokens.Set(r.TokenID, &DelegationToken{
		ID: r.TokenID, Owner: r.Owner, Requester: r.Requester, Renewers: slices.Clone(r.Renewers),
		Issued: r.IssueTimestamp, MaxTime: r.MaxTimestamp, Expiration: r.ExpirationTimestamp,
	})
	d.changes.tokens.Insert(r.TokenID)
	return nil
}
