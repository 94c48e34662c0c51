// Package controllerloop drives package controller: it owns the one goroutine in which the active controller decides.
//
// A Loop is told by the metadata log, in the log's order, who leads (Lead) and what is committed (Committed). While this
// node leads it has a controller.Controller, begun on the committed image. For each request it lets the Controller
// decide, proposes the records, replays them onto the Controller's working state and parks the answer until the log has
// committed them; nothing is told to anybody before. What was decided and not committed when another node takes over is
// dropped with the Controller, and its askers hear NOT_CONTROLLER.
//
// Decide may be called from any goroutine; its done is called once, on the Loop's goroutine, and must not block. Lead and
// Committed never block: they may be called under the metadata log's own lock. The Loop's goroutine ends with Close.
//
// Start reading at loop.go.
package controllerloop
