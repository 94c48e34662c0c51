// Package golden replays the cases in testdata/golden/tools against an implementation of Kafka's tools, and says what
// differs from what Apache Kafka 4.4 printed: exit status, standard output, standard error.
//
// A Runner knows how tools are called and where the cluster is; Replay runs one case and returns the differences. What two
// programs can't have in common is taken out of both sides first: log lines, Java stack traces, usage texts, addresses, and
// by the rules of the case ids, times and the like. Cluster starts the cluster that the cases were recorded on: three
// combined nodes of the real Kafka, formatted from testdata/golden/cluster.
//
// The test of this package replays the tools that are clients against that cluster. With -bootstrap it replays them against
// any other cluster, with -prefix any other tools:
//
//	go test ./test/golden -args -bootstrap 127.0.0.1:9092 -only topics/create
//
// The cases of tools that read or write only their own disk need no cluster; unit tests in internal/cli replay them within
// the process: storage, dump-log, server-start. Cases of tools that are not there yet are read by TestCases alone.
//
// Start reading at Runner in runner.go. The package's goroutines belong to the processes that it starts, and end with them.
package golden
