// Package server owns the connections of a node: listeners, limits, framing, the order of requests and answers,
// throttling, idle time. What a request means is the business of package api, reached through an rpc.Table.
//
// Guarantees
//   - No byte is allocated because a peer announced it: a frame's size is checked against MaxRequestBytes first, and
//     frames above 16 KB wait for the node's budget (QueuedBytes).
//   - Handlers of one connection run one after the other, in the order of the requests; answers leave in that order.
//     Waits overlap: a handler that returns a Pending does not keep the next request from being handled, up to MaxInFlight.
//   - All answers that are ready when no complete request is left go out in one write. A range of a file goes from the
//     page cache to the socket where the platform and the connection allow it, never more than announced; a file that
//     turns out shorter closes the connection.
//   - Memory of a connection is bounded whatever its peer does: its window and its gathered answers come from pools and go
//     back when they are empty, a peer that does not read stops being read from, and one that neither sends nor takes
//     anything for IdleTime is closed.
//
// Goroutines: one for each listener (accept.go) and one for each connection (conn.go), which reads, calls handlers, and
// writes; nobody else does. Who completes a Pending wakes it out of its read. Deadlines are one timing wheel (wheel.go).
// Server.Stop waits for all of them.
//
// Start reading at conn.go: serve is a connection's whole life.
package server
