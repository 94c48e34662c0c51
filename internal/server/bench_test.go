package server

// Costs over the loopback, beside a server that only echoes: goroutine for each connection, one write for each answer.

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"testing"

	"github.com/highwater/highwater/internal/rpc"
)

// Small requests allocate nothing once the pools are warm.
func TestNoAllocations(t *testing.T) {
	reused := &rpc.Pending{}
	var h rpc.Handler = func(r *rpc.Request) *rpc.Pending {
		*reused = rpc.Pending{Deadline: r.Received, Finish: func(r *rpc.Request, _ bool) { r.Response.Buf = append(r.Response.Buf, "1234"...) }}
		return reused
	}
	w := start(t, Config{IdleTime: 1e12}, map[int16]rpc.Handler{waitKey: h})
	c := w.dial()
	f := func(what string, b []byte, answers int, most float64) {
		t.Helper()
		in := make([]byte, answers*12)
		turn := func() {
			if _, err := c.Write(b); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, in); err != nil {
				t.Fatal(err)
			}
		}
		for range 100 {
			turn()
		}
		const turns = 2000
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range turns {
			turn()
		}
		runtime.ReadMemStats(&after)
		// The collector empties pools, and another test's goroutines may be ending: hence not exactly none.
		if n := float64(after.Mallocs-before.Mallocs) / turns; n > most+0.1 && !raceEnabled {
			t.Errorf("%s: %.2f allocations each", what, n)
		}
	}
	one := frame(echoKey, 0, 1, false, []byte("1234"))
	f("a small request", one, 1, 0)
	var ten []byte
	for range 10 {
		ten = append(ten, one...)
	}
	f("ten small requests", ten, 10, 0)
	// Package net makes an error of a read that was ended: once for each wake-up.
	f("one that waits", frame(waitKey, 0, 1, false, nil), 1, 1)
	f("one that waits and more behind it", append(frame(waitKey, 0, 1, false, nil), ten...), 11, 1)
}

// null is the server to compare with.
func null(b *testing.B) net.Addr {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer nc.Close()
				r := bufio.NewReaderSize(nc, 4096)
				buf := make([]byte, 4096)
				for {
					if _, err := io.ReadFull(r, buf[:4]); err != nil {
						return
					}
					n := 4 + int(binary.BigEndian.Uint32(buf))
					if _, err := io.ReadFull(r, buf[4:n]); err != nil {
						return
					}
					binary.BigEndian.PutUint32(buf, 68-4)
					if _, err := nc.Write(buf[:68]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr()
}

func BenchmarkSmall(b *testing.B) {
	body := make([]byte, 60)
	request := frame(echoKey, 0, 1, false, body)
	for _, server := range []string{"null", "highwater"} {
		for _, depth := range []int{1, 10} {
			name := server + "/alone"
			if depth > 1 {
				name = server + "/10deep"
			}
			b.Run(name, func(b *testing.B) {
				var addr net.Addr
				if server == "null" {
					addr = null(b)
				} else {
					w := start(b, Config{IdleTime: 1e12}, nil)
					a, _ := w.Addr("PLAINTEXT")
					addr = net.TCPAddrFromAddrPort(a)
				}
				const conns = 10
				each := b.N/conns/depth + 1
				out := make([]byte, 0, depth*len(request))
				for range depth {
					out = append(out, request...)
				}
				done := make(chan error, conns)
				b.ResetTimer()
				b.ReportAllocs()
				for range conns {
					go func() {
						nc, err := net.Dial("tcp", addr.String())
						if err == nil {
							defer nc.Close()
							in := make([]byte, 68*depth)
							for range each {
								if _, err = nc.Write(out); err != nil {
									break
								}
								if _, err = io.ReadFull(nc, in); err != nil {
									break
								}
							}
						}
						done <- err
					}()
				}
				for range conns {
					if err := <-done; err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
