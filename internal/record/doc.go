// Package record alone knows the bytes of record batches: it parses, validates, builds and changes them. Nothing here
// touches a file or socket, starts a goroutine or reads a clock.
//
// A Batch is the raw bytes of one batch of magic 2 (or, read-only, one message or compressed wrapper of magic 0 or 1), and
// its methods are accessors into these bytes: there is no parsed form to keep in step. Next splits a buffer into batches;
// PeekSize does the same for somebody who walks a file with only HeaderSize bytes at a time, and all accessors work on a
// Batch that holds just the header. Reader iterates over records without allocating, whatever the codec and magic.
// Builder makes batches, with gaps and empty ones too, as the cleaner needs them.
//
// The produce path has two stages. Validate runs outside any lock: it frames, checks CRC and limits, walks the records and
// returns a pooled Validated with the facts of each batch. Assign runs under the partition's lock: it puts offsets, leader
// epoch and LogAppendTime into the header in place, in constant time. The bytes are never copied, nor parsed a second time,
// and nothing is allocated for a record. They change only for LogAppendTime, for a wrong maxTimestamp, and when the topic's
// compression.type or an old magic asks for a rebuild.
//
// Errors for the client are kerr values. Malformed batches for which Kafka answers UNKNOWN_SERVER_ERROR, because its code
// fell into an exception that it didn't foresee, are CORRUPT_MESSAGE (framing) or INVALID_RECORD (content) here.
//
// Start reading at batch.go, then validate.go.
package record
