package controller

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/metadata"
	"github.com/highwater/highwater/internal/schema"
)

type changeCase struct {
	Replicas, ISR, ELR, LastELR, Adding, Removing []int32
	Leader                                        int32
	Recovery                                      int8
	Dirs                                          []string
	MetadataVersion                               int16
	ELROn                                         bool
	MinISR                                        int
	Acceptable                                    []int32
	Election                                      int8
	TargetISR, TargetReplicas                     []int32
	TargetAdding, TargetRemoving                  []int32
	Unclean                                       int32
	TargetRecovery                                *int8
	DirOf                                         *int32
	Change                                        *struct {
		ISR, Replicas, Removing, Adding, ELR, LastELR []int32
		Leader                                        int32
		Recovery                                      int8
		Dirs                                          []string
		Version                                       int16
	}
}

func vectorDir(n int) (d kafka.DirectoryID) {
	binary.BigEndian.PutUint64(d[:], 0x1234)
	binary.BigEndian.PutUint64(d[8:], 0x8000000000000000|uint64(1000+n))
	return d
}

func ids(t *testing.T, texts []string) []kafka.UUID {
	var out []kafka.UUID
	for _, s := range texts {
		u, err := kafka.ParseUUID(s)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, u)
	}
	return out
}

// Every record equals that of Kafka's PartitionChangeBuilder for the same partition and the same wish. Two things we do
// otherwise on purpose: a partition that had no leader before gets no "last known leader -1"; and the eligible leader
// replicas have none that is no replica any more.
func TestChangesAreKafkas(t *testing.T) {
	f, err := os.Open("testdata/changes.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	s := bufio.NewScanner(z)
	s.Buffer(nil, 1<<20)
	n, differ, records, failed := 0, 0, 0, 0
	for s.Scan() {
		n++
		var c changeCase
		if err := json.Unmarshal(s.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		p := metadata.Partition{Leader: kafka.BrokerID(c.Leader), LeaderEpoch: 5, PartitionEpoch: 7, Recovery: metadata.RecoveryState(c.Recovery),
			Replicas: brokerIDs(c.Replicas), ISR: brokerIDs(c.ISR), Removing: brokerIDs(c.Removing), Adding: brokerIDs(c.Adding),
			ELR: brokerIDs(c.ELR), LastKnownELR: brokerIDs(c.LastELR), Directories: ids(t, c.Dirs)}
		acceptable := func(id kafka.BrokerID) bool { return slices.Contains(c.Acceptable, int32(id)) }
		b := &change{partition: 3, now: &p, facts: metadata.Version(c.MetadataVersion).Facts(), elr: c.ELROn, minISR: c.MinISR,
			acceptable: acceptable, defaultDir: func(id kafka.BrokerID) kafka.DirectoryID { return vectorDir(int(id)) },
			election: []election{electOnline, electPreferred, electUnclean}[c.Election],
			replicas: p.Replicas, isr: p.ISR, adding: p.Adding, removing: p.Removing, elrNext: p.ELR, recovery: p.Recovery,
			unclean: kafka.BrokerID(c.Unclean), moved: kafka.NoBroker}
		set := func(to *[]kafka.BrokerID, from []int32) {
			if from != nil {
				*to = brokerIDs(from)
			}
		}
		set(&b.isr, c.TargetISR)
		set(&b.replicas, c.TargetReplicas)
		set(&b.adding, c.TargetAdding)
		set(&b.removing, c.TargetRemoving)
		if c.TargetRecovery != nil {
			b.recovery = metadata.RecoveryState(*c.TargetRecovery)
		}
		if c.DirOf != nil {
			b.moved, b.dir = kafka.BrokerID(*c.DirOf), vectorDir(9)
		}
		got := b.build()
		if c.Change == nil {
			if got != nil {
				t.Errorf("case %d: a record, Kafka writes none: %+v\n%s", n, got, s.Text())
			}
			continue
		}
		records++
		want := schema.NewPartitionChangeRecord()
		want.PartitionID, want.ISR, want.Leader, want.Replicas = 3, c.Change.ISR, c.Change.Leader, c.Change.Replicas
		want.RemovingReplicas, want.AddingReplicas, want.LeaderRecoveryState = c.Change.Removing, c.Change.Adding, c.Change.Recovery
		want.EligibleLeaderReplicas, want.LastKnownELR = c.Change.ELR, c.Change.LastELR
		if c.Change.Dirs != nil {
			want.Directories = ids(t, c.Change.Dirs)
		}
		if reflect.DeepEqual(got, want) {
			if v := metadata.Version(c.MetadataVersion).Facts().PartitionChangeRecordVersion; v != c.Change.Version {
				t.Errorf("case %d: version %d, Kafka %d", n, v, c.Change.Version)
			}
			if _, err := got.AppendTo(nil, c.Change.Version); err != nil {
				t.Errorf("case %d: %v", n, err)
			}
			continue
		}
		if strange := func(id int32) bool { return !slices.Contains(b.replicas, kafka.BrokerID(id)) }; slices.ContainsFunc(want.EligibleLeaderReplicas, strange) || slices.ContainsFunc(c.ELR, strange) {
			differ++
			now := c.ELR
			if want.EligibleLeaderReplicas != nil {
				now = slices.DeleteFunc(want.EligibleLeaderReplicas, strange)
			}
			want.EligibleLeaderReplicas = nil
			if now = slices.DeleteFunc(slices.Clone(now), strange); !slices.Equal(now, c.ELR) {
				want.EligibleLeaderReplicas = append([]int32{}, now...)
			}
			if got != nil && reflect.DeepEqual(got, want) {
				continue
			}
		}
		if slices.Equal(want.LastKnownELR, []int32{-1}) && got.LastKnownELR == nil {
			want.LastKnownELR = nil
			if reflect.DeepEqual(got, want) {
				differ++
				continue
			}
		}
		g, _ := json.Marshal(got)
		w, _ := json.Marshal(want)
		t.Errorf("case %d:\n got %s\nwant %s\n%s", n, g, w, s.Text())
		if failed++; failed == 10 {
			t.FailNow()
		}
	}
	if n != 6000 || records < 4000 || differ > 300 {
		t.Errorf("%d cases, %d records, %d different", n, records, differ)
	}
	t.Logf("%d cases, %d records, %d where we do otherwise on purpose", n, records, differ)
}
