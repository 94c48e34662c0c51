package metadata

import (
	"errors"
	"fmt"
	"math/rand"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/schema"
)

func id(n int) kafka.UUID { return kafka.UUID{0: byte(n >> 8), 1: byte(n), 15: 200} }

func text(s string) *string { return &s }

func replay(t testing.TB, d *Delta, records ...schema.Record) {
	t.Helper()
	for _, r := range records {
		at := d.At()
		at.Offset++
		if err := d.Replay(at, r); err != nil {
			t.Fatal(err)
		}
	}
}

func partition(topic, n int, replicas ...int32) *schema.PartitionRecord {
	p := schema.NewPartitionRecord()
	p.TopicID, p.PartitionID, p.Replicas, p.ISR, p.Leader, p.LeaderEpoch, p.PartitionEpoch = id(topic), int32(n), replicas, replicas, replicas[0], 0, 0
	return p
}

func change(topic, n int, edit func(*schema.PartitionChangeRecord)) *schema.PartitionChangeRecord {
	c := schema.NewPartitionChangeRecord()
	c.TopicID, c.PartitionID = id(topic), int32(n)
	edit(c)
	return c
}

// Each metadata record type has a file replay_<kind>.go, and Replay knows it.
func TestEveryRecordTypeHasReplay(t *testing.T) {
	upper := regexp.MustCompile(`[A-Z]`)
	n := 0
	for _, i := range schema.Types() {
		if i.Log != schema.LogMetadata {
			continue
		}
		n++
		kind := strings.TrimPrefix(upper.ReplaceAllStringFunc(strings.TrimSuffix(i.Name, "Record"), func(s string) string { return "_" + strings.ToLower(s) }), "_")
		if _, err := os.Stat("replay_" + kind + ".go"); err != nil {
			t.Errorf("%s: %v", i.Name, err)
		}
		if err := NewDelta(Empty()).Replay(Provenance{}, i.New()); err != nil && strings.Contains(err.Error(), "no such metadata record") {
			t.Errorf("%s is not replayed", i.Name)
		}
	}
	if n != 27 {
		t.Errorf("%d record types", n)
	}
	if err := NewDelta(Empty()).Replay(Provenance{Offset: 7}, schema.NewEndTxnMarker()); err == nil || !strings.Contains(err.Error(), "EndTxnMarker at offset 7") {
		t.Error(err)
	}
}

// What cannot be replayed is an error that names the record and its offset.
func TestInvalidRecords(t *testing.T) {
	base := NewDelta(Empty())
	replay(t, base, &schema.TopicRecord{Name: "a", TopicID: id(1)}, partition(1, 0, 1, 2), &schema.RegisterBrokerRecord{BrokerID: 1, BrokerEpoch: 5},
		&schema.ProducerIdsRecord{NextProducerID: 1000}, &schema.AccessControlEntryRecord{ID: id(9)})
	img, _ := base.Apply()
	for _, r := range []schema.Record{
		&schema.TopicRecord{Name: "a", TopicID: id(2)},
		&schema.TopicRecord{Name: "b", TopicID: id(1)},
		partition(3, 0, 1),
		partition(1, -1, 1),
		partition(1, 1<<30, 1),
		change(1, 1, func(*schema.PartitionChangeRecord) {}),
		change(2, 0, func(*schema.PartitionChangeRecord) {}),
		change(1, 0, func(c *schema.PartitionChangeRecord) { c.LeaderRecoveryState = 5 }),
		change(1, 0, func(c *schema.PartitionChangeRecord) { c.Directories = []kafka.UUID{id(1)} }),
		&schema.RemoveTopicRecord{TopicID: id(2)},
		&schema.ClearElrRecord{TopicName: "b"},
		&schema.UnregisterBrokerRecord{BrokerID: 2},
		&schema.UnregisterBrokerRecord{BrokerID: 1, BrokerEpoch: 4},
		&schema.FenceBrokerRecord{ID: 1, Epoch: 4},
		&schema.UnfenceBrokerRecord{ID: 3, Epoch: 4},
		&schema.BrokerRegistrationChangeRecord{BrokerID: 1, BrokerEpoch: 6},
		&schema.BrokerRegistrationChangeRecord{BrokerID: 1, BrokerEpoch: 5, Fenced: 2},
		&schema.BrokerRegistrationChangeRecord{BrokerID: 1, BrokerEpoch: 5, InControlledShutdown: -1},
		&schema.UnregisterControllerRecord{ControllerID: 1},
		&schema.FeatureLevelRecord{Name: MetadataVersionFeature, FeatureLevel: 35},
		&schema.FeatureLevelRecord{Name: MetadataVersionFeature, FeatureLevel: 6},
		&schema.FeatureLevelRecord{Name: "group.version", FeatureLevel: -1},
		&schema.ClientQuotaRecord{Entity: []schema.ClientQuotaRecordEntityData{{EntityType: "user"}, {EntityType: "user"}}},
		&schema.ProducerIdsRecord{NextProducerID: 999},
		&schema.AccessControlEntryRecord{ID: id(9)},
		&schema.RemoveAccessControlEntryRecord{ID: id(8)},
		&schema.UserScramCredentialRecord{Mechanism: 3},
		&schema.RemoveUserScramCredentialRecord{Mechanism: 0},
		&schema.RemoveUserScramCredentialRecord{Mechanism: 1, Name: "x"},
		&schema.RemoveDelegationTokenRecord{TokenID: "x"},
		&schema.EndTransactionRecord{},
		&schema.AbortTransactionRecord{},
	} {
		err := NewDelta(img).Replay(Provenance{Offset: 4711}, r)
		var e *ReplayError
		if !errors.As(err, &e) || e.Offset != 4711 || e.Record != r.Info().Name {
			t.Errorf("%s %s: %v", r.Info().Name, r.AppendJSON(nil, 0), err)
		}
	}
	d := NewDelta(img)
	replay(t, d, &schema.BeginTransactionRecord{Name: text("x")})
	if err := d.Replay(Provenance{}, &schema.BeginTransactionRecord{}); err == nil || !strings.Contains(err.Error(), `"x" is still open`) {
		t.Error(err)
	}
	for _, b := range [][]byte{nil, {2}, {1, 77, 0}, {1, 2, 1}, {1, 2, 0}, {1, 20, 0, 0, 0}} {
		var e *ReplayError
		if err := NewDelta(img).ReplayBytes(Provenance{Offset: 3}, b); !errors.As(err, &e) || e.Offset != 3 {
			t.Errorf("%x: %v", b, err)
		}
	}
}

// The uncommitted is never visible: while a transaction is open Apply gives what was before it; an abort leaves nothing.
func TestTransactions(t *testing.T) {
	names := func(i *Image) (s string) {
		for t := range i.Topics() {
			s += t.Name
		}
		return s
	}
	d := NewDelta(Empty())
	replay(t, d, &schema.TopicRecord{Name: "a", TopicID: id(1)}, partition(1, 0, 1, 2, 3), &schema.BeginTransactionRecord{},
		&schema.TopicRecord{Name: "b", TopicID: id(2)}, partition(2, 0, 1),
		change(1, 0, func(c *schema.PartitionChangeRecord) { c.Leader = 2 }))
	if !d.InTransaction() || names(d.Image()) != "ab" {
		t.Error("the controller doesn't see its own open transaction")
	}
	img, c := d.Apply()
	if names(img) != "a" || img.Provenance().Offset != 1 || c.Topic(id(1)) == nil || c.Topic(id(2)) != nil {
		t.Errorf("in a transaction: %s at %d, %s", names(img), img.Provenance().Offset, describe(c))
	}
	if p, _ := img.Topic("a").Partition(0); p.Leader != 1 {
		t.Error("a change inside an open transaction is visible")
	}
	if again, c := d.Apply(); again != img || !c.Empty() {
		t.Error("Apply again gives something else")
	}
	d.Skip(Provenance{Offset: 6})
	replay(t, d, &schema.EndTransactionRecord{})
	img2, c := d.Apply()
	if names(img2) != "ab" || img2.Provenance().Offset != 7 || !covers(c, Diff(img, img2)) || c.Topic(id(1)).Created {
		t.Errorf("after its end: %s at %d, %s", names(img2), img2.Provenance().Offset, describe(c))
	}
	replay(t, d, &schema.ConfigRecord{ResourceType: 2, ResourceName: "a", Name: "k", Value: text("v")}, &schema.BeginTransactionRecord{},
		&schema.RemoveTopicRecord{TopicID: id(1)}, &schema.TopicRecord{Name: "c", TopicID: id(3)}, partition(3, 0, 1),
		change(2, 0, func(c *schema.PartitionChangeRecord) { c.Leader = -1 }), &schema.AbortTransactionRecord{},
		&schema.TopicRecord{Name: "d", TopicID: id(4)})
	img3, c := d.Apply()
	if names(img3) != "abd" || !covers(c, Diff(img2, img3)) || c.Topic(id(1)) != nil || c.Topic(id(3)) != nil || len(slices.Collect(c.Configs())) != 1 {
		t.Errorf("after an abort: %s, %s", names(img3), describe(c))
	}
	if p, _ := img3.Topic("b").Partition(0); p.Leader != 1 || img3.NumPartitions() != 2 {
		t.Error("an aborted change is visible")
	}
}

func TestTopicDeletionTakesConfigs(t *testing.T) {
	d := NewDelta(Empty())
	replay(t, d, &schema.TopicRecord{Name: "a", TopicID: id(1)}, partition(1, 3, 1), &schema.ConfigRecord{ResourceType: 2, ResourceName: "a", Name: "x", Value: text("1")})
	img, _ := d.Apply()
	if v, ok := img.ConfigValue(Resource{ResourceTopic, "a"}, "x"); !ok || v != "1" {
		t.Error("config isn't there")
	}
	replay(t, d, &schema.RemoveTopicRecord{TopicID: id(1)}, &schema.TopicRecord{Name: "a", TopicID: id(2)})
	next, c := d.Apply()
	var got []string
	for t := range c.Topics() {
		got = append(got, fmt.Sprint(t.ID[1], t.Created, t.Deleted))
	}
	if !slices.Equal(got, []string{"1 false true", "2 true false"}) || next.Config(Resource{ResourceTopic, "a"}) != nil || next.NumPartitions() != 0 || next.TopicByID(id(1)) != nil {
		t.Error(got)
	}
	if img.NumPartitions() != 1 || img.TopicByID(id(1)) == nil || img.Config(Resource{ResourceTopic, "a"}) == nil {
		t.Error("the old image changed")
	}
}

// Random records: every image ever given out stays what it was, the working copy is what a plain map says, and Changes
// name what Diff finds.
func TestRandomHistory(t *testing.T) {
	for seed := range int64(30) {
		rng := rand.New(rand.NewSource(seed))
		d := NewDelta(Empty())
		model := make(map[string]string) // "topic/partition" → printed state
		live := make(map[int]map[int]bool)
		type kept struct {
			img   *Image
			state map[string]string
		}
		var images []kept
		last := Empty()
		print := func(p Partition) string { return fmt.Sprint(p) }
		check := func(img *Image, want map[string]string) {
			t.Helper()
			n := 0
			for topic := range img.Topics() {
				for pid, p := range topic.Partitions() {
					n++
					if k := fmt.Sprint(topic.ID[1], "/", pid); want[k] != print(p) {
						t.Fatalf("seed %d: %s is %s, want %s", seed, k, print(p), want[k])
					}
				}
			}
			if n != len(want) || img.NumPartitions() != n {
				t.Fatalf("seed %d: %d partitions (%d), want %d", seed, n, img.NumPartitions(), len(want))
			}
		}
		slots := []int{1, 2, 3, 4} // topics, each incarnation with an id of its own
		nextID := 5
		for step := range 600 {
			slot := rng.Intn(len(slots))
			topic := slots[slot]
			switch op := rng.Intn(12); {
			case live[topic] == nil:
				replay(t, d, &schema.TopicRecord{Name: fmt.Sprint("t", slot), TopicID: id(topic)})
				live[topic] = make(map[int]bool)
			case op == 0 && rng.Intn(8) == 0:
				replay(t, d, &schema.RemoveTopicRecord{TopicID: id(topic)})
				for p := range live[topic] {
					delete(model, fmt.Sprint(topic, "/", p))
				}
				delete(live, topic)
				slots[slot] = nextID
				nextID++
			case op == 1:
				img, c := d.Apply()
				if !covers(c, Diff(last, img)) {
					t.Fatalf("seed %d step %d: changes %s, diff %s", seed, step, describe(c), describe(Diff(last, img)))
				}
				last = img
				state := make(map[string]string)
				for k, v := range model {
					state[k] = v
				}
				images = append(images, kept{img, state})
			case op < 5 || len(live[topic]) == 0:
				n := rng.Intn(150)
				var replicas []int32
				for range 1 + rng.Intn(4) {
					replicas = append(replicas, rng.Int31n(9))
				}
				r := partition(topic, n, replicas...)
				if rng.Intn(2) == 0 {
					for range replicas {
						r.Directories = append(r.Directories, id(rng.Intn(500)))
					}
				}
				if rng.Intn(3) == 0 {
					r.ISR = replicas[:1]
					r.EligibleLeaderReplicas = replicas[1:]
				}
				replay(t, d, r)
				live[topic][n] = true
				p, _ := d.Image().TopicByID(id(topic)).Partition(int32(n))
				model[fmt.Sprint(topic, "/", n)] = print(Partition{
					Leader: kafka.BrokerID(r.Leader), Replicas: brokerIDs(r.Replicas), ISR: brokerIDs(r.ISR), Removing: nil,
					ELR: brokerIDs(r.EligibleLeaderReplicas), Directories: p.Directories,
				})
				if r.Directories != nil && !slices.Equal(r.Directories, p.Directories) {
					t.Fatalf("directories %v, want %v", p.Directories, r.Directories)
				}
			default:
				all := d.Image().TopicByID(id(topic))
				for pid, p := range all.Partitions() {
					if rng.Intn(10) > 0 {
						continue
					}
					c := change(topic, int(pid), func(c *schema.PartitionChangeRecord) {
						c.Leader = rng.Int31n(5)
						c.ISR = []int32{c.Leader, rng.Int31n(5)}
						c.AddingReplicas = []int32{4}
					})
					want := p
					want.Leader, want.ISR, want.Adding = kafka.BrokerID(c.Leader), brokerIDs(c.ISR), brokerIDs(c.AddingReplicas)
					want.LeaderEpoch++
					want.PartitionEpoch++
					text := print(want)
					replay(t, d, c)
					model[fmt.Sprint(topic, "/", pid)] = text
					break
				}
			}
		}
		check(d.Image(), model)
		for _, k := range images {
			check(k.img, k.state)
		}
	}
}

// The ClearElrRecord with and without a name.
func TestClearElr(t *testing.T) {
	d := NewDelta(Empty())
	for n := 1; n <= 3; n++ {
		p := partition(n, 0, 1, 2, 3)
		p.ISR, p.EligibleLeaderReplicas, p.LastKnownELR = []int32{1}, []int32{2}, []int32{3}
		replay(t, d, &schema.TopicRecord{Name: fmt.Sprint("t", n), TopicID: id(n)}, p, partition(n, 1, 1))
	}
	elr := func(i *Image) (s string) {
		for t := range i.Topics() {
			p, _ := t.Partition(0)
			s += fmt.Sprint(p.ELR, p.LastKnownELR)
		}
		return s
	}
	before, _ := d.Apply()
	replay(t, d, &schema.ClearElrRecord{TopicName: "t2"})
	img, c := d.Apply()
	if elr(img) != "[2] [3][] [][2] [3]" || !covers(c, Diff(before, img)) || len(slices.Collect(c.Topics())) != 1 {
		t.Error(elr(img), describe(c))
	}
	replay(t, d, &schema.ClearElrRecord{})
	if img, c = d.Apply(); elr(img) != "[] [][] [][] []" || len(slices.Collect(c.Topics())) != 2 {
		t.Error(elr(img), describe(c))
	}
	if elr(before) != "[2] [3][2] [3][2] [3]" {
		t.Error("the old image changed")
	}
}

// full is an image with everything that some metadata.version cannot hold.
func full(t testing.TB) *Image {
	d := NewDelta(Empty())
	p := partition(1, 0, 1, 2, 3)
	p.Directories, p.ISR, p.EligibleLeaderReplicas, p.LastKnownELR = []kafka.UUID{id(1), id(2), id(3)}, []int32{1}, []int32{2}, []int32{3}
	p.RemovingReplicas, p.AddingReplicas, p.LeaderRecoveryState = []int32{3}, []int32{2}, 1
	b := schema.NewRegisterBrokerRecord()
	b.BrokerID, b.Rack, b.LogDirs, b.CordonedLogDirs, b.InControlledShutdown = 1, text("r"), []kafka.UUID{id(2), id(1)}, []kafka.UUID{id(1)}, true
	replay(t, d, &schema.FeatureLevelRecord{Name: MetadataVersionFeature, FeatureLevel: 33},
		&schema.FeatureLevelRecord{Name: EligibleLeaderReplicasVersionFeature, FeatureLevel: 1}, &schema.FeatureLevelRecord{Name: "zz.version", FeatureLevel: 1},
		b, &schema.RegisterControllerRecord{ControllerID: 9}, &schema.TopicRecord{Name: "t", TopicID: id(1)}, p,
		&schema.ConfigRecord{ResourceType: 4, ResourceName: "", Name: "k", Value: text("")},
		&schema.ClientQuotaRecord{Entity: []schema.ClientQuotaRecordEntityData{{EntityType: "user"}, {EntityType: "client-id", EntityName: text("c")}}, Key: "k", Value: 1.5},
		&schema.ProducerIdsRecord{NextProducerID: 1000}, &schema.AccessControlEntryRecord{ID: id(4), ResourceName: "*"},
		&schema.UserScramCredentialRecord{Name: "u", Mechanism: 1, Salt: []byte{1}}, &schema.DelegationTokenRecord{TokenID: "x", Renewers: []string{"User:a"}})
	img, _ := d.Apply()
	return img
}

// At each level the record versions are those of Kafka's table, what the level can hold comes back, and what it cannot
// is reported, or refused if nobody listens.
func TestWriteAtEveryLevel(t *testing.T) {
	img := full(t)
	for _, row := range fixture.Table(t, "tables/metadata-versions.tsv") {
		v, ok := VersionFromName(row["name"])
		if !ok || fmt.Sprint(int(v)) != row["level"] || v.String() != row["name"] {
			t.Fatalf("%s is level %d", row["name"], v)
		}
		yes := func(column string) bool { return row[column] == "yes" }
		var want []string
		for _, l := range []struct {
			column, what string
		}{
			{"isDirectoryAssignmentSupported", "the online log directories of one or more brokers"},
			{"isCordonedLogDirsSupported", "the cordoned log directories of one or more brokers"},
			{"isControllerRegistrationSupported", "controller registration data"},
			{"isElrSupported", lostELR},
			{"isDirectoryAssignmentSupported", "the directory assignment state of one or more replicas"},
			{"isScramSupported", "scram credentials"},
			{"isDelegationTokenSupported", "delegation tokens"},
		} {
			if !yes(l.column) {
				want = append(want, l.what)
			}
		}
		var lost []string
		d := NewDelta(Empty())
		err := img.Write(WriteOptions{Version: v, Lost: func(s string) { lost = append(lost, s) }}, func(r schema.Record, version int16) error {
			wantVersion := "0"
			switch r.(type) {
			case *schema.PartitionRecord:
				wantVersion = row["partitionRecordVersion"]
			case *schema.RegisterBrokerRecord:
				wantVersion = row["registerBrokerRecordVersion"]
			case *schema.RegisterControllerRecord:
				wantVersion = row["registerControllerRecordVersion"]
			}
			if fmt.Sprint(version) != wantVersion {
				t.Errorf("%s: %s at version %d, want %s", v, r.Info().Name, version, wantVersion)
			}
			b, err := schema.AppendFrame(nil, r, version)
			if err != nil {
				return err
			}
			return d.ReplayBytes(Provenance{}, b)
		})
		if err != nil || !slices.Equal(lost, want) {
			t.Errorf("%s: lost %q, want %q (%v)", v, lost, want, err)
		}
		back, _ := d.Apply()
		if back.MetadataVersion() != v {
			t.Errorf("%s: came back as %s", v, back.MetadataVersion())
		}
		if diff := describe(Diff(img, back)); v >= LatestProductionVersion && strings.Contains(diff, "topic") || (v == LatestProductionVersion) != Equal(img, back) {
			t.Errorf("%s: %s", v, diff)
		}
		err = img.Write(WriteOptions{Version: v}, func(schema.Record, int16) error { return nil })
		var u *UnwritableError
		if errors.As(err, &u) != (len(want) > 0) {
			t.Errorf("%s: %v", v, err)
		}
	}
	if err := img.Write(WriteOptions{Version: 6}, func(schema.Record, int16) error { return nil }); err == nil {
		t.Error("level 6 was written")
	}
	stop := errors.New("stop")
	n := 0
	if err := img.Write(WriteOptions{}, func(schema.Record, int16) error { n++; return stop }); !errors.Is(err, stop) || n != 1 {
		t.Errorf("%v after %d", err, n)
	}
}
