package chaos

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// command runs argv in a process group of its own, since Kafka's script is a shell before it is a JVM.
func command(ctx context.Context, argv []string) *exec.Cmd {
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.WaitDelay = 5 * time.Second
	return c
}

// probeEnd is the log end of the topic probe.
func probeEnd(t *testing.T, addr string) int64 {
	t.Helper()
	q := kmsg.NewPtrListOffsetsRequest()
	q.ReplicaID = -1
	qt := kmsg.NewListOffsetsRequestTopic()
	qt.Topic = "probe"
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp = -1
	qt.Partitions = append(qt.Partitions, p)
	q.Topics = append(q.Topics, qt)
	a, err := call(addr, q, 4)
	if err != nil {
		t.Fatal(err)
	}
	return a.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].Offset
}
