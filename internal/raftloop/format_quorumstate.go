package raftloop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raft"
	"github.com/highwater/highwater/internal/schema"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
)

// QuorumStateFile is the name of the file that holds epoch, leader and vote.
const QuorumStateFile = "quorum-state"

// maxQuorumState bounds the file before it is read; a voter takes some 20 bytes of it.
const maxQuorumState = 1 << 20

// AppendQuorumState writes the file's one line: version 0 with the voters' ids while kraft.version is 0, else version 1
// with the directory of the vote.
func AppendQuorumState(dst []byte, e raft.Election) []byte {
	s := schema.NewQuorumStateData()
	s.LeaderID, s.LeaderEpoch, s.VotedID = int32(e.Leader), int32(e.Epoch), int32(e.Voted.ID)
	version := int16(0)
	if e.KRaftVersion > 0 {
		version = 1
		s.VotedDirectoryID = e.Voted.Directory
	} else {
		for _, id := range e.Voters {
			s.CurrentVoters = append(s.CurrentVoters, schema.QuorumStateDataVoter{VoterID: int32(id)})
		}
	}
	dst = s.AppendJSON(dst, version)
	return fmt.Appendf(dst[:len(dst)-1], `,"data_version":%d}`, version)
}

// ParseQuorumState reads the file.
func ParseQuorumState(data []byte) (raft.Election, error) {
	var s struct {
		DataVersion      *int16  `json:"data_version"`
		LeaderID         int32   `json:"leaderId"`
		LeaderEpoch      *int32  `json:"leaderEpoch"`
		VotedID          *int32  `json:"votedId"`
		VotedDirectoryID *string `json:"votedDirectoryId"`
		CurrentVoters    []struct {
			VoterID int32 `json:"voterId"`
		} `json:"currentVoters"`
	}
	s.LeaderID = int32(kafka.NoBroker)
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&s); err != nil {
		return raft.Election{}, err
	}
	if s.DataVersion == nil || *s.DataVersion < 0 {
		return raft.Election{}, errors.New("data_version is missing or negative")
	}
	if *s.DataVersion > 1 {
		return raft.Election{}, fmt.Errorf("data_version: %w", &storage.VersionError{Version: strconv.Itoa(int(*s.DataVersion))})
	}
	if s.LeaderEpoch == nil || *s.LeaderEpoch < 0 {
		return raft.Election{}, errors.New("leaderEpoch is missing or negative")
	}
	e := raft.Election{Epoch: kafka.LeaderEpoch(*s.LeaderEpoch), Leader: kafka.BrokerID(s.LeaderID), KRaftVersion: *s.DataVersion}
	e.Voted.ID = kafka.NoBroker
	if s.VotedID != nil {
		e.Voted.ID = kafka.BrokerID(*s.VotedID)
	}
	if s.VotedDirectoryID != nil && e.Voted.ID != kafka.NoBroker {
		id, err := kafka.ParseUUID(*s.VotedDirectoryID)
		if err != nil {
			return raft.Election{}, fmt.Errorf("votedDirectoryId: %w", err)
		}
		e.Voted.Directory = id
	}
	for _, v := range s.CurrentVoters {
		e.Voters = append(e.Voters, kafka.BrokerID(v.VoterID))
	}
	return e, nil
}

func readQuorumState(fsys vfs.FS, dir string) (raft.Election, error) {
	name := dir + "/" + QuorumStateFile
	data, err := fsys.ReadFile(name, maxQuorumState)
	if errors.Is(err, fs.ErrNotExist) {
		return raft.Election{Leader: kafka.NoBroker, Voted: raft.ReplicaKey{ID: kafka.NoBroker}}, nil
	}
	if err != nil {
		return raft.Election{}, fmt.Errorf("read %s: %w", name, err)
	}
	e, err := ParseQuorumState(data)
	if err != nil {
		return raft.Election{}, storage.Corrupt(name, err)
	}
	return e, nil
}
