package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/highwater/highwater/test/peer"
)

// startNull builds and starts the null broker.
func startNull(dir string) (*rival, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	_, self, _, _ := runtime.Caller(0)
	bin := filepath.Join(dir, "..", "null-broker")
	build := exec.Command("go", "build", "-o", bin, "./null")
	build.Dir = filepath.Dir(self)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the null broker: %w\n%s", err, out)
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	l.Close()
	c := exec.Command(bin, "-addr", addr, "-dir", dir)
	c.Stderr = os.Stderr
	begin := time.Now()
	if err := c.Start(); err != nil {
		return nil, err
	}
	stop := func() { c.Process.Signal(syscall.SIGTERM); c.Wait() }
	for !peer.Answers(addr) {
		if time.Since(begin) > 10*time.Second {
			stop()
			return nil, errors.New("the null broker does not answer")
		}
		<-time.After(time.Millisecond)
	}
	return &rival{name: "null", addr: addr, pid: func() int { return c.Process.Pid }, stop: stop, startTime: time.Since(begin)}, nil
}
