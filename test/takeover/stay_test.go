package takeover

import (
	"bytes"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/highwater/highwater/test/peer"
)

// TestOnlyStarted starts Highwater on Kafka's directories and stops it, and looks at the files: what holds records and their epochs
// is as it was to the last byte, and so are the ids; what is rewritten says the same; what goes is what Kafka removes at a start too.
func TestOnlyStarted(t *testing.T) {
	for _, c := range []struct {
		name string
		move string // a partition that is on its way between directories
	}{
		{name: "single-4.4"}, {name: "jbod-4.4", move: "slow-0"}, {name: "3.9.2-single"}, {name: "3.3.2-single"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := unpack(t, c.name, false)
			h := d.homes[1]
			before := d.files(t)
			h.start(t, peer.Highwater, "", quiet...)
			h.stop(t)
			h.noComplaints(t, true)
			d.unchanged(t, before, c.move)
			if _, ok := d.files(t)[h.rel(t, d, h.logDirs()[0])+"/.kafka_cleanshutdown"]; !ok {
				t.Error("no mark of a clean shutdown")
			}
		})
	}
}

// rel is a path of a home below the directory's root.
func (h *home) rel(t *testing.T, d *directory, path string) string {
	t.Helper()
	r, err := filepath.Rel(d.root, path)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// unchanged compares the files with those that were there before a start.
func (d *directory) unchanged(t *testing.T, before map[string][]byte, moving string) {
	t.Helper()
	after := d.files(t)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		partition, file := filepath.Base(filepath.Dir(name)), filepath.Base(name)
		now, there := after[name]
		same := there && bytes.Equal(before[name], now)
		switch ext := filepath.Ext(file); {
		case same || moving != "" && strings.HasPrefix(partition, moving) || strings.HasSuffix(partition, "-delete"):
		case ext == ".deleted" && !there:
		case partition == "__cluster_metadata-0":
			switch {
			case ext == ".log" || file == "leader-epoch-checkpoint" && len(now) > 0:
				// The log goes on where it was; the epochs' file is a list with its length in the second line.
				if ext == ".log" && !bytes.HasPrefix(now, before[name]) || ext != ".log" && !bytes.Contains(now, lastLine(before[name])) {
					t.Errorf("%s does not go on where it was", name)
				}
			case ext == ".index", ext == ".timeindex", ext == ".snapshot", file == "quorum-state":
			default:
				t.Errorf("%s: there now %v, the same %v", name, there, same)
			}
		case ext == ".snapshot" && !there:
			// Kafka keeps the snapshots at segments' beginnings and the newest, of what it loads.
			if newest(before, filepath.Dir(name)) == file {
				t.Errorf("%s is gone", name)
			}
		case file == ".kafka_cleanshutdown" && there:
		case file == "meta.properties" && there && property(string(before[name]), "directory.id") == "":
			// A directory of before 3.7 gets an id, as from Kafka.
			for _, key := range []string{"version", "cluster.id", "node.id"} {
				if was, is := property(string(before[name]), key), property(string(now), key); was != is {
					t.Errorf("%s: %s=%s, was %s", name, key, is, was)
				}
			}
			if property(string(now), "directory.id") == "" {
				t.Errorf("%s changed, but has no directory.id:\n%s", name, now)
			}
		case strings.HasSuffix(file, "-offset-checkpoint") && there:
			w, g := checkpoint(t, name, before[name]), checkpoint(t, name, now)
			for p, o := range w {
				if got, ok := g[p]; got != o && !(moving != "" && strings.HasPrefix(p, strings.TrimSuffix(moving, "-0")+" ")) && !(file == "cleaner-offset-checkpoint" && !ok) {
					t.Errorf("%s: %s %d, was %d", name, p, got, o)
				}
			}
		default:
			t.Errorf("%s: there now %v, the same %v", name, there, same)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		partition, file := filepath.Base(filepath.Dir(name)), filepath.Base(name)
		if _, there := before[name]; there || file == ".lock" || partition == "__cluster_metadata-0" || moving != "" && strings.HasPrefix(partition, moving) {
			continue
		}
		if file == "recovery-point-offset-checkpoint" {
			// The metadata log's line, which Kafka passes over.
			if points := checkpoint(t, name, after[name]); len(points) != 1 || !bytes.Contains(after[name], []byte("\n__cluster_metadata 0 ")) {
				t.Errorf("%s is new and has %v", name, points)
			}
			continue
		}
		// The only one of the formatted nodes that is a quorum of one may have come as far as to load its logs, of which there are none.
		if file == ".kafka_cleanshutdown" && !hasPartitions(after, filepath.Dir(name)) || strings.HasSuffix(file, "-offset-checkpoint") && len(checkpoint(t, name, after[name])) == 0 {
			continue
		}
		t.Errorf("%s is new", name)
	}
}

// hasPartitions tells whether a log directory has any besides the metadata log.
func hasPartitions(files map[string][]byte, dir string) bool {
	for name := range files {
		if p := filepath.Dir(name); filepath.Dir(p) == dir && filepath.Base(p) != "__cluster_metadata-0" {
			return true
		}
	}
	return false
}

// lastLine is the last line of a text file.
func lastLine(b []byte) []byte {
	lines := bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n"))
	return lines[len(lines)-1]
}

// newest is the producer snapshot with the highest offset in a partition's directory.
func newest(files map[string][]byte, dir string) string {
	top := ""
	for name := range files {
		if filepath.Dir(name) == dir && filepath.Ext(name) == ".snapshot" {
			top = max(top, filepath.Base(name))
		}
	}
	return top
}

// checkpoint reads an offset checkpoint: "topic partition" → offset.
func checkpoint(t *testing.T, name string, b []byte) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	for i, l := range strings.Split(strings.TrimSuffix(string(b), "\n"), "\n") {
		if i < 2 {
			continue
		}
		f := strings.Fields(l)
		if len(f) != 3 {
			t.Fatalf("%s, line %d: %q", name, i+1, l)
		}
		n, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil {
			t.Fatalf("%s, line %d: %v", name, i+1, err)
		}
		out[f[0]+" "+f[1]] = n
	}
	return out
}

// TestZooKeeperMode: a directory of a broker in ZooKeeper mode is refused, by its own properties and by those of a KRaft node, with the
// way out, and not touched.
func TestZooKeeperMode(t *testing.T) {
	t.Parallel()
	d := unpack(t, "3.9.2-zookeeper", false)
	h := d.homes[1]
	before := d.files(t)
	refused := func(properties string) {
		t.Helper()
		h.properties = properties
		h.open(t, peer.Highwater, "")
		if _, err := h.node.Start(); err == nil {
			t.Fatal("it started")
		}
		if out := h.node.Output(); !strings.Contains(out, "Migrate the cluster to KRaft with Kafka 3.9") {
			t.Errorf("no way out:\n%s", out)
		}
	}
	own := h.properties
	refused(own)
	h.controller = freshPort(t)
	refused(strings.Join([]string{"process.roles=broker,controller", "node.id=1", "controller.quorum.voters=1@127.0.0.1:" + strconv.Itoa(h.controller),
		"listeners=PLAINTEXT://127.0.0.1:" + strconv.Itoa(h.broker) + ",CONTROLLER://127.0.0.1:" + strconv.Itoa(h.controller),
		"controller.listener.names=CONTROLLER", "log.dirs=" + property(own, "log.dirs")}, "\n"))
	h.properties = own
	after := d.files(t)
	for name, b := range before {
		if !bytes.Equal(after[name], b) {
			t.Errorf("%s changed", name)
		}
	}
	for name := range after {
		if _, there := before[name]; !there && filepath.Base(name) != ".lock" {
			t.Errorf("%s is new", name)
		}
	}
}

// member is how one of three nodes with dynamic voters is run alone: it never serves its broker listener.
func (h *home) member(t *testing.T) {
	t.Helper()
	broker := h.broker
	h.broker = 0
	h.start(t, peer.Highwater, "")
	h.broker = broker
}

// said waits until the node has logged a text.
func (h *home) said(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !strings.Contains(h.node.Output(), text); {
		if time.Now().After(end) {
			t.Fatalf("node %d did not say %q:\n%s", h.id, text, tail(h.node.Output(), 3000))
		}
		<-time.After(20 * time.Millisecond)
	}
}

// TestMembers starts Highwater alone on each of three nodes' directories, of a cluster that ran and of one that was only formatted: it
// opens the metadata log, asks the others for their votes, gets none, and stops. Nothing has changed, and three real Kafkas find
// everything.
func TestMembers(t *testing.T) {
	for _, c := range []struct {
		name, expect string
	}{{"cluster-4.4", "cluster-4.4.expect"}, {"cluster-4.4-formatted", ""}} {
		t.Run(c.name, func(t *testing.T) {
			d := unpack(t, c.name, true)
			before := d.files(t)
			for _, id := range slices.Sorted(maps.Keys(d.homes)) {
				h := d.homes[id]
				h.member(t)
				if c.name == "cluster-4.4" {
					h.said(t, "role=prospective")
				}
				h.stop(t)
				h.noComplaints(t, false)
			}
			d.unchanged(t, before, "")
			if c.expect == "" {
				return
			}
			var nodes []peer.Node
			for _, id := range slices.Sorted(maps.Keys(d.homes)) {
				h := d.homes[id]
				h.open(t, peer.Kafka, "", quiet...)
				nodes = append(nodes, h.node)
			}
			failed := make(chan error, len(nodes))
			for _, n := range nodes {
				go func() { _, err := n.Start(); failed <- err }()
			}
			for range nodes {
				if err := <-failed; err != nil {
					t.Fatal(err)
				}
			}
			want, back := expected(t, c.expect), d.ask(t, nodes[0])
			sameRecords(t, want, back)
			sameOffsets(t, want, back, false)
			sameAdmin(t, want, back, "cluster", "features", "quotas", "scram", "acls")
			sameConfigs(t, want, back, "TOPIC", "BROKER", "GROUP", "CLIENT_METRICS")
			keepsGroups(t, want, back)
			for _, id := range slices.Sorted(maps.Keys(d.homes)) {
				d.homes[id].noComplaints(t, false)
			}
		})
	}
}
