package oracle

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// Options say what to verify.
type Options struct {
	NATS     *nats.Conn
	Settings         // MaxBody is taken from the server if 0
	Reads    []Reads // the read service if empty
	// Limit is how long what is due may take to be said and what is written to
	// be readable; a minute if 0. What is said and ought not to be fails at once.
	Limit time.Duration
}

// Result is what a history came to, for a test that has figures to tell.
type Result struct {
	Model    *Model
	Events   []Message
	Lateness []time.Duration // of each expiry event: from its instant to its stamp
}

// Verify holds the events stream and the reads against the log, and fails the
// test with what is wrong.
func Verify(t testing.TB, o Options) Result {
	t.Helper()
	result, diff, err := Check(t.Context(), o)
	if err != nil {
		t.Fatalf("oracle: %v", err)
	}
	if !diff.Empty() {
		t.Fatalf("oracle: after %d messages of the log and %d events:\n%s", result.Model.Seq(), len(result.Events), diff)
	}
	return result
}

// Check is Verify, for what goes on after a failure.
func Check(ctx context.Context, o Options) (Result, Diff, error) {
	o.Prefix = cmp.Or(o.Prefix, wire.DefaultPrefix)
	o.MaxBody = cmp.Or(o.MaxBody, int(o.NATS.MaxPayload())-8<<10)
	o.Limit = cmp.Or(o.Limit, time.Minute)
	if o.Reads == nil {
		o.Reads = []Reads{ByService(o.NATS, o.Prefix)}
	}
	js, err := jetstream.New(o.NATS)
	if err != nil {
		return Result{}, Diff{}, err
	}
	now := func() wire.Time { return wire.Time(time.Now().UnixMilli()) }
	at := now() // what is due by now must be said, however long it takes
	model := NewModel(o.Settings)
	result := Result{Model: model}
	ctx, cancel := context.WithTimeout(ctx, o.Limit)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	var diff Diff
	for {
		next, err := catchUp(ctx, js, &result, o.Prefix)
		if err == nil {
			diff = model.CompareEvents(result.Events, at)
			if diff.Empty() {
				for _, reads := range o.Reads {
					diff.Add(model.CompareReads(ctx, reads, now))
				}
				// What was written while it read counts next time.
				if next, err = last(ctx, js, o.Prefix); err == nil && next == model.Seq() && diff.Empty() {
					return result.measured(), diff, nil
				}
			} else if !diff.OnlyMissing() {
				return result.measured(), diff, nil
			}
		}
		select {
		case <-ctx.Done():
			if err == nil && diff.Empty() {
				err = fmt.Errorf("the log does not come to rest: it is at %d", next)
			}
			if !diff.Empty() { // which tells more than that time is up
				err = nil
			}
			return result.measured(), diff, err
		case <-ticker.C:
		}
	}
}

// catchUp reads what is new, the events before the log: what the log has not
// caused by then has come too early. It returns the log's last sequence.
func catchUp(ctx context.Context, js jetstream.JetStream, r *Result, prefix wire.Prefix) (uint64, error) {
	from := uint64(1)
	if n := len(r.Events); n > 0 {
		from = r.Events[n-1].Seq + 1
	}
	events, err := ReadEvents(ctx, js, prefix, from)
	if err != nil {
		return 0, err
	}
	r.Events = append(r.Events, events...)
	log, err := Read(ctx, js, prefix.LogStream(), r.Model.Seq()+1)
	if err != nil {
		return 0, err
	}
	for _, msg := range log {
		if err := r.Model.Apply(msg); err != nil {
			return 0, err
		}
	}
	return r.Model.Seq(), nil
}

func last(ctx context.Context, js jetstream.JetStream, prefix wire.Prefix) (uint64, error) {
	stream, err := js.Stream(ctx, prefix.LogStream())
	if err != nil {
		return 0, err
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	return info.State.LastSeq, nil
}

// measured fills in the lateness.
func (r Result) measured() Result {
	for _, e := range r.Events {
		var at wire.Time
		if at.UnmarshalText([]byte(e.Header.Get("ce-time"))) == nil {
			r.Lateness = append(r.Lateness, time.Duration(e.At-at)*time.Millisecond)
		}
	}
	return r
}
