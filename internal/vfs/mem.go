package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Mem is a file system in memory that can lose power. Beside what programs see it keeps, for each file, the image that is
// safe on the disk and the writes since the last Sync in order; for each directory the names that are safe and the changes
// since the last SyncDir. Crash (crash.go) turns that into one of the states that a disk may be in after a power cut.
//
// Every call is counted as an operation and shown to the Fault, which may make it fail, before it happens. So a test can
// cut the power after every single operation of a run.
type Mem struct {
	mu       sync.Mutex
	root     *node
	ops      int64
	fault    func(Op) error
	capacity int64 // of all files' contents, 0 for no bound
	used     int64
	locks    map[string]bool
	crashed  bool
}

// OpKind is a kind of operation.
type OpKind uint8

// The kinds of operations. Those from OpCreate on change something.
const (
	OpOpen OpKind = iota
	OpRead
	OpList
	OpStat
	OpClose
	OpLock
	OpCreate
	OpWrite
	OpTruncate
	OpAllocate
	OpSync
	OpMkdir
	OpRename
	OpRemove
	OpSyncDir
	OpSetModTime
	OpSyncAll
)

var opNames = [...]string{"open", "read", "list", "stat", "close", "lock", "create", "write", "truncate", "allocate", "sync", "mkdir", "rename", "remove", "syncdir", "setmodtime", "syncall"}

func (k OpKind) String() string { return opNames[k] }

// Changes tells whether operations of this kind change the disk's content.
func (k OpKind) Changes() bool { return k >= OpCreate }

// Op is one operation, as a Fault sees it.
type Op struct {
	Kind OpKind
	Name string // of the file or directory; a rename's old name
	N    int64  // counts all operations from 1 on
}

// ErrPowerCut is what every operation returns once CutAfter has cut the power.
var ErrPowerCut = errors.New("power is cut")

type node struct {
	dir bool
	mod time.Time

	// of a file
	data    []byte   // as programs see it
	durable []byte   // as a power cut leaves it
	pending []change // made to data and not to durable
	handles int

	// of a directory
	names   map[string]*node
	safe    map[string]*node
	renames []*nameChange // made to names and not to safe
}

// change is one unsynced change of a file's content.
type change struct {
	off  int64
	data []byte // nil: the size becomes off (truncate, allocate)
}

// nameChange is one unsynced change of names. A rename between directories is in the lists of both.
type nameChange struct {
	from, to         *node // directories; from is nil for a creation, to for a removal
	fromName, toName string
	what             *node
	done             bool // applied to safe already
}

// NewMem is an empty file system.
func NewMem() *Mem {
	return &Mem{root: newDir(), locks: map[string]bool{}}
}

func newDir() *node {
	return &node{dir: true, names: map[string]*node{}, safe: map[string]*node{}}
}

// SetFault installs f, which sees every operation before it happens and may make it fail. A Sync that it fails loses what
// was unsynced without a trace: the next Sync succeeds, as on Linux. nil removes it.
func (m *Mem) SetFault(f func(Op) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = f
}

// SetCapacity bounds the sum of all files' sizes: a write beyond it is cut short and fails with ENOSPC. 0 is no bound.
func (m *Mem) SetCapacity(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = bytes
}

// Ops is the number of operations so far.
func (m *Mem) Ops() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ops
}

// CutAfter installs a Fault that lets n more changing operations pass and then fails everything with ErrPowerCut.
func (m *Mem) CutAfter(n int) {
	left, cut := n, false
	m.SetFault(func(op Op) error {
		if cut || op.Kind.Changes() && left == 0 {
			cut = true
			return fmt.Errorf("%s %s: %w", op.Kind, op.Name, ErrPowerCut)
		}
		if op.Kind.Changes() {
			left--
		}
		return nil
	})
}

// FailNth is a Fault that makes the nth operation (from 1 on) that match accepts fail once with err.
func FailNth(n int, err error, match func(Op) bool) func(Op) error {
	seen := 0
	return func(op Op) error {
		if match(op) {
			if seen++; seen == n {
				return fmt.Errorf("%s %s: %w", op.Kind, op.Name, err)
			}
		}
		return nil
	}
}

// FlipBit inverts one bit of a file, on the disk too, as bad media do.
func (m *Mem) FlipBit(name string, bit int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(name)
	if err != nil || n.dir || bit/8 >= int64(len(n.data)) {
		return fmt.Errorf("flip bit %d of %s: %w", bit, name, fs.ErrInvalid)
	}
	n.data[bit/8] ^= 1 << (bit % 8)
	if bit/8 < int64(len(n.durable)) {
		n.durable[bit/8] ^= 1 << (bit % 8)
	}
	return nil
}

// op counts an operation and asks the Fault. It is called with mu held.
func (m *Mem) op(kind OpKind, name string) error {
	if m.crashed {
		return fmt.Errorf("%s %s: %w", kind, name, ErrPowerCut)
	}
	m.ops++
	if m.fault != nil {
		return m.fault(Op{kind, name, m.ops})
	}
	return nil
}

func split(name string) []string {
	name = path.Clean("/" + name)
	if name == "/" {
		return nil
	}
	return strings.Split(name[1:], "/")
}

func pathError(op OpKind, name string, err error) error {
	return &fs.PathError{Op: op.String(), Path: name, Err: err}
}

// find walks to a node.
func (m *Mem) find(name string) (*node, error) {
	n := m.root
	for _, part := range split(name) {
		if !n.dir {
			return nil, syscall.ENOTDIR
		}
		if n = n.names[part]; n == nil {
			return nil, fs.ErrNotExist
		}
	}
	return n, nil
}

// parent walks to the directory that holds name.
func (m *Mem) parent(name string) (dir *node, base string, err error) {
	parts := split(name)
	if len(parts) == 0 {
		return nil, "", fs.ErrInvalid
	}
	dir, err = m.find(strings.Join(parts[:len(parts)-1], "/"))
	if err == nil && !dir.dir {
		err = syscall.ENOTDIR
	}
	return dir, parts[len(parts)-1], err
}

func (d *node) note(c *nameChange) {
	d.renames = append(d.renames, c)
}

// link puts n into a directory.
func (d *node) link(name string, n *node) {
	d.names[name] = n
	d.note(&nameChange{to: d, toName: name, what: n})
}

// Open opens an existing file.
func (m *Mem) Open(name string, mode Mode) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.op(OpOpen, name); err != nil {
		return nil, err
	}
	n, err := m.find(name)
	if err == nil && n.dir {
		err = syscall.EISDIR
	}
	if err != nil {
		return nil, pathError(OpOpen, name, err)
	}
	n.handles++
	return &memFile{m: m, n: n, name: name, mode: mode}, nil
}

// Create makes a file.
func (m *Mem) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.op(OpCreate, name); err != nil {
		return nil, err
	}
	dir, base, err := m.parent(name)
	if err == nil && dir.names[base] != nil {
		err = fs.ErrExist
	}
	if err != nil {
		return nil, pathError(OpCreate, name, err)
	}
	n := &node{handles: 1}
	dir.link(base, n)
	return &memFile{m: m, n: n, name: name, mode: ReadWrite}, nil
}

// ReadFile returns a whole file of at most max bytes.
func (m *Mem) ReadFile(name string, max int64) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.op(OpRead, name); err != nil {
		return nil, err
	}
	n, err := m.find(name)
	switch {
	case err == nil && n.dir:
		err = syscall.EISDIR
	case err == nil && int64(len(n.data)) > max:
		return nil, TooLarge(name, int64(len(n.data)), max)
	}
	if err != nil {
		return nil, pathError(OpRead, name, err)
	}
	return append([]byte{}, n.data...), nil
}

// List returns the entries of a directory, sorted.
func (m *Mem) List(dir string) ([]fs.DirEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.op(OpList, dir); err != nil {
		return nil, err
	}
	n, err := m.find(dir)
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathError(OpList, dir, err)
	}
	var out []fs.DirEntry
	for name, c := range n.names {
		out = append(out, memInfo{name: name, size: int64(len(c.data)), dir: c.dir, mod: c.mod})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name() < out[j].Name() })
	return out, nil
}

// Stat describes a file or directory.
func (m *Mem) Stat(name string) (fs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.op(OpStat, name); err != nil {
		return nil, err
	}
	n, err := m.find(name)
	if err != nil {
		return nil, pathError(OpStat, name, err)
	}
	return memInfo{name: path.Base(name), size: int64(len(n.data)), dir: n.dir, mod: n.mod}, nil
}

// SetModTime changes the time of the last change. It is durable at once, or with the file's name.
func (m *Mem) SetModTime(name string, t time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.op(OpSetModTime, name); err != nil {
		return err
	}
	n, err := m.find(name)
	if err != nil {
		return pathError(OpSetModTime, name, err)
	}
	n.mod = t
	return nil
}

// MkdirAll makes a directory and its parents.
func (m *Mem) MkdirAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.op(OpMkdir, name); err != nil {
		return err
	}
	n := m.root
	for _, part := range split(name) {
		c := n.names[part]
		if c == nil {
			c = newDir()
			n.link(part, c)
		} else if !c.dir {
			return pathError(OpMkdir, name, syscall.ENOTDIR)
		}
		n = c
	}
	return nil
}

// Rename moves a file or directory, in place of what had the new name.
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.op(OpRename, oldName); err != nil {
		return err
	}
	from, fromBase, err := m.parent(oldName)
	if err != nil {
		return pathError(OpRename, oldName, err)
	}
	to, toBase, err := m.parent(newName)
	if err != nil {
		return pathError(OpRename, newName, err)
	}
	n := from.names[fromBase]
	if n == nil {
		return pathError(OpRename, oldName, fs.ErrNotExist)
	}
	if old := to.names[toBase]; old != nil && old != n {
		switch {
		case old.dir != n.dir && old.dir:
			return pathError(OpRename, newName, syscall.EISDIR)
		case old.dir != n.dir:
			return pathError(OpRename, newName, syscall.ENOTDIR)
		case old.dir && len(old.names) > 0:
			return pathError(OpRename, newName, syscall.ENOTEMPTY)
		}
		m.used -= int64(len(old.data))
	}
	delete(from.names, fromBase)
	to.names[toBase] = n
	c := &nameChange{from: from, fromName: fromBase, to: to, toName: toBase, what: n}
	from.note(c)
	if to != from {
		to.note(c)
	}
	return nil
}

// Remove removes a file or an empty directory.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.op(OpRemove, name); err != nil {
		return err
	}
	dir, base, err := m.parent(name)
	if err != nil {
		return pathError(OpRemove, name, err)
	}
	n := dir.names[base]
	switch {
	case n == nil:
		return pathError(OpRemove, name, fs.ErrNotExist)
	case n.dir && len(n.names) > 0:
		return pathError(OpRemove, name, syscall.ENOTEMPTY)
	}
	m.unlink(dir, base, n)
	return nil
}

func (m *Mem) unlink(dir *node, base string, n *node) {
	delete(dir.names, base)
	m.used -= int64(len(n.data))
	dir.note(&nameChange{from: dir, fromName: base, what: n})
}

// RemoveAll removes a tree, from the leaves up, each removal an operation of its own.
func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	dir, base, err := m.parent(name)
	var n *node
	if err == nil {
		n = dir.names[base]
	}
	var names []string
	if n != nil && n.dir {
		for c := range n.names {
			names = append(names, c)
		}
	}
	m.mu.Unlock()
	if err != nil || n == nil {
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return pathError(OpRemove, name, err)
	}
	sort.Strings(names)
	for _, c := range names {
		if err := m.RemoveAll(name + "/" + c); err != nil {
			return err
		}
	}
	return m.Remove(name)
}

// SyncDir makes the names in dir durable.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.op(OpSyncDir, dir); err != nil {
		return err
	}
	n, err := m.find(dir)
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return pathError(OpSyncDir, dir, err)
	}
	n.settleNames()
	return nil
}

// apply makes a change of names durable, once.
func (c *nameChange) apply() {
	if c.done {
		return
	}
	c.done = true
	if c.from != nil && c.from.safe[c.fromName] == c.what {
		delete(c.from.safe, c.fromName)
	}
	if c.to != nil {
		c.to.safe[c.toName] = c.what
	}
}

// OpenSyncer gives what syncs a whole directory.
func (m *Mem) OpenSyncer(dir string) (Syncer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.op(OpOpen, dir); err != nil {
		return nil, err
	}
	n, err := m.find(dir)
	if err == nil && !n.dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathError(OpOpen, dir, err)
	}
	return &memSyncer{m, n, dir}, nil
}

type memSyncer struct {
	m    *Mem
	dir  *node
	name string
}

// SyncAll makes what is below the directory durable and nothing else, though Linux syncs the whole disk. A Fault that makes it fail
// loses what was unsynced in files without a trace, as with Sync.
func (s *memSyncer) SyncAll() error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.dir == nil {
		return pathError(OpSyncAll, s.name, fs.ErrClosed)
	}
	err := s.m.op(OpSyncAll, s.name)
	if err != nil && (errors.Is(err, ErrPowerCut) || errors.Is(err, errors.ErrUnsupported)) {
		return err
	}
	s.dir.syncAll(err == nil)
	return err
}

func (s *memSyncer) Close() error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.dir == nil {
		return pathError(OpClose, s.name, fs.ErrClosed)
	}
	s.dir = nil
	return s.m.op(OpClose, s.name)
}

// syncAll makes everything below a directory durable or, if the disk failed, forgets what was unsynced in its files.
func (n *node) syncAll(good bool) {
	if !n.dir {
		if good {
			n.settle()
		}
		n.pending = nil
		return
	}
	if good {
		n.settleNames()
		n.safe = maps.Clone(n.names) // whatever the order in which the directories of a rename come
	}
	for _, c := range n.names {
		c.syncAll(good)
	}
}

// settle makes what was written to a file durable.
func (n *node) settle() {
	for _, c := range n.pending {
		n.durable = c.apply(n.durable)
	}
	n.pending = nil
}

// settleNames makes the names in a directory durable.
func (n *node) settleNames() {
	for _, c := range n.renames {
		c.apply()
	}
	n.renames = nil
}

// Lock takes an exclusive lock.
func (m *Mem) Lock(name string) (Unlocker, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.op(OpLock, name); err != nil {
		return nil, err
	}
	dir, base, err := m.parent(name)
	if err != nil {
		return nil, pathError(OpLock, name, err)
	}
	key := path.Clean("/" + name)
	if m.locks[key] {
		return nil, fmt.Errorf("lock %s: %w", name, ErrLocked)
	}
	if dir.names[base] == nil {
		dir.link(base, &node{})
	}
	m.locks[key] = true
	return &memLock{m, key}, nil
}

type memLock struct {
	m   *Mem
	key string
}

func (l *memLock) Unlock() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.key == "" {
		return fs.ErrClosed
	}
	delete(l.m.locks, l.key)
	l.key = ""
	return nil
}

// Space is the capacity and what is left of it.
func (m *Mem) Space(dir string) (total, free int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.op(OpStat, dir); err != nil {
		return 0, 0, err
	}
	if _, err := m.find(dir); err != nil {
		return 0, 0, pathError(OpStat, dir, err)
	}
	total = m.capacity
	if total == 0 {
		total = 1 << 40
	}
	return total, max(total-m.used, 0), nil
}

type memInfo struct {
	name string
	size int64
	dir  bool
	mod  time.Time
}

func (i memInfo) Name() string { return i.name }
func (i memInfo) Size() int64  { return i.size }
func (i memInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}
func (i memInfo) ModTime() time.Time         { return i.mod }
func (i memInfo) IsDir() bool                { return i.dir }
func (i memInfo) Sys() any                   { return nil }
func (i memInfo) Type() fs.FileMode          { return i.Mode().Type() }
func (i memInfo) Info() (fs.FileInfo, error) { return i, nil }

type memFile struct {
	m      *Mem
	n      *node
	name   string
	mode   Mode
	closed bool
}

// begin counts an operation on an open file.
func (f *memFile) begin(kind OpKind) error {
	if f.closed {
		return pathError(kind, f.name, fs.ErrClosed)
	}
	if err := f.m.op(kind, f.name); err != nil {
		return err
	}
	if kind.Changes() && kind != OpSync && f.mode == ReadOnly {
		return pathError(kind, f.name, syscall.EBADF)
	}
	return nil
}

func (f *memFile) Name() string { return f.name }

func (f *memFile) Fd() (uintptr, bool) { return 0, false }

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.begin(OpRead); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError(OpRead, f.name, syscall.EINVAL)
	}
	if off >= int64(len(f.n.data)) {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.begin(OpWrite); err != nil {
		if errors.Is(err, ErrPowerCut) && len(p) > 0 && !f.closed && !f.m.crashed {
			// The power went while this write was on its way: any part of it may be there.
			f.n.pending = append(f.n.pending, change{off, append([]byte{}, p...)})
		}
		return 0, err
	}
	if off < 0 {
		return 0, pathError(OpWrite, f.name, syscall.EINVAL)
	}
	if len(p) == 0 {
		return 0, nil
	}
	var short error
	if grow := off + int64(len(p)) - int64(len(f.n.data)); grow > 0 && f.m.capacity > 0 && f.m.used+grow > f.m.capacity {
		short = pathError(OpWrite, f.name, syscall.ENOSPC)
		p = p[:max(0, int64(len(p))-(f.m.used+grow-f.m.capacity))]
		if len(p) == 0 {
			return 0, short
		}
	}
	f.setSize(max(int64(len(f.n.data)), off+int64(len(p))))
	copy(f.n.data[off:], p)
	f.n.pending = append(f.n.pending, change{off, append([]byte{}, p...)})
	return len(p), short
}

// setSize changes what programs see; new bytes are zero.
func (f *memFile) setSize(size int64) {
	f.m.used += size - int64(len(f.n.data))
	f.n.data = resize(f.n.data, size)
}

func resize(b []byte, size int64) []byte {
	if size <= int64(len(b)) {
		clear(b[size:])
		return b[:size]
	}
	if size <= int64(cap(b)) {
		return b[:size] // what lies behind len was cleared when it was cut off, or never used
	}
	grown := make([]byte, size, max(size, 2*int64(cap(b))))
	copy(grown, b)
	return grown
}

func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.begin(OpTruncate); err != nil {
		return err
	}
	if size < 0 {
		return pathError(OpTruncate, f.name, syscall.EINVAL)
	}
	f.setSize(size)
	f.n.pending = append(f.n.pending, change{off: size})
	return nil
}

func (f *memFile) Allocate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.begin(OpAllocate); err != nil {
		return err
	}
	grow := size - int64(len(f.n.data))
	if grow <= 0 {
		return nil
	}
	if f.m.capacity > 0 && f.m.used+grow > f.m.capacity {
		return pathError(OpAllocate, f.name, syscall.ENOSPC)
	}
	f.setSize(size)
	f.n.pending = append(f.n.pending, change{off: size})
	return nil
}

func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.begin(OpSync); err != nil {
		if !errors.Is(err, ErrPowerCut) && !f.closed {
			f.n.pending = nil // the pages count as clean now: they will never be written
		}
		return err
	}
	f.n.settle()
	return nil
}

// apply makes the whole change to an image.
func (c *change) apply(image []byte) []byte {
	if c.data == nil {
		return resize(image, c.off)
	}
	end := c.off + int64(len(c.data))
	image = resize(image, max(int64(len(image)), end))
	copy(image[c.off:end], c.data)
	return image
}

func (f *memFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.begin(OpStat); err != nil {
		return 0, err
	}
	return int64(len(f.n.data)), nil
}

func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return pathError(OpClose, f.name, fs.ErrClosed)
	}
	err := f.m.op(OpClose, f.name)
	f.closed = true
	f.n.handles--
	return err
}
