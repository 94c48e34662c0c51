package cli

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// toolLog writes what Kafka's tools log: lines on standard error in log4j's form, from WARN up.
type toolLog struct {
	mu sync.Mutex
	w  io.Writer // guarded by mu
}

// Line logs; more is what follows on lines of its own, such as an exception.
func (l *toolLog) Line(level, logger, text string, more ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := fmt.Sprintf("[%s] %s %s (%s)\n", time.Now().Format("2006-01-02 15:04:05,000"), level, text, logger)
	for _, m := range more {
		s += m + "\n"
	}
	// Where standard error can't be written to there is nobody to tell.
	_, _ = io.WriteString(l.w, s)
}
