package raftloop

import (
	"fmt"
	"math"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raft"
	"github.com/highwater/highwater/internal/record"
	"github.com/highwater/highwater/internal/storage"
)

// storageLog is the metadata log as package storage keeps it: in segments with indexes, Kafka's files.
type storageLog struct {
	log *storage.Log
}

var metadataPartition = kafka.TopicPartition{Topic: kafka.ClusterMetadataTopic}

// OpenStorageLog opens the log in the metadata log directory, which the node has locked. Retention does nothing to it: its
// beginning is deleted only by DeletePrefix, below a snapshot. notes are for the log file.
func OpenStorageLog(dir *storage.Dir, opt *Options, recoveryPoint kafka.Offset, now time.Time) (l Log, notes []string, err error) {
	o := *opt
	o.Defaults()
	c := storage.DefaultConfig()
	c.SegmentBytes = int32(min(o.MetadataLogSegmentBytes, math.MaxInt32))
	c.SegmentAge = o.MetadataLogSegment
	c.Delete, c.RetentionTime, c.RetentionBytes, c.FileDeleteDelay = false, -1, -1, 0
	log, r, err := dir.OpenLog(metadataPartition, kafka.MetadataTopic, c, recoveryPoint, 0, now)
	if err != nil {
		return nil, r.Notes, err
	}
	return &storageLog{log: log}, r.Notes, nil
}

func (l *storageLog) StartOffset() kafka.Offset { return l.log.StartOffset() }
func (l *storageLog) EndOffset() kafka.Offset   { return l.log.EndOffset() }
func (l *storageLog) Size() int64               { return l.log.Size() }

func (l *storageLog) Epochs() []raft.EpochStart {
	var out []raft.EpochStart
	for _, e := range l.log.Epochs() {
		out = append(out, raft.EpochStart{Epoch: e.Epoch, Offset: e.Start})
	}
	return out
}

func (l *storageLog) Append(now time.Time, batches []byte) error {
	// Offsets and epochs are set, by this leader or by the one that it was fetched from.
	v, err := record.Validate(batches, &record.Options{Partition: metadataPartition, Origin: record.Replica, LeaderEpoch: math.MaxInt32})
	if err != nil {
		return fmt.Errorf("append to metadata log: %w", err)
	}
	defer v.Release()
	if len(v.Bytes) != len(batches) {
		return fmt.Errorf("append to metadata log: %d of %d bytes are batches", len(v.Bytes), len(batches))
	}
	_, err = l.log.AppendAsFollower(v, now)
	return err
}

func (l *storageLog) Truncate(now time.Time, end kafka.Offset) error {
	if err := l.log.TruncateTo(end, now); err != nil {
		return err
	}
	return l.removeDeleted(now)
}

func (l *storageLog) Reset(now time.Time, offset kafka.Offset) error {
	if err := l.log.TruncateFullyAndStartAt(offset, offset, now); err != nil {
		return err
	}
	if err := l.log.Flush(offset); err != nil {
		return err
	}
	return l.removeDeleted(now)
}

func (l *storageLog) Flush() error { return l.log.Flush(l.log.EndOffset()) }

func (l *storageLog) Read(offset kafka.Offset, maxBytes int) ([]byte, error) {
	end := l.log.EndOffset()
	if offset >= end {
		return []byte{}, nil
	}
	s, err := l.log.Read(offset, maxBytes, true, end)
	if err != nil {
		return nil, fmt.Errorf("read metadata log at %d: %w", offset, err)
	}
	defer s.Release()
	buf := make([]byte, s.Len())
	if _, err := s.ReadAt(buf, 0); err != nil {
		return nil, fmt.Errorf("read metadata log at %d: %w", offset, err)
	}
	// The last batch may be cut off.
	whole := 0
	for {
		size, ok, err := record.PeekSize(buf[whole:])
		if err != nil {
			return nil, fmt.Errorf("read metadata log at %d: %w", offset, err)
		}
		if !ok || size > len(buf)-whole {
			return buf[:whole], nil
		}
		whole += size
	}
}

func (l *storageLog) DeletePrefix(now time.Time, offset kafka.Offset) error {
	// The replica deletes only below a snapshot, which is below the high watermark.
	l.log.SetHighWatermark(l.log.EndOffset())
	if _, err := l.log.AdvanceStartOffset(offset); err != nil {
		return err
	}
	if _, err := l.log.DeleteOldSegments(now); err != nil {
		return err
	}
	return l.removeDeleted(now)
}

// removeDeleted removes the files of segments that are gone. Nobody else reads them: all reads are copies.
func (l *storageLog) removeDeleted(now time.Time) error {
	_, err := l.log.RemoveDeleted(now)
	return err
}

// Close also writes down up to where the log is synced: what is bad below, the next start refuses, and cuts nothing off.
func (l *storageLog) Close() error {
	if err := l.log.Close(); err != nil {
		return err
	}
	return l.log.Dir().CheckpointRecoveryPoints()
}
