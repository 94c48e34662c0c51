package replica

import (
	"testing"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/schema"
)

// A start tells, in one line a log directory, of partitions whose directories are gone, and doesn't of what is only elsewhere or is no
// topic any more.
func TestMissingPartitions(t *testing.T) {
	w := newWorld(t)
	w.apply(topicRecord(1, "a"), partitionRecord(1, 0, self), partitionRecord(1, 1, self), partitionRecord(1, 2, self), partitionRecord(1, 3, self), topicRecord(2, "b"), partitionRecord(2, 0, self))
	for _, r := range w.set.All() {
		if r.partition.Partition == 3 {
			continue // had no record
		}
		if s := appendTo(t, r, 1, batch(t, 4, t0.UnixMilli(), -1, 0)); s.err != nil {
			t.Fatal(s.err)
		}
	}
	restart := func(lost ...string) {
		t.Helper()
		if err := w.dir.Close(1); err != nil {
			t.Fatal(err)
		}
		for _, name := range lost {
			if err := w.fsys.RemoveAll("/d/" + name); err != nil {
				t.Fatal(err)
			}
		}
		w.open()
		w.dir.Loaded()
		w.notes = nil
		image, _ := w.delta.Apply()
		w.set.Start(t0, image)
	}
	remove := schema.NewRemoveTopicRecord()
	remove.TopicID = topicID(2)
	w.replay(remove)
	restart("a-1", "a-2", "a-3", "b-0")
	if r := w.get("a", 1); r.Log().EndOffset() != 0 {
		t.Errorf("a-1 ends at %d", r.Log().EndOffset())
	}
	if len(w.notes) != 1 || !w.noted("partition's directory is missing: it begins anew, empty: a-1: everything below offset 4 of /d/a-1 was synced there (as of 1 more partitions)") {
		t.Errorf("notes %q", w.notes)
	}
	restart()
	if len(w.notes) != 0 {
		t.Errorf("told again: %q", w.notes)
	}
}

// A partition without a leader, which by the metadata is in a directory that is none of this node's, tells of it, and of its id.
func TestDirectoryWithAnotherID(t *testing.T) {
	const was = 78
	w := newWorld(t)
	in := func(partition int32, leader kafka.BrokerID, id byte) *schema.PartitionRecord {
		p := partitionRecord(1, partition, self)
		p.Leader, p.Directories = int32(leader), []kafka.UUID{{7: id}}
		return p
	}
	w.replay(topicRecord(1, "a"), in(0, kafka.NoBroker, was), in(1, self, was), in(2, kafka.NoBroker, 77))
	image, _ := w.delta.Apply()
	w.set.Start(t0, image)
	if len(w.notes) != 1 || !w.noted("partition has no leader: its log directory has lost its id: a-0: the metadata has it in directory "+kafka.DirectoryID{7: was}.String()) ||
		!w.noted("/d/meta.properties says "+kafka.DirectoryID{7: 77}.String()) {
		t.Errorf("notes %q", w.notes)
	}
}
