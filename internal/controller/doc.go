// Package controller decides every change of a cluster's metadata: topics and partitions, leaders and in-sync replicas,
// brokers and controllers, configs, features, producer ids. It is KRaft's active controller without its disk and clock.
//
// An operation is a method of Controller that takes a request and the time and gives a Result: records for the metadata
// log, and the response that is due when they are committed. It changes no metadata: the records do, when they are
// replayed with Apply, in the order of the log. So the working state is the committed Image with the records in flight
// replayed onto it, and each decision sees those before it. Beside the metadata a Controller keeps only what dies with
// its epoch: when it last heard from each broker, and when the periodic decisions are due.
//
// A Controller lives for one epoch: New when this node becomes leader of the quorum, dropped when it is no longer. What
// it decided and the quorum did not commit is forgotten with it.
//
// Errors are Kafka's: code and message, for the whole request or for the topic, partition or resource at fault.
// Authorization is the caller's; Context has functions by which it tells what the principal may do.
//
// The package is pure: no goroutine, lock, clock or random of its own, and no result depends on the order of a map.
// Partitions of a broker are found by going through all of them (about 20 ns each): less state that could be wrong, and
// rare enough. Start reading at controller.go, then topics.go, change.go (who leads, who is in sync) and brokers.go.
package controller
