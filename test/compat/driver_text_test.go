package compat

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/highwater/highwater/test/peer"
)

// kcatDriver is kcat, that is librdkafka of another age, on the command line.
type kcatDriver struct{}

func (kcatDriver) name() string { return "kcat" }
func (kcatDriver) plain() bool  { return true }
func (kcatDriver) codes() bool  { return false }
func (kcatDriver) times() bool  { return true }
func (kcatDriver) stamps() bool { return false }

func kcat(t *testing.T, stdin []byte, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "kcat", args...)
	c.Stdin = bytes.NewReader(stdin)
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("kcat %s: %w\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out, err
}

// produce sends runs of records that fit one call: the lines of one call share their headers.
func (kcatDriver) produce(t *testing.T, p produce) error {
	base := []string{"-P", "-b", p.Addr, "-t", p.Topic, "-p", fmt.Sprint(p.Partition), "-z", p.Codec, "-X", "message.max.bytes=" + fmt.Sprint(p.Max),
		"-X", "message.timeout.ms=5000", "-X", "topic.metadata.propagation.max.ms=1000"}
	if p.Idempotent {
		base = append(base, "-X", "enable.idempotence=true")
	}
	simple := func(e entry) bool {
		return len(e.Headers) == 0 && e.Key == nil && e.Value != nil && len(e.Value) < 1000
	}
	for i := 0; i < len(p.Records); {
		e := p.Records[i]
		if simple(e) {
			var lines []byte
			for ; i < len(p.Records) && simple(p.Records[i]); i++ {
				lines = append(append(lines, p.Records[i].Value...), '\n')
			}
			if _, err := kcat(t, lines, base...); err != nil {
				return err
			}
			continue
		}
		i++
		args := base
		for _, h := range e.Headers {
			args = append(args[:len(args):len(args)], "-H", h.Name+"="+string(h.Value))
		}
		switch {
		case e.Value == nil:
			if _, err := kcat(t, append(e.Key, '|', '\n'), append(args[:len(args):len(args)], "-Z", "-K", "|")...); err != nil {
				return err
			}
		default:
			f := filepath.Join(t.TempDir(), "value")
			if err := os.WriteFile(f, e.Value, 0o644); err != nil {
				return err
			}
			if e.Key != nil {
				args = append(args[:len(args):len(args)], "-k", string(e.Key))
			}
			if _, err := kcat(t, nil, append(args[:len(args):len(args)], f)...); err != nil {
				return err
			}
		}
	}
	return nil
}

func (kcatDriver) consume(t *testing.T, c consume) ([]entry, error) {
	at := fmt.Sprint(c.Offset)
	if c.Timestamp != nil {
		at = fmt.Sprintf("s@%d", *c.Timestamp)
	}
	out, err := kcat(t, nil, "-q", "-C", "-b", c.Addr, "-t", c.Topic, "-p", fmt.Sprint(c.Partition), "-o", at, "-c", fmt.Sprint(c.Count), "-X", "fetch.wait.max.ms=100",
		"-f", "%o,%T,%K,%S,%h\n%k%s\n")
	if err != nil {
		return nil, err
	}
	var all []entry
	for len(out) > 0 {
		head, rest, ok := bytes.Cut(out, []byte("\n"))
		f := strings.SplitN(string(head), ",", 5)
		if !ok || len(f) != 5 {
			return all, fmt.Errorf("kcat printed %q", head)
		}
		var n [4]int64
		for i := range n {
			if n[i], err = strconv.ParseInt(f[i], 10, 64); err != nil {
				return all, err
			}
		}
		e := entry{Offset: n[0], Timestamp: n[1]}
		take := func(n int64) (b []byte) {
			if n < 0 {
				return nil
			}
			b, rest = rest[:n], rest[n:]
			return b
		}
		if e.Key = take(n[2]); len(e.Key) == 0 { // kcat prints a null key's size as 0, unlike a null value's
			e.Key = nil
		}
		e.Value = take(n[3])
		if f[4] != "" {
			for _, h := range strings.Split(f[4], ",") {
				name, value, _ := strings.Cut(h, "=")
				e.Headers = append(e.Headers, header{name, []byte(value)})
			}
		}
		all, out = append(all, e), rest[1:]
	}
	return all, nil
}

// consoleDriver is Kafka's console producer and consumer, or ours under the same names.
type consoleDriver struct{ own bool }

func (d consoleDriver) name() string {
	if d.own {
		return "console-own"
	}
	return "console"
}
func (consoleDriver) plain() bool  { return true }
func (consoleDriver) codes() bool  { return false }
func (consoleDriver) times() bool  { return false }
func (consoleDriver) stamps() bool { return false }

func (d consoleDriver) run(t *testing.T, tool, stdin string, args ...string) (peer.Result, error) {
	if !d.own {
		return jvm(t).Run(tool, stdin, args...)
	}
	c := peer.Tool(peer.Highwater, tool, args...)
	var out, errs bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(stdin), &out, &errs
	err := c.Run()
	if c.ProcessState == nil {
		return peer.Result{}, err
	}
	return peer.Result{Exit: c.ProcessState.ExitCode(), Stdout: out.String(), Stderr: errs.String()}, nil
}

// null stands for a null key or value.
const null = "<null>"

func text(b []byte) string {
	if b == nil {
		return null
	}
	return string(b)
}

func untext(s string) []byte {
	if s == null {
		return nil
	}
	return []byte(s)
}

func (d consoleDriver) produce(t *testing.T, p produce) error {
	var in strings.Builder
	for _, e := range p.Records {
		var hs []string
		for _, h := range e.Headers {
			hs = append(hs, h.Name+":"+string(h.Value))
		}
		headers := strings.Join(hs, ",")
		if headers == "" {
			headers = null
		}
		fmt.Fprintf(&in, "%s\t%s\t%s\n", headers, text(e.Key), text(e.Value))
	}
	r, err := d.run(t, "console-producer", in.String(), "--bootstrap-server", p.Addr, "--topic", p.Topic, "--compression-codec", p.Codec,
		"--command-property", fmt.Sprintf("enable.idempotence=%v", p.Idempotent), "--command-property", fmt.Sprintf("max.request.size=%d", p.Max),
		"--command-property", "max.block.ms=2500",
		"--reader-property", "parse.headers=true", "--reader-property", "parse.key=true", "--reader-property", "null.marker="+null)
	if err == nil && (r.Exit != 0 || r.Stderr != "" || strings.Contains(r.Log, "ERROR")) {
		err = fmt.Errorf("exit %d: %s%s", r.Exit, r.Stderr, r.Log)
	}
	return err
}

func (d consoleDriver) consume(t *testing.T, c consume) ([]entry, error) {
	r, err := d.run(t, "console-consumer", "", "--bootstrap-server", c.Addr, "--topic", c.Topic, "--partition", fmt.Sprint(c.Partition), "--offset", fmt.Sprint(c.Offset),
		"--max-messages", fmt.Sprint(c.Count), "--timeout-ms", "30000", "--command-property", "fetch.max.wait.ms=100", "--command-property", "allow.auto.create.topics=false",
		"--formatter-property", "print.timestamp=true", "--formatter-property", "print.offset=true", "--formatter-property", "print.headers=true", "--formatter-property", "print.key=true",
		"--formatter-property", "null.literal="+null)
	if err != nil {
		return nil, err
	}
	if r.Exit != 0 {
		return nil, fmt.Errorf("exit %d: %s", r.Exit, r.Stderr)
	}
	if want := fmt.Sprintf("Processed a total of %d messages\n", c.Count); r.Stderr != want {
		return nil, fmt.Errorf("console consumer says %q, want %q", r.Stderr, want)
	}
	var all []entry
	for _, line := range strings.Split(strings.TrimSuffix(r.Stdout, "\n"), "\n") {
		f := strings.Split(line, "\t")
		if len(f) != 5 {
			return all, fmt.Errorf("console consumer printed %.100q", line)
		}
		var e entry
		if _, err := fmt.Sscanf(f[0]+" "+f[1], "CreateTime:%d Offset:%d", &e.Timestamp, &e.Offset); err != nil {
			return all, fmt.Errorf("console consumer printed %.100q: %w", line, err)
		}
		if f[2] != "NO_HEADERS" {
			for _, h := range strings.Split(f[2], ",") {
				name, value, _ := strings.Cut(h, ":")
				e.Headers = append(e.Headers, header{name, []byte(value)})
			}
		}
		e.Key, e.Value = untext(f[3]), untext(f[4])
		all = append(all, e)
	}
	return all, nil
}
