//go:build race

package api

// raceEnabled: with the race detector a sync.Pool forgets at random, so allocations say nothing.
const raceEnabled = true
