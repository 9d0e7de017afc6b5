package streams

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// claimKey is the key of the [claim] in the bucket of checkpoints.
const claimKey = "region"

// claim is what a command does that changes the role of a region. It is zero if none does.
//
// Each change of the claim names the revision that it follows, so of two commands that change it at the same time one
// fails. The metadata of a stream cannot do that: NATS has no conditional update of a stream. A follower that read the
// root before a promotion has begun may overwrite the mark of that promotion.
type claim struct {
	// Promotion has begun and not ended.
	Promotion *wire.Promotion `json:"promotion,omitempty"`
	// Changing means that the promotion changes the streams: from then on it can only be finished.
	Changing bool `json:"changing,omitempty"`
	// Undoing means that the promotion is being undone: from then on it changes no stream.
	Undoing bool `json:"undoing,omitempty"`
	// Demotion means that the streams of the region are being removed.
	Demotion bool `json:"demotion,omitempty"`

	revision uint64 // 0 if the region was never claimed
}

// errClaimed: another command has changed the claim.
var errClaimed = errors.New("another command changes the role of this region at the same time: run this one again")

// claim reads the claim of a region.
func (o Options) claim(ctx context.Context, js jetstream.JetStream) (c claim, err error) {
	name := o.Prefix.CheckpointStream()
	m, err := events.GetMessage(ctx, js.Conn(), name,
		map[string]any{"last_by_subj": o.Prefix.CheckpointSubject(claimKey)})
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return c, nil
	case err != nil:
		return c, fmt.Errorf("read who changes the role of the region: stream %s: %w", name, err)
	case m == nil:
		return c, nil
	}
	if !bytes.Contains(m.Header, []byte("KV-Operation:")) { // else a person has deleted it
		if err := json.Unmarshal(m.Data, &c); err != nil {
			return c, mismatch(name, "the value of its key %q is not valid: %w", claimKey, err)
		}
	}
	c.revision = m.Seq
	return c, nil
}

// setClaim stores a claim in the place of the one with the same revision.
func (o Options) setClaim(ctx context.Context, js jetstream.JetStream, c *claim) error {
	if c.revision == 0 { // no process of lapse may have run here
		root, err := js.Stream(ctx, o.Root())
		if err != nil {
			return fmt.Errorf("look up stream %s: %w", o.Root(), err)
		}
		o.Replicas = root.CachedInfo().Config.Replicas
		if _, err := provisionCheckpoints(ctx, js, o); err != nil {
			return err
		}
	}
	body, err := json.Marshal(c)
	if err != nil {
		return err
	}
	ack, err := js.Publish(ctx, o.Prefix.CheckpointSubject(claimKey), body,
		jetstream.WithExpectLastSequencePerSubject(c.revision))
	if isWrongLastSeq(err) {
		return errClaimed
	}
	if err != nil {
		return fmt.Errorf("note in stream %s who changes the role of the region: %w", o.Prefix.CheckpointStream(), err)
	}
	c.revision = ack.Sequence
	return nil
}

// claim claims the region for a promotion that begins, or returns the one that has claimed it before. Whether the first
// region is to hand over is noted anew.
func (p *Promotion) claim(ctx context.Context, drain bool) (began wire.Promotion, err error) {
	c, err := p.Opts.claim(ctx, p.JS)
	if err != nil {
		return began, err
	}
	root, err := p.JS.Stream(ctx, p.Opts.Root())
	if err != nil {
		return began, fmt.Errorf("look up stream %s: %w", p.Opts.Root(), err)
	}
	region, err := wire.ParseRegion(root.CachedInfo().Config.Metadata)
	if err != nil {
		return began, mismatch(p.Opts.Root(), "%w", err)
	}
	switch {
	case c.Demotion:
		return began, errors.New("the streams of this region are being removed: run lapse demote again to finish that")
	case c.Undoing && !p.Force: // the first region may be told at any moment that it goes on
		return began, errors.New("the promotion before is being undone: run lapse promote --undo again to finish that " +
			"(--force overrides this)")
	case root.CachedInfo().Config.Mirror == nil && region.Promotion == nil:
		return began, errors.New("this region follows no other any more: look at lapse status")
	case region.Promotion != nil && c.Promotion == nil && (c.revision == 0 || root.CachedInfo().Config.Mirror == nil):
		c.Promotion = region.Promotion // as an older version of lapse has noted it
	case c.Promotion == nil, c.Undoing:
		now := time.Now()
		c.Undoing = false
		c.Promotion = &wire.Promotion{Identity: now.UnixNano(), Domain: p.Domain, From: region.Follows, At: now.UTC(),
			By: p.By}
	}
	c.Promotion.Drain = c.Promotion.Drain || drain
	return *c.Promotion, p.Opts.setClaim(ctx, p.JS, &c)
}

// claimStreams notes that a promotion changes the streams from now on, unless it was undone. The first region may have
// been told that it goes on before it was asked to hand over: then it is told again.
func (p *Promotion) claimStreams(ctx context.Context, began wire.Promotion) error {
	c, err := p.Opts.claim(ctx, p.JS)
	switch {
	case err != nil:
		return err
	case c.Promotion == nil, c.Undoing:
		err = errors.New("the promotion was undone meanwhile: nothing was changed")
		if began.Drain {
			_, failed := p.Origin.Ask(ctx, p.Opts.Prefix, wire.RegionRequest{Reopen: &began})
			err = errors.Join(err, failed)
		}
		return err
	case c.Promotion.Identity != began.Identity:
		return errClaimed
	case c.Changing:
		return nil
	}
	c.Changing = true
	if err = p.Opts.setClaim(ctx, p.JS, &c); errors.Is(err, errClaimed) {
		return p.claimStreams(ctx, began)
	}
	return err
}

// claimUndo notes that a promotion is being undone, unless it changes the streams. The claim that it returns has no
// promotion if that was undone before.
func (p *Promotion) claimUndo(ctx context.Context, role Role) (c claim, err error) {
	if c, err = p.Opts.claim(ctx, p.JS); err != nil {
		return c, err
	}
	here, err := p.Opts.infos(ctx, p.JS)
	if err != nil {
		return c, err
	}
	if c.revision == 0 {
		c.Promotion = role.Promotion // as an older version of lapse has noted it
	}
	const advice = ", so the promotion cannot be undone: run lapse promote again to finish it"
	switch changed := p.Opts.changed(here); {
	case changed != "":
		return c, fmt.Errorf("the stream %s is the region's own by now"+advice, changed)
	case c.Changing:
		return c, errors.New("the promotion has begun to change the streams" + advice)
	case c.Promotion == nil, c.Undoing:
		return c, nil
	case c.Promotion.Identity != role.Promotion.Identity:
		return c, errClaimed
	}
	c.Undoing = true
	return c, p.Opts.setClaim(ctx, p.JS, &c)
}

// release ends the claim of a promotion that has ended.
func (p *Promotion) release(ctx context.Context, began wire.Promotion) error {
	for {
		c, err := p.Opts.claim(ctx, p.JS)
		if err != nil || c.Promotion == nil || c.Promotion.Identity != began.Identity {
			return err
		}
		if err = p.Opts.setClaim(ctx, p.JS, &claim{revision: c.revision}); !errors.Is(err, errClaimed) {
			return err
		}
	}
}

// Claim claims the region for a demotion. It fails if the claim is another one than when the role was found out: a
// promotion may have ended meanwhile, and what is to be removed may be the first region.
func (d *Demotion) Claim(ctx context.Context, role Role) error {
	c := role.claim
	if !role.Mirror || c.Demotion { // a region that is superseded can only be demoted
		return nil
	}
	c.Demotion = true
	return d.Opts.setClaim(ctx, d.JS, &c)
}
