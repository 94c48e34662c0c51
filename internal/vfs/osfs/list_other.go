//go:build !linux

package osfs

import (
	"io/fs"
	"os"
)

func list(path string) ([]fs.DirEntry, error) { return os.ReadDir(path) }
