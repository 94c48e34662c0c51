package node

import (
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/highwater/highwater/internal/fixture"
)

// Every logger that a Kafka node has can be named here.
func TestLoggersAreKafkas(t *testing.T) {
	have := NewLoggers(slog.LevelInfo).Levels()
	n := 0
	for _, l := range strings.Split(string(fixture.Read(t, "tables/golden/configs-describe-broker-loggers.txt")), "\n") {
		name, _, ok := strings.Cut(strings.TrimSpace(l), "=")
		if !ok || !strings.HasPrefix(l, "  ") {
			continue
		}
		n++
		if have[name] != "INFO" {
			t.Errorf("logger %s is %q", name, have[name])
		}
	}
	if n < 100 {
		t.Errorf("the fixture names %d loggers", n)
	}
	for name, packages := range kafkaLoggers {
		if len(packages) == 0 && strings.Contains(strings.TrimPrefix(name, "org.apache."), ".") {
			t.Errorf("%s stands for nothing", name)
		}
	}
}

// A script: levels are set and taken back, and decide what packages say.
func TestLoggerLevels(t *testing.T) {
	l := NewLoggers(slog.LevelInfo)
	says := func(want string) {
		t.Helper()
		var got []string
		for _, pkg := range []string{"server", "raftloop", "node", "elsewhere"} {
			for _, level := range []slog.Level{LevelTrace, slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError, LevelFatal} {
				if l.Says(pkg, level) {
					if !l.Enabled(level) {
						t.Errorf("%s says something at %v, which isn't enabled", pkg, level)
					}
					got = append(got, pkg+":"+levelName(level))
					break
				}
			}
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("got  %s\nwant %s", s, want)
		}
	}
	is := func(logger, want string) {
		t.Helper()
		if got := l.Levels()[logger]; got != want {
			t.Errorf("%s is %s, want %s", logger, got, want)
		}
	}
	says("server:INFO raftloop:INFO node:INFO elsewhere:INFO")
	l.SetLevel("root", "WARN")
	says("server:WARN raftloop:WARN node:WARN elsewhere:WARN")
	is("kafka.network.Processor", "WARN")
	l.SetLevel("kafka.network.Processor", "DEBUG")
	says("server:DEBUG raftloop:WARN node:WARN elsewhere:WARN")
	is("kafka.network.Processor", "DEBUG")
	is("kafka.network.SocketServer", "WARN")
	l.SetLevel("kafka.network.SocketServer", "ERROR") // the talkative one counts
	says("server:DEBUG raftloop:WARN node:WARN elsewhere:WARN")
	l.SetLevel("kafka.network.Processor", "")
	says("server:ERROR raftloop:WARN node:WARN elsewhere:WARN")
	l.SetLevel("highwater.server", "TRACE")
	says("server:TRACE raftloop:WARN node:WARN elsewhere:WARN")
	l.SetLevel("org.apache.kafka.raft", "FATAL") // above its classes
	says("server:TRACE raftloop:FATAL node:WARN elsewhere:WARN")
	is("org.apache.kafka.raft.KafkaRaftClient", "FATAL")
	l.SetLevel("highwater.server", "")
	l.SetLevel("kafka.network.SocketServer", "")
	l.SetLevel("root", "") // stays
	l.SetLevel("root", "LOUD")
	says("server:WARN raftloop:FATAL node:WARN elsewhere:WARN")
	l.SetLevel("kafka", "DEBUG")
	l.SetLevel("org.apache.kafka.raft", "")
	says("server:DEBUG raftloop:WARN node:DEBUG elsewhere:WARN")
}

// Levels change while others log.
func TestLoggersConcurrently(t *testing.T) {
	l := NewLoggers(slog.LevelInfo)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 200 {
				l.SetLevel("highwater.node", []string{"DEBUG", "", "ERROR"}[i%3])
				l.Says("node", slog.LevelInfo)
				l.Enabled(slog.LevelDebug)
				l.Levels()
			}
		})
	}
	wg.Wait()
}
