package node

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
)

// identity is what the log directories say of this node.
type identity struct {
	clusterID string
	dirs      map[string]kafka.DirectoryID // by path
	lost      map[string]error             // directories that can't be read, by path: the others serve without them
}

// checkDirs reads meta.properties of every log directory and compares them with each other and with node.id. It changes
// nothing. The texts are Kafka's, followed by the way out.
func checkDirs(fsys vfs.FS, c *config.Broker) (identity, error) {
	id := identity{dirs: make(map[string]kafka.DirectoryID), lost: make(map[string]error)}
	owner := make(map[kafka.DirectoryID]string)
	var missing []string
	for _, dir := range allDirs(c) {
		name := dir + "/meta.properties"
		m, err := storage.ReadMeta(fsys, dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, dir)
			continue
		case unreadable(err) && dir != c.MetadataLogDir:
			id.lost[dir] = err // Kafka goes on without it, too
			continue
		case unreadable(err):
			return id, accessError(fmt.Errorf("read %s: %w", name, err))
		case err != nil:
			return id, metaError(fsys, c, dir, err)
		case m.NodeID == kafka.NoBroker && m.Version == 0:
			// Kafka, too, takes a file without a version for one of ZooKeeper's, and misses the number of the node.
			return id, metaError(fsys, c, dir, fmt.Errorf("%s is corrupt: node ID not found", name))
		case m.NodeID != kafka.BrokerID(c.NodeID):
			return id, &StartError{
				Text: fmt.Sprintf("Stored node id %d doesn't match previous node id %d in %s. If you moved your data, make sure your configured node id matches. "+
					"If you intend to create a new node, you should remove all data in your data directories.", m.NodeID, c.NodeID, name),
				Hint: fmt.Sprintf("Set node.id=%d, or point log.dirs to this node's own directories.", m.NodeID),
			}
		case m.Version == 0 && c.IsController:
			// A controller begins in a formatted directory. This one's topics are known to a ZooKeeper only: with an empty metadata log
			// they would all be set aside as strays.
			return id, &StartError{
				Text: fmt.Sprintf("%s has version 0: the directory was written in ZooKeeper mode, and a controller cannot begin in it.", name),
				Hint: "Migrate the cluster to KRaft with Kafka 3.9, which moves the metadata out of ZooKeeper into controllers in directories of their own. " +
					"Then start this node with process.roles=broker on this directory. Nothing was changed.",
			}
		case id.clusterID != "" && m.ClusterID != id.clusterID:
			return id, &StartError{
				Text: fmt.Sprintf("Invalid cluster.id in: %s. Expected %s, but read %s", name, id.clusterID, m.ClusterID),
				Hint: "The directories of log.dirs belong to different clusters: take the foreign one out of log.dirs.",
			}
		}
		id.clusterID = m.ClusterID
		if m.DirectoryID.IsReserved() && !m.DirectoryID.IsZero() {
			return id, metaError(fsys, c, dir, fmt.Errorf("Invalid reserved directory ID %v found in %s", m.DirectoryID, dir))
		}
		if !m.DirectoryID.IsZero() {
			if other, twice := owner[m.DirectoryID]; twice {
				return id, &StartError{
					Text: fmt.Sprintf("Duplicate directory ID Optional[%v] found. It was the ID of %s, but also of %s", m.DirectoryID, other, dir),
					Hint: "One of them is a copy of the other: remove directory.id from the copy's meta.properties.",
				}
			}
			owner[m.DirectoryID] = dir
		}
		id.dirs[dir] = m.DirectoryID
	}
	switch {
	case len(id.dirs) == 0 && len(missing) == 0:
		return id, noDirError(id.lost)
	case len(id.dirs) == 0:
		return id, &StartError{
			Text: "No readable meta.properties files found.",
			Hint: missing[0] + " is not formatted. Make an id with `kafka-storage.sh random-uuid`, then run `kafka-storage.sh format -t ID -c server.properties`.",
		}
	case len(missing) > 0:
		return id, &StartError{
			Text: fmt.Sprintf("No `meta.properties` found in %s (have you run `kafka-storage.sh` to format the directory?)", missing[0]),
			Hint: fmt.Sprintf("If it has data, see whether its disk is mounted, and put meta.properties back. If it is new, run `kafka-storage.sh format --ignore-formatted -t %s -c server.properties`, or take %s out of log.dirs.",
				id.clusterID, missing[0]),
		}
	case id.clusterID == "":
		return id, &StartError{
			Text: "No cluster.id in meta.properties of any log directory.",
			Hint: "It was written by a Kafka in ZooKeeper mode that never started: migrate that cluster to KRaft first.",
		}
	}
	return id, metadataPlace(fsys, c)
}

// metaError says that meta.properties of a directory can't be understood, and what should stand in it.
func metaError(fsys vfs.FS, c *config.Broker, dir string, err error) error {
	e := &StartError{Text: err.Error(), Err: err}
	var version *storage.VersionError
	if errors.As(err, &version) {
		e.Hint = "A later version than this one wrote it: start that version. Nothing was changed."
		return e
	}
	cluster := "that of the cluster's other nodes"
	var others []string
	for _, other := range allDirs(c) {
		if m, err := storage.ReadMeta(fsys, other); err == nil && m.ClusterID != "" {
			cluster = m.ClusterID
			if !m.DirectoryID.IsZero() {
				others = append(others, m.DirectoryID.String())
			}
		}
	}
	which := "the one in the RegisterBrokerRecord of this node"
	if len(others) > 0 {
		which += " that is not " + strings.Join(others, ", ")
	}
	e.Hint = fmt.Sprintf("Put the file back from a backup. If there is none, write these lines into %s/meta.properties: version=1, node.id=%d, cluster.id=%s, and directory.id=ID, where ID is %s, "+
		"which `kafka-dump-log.sh --cluster-metadata-decoder --files` prints of the metadata log. Nothing was changed.", dir, c.NodeID, cluster, which)
	return e
}

// allDirs are the log directories and the metadata log's, each once.
func allDirs(c *config.Broker) []string {
	dirs := append([]string(nil), c.LogDirs...)
	for _, d := range dirs {
		if d == c.MetadataLogDir {
			return dirs
		}
	}
	return append(dirs, c.MetadataLogDir)
}

// dirError says who is in the way.
func dirError(dir string, err error) error {
	if errors.Is(err, vfs.ErrLocked) {
		return &StartError{
			Class: "org.apache.kafka.common.KafkaException",
			Text:  fmt.Sprintf("Failed to acquire lock on file .lock in %s. A Kafka instance in another process or thread is using this directory.", dir),
			Hint:  "Stop the other process, or give this node log.dirs of its own.",
			Err:   err,
		}
	}
	err = fmt.Errorf("open log directory %s: %w", dir, err)
	if unreadable(err) {
		return accessError(err)
	}
	return err
}

// accessError is what the disk says of the metadata log's directory, without which there is no node, and the way out.
func accessError(err error) error {
	return &StartError{
		Class: "java.io.IOException",
		Text:  err.Error(),
		Hint: "It is the directory of the metadata log, without which the node can't start: see to the disk, to the owner and permissions of the directory, and whether its file system is mounted for writing. " +
			"Nothing was changed.",
		Err: err,
	}
}

// loadError says what lies among the partitions.
func loadError(err error) error {
	var foreign *storage.ForeignDirError
	if !errors.As(err, &foreign) {
		return err
	}
	return &StartError{
		Class: "org.apache.kafka.common.KafkaException", Fatal: "Encountered fatal fault: Error starting LogManager",
		Text: foreign.Error(),
		Hint: fmt.Sprintf("Move %s out of the log directory.", foreign.Path),
		Err:  err,
	}
}
