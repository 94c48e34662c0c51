// Package replication decides how one partition replicates. It performs nothing: every method takes values and `now` and
// returns what package replica must do. Leader is the leader's side: what each follower has, the in-sync replicas, when
// the high watermark moves, when an append may be acknowledged. Follower is the other side: what to do with the answer to
// a fetch.
//
// Start reading at Leader.FollowerFetched and Leader.advance: the high watermark moves in that one function.
//
// Invariants (numbers of docs/ARCHITECTURE.md):
//
//	I1  highWatermark <= logEnd, and it never moves back while this broker leads.
//	I2  highWatermark <= the end offset of every member of the maximal ISR: the committed ISR and every member that an
//	    AlterPartition under way would add. So a replica that the controller may elect has every committed record.
//	I3  the high watermark stands still while the ISR has fewer members than min.insync.replicas (KIP-966).
//	I4  at most one AlterPartition is under way.
package replication
