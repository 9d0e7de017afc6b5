package console

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// The modes: what the default TTL is.
const (
	off   = "off"   // nothing expires
	none  = "none"  // only documents with a ttl of their own expire
	after = "after" // a number of seconds
)

// Choice is what the form says.
type Choice struct {
	Mode     string
	After    string // as it was typed
	Indexing wire.Indexing
	Error    string // what is wrong with After; empty if nothing is
	TTL      *int32 // as in a configuration
}

// choiceMade reports whether somebody has chosen anything in a form.
func choiceMade(form url.Values) bool { return form.Has("mode") }

// readChoice reads a form; the present configuration if nothing was chosen.
func readChoice(form url.Values, now wire.Config) Choice {
	if !choiceMade(form) {
		return choiceOf(now)
	}
	c := Choice{Mode: form.Get("mode"), After: strings.TrimSpace(form.Get("after")), Indexing: wire.Indexing(form.Get("indexing"))}
	if c.Indexing == "" {
		c.Indexing = now.IndexingMode
	}
	switch c.Mode {
	case off:
	case none:
		c.TTL = pointer(int32(ttlrules.NoDefault))
	default:
		c.Mode = after
		n, ok := seconds(c.After)
		if !ok || n < 1 || n > ttlrules.MaxSeconds {
			c.Error = fmt.Sprintf("%s is not valid: use a whole number of seconds from 1 to %d, or a duration such as 90s, 2h or 7d", wire.Quote(c.After), ttlrules.MaxSeconds)
			return c
		}
		c.TTL = pointer(int32(n))
	}
	return c
}

// choiceOf is the choice that leads to a configuration.
func choiceOf(config wire.Config) Choice {
	c := Choice{Mode: off, Indexing: config.IndexingMode, TTL: config.DefaultTTL}
	switch ttl := config.DefaultTTL; {
	case ttl == nil:
	case *ttl == int32(ttlrules.NoDefault):
		c.Mode = none
	default:
		c.Mode, c.After = after, strconv.Itoa(int(*ttl))
	}
	return c
}

// seconds reads a number of seconds, or a duration of whole seconds.
func seconds(text string) (n int64, ok bool) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	d, err := wire.ParseDuration(text)
	return int64(d / time.Second), err == nil && d%time.Second == 0
}

func pointer(n int32) *int32 { return &n }

// Parameters are the parameters of a path that lead to the same choice.
func (c Choice) Parameters() []string {
	return []string{"mode", c.Mode, "after", c.After, "indexing", string(c.Indexing)}
}

// Default is the default TTL as JSON has it.
func (c Choice) Default() string {
	if c.TTL == nil {
		return "null"
	}
	return strconv.Itoa(int(*c.TTL))
}

// Config is the whole configuration.
func (c Choice) Config() wire.Config { return wire.Config{DefaultTTL: c.TTL, IndexingMode: c.Indexing} }

// SameDefault reports whether a configuration has the same default TTL.
func (c Choice) SameDefault(as wire.Config) bool { return c.Default() == choiceOf(as).Default() }

// Same reports whether a configuration that was made is the same.
func (c Choice) Same(as wire.Config) bool {
	return as.Etag != 0 && c.Indexing == as.IndexingMode && c.SameDefault(as)
}
