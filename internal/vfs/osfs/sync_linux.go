package osfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func fdatasync(f *os.File) error {
	_, err := retry(func() (int, error) { return 0, unix.Fdatasync(int(f.Fd())) })
	return err
}

func fallocate(f *os.File, from, length int64) error {
	_, err := retry(func() (int, error) { return 0, unix.Fallocate(int(f.Fd()), 0, from, length) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return f.Truncate(from + length) // no room is promised, but the size is right
	}
	return err
}
