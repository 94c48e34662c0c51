// Package peer runs brokers as processes for black-box tests and benchmarks: the real Apache Kafka and Highwater, through one
// interface, so that every test that judges Highwater can first be run against Kafka itself.
//
// A Node is one formatted combined node on 127.0.0.1 with a directory of its own; Start, Stop and Kill may be called over and
// over. A JVM holds Kafka's own tools and our one-file Java clients warm (Tools). The real Kafka's jars come from the Maven
// registry by the script install beside this file, into the user's cache directory; the scripts kafka and cluster do by hand
// what this package does from Go.
//
// Start reading at Node in peer.go. The package's goroutines only wait for the processes that they belong to, and end with them.
package peer
