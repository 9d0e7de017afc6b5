// Package trace writes down what happens in the simulated world.
package trace

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// Trace writes down what happens, if somebody wants to know.
type Trace struct {
	Began time.Time
	Lines *strings.Builder // nil: nobody does
	Logs  io.Writer        // of the processes; nil: nobody wants them
}

// Printf writes down an event.
func (t *Trace) Printf(format string, args ...any) {
	if t.Lines != nil {
		fmt.Fprintf(t.Lines, "%12.6f  %s\n", time.Since(t.Began).Seconds(), fmt.Sprintf(format, args...))
	}
}

// Commit writes down what a commit does.
func (t *Trace) Commit(pr store.Progress, configs []store.ConfigChange, changes []store.CollectionChanges) {
	if t.Lines == nil {
		return
	}
	var b strings.Builder
	for _, c := range configs {
		fmt.Fprintf(&b, " config %q", c.Collection)
	}
	for _, c := range changes {
		fmt.Fprintf(&b, " %q", c.Collection)
		if c.Drop != store.DropNothing {
			fmt.Fprintf(&b, " drop(%d)", c.Drop)
		}
		for _, d := range c.Changes {
			sign := '+'
			if d.New == nil {
				sign = '-'
			}
			fmt.Fprintf(&b, " %c%s", sign, d.ID)
		}
	}
	t.Printf("commit up to %d, log time %s:%s", pr.Offset, wire.Time(pr.Watermark), b.String())
}

// Logger is the logger of a process.
func (t *Trace) Logger(name string) *slog.Logger {
	if t.Logs == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(t.Logs, nil)).With(slog.String("process", name))
}
