package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/schema"
)

// decodeRemoteMetadata prints a record of __remote_log_metadata: not JSON, but what the toString of Kafka's classes gives,
// after the checks that their constructors make.
func decodeRemoteMetadata(dst []byte, prefix string, r *record.Record) ([]byte, error) {
	dst = append(append(dst, prefix...), "payload: "...)
	text, err := remoteMetadata(r.Value)
	if err != nil {
		return fmt.Appendf(dst, "Error at offset %d, skipping. %s", r.Offset, err.Error()), nil
	}
	return append(dst, text...), nil
}

func remoteMetadata(value []byte) (string, error) {
	if value == nil {
		return "", errors.New(`Cannot invoke "java.nio.ByteBuffer.remaining()" because the return value of "org.apache.kafka.common.record.internal.Record.value()" is null`)
	}
	x, _, err := readFramed(schema.LogRemote, value)
	if err != nil {
		return "", err
	}
	switch x := x.(type) {
	case *schema.RemoteLogSegmentMetadataRecord:
		p := x.RemoteLogSegmentID.TopicIDPartition
		var epochs [][2]int64
		for _, e := range x.SegmentLeaderEpochs {
			epochs = append(epochs, [2]int64{int64(e.LeaderEpoch), e.Offset})
		}
		state, err := checkSegment(x.StartOffset, x.EndOffset, epochs, x.RemoteLogSegmentState)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("RemoteLogSegmentMetadata{remoteLogSegmentId=RemoteLogSegmentId{topicIdPartition=%s, id=%s}, startOffset=%d, endOffset=%d, brokerId=%d, maxTimestampMs=%d, eventTimestampMs=%d, segmentLeaderEpochs=%s, segmentSizeInBytes=%d, customMetadata=%s, state=%s, txnIdxEmpty=%t}",
			topicIDPartition(p.ID, p.Name, p.Partition), x.RemoteLogSegmentID.ID, x.StartOffset, x.EndOffset, x.BrokerID, x.MaxTimestampMs, x.EventTimestampMs, javaMap(epochs), x.SegmentSizeInBytes, customMetadata(x.CustomMetadata), state, x.TxnIndexEmpty), nil
	case *schema.RemoteLogSegmentMetadataUpdateRecord:
		p := x.RemoteLogSegmentID.TopicIDPartition
		state, err := segmentState(x.RemoteLogSegmentState)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("RemoteLogSegmentMetadataUpdate{remoteLogSegmentId=RemoteLogSegmentId{topicIdPartition=%s, id=%s}, customMetadata=%s, state=%s, eventTimestampMs=%d, brokerId=%d}",
			topicIDPartition(p.ID, p.Name, p.Partition), x.RemoteLogSegmentID.ID, customMetadata(x.CustomMetadata), state, x.EventTimestampMs, x.BrokerID), nil
	case *schema.RemotePartitionDeleteMetadataRecord:
		p := x.TopicIDPartition
		states := []string{"DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED"}
		i := int(x.RemotePartitionDeleteState)
		if i < 0 || i >= len(states) {
			return "", errors.New("null")
		}
		return fmt.Sprintf("RemotePartitionDeleteMetadata{topicPartition=%s, state=%s, eventTimestampMs=%d, brokerId=%d}",
			topicIDPartition(p.ID, p.Name, p.Partition), states[i], x.EventTimestampMs, x.BrokerID), nil
	case *schema.RemoteLogSegmentMetadataSnapshotRecord:
		var epochs [][2]int64
		for _, e := range x.SegmentLeaderEpochs {
			epochs = append(epochs, [2]int64{int64(e.LeaderEpoch), e.Offset})
		}
		state, err := segmentState(x.RemoteLogSegmentState)
		if err != nil {
			return "", err
		}
		if len(epochs) == 0 {
			return "", errNoEpochs
		}
		return fmt.Sprintf("RemoteLogSegmentMetadataSnapshot{segmentId=%s, startOffset=%d, endOffset=%d, maxTimestampMs=%d, segmentLeaderEpochs=%s, segmentSizeInBytes=%d, customMetadata=%s, state=%s, txnIdxEmpty=%t}",
			x.SegmentID, x.StartOffset, x.EndOffset, x.MaxTimestampMs, javaMap(epochs), x.SegmentSizeInBytes, customMetadata(x.CustomMetadata), state, x.TxnIndexEmpty), nil
	}
	return "", fmt.Errorf("RemoteLogMetadataTransform for apikey: %d does not exist.", x.Info().ID)
}

var errNoEpochs = errors.New("segmentLeaderEpochs can not be null or empty")

// checkSegment makes the checks of the constructors, in their order, and names the state.
func checkSegment(start, end int64, epochs [][2]int64, state int8) (string, error) {
	switch {
	case start < 0:
		return "", fmt.Errorf("Unexpected start offset = %d. StartOffset for a remote segment cannot be negative", start)
	case end < start:
		return "", fmt.Errorf("Unexpected end offset = %d. EndOffset for a remote segment cannot be less than startOffset = %d", end, start)
	case len(epochs) == 0:
		return "", errNoEpochs
	}
	return segmentState(state)
}

func segmentState(state int8) (string, error) {
	names := []string{"COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED"}
	if state < 0 || int(state) >= len(names) {
		return "", errors.New("state can not be null")
	}
	return names[state], nil
}

func topicIDPartition(id kafka.UUID, topic string, partition int32) string {
	return id.String() + ":" + topic + "-" + strconv.Itoa(int(partition))
}

// javaMap is the toString of a TreeMap; of equal keys the last one counts.
func javaMap(pairs [][2]int64) string {
	slices.SortStableFunc(pairs, func(a, b [2]int64) int { return int(max(-1, min(1, a[0]-b[0]))) })
	var b strings.Builder
	b.WriteByte('{')
	first := true
	for i, p := range pairs {
		if i+1 < len(pairs) && pairs[i+1][0] == p[0] {
			continue
		}
		if !first {
			b.WriteString(", ")
		}
		first = false
		fmt.Fprintf(&b, "%d=%d", p[0], p[1])
	}
	b.WriteByte('}')
	return b.String()
}

func customMetadata(b []byte) string {
	if b == nil {
		return "Optional.empty"
	}
	return fmt.Sprintf("Optional[CustomMetadata{%d bytes}]", len(b))
}
