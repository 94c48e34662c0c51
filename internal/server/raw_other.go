//go:build !linux

package server

import (
	"errors"
	"syscall"
)

func setBuffers(fd uintptr, send, receive int) error { return nil }

func setBacklog(raw syscall.RawConn, n int) error { return nil }

// canRaw is false where connections go through package net: files are copied.
const canRaw = false

type rawSocket struct{}

func newRawSocket(syscall.RawConn, func() []byte, func(), func(int)) *rawSocket { return nil }

func (*rawSocket) Read() (int, error) { return 0, errors.ErrUnsupported }

func (*rawSocket) Write([]byte, bool) error { return errors.ErrUnsupported }

func (*rawSocket) Sendfile(uintptr, int64, int) (int64, error) { return 0, errors.ErrUnsupported }
