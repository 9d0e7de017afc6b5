package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/wire"
)

// Promoted is what a promotion has done.
type Promoted struct {
	wire.Promotion
	Logs []PromotedLog
}

// PromotedLog is where a log begins to be this region's own.
type PromotedLog = streams.Lost

// ErrFirstAnswers: the first region is there, so its writes of this moment would be lost.
var ErrFirstAnswers = errors.New("the first region answers")

// Promote makes the region of a connection, which follows another one, the first. With drain the first region
// hands over: it takes no more writes, and nothing is lost; it has to answer. Without drain it must not answer,
// unless force allows that. by says who promotes, for a person to read.
//
// It may be called again after an error, and goes on then. The processes of the region notice it by themselves.
func Promote(ctx context.Context, nc *nats.Conn, prefix wire.Prefix, by string, drain, force bool) (done Promoted, err error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return done, err
	}
	shards, err := streams.Shards(ctx, js, prefix)
	if err != nil {
		return done, err
	}
	opts := streams.Options{Prefix: prefix, Shards: shards, Objects: true, MaxPayload: nc.MaxPayload(), Logger: slog.New(slog.DiscardHandler)}
	role, err := streams.RoleOf(ctx, js, opts)
	began := role.Promotion
	if err != nil && (!errors.Is(err, streams.ErrPromotion) || began == nil) {
		return done, err
	}
	switch {
	case !role.Exists:
		return done, fmt.Errorf("there is nothing to promote: no log of the prefix %q", prefix)
	case !role.Mirror && began == nil && len(role.Former) > 0:
		return done, fmt.Errorf("this region is the first already: it was promoted %s", role.Former[len(role.Former)-1])
	case !role.Mirror && began == nil:
		return done, errors.New("this region follows no other, so it is the first already")
	}
	from := role.Follows
	if began != nil {
		from = began.From
	}
	origin, err := streams.NewOrigin(nc, from)
	if err != nil {
		return done, err
	}
	domain, err := streams.Domain(ctx, js, from)
	if err != nil {
		return done, err
	}
	promotion := &streams.Promotion{JS: js, Origin: origin, Opts: opts, By: by}
	if err := mayPromote(ctx, origin, domain, opts, drain, force || began != nil); err != nil {
		return done, err
	}
	if drain {
		now := time.Now()
		if err := promotion.Drain(ctx, wire.Promotion{Domain: domain, From: from, At: now.UTC(), By: by}); err != nil {
			return done, err
		}
	}
	if done.Promotion, err = promotion.Begin(ctx, domain); err != nil {
		return done, err
	}
	done.Logs, err = promotion.Run(ctx, done.Promotion)
	return done, err
}

// mayPromote refuses a promotion that would lose what the first region has, without a word, or that would make this
// region, in a domain, the second that takes its place.
func mayPromote(ctx context.Context, origin *streams.Origin, domain string, opts streams.Options, drain, force bool) error {
	asking, cancel := context.WithTimeout(ctx, streams.AnswerTimeout)
	defer cancel()
	info, err := origin.Info(asking, opts.Root())
	switch {
	case err != nil && drain:
		return fmt.Errorf("it cannot hand over: %w", err)
	case err != nil || force:
		return nil
	}
	there, err := wire.ParseRegion(info.Config.Metadata)
	switch {
	case err != nil:
		return fmt.Errorf("the region in the JetStream domain %q: %w", origin.Domain, err)
	case there.Superseded != nil && there.Superseded.Domain != domain:
		return notFirst(origin.Domain, there.Superseded.Domain)
	case there.Follows != "":
		return notFirst(origin.Domain, there.Follows)
	case drain, there.Superseded != nil: // it has handed over before
		return nil
	}
	return fmt.Errorf("%w, in the JetStream domain %q: let it hand over (--from), so that nothing is lost; or stop it first; or give up what it has not sent yet (--force)", ErrFirstAnswers, origin.Domain)
}

// notFirst is the error about a region that is not the first any more.
func notFirst(domain, first string) error {
	return fmt.Errorf("the region in the JetStream domain %q is not the first any more: the one in %q was promoted in its place, "+
		"and there can be one first region: run lapse demote --first %s here, and then lapse serve --follow %s",
		domain, first, first, first)
}
