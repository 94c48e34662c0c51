package chaos

// Shows what a power cut leaves of a real file system. The node runs on ext4, whose image is a file on XFS, which can copy it in an
// instant while it is written to: that is the disk as it was at that moment, without what the kernel still had in memory. Each copy is
// mounted, which replays ext4's journal, and the node is started on it: it must come up, have all that it acknowledged after a sync, and
// nothing by half.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/highwater/highwater/test/peer"
)

var cuts = flag.Int("cuts", 100, "how many power cuts TestPowerCut makes")

const (
	syncedPartitions = 3 // of topic synced: flush.messages=1, so that an acknowledged record is on the disk
	lazyPartitions   = 2 // of topic lazy: nobody syncs but rolls and stops
	compactKeys      = 20
)

// sh runs a command that needs root, and says what is missing if it can't.
func sh(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s(this test needs root, loop devices, and the packages xfsprogs, e2fsprogs and mount)", strings.Join(argv, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// mounted attaches an image file and mounts it; the function that it returns takes both back.
func mounted(t *testing.T, image, dir, options string) (undo func()) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	device := sh(t, "losetup", "--find", "--show", image)
	detach := func() { sh(t, "losetup", "--detach", device) }
	out, err := exec.Command("mount", "-o", options, device, dir).CombinedOutput()
	if err != nil {
		detach()
		t.Fatalf("mount %s: %v\n%s", image, err, out)
	}
	return func() { sh(t, "umount", dir); detach() }
}

// promises are what the producers were told.
type promises struct {
	synced   [syncedPartitions]atomic.Int64 // the end of what was acknowledged
	versions [compactKeys]atomic.Int64      // of the key, acknowledged
}

// promise is a promises at one moment.
type promise struct {
	image    string
	when     string
	synced   [syncedPartitions]int64
	versions [compactKeys]int64
	lazy     [lazyPartitions]int64 // was acknowledged, too, though not synced
}

// record is the only record that may be at an offset of a partition.
func record(topic string, partition int32, offset int64) string {
	return fmt.Sprintf("%s/%d/%d/%s", topic, partition, offset, strings.Repeat("v", int(offset*7919%30000)))
}

func TestPowerCut(t *testing.T) {
	software := peer.Software(*brokerFlag)
	top := t.TempDir()
	host, disk := filepath.Join(top, "host"), filepath.Join(top, "disk")
	hostImage := filepath.Join(top, "host.img")
	sh(t, "truncate", "--size=6G", hostImage)
	sh(t, "mkfs.xfs", "-q", "-m", "reflink=1", hostImage)
	unmountHost := mounted(t, hostImage, host, "noatime")
	defer unmountHost()
	image := filepath.Join(host, "node.img")
	sh(t, "truncate", "--size=192M", image)
	sh(t, "mkfs.ext4", "-q", image)
	// The journal is written as seldom as can be, so that much is lost.
	const options = "noatime,commit=300"
	unmount := mounted(t, image, disk, options)
	attached := true
	defer func() {
		if attached {
			unmount()
		}
	}()

	node := peer.New(t, peer.Options{Software: software, Home: filepath.Join(top, "home"), Properties: []string{
		"log.dirs=" + disk + "/one," + disk + "/two", "log.retention.check.interval.ms=700", "log.cleaner.backoff.ms=300", "log.initial.task.delay.ms=200",
		"log.flush.offset.checkpoint.interval.ms=300", "log.flush.start.offset.checkpoint.interval.ms=400", "replica.high.watermark.checkpoint.interval.ms=250",
		"log.segment.delete.delay.ms=600", "offsets.topic.num.partitions=1",
	}})
	sh(t, "sync", "-f", disk) // what format wrote is older than the story
	if _, err := node.Start(); err != nil {
		t.Fatal(err)
	}
	create(t, node.Addr(), "synced", syncedPartitions, "segment.bytes=1048576", "flush.messages=1", "retention.bytes=3000000", "file.delete.delay.ms=500")
	create(t, node.Addr(), "lazy", lazyPartitions, "segment.bytes=1048576", "retention.bytes=3000000", "file.delete.delay.ms=500")
	create(t, node.Addr(), "compact", 1, "segment.bytes=1048576", "flush.messages=1", "cleanup.policy=compact", "min.cleanable.dirty.ratio=0.01", "file.delete.delay.ms=500")
	create(t, node.Addr(), "preallocated", 1, "segment.bytes=1048576", "preallocate=true", "retention.bytes=3000000", "file.delete.delay.ms=500")
	create(t, node.Addr(), "probe", 1)

	story := powerLoad(t, node)
	snapshots := cutPower(t, node, story, image, host)
	if err := node.Kill(); err != nil {
		t.Fatal(err)
	}
	unmount()
	attached = false
	lost := 0
	for i, p := range snapshots {
		if t.Failed() {
			break
		}
		undo := mounted(t, p.image, disk, options)
		lost += afterCut(t, node, &p, i)
		if err := node.Kill(); err != nil {
			t.Error(err)
		}
		undo()
		if err := os.Remove(p.image); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d power cuts; records that were acknowledged without a sync and lost: %d", len(snapshots), lost)
	if lost == 0 && !t.Failed() {
		t.Error("no cut lost anything: the images are not what a power cut leaves")
	}
}

// story is a load that goes on through stops and kills of the node.
type story struct {
	promises
	lazy [lazyPartitions]atomic.Int64 // the end of what was acknowledged, though not synced
	stop func() error
}

// powerLoad writes to all topics, and makes and deletes one over and over, until it is stopped.
func powerLoad(t *testing.T, node peer.Node) *story {
	t.Helper()
	s := &story{}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	run := func(f func(cl *kgo.Client) error) {
		wg.Go(func() {
			cl, err := kgo.NewClient(kgo.SeedBrokers(node.Addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
				kgo.MetadataMinAge(20*time.Millisecond), kgo.AlwaysRetryEOF(), kgo.ProducerBatchCompression(kgo.NoCompression()))
			if err == nil {
				err = f(cl)
				cl.Close()
			}
			if err != nil && ctx.Err() == nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	inOrder := func(topic string, p int32, end *atomic.Int64) {
		run(func(cl *kgo.Client) error {
			for n := int64(0); ctx.Err() == nil; n++ {
				r := &kgo.Record{Topic: topic, Partition: p, Value: []byte(record(topic, p, n))}
				if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
					return err
				}
				if r.Offset != n {
					return fmt.Errorf("%s-%d: record %d got offset %d", topic, p, n, r.Offset)
				}
				end.Store(n + 1)
				if topic != "synced" { // without a sync to wait for it would fill the disk
					pause(5 * time.Millisecond)
				}
			}
			return nil
		})
	}
	for p := range int32(syncedPartitions) {
		inOrder("synced", p, &s.synced[p])
	}
	for p := range int32(lazyPartitions) {
		inOrder("lazy", p, &s.lazy[p])
	}
	var preallocated atomic.Int64
	inOrder("preallocated", 0, &preallocated)
	run(func(cl *kgo.Client) error {
		for n := int64(1); ctx.Err() == nil; n++ {
			key := n % compactKeys
			r := &kgo.Record{Topic: "compact", Key: strconv.AppendInt(nil, key, 10), Value: fmt.Appendf(nil, "%d/%s", n, strings.Repeat("c", 20000))}
			if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
				return err
			}
			s.versions[key].Store(n)
		}
		return nil
	})
	run(func(cl *kgo.Client) error {
		adm := kadm.NewClient(cl)
		for n := 0; ctx.Err() == nil; n++ {
			name := fmt.Sprintf("churn-%d", n)
			// The node may be down; what it answers then is of no interest.
			_, _ = adm.CreateTopic(ctx, 2, 1, nil, name)
			pause(30 * time.Millisecond)
			_, _ = adm.DeleteTopics(ctx, name)
		}
		return nil
	})
	s.stop = func() error {
		cancel()
		wg.Wait()
		return errors.Join(errs...)
	}
	return s
}

// cutPower takes the disk's image over and over while the node serves, stops, starts and is killed.
func cutPower(t *testing.T, node peer.Node, s *story, image, host string) []promise {
	t.Helper()
	var (
		out   []promise
		phase atomic.Pointer[string]
		done  = make(chan struct{})
		fault error
		wg    sync.WaitGroup
	)
	say := func(p string) { phase.Store(&p) }
	say("serving")
	rng := rand.New(rand.NewPCG(7, 7))
	wg.Go(func() {
		for len(out) < *cuts {
			pause(time.Duration(20+rng.IntN(160)) * time.Millisecond)
			p := promise{image: fmt.Sprintf("%s/cut-%03d.img", host, len(out)), when: *phase.Load()}
			for i := range p.synced {
				p.synced[i] = s.synced[i].Load()
			}
			for i := range p.lazy {
				p.lazy[i] = s.lazy[i].Load()
			}
			for i := range p.versions {
				p.versions[i] = s.versions[i].Load()
			}
			if b, err := exec.Command("cp", "--reflink=always", image, p.image).CombinedOutput(); err != nil {
				fault = fmt.Errorf("%w: %s", err, b)
				break
			}
			out = append(out, p)
		}
		close(done)
	})
	over := func(d time.Duration) bool {
		select {
		case <-done:
			return true
		case <-time.After(d):
			return false
		}
	}
	for !over(2500 * time.Millisecond) {
		say("stopping")
		if err := node.Stop(); err != nil {
			t.Error(err)
		}
		say("starting after a stop")
		if _, err := node.Start(); err != nil {
			t.Fatal(err)
		}
		say("serving after a stop")
		if over(2500 * time.Millisecond) {
			break
		}
		say("killed")
		if err := node.Kill(); err != nil {
			t.Error(err)
		}
		if _, err := node.Start(); err != nil {
			t.Fatal(err)
		}
		say("serving after a kill")
	}
	wg.Wait()
	if fault != nil {
		t.Fatal(fault)
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	return out
}

// afterCut starts the node on what a power cut left and compares. It returns how many records are gone that were promised nothing.
func afterCut(t *testing.T, node peer.Node, p *promise, number int) (lost int) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Errorf("cut %d, %s: %s\n%s", number, p.when, fmt.Sprintf(format, args...), node.Output())
	}
	if _, err := node.Start(); err != nil {
		fail("the node does not start: %v", err)
		return 0
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(node.Addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	topics := []string{"synced", "lazy", "compact", "preallocated"}
	var starts, ends kadm.ListedOffsets
	for {
		if starts, err = adm.ListStartOffsets(ctx, topics...); err == nil {
			err = starts.Error()
		}
		if err == nil {
			ends, err = adm.ListEndOffsets(ctx, topics...)
		}
		if err == nil {
			err = ends.Error()
		}
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			fail("not all partitions have a leader: %v", err)
			return 0
		}
		pause(5 * time.Millisecond)
	}
	from := map[string]map[int32]kgo.Offset{}
	left := 0
	starts.Each(func(o kadm.ListedOffset) {
		end, _ := ends.Lookup(o.Topic, o.Partition)
		if o.Topic == "synced" && end.Offset < p.synced[o.Partition] {
			fail("%s-%d ends at %d, but everything below %d was acknowledged and synced", o.Topic, o.Partition, end.Offset, p.synced[o.Partition])
		}
		if o.Topic == "lazy" {
			lost += int(max(p.lazy[o.Partition]-end.Offset, 0))
		}
		if o.Offset < end.Offset {
			if from[o.Topic] == nil {
				from[o.Topic] = map[int32]kgo.Offset{}
			}
			from[o.Topic][o.Partition] = kgo.NewOffset().At(o.Offset)
			left++
		}
	})
	reader, err := kgo.NewClient(kgo.SeedBrokers(node.Addr()), kgo.ConsumePartitions(from), kgo.FetchMaxBytes(8<<20), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	next := map[string]int64{}
	newest := [compactKeys]int64{}
	for left > 0 && !t.Failed() {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			fail("reading: %v", err)
			return 0
		}
		fetches.EachRecord(func(r *kgo.Record) {
			name := fmt.Sprintf("%s-%d", r.Topic, r.Partition)
			if r.Topic == "compact" {
				key, _ := strconv.Atoi(string(r.Key))
				text, _, _ := strings.Cut(string(r.Value), "/")
				version, err := strconv.ParseInt(text, 10, 64)
				if err != nil || r.Offset < next[name] || len(r.Value) != len(text)+20001 {
					fail("%s: offset %d after %d: key %s, %d bytes", name, r.Offset, next[name]-1, r.Key, len(r.Value))
				} else if version <= newest[key] {
					fail("%s: offset %d: version %d of key %d after %d", name, r.Offset, version, key, newest[key])
				}
				newest[key] = version
			} else {
				if want, ok := next[name]; ok && r.Offset != want {
					fail("%s: offset %d after %d", name, r.Offset, want-1)
				}
				if string(r.Value) != record(r.Topic, r.Partition, r.Offset) {
					fail("%s: offset %d has another record: %.60q", name, r.Offset, r.Value)
				}
			}
			next[name] = r.Offset + 1
			if end, _ := ends.Lookup(r.Topic, r.Partition); r.Offset == end.Offset-1 {
				left--
			}
		})
	}
	for key, version := range p.versions {
		if newest[key] < version {
			fail("compact: key %d has version %d, but %d was acknowledged and synced", key, newest[key], version)
		}
	}
	if err := acknowledges(node.Addr(), time.Now().Add(10*time.Second)); err != nil {
		fail("no record is taken: %v", err)
	}
	for _, word := range []string{"panic", "goroutine "} {
		if strings.Contains(node.Output(), word) {
			fail("the output has %q", word)
		}
	}
	return lost
}
