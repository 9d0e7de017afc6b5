package simulation

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/seed18712806/lapse/integration/simulation/natsmodel"
	"github.com/seed18712806/lapse/integration/simulation/observer"
	"github.com/seed18712806/lapse/integration/simulation/plan"
	"github.com/seed18712806/lapse/integration/simulation/transit"
)

// link is the leaf node that joins the regions. It delivers each mirrored stream, and the questions and answers of the
// processes, independently of the others.
type link struct {
	random *rand.Rand
	cut    bool      // it never comes up again
	down   time.Time // until then nothing passes, and whoever asks hears that
	lanes  map[string]*lane
	old    time.Time         // until then questions are answered as in frozen
	frozen *natsmodel.Server // the first region, as it was
}

// lane is one of the things that a link delivers.
type lane struct {
	holds transit.Fault // it seems to be up, and nothing passes
	slow  transit.Fault // takes up to so many milliseconds
	moves bool          // the next message of a mirror is under way
}

// questions is the lane of a link beside those of the mirrored streams, which have their names.
const questions = "questions"

// mirrored are the streams that the second region mirrors.
var mirrored = []string{observer.Log, observer.Events}

func newLink(random *rand.Rand) link {
	return link{random: random, lanes: map[string]*lane{questions: {}, observer.Log: {}, observer.Events: {}}}
}

func (l *link) isDown() bool { return time.Now().Before(l.down) }

// arrival is when what is sent now on a lane arrives.
func (l *link) arrival(name string) time.Time {
	la := l.lanes[name]
	at := time.Now()
	if la.holds.Over.After(at) {
		at = la.holds.Over
	}
	at = at.Add(time.Duration(1 + l.random.Int64N(int64(2*time.Millisecond))))
	if la.slow.Over.After(time.Now()) {
		at = at.Add(time.Duration(l.random.Int64N(int64(la.slow.Strength) * int64(time.Millisecond))))
	}
	return at
}

// breakLink lets the link be worse than it seems.
func (w *World) breakLink(s plan.Step) {
	l := &w.second.link
	some := func(of string) (found []*lane) {
		for name, la := range l.lanes {
			if of == "all" || strings.HasSuffix(strings.ToLower(name), of) {
				found = append(found, la)
			}
		}
		return found
	}
	switch s.Verb {
	case "link-cut":
		l.down = transit.Later(l.down, over(s, 0))
	case "link-hold":
		for _, la := range some(s.Args[0]) {
			la.holds = transit.Fault{Over: transit.Later(la.holds.Over, over(s, 1))}
		}
	case "link-slow":
		for _, la := range some(s.Args[0]) {
			la.slow = transit.Fault{Strength: s.Number(1), Over: over(s, 2)}
		}
	case "link-old":
		l.frozen, l.old = w.nats.Frozen(), over(s, 0)
	}
}

// heal ends all faults of the link.
func (l *link) heal() {
	l.old = time.Time{}
	if !l.cut {
		l.down = time.Time{}
	}
	for _, la := range l.lanes {
		la.holds, la.slow = transit.Fault{}, transit.Fault{}
	}
}

// crosses carries a request for another domain there, and its answer back, if the link is up. Otherwise nobody hears
// the request.
func (w *World) crosses(c *conn, command natsmodel.Command) bool {
	domain := command.ForeignTo()
	if w.second == nil || domain == "" || w.second.link.isDown() {
		return false
	}
	l, from, to := &w.second.link, c.process.site, &w.site
	if domain == secondDomain {
		to = &w.second.site
	}
	name := c.process.name
	w.queue.Add(l.arrival(questions), func() {
		if l.isDown() {
			w.trace.Printf("%s: %s is lost on the link", name, command.Subject)
			return
		}
		server := to.nats
		if isQuestion(command) && c.process == w.second.host && time.Now().Before(l.old) {
			server = l.frozen
		}
		answers, sent := server.Foreign(command)
		w.trace.Printf("%s: %s arrives in %q", name, command.Subject, domain)
		to.observer.Look()
		w.deliverAt(to, sent)
		for _, answer := range answers {
			w.queue.Add(l.arrival(questions), func() {
				if !l.isDown() {
					w.deliverAt(from, from.nats.Relay(answer))
				}
			})
		}
	})
	return true
}

// answersAcross carries the answer of a process in one region to one in the other that waits for it.
func (w *World) answersAcross(from *site, command natsmodel.Command) {
	if w.second == nil || !strings.HasPrefix(command.Subject, "_INBOX.") ||
		strings.HasPrefix(command.Subject, "_INBOX.simulation") {
		return
	}
	l, to := &w.second.link, &w.second.site
	if from == to {
		to = &w.site
	}
	if command.Kind == natsmodel.Publish && to.nats.Hears(command.Subject) && !l.isDown() {
		w.queue.Add(l.arrival(questions), func() {
			if !l.isDown() {
				w.deliverAt(to, to.nats.Relay(command))
			}
		})
	}
}

// isQuestion reports whether a request changes nothing.
func isQuestion(c natsmodel.Command) bool {
	return strings.Contains(c.Subject, ".STREAM.INFO.") || strings.Contains(c.Subject, ".STREAM.MSG.GET.")
}

// mirror lets mirrors that lack messages take the next ones over.
func (w *World) mirror() {
	if w.second == nil {
		return
	}
	for _, name := range mirrored {
		if la := w.second.link.lanes[name]; !la.moves && w.lacks(name) {
			la.moves = true
			w.queue.Add(w.second.link.arrival(name), func() { w.copyNext(name) })
		}
	}
}

func (w *World) lacks(name string) bool {
	here, there := w.second.nats.Stream(name), w.nats.Stream(name)
	return here != nil && there != nil && !w.second.link.isDown() && here.Lacks(there)
}

// copyNext lets a mirror take over what it lacks, a few messages at most.
func (w *World) copyNext(name string) {
	l, far := &w.second.link, w.second
	la := l.lanes[name]
	la.moves = false
	if la.holds.Over.After(time.Now()) {
		return
	}
	n := 0
	for most := 1 + l.random.IntN(20); n < most && w.lacks(name); n++ {
		had := far.nats.Stream(name).LastSeq()
		sent := far.nats.Copy(name, w.nats.Stream(name))
		if has := far.nats.Stream(name).LastSeq(); has > had+1 {
			w.trace.Printf("the mirror of %s skips %d messages", name, has-had-1)
			far.observer.Skipped(name, had, has)
		}
		far.observer.Look()
		w.deliverAt(&far.site, sent)
	}
	if n > 0 {
		w.trace.Printf("the mirror of %s has %d more, up to %d", name, n, far.nats.Stream(name).LastSeq())
	}
}
