package takeover

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/highwater/highwater/test/peer"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if j, err := jvm(); err == nil {
		j.Close()
	}
	os.Exit(code)
}

// quiet keeps a node from changing what is compared: neither the cleaner nor retention work while it is asked.
var quiet = []string{"log.cleaner.enable=false", "log.retention.check.interval.ms=3600000", "log.initial.task.delay.ms=3600000"}

// alone are the topics of Kafka's own that one node can have.
var alone = []string{"transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1", "offsets.topic.replication.factor=1"}

// trimmedWhole has its log start inside of a segment of which nothing is left. Kafka finds no record by its time then, though there
// is one in the segment after; Highwater does. So nothing is written there.
const trimmedWhole = "trimmed-all"

// served are the sections of admin.json that Highwater answers.
var served = []string{"cluster", "quorum", "topics", "features"}

// kept are those that only Kafka answers, from what Highwater left it.
var kept = []string{"quotas", "scram", "acls"}

// kafkas is a directory that Kafka wrote.
type kafkas struct {
	name, expect string
	version      string // of the Kafka that takes it back
	own          bool   // expect is of a Kafka that differs in the epoch of the newest record's time
	clean        bool   // it was stopped cleanly
	shell        bool   // expect has a metadata-shell
}

var fromKafka = []kafkas{
	{"single-4.4", "single-4.4.expect", "", false, true, true},
	{"single-4.4-unclean", "single-4.4-unclean.expect", "", false, false, false},
	{"single-4.4-torn", "single-4.4-torn.expect", "", false, false, false},
	{"jbod-4.4", "jbod-4.4.expect", "", false, true, false},
	{"3.9.2-single", "3.9.2-single.expect/4.4", "", false, true, false},
	{"3.3.2-single", "3.3.2-single.expect/own", "3.3.2", true, true, false},
	{"3.9.2-migrated", "3.9.2-migrated.expect/own", "3.9.2", false, true, false},
}

// complaints is what Kafka's dump-log finds wrong with the directory as Kafka left it. It ends at an index that is half zeros, as a kill
// leaves them.
func (k kafkas) complaints(t *testing.T, d *directory) map[string]bool {
	t.Helper()
	if !k.clean {
		return nil
	}
	return d.complaints(t)
}

// comparable takes out of the answers what the Kafka that takes the directory back answers otherwise than Highwater.
func (k kafkas) comparable(all ...*answers) {
	if k.own {
		ignoreNewestEpoch(all...)
	}
	if strings.HasPrefix(k.version, "3.") {
		ignoreTimes("v0-", all...)
	}
}

// TestTakeOver lets Highwater take over each of Kafka's directories, and hands it back, twice: after a clean stop and after a kill. The
// nodes are one each, but for the migrated cluster, which has a controller of its own.
func TestTakeOver(t *testing.T) {
	for _, c := range fromKafka {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := unpack(t, c.name, false)
			r := rand.New(rand.NewPCG(1, 2))
			want := expected(t, c.expect)
			properties := slices.Concat(quiet, alone)
			wrong := c.complaints(t, d)

			// Highwater finds what Kafka finds.
			n := d.start(t, peer.Highwater, "", properties...)
			found := d.ask(t, n)
			sameRecords(t, want, found)
			if c.own {
				ignoreNewestEpoch(want, found)
			}
			sameOffsets(t, want, found, true)
			sameAdmin(t, want, found, served...)
			sameConfigs(t, want, found, "TOPIC", "BROKER")
			// It writes, and stops cleanly.
			written := load(t, n, r, "first", true, trimmedWhole)
			state := d.ask(t, n)
			extended(t, found, state, written)
			d.stop(t)
			d.noComplaints(t, c.clean)
			d.sound(t, wrong)
			if c.shell {
				d.homes[1].keepsImage(t, c.expect)
			}

			// Kafka finds what Highwater left, and writes.
			n = d.start(t, peer.Kafka, c.version, properties...)
			back := d.ask(t, n)
			sameRecords(t, state, back)
			c.comparable(state, back)
			sameOffsets(t, state, back, false)
			sameAdmin(t, state, back, served...)
			sameConfigs(t, state, back, "TOPIC", "BROKER")
			sameConfigs(t, want, back, "GROUP", "CLIENT_METRICS")
			sameAdmin(t, want, back, kept...)
			keepsGroups(t, want, back)
			written = load(t, n, r, "second", true, trimmedWhole)
			state = d.ask(t, n)
			extended(t, back, state, written)
			d.stop(t)
			d.noComplaints(t, true)

			// Highwater again, which is killed.
			n = d.start(t, peer.Highwater, "", properties...)
			found = d.ask(t, n)
			sameRecords(t, state, found)
			c.comparable(state, found)
			sameOffsets(t, state, found, false)
			sameAdmin(t, state, found, served...)
			sameConfigs(t, state, found, "TOPIC", "BROKER")
			// As with Kafka, a log start is known after a kill only if a checkpoint of it was due before.
			written = load(t, n, r, "third", false, trimmedWhole)
			state = d.ask(t, n)
			extended(t, found, state, written)
			d.kill(t)
			d.noComplaints(t, true)

			// Kafka recovers it.
			n = d.start(t, peer.Kafka, c.version, properties...)
			back = d.ask(t, n)
			sameRecords(t, state, back)
			c.comparable(state, back)
			sameOffsets(t, state, back, false)
			sameAdmin(t, state, back, served...)
			sameConfigs(t, want, back, "GROUP", "CLIENT_METRICS")
			sameAdmin(t, want, back, kept...)
			keepsGroups(t, want, back)
			d.stop(t)
			d.noComplaints(t, false)

			// And once more.
			n = d.start(t, peer.Highwater, "", properties...)
			found = d.ask(t, n)
			sameRecords(t, state, found)
			d.stop(t)
			d.noComplaints(t, true)
			d.sound(t, wrong)
			d.readByShell(t, found)
		})
	}
}

// ignoreTimes takes what was found by time out of the answers for topics whose message.format.version is below 0.10: Kafka 3 goes by
// that and finds nothing; Kafka 4 and Highwater find the records of format 2 that were written since.
func ignoreTimes(topics string, all ...*answers) {
	for _, a := range all {
		for name, o := range a.offsets {
			if strings.HasPrefix(name, topics) {
				o.AtOrAfter = nil
				a.offsets[name] = o
			}
		}
	}
}

// ignoreNewestEpoch takes the epoch out of the answers to maxTimestamp: before 3.4 or so Kafka gave the partition's current one.
func ignoreNewestEpoch(all ...*answers) {
	for _, a := range all {
		for name, o := range a.offsets {
			if s, ok := o.MaxTimestamp.([]any); ok {
				o.MaxTimestamp = s[:2]
				a.offsets[name] = o
			}
		}
	}
}
