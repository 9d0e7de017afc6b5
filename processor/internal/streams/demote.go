package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// Demotion makes a region that was the first, or follows another region than the one that is the first now, ready to
// follow that.
type Demotion struct {
	JS    jetstream.JetStream
	First *Origin // the region that is the first now
	Opts  Options
}

// Alone calls do with the messages of the logs and of the stream of configurations here that the first region does not
// have: it has none at that sequence, or one with another stamp. Ticks are left out. It refuses a region whose log has
// nothing to do with that of the first region.
func (d *Demotion) Alone(ctx context.Context, do func(stream string, m jetstream.Msg) error) error {
	o := d.Opts
	var names []string
	if o.sharded() {
		names = append(names, o.Root()) // what the logs source is compared here
	}
	for o.Shard = range o.Shards {
		names = append(names, o.log().Stream())
	}
	for _, name := range names {
		stream, err := d.JS.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // a demotion was interrupted
		}
		if err != nil {
			return fmt.Errorf("look up stream %s: %w", name, err)
		}
		there, err := d.First.Info(ctx, name)
		if err != nil {
			return err
		}
		from, err := d.comparable(ctx, stream, there)
		if err != nil {
			return err
		}
		if err := d.compare(ctx, stream, from, there.State, do); err != nil {
			return err
		}
	}
	return nil
}

// comparable is the sequence from which on a stream here is compared with that of the first region. What that has
// truncated cannot be compared: it counts as the same if what is the nearest to it is.
func (d *Demotion) comparable(ctx context.Context, stream jetstream.Stream, there *jetstream.StreamInfo) (from uint64,
	err error) {
	here := stream.CachedInfo()
	mine, err := wire.ParseRegion(here.Config.Metadata)
	if err != nil {
		return 0, mismatch(here.Config.Name, "%w", err)
	}
	its, err := wire.ParseRegion(there.Config.Metadata)
	if err != nil {
		return 0, mismatch(here.Config.Name, "%w", err)
	}
	if there.Config.Mirror != nil {
		return 0, mismatch(here.Config.Name,
			"the region in the JetStream domain %q is not the first: it follows another one", d.First.Domain)
	}
	ids := identities(mine, here)
	if !slices.ContainsFunc(identities(its, there), func(id int64) bool { return slices.Contains(ids, id) }) {
		return 0, fmt.Errorf("%w: the region in the JetStream domain %q does not continue the log of this region, which "+
			"was created at %s: nothing is removed", ErrLogChanged, d.First.Domain, FormatID(Identity(here)))
	}
	if there.State.FirstSeq > here.State.FirstSeq {
		nearest, stamp := there.State.FirstSeq, there.State.FirstTime.UnixNano()
		if nearest > here.State.LastSeq {
			for _, f := range its.Former {
				if slices.Contains(ids, f.Identity) && f.Last <= here.State.LastSeq {
					nearest, stamp = f.Last, f.Stamp
				}
			}
		}
		m, err := events.GetMessage(ctx, d.JS.Conn(), here.Config.Name, map[string]any{"seq": nearest})
		if err != nil {
			return 0, fmt.Errorf("read message %d of stream %s: %w", nearest, here.Config.Name, err)
		}
		if m != nil && m.Time.UnixNano() == stamp {
			return min(there.State.FirstSeq, nearest+1), nil
		}
	}
	return here.State.FirstSeq, nil
}

// identities are those of a log, and of the logs that it continues.
func identities(r wire.Region, info *jetstream.StreamInfo) (all []int64) {
	all = append(all, wire.Identity(info.Config.Metadata, info.Created))
	for _, f := range r.Former {
		all = append(all, f.Identity)
	}
	return all
}

// comparedAtOnce is how many messages of the first region are asked for at the same time.
const comparedAtOnce = 128

// compare calls do with the messages of a stream here, from a sequence on, that the first region does not have.
func (d *Demotion) compare(ctx context.Context, stream jetstream.Stream, from uint64, there jetstream.StreamState,
	do func(stream string, m jetstream.Msg) error) error {
	name := stream.CachedInfo().Config.Name
	if last := stream.CachedInfo().State.LastSeq; last == 0 || last < from {
		return nil
	}
	var some []jetstream.Msg
	flush := func() error {
		alone, err := d.lacks(ctx, name, there, some)
		for i, m := range some {
			if err == nil && alone[i] {
				err = do(name, m)
			}
		}
		some = some[:0]
		return err
	}
	var ticks []string
	for shard := range d.Opts.Shards {
		ticks = append(ticks, d.Opts.Prefix.Log(shard, d.Opts.Shards).Tick())
	}
	copies := d.Opts.sharded() && name != d.Opts.Root() // of messages of the stream of configurations
	err := d.read(ctx, stream, from, func(m jetstream.Msg) error {
		if slices.Contains(ticks, m.Subject()) || copies && wire.SourceSequence(m.Headers()) != 0 {
			return nil
		}
		if some = append(some, m); len(some) == comparedAtOnce {
			return flush()
		}
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}

// lacks reports which of some messages of a stream the first region does not have.
func (d *Demotion) lacks(ctx context.Context, name string, there jetstream.StreamState,
	some []jetstream.Msg) (alone []bool, err error) {
	alone = make([]bool, len(some))
	errs := make([]error, len(some))
	var asking sync.WaitGroup
	for i, m := range some {
		meta, err := m.Metadata()
		if err != nil {
			return nil, err
		}
		seq := meta.Sequence.Stream
		if alone[i] = seq < there.FirstSeq || seq > there.LastSeq; alone[i] {
			continue
		}
		asking.Go(func() {
			var its *events.Stored
			its, errs[i] = d.First.Get(ctx, name, map[string]any{"seq": seq})
			alone[i] = its == nil || !its.Time.Equal(meta.Timestamp)
		})
	}
	asking.Wait()
	return alone, errors.Join(errs...)
}

// read reads a stream from a sequence on, to its end of now.
func (d *Demotion) read(ctx context.Context, stream jetstream.Stream, from uint64, do func(jetstream.Msg) error) error {
	consumer, err := stream.OrderedConsumer(ctx,
		jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from})
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

// Remove removes the streams of the region, the root last, and the bucket of checkpoints. That has the claim of the
// region: once it is gone no promotion can end, since the stream of events is gone before.
func (d *Demotion) Remove(ctx context.Context) error {
	names := d.Opts.Prefix.MirrorStreams(d.Opts.Shards)
	names = slices.Insert(names, 1, d.Opts.Prefix.CheckpointStream()) // the first is that of the events
	for _, name := range names {
		if err := d.JS.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("remove stream %s: %w", name, err)
		}
	}
	return nil
}
