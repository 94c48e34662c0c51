package sim

import (
	"fmt"
	"testing"

	"github.com/highwater/highwater/internal/raft"
)

// TestRaftMutants breaks one rule of the protocol at a time and runs seeds until an invariant tells. A mutant that lives
// through all of them means that the simulator is blind to that rule.
func TestRaftMutants(t *testing.T) {
	most := 200
	for _, m := range []struct {
		name   string
		mutant raft.Mutant
		// change makes the faults more likely that show it.
		change func(*RaftConfig)
	}{
		{"VoteNotPersisted", raft.VoteNotPersisted, nil},
		{"CountUnflushed", raft.CountUnflushed, nil},
		{"NoOwnEpochRule", raft.NoOwnEpochRule, nil},
		{"TwoVotes", raft.TwoVotes, nil},
		{"TruncateCommitted", raft.TruncateCommitted, nil},
		{"NoDivergenceCheck", raft.NoDivergenceCheck, nil},
		{"FetchUnflushed", raft.FetchUnflushed, nil},
		{"CountRemovedVoter", raft.CountRemovedVoter, nil},
		{"StaleElectionResponse", raft.StaleElectionResponse, nil},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(most) {
				_, _, err := run(seed+1, func(c *RaftConfig) {
					c.Mutant = m.mutant
					if m.change != nil {
						m.change(c)
					}
				}, nil, nil)
				if err != nil {
					t.Logf("noticed by seed %d: %v", seed+1, err)
					return
				}
			}
			t.Error(fmt.Sprintf("%d seeds did not notice", most))
		})
	}
}
