package natsmodel

import (
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/simulation/natsmodel/protocol"
)

// A server in a JetStream domain may be joined to one in another domain by a leaf node. What passes it, and when, is
// up to the caller: requests of clients of the one (Foreign), answers of the other (Relay), and the messages that a
// mirror takes over (Copy).

// regionRequests begins the subjects of requests to lapse in a JetStream domain.
const regionRequests = "lapse.region."

// ForeignTo is the JetStream domain that a request names; "" if it names none.
func (c *Command) ForeignTo() string {
	if domain, ok := strings.CutPrefix(c.Subject, regionRequests); ok {
		return domain
	}
	rest, ok := strings.CutPrefix(c.Subject, "$JS.")
	domain, api, _ := strings.Cut(rest, ".")
	if !ok || !strings.HasPrefix(api, "API.") {
		return ""
	}
	return domain
}

// Hears reports whether a client has subscribed to a subject.
func (s *Server) Hears(subject string) (any bool) {
	s.subscribed(subject)(func(*subscription) bool { any = true; return false })
	return any
}

// Foreign carries out a request for this domain that came from another server. answers are for that server, and sent
// is for clients of this one. The answer of a client to a request of lapse comes later.
func (s *Server) Foreign(c Command) (answers []Command, sent []Sent) {
	if strings.HasPrefix(c.Subject, regionRequests) {
		if !s.Hears(c.Subject) {
			return []Command{{Kind: Publish, Subject: c.Reply, raw: []byte("NATS/1.0 503\r\n\r\n")}}, nil
		}
		return nil, s.Do(s.Connect(), c)
	}
	there := s.Connect()
	reply := c.Reply
	c.Subject, c.Reply = "$JS.API."+strings.TrimPrefix(c.Subject, "$JS."+s.domain+".API."), "_LEAF.reply"
	s.Do(there, Command{Kind: Subscribe, Subject: c.Reply, SID: "1"})
	for _, m := range s.Do(there, c) {
		if m.To == there {
			answers = append(answers, Command{Kind: Publish, Subject: reply, raw: m.Header, Data: m.Data})
		} else {
			sent = append(sent, m)
		}
	}
	s.Disconnect(there)
	return answers, sent
}

// Relay sends an answer that came from another server to those who wait for it.
func (s *Server) Relay(c Command) []Sent {
	s.send(c.Subject, &c)
	return s.flush()
}

// Frozen is a server that has the streams as they are now. It answers questions alone.
func (s *Server) Frozen() *Server {
	old := &Server{MaxPayload: s.MaxPayload, now: s.now, steady: s.steady, replicas: s.replicas, domain: s.domain,
		subs: map[string][]*subscription{}}
	for _, st := range s.streams {
		c := *st
		c.server, c.messages, c.subjects, c.consumers = old, slices.Clone(st.messages), maps.Clone(st.subjects), nil
		for subject, seqs := range c.subjects {
			c.subjects[subject] = slices.Clone(seqs)
		}
		old.streams = append(old.streams, &c)
	}
	return old
}

// Mirrors reports whether the stream is a mirror.
func (st *Stream) Mirrors() bool { return st.config.Mirror != nil }

// Lacks reports whether an original has a message that its mirror does not have yet. The mirror goes on behind what it
// has, whatever the original has lost meanwhile.
func (st *Stream) Lacks(original *Stream) bool {
	return st.Mirrors() && original.from(st.last+1) < len(original.messages)
}

// Copy stores the next message of the original in a mirror, with its sequence and stamp. What the original has no more
// is skipped.
func (s *Server) Copy(name string, original *Stream) []Sent {
	st := s.Stream(name)
	m := original.messages[original.from(st.last+1)]
	m.Header = maps.Clone(m.Header)
	maps.DeleteFunc(m.Header, func(key string, _ []string) bool {
		return strings.HasPrefix(key, "Nats-Expected-") || strings.HasPrefix(key, "Nats-Batch-")
	})
	m.raw = rawOf(m.Header)
	st.remember()
	st.putMirrored(m)
	for _, o := range st.consumers {
		o.deliver()
	}
	return s.flush()
}

// putMirrored stores a message that has a sequence already.
func (st *Stream) putMirrored(m Stored) {
	st.content.now, st.stamp, st.last = m.At, m.At, m.Seq
	st.messages = append(st.messages, m)
	st.first = st.messages[0].Seq
	st.bytes += protocol.Size(m.Subject, m.raw, m.Data)
	st.subjects[m.Subject] = append(st.subjects[m.Subject], m.Seq)
	if id := m.Header[nats.MsgIdHdr]; id != nil && st.config.Replicas <= 1 { // replicas do not know them
		st.ids[id[0]] = m
	}
	st.enforce()
}

// rawOf is the form of headers on the wire.
func rawOf(h nats.Header) []byte {
	if len(h) == 0 {
		return nil
	}
	raw := []byte(headerLine)
	for _, key := range slices.Sorted(maps.Keys(h)) {
		for _, v := range h[key] {
			raw = append(raw, key+": "+v+"\r\n"...)
		}
	}
	return append(raw, "\r\n"...)
}
