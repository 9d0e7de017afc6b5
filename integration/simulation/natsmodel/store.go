package natsmodel

import (
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Stored is a message of a stream.
type Stored struct {
	Seq     uint64
	Subject string
	Header  nats.Header
	Data    []byte
	At      time.Time
	raw     []byte // Header on the wire
}

// size is the number of bytes that the server counts for a message.
func size(subject string, raw, data []byte) uint64 {
	n := len(subject) + len(raw) + len(data) + 30
	if len(raw) > 0 {
		n += 4
	}
	return uint64(n)
}

// store is the messages of a stream.
type store struct {
	messages    []Stored // by sequence
	first, last uint64
	bytes       uint64
	subjects    map[string]*tally
	now, stamp  int64 // when the last message was stored by the clock, and its stamp
}

// tally is what is known of the messages of a subject.
type tally struct {
	last  uint64
	count int
}

// add stores a message. Stamps rise with each message, unless the clock falls.
func (s *store) add(c *Command, now int64) uint64 {
	stamp := now
	if now >= s.now {
		stamp = max(now, s.stamp+1)
	}
	s.now, s.stamp = now, stamp
	s.last++
	if len(s.messages) == 0 {
		s.first = s.last
	}
	s.messages = append(s.messages, Stored{Seq: s.last, Subject: c.Subject, Header: c.Header, Data: c.Data, At: time.Unix(0, stamp).UTC(), raw: c.raw})
	s.bytes += size(c.Subject, c.raw, c.Data)
	t := s.subjects[c.Subject]
	if t == nil {
		t = &tally{}
		s.subjects[c.Subject] = t
	}
	t.last = s.last
	t.count++
	return s.last
}

// from is the index of the first message at or after a sequence.
func (s *store) from(seq uint64) int {
	n := len(s.messages)
	if n == 0 || seq <= s.messages[0].Seq {
		return 0
	}
	if i := seq - s.messages[0].Seq; i < uint64(n) && s.messages[i].Seq == seq {
		return int(i) // none is missing in between
	}
	return sort.Search(n, func(i int) bool { return s.messages[i].Seq >= seq })
}

// get returns the message with a sequence, nil if there is none.
func (s *store) get(seq uint64) *Stored {
	if i := s.from(seq); i < len(s.messages) && s.messages[i].Seq == seq {
		return &s.messages[i]
	}
	return nil
}

// lastOf returns the last message up to a sequence whose subject matches a filter, nil if
// there is none.
func (s *store) lastOf(filter string, upTo uint64) *Stored {
	if !strings.ContainsAny(filter, "*>") {
		t := s.subjects[filter]
		if t == nil {
			return nil
		}
		if t.last <= upTo {
			return s.get(t.last)
		}
	}
	for i := s.from(upTo + 1); i > 0; i-- {
		if m := &s.messages[i-1]; match(filter, m.Subject) {
			return m
		}
	}
	return nil
}

// lastSeqOf is the sequence of the last message of a subject, 0 if there is none.
func (s *store) lastSeqOf(subject string) uint64 {
	if m := s.lastOf(subject, s.last); m != nil {
		return m.Seq
	}
	return 0
}

// firstOf is the index of the first message of a subject that has some.
func (s *store) firstOf(subject string) int {
	return slices.IndexFunc(s.messages, func(m Stored) bool { return m.Subject == subject })
}

// remove removes the message with an index.
func (s *store) remove(i int) {
	m := s.messages[i]
	s.bytes -= size(m.Subject, m.raw, m.Data)
	switch i { // callers of Messages keep theirs
	case 0:
		s.messages = s.messages[1:]
	case len(s.messages) - 1:
		s.messages = s.messages[:i:i]
	default:
		s.messages = slices.Concat(s.messages[:i], s.messages[i+1:])
	}
	if t := s.subjects[m.Subject]; t.count == 1 {
		delete(s.subjects, m.Subject)
	} else if t.count--; t.last == m.Seq {
		for i--; s.messages[i].Subject != m.Subject; i-- {
		}
		t.last = s.messages[i].Seq
	}
	s.settleFirst()
}

func (s *store) settleFirst() {
	if s.first = s.last + 1; len(s.messages) > 0 {
		s.first = s.messages[0].Seq
	}
}

// removeIf removes the messages up to a sequence, that one not included, whose subject matches
// a filter.
func (s *store) removeIf(filter string, before uint64) (removed uint64) {
	for i := 0; i < len(s.messages) && s.messages[i].Seq < before; {
		if match(filter, s.messages[i].Subject) {
			s.remove(i)
			removed++
		} else {
			i++
		}
	}
	return removed
}
