package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// The log, the stream of events, the snapshots and, with several shards, the stream of configurations of a
// region that follows another one are mirrors: each message has the sequence and the stamp that it has there.
// NATS makes them, through a leaf node that joins the JetStream domains of both. The bucket of checkpoints is
// the follower's own: see package region.

var (
	// ErrSuperseded: another region was promoted, and is the first now.
	ErrSuperseded = errors.New("this region is not the first any more")
	// ErrNotFirst: the region that is followed is not the first. It is no reason to end: reads go on.
	ErrNotFirst = fmt.Errorf("%w", ErrMismatch)
	// ErrPromotion: the region is becoming the first at this moment, or has become it.
	ErrPromotion = errors.New("a promotion of this region has begun")
	// ErrOrigin: the first region does not answer.
	ErrOrigin = errors.New("the first region does not answer")
)

// Role is what a region is to others.
type Role struct {
	wire.Region
	Exists bool // the log, or the stream of configurations
	Mirror bool // it is a mirror

	claim claim // of the region, if it is a mirror
}

// RoleOf finds out the role of the region that a client is connected to.
func RoleOf(ctx context.Context, js jetstream.JetStream, o Options) (r Role, err error) {
	root, err := js.Stream(ctx, o.Root())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("look up stream %s: %w", o.Root(), err)
	}
	c := root.CachedInfo().Config
	r.Exists, r.Mirror = true, c.Mirror != nil
	if r.Region, err = wire.ParseRegion(c.Metadata); err != nil {
		return r, mismatch(o.Root(), "%w", err)
	}
	if r.Mirror {
		if r.claim, err = o.claim(ctx, js); err != nil {
			return r, err
		}
		if r.claim.revision > 0 { // the mark in the metadata may be overwritten, or late
			r.Promotion = r.claim.Promotion
		}
	}
	if r.Promotion != nil {
		here, err := o.infos(ctx, js)
		if err != nil {
			return r, err
		}
		step, advice := next(o.steps(&Facts{Domain: r.Promotion.Domain, Role: r, Here: here})),
			"run lapse promote again, or lapse promote --undo"
		switch {
		case r.claim.Undoing:
			step, advice = "undo it", "run lapse promote --undo again"
		case r.claim.Changing, o.changed(here) != "":
			advice = "run lapse promote again"
		}
		return r, fmt.Errorf("%w %s, and has not ended; its next step is to %s: if it does not go on, %s", ErrPromotion,
			r.Promotion, step, advice)
	}
	if err := Superseded(root.CachedInfo()); err != nil {
		return r, err
	}
	if r.Mirror && r.Follows == "" {
		return r, mismatch(o.Root(), "it is a mirror that lapse has not made (its metadata has no %s)", wire.RegionKey)
	}
	return r, nil
}

// Superseded returns an ErrSuperseded if the metadata of a log says that another region is the first.
func Superseded(log *jetstream.StreamInfo) error {
	r, err := wire.ParseRegion(log.Config.Metadata)
	if err != nil || r.Superseded == nil {
		return err
	}
	return Refuse(ErrSuperseded, "run lapse demote here, and then lapse serve --follow "+r.Superseded.Domain,
		"another region was promoted %s", r.Superseded)
}

// Origin is the first region, as a follower reaches it.
type Origin struct {
	Domain string
	js     jetstream.JetStream
	nc     *nats.Conn
}

// NewOrigin makes the Origin in a JetStream domain.
func NewOrigin(nc *nats.Conn, domain string) (*Origin, error) {
	if domain == "" || strings.ContainsAny(domain, ".*> \t\r\n") {
		return nil, fmt.Errorf("%q is no JetStream domain: use the domain of the region to follow, as its nats-server has "+
			"it (jetstream { domain: … })", domain)
	}
	js, err := jetstream.NewWithDomain(nc, domain)
	if err != nil {
		return nil, err
	}
	return &Origin{Domain: domain, js: js, nc: nc}, nil
}

// Info asks for the state of a stream of the first region.
func (o *Origin) Info(ctx context.Context, name string) (*jetstream.StreamInfo, error) {
	stream, err := o.js.Stream(ctx, name)
	if err != nil {
		return nil, o.failed(fmt.Errorf("stream %s: %w", name, err))
	}
	return stream.CachedInfo(), nil
}

// Get asks the leader of a stream of the first region for a message, and returns nil if there is none.
func (o *Origin) Get(ctx context.Context, name string, request any) (*events.Stored, error) {
	m, err := events.GetFrom(ctx, o.nc, "$JS."+o.Domain+".API", name, request)
	if err != nil {
		return nil, o.failed(fmt.Errorf("stream %s: %w", name, err))
	}
	return m, nil
}

func (o *Origin) failed(err error) error {
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("the region in the JetStream domain %q has no %w", o.Domain, err)
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		const text = "%w: nothing answers for the JetStream domain %q: a leaf node must join the NATS servers of both " +
			"regions (%s)"
		return fmt.Errorf(text, ErrOrigin, o.Domain, health.Regions)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("%w, in the JetStream domain %q: %w", ErrOrigin, o.Domain, err)
	}
	return err
}

// Mirrored names the streams of a region that are mirrors, as far as a shard needs them. The root is the last.
func (o Options) Mirrored() []string {
	names := []string{o.Prefix.EventsStream()}
	if o.Objects {
		names = append(names, o.Prefix.SnapshotStream())
	}
	if o.sharded() {
		names = append(names, o.log().Stream())
	}
	return append(names, o.Root())
}

// ProvisionMirrors creates the mirrors that are absent, and checks those that are present. The root is created
// last: where it is there, all have been. A mirror of the events that was removed gets its durable consumers back.
func ProvisionMirrors(ctx context.Context, js jetstream.JetStream, origin *Origin, o Options) error {
	if err := checkServer(ctx, js); err != nil {
		return err
	}
	for _, name := range o.Mirrored() {
		stream, err := js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			if err = makeMirror(ctx, js, origin, name, o); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("look up stream %s: %w", name, err)
		}
		mirrors := domainOf(stream.CachedInfo().Config)
		switch {
		case mirrors == "":
			return mismatch(name, "it is no mirror, and this process is to follow another region: run lapse demote first, "+
				"which keeps what nobody else has, or use another prefix")
		case mirrors != origin.Domain:
			return mismatch(name, "it mirrors the region in the JetStream domain %q, and this process is to follow %q: run "+
				"lapse demote first", mirrors, origin.Domain)
		}
	}
	return restoreConsumers(ctx, js, o)
}

// domainOf is the JetStream domain of the stream that a stream mirrors; "" if it is no mirror.
func domainOf(c jetstream.StreamConfig) string {
	if c.Mirror == nil || c.Mirror.External == nil {
		return ""
	}
	domain, _ := strings.CutPrefix(c.Mirror.External.APIPrefix, "$JS.")
	return strings.TrimSuffix(domain, ".API")
}

func makeMirror(ctx context.Context, js jetstream.JetStream, origin *Origin, name string, o Options) error {
	c, err := mirrorConfig(ctx, origin, name, o)
	if err != nil {
		return err
	}
	return createMirror(ctx, js, origin, c, o)
}

// mirrorConfig is the configuration of a mirror of a stream of the first region.
func mirrorConfig(ctx context.Context, origin *Origin, name string, o Options) (c jetstream.StreamConfig, err error) {
	info, err := origin.Info(ctx, name)
	if err != nil {
		return c, err
	}
	if info.Config.Mirror != nil {
		return c, mismatch(name, "the region in the JetStream domain %q follows another one (%q): follow that",
			origin.Domain, domainOf(info.Config))
	}
	metadata, err := mirrorMetadata(info, origin.Domain)
	if err != nil {
		return c, err
	}
	if region, err := wire.ParseRegion(info.Config.Metadata); err == nil && region.Superseded != nil {
		return c, mismatch(name, "the region in the JetStream domain %q is not the first any more: another region was "+
			"promoted %s: follow that", origin.Domain, region.Superseded)
	}
	c = asMirror(info.Config, &jetstream.StreamSource{Name: name, Domain: origin.Domain})
	c.Metadata, c.Replicas = metadata, max(o.Replicas, 1)
	return c, nil
}

// createMirror creates a mirror, unless it is there.
func createMirror(ctx context.Context, js jetstream.JetStream, origin *Origin, c jetstream.StreamConfig,
	o Options) error {
	if _, err := js.CreateStream(ctx, c); err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return fmt.Errorf("create stream %s as a mirror of the region in the JetStream domain %q: %w", c.Name,
			origin.Domain, err)
	}
	o.Logger.Info("created a mirror of a stream of the first region", slog.String("stream", c.Name),
		slog.String("domain", origin.Domain))
	return nil
}

// asMirror is the configuration of a mirror of a stream, with the stream's metadata but for the server's own.
func asMirror(c jetstream.StreamConfig, of *jetstream.StreamSource) jetstream.StreamConfig {
	c.Mirror, c.Metadata = of, maps.Clone(c.Metadata)
	maps.DeleteFunc(c.Metadata, func(key, _ string) bool { return strings.HasPrefix(key, "_nats.") })
	c.Subjects, c.SubjectTransform, c.Sources, c.RePublish, c.Placement = nil, nil, nil, nil, nil
	c.AllowAtomicPublish, c.AllowBatchPublish, c.MirrorDirect = false, false, false
	return c
}

// setMetadata sets a key of the metadata of a stream.
func setMetadata(c *jetstream.StreamConfig, key, value string) {
	m := map[string]string{key: value}
	for k, v := range c.Metadata {
		if k != key {
			m[k] = v
		}
	}
	c.Metadata = m
}

// mirrorMetadata is the metadata of a mirror: that of the original, and the identity that it has by its
// creation.
func mirrorMetadata(original *jetstream.StreamInfo, domain string) (map[string]string, error) {
	region, err := wire.ParseRegion(original.Config.Metadata)
	if err != nil {
		return nil, mismatch(original.Config.Name, "%w", err)
	}
	mirror := wire.Region{Identity: wire.Identity(original.Config.Metadata, original.Created), Follows: domain,
		Former: region.Former}
	c := asMirror(original.Config, nil)
	setMetadata(&c, wire.RegionKey, mirror.String())
	return c.Metadata, nil
}

// Follow gives a mirror the metadata and the limits that the original has by now: a decision of a person,
// or an age, that it has got since. It returns an ErrPromotion if the mirror is none any more.
func (s *Streams) Follow(ctx context.Context, original *jetstream.StreamInfo, mirror jetstream.Stream,
	domain string) error {
	info, err := mirror.Info(ctx)
	if err != nil {
		return err
	}
	want, err := mirrorMetadata(original, domain)
	if err != nil {
		return err
	}
	have := info.Config
	region, err := wire.ParseRegion(have.Metadata)
	if err != nil {
		return err
	}
	if have.Mirror == nil || region.Promotion != nil {
		return ErrPromotion
	}
	limited := have
	o := original.Config
	limited.MaxAge, limited.MaxBytes, limited.MaxMsgs, limited.MaxMsgsPerSubject, limited.MaxMsgSize,
		limited.Discard = o.MaxAge, o.MaxBytes, o.MaxMsgs, o.MaxMsgsPerSubject, o.MaxMsgSize, o.Discard
	limited.Duplicates = clamp(limited.Duplicates, o.MaxAge)
	same := have.MaxAge == o.MaxAge && have.MaxBytes == o.MaxBytes && have.MaxMsgs == o.MaxMsgs &&
		have.MaxMsgsPerSubject == o.MaxMsgsPerSubject && have.MaxMsgSize == o.MaxMsgSize && have.Discard == o.Discard
	have = limited
	for key, value := range want {
		same = same && have.Metadata[key] == value
	}
	if same {
		return nil
	}
	js, err := jetstream.New(s.nc)
	if err != nil {
		return err
	}
	have.Metadata = want
	if _, err = js.UpdateStream(ctx, have); err != nil {
		if now, err := mirror.Info(ctx); err == nil && now.Config.Mirror == nil {
			return ErrPromotion
		}
		err = fmt.Errorf("give the mirror %s the limits that the stream has in the JetStream domain %q: %w", have.Name,
			domain, err)
	} else {
		_, err = mirror.Info(ctx)
	}
	return err
}

// OpenMirrors are the streams of a region that follows another one. The mirrors are there.
func OpenMirrors(ctx context.Context, js jetstream.JetStream, o Options) (*Streams, error) {
	s := &Streams{nc: js.Conn()}
	var err error
	if s.Log, err = js.Stream(ctx, o.log().Stream()); err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", o.log().Stream(), err)
	}
	if o.sharded() {
		if s.Configs, err = js.Stream(ctx, o.Root()); err != nil {
			return nil, fmt.Errorf("look up stream %s: %w", o.Root(), err)
		}
	}
	if err := checkFormat(o.log().Stream(), s.Log.CachedInfo().Config.Metadata[wire.FormatKey]); err != nil {
		return nil, err
	}
	want := o.fixed()[wire.ShardsKey]
	if have := s.Log.CachedInfo().Config.Metadata[wire.ShardsKey]; have != want {
		return nil, otherShards(o.log().Stream(), "the first region has %s %s, and the options have %s: use those of the "+
			"first region", wire.ShardsKey, wire.Quote(have), wire.Quote(want))
	}
	if s.Events, err = js.Stream(ctx, o.Prefix.EventsStream()); err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", o.Prefix.EventsStream(), err)
	}
	if s.Checkpoints, err = provisionCheckpoints(ctx, js, o); err != nil {
		return nil, err
	}
	if o.Objects {
		if s.Snapshots, err = openObjects(ctx, js, o); err != nil {
			return nil, err
		}
	}
	return s, s.readLimits()
}
