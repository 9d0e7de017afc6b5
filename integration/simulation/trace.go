package simulation

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
)

// trace writes down what happens, if somebody wants to know.
type trace struct {
	began time.Time
	lines *strings.Builder // nil: nobody does
	logs  io.Writer        // of the processes; nil: nobody wants them
}

func (t *trace) printf(format string, args ...any) {
	if t.lines != nil {
		fmt.Fprintf(t.lines, "%12.6f  %s\n", time.Since(t.began).Seconds(), fmt.Sprintf(format, args...))
	}
}

// logger is the logger of a process.
func (t *trace) logger(name string) *slog.Logger {
	if t.logs == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(t.logs, nil)).With(slog.String("process", name))
}
