package raft

import (
	"fmt"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/schema"
)

// ControlRecord is one of the control records of the metadata log that the protocol itself writes and reads:
// LeaderChange, KRaftVersion, Voters.
type ControlRecord interface{ control() }

// LeaderChange is the first record of each epoch: who leads, who votes, who voted for it.
type LeaderChange struct {
	Leader   kafka.BrokerID
	Voters   []ReplicaKey
	Granting []ReplicaKey
}

// KRaftVersion sets the feature kraft.version: 0 is voters by configuration, 1 voters by record.
type KRaftVersion int16

// Voters sets the voters. It counts from when it is appended, not from when it is committed.
type Voters struct{ Set VoterSet }

func (LeaderChange) control() {}
func (KRaftVersion) control() {}
func (Voters) control()       {}

// ControlAt is a control record in the log. What stands in a snapshot has the snapshot's last offset.
type ControlAt struct {
	Offset kafka.Offset
	Record ControlRecord
}

// Election is the content of the file quorum-state.
type Election struct {
	Epoch  kafka.LeaderEpoch
	Leader kafka.BrokerID // NoBroker if unknown
	// Voted is who got this node's vote in Epoch; its ID is NoBroker if nobody did.
	Voted ReplicaKey
	// KRaftVersion chooses the format: at 0 the file has the voters' ids, from 1 on the directory of Voted.
	KRaftVersion int16
	Voters       []kafka.BrokerID
}

// Types of control records, in their keys.
const (
	TypeLeaderChange = 2
	TypeKRaftVersion = 5
	TypeVoters       = 6
)

// EncodeControl is a control record's type, for its key, and its value. All are written at version 0, as Kafka does.
func EncodeControl(c ControlRecord) (typ int16, value []byte) {
	var err error
	switch c := c.(type) {
	case LeaderChange:
		m := schema.NewLeaderChangeMessage()
		m.LeaderID = int32(c.Leader)
		for _, v := range c.Voters {
			m.Voters = append(m.Voters, schema.LeaderChangeMessageVoter{VoterID: int32(v.ID)})
		}
		for _, v := range c.Granting {
			m.GrantingVoters = append(m.GrantingVoters, schema.LeaderChangeMessageVoter{VoterID: int32(v.ID)})
		}
		typ = TypeLeaderChange
		value, err = m.AppendTo(nil, 0)
	case KRaftVersion:
		m := schema.NewKRaftVersionRecord()
		m.KRaftVersion = int16(c)
		typ = TypeKRaftVersion
		value, err = m.AppendTo(nil, 0)
	case Voters:
		m := schema.NewVotersRecord()
		for _, v := range c.Set.Voters() {
			r := schema.VotersRecordVoter{VoterID: int32(v.Key.ID), VoterDirectoryID: v.Key.Directory}
			for _, e := range v.Endpoints {
				r.Endpoints = append(r.Endpoints, schema.VotersRecordEndpoint{Name: e.Listener, Host: e.Host, Port: e.Port})
			}
			r.KRaftVersionFeature.MinSupportedVersion, r.KRaftVersionFeature.MaxSupportedVersion = v.MinKRaft, v.MaxKRaft
			m.Voters = append(m.Voters, r)
		}
		typ = TypeVoters
		value, err = m.AppendTo(nil, 0)
	}
	if err != nil {
		panic(err) // a field that version 0 lacks; there is none
	}
	return typ, value
}

// DecodeControl reads a control record. A type that is none of the three gives nil.
func DecodeControl(typ int16, value []byte) (ControlRecord, error) {
	switch typ {
	case TypeLeaderChange:
		m := schema.NewLeaderChangeMessage()
		if err := decode(m, value, 1); err != nil {
			return nil, fmt.Errorf("leader change record: %w", err)
		}
		c := LeaderChange{Leader: kafka.BrokerID(m.LeaderID)}
		for _, v := range m.Voters {
			c.Voters = append(c.Voters, ReplicaKey{ID: kafka.BrokerID(v.VoterID), Directory: v.VoterDirectoryID})
		}
		for _, v := range m.GrantingVoters {
			c.Granting = append(c.Granting, ReplicaKey{ID: kafka.BrokerID(v.VoterID), Directory: v.VoterDirectoryID})
		}
		return c, nil
	case TypeKRaftVersion:
		m := schema.NewKRaftVersionRecord()
		if err := decode(m, value, 0); err != nil {
			return nil, fmt.Errorf("kraft version record: %w", err)
		}
		return KRaftVersion(m.KRaftVersion), nil
	case TypeVoters:
		m := schema.NewVotersRecord()
		if err := decode(m, value, 0); err != nil {
			return nil, fmt.Errorf("voters record: %w", err)
		}
		var set VoterSet
		for _, v := range m.Voters {
			w := Voter{Key: ReplicaKey{kafka.BrokerID(v.VoterID), v.VoterDirectoryID},
				MinKRaft: v.KRaftVersionFeature.MinSupportedVersion, MaxKRaft: v.KRaftVersionFeature.MaxSupportedVersion}
			for _, e := range v.Endpoints {
				w.Endpoints = append(w.Endpoints, Endpoint{e.Name, e.Host, e.Port})
			}
			set = set.With(w)
		}
		return Voters{set}, nil
	}
	return nil, nil
}

// decode reads a message whose first field is the version that it has, at most max.
func decode(m interface {
	ReadFrom(src []byte, version int16) ([]byte, error)
}, value []byte, max int16) error {
	if len(value) < 2 {
		return fmt.Errorf("%d bytes", len(value))
	}
	version := int16(value[0])<<8 | int16(value[1])
	// Newer versions only add tagged fields to what is read here; Kafka reads them at the highest that it knows too.
	_, err := m.ReadFrom(value, min(version, max))
	return err
}
