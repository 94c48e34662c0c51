// Package peer sends requests to other nodes: to controllers, brokers, and the members of the quorum.
//
// A Client has one connection for each Endpoint that it was asked to talk to, made when there is something to send and
// made again, after a back-off, when it broke. Host names are resolved at each attempt. A connection begins with
// ApiVersions; each request goes out in the highest version that both sides and the caller's range allow. Requests are
// pipelined and answers matched by their correlation id.
//
// Guarantees
//   - Send never blocks, and calls done exactly once: with the answer, or with an error no later than the timeout (give
//     or take the scheduler). Nothing is sent twice: who wants to try again does so.
//   - A request without an answer in time costs its connection, as in Kafka: what the peer does with the rest is not known.
//   - Calls waiting for one endpoint are bounded (MaxQueued); one more fails at once.
//   - An answer is bounded in size before it is read, and checked before it is decoded.
//
// Goroutines: one for each endpoint (link.run), which connects, writes and keeps the deadlines, one for each connection
// that reads, and one while connecting. Client.Close ends them and waits. done is called on them: it must not block.
//
// Start reading at link.go.
package peer
