// Package codec compresses and decompresses what stands behind the header of a record batch: gzip, snappy, lz4 and zstd,
// in the framings that Kafka's clients write and with the leniencies with which its broker reads.
//
// Compress and Decompress work on whole buffers and append to the caller's slice. Reader decompresses as a stream out of a
// buffer, so that a validator can walk records without holding them all; a bomb costs at most what is asked of it, because
// nothing is allocated for a size that a header merely claims. Encoders and decoders are pooled; everything here is safe
// for concurrent use, a single Reader is not. No goroutine is started.
//
// Errors that compressed data causes wrap ErrCorrupt; output beyond the caller's limit is ErrTooLarge.
// Start reading at codec.go; each format has a file.
package codec
