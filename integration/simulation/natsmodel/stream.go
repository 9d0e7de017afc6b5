package natsmodel

import (
	"math"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Stream is a stream of the server. Its exported methods are for the simulation; the requests
// of clients go through Server.Do.
type Stream struct {
	store
	server    *Server
	config    jetstream.StreamConfig
	described []byte // config as JSON; nil if not known
	created   time.Time
	ids       map[string]published
	consumers []*consumer
	atomics   []*atomicBatch
	fasts     []*fastBatch
	flight    map[string]bool // with replicas: subjects of messages in flight, and those whose sequence they expect
	landing   time.Time       // when the flight ends at the latest
	failed    error           // see Fail
}

// published is what is remembered of a message with an id.
type published struct {
	seq uint64
	at  int64
}

// flightTime is how long messages are in flight among replicas, if Timers is called in time.
const flightTime = time.Millisecond

// CreateStream creates a stream as a client would.
func (s *Server) CreateStream(config jetstream.StreamConfig) error {
	if _, e := s.create(config); e != nil {
		return e
	}
	return nil
}

// Messages are the messages in order. Callers change nothing; later changes of the stream do
// not show in the result.
func (st *Stream) Messages() []Stored { return slices.Clip(st.messages) }

// FirstSeq is the sequence of the first message; if there is none, one more than LastSeq.
func (st *Stream) FirstSeq() uint64 { return st.first }

// LastSeq is the sequence of the message that was stored last.
func (st *Stream) LastSeq() uint64 { return st.last }

// Created is when the stream was created.
func (st *Stream) Created() time.Time { return st.created }

// Config is a copy of the configuration.
func (st *Stream) Config() *jetstream.StreamConfig {
	c := st.config
	return &c
}

// SetConfig changes the configuration without the checks of a request, and enforces limits.
func (st *Stream) SetConfig(change func(*jetstream.StreamConfig)) {
	change(&st.config)
	st.described = nil
	st.enforce()
}

// Delete deletes the message with a sequence, if it is there.
func (st *Stream) Delete(seq uint64) {
	if i := st.from(seq); i < len(st.messages) && st.messages[i].Seq == seq {
		st.remove(i)
	}
}

// Truncate removes all messages before a sequence.
func (st *Stream) Truncate(first uint64) { st.removeIf(">", first) }

// LoseTail loses the last n messages as if they had never been stored, with their ids. New
// messages get their sequences. The consumers are lost too.
func (st *Stream) LoseTail(n int) {
	for ; n > 0 && len(st.messages) > 0; n-- {
		st.last = st.messages[len(st.messages)-1].Seq - 1
		st.remove(len(st.messages) - 1)
	}
	for id, p := range st.ids {
		if p.seq > st.last {
			delete(st.ids, id)
		}
	}
	st.consumers = nil
}

// ForgetIDs forgets the ids of all messages, as if the duplicate window had passed.
func (st *Stream) ForgetIDs() { clear(st.ids) }

// Fail lets the stream store nothing from now on, because a write has failed; nil ends that.
// Publications get no answer if they meet all conditions, and a purge reports the error.
func (st *Stream) Fail(err error) { st.failed = err }

// seen is the last sequence that answers may show which come from a replica that lags behind.
func (st *Stream) seen() uint64 {
	n := len(st.messages)
	switch lag := st.server.Lag; {
	case lag <= 0 || n == 0:
		return st.last
	case lag >= n:
		return st.first - 1
	default:
		return st.messages[n-lag].Seq - 1
	}
}

// enforce removes the first messages until the limits are kept.
func (st *Stream) enforce() {
	c := &st.config
	if per := int(c.MaxMsgsPerSubject); per > 0 {
		for i := 0; i < len(st.messages); {
			if st.subjects[st.messages[i].Subject].count > per {
				st.remove(i)
			} else {
				i++
			}
		}
	}
	st.enforceTotals()
}

func (st *Stream) enforceTotals() {
	c := &st.config
	for c.MaxMsgs > 0 && int64(len(st.messages)) > c.MaxMsgs || c.MaxBytes > 0 && st.bytes > uint64(c.MaxBytes) {
		st.remove(0)
	}
}

// next is when timers has something to do.
func (st *Stream) next() (next time.Time, ok bool) {
	s := st.server
	soonest := func(at time.Time) {
		if !ok || at.Before(next) {
			next, ok = at, true
		}
	}
	if len(st.flight) > 0 {
		soonest(st.landing)
	}
	for _, c := range st.consumers {
		soonest(c.next())
	}
	if ok { // what is due by the steady clock, by the other
		next = s.now().Add(next.Sub(s.steady()))
	}
	if st.config.MaxAge > 0 && len(st.messages) > 0 {
		soonest(st.messages[0].At.Add(st.config.MaxAge))
	}
	return next, ok
}

func (st *Stream) timers() {
	clear(st.flight)
	if age := st.config.MaxAge; age > 0 {
		limit := st.server.now().Add(-age)
		for len(st.messages) > 0 && !st.messages[0].At.After(limit) {
			st.remove(0)
		}
	}
	for _, c := range slices.Clone(st.consumers) {
		c.timers()
	}
}

// purge removes messages whose subject matches a filter (all if it is empty): those before a
// sequence if that is not 0, and all but the last few if keep is not 0.
func (st *Stream) purge(filter string, before, keep uint64) (purged uint64) {
	whole := filter == "" || filter == ">"
	if whole {
		filter = ">"
	}
	if before == 0 {
		before = math.MaxUint64
		for i := len(st.messages); keep > 0 && i > 0; i-- {
			if m := st.messages[i-1]; match(filter, m.Subject) {
				before = m.Seq
				keep--
			}
		}
		if keep > 0 {
			return 0
		}
	}
	purged = st.removeIf(filter, before)
	if whole && before != math.MaxUint64 && before > st.last+1 {
		st.last, st.first = before-1, before // the sequence goes on from there
	}
	return purged
}
