//go:build !linux

package osfs

import (
	"errors"
	"fmt"

	"github.com/highwater/highwater/internal/vfs"
)

// OpenSyncer: no other system has a call that waits for the disk and tells of errors.
func (f *FS) OpenSyncer(string) (vfs.Syncer, error) {
	return nil, fmt.Errorf("sync of a whole disk: %w", errors.ErrUnsupported)
}
