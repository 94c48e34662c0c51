// Package arch holds the tests that keep the tree as docs/ARCHITECTURE.md says it is: who may import whom, which packages are
// pure or deterministic, that every package says what it is, and that no file bears a name, a size or a word that it must not.
//
// Start reading at packages in table_test.go: a new package gets a row there. The tests read sources and what `go list` says;
// they run nothing and start no goroutine.
package arch
