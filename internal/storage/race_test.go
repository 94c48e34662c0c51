//go:build race

package storage

// underRace tells long tests of one goroutine, in which there is no race to find, to be content with a part of their seeds.
const underRace = true
