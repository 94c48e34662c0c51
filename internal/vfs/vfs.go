// Package vfs is the narrow file system that storage code is written against. The real one is vfs/osfs; Mem is one that
// can lose power (any subset of unsynced writes kept, torn last write, lost renames) and fail on demand. All calls are
// synchronous. Names are slash-separated paths as given to the constructor's root; errors wrap fs.ErrNotExist,
// fs.ErrExist, syscall.ENOSPC and so on, so that errors.Is works the same on both.
package vfs

import (
	"io/fs"
	"time"
)

// FS is what a node does to its directories.
type FS interface {
	// Open opens an existing file for reading, or for reading and writing.
	Open(name string, mode Mode) (File, error)
	// Create makes a file for reading and writing; it fails with fs.ErrExist if the name is taken.
	Create(name string) (File, error)
	// ReadFile returns a whole small file. It refuses, before it allocates, one of more than max bytes.
	ReadFile(name string, max int64) ([]byte, error)
	// List returns the names in a directory, sorted.
	List(dir string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	// SetModTime changes the time that Stat tells of a file's last change.
	SetModTime(name string, t time.Time) error
	// MkdirAll makes a directory and its parents. Like every change of names it is durable after SyncDir of the parent.
	MkdirAll(dir string) error
	// Rename replaces newName atomically, for files and directories.
	Rename(oldName, newName string) error
	Remove(name string) error
	// RemoveAll removes a tree; no error if there is none.
	RemoveAll(name string) error
	// SyncDir makes the names in dir durable: creations, renames, removals.
	SyncDir(dir string) error
	// OpenSyncer gives what syncs all that lies below dir at once. The error wraps errors.ErrUnsupported where that can't be done, or
	// where it wouldn't tell of a write that failed.
	OpenSyncer(dir string) (Syncer, error)
	// Lock takes an exclusive lock of the kind that the JVM takes (a POSIX record lock) on a file that it creates if need
	// be, and fails at once, with ErrLocked, if another process or another Lock of this FS holds it.
	Lock(name string) (Unlocker, error)
	// Space is the size of and the free room on the disk that holds dir, in bytes.
	Space(dir string) (total, free int64, err error)
}

// Mode says what an opened file is for.
type Mode int

// The modes of Open.
const (
	ReadOnly Mode = iota
	ReadWrite
)

// File is an open file. ReadAt follows io.ReaderAt. It is safe to read while one other goroutine writes.
type File interface {
	ReadAt(p []byte, off int64) (n int, err error)
	WriteAt(p []byte, off int64) (n int, err error)
	Truncate(size int64) error
	// Allocate makes room up to size without changing what is there; the file's size becomes at least size.
	Allocate(size int64) error
	Sync() error
	Size() (int64, error)
	Close() error
	Name() string
	// Fd is the descriptor for sendfile. ok is false where there is none, as in memory.
	Fd() (fd uintptr, ok bool)
}

// Syncer syncs a whole directory. It is to be opened before what it shall answer for is written: it tells of writes that failed since.
type Syncer interface {
	// SyncAll makes durable whatever lies below the directory: the contents of files, open or not, and all names. An error that wraps
	// errors.ErrUnsupported promises nothing; any other is as serious as that of a File's Sync.
	SyncAll() error
	Close() error
}

// Unlocker gives a lock back.
type Unlocker interface{ Unlock() error }

// ErrLocked means that somebody else holds the lock.
var ErrLocked = lockedError{}

type lockedError struct{}

func (lockedError) Error() string { return "locked by another process" }

// WriteFileAtomic replaces name by data so that after a crash there is the old file or the new one, whole: it writes
// name.tmp, syncs it, renames it and syncs the directory.
func WriteFileAtomic(fsys FS, dir, base string, data []byte) error {
	name := dir + "/" + base
	if err := writeTmp(fsys, name, data, true); err != nil {
		return err
	}
	if err := FinishAtomic(fsys, name); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

// BeginAtomic is the first half of WriteFileAtomic, for many files at once: name.tmp has the data, but isn't synced. After a SyncAll
// comes FinishAtomic, and then another SyncAll.
func BeginAtomic(fsys FS, name string, data []byte) error { return writeTmp(fsys, name, data, false) }

// FinishAtomic gives name.tmp, which must be synced, its name. That is durable after SyncDir or SyncAll.
func FinishAtomic(fsys FS, name string) error { return fsys.Rename(name+".tmp", name) }

func writeTmp(fsys FS, name string, data []byte, sync bool) error {
	tmp := name + ".tmp"
	if err := fsys.Remove(tmp); err != nil && !isNotExist(err) {
		return err
	}
	f, err := fsys.Create(tmp)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(data, 0); err == nil && sync {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
