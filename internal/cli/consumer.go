package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	fkerr "github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// subscription is what a consumer reads.
type subscription struct {
	topics    []string
	include   string // a regular expression for whole topic names, instead of topics
	partition int32  // with assigned: of the only topic
	offset    int64  // with assigned: -1 latest, -2 earliest
	assigned  bool   // one partition, no group
}

// consumer is a franz-go consumer that behaves as the Java client does with the same properties.
type consumer struct {
	conf   *clientConfig
	client *kgo.Client
	group  bool // it is a member of a group
	commit bool // it commits what it read
	hook   *connectionHook
	failed error // the broker refuses this client: what the first poll says
	ready  []*kgo.Record
	onJoin func(time.Time) // told when partitions are assigned
	onLost func(time.Time)
}

// newConsumer makes a consumer. The error is what KafkaConsumer's constructor throws.
func newConsumer(e *Env, props []Property, s subscription) (*consumer, error) {
	conf, err := newClientConfig(consumerClient, props)
	if err != nil {
		return nil, err
	}
	fail := func(err error) error {
		var j *JavaError
		if !errors.As(err, &j) {
			j = illegalArgument(err.Error())
		}
		return &JavaError{Class: "org.apache.kafka.common.KafkaException", Text: "Failed to construct kafka consumer", Inner: j}
	}
	c := &consumer{conf: conf}
	log := &toolLog{w: e.Stderr}
	c.hook = conf.newHook(log)
	opts, err := conf.clientOpts(c.hook, nil)
	if err != nil {
		return nil, fail(err)
	}
	maxBytes := min(max(conf.int("fetch.max.bytes"), 1), 1<<30)
	perPartition := min(max(conf.int("max.partition.fetch.bytes"), 1), 1<<30)
	opts = append(opts,
		kgo.FetchMinBytes(int32(max(conf.int("fetch.min.bytes"), 1))),
		kgo.FetchMaxWait(max(conf.ms("fetch.max.wait.ms"), 10*time.Millisecond)),
		kgo.FetchMaxBytes(int32(maxBytes)),
		kgo.FetchMaxPartitionBytes(int32(perPartition)),
		kgo.BrokerMaxReadBytes(int32(min(max(maxBytes, perPartition)+100<<20, 1<<30))),
	)
	if conf.str("isolation.level") == "read_committed" {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if !conf.boolean("check.crcs") {
		opts = append(opts, kgo.DisableFetchCRCValidation())
	}
	if rack := conf.str("client.rack"); rack != "" {
		opts = append(opts, kgo.Rack(rack))
	}
	if conf.boolean("allow.auto.create.topics") && s.include == "" {
		opts = append(opts, kgo.AllowAutoTopicCreation())
	}
	if s.assigned {
		at := kgo.NewOffset().At(s.offset)
		switch s.offset {
		case -1:
			at = kgo.NewOffset().AtEnd()
		case -2:
			at = kgo.NewOffset().AtStart()
		}
		opts = append(opts, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.topics[0]: {s.partition: at}}), kgo.ConsumeResetOffset(conf.reset()))
	} else {
		if s.include != "" {
			if _, err := regexp.Compile(s.include); err != nil {
				return nil, &JavaError{Class: "java.util.regex.PatternSyntaxException", Text: err.Error()}
			}
			opts = append(opts, kgo.ConsumeRegex(), kgo.ConsumeTopics("^(?:"+s.include+")$"))
		} else {
			opts = append(opts, kgo.ConsumeTopics(s.topics...))
		}
		opts = append(opts, kgo.ConsumeStartOffset(conf.reset()), kgo.ConsumeResetOffset(conf.reset()))
	}
	groups, err := brokerHasGroups(e.Context, opts)
	c.failed = err
	c.group = groups && !s.assigned && conf.str("group.id") != ""
	if c.group {
		c.commit = conf.boolean("enable.auto.commit")
		opts = append(opts, c.groupOpts()...)
	}
	if c.client, err = kgo.NewClient(opts...); err != nil {
		return nil, fail(err)
	}
	return c, nil
}

// brokerHasGroups asks whether the cluster has group coordinators. A node without them serves all the same: the consumer
// then reads all partitions itself. A cluster that doesn't answer is taken to have them. The error is that of a client that
// isn't let in: franz-go would go on trying for ever.
func brokerHasGroups(ctx context.Context, opts []kgo.Opt) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(append(append([]kgo.Opt(nil), opts...), kgo.RequestRetries(0), kgo.WithHooks())...)
	if err != nil {
		return true, nil // the real client will say it
	}
	defer cl.Close()
	for _, b := range cl.SeedBrokers() {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "highwater", KafkaVersion
		resp, err := req.RequestWith(ctx, requester{b})
		if err != nil {
			if final := finalError(err); final != nil {
				return true, final
			}
			continue
		}
		if resp.ErrorCode != 0 {
			continue
		}
		find, join := false, false
		for _, k := range resp.ApiKeys {
			find = find || k.ApiKey == 10
			join = join || k.ApiKey == 11
		}
		return find && join, nil
	}
	return true, nil
}

// reset is auto.offset.reset.
func (c *clientConfig) reset() kgo.Offset {
	switch s := strings.ToLower(c.str("auto.offset.reset")); {
	case s == "earliest":
		return kgo.NewOffset().AtStart()
	case s == "none":
		return kgo.NoResetOffset()
	case strings.HasPrefix(s, "by_duration:"):
		if d, ok := isoDuration(s[len("by_duration:"):]); ok {
			return kgo.NewOffset().AfterMilli(time.Now().Add(-d).UnixMilli())
		}
	}
	return kgo.NewOffset().AtEnd()
}

func (c *consumer) groupOpts() []kgo.Opt {
	conf := c.conf
	opts := []kgo.Opt{
		kgo.ConsumerGroup(conf.str("group.id")),
		kgo.SessionTimeout(max(conf.ms("session.timeout.ms"), 100*time.Millisecond)),
		kgo.HeartbeatInterval(min(conf.ms("heartbeat.interval.ms"), conf.ms("session.timeout.ms"))),
		kgo.RebalanceTimeout(max(min(conf.ms("max.poll.interval.ms"), 24*time.Hour), 100*time.Millisecond)),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) {
			if c.onJoin != nil {
				c.onJoin(time.Now())
			}
		}),
		kgo.OnPartitionsRevoked(func(ctx context.Context, cl *kgo.Client, _ map[string][]int32) {
			if c.commit {
				// Who gets the partitions next starts where this one stopped; a commit that fails only makes them read again.
				_ = cl.CommitMarkedOffsets(ctx)
			}
			if c.onLost != nil {
				c.onLost(time.Now())
			}
		}),
	}
	if id := conf.str("group.instance.id"); id != "" {
		opts = append(opts, kgo.InstanceID(id))
	}
	if c.commit {
		opts = append(opts, kgo.AutoCommitMarks(), kgo.AutoCommitInterval(max(conf.ms("auto.commit.interval.ms"), 100*time.Millisecond)))
	} else {
		opts = append(opts, kgo.DisableAutoCommit())
	}
	if strings.EqualFold(conf.str("group.protocol"), "consumer") {
		return append(opts, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	var balancers []kgo.GroupBalancer
	for _, s := range conf.list("partition.assignment.strategy") {
		switch s[strings.LastIndexByte(s, '.')+1:] {
		case "RangeAssignor":
			balancers = append(balancers, kgo.RangeBalancer())
		case "RoundRobinAssignor":
			balancers = append(balancers, kgo.RoundRobinBalancer())
		case "StickyAssignor":
			balancers = append(balancers, kgo.StickyBalancer())
		case "CooperativeStickyAssignor":
			balancers = append(balancers, kgo.CooperativeStickyBalancer())
		}
	}
	if len(balancers) == 0 {
		balancers = append(balancers, kgo.RangeBalancer())
	}
	return append(opts, kgo.Balancers(balancers...))
}

// errTimeout: nothing came in time.
var errTimeout = &JavaError{Class: "org.apache.kafka.common.errors.TimeoutException"}

// receive gives the next record. It fails with errTimeout after timeout without one (0: never), with context.Canceled when
// the process is to stop, otherwise with what the Java client's poll throws.
func (c *consumer) receive(ctx context.Context, timeout time.Duration) (*kgo.Record, error) {
	if len(c.ready) == 0 {
		if err := c.poll(ctx, timeout); err != nil {
			return nil, err
		}
	}
	r := c.ready[0]
	c.ready = c.ready[1:]
	return r, nil
}

// poll waits until ready has records.
func (c *consumer) poll(ctx context.Context, timeout time.Duration) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	for {
		if c.failed == nil {
			c.failed = c.hook.refusal()
		}
		if c.failed != nil {
			return c.failed
		}
		fetches := c.client.PollFetches(ctx)
		c.ready = fetches.Records()
		if len(c.ready) > 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				return errTimeout
			}
			return err
		}
		for _, f := range fetches.Errors() {
			if err := pollError(f); err != nil {
				return err
			}
		}
	}
}

// pollError is what the Java client throws for an error of one partition, nil where it just goes on trying.
func pollError(f kgo.FetchError) error {
	var k *fkerr.Error
	if !errors.As(f.Err, &k) {
		var loss *kgo.ErrDataLoss
		if errors.As(f.Err, &loss) {
			return nil // the position was reset as auto.offset.reset says
		}
		if errors.Is(f.Err, kgo.ErrClientClosed) {
			return f.Err
		}
		return nil
	}
	switch k.Code {
	case 17: // INVALID_TOPIC_EXCEPTION
		return exception("InvalidTopicException", "Invalid topics: ["+f.Topic+"]")
	case 29: // TOPIC_AUTHORIZATION_FAILED
		return exception("TopicAuthorizationException", "Not authorized to access topics: ["+f.Topic+"]")
	case 1: // OFFSET_OUT_OF_RANGE: only with auto.offset.reset=none
		return exception("OffsetOutOfRangeException", fmt.Sprintf("Fetch position is out of range for partition %s-%d", f.Topic, f.Partition))
	}
	if k.Retriable {
		return nil
	}
	if err := finalError(f.Err); err != nil {
		return err
	}
	return codeError(k.Code, nil)
}

// done marks a record as read, so that it is committed.
func (c *consumer) done(r *kgo.Record) {
	if c.commit {
		c.client.MarkCommitRecords(r)
	}
}

// close commits and leaves the group.
func (c *consumer) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if c.commit {
		// The tool ends; records whose offsets can't be committed are read again by the next.
		_ = c.client.CommitMarkedOffsets(ctx)
	}
	c.client.CloseAllowingRebalance()
}
