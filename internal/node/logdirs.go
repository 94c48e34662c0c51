package node

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/highwater/highwater/internal/replica"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/storageloop"
	"github.com/highwater/highwater/internal/vfs"
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

// unreadable tells whether an error is the disk's: not that of a name that isn't there, a lock that somebody has, or of what a file
// says.
func unreadable(err error) bool {
	var p *fs.PathError
	return errors.As(err, &p) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, vfs.ErrLocked)
}

// noDirError says that no log directory is left.
func noDirError(lost map[string]error) error {
	var names []string
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(lost)) {
		names, errs = append(names, path), append(errs, lost[path])
	}
	return &StartError{
		Text: fmt.Sprintf("Shutdown broker because none of the specified log dirs from %s can be created or validated", strings.Join(names, ", ")),
		Hint: fmt.Sprintf("See to the disk and the permissions: %v.", errors.Join(errs...)),
		Err:  errors.Join(errs...),
	}
}

// nameDirs gives an id to each log directory of a Kafka that knew none (before 3.7), as later ones do. It comes before anybody asks
// for ids, and after everything that ends a start without a change on the disk.
func (n *Node) nameDirs() error {
	for _, d := range n.dirs {
		if !d.ID.IsZero() {
			continue
		}
		m, err := d.Meta()
		if err != nil {
			return fmt.Errorf("read meta.properties of %s: %w", d.Path(), err)
		}
		m.DirectoryID = randomUUID()
		if err := storage.WriteMeta(n.opts.FS, d.Path(), m); err != nil {
			return fmt.Errorf("write meta.properties of %s: %w", d.Path(), err)
		}
		d.ID, n.identity.dirs[d.Path()] = m.DirectoryID, m.DirectoryID
		n.log.Info("gave the log directory an id", "dir", d.Path(), "directoryId", m.DirectoryID.String())
	}
	return nil
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
