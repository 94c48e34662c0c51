package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// ErrNoSpace is wrapped by the error of a write that the disk has no room for.
var ErrNoSpace error = syscall.ENOSPC

// ErrTooLarge is wrapped by the error of a ReadFile that would exceed its bound.
var ErrTooLarge = errors.New("file is too large")

// ErrNoDescriptors is wrapped by the error of an Open, Create, ReadFile or List for which the process or the system had no descriptor
// left. It says nothing about the disk: when others are closed it will work.
var ErrNoDescriptors = errors.New("no file descriptors are left")

// DiskFailed tells whether err is the operating system's word that the disk, or the way to it, is broken: not that a file is gone, ends
// too early or holds what it shouldn't, and not that descriptors are short.
func DiskFailed(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && !isNotExist(err) && !errors.Is(err, ErrNoDescriptors) && errno != syscall.EINTR
}

// TooLarge is the error of a ReadFile of a file of size bytes that may have max.
func TooLarge(name string, size, max int64) error {
	return fmt.Errorf("read %s: %w: %d bytes, at most %d are expected", name, ErrTooLarge, size, max)
}
