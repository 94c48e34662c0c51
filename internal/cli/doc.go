// Package cli has the command-line tools: Kafka's, under Kafka's names and options, and a few of our own.
//
// One binary is all of them. Main looks at the name it was called by (kafka-topics.sh, kafka-topics) or at its first word
// (highwater topics …), finds the tool in the table in tools.go and runs it. A tool is a function from an Env to an exit
// status; it prints what Kafka's tool prints, on the same stream, and exits with the same status. A Java stack trace is
// never printed, the line that heads it is: "java.util.concurrent.ExecutionException: org.apache.kafka…: text" is what
// scripts look for.
//
// To add a tool: one file named for it (perf_producer.go for the producer perf test: a name that ends in _test.go means
// something to Go), one line in tools.go. Options are parsed by one of two parsers, since Kafka uses two: options.go reads
// and complains as joptsimple does, argparse.go as argparse4j. Properties of clients are in properties.go (the file format)
// and clientconf.go (names, types, ranges); client.go turns them into a franz-go client; admin.go asks brokers and
// controllers with Kafka's time-outs and exceptions.
//
// Start a tool's reading in its Run function. Goroutines belong to the clients that a tool makes and end with them; a
// tool's context ends on SIGINT and SIGTERM. Nothing at package level costs time: each tool starts in a few milliseconds.
package cli
