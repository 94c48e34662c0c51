// Package storage keeps one partition's log on disk with Kafka's bytes and file names, and the log directories that such
// partitions live in.
//
// A Log is one partition. It has one writer at a time (its own mutex sees to that; in practice the caller's replica lock
// does already) and any number of readers that never wait for the writer: the list of segments is immutable and hangs on
// an atomic pointer, and what of the active segment may be read is one atomic word. Read finds a byte range of a file for
// sendfile. Nothing is mapped into memory, an idle partition holds no file descriptor, and files are opened through Files,
// a bounded cache.
//
// A Dir is one log directory: lock, meta.properties, checkpoints, clean-shutdown mark, and the Logs in it. Dirs and Logs
// do no work in the background: package storageloop calls Flush, DeleteOldSegments, Checkpoint… from outside. There is no
// goroutine and no clock here; time comes in as `now`. The disk is reached only through a vfs.FS.
//
// What is promised:
//
//   - After a crash, Open gives back a prefix of what was appended that holds everything up to the recovery point, that is
//     everything that Flush returned for. Doing it again changes nothing.
//   - A batch that failed its check is never served: Read returns a *CorruptError that names file and position.
//   - After a failed write or sync the log refuses every append (ErrFailed): what the disk holds is not known any more.
//   - Kafka takes the directory back at any time.
//
// Only the files format_<kind>.go know bytes on disk; batches are package record's. Start reading at log.go, then append.go,
// read.go, recover.go; dir.go for directories.
package storage
