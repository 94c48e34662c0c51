// Package compat holds black-box tests of a broker: real clients, the real Kafka's tools, and raw requests of every API in every
// version, judged by what the real Apache Kafka does.
//
// Each test runs against Highwater, or with -broker=kafka against the real thing: a test that Kafka does not pass judges nobody.
// What Kafka answers and prints stands in testdata, written by
//
//	go test ./test/compat -broker=kafka -record
//
// so that a run against Highwater needs no Kafka broker beside it, only Kafka's tools and clients. Differences that are meant
// stand in deviations_test.go, each with its reason.
//
// Start reading at TestMain in compat_test.go; the clients behind one interface are in driver_*_test.go. Goroutines belong to the
// clients; the processes end with the test.
package compat
