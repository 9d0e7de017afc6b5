package processor

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/processor/internal/region"
	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/wire"
)

// role finds out the role of the region. Where nothing is there yet and the options name a region to follow, it
// makes the mirrors.
func (p *Processor) role(ctx context.Context, js jetstream.JetStream, opts streams.Options) (role streams.Role,
	err error) {
	if role, err = streams.RoleOf(ctx, js, opts); err != nil || p.asIs {
		return role, err
	}
	if role.Exists && !role.Mirror {
		if err := p.askFollowers(ctx, js, opts); err != nil {
			return role, err
		}
	}
	if p.opts.Follow == "" {
		return role, nil
	}
	if role.Exists && !role.Mirror && len(role.Former) > 0 {
		last := role.Former[len(role.Former)-1]
		p.saidPromoted.Do(func() {
			p.opts.Logger.Warn("this region is the first, and follows no other", slog.String("promoted", last.String()),
				slog.String("follow", p.opts.Follow))
		})
		return role, nil
	}
	origin, err := streams.NewOrigin(p.nc, p.opts.Follow)
	if err != nil {
		return role, err
	}
	if _, err = streams.Domain(ctx, js, origin.Domain); err != nil {
		return role, err
	}
	if err := streams.ProvisionMirrors(ctx, js, origin, opts); err != nil {
		if role.Mirror && promoted(ctx, js, opts) {
			err = streams.ErrPromotion // some were mirrors no more
		}
		return role, err
	}
	return streams.RoleOf(ctx, js, opts)
}

// promoted reports whether a region is being promoted, or was: it is the first by now.
func promoted(ctx context.Context, js jetstream.JetStream, opts streams.Options) bool {
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), streams.AnswerTimeout)
	defer cancel()
	role, err := streams.RoleOf(asking, js, opts)
	return errors.Is(err, streams.ErrPromotion) || err == nil && role.Exists && !role.Mirror
}

// askFollowers returns an ErrSuperseded if a region that follows this one was promoted. On each new connection it
// waits shortly for one that does not answer: the link of a NATS server that has just started may not be up.
func (p *Processor) askFollowers(ctx context.Context, js jetstream.JetStream, opts streams.Options) error {
	select {
	case p.asking <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-p.asking }()
	connection := p.connection()
	for began := time.Now(); ; {
		asking, cancel := context.WithTimeout(ctx, followersWithin)
		unanswered, err := streams.SupersededBy(asking, js, opts)
		cancel()
		if err != nil && !errors.Is(err, streams.ErrSuperseded) && ctx.Err() == nil {
			// Such as a permission that is missing: the region that was promoted supersedes this one, when it can.
			p.opts.Logger.Warn("it could not be found out whether a region that follows this one was promoted",
				slog.Any("error", err))
			err, unanswered = nil, nil
		}
		late := p.asked.Load() == connection || time.Since(began) > followersWithin
		if err != nil || unanswered == nil || late || !backoff.Wait(ctx, followersAgain) {
			if err == nil {
				p.asked.Store(connection)
			}
			return err
		}
	}
}

// connection is the number of the connection to NATS, counted from 1.
func (p *Processor) connection() uint64 { return p.nc.Stats().Reconnects + 1 }

// stillFirst is askFollowers if the connection to NATS was lost since it was called last: another region may have been
// promoted meanwhile.
func (s *session) stillFirst(ctx context.Context) error {
	p := s.processor
	if p.asked.Load() == p.connection() {
		return nil
	}
	return p.askFollowers(ctx, s.monitor.js, p.opts.streams(p.nc.MaxPayload()))
}

const (
	followersWithin = 3 * time.Second
	followersAgain  = 100 * time.Millisecond
	tellFormerEvery = time.Second
	tellFormerSlow  = time.Minute
)

// tellFormer makes the region that was the first before this one was promoted refuse to be that, whenever it can
// be reached.
func (s *session) tellFormer(ctx context.Context) {
	p, former := s.processor, s.monitor.log.Streams.Former
	if len(former) == 0 || p.opts.Shard != 0 || former[len(former)-1].From == "" {
		return
	}
	last := former[len(former)-1]
	origin, err := streams.NewOrigin(p.nc, last.From)
	if err != nil {
		return
	}
	promotion := streams.Promotion{JS: s.monitor.js, Origin: origin, Opts: p.opts.streams(p.nc.MaxPayload())}
	if s.monitor.log.Streams.Configs != nil { // the root has an identity of its own
		region, err := wire.ParseRegion(s.monitor.log.Streams.Configs.CachedInfo().Config.Metadata)
		if err != nil || len(region.Former) == 0 {
			return
		}
		last = region.Former[len(region.Former)-1]
	}
	for every := tellFormerEvery; backoff.Wait(ctx, every); {
		asking, cancel := context.WithTimeout(ctx, streams.AnswerTimeout)
		reply, err := promotion.Supersede(asking, last)
		if by := reply.Superseded; by != nil && by.Domain != last.Domain {
			s.processor.opts.Logger.Error("another region was promoted in place of the same one before, and is the first",
				slog.String("promoted", by.String()))
			_ = promotion.StepDown(asking, *by)
		}
		cancel()
		every = tellFormerEvery
		if err == nil || reply.Error != "" {
			every = tellFormerSlow
		}
	}
}

// follow makes the parts of a session that follow the first region, in place of those that append and publish.
func (s *session) follow(ctx context.Context, js jetstream.JetStream, role streams.Role, parts *shard.Parts) error {
	p := s.processor
	origin, err := streams.NewOrigin(p.nc, role.Follows)
	if err != nil {
		return err
	}
	domain, err := streams.Domain(ctx, js, role.Follows)
	if err != nil {
		return err
	}
	s.ticker.Silent(func(ctx context.Context) (uint64, error) {
		info, err := parts.Log.Info(ctx)
		if err != nil {
			return 0, err
		}
		return info.State.LastSeq, nil
	})
	var snapshots *snapshot.Store
	if parts.Log.Streams.Snapshots != nil {
		snapshots = parts.Desk.Store()
	}
	s.follower = region.New(region.Parts{
		Names: p.opts.log(), Log: parts.Log, Origin: origin, Domain: domain, NATS: p.nc, JetStream: js,
		Options: p.opts.streams(p.nc.MaxPayload()),
		Tail:    parts.Tail, Status: s.status, Snapshots: snapshots, Redis: p.store,
		Health: p.opts.Health, Logger: p.opts.Logger, Forget: p.opts.ForgetWithin,
	})
	parts.Mirror = s.follower.Mirror(ctx)
	parts.Outcomes = shard.NoOutcomes()
	return nil
}

// unlessPromoted is an error that ends the session; ErrPromotion if the session followed another region, must stop, and
// the region is the first by now: its log has an identity of its own since, so it seems to be another one.
func (s *session) unlessPromoted(ctx context.Context, err error) error {
	if s.follower != nil && streams.AsRefusal(err) != nil && promoted(ctx, s.follower.JetStream, s.follower.Options) {
		return streams.ErrPromotion
	}
	return err
}

// FollowsAlready is the JetStream domain of the region that the streams of a prefix follow; "" if they follow none, or
// that cannot be found out.
func FollowsAlready(ctx context.Context, nc *nats.Conn, prefix wire.Prefix) string {
	js, err := jetstream.New(nc)
	if err != nil {
		return ""
	}
	shards, err := streams.Shards(ctx, js, prefix)
	if err != nil {
		return ""
	}
	role, err := streams.RoleOf(ctx, js, streams.Options{Prefix: prefix, Shards: shards})
	if role.Promotion != nil {
		return role.Promotion.From
	}
	if err == nil && role.Exists && !role.Mirror && len(role.Former) > 0 {
		return role.Former[len(role.Former)-1].From
	}
	return role.Follows
}

// Following is how far the region is behind the one that it follows; nil if it follows none. Until the processor
// runs, it is what the last check has found, and how far the region is behind is not known.
func (p *Processor) Following() *wire.Following {
	s := p.current()
	if !p.running.Load() || !s.wired.Load() {
		if domain := p.follows.Load(); domain != nil {
			return &wire.Following{Domain: *domain}
		}
		return nil
	}
	if s.follower == nil {
		return nil
	}
	is := s.follower.Following()
	return &is
}
