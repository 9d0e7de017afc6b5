package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// What lapse in one region asks of another one, lapse answers there: no region changes the streams of another, nor may
// it. See [wire.RegionRequest].

// Ask asks lapse in the other region. It returns an ErrOrigin if no process of lapse answers there.
func (o *Origin) Ask(ctx context.Context, prefix wire.Prefix, request wire.RegionRequest) (reply wire.RegionReply,
	err error) {
	body, err := json.Marshal(request)
	if err != nil {
		return reply, err
	}
	m, err := o.nc.RequestWithContext(ctx, prefix.Region(o.Domain), body)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return reply, fmt.Errorf("%w: no process of lapse answers in the JetStream domain %q", ErrOrigin, o.Domain)
	case err != nil:
		return reply, o.failed(fmt.Errorf("ask lapse in the JetStream domain %q: %w", o.Domain, err))
	}
	if err := json.Unmarshal(m.Data, &reply); err != nil {
		return reply, fmt.Errorf("the answer of lapse in the JetStream domain %q is not valid: %w", o.Domain, err)
	}
	if reply.Error != "" {
		err = fmt.Errorf("lapse in the JetStream domain %q refuses: %s", o.Domain, reply.Error)
	}
	return reply, err
}

// Answer carries out what lapse in another region asks of this one.
func Answer(ctx context.Context, js jetstream.JetStream, o Options,
	request wire.RegionRequest) (reply wire.RegionReply) {
	var err error
	switch {
	case request.Follower != "":
		err = remember(ctx, js, o, request.Follower)
	case request.Reopen != nil:
		err = reopen(ctx, js, o, *request.Reopen)
	case request.Supersede != nil:
		reply, err = supersedeAll(ctx, js, o, request.Identity, *request.Supersede)
	default:
		err = errors.New("it is not known what is asked: use the same version of lapse in both regions")
	}
	if err != nil {
		reply.Error = err.Error()
	}
	return reply
}

// supersedeAll supersedes all streams, the root first: a process that takes over meanwhile learns the reason from
// it, and would else find streams that are not as it needs them. It may be repeated.
func supersedeAll(ctx context.Context, js jetstream.JetStream, o Options, identity int64,
	by wire.Promotion) (reply wire.RegionReply, err error) {
	root, err := js.Stream(ctx, o.Root())
	if err != nil {
		return reply, fmt.Errorf("look up stream %s: %w", o.Root(), err)
	}
	c := root.CachedInfo().Config
	region, err := wire.ParseRegion(c.Metadata)
	if err != nil {
		return reply, mismatch(o.Root(), "%w", err)
	}
	for _, f := range region.Former {
		switch {
		case f.Identity != identity:
		case f.Domain == by.Domain && f.At.Equal(by.At):
			return reply, nil // this region has followed that one since
		default:
			reply.Superseded = &f.Promotion
			return reply, fmt.Errorf("another region was promoted in its place %s", f.Promotion)
		}
	}
	switch {
	case c.Mirror != nil:
		return reply, fmt.Errorf("this region is not the first: it follows the one in the JetStream domain %q",
			region.Follows)
	case wire.Identity(c.Metadata, root.CachedInfo().Created) != identity:
		return reply, fmt.Errorf("the log here is another one than the one that was promoted: it was created at %s",
			FormatID(Identity(root.CachedInfo())))
	}
	if reply.Superseded = region.Superseded; region.Superseded != nil && region.Superseded.Domain != by.Domain {
		return reply, fmt.Errorf("another region was promoted in its place %s", region.Superseded)
	}
	account, err := js.AccountInfo(ctx)
	if err != nil {
		return reply, fmt.Errorf("ask the NATS server for its JetStream domain: %w", err)
	}
	reply.Superseded, reply.Ends = &by, map[string]wire.End{}
	for _, name := range slices.Backward(o.Prefix.MirrorStreams(o.Shards)) {
		if err := supersede(ctx, js, o, name, account.Domain, by); err != nil {
			return reply, err
		}
	}
	for _, name := range o.Prefix.MirrorStreams(o.Shards) {
		stream, err := js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return reply, fmt.Errorf("look up stream %s: %w", name, err)
		}
		if reply.Ends[name], err = end(ctx, js.Conn(), stream); err != nil {
			return reply, err
		}
	}
	return reply, nil
}

// supersede makes a stream take no more messages, and notes why. It changes subjects, sources and metadata alone.
func supersede(ctx context.Context, js jetstream.JetStream, o Options, name, domain string, by wire.Promotion) error {
	stream, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", name, err)
	}
	err = changeStream(ctx, js, o.Prefix.CheckpointBucket(), stream, func(_ context.Context,
		info *jetstream.StreamInfo) (*jetstream.StreamConfig, error) {
		region, err := wire.ParseRegion(info.Config.Metadata)
		if err != nil {
			return nil, mismatch(name, "%w", err)
		}
		if info.Config.Mirror != nil || region.Superseded != nil {
			return nil, nil
		}
		region.Superseded, region.Promotion = &by, nil
		region.Identity = wire.Identity(info.Config.Metadata, info.Created)
		c := info.Config
		setMetadata(&c, wire.RegionKey, region.String())
		// The transform stays: the server still stores what it has received before, and would store that as it came.
		c.Subjects, c.Sources = []string{ClosedSubject(domain, name)}, nil
		return &c, nil
	})
	if err != nil {
		return fmt.Errorf("change stream %s: %w", name, err)
	}
	return nil
}

// reopen undoes supersedeAll, the root last: the region that asked is not promoted after all. It may be repeated.
func reopen(ctx context.Context, js jetstream.JetStream, o Options, by wire.Promotion) error {
	root, err := js.Stream(ctx, o.Root())
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", o.Root(), err)
	}
	configs := ""
	if o.sharded() {
		configs = Identity(root.CachedInfo())
	}
	wants := map[string]jetstream.StreamConfig{
		o.Prefix.EventsStream(): o.eventsConfig(""), o.Prefix.SnapshotStream(): {Subjects: objectSubjects(o.Prefix)},
		o.Root(): o.configsConfig(),
	}
	for o.Shard = range o.Shards {
		wants[o.log().Stream()] = o.logConfig(configs)
	}
	for _, name := range o.Prefix.MirrorStreams(o.Shards) {
		stream, err := js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look up stream %s: %w", name, err)
		}
		err = changeStream(ctx, js, o.Prefix.CheckpointBucket(), stream, func(ctx context.Context,
			info *jetstream.StreamInfo) (*jetstream.StreamConfig, error) {
			c := info.Config
			region, err := wire.ParseRegion(c.Metadata)
			switch {
			case err != nil:
				return nil, mismatch(name, "%w", err)
			case region.Superseded == nil:
				return nil, nil
			case region.Superseded.Domain != by.Domain || !region.Superseded.At.Equal(by.At):
				return nil, mismatch(name, "it was superseded by another promotion %s", region.Superseded)
			}
			region.Superseded = nil
			setMetadata(&c, wire.RegionKey, region.String())
			c.Subjects, c.Sources = wants[name].Subjects, wants[name].Sources
			for _, source := range c.Sources {
				if source.OptStartSeq, err = sourcedUpTo(ctx, js, o, name); err != nil {
					return nil, err
				}
				source.OptStartSeq++
			}
			return &c, nil
		})
		if err != nil {
			return fmt.Errorf("change stream %s: %w", name, err)
		}
	}
	return nil
}

// A region remembers in the bucket of members which regions follow it.

func followersStream(p wire.Prefix) string  { return "KV_" + p.MembersBucket() }
func followersSubject(p wire.Prefix) string { return "$KV." + p.MembersBucket() + "." }

// remember notes that the region in a domain follows this one.
func remember(ctx context.Context, js jetstream.JetStream, o Options, domain string) error {
	if _, err := NewOrigin(js.Conn(), domain); err != nil {
		return err
	}
	if _, err := js.Publish(ctx, followersSubject(o.Prefix)+wire.FollowerKey(domain),
		fmt.Appendf(nil, `{"format":%d}`, wire.Format)); err != nil {
		return fmt.Errorf("remember that the region in the JetStream domain %q follows: %w", domain, err)
	}
	return nil
}

// Forget forgets that the region in a domain has followed this one. It reports whether it was remembered.
func Forget(ctx context.Context, js jetstream.JetStream, prefix wire.Prefix, domain string) (known bool, err error) {
	all, err := Followers(ctx, js, prefix)
	if _, known = all[domain]; err != nil || !known {
		return false, err
	}
	stream, err := js.Stream(ctx, followersStream(prefix))
	if err == nil {
		err = stream.Purge(ctx, jetstream.WithPurgeSubject(followersSubject(prefix)+wire.FollowerKey(domain)))
	}
	if err != nil {
		return true, fmt.Errorf("forget the region in the JetStream domain %q: %w", domain, err)
	}
	return true, nil
}

// Followers are the JetStream domains of the regions that follow this one, or have, and when each has last asked.
func Followers(ctx context.Context, js jetstream.JetStream, prefix wire.Prefix) (all map[string]time.Time, err error) {
	key := followersSubject(prefix) + wire.FollowerKey("")
	all = map[string]time.Time{}
	for seq := uint64(1); ; seq++ {
		m, err := events.GetMessage(ctx, js.Conn(), followersStream(prefix),
			map[string]any{"seq": seq, "next_by_subj": key + "*"})
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound): // no process has run
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("read which regions follow this one: %w", err)
		case m == nil:
			return all, nil
		}
		seq, all[strings.TrimPrefix(m.Subject, key)] = m.Seq, m.Time
	}
}

// waitForFollower is for how long a follower may have asked nothing, while messages came, until it is gone for so long
// that nobody waits for its answer.
const waitForFollower = 24 * time.Hour

// SupersededBy asks the regions that follow this one whether one of them was promoted. It returns an ErrSuperseded
// if so; unanswered are those that did not answer, and are to be waited for. Without a JetStream domain no region can
// follow: then it asks nothing that lapse's user may not be permitted to ask.
func SupersededBy(ctx context.Context, js jetstream.JetStream, o Options) (unanswered []string, err error) {
	account, err := js.AccountInfo(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the NATS server for its JetStream domain: %w", err)
	}
	if account.Domain == "" {
		return nil, nil
	}
	root, err := js.Stream(ctx, o.Root())
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", o.Root(), err)
	}
	info := root.CachedInfo()
	log, err := js.Stream(ctx, o.log().Stream())
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", o.log().Stream(), err)
	}
	followers, err := Followers(ctx, js, o.Prefix)
	if err != nil {
		return nil, err
	}
	for domain, seen := range followers {
		there, err := askFollower(ctx, js, o, domain)
		if err != nil {
			if awaited(log.CachedInfo().State.LastTime, seen) {
				unanswered = append(unanswered, domain)
			}
			continue
		}
		region, err := wire.ParseRegion(there.Config.Metadata)
		if err != nil {
			return nil, mismatch(o.Root(), "in the JetStream domain %q %w", domain, err)
		}
		for _, f := range region.Former {
			if identity := wire.Identity(info.Config.Metadata, info.Created); f.Identity == identity {
				// The servers here take no more messages from now on, whatever becomes of the link.
				if _, err := supersedeAll(ctx, js, o, identity, f.Promotion); err != nil {
					o.Logger.Warn("the streams of a region that is not the first any more still take messages", slog.Any("error", err))
				}
				return nil, Refuse(ErrSuperseded, "run lapse demote here, and then lapse serve --follow "+f.Domain,
					"another region was promoted %s", f)
			}
		}
	}
	return unanswered, nil
}

// awaited reports whether the answer of a follower is waited for that was seen at an instant, by a region whose log has
// ended at another.
func awaited(ended, seen time.Time) bool { return ended.Sub(seen) < waitForFollower }

func askFollower(ctx context.Context, js jetstream.JetStream, o Options, domain string) (*jetstream.StreamInfo, error) {
	origin, err := NewOrigin(js.Conn(), domain)
	if err != nil {
		return nil, err
	}
	asking, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return origin.Info(asking, o.Root())
}

// ClosedSubject is the only subject of a stream that takes no messages: one of a former first region, or one that a
// promotion has made of a mirror and not opened yet.
func ClosedSubject(domain, stream string) string { return "_LAPSE.closed." + domain + "." + stream }

const (
	wrongLastSeq = jetstream.ErrorCode(10071) // of a publication that expects another last sequence
	inProcess    = jetstream.ErrorCode(10164) // the same, while replicas are storing another message of the subject
	tooMany      = jetstream.ErrorCode(10167) // messages wait
	endAgain     = 3 * time.Second
	endSoon      = 50 * time.Millisecond
)

// isWrongLastSeq reports whether a publication was refused because another one has come first.
func isWrongLastSeq(err error) bool {
	var refusal *jetstream.APIError
	return errors.As(err, &refusal) && (refusal.ErrorCode == wrongLastSeq || refusal.ErrorCode == inProcess)
}

// impossible is a sequence that no stream has.
const impossible = "9007199254740991"

// passQueue returns once a stream that was closed has taken all that it will take, and the last sequence of that. The
// server goes on to store and to acknowledge what it had received before, up to 10,000 messages. So this publishes a
// message that the stream must refuse, which comes behind those. It expects another last sequence: that is compared
// before a message goes to the replicas. (One that expects another last message id is compared by each replica, and
// nats-server 2.15 takes the difference for a failure to write, and stops the stream.)
func passQueue(ctx context.Context, nc *nats.Conn, subject string) (took uint64, err error) {
	answers, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return 0, err
	}
	defer func() { _ = answers.Unsubscribe() }()
	m := &nats.Msg{Subject: subject, Reply: answers.Subject,
		Header: nats.Header{jetstream.ExpectedLastSeqHeader: {impossible}}}
	for {
		if err := nc.PublishMsg(m); err != nil {
			return 0, err
		}
		asking, cancel := context.WithTimeout(ctx, endAgain)
		answer, err := answers.NextMsgWithContext(asking)
		cancel()
		if ctx.Err() != nil {
			return 0, fmt.Errorf("no answer to a publication on %s: %w", subject, context.Cause(ctx))
		}
		again := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)
		if err == nil || errors.Is(err, nats.ErrNoResponders) {
			var a struct{ Error *jetstream.APIError }
			if err == nil && len(answer.Data) > 0 {
				err = json.Unmarshal(answer.Data, &a)
			}
			switch {
			case a.Error == nil && (err != nil || len(answer.Data) == 0): // nobody listens, at this moment
			case a.Error == nil:
				return 0, fmt.Errorf("a publication on %s was not refused", subject)
			case a.Error.ErrorCode == wrongLastSeq:
				_, _ = fmt.Sscanf(a.Error.Description, "wrong last sequence: %d", &took)
				return took, nil
			case a.Error.ErrorCode != tooMany:
				return 0, fmt.Errorf("publish on %s: %w", subject, a.Error)
			}
			again = backoff.Wait(ctx, endSoon)
		}
		if !again {
			return 0, fmt.Errorf("publish on %s: %w", subject, errors.Join(err, context.Cause(ctx)))
		}
	}
}

// end is the last message of a closed stream. A server that has just become the leader may not have applied all that it
// has: on replicas two answers in a row have to agree.
func end(ctx context.Context, nc *nats.Conn, stream jetstream.Stream) (is wire.End, err error) {
	c := stream.CachedInfo().Config
	if len(c.Subjects) == 0 {
		return is, mismatch(c.Name, "it was not closed")
	}
	for asked := 0; ; asked++ {
		took, err := passQueue(ctx, nc, c.Subjects[0])
		if err != nil {
			return is, err
		}
		before := is
		info, err := stream.Info(ctx)
		var last *events.Stored
		if err == nil {
			last, err = events.GetMessage(ctx, nc, c.Name, map[string]any{"last_by_subj": ">"})
		}
		switch {
		case RefusedForNow(err): // it has just got another leader
		case err != nil:
			return is, fmt.Errorf("read the last message of stream %s: %w", c.Name, err)
		default:
			if is = (wire.End{}); last != nil {
				is = wire.End{Seq: last.Seq, Stamp: last.Time.UnixNano()}
			}
			if info.State.LastSeq >= took && (c.Replicas <= 1 || asked > 0 && is == before) {
				return is, nil
			}
		}
		if !backoff.Wait(ctx, endSoon) {
			return is, context.Cause(ctx)
		}
	}
}
