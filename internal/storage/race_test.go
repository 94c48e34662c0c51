//go:build race

package storage

import (
	"os"
	"runtime/debug"
	"testing"
)

// underRace tells long tests of one goroutine, in which there is no race to find, to be content with a part of their seeds.
const underRace = true

// TestMain lets garbage be collected more seldom: what the race detector does at each collection took half of the time of these tests.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
