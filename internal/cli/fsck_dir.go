package cli

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raftloop"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
)

// fsckDir is the check of one log directory, but for its partitions.
type fsckDir struct {
	fs    vfs.FS
	path  string
	only  string // the name of the one partition's directory that was asked for
	state fsckDirState

	findings fsckFindings
	meta     storage.Meta
	hasMeta  bool // it could be read
	missing  bool // there is none
	offsets  map[string]map[kafka.TopicPartition]kafka.Offset
	dirs     []storage.PartitionDir
	checks   []*fsckPartition // in the order of dirs
}

func (d *fsckDir) name(base string) string { return d.path + "/" + base }

const fsckMetadataDir = kafka.ClusterMetadataTopic + "-0"

// read looks at the files at the top and lists the partitions.
func (d *fsckDir) read() error {
	entries, err := d.fs.List(d.path)
	if err != nil {
		return err
	}
	d.state.Path = d.path
	d.offsets = map[string]map[kafka.TopicPartition]kafka.Offset{}
	d.missing = true
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() {
			d.directory(name)
			continue
		}
		if d.only == "" {
			d.state.Files++
		}
		switch name {
		case storage.LockFile:
		case storage.MetaFile:
			d.missing = false
			d.readMeta()
		case storage.CleanShutdownFile:
			d.readCleanShutdown()
		case storage.RecoveryPointsFile, storage.HighWatermarksFile, storage.StartOffsetsFile, storage.CleanerOffsetsFile:
			d.readOffsets(name)
		case raftloop.BootstrapFile:
			d.readBootstrap()
		default:
			switch {
			case d.only != "":
			case strings.HasSuffix(name, ".tmp"):
				d.findings.add(fsckNote, d.name(name), "leftover", "leaves it, and writes over it when it next replaces the file.", "the unfinished replacement of a small file")
			default:
				d.findings.add(fsckNote, d.name(name), "unknown-file", "passes it over.", "not a file of a log directory")
			}
		}
	}
	if d.missing && d.only == "" {
		d.findings.add(fsckWarning, d.path, "meta-properties", "ends at its start.", "%s is missing: the directory is not formatted", storage.MetaFile).
			WayOut = "kafka-storage format, if it is to be a new one; else restore the file, whose directory.id the cluster knows."
	}
	d.checkLines()
	return nil
}

func (d *fsckDir) directory(name string) {
	p, ok := storage.ParsePartitionDirName(name)
	switch {
	case d.only != "":
		if name == d.only && ok {
			d.dirs = append(d.dirs, p)
		}
	case name == storage.RemoteIndexCacheDir:
		d.findings.add(fsckNote, d.name(name), "remote-index-cache", "uses it as a cache of tiered storage.", "indexes of remote segments, which are not checked")
	case ok:
		d.dirs = append(d.dirs, p)
	case name == storage.LostAndFoundDir:
		f := d.findings.add(fsckError, d.name(name), "unknown-dir", "ends at its start: it takes it for a misnamed partition.", "a directory of the file system, not a partition's")
		f.Highwater = "passes it over."
		f.WayOut = "let the log directory be one below the file system's top."
	default:
		f := d.findings.add(fsckError, d.name(name), "unknown-dir", "ends at its start.", "its name is not in the form of topic-partition")
		f.WayOut = "move the directory elsewhere."
	}
}

func (d *fsckDir) readMeta() {
	name := d.name(storage.MetaFile)
	b, err := d.fs.ReadFile(name, storage.MaxMetaSize)
	if err == nil {
		d.meta, err = storage.ParseMeta(b)
	}
	does := "takes the directory offline; ends if it is the last one or the metadata log's."
	if err == nil && d.meta.Version == 0 && d.meta.NodeID == kafka.NoBroker {
		err, does = errors.New("node ID not found"), "ends at its start."
	}
	if err != nil {
		f := d.findings.add(fsckError, name, "meta-properties", does, "%v", err)
		f.Highwater = "does not start."
		f.WayOut = "write it anew: version=1, the cluster's cluster.id, the node's node.id, and the directory.id that the cluster knows for this directory."
		return
	}
	d.hasMeta = true
	if d.meta.Version == 0 && d.only == "" {
		d.findings.add(fsckNote, name, "meta-properties", "4.x takes it in if cluster.id and node id fit, and writes version 1.", "version 0, of a broker with ZooKeeper")
	}
	if d.meta.DirectoryID.IsReserved() && !d.meta.DirectoryID.IsZero() {
		d.findings.add(fsckError, name, "meta-properties", "ends at its start.", "directory.id %s is reserved", d.meta.DirectoryID)
	}
}

func (d *fsckDir) readCleanShutdown() {
	name := d.name(storage.CleanShutdownFile)
	b, err := d.fs.ReadFile(name, 1<<16)
	if err != nil {
		d.findings.add(fsckWarning, name, "clean-shutdown", "takes the directory for one that was stopped cleanly.", "cannot be read: %v", err)
		d.state.Clean = true
		return
	}
	d.state.Clean = true
	if storage.ParseCleanShutdown(b) < 0 && d.only == "" {
		d.findings.add(fsckNote, name, "clean-shutdown", "takes the directory for one that was stopped cleanly, but cannot tell the controller in which epoch of the broker.", "it names no broker epoch, as before Kafka 3.7 or so")
	}
}

func (d *fsckDir) readOffsets(base string) {
	name := d.name(base)
	b, err := d.fs.ReadFile(name, storage.MaxCheckpointSize)
	if err == nil {
		var lines int
		d.offsets[base], lines, err = storage.ParseOffsets(b)
		if n := len(d.offsets[base]); err == nil && n < lines {
			d.findings.add(fsckWarning, name, "checkpoint", "lets the last line of a partition count.", "%d lines for %d partitions", lines, n)
		}
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return
	}
	f := d.findings.add(fsckError, name, "checkpoint", "takes the whole log directory offline; ends if it is the last one.", "%v", err)
	f.WayOut = "remove the file while the broker is stopped."
	switch base {
	case storage.RecoveryPointsFile:
		f.Kafka += " A number that cannot be read makes it go on without the file."
		f.Highwater = "goes on without it: all segments are recovered if the stop was not clean."
	case storage.StartOffsetsFile:
		f.Kafka += " A number that cannot be read makes it go on without the file."
		f.Highwater = "goes on without it: logs begin at their first segment, and records that were deleted come back."
		f.WayOut = "remove the file while the broker is stopped; then delete again, with kafka-delete-records, what comes back."
	case storage.HighWatermarksFile:
		f.Highwater = "goes on without it: replication finds the high watermarks anew."
	case storage.CleanerOffsetsFile:
		f.Highwater = "goes on without it: logs are cleaned from their start again."
	}
}

func (d *fsckDir) readBootstrap() {
	name := d.name(raftloop.BootstrapFile)
	_, _, err := raftloop.ReadCheckpoint(d.fs, name, kafka.OffsetAndEpoch{}, func(raftloop.Batch) error { return nil })
	if err != nil && d.only == "" {
		d.findings.add(fsckError, name, "bootstrap", "its controller ends at its start.", "%v", err).
			WayOut = "remove it while the node is stopped, if the cluster has been started before: then the metadata log says all that it said."
	}
}

// checkLines looks for lines of partitions that are not there.
func (d *fsckDir) checkLines() {
	if d.only != "" {
		return
	}
	here := map[kafka.TopicPartition]bool{}
	for _, p := range d.dirs {
		if p.Kind == storage.Current || p.Kind == storage.Future {
			here[p.Partition] = true
		}
	}
	for base, offsets := range d.offsets {
		gone := 0
		var one string
		for tp := range offsets {
			if !here[tp] {
				if gone++; one == "" || tp.String() < one {
					one = tp.String()
				}
			}
		}
		if gone > 0 {
			d.findings.add(fsckNote, d.name(base), "checkpoint", "drops them when it next writes the file.", "%s of partitions that are not in this directory, such as %s", fsckPlural(gone, "line"), one)
		}
	}
}

// offset is what a checkpoint says of a partition, -1 if nothing.
func (d *fsckDir) offset(base string, tp kafka.TopicPartition) kafka.Offset {
	if o, ok := d.offsets[base][tp]; ok {
		return o
	}
	return -1
}

// partition prepares the check of one partition.
func (d *fsckDir) partition(dir storage.PartitionDir) *fsckPartition {
	p := &fsckPartition{
		fs: d.fs, path: d.name(dir.Name), dir: dir, meta: dir.Name == fsckMetadataDir,
		clean: d.state.Clean, zooKeeper: d.hasMeta && d.meta.Version == 0,
		recoveryPoint: -1, logStart: -1, highWatermark: -1, dirty: -1,
	}
	// Kafka writes no line of the metadata log, and passes over that of Highwater.
	p.recoveryPoint = d.offset(storage.RecoveryPointsFile, dir.Partition)
	if !p.meta {
		// A -future or -stray directory of the same partition finds the same lines, also in Kafka.
		p.logStart = d.offset(storage.StartOffsetsFile, dir.Partition)
		p.highWatermark = d.offset(storage.HighWatermarksFile, dir.Partition)
		p.dirty = d.offset(storage.CleanerOffsetsFile, dir.Partition)
	}
	return p
}
