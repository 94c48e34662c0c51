package storage

import (
	"errors"
	"fmt"
	"io/fs"
)

// ErrFailed is wrapped by every error of a log whose disk refused a write, read or sync. The owner reports the log
// directory as failed and takes the partition offline; only opening the log again, which recovers it, helps.
var ErrFailed = errors.New("log failed")

// ErrClosed means that the log was closed or deleted.
var ErrClosed = errors.New("log is closed")

// CorruptError says that a file's content failed its check. What it names is not served.
type CorruptError struct {
	File     string
	Position int64 // in the file, -1 if the whole file is meant
	Reason   string
	Err      error // what Reason is the text of, or nil
}

func (e *CorruptError) Unwrap() error { return e.Err }

func (e *CorruptError) Error() string {
	if e.Position < 0 {
		return fmt.Sprintf("%s is corrupt: %s", e.File, e.Reason)
	}
	return fmt.Sprintf("%s is corrupt at byte %d: %s", e.File, e.Position, e.Reason)
}

// VersionError is why a file can't be understood that says that it has a version which this program doesn't know.
type VersionError struct {
	Version string // as it stands there
}

func (e *VersionError) Error() string { return fmt.Sprintf("unknown version %q", e.Version) }

// Corrupt says that err is why a whole file can't be understood.
func Corrupt(file string, err error) error {
	return &CorruptError{File: file, Position: -1, Reason: err.Error(), Err: err}
}

func corrupt(file string, pos int64, format string, args ...any) error {
	return &CorruptError{File: file, Position: pos, Reason: fmt.Sprintf(format, args...)}
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
