// Package api answers requests: one file for each API key (00_produce.go is API 0), and two tables, broker.go and
// controller.go, which say what a broker's and a controller's listeners serve.
//
// A handler decodes Body, which belongs to the connection and is gone when the handler returns, and either appends the
// answer to Response.Buf at once or returns an rpc.Pending. A request that cannot be decoded ends the connection
// (Response.Fail), as in Kafka.
//
// Produce and Fetch have codecs of their own (00_produce_codec.go, 01_fetch_codec.go): they decode without allocating,
// leave record bytes where they lie, and put ranges of files into the answer. All other APIs use kmsg, behind the checks
// of package schema.
//
// The package starts no goroutine and reads no clock: time is Request.Received, or comes in. Start reading at table.go.
package api
