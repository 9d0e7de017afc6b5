package streams

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// gapsKey is the key of the gaps of a stream that are no loss. Without those of a log lapse goes on because a person
// has decided so; those of the stream of events are where lapse has removed a filling. They are in the metadata of the
// stream, because each rebuild meets them, and each region that mirrors it.
const gapsKey = "lapse-gaps"

// mostGaps bounds the metadata, of which the server accepts 128 KiB.
const mostGaps = 1000

// Gap is a run of sequences in the middle of a log that have no message.
type Gap struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// noted are the gaps that are noted in the metadata.
func noted(c jetstream.StreamConfig) (gaps []Gap, err error) {
	if text := c.Metadata[gapsKey]; text != "" {
		if err := json.Unmarshal([]byte(text), &gaps); err != nil {
			return nil, mismatch(c.Name, "its metadata has no valid %s", gapsKey)
		}
	}
	return gaps, nil
}

// known are the gaps of a log that are no loss: those that are noted, and the one that a restore has left.
func known(c jetstream.StreamConfig) ([]Gap, error) {
	gaps, err := noted(c)
	if r, ok, _ := wire.ParseRestored(c.Metadata); ok {
		gaps = append(gaps, Gap{r.End + 1, r.Next - 1})
	}
	return gaps, err
}

// Knows reports whether all sequences of a gap are missing by a restore, or by a decision.
func Knows(info *jetstream.StreamInfo, gap Gap) (bool, error) {
	all, err := known(info.Config)
	return slices.ContainsFunc(all, func(k Gap) bool { return k.First <= gap.First && gap.Last <= k.Last }), err
}

// Gaps are the gaps of the log that are not known, in order. It asks the server to list them only where info,
// which the caller has just got, counts more missing messages than are known.
func (s *Streams) Gaps(ctx context.Context, info *jetstream.StreamInfo) ([]Gap, error) {
	all, err := known(info.Config)
	if err != nil {
		return nil, err
	}
	missing := info.State.NumDeleted
	for _, k := range all {
		if first, last := max(k.First, info.State.FirstSeq), min(k.Last, info.State.LastSeq); first <= last {
			missing -= int(last - first + 1)
		}
	}
	if missing == 0 {
		return nil, nil
	}
	return listGaps(ctx, s.Log, all)
}

// listGaps lists the gaps of a stream but for those that are known.
func listGaps(ctx context.Context, stream jetstream.Stream, all []Gap) (gaps []Gap, err error) {
	info, err := stream.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return nil, err
	}
	slices.Sort(info.State.Deleted)
	for _, seq := range info.State.Deleted {
		n := len(gaps)
		switch {
		case slices.ContainsFunc(all, func(k Gap) bool { return k.First <= seq && seq <= k.Last }):
		case n > 0 && gaps[n-1].Last == seq-1:
			gaps[n-1].Last = seq
		default:
			gaps = append(gaps, Gap{seq, seq})
		}
	}
	return gaps, nil
}

// NoteGaps notes gaps without which lapse goes on.
func (s *Streams) NoteGaps(ctx context.Context, gaps []Gap) error {
	js, err := jetstream.New(s.nc)
	if err != nil {
		return err
	}
	return changeNoted(ctx, js, s.Checkpoints.Bucket(), s.Log, func(noted []Gap, _ uint64) []Gap {
		return append(noted, gaps...)
	})
}

// changeNoted changes the gaps that are noted in the metadata of a stream. change gets them, and the last sequence.
func changeNoted(ctx context.Context, js jetstream.JetStream, bucket string, stream jetstream.Stream,
	change func([]Gap, uint64) []Gap) error {
	return changeStream(ctx, js, bucket, stream, func(_ context.Context, info *jetstream.StreamInfo) (
		*jetstream.StreamConfig, error) {
		c := info.Config
		gaps, err := noted(c)
		if err != nil {
			return nil, err
		}
		if err := setNoted(&c, change(gaps, info.State.LastSeq), info.State.FirstSeq); err != nil {
			return nil, err
		}
		if c.Metadata[gapsKey] == info.Config.Metadata[gapsKey] {
			return nil, nil
		}
		return &c, nil
	})
}

// setNoted notes gaps in a configuration. It leaves out those before the first message, and joins those that overlap:
// each missing message counts once.
func setNoted(c *jetstream.StreamConfig, all []Gap, first uint64) error {
	all = slices.DeleteFunc(all, func(g Gap) bool { return g.Last < first })
	slices.SortFunc(all, func(a, b Gap) int { return cmp.Compare(a.First, b.First) })
	all = joined(all, 0)
	for near := uint64(1); len(all) > mostGaps; near *= 2 {
		all = joined(all, near)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	setMetadata(c, gapsKey, string(text))
	return nil
}

// joined joins gaps that are near to each other. Then messages between them count as known to be missing too.
func joined(gaps []Gap, near uint64) (fewer []Gap) {
	for _, g := range gaps {
		if n := len(fewer); n > 0 && g.First <= fewer[n-1].Last+near {
			fewer[n-1].Last = max(fewer[n-1].Last, g.Last)
		} else {
			fewer = append(fewer, g)
		}
	}
	return fewer
}

// Text is how a person reads gaps: the first ones, and how many there are.
func Text(gaps []Gap) string {
	const shown = 5
	text, missing := "", uint64(0)
	for i, g := range gaps {
		missing += g.Last - g.First + 1
		switch {
		case i >= shown:
		case g.First == g.Last:
			text += fmt.Sprintf(", %d", g.First)
		default:
			text += fmt.Sprintf(", %d to %d", g.First, g.Last)
		}
	}
	text = text[min(2, len(text)):]
	if n := len(gaps); n > shown {
		text += fmt.Sprintf(" and so on in %d places, the last of them at %d", n, gaps[n-1].Last)
	}
	return fmt.Sprintf("%d messages are missing (sequences %s)", missing, text)
}

// ErrLogGap: messages are missing from the middle of the log.
var ErrLogGap = errors.New("the log has lost messages from its middle")

// JudgeGaps refuses a log that has lost messages after a sequence: whoever applies it from there would go on
// without them. It returns nil if it has not.
func JudgeGaps(gaps []Gap, after uint64) *Refusal {
	for _, g := range gaps {
		if g.Last > after { // else it was applied, or a snapshot has it
			r := Refuse(ErrLogGap, "restore the log from a backup", "%s", Text(gaps))
			r.Accept, r.gaps, r.gap = LostLogMessages, gaps, g
			return r
		}
	}
	return nil
}

// CheckGaps returns the refusal of JudgeGaps as an error. info is what the leader of the log has just said.
func (l *Log) CheckGaps(ctx context.Context, info *jetstream.StreamInfo, after uint64) error {
	gaps, err := l.Gaps(ctx, info)
	if err != nil {
		return err
	}
	if r := JudgeGaps(gaps, after); r != nil {
		if err := l.TellNeighbours(ctx, r); err != nil {
			return err
		}
		return r
	}
	return nil
}

// CheckJump finds out why a reader of the log got no messages between two sequences from a server. The leader of the
// log is asked: the server may lack some alone. The leader itself may be unable to read some in its file.
func (l *Log) CheckJump(ctx context.Context, info *jetstream.StreamInfo, server string, after, before uint64) error {
	doing := fmt.Sprintf("read the message of the log after %d", after)
	next, err := query(ctx, l, doing, func(ctx context.Context) (uint64, error) { return l.Streams.Next(ctx, after) })
	if err != nil {
		return err
	}
	if next != 0 && next < before {
		return fmt.Errorf("NATS server %s has sent message %d of the log after message %d, and the leader of the log has "+
			"message %d: if it says so again, look at the disk of that server, and build its replica anew", server, before,
			after, next)
	}
	if knows, err := Knows(info, Gap{First: after + 1, Last: before - 1}); knows || err != nil {
		return err
	}
	if err := l.CheckGaps(ctx, info, after); err != nil {
		return err
	}
	left, err := query(ctx, l, "ask what was deleted from the log", func(ctx context.Context) ([]uint64, error) {
		return events.LeftOut(ctx, l.Streams.Log, after, before)
	})
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return events.Unreadable(info, left[0])
	}
	// The log may have been truncated since the first question: then nobody knows what was missing there before.
	if info, err = l.Info(ctx); err != nil {
		return err
	}
	return CheckOffset(info, l.ID(), after)
}

// PassGaps notes in the log that a person has decided to go on without the messages that an ErrLogGap
// names, and returns which these are.
func (l *Log) PassGaps(ctx context.Context, r *Refusal) (missing string, err error) {
	if err := l.Streams.NoteGaps(ctx, r.gaps); err != nil {
		return "", fmt.Errorf("note that lapse goes on without messages of the log: %w", err)
	}
	return Text(r.gaps), nil
}

// Gaps are the gaps of the log that are no known ones. info is what the leader of the log has just said.
func (l *Log) Gaps(ctx context.Context, info *jetstream.StreamInfo) ([]Gap, error) {
	return query(ctx, l, "ask which messages the log lacks", func(ctx context.Context) ([]Gap, error) {
		return l.Streams.Gaps(ctx, info)
	})
}

// TellNeighbours adds to a refusal of JudgeGaps when the messages before and after the gap were stored, as far as
// they are there.
func (l *Log) TellNeighbours(ctx context.Context, r *Refusal) error {
	g := r.gap
	for _, n := range []struct {
		seq  uint64
		what string
	}{{g.First - 1, "before"}, {g.Last + 1, "behind"}} {
		at, found, err := l.Stamp(ctx, n.seq)
		if err != nil {
			return err
		}
		if found {
			r.Reason = fmt.Errorf("%w, message %d %s it was stored at %s", r.Reason, n.seq, n.what, nanoTime(at))
		}
	}
	return nil
}

// EventsWatch finds what the stream of events has lost of its middle and its beginning (G12). Its end is compared by
// others, because what is missing there is published again. What is missing elsewhere was settled long ago, and nobody
// can make it again: it is named.
//
// What may be missing is what the limits of the stream have removed from its beginning, and what lapse has removed of a
// filling, which the metadata names.
type EventsWatch struct {
	streams *Streams
	begin   begin // of the stream, as it was seen last
	stored  begin // as the bucket of checkpoints has it
	when    time.Time
	loaded  bool
	seen    [3]string // of the last answer, by which it is known that nothing has changed
	gaps    []Gap     // of the middle
}

// begin is where a stream begins.
type begin struct {
	Made  int64  `json:"made"` // when the stream was created, Unix nanoseconds
	First uint64 `json:"first"`
	At    int64  `json:"at"`    // when that message was stored, Unix nanoseconds
	Bytes uint64 `json:"bytes"` // that the stream had

	Gone  []Gap `json:"gone,omitempty"`  // that was lost from the beginning
	Found int64 `json:"found,omitempty"` // when the last of it was, Unix milliseconds
}

const (
	beginKey   = "events"         // in the bucket of checkpoints
	beginEvery = 10 * time.Second // that it is stored at most
	// limitSlack is by how much a stream may be below its limit of bytes, of which one message is too large for the rest.
	limitSlack = 16 << 20
	ageSlack   = 5 * time.Second
	goneFor    = 24 * time.Hour // that a loss of the beginning is told, of which the stream itself shows nothing
)

// NewEventsWatch makes a watch. One may watch.
func (s *Streams) NewEventsWatch() *EventsWatch { return &EventsWatch{streams: s} }

// Check returns what the stream has lost as an error. info is what its leader has just said.
func (w *EventsWatch) Check(ctx context.Context, info *jetstream.StreamInfo) error {
	if !w.loaded {
		value, _, err := w.streams.Value(ctx, beginKey)
		if err != nil {
			return nil // it is asked for again
		}
		_ = json.Unmarshal(value, &w.begin) // none is stored yet, or it is of another version
		w.stored, w.loaded = w.begin, true
	}
	now := begin{
		Made: info.Created.UnixNano(), First: info.State.FirstSeq, At: info.State.FirstTime.UnixNano(),
		Bytes: info.State.Bytes,
		Gone:  w.begin.Gone, Found: w.begin.Found,
	}
	at := info.TimeStamp.UnixMilli()
	if now.Made != w.begin.Made || at-now.Found > goneFor.Milliseconds() {
		now.Gone = nil
	}
	if gone := lostBeginning(w.begin, now, info); gone.First != 0 {
		now.Gone, now.Found = append(slices.Clone(now.Gone[:min(len(now.Gone), mostGaps)]), gone), at
	}
	w.begin = now
	w.store(ctx)
	seen := [3]string{fmt.Sprint(info.State.NumDeleted), fmt.Sprint(info.State.FirstSeq), info.Config.Metadata[gapsKey]}
	if seen != w.seen {
		w.gaps = nil
		if info.State.NumDeleted > 0 {
			all, err := known(info.Config)
			if err != nil {
				return err
			}
			if w.gaps, err = listGaps(ctx, w.streams.Events, all); err != nil {
				return nil // it is asked for again
			}
		}
		w.seen = seen
	}
	lost := slices.Concat(w.begin.Gone, w.gaps)
	if len(lost) == 0 {
		return nil
	}
	return fmt.Errorf("stream %s lacks what neither its limits nor lapse have removed (%s): consumers that had not got "+
		"it have missed it", info.Config.Name, Text(lost))
}

// store stores where the stream begins: at once if it has lost something, and else now and then.
func (w *EventsWatch) store(ctx context.Context) {
	soon := w.stored.Made != w.begin.Made || len(w.begin.Gone) != len(w.stored.Gone)
	if !soon && (w.stored.First == w.begin.First || time.Since(w.when) < beginEvery) {
		return
	}
	value, err := json.Marshal(w.begin)
	if err == nil {
		_, err = w.streams.Checkpoints.Put(ctx, beginKey, value)
	}
	if err == nil { // else it is stored later
		w.stored, w.when = w.begin, time.Now()
	}
}

// lostBeginning is what a stream lacks of its beginning that its limits have not removed; zero if it lacks nothing.
func lostBeginning(before, now begin, info *jetstream.StreamInfo) (gone Gap) {
	if before.Made != now.Made || before.First == 0 || now.First <= before.First || before.At <= 0 {
		return gone
	}
	c := info.Config
	aged := c.MaxAge > 0 && time.Unix(0, before.At).Add(c.MaxAge).Before(info.TimeStamp.Add(ageSlack))
	full := c.MaxBytes > 0 && max(before.Bytes, now.Bytes)+limitSlack >= uint64(c.MaxBytes)
	if aged || full || c.MaxMsgs > 0 || c.MaxMsgsPerSubject > 0 {
		return gone
	}
	gone = Gap{before.First, now.First - 1}
	if knows, err := Knows(info, gone); knows || err != nil {
		return Gap{}
	}
	return gone
}
