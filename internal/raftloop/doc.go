// Package raftloop is this node's replica of __cluster_metadata-0: log, snapshots and quorum-state on disk, and the loop
// that drives the pure protocol of package raft. Controller and brokers of one process share it: one log, one delivery.
//
// Replica is deterministic: it has no goroutine and no clock, touches the disk through a vfs.FS, and does what raft.Ready
// asks in its one function apply, in the order persist, send, commit. The simulator drives Replicas. Loop owns one
// goroutine around a Replica: an inbox for messages, a timer for the Deadline, a stop. Loop's methods are safe for
// concurrent use; callbacks run on its goroutine, in log order, and must be quick.
//
// Propose takes only the lock around the pure machine, never waits for the disk, and tells the offset at once; what was
// proposed while the disk syncs goes out together in the next write. That is the group commit.
//
// Files, as Kafka names and writes them: quorum-state, <offset>-<epoch>.checkpoint, and the log's segments, all in
// metadata.log.dir/__cluster_metadata-0. A checkpoint is written as .part, synced, renamed; an unsound one is never used.
//
// Start reading at Loop in loop.go, then replica.go.
package raftloop
