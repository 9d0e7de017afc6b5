package fold

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// Answer decides the answer to the client that has published a configuration or a drop.
func (d *Decision) Answer(m *Message, rejected *Refusal) {
	switch {
	case rejected != nil:
		d.Reject(m, rejected)
	case m.Kind == Drop:
		d.done(m, wire.Outcome{Status: wire.StatusNoContent, Ts: wire.Time(d.Watermark)})
	default:
		d.done(m, wire.Outcome{Status: wire.StatusOK, Etag: wire.Etag(m.Etag()), Ts: wire.Time(d.Watermark)})
	}
}

// Configured is the configuration of a collection after a message that asks for another, or drops the collection; or
// why the message takes no effect. The order of its checks is that of a write. Every shard comes to the same result:
// that depends on the message and on the present configuration, and not on how much of its history is left.
func Configured(c store.Config, m *Message, at int64, catalog Catalog) (store.Config, *Refusal) {
	want := m.Config
	switch {
	case m.Kind == Malformed: // of the stream of configurations
		return c, m.Rejected
	case m.Kind == Drop:
	case want.NoIndex && c.History.Current() != ttlrules.Off:
		return c, badRequest("indexingMode %q is not allowed while the collection's defaultTtl is set, because "+
			"documents expire by the index: turn TTL off first, with defaultTtl null.", wire.NoIndex)
	case c.NoIndex && want.TTL != ttlrules.Off:
		return c, badRequest("a defaultTtl is not allowed while the collection's indexingMode is %q, because "+
			"documents expire by the index: set indexingMode to %q first.", wire.NoIndex, wire.Consistent)
	}
	switch {
	case !m.IfMatch.Set:
	case c.Etag == 0:
		return c, Refuse(wire.StatusPreconditionFailed, "the collection is not configured, and header %s needs a "+
			"configuration: leave the header out.", wire.HeaderIfMatch)
	case m.IfMatch.Etag != 0 && m.IfMatch.Etag != wire.Etag(c.Etag):
		return c, Refuse(wire.StatusPreconditionFailed, "the configuration's etag is %d, and header %s is %s: read "+
			"the configuration again, and use the etag that it has.", c.Etag, wire.HeaderIfMatch, m.IfMatch.Etag)
	}
	if m.Kind == Drop && c.Etag == 0 && !catalog.AllExist() {
		return c, noCollection(m.Collection, catalog)
	}
	if m.Kind == Drop {
		return store.Config{}, nil
	}
	ttl := want.TTL.Within(want.MaxLife)
	changes := ttl != c.History.Current() || want.NoEventBody != c.NoEventBody()
	if want.Paused && changes && c.ChangedPaused() >= store.MostPausedChanges {
		return c, Refuse(wire.StatusConflict, "collection %s is paused, and its defaultTtl and eventBody were "+
			"changed %d times since: resume it before they are changed again (lapse resume %s).", m.Collection,
			store.MostPausedChanges, m.Collection)
	}
	if c.Paused() && !want.Paused {
		c.Warnings = nil // they count from now on
	}
	c = c.Pause(want.Paused, at, m.Seq)
	c.History = c.History.With(at, m.Seq, ttl)
	if c.MaxLife, c.Default = want.MaxLife, ttlrules.Off; want.MaxLife != 0 {
		c.Default = want.TTL
	}
	c.NoIndex, c.Lazy = want.NoIndex, want.Lazy
	c.MinTTL, c.MaxTTL, c.SlideOnRead, c.Changes = want.MinTTL, want.MaxTTL, want.SlideOnRead, want.Changes
	c.Rules = want.Rules
	c = c.WithIndexes(want.Indexes)
	if want.NoEventBody != c.NoEventBody() {
		c.Bodies = append(slices.Clip(c.Bodies), store.BodyChange{Since: at, Seq: m.Seq})
	}
	c.Warnings = warnings(c.Warnings, want.WarnBefore, at, m.Seq)
	c.Etag = m.Etag()
	return c, nil
}

// warnings are those that a message with a sequence asks for at a log time. One that was asked for
// before counts since then.
func warnings(were []store.Warning, before []int32, at int64, seq uint64) []store.Warning {
	var all []store.Warning
	for _, b := range before {
		w := store.Warning{Before: b, Since: at, Seq: seq}
		if i := slices.IndexFunc(were, func(old store.Warning) bool { return old.Before == b }); i >= 0 {
			w = were[i]
		}
		all = append(all, w)
	}
	return all
}

// mostWarnings is how many warnings a collection may have for each document.
const mostWarnings = 4

// readMore reads the properties of a configuration that are not defaultTtl or indexingMode.
func (c *Requested) readMore(name string, value []byte) *Refusal {
	ok, use := false, ""
	seconds := func(to *int32) {
		use = "a whole number of seconds from 1 to 2147483647, or null for no limit"
		*to, ok = readLimit(value)
	}
	// flag reads a value that is to be either yes or no.
	flag := func(to *bool, yes, no string) {
		use = "true or false"
		*to, ok = string(value) == yes, string(value) == yes || string(value) == no
	}
	switch name {
	case "minTtl":
		seconds(&c.MinTTL)
	case "maxTtl":
		seconds(&c.MaxTTL)
	case "maxLife":
		seconds(&c.MaxLife)
	case "warnBefore":
		use = fmt.Sprintf("a list of at most %d different whole numbers of seconds from 1 to 2147483647, or [] for "+
			"no warnings", mostWarnings)
		c.WarnBefore, ok = readWarnings(value)
	case "slideOnRead":
		use = "true, false, or the part of the TTL that has to be over before a read renews the clock: a number " +
			"over 0 and under 1, such as 0.01"
		var err error
		c.SlideOnRead, err = wire.ParseSlide(value)
		ok = err == nil
	case "changes":
		flag(&c.Changes, "true", "false")
	case "paused":
		flag(&c.Paused, "true", "false")
	case "eventBody":
		flag(&c.NoEventBody, "false", "true")
	case "indexes":
		return c.readIndexes(value)
	default:
		return badRequest("property %s is not known: a configuration has %s.", wire.Quote(name),
			allOf(wire.ConfigProperties))
	}
	if !ok {
		return badRequest("%s %s is not valid: use %s.", name, show(value), use)
	}
	return nil
}

// readLimit reads a number of seconds, as a ttl is written; 0 stands for null.
func readLimit(value []byte) (n int32, ok bool) {
	ttl, err := ttlrules.ParseTTL(value)
	return int32(ttl), err == nil && ttl != ttlrules.Never
}

func readWarnings(value []byte) (before []int32, ok bool) {
	var values []json.RawMessage
	if err := json.Unmarshal(value, &values); err != nil || values == nil || len(values) > mostWarnings {
		return nil, false
	}
	for _, v := range values {
		b, ok := readLimit(v)
		if !ok || b == 0 || slices.Contains(before, b) {
			return nil, false
		}
		before = append(before, b)
	}
	return before, true
}

// readIndexes reads the pointers by whose values documents can be queried.
func (c *Requested) readIndexes(value []byte) *Refusal {
	err := json.Unmarshal(value, &c.Indexes)
	if err != nil || c.Indexes == nil || len(c.Indexes) > wire.MaxIndexes {
		return badRequest("indexes %s is not valid: use a list of at most %d different JSON pointers, such as "+
			"[\"/customer\",\"/seat/row\"], or [] for no indexes.", show(value), wire.MaxIndexes)
	}
	for i, pointer := range c.Indexes {
		if err := entries.CheckPointer(pointer); err != nil {
			return badRequest("indexes %s is not valid: %v", show(value), err)
		}
		if slices.Contains(c.Indexes[:i], pointer) {
			return badRequest("indexes %s is not valid: pointer %s is there twice: name it once.", show(value),
				wire.Quote(pointer))
		}
	}
	return nil
}

// checkLimits refuses limits that exclude each other or the default.
func (c *Requested) checkLimits() *Refusal {
	low, high := c.MinTTL, c.MaxTTL
	switch {
	case c.MaxLife != 0 && c.TTL == ttlrules.Off:
		return badRequest("maxLife needs a defaultTtl: set it to -1 or to a number of seconds, or leave maxLife out.")
	case c.MaxLife != 0 && low > c.MaxLife:
		return badRequest("minTtl %d is greater than maxLife %d: use one that is not.", low, c.MaxLife)
	case low == 0 && high == 0:
		return nil
	case c.TTL == ttlrules.Off:
		return badRequest("minTtl and maxTtl need a defaultTtl: set it to -1 or to a number of seconds, or leave " +
			"them out.")
	case high != 0 && low > high:
		return badRequest("minTtl %d is greater than maxTtl %d: use one that is not.", low, high)
	case high != 0 && c.TTL == ttlrules.NoDefault:
		return badRequest("defaultTtl -1 does not keep to maxTtl %d: use a number of seconds that is not greater.",
			high)
	case high != 0 && int32(c.TTL) > high:
		return badRequest("defaultTtl %d is greater than maxTtl %d: use one that is not.", c.TTL, high)
	case c.TTL != ttlrules.NoDefault && int32(c.TTL) < low:
		return badRequest("defaultTtl %d is less than minTtl %d: use one that is not.", c.TTL, low)
	}
	return nil
}

// exists refuses a write to a collection that does not exist.
func (d *Decision) exists(m *Message, config store.Config) *Refusal {
	if config.Etag != 0 || d.catalog.AllExist() {
		return nil
	}
	return noCollection(m.Collection, d.catalog)
}

func noCollection(collection string, catalog Catalog) *Refusal {
	text := wire.NoCollection(collection, catalog.Nearest(collection))
	return &Refusal{Code: wire.StatusNotFound, Text: text, Reason: wire.ReasonNoCollection}
}

// readRules reads the body of a configuration of [wire.LogRules].
func (d Decoder) readRules(m *Message) *Refusal {
	var open *bool
	var prefixes []string
	ok := true
	for name, value := range Members(m.Body) {
		switch name {
		case "open":
			ok = ok && json.Unmarshal(value, &open) == nil
		case "replyPrefixes":
			ok = ok && json.Unmarshal(value, &prefixes) == nil
		default:
			ok = false
		}
	}
	if !ok || open == nil {
		return badRequest("the rules of the log are not valid: use {\"open\":true} or {\"open\":false}, and " +
			"\"replyPrefixes\" with an array of prefixes, or without it.")
	}
	for _, prefix := range prefixes {
		if err := d.Log.Prefix.CheckReplyPrefix(prefix); err != nil {
			return badRequest("%v", err)
		}
	}
	m.Config.Rules = wire.LogRulesBody{Open: *open, ReplyPrefixes: prefixes}
	return nil
}

// AllExist reports whether every collection exists, also one that is not configured.
func (s *Collections) AllExist() bool {
	return s.Config(wire.LogRules).Rules.Open || s.Unruled()
}

// Inboxes are the beginnings of the subjects to which outcomes may go. They are not known while the shard is unruled.
func (s *Collections) Inboxes() (inboxes []string, known bool) {
	return wire.Inboxes(s.Config(wire.LogRules).Rules.ReplyPrefixes), !s.Unruled()
}

// Unruled reports whether a person has begun the shard anew, and the log has had no rules since: see LacksBeginning.
func (s *Collections) Unruled() bool {
	return s.lacksBeginning && s.Config(wire.LogRules).Etag == 0
}

// LacksBeginning notes that a person has begun the shard anew from a log that may lack configurations. Up to the first
// rules of the log every collection exists then, and every subject is allowed for an outcome: else the writes that are
// left would be rejected.
func (s *Collections) LacksBeginning() { s.lacksBeginning = true }

// Anew is NewCollections, of the same shard: see LacksBeginning.
func (s *Collections) Anew(configs map[string]store.Config, withDocuments []string) *Collections {
	next := NewCollections(configs, withDocuments)
	next.lacksBeginning = s.lacksBeginning
	return next
}

// mostNearest bounds the names that are compared for one rejection, and the answers that are kept.
const mostNearest = 1000

// Nearest is the name of the configured collection that is nearest to one that is not; "" if none is near, or if
// there are very many. The owner keeps the answers until it makes or removes a collection, because a client may repeat
// a misspelt name in every write.
func (s *Collections) Nearest(collection string) string {
	if len(s.all) > mostNearest {
		return ""
	}
	if len(s.near) >= mostNearest || s.near == nil {
		s.near = make(map[string]string)
	}
	nearest, ok := s.near[collection]
	if !ok {
		names := slices.Collect(maps.Keys(s.all))
		names = slices.DeleteFunc(names, func(name string) bool {
			return !s.all[name].stored || IsGeneration(name) || name == wire.LogRules
		})
		nearest = wire.Nearest(collection, names)
		s.near[collection] = nearest
	}
	return nearest
}
