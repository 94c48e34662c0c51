package storage

// Shows that whatever call of the disk fails, at whatever moment, a log tells of it by name, never half does anything, and is whole
// when it is opened again.

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/highwater/highwater/internal/vfs"
)

// TestEveryCallFails runs the model's random workload, with its start and its stop, and fails each call of the disk in turn: once, and
// then, as a broken disk does it, every call from there on. The error names a file. After it there is no mark of a clean stop over
// anything that isn't as the log said; opened again the log has all that was acknowledged.
func TestEveryCallFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		always bool
		// match leaves out calls for which the error makes no sense.
		match func(op vfs.Op) bool
	}{
		{syscall.EIO, false, func(vfs.Op) bool { return true }},
		{syscall.EIO, true, func(vfs.Op) bool { return true }},
		{syscall.ENOSPC, true, func(op vfs.Op) bool {
			return op.Kind == vfs.OpWrite || op.Kind == vfs.OpCreate || op.Kind == vfs.OpMkdir || op.Kind == vfs.OpSync
		}},
		{syscall.EROFS, true, func(op vfs.Op) bool {
			return op.Kind != vfs.OpRead && op.Kind != vfs.OpList && op.Kind != vfs.OpStat && op.Kind != vfs.OpOpen
		}},
	} {
		for n := 1; ; n += few(1, 7) {
			seed := uint64(n % 5)
			config := smallSegments()
			config.FlushMessages = 3
			config.RetentionBytes = []int64{-1, 3000}[n%2]
			config.Preallocate = n%3 == 0
			w := newWorld(t, seed, config)
			seen, hit := 0, ""
			w.fsys.SetFault(func(op vfs.Op) error {
				if !c.match(op) {
					return nil
				}
				if seen++; seen == n || c.always && seen > n {
					if hit == "" {
						hit = op.Kind.String() + " " + op.Name
					}
					return &namedError{op.Kind.String() + " " + op.Name, c.err}
				}
				return nil
			})
			err := w.open()
			for i := 0; err == nil && i < 25; i++ {
				err = w.step()
			}
			if err == nil {
				err = w.dir.Close(5)
			}
			if hit == "" {
				if err != nil {
					t.Fatalf("%v, call %d: %v", c.err, n, err)
				}
				break
			}
			if err != nil && (!errors.Is(err, c.err) || !strings.Contains(err.Error(), "data/d")) {
				t.Errorf("%v at %s: the error doesn't name what failed: %v", c.err, hit, err)
			}
			w.fsys.SetFault(nil)
			if w.dir != nil {
				_ = w.dir.Abandon() // what the end of the process does
			}
			if err := w.open(); err != nil {
				t.Fatalf("%v at %s (call %d): opened again: %v", c.err, hit, n, err)
			}
			if err := w.verify(true); err != nil {
				t.Fatalf("%v at %s (call %d), opened again: %v", c.err, hit, n, err)
			}
			if err := w.afterRecovery(); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				if err := w.append(); err != nil {
					t.Fatalf("%v at %s (call %d), append after it: %v", c.err, hit, n, err)
				}
			}
			if err := w.dir.Close(5); err != nil {
				t.Fatalf("%v at %s (call %d), stop after it: %v", c.err, hit, n, err)
			}
		}
	}
}

// namedError is what the operating system says, as package os hands it on.
type namedError struct {
	what string
	err  error
}

func (e *namedError) Error() string { return e.what + ": " + e.err.Error() }
func (e *namedError) Unwrap() error { return e.err }
