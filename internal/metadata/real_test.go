package metadata

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/highwater/highwater/internal/fixture"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/schema"
)

// metadataLogs gives the files of every __cluster_metadata-0 of an archive of real Kafka's: directory → name → content.
func metadataLogs(t testing.TB, archive string) map[string]map[string][]byte {
	t.Helper()
	f, err := os.Open(fixture.Path("data/" + archive + ".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]map[string][]byte)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		dir, name := path.Split(h.Name)
		if !strings.HasSuffix(dir, "__cluster_metadata-0/") || h.Typeflag != tar.TypeReg {
			continue
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if out[dir] == nil {
			out[dir] = make(map[string][]byte)
		}
		out[dir][name] = b
	}
}

type logRecord struct {
	at      Provenance
	control bool
	value   []byte
}

// recordsOf reads batches up to the first that isn't whole: what an unclean stop leaves.
func recordsOf(t testing.TB, b []byte) []logRecord {
	t.Helper()
	var out []logRecord
	for len(b) > 0 {
		batch, rest, err := record.Next(b)
		if err != nil || len(batch) == 0 || batch.Check() != nil {
			return out
		}
		b = rest
		for r, err := range batch.All() {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, logRecord{Provenance{r.Offset, batch.PartitionLeaderEpoch(), batch.MaxTimestamp()}, batch.Control(), bytes.Clone(r.Value)})
		}
	}
	return out
}

func sorted(files map[string][]byte, suffix string) []string {
	var names []string
	for n := range files {
		if strings.HasSuffix(n, suffix) {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names
}

// snapshot loads a checkpoint, and gives its metadata records too.
func snapshot(t testing.TB, name string, b []byte) (*Image, [][]byte) {
	t.Helper()
	end, err := strconv.ParseInt(name[:20], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	epoch, err := strconv.ParseInt(name[21:31], 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	at := Provenance{Offset: end - 1, Epoch: kafka.LeaderEpoch(epoch)}
	d := NewDelta(Empty())
	var values [][]byte
	for _, r := range recordsOf(t, b) {
		if r.control {
			continue
		}
		if err := d.ReplayBytes(at, r.value); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		values = append(values, r.value)
	}
	d.Skip(at)
	img, _ := d.Apply()
	return img, values
}

func describe(c *Changes) string {
	var b strings.Builder
	for t := range c.Topics() {
		fmt.Fprintf(&b, " topic %s created=%v deleted=%v %v", t.Name, t.Created, t.Deleted, slices.Collect(t.Partitions()))
	}
	fmt.Fprint(&b, " brokers ", slices.Collect(c.Brokers()), " controllers ", slices.Collect(c.Controllers()), " features ", slices.Collect(c.Features()),
		" configs ", slices.Collect(c.Configs()), " quotas ", len(slices.Collect(c.ClientQuotas())), " acls ", slices.Collect(c.ACLs()),
		" scram ", slices.Collect(c.Scrams()), " tokens ", slices.Collect(c.DelegationTokens()), " pids ", c.producerIDs, " zk ", c.zkMigration)
	return b.String()
}

var archives = []string{
	"3.3.2-single", "3.9.2-single", "3.9.2-migrated", "cluster-4.4-formatted", "cluster-4.4", "jbod-4.4", "single-4.4", "single-4.4-unclean", "single-4.4-torn", "formatted-4.4",
}

// Everything that the real Kafka wrote into metadata logs and snapshots replays; the log up to a snapshot's end gives
// what the snapshot gives; the changes that a Delta reports are the ones that Diff finds; and what we write for a
// snapshot is, record by record, bytes and record versions, what Kafka wrote, and gives the same Image back.
func TestRealLogs(t *testing.T) {
	seen := make(map[string]int)
	snapshots := 0
	for _, archive := range archives {
		for dir, files := range metadataLogs(t, archive) {
			where := archive + " " + dir
			var log []logRecord
			for _, name := range sorted(files, ".log") {
				log = append(log, recordsOf(t, files[name])...)
			}
			points := make(map[kafka.Offset]string) // end offset → snapshot
			var img *Image
			for _, name := range sorted(files, ".checkpoint") {
				if archive == "single-4.4-torn" && len(recordsOf(t, files[name])) == 0 {
					continue // damaged on purpose
				}
				s, values := snapshot(t, name, files[name])
				snapshots++
				checkWritten(t, where+name, s, values)
				points[s.provenance.Offset+1] = name
				if img == nil && (len(log) == 0 || s.provenance.Offset+1 >= log[0].at.Offset && log[0].at.Offset > 0) {
					img = s
				}
			}
			if img == nil {
				img = Empty()
			}
			from := img
			d := NewDelta(img)
			for i, r := range log {
				if r.at.Offset <= img.provenance.Offset {
					continue
				}
				if r.control {
					d.Skip(r.at)
				} else {
					if err := d.ReplayBytes(r.at, r.value); err != nil {
						t.Fatalf("%s: %v", where, err)
					}
					id, _, _, _ := schema.ReadFrameHeader(r.value)
					seen[schema.Lookup(schema.LogMetadata, "record", id).Name]++
				}
				if name := points[r.at.Offset+1]; name != "" || i == len(log)-1 {
					open := d.InTransaction()
					next, changes := d.Apply()
					if diff := Diff(from, next); !covers(changes, diff) {
						t.Errorf("%s at %d: changes\n%s\ndiff\n%s", where, r.at.Offset, describe(changes), describe(diff))
					}
					from = next
					if name != "" && !open {
						s, _ := snapshot(t, name, files[name])
						if diff := Diff(s, next); !diff.Empty() {
							t.Errorf("%s: log up to %s differs from it: %s", where, name, describe(diff))
						}
						if next.provenance.SnapshotID() != s.provenance.SnapshotID() {
							t.Errorf("%s: %s has the id %v, want %v", where, name, next.provenance.SnapshotID(), s.provenance.SnapshotID())
						}
					}
				}
			}
		}
	}
	t.Logf("%d snapshots; replayed %v", snapshots, seen)
	if snapshots < 40 || len(seen) < 15 {
		t.Error("the fixtures have shrunk")
	}
}

// covers tells whether changes name all that differs; they may name more: what changed and changed back.
func covers(changes, diff *Changes) bool {
	both := new(Changes)
	both.add(changes)
	for t := range diff.Topics() {
		c := changes.Topic(t.ID)
		if c == nil || c.Created != t.Created || c.Deleted != t.Deleted {
			return false
		}
		for p := range t.Partitions() {
			if !c.partitions.Contains(p) {
				return false
			}
		}
	}
	rest := *diff
	rest.topics.Clear()
	both.topics.Clear()
	before := describe(both)
	both.add(&rest)
	return describe(both) == before
}

// checkWritten writes an Image at its own metadata.version and compares with Kafka's records.
func checkWritten(t *testing.T, where string, img *Image, want [][]byte) {
	t.Helper()
	var got [][]byte
	d := NewDelta(Empty())
	err := img.Write(WriteOptions{}, func(r schema.Record, version int16) error {
		b, err := schema.AppendFrame(nil, r, version)
		if err != nil {
			return err
		}
		got = append(got, b)
		return d.ReplayBytes(img.provenance, b)
	})
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	back, _ := d.Apply()
	if diff := Diff(img, back); !diff.Empty() {
		t.Errorf("%s: written and read again it differs: %s", where, describe(diff))
	}
	left := make(map[string]int)
	for _, b := range want {
		if h := canonical(t, b); h != "" {
			left[h]++
		}
	}
	show := func(h string) string {
		b, _ := hex.DecodeString(h)
		r, v, err := schema.ReadFramed(schema.LogMetadata, b)
		if err != nil {
			return err.Error()
		}
		return string(schema.AppendTypedJSON(nil, r, v))
	}
	for _, b := range got {
		h := canonical(t, b)
		if left[h] == 0 {
			t.Errorf("%s: we write %s, Kafka doesn't", where, show(h))
			continue
		}
		left[h]--
	}
	for h, n := range left {
		if n > 0 {
			t.Errorf("%s: Kafka writes %s, we don't", where, show(h))
		}
	}
	if len(want) > 0 && len(got) > 0 && !bytes.Equal(want[0], got[0]) {
		t.Errorf("%s: the first record is %s, Kafka's %s", where, show(hex.EncodeToString(got[0])), show(hex.EncodeToString(want[0])))
	}
}

// canonical is a record's bytes in hex, without what Kafka leaves to chance or has given up: the order of a node's
// listeners and features, which is a Java hash map's; who asked for producer ids (written by 3.3); and the record that says that no
// migration from ZooKeeper ever was (3.9).
func canonical(t *testing.T, b []byte) string {
	r, version, err := schema.ReadFramed(schema.LogMetadata, b)
	if err != nil {
		t.Fatal(err)
	}
	switch r := r.(type) {
	case *schema.RegisterBrokerRecord:
		slices.SortFunc(r.EndPoints, func(a, b schema.RegisterBrokerRecordBrokerEndpoint) int { return strings.Compare(a.Name, b.Name) })
		slices.SortFunc(r.Features, func(a, b schema.RegisterBrokerRecordBrokerFeature) int { return strings.Compare(a.Name, b.Name) })
	case *schema.RegisterControllerRecord:
		slices.SortFunc(r.EndPoints, func(a, b schema.RegisterControllerRecordControllerEndpoint) int {
			return strings.Compare(a.Name, b.Name)
		})
		slices.SortFunc(r.Features, func(a, b schema.RegisterControllerRecordControllerFeature) int {
			return strings.Compare(a.Name, b.Name)
		})
	case *schema.ProducerIdsRecord:
		r.BrokerID, r.BrokerEpoch = -1, -1
	case *schema.ZkMigrationStateRecord:
		if r.ZkMigrationState == 0 {
			return ""
		}
	}
	if b, err = schema.AppendFrame(nil, r, version); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b)
}
