package region

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/seed18712806/lapse/processor/internal/streams"
)

// compared is how far a mirror is known to be as the stream of the first region. Where it ended while that did not answer is
// compared too: the last message that was mirrored before a loss is among those that differ.
type compared struct {
	upTo    uint64    // it was the same up to here
	highs   []uint64  // where the mirror has ended while the first region did not answer
	sampled bool      // what was mirrored while no follower ran was compared
	shorter time.Time // since when the stream seems to end before its mirror; zero if it does not
}

const (
	// mostHighs bounds these places. While nothing is mirrored there is one.
	mostHighs = 1000
	// mostSamples is how many messages are compared at most of those that came while no follower ran.
	mostSamples = 512
	askAtOnce   = 16
	// believeShorter is how long a stream with replicas has to seem to end before its mirror until that is believed: a
	// replica, or a leader that was deposed, may answer out of date.
	believeShorter = 10 * time.Second
)

// errAnew ends a session: the shard has to be taken over again, from other mirrors or with another checkpoint.
var errAnew = errors.New("the shard begins again as that of the first region")

// mirror is a mirror that this follower compares: its log, and that of shard 0 what all shards have in common.
type mirror struct {
	stream jetstream.Stream
	there  *jetstream.StreamInfo
	only   bool // it may be the only copy of messages that were acknowledged
}

func (f *Follower) mirrors(c *cut) []mirror {
	s := f.Log.Streams
	all := []mirror{{s.Log, c.log, true}}
	if c.events != nil {
		all = append(all, mirror{s.Events, c.events, false})
	}
	if c.snaps != nil {
		all = append(all, mirror{s.Snapshots.Stream(), c.snaps, false})
	}
	if c.config != nil && f.Names.Shard == 0 {
		all = append(all, mirror{s.Configs, c.config, true})
	}
	return all
}

func (f *Follower) of(name string) *compared {
	if f.compared[name] == nil {
		f.compared[name] = &compared{}
	}
	return f.compared[name]
}

// compare compares the mirrors with the streams of the region that is followed, which has to be the first. A mirror that
// differs and is no only copy is made anew, which ends the session.
func (f *Follower) compare(ctx context.Context, c *cut) error {
	root := c.log
	if c.config != nil {
		root = c.config
	}
	if r := judgeFirst(root, f.Origin.Domain); r != nil {
		return r
	}
	point, err := f.checkpoint(c.values)
	if err != nil {
		return err
	}
	for _, m := range f.mirrors(c) {
		facts, err := f.ask(ctx, m)
		if err != nil {
			return err
		}
		facts.GivenUp = point.Anew > f.anew
		v := judge(facts)
		switch {
		case v.Refusal != nil:
			return v.Refusal
		case v.Later != nil:
			return v.Later
		case v.Anew != "":
			return f.makeAnew(ctx, facts, v.Anew)
		}
		k := f.of(facts.name())
		*k = compared{upTo: max(facts.Here.State.LastSeq, 1), sampled: true}
		if err := f.Log.Streams.Follow(ctx, facts.There, m.stream, f.Origin.Domain); err != nil {
			return err
		}
	}
	return nil
}

// makeAnew makes a mirror anew.
func (f *Follower) makeAnew(ctx context.Context, facts facts, why string) error {
	name := facts.name()
	f.Logger.Warn("a mirror is not as the stream of the first region, and is made anew", slog.String("stream", name), slog.String("reason", why))
	if err := streams.MakeAnew(ctx, f.JetStream, f.Origin, name, f.of(name).upTo, f.Options); err != nil {
		return err
	}
	return fmt.Errorf("%w: the mirror %s was made anew", errAnew, name)
}

// ask asks for what is to be compared.
func (f *Follower) ask(ctx context.Context, m mirror) (facts facts, err error) {
	facts.Domain, facts.There, facts.OnlyCopy = f.Origin.Domain, m.there, m.only
	if facts.Here, err = m.stream.Info(ctx); err != nil {
		return facts, fmt.Errorf("ask for the state of the mirror: %w", err)
	}
	if facts.Here.Config.Mirror == nil {
		return facts, streams.ErrPromotion // it may have grown by itself
	}
	name, k := facts.name(), f.of(facts.Here.Config.Name)
	if facts.Here.State.LastSeq > facts.There.State.LastSeq { // it may have grown since the answer
		if facts.There, err = f.Origin.Info(ctx, name); err != nil {
			return facts, err
		}
	}
	if facts.There.State.LastSeq >= facts.Here.State.LastSeq {
		k.shorter = time.Time{}
	} else if k.shorter.IsZero() {
		k.shorter = time.Now()
	}
	facts.OutOfDate = facts.There.Config.Replicas > 1 && time.Since(k.shorter) < believeShorter
	facts.Stamps, err = f.askStamps(ctx, &facts, k.places(facts.Here.State, facts.There.State))
	return facts, err
}

// places are the messages to compare.
func (k *compared) places(here, there jetstream.StreamState) (all []uint64) {
	first, last := max(there.FirstSeq, here.FirstSeq, 1), min(here.LastSeq, there.LastSeq)
	all = append(slices.Clone(k.highs), k.upTo, last)
	if from := max(k.upTo, first); !k.sampled && from < last {
		n := min(last-from, mostSamples)
		for i := range n {
			all = append(all, from+(last-from)*i/n)
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(seq uint64) bool { return seq < first || seq > last })
}

// askStamps asks both regions for the stamps of messages.
func (f *Follower) askStamps(ctx context.Context, facts *facts, seqs []uint64) (all []stamped, err error) {
	var mu sync.Mutex
	asking, limited := errgroup.WithContext(ctx)
	asking.SetLimit(askAtOnce)
	for _, seq := range seqs {
		asking.Go(func() error {
			request := map[string]any{"seq": seq}
			here, err := f.Log.Streams.Get(limited, facts.name(), request)
			if err != nil || here == nil {
				return err
			}
			there, err := f.Origin.Get(limited, facts.name(), request)
			if err != nil || there == nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, stamped{seq, here.Time, there.Time})
			return nil
		})
	}
	err = asking.Wait()
	slices.SortFunc(all, func(a, b stamped) int { return int(a.Seq) - int(b.Seq) })
	return all, err
}

// unanswered notes that the first region did not answer.
func (f *Follower) unanswered(ctx context.Context) {
	here, err := f.Log.Info(ctx)
	if err != nil {
		return
	}
	outputs, err := f.Log.Streams.Events.Info(ctx)
	if err != nil {
		return
	}
	for _, info := range []*jetstream.StreamInfo{here, outputs} {
		k := f.of(info.Config.Name)
		if last := info.State.LastSeq; len(k.highs) < mostHighs && !slices.Contains(k.highs, last) {
			k.highs = append(k.highs, last)
		}
	}
}
