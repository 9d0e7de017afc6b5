package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// Domain is the JetStream domain of the region that a client is connected to. One that is to have to do with another
// region needs a domain, and not the same.
func Domain(ctx context.Context, js jetstream.JetStream, other string) (string, error) {
	account, err := js.AccountInfo(ctx)
	if err != nil {
		return "", fmt.Errorf("ask the NATS server for its JetStream domain: %w", err)
	}
	switch account.Domain {
	case "":
		return "", fmt.Errorf("the NATS server here has no JetStream domain: give it one (jetstream { domain: … }), "+
			"another than %q", other)
	case other:
		return "", fmt.Errorf("the NATS server here is in the JetStream domain %q itself: a region follows another one, so "+
			"give the --nats of this region, or the domain of the other", other)
	}
	return account.Domain, nil
}

// Lost is what a promotion says about the log of a shard.
type Lost struct {
	Stream string
	Last   uint64    // sequence that this region has; what was acknowledged behind it is lost
	Stamp  time.Time // of that message
}

// Promotion makes the region that a client is connected to the first. Its steps may be repeated: one that was
// interrupted goes on with the next call. See PlanPromotion.
type Promotion struct {
	JS     jetstream.JetStream
	Origin *Origin // of the region that was followed
	Opts   Options
	Domain string // JetStream domain of the region here
	By     string // who, for a person to read
	Force  bool   // a promotion before it that is being undone is overridden
}

// Drain takes the first region's place in its own streams: they take no more messages, and its processes stop. It
// waits until the mirrors have all that is in them. So nothing is lost.
func (p *Promotion) Drain(ctx context.Context, began wire.Promotion) error {
	root, err := p.Origin.Info(ctx, p.Opts.Root())
	if err != nil {
		return err
	}
	request := wire.RegionRequest{Supersede: &began, Identity: wire.Identity(root.Config.Metadata, root.Created)}
	var reply wire.RegionReply
	for done := false; !done; { // it stores all that waits before it answers
		asking, cancel := context.WithTimeout(ctx, handOverTimeout)
		reply, err = p.Origin.Ask(asking, p.Opts.Prefix, request)
		done = err == nil || reply.Error != "" || asking.Err() == nil || ctx.Err() != nil
		cancel()
	}
	if err != nil {
		return err
	}
	for _, name := range p.Opts.Prefix.MirrorStreams(p.Opts.Shards) {
		if end, ok := reply.Ends[name]; ok {
			if err := p.caughtUp(ctx, name, end); err != nil {
				return fmt.Errorf("the first region has stopped for this promotion: run the command again when the link is up, "+
					"or undo the promotion (--undo): %w", err)
			}
		}
	}
	return nil
}

// caughtUp waits until a mirror has the end of its original.
func (p *Promotion) caughtUp(ctx context.Context, name string, end wire.End) error {
	for {
		mirror, err := p.JS.Stream(ctx, name)
		if err != nil {
			return fmt.Errorf("look up stream %s: %w", name, err)
		}
		have := mirror.CachedInfo().State.LastSeq
		if have >= end.Seq {
			return p.sameEnd(ctx, name, end)
		}
		if !backoff.Wait(ctx, drainAgain) {
			return fmt.Errorf("stream %s ends at sequence %d here, and at %d in the first region: %w", name, have, end.Seq,
				context.Cause(ctx))
		}
	}
}

// sameEnd returns an error unless a mirror has the last message of its original. It may have more, which the original
// has lost.
func (p *Promotion) sameEnd(ctx context.Context, name string, end wire.End) error {
	if end.Stamp == 0 { // the stream is empty
		return nil
	}
	here, err := events.GetMessage(ctx, p.JS.Conn(), name, map[string]any{"seq": end.Seq})
	if err == nil && here != nil && here.Time.UnixNano() != end.Stamp {
		err = fmt.Errorf("%w: message %d of stream %s was stored at %s in the first region, and at %s here", ErrLogChanged,
			end.Seq, name, nanoTime(end.Stamp), nanoTime(here.Time.UnixNano()))
	}
	return err
}

// Near waits until no mirror lacks many messages of the first region. Writes wait from the hand-over on. A mirror whose
// link was down may take 40 s.
func (p *Promotion) Near(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, nearWithin)
	defer cancel()
	for {
		far := ""
		for _, name := range p.Opts.Prefix.MirrorStreams(p.Opts.Shards) {
			there, err := p.Origin.Info(ctx, name)
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			here, err := p.JS.Stream(ctx, name)
			if err != nil {
				return fmt.Errorf("look up stream %s: %w", name, err)
			}
			if lacks := behind(here.CachedInfo(), there); lacks > nearEnough {
				far = fmt.Sprintf("the mirror %s here is %d messages behind", name, lacks)
			}
		}
		if far == "" || !backoff.Wait(ctx, drainAgain) {
			return nil // the plan says what is far
		}
	}
}

// behind is how many messages a mirror lacks of its original.
func behind(here, there *jetstream.StreamInfo) uint64 {
	if here == nil || there == nil || here.Config.Mirror == nil || here.State.LastSeq >= there.State.LastSeq {
		return 0
	}
	return there.State.LastSeq - here.State.LastSeq
}

const (
	drainAgain = 10 * time.Millisecond
	nearEnough = 10_000 // messages
	nearWithin = time.Minute

	handOverTimeout = 20 * time.Second // of one request
)

// Supersede asks lapse in the former first region to be that no longer, if its log is the one that was promoted here.
func (p *Promotion) Supersede(ctx context.Context, by wire.Former) (wire.RegionReply, error) {
	return p.Origin.Ask(ctx, p.Opts.Prefix, wire.RegionRequest{Supersede: &by.Promotion, Identity: by.Identity})
}

// StepDown supersedes this region by another one that was promoted in place of the same first region, and told that
// before this one did: there can be one first region.
func (p *Promotion) StepDown(ctx context.Context, by wire.Promotion) error {
	root, err := p.JS.Stream(ctx, p.Opts.Root())
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", p.Opts.Root(), err)
	}
	_, err = supersedeAll(ctx, p.JS, p.Opts, wire.Identity(root.CachedInfo().Config.Metadata, root.CachedInfo().Created),
		by)
	return err
}

// PromotionNotice is the time that the processes of a region have to notice that a promotion has begun, and to stop
// following. One that notices later may apply the first messages of the new log that have no outputs, and sends no
// outcomes of them.
const PromotionNotice = 300 * time.Millisecond

// Run promotes. The root is the last, and so nothing here begins to work before all streams are as they are to be.
func (p *Promotion) Run(ctx context.Context, began wire.Promotion) (lost []Lost, err error) {
	o := p.Opts
	if !backoff.Wait(ctx, PromotionNotice) {
		return nil, context.Cause(ctx)
	}
	if err := p.claimStreams(ctx, began); err != nil {
		return nil, err
	}
	root, err := p.JS.Stream(ctx, o.Root())
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", o.Root(), err)
	}
	o.levels, err = levels(root.CachedInfo().Config)
	if err != nil {
		return nil, err
	}
	identity := strconv.FormatInt(began.Identity, 10)
	if _, err := p.own(ctx, o.eventsConfig(identity), began, 0, false); err != nil {
		return nil, err
	}
	outputs, err := p.JS.Stream(ctx, o.Prefix.EventsStream()) // now that no more come
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", o.Prefix.EventsStream(), err)
	}
	stored := outputs.CachedInfo()
	if err := p.ownObjects(ctx); err != nil {
		return lost, err
	}
	for shard := range o.Shards {
		o.Shard = shard
		want := o.logConfig(identity)
		one, err := p.own(ctx, want, began, stored.State.LastSeq, !o.sharded())
		if err != nil {
			return lost, err
		}
		lost = append(lost, one)
	}
	if o.sharded() {
		if _, err := p.own(ctx, o.configsConfig(), began, 0, true); err != nil {
			return lost, err
		}
	}
	if err := p.mark(ctx, func(r *wire.Region) { r.Promotion, r.Follows = nil, "" }); err != nil {
		return lost, err
	}
	return lost, p.release(ctx, began)
}

// own makes a stream of a mirror. The root keeps the mark that a promotion has begun.
func (p *Promotion) own(ctx context.Context, want jetstream.StreamConfig, began wire.Promotion, events uint64,
	root bool) (lost Lost, err error) {
	stream, err := p.JS.Stream(ctx, want.Name)
	if err != nil {
		return lost, fmt.Errorf("look up stream %s: %w", want.Name, err)
	}
	info := stream.CachedInfo()
	region, err := wire.ParseRegion(info.Config.Metadata)
	if err != nil {
		return lost, mismatch(want.Name, "%w", err)
	}
	c := info.Config
	closed := []string{ClosedSubject(p.Domain, want.Name)}
	if c.Mirror != nil {
		// At first it takes messages from nowhere: only then it is known where the mirror has ended.
		c.Mirror, c.Subjects = nil, closed
		if root { // a follower may have overwritten it
			region.Promotion = &began
			setMetadata(&c, wire.RegionKey, region.String())
		}
		if stream, err = p.JS.UpdateStream(ctx, c); err != nil {
			return lost, fmt.Errorf("end the mirror %s: %w", want.Name, err)
		}
		c = stream.CachedInfo().Config
	}
	if slices.Contains(c.Subjects, closed[0]) {
		last, err := end(ctx, p.JS.Conn(), stream)
		if err == nil && want.Name == p.Opts.Prefix.ConfigStream() {
			if err := p.completeConfigs(ctx, stream); err != nil {
				return lost, err
			}
			last, err = end(ctx, p.JS.Conn(), stream)
		}
		if err == nil {
			info, err = stream.Info(ctx)
		}
		if err != nil {
			return lost, fmt.Errorf("find out where the mirror %s has ended: %w", want.Name, err)
		}
		if region.Identity != 0 { // a log, or the stream of configurations
			former := wire.Former{Identity: region.Identity, Last: info.State.LastSeq, Events: events, Promotion: began}
			if last.Seq == former.Last { // else its age has removed it
				former.Stamp = last.Stamp
			}
			region = wire.Region{Identity: began.Identity, Former: append(region.Former, former)}
		}
		if root {
			region.Promotion = &began
		}
		c = opened(c, want)
		for _, source := range c.Sources {
			if source.OptStartSeq, err = sourcedUpTo(ctx, p.JS, p.Opts, want.Name); err != nil {
				return lost, err
			}
			source.OptStartSeq++
		}
		if region.Identity != 0 {
			setMetadata(&c, wire.RegionKey, region.String())
		}
		if _, err = p.JS.UpdateStream(ctx, c); err != nil {
			return lost, fmt.Errorf("make a stream of the mirror %s: %w", want.Name, err)
		}
	}
	if n := len(region.Former); n > 0 {
		f := region.Former[n-1]
		lost = Lost{Stream: want.Name, Last: f.Last, Stamp: time.Unix(0, f.Stamp)}
	}
	return lost, nil
}

// opened is the configuration of a stream that was a mirror, as a first region has it.
func opened(c, want jetstream.StreamConfig) jetstream.StreamConfig {
	c.Mirror, c.Subjects, c.SubjectTransform, c.Sources = nil, want.Subjects, want.SubjectTransform, want.Sources
	c.AllowAtomicPublish, c.AllowBatchPublish, c.DenyDelete = want.AllowAtomicPublish, want.AllowBatchPublish,
		want.DenyDelete
	c.Duplicates = clamp(want.Duplicates, c.MaxAge) // which the server gives no mirror in a cluster
	for _, key := range []string{configsKey, logKey} {
		if value := want.Metadata[key]; value != "" {
			setMetadata(&c, key, value)
		}
	}
	return c
}

// sourcedUpTo is the last sequence of the stream of configurations that a log has. A source begins anew after a
// promotion, unless it is told where: the server takes the stream for another one.
func sourcedUpTo(ctx context.Context, js jetstream.JetStream, o Options, log string) (seq uint64, err error) {
	for _, subject := range o.Prefix.ConfigSubjects() {
		m, err := events.GetMessage(ctx, js.Conn(), log, map[string]any{"last_by_subj": subject})
		if err != nil {
			return 0, fmt.Errorf("read the last configuration of stream %s: %w", log, err)
		}
		if m == nil {
			continue
		}
		if header, err := nats.DecodeHeadersMsg(m.Header); err == nil {
			seq = max(seq, wire.SourceSequence(header))
		}
	}
	return seq, nil
}

// ownObjects makes an object store of the mirror of the snapshots.
func (p *Promotion) ownObjects(ctx context.Context) error {
	name := p.Opts.Prefix.SnapshotStream()
	stream, err := p.JS.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", name, err)
	}
	c := stream.CachedInfo().Config
	if c.Mirror == nil {
		return nil
	}
	c.Mirror, c.Subjects, c.AllowRollup = nil, objectSubjects(p.Opts.Prefix), true
	if _, err := p.JS.UpdateStream(ctx, c); err != nil {
		return fmt.Errorf("make a stream of the mirror %s: %w", name, err)
	}
	return nil
}

// Begin notes that a promotion has begun: in the claim of the region, which counts, and in the metadata of the root,
// for a person to read. It returns the one that has begun before, if there is one.
func (p *Promotion) Begin(ctx context.Context, drain bool) (began wire.Promotion, err error) {
	if began, err = p.claim(ctx, drain); err != nil {
		return began, err
	}
	return began, p.mark(ctx, func(r *wire.Region) { r.Promotion = &began })
}

// mark changes what the metadata of the root says of the region.
func (p *Promotion) mark(ctx context.Context, change func(*wire.Region)) error {
	root := p.Opts.Root()
	stream, err := p.JS.Stream(ctx, root)
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", root, err)
	}
	err = changeStream(ctx, p.JS, p.Opts.Prefix.CheckpointBucket(), stream, func(_ context.Context,
		info *jetstream.StreamInfo) (*jetstream.StreamConfig, error) {
		c := info.Config
		region, err := wire.ParseRegion(c.Metadata)
		if err != nil {
			return nil, mismatch(root, "%w", err)
		}
		change(&region)
		setMetadata(&c, wire.RegionKey, region.String())
		return &c, nil
	})
	if err != nil {
		return fmt.Errorf("change the metadata of stream %s: %w", root, err)
	}
	return nil
}

// completeConfigs appends to the stream of configurations, which was a mirror and is closed, what the logs here have
// sourced of it and the mirror has not got: each mirror has its own link, and may be behind the others. The next
// configuration would get a sequence that the logs have already.
func (p *Promotion) completeConfigs(ctx context.Context, stream jetstream.Stream) error {
	info, err := stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", p.Opts.Root(), err)
	}
	missing, upTo, err := p.sourcedBehind(ctx, info.State.LastSeq)
	if err != nil || upTo == 0 {
		return err
	}
	have := info.State.LastSeq
	for seq := have + 1; seq <= upTo; seq++ {
		if missing[seq] == nil {
			return fmt.Errorf("stream %s ends at message %d, a log here has message %d of it, and none has message %d: "+
				"promote another region, or restore a backup", p.Opts.Root(), have, upTo, seq)
		}
	}
	c := info.Config
	closed := c.Subjects[0]
	c.Subjects = []string{closed, closed + ".>"}
	c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: closed + ".>", Destination: ">"}
	if _, err := p.JS.UpdateStream(ctx, c); err != nil {
		return fmt.Errorf("open stream %s for what the logs have sourced: %w", c.Name, err)
	}
	for seq := have + 1; seq <= upTo; seq++ {
		m := missing[seq]
		m.Subject = closed + "." + m.Subject
		m.Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(seq-1, 10))
		if _, err := p.JS.PublishMsg(ctx, m); err != nil {
			return fmt.Errorf("append message %d to stream %s, which a log has sourced: %w", seq, c.Name, err)
		}
	}
	return nil
}

// sourcedBehind is what the logs here have sourced of the stream of configurations behind a sequence, and the last
// sequence of that; 0 if they have nothing.
func (p *Promotion) sourcedBehind(ctx context.Context, have uint64) (all map[uint64]*nats.Msg, upTo uint64, err error) {
	all = make(map[uint64]*nats.Msg)
	o := p.Opts
	for o.Shard = range o.Shards {
		name := o.log().Stream()
		if last, err := sourcedUpTo(ctx, p.JS, o, name); err != nil {
			return nil, 0, err
		} else if last <= have {
			continue
		}
		for _, filter := range o.Prefix.ConfigSubjects() {
			for after := uint64(0); ; {
				m, err := events.GetMessage(ctx, p.JS.Conn(), name, map[string]any{"seq": after + 1, "next_by_subj": filter})
				if err != nil {
					return nil, 0, fmt.Errorf("read the configurations of stream %s: %w", name, err)
				}
				if m == nil {
					break
				}
				after = m.Seq
				if seq, copied := uncopied(m); seq > have {
					all[seq], upTo = copied, max(upTo, seq)
				}
			}
		}
	}
	return all, upTo, nil
}

// uncopied is the message of the stream of configurations that a log has sourced, and its sequence there.
func uncopied(m *events.Stored) (seq uint64, original *nats.Msg) {
	header, err := nats.DecodeHeadersMsg(m.Header)
	if err != nil {
		return 0, nil
	}
	original = &nats.Msg{Subject: m.Subject, Header: nats.Header{}, Data: m.Data}
	for name, values := range header {
		if name == jetstream.MsgIDHeader || !strings.HasPrefix(name, "Nats-") {
			original.Header[name] = values
		}
	}
	return wire.SourceSequence(header), original
}

// Undo ends a promotion that does not change the streams here yet: the region follows the first one again, which goes
// on.
func (p *Promotion) Undo(ctx context.Context, role Role) error {
	c, err := p.claimUndo(ctx, role)
	if err != nil || c.Promotion == nil {
		return err
	}
	if role.Promotion.Drain {
		if _, err := p.Origin.Ask(ctx, p.Opts.Prefix, wire.RegionRequest{Reopen: role.Promotion}); err != nil {
			return fmt.Errorf("the first region was asked to hand over, and has to be told that it goes on: %w", err)
		}
	}
	if err = p.mark(ctx, func(r *wire.Region) { r.Promotion = nil }); err != nil {
		return err
	}
	return p.Opts.setClaim(ctx, p.JS, &claim{revision: c.revision})
}
