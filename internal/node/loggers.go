package node

import (
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

// Levels of loggers that slog has no name for.
const (
	LevelTrace = slog.LevelDebug - 4
	LevelFatal = slog.LevelError + 4
)

var levels = map[string]slog.Level{
	"TRACE": LevelTrace, "DEBUG": slog.LevelDebug, "INFO": slog.LevelInfo, "WARN": slog.LevelWarn, "ERROR": slog.LevelError, "FATAL": LevelFatal,
}

// rootLogger is the logger whose level counts where no other does.
const rootLogger = "root"

// Loggers are the levels of a node's loggers, which may change while it runs (KIP-412). A package of ours logs as
// highwater.PACKAGE. Scripts know Kafka's loggers, so these exist too; each stands for the package of ours that does its
// work. A logger without a level of its own has that of the nearest one above it, by the dots in its name: kafka.network is
// above kafka.network.Processor; above all is root.
//
// What a package logs is decided by its own logger and those that stand for it: the most talkative of the levels that were
// set counts, root's if none was.
type Loggers struct {
	mu  sync.Mutex
	own map[string]slog.Level // guarded by mu; root is always there

	now atomic.Pointer[verbosity]
}

// verbosity is what follows from the levels that were set.
type verbosity struct {
	lowest slog.Level
	root   slog.Level
	of     map[string]slog.Level // by package; root's are not here
}

// NewLoggers gives loggers that say what is at or above root.
func NewLoggers(root slog.Level) *Loggers {
	l := &Loggers{own: map[string]slog.Level{rootLogger: root}}
	l.settle()
	return l
}

// Enabled tells whether any logger says anything at a level.
func (l *Loggers) Enabled(level slog.Level) bool { return level >= l.now.Load().lowest }

// Says tells whether a package's logger says something at a level.
func (l *Loggers) Says(pkg string, level slog.Level) bool {
	v := l.now.Load()
	least, ok := v.of[pkg]
	if !ok {
		least = v.root
	}
	return level >= least
}

// Levels are the levels in force, by the loggers' names.
func (l *Loggers) Levels() map[string]string {
	l.mu.Lock()
	own := maps.Clone(l.own)
	l.mu.Unlock()
	out := map[string]string{rootLogger: levelName(own[rootLogger])}
	add := func(name string) {
		level, ok := inherited(own, name)
		if !ok {
			level = own[rootLogger]
		}
		out[name] = levelName(level)
	}
	for name := range kafkaLoggers {
		add(name)
	}
	for _, pkg := range loggingPackages {
		add("highwater." + pkg)
	}
	return out
}

// SetLevel gives a logger a level, or with "" takes it back. The root logger keeps the one that it has; a level or a logger
// that does not exist changes nothing.
func (l *Loggers) SetLevel(logger, level string) {
	n, ok := levels[level]
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case ok:
		l.own[logger] = n
	case level == "" && logger != rootLogger:
		delete(l.own, logger)
	}
	l.settle()
}

// settle computes what is in force. mu is held, or nobody else has l yet.
func (l *Loggers) settle() {
	v := &verbosity{root: l.own[rootLogger], lowest: l.own[rootLogger], of: make(map[string]slog.Level)}
	talk := func(pkg string, level slog.Level) {
		if old, ok := v.of[pkg]; !ok || level < old {
			v.of[pkg] = level
		}
	}
	for name, packages := range kafkaLoggers {
		if level, ok := inherited(l.own, name); ok {
			for _, pkg := range packages {
				talk(pkg, level)
			}
		}
	}
	for _, pkg := range loggingPackages {
		if level, ok := inherited(l.own, "highwater."+pkg); ok {
			talk(pkg, level)
		}
	}
	for _, level := range v.of {
		v.lowest = min(v.lowest, level)
	}
	l.now.Store(v)
}

// inherited is the level of a logger or of the nearest above it, root aside.
func inherited(own map[string]slog.Level, name string) (slog.Level, bool) {
	for {
		if level, ok := own[name]; ok {
			return level, true
		}
		i := strings.LastIndexByte(name, '.')
		if i < 0 {
			return 0, false
		}
		name = name[:i]
	}
}

func levelName(level slog.Level) string {
	for name, l := range levels {
		if l == level {
			return name
		}
	}
	return level.String()
}

// loggingPackages are the packages of ours that log.
var loggingPackages = []string{"cli", "controllerloop", "node", "peer", "raftloop", "replica", "server", "storageloop", "uplink"}

// standsFor says which packages of ours do the work of Kafka's classes, by the beginning of their names; the first row that
// fits counts.
var standsFor = []struct{ prefix, packages string }{
	{"kafka.network", "server"}, {"kafka.request", "server"}, {"kafka.authorizer", "server"},
	{"org.apache.kafka.network", "server"}, {"org.apache.kafka.common.network", "server"},
	{"kafka.controller", "controllerloop"}, {"org.apache.kafka.controller", "controllerloop"},
	{"org.apache.kafka.raft", "raftloop"}, {"org.apache.kafka.snapshot", "raftloop"},
	{"org.apache.kafka.clients", "peer"},
	{"kafka.log", "storageloop"}, {"org.apache.kafka.storage", "storageloop"},
	{"org.apache.kafka.server.BrokerLifecycleManager", "uplink"}, {"org.apache.kafka.server.NodeToController", "uplink"},
	{"org.apache.kafka.server.ForwardingManager", "uplink"}, {"org.apache.kafka.server.partition", "uplink"},
	{"kafka.cluster", "replica node"}, {"kafka.server.ReplicaManager", "replica node"}, {"state.change", "replica node"},
	{"", "node"},
}

// kafkaLoggers are Kafka's loggers with the packages that they stand for; those that only stand above others have none.
var kafkaLoggers = func() map[string][]string {
	out := map[string][]string{"kafka": nil, "org.apache.kafka": nil, "highwater": nil}
	for _, name := range strings.Fields(kafkaLoggerNames) {
		for _, s := range standsFor {
			if strings.HasPrefix(name, s.prefix) {
				out[name] = strings.Fields(s.packages)
				break
			}
		}
	}
	return out
}()
