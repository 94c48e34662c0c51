package storage

import (
	"bytes"
	"testing"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/vfs"
)

// TestDuplicatesAreKnownAfterACrash: a producer sends its last five batches again after the process was killed, and hears where
// they are, wherever segments rolled in between: a snapshot of the producers has only the last batch of each.
func TestDuplicatesAreKnownAfterACrash(t *testing.T) {
	now := time.UnixMilli(1000)
	for _, segmentBytes := range []int32{300, 700, 1500, 1 << 20} {
		fsys := vfs.NewMem()
		config := DefaultConfig()
		config.SegmentBytes = segmentBytes
		d, l := faultLog(t, fsys, config)
		sequenced := func(l *Log, sequence int32) (Appended, error) {
			o := record.DefaultBatchOptions(0)
			o.ProducerID, o.ProducerEpoch, o.BaseSequence = 7, 3, sequence
			r := record.NewBuilder(o)
			r.Append(1000, nil, bytes.Repeat([]byte("v"), 100))
			b, err := r.Build()
			if err != nil {
				t.Fatal(err)
			}
			c := l.Config().Validation(l.Partition(), record.Client, now)
			v, err := record.Validate(b, &c)
			if err != nil {
				t.Fatal(err)
			}
			defer v.Release()
			return l.AppendAsLeader(v, LeaderAppend{Now: now, LeaderEpoch: 1, Origin: record.Client})
		}
		const batches = 12
		for s := range int32(batches) {
			if _, err := sequenced(l, s); err != nil {
				t.Fatal(err)
			}
		}
		for restart := range 2 { // the second one begins at the snapshot that the first recovery wrote
			if err := d.Abandon(); err != nil {
				t.Fatal(err)
			}
			d = newDir(t, fsys)
			var err error
			if l, _, err = d.Open(PartitionDir{Name: faultPartition.String(), Partition: faultPartition}, config, now); err != nil {
				t.Fatal(err)
			}
			for s := int32(batches - 5); s < batches; s++ {
				a, err := sequenced(l, s)
				if err != nil || !a.Duplicate || a.FirstOffset != kafka.Offset(s) {
					t.Errorf("segments of %d bytes, restart %d, sequence %d again: %+v, %v", segmentBytes, restart+1, s, a, err)
				}
			}
			if _, err := sequenced(l, batches-6); kerr.Code(err) != kerr.OutOfOrderSequenceNumber.Code {
				t.Errorf("segments of %d bytes: the sixth last batch again: %v", segmentBytes, err)
			}
			if l.EndOffset() != batches {
				t.Fatalf("segments of %d bytes: the log grew to %d", segmentBytes, l.EndOffset())
			}
		}
	}
}
