package natsmodel

import (
	"slices"
	"sort"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/simulation/natsmodel/protocol"
)

// Stream is a stream of the server. Its exported methods are for the simulation.
type Stream struct {
	server    *Server
	config    jetstream.StreamConfig
	described []byte // config as JSON; nil if not known
	created   time.Time
	content
	past      []moment          // see LoseEnd
	ids       map[string]Stored // messages with an id, those that were removed included
	consumers []*consumer
	atomics   batchKind
	fasts     batchKind
	flight    map[string]bool // subjects of messages in flight, and those whose sequence they expect
	landing   time.Time       // when the flight is over
	failed    error           // see Fail
}

// content is the messages of a stream.
type content struct {
	messages    []Stored
	first, last uint64
	bytes       uint64
	subjects    map[string][]uint64 // sequences by subject
	now, stamp  time.Time           // when the last message was stored by the clock, and its stamp
}

// Stored is a message of a stream.
type Stored struct {
	Seq     uint64
	Subject string
	Header  nats.Header
	Data    []byte
	At      time.Time
	raw     []byte // Header on the wire
}

// Messages are the messages in order. The result does not change with the stream; callers do
// not change it either.
func (st *Stream) Messages() []Stored { return slices.Clip(st.messages) }

// FirstSeq is the sequence of the first message; if there is none, one more than LastSeq.
func (st *Stream) FirstSeq() uint64 { return st.first }

// LastSeq is the sequence of the message that was stored last.
func (st *Stream) LastSeq() uint64 { return st.last }

// Created is when the stream was created.
func (st *Stream) Created() time.Time { return st.created }

// Config is a copy of the configuration.
func (st *Stream) Config() *jetstream.StreamConfig { c := st.config; return &c }

// SetConfig changes the configuration without the checks of a request, and enforces the limits.
func (st *Stream) SetConfig(change func(*jetstream.StreamConfig)) {
	change(&st.config)
	st.described = nil
	st.enforce()
}

// Delete deletes the message with a sequence, if it is there.
func (st *Stream) Delete(seq uint64) {
	if i := st.from(seq); i < st.from(seq+1) {
		st.remove(i)
	}
}

// Truncate removes all messages before a sequence.
func (st *Stream) Truncate(first uint64) { st.purge(">", first) }

// LoseTail loses the last n messages as if they had never been stored, with their ids: new ones
// get their sequences. The consumers are lost too, as in a restart, and nobody hears of it.
func (st *Stream) LoseTail(n int) {
	for ; n > 0 && len(st.messages) > 0; n-- {
		i := len(st.messages) - 1
		st.last = st.messages[i].Seq - 1
		st.remove(i)
	}
	st.restarted()
}

// restarted forgets what a stream that has lost its end does not have after a restart.
func (st *Stream) restarted() {
	for id, p := range st.ids {
		if p.Seq > st.last {
			delete(st.ids, id)
		}
	}
	st.consumers = slices.DeleteFunc(slices.Clone(st.consumers), func(o *consumer) bool { return !o.registers() })
	st.flight = nil
	st.atomics.open, st.fasts.open = nil, nil
}

// moment is what a stream had at an instant.
type moment struct {
	at          time.Time // by the steady clock
	messages    []Stored
	first, last uint64
	bytes       uint64
}

const momentsKept = 100

// remember remembers what the stream has, before it stores a message.
func (st *Stream) remember() {
	if len(st.past) == 2*momentsKept {
		st.past = slices.Clone(st.past[momentsKept:])
	}
	st.past = append(st.past, moment{st.server.steady(), st.messages, st.first, st.last, st.bytes})
}

// LoseEnd puts the stream back to an instant, as a server that loses power does, which has not synced
// what it stored since: n messages ago, but not longer ago than its sync interval. What was removed since
// is back.
func (st *Stream) LoseEnd(n int, interval time.Duration) {
	synced := st.server.steady().Add(-interval)
	st.past = slices.DeleteFunc(st.past, func(m moment) bool { return !m.at.After(synced) })
	if n = min(n, len(st.past)); n == 0 {
		return
	}
	at := st.past[len(st.past)-n]
	st.past = st.past[:len(st.past)-n]
	st.messages, st.first, st.last, st.bytes = slices.Clip(at.messages), at.first, at.last, at.bytes
	st.subjects = make(map[string][]uint64)
	for _, m := range st.messages {
		st.subjects[m.Subject] = append(st.subjects[m.Subject], m.Seq)
	}
	st.restarted()
}

// Sync syncs the stream: what it has, it does not lose any more.
func (st *Stream) Sync() { st.past = nil }

// Fail lets writes fail from now on; nil ends that. Messages that meet all conditions are not
// stored and have no answer, and a purge returns the error.
func (st *Stream) Fail(err error) { st.failed = err }

// add stores a message. Stamps rise with each message, unless the clock falls.
func (s *content) add(c *Command, now time.Time) *Stored {
	stamp := now
	if !now.Before(s.now) && !now.After(s.stamp) {
		stamp = s.stamp.Add(1)
	}
	s.now, s.stamp = now, stamp
	s.last++
	s.messages = append(s.messages, Stored{s.last, c.Subject, c.Header, c.Data, stamp, c.raw})
	s.first = s.messages[0].Seq
	s.bytes += protocol.Size(c.Subject, c.raw, c.Data)
	s.subjects[c.Subject] = append(s.subjects[c.Subject], s.last)
	return &s.messages[len(s.messages)-1]
}

// remove removes the message with an index. It leaves the results of Messages as they are.
func (s *content) remove(i int) {
	m := s.messages[i]
	switch i {
	case 0:
		s.messages = s.messages[1:]
	case len(s.messages) - 1:
		s.messages = s.messages[:i:i]
	default:
		s.messages = slices.Concat(s.messages[:i], s.messages[i+1:])
	}
	s.bytes -= protocol.Size(m.Subject, m.raw, m.Data)
	seqs := s.subjects[m.Subject]
	j, _ := slices.BinarySearch(seqs, m.Seq)
	if s.subjects[m.Subject] = slices.Delete(seqs, j, j+1); len(seqs) == 1 {
		delete(s.subjects, m.Subject)
	}
	if s.first = s.last + 1; len(s.messages) > 0 {
		s.first = s.messages[0].Seq
	}
}

// from is the index of the first message at or after a sequence.
func (s *content) from(seq uint64) int {
	n := len(s.messages)
	if i := seq - s.first; seq >= s.first && i < uint64(n) && s.messages[i].Seq == seq {
		return int(i) // no message in between was deleted
	}
	return sort.Search(n, func(i int) bool { return s.messages[i].Seq >= seq })
}

// lastOf returns the last message of a subject up to a sequence, nil if there is none.
func (s *content) lastOf(subject string, upTo uint64) *Stored {
	seqs := s.subjects[subject]
	n, _ := slices.BinarySearch(seqs, upTo+1)
	if n == 0 {
		return nil
	}
	return &s.messages[s.from(seqs[n-1])]
}

// purge removes the messages before a sequence whose subject matches a filter.
func (s *content) purge(filter string, before uint64) (purged int) {
	for i := 0; i < len(s.messages) && s.messages[i].Seq < before; {
		if protocol.Match(filter, s.messages[i].Subject) {
			s.remove(i)
			purged++
		} else {
			i++
		}
	}
	return purged
}

// enforce removes the first messages until the limits are kept, if the stream discards old ones.
func (st *Stream) enforce() {
	c := &st.config
	for c.Discard == jetstream.DiscardOld && (c.MaxMsgs > 0 && int64(len(st.messages)) > c.MaxMsgs || c.MaxBytes > 0 &&
		st.bytes > uint64(c.MaxBytes)) {
		st.remove(0)
	}
}

// seen is the last sequence that a replica which lags behind shows.
func (st *Stream) seen() uint64 {
	n, lag := len(st.messages), st.server.Lag
	if lag <= 0 || n == 0 {
		return st.last
	}
	return st.messages[max(0, n-lag)].Seq - 1
}

// next is when timers has something to do.
func (st *Stream) next() (next time.Time, ok bool) {
	soonest := func(at time.Time) {
		if !ok || at.Before(next) {
			next, ok = at, true
		}
	}
	if len(st.flight) > 0 {
		soonest(st.landing)
	}
	for _, c := range st.consumers {
		if !c.registers() {
			soonest(c.next())
		}
	}
	if ok {
		next = st.server.now().Add(next.Sub(st.server.steady()))
	}
	if st.config.MaxAge > 0 && len(st.messages) > 0 {
		soonest(st.messages[0].At.Add(st.config.MaxAge))
	}
	return next, ok
}

func (st *Stream) timers() {
	clear(st.flight)
	limit := st.server.now().Add(-st.config.MaxAge)
	for st.config.MaxAge > 0 && len(st.messages) > 0 && !st.messages[0].At.After(limit) {
		st.remove(0)
	}
	for _, c := range slices.Clone(st.consumers) {
		c.timers()
	}
}
