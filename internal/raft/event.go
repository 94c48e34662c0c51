package raft

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/internal/kafka"
)

// Event is something that happened to this replica. The types are below.
type Event interface{ event() }

// Tick says that time passed: it must come at the Deadline, and may come at any time.
type Tick struct{}

// Request is what another replica or a client asks. Msg is one of kmsg's VoteRequest, BeginQuorumEpochRequest,
// EndQuorumEpochRequest, FetchRequest, FetchSnapshotRequest, DescribeQuorumRequest, AddRaftVoterRequest,
// RemoveRaftVoterRequest, UpdateRaftVoterRequest; it is kept until answered and must not change.
type Request struct {
	ID       uint64 // chosen by the loop; the Reply bears it
	Listener string // on which listener it came: answers name endpoints of that listener
	Msg      kmsg.Request
}

// Response is the answer to a Send, or why there is none.
type Response struct {
	Corr uint64
	Msg  kmsg.Response // nil if Err is set
	Err  error
	// Batches says what is in a Fetch response's records, in order. Records that are no whole batch are not in it.
	Batches []BatchInfo
}

// BatchInfo is what the machine must know of a batch: where it stands, and the control records in it.
type BatchInfo struct {
	BaseOffset kafka.Offset
	LastOffset kafka.Offset
	Epoch      kafka.LeaderEpoch
	Size       int
	Control    []ControlAt // those that this package decodes, ascending by offset
}

// Flushed says that the log is durable up to EndOffset, exclusive.
type Flushed struct{ EndOffset kafka.Offset }

// SnapshotCreated says that this node wrote and froze a snapshot of its own, at or below the high watermark.
type SnapshotCreated struct{ ID kafka.OffsetAndEpoch }

// SnapshotFetched answers Persist.SnapshotChunk when it was the last: the file is complete, checked and in place, and
// holds these voters and this kraft.version, if any. If Err is set, the file was not a sound snapshot and is gone.
type SnapshotFetched struct {
	ID      kafka.OffsetAndEpoch
	Control []ControlRecord
	Err     error
}

// LogStart says that the log's prefix below Offset was deleted, and the snapshots older than the one at Offset.
type LogStart struct {
	Offset    kafka.Offset
	Snapshots []kafka.OffsetAndEpoch
}

// Resign asks a leader to give up its epoch, as Kafka's controller does when it cannot go on.
type Resign struct{ Epoch kafka.LeaderEpoch }

// Shutdown begins a graceful stop: a leader resigns and tells the voters who should follow it; nobody stands for
// election any more. Status().Stopped tells when it is over.
type Shutdown struct{ Timeout time.Duration }

func (Tick) event()            {}
func (Request) event()         {}
func (Response) event()        {}
func (Flushed) event()         {}
func (SnapshotCreated) event() {}
func (SnapshotFetched) event() {}
func (LogStart) event()        {}
func (Resign) event()          {}
func (Shutdown) event()        {}

// Ready is what must be done, in the order of its fields: all of Persist is durable before anything of Send or Reply
// leaves the node, else a restart could vote twice or a leader could count records that are lost (KIP-595).
type Ready struct {
	Persist Persist
	Send    []Send
	Reply   []Reply
	// HighWatermark is one past the last committed record; Committed tells that it moved.
	HighWatermark kafka.Offset
	Committed     bool
	// Role is set if role, epoch or leader changed.
	Role *RoleChange
	// Notes are for the log file, oldest first.
	Notes []Note
}

// Empty tells that there is nothing to do.
func (r *Ready) Empty() bool {
	return r.Persist.Empty() && len(r.Send) == 0 && len(r.Reply) == 0 && !r.Committed && r.Role == nil && len(r.Notes) == 0
}

// Persist is what must be on disk. It is done in the order of its fields; Flush comes last.
type Persist struct {
	Election      *Election // replace quorum-state, durably
	Truncate      *kafka.Offset
	SnapshotChunk *SnapshotChunk
	// ResetTo empties the log and lets it start and end at the snapshot, which is in place.
	ResetTo *kafka.OffsetAndEpoch
	Append  []Append
	// Flush: the log must be synced, and the loop says Flushed.
	Flush bool
}

// Empty tells that nothing is to be written.
func (p *Persist) Empty() bool {
	return p.Election == nil && p.Truncate == nil && p.SnapshotChunk == nil && p.ResetTo == nil && len(p.Append) == 0 && !p.Flush
}

// Append is one piece to append at the log's end. Either Raw is set (a follower's: whole batches as the leader sent
// them), or the loop builds one batch of Records or of Control records, uncompressed, with this epoch.
type Append struct {
	BaseOffset kafka.Offset
	LastOffset kafka.Offset
	Epoch      kafka.LeaderEpoch
	Timestamp  time.Time
	Records    [][]byte // values; keys are null
	Control    []ControlRecord
	Raw        []byte
}

// SnapshotChunk is a piece of a snapshot that is being fetched. Position 0 begins a new file. With Last the file is
// complete: check it, sync it, put it in its place, and answer SnapshotFetched.
type SnapshotChunk struct {
	ID       kafka.OffsetAndEpoch
	Position int64
	Data     []byte
	Last     bool
}

// Send is a request to another node. Exactly one Response with its Corr must come, if only with an error.
type Send struct {
	Corr uint64
	To   Node
	Msg  kmsg.Request
	// Timeout is controller.quorum.request.timeout.ms: after it the machine gives up the answer, the connection may too.
	Timeout time.Duration
}

// MinVersion is the lowest version in which a request means what it says. A pre-vote without its flag would be a vote; the
// sender must fail with UNSUPPORTED_VERSION where the receiver doesn't know version 2, and the machine goes without.
func MinVersion(m kmsg.Request) int16 {
	switch m := m.(type) {
	case *kmsg.VoteRequest:
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				if p.PreVote {
					return 2
				}
			}
		}
	case *kmsg.FetchRequest:
		return 12 // the last fetched epoch, by which logs are compared
	}
	return 0
}

// Reply is the answer to a Request. Before it leaves, the loop fills in what Read or Snapshot ask for.
type Reply struct {
	ID       uint64
	Msg      kmsg.Response
	Read     *Read         // Fetch: whole batches from Offset on go into RecordBatches
	Snapshot *SnapshotRead // FetchSnapshot: bytes go into UnalignedRecords, the file's size into Size
}

// Read is a range of the log. There may be fewer bytes; at least one batch is given, however large.
type Read struct {
	Offset   kafka.Offset
	MaxBytes int32
}

// SnapshotRead is a range of a snapshot file. If there is no such file the error is SNAPSHOT_NOT_FOUND, if Position is
// not inside of it POSITION_OUT_OF_RANGE.
type SnapshotRead struct {
	ID       kafka.OffsetAndEpoch
	Position int64
	MaxBytes int32
}

// RoleChange tells what this replica is from now on.
type RoleChange struct {
	Role   Role
	Epoch  kafka.LeaderEpoch
	Leader kafka.BrokerID // NoBroker if unknown
	// EpochStart is the offset of a leader's first record in its epoch, its LeaderChange. It may act as controller when
	// the high watermark is above and all below was taken in.
	EpochStart kafka.Offset
}

// Note is a line for the operator's log: constant text, then pairs of key and value as slog takes them.
type Note struct {
	Warn bool
	Text string
	Args []any
}
