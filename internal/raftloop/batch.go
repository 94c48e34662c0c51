package raftloop

import (
	"fmt"
	"time"

	"github.com/highwater/highwater/internal/raft"
	"github.com/highwater/highwater/internal/record"
)

// parse says what is in a piece of the log, as far as it is whole batches. Each batch's CRC is checked. Memory of buf is
// not kept.
func parse(buf []byte) (infos []raft.BatchInfo, size int, err error) {
	for {
		b, rest, err := record.Next(buf)
		if err != nil || b == nil {
			return infos, size, err
		}
		info, err := inspect(b)
		if err != nil {
			return infos, size, err
		}
		infos = append(infos, info)
		size += len(b)
		buf = rest
	}
}

// survey shows each record of whole batches.
func survey(batches []byte, show func(value []byte)) error {
	for show != nil {
		b, rest, err := record.Next(batches)
		if err != nil || b == nil {
			return err
		}
		batches = rest
		if b.Control() {
			continue
		}
		for r, err := range b.All() {
			if err != nil {
				return fmt.Errorf("metadata batch at %d: %w", b.BaseOffset(), err)
			}
			show(r.Value)
		}
	}
	return nil
}

func inspect(b record.Batch) (raft.BatchInfo, error) {
	if err := b.Check(); err != nil {
		return raft.BatchInfo{}, err
	}
	if b.Magic() < 2 {
		return raft.BatchInfo{}, fmt.Errorf("metadata batch at %d has magic %d", b.BaseOffset(), b.Magic())
	}
	info := raft.BatchInfo{BaseOffset: b.BaseOffset(), LastOffset: b.LastOffset(), Epoch: b.PartitionLeaderEpoch(), Size: len(b)}
	if !b.Control() {
		return info, nil
	}
	for r, err := range b.All() {
		if err != nil {
			return raft.BatchInfo{}, fmt.Errorf("control batch at %d: %w", b.BaseOffset(), err)
		}
		t, err := record.ParseControlKey(r.Key)
		if err != nil {
			return raft.BatchInfo{}, err
		}
		c, err := raft.DecodeControl(int16(t), r.Value)
		if err != nil {
			return raft.BatchInfo{}, fmt.Errorf("control record at %d: %w", r.Offset, err)
		}
		if c != nil {
			info.Control = append(info.Control, raft.ControlAt{Offset: r.Offset, Record: c})
		}
	}
	return info, nil
}

// build makes the bytes of what raft wants appended, after dst.
func build(dst []byte, a *raft.Append) ([]byte, error) {
	if a.Raw != nil {
		return append(dst, a.Raw...), nil
	}
	o := record.DefaultBatchOptions(a.BaseOffset)
	o.LeaderEpoch = a.Epoch
	o.Control = a.Control != nil
	b := record.NewBuilder(o)
	at := a.Timestamp.UnixMilli()
	for _, v := range a.Records {
		b.Append(at, nil, v)
	}
	for _, c := range a.Control {
		t, value := raft.EncodeControl(c)
		b.Append(at, record.ControlType(t).Key(), value)
	}
	return b.AppendTo(dst)
}

// payload turns a batch of the log into what callbacks get. Values are copied only if the batch is compressed.
func payload(b record.Batch) (Batch, error) {
	out := Batch{BaseOffset: b.BaseOffset(), LastOffset: b.LastOffset(), Epoch: b.PartitionLeaderEpoch(),
		Timestamp: time.UnixMilli(b.MaxTimestamp()), Size: len(b), Control: b.Control()}
	if out.Control {
		return out, nil
	}
	compressed := b.Codec() != 0
	out.Records = make([][]byte, 0, min(int(max(b.Count(), 0)), len(b)))
	for r, err := range b.All() {
		if err != nil {
			return Batch{}, fmt.Errorf("metadata batch at %d: %w", b.BaseOffset(), err)
		}
		v := r.Value
		if compressed {
			v = append([]byte(nil), v...)
		}
		out.Records = append(out.Records, v)
	}
	if int64(len(out.Records)) != out.LastOffset-out.BaseOffset+1 {
		return Batch{}, fmt.Errorf("metadata batch at %d has %d records and ends at %d", b.BaseOffset(), len(out.Records), out.LastOffset)
	}
	return out, nil
}
