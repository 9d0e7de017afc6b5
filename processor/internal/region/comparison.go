package region

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/wire"
)

// A first region may lose the end of a stream, store other messages at the sequences of those that were mirrored, be
// restored, be made anew, or be the first no longer. NATS does not notice: a mirror goes on behind its own last sequence.
// So the follower compares each second what its mirrors are with what they are to be mirrors of. What it asks for is
// in facts, and judge decides by that alone.

// facts are what is known of a mirror and of the stream of which it is to be one, as they were asked for together.
type facts struct {
	Domain      string // JetStream domain of the region that is followed
	Here, There *jetstream.StreamInfo
	Stamps      []stamped // messages that both have, or had
	// OnlyCopy: the mirror may have messages that were acknowledged, and that are nowhere else.
	OnlyCopy bool
	// GivenUp: a person has decided in the first region to go on without what that had lost.
	GivenUp bool
	// OutOfDate: the answer may be older than the mirror.
	OutOfDate bool
}

// stamped is a message of a stream that has another stamp here than there, or the same. Of one that was removed in one of
// both regions nothing is known.
type stamped struct {
	Seq         uint64
	Here, There time.Time
}

// verdict is what to do about a mirror: nothing, if all is zero.
type verdict struct {
	Anew    string           // why it is to be made anew
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
		return verdict{Later: fmt.Errorf("stream %s of the first region seems to end at sequence %d, and the mirror here ends at %d: the answer may be out of date", f.name(), there.LastSeq, here.LastSeq)}
	case !f.OnlyCopy || f.GivenUp || f.hasAll():
		return verdict{Anew: lost.What().Error()}
	}
	return verdict{Refusal: lost}
}

// judgeFirst refuses a region that is the first no longer, by what its log or its stream of configurations says.
func judgeFirst(there *jetstream.StreamInfo, domain string) *streams.Refusal {
	r, err := wire.ParseRegion(there.Config.Metadata)
	switch {
	case err != nil:
		return streams.Refuse(streams.ErrMismatch, "", "stream %s in the JetStream domain %q: %w", there.Config.Name, domain, err)
	case r.Superseded != nil:
		return notFirst(domain, r.Superseded.Domain, "another region was promoted "+r.Superseded.String())
	case there.Config.Mirror != nil:
		return notFirst(domain, r.Follows, fmt.Sprintf("it follows the one in the JetStream domain %q", r.Follows))
	}
	return nil
}

func notFirst(domain, first, why string) *streams.Refusal {
	return streams.Refuse(streams.ErrNotFirst, fmt.Sprintf("stop lapse here, run lapse demote --first %s, and start it again with --follow %s", first, first),
		"the region in the JetStream domain %q is not the first any more: %s", domain, why)
}

func (f *facts) name() string { return f.Here.Config.Name }

// differs is how the mirror differs from the stream; nil if it does not.
func (f *facts) differs() *streams.Refusal {
	here, there := f.Here.State, f.There.State
	const behind = "run lapse promote here, or restore the log there"
	const changed = "run lapse promote here to go on with what this region has, or lapse demote to begin again as its follower"
	if old, now := streams.Identity(f.Here), streams.Identity(f.There); old != now {
		return streams.Refuse(streams.ErrLogChanged, changed, "the region in the JetStream domain %q has another stream %s, created at %s, than the one that was mirrored, created at %s",
			f.Domain, f.name(), streams.FormatID(now), streams.FormatID(old))
	}
	if there.LastSeq < here.LastSeq {
		return streams.Refuse(streams.ErrLogBehind, behind, "stream %s of the first region ends at sequence %d, and the mirror here at %d: the first region has lost its end, and this region has it",
			f.name(), there.LastSeq, here.LastSeq)
	}
	if s := f.other(); s != nil {
		return streams.Refuse(streams.ErrLogChanged, changed, "message %d of stream %s was stored at %s in the first region, and the mirror here has one that was stored at %s: the first region has lost its end, and has grown again",
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
