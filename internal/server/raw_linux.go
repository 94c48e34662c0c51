package server

import (
	"syscall"

	"golang.org/x/sys/unix"
)

func setBuffers(fd uintptr, send, receive int) error {
	if send > 0 {
		if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, send); err != nil {
			return err
		}
	}
	if receive > 0 {
		return unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, receive)
	}
	return nil
}

// setBacklog listens again with another backlog, which only changes it: package net always takes the system's highest.
func setBacklog(raw syscall.RawConn, n int) error {
	var err error
	if cerr := raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), n) }); cerr != nil {
		return cerr
	}
	return err
}

// rawSocket is a plain TCP connection used without package net's copies in between: reads into a window that is only
// taken from its pool when there is something to read, writes that tell the kernel that more follows, sendfile at an
// offset (package net's own sends from the file's current position, which a shared descriptor cannot have).
//
// Its functions are called by one goroutine, the connection's. The closures are made once; arguments and results travel
// in the fields.
type rawSocket struct {
	conn syscall.RawConn

	read, write, send func(fd uintptr) bool

	onRead  func() []byte // gives the memory to read into
	onEmpty func()        // nothing to read: memory may go back
	onSent  func(n int)

	readN      int
	out        []byte
	more       bool
	file       int
	off        int64
	left, sent int64
	err        error
}

// canRaw tells whether this platform has rawSocket.
const canRaw = true

func newRawSocket(conn syscall.RawConn, onRead func() []byte, onEmpty func(), onSent func(int)) *rawSocket {
	s := &rawSocket{conn: conn, onRead: onRead, onEmpty: onEmpty, onSent: onSent}
	s.read = func(fd uintptr) bool {
		for {
			n, err := unix.Read(int(fd), s.onRead())
			switch err {
			case nil:
				s.readN = n
				return true
			case unix.EAGAIN:
				s.onEmpty()
				return false
			case unix.EINTR:
			default:
				s.readN, s.err = 0, err
				return true
			}
		}
	}
	s.write = func(fd uintptr) bool {
		for len(s.out) > 0 {
			var n int
			var err error
			if s.more {
				n, err = unix.SendmsgN(int(fd), s.out, nil, nil, unix.MSG_MORE|unix.MSG_NOSIGNAL)
			} else {
				n, err = unix.Write(int(fd), s.out) // cheaper
			}
			if n > 0 && err == nil {
				s.out = s.out[n:]
				s.onSent(n)
				continue
			}
			switch err {
			case unix.EAGAIN:
				return false
			case unix.EINTR:
			default:
				s.err = err
				return true
			}
		}
		return true
	}
	s.send = func(fd uintptr) bool {
		for s.left > 0 {
			n, err := unix.Sendfile(int(fd), s.file, &s.off, int(min(s.left, maxSendfile)))
			if n > 0 {
				s.left -= int64(n)
				s.sent += int64(n)
				s.onSent(n)
				continue
			}
			switch {
			case err == unix.EAGAIN:
				return false
			case err == unix.EINTR:
			case err == nil:
				s.err = errShortFile
				return true
			default:
				s.err = err
				return true
			}
		}
		return true
	}
	return s
}

// maxSendfile bounds one call, so that a connection with a fast peer lets others have the core.
const maxSendfile = 1 << 20

// Read waits until something can be read, and reads it.
func (s *rawSocket) Read() (int, error) {
	s.err = nil
	if err := s.conn.Read(s.read); err != nil {
		return 0, err
	}
	return s.readN, s.err
}

// Write writes all of b; more tells that it is not the end of an answer.
func (s *rawSocket) Write(b []byte, more bool) error {
	s.out, s.more, s.err = b, more, nil
	err := s.conn.Write(s.write)
	s.out = nil
	if err != nil {
		return err
	}
	return s.err
}

// Sendfile sends exactly n bytes of a file.
func (s *rawSocket) Sendfile(file uintptr, off int64, n int) (sent int64, err error) {
	s.file, s.off, s.left, s.sent, s.err = int(file), off, int64(n), 0, nil
	if err = s.conn.Write(s.send); err == nil {
		err = s.err
	}
	return s.sent, err
}
