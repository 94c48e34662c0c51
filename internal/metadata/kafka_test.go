package metadata

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/schema"
)

// testdata/images.jsonl.gz holds histories of records and what the real Kafka's MetadataImage writes after each. To make
// it anew:
//
//	go test ./internal/metadata -run TestAgainstKafka -write-histories FILE
//	java -cp "KAFKA/libs/*" internal/metadata/testdata/Images.java < FILE | gzip -9n > internal/metadata/testdata/images.jsonl.gz
var writeHistories = flag.String("write-histories", "", "write the histories that Kafka shall replay to this file")

type history struct {
	Name    string   `json:"name"`
	Levels  []int    `json:"levels"`  // to write the image at
	Records []string `json:"records"` // hex, framed
	Images  []struct {
		Level   int      `json:"level"`
		Lost    []string `json:"lost"`
		Records []string `json:"records"`
	} `json:"images,omitempty"`
}

// historyWriter makes random records that are valid one after the other.
type historyWriter struct {
	t   testing.TB
	rng *rand.Rand
	d   *Delta
	out []string
}

func (w *historyWriter) put(r schema.Record, version int16) {
	w.t.Helper()
	b, err := schema.AppendFrame(nil, r, version)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.d.ReplayBytes(Provenance{Offset: int64(len(w.out))}, b); err != nil {
		w.t.Fatal(err)
	}
	w.out = append(w.out, hex.EncodeToString(b))
}

func (w *historyWriter) ids(n, of int) []int32 {
	var out []int32
	for _, i := range w.rng.Perm(of)[:n] {
		out = append(out, int32(i+1))
	}
	return out
}

func (w *historyWriter) dirs(n int) []kafka.UUID {
	var out []kafka.UUID
	for _, i := range w.rng.Perm(n + 5)[:n] {
		out = append(out, id(500+i))
	}
	return out
}

func (w *historyWriter) broker(n int32) {
	r := schema.NewRegisterBrokerRecord()
	r.BrokerID, r.BrokerEpoch, r.IncarnationID, r.Fenced = n, int64(len(w.out)+1), id(w.rng.Intn(99)), w.rng.Intn(2) == 0
	r.LogDirs, r.InControlledShutdown = w.dirs(1+w.rng.Intn(3)), w.rng.Intn(4) == 0
	if w.rng.Intn(2) == 0 {
		r.Rack = text(fmt.Sprint("rack-", w.rng.Intn(3)))
	} else {
		r.Rack = nil
	}
	if w.rng.Intn(2) == 0 {
		r.CordonedLogDirs = append([]kafka.UUID{}, r.LogDirs[:w.rng.Intn(len(r.LogDirs))]...)
	}
	for _, l := range []string{"PLAINTEXT", "SASL", "EXTERNAL"} {
		r.EndPoints = append(r.EndPoints, schema.RegisterBrokerRecordBrokerEndpoint{Name: l, Host: "h", Port: uint16(w.rng.Intn(65536))})
	}
	for _, f := range []string{"metadata.version", "group.version", "kraft.version"} {
		r.Features = append(r.Features, schema.RegisterBrokerRecordBrokerFeature{Name: f, MaxSupportedVersion: int16(w.rng.Intn(30))})
	}
	w.put(r, 4)
}

func (w *historyWriter) step() {
	img := w.d.Image()
	topics := slices.Collect(img.Topics())
	brokers := slices.Collect(img.Brokers())
	switch n := w.rng.Intn(30); {
	case n < 3 || len(brokers) == 0:
		w.broker(1 + w.rng.Int31n(6))
	case n < 5:
		b := brokers[w.rng.Intn(len(brokers))]
		r := schema.NewBrokerRegistrationChangeRecord()
		r.BrokerID, r.BrokerEpoch, r.Fenced, r.InControlledShutdown = int32(b.ID), int64(b.Epoch), int8(w.rng.Intn(3)-1), int8(w.rng.Intn(2))
		if w.rng.Intn(3) == 0 {
			r.LogDirs = w.dirs(w.rng.Intn(3))
		}
		if w.rng.Intn(3) == 0 {
			r.CordonedLogDirs = append([]kafka.UUID{}, w.dirs(w.rng.Intn(3))...)
		}
		w.put(r, 3)
	case n == 5:
		b := brokers[w.rng.Intn(len(brokers))]
		switch w.rng.Intn(3) {
		case 0:
			w.put(&schema.FenceBrokerRecord{ID: int32(b.ID), Epoch: int64(b.Epoch)}, 0)
		case 1:
			w.put(&schema.UnfenceBrokerRecord{ID: int32(b.ID), Epoch: int64(b.Epoch)}, 0)
		default:
			w.put(&schema.UnregisterBrokerRecord{BrokerID: int32(b.ID), BrokerEpoch: int64(b.Epoch)}, 0)
		}
	case n == 6:
		r := &schema.RegisterControllerRecord{ControllerID: w.rng.Int31n(3), IncarnationID: id(w.rng.Intn(9))}
		r.EndPoints = []schema.RegisterControllerRecordControllerEndpoint{{Name: "C", Host: "h", Port: 1}}
		w.put(r, 0)
	case n < 9 || len(topics) == 0:
		name := fmt.Sprint("topic-", w.rng.Intn(12))
		if img.Topic(name) == nil {
			w.put(&schema.TopicRecord{Name: name, TopicID: id(1000 + len(w.out))}, 0)
		}
	case n == 9 && w.rng.Intn(2) == 0:
		w.put(&schema.RemoveTopicRecord{TopicID: topics[w.rng.Intn(len(topics))].ID}, 0)
	case n < 15:
		t := topics[w.rng.Intn(len(topics))]
		r := schema.NewPartitionRecord()
		r.TopicID, r.PartitionID, r.Replicas = t.ID, int32(t.Len()), w.ids(1+w.rng.Intn(4), 6)
		r.ISR, r.Leader, r.LeaderEpoch, r.PartitionEpoch = r.Replicas[:1+w.rng.Intn(len(r.Replicas))], r.Replicas[0], 0, 0
		version := int16(w.rng.Intn(3))
		if version > 0 && w.rng.Intn(3) > 0 {
			r.Directories = w.dirs(len(r.Replicas))
		}
		if version > 1 && w.rng.Intn(3) == 0 {
			r.EligibleLeaderReplicas, r.LastKnownELR = w.ids(1, 6), w.ids(1, 6)
		}
		w.put(r, version)
	case n < 20:
		t := topics[w.rng.Intn(len(topics))]
		if t.Len() == 0 {
			return
		}
		r := schema.NewPartitionChangeRecord()
		r.TopicID, r.PartitionID = t.ID, w.rng.Int31n(int32(t.Len()))
		p, _ := t.Partition(r.PartitionID)
		set := func(n int) bool { return w.rng.Intn(n) == 0 }
		if set(2) {
			r.ISR = append([]int32{}, w.ids(w.rng.Intn(3), 6)...)
		}
		if set(2) {
			r.Leader = w.rng.Int31n(5) - 1
		}
		if set(3) {
			r.Replicas = w.ids(1+w.rng.Intn(4), 6)
			if p.Directories != nil && len(p.Directories) != len(r.Replicas) {
				r.Directories = w.dirs(len(r.Replicas))
			}
		} else if set(4) {
			r.Directories = w.dirs(len(p.Replicas))
		}
		if set(4) {
			r.AddingReplicas, r.RemovingReplicas = append([]int32{}, w.ids(w.rng.Intn(2), 6)...), append([]int32{}, w.ids(w.rng.Intn(2), 6)...)
		}
		if set(4) {
			r.LeaderRecoveryState = int8(w.rng.Intn(2))
		}
		if set(4) {
			r.EligibleLeaderReplicas, r.LastKnownELR = append([]int32{}, w.ids(w.rng.Intn(3), 6)...), append([]int32{}, w.ids(w.rng.Intn(3), 6)...)
		}
		w.put(r, 2)
	case n == 20 && w.rng.Intn(3) == 0:
		r := &schema.ClearElrRecord{}
		if w.rng.Intn(2) == 0 {
			r.TopicName = topics[w.rng.Intn(len(topics))].Name
		}
		w.put(r, 0)
	case n < 24:
		r := &schema.ConfigRecord{ResourceType: []int8{2, 4, 16, 32}[w.rng.Intn(4)], Name: fmt.Sprint("k", w.rng.Intn(3)), ResourceName: fmt.Sprint("r", w.rng.Intn(3))}
		if r.ResourceType == 2 {
			r.ResourceName = topics[w.rng.Intn(len(topics))].Name
		}
		if w.rng.Intn(4) > 0 {
			r.Value = text(fmt.Sprint(w.rng.Intn(9)))
		}
		w.put(r, 0)
	case n == 24:
		r := &schema.ClientQuotaRecord{Key: fmt.Sprint("q", w.rng.Intn(2)), Value: w.rng.Float64(), Remove: w.rng.Intn(4) == 0}
		for _, k := range []string{"user", "client-id"} {
			switch w.rng.Intn(3) {
			case 0:
				r.Entity = append(r.Entity, schema.ClientQuotaRecordEntityData{EntityType: k})
			case 1:
				r.Entity = append(r.Entity, schema.ClientQuotaRecordEntityData{EntityType: k, EntityName: text("x")})
			}
		}
		if len(r.Entity) > 0 {
			w.put(r, 0)
		}
	case n == 25:
		w.put(&schema.ProducerIdsRecord{BrokerID: 1, BrokerEpoch: 1, NextProducerID: max(img.NextProducerID(), 0) + 1000}, 0)
	case n == 26:
		all := slices.Collect(img.ACLs())
		if len(all) > 2 && w.rng.Intn(2) == 0 {
			w.put(&schema.RemoveAccessControlEntryRecord{ID: all[w.rng.Intn(len(all))].ID}, 0)
		} else {
			w.put(&schema.AccessControlEntryRecord{ID: id(3000 + len(w.out)), ResourceType: 2, ResourceName: "*", PatternType: 3, Principal: "User:a", Host: "*", Operation: 3, PermissionType: 3}, 0)
		}
	case n == 27:
		all := slices.Collect(img.Scrams())
		if len(all) > 1 && w.rng.Intn(2) == 0 {
			c := all[w.rng.Intn(len(all))]
			w.put(&schema.RemoveUserScramCredentialRecord{Name: c.User, Mechanism: int8(c.Mechanism)}, 0)
		} else {
			w.put(&schema.UserScramCredentialRecord{Name: fmt.Sprint("u", w.rng.Intn(4)), Mechanism: int8(1 + w.rng.Intn(2)), Salt: []byte{1}, StoredKey: []byte{2}, ServerKey: []byte{3}, Iterations: 4096 + w.rng.Int31n(9)}, 0)
		}
	case n == 28:
		all := slices.Collect(img.DelegationTokens())
		if len(all) > 1 && w.rng.Intn(2) == 0 {
			w.put(&schema.RemoveDelegationTokenRecord{TokenID: all[w.rng.Intn(len(all))].ID}, 0)
		} else {
			w.put(&schema.DelegationTokenRecord{TokenID: fmt.Sprint("t", w.rng.Intn(4)), Owner: "User:a", Requester: "User:b", Renewers: []string{"User:c"}, IssueTimestamp: 1, MaxTimestamp: 9, ExpirationTimestamp: w.rng.Int63n(9)}, 0)
		}
	default:
		w.put(&schema.FeatureLevelRecord{Name: FeatureNames()[1+w.rng.Intn(5)], FeatureLevel: int16(w.rng.Intn(2))}, 0)
	}
}

func histories(t testing.TB) []history {
	var all []history
	every := []int{}
	for _, v := range Versions() {
		every = append(every, int(v))
	}
	for seed := range int64(24) {
		w := &historyWriter{t: t, rng: rand.New(rand.NewSource(seed)), d: NewDelta(Empty())}
		w.put(&schema.FeatureLevelRecord{Name: MetadataVersionFeature, FeatureLevel: 33}, 0)
		h := history{Name: fmt.Sprint("random ", seed), Levels: []int{33}}
		steps := 150
		if seed < 3 {
			h.Levels, steps = every, 60
		}
		for range steps {
			w.step()
		}
		h.Records = w.out
		all = append(all, h)
	}
	return all
}

// What the real Kafka's own MetadataDelta and MetadataImage make of the same records, and write at a metadata.version, is
// what we make and write: the same records, bytes and versions, and the same losses.
func TestAgainstKafka(t *testing.T) {
	if *writeHistories != "" {
		var b bytes.Buffer
		for _, h := range histories(t) {
			j, err := json.Marshal(h)
			if err != nil {
				t.Fatal(err)
			}
			b.Write(append(j, '\n'))
		}
		if err := os.WriteFile(*writeHistories, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	f, err := os.Open("testdata/images.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(z)
	n := 0
	for {
		var h history
		if err := d.Decode(&h); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		delta := NewDelta(Empty())
		for i, r := range h.Records {
			b, err := hex.DecodeString(r)
			if err != nil {
				t.Fatal(err)
			}
			if err := delta.ReplayBytes(Provenance{Offset: int64(i)}, b); err != nil {
				t.Fatalf("%s: %v", h.Name, err)
			}
		}
		img, _ := delta.Apply()
		for _, want := range h.Images {
			n++
			where := h.Name + " at " + Version(want.Level).String()
			var lost, got []string
			err := img.Write(WriteOptions{Version: Version(want.Level), Lost: func(s string) {
				if s != lostELR && !slices.Contains(lost, s) {
					lost = append(lost, s)
				}
			}}, func(r schema.Record, version int16) error {
				b, err := schema.AppendFrame(nil, r, version)
				got = append(got, canonical(t, b))
				return err
			})
			if err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			var records []string
			for _, r := range want.Records {
				b, err := hex.DecodeString(r)
				if err != nil {
					t.Fatal(err)
				}
				records = append(records, canonical(t, b))
			}
			for i, l := range want.Lost {
				// Kafka prints its image where we say what it holds.
				switch {
				case strings.HasPrefix(l, "ScramImage("):
					want.Lost[i] = "scram credentials"
				case strings.HasPrefix(l, "DelegationTokenImage("):
					want.Lost[i] = "delegation tokens"
				}
			}
			want.Lost = slices.DeleteFunc(want.Lost, func(l string) bool {
				// Kafka counts it as a loss, too, that a broker said that nothing is cordoned.
				return strings.Contains(l, "cordoned") && !anyCordoned(img)
			})
			slices.Sort(got)
			slices.Sort(records)
			slices.Sort(lost)
			slices.Sort(want.Lost)
			if !slices.Equal(lost, want.Lost) {
				t.Errorf("%s: lost %q, Kafka %q", where, lost, want.Lost)
			}
			if !slices.Equal(got, records) {
				t.Errorf("%s: %s", where, firstDifference(got, records))
			}
		}
	}
	if n < 24 {
		t.Errorf("%d images", n)
	}
}

func anyCordoned(i *Image) bool {
	for b := range i.Brokers() {
		if len(b.CordonedDirs) > 0 {
			return true
		}
	}
	return false
}

func firstDifference(got, want []string) string {
	show := func(l []string, i int) string {
		if i >= len(l) {
			return "nothing"
		}
		b, _ := hex.DecodeString(l[i])
		r, v, err := schema.ReadFramed(schema.LogMetadata, b)
		if err != nil {
			return err.Error()
		}
		return string(schema.AppendTypedJSON(nil, r, v))
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			return strings.Join([]string{"record ", strconv.Itoa(i), " is ", show(got, i), ", Kafka's ", show(want, i)}, "")
		}
	}
	return "equal"
}

// Records of any kind in any order: an error or an image that can be written and read again, never a panic.
func FuzzReplay(f *testing.F) {
	for _, h := range histories(f)[:6] {
		var all []byte
		for _, r := range h.Records[:40] {
			b, err := hex.DecodeString(r)
			if err != nil {
				f.Fatal(err)
			}
			all = append(append(all, byte(len(b)>>8), byte(len(b))), b...)
		}
		f.Add(all)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d := NewDelta(Empty())
		at := Provenance{}
		for len(b) > 2 {
			n := min(int(b[0])<<8|int(b[1]), len(b)-2)
			at.Offset++
			if err := d.ReplayBytes(at, b[2:2+n]); err != nil {
				d = NewDelta(Empty()) // after an error it must be dropped
			}
			b = b[2+n:]
		}
		img, changes := d.Apply()
		if diff := Diff(Empty(), img); !covers(changes, diff) {
			t.Fatalf("changes %s, diff %s", describe(changes), describe(diff))
		}
		back := NewDelta(Empty())
		version := img.MetadataVersion()
		err := img.Write(WriteOptions{Version: max(version, LatestVersion), Lost: func(string) {}}, func(r schema.Record, version int16) error {
			b, err := schema.AppendFrame(nil, r, version)
			if err != nil {
				return err
			}
			return back.ReplayBytes(at, b)
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}
