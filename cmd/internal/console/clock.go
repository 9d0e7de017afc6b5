package console

import (
	"encoding/json"
	"net/url"
	"strings"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// clockForm is what a form says of the clock of a document, beside its body, and of its target.
type clockForm struct {
	Expires string // as it was typed: an instant, or a duration from now
	Keep    bool   // the TTL goes on counting from where it began
	Error   string // what is wrong with Expires
	Target  string // of the message that its expiry delivers
	// TargetError is what is wrong with Target.
	TargetError string
	headers     []string
}

// clockOf is the form for a document that is there. A message keeps its target, and its time unless
// that is its ttl, or to save it would end it.
func clockOf(doc *Document) clockForm {
	c := clockForm{Target: doc.Target}
	var members map[string]*json.RawMessage // nil of a null
	if c.Target != "" && doc.ExpiresAt != nil && json.Unmarshal(doc.Body, &members) == nil && members["ttl"] == nil {
		c.Expires = doc.ExpiresAt.String()
	}
	return c
}

func (c clockForm) wrong() bool { return c.Error != "" || c.TargetError != "" }

func readClock(form url.Values, now time.Time) clockForm {
	c := clockForm{Expires: strings.TrimSpace(form.Get("expires")), Keep: form.Get("clock") == wire.ClockKeep, Target: strings.TrimSpace(form.Get("target"))}
	if c.Keep {
		c.headers = []string{wire.HeaderClock, wire.ClockKeep}
	}
	if c.Target != "" {
		if err := wire.CheckTarget(c.Target); err != nil {
			c.TargetError = err.Error()
		}
		c.headers = append(c.headers, wire.HeaderTarget, c.Target)
	}
	if c.Expires == "" {
		return c
	}
	at := c.Expires
	if in, err := wire.ParseDuration(at); err == nil && in > 0 && in <= ttlrules.MaxSeconds*time.Second {
		at = now.Add(in).UTC().Format(time.RFC3339Nano)
	} else if _, err := wire.ParseInstant(at); err != nil {
		c.Error = wire.Quote(c.Expires) + " is not valid: use an instant such as 2030-01-31T18:00:00Z, or a duration from now such as 90s, 2h or 7d"
	}
	c.headers = append(c.headers, wire.HeaderExpiresAt, at)
	return c
}
