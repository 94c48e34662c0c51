package compat

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater/highwater/test/peer"
)

// dirScene is a node with the log directories data and more, and what it is asked about them.
type dirScene struct {
	*scene
	rec        *recording
	data, more string
}

// ask sends a request in every version that Kafka serves, and judges the answers.
func (d *dirScene) ask(name string, build func() kmsg.Request) {
	d.t.Helper()
	key := build().Key()
	versions := served(d.t, false)[key]
	for v := versions[0]; v <= min(versions[1], build().MaxVersion()); v++ {
		a, err := d.conn(false).call(build(), v)
		if err != nil {
			d.t.Fatalf("%s, version %d: %v", name, v, err)
		}
		d.rec.judge(d.t, answered{Step: name, Key: key, Version: v, Answer: marshal(d.t, d.dirs(a))})
	}
}

// dirs normalises an answer: directories in order, room on the disk as told or not.
func (d *dirScene) dirs(a kmsg.Response) any {
	if a, ok := a.(*kmsg.DescribeLogDirsResponse); ok {
		slices.SortFunc(a.Dirs, func(a, b kmsg.DescribeLogDirsResponseDir) int { return cmp.Compare(a.Dir, b.Dir) })
		for i := range a.Dirs {
			for _, n := range []*int64{&a.Dirs[i].TotalBytes, &a.Dirs[i].UsableBytes} {
				*n = min(*n, 1)
			}
		}
	}
	return d.normalise(a)
}

func (d *dirScene) describe(topics ...kmsg.DescribeLogDirsRequestTopic) func() kmsg.Request {
	return func() kmsg.Request {
		q := kmsg.NewPtrDescribeLogDirsRequest()
		q.Topics = topics
		return q
	}
}

func (d *dirScene) alter(topic string, partition int32, dir string) func() kmsg.Request {
	return func() kmsg.Request {
		q := kmsg.NewPtrAlterReplicaLogDirsRequest()
		q.Dirs = []kmsg.AlterReplicaLogDirsRequestDir{{Dir: dir, Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: topic, Partitions: []int32{partition}}}}}
		return q
	}
}

// lies waits until a replica, and no copy of it, lies in a directory.
func (d *dirScene) lies(topic string, partition int32, dir string) {
	d.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var in []string
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); <-tick.C {
		a, err := d.conn(false).call(kmsg.NewPtrDescribeLogDirsRequest(), 4)
		if err != nil {
			d.t.Fatal(err)
		}
		in = nil
		for _, rd := range a.(*kmsg.DescribeLogDirsResponse).Dirs {
			for _, t := range rd.Topics {
				for _, p := range t.Partitions {
					if t.Topic == topic && p.Partition == partition {
						in = append(in, rd.Dir)
					}
				}
			}
		}
		if len(in) == 1 && in[0] == dir {
			return
		}
	}
	d.t.Fatalf("%s-%d lies in %v, not in %s", topic, partition, in, dir)
}

// move moves a replica, whatever is answered on the way.
func (d *dirScene) move(topic string, partition int32, dir string) {
	d.t.Helper()
	if _, err := d.conn(false).call(d.alter(topic, partition, dir)(), 2); err != nil {
		d.t.Fatal(err)
	}
	d.lies(topic, partition, dir)
}

// fill makes a topic whose partitions lie in the directory data and have n batches each.
func (d *dirScene) fill(topic string, partitions int32, n int, configs ...string) {
	d.t.Helper()
	d.create(topic, partitions, configs...)
	for p := range partitions {
		d.move(topic, p, d.data)
		for i := range n {
			q := kmsg.NewPtrProduceRequest()
			q.Acks, q.TimeoutMillis = -1, 10000
			q.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: p, Records: batch(1, -1, -1, -1, fmt.Sprint("value ", i))}}}}
			a, err := d.conn(false).call(q, 12)
			if err != nil {
				d.t.Fatal(err)
			}
			if c := a.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode; c != 0 {
				d.t.Fatalf("produce to %s-%d: code %d", topic, p, c)
			}
		}
	}
}

func (d *dirScene) delete(timeout int32, parts ...any) func() kmsg.Request {
	return func() kmsg.Request {
		q := kmsg.NewPtrDeleteRecordsRequest()
		q.TimeoutMillis = timeout
		for i := 0; i < len(parts); i += 3 {
			p := kmsg.NewDeleteRecordsRequestTopicPartition()
			p.Partition, p.Offset = int32(parts[i+1].(int)), int64(parts[i+2].(int))
			t := kmsg.NewDeleteRecordsRequestTopic()
			t.Topic, t.Partitions = parts[i].(string), append(t.Partitions, p)
			q.Topics = append(q.Topics, t)
		}
		return q
	}
}

// TestLogDirs asks about and moves replicas between two log directories, and deletes records, by requests and by the real Kafka's
// tools, and compares with what Kafka answers and they print against it.
func TestLogDirs(t *testing.T) {
	home := t.TempDir()
	data, more := filepath.Join(home, "data"), filepath.Join(home, "more")
	n := peer.Started(t, peer.Options{Software: software(), Home: home, Properties: []string{"log.dirs=" + data + "," + more, "auto.create.topics.enable=false", keep}})
	d := &dirScene{scene: &scene{t: t, node: n, topics: map[[16]byte]string{}, ids: map[string][16]byte{}}, rec: openRecording(t, "dirs.jsonl.gz"), data: data, more: more}
	topic := func(name string, partitions ...int32) kmsg.DescribeLogDirsRequestTopic {
		return kmsg.DescribeLogDirsRequestTopic{Topic: name, Partitions: partitions}
	}
	d.ask("nothing is there", d.describe())
	d.fill("moved", 2, 20)
	d.ask("all", d.describe())
	d.ask("one", d.describe(topic("moved", 1)))
	d.ask("what is not there", d.describe(topic("none", 0), topic("moved", 7)))
	d.ask("no partition of a topic", d.describe(topic("moved")))

	d.ask("into the same directory", d.alter("moved", 0, data))
	d.ask("into one that is not there", d.alter("moved", 0, filepath.Join(home, "none")))
	d.ask("a relative path", d.alter("moved", 0, "more"))
	d.ask("a trailing slash", d.alter("moved", 0, more+"/"))
	d.ask("no path", d.alter("moved", 0, ""))
	d.ask("a topic that is not there", d.alter("none", 0, more))
	d.ask("a partition that is not there", d.alter("moved", 7, more))
	d.ask("a long name", d.alter(strings.Repeat("x", 220), 0, more))
	d.ask("named twice", func() kmsg.Request {
		q := d.alter("moved", 0, filepath.Join(home, "none"))().(*kmsg.AlterReplicaLogDirsRequest)
		q.Dirs = append(q.Dirs, d.alter("moved", 0, data)().(*kmsg.AlterReplicaLogDirsRequest).Dirs...)
		return q
	})
	d.ask("into another", d.alter("moved", 0, more))
	d.lies("moved", 0, more)
	d.ask("moved", d.describe())
	d.create("none", 1) // where it was asked for before it was there
	d.lies("none", 0, more)

	set := incremental("", false, change{brokerType, "1", []string{"cordoned.log.dirs=" + data}}).build(d.scene, 1)
	if _, err := d.conn(false).call(set, 1); err != nil {
		t.Fatal(err)
	}
	d.await("the directory to be cordoned", func(a *kmsg.DescribeLogDirsResponse) bool {
		return slices.ContainsFunc(a.Dirs, func(rd kmsg.DescribeLogDirsResponseDir) bool { return rd.IsCordoned })
	})
	d.ask("cordoned", d.describe(topic("none", 0)))
	d.ask("into a cordoned one", d.alter("moved", 0, data))
	d.ask("within a cordoned one", d.alter("moved", 1, data))
	d.create("elsewhere", 1)
	d.lies("elsewhere", 0, more)
	unset := incremental("", false, change{brokerType, "1", []string{"-cordoned.log.dirs"}}).build(d.scene, 1)
	if _, err := d.conn(false).call(unset, 1); err != nil {
		t.Fatal(err)
	}
	d.await("the directory to be free", func(a *kmsg.DescribeLogDirsResponse) bool {
		return !slices.ContainsFunc(a.Dirs, func(rd kmsg.DescribeLogDirsResponseDir) bool { return rd.IsCordoned })
	})

	d.fill("deleted", 2, 10)
	d.fill("compacted", 1, 0, "cleanup.policy=compact")
	d.fill("both", 1, 0, "cleanup.policy=compact,delete")
	d.ask("some", d.delete(1000, "deleted", 0, 3))
	d.ask("fewer", d.delete(1000, "deleted", 0, 1))
	d.ask("too many", d.delete(1000, "deleted", 0, 11))
	d.ask("a negative offset", d.delete(1000, "deleted", 0, -2))
	d.ask("up to the end", d.delete(1000, "deleted", 0, -1, "deleted", 1, 9))
	d.ask("twice", d.delete(1000, "deleted", 1, 3, "deleted", 1, 10))
	d.ask("without time", d.delete(0, "deleted", 1, 10))
	d.ask("of a compacted topic", d.delete(1000, "compacted", 0, 0))
	d.ask("of a compacted one that deletes, too", d.delete(1000, "both", 0, 0))
	d.ask("of what is not there", d.delete(1000, "nothing", 0, 0, "deleted", 7, 0))
	d.ask("none", d.delete(1000))

	j := jvm(t)
	offsets, plan := filepath.Join(home, "offsets.json"), filepath.Join(home, "plan.json")
	files := map[string]string{
		offsets: `{"version":1,"partitions":[{"topic":"moved","partition":0,"offset":5},{"topic":"moved","partition":1,"offset":1000},{"topic":"compacted","partition":0,"offset":0}]}`,
		plan:    fmt.Sprintf(`{"version":1,"partitions":[{"topic":"moved","partition":0,"replicas":[1],"log_dirs":[%q]}]}`, data),
	}
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	jsonLine := regexp.MustCompile(`(?m)^\{.*\}$`)
	tool := func(name, what string, argv ...string) {
		t.Helper()
		r := j.Must(t, what, "", argv...)
		// Kafka prints directories in the order of a hash of their paths, which are others in each run.
		out := jsonLine.ReplaceAllStringFunc(r.Stdout, func(line string) string {
			var v struct {
				Brokers []struct {
					Broker  int
					LogDirs []struct {
						LogDir     string
						Error      *string
						Partitions []map[string]any
					}
				}
				Version int
			}
			if json.Unmarshal([]byte(line), &v) != nil || v.Brokers == nil {
				return line
			}
			for _, b := range v.Brokers {
				slices.SortFunc(b.LogDirs, func(a, b struct {
					LogDir     string
					Error      *string
					Partitions []map[string]any
				}) int {
					return cmp.Compare(a.LogDir, b.LogDir)
				})
			}
			return string(marshal(t, v))
		})
		lines := strings.Split(strings.TrimRight(places(n, out), "\n"), "\n")
		if i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "partition: ") }); i >= 0 {
			slices.Sort(lines[i:]) // a hash map of partitions: its order depends on which answer came first
		}
		d.rec.judge(t, answered{Step: "tool: " + name, Key: 35, Answer: marshal(t, printed{name, r.Exit, lines, nil})})
	}
	d.move("moved", 0, more)
	tool("kafka-log-dirs", "log-dirs", "--bootstrap-server", n.Addr(), "--describe", "--topic-list", "moved,deleted")
	tool("kafka-delete-records", "delete-records", "--bootstrap-server", n.Addr(), "--offset-json-file", offsets)
	tool("kafka-reassign-partitions into a directory", "reassign-partitions", "--bootstrap-server", n.Addr(), "--reassignment-json-file", plan, "--execute")
	d.lies("moved", 0, data)
	tool("kafka-reassign-partitions afterwards", "reassign-partitions", "--bootstrap-server", n.Addr(), "--reassignment-json-file", plan, "--verify", "--preserve-throttles")
	tool("kafka-log-dirs afterwards", "log-dirs", "--bootstrap-server", n.Addr(), "--describe", "--topic-list", "moved")
	d.rec.close(t)
}

// await waits until DescribeLogDirs says something.
func (d *dirScene) await(what string, f func(*kmsg.DescribeLogDirsResponse) bool) {
	d.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); <-tick.C {
		a, err := d.conn(false).call(kmsg.NewPtrDescribeLogDirsRequest(), 5)
		if err != nil {
			d.t.Fatal(err)
		}
		if f(a.(*kmsg.DescribeLogDirsResponse)) {
			return
		}
	}
	d.t.Fatalf("waited in vain for %s", what)
}
