package storage

import (
	"errors"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/highwater/highwater/internal/vfs"
)

// Files is a bounded cache of open files, shared by all logs of a node. A file is opened when it is first used and stays open
// until others need its place; one that is in use is never closed. So the number of descriptors is bounded by the limit and
// by what is in use at one moment, whatever the number of partitions.
type Files struct {
	fs    vfs.FS
	limit int

	mu   sync.Mutex
	open int
	// idle is a ring through the files that are open and not in use, the most recently used behind the head.
	idle file
}

// file is one file of a log as the cache sees it. Its owner keeps the struct for as long as it needs the file.
type file struct {
	files *Files

	opening sync.Mutex // held while the file is opened: nobody opens it twice, and others don't wait for the disk
	name    string     // guarded by opening; changes when the file is renamed

	// unsynced means that this process has written what it hasn't synced since. Only then may an error of a Close, as network file
	// systems give, mean that something is lost.
	unsynced atomic.Bool

	// Guarded by files.mu.
	f          vfs.File
	refs       int
	gone       error // set by forget: no more opening
	failed     error // of a Close when the cache needed the place and the file was unsynced; reported to all later users
	prev, next *file
}

// handle is an open file that notes what isn't synced.
type handle struct {
	vfs.File
	x *file
}

func (h *handle) WriteAt(p []byte, off int64) (int, error) {
	n, err := h.File.WriteAt(p, off)
	h.x.unsynced.Store(true) // after it: a Sync meanwhile may have come too early for it
	return n, err
}

func (h *handle) Truncate(size int64) error {
	err := h.File.Truncate(size)
	h.x.unsynced.Store(true)
	return err
}

func (h *handle) Allocate(size int64) error {
	err := h.File.Allocate(size)
	h.x.unsynced.Store(true)
	return err
}

func (h *handle) Sync() error {
	h.x.unsynced.Store(false)
	err := h.File.Sync()
	if err != nil {
		h.x.unsynced.Store(true)
	}
	return err
}

// Close returns an error only if something may be lost.
func (h *handle) Close() error {
	if err := h.File.Close(); err != nil && h.x.unsynced.Load() {
		return err
	}
	return nil
}

// scarce makes room after an open found no descriptor left: somebody else, such as many connections, has more than was planned for. It
// closes half of the files that nobody uses, and tells whether that may help.
func (c *Files) scarce(err error) bool {
	if !errors.Is(err, vfs.ErrNoDescriptors) {
		return false
	}
	c.mu.Lock()
	limit := c.limit
	c.limit = c.open / 2
	victims := c.evictLocked()
	c.limit = limit
	c.mu.Unlock()
	c.close(victims)
	return len(victims) > 0
}

// sparing is a file system that closes idle files of the cache when there is no descriptor left, and tries again. Else a node with more
// connections than were planned for would take its disks for broken.
type sparing struct {
	vfs.FS
	files *Files
}

func (s sparing) again(f func() error) {
	for err := f(); err != nil && s.files.scarce(err); err = f() {
	}
}

func (s sparing) Open(name string, mode vfs.Mode) (f vfs.File, err error) {
	s.again(func() error { f, err = s.FS.Open(name, mode); return err })
	return f, err
}

func (s sparing) Create(name string) (f vfs.File, err error) {
	s.again(func() error { f, err = s.FS.Create(name); return err })
	return f, err
}

func (s sparing) ReadFile(name string, max int64) (b []byte, err error) {
	s.again(func() error { b, err = s.FS.ReadFile(name, max); return err })
	return b, err
}

func (s sparing) List(dir string) (entries []fs.DirEntry, err error) {
	s.again(func() error { entries, err = s.FS.List(dir); return err })
	return entries, err
}

func (s sparing) SyncDir(dir string) (err error) {
	s.again(func() error { err = s.FS.SyncDir(dir); return err })
	return err
}

func (s sparing) OpenSyncer(dir string) (syncer vfs.Syncer, err error) {
	s.again(func() error { syncer, err = s.FS.OpenSyncer(dir); return err })
	return syncer, err
}

func (s sparing) RemoveAll(name string) (err error) {
	s.again(func() error { err = s.FS.RemoveAll(name); return err })
	return err
}

// NewFiles makes a cache of at most limit open files.
func NewFiles(fs vfs.FS, limit int) *Files {
	c := &Files{limit: max(limit, 1)}
	c.fs = sparing{fs, c}
	c.idle.prev, c.idle.next = &c.idle, &c.idle
	return c
}

// Open is the number of files that are open.
func (c *Files) Open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// file makes a reference to a file that is opened when it is used.
func (c *Files) file(name string) *file { return &file{files: c, name: name} }

// create makes a file, open and in use: the caller releases it.
func (c *Files) create(name string) (*file, vfs.File, error) {
	f, err := c.fs.Create(name)
	if err != nil {
		return nil, nil, err
	}
	x := c.file(name)
	f = &handle{f, x}
	c.mu.Lock()
	x.f, x.refs = f, 1
	c.open++
	victims := c.evictLocked()
	c.mu.Unlock()
	c.close(victims)
	return x, f, nil
}

// use opens the file if need be. The caller releases it.
func (x *file) use() (vfs.File, error) {
	if f, err := x.useOpen(); f != nil || err != nil {
		return f, err
	}
	x.opening.Lock()
	defer x.opening.Unlock()
	if f, err := x.useOpen(); f != nil || err != nil {
		return f, err
	}
	c := x.files
	f, err := c.fs.Open(x.name, vfs.ReadWrite)
	if err != nil {
		return nil, err
	}
	f = &handle{f, x}
	c.mu.Lock()
	x.f, x.refs = f, 1
	c.open++
	victims := c.evictLocked()
	c.mu.Unlock()
	c.close(victims)
	return f, nil
}

func (x *file) useOpen() (vfs.File, error) {
	c := x.files
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case x.gone != nil:
		return nil, x.gone
	case x.failed != nil:
		return nil, x.failed
	case x.f == nil:
		return nil, nil
	}
	if x.refs == 0 {
		x.unlinkLocked()
	}
	x.refs++
	return x.f, nil
}

// release ends a use.
func (x *file) release() {
	c := x.files
	c.mu.Lock()
	x.refs--
	var victims []victim
	if x.refs == 0 {
		if x.gone != nil {
			victims = append(victims, victim{x, x.f})
			x.f = nil
			c.open--
		} else {
			x.next, x.prev = c.idle.next, &c.idle
			x.next.prev, c.idle.next = x, x
			victims = c.evictLocked()
		}
	}
	c.mu.Unlock()
	c.close(victims)
}

func (x *file) unlinkLocked() {
	x.prev.next, x.next.prev = x.next, x.prev
	x.prev, x.next = nil, nil
}

// victim is a descriptor that was taken from its file, to be closed outside of the lock.
type victim struct {
	x *file
	f vfs.File
}

// evictLocked takes descriptors away from the least recently used files until the limit is kept.
func (c *Files) evictLocked() (victims []victim) {
	for c.open > c.limit && c.idle.prev != &c.idle {
		x := c.idle.prev
		x.unlinkLocked()
		victims = append(victims, victim{x, x.f})
		x.f = nil
		c.open--
	}
	return victims
}

func (c *Files) close(victims []victim) {
	for _, v := range victims {
		if err := v.f.Close(); err != nil {
			c.mu.Lock()
			v.x.failed = err
			c.mu.Unlock()
		}
	}
}

// forget closes the file as soon as nobody uses it; later uses fail with err. What is in use goes on. The error that it returns says that
// something unsynced may be lost: nothing to one who is about to remove the file.
func (x *file) forget(err error) error {
	c := x.files
	c.mu.Lock()
	if x.gone != nil {
		c.mu.Unlock()
		return nil
	}
	x.gone = err
	f := x.f
	if f == nil || x.refs > 0 {
		err := x.failed
		c.mu.Unlock()
		return err
	}
	x.unlinkLocked()
	x.f = nil
	c.open--
	c.mu.Unlock()
	return f.Close()
}

// rename moves the file; open descriptors stay good.
func (x *file) rename(name string) error {
	x.opening.Lock()
	defer x.opening.Unlock()
	if err := x.files.fs.Rename(x.name, name); err != nil {
		return err
	}
	x.name = name
	return nil
}

// moved takes note that the directory from, in which the file may lie, has got another name.
func (x *file) moved(from, to string) {
	x.opening.Lock()
	defer x.opening.Unlock()
	if rest, ok := strings.CutPrefix(x.name, from+"/"); ok {
		x.name = to + "/" + rest
	}
}

func (x *file) path() string {
	x.opening.Lock()
	defer x.opening.Unlock()
	return x.name
}

// size is the file's size, without opening it if it isn't open.
func (x *file) size() (int64, error) {
	st, err := x.files.fs.Stat(x.path())
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}
