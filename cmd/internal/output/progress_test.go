package output

import (
	"bytes"
	"fmt"
	"testing"
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
