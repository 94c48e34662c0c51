// Package storageloop does the work on log directories that nobody waits for: it syncs rolled segments and what flush.ms says,
// compacts, applies retention, removes what was deleted, forgets old producers, writes the checkpoints, and tells when a directory has
// failed. It also opens all logs at the start and closes them at the end, several at a time.
//
// Each directory has three goroutines of its own, so that one slow disk holds up nobody else: one for syncs, one for retention
// and removals, one for checkpoints. log.cleaner.threads more compact the logs of all directories. Loop owns them: Start starts them, Stop waits until they have ended. After Stop nothing
// here touches a log, so Close can close them.
//
// flush.messages is not here: an append that reaches it says so (storage.Appended.MustFlush), and whoever appended calls
// storage.Log.Flush before it acknowledges.
//
// Start reading at Loop.Load, then dirLoop.sync, and cleanerThread in clean.go.
package storageloop
