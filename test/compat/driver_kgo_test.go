package compat

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// kgoDriver is franz-go.
type kgoDriver struct{}

func (kgoDriver) name() string { return "franz-go" }
func (kgoDriver) plain() bool  { return false }
func (kgoDriver) codes() bool  { return true }
func (kgoDriver) times() bool  { return true }
func (kgoDriver) stamps() bool { return true }

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func (kgoDriver) produce(t *testing.T, p produce) error {
	opts := []kgo.Opt{kgo.SeedBrokers(p.Addr), kgo.ProducerBatchCompression(codecs[p.Codec]), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(int32(p.Max)), kgo.UnknownTopicRetries(0)}
	if !p.Idempotent {
		opts = append(opts, kgo.DisableIdempotentWrite())
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	var records []*kgo.Record
	for _, e := range p.Records {
		r := &kgo.Record{Topic: p.Topic, Partition: p.Partition, Key: e.Key, Value: e.Value}
		if e.Timestamp != 0 {
			r.Timestamp = time.UnixMilli(e.Timestamp)
		}
		for _, h := range e.Headers {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Name, Value: h.Value})
		}
		records = append(records, r)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return coded(cl.ProduceSync(ctx, records...).FirstErr())
}

func coded(err error) error {
	var ke *kerr.Error
	if errors.As(err, &ke) {
		return &refusal{ke.Code, ke.Error()}
	}
	return err
}

func (kgoDriver) consume(t *testing.T, c consume) ([]entry, error) {
	at := kgo.NewOffset().At(c.Offset)
	if c.Timestamp != nil {
		at = kgo.NewOffset().AfterMilli(*c.Timestamp)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Addr), kgo.FetchMaxWait(100*time.Millisecond), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.KeepRetryableFetchErrors(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.Topic: {c.Partition: at}}))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out []entry
	for len(out) < c.Count {
		fs := cl.PollRecords(ctx, c.Count-len(out))
		if errs := fs.Errors(); len(errs) > 0 {
			return out, coded(errs[0].Err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			e := entry{Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
			for _, h := range r.Headers {
				e.Headers = append(e.Headers, header{h.Key, h.Value})
			}
			out = append(out, e)
		})
	}
	return out, nil
}
