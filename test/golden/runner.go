package golden

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Runner runs cases. Its fields are set before the first; it serves one case at a time.
type Runner struct {
	Command     func(tool string) []string // how a tool is called
	Brokers     []string                   // host:port of the brokers, in the order of their ids
	SASL        []string                   // their SASL_PLAINTEXT listeners, if any
	Controllers []string                   // the controllers' listeners, if any
	// Control stops, kills and starts nodes ("stop", 3); nil: cases that need it are skipped.
	Control func(verb string, id int) error
	Dir     string // where files of cases go
	Data    string // an unpacked data directory, for tools that read one; "" = none

	files   string // of the case that runs
	spawned []*exec.Cmd
	maps    map[string]string
}

// ErrSkip is the error of a case that the runner can't run.
var ErrSkip = errors.New("skipped")

// placeholders are what stands for addresses and places.
func (r *Runner) placeholders() map[string]string {
	if r.maps != nil {
		return r.maps
	}
	r.maps = map[string]string{"BOOTSTRAP": strings.Join(r.Brokers, ","), "SASL": strings.Join(r.SASL, ","), "CONTROLLERS": strings.Join(r.Controllers, ",")}
	if len(r.Brokers) > 0 {
		if host, _, err := net.SplitHostPort(r.Brokers[0]); err == nil {
			r.maps["HOST"] = host
		}
	}
	for letter, list := range map[string][]string{"B": r.Brokers, "S": r.SASL, "C": r.Controllers} {
		for i, a := range list {
			r.maps[letter+strconv.Itoa(i+1)] = a
		}
	}
	if r.Data != "" {
		r.maps["DATA"] = r.Data
		if snapshots, err := filepath.Glob(filepath.Join(r.Data, "1", "data", "__cluster_metadata-0", "*.checkpoint")); err == nil && len(snapshots) > 0 {
			sort.Strings(snapshots)
			r.maps["SNAPSHOT"] = snapshots[len(snapshots)-1]
		}
	}
	return r.maps
}

func (r *Runner) fill(s string) string {
	for k, v := range r.placeholders() {
		s = strings.ReplaceAll(s, "{"+k+"}", v)
	}
	if r.files != "" {
		s = strings.ReplaceAll(s, "{FILES}", r.files)
	}
	return s
}

// places puts the placeholders back into what a tool printed.
func (r *Runner) places(lines []string) []string {
	type pair struct{ key, value string }
	var list []pair
	for k, v := range r.placeholders() {
		if v != "" && (len(k) == 2 || strings.Contains(v, ",") || k == "DATA" || k == "SNAPSHOT") {
			list = append(list, pair{k, v})
		}
	}
	sort.Slice(list, func(i, j int) bool {
		if len(list[i].value) != len(list[j].value) {
			return len(list[i].value) > len(list[j].value)
		}
		return list[i].key < list[j].key
	})
	var out []string
	for _, l := range lines {
		l = strings.ReplaceAll(l, r.files, "{FILES}")
		for _, p := range list {
			l = strings.ReplaceAll(l, p.value, "{"+p.key+"}")
		}
		for _, p := range list {
			if len(p.key) == 2 {
				l = replaceNumber(l, p.value[strings.LastIndexByte(p.value, ':')+1:], "{"+p.key+"PORT}")
			}
		}
		out = append(out, l)
	}
	return out
}

// replaceNumber replaces a number that isn't part of a longer one.
func replaceNumber(l, number, with string) string {
	digit := func(i int) bool { return i >= 0 && i < len(l) && l[i] >= '0' && l[i] <= '9' }
	for at := 0; ; {
		i := strings.Index(l[at:], number)
		if i < 0 {
			return l
		}
		i += at
		if digit(i-1) || digit(i+len(number)) {
			at = i + len(number)
			continue
		}
		l = l[:i] + with + l[i+len(number):]
		at = i + len(with)
	}
}

// call runs a tool to its end, or stops it with TERM after the timeout.
func (r *Runner) call(ctx context.Context, tool string, argv []string, stdin *string, timeout time.Duration) (Exit, string, string, error) {
	words := append(slices.Clone(r.Command(tool)), argv...)
	for i := range words {
		words[i] = r.fill(words[i])
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c := exec.CommandContext(ctx, words[0], words[1:]...)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 20 * time.Second
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if stdin != nil {
		c.Stdin = strings.NewReader(r.fill(*stdin))
	}
	err := c.Run()
	if ctx.Err() != nil {
		return Exit{Timeout: true}, out.String(), errs.String(), nil
	}
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) {
		return Exit{}, "", "", fmt.Errorf("run %s: %w", tool, err)
	}
	return Exit{Status: c.ProcessState.ExitCode()}, out.String(), errs.String(), nil
}

// setup does one step before a case:
//
//	sleep SECONDS · cluster VERB ID · spawn TOOL ARG… (runs until the case ends)
//	until REGEX TOOL ARG… (again and again until standard output matches)
//	TOOL ARG… ["<<" STDIN]; with a dash before the tool's name its exit status doesn't matter
func (r *Runner) setup(ctx context.Context, s []string) error {
	switch s[0] {
	case "sleep":
		seconds, err := strconv.ParseFloat(s[1], 64)
		if err != nil {
			return err
		}
		return pause(ctx, time.Duration(seconds*float64(time.Second)))
	case "cluster":
		if r.Control == nil {
			return fmt.Errorf("%w: it needs a cluster whose nodes can be stopped", ErrSkip)
		}
		id, err := strconv.Atoi(s[2])
		if err != nil {
			return err
		}
		return r.Control(s[1], id)
	case "spawn":
		words := append(slices.Clone(r.Command(s[1])), s[2:]...)
		for i := range words {
			words[i] = r.fill(words[i])
		}
		c := exec.Command(words[0], words[1:]...)
		if err := c.Start(); err != nil {
			return err
		}
		r.spawned = append(r.spawned, c)
		return nil
	case "until":
		re, err := regexp.Compile(s[1])
		if err != nil {
			return err
		}
		for end := time.Now().Add(90 * time.Second); ; {
			_, out, errs, err := r.call(ctx, s[2], s[3:], nil, time.Minute)
			if err != nil {
				return err
			}
			if re.MatchString(out) {
				return nil
			}
			if time.Now().After(end) {
				return fmt.Errorf("never matched %q: %q\n%s%s", s[1], s[2:], out, errs)
			}
			if err := pause(ctx, time.Second/2); err != nil {
				return err
			}
		}
	}
	tool, may := strings.CutPrefix(s[0], "-")
	argv := s[1:]
	var stdin *string
	if i := slices.Index(argv, "<<"); i >= 0 {
		argv, stdin = argv[:i], &argv[i+1]
	}
	exit, out, errs, err := r.call(ctx, tool, argv, stdin, time.Minute)
	if err != nil {
		return err
	}
	if exit != (Exit{}) && !may {
		return fmt.Errorf("setup %q: exit %v\n%s%s", s, exit, out, errs)
	}
	return nil
}

// pause waits between two looks at something that only another process can change.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// once runs a case one time.
func (r *Runner) once(ctx context.Context, tool string, c *Case) (got answer, err error) {
	if r.files, err = os.MkdirTemp(r.Dir, "case"); err != nil {
		return got, err
	}
	defer func() {
		err = errors.Join(err, r.stopSpawned(), os.RemoveAll(r.files))
	}()
	for name, text := range c.Files {
		body := []byte(r.fill(text))
		if b64, ok := strings.CutPrefix(text, "b64:"); ok {
			if body, err = base64.StdEncoding.DecodeString(b64); err != nil {
				return got, err
			}
		}
		path := filepath.Join(r.files, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return got, err
		}
		if err := os.WriteFile(path, body, 0o666); err != nil {
			return got, err
		}
	}
	for _, s := range c.Setup {
		if err := r.setup(ctx, s); err != nil {
			return got, err
		}
	}
	timeout := time.Duration(c.Timeout) * time.Second
	if timeout == 0 {
		timeout = time.Minute
	}
	exit, out, errs, err := r.call(ctx, tool, c.Argv, c.Stdin, timeout)
	if err != nil {
		return got, err
	}
	rules, err := c.rules()
	if err != nil {
		return got, err
	}
	return c.shaped(exit, normalised(r.places(tidy(out, c.Log)), rules), normalised(r.places(tidy(errs, c.Log)), rules))
}

func (r *Runner) stopSpawned() error {
	var errs []error
	for _, c := range r.spawned {
		if err := c.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, err)
		}
		kill := time.AfterFunc(20*time.Second, func() { _ = c.Process.Kill() })
		_ = c.Wait() // how it ends doesn't matter
		kill.Stop()
	}
	r.spawned = nil
	return errors.Join(errs...)
}

// Replay runs a case and returns what differs, "" if nothing. The error is ErrSkip or says what kept the case from running.
func (r *Runner) Replay(ctx context.Context, tool string, c *Case) (string, error) {
	want, err := c.shaped(c.Exit, c.Stdout, c.Stderr)
	if err != nil {
		return "", err
	}
	tries := max(c.Retry, 1)
	if c.Retry == 0 && c.asks() {
		tries = 3
	}
	diff := ""
	for i := range tries {
		if i > 0 {
			if err := pause(ctx, 2*time.Second); err != nil {
				return "", err
			}
		}
		got, err := r.once(ctx, tool, c)
		if err != nil {
			return "", err
		}
		if diff = want.diff(got); diff == "" {
			return "", nil
		}
	}
	return diff, nil
}

// diff says what differs.
func (want answer) diff(got answer) string {
	var b strings.Builder
	if want.exit != got.exit {
		fmt.Fprintf(&b, "exit: want %v, got %v\n", want.exit, got.exit)
	}
	for _, s := range []struct {
		name      string
		want, got []string
	}{{"stdout", want.stdout, got.stdout}, {"stderr", want.stderr, got.stderr}} {
		if s.want == nil || slices.Equal(s.want, s.got) {
			continue
		}
		w, g := s.want, s.got
		for len(w) > 0 && len(g) > 0 && w[0] == g[0] {
			w, g = w[1:], g[1:]
		}
		for len(w) > 0 && len(g) > 0 && w[len(w)-1] == g[len(g)-1] {
			w, g = w[:len(w)-1], g[:len(g)-1]
		}
		for _, l := range w {
			fmt.Fprintf(&b, "%s: - %s\n", s.name, l)
		}
		for _, l := range g {
			fmt.Fprintf(&b, "%s: + %s\n", s.name, l)
		}
	}
	return b.String()
}
