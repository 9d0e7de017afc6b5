package streams

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

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
		Made: info.Created.UnixNano(), First: info.State.FirstSeq, At: info.State.FirstTime.UnixNano(), Bytes: info.State.Bytes,
		Gone: w.begin.Gone, Found: w.begin.Found,
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
	return fmt.Errorf("stream %s lacks what neither its limits nor lapse have removed (%s): consumers that had not got it have missed it", info.Config.Name, Text(lost))
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
