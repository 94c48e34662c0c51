package node

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/highwater/highwater/internal/replica"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/storageloop"
)

// brokerDirs are the directories for partitions: all but a metadata directory that stands alone. Those that couldn't be opened
// are missing.
func (n *Node) brokerDirs() []*replica.Dir {
	var out []*replica.Dir
	for _, path := range n.static.LogDirs {
		for _, d := range n.dirs {
			if d.Path() == path {
				out = append(out, d)
			}
		}
	}
	return out
}

// lostDirs are the absolute paths of the directories for partitions that couldn't be opened.
func (n *Node) lostDirs() []string {
	var out []string
	for _, path := range n.static.LogDirs {
		if n.identity.lost[path] != nil {
			out = append(out, absolute(path))
		}
	}
	return out
}

// absolute is the path by which requests name a log directory.
func absolute(path string) string {
	if a, err := filepath.Abs(path); err == nil {
		return a
	}
	return path
}

// isCordoned tells whether the log directory of that absolute path takes no new replicas.
func (n *Node) isCordoned(path string) bool {
	return slices.ContainsFunc(n.Config().CordonedLogDirs, func(d string) bool { return absolute(d) == path })
}

// dirFailed takes a log directory's replicas offline and tells the controller. Without the metadata log, or without any
// directory, the node cannot go on.
func (n *Node) dirFailed(failed *storage.Dir, err error) {
	n.log.Error("log directory is offline", "dir", failed.Path(), "error", err)
	dirs := n.brokerDirs()
	online := slices.ContainsFunc(dirs, func(d *replica.Dir) bool { return d.Dir.Err() == nil })
	switch {
	case failed.Path() == n.static.MetadataLogDir:
		n.fail(fmt.Errorf("shutting down because the metadata log's directory %s failed: %w", failed.Path(), err))
		return
	case !online:
		n.fail(fmt.Errorf("shutting down because all log directories failed, %s last: %w", failed.Path(), err))
		return
	}
	for _, d := range dirs {
		switch {
		case d.Dir != failed:
		case d.ID.IsZero():
			n.fail(fmt.Errorf("shutting down because log directory %s failed, and has no id by which the controller could be told: %w", failed.Path(), err))
			return
		default:
			n.uplink.DirsFailed(d.ID)
		}
	}
	n.replicas.DirFailed(failed, err)
}

// newMover makes what copies replicas between log directories.
func (n *Node) newMover() *storageloop.Mover {
	threads := len(n.static.LogDirs)
	if v := n.static.Value("num.replica.alter.log.dirs.threads"); !v.Null {
		threads = int(v.Int)
	}
	return storageloop.NewMover(storageloop.MoverOptions{
		Threads: threads,
		Rate:    func() int64 { return n.Config().BrokerQuota("replica.alter.log.dirs.io.max.bytes.per.second") },
	})
}
