// Package follow is the oracle of a run that is too long to be kept. A Follower reads the log
// and the events as they come, folds the one and judges the other, and forgets both. So its
// memory depends on how many documents there are at a time, not on how long the run is, and
// the log may be truncated behind it.
package follow

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/integration/oracle/readers"
	"github.com/seed18712806/lapse/integration/oracle/stored"
	"github.com/seed18712806/lapse/sink/wire"
)

// remembered is how many messages back an acknowledgement may come after the log was read.
const remembered = 100_000

// ErrFinding reports a difference between lapse and the model.
var ErrFinding = errors.New("the oracle disagrees")

// Follower follows one log and the events.
type Follower struct {
	js     jetstream.JetStream
	prefix wire.Prefix
	late   time.Duration // an event that is due for longer is missing
	model  *oracle.Model
	event  uint64          // the last event that was judged
	ahead  map[string]bool // events that came before the model recorded their expirations
	events int             // number of expiry events that were judged
	delays []time.Duration // of the events since the last Delays: stamp less expiredAt

	mu     sync.Mutex
	hashes map[uint64]uint64 // of messages that were acknowledged or read, and not both
}

// New makes a Follower of a log from its beginning on. An event is missing if it does not come
// within late.
func New(ctx context.Context, js jetstream.JetStream, set oracle.Settings, late time.Duration) (*Follower, error) {
	log, err := js.Stream(ctx, set.Prefix.LogStream())
	if err != nil {
		return nil, err
	}
	set.Created = wire.Time(log.CachedInfo().Created.UnixMilli())
	return &Follower{
		js: js, prefix: set.Prefix, late: late, model: oracle.NewModel(set), ahead: map[string]bool{},
		hashes: map[uint64]uint64{},
	}, nil
}

var seed = maphash.MakeSeed()

// Acked records that the log has acknowledged a message. The log must have that message at seq.
func (f *Follower) Acked(seq uint64, subject string, body []byte) error {
	return f.pair(seq, subject, body)
}

// pair compares a message that was acknowledged with the one of the log, whichever comes first.
func (f *Follower) pair(seq uint64, subject string, body []byte) error {
	var h maphash.Hash
	h.SetSeed(seed)
	_, _ = h.WriteString(subject)
	_, _ = h.Write(body)
	f.mu.Lock()
	defer f.mu.Unlock()
	other, there := f.hashes[seq]
	if !there {
		f.hashes[seq] = h.Sum64()
		return nil
	}
	delete(f.hashes, seq)
	if other != h.Sum64() {
		return fmt.Errorf("%w: message %d of the log is not the one that was acknowledged (%s)", ErrFinding, seq,
			subject)
	}
	return nil
}

// Advance reads what is new and judges it. An error that is no [ErrFinding] is that of a
// server: call it again.
func (f *Follower) Advance(ctx context.Context) error {
	// The events come first: an event that the log has not caused yet is found to be early.
	events, err := stored.Events(ctx, f.js, f.prefix, f.event+1)
	if err != nil {
		return err
	}
	log, err := stored.Read(ctx, f.js, f.prefix.LogStream(), f.model.Seq()+1)
	if err != nil {
		return err
	}
	for _, m := range log {
		if err := f.model.Apply(m); err != nil {
			return fmt.Errorf("%w: %w", ErrFinding, err)
		}
		if err := f.pair(m.Seq, m.Subject, m.Data); err != nil {
			return err
		}
	}
	f.forget()
	diff := slices.DeleteFunc(f.model.CompareEvents(events, 0),
		func(d oracle.Finding) bool { return d.Kind == oracle.Missing })
	if len(diff) > 0 {
		return fmt.Errorf("%w: after %d messages of the log:\n%s", ErrFinding, f.model.Seq(), diff)
	}
	return f.settle(events)
}

// forget drops messages for which no acknowledgement came: most likely none does.
func (f *Follower) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.hashes) < 2*remembered {
		return
	}
	for seq := range f.hashes {
		if seq+remembered < f.model.Seq() {
			delete(f.hashes, seq)
		}
	}
}

// settle removes what the events have answered, and finds what is missing.
func (f *Follower) settle(events []oracle.Message) error {
	answered, rejected := map[string]bool{}, map[string]bool{}
	for _, e := range events {
		f.event = e.Seq
		if id := e.Header.Get("ce-id"); id != "" {
			answered[id] = true
			f.events++
			var at wire.Time
			if at.UnmarshalText([]byte(e.Header.Get("ce-time"))) == nil {
				f.delays = append(f.delays, time.Duration(e.At-at)*time.Millisecond)
			}
			continue
		}
		rejected[e.Header.Get(wire.HeaderSeq)] = true
	}
	missing := wire.Time(time.Now().Add(-f.late).UnixMilli())
	var overdue []string
	latest := map[oracle.Name]wire.Etag{} // of the answered versions
	for _, e := range f.model.Expiries {
		if answered[e.ID()] {
			latest[e.Name] = max(latest[e.Name], e.Etag)
		}
	}
	f.model.Expiries = slices.DeleteFunc(f.model.Expiries, func(e oracle.Expiry) bool {
		id := e.ID()
		switch {
		case answered[id]:
			delete(answered, id)
			return true
		case f.ahead[id]:
			delete(f.ahead, id)
			return true
		case e.ExpiredAt < missing:
			overdue = append(overdue, fmt.Sprintf("the event of %s, which expired at %s", id, e.ExpiredAt))
		case latest[e.Name] > e.Etag:
			overdue = append(overdue, fmt.Sprintf("the event of %s, but that of a later version came", id))
		}
		return false
	})
	for id := range answered {
		f.ahead[id] = true
	}
	f.model.Warnings = slices.DeleteFunc(f.model.Warnings, func(w oracle.Warning) bool {
		id := w.ID()
		there := answered[id] || f.ahead[id]
		delete(answered, id)
		delete(f.ahead, id)
		if !there && w.At() < missing {
			overdue = append(overdue, fmt.Sprintf("the warning %s, of %s", id, w.At()))
		}
		return there
	})
	f.model.Changes = slices.DeleteFunc(f.model.Changes, func(c oracle.Change) bool {
		id := c.ID()
		there := answered[id] || f.ahead[id]
		delete(answered, id)
		delete(f.ahead, id)
		if !there && c.At < missing {
			overdue = append(overdue, fmt.Sprintf("the change %s, of %s", id, c.At))
		}
		return there
	})
	f.model.Rejections = slices.DeleteFunc(f.model.Rejections,
		func(r oracle.Rejection) bool { return rejected[fmt.Sprint(r.Seq)] })
	f.model.Forget()
	if len(overdue) > 0 {
		return fmt.Errorf("%w: %d events are missing: %s", ErrFinding, len(overdue), overdue[0])
	}
	return nil
}

// Seq is the last message of the log that was folded.
func (f *Follower) Seq() uint64 { return f.model.Seq() }

// Events is the number of expiry events that were judged.
func (f *Follower) Events() int { return f.events }

// Delays returns how late the events since the last call were, in order of size.
func (f *Follower) Delays() []time.Duration {
	sorted := f.delays
	f.delays = nil
	slices.Sort(sorted)
	return sorted
}

// Open is how many events and rejections are still to come, and how many documents there are
// by log time.
func (f *Follower) Open() (outputs, documents int) {
	return len(f.model.Expiries) + len(f.model.Warnings) + len(f.model.Changes) + len(f.model.Rejections),
		len(f.model.Live(0))
}

// CompareReads compares lists and counts with the model, once the log rests.
func (f *Follower) CompareReads(ctx context.Context, reads readers.Reads) error {
	diff := f.model.CompareReads(ctx, reads, func() wire.Time { return wire.Time(time.Now().UnixMilli()) })
	if len(diff) > 0 {
		return fmt.Errorf("%w:\n%s", ErrFinding, diff)
	}
	return nil
}
