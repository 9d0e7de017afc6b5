package oracle

import (
	"bytes"
	"regexp"

	"github.com/seed18712806/lapse/integration/oracle/patch"
	"github.com/seed18712806/lapse/sink/wire"
)

var targets = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,7}$`)

// isTarget reports whether a version may have this target.
func isTarget(text string) bool { return len(text) <= 128 && targets.MatchString(text) }

// target is the target of a version that a message writes in place of another one, which may not exist.
func target(msg Message, op wire.Op, old Document) string {
	if op == wire.Touch || op == wire.Patch {
		return old.Target
	}
	return header(msg, "Lapse-Target")
}

// traceBeside is the traceparent of a version with a target, where a long one is cut to those of version 00.
func traceBeside(trace string) string {
	if len(trace) <= 81 {
		return trace
	}
	return "00" + trace[2:55]
}

// compareDue compares the body of a due message, and what only it has, with the version that has expired.
func compareDue(compare func(what string, got, want any), msg Message, e notice) {
	compare("Lapse-Target", value(msg, "Lapse-Target"), e.Target)
	if same := bytes.Equal(msg.Data, e.Body); !same && !(e.Merged && patch.Same(msg.Data, e.Body)) {
		compare("body", abbreviate(msg.Data), abbreviate(e.Body))
	}
}
