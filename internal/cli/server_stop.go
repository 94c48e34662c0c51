package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// runServerStop is kafka-server-stop: it sends SIGTERM to the nodes of this machine, ours and Kafka's alike, all of them or
// those that --process-role or --node-id picks.
func runServerStop(e *Env) int {
	var o Options
	role := o.Value("process-role", "role", "Stop only nodes whose process.roles is this: broker, controller or broker,controller.")
	id := o.Value("node-id", "id", "Stop only the node whose node.id is this.")
	help := o.Flag("help", "Print usage information.")
	p, err := o.Parse(e.Args)
	if err != nil {
		e.Errorf("%v", err)
		o.PrintHelp(e.Stderr)
		return 1
	}
	if p.Has(help) {
		e.Errorf("This tool stops the nodes that run on this machine.")
		o.PrintHelp(e.Stderr)
		return 1
	}
	wantRole, err := p.Get(role)
	if err != nil {
		e.Errorf("%v", err)
		return 1
	}
	wantID, err := p.Get(id)
	if err != nil {
		e.Errorf("%v", err)
		return 1
	}
	nodes, err := runningNodes("/proc")
	if err != nil {
		e.Errorf("%v", err)
		return 1
	}
	if len(nodes) == 0 {
		e.Println("No kafka server to stop")
		return 1
	}
	status, sent := 0, 0
	for _, n := range nodes {
		if (wantRole != "" && n.property("process.roles") != wantRole) ||
			(wantID != "" && n.property("node.id", "broker.id") != wantID) {
			continue
		}
		sent++
		if err := syscall.Kill(n.pid, syscall.SIGTERM); err != nil {
			e.Errorf("stop process %d: %v", n.pid, err)
			status = 1
		}
	}
	if sent == 0 {
		switch {
		case wantID != "":
			e.Printf("No process with node.id %s found\n", wantID)
		default:
			e.Printf("No process with process.roles %s found\n", wantRole)
		}
		return 1
	}
	return status
}

// runningNode is a process that serves: ours or the JVM of Kafka.
type runningNode struct {
	pid  int
	dir  string
	args []string // what follows server-start or kafka.Kafka
}

func runningNodes(proc string) ([]runningNode, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("look for processes: %w", err)
	}
	var out []runningNode
	for _, d := range entries {
		pid, err := strconv.Atoi(d.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(proc, d.Name(), "cmdline"))
		if err != nil || len(raw) == 0 {
			continue // it ended meanwhile, or is the kernel's
		}
		argv := strings.Split(string(bytes.TrimRight(raw, "\x00")), "\x00")
		args, ok := serverArgs(argv)
		if !ok {
			continue
		}
		dir, _ := os.Readlink(filepath.Join(proc, d.Name(), "cwd")) // without it only absolute names are found
		out = append(out, runningNode{pid, dir, args})
	}
	return out, nil
}

// serverArgs returns the arguments of a serving process.
func serverArgs(argv []string) ([]string, bool) {
	base := func(s string) string { return strings.TrimSuffix(filepath.Base(s), ".sh") }
	switch {
	case base(argv[0]) == "kafka-server-start":
		return argv[1:], true
	case len(argv) > 1 && base(argv[0]) == "highwater" && (argv[1] == "dev" || strings.TrimPrefix(base(argv[1]), "kafka-") == "server-start"):
		return argv[2:], true
	case base(argv[0]) == "java" || base(argv[0]) == "kafka-run-class" ||
		len(argv) > 1 && base(argv[0]) == "highwater" && strings.TrimPrefix(base(argv[1]), "kafka-") == "run-class":
		for i, a := range argv {
			if a == "kafka.Kafka" {
				return argv[i+1:], true
			}
		}
	}
	return nil, false
}

// property looks up a property of the node: --override first, then the file it was started with.
func (n runningNode) property(names ...string) string {
	file := ""
	props := map[string]string{}
	for i := 0; i < len(n.args); i++ {
		switch a := n.args[i]; {
		case a == "--override" && i+1 < len(n.args):
			i++
			if k, v, ok := strings.Cut(n.args[i], "="); ok {
				props[k] = v
			}
		case file == "" && !strings.HasPrefix(a, "-"):
			file = a
		}
	}
	if file != "" {
		if !filepath.IsAbs(file) {
			file = filepath.Join(n.dir, file)
		}
		if f, err := ReadProperties(file); err == nil {
			for _, kv := range f {
				if _, ok := props[kv.Key]; !ok {
					props[kv.Key] = kv.Value
				}
			}
		}
	}
	for _, name := range names {
		if v, ok := props[name]; ok {
			return v
		}
	}
	return ""
}
