package node

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/highwater/highwater/internal/config"
	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/raftloop"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs"
)

// A metadata log that is not where it was, not as it was, or gone. Without it every partition would be set aside as a stray, and the
// cluster would begin anew under the same name, so none of that may happen silently.

var metadataPartition = kafka.TopicPartition{Topic: kafka.ClusterMetadataTopic}

// metadataPlace refuses a node that has a metadata log in another of its directories than the one where it is looked for, as when log.dirs
// names them in another order than before. It would begin with an empty log, and know none of its partitions.
func metadataPlace(fsys vfs.FS, c *config.Broker) error {
	name := "/" + metadataPartition.String()
	for _, dir := range allDirs(c) {
		if _, err := fsys.Stat(dir + name); err != nil || dir == c.MetadataLogDir {
			continue
		}
		hint := fmt.Sprintf("Set metadata.log.dir=%s, or name it first in log.dirs, or put the directories back to where they were.", dir)
		if _, err := fsys.Stat(c.MetadataLogDir + name); err == nil {
			hint = fmt.Sprintf("There is one in %s, too: move the one that is not this node's newest away, and let metadata.log.dir name the directory of the other.", c.MetadataLogDir)
		}
		return &StartError{
			Class: "org.apache.kafka.common.KafkaException",
			Text:  fmt.Sprintf("Found unexpected metadata location in data directory `%s` (the configured metadata directory is %s).", dir+name, c.MetadataLogDir),
			Hint:  hint + " Nothing was changed.",
		}
	}
	return nil
}

// soleVoter tells whether nobody else has the metadata.
func (n *Node) soleVoter() bool {
	return n.static.IsController && len(n.static.Voters) == 1 && n.static.Voters[0].ID == n.static.NodeID
}

// metadataLost refuses a start on a metadata log without a record and without a snapshot where there must have been some: there is a
// recovery point of it, or partitions are there and nobody else who could know them. A disk that was replaced has neither.
func (n *Node) metadataLost() error {
	dir := n.static.MetadataLogDir + "/" + metadataPartition.String()
	entries, err := n.opts.FS.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return accessError(fmt.Errorf("list %s: %w", dir, err))
	}
	for _, e := range entries {
		if id, ok := raftloop.ParseSnapshotName(e.Name()); ok && id.Offset > 0 {
			return nil
		}
		if !strings.HasSuffix(e.Name(), ".log") {
			continue
		}
		if st, err := n.opts.FS.Stat(dir + "/" + e.Name()); err != nil || st.Size() > 0 {
			return nil // whoever opens it says what it is
		}
	}
	missing := ""
	for _, d := range n.dirs {
		if d.Path() == n.static.MetadataLogDir && d.RecoveryPoint(metadataPartition) > 0 {
			return n.lostError(dir, fmt.Errorf("%s has no record, but everything below offset %d was synced there", dir, d.RecoveryPoint(metadataPartition)))
		}
		if parts, err := d.Partitions(); err == nil && missing == "" { // what is no partition was looked for before
			for _, p := range parts {
				if p.Kind == storage.Current {
					missing = d.Path() + "/" + p.Name
					break
				}
			}
		}
	}
	if missing != "" && n.soleVoter() {
		return n.lostError(dir, fmt.Errorf("%s has no record, but there are partitions, such as %s, which nobody else can know", dir, missing))
	}
	return nil
}

// lostError adds the way out to a metadata log of which nothing is left.
func (n *Node) lostError(dir string, err error) error {
	hint := fmt.Sprintf("Restore it from a backup. Or, if other controllers have the metadata, take the line of %s out of %s: this node then fetches all from their leader. Nothing was changed.",
		metadataPartition.Topic, n.recoveryPoints())
	if n.soleVoter() {
		hint = fmt.Sprintf("Restore it from a backup: there is no other controller that has the metadata. To begin a new cluster instead, move %s, and the directories of the partitions, away. Nothing was changed.",
			n.recoveryPoints())
	}
	return &StartError{Text: err.Error(), Hint: hint, Err: err}
}

// recoveryPoints is the checkpoint that has a line for the metadata log.
func (n *Node) recoveryPoints() string {
	return n.static.MetadataLogDir + "/recovery-point-offset-checkpoint"
}

// shortened refuses a metadata log that ends below what was synced. Only a quorum of one is sure that this is a loss: others may have
// truncated what was not committed.
func (n *Node) shortened(l raftloop.Log, synced kafka.Offset) error {
	if !n.soleVoter() || l.EndOffset() >= synced {
		return nil
	}
	return n.metadataError(fmt.Errorf("the log in %s/%v ends at offset %d, but everything below %d was synced: a file is missing, or was cut off",
		n.static.MetadataLogDir, metadataPartition, l.EndOffset(), synced))
}

// metadataError adds the way out to why the metadata log can't be opened.
func (n *Node) metadataError(err error) error {
	var s *StartError
	switch {
	case err == nil || errors.As(err, &s):
		return err
	case unreadable(err):
		return accessError(err)
	}
	dir := n.static.MetadataLogDir + "/" + metadataPartition.String()
	others := fmt.Sprintf("Or, if other controllers have the metadata, move %s away, and take the line of %s out of %s: this node then fetches all from their leader.",
		dir, metadataPartition.Topic, n.recoveryPoints())
	hint := fmt.Sprintf("Restore %s from a backup. %s", dir, others)
	if n.soleVoter() {
		hint = fmt.Sprintf("Restore %s from a backup: there is no other controller that has the metadata. If there is none, take the line of %s out of %s: "+
			"the node then begins with what is left of the log, and sets partitions that this does not know aside as -stray.", dir, metadataPartition.Topic, n.recoveryPoints())
	}
	var c *storage.CorruptError
	if errors.As(err, &c) {
		switch path.Base(c.File) {
		case "partition.metadata":
			hint = fmt.Sprintf("Move %s away: it is written anew.", c.File)
		case raftloop.QuorumStateFile:
			hint = fmt.Sprintf("Restore %s from a backup: it says whom this node has voted for. %s", c.File, others)
			if n.soleVoter() {
				hint = fmt.Sprintf("Move %s away: it is written anew, as there is nobody else whom this node could have voted for.", c.File)
			}
		}
	}
	var snapshot *raftloop.SnapshotError
	if errors.As(err, &snapshot) {
		hint = fmt.Sprintf("Restore %s from a backup, or move it away: if the log goes back far enough, or an older snapshot is there, the node needs it no more.", snapshot.File)
	}
	var version *storage.VersionError
	if errors.As(err, &version) {
		hint = "A later version than this one wrote it: start that version."
	}
	return &StartError{Text: err.Error(), Hint: hint, Err: err}
}
