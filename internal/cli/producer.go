package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	fkerr "github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// producer is a franz-go producer that behaves as the Java client does with the same properties.
type producer struct {
	ctx    context.Context
	conf   *clientConfig
	client *kgo.Client
	ready  string // the topic whose metadata is there
}

// newProducer makes a producer. batch, if not 0, is the most bytes of a batch: it must hold the largest record. more wins over
// what the properties say.
func newProducer(e *Env, props []Property, batch int, more ...kgo.Opt) (*producer, error) {
	conf, err := newClientConfig(producerClient, props)
	if err != nil {
		return nil, err
	}
	idempotent, err := conf.idempotence()
	if err != nil {
		return nil, err
	}
	fail := func(err error) error {
		var j *JavaError
		if !errors.As(err, &j) {
			j = &JavaError{Class: "java.lang.IllegalArgumentException", Text: err.Error()}
		}
		return &JavaError{Class: "org.apache.kafka.common.KafkaException", Text: "Failed to construct kafka producer", Inner: j}
	}
	p := &producer{ctx: e.Context, conf: conf}
	opts, err := conf.clientOpts(conf.newHook(&toolLog{w: e.Stderr}), nil)
	if err != nil {
		return nil, fail(err)
	}
	size := min(max(conf.int("max.request.size"), 512), 1<<30)
	limit := size
	if batch > 0 {
		limit = min(max(int64(batch), 512), 1<<30)
	}
	codec, err := conf.compression()
	if err != nil {
		return nil, fail(err)
	}
	opts = append(opts,
		kgo.AllowAutoTopicCreation(),
		kgo.ProducerBatchCompression(codec),
		kgo.ProducerBatchMaxBytes(int32(limit)),
		kgo.BrokerMaxWriteBytes(int32(min(max(size, limit)+1<<16, 1<<30))),
		kgo.ProducerLinger(min(conf.ms("linger.ms"), time.Minute)),
		kgo.MaxBufferedRecords(math.MaxInt32),
		kgo.MaxBufferedBytes(int(max(conf.int("buffer.memory"), 1))),
		kgo.ProduceRequestTimeout(max(conf.ms("request.timeout.ms"), 100*time.Millisecond)),
		kgo.RecordDeliveryTimeout(max(conf.ms("delivery.timeout.ms"), time.Second)),
		kgo.RecordPartitioner(conf.partitioner()),
	)
	if n := conf.int("retries"); n < math.MaxInt32 {
		opts = append(opts, kgo.RecordRetries(int(n)+1))
	}
	switch conf.str("acks") {
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()))
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()))
	default:
		opts = append(opts, kgo.RequiredAcks(kgo.AllISRAcks()))
	}
	if !idempotent {
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(int(max(conf.int("max.in.flight.requests.per.connection"), 1))))
	}
	if id := conf.str("transactional.id"); id != "" {
		opts = append(opts, kgo.TransactionalID(id), kgo.TransactionTimeout(conf.ms("transaction.timeout.ms")))
	}
	if p.client, err = kgo.NewClient(append(opts, more...)...); err != nil {
		return nil, fail(err)
	}
	return p, nil
}

// idempotence is enable.idempotence after Kafka's rules: on unless something that was asked for excludes it.
func (c *clientConfig) idempotence() (bool, error) {
	acks, retries, inflight := c.str("acks"), c.int("retries"), c.int("max.in.flight.requests.per.connection")
	explicit := c.has("enable.idempotence")
	if explicit && !c.boolean("enable.idempotence") {
		if c.str("transactional.id") != "" {
			return false, configError("Cannot set a transactional.id without also enabling idempotence.")
		}
		return false, nil
	}
	explicit = explicit || c.str("transactional.id") != ""
	switch {
	case acks != "all" && acks != "-1":
		if explicit {
			return false, configError("Must set acks to all in order to use the idempotent producer. Otherwise we cannot guarantee idempotence.")
		}
		return false, nil
	case retries == 0:
		if explicit {
			return false, configError("Must set retries to non-zero when using the idempotent producer.")
		}
		return false, nil
	case inflight > 5:
		if explicit {
			return false, configError("Must set max.in.flight.requests.per.connection to at most 5 to use the idempotent producer.")
		}
		return false, nil
	}
	return true, nil
}

func (c *clientConfig) compression() (kgo.CompressionCodec, error) {
	kind := c.str("compression.type")
	level := func(codec kgo.CompressionCodec, unset string) kgo.CompressionCodec {
		if v := c.str("compression." + kind + ".level"); v != unset && v != "" {
			return codec.WithLevel(int(c.int("compression." + kind + ".level")))
		}
		return codec
	}
	switch kind {
	case "none":
		return kgo.NoCompression(), nil
	case "gzip":
		return level(kgo.GzipCompression(), "-1"), nil
	case "snappy":
		return kgo.SnappyCompression(), nil
	case "lz4":
		return level(kgo.Lz4Compression(), "9"), nil // 9 is the default and means the fast compressor
	case "zstd":
		return level(kgo.ZstdCompression(), "3"), nil
	}
	return kgo.CompressionCodec{}, configError("Unknown compression name: %s", kind)
}

// partitioner is the Java client's: murmur2 of the key; without one a partition for batch.size bytes, the next then, less
// loaded brokers first.
func (c *clientConfig) partitioner() kgo.Partitioner {
	if strings.HasSuffix(c.str("partitioner.class"), ".RoundRobinPartitioner") {
		return kgo.RoundRobinPartitioner()
	}
	return kgo.UniformBytesPartitioner(int(max(c.int("batch.size"), 1)), !c.has("partitioner.adaptive.partitioning.enable") || c.boolean("partitioner.adaptive.partitioning.enable"), !c.boolean("partitioner.ignore.keys"), nil)
}

// send hands a record over; done gets its fate, an error as the Java client's. It blocks while the topic is unknown, at most
// max.block.ms, and while the buffer is full.
func (p *producer) send(r *kgo.Record, done func(*kgo.Record, error)) {
	if err := p.await(r.Topic); err != nil {
		done(r, err)
		return
	}
	if n, most := recordSize(r), p.conf.int("max.request.size"); int64(n) > most {
		done(r, exception("RecordTooLargeException", fmt.Sprintf("The message is %d bytes when serialized which is larger than %d, which is the value of the max.request.size configuration.", n, most)))
		return
	}
	p.client.Produce(p.ctx, r, func(r *kgo.Record, err error) {
		if err != nil {
			err = p.javaError(r, err)
		}
		done(r, err)
	})
}

// recordSize is an upper bound of what a record takes in a batch of its own, as the Java client reckons it.
func recordSize(r *kgo.Record) int {
	n := 61 + 5 + 1 + 10 + 5 + 5 + len(r.Key) + 5 + len(r.Value) + 5
	for _, h := range r.Headers {
		n += 10 + len(h.Key) + len(h.Value)
	}
	return n
}

// await waits until a topic's metadata is there.
func (p *producer) await(topic string) error {
	if topic == p.ready {
		return nil
	}
	limit := p.conf.ms("max.block.ms")
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	for {
		req := kmsg.NewPtrMetadataRequest()
		req.AllowAutoTopicCreation = true
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(topic)
		req.Topics = append(req.Topics, rt)
		resp, err := req.RequestWith(ctx, p.client)
		if err == nil && len(resp.Topics) == 1 {
			switch t := resp.Topics[0]; {
			case t.ErrorCode == 0 && len(t.Partitions) > 0:
				p.ready = topic
				return nil
			case t.ErrorCode == 17: // INVALID_TOPIC_EXCEPTION
				return exception("InvalidTopicException", "Invalid topics: ["+topic+"]")
			case t.ErrorCode == 29: // TOPIC_AUTHORIZATION_FAILED
				return exception("TopicAuthorizationException", "Not authorized to access topics: ["+topic+"]")
			}
		}
		if err != nil {
			if final := finalError(err); final != nil {
				return final
			}
		}
		t := time.NewTimer(max(p.conf.ms("retry.backoff.ms"), 20*time.Millisecond))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return exception("TimeoutException", fmt.Sprintf("Topic %s not present in metadata after %d ms.", topic, limit.Milliseconds()))
		}
	}
}

// javaError is what the Java client says for a record that failed.
func (p *producer) javaError(r *kgo.Record, err error) error {
	var j *JavaError
	if errors.As(err, &j) {
		return j
	}
	var k *fkerr.Error
	switch {
	case errors.As(err, &k) && k.Code == 10 && r.LeaderEpoch <= 0 && r.Offset <= 0:
		return codeError(10, nil)
	case errors.As(err, &k):
		if final := finalError(err); final != nil {
			return final
		}
		return codeError(k.Code, nil)
	case errors.Is(err, kgo.ErrRecordTimeout):
		return exception("TimeoutException", fmt.Sprintf("Expiring 1 record(s) for %s-%d:%d ms has passed since batch creation", r.Topic, r.Partition, p.conf.int("delivery.timeout.ms")))
	case errors.Is(err, kgo.ErrClientClosed):
		return &JavaError{Class: "org.apache.kafka.common.KafkaException", Text: "Producer is closed forcefully."}
	}
	return &JavaError{Class: "org.apache.kafka.common.KafkaException", Text: err.Error()}
}

// close sends what is buffered, then ends.
func (p *producer) close(ctx context.Context) {
	// What can't be flushed was told to the record's own callback.
	_ = p.client.Flush(ctx)
	p.client.Close()
}
