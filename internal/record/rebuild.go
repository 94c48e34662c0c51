package record

import (
	"sync"

	"github.com/highwater/highwater/internal/codec"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/kerr"
)

// maxRebuild bounds the records of a batch that is rebuilt, unpacked: they are held in memory, unlike those of one that is only
// validated. Kafka has no bound; without one, a small bomb could take all memory.
const maxRebuild = 128 << 20

var builders = sync.Pool{New: func() any { return new(Builder) }}

// rebuild validates v's records and makes one batch of magic 2 out of them, compressed with target. That is how the topic's
// compression.type is enforced, and how messages of magic 0 and 1 get in.
func (v *Validated) rebuild(o *Options, target codec.Type) error {
	first := v.Batch(0)
	if first.HasProducerID() && first.ProducerEpoch() == kafka.NoProducerEpoch {
		return kerr.InvalidRecord.With("Invalid negative producer epoch in record batch with producerId %d in topic partition %s", first.ProducerID(), o.Partition)
	}
	options := DefaultBatchOptions(0)
	options.Codec, options.Level = target, o.Level
	options.ProducerID, options.ProducerEpoch, options.BaseSequence = first.ProducerID(), first.ProducerEpoch(), first.BaseSequence()
	options.Transactional, options.Control = first.Transactional(), first.Control()
	b := builders.Get().(*Builder)
	b.Reset(options)
	defer func() {
		if cap(b.records) > keepBuffer {
			b.records = nil
		}
		builders.Put(b)
	}()
	for i := range v.Batches {
		if err := rebuildBatch(b, v.Batch(i), o); err != nil {
			return err
		}
	}
	if b.Len() == 0 {
		return kerr.InvalidRecord.With("Record batch without records in topic partition %s", o.Partition)
	}
	out, err := b.AppendTo(v.scratch[:0])
	if err != nil {
		return err
	}
	if o.MaxMessageBytes > 0 && len(out) > o.MaxMessageBytes {
		return kerr.MessageTooLarge.With("Message batch size is %d bytes in append to partition %s which exceeds the maximum configured size of %d.", len(out), o.Partition, o.MaxMessageBytes)
	}
	v.scratch, v.Bytes, v.Rebuilt = out, out, true
	v.Batches = v.Batches[:0]
	v.FirstOffset, v.LastOffset, v.MaxTimestamp, v.MaxTimestampOffset = -1, -1, NoTimestamp, -1
	v.add(Batch(out), 0)
	return nil
}

// rebuildBatch validates the records of batch and appends them to b.
func rebuildBatch(b *Builder, batch Batch, o *Options) error {
	var c checker
	c.init(batch, o)
	c.inOrder = false              // they get new offsets
	negative := int64(NoTimestamp) // the first timestamp that Kafka's builder would not take
	r := NewReader(batch)
	defer r.Close()
	if batch.Magic() >= 2 {
		r.limit = min(c.maxBody, maxRebuild)
	}
	for r.Next() {
		rec := &r.rec
		if r.legacy && batch.Codec() != codec.None {
			if err := r.innerCRC(o.Partition); err != nil {
				return err
			}
		}
		c.baseOffset, c.baseTimestamp, c.ofBatch = rec.Offset, rec.Timestamp, false
		raw := rawRecord{keySize: sizeOrNull(rec.Key), valueSize: sizeOrNull(rec.Value)}
		if !c.look(&raw) {
			return c.fault
		}
		if rec.Timestamp < NoTimestamp && negative == NoTimestamp {
			negative = rec.Timestamp
		}
		if c.errors == nil {
			b.appendRecordAt(kafka.Offset(b.Len()), rec)
		}
		if b.Size() > maxRebuild {
			return kerr.InvalidRecord.With("Record batch of more than %d bytes uncompressed in topic partition %s", maxRebuild, o.Partition)
		}
	}
	if r.Err() != nil {
		return r.Err()
	}
	if err := c.errors.err(); err != nil || negative == NoTimestamp {
		return err
	}
	return kerr.InvalidRecord.With("Invalid negative timestamp %d in topic partition %s", negative, o.Partition)
}

func sizeOrNull(p []byte) int {
	if p == nil {
		return -1
	}
	return len(p)
}
