package server

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// limiter lets through at most ten lines a second of what peers can provoke, so that a hostile one cannot fill the disk
// with our log; what it swallowed it counts and tells with the next line.
type limiter struct {
	log *slog.Logger

	mu     sync.Mutex // guards what follows
	second int64
	lines  int
	missed int
}

const linesPerSecond = 10

func newLimiter(log *slog.Logger) *limiter { return &limiter{log: log} }

func (l *limiter) say(level slog.Level, message string, attrs ...any) {
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	l.mu.Lock()
	if now := time.Now().Unix(); now != l.second {
		l.second, l.lines = now, 0
	}
	l.lines++
	if l.lines > linesPerSecond {
		l.missed++
		l.mu.Unlock()
		return
	}
	missed := l.missed
	l.missed = 0
	l.mu.Unlock()
	if missed > 0 {
		attrs = append(attrs, "suppressed", missed)
	}
	l.log.Log(context.Background(), level, message, attrs...)
}
