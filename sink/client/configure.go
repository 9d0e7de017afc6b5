package client

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// Config is the configuration of a collection.
type Config struct {
	// DefaultTTL is the time to live of documents without one of their own: a whole number of
	// seconds from 1 s to 2147483647 s (68 years), or [Never]. 0 means that TTL is off: no
	// document expires.
	DefaultTTL time.Duration
	// Indexing is whether there is an expiry index; wire.Consistent if empty.
	Indexing wire.Indexing
	// MinTTL and MaxTTL limit the time to live of what is written, in whole seconds; 0 is no limit.
	// They need a DefaultTTL within them. A write that does not keep to them is an [ErrRejected]; a
	// document that exists is left as it is.
	MinTTL, MaxTTL time.Duration
	// WarnBefore are up to four times, in whole seconds, before the deadline of a document at which a
	// warning is published: see [Collection.OnExpiring].
	WarnBefore []time.Duration
	// MaxLife is how long a document lives at most after it was created, in whole seconds, whatever renews it; 0 is no
	// limit. It needs a DefaultTTL.
	MaxLife time.Duration
	// SlideOnRead renews the clock of a document that is read with get, once more than a part of its
	// TTL has passed: a tenth, or SlideAfter. An absolute deadline does not slide.
	SlideOnRead bool
	// SlideAfter is the part of the TTL after which a read renews, over 0 and under 1. If it is 0, it is a tenth. With
	// 0.01 a document that nobody reads for 30 minutes lives between 29.7 and 30 minutes.
	SlideAfter float64
	// NoEventBody lets expiry events go without the document: they come as Omitted.
	NoEventBody bool
	// Changes has each write that takes effect published: see [Collection.Watch].
	Changes bool
	// Paused holds back what expires: it is hidden from reads, and gets its event when the collection is resumed, which is
	// to configure it without Paused.
	Paused bool
	// Indexes are up to 8 JSON pointers (RFC 6901), such as "/customer", by whose values the documents can be queried:
	// see [Collection.Query].
	Indexes []string
	// Etag is that of this configuration, 0 if the collection was never configured. It is only
	// read: to change the configuration on the condition that nobody else has, use [IfMatch].
	Etag wire.Etag
}

// Configure sets the whole configuration. It counts at once, also for the documents that
// exist. What it makes expire stays expired, whatever is configured later.
func (o *Collection[T]) Configure(ctx context.Context, config Config, options ...Option) (Written, error) {
	ttl, err := defaultSeconds(config.DefaultTTL)
	if err != nil {
		return Written{}, o.wrap("", err)
	}
	asked := wire.Config{DefaultTTL: ttl, IndexingMode: config.Indexing, Changes: config.Changes, Paused: config.Paused,
		Indexes: config.Indexes}
	if config.SlideOnRead {
		asked.SlideOnRead = cmp.Or(wire.Slide(config.SlideAfter), wire.SlideTenth)
	}
	if config.NoEventBody {
		asked.EventBody = new(bool)
	}
	if asked.MinTTL, err = wholeSeconds("MinTTL", config.MinTTL); err != nil {
		return Written{}, o.wrap("", err)
	}
	if asked.MaxTTL, err = wholeSeconds("MaxTTL", config.MaxTTL); err != nil {
		return Written{}, o.wrap("", err)
	}
	if asked.MaxLife, err = wholeSeconds("MaxLife", config.MaxLife); err != nil {
		return Written{}, o.wrap("", err)
	}
	switch after := config.SlideAfter; {
	case after != 0 && !config.SlideOnRead:
		return Written{}, o.wrap("", invalid("SlideAfter belongs to SlideOnRead: set both, or leave SlideAfter out"))
	case !(after >= 0 && after < 1):
		return Written{}, o.wrap("", invalid("SlideAfter %v is not valid: use a number over 0 and under 1, or 0 for a tenth",
			after))
	}
	for _, d := range config.WarnBefore {
		before, err := wholeSeconds("WarnBefore", d)
		if err != nil {
			return Written{}, o.wrap("", err)
		}
		asked.WarnBefore = append(asked.WarnBefore, before)
	}
	body, err := json.Marshal(asked)
	if err != nil {
		return Written{}, o.wrap("", err)
	}
	return o.send(ctx, o.c.l.Prefix.Config(o.name), body, options)
}

// Drop removes the configuration and all live documents, without expiry events. What had
// expired before still gets its event.
func (o *Collection[T]) Drop(ctx context.Context, options ...Option) (Written, error) {
	return o.send(ctx, o.c.l.Prefix.Drop(o.name), nil, options)
}

// send sends a configuration or a drop.
func (o *Collection[T]) send(ctx context.Context, subject string, body []byte, options []Option) (Written, error) {
	s, err := settle(options)
	if err == nil && s.document() {
		err = invalid("a configuration and a drop have no document: leave the options TTL, ExpiresAt, NotAfter, KeepClock, " +
			"ClockFrom, Target and ID out")
	}
	if err != nil {
		return Written{}, o.wrap("", err)
	}
	w, err := newWritten(o.c.write(ctx, s.message(subject, body), s.ackOnly))
	return w, o.wrap("", err)
}

// Config reads the configuration. If the collection does not exist, the error is [ErrNoCollection].
func (o *Collection[T]) Config(ctx context.Context) (Config, error) {
	found, err := o.c.Config(ctx, o.name)
	if err != nil {
		return Config{}, o.wrap("", err)
	}
	config := Config{Indexing: found.IndexingMode, Etag: found.Etag, SlideOnRead: found.SlideOnRead != 0,
		Changes: found.Changes, Paused: found.Paused, Indexes: found.Indexes, NoEventBody: found.EventBody != nil &&
			!*found.EventBody,
		MinTTL: time.Duration(found.MinTTL) * time.Second, MaxTTL: time.Duration(found.MaxTTL) * time.Second,
		MaxLife: time.Duration(found.MaxLife) * time.Second}
	if found.SlideOnRead != wire.SlideTenth {
		config.SlideAfter = float64(found.SlideOnRead)
	}
	for _, before := range found.WarnBefore {
		config.WarnBefore = append(config.WarnBefore, time.Duration(before)*time.Second)
	}
	switch ttl := found.DefaultTTL; {
	case ttl == nil:
	case *ttl == int32(ttlrules.NoDefault):
		config.DefaultTTL = Never
	default:
		config.DefaultTTL = time.Duration(*ttl) * time.Second
	}
	return config, nil
}

// wholeSeconds is a duration of a configuration in seconds. Whether it is in the range, lapse decides.
func wholeSeconds(what string, d time.Duration) (int32, error) {
	n, err := seconds(d)
	if err != nil || n < 0 {
		return 0, invalid("%s %s is not valid: use a whole number of seconds from 1 s to %d s", what, d, ttlrules.MaxSeconds)
	}
	return n, nil
}

// defaultSeconds is a default TTL as it is on the wire.
func defaultSeconds(d time.Duration) (*int32, error) {
	n, err := seconds(d)
	switch {
	case err != nil:
		return nil, invalid("default TTL %s is not valid: use a whole number of seconds from 1 s to %d s, client.Never, or "+
			"0 for off", d, ttlrules.MaxSeconds)
	case n == 0:
		return nil, nil
	}
	return &n, nil
}
