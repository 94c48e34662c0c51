// Command perf measures what a broker costs: it runs Highwater, a null broker and, where a JVM is, the real Apache Kafka, gives each
// the same load in turn, counts the CPU seconds of each from /proc, and prints a table of ratios. One command:
//
//	go run ./test/perf             everything, some minutes
//	go run ./test/perf -short      a minute, without Kafka
//
// The load is frames that were encoded once and are replayed over raw connections, so that the client's own work stays small.
// Rounds are interleaved and the median counts: on one machine two runs half an hour apart differ by a fifth, two peers in one run
// do not. See rows.go for what is measured under load and trials.go for what else is, load.go for the load, null for the null broker. Goroutines belong to one load each and
// end with it; the brokers end with the program.
package main
