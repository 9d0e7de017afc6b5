package processor

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/events"
)

// TestG12_EventsCannotBeMadeAgain: the stream of events has lost its end, and neither a snapshot that the
// stream reaches nor the log is from before. lapse says what is missing, removes nothing, and goes on with
// reads. With the flag that the refusal names, and with no other, it goes on without these events: documents
// stay, also those that only a snapshot has, and each later event comes once.
//
// It fails if the way to go on costs the documents, or if what was given up is missed later again.
func TestG12_EventsCannotBeMadeAgain(t *testing.T) {
	t.Parallel()
	for i, how := range []string{"running", "not running", "Redis empty"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r := newLossRig(t, backends[(i+1)%2], "")
			p := r.start(nil)
			p.ready(t)
			r.live(p)
			p.stop(t)
			was := r.now()
			p = r.start(nil)
			p.ready(t)
			r.live(p)
			r.truncated(func() bool { return true })
			r.all(p)
			documents, end := r.stored(), r.eventsInfo().State.LastSeq
			if how != "running" {
				p.stop(t)
			}
			r.putBack(was, theEvents)
			if how == "Redis empty" {
				r.wipe()
			}
			if how != "running" {
				p = r.start(nil)
			}
			accepted := r.refusesLoss(p, end)
			if how != "Redis empty" {
				if n := r.stored(); n != documents {
					t.Errorf("Redis holds %d documents, and had %d", n, documents)
				}
				if got := r.body("c", "kept1.1"); got != `{"n":1}` {
					t.Errorf("a document reads %q", got)
				}
			}
			first := r.eventsInfo().State.LastSeq
			p = r.start(nil)
			p.ends(t, events.ErrLost)
			if last := r.eventsInfo().State.LastSeq; last != first {
				t.Errorf("the stream of events ended at %d, and ends at %d", first, last)
			}
			r.beginsNothing(accepted)
			r.beginAnew(accepted)
			r.goesOnWithout(documents)
		})
	}
}

// refusesLoss waits until a process refuses to go on without events that it cannot publish again, and
// checks the reason: it names what is missing up to a sequence. It returns the decision that gives it up.
func (r *lossRig) refusesLoss(p *process, end uint64) Accepted {
	r.t.Helper()
	p.ends(r.t, events.ErrLost)
	why := p.err.Error()
	lost := regexp.MustCompile(`messages from sequence (\d+) to (\d+), .*restore the stream of events.*these events`)
	m := lost.FindStringSubmatch(strings.ReplaceAll(why, "\n", " "))
	if m == nil {
		r.t.Fatalf("the reason does not say what is missing, or what to do: %s", why)
	}
	from, _ := strconv.ParseUint(m[1], 10, 64)
	to, _ := strconv.ParseUint(m[2], 10, 64)
	if last := r.eventsInfo().State.LastSeq; from == 0 || from > last+1 || to <= from || to > end {
		r.t.Errorf("the stream ends at %d, and ended at %d: %s", last, end, why)
	}
	return r.accepts(p.err)
}

// goesOnWithout checks that lapse goes on with what is there, as a person has decided, and misses nothing
// of before any more.
func (r *lossRig) goesOnWithout(documents int64) {
	r.t.Helper()
	p := r.start(nil)
	p.ready(r.t)
	if n := r.stored(); n != documents {
		r.t.Errorf("Redis holds %d documents, and had %d", n, documents)
	}
	if got := r.body("c", "kept1.1"); got != `{"n":1}` {
		r.t.Errorf("a document reads %q", got)
	}
	had := r.storedOf("c")
	for n := range 3 {
		r.live(p)
		if got, want := r.storedOf("c")-had, 21*(n+1); got != want {
			r.t.Errorf("%d events since, want %d", got, want)
		}
		if n == 0 {
			r.wipe() // a snapshot of before can be loaded
			continue
		}
		p.stop(r.t)
		p = r.start(nil)
		p.ready(r.t)
	}
	r.all(p)
	p.stop(r.t)
}

// TestG12_EventsMadeAnew: somebody deletes the stream of events, and makes it anew or lets lapse do that,
// while lapse runs or does not. If the log or a snapshot reaches back, all events come again, each once;
// else lapse refuses to go on without them, until a person gives them up. A stream that is not as lapse
// needs it is refused by name.
//
// It fails if lapse takes the new stream for the old one.
func TestG12_EventsMadeAnew(t *testing.T) {
	t.Parallel()
	for i, how := range []string{"running, deleted", "running, made anew", "running, made otherwise", "not running",
		"not running, Redis empty"} {
		for j, truncated := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, log truncated %v", how, truncated), func(t *testing.T) {
				t.Parallel()
				r := newLossRig(t, backends[(i+j)%2], "")
				p := r.start(nil)
				p.ready(t)
				r.live(p)
				r.live(p)
				if truncated {
					r.truncated(func() bool { return true })
					r.all(p)
				}
				had, documents, config := r.storedOf("c"), r.stored(), r.eventsInfo().Config
				running := strings.HasPrefix(how, "running")
				if !running {
					p.stop(t)
				}
				end := r.eventsInfo().State.LastSeq
				if err := r.js.DeleteStream(t.Context(), theEvents); err != nil {
					t.Fatal(err)
				}
				switch how {
				case "running, deleted":
					p.ends(t, ErrStreamGone)
				case "running, made otherwise":
					other := config
					other.Metadata, other.SubjectTransform = nil, nil
					natstest.CreateStream(t, r.js, other)
					p.ends(t, errEventsAnew)
					r.start(nil).ends(t, ErrMismatch)
					if err := r.js.DeleteStream(t.Context(), theEvents); err != nil {
						t.Fatal(err)
					}
				case "running, made anew":
					natstest.CreateStream(t, r.js, config)
					p.ends(t, errEventsAnew)
				case "not running, Redis empty":
					r.wipe()
				}
				p = r.start(nil)
				switch {
				case truncated:
					accepted := r.refusesLoss(p, end)
					if text := p.err.Error(); !strings.Contains(text, "from sequence 1 to") ||
						!strings.Contains(text, "made anew at") {
						t.Errorf("it does not say that the stream was made anew: %s", text)
					}
					r.beginAnew(accepted)
					r.goesOnWithout(documents)
				default:
					p.ready(t)
					eventually(t, "the events are published again", func() bool { return r.storedOf("c") >= had })
					r.live(p)
					r.agrees()
					p.stop(t)
					r.agrees()
				}
			})
		}
	}
}

// wipe empties Redis.
func (r *rig) wipe() {
	r.t.Helper()
	if err := r.redis.FlushAll(context.Background()).Err(); err != nil {
		r.t.Fatal(err)
	}
}
