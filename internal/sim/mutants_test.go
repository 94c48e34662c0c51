package sim

import (
	"testing"

	"github.com/highwater/highwater/internal/raft"
)

// TestRaftMutants breaks one rule of the protocol at a time and runs seeds until an invariant tells. A mutant that lives
// through all of them means that the simulator is blind to that rule.
func TestRaftMutants(t *testing.T) {
	const most = 200
	for _, m := range []struct {
		name   string
		mutant raft.Mutant
	}{
		{"VoteNotPersisted", raft.VoteNotPersisted},
		{"CountUnflushed", raft.CountUnflushed},
		{"NoOwnEpochRule", raft.NoOwnEpochRule},
		{"TwoVotes", raft.TwoVotes},
		{"TruncateCommitted", raft.TruncateCommitted},
		{"NoDivergenceCheck", raft.NoDivergenceCheck},
		{"FetchUnflushed", raft.FetchUnflushed},
		{"CountRemovedVoter", raft.CountRemovedVoter},
		{"StaleElectionResponse", raft.StaleElectionResponse},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(most) {
				_, _, err := run(seed+1, func(c *RaftConfig) { c.Mutant = m.mutant }, nil, nil)
				if err != nil {
					t.Logf("noticed by seed %d: %v", seed+1, err)
					return
				}
			}
			t.Errorf("%d seeds did not notice", most)
		})
	}
}
