package osfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/highwater/highwater/internal/vfs"
)

// FS is the real file system.
type FS struct{ root string }

// New is the file system whose names are relative to root; the empty root leaves them as they are, absolute or relative to
// the working directory.
func New(root string) *FS { return &FS{root} }

var _ vfs.FS = (*FS)(nil)

func (f *FS) path(name string) string {
	if f.root == "" {
		return filepath.FromSlash(name)
	}
	return filepath.Join(f.root, filepath.FromSlash(name))
}

// Open opens an existing file.
func (f *FS) Open(name string, mode vfs.Mode) (vfs.File, error) {
	flag := os.O_RDONLY
	if mode == vfs.ReadWrite {
		flag = os.O_RDWR
	}
	return open(f.path(name), flag)
}

// Create makes a file.
func (f *FS) Create(name string) (vfs.File, error) {
	return open(f.path(name), os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func open(path string, flag int) (vfs.File, error) {
	o, err := os.OpenFile(path, flag, 0o644)
	if err != nil {
		return nil, opening(err)
	}
	return &file{o}, nil
}

// opening marks the error of an open(2) that found no descriptor.
func opening(err error) error {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		return fmt.Errorf("%w: %w", err, vfs.ErrNoDescriptors)
	}
	return err
}

// Descriptors raises the number of files that this process may have open to what the system allows it, and returns it.
func Descriptors() (int, error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, err
	}
	if l.Cur < l.Max {
		raised := unix.Rlimit{Cur: l.Max, Max: l.Max}
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &raised) == nil {
			l = raised
		}
	}
	return int(min(l.Cur, 1<<30)), nil //nolint:unconvert,gosec // bounded; the type differs between systems
}

// small are buffers for files of a few lines, as most that a start reads are.
var small = sync.Pool{New: func() any { return new([4096]byte) }}

// ReadFile returns a whole file of at most max bytes. It is made for the thousands of small files that a start reads: three
// system calls and one allocation.
func (f *FS) ReadFile(name string, max int64) ([]byte, error) {
	path := f.path(name)
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, opening(&fs.PathError{Op: "open", Path: path, Err: err})
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	page := small.Get().(*[4096]byte)
	defer small.Put(page)
	n, err := retry(func() (int, error) { return unix.Read(fd, page[:]) })
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	if n < len(page) { // only its end cuts a read of a file short
		if int64(n) > max {
			return nil, vfs.TooLarge(path, int64(n), max)
		}
		return append(make([]byte, 0, n), page[:n]...), nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Size > max {
		return nil, vfs.TooLarge(path, st.Size, max)
	}
	buf := make([]byte, st.Size+1) // one more shows that the file has not grown meanwhile
	for n = 0; n < len(buf); {
		m, err := retry(func() (int, error) { return unix.Pread(fd, buf[n:], int64(n)) })
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if m == 0 {
			break
		}
		n += m
		if n == len(buf) {
			if int64(n) > max {
				return nil, vfs.TooLarge(path, int64(n), max)
			}
			buf = append(buf, make([]byte, min(len(buf), int(max)+1-n))...)
		}
	}
	return buf[:n], nil
}

func retry(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if err != unix.EINTR {
			return n, err
		}
	}
}

// List returns the entries of a directory, sorted.
func (f *FS) List(dir string) ([]fs.DirEntry, error) { return list(f.path(dir)) }

// Stat describes a file or directory.
func (f *FS) Stat(name string) (fs.FileInfo, error) { return os.Stat(f.path(name)) }

// SetModTime changes the time of a file's last change.
func (f *FS) SetModTime(name string, t time.Time) error {
	return os.Chtimes(f.path(name), time.Time{}, t)
}

// MkdirAll makes a directory and its parents.
func (f *FS) MkdirAll(dir string) error { return os.MkdirAll(f.path(dir), 0o755) }

// Rename moves a file or directory, in place of what had the new name.
func (f *FS) Rename(oldName, newName string) error {
	from, to := f.path(oldName), f.path(newName)
	if err := unix.Rename(from, to); err != nil { // os.Rename refuses to replace an empty directory
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// Remove removes a file or an empty directory.
func (f *FS) Remove(name string) error { return os.Remove(f.path(name)) }

// RemoveAll removes a tree.
func (f *FS) RemoveAll(name string) error { return opening(os.RemoveAll(f.path(name))) }

// SyncDir makes the names in dir durable.
func (f *FS) SyncDir(dir string) error {
	d, err := os.Open(f.path(dir))
	if err != nil {
		return opening(err)
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}

// locks are the files that this process has locked. A POSIX record lock doesn't exclude its own process, and closing any
// descriptor of the file gives it back: nothing but Lock may open a lock file.
var locks = struct {
	sync.Mutex
	held map[fileID]bool
}{held: map[fileID]bool{}}

type fileID struct{ dev, ino uint64 }

// Lock takes an exclusive POSIX record lock on the whole file, as the JVM does.
func (f *FS) Lock(name string) (vfs.Unlocker, error) {
	path := f.path(name)
	locks.Lock()
	defer locks.Unlock()
	// Who the file is must be known before it is opened: closing it again would give our own lock on it back.
	if id, err := identify(path); err == nil && locks.held[id] {
		return nil, fmt.Errorf("lock %s: %w", path, vfs.ErrLocked)
	}
	o, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	err = unix.FcntlFlock(o.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart})
	if err != nil {
		err = errors.Join(err, o.Close())
		if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
			err = vfs.ErrLocked
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	id, err := identify(path)
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	locks.held[id] = true
	return &lock{o, id}, nil
}

func identify(path string) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fileID{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return fileID{uint64(st.Dev), st.Ino}, nil //nolint:unconvert // the types differ between systems
}

type lock struct {
	f  *os.File
	id fileID
}

func (l *lock) Unlock() error {
	locks.Lock()
	defer locks.Unlock()
	delete(locks.held, l.id)
	return l.f.Close() // gives the record lock back
}

// Space is the size of the disk that holds dir and the room on it for us.
func (f *FS) Space(dir string) (total, free int64, err error) {
	var st unix.Statfs_t
	path := f.path(dir)
	if err := unix.Statfs(path, &st); err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	block := int64(st.Bsize)
	return int64(st.Blocks) * block, int64(st.Bavail) * block, nil
}

type file struct{ f *os.File }

func (f *file) Name() string                            { return f.f.Name() }
func (f *file) Fd() (uintptr, bool)                     { return f.f.Fd(), true }
func (f *file) ReadAt(p []byte, off int64) (int, error) { return f.f.ReadAt(p, off) }
func (f *file) WriteAt(p []byte, off int64) (int, error) {
	return f.f.WriteAt(p, off)
}
func (f *file) Truncate(size int64) error { return f.f.Truncate(size) }
func (f *file) Close() error              { return f.f.Close() }

func (f *file) Sync() error {
	if err := fdatasync(f.f); err != nil {
		return &fs.PathError{Op: "fdatasync", Path: f.f.Name(), Err: err}
	}
	return nil
}

func (f *file) Allocate(size int64) error {
	have, err := f.Size()
	if err != nil || size <= have {
		return err
	}
	if err := fallocate(f.f, have, size-have); err != nil {
		return &fs.PathError{Op: "fallocate", Path: f.f.Name(), Err: err}
	}
	return nil
}

func (f *file) Size() (int64, error) {
	st, err := f.f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}
