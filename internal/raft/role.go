package raft

// Role is what a replica is in its current epoch.
//
// Who becomes what:
//
//	Unattached   → Prospective  the election timeout passed, and this node is a voter
//	Prospective  → Candidate    a majority would vote for it (pre-vote, KIP-996)
//	             → Follower or Unattached  it would not, or timed out
//	Candidate    → Leader       a majority voted for it
//	             → Prospective  it lost or timed out, after a backoff
//	Leader       → Resigned     stopping, asked to, or no majority fetched for 1.5 fetch timeouts
//	Resigned     → Unattached   in the next epoch, after the election timeout
//	Follower     → Prospective  the leader was silent for a fetch timeout
//	any          → Unattached, Follower  a higher epoch was seen
//
// A node that is no voter only goes between Unattached and Follower, but answers votes: a voter set that it has not
// fetched yet may name it.
type Role int8

// The roles.
const (
	Unattached Role = iota
	Prospective
	Candidate
	Leader
	Follower
	Resigned
)

// String is the role as Kafka's metric current-state prints it.
func (r Role) String() string {
	return [...]string{"unattached", "prospective", "candidate", "leader", "follower", "resigned"}[r]
}
