package compat

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/highwater/highwater/test/peer"
)

// answer is what a client in another language replies to a produce or consume request.
type answer struct {
	Offsets []int64 `json:"offsets"`
	Records []entry `json:"records"`
	Code    int16   `json:"code"`
	Error   string  `json:"error"`
}

func request(op string, v any) ([]byte, error) {
	b, err := json.Marshal(v)
	return append(fmt.Appendf(nil, `{"op":%q,`, op), b[1:]...), err
}

// check is what a driver's produce returns: every record acknowledged, at ascending offsets without a gap.
func (a *answer) check(p produce) error {
	if a.Error != "" {
		return &refusal{a.Code, a.Error}
	}
	if len(a.Offsets) != len(p.Records) {
		return fmt.Errorf("%d records acknowledged of %d", len(a.Offsets), len(p.Records))
	}
	for i, o := range a.Offsets {
		if o != a.Offsets[0]+int64(i) {
			return fmt.Errorf("record %d was acknowledged at offset %d after %d", i, o, a.Offsets[0])
		}
	}
	return nil
}

// lineDriver is a Python program in clients/ that answers requests line by line.
type lineDriver struct{ program string }

func (d lineDriver) name() string { return d.program }
func (lineDriver) plain() bool    { return false }
func (lineDriver) codes() bool    { return true }
func (lineDriver) times() bool    { return true }
func (lineDriver) stamps() bool   { return true }

type lineClient struct {
	mu  sync.Mutex
	in  io.Writer
	out *bufio.Reader
	err bytes.Buffer
}

var (
	lineMu      sync.Mutex
	lineClients = map[string]*lineClient{}
)

// client starts the program once; it ends with its standard input.
func (d lineDriver) client() (*lineClient, error) {
	lineMu.Lock()
	defer lineMu.Unlock()
	if c := lineClients[d.program]; c != nil {
		return c, nil
	}
	python, err := peer.Python()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(python, filepath.Join("clients", d.program+".py"))
	c := new(lineClient)
	cmd.Stderr = &c.err
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	atEnd = append(atEnd, func() { in.Close(); cmd.Wait() })
	c.in, c.out = in, bufio.NewReaderSize(out, 1<<20)
	lineClients[d.program] = c
	return c, nil
}

func (d lineDriver) ask(op string, v any) (*answer, error) {
	c, err := d.client()
	if err != nil {
		return nil, err
	}
	q, err := request(op, v)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.in.Write(append(q, '\n')); err != nil {
		return nil, fmt.Errorf("%s: %w", d.program, err)
	}
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("%s ended: %w\n%s", d.program, err, c.err.String())
	}
	a := new(answer)
	return a, json.Unmarshal(line, a)
}

func (d lineDriver) produce(t *testing.T, p produce) error {
	a, err := d.ask("produce", p)
	if err != nil {
		return err
	}
	return a.check(p)
}

func (d lineDriver) consume(t *testing.T, c consume) ([]entry, error) {
	a, err := d.ask("consume", c)
	if err == nil && a.Error != "" {
		err = &refusal{a.Code, a.Error}
	}
	if err != nil {
		return nil, err
	}
	return a.Records, nil
}

// javaDriver is Kafka's own client, in the warm JVM.
type javaDriver struct{}

func (javaDriver) name() string { return "java" }
func (javaDriver) plain() bool  { return false }
func (javaDriver) codes() bool  { return true }
func (javaDriver) times() bool  { return true }
func (javaDriver) stamps() bool { return true }

func (javaDriver) ask(t *testing.T, op string, v any) (*answer, error) {
	q, err := request(op, v)
	if err != nil {
		return nil, err
	}
	r, err := jvm(t).Run("Client", string(q))
	if err != nil {
		return nil, err
	}
	if r.Exit != 0 {
		return nil, fmt.Errorf("exit %d\n%s", r.Exit, r.Stderr)
	}
	a := new(answer)
	return a, json.Unmarshal([]byte(r.Stdout), a)
}

func (d javaDriver) produce(t *testing.T, p produce) error {
	a, err := d.ask(t, "produce", p)
	if err != nil {
		return err
	}
	return a.check(p)
}

func (d javaDriver) consume(t *testing.T, c consume) ([]entry, error) {
	a, err := d.ask(t, "consume", c)
	if err == nil && a.Error != "" {
		err = &refusal{a.Code, a.Error}
	}
	if err != nil {
		return nil, err
	}
	return a.Records, nil
}
