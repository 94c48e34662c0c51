// Package metadata holds what a Kafka cluster knows about itself: features, brokers, controllers, topics with their
// partitions, configs, quotas, producer ids, ACLs, SCRAM credentials and delegation tokens. All of it comes out of the
// records of __cluster_metadata, and this package alone knows what each record does.
//
// An Image is immutable: any number of goroutines may read it, for as long as they like. A Delta starts from an Image,
// replays records onto a working copy, and gives the next Image together with what changed:
//
//	d := metadata.NewDelta(image)
//	err := d.ReplayBytes(at, value) // for each record; the error names the record and its offset
//	image, changes := d.Apply()     // what is committed and whole so far; d goes on from there
//
// The copies share structure, so a Delta costs microseconds however large the cluster is. Between BeginTransactionRecord and
// EndTransactionRecord Apply gives what stood before the transaction: a reader never sees half of one, nor anything of
// one that was aborted.
//
// The active controller replays what it proposes onto a Delta of its own and reads the result by Delta.Image, so that
// each decision sees the ones before; when it loses leadership it drops the Delta.
//
// Image.Write gives an Image as records of a given metadata.version, in Kafka's order; Diff compares two Images, which
// is how loading a snapshot becomes a list of changes; Bootstrap gives the records of a freshly formatted cluster.
//
// Slices and pointers that accessors return belong to the Image and must not be changed.
//
// The package is pure. Start reading at image.go, then delta.go and the replay_<kind>.go of a record that you know.
package metadata

//go:generate go run ./gen
