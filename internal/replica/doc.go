// Package replica joins what a partition needs on this broker: its log (package storage), the decisions of its leader or
// follower (package replication), and those who wait for it. Replica is one partition, Set is all of this broker's.
//
// Replica.mu is the partition's one lock; under it are the append, the leader's state, the acks that wait and the long
// polls that watch. The buffered write of an append happens under it; a sync, a sleep or a callback never does: those who
// watch are told after it is given back. Readers don't take it: what they need (log, role, high watermark) is atomic.
//
// Locks are taken in the order Set.mu, Replica.mu. There is no goroutine here, and no clock: time comes in as now.
//
// Start reading at Replica.Append, then Replica.unlockAndApply, which is the only place where the high watermark moves, and
// Replica.Read; Set.Apply shows how a metadata change arrives.
package replica
