package oracle

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/oracle/readers"
	"github.com/seed18712806/lapse/integration/oracle/stored"
	"github.com/seed18712806/lapse/sink/wire"
)

// Options say what to verify.
type Options struct {
	NATS     *nats.Conn
	Settings                 // MaxBody and Created are read from the server if 0
	Reads    []readers.Reads // the read service if empty
	Before   [][]Message     // of each log, those that it began with, if they may be truncated
	// Limit is how long nothing may change while lapse has yet to publish an event that is due or to apply a write;
	// 3 minutes if 0. A busy machine may take longer for all of them. An event that must not be there fails the test
	// at once.
	Limit time.Duration
}

// Result is the model and the events of a verified history.
type Result struct {
	Model    *Model
	Events   []Message
	Lateness []time.Duration // of each expiry event: its stamp less its expiredAt
}

// Verify compares the events stream and the reads with the log (or the logs of all shards), and fails the test with
// the differences.
func Verify(t testing.TB, o Options) Result {
	t.Helper()
	result, diff, err := Check(t.Context(), o)
	if err != nil {
		t.Fatalf("oracle: %v", err)
	}
	if len(diff) > 0 {
		t.Fatalf("oracle: after %d messages of the log and %d events:\n%s", result.Model.Seq(), len(result.Events),
			diff)
	}
	return result
}

// How often Check reads what is new, and how often it compares everything while
// events are missing.
const (
	checkEvery   = 50 * time.Millisecond
	compareEvery = 2 * time.Second
)

// Check is Verify for a caller that goes on after a failure.
func Check(ctx context.Context, o Options) (Result, Diff, error) {
	o.Prefix = cmp.Or(o.Prefix, wire.DefaultPrefix)
	o.MaxBody = cmp.Or(o.MaxBody, int(o.NATS.MaxPayload())-8<<10)
	o.Limit = cmp.Or(o.Limit, 3*time.Minute)
	if o.Reads == nil {
		o.Reads = []readers.Reads{readers.ByService(o.NATS, o.Prefix)}
	}
	js, err := jetstream.New(o.NATS)
	if err != nil {
		return Result{}, nil, err
	}
	now := func() wire.Time { return wire.Time(time.Now().UnixMilli()) }
	at := now() // lapse must publish the events that are due now, however long it takes
	models := o.models()
	for i, log := range o.Before {
		for _, m := range log {
			if err := models[i].Apply(m); err != nil {
				return Result{}, nil, err
			}
		}
	}
	var events []Message
	result := func() Result { return Result{Model: join(models), Events: events, Lateness: stored.Lateness(events)} }
	late := progress{at: time.Now()}
	ticker := time.NewTicker(checkEvery)
	defer ticker.Stop()
	var diff Diff
	var pause time.Duration // before the next comparison
	for compared := time.Now(); ; {
		var err error
		reading := now()
		events, err = catchUp(ctx, js, models, events, o.Limit)
		// A comparison costs much CPU time: while events are missing it is rare.
		waited := time.Since(compared)
		if err == nil && (len(events) >= required(models, at) && waited > pause || waited > compareEvery) {
			began := time.Now()
			diff = nil
			for _, m := range models {
				diff = append(diff, m.CompareEvents(m.own(events), at)...)
			}
			if !diff.OnlyMissing() && !behind(ctx, js, models, reading) {
				return result(), diff, nil
			}
			if len(diff) == 0 {
				diff = readAll(ctx, join(models), o, now)
				// If a log grew meanwhile, the comparison does not count.
				var rest bool
				if rest, err = atRest(ctx, js, models); rest && len(diff) == 0 {
					return result(), nil, nil
				}
			}
			compared = time.Now()
			pause = 3 * compared.Sub(began)
		}
		if late.since(len(events), len(diff)) > o.Limit || ctx.Err() != nil {
			if err == nil && len(diff) == 0 {
				err = fmt.Errorf("the log does not come to rest: its last message was %d", join(models).Seq())
			}
			if len(diff) > 0 { // it tells more than the error of the expired context
				err = nil
			}
			return result(), diff, err
		}
		<-ticker.C
	}
}

// progress is how far lapse has got.
type progress struct {
	events, missing int
	at              time.Time // of the last change
}

// since is how long both numbers have been the same.
func (p *progress) since(events, missing int) time.Duration {
	if events != p.events || missing != p.missing {
		*p = progress{events, missing, time.Now()}
	}
	return time.Since(p.at)
}

// readAll compares what is read in each way with the model.
func readAll(ctx context.Context, m *Model, o Options, now func() wire.Time) (diff Diff) {
	for _, reads := range o.Reads {
		ctx, cancel := context.WithTimeout(ctx, o.Limit)
		diff = append(diff, m.CompareReads(ctx, reads, now)...)
		cancel()
	}
	return diff
}

// required returns how many events must exist at an instant.
func required(models []*Model, at wire.Time) (n int) {
	for _, m := range models {
		at := max(at, m.now)
		n += len(m.Expiries) + len(m.Rejections) + len(m.Warnings) + len(m.Changes) +
			len(m.warningsDue(at)) + len(m.toPublish(at))
	}
	return n
}

// atRest reports whether the models have all messages of their logs.
func atRest(ctx context.Context, js jetstream.JetStream, models []*Model) (bool, error) {
	for _, m := range models {
		log, err := stored.Info(ctx, js, m.log().Stream())
		if err != nil || log.State.LastSeq != m.seq {
			return false, err
		}
	}
	return true, nil
}

// behind reports whether a log had more messages at an instant than its model, or may have had.
func behind(ctx context.Context, js jetstream.JetStream, models []*Model, at wire.Time) bool {
	return slices.ContainsFunc(models, func(m *Model) bool { return stored.Behind(ctx, js, m.log(), m.seq, at) })
}

// catchUp reads the new events, then the new messages of the logs. In this order an
// event that a log has not caused yet is found to be early.
func catchUp(ctx context.Context, js jetstream.JetStream, models []*Model, events []Message, limit time.Duration,
) ([]Message, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	seen := uint64(0)
	if n := len(events); n > 0 {
		seen = events[n-1].Seq
	}
	more, err := stored.Events(ctx, js, models[0].set.Prefix, seen+1)
	if err != nil {
		return events, err
	}
	events = append(events, more...)
	for _, m := range models {
		if err := m.catchUp(ctx, js); err != nil {
			return events, err
		}
	}
	return events, nil
}
