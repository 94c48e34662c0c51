//go:build !linux

package osfs

import "os"

func fdatasync(f *os.File) error { return f.Sync() }

func fallocate(f *os.File, from, length int64) error { return f.Truncate(from + length) }
