// Package schema has the records of Apache Kafka 4.4 as Go types: what stands in __cluster_metadata, in the coordinators'
// topics, in control records, in quorum-state, transaction index and producer snapshots, and in remote log metadata. All
// of it is generated from the schema files in testdata/schemas/records (go generate; the generator is ./gen), and equal
// byte for byte to what Kafka's own classes write.
//
// Each record type T has
//
//	T{}.SetDefaults      Kafka's defaults (NewT gives a T that has them)
//	T.AppendTo           encodes; refuses a field that the version lacks unless Kafka drops it silently
//	T.ReadFrom           decodes; sets every field; keeps unknown tagged fields
//	T.AppendJSON         prints as Kafka's tools print it
//
// A decoder never panics and never allocates more than a small multiple of its input: an array may have at most a
// million elements and no more than the bytes left can hold, a record ten thousand tagged fields.
//
// For requests and responses we use franz-go's kmsg. Where it differs from Kafka, or takes from a hostile peer what
// Kafka refuses, the remedy is here too: CheckRequest and CheckResponse before decoding, Prepare before encoding, the types with the
// prefix Override. APIs is the table of Kafka's APIs.
//
// The package is pure: it starts no goroutine and does no I/O. Start reading at record.go (the contract and framing),
// then codec.go (primitive types), then any generated file.
package schema

//go:generate go run ./gen
