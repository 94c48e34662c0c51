// Package takeover holds black-box tests of a data directory that Kafka and Highwater share: Highwater starts on what Apache
// Kafka wrote, of this release and of older ones, must find everything, writes more, stops or is killed; then Kafka starts on
// that, must find everything and complain of nothing; and back again.
//
// The directories are those of testdata/data, with Kafka's own answers beside them, and some that the real Kafka writes afresh
// under a random load (a failure prints the seed; -seed repeats it). The Java program Answers asks either broker the same
// questions with Kafka's own client.
//
//	go test ./test/takeover -run TestTakeOver/single-4.4
//	go test ./test/takeover -run TestRandom -seed=7 -rounds=20
//
// Start reading at TestTakeOver. Goroutines end with the test that starts them.
package takeover
