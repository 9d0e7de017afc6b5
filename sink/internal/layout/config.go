package layout

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// Config is the configuration of a collection as a shard stores it.
type Config struct {
	History ttlrules.History
	NoIndex bool // indexing mode "none": a rule alone, that no default TTL may be set; the index is kept all the same
	Lazy    bool // indexing mode "lazy": stored and reported, and handled as consistent
	// MinTTL and MaxTTL are the limits of the TTL that counts for what is written, in seconds; 0 if
	// there is none.
	MinTTL, MaxTTL int32
	// MaxLife is how long a document lives at most from its creation on, in seconds; 0 if there is no limit. Default is
	// the configured default then, while History has the one that counts (ttlrules.Default.Within).
	MaxLife     int32
	Default     ttlrules.Default
	Warnings    []Warning         // what the property warnBefore asks for, in its order
	SlideOnRead wire.Slide        // the part of the TTL after which a read renews
	Changes     bool              // each write that takes effect is published
	Rules       wire.LogRulesBody // of [wire.LogRules] alone
	// Bodies are the changes of the property eventBody that still matter, in log order: from the first on
	// events go without the document, from the second on they have it again, and so on.
	Bodies []BodyChange
	// Pauses are the times of the property paused that still matter, in log order. Only the last may be open.
	Pauses []Pause
	// Bands has, for each band of the index of those that inherit but the first, the log sequence of the epoch from which
	// on the history counts there. See [ttlrules.History.Admits].
	Bands []uint64
	// Indexes are the pointers of the property indexes, in its order, each with its slot.
	Indexes []PropertyIndex
	// Etag is the log sequence of the message that made this configuration; 0 if
	// there was none.
	Etag uint64
}

// Warning is one of the seconds of warnBefore, and the message since which it counts.
type Warning struct {
	Before int32  // seconds before the deadline
	Since  int64  // log time, Unix milliseconds
	Seq    uint64 // log sequence
}

// BodyChange is the message that changed the property eventBody.
type BodyChange struct {
	Since int64  // log time, Unix milliseconds
	Seq   uint64 // log sequence
}

// NoEventBody reports whether events go without the document at present.
func (c Config) NoEventBody() bool { return len(c.Bodies)%2 == 1 }

// OmitsDocument reports whether the event of a document that expired so goes without it. As with the
// default TTL, what counts is the configuration of the instant at which the document expired.
func (c Config) OmitsDocument(x ttlrules.Expiry) (omits bool) {
	for _, b := range c.Bodies {
		if x.At > b.Since || x.At == b.Since && x.Seq >= b.Seq {
			omits = !omits
		}
	}
	return omits
}

// Settled is the configuration without what no longer matters once no document is due.
func (c Config) Settled() Config {
	if c.Paused() {
		return c.drained()
	}
	c.History, c.Pauses = c.History.Settled(), nil
	c.Bodies = c.Bodies[len(c.Bodies)-len(c.Bodies)%2:]
	return c
}

// Band is the history that counts for a band of the index of those that inherit.
func (c Config) Band(band int) ttlrules.History {
	if band == 0 {
		return c.History
	}
	return c.History.From(c.Bands[band-1])
}

// InheritCut is the greatest score in a band at which a document is expired at an instant, in milliseconds from where
// the band begins; [ttlrules.NoCut] if none is.
func (c Config) InheritCut(band int, now int64) int64 { return c.Band(band).Cuts(now).Inherit }

// Admit finds a place in the index for a version: a band, which a new configuration has if it is not c. ok is false if
// there is none until the history is settled.
func (c Config) Admit(clock ttlrules.Clock) (in Config, band int, ok bool) {
	if c.History.Admits(clock) {
		return c, 0, !c.underPause(clock)
	}
	if _, index := clock.Score(); index != ttlrules.ByInherit {
		return c, 0, false
	}
	since := c.History[len(c.History)-1].Seq
	if i := slices.Index(c.Bands, since); i >= 0 {
		return c, i + 1, true
	}
	if len(c.Bands) == ttlrules.MaxBands {
		return c, 0, false
	}
	c.Bands = append(slices.Clip(c.Bands), since)
	return c, len(c.Bands), true
}

// Configured is the default that was configured, which counts for documents that were written once only within MaxLife.
func (c Config) Configured() ttlrules.Default {
	if c.MaxLife != 0 {
		return c.Default
	}
	return c.History.Current()
}

// Live is the header of a version that is written or renewed at an instant, as MaxLife limits it. was is that of the
// version before, nil if the document had none. The document was created when either says so, whichever is sooner, and
// not after its clock began: no write lengthens its life.
func (c Config) Live(h Header, was *Header, at int64) Header {
	created := h.created()
	if was != nil {
		created = min(created, was.created())
	}
	h.SetClock(h.Clock().Within(c.MaxLife, c.Configured(), created, at))
	if h.Created = 0; h.Limit != 0 {
		h.Created = created
	}
	return h
}

// Wire returns the configuration as clients see it.
func (c Config) Wire() wire.Config {
	w := wire.Config{IndexingMode: wire.Consistent, Etag: wire.Etag(c.Etag),
		MinTTL: c.MinTTL, MaxTTL: c.MaxTTL, MaxLife: c.MaxLife, SlideOnRead: c.SlideOnRead, Changes: c.Changes,
		Paused: c.Paused()}
	if c.NoEventBody() {
		w.EventBody = new(bool)
	}
	for _, warning := range c.Warnings {
		w.WarnBefore = append(w.WarnBefore, warning.Before)
	}
	w.Indexes = c.Pointers()
	switch {
	case c.NoIndex:
		w.IndexingMode = wire.NoIndex
	case c.Lazy:
		w.IndexingMode = wire.Lazy
	}
	if d := c.Configured(); d != ttlrules.Off {
		n := int32(d)
		w.DefaultTTL = &n
	}
	return w
}

// storedConfig is the JSON of a Config. An epoch is [since, seq, default], a warning [since, seq, before], a change of
// the bodies [since, seq], a pause [since, seq, until, seq, drained]; the last one has no end if it is open. An index
// is [pointer, slot].
type storedConfig struct {
	Epochs   [][3]int64         `json:"epochs"`
	NoIndex  bool               `json:"noIndex,omitempty"`
	Lazy     bool               `json:"lazy,omitempty"`
	MinTTL   int32              `json:"minTtl,omitempty"`
	MaxTTL   int32              `json:"maxTtl,omitempty"`
	MaxLife  int32              `json:"maxLife,omitempty"`
	Default  int32              `json:"default,omitempty"`
	Warnings [][3]int64         `json:"warnings,omitempty"`
	Slide    wire.Slide         `json:"slideOnRead,omitempty"`
	Changes  bool               `json:"changes,omitempty"`
	Rules    *wire.LogRulesBody `json:"rules,omitempty"`
	Bodies   [][2]int64         `json:"bodies,omitempty"`
	Pauses   [][5]int64         `json:"pauses,omitempty"`
	Bands    []uint64           `json:"bands,omitempty"`
	Indexes  [][2]any           `json:"indexes,omitempty"`
	Etag     uint64             `json:"etag,omitempty"`
}

// Encode writes a configuration as DecodeConfig reads it.
func (c Config) Encode() string {
	s := storedConfig{NoIndex: c.NoIndex, Lazy: c.Lazy, Etag: c.Etag, Bands: c.Bands, Epochs: [][3]int64{},
		MinTTL: c.MinTTL, MaxTTL: c.MaxTTL, MaxLife: c.MaxLife, Default: int32(c.Default), Slide: c.SlideOnRead,
		Changes: c.Changes}
	if !c.Rules.Equal(wire.LogRulesBody{}) {
		s.Rules = &c.Rules
	}
	for _, b := range c.Bodies {
		s.Bodies = append(s.Bodies, [2]int64{b.Since, int64(b.Seq)})
	}
	for _, p := range c.Pauses {
		s.Pauses = append(s.Pauses, p.encode())
	}
	for _, w := range c.Warnings {
		s.Warnings = append(s.Warnings, [3]int64{w.Since, int64(w.Seq), int64(w.Before)})
	}
	for _, x := range c.Indexes {
		s.Indexes = append(s.Indexes, [2]any{x.Pointer, x.Slot})
	}
	for _, e := range c.History {
		s.Epochs = append(s.Epochs, [3]int64{e.Since, int64(e.Seq), int64(e.Default)})
	}
	b, _ := json.Marshal(s) // numbers, booleans and texts: cannot fail
	return string(b)
}

// DecodeConfig reads a stored configuration. An empty text is the configuration of a
// collection that was never configured.
func DecodeConfig(raw string) (Config, error) {
	if raw == "" {
		return Config{}, nil
	}
	var s storedConfig
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		return Config{}, fmt.Errorf("a stored configuration is not one of lapse: %w", err)
	}
	c := Config{NoIndex: s.NoIndex, Lazy: s.Lazy, Etag: s.Etag, Bands: s.Bands,
		MinTTL: s.MinTTL, MaxTTL: s.MaxTTL, MaxLife: s.MaxLife, Default: ttlrules.Default(s.Default), SlideOnRead: s.Slide,
		Changes: s.Changes}
	if s.Rules != nil {
		c.Rules = *s.Rules
	}
	if c.MaxLife < 0 || c.MaxLife != 0 && c.Default == ttlrules.Off || c.Default < ttlrules.NoDefault {
		return Config{}, fmt.Errorf("a stored configuration is not one of lapse: maxLife %d with default %d", s.MaxLife,
			s.Default)
	}
	for _, b := range s.Bodies {
		c.Bodies = append(c.Bodies, BodyChange{Since: b[0], Seq: uint64(b[1])})
	}
	for _, p := range s.Pauses {
		c.Pauses = append(c.Pauses, decodePause(p))
	}
	for _, w := range s.Warnings {
		if w[2] < 1 || w[2] > ttlrules.MaxSeconds {
			return Config{}, fmt.Errorf("a stored configuration is not one of lapse: warning %v", w)
		}
		c.Warnings = append(c.Warnings, Warning{Since: w[0], Seq: uint64(w[1]), Before: int32(w[2])})
	}
	since := int64(math.MinInt64)
	for _, e := range s.Epochs {
		if e[0] < since || e[2] < -1 || e[2] > ttlrules.MaxSeconds {
			return Config{}, fmt.Errorf("a stored configuration is not one of lapse: epoch %v", e)
		}
		since = e[0]
		c.History = append(c.History, ttlrules.Epoch{Since: e[0], Seq: uint64(e[1]), Default: ttlrules.Default(e[2])})
	}
	for _, since := range s.Bands {
		if len(c.History.From(since)) == 0 || len(s.Bands) > ttlrules.MaxBands {
			return Config{}, fmt.Errorf("a stored configuration is not one of lapse: %d bands, one from %d on", len(s.Bands),
				since)
		}
	}
	var ok bool
	if c.Indexes, ok = decodeIndexes(s.Indexes); !ok {
		return Config{}, fmt.Errorf("a stored configuration is not one of lapse: indexes %v", s.Indexes)
	}
	return c, nil
}

// ConfigCache decodes configurations and remembers them, because every read needs one and few
// of them differ. Its zero value is ready for use, also concurrently.
type ConfigCache struct {
	decoded sync.Map // stored configuration → Config
	n       atomic.Int32
}

// mostCached limits how many configurations a cache remembers.
const mostCached = 1024

// Decode is DecodeConfig. Its error is an [ErrForeign].
func (c *ConfigCache) Decode(raw string) (Config, error) {
	if config, ok := c.decoded.Load(raw); ok {
		return config.(Config), nil
	}
	config, err := DecodeConfig(raw)
	if err != nil {
		return config, fmt.Errorf("%w: %w", ErrForeign, err)
	}
	if c.n.Add(1) > mostCached {
		c.decoded.Clear()
		c.n.Store(1)
	}
	c.decoded.Store(raw, config)
	return config, nil
}
