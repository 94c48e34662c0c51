// Package sim runs clusters in one thread with a virtual clock, so that one seed gives one run, bit for bit. It runs the
// production code of the P and D packages, and the deterministic part of the loops: today the metadata quorum (package
// raftloop's Replicas on memory disks that lose power); brokers and clients are to join the same World.
//
// World has the clock, the event heap and the streams of random numbers, one a name, so that a draw more in one place does
// not shift all others. Net carries encoded requests and answers between Nodes and delays, drops, duplicates and cuts.
// A run draws a swarm Config first (sizes, versions, which faults, how often), lets the faults rage, then heals and demands
// progress. Checkers look at every step: check_*.go, one family of invariants a file, numbered as in docs/ARCHITECTURE.md.
// A violation stops the run with the seed and the last events; the same seed repeats it:
//
//	go test ./internal/sim -run TestRaft -seed=N
//
// What the simulator is worth is shown by mutants: raft.Mutant leaves out one rule of the protocol, and a run of some seeds
// must notice (TestRaftMutants).
//
// Start reading at world.go, then raft.go.
package sim
