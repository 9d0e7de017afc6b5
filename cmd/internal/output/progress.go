package output

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Progress shows how far a command has come. On a terminal it rewrites one line, elsewhere
// it prints a line each time.
type Progress struct {
	w        io.Writer
	terminal bool
	shown    func() string
	stop     chan struct{}
	stopped  chan struct{}

	mu   sync.Mutex
	open bool // the line on the terminal has no newline yet
}

// StartProgress starts to show the progress, if w is a terminal or the user wants it.
func StartProgress(w io.Writer, wanted bool, every time.Duration, shown func() string) *Progress {
	p := &Progress{w: w, terminal: isTerminal(w), shown: shown, stop: make(chan struct{}), stopped: make(chan struct{})}
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

// End shows the last state and stops.
func (p *Progress) End() {
	close(p.stop)
	<-p.stopped
}

func (p *Progress) show() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal {
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K%s", p.shown())
		p.open = true
		return
	}
	_, _ = fmt.Fprintln(p.w, p.shown())
}

func (p *Progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open {
		_, _ = fmt.Fprintln(p.w)
		p.open = false
	}
}

// Line prints a line. On a terminal it takes the place of the progress.
func (p *Progress) Line(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
		p.open = false
	}
	_, _ = fmt.Fprintln(p.w, text)
}
