package simulation

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
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

// commit writes down what a commit does.
func (t *trace) commit(pr store.Progress, configs []store.ConfigChange, changes []store.CollectionChanges) {
	if t.lines == nil {
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
	t.printf("commit up to %d, log time %s:%s", pr.Offset, wire.Time(pr.Watermark), b.String())
}

// logger is the logger of a process.
func (t *trace) logger(name string) *slog.Logger {
	if t.logs == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(t.logs, nil)).With(slog.String("process", name))
}
