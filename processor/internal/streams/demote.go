package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// Demotion makes a region that was the first, or follows another region than the one that is the first now, ready to
// follow that.
type Demotion struct {
	JS    jetstream.JetStream
	First *Origin // the region that is the first now
	Opts  Options
}

// Alone calls do with the messages of the logs here that the first region does not have: they were stored here, or
// mirrored here, and not there before it was promoted. Ticks are left out. It refuses a region whose log the first
// region does not continue.
func (d *Demotion) Alone(ctx context.Context, do func(stream string, m jetstream.Msg) error) error {
	o := d.Opts
	for shard := range o.Shards {
		o.Shard = shard
		log := o.log()
		stream, err := d.JS.Stream(ctx, log.Stream())
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // a demotion was interrupted
		}
		if err != nil {
			return fmt.Errorf("look up stream %s: %w", log.Stream(), err)
		}
		last, err := d.continued(ctx, stream.CachedInfo())
		if err != nil {
			return err
		}
		if stream.CachedInfo().State.LastSeq <= last {
			continue
		}
		if err := d.read(ctx, stream, last+1, func(m jetstream.Msg) error {
			if log.ParseSubject(m.Subject()).Kind == wire.SubjectTick {
				return nil
			}
			return do(log.Stream(), m)
		}); err != nil {
			return err
		}
	}
	return nil
}

// continued is the last sequence of a log here that the first region has.
func (d *Demotion) continued(ctx context.Context, here *jetstream.StreamInfo) (uint64, error) {
	there, err := d.First.Info(ctx, here.Config.Name)
	if err != nil {
		return 0, err
	}
	region, err := wire.ParseRegion(there.Config.Metadata)
	if err != nil {
		return 0, mismatch(here.Config.Name, "%w", err)
	}
	mine := wire.Identity(here.Config.Metadata, here.Created)
	i := slices.IndexFunc(region.Former, func(f wire.Former) bool { return f.Identity == mine })
	switch {
	case there.Config.Mirror != nil:
		return 0, mismatch(here.Config.Name, "the region in the JetStream domain %q is not the first: it follows another one", d.First.Domain)
	case i < 0 && wire.Identity(there.Config.Metadata, there.Created) == mine:
		return there.State.LastSeq, nil
	case i < 0:
		return 0, fmt.Errorf("%w: the region in the JetStream domain %q does not continue the log of this region, which was created at %s: nothing is removed", ErrLogChanged, d.First.Domain, FormatID(Identity(here)))
	}
	return region.Former[i].Last, nil
}

// read reads a stream from a sequence on, to its end of now.
func (d *Demotion) read(ctx context.Context, stream jetstream.Stream, from uint64, do func(jetstream.Msg) error) error {
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from})
	if err != nil {
		return fmt.Errorf("read stream %s: %w", stream.CachedInfo().Config.Name, err)
	}
	if info, err := consumer.Info(ctx); err != nil || info.NumPending == 0 {
		return err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("read stream %s: %w", stream.CachedInfo().Config.Name, err)
	}
	stop := context.AfterFunc(ctx, messages.Stop)
	defer stop()
	defer messages.Stop()
	for {
		m, err := messages.Next()
		if err != nil {
			return fmt.Errorf("read stream %s: %w", stream.CachedInfo().Config.Name, errors.Join(err, context.Cause(ctx)))
		}
		meta, err := m.Metadata()
		if err == nil {
			err = do(m)
		}
		if err != nil || meta.NumPending == 0 {
			return err
		}
	}
}

// Remove removes the streams of the region, the root last, and the bucket of checkpoints.
func (d *Demotion) Remove(ctx context.Context) error {
	names := append([]string{"KV_" + d.Opts.Prefix.CheckpointBucket()}, d.Opts.all()...)
	for _, name := range names {
		if err := d.JS.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("remove stream %s: %w", name, err)
		}
	}
	return nil
}
