package controllerloop

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/controller"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
	"github.com/highwater/highwater/internal/metadata"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// metadataLog is a log that commits when the test says so.
type metadataLog struct {
	mu      sync.Mutex
	epoch   kafka.LeaderEpoch
	end     kafka.Offset
	records [][]byte
	batches []int
	resigns []kafka.LeaderEpoch
	// upgrades are the levels of kraft.version that were asked for.
	upgrades []int16
}

var errNotLeader = errors.New("not the leader")

func (l *metadataLog) Propose(epoch kafka.LeaderEpoch, records [][]byte) (kafka.Offset, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if epoch != l.epoch {
		return 0, errNotLeader
	}
	for _, r := range records {
		l.records = append(l.records, append([]byte(nil), r...))
	}
	l.batches = append(l.batches, len(records))
	l.end += kafka.Offset(len(records))
	return l.end - 1, nil
}

func (l *metadataLog) UpgradeKRaftVersion(epoch kafka.LeaderEpoch, level int16) (kafka.Offset, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if epoch != l.epoch {
		return 0, errNotLeader
	}
	l.upgrades = append(l.upgrades, level)
	l.end += 2 // the level and the voters
	return l.end - 1, nil
}

func (l *metadataLog) Resign(epoch kafka.LeaderEpoch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resigns = append(l.resigns, epoch)
}

func (l *metadataLog) set(epoch kafka.LeaderEpoch) {
	l.mu.Lock()
	l.epoch = epoch
	l.mu.Unlock()
}

func (l *metadataLog) last() kafka.Offset {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end - 1
}

func (l *metadataLog) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.records)
}

// image is all that the log holds, replayed.
func (l *metadataLog) image(t *testing.T) *metadata.Image {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := metadata.NewDelta(metadata.Empty())
	for i, r := range l.records {
		if err := d.ReplayBytes(metadata.Provenance{Offset: kafka.Offset(i), Epoch: 1}, r); err != nil {
			t.Fatal(err)
		}
	}
	img, _ := d.Apply()
	return img
}

func start(t *testing.T, log *metadataLog, edit ...func(*controller.Options)) *Loop {
	t.Helper()
	b, err := config.NewBroker(config.NewProperties(map[string]string{"process.roles": "broker,controller", "node.id": "1", "log.dirs": "/x",
		"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093", "controller.listener.names": "CONTROLLER", "controller.quorum.voters": "1@127.0.0.1:9093"}))
	if err != nil {
		t.Fatal(err)
	}
	o := controller.OptionsOf(b)
	o.ClusterID, o.Rand = "c", rand.New(rand.NewPCG(1, 1))
	o.MaxIdleInterval, o.SessionTimeout, o.LeaderImbalanceCheckInterval, o.UncleanElectionCheckInterval = 0, 0, 0, 0
	for _, e := range edit {
		e(&o)
	}
	l := New(Options{Controller: o, Log: log, Fatal: func(err error) { t.Errorf("fatal: %v", err) }})
	l.Start()
	t.Cleanup(l.Close)
	return l
}

// answer waits for one decision.
type answer struct {
	resp kmsg.Response
	err  error
	told int
}

func ask(l *Loop, req kmsg.Request, timeout time.Duration) *answer {
	a := new(answer)
	l.Decide(req, true, time.Now().Add(timeout), func(r kmsg.Response, err error) { a.resp, a.err, a.told = r, err, a.told+1 })
	return a
}

func setConfig(value string) kmsg.Request {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version = 1
	req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeBroker,
		Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "message.max.bytes", Value: &value}}}}
	return req
}

// An answer comes when its records are committed, not before; a node that doesn't lead answers NOT_CONTROLLER.
func TestAnswersWaitForCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &metadataLog{epoch: 1}
		l := start(t, log)
		defer l.Close()
		a := ask(l, setConfig("1"), time.Minute)
		synctest.Wait()
		if a.told != 1 || !errors.Is(a.err, kerr.NotController) {
			t.Fatalf("before leading: %+v", a)
		}
		l.Lead(Leadership{Epoch: 1, Local: true, Image: metadata.Empty(), Empty: true})
		synctest.Wait()
		if n := log.count(); n != 3 { // begin, metadata.version, end: one transaction
			t.Fatalf("%d records at activation", n)
		}
		a, b := ask(l, setConfig("1"), time.Minute), ask(l, setConfig("2"), time.Minute)
		read := ask(l, func() kmsg.Request { r := kmsg.NewPtrListPartitionReassignmentsRequest(); return r }(), time.Minute)
		synctest.Wait()
		if a.told+b.told+read.told != 0 {
			t.Fatal("answered before the commit")
		}
		l.Committed(3)
		synctest.Wait()
		if a.told != 1 || a.err != nil || b.told+read.told != 0 {
			t.Fatalf("after the commit of the first: %+v %+v", a, b)
		}
		l.Committed(log.last())
		synctest.Wait()
		if b.told != 1 || b.err != nil || read.told != 1 || read.err != nil {
			t.Fatalf("after all: %+v %+v", b, read)
		}
		read = ask(l, kmsg.NewPtrListPartitionReassignmentsRequest(), time.Minute)
		synctest.Wait()
		if read.told != 1 {
			t.Fatal("a read waits though all is committed")
		}
		if v, _ := log.image(t).ConfigValue(metadata.Resource{Type: metadata.ResourceBroker}, "message.max.bytes"); v != "2" {
			t.Fatalf("value %q", v)
		}
	})
}

// What isn't committed in time is REQUEST_TIMED_OUT, once; the commit that comes later answers nobody.
// kraft.version is raised by a batch of the quorum's own: the answer waits for that one, too.
func TestUpgradeOfKRaftVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &metadataLog{epoch: 1}
		var supported atomic.Bool
		l := start(t, log, func(o *controller.Options) {
			o.CheckKRaftVersion = func(int16) error {
				if supported.Load() {
					return nil
				}
				return kerr.InvalidUpdateVersion.With("not all of the voters support it")
			}
		})
		defer l.Close()
		l.Lead(Leadership{Epoch: 1, Local: true, Image: metadata.Empty(), Empty: true})
		synctest.Wait()
		l.Committed(log.last())
		upgrade := func(validateOnly bool) *answer {
			req := kmsg.NewPtrUpdateFeaturesRequest()
			req.Version, req.ValidateOnly = 2, validateOnly
			req.FeatureUpdates = []kmsg.UpdateFeaturesRequestFeatureUpdate{{Feature: metadata.KRaftVersionFeature, MaxVersionLevel: 1, UpgradeType: 1}}
			a := ask(l, req, time.Minute)
			synctest.Wait()
			return a
		}
		a := upgrade(false)
		if r, ok := a.resp.(*kmsg.UpdateFeaturesResponse); !ok || r.ErrorCode != kerr.InvalidUpdateVersion.Code || !strings.HasSuffix(*r.ErrorMessage, "error: not all of the voters support it") {
			t.Fatalf("refused by the quorum: %+v", a)
		}
		supported.Store(true)
		if a := upgrade(true); a.told != 1 || a.err != nil || len(log.upgrades) != 0 {
			t.Fatalf("validated only: %+v, upgrades %v", a, log.upgrades)
		}
		before := log.last()
		a = upgrade(false)
		if a.told != 0 || !slices.Equal(log.upgrades, []int16{1}) {
			t.Fatalf("before the commit: %+v, upgrades %v", a, log.upgrades)
		}
		l.Committed(before + 2)
		synctest.Wait()
		if a.told != 1 || a.err != nil || a.resp.(*kmsg.UpdateFeaturesResponse).ErrorCode != 0 {
			t.Fatalf("after it: %+v", a)
		}
	})
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &metadataLog{epoch: 1}
		l := start(t, log)
		defer l.Close()
		l.Lead(Leadership{Epoch: 1, Local: true, Image: metadata.Empty(), Empty: true})
		var late []*answer
		for i := range 10 {
			late = append(late, ask(l, setConfig(fmt.Sprint(i)), time.Duration(10-i)*time.Second))
		}
		time.Sleep(5500 * time.Millisecond)
		synctest.Wait()
		for i, a := range late {
			if over := i >= 5; a.told != 0 != over || over && !errors.Is(a.err, kerr.RequestTimedOut) {
				t.Errorf("%d: %+v", i, a)
			}
		}
		l.Committed(log.last())
		synctest.Wait()
		for i, a := range late {
			if a.told != 1 || i < 5 && a.err != nil {
				t.Errorf("%d: %+v", i, a)
			}
		}
		a := ask(l, setConfig("x"), 0)
		synctest.Wait()
		if !errors.Is(a.err, kerr.RequestTimedOut) {
			t.Errorf("a request whose time is over: %+v", a)
		}
	})
}

// A node that loses the leadership forgets what wasn't committed, answers NOT_CONTROLLER, and begins anew on the committed
// image when it leads again. Offsets that another leader commits meanwhile are not taken for its own.
func TestLosingLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &metadataLog{epoch: 1}
		l := start(t, log)
		defer l.Close()
		l.Lead(Leadership{Epoch: 1, Local: true, Image: metadata.Empty(), Empty: true})
		synctest.Wait()
		l.Committed(log.last())
		committed := log.image(t)
		n := log.count()
		a := ask(l, setConfig("1"), time.Minute)
		synctest.Wait()
		// Another node leads, and its records take the offset.
		log.set(2)
		l.Lead(Leadership{Epoch: 2})
		l.Committed(log.last() + 5)
		synctest.Wait()
		if a.told != 1 || !errors.Is(a.err, kerr.NotController) {
			t.Fatalf("%+v", a)
		}
		log.mu.Lock()
		log.records, log.end, log.epoch = log.records[:n], kafka.Offset(n), 3
		log.mu.Unlock()
		l.Lead(Leadership{Epoch: 3, Local: true, Image: committed, NextOffset: kafka.Offset(n)})
		a = ask(l, setConfig("2"), time.Minute)
		synctest.Wait()
		l.Committed(log.last() + 10)
		synctest.Wait()
		if a.told != 1 || a.err != nil {
			t.Fatalf("%+v", a)
		}
		if got := log.count(); got != n+1 {
			t.Errorf("%d records, want one more than %d", got, n)
		}
		// The log refuses before the loop is told: the same.
		log.set(9)
		a = ask(l, setConfig("3"), time.Minute)
		synctest.Wait()
		if !errors.Is(a.err, kerr.NotController) || len(log.resigns) != 1 || log.resigns[0] != 3 {
			t.Errorf("%+v %v", a, log.resigns)
		}
	})
}

// Nobody is left without an answer when the loop ends.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &metadataLog{epoch: 1}
		l := start(t, log)
		l.Lead(Leadership{Epoch: 1, Local: true, Image: metadata.Empty(), Empty: true})
		a := ask(l, setConfig("1"), time.Minute)
		synctest.Wait()
		l.Close()
		b := ask(l, setConfig("1"), time.Minute)
		for _, x := range []*answer{a, b} {
			if x.told != 1 || !errors.Is(x.err, kerr.NotController) {
				t.Errorf("%+v", x)
			}
		}
		l.Close()
	})
}

// The periodic decisions come by themselves: a no-op record every metadata.max.idle.interval.ms, and silent brokers fenced.
func TestPeriodic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &metadataLog{epoch: 1}
		l := start(t, log, func(o *controller.Options) { o.MaxIdleInterval, o.SessionTimeout = 500*time.Millisecond, 9*time.Second })
		defer l.Close()
		l.Lead(Leadership{Epoch: 1, Local: true, Image: metadata.Empty(), Empty: true})
		synctest.Wait()
		req := kmsg.NewPtrBrokerRegistrationRequest()
		req.Version, req.ClusterID, req.BrokerID, req.LogDirs = 4, "c", 1, [][16]byte{{0: 1, 15: 200}}
		req.Features = []kmsg.BrokerRegistrationRequestFeature{{Name: metadata.MetadataVersionFeature, MinSupportedVersion: 7, MaxSupportedVersion: 33}}
		a := ask(l, req, time.Minute)
		synctest.Wait()
		l.Committed(log.last())
		synctest.Wait()
		if a.err != nil || a.resp.(*kmsg.BrokerRegistrationResponse).ErrorCode != 0 {
			t.Fatalf("%+v", a)
		}
		beat := kmsg.NewPtrBrokerHeartbeatRequest()
		beat.Version, beat.BrokerID, beat.BrokerEpoch, beat.CurrentMetadataOffset = 2, 1, a.resp.(*kmsg.BrokerRegistrationResponse).BrokerEpoch, log.last()
		a = ask(l, beat, time.Minute)
		synctest.Wait()
		l.Committed(log.last())
		synctest.Wait()
		if a.err != nil || a.resp.(*kmsg.BrokerHeartbeatResponse).IsFenced {
			t.Fatalf("%+v", a)
		}
		n := log.count()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := log.count() - n; got != 4 {
			t.Errorf("%d no-op records in two seconds", got)
		}
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if b := log.image(t).Broker(1); b == nil || !b.Fenced {
			t.Errorf("%+v", b)
		}
	})
}

// What doesn't fit into a batch is cut, in order, if it needn't be atomic.
func TestEncodeCuts(t *testing.T) {
	var records []controller.Record
	r := metadata.Bootstrap(metadata.BootstrapOptions{Version: 33})[0]
	for range maxBatchRecords + 5 {
		records = append(records, controller.Record{Message: r})
	}
	values, n, err := encode(records)
	if err != nil || n != maxBatchRecords || len(values) != n {
		t.Fatalf("%d %d %v", len(values), n, err)
	}
	if _, n, _ = encode(records[n:]); n != 5 {
		t.Fatal(n)
	}
}
