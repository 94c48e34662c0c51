// Package chaos holds black-box tests that are unkind to a node: it is killed again and again under load, and given what it must
// refuse. What was acknowledged must be there afterwards, once and in order.
//
//	go test ./test/chaos -rounds=200      the long run
//	go test ./test/chaos -broker=kafka    the same of the real Kafka, to judge the test itself
//
// Start reading at TestKill. Its producers' goroutines end before the log is read back.
package chaos
