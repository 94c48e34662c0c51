package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/highwater/highwater/internal/kafka"
	"github.com/highwater/highwater/internal/storage"
	"github.com/highwater/highwater/internal/vfs/osfs"
)

// fsckAbout is what the tool is, for its help.
const fsckAbout = `usage: highwater fsck [OPTION…] DIR…
Checks log directories of Kafka or Highwater, or single directories of partitions: every file, checksum and cross-reference.
Of each finding it says what Kafka's next start would do with it, and where Highwater does something else. It changes nothing.
Status: 0 if nothing was found that loses data or stops Kafka, 1 if something was, 2 if the check could not be made.`

// runFsck checks directories without changing them. Its status is 0, 1 with errors found, or 2.
func runFsck(e *Env) int {
	var o Options
	configFile := o.Value("config", "server.properties", "Check the log.dirs and metadata.log.dir that this file names, against its node.id.")
	asJSON := o.Flag("json", "Print one JSON object.")
	force := o.Flag("force", "Check also what a running broker has open: findings may be about files that change meanwhile.")
	shallow := o.Flag("shallow", "Do not look into batches: their checksums must do.")
	quiet := o.Flag("quiet", "Leave notes out.")
	verbose := o.Flag("verbose", "Print a line for each partition, too.")
	workers := o.Value("threads", "Integer: number", "Partitions to check at a time; by default one for each processor.")
	help := o.Flag("help", "Print usage information.")
	p, err := o.Parse(e.Args)
	fail := func(err error) int {
		e.Errorf("highwater fsck: %v", err)
		return 2
	}
	if err != nil {
		e.Errorf("highwater fsck: %v", err)
		o.PrintHelp(e.Stderr)
		return 2
	}
	if p.Has(help) || len(p.Rest) == 0 && !p.Has(configFile) {
		e.Errorf("%s", fsckAbout)
		o.PrintHelp(e.Stderr)
		if p.Has(help) {
			return 0
		}
		return 2
	}
	c := &fsckCheck{fs: osfs.New(""), workers: runtime.GOMAXPROCS(0), deep: !p.Has(shallow), nodeID: kafka.NoBroker, locked: map[string]bool{}}
	if n, ok, err := p.Int(workers); err != nil || ok && n < 1 {
		return fail(fmt.Errorf("--threads must be a number above 0"))
	} else if ok {
		c.workers = n
	}
	paths := p.Rest
	if p.Has(configFile) {
		file, err := p.Get(configFile)
		if err == nil {
			paths, err = c.configure(file, paths)
		}
		if err != nil {
			return fail(err)
		}
	}
	if c.paths, err = fsckPaths(paths); err != nil {
		return fail(err)
	}
	for _, path := range c.paths {
		// The lock is the log directory's, also where only a partition's directory was named.
		for _, dir := range []string{path, filepath.Dir(path)} {
			if pid := lockHolder(dir + "/" + storage.LockFile); pid != 0 {
				if !p.Has(force) {
					return fail(fmt.Errorf("process %d has %s open: stop the broker first; --force checks all the same, but what it finds may be about files that change meanwhile", pid, dir))
				}
				c.live, c.locked[path] = true, true
			}
		}
	}
	stop := fsckProgress(e, c)
	r, err := c.run()
	stop()
	if err != nil {
		return fail(err)
	}
	if p.Has(asJSON) {
		if err := r.json(e.Stdout); err != nil {
			return fail(err)
		}
	} else {
		least := fsckNote
		if p.Has(quiet) {
			least = fsckWarning
		}
		r.text(e.Stdout, least, p.Has(verbose))
	}
	if r.Errors > 0 {
		return 1
	}
	return 0
}

// configure takes from server.properties what the check wants to know. The file need not be one that a node starts with.
func (c *fsckCheck) configure(file string, paths []string) ([]string, error) {
	list, err := ReadProperties(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	props := map[string]string{}
	for _, p := range list {
		props[p.Key] = strings.TrimSpace(p.Value)
	}
	dirs := props["log.dirs"]
	if dirs == "" {
		dirs = props["log.dir"]
	}
	if dirs == "" {
		dirs = "/tmp/kafka-logs" // Kafka's default
	}
	for _, d := range strings.Split(dirs, ",") {
		if d = strings.TrimSpace(d); d != "" {
			paths = append(paths, d)
		}
	}
	c.metaDir = props["metadata.log.dir"]
	if c.metaDir == "" && props["process.roles"] != "" {
		c.metaDir = strings.TrimSpace(strings.Split(dirs, ",")[0])
	}
	if c.metaDir != "" {
		paths = append(paths, c.metaDir)
		if c.metaDir, err = filepath.Abs(c.metaDir); err != nil {
			return nil, err
		}
	}
	for _, key := range []string{"node.id", "broker.id"} {
		if id, err := strconv.ParseInt(props[key], 10, 32); err == nil && id >= 0 && c.nodeID == kafka.NoBroker {
			c.nodeID = kafka.BrokerID(id)
		}
	}
	if c.policy = props["log.cleanup.policy"]; c.policy == "" {
		c.policy = "delete" // Kafka's default
	}
	c.config = true
	return paths, nil
}

// fsckPaths makes directories' names absolute, each once.
func fsckPaths(paths []string) ([]string, error) {
	var out []string
	for _, p := range paths {
		abs, err := filepath.Abs(p)
		if err != nil {
			return nil, err
		}
		st, err := os.Stat(abs)
		switch {
		case err != nil:
			return nil, err
		case !st.IsDir():
			return nil, fmt.Errorf("%s is not a directory: name a log directory or a partition's", abs)
		}
		if !slices.Contains(out, abs) {
			out = append(out, abs)
		}
	}
	return out, nil
}

// lockHolder is the process that has the POSIX record lock on a file, 0 if nobody has, or if it can't be told. It takes no lock
// and makes no file.
func lockHolder(name string) int {
	f, err := os.Open(name)
	if err != nil {
		return 0
	}
	defer f.Close()
	l := syscall.Flock_t{Type: syscall.F_WRLCK}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &l); err != nil || l.Type == syscall.F_UNLCK {
		return 0
	}
	return int(l.Pid)
}

// fsckProgress tells on standard error how far a long check is, every two seconds. The returned function ends that.
func fsckProgress(e *Env, c *fsckCheck) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() { // ends when stop is called
		defer close(done)
		t := time.NewTicker(2 * time.Second)
		defer t.Stop()
		begin := time.Now()
		for {
			select {
			case <-quit:
				return
			case <-t.C:
				bytes := c.done.Load()
				e.Errorf("%d of %d partitions, %d MB of segments, %.0f MB/s", c.parts.Load(), c.total.Load(), bytes>>20, float64(bytes)/(1<<20)/time.Since(begin).Seconds())
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}
