package raftloop

import (
	"errors"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raft"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/vfs"
)

// What tools need that read the metadata log's files without opening them as a replica. Nothing here writes.

// Names of leftovers in the metadata log's directory.
const (
	PartSuffix    = partSuffix                       // of a snapshot that was not finished
	DeletedSuffix = checkpointSuffix + deletedSuffix // of a snapshot that is to be removed
)

// ReadCheckpoint reads a whole snapshot or bootstrap checkpoint by its file's name, and checks it: frames, checksums, header,
// footer. each gets its batches of records, whose memory is valid until it returns. KRaftVersion and Voters are of the header.
func ReadCheckpoint(fsys vfs.FS, name string, id kafka.OffsetAndEpoch, each func(Batch) error) (kraftVersion int16, voters raft.VoterSet, err error) {
	r, err := openSnapshotFile(fsys, name, id)
	if err != nil {
		return 0, raft.VoterSet{}, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		b, ok, err := r.Next()
		if err == nil && ok {
			err = each(b)
		}
		if err != nil || !ok {
			return r.KRaftVersion, r.Voters, err
		}
	}
}

// Inspected is what a batch of the metadata log holds: records, or control records as raft knows them.
type Inspected struct {
	Batch
	Control []raft.ControlAt
}

// InspectBatch checks one batch of the metadata log. Values are valid as long as b is, unless it is compressed.
func InspectBatch(b record.Batch) (Inspected, error) {
	info, err := inspect(b)
	if err != nil {
		return Inspected{}, err
	}
	p, err := payload(b)
	return Inspected{Batch: p, Control: info.Control}, err
}
