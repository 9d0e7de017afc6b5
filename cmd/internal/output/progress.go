package output

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// clearLine has a terminal remove the line on which it is.
const clearLine = "\r\x1b[K"

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

// StartProgress starts to show the progress on standard error, if that is a terminal or the user
// wants it.
func StartProgress(streams Streams, wanted bool, every time.Duration, shown func() string) *Progress {
	p := &Progress{w: streams.Err, terminal: streams.ErrIsTerminal(), shown: shown, stop: make(chan struct{}),
		stopped: make(chan struct{})}
	if p.terminal {
		every = min(every, 200*time.Millisecond)
	}
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
		text := []rune(p.shown())
		// a line that wraps would stay
		_, _ = fmt.Fprint(p.w, command(p.w, clearLine)+string(text[:min(len(text), width(p.w)-1)]))
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
		_, _ = fmt.Fprint(p.w, command(p.w, clearLine))
		p.open = false
	}
	_, _ = fmt.Fprintln(p.w, text)
}

// Bar is one line about work of which the whole is known: how much of it is done, how many of its
// parts, how many of them a second, and how long the rest will take at that rate. before is how much
// was done when the time began.
func Bar(what string, before, done, whole, parts int64, elapsed time.Duration) string {
	const width = 24
	share := 1.0
	if whole > 0 {
		share = min(1, float64(done)/float64(whole))
	}
	full := int(share * width)
	line := fmt.Sprintf("%s [%s%s] %3d%%", what, strings.Repeat("=", full), strings.Repeat(" ", width-full),
		int(share*100))
	line += fmt.Sprintf("  %s", Grouped(parts))
	if seconds := elapsed.Seconds(); seconds > 0 && done > before {
		line += fmt.Sprintf("  %s/s", Grouped(int64(float64(parts)/seconds)))
		if done < whole {
			left := time.Duration(float64(whole-done) / float64(done-before) * float64(elapsed))
			line += fmt.Sprintf("  %s left", (left + time.Second).Truncate(time.Second))
		}
	}
	return line
}
