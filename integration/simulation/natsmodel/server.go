package natsmodel

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Options are those of a server.
type Options struct {
	Now        func() time.Time // of the stamps; may step
	Steady     func() time.Time // of timers; never steps; Now if nil
	MaxPayload int              // of a message, headers included; 1 MiB if 0
	Replicas   int              // 1, or 3 for a cluster; 1 if 0
}

// Server is the model of a server, or of a cluster as its clients see it. Its exported fields
// are faults that may be changed between two calls.
type Server struct {
	// MaxPayload may be lowered. Clients learn it only when they connect.
	MaxPayload int
	// Lag makes streams look as if their last Lag messages were not stored yet, in the answers
	// to STREAM.INFO and DIRECT.GET: those may come from a replica or a leader that lags behind.
	Lag int
	// Refuse, if not nil, is asked before a stream stores a message. A *jetstream.APIError is
	// the answer. Any other error is a failed write: see Stream.Fail.
	Refuse func(stream string, m Command) error
	// Mute, if not nil, tells that nobody in JetStream hears requests with a subject, or
	// messages for a stream. They have no effect and no answer.
	Mute func(subject string) bool

	now      func() time.Time
	steady   func() time.Time
	replicas int
	streams  []*Stream
	subs     subscriptions
	out      []Sent // what the next call returns
}

// New makes a server without streams.
func New(o Options) *Server {
	if o.Steady == nil {
		o.Steady = o.Now
	}
	return &Server{
		MaxPayload: cmp.Or(o.MaxPayload, 1<<20), replicas: cmp.Or(o.Replicas, 1), now: o.Now, steady: o.Steady,
		subs: subscriptions{exact: make(map[string][]*subscription), below: make(map[string][]*subscription)},
	}
}

// Client is a connection of a client.
type Client struct {
	server *Server
	subs   []*subscription
	rest   []byte // of an incomplete command
	gone   bool
}

// Connect makes a connection. The server begins by sending its greeting.
func (s *Server) Connect() *Client { return &Client{server: s} }

// Greeting is the line of information that the server sends first.
func (c *Client) Greeting() []byte {
	return fmt.Appendf(nil, `INFO {"server_id":"MODEL","server_name":"MODEL","version":"2.15.2","proto":1,"headers":true,"jetstream":true,"max_payload":%d}`+"\r\n", c.server.MaxPayload)
}

// Disconnect ends a connection: its subscriptions go. Do still carries out commands of it that
// were on their way, and sends nothing back.
func (s *Server) Disconnect(c *Client) {
	c.gone = true
	for _, sub := range c.subs {
		s.subs.remove(sub)
	}
	c.subs = nil
}

// Do carries out a command, and returns what the server sends now, in order.
func (s *Server) Do(from *Client, c Command) []Sent {
	switch c.Kind {
	case Ping:
		if !from.gone {
			s.out = append(s.out, Sent{To: from, line: "PONG\r\n"})
		}
	case Subscribe:
		if !from.gone {
			sub := &subscription{client: from, sid: c.SID, subject: c.Subject, queue: c.Queue}
			from.subs = append(from.subs, sub)
			s.subs.add(sub)
		}
	case Unsubscribe:
		if i := slices.IndexFunc(from.subs, func(sub *subscription) bool { return sub.sid == c.SID }); i >= 0 {
			s.unsubscribe(from.subs[i], c.Max)
		}
	case Publish:
		s.publish(from, &c)
	}
	return s.flush()
}

// Append publishes a message to a stream, for a client that has no connection. ack is the
// answer of the stream; nil if there is none.
func (s *Server) Append(subject string, h nats.Header, data []byte) (ack []byte, sent []Sent) {
	c := Command{Kind: Publish, Subject: subject, Data: data}
	c.Header, c.raw = rawHeader(h)
	s.route(&c, subject)
	if st := s.streamOf(subject); st != nil && !s.muted(subject) {
		ack = st.plain(&c)
		st.deliver()
	}
	return ack, s.flush()
}

func (s *Server) flush() []Sent {
	out := s.out
	s.out = nil
	return out
}

func (s *Server) muted(subject string) bool { return s.Mute != nil && s.Mute(subject) }

func (s *Server) publish(from *Client, c *Command) {
	if len(c.raw)+len(c.Data) > s.MaxPayload {
		s.out = append(s.out, Sent{To: from, line: "-ERR 'Maximum Payload Violation'\r\n", Close: true})
		return
	}
	var heard bool
	if api, ok := strings.CutPrefix(c.Subject, "$JS.API."); ok {
		heard = s.muted(c.Subject) || s.request(c, api)
	} else {
		heard = s.route(c, c.Subject)
		if st := s.streamOf(c.Subject); st != nil {
			heard = true
			if !s.muted(c.Subject) {
				st.receive(c)
				st.deliver()
			}
		}
	}
	if !heard && c.Reply != "" {
		none := Command{Subject: c.Reply, raw: []byte("NATS/1.0 503\r\n\r\n")}
		for _, sub := range s.subs.match(c.Reply) {
			if sub.client == from {
				s.send(sub, &none)
			}
		}
	}
}

// answer sends a message to whoever has subscribed to a subject.
func (s *Server) answer(subject string, header, data []byte) {
	if subject != "" {
		s.route(&Command{Subject: subject, raw: header, Data: data}, subject)
	}
}

// route sends a message to the subscriptions that match a subject. It reports whether there
// are any.
func (s *Server) route(c *Command, subject string) bool {
	subs := s.subs.match(subject)
	for i, sub := range subs {
		if sub.queue == "" || !slices.ContainsFunc(subs[:i], func(other *subscription) bool { return other.queue == sub.queue }) {
			s.send(sub, c)
		}
	}
	return len(subs) > 0
}

func (s *Server) send(sub *subscription, c *Command) {
	s.out = append(s.out, Sent{To: sub.client, Subject: c.Subject, Reply: c.Reply, SID: sub.sid, Header: c.raw, Data: c.Data})
	if sub.sent++; sub.sent == sub.max {
		s.unsubscribe(sub, 0)
	}
}

// unsubscribe ends a subscription when it has got max messages.
func (s *Server) unsubscribe(sub *subscription, max int) {
	if sub.max = max; sub.sent >= max {
		s.subs.remove(sub)
		sub.client.subs = slices.DeleteFunc(sub.client.subs, func(other *subscription) bool { return other == sub })
	}
}

// Next is when Timers has something to do, by the clock Now; false if there is nothing.
func (s *Server) Next() (next time.Time, ok bool) {
	if len(s.out) > 0 {
		return s.now(), true
	}
	for _, st := range s.streams {
		if at, has := st.next(); has && (!ok || at.Before(next)) {
			next, ok = at, true
		}
	}
	return next, ok
}

// Timers does what is due by now, and returns what the server sends: heartbeats and the expiry
// of pull requests. It ends inactive consumers, removes messages that are too old, and ends
// the flight of messages among replicas.
func (s *Server) Timers() []Sent {
	for _, st := range s.streams {
		st.timers()
	}
	return s.flush()
}

// Stream returns a stream, nil if there is none.
func (s *Server) Stream(name string) *Stream {
	for _, st := range s.streams {
		if st.config.Name == name {
			return st
		}
	}
	return nil
}

func (s *Server) streamOf(subject string) *Stream {
	for _, st := range s.streams {
		for _, filter := range st.config.Subjects {
			if match(filter, subject) {
				return st
			}
		}
	}
	return nil
}

// DeleteStream deletes a stream. What the server sends because of that comes with the next
// call of Do, Append or Timers.
func (s *Server) DeleteStream(name string) {
	s.streams = slices.DeleteFunc(s.streams, func(st *Stream) bool {
		if st.config.Name != name {
			return false
		}
		for _, c := range slices.Clone(st.consumers) {
			c.delete()
		}
		return true
	})
}
