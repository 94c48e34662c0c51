package storage

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/highwater/highwater/internal/kafka"
)

// Suffixes of the files of a segment: 20 digits of its base offset come before.
const (
	logSuffix       = ".log"
	indexSuffix     = ".index"
	timeIndexSuffix = ".timeindex"
	txnIndexSuffix  = ".txnindex"
	snapshotSuffix  = ".snapshot"

	deletedSuffix = ".deleted" // to be removed after file.delete.delay.ms
	cleanedSuffix = ".cleaned" // of a cleaner that isn't ready
	asideSuffix   = ".aside"   // a .log behind a gap in offsets; neither read nor removed any more
	swapSuffix    = ".swap"    // of a cleaner that is ready: takes the original's place, also after a crash
)

// Names of the other files.
const (
	epochsName            = "leader-epoch-checkpoint"
	partitionMetadataName = "partition.metadata"

	lockName             = ".lock"
	metaName             = "meta.properties"
	cleanShutdownName    = ".kafka_cleanshutdown"
	recoveryPointsName   = "recovery-point-offset-checkpoint"
	highWatermarksName   = "replication-offset-checkpoint"
	startOffsetsName     = "log-start-offset-checkpoint"
	cleanerOffsetsName   = "cleaner-offset-checkpoint"
	remoteIndexCacheName = "remote-log-index-cache"
	lostAndFoundName     = "lost+found"

	deleteDirSuffix = "-delete"
	futureDirSuffix = "-future"
	strayDirSuffix  = "-stray"
)

// segmentName is the name of a segment's file.
func segmentName(base kafka.Offset, suffix string) string {
	var b [40]byte
	s := strconv.AppendInt(b[:0], base, 10)
	var out [48]byte
	n := copy(out[:], "00000000000000000000"[:max(0, 20-len(s))])
	n += copy(out[n:], s)
	n += copy(out[n:], suffix)
	return string(out[:n])
}

// parseSegmentName splits a name such as 00000000000000000042.log. ok is false for names of another form; suffix is all
// that follows the digits.
func parseSegmentName(name string) (base kafka.Offset, suffix string, ok bool) {
	dot := strings.IndexByte(name, '.')
	if dot <= 0 || dot > 20 {
		return 0, "", false
	}
	for i := range dot {
		if name[i] < '0' || name[i] > '9' {
			return 0, "", false
		}
	}
	base, err := strconv.ParseInt(name[:dot], 10, 64)
	return base, name[dot:], err == nil
}

// parseDirName takes a partition directory's name apart. The topic of a deleted or stray one may be cut short.
func parseDirName(name string) (PartitionDir, bool) {
	d := PartitionDir{Name: name}
	tp, unique := name, true
	switch {
	case strings.HasSuffix(name, deleteDirSuffix):
		d.Kind, tp = Deleted, strings.TrimSuffix(name, deleteDirSuffix)
	case strings.HasSuffix(name, futureDirSuffix):
		d.Kind, tp = Future, strings.TrimSuffix(name, futureDirSuffix)
	case strings.HasSuffix(name, strayDirSuffix):
		d.Kind, tp = Stray, strings.TrimSuffix(name, strayDirSuffix)
	default:
		unique = false
	}
	if unique {
		// topic-partition.<unique>
		dot := strings.LastIndexByte(tp, '.')
		if dot < 0 || dot == len(tp)-1 {
			return d, false
		}
		tp = tp[:dot]
	}
	var ok bool
	d.Partition, ok = kafka.ParseTopicPartition(tp)
	return d, ok
}

// futureDir is the name of a partition's directory while the replica is on its way into the log directory. Kafka cuts nothing
// off here, so that a topic's name can be too long for it.
func futureDir(p kafka.TopicPartition, unique [16]byte) string {
	return fmt.Sprintf("%s-%d.%x%s", p.Topic, p.Partition, unique, futureDirSuffix)
}

// renamedDir is the name of a partition's directory that is to be deleted or is stray: unique, so that the topic can be made
// again meanwhile, and not above 255 bytes, at the topic's expense.
func renamedDir(p kafka.TopicPartition, unique [16]byte, suffix string) string {
	tail := fmt.Sprintf("-%d.%x%s", p.Partition, unique, suffix)
	topic := p.Topic
	if room := 255 - len(tail); len(topic) > room {
		topic = topic[:room]
	}
	return topic + tail
}
