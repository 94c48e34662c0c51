//go:build race

package server

// raceEnabled: with the race detector a sync.Pool forgets at random, so allocations say nothing.
const raceEnabled = true
