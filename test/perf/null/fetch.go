package main

import (
	"encoding/binary"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// fetch answers Fetch v11 for one partition: a header, then a range of the file by sendfile.
func fetch(c *net.TCPConn, out, b []byte) error {
	be := binary.BigEndian
	b = b[4+4+4+4+1+4+4+4:] // replica, wait, bytes, isolation, session, topics
	n := int(be.Uint16(b))
	name := b[2 : 2+n]
	b = b[2+n+4:]
	partition, offset, max := b[:4], int64(be.Uint64(b[8:])), int(be.Uint32(b[24:]))
	f, from, size, end := find(name).view(offset, max)
	out = be.AppendUint32(out, 0) // throttle
	out = be.AppendUint16(out, 0)
	out = be.AppendUint32(out, 0) // session
	out = be.AppendUint32(out, 1)
	out = append(be.AppendUint16(out, uint16(len(name))), name...)
	out = be.AppendUint32(out, 1)
	out = append(out, partition...)
	out = be.AppendUint16(out, 0)
	out = be.AppendUint64(out, uint64(end)) // high watermark
	out = be.AppendUint64(out, uint64(end)) // last stable offset
	out = be.AppendUint64(out, 0)           // log start
	out = be.AppendUint32(out, 0)           // aborted
	out = be.AppendUint32(out, ^uint32(0))  // preferred replica
	out = be.AppendUint32(out, uint32(size))
	be.PutUint32(out, uint32(len(out)-4+size))
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var fail error
	head, left := out, size
	err = raw.Write(func(fd uintptr) bool {
		for len(head) > 0 {
			n, err := unix.SendmsgN(int(fd), head, nil, nil, unix.MSG_MORE|unix.MSG_NOSIGNAL)
			if err == unix.EAGAIN {
				return false
			}
			if err != nil {
				fail = err
				return true
			}
			head = head[n:]
		}
		for left > 0 {
			n, err := unix.Sendfile(int(fd), int(f.Fd()), &from, left)
			switch {
			case n > 0:
				left -= n
			case err == unix.EAGAIN:
				return false
			case err == unix.EINTR:
			case err != nil:
				fail = err
				return true
			default:
				fail = io.ErrUnexpectedEOF
				return true
			}
		}
		return true
	})
	if fail != nil {
		return fail
	}
	return err
}
