package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestProgressed: failures count no longer once something that came after the takeover is committed, or nothing has
// failed for a while. A takeover is no progress, nor is a load.
func TestProgressed(t *testing.T) {
	long := time.Now().Add(-backoff.Calm - time.Second)
	for _, tt := range []struct {
		upTo   uint64 // 8 is committed
		loads  bool
		failed time.Time
		want   bool
	}{
		{7, false, time.Now(), true}, {8, false, time.Now(), false}, {9, false, time.Now(), false}, {9, false, long,
			true},
		{7, true, time.Now(), false}, {9, true, long, false},
	} {
		p := at8(nil, tt.upTo)
		if p.tenure.failed = tt.failed; tt.loads {
			p.tenure.loads = &snapshot.Manifest{}
		}
		if got := p.progressed(); got != tt.want {
			t.Errorf("%+v: it has progressed: %t", tt, got)
		}
	}
}

// TestFailure: after a failure the owner takes the shard over again, and remembers damage. People hear of every
// failure but a first fence, which another owner's takeover explains.
func TestFailure(t *testing.T) {
	for _, tt := range []struct {
		err             error
		failures        int
		damage, trouble bool
		fenced          float64
	}{
		{errFault, 1, false, true, 0}, {fmt.Errorf("x: %w", store.ErrFenced), 1, false, false, 1}, {store.ErrFenced, 2,
			false, true, 1},
		{fmt.Errorf("x: %w", store.ErrDamaged), 1, true, true, 0},
	} {
		r := newRig(t)
		r.idle()
		before := time.Now()
		r.recoverFrom(tt.err, tt.failures)
		if (r.tenure.damage != nil) != tt.damage || r.tenure.taken || r.tenure.failed.Before(before) {
			t.Errorf("%v: it knows the damage %v", tt.err, r.tenure.damage)
		}
		trouble := r.Status.Trouble.Load() != nil
		if told := slices.Contains(r.logged, "the processor has a problem") ||
			len(r.logged) > 0; trouble != tt.trouble || told != tt.trouble || value(t, r.Metrics.Fenced) != tt.fenced {
			t.Errorf("%v: people hear of it: %t, %q; %v fences", tt.err, trouble, r.logged, value(t, r.Metrics.Fenced))
		}
	}
}

// TestFatal: an owner ends where it would be wrong to go on, which a refusal says, and not where something has failed.
func TestFatal(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{errFault, false}, {fmt.Errorf("x: %w", streams.Refuse(streams.ErrLogBehind, "", "y")), true},
		{fmt.Errorf("x: %w", ErrNotOwner), true},
		{fmt.Errorf("x: %w", store.ErrForeign), false},
	} {
		if got := new(Owner).fatal(tt.err); got != tt.want {
			t.Errorf("%v: fatal: %t", tt.err, got)
		}
	}
}

// shortLease is a lease that ends after some questions.
type shortLease struct {
	left   int
	fenced error
	asked  int
}

func (l *shortLease) OK(context.Context) error {
	if l.left--; l.left < 0 {
		return ErrNotOwner
	}
	return nil
}

func (l *shortLease) Fenced(context.Context) error {
	l.asked++
	return l.fenced
}

// TestRunEnds: Run ends once the lease has gone to another process, or once a fence shows that, and with its context.
func TestRunEnds(t *testing.T) {
	t.Run("the lease ends", func(t *testing.T) {
		r := newRig(t)
		r.Lease = &shortLease{left: 2}
		if err := r.Run(t.Context()); !errors.Is(err, ErrNotOwner) || r.Status.Begun.Load() != 0 {
			t.Errorf("%v; a step is under way since %d", err, r.Status.Begun.Load())
		}
	})
	for _, ends := range []bool{true, false} {
		t.Run(fmt.Sprint("a fence ends it: ", ends), func(t *testing.T) {
			r := newRig(t)
			l := &shortLease{left: 1000}
			if ends {
				l.fenced = ErrNotOwner
			}
			r.Lease = l
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			begun, troubles, last := int64(0), 0, ""
			r.at[crash.AfterRead] = func() { // another process takes the shard, three times
				if l.asked == 3 {
					cancel()
				}
				begun = r.Status.Begun.Load()
				s := r.state()
				if err := store.New(r.redis.Client, prefix, 0, 1).Take(t.Context(), s, "another's", 0); err != nil {
					t.Error(err)
				}
				r.duties.heartbeat = time.Time{}
			}
			r.at[crash.AfterTake] = func() {
				if why := r.Status.Trouble.Load(); why != nil {
					troubles, last = troubles+1, (*why).Error()
				}
			}
			err := r.Run(ctx)
			if ends && (!errors.Is(err, ErrNotOwner) || l.asked != 1) || !ends && (err != nil || l.asked < 3 ||
				troubles != 2) {
				t.Errorf("%v; the lease was asked %d times, and %d times people heard of trouble, such as %q", err,
					l.asked, troubles, last)
			}
			if begun == 0 || r.Status.Begun.Load() != 0 {
				t.Errorf("the step under way was begun at %d, and now one at %d", begun, r.Status.Begun.Load())
			}
		})
	}
}

// TestRunForgetsFailures: a fence long after another one, with progress in between, is a first one again: people do not
// hear of it. Those that are told hear also that it is over.
func TestRunForgetsFailures(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	steps, troubles := 0, 0
	fence := func() {
		if err := store.New(r.redis.Client, prefix, 0, 1).Take(t.Context(), r.state(), "another's", 0); err != nil {
			t.Error(err)
		}
		r.duties.heartbeat = time.Time{}
	}
	takeovers := 0
	r.at[crash.AfterTake] = func() {
		takeovers++
		if r.Status.Trouble.Load() != nil {
			troubles++
		}
	}
	r.at[crash.AfterRead] = func() {
		switch steps++; steps {
		case 2, 6:
			fence()
		case 4: // after the second takeover something new is committed
			r.write(start, "a", `{}`)
			r.handOut()
		case 9:
			cancel()
		}
		r.Queue.Wake()
	}
	if err := r.Run(ctx); err != nil || takeovers != 3 || troubles > 0 {
		t.Errorf("%v; after %d takeovers people have heard of trouble %d times; %d steps", err, takeovers, troubles,
			steps)
	}
}

// TestTroubleEnds: once a step succeeds, people hear that the shard goes on.
func TestTroubleEnds(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.failAt = 0
	troubled := false
	r.at[crash.AfterTake] = func() { troubled = r.Status.Trouble.Load() != nil }
	steps := 0
	r.at[crash.AfterRead] = func() {
		if steps++; steps == 4 {
			cancel()
		}
		r.Queue.Wake()
	}
	if err := r.Run(ctx); err != nil || !troubled || r.Status.Trouble.Load() != nil {
		t.Errorf("%v; there was trouble: %t, and is: %v", err, troubled, r.Status.Trouble.Load())
	}
}

// TestTheReaderBringsMessages: what comes from the reader of the log is taken in batches. The position to which the
// log was read counts only where all that came before it is taken.
//
// It fails if the log counts as applied beyond messages that wait.
func TestTheReaderBringsMessages(t *testing.T) {
	r := newRig(t)
	r.idle()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Reader.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	if _, err := r.js.Publish(ctx, prefix.Config("c"), []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	var last uint64
	for i := range fold.BatchMessages + 50 {
		ack, err := r.js.PublishAsync(prefix.Write(wire.Upsert, "c", fmt.Sprint(i)), []byte(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		if i == fold.BatchMessages+49 {
			last = (<-ack.Ok()).Sequence
		}
	}
	r.until("the log is read", func() bool { return r.Queue.ReadUpTo().Seq >= last })
	for step, want := range []uint64{last - fold.BatchMessages - 50, last - 50, last} {
		if _, err := r.runOnce(t.Context()); err != nil || r.progress.Offset != want {
			t.Errorf("step %d: applied up to %d, want %d: %v", step, r.progress.Offset, want, err)
		}
	}
	if n := len(r.documents()); n != fold.BatchMessages+50 {
		t.Errorf("%d documents are stored", n)
	}
	// A tick is read after the owner has stepped: by it a document is due.
	tick, err := r.js.Publish(t.Context(), prefix.Log(0, 1).Tick(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.until("the tick is read", func() bool { return r.Queue.ReadUpTo().Seq == tick.Sequence })
	read := r.Queue.ReadUpTo()
	for _, tt := range []struct {
		offset uint64
		next   int64
		want   bool
	}{{read.Seq - 1, read.Time, true}, {read.Seq - 1, read.Time + 1, false}, {read.Seq, read.Time, false}} {
		r.progress.Advance(fold.Position{Seq: tt.offset, Time: read.Time - 1})
		r.due.Set(dueAt(tt.next, 1))
		r.duties.heartbeat = time.Now()
		if due, err := r.keep(t.Context()); due != tt.want || err != nil {
			t.Errorf("%+v: something is due: %t, %v", tt, due, err)
		}
	}
}

// until waits until something has come about.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	if err := poll.Met(time.Minute, what, ok); err != nil {
		r.t.Fatal(err)
	}
}
