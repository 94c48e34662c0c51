// Package lifecycle decides what a broker tells the active controller and when: first a registration, then heartbeats that
// ask to be unfenced once the broker is ready, and to be let go when it stops. It performs nothing; package uplink sends
// what Next returns and hands back what was answered.
//
//	Starting ──registered, metadata caught up──► Recovery ──ready, unfenced by controller and own metadata──► Running
//	Running ──Stop──► PendingControlledShutdown ──controller lets go, or gave up──► ShuttingDown
//
// Invariants: one request at a time is out; a heartbeat never carries another incarnation's broker epoch; the broker says
// that it wants to be unfenced only after Ready.
package lifecycle
