package osfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/highwater/highwater/internal/vfs"
)

// syncingDisks are the file systems for which syncfs(2) is known to wait for the disk and to tell of writes that failed. One that lies on
// another, such as overlayfs, doesn't hear of the other's errors.
var syncingDisks = map[int64]bool{unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.TMPFS_MAGIC: true}

// syncer keeps a directory open: syncfs tells of the writes that failed since its descriptor was opened.
type syncer struct {
	dir  *os.File
	path string // absolute, without symbolic links
}

// OpenSyncer gives what syncs the disk of a directory by syncfs(2).
func (f *FS) OpenSyncer(dir string) (vfs.Syncer, error) {
	if !reportsErrors() {
		return nil, fmt.Errorf("syncfs before Linux 5.8 doesn't tell of writes that failed: %w", errors.ErrUnsupported)
	}
	path, err := filepath.Abs(f.path(dir))
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return nil, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return nil, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	if kind := int64(st.Type); !syncingDisks[kind] { //nolint:unconvert // the type differs between systems
		return nil, fmt.Errorf("syncfs of a file system of type %#x: %w", kind, errors.ErrUnsupported)
	}
	d, err := os.Open(path)
	if err != nil {
		return nil, opening(err)
	}
	return &syncer{d, path}, nil
}

// SyncAll syncs the file system. If another one is mounted somewhere below the directory that wouldn't be enough.
func (s *syncer) SyncAll() error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	if m := mountBelow(string(mounts), s.path); m != "" {
		return fmt.Errorf("%s is another file system: %w", m, errors.ErrUnsupported)
	}
	_, err = retry(func() (int, error) { return 0, unix.Syncfs(int(s.dir.Fd())) })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM): // a filter of system calls forbids it
		return fmt.Errorf("syncfs: %w: %w", errors.ErrUnsupported, err)
	}
	return &fs.PathError{Op: "syncfs", Path: s.path, Err: err}
}

func (s *syncer) Close() error { return s.dir.Close() }

// mountBelow is the first mount point below a directory by the content of mountinfo (proc_pid_mountinfo(5)), or "".
func mountBelow(mountinfo, dir string) string {
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if m := unescape(fields[4]); strings.HasPrefix(m, strings.TrimSuffix(dir, "/")+"/") && m != dir {
			return m
		}
	}
	return ""
}

// unescape undoes how mountinfo writes blanks and backslashes: \040 and so on.
func unescape(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// reportsErrors tells whether syncfs of this kernel returns the errors of writes: since 5.8.
func reportsErrors() bool {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return false
	}
	return atLeast58(unix.ByteSliceToString(u.Release[:]))
}

func atLeast58(release string) bool {
	var major, minor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n < 2 {
		return false
	}
	return major > 5 || major == 5 && minor >= 8
}
