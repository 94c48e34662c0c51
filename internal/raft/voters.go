package raft

import (
	"slices"
	"strconv"
	"strings"

	"github.com/highwater/highwater/internal/kafka"
)

// ReplicaKey names a replica of the quorum: a node and its metadata directory. The directory is zero where it is not
// known, as with controller.quorum.voters; then it matches any.
type ReplicaKey struct {
	ID        kafka.BrokerID
	Directory kafka.DirectoryID
}

// Matches tells whether k, as written in a voter set, is the replica other.
func (k ReplicaKey) Matches(other ReplicaKey) bool {
	return k.ID == other.ID && (k.Directory.IsZero() || k.Directory == other.Directory)
}

// Endpoint is where a voter listens, by listener name.
type Endpoint struct {
	Listener string
	Host     string
	Port     uint16
}

// Node is where a message goes. Bootstrap servers have ids from -2 downwards, as their real one is unknown.
type Node struct {
	ID   kafka.BrokerID
	Host string
	Port uint16
}

// Voter is one member of a VoterSet.
type Voter struct {
	Key       ReplicaKey
	Endpoints []Endpoint
	// MinKRaft and MaxKRaft are the levels of kraft.version that its software knows.
	MinKRaft, MaxKRaft int16
}

func endpointOf(es []Endpoint, listener string) (Endpoint, bool) {
	for _, e := range es {
		if strings.EqualFold(e.Listener, listener) {
			return e, true
		}
	}
	return Endpoint{}, false
}

// VoterSet is who votes, ascending by id. It is immutable: changes make a new one.
type VoterSet struct{ voters []Voter }

// NewVoterSet makes a set; of several voters with one id the last is taken.
func NewVoterSet(voters ...Voter) VoterSet {
	var s VoterSet
	for _, v := range voters {
		s = s.With(v)
	}
	return s
}

// Len is the number of voters.
func (s VoterSet) Len() int { return len(s.voters) }

// Voters are the members, ascending by id; not to be changed.
func (s VoterSet) Voters() []Voter { return s.voters }

// Get is the voter of that id.
func (s VoterSet) Get(id kafka.BrokerID) (Voter, bool) {
	i, ok := s.find(id)
	if !ok {
		return Voter{}, false
	}
	return s.voters[i], true
}

func (s VoterSet) find(id kafka.BrokerID) (int, bool) {
	return slices.BinarySearchFunc(s.voters, id, func(v Voter, id kafka.BrokerID) int { return int(v.Key.ID) - int(id) })
}

// Contains tells whether this very replica is a voter.
func (s VoterSet) Contains(k ReplicaKey) bool {
	v, ok := s.Get(k.ID)
	return ok && v.Key.Matches(k)
}

// Node is where the voter listens for the quorum.
func (s VoterSet) Node(id kafka.BrokerID, listener string) (Node, bool) {
	v, ok := s.Get(id)
	if !ok {
		return Node{}, false
	}
	e, ok := endpointOf(v.Endpoints, listener)
	return Node{id, e.Host, e.Port}, ok
}

// With is the set with v added, or in the place of the voter of that id.
func (s VoterSet) With(v Voter) VoterSet {
	out := slices.Clone(s.voters)
	if i, ok := s.find(v.Key.ID); ok {
		out[i] = v
	} else {
		out = slices.Insert(out, i, v)
	}
	return VoterSet{out}
}

// Without is the set without the voter of that id.
func (s VoterSet) Without(id kafka.BrokerID) VoterSet {
	out := slices.Clone(s.voters)
	if i, ok := s.find(id); ok {
		out = slices.Delete(out, i, i+1)
	}
	return VoterSet{out}
}

// Equal compares members, endpoints and versions.
func (s VoterSet) Equal(o VoterSet) bool {
	return slices.EqualFunc(s.voters, o.voters, func(a, b Voter) bool { return a.equal(b) })
}

func (v Voter) equal(o Voter) bool {
	return v.Key == o.Key && v.MinKRaft == o.MinKRaft && v.MaxKRaft == o.MaxKRaft && slices.Equal(v.Endpoints, o.Endpoints)
}

// String is the set as Kafka's messages name it.
func (s VoterSet) String() string {
	var b strings.Builder
	b.WriteByte('[')
	for i, v := range s.voters {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(v.Key.String())
	}
	b.WriteByte(']')
	return b.String()
}

// String is the key as Kafka's messages name it.
func (k ReplicaKey) String() string {
	directory := "<undefined>"
	if !k.Directory.IsZero() {
		directory = k.Directory.String()
	}
	return "ReplicaKey(id=" + strconv.Itoa(int(k.ID)) + ", directoryId=" + directory + ")"
}
