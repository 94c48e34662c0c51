package chaos

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	batches "github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/test/peer"
)

// What a start does with a data directory that is not as the node left it.
const (
	refusedStart = iota // it ends with one error, and what can't be made anew is as it was
	offline             // partition t-0 is offline, and what can't be made anew is as it was; the others serve
	served              // all records are served
	fewer               // the node serves; t-0 has lost records, and it says so
	anew                // t-0 is gone and begins anew, and the node says so
	gapped              // the node serves all that is left of t-0, whose files are as they were, and says what is missing
)

// damage is a way in which files may be bad. {ONE} stands for the first log directory, {TWO} for the second.
type damage struct {
	name   string
	killed bool // the node was killed, not stopped
	do     func(t *testing.T, one, two string)
	is     int
	says   string                              // what the output must match
	fix    func(t *testing.T, one, two string) // the way out of a refused start, if it is tried: then all records are served
}

// on changes the bytes of the file that a pattern names, the last of them; nil removes the file, and no change a whole directory.
func on(pattern string, change func(b []byte) []byte) func(t *testing.T, one, two string) {
	return func(t *testing.T, one, two string) {
		t.Helper()
		names, err := filepath.Glob(strings.NewReplacer("{ONE}", one, "{TWO}", two).Replace(pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v %v", pattern, names, err)
		}
		name := slices.Max(names)
		if change == nil {
			if err := os.RemoveAll(name); err != nil {
				t.Fatal(err)
			}
			return
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b = change(b)
		if b == nil {
			err = os.RemoveAll(name)
		} else if err = os.Remove(name); err == nil {
			err = os.WriteFile(name, b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// without removes the files that a pattern names.
func without(pattern string) func(t *testing.T, one, two string) {
	return func(t *testing.T, one, two string) {
		t.Helper()
		names, err := filepath.Glob(strings.NewReplacer("{ONE}", one, "{TWO}", two).Replace(pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v %v", pattern, names, err)
		}
		for _, name := range names {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func garbage([]byte) []byte { return []byte(strings.Repeat("\x7fgarbage\n", 40)) }
func nothing([]byte) []byte { return []byte{} }
func gone([]byte) []byte    { return nil }

// flip inverts a bit at a share of the file.
func flip(share float64) func(b []byte) []byte {
	return func(b []byte) []byte {
		b[int(float64(len(b))*share)] ^= 0x10
		return b
	}
}

// laterLevel gives each record of metadata.version in a file of batches a level that nobody knows yet.
func laterLevel(b []byte) []byte {
	for rest := b; len(rest) > 0; {
		batch := batches.Batch(rest[:batches.Batch(rest).Size()])
		const name = "metadata.version"
		if at := bytes.Index(batch, []byte(name)); at >= 0 {
			binary.BigEndian.PutUint16(batch[at+len(name):], 9999)
			batch.SetCRC()
		}
		rest = rest[len(batch):]
	}
	return b
}

func replaced(old, new string) func(b []byte) []byte {
	return func(b []byte) []byte { return []byte(strings.Replace(string(b), old, new, 1)) }
}

// withoutLast takes the last batch off a file of batches.
func withoutLast(b []byte) []byte {
	last := 0
	for pos := 0; pos < len(b); pos += batches.Batch(b[pos:]).Size() {
		last = pos
	}
	return b[:last]
}

const metadataGone = `one/__cluster_metadata-0 has no record, but everything below offset \d+ was synced there[\s\S]*from a backup`

var damages = []damage{
	{name: "meta.properties is empty", do: on("{ONE}/meta.properties", nothing), is: refusedStart, says: `one/meta\.properties is corrupt: node ID not found[\s\S]*node\.id=1, cluster\.id=\S{22}, and directory\.id=`},
	{name: "meta.properties is garbage", do: on("{TWO}/meta.properties", garbage), is: refusedStart, says: `two/meta\.properties is corrupt: node ID not found[\s\S]*node\.id=1, cluster\.id=\S{22}, and directory\.id=`},
	{name: "meta.properties is missing in one directory", do: on("{TWO}/meta.properties", gone), is: refusedStart, says: "No `meta\\.properties` found in .*two [\\s\\S]*disk is mounted[\\s\\S]*out of log\\.dirs"},
	{name: "meta.properties of a later Kafka", do: on("{TWO}/meta.properties", replaced("version=1", "version=2")), is: refusedStart, says: `two/meta\.properties is corrupt: unknown version "2"[\s\S]*start that version`},
	{name: "meta.properties has an id that is none", do: on("{TWO}/meta.properties", replaced("directory.id=", "directory.id=x")), is: refusedStart, says: `two/meta\.properties is corrupt: directory\.id[\s\S]*node\.id=1, cluster\.id=`},
	{name: "meta.properties has an id that Kafka reserves", do: on("{TWO}/meta.properties", func(b []byte) []byte {
		return regexp.MustCompile(`(?m)^directory\.id=.*`).ReplaceAll(b, []byte("directory.id=AAAAAAAAAAAAAAAAAAAAAQ"))
	}), is: refusedStart, says: `Invalid reserved directory ID AAAAAAAAAAAAAAAAAAAAAQ found in \S+/two[\s\S]*directory\.id=`},
	{name: "two directories of the same id", do: func(t *testing.T, one, two string) {
		b, err := os.ReadFile(one + "/meta.properties")
		if err == nil {
			err = os.WriteFile(two+"/meta.properties", b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}, is: refusedStart, says: `Duplicate directory ID`},
	{name: "the directories are swapped", do: func(t *testing.T, one, two string) {
		for _, r := range [][2]string{{one, one + "x"}, {two, one}, {one + "x", two}} {
			if err := os.Rename(r[0], r[1]); err != nil {
				t.Fatal(err)
			}
		}
	}, is: refusedStart, says: "Found unexpected metadata location in data directory `\\S+/two/__cluster_metadata-0` [\\s\\S]*Set metadata\\.log\\.dir=\\S+/two"},
	{name: "a copy of the metadata log in the other directory", do: func(t *testing.T, one, two string) {
		if out, err := exec.Command("cp", "-a", one+"/__cluster_metadata-0", two).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}, is: refusedStart, says: "Found unexpected metadata location in data directory `\\S+/two/__cluster_metadata-0` [\\s\\S]*not this node's newest",
		fix: on("{TWO}/__cluster_metadata-0", nil)},
	{name: "a foreign directory among the partitions", do: func(t *testing.T, one, _ string) {
		if err := os.Mkdir(one+"/photos", 0o755); err != nil {
			t.Fatal(err)
		}
	}, is: refusedStart, says: `Found directory .*one/photos`},
	{name: "quorum-state is garbage", do: on("{ONE}/__cluster_metadata-0/quorum-state", garbage), is: refusedStart, says: `__cluster_metadata-0/quorum-state is corrupt[\s\S]*Move .*quorum-state away: it is written anew`,
		fix: on("{ONE}/__cluster_metadata-0/quorum-state", gone)},
	{name: "quorum-state of a later Kafka", do: on("{ONE}/__cluster_metadata-0/quorum-state", replaced(`"data_version":0`, `"data_version":7`)), is: refusedStart, says: `quorum-state is corrupt: data_version: unknown version "7"[\s\S]*start that version`},
	{name: "the first checkpoint is garbage", do: on("{ONE}/__cluster_metadata-0/*.checkpoint", garbage), is: refusedStart, says: `__cluster_metadata-0/.*\.checkpoint[\s\S]*from a backup`},
	{name: "a metadata snapshot is garbage", do: func(t *testing.T, one, _ string) {
		if err := os.WriteFile(one+"/__cluster_metadata-0/00000000000000000020-0000000001.checkpoint", garbage(nil), 0o644); err != nil {
			t.Fatal(err)
		}
	}, is: refusedStart, says: `snapshot \S+/one/__cluster_metadata-0/00000000000000000020-0000000001\.checkpoint: [\s\S]*Restore \S+0020-0000000001\.checkpoint from a backup, or move it away`,
		fix: on("{ONE}/__cluster_metadata-0/00000000000000000020-0000000001.checkpoint", gone)},
	{name: "a bit of the metadata log", do: on("{ONE}/__cluster_metadata-0/*.log", flip(0.5)), is: refusedStart, says: `__cluster_metadata-0/.*\.log is corrupt at byte[\s\S]*from a backup`},
	{name: "a bit of the metadata log, after a kill", killed: true, do: on("{ONE}/__cluster_metadata-0/*.log", flip(0.2)), is: refusedStart, says: `__cluster_metadata-0/.*\.log is corrupt at byte`},

	{name: "partition.metadata of the metadata log is garbage", do: on("{ONE}/__cluster_metadata-0/partition.metadata", garbage), is: refusedStart, says: `__cluster_metadata-0/partition\.metadata is corrupt[\s\S]*Move .*partition\.metadata away`,
		fix: on("{ONE}/__cluster_metadata-0/partition.metadata", gone)},
	{name: "the metadata log is missing", do: on("{ONE}/__cluster_metadata-0", nil), is: refusedStart, says: metadataGone},
	{name: "the metadata log is missing, after a kill", killed: true, do: on("{ONE}/__cluster_metadata-0", nil), is: refusedStart, says: metadataGone},
	{name: "the metadata log's segment is missing", do: on("{ONE}/__cluster_metadata-0/*.log", gone), is: refusedStart, says: metadataGone},
	{name: "the metadata log's segment is empty", do: on("{ONE}/__cluster_metadata-0/*.log", nothing), is: refusedStart, says: metadataGone},
	{name: "the metadata log is missing, whose recovery point Kafka does not write", do: func(t *testing.T, one, two string) {
		on("{ONE}/__cluster_metadata-0", nil)(t, one, two)
		on("{ONE}/recovery-point-offset-checkpoint", gone)(t, one, two)
	}, is: refusedStart, says: `one/__cluster_metadata-0 has no record, but there are partitions, such as .*one/\S+-0[\s\S]*from a backup`},
	{name: "the last batch of the metadata log is missing", do: on("{ONE}/__cluster_metadata-0/*.log", withoutLast), is: refusedStart, says: `one/__cluster_metadata-0 ends at offset \d+, but everything below \d+ was synced[\s\S]*from a backup.*take the line of __cluster_metadata out of \S+/one/recovery-point-offset-checkpoint`,
		fix: on("{ONE}/recovery-point-offset-checkpoint", func(b []byte) []byte {
			lines := strings.Split(string(b), "\n")
			kept := slices.DeleteFunc(lines[2:], func(l string) bool { return strings.HasPrefix(l, "__cluster_metadata ") })
			return fmt.Appendf(nil, "%s\n%d\n%s", lines[0], len(kept)-1, strings.Join(kept, "\n"))
		})},

	{name: "the metadata log of a later Kafka", do: on("{ONE}/__cluster_metadata-0/*.log", laterLevel), is: refusedStart, says: `No MetadataVersion with feature level 9999\. Valid feature levels are from 7 to \d+\. It is that of the metadata log in .*one[\s\S]*kafka-features\.sh downgrade --metadata 4\.4-IV2`},
	{name: "a metadata snapshot of a later Kafka", do: func(t *testing.T, one, _ string) {
		b, err := os.ReadFile(one + "/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint")
		if err == nil {
			err = os.WriteFile(one+"/__cluster_metadata-0/00000000000000000020-0000000001.checkpoint", laterLevel(b), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}, is: refusedStart, says: `No MetadataVersion with feature level 9999\. .* It is that of the metadata log in .*one`},
	{name: "formatted by a later Kafka", do: on("{ONE}/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint", laterLevel), is: refusedStart, says: `No MetadataVersion with feature level 9999\. .*one/__cluster_metadata-0/00000000000000000000-0000000000\.checkpoint`},
	{name: "formatted by a later Kafka, in the file of older ones", do: func(t *testing.T, one, _ string) {
		b, err := os.ReadFile(one + "/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint")
		if err == nil {
			err = os.WriteFile(one+"/bootstrap.checkpoint", laterLevel(b), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}, is: refusedStart, says: `No MetadataVersion with feature level 9999\. .*one/bootstrap\.checkpoint`},

	{name: "the recovery points are garbage", do: on("{ONE}/recovery-point-offset-checkpoint", garbage), is: served, says: `one/recovery-point-offset-checkpoint is corrupt`},
	{name: "the recovery points are garbage, after a kill", killed: true, do: on("{ONE}/recovery-point-offset-checkpoint", garbage), is: served, says: `one/recovery-point-offset-checkpoint is corrupt`},
	{name: "the high watermarks are empty", do: on("{ONE}/replication-offset-checkpoint", nothing), is: served, says: `one/replication-offset-checkpoint is corrupt|Loaded`},
	{name: "the log starts of a later Kafka", do: on("{ONE}/log-start-offset-checkpoint", replaced("0\n", "1\n")), is: served, says: `one/log-start-offset-checkpoint is corrupt.*version`},
	{name: "partition.metadata is garbage", do: on("{ONE}/t-0/partition.metadata", garbage), is: offline, says: `t-0/partition\.metadata is corrupt.*move the file away: it is written anew`},
	{name: "partition.metadata of a later Kafka", do: on("{ONE}/t-0/partition.metadata", replaced("version: 0", "version: 3")), is: offline, says: `t-0/partition\.metadata is corrupt: unknown version "3".*start that version`},
	{name: "partition.metadata is missing", do: on("{ONE}/t-0/partition.metadata", gone), is: served, says: `Loaded`},
	{name: "a partition's directory is missing", do: on("{ONE}/t-0", nil), is: anew, says: `WARN partition's directory is missing.*partition=t-0 .*everything below offset \d+ of \S*one/t-0 was synced there: .*put the directory back`},
	{name: "the leader epochs are garbage", do: on("{ONE}/t-0/leader-epoch-checkpoint", garbage), is: served, says: `t-0/leader-epoch-checkpoint is corrupt`},
	{name: "an index is garbage", do: on("{ONE}/t-0/00000000000000000000.index", garbage), is: served, says: `Loaded`},
	{name: "an index is missing", do: on("{ONE}/t-0/00000000000000000000.index", gone), is: served, says: `Loaded`},
	{name: "the newest index is garbage, after a kill", killed: true, do: on("{ONE}/t-0/*.index", garbage), is: served, says: `Loaded`},
	{name: "a time index is garbage", do: on("{ONE}/t-0/00000000000000000000.timeindex", garbage), is: served, says: `Loaded`},
	{name: "the newest producer snapshot is garbage", do: on("{ONE}/t-0/*.snapshot", garbage), is: served, says: `t-0/.*\.snapshot is corrupt`},
	{name: "the newest producer snapshot is missing", do: on("{ONE}/t-0/*.snapshot", gone), is: served, says: `Loaded`},
	{name: "a bit of a synced batch, after a kill", killed: true, do: on("{ONE}/t-0/*.log", flip(0.1)), is: offline, says: `t-0/.*\.log is corrupt at byte \d+: the batch at offset \d+.*recovery-point-offset-checkpoint`},
	{name: "the end of the newest segment is missing, after a kill", killed: true, do: on("{ONE}/t-0/*.log", func(b []byte) []byte { return b[:len(b)-7] }), is: fewer, says: `t-0/.*\.log is corrupt at byte .*truncating the log to offset`},
	{name: "garbage after the newest segment, after a kill", killed: true, do: on("{ONE}/t-0/*.log", func(b []byte) []byte { return append(b, garbage(nil)...) }), is: served, says: `truncating the log to offset`},
	{name: "a segment in the middle is missing", do: without("{ONE}/t-0/00000000000000000052.*"), is: gapped, says: `WARN.*offsets are missing.*t-0.*firstMissing=52 lastMissing=103 .*t-0/0+104\.log`},
	{name: "a segment in the middle is missing, after a kill", killed: true, do: without("{ONE}/t-0/00000000000000000052.*"), is: gapped, says: `WARN.*offsets are missing.*t-0.*firstMissing=52 lastMissing=103 .*t-0/0+104\.log`},
	{name: "the first segment is missing", do: without("{ONE}/t-0/00000000000000000000.*"), is: gapped, says: `WARN.*partition=t-0 .*begin at offset 0, and its log at 52: .*segments are missing in \S+/one/t-0`},
	{name: "the newest segment is missing", do: on("{ONE}/t-0/*.log", gone), is: offline, says: `t-0/00000000000000000052\.log is corrupt .* a later segment may be missing`},
}

// TestDamage puts every kind of damage into a copy of a node's directories.
func TestDamage(t *testing.T) {
	if peer.Software(*brokerFlag) == peer.Kafka {
		t.Log("what Kafka does with each of these is in the facts that the table was made from; it is not asked again")
		return
	}
	home := t.TempDir()
	one, two := filepath.Join(home, "one"), filepath.Join(home, "two")
	n := peer.New(t, peer.Options{Home: filepath.Join(home, "node"), Software: peer.Highwater, Properties: []string{"log.dirs=" + one + "," + two, "num.recovery.threads.per.data.dir=1", "log.retention.check.interval.ms=500"}})
	copies := map[bool]string{false: filepath.Join(home, "stopped"), true: filepath.Join(home, "killed")}
	if _, err := n.Start(); err != nil {
		t.Fatal(err)
	}
	totals := fill(t, n, one, copies)
	own, err := os.ReadFile(n.Config())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			for _, dir := range []string{"one", "two"} {
				if err := os.RemoveAll(filepath.Join(home, dir)); err != nil {
					t.Fatal(err)
				}
				if out, err := exec.Command("cp", "-a", filepath.Join(copies[d.killed], dir), home).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			d.do(t, one, two)
			if d.is == refusedStart {
				before := kept(t, one) + kept(t, two)
				out, status := attempt(t, peer.Highwater, filepath.Join(home, "node"), string(own))
				check(t, peer.Highwater, out, status, refused{says: d.says})
				if after := kept(t, one) + kept(t, two); after != before {
					t.Errorf("the start changed files:\n%s", diff(before, after))
				}
				if d.fix == nil {
					return
				}
				d.fix(t, one, two)
				if _, err := n.Start(); err != nil {
					t.Fatalf("the way out is none: %v", err)
				}
				defer n.Kill()
				if got := count(t, n.Addr(), false); !slices.Equal(got, totals[d.killed]) {
					t.Errorf("after the way out there are %d records, want %d", got, totals[d.killed])
				}
				return
			}
			bad := ""
			if d.is != anew {
				bad = kept(t, one+"/t-0")
			}
			if _, err := n.Start(); err != nil {
				t.Fatal(err)
			}
			defer n.Kill()
			got := count(t, n.Addr(), d.is == offline)
			for p := range got {
				switch want := totals[d.killed][p]; {
				case p == 0 && d.is == fewer:
					if got[p] == 0 || got[p] >= want {
						t.Errorf("t-0 has %d records of %d", got[p], want)
					}
				case p == 0 && d.is == anew:
					if got[p] != 0 {
						t.Errorf("t-0 has %d records, want none", got[p])
					}
				case p == 0 && d.is == offline:
					if got[p] >= 0 {
						t.Errorf("t-0 serves %d records", got[p])
					}
					if after := kept(t, one+"/t-0"); after != bad {
						t.Errorf("files of a partition that is offline changed:\n%s", diff(bad, after))
					}
				case p == 0 && d.is == gapped:
					if got[p] != want-52 {
						t.Errorf("t-0 has %d records of %d, want all but 52", got[p], want)
					}
				case got[p] != want:
					t.Errorf("t-%d has %d records, want %d", p, got[p], want)
				}
			}
			if err := acknowledges(n.Addr(), time.Now().Add(10*time.Second)); err != nil {
				t.Error(err)
			}
			for begin := time.Now(); d.is == gapped && !regexp.MustCompile(d.says).MatchString(n.Output()) && time.Since(begin) < 20*time.Second; {
				pause(20 * time.Millisecond) // it looks in the background
			}
			if after := kept(t, one+"/t-0"); d.is == gapped && after != bad {
				t.Errorf("files changed:\n%s", diff(bad, after))
			}
			if !regexp.MustCompile(d.says).MatchString(n.Output()) || strings.Contains(n.Output(), "goroutine ") {
				t.Errorf("the output does not match %q:\n%s", d.says, n.Output())
			}
			if err := n.Stop(); err != nil {
				t.Error(err)
			}
			// No mark of a clean shutdown over what could not be opened.
			if _, err := os.Stat(one + "/.kafka_cleanshutdown"); (err == nil) != (d.is != offline) {
				t.Errorf("a mark of a clean shutdown is there: %v", err == nil)
			}
		})
	}
}

// kept is the fingerprint of what can't be made anew from anything else.
func kept(t *testing.T, dir string) string {
	t.Helper()
	return strings.Join(slices.DeleteFunc(strings.Split(fingerprint(t, dir), "\n"), func(line string) bool {
		name, _, _ := strings.Cut(line, " ")
		switch filepath.Ext(name) {
		case ".log", ".checkpoint", ".properties", ".metadata":
			return false
		}
		return filepath.Base(name) != "quorum-state"
	}), "\n")
}

// fill writes topics t and probe, so that t-0 lies in the first directory with several segments, and makes copies of the directories of
// the node when it was stopped, and when it was killed after it had written a little more. It returns the records of each partition of t.
func fill(t *testing.T, n peer.Node, one string, copies map[bool]string) map[bool][]int64 {
	t.Helper()
	create(t, n.Addr(), "t", 2, "segment.bytes=1048576")
	create(t, n.Addr(), "probe", 1)
	if _, err := os.Stat(one + "/t-0"); err != nil {
		t.Fatalf("t-0 is not in the first directory: %v", err)
	}
	total := make([]int64, 2)
	produce := func(records int) {
		cl, err := kgo.NewClient(kgo.SeedBrokers(n.Addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MetadataMinAge(20*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		for i := range records {
			for p := range int32(2) {
				if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Partition: p, Value: fmt.Appendf(nil, "%d %s", i, strings.Repeat("x", 20000))}).FirstErr(); err != nil {
					t.Fatal(err)
				}
				total[p]++
			}
		}
	}
	save := func(to string) {
		if err := os.MkdirAll(to, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{one, filepath.Dir(one) + "/two"} {
			if out, err := exec.Command("cp", "-a", dir, to).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
	}
	stop := func() {
		if err := n.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	start := func() {
		if _, err := n.Start(); err != nil {
			t.Fatal(err)
		}
	}
	totals := map[bool][]int64{}
	produce(130)
	stop() // all is synced
	save(copies[false])
	totals[false] = slices.Clone(total)
	start()
	produce(3)
	if err := n.Kill(); err != nil {
		t.Fatal(err)
	}
	save(copies[true])
	totals[true] = total
	return totals
}

// count is how many records each partition of topic t serves; -1 is one without a leader, which is waited for unless it may be.
func count(t *testing.T, addr string, mayLack bool) []int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.MetadataMinAge(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	out := []int64{-1, -1}
	var ends kadm.ListedOffsets
	for begin := time.Now(); ; pause(10 * time.Millisecond) {
		if ends, err = kadm.NewClient(cl).ListEndOffsets(ctx, "t"); err == nil {
			err = ends.Error()
		}
		if err == nil || mayLack && time.Since(begin) > time.Second {
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	from := map[int32]kgo.Offset{}
	left := map[int32]bool{} // partitions that are not read to their end
	ends.Each(func(o kadm.ListedOffset) {
		if o.Err == nil {
			out[o.Partition], left[o.Partition] = 0, o.Offset > 0
			from[o.Partition] = kgo.NewOffset().At(0)
		}
	})
	reader, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": from}), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	total := slices.Clone(out)
	ends.Each(func(o kadm.ListedOffset) { total[o.Partition] = max(o.Offset, 0) })
	if mayLack {
		ctx, cancel = context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
	}
	for slices.Contains(slices.Collect(maps.Values(left)), true) {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil && mayLack {
			for p := range out {
				if out[p] < total[p] {
					out[p] = -1
				}
			}
			return out
		} else if err != nil {
			t.Errorf("%d of %d records read: %v", out, total, err)
			return out
		}
		fetches.EachRecord(func(r *kgo.Record) {
			out[r.Partition]++
			left[r.Partition] = r.Offset+1 < total[r.Partition]
		})
	}
	return out
}
