package processor

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/wire"
)

// Promoted is what a promotion has done.
type Promoted struct {
	wire.Promotion
	Plan streams.Plan
	Logs []PromotedLog
}

// PromotedLog is where a log begins to be this region's own.
type PromotedLog = streams.Lost

// SeenRegion is what the processes of a region say.
type SeenRegion = streams.Seen

// ErrFirstAnswers: the first region is there, so its writes of this moment would be lost.
var ErrFirstAnswers = streams.ErrFirstAnswers

// PromoteOptions say how to promote a region.
type PromoteOptions struct {
	By string // who promotes, for a person to read
	// the first region hands over: it takes no more writes, and nothing is lost. Otherwise it must not answer
	Drain  bool
	Force  bool // what the plan says that a person can override is overridden
	DryRun bool // only plan
	// Seen asks what the processes of the region say. It may be nil.
	Seen func(context.Context) (SeenRegion, error)
}

// Promote makes the region of a connection, which follows another one, the first. It finds out first whether all of it
// may and can be done, and changes nothing if not.
//
// It may be called again after an error, and goes on then; or UndoPromotion takes it back until it begins to change the
// streams here. The processes of the region notice it by themselves.
func Promote(ctx context.Context, nc *nats.Conn, prefix wire.Prefix, opts PromoteOptions) (done Promoted, err error) {
	p, role, err := newPromotion(ctx, nc, prefix, opts.By)
	if err != nil {
		return done, err
	}
	if p == nil { // it follows none
		plan := streams.PlanPromotion(&streams.Facts{Role: role}, streams.Options{Prefix: prefix})
		return Promoted{Plan: plan}, plan.Err()
	}
	if done.Plan, err = planPromotion(ctx, p, role, opts); err != nil {
		return done, err
	}
	if err := done.Plan.Err(); err != nil || opts.DryRun {
		return done, err
	}
	p.Force = opts.Force
	if done.Promotion, err = p.Begin(ctx, opts.Drain); err != nil {
		return done, err
	}
	if opts.Drain {
		if err := p.Drain(ctx, done.Promotion); err != nil {
			return done, err
		}
	}
	done.Logs, err = p.Run(ctx, done.Promotion)
	return done, err
}

// UndoPromotion takes a promotion back that has begun and does not change the streams of the region yet. The first
// region goes on, if it was asked to hand over.
func UndoPromotion(ctx context.Context, nc *nats.Conn, prefix wire.Prefix) error {
	p, role, err := newPromotion(ctx, nc, prefix, "")
	if err != nil {
		return err
	}
	if role.Promotion == nil {
		return errors.New("no promotion of this region has begun that has not ended: there is nothing to undo")
	}
	return p.Undo(ctx, role)
}

// newPromotion makes a promotion of the region of a connection; nil if that follows no other.
func newPromotion(ctx context.Context, nc *nats.Conn, prefix wire.Prefix, by string) (p *streams.Promotion,
	role streams.Role, err error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, role, err
	}
	shards, err := streams.Shards(ctx, js, prefix)
	if err != nil {
		return nil, role, err
	}
	opts := streams.Options{Prefix: prefix, Shards: shards, Objects: true, MaxPayload: nc.MaxPayload(),
		Logger: slog.New(slog.DiscardHandler)}
	role, err = streams.RoleOf(ctx, js, opts)
	from := role.Follows
	switch {
	case errors.Is(err, streams.ErrPromotion) && role.Promotion != nil:
		from = role.Promotion.From
	case errors.Is(err, streams.ErrSuperseded):
		return nil, role, nil
	case err != nil:
		return nil, role, err
	case from == "":
		return nil, role, nil
	}
	origin, err := streams.NewOrigin(nc, from)
	if err != nil {
		return nil, role, err
	}
	domain, err := streams.Domain(ctx, js, from)
	return &streams.Promotion{JS: js, Origin: origin, Opts: opts, Domain: domain, By: by}, role, err
}

// seesWithin is for how long a promotion waits for the processes to notice that the first region does not answer.
const seesWithin, seesAgain = 15 * time.Second, 250 * time.Millisecond

// planPromotion reads what a promotion depends on, and plans it. Where the first region is silent it waits shortly for
// the processes here to say so too.
func planPromotion(ctx context.Context, p *streams.Promotion, role streams.Role,
	opts PromoteOptions) (plan streams.Plan, err error) {
	if opts.Drain && !opts.Force && !opts.DryRun && role.Promotion == nil {
		if err := p.Near(ctx); err != nil && !errors.Is(err, streams.ErrOrigin) {
			return plan, err
		}
	}
	facts, err := p.Facts(ctx, role, opts.Drain, opts.Force)
	if err != nil {
		return plan, err
	}
	for began := time.Now(); opts.Seen != nil; {
		seen, err := opts.Seen(ctx)
		if err != nil {
			return plan, err
		}
		facts.Seen = &seen
		lost := !opts.Drain && !opts.Force && (facts.Reach.Silent || facts.Reach.Late)
		agrees := !seen.Running || seen.Following == nil || seen.Following.Down != 0
		// they may be of a moment ago
		waits := lost && !agrees || opts.Drain && !opts.Force && !opts.DryRun && facts.Hindered()
		if !waits || time.Since(began) > seesWithin || !backoff.Wait(ctx, seesAgain) {
			break
		}
	}
	return streams.PlanPromotion(facts, p.Opts), nil
}
