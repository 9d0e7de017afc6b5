package processor

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/trace"
	"github.com/seed18712806/lapse/sink/wire"
)

// DefaultMaxClockLead is how far a message may be stamped ahead of other clocks, unless
// Options set another lead.
const DefaultMaxClockLead = 10 * time.Second

const (
	minDuplicateWindow = 100 * time.Millisecond
	defaultReadAhead   = 8192
)

// The times within which a processor forgets.
const (
	// DefaultForgetWithin is the time unless Options set another one.
	DefaultForgetWithin = 8 * 24 * time.Hour
	leastForgetWithin   = time.Second
	leastSyncIntervals  = 4 // in ForgetWithin
)

// DefaultSyncInterval is that of a nats-server, unless Options set another one.
const DefaultSyncInterval = 2 * time.Minute

// Options configure a Processor. The zero value of each is its default. There are many fields: each
// is one option.
type Options struct {
	Prefix    wire.Prefix           // wire.DefaultPrefix
	Shards    int                   // 1 to 64 (1); fixed when the logs are created
	Shard     int                   // the one that this processor applies, from 0
	Logger    *slog.Logger          // none
	Metrics   prometheus.Registerer // none
	Health    *health.Board         // where problems are noted; one of its own
	Trace     trace.Recorder        // of the writes and events that belong to a trace; none
	ReadAhead int                   // messages that are read ahead of what is applied; 8192

	// MaxClockLead is how far a message's stamp may be ahead of both this process's
	// clock and Redis's; 10 seconds.
	MaxClockLead time.Duration

	// Follow is the JetStream domain of another region, which this one is to follow: the streams are made as
	// mirrors of those there. Where there are streams already, these tell whether the region follows another
	// one, and Follow must agree; "" agrees with all.
	Follow string

	// ReplyPrefixes are the beginnings of subjects to which outcomes may be sent, beside
	// wire.ReplyPrefix, such as "_INBOX_acme": none. All processes of a prefix need the
	// same: the one that takes a shard over decides. A change applies from the end of the log on.
	ReplyPrefixes []string

	// OpenCollections lets a write make a collection, with TTL off and a warning in its outcome. Else a collection
	// exists once it was configured, and what addresses another one is refused with 404. A change counts from
	// the end of the log on. All processes of a prefix need the same: the one that takes a shard over decides.
	OpenCollections bool

	// Readers are the accounts of NATS in which lapse keeps a mirror of the stream of events, for readers: none. The
	// processor of shard 0 keeps them.
	Readers []string

	// ForgetWithin is how long bytes of a document may stay, in Redis, the log, the snapshots or the
	// events, after the document has expired or was deleted or overwritten; 8 days. It is at least a
	// second.
	ForgetWithin time.Duration
	Objects      Objects // where to keep snapshots; nil: in JetStream
	// SyncInterval is how long the NATS server may take to have on disk what it has acknowledged (its
	// sync_interval); 0 if it always has. The log is truncated only behind snapshots that are on disk.
	// 2 minutes, and at most a fourth of ForgetWithin.
	SyncInterval *time.Duration

	// The following apply when a stream is created. A stream that exists is changed to
	// them only if they are set.
	Replicas        int            // 1
	LogMaxAge       *time.Duration // for ever
	LogMaxBytes     *int64         // no limit (-1)
	EventsMaxAge    *time.Duration // 7 days, and at most 7/8 of ForgetWithin
	EventsMaxBytes  *int64         // 4032 MiB; less, or no limit, where NATS has no room for that; -1: no limit
	DuplicateWindow *time.Duration // 2 minutes; at least 100 ms
}

// complete validates the options, and sets the defaults.
func (o *Options) complete() error {
	var err error
	if o.Prefix, err = o.Prefix.OrDefault(); err != nil {
		return err
	}
	o.Shards = cmp.Or(o.Shards, 1)
	if o.Shards < 1 || o.Shards > wire.MaxShards {
		return fmt.Errorf("%d shards are not valid: use a number from 1 to %d", o.Shards, wire.MaxShards)
	}
	if o.Shard < 0 || o.Shard >= o.Shards {
		return fmt.Errorf("shard %d is not valid: use a number from 0 to %d", o.Shard, o.Shards-1)
	}
	for _, reply := range o.ReplyPrefixes {
		if err := o.Prefix.CheckReplyPrefix(reply); err != nil {
			return err
		}
	}
	for _, account := range o.Readers {
		if err := CheckReaders(account); err != nil {
			return err
		}
	}
	if w := o.DuplicateWindow; w != nil && *w < minDuplicateWindow {
		return fmt.Errorf("duplicate window %s is not valid: use at least 100ms", *w)
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.MaxClockLead < 0 {
		return fmt.Errorf("clock lead %s is not valid: use a duration over 0", o.MaxClockLead)
	}
	o.MaxClockLead = cmp.Or(o.MaxClockLead, DefaultMaxClockLead)
	o.ForgetWithin = cmp.Or(o.ForgetWithin, DefaultForgetWithin)
	if o.ForgetWithin < leastForgetWithin {
		return fmt.Errorf("%s to forget is not valid: use at least %s", o.ForgetWithin, leastForgetWithin)
	}
	if o.SyncInterval == nil {
		o.SyncInterval = new(time.Duration)
		*o.SyncInterval = DefaultSyncInterval
	}
	if err := CheckSync(*o.SyncInterval, o.ForgetWithin); err != nil {
		return err
	}
	if err := CheckEvents(o.EventsMaxAge, o.ForgetWithin); err != nil {
		return err
	}
	if o.ReadAhead < 0 {
		return fmt.Errorf("%d messages read ahead are not valid: use a number over 0", o.ReadAhead)
	}
	o.ReadAhead = cmp.Or(o.ReadAhead, defaultReadAhead)
	if o.Health == nil {
		o.Health = health.New(o.Logger)
	}
	return nil
}

// CheckReaders refuses the name of an account (--readers) that cannot stand in subjects.
func CheckReaders(account string) error {
	if wire.CheckCollection(account) != nil {
		return fmt.Errorf("account %s is not valid: use the name of an account of NATS, of 1 to 128 of A-Z a-z 0-9 _ -",
			wire.Quote(account))
	}
	return nil
}

// CheckEvents refuses an age of events (--events-max-age) that breaks the promise to forget
// (--forget-within).
func CheckEvents(maxAge *time.Duration, forgetWithin time.Duration) error {
	return streams.CheckEvents(maxAge, forgetWithin)
}

// CheckSync refuses a promise to forget (--forget-within) that cannot be kept, because the log is truncated
// only behind snapshots that are on disk.
func CheckSync(interval, forgetWithin time.Duration) error {
	if interval < 0 {
		return fmt.Errorf("sync interval %s is not valid: use a duration of at least 0", interval)
	}
	if least := leastSyncIntervals * interval; forgetWithin < least {
		return fmt.Errorf("--forget-within %s is too short for a NATS server that syncs every %s: use at least %s, or a "+
			"shorter sync_interval, and name that in --nats-sync-interval", forgetWithin, interval, least)
	}
	return nil
}

// log names the log that the processor applies.
func (o *Options) log() wire.Log { return o.Prefix.Log(o.Shard, o.Shards) }

// streams are the options of the streams, on a server with a maximum payload.
func (o *Options) streams(maxPayload int64) streams.Options {
	return streams.Options{
		Prefix:          o.Prefix,
		Shards:          o.Shards,
		Shard:           o.Shard,
		MaxPayload:      maxPayload,
		Replicas:        o.Replicas,
		LogMaxAge:       o.LogMaxAge,
		LogMaxBytes:     o.LogMaxBytes,
		EventsMaxAge:    o.EventsMaxAge,
		EventsMaxBytes:  o.EventsMaxBytes,
		EventsLongest:   streams.LongestEvents(o.ForgetWithin),
		Objects:         o.Objects == nil,
		DuplicateWindow: o.DuplicateWindow,
		ReplyPrefixes:   o.ReplyPrefixes,
		OpenCollections: o.OpenCollections,
		Logger:          o.Logger,
	}
}

// Lease tells a processor whether its process is to own the shard. Safety does not
// depend on it: it keeps two processes from taking it from each other.
type Lease interface {
	// OK returns an error that is ErrNotOwner if another process is to own it. The
	// processor calls it before each step; it may wait shortly where that is uncertain.
	OK(ctx context.Context) error
	// Fenced is OK after another process was found to have taken the shard over.
	Fenced(ctx context.Context) error
}
