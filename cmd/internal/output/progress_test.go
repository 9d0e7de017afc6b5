package output

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	n := 0
	shown := func() string { n++; return fmt.Sprintf("state %d", n) }

	p := StartProgress(Streams{Err: &out}, false, time.Hour, shown)
	p.Line("an error")
	p.End()
	if got := out.String(); got != "an error\n" {
		t.Errorf("no terminal, not wanted: %q", got)
	}

	out.Reset()
	p = StartProgress(Streams{Err: &out}, true, time.Hour, shown)
	p.Line("an error")
	p.End()
	if got := out.String(); got != "an error\nstate 1\n" {
		t.Errorf("no terminal, wanted: %q", got)
	}

	out.Reset()
	p = &Progress{w: &out, terminal: true, shown: shown}
	p.show()
	p.Line("an error")
	p.show()
	p.show()
	p.clear()
	if got := out.String(); got != "\r\x1b[Kstate 2\r\x1b[Kan error\n\r\x1b[Kstate 3\r\x1b[Kstate 4\n" {
		t.Errorf("a terminal: %q", got)
	}
}

// TestProgressOfTerminal: a terminal gets the state at least every 200 ms, however seldom a file would.
func TestProgressOfTerminal(t *testing.T) {
	for every, want := range map[time.Duration]string{
		time.Hour:             "\r\x1b[Kstate 1\r\x1b[Kstate 2",
		50 * time.Millisecond: "\r\x1b[Kstate 1\r\x1b[Kstate 2\r\x1b[Kstate 3\r\x1b[Kstate 4\r\x1b[Kstate 5",
	} {
		synctest.Test(t, func(t *testing.T) {
			s, screen := terminal(t, "")
			n := 0
			p := StartProgress(s, false, every, func() string { n++; return fmt.Sprintf("state %d", n) })
			time.Sleep(200 * time.Millisecond)
			synctest.Wait()
			p.End()
			if got := screen.String(); got != want+"\n" {
				t.Errorf("every %s: %q", every, got)
			}
		})
	}
}
