package forward

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// Dead is the dead letters of a durable name.
type Dead struct {
	Durable string
	Count   uint64
	Last    []Letter // the newest first
}

const (
	lettersFirst = 32      // sequences that are looked at first; each further look is at twice as many
	lettersMost  = 4096    // sequences that are looked at in all
	lettersBytes = 4 << 20 // of letters that are read in all
)

// CountDead counts the dead letters of each durable name, by name, and reads the last ones of all names together, n at
// most; it looks only at the end of the stream, so it may find fewer. There are none if there is no stream.
func CountDead(ctx context.Context, js jetstream.JetStream, prefix wire.Prefix, n int) ([]Dead, error) {
	ctx, cancel := context.WithTimeout(ctx, exchangeWithin)
	defer cancel()
	stream, err := js.Stream(ctx, prefix.DeadStream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up the stream %s: %w", prefix.DeadStream(), err)
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(prefix.Dead("*", "*")))
	if err != nil {
		return nil, fmt.Errorf("look up the stream %s: %w", prefix.DeadStream(), err)
	}
	byName := make(map[string]*Dead)
	var names []string
	of := func(subject string) *Dead {
		name := durableOf(prefix, subject)
		if byName[name] == nil {
			byName[name], names = &Dead{Durable: name}, append(names, name)
		}
		return byName[name]
	}
	for subject, count := range info.State.Subjects {
		of(subject).Count += count
	}
	letters, err := lastLetters(ctx, stream, prefix, info.State, n)
	if err != nil {
		return nil, err
	}
	for _, l := range letters {
		if d := byName[durableOf(prefix, l.document)]; d != nil { // otherwise it has come since
			d.Last = append(d.Last, l)
		}
	}
	slices.Sort(names)
	all := make([]Dead, len(names))
	for i, name := range names {
		all[i] = *byName[name]
	}
	return all, nil
}

// durableOf is the durable name in the subject of a dead letter.
func durableOf(prefix wire.Prefix, subject string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(subject, string(prefix)+".dead."), ".")
	return name
}

// lastLetters reads the last letters of a stream, the newest first, n at most.
func lastLetters(ctx context.Context, stream jetstream.Stream, prefix wire.Prefix, state jetstream.StreamState, n int) (all []Letter, err error) {
	size, end := 0, state.LastSeq // all behind it was looked at
	for look := uint64(lettersFirst); len(all) < n && size < lettersBytes && end >= state.FirstSeq && end > 0; look *= 2 {
		begin := max(state.FirstSeq, end-min(end, look)+1)
		if state.LastSeq-begin >= lettersMost {
			break
		}
		var found []Letter
		for next := begin; next <= end && size < lettersBytes; {
			msg, err := stream.GetMsg(ctx, next, jetstream.WithGetMsgSubject(prefix.Dead("*", "*")))
			if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && msg.Sequence > end {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("read the dead letters: %w", err)
			}
			l, err := newLetter(msg)
			if err != nil {
				return nil, err
			}
			size += len(msg.Data)
			found, next = append(found, l), msg.Sequence+1
		}
		slices.Reverse(found)
		all, end = append(all, found...), begin-1
	}
	return all[:min(n, len(all))], nil
}

// WithoutEvent is the letter with a text of the event's body in place of the event.
func (l Letter) WithoutEvent(text func(body []byte) string) Letter {
	l.Text, l.Event, l.event = strings.Clone(text(l.event.data)), nil, event{}
	return l
}
