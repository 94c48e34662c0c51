package replica

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/schema"
	"github.com/highwater/highwater/internal/vfs"
)

func wantErr(t *testing.T, what string, err error, want *kerr.Error) {
	t.Helper()
	if want == nil && err != nil || want != nil && !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// A topic comes, is led, followed, led again in a later epoch, and goes: its directory is renamed, nothing else.
func TestApply(t *testing.T) {
	w := newWorld(t)
	_, err := w.set.Lookup("a", 0)
	wantErr(t, "lookup before", err, kerr.UnknownTopicOrPartition)
	w.apply(topicRecord(1, "a"), partitionRecord(1, 0, self, 2), partitionRecord(1, 1, 2, self), partitionRecord(1, 2, 2, 3))
	r := w.get("a", 0)
	if leads, epoch := r.Leads(); !leads || epoch != 0 {
		t.Errorf("leads %v in %d", leads, epoch)
	}
	if leads, _ := w.get("a", 1).Leads(); leads {
		t.Error("partition 1 is led")
	}
	if leader, epoch := w.get("a", 1).LeaderAndEpoch(); leader != 2 || epoch != 0 {
		t.Errorf("partition 1 is led by %d in %d", leader, epoch)
	}
	_, err = w.set.Lookup("a", 2)
	wantErr(t, "lookup of a partition elsewhere", err, kerr.NotLeaderOrFollower)
	_, err = w.set.Lookup("a", 3)
	wantErr(t, "lookup of no partition", err, kerr.UnknownTopicOrPartition)
	_, err = w.set.LookupID(topicID(1), 2)
	wantErr(t, "lookup by id of a partition elsewhere", err, kerr.NotLeaderOrFollower)
	_, err = w.set.LookupID(topicID(1), -1)
	wantErr(t, "lookup by id of no partition", err, kerr.UnknownTopicOrPartition)
	_, err = w.set.LookupID(topicID(9), 0)
	wantErr(t, "lookup of no id", err, kerr.UnknownTopicID)
	if got, err := w.set.LookupID(topicID(1), 0); got != r || err != nil {
		t.Errorf("lookup by id: %v, %v", got, err)
	}
	if got := w.dirs(); !slices.Equal(got, []string{"a-0", "a-1"}) {
		t.Errorf("directories %q", got)
	}
	if len(w.assigned) != 2 {
		t.Errorf("assigned %v", w.assigned)
	}

	// Another leader, then this broker again: the epoch begins where the log ends.
	if s := appendTo(t, r, 1, batch(t, 3, t0.UnixMilli(), -1, 0)); s.err != nil {
		t.Fatal(s.err)
	}
	w.apply(change(1, 0, func(c *schema.PartitionChangeRecord) { c.Leader = 2 }))
	if leads, epoch := r.Leads(); leads || epoch != 1 {
		t.Errorf("leads %v in %d after a change", leads, epoch)
	}
	wantErr(t, "append to a follower", appendTo(t, r, 1, batch(t, 1, 0, -1, 0)).err, kerr.NotLeaderOrFollower)
	w.apply(change(1, 0, func(c *schema.PartitionChangeRecord) { c.Leader = self }))
	if leads, epoch := r.Leads(); !leads || epoch != 2 {
		t.Errorf("leads %v in %d after two changes", leads, epoch)
	}
	if s := appendTo(t, r, 1, batch(t, 1, t0.UnixMilli(), -1, 0)); s.err != nil || s.FirstOffset != 3 {
		t.Errorf("append in the third epoch: %+v, %v", s.Appended, s.err)
	}
	if e, ok := r.Log().EpochAt(3); e != 2 || !ok {
		t.Errorf("epoch at 3 is %d", e)
	}

	// No leader.
	w.apply(change(1, 0, func(c *schema.PartitionChangeRecord) { c.Leader = -1 }))
	if leader, _ := r.LeaderAndEpoch(); leader != kafka.NoBroker {
		t.Errorf("leader %d", leader)
	}

	// A reassignment takes one replica away; the other stays.
	w.apply(change(1, 1, func(c *schema.PartitionChangeRecord) { c.Replicas, c.ISR = []int32{2, 3}, []int32{2} }))
	_, err = w.set.Lookup("a", 1)
	wantErr(t, "lookup after reassignment", err, kerr.NotLeaderOrFollower)
	remove := schema.NewRemoveTopicRecord()
	remove.TopicID = topicID(1)
	w.apply(remove)
	_, err = w.set.Lookup("a", 0)
	wantErr(t, "lookup after deletion", err, kerr.UnknownTopicOrPartition)
	if !r.Stopped() {
		t.Error("the replica of a deleted topic isn't stopped")
	}
	wantErr(t, "append after deletion", appendTo(t, r, 1, batch(t, 1, 0, -1, 0)).err, kerr.NotLeaderOrFollower)
	dirs := w.dirs()
	for _, d := range dirs {
		if !strings.HasSuffix(d, "-delete") {
			t.Errorf("directory %s is left", d)
		}
	}
	if len(dirs) != 2 || len(w.removed) != 2 || len(w.set.All()) != 0 || len(w.set.Names()) != 0 {
		t.Errorf("directories %q, removed %q, replicas %d", dirs, w.removed, len(w.set.All()))
	}
	if len(w.failed) != 0 || len(w.notes) != 0 {
		t.Errorf("failed %v, notes %v", w.failed, w.notes)
	}
}

// A topic that is deleted and made again between two images, or in one, is another topic: nothing of the old one is left.
func TestApplyRecreated(t *testing.T) {
	w := newWorld(t)
	r := w.led()
	appendTo(t, r, 1, batch(t, 5, t0.UnixMilli(), -1, 0))
	remove := schema.NewRemoveTopicRecord()
	remove.TopicID = topicID(1)
	w.apply(remove, topicRecord(2, "a"), partitionRecord(2, 0, self))
	again := w.get("a", 0)
	if again == r || !r.Stopped() || again.TopicID() != topicID(2) || again.Log().EndOffset() != 0 {
		t.Errorf("the new topic's replica is %v, ends at %d", again.TopicID(), again.Log().EndOffset())
	}
	_, err := w.set.LookupID(topicID(1), 0)
	wantErr(t, "lookup of the old id", err, kerr.UnknownTopicID)
	if got := w.dirs(); len(got) != 2 || got[0] != "a-0" || !strings.HasSuffix(got[1], "-delete") {
		t.Errorf("directories %q", got)
	}
}

// At a start the metadata decides which logs are served: those of unknown topics, of other ids and of partitions that moved
// are set aside with all that is in them.
func TestStart(t *testing.T) {
	w := newWorld(t)
	w.apply(topicRecord(1, "a"), partitionRecord(1, 0, self), partitionRecord(1, 1, self),
		topicRecord(2, "b"), partitionRecord(2, 0, self), topicRecord(3, "c"), partitionRecord(3, 0, self))
	for _, r := range w.set.All() {
		if s := appendTo(t, r, 1, batch(t, 4, t0.UnixMilli(), -1, 0)); s.err != nil {
			t.Fatal(s.err)
		}
	}
	w.restart()
	// a-0 stays, a-1 moves away, b is gone, c was made again with another id.
	gone := schema.NewRemoveTopicRecord()
	gone.TopicID = topicID(2)
	other := schema.NewRemoveTopicRecord()
	other.TopicID = topicID(3)
	w.replay(change(1, 1, func(c *schema.PartitionChangeRecord) { c.Replicas, c.ISR, c.Leader = []int32{2}, []int32{2}, 2 }),
		gone, other, topicRecord(4, "c"), partitionRecord(4, 0, self))
	image, _ := w.delta.Apply()
	w.set.Start(t0, image)
	if r := w.get("a", 0); r.Log().EndOffset() != 4 || r.HighWatermark() != 4 {
		t.Errorf("a-0 ends at %d, high watermark %d", r.Log().EndOffset(), r.HighWatermark())
	}
	if r := w.get("c", 0); r.Log().EndOffset() != 0 || r.TopicID() != topicID(4) {
		t.Errorf("c-0 is %v and ends at %d", r.TopicID(), r.Log().EndOffset())
	}
	var current, stray int
	for _, d := range w.dirs() {
		if strings.HasSuffix(d, "-stray") {
			stray++
			if fi, err := w.fsys.Stat("/d/" + d + "/00000000000000000000.log"); err != nil || fi.Size() == 0 {
				t.Errorf("%s has lost its data: %v", d, err)
			}
		} else {
			current++
		}
	}
	if current != 2 || stray != 3 || len(w.removed) != 0 {
		t.Errorf("directories %q, removed %q", w.dirs(), w.removed)
	}
	for _, why := range []string{"a-1: the metadata has no such replica on this broker", "b-0: the metadata has no such topic", "c-0: the metadata has another topic id"} {
		if !w.noted(why) {
			t.Errorf("no note %q in %q", why, w.notes)
		}
	}
}

// A partition whose files failed their check is neither served nor made anew.
func TestBroken(t *testing.T) {
	w := newWorld(t)
	w.set.Broken(kafka.TopicPartition{Topic: "a", Partition: 0}, errors.New("bad segment"))
	w.apply(topicRecord(1, "a"), partitionRecord(1, 0, self), partitionRecord(1, 1, self))
	_, err := w.set.Lookup("a", 0)
	wantErr(t, "lookup", err, kerr.KafkaStorageError)
	_, err = w.set.LookupID(topicID(1), 0)
	wantErr(t, "lookup by id", err, kerr.KafkaStorageError)
	w.get("a", 1)
	// Whatever the metadata says later.
	w.apply(change(1, 0, func(c *schema.PartitionChangeRecord) { c.Leader = self }))
	if got := w.dirs(); !slices.Equal(got, []string{"a-1"}) {
		t.Errorf("directories %q", got)
	}
}

// A disk that refuses a new partition costs that partition only.
func TestCreateFails(t *testing.T) {
	w := newWorld(t)
	w.fsys.SetFault(func(o vfs.Op) error {
		if o.Kind.Changes() && strings.Contains(o.Name, "a-0") {
			return errors.New("no")
		}
		return nil
	})
	w.apply(topicRecord(1, "a"), partitionRecord(1, 0, self))
	_, err := w.set.Lookup("a", 0)
	wantErr(t, "lookup", err, kerr.KafkaStorageError)
	if !w.noted("a-0") {
		t.Errorf("notes %q", w.notes)
	}
}

// A change of configuration reaches logs and leaders.
func TestConfigure(t *testing.T) {
	w := newWorld(t)
	r := w.led(2)
	w.config.MinISR, w.config.Log.MaxMessageBytes = 3, 10
	w.set.Configure(t0, w.set.Image(), "a")
	w.set.Configure(t0, w.set.Image(), "none")
	wantErr(t, "append of more than max.message.bytes", appendTo(t, r, 1, batch(t, 1, 0, -1, 0)).err, kerr.MessageTooLarge)
	w.config.Log.MaxMessageBytes = 1 << 20
	w.apply(change(1, 0, func(c *schema.PartitionChangeRecord) { c.ISR = []int32{self} }))
	w.set.Configure(t0, w.set.Image(), "a")
	wantErr(t, "append with too small an ISR", appendTo(t, r, -1, batch(t, 1, 0, -1, 0)).err, kerr.NotEnoughReplicas)
}
