package transfer

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/output"
)

// progress shows how far a command has come. On a terminal it rewrites one line, elsewhere
// it prints a line each time.
type progress struct {
	w        io.Writer
	terminal bool
	shown    func() string
	stop     chan struct{}
	stopped  chan struct{}

	mu   sync.Mutex
	open bool // the line on the terminal has no newline yet
}

// startProgress starts to show the progress, if w is a terminal or the user wants it.
func startProgress(w io.Writer, wanted bool, every time.Duration, shown func() string) *progress {
	p := &progress{w: w, terminal: output.IsTerminal(w), shown: shown, stop: make(chan struct{}), stopped: make(chan struct{})}
	if !wanted && !p.terminal {
		close(p.stopped)
		return p
	}
	go func() {
		defer close(p.stopped)
		again := time.NewTicker(every)
		defer again.Stop()
		for {
			select {
			case <-again.C:
				p.show()
			case <-p.stop:
				p.show()
				p.clear()
				return
			}
		}
	}()
	return p
}

// end shows the last state and stops.
func (p *progress) end() {
	close(p.stop)
	<-p.stopped
}

func (p *progress) show() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal {
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K%s", p.shown())
		p.open = true
		return
	}
	_, _ = fmt.Fprintln(p.w, p.shown())
}

func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open {
		_, _ = fmt.Fprintln(p.w)
		p.open = false
	}
}

// line prints a line. On a terminal it takes the place of the progress.
func (p *progress) line(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
		p.open = false
	}
	_, _ = fmt.Fprintln(p.w, text)
}
