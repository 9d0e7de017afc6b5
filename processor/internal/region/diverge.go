package region

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/wire"
)

// compared is how far a mirror is known to be as the stream of the first region. Where it ended while that did not
// answer is compared too: the last message that was mirrored before a loss is among those that differ.
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

// compare compares the mirrors with the streams of the region that is followed, which has to be the first. A mirror
// that differs is refused, and a person removes it if it is no only copy: lapse removes no stream.
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
		case v.Removal != nil:
			if err := f.noteConsumers(ctx, facts.name()); err != nil {
				return err
			}
			return v.Removal
		}
		k := f.of(facts.name())
		if !k.sampled {
			if err := f.forgetConsumers(ctx, facts.name()); err != nil {
				return err
			}
		}
		*k = compared{upTo: max(facts.Here.State.LastSeq, 1), sampled: true}
		if err := f.Log.Streams.Follow(ctx, facts.There, m.stream, f.Origin.Domain); err != nil {
			return err
		}
	}
	return nil
}

// noteConsumers notes the durable consumers of the mirror of the events, which go with the mirror. Those of the other
// mirrors are lapse's own.
func (f *Follower) noteConsumers(ctx context.Context, name string) error {
	if name != f.Names.Prefix.EventsStream() {
		return nil
	}
	return f.Log.Streams.NoteConsumers(ctx, f.of(name).upTo)
}

// forgetConsumers forgets what noteConsumers has noted of a mirror that is as it should be.
func (f *Follower) forgetConsumers(ctx context.Context, name string) error {
	if name != f.Names.Prefix.EventsStream() {
		return nil
	}
	return f.Log.Streams.ForgetConsumers(ctx)
}

// ask asks for what is to be compared.
func (f *Follower) ask(ctx context.Context, m mirror) (facts facts, err error) {
	facts.Domain, facts.Own, facts.There, facts.OnlyCopy = f.Origin.Domain, f.Domain, m.there, m.only
	if facts.Here, err = m.stream.Info(ctx); errors.Is(err, jetstream.ErrStreamNotFound) {
		return facts, fmt.Errorf("%w: the mirror %s was removed", errAnew, m.there.Config.Name)
	}
	if err != nil {
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

// A first region may lose the end of a stream, store other messages at the sequences of those that were mirrored, be
// restored, be made anew, or be the first no longer. NATS does not notice: a mirror goes on behind its own last
// sequence. So the follower compares each second what its mirrors are with what they are to be mirrors of. What it asks
// for is in facts, and judge decides by that alone.

// facts are what is known of a mirror and of the stream of which it is to be one, as they were asked for together.
type facts struct {
	Domain      string // JetStream domain of the region that is followed
	Own         string // that of this region
	Here, There *jetstream.StreamInfo
	Stamps      []stamped // messages that both have, or had
	// OnlyCopy: the mirror may have messages that were acknowledged, and that are nowhere else.
	OnlyCopy bool
	// GivenUp: a person has decided in the first region to go on without what that had lost.
	GivenUp bool
	// OutOfDate: the answer may be older than the mirror.
	OutOfDate bool
}

// stamped is a message of a stream that has another stamp here than there, or the same. Of one that was removed in one
// of both regions nothing is known.
type stamped struct {
	Seq         uint64
	Here, There time.Time
}

// verdict is what to do about a mirror: nothing, if all is zero.
type verdict struct {
	Removal *streams.Refusal // why a person is to remove it: nothing is lost with it
	Later   error            // why nothing is known yet
	Refusal *streams.Refusal // why it cannot be followed
}

// judge judges a mirror.
func judge(f facts) verdict {
	here, there := f.Here.State, f.There.State
	if r := judgeFirst(f.There, f.Domain); r != nil {
		return verdict{Refusal: r}
	}
	lost := f.differs()
	switch {
	case lost == nil:
		return verdict{}
	case f.OutOfDate && streams.Identity(f.Here) == streams.Identity(f.There) && there.LastSeq < here.LastSeq:
		return verdict{Later: fmt.Errorf("stream %s of the first region seems to end at sequence %d, and the mirror here "+
			"ends at %d: the answer may be out of date", f.name(), there.LastSeq, here.LastSeq)}
	case !f.OnlyCopy || f.GivenUp || f.hasAll():
		return verdict{Removal: f.removal(lost)}
	}
	return verdict{Refusal: lost}
}

// removal is a refusal that says how a person lets lapse make the mirror again. The command names the JetStream domain:
// so it cannot remove the stream of the first region, wherever it is run.
func (f *facts) removal(lost *streams.Refusal) *streams.Refusal {
	why := "the first region has all messages of the mirror"
	switch {
	case !f.OnlyCopy:
		why = "the first region makes again what it lacks of this stream"
	case f.GivenUp:
		why = "what only the mirror has was given up there"
	}
	return streams.Refuse(lost.Kind, fmt.Sprintf("%s; so remove the mirror here, as lapse removes no stream: run \"nats "+
		"--js-domain %s stream rm %s\" as the operator, and lapse makes the mirror again", why, f.Own, f.name()),
		"%w", lost.Reason)
}

// judgeFirst refuses a region that is the first no longer, by what its log or its stream of configurations says.
func judgeFirst(there *jetstream.StreamInfo, domain string) *streams.Refusal {
	r, err := wire.ParseRegion(there.Config.Metadata)
	switch {
	case err != nil:
		return streams.Refuse(streams.ErrMismatch, "", "stream %s in the JetStream domain %q: %w", there.Config.Name, domain,
			err)
	case r.Superseded != nil:
		return notFirst(domain, r.Superseded.Domain, "another region was promoted "+r.Superseded.String())
	case there.Config.Mirror != nil:
		return notFirst(domain, r.Follows, fmt.Sprintf("it follows the one in the JetStream domain %q", r.Follows))
	}
	return nil
}

func notFirst(domain, first, why string) *streams.Refusal {
	return streams.Refuse(streams.ErrNotFirst, fmt.Sprintf("stop lapse here, run lapse demote --first %s, and start it "+
		"again with --follow %s", first, first),
		"the region in the JetStream domain %q is not the first any more: %s", domain, why)
}

func (f *facts) name() string { return f.Here.Config.Name }

// differs is how the mirror differs from the stream; nil if it does not.
func (f *facts) differs() *streams.Refusal {
	here, there := f.Here.State, f.There.State
	const behind = "run lapse promote here, or restore the log there"
	const changed = "run lapse promote here to go on with what this region has, or lapse demote to begin again as its " +
		"follower"
	if old, now := streams.Identity(f.Here), streams.Identity(f.There); old != now {
		return streams.Refuse(streams.ErrLogChanged, changed, "the region in the JetStream domain %q has another stream "+
			"%s, created at %s, than the one that was mirrored, created at %s",
			f.Domain, f.name(), streams.FormatID(now), streams.FormatID(old))
	}
	if there.LastSeq < here.LastSeq {
		return streams.Refuse(streams.ErrLogBehind, behind, "stream %s of the first region ends at sequence %d, and the "+
			"mirror here at %d: the first region has lost its end, and this region has it",
			f.name(), there.LastSeq, here.LastSeq)
	}
	if s := f.other(); s != nil {
		return streams.Refuse(streams.ErrLogChanged, changed, "message %d of stream %s was stored at %s in the first "+
			"region, and the mirror here has one that was stored at %s: the first region has lost its end, and has grown again",
			s.Seq, f.name(), s.There.UTC().Format(time.RFC3339Nano), s.Here.UTC().Format(time.RFC3339Nano))
	}
	return nil
}

// other is a message that is another one in the first region; nil if none is known.
func (f *facts) other() *stamped {
	for i, s := range f.Stamps {
		if !s.Here.Equal(s.There) {
			return &f.Stamps[i]
		}
	}
	return nil
}

// hasAll reports whether the first region has each message of the mirror, so that nothing is lost with that. The last
// ones are compared: messages before one that both have are the same.
func (f *facts) hasAll() bool {
	here, there := f.Here.State, f.There.State
	if here.Msgs == 0 {
		return true
	}
	for _, s := range f.Stamps {
		if s.Seq == here.LastSeq && s.Seq <= there.LastSeq {
			return f.other() == nil
		}
	}
	return false
}
