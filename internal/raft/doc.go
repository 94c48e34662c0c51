// Package raft is Kafka's KRaft protocol as a pure state machine: it decides who leads __cluster_metadata-0, what of the
// log is committed, and what its replicas say to each other (KIP-595, 630, 853, 996, 1166). It performs nothing.
//
// The contract is that of every pure machine of the project. Step applies one event; Ready says what must be done about
// it, and in which order; Deadline is when a Tick must come even if nothing else happens. Package raftloop does what
// Ready asks, with one function that serves the simulator too.
//
// Replication is pull: followers and observers send Fetch, the leader answers with batches, with the point where their
// log diverges, or with the id of a snapshot to fetch first. What it never does:
//
//   - answer a vote, or act in an epoch, before that epoch and vote are on disk (Ready.Persist comes before Send, Reply);
//   - count an offset that is not flushed, its own or a voter's, into the high watermark;
//   - commit an older epoch's records before a record of its own epoch is on a majority (Raft, figure 8);
//   - truncate below the high watermark.
//
// The machine knows of the log only its ends, the starts of its epochs, its snapshots' ids and the control records in
// it (LogState); bytes stay with the loop, which tells with each Fetch response what batches are in it.
//
// Start reading at Raft in raft.go; then event.go for what goes in and comes out, request.go for the server's side,
// response.go for the client's side, leader.go for the high watermark, voters.go for membership.
package raft
