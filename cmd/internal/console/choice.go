package console

import (
	"fmt"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// The modes: what the default TTL is.
const (
	off   = "off"   // nothing expires
	none  = "none"  // only documents with a ttl of their own expire
	after = "after" // a number of seconds
)

const yes, no = "yes", "no"

// Choice is what the form says.
type Choice struct {
	Mode     string
	After    string // as it was typed
	Indexing wire.Indexing
	Error    string // what is wrong with After; empty if nothing is
	TTL      *int32 // as in a configuration

	// The other properties, as they were typed, and what is wrong with them.
	Min, Max, Warn string
	Slide, Paused  bool
	MoreError      string
	more           wire.Config // these properties alone
}

// wrong reports whether something that was typed is not valid.
func (c Choice) wrong() bool { return c.Error != "" || c.MoreError != "" }

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
	c.readMore(form, now)
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

// readMore reads the properties beside the default and the index; the present ones if the form does
// not have them.
func (c *Choice) readMore(form url.Values, now wire.Config) {
	if !form.Has("slide") {
		c.showMore(now)
		return
	}
	c.Min, c.Max, c.Warn = strings.TrimSpace(form.Get("min")), strings.TrimSpace(form.Get("max")), strings.TrimSpace(form.Get("warn"))
	c.Slide = form.Get("slide") == yes
	c.more = wire.Config{SlideOnRead: c.Slide, EventBody: now.EventBody, Changes: now.Changes, Paused: now.Paused}
	if form.Has("paused") {
		c.more.Paused = form.Get("paused") == yes
	}
	c.Paused = c.more.Paused
	read := func(text string) int32 {
		n, ok := seconds(strings.TrimSpace(text))
		if !ok || n < 1 || n > ttlrules.MaxSeconds {
			c.MoreError = fmt.Sprintf("%s is not valid: use a whole number of seconds from 1 to %d, a duration such as 90s, 2h or 7d, or nothing", wire.Quote(text), ttlrules.MaxSeconds)
		}
		return int32(n)
	}
	if c.Min != "" {
		c.more.MinTTL = read(c.Min)
	}
	if c.Max != "" {
		c.more.MaxTTL = read(c.Max)
	}
	if c.Warn != "" {
		for one := range strings.SplitSeq(c.Warn, ",") {
			c.more.WarnBefore = append(c.more.WarnBefore, read(one))
		}
	}
}

// showMore shows these properties of a configuration.
func (c *Choice) showMore(config wire.Config) {
	c.more = wire.Config{MinTTL: config.MinTTL, MaxTTL: config.MaxTTL, WarnBefore: config.WarnBefore, SlideOnRead: config.SlideOnRead, EventBody: config.EventBody, Changes: config.Changes, Paused: config.Paused}
	for _, limit := range []struct {
		to *string
		n  int32
	}{{&c.Min, config.MinTTL}, {&c.Max, config.MaxTTL}} {
		if limit.n != 0 {
			*limit.to = strconv.Itoa(int(limit.n))
		}
	}
	c.Warn, c.Slide, c.Paused = output.Durations(config.WarnBefore), config.SlideOnRead, config.Paused
}

// choiceOf is the choice that leads to a configuration.
func choiceOf(config wire.Config) Choice {
	c := Choice{Mode: off, Indexing: config.IndexingMode, TTL: config.DefaultTTL}
	c.showMore(config)
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
	return []string{"mode", c.Mode, "after", c.After, "indexing", string(c.Indexing), "min", c.Min, "max", c.Max, "warn", c.Warn, "slide", c.Slides(), "paused", c.Pauses()}
}

// Pauses is whether the collection is paused, as the form has it.
func (c Choice) Pauses() string {
	if c.Paused {
		return yes
	}
	return no
}

// Slides is whether a read touches a document, as the form has it.
func (c Choice) Slides() string {
	if c.Slide {
		return yes
	}
	return no
}

// limits are the limits of the TTL, as parameters of a forecast.
func (c Choice) limits() (parameters []string) {
	for name, n := range map[string]int32{"minTtl": c.more.MinTTL, "maxTtl": c.more.MaxTTL} {
		if n != 0 {
			parameters = append(parameters, name, strconv.Itoa(int(n)))
		}
	}
	return parameters
}

// Default is the default TTL as JSON has it.
func (c Choice) Default() string {
	if c.TTL == nil {
		return "null"
	}
	return strconv.Itoa(int(*c.TTL))
}

// Config is the whole configuration.
func (c Choice) Config() wire.Config {
	config := c.more
	config.DefaultTTL, config.IndexingMode = c.TTL, c.Indexing
	return config
}

// SameDefault reports whether a configuration has the same default TTL.
func (c Choice) SameDefault(as wire.Config) bool { return c.Default() == choiceOf(as).Default() }

// Same reports whether a configuration that was made is the same.
func (c Choice) Same(as wire.Config) bool {
	return as.Etag != 0 && reflect.DeepEqual(c.Config(), as.Published())
}
