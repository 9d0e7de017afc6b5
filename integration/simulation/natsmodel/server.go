package natsmodel

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/simulation/natsmodel/protocol"
)

// Options are those of a server.
type Options struct {
	Now        func() time.Time // for stamps; may step
	Steady     func() time.Time // for timers; never steps; Now if nil
	MaxPayload int              // of a message, headers included; 1 MiB if 0
	Replicas   int              // that streams may have: 1, or 3 in a cluster; 1 if 0
	Domain     string           // of JetStream; "" if it has none
}

// Server is the model of a server, or of a cluster as clients see it. Its exported fields are
// faults, and may be changed between two calls.
type Server struct {
	// MaxPayload may be lowered. Clients learn it only when they connect.
	MaxPayload int
	// Lag makes streams look as if their last Lag messages were not stored yet, in answers to
	// STREAM.INFO and DIRECT.GET: a replica or a leader that is out of date may give those.
	Lag int
	// Refuse, if not nil, is asked before a stream stores a message. A *jetstream.APIError is
	// the answer. Any other error is a failed write: see [Stream.Fail].
	Refuse func(stream string, m Command) error
	// Mute, if not nil, tells that JetStream does not hear requests, or messages for a stream,
	// with a subject: they have no effect and no answer.
	Mute func(subject string) bool
	// Dry makes consumers bring no messages, although they answer.
	Dry bool

	now, steady func() time.Time
	replicas    int
	domain      string
	streams     []*Stream
	subs        map[string][]*subscription // by subject; those with a wildcard by their first two tokens
	out         []Sent                     // for the next call to return
}

// New makes a server without streams.
func New(o Options) *Server {
	if o.Steady == nil {
		o.Steady = o.Now
	}
	return &Server{
		MaxPayload: cmp.Or(o.MaxPayload, 1<<20), replicas: cmp.Or(o.Replicas, 1), domain: o.Domain, now: o.Now,
		steady: o.Steady, subs: make(map[string][]*subscription),
	}
}

// Client is a connection of a client.
type Client struct {
	server *Server
	subs   []*subscription
	rest   []byte // of an incomplete command
	gone   bool
}

type subscription struct {
	client       *Client
	sid, subject string
}

// Connect makes a connection. The server begins by sending its greeting.
func (s *Server) Connect() *Client { return &Client{server: s} }

// Greeting is the line of information that the server sends first.
func (c *Client) Greeting() []byte {
	return fmt.Appendf(nil, `INFO {"server_id":"MODEL","version":"2.15.2","proto":1,"headers":true,"jetstream":true,"max_payload":%d}`+"\r\n", c.server.MaxPayload)
}

// Disconnect ends a connection, and with it the subscriptions and pull requests. Do still
// carries out commands that were on their way, and sends nothing back.
func (s *Server) Disconnect(c *Client) {
	c.gone = true
	for len(c.subs) > 0 {
		s.unsubscribe(c, c.subs[0].sid)
	}
}

// Do carries out a command, and returns what the server sends now, in order.
func (s *Server) Do(from *Client, c Command) []Sent {
	switch {
	case c.Kind == Ping && !from.gone:
		s.out = append(s.out, Sent{To: from, line: "PONG\r\n"})
	case c.Kind == Subscribe && !from.gone:
		sub := &subscription{from, c.SID, c.Subject}
		from.subs = append(from.subs, sub)
		s.subs[protocol.Key(sub.subject)] = append(s.subs[protocol.Key(sub.subject)], sub)
	case c.Kind == Unsubscribe:
		s.unsubscribe(from, c.SID)
	case c.Kind == Publish:
		s.publish(from, &c)
	}
	return s.flush()
}

func (s *Server) flush() []Sent {
	out := s.out
	s.out = nil
	return out
}

func (s *Server) unsubscribe(c *Client, sid string) {
	is := func(sub *subscription) bool { return sub.client == c && sub.sid == sid }
	if i := slices.IndexFunc(c.subs, is); i >= 0 {
		key := protocol.Key(c.subs[i].subject)
		c.subs = slices.Delete(c.subs, i, i+1)
		if s.subs[key] = slices.DeleteFunc(s.subs[key], is); len(s.subs[key]) == 0 {
			delete(s.subs, key)
		}
	}
}

// Append publishes a message to a stream, for a client that has no connection. ack is the
// answer of the stream; nil if there is none.
func (s *Server) Append(subject string, h nats.Header, data []byte) (ack []byte, sent []Sent) {
	c := Command{Kind: Publish, Subject: subject, Data: data}
	text := headerLine
	for key, values := range h {
		for _, v := range values {
			text += key + ": " + v + "\r\n"
		}
	}
	c.Header, c.raw = sorted(text + "\r\n")
	s.send(subject, &c)
	if st := s.streamOf(subject); st != nil && !s.muted(subject) {
		ack = st.receive(&c)
	}
	return ack, s.flush()
}

func (s *Server) muted(subject string) bool { return s.Mute != nil && s.Mute(subject) }

// publish handles a message of a client.
func (s *Server) publish(from *Client, c *Command) {
	if len(c.raw)+len(c.Data) > s.MaxPayload {
		s.out = append(s.out, Sent{To: from, line: "-ERR 'Maximum Payload Violation'\r\n", Close: true})
		return
	}
	st := s.streamOf(c.Subject)
	heard := s.send(c.Subject, c) || st != nil
	if api, ok := strings.CutPrefix(c.Subject, "$JS.API."); ok {
		heard = s.muted(c.Subject) || s.request(c, api)
	} else if st != nil && !s.muted(c.Subject) {
		st.receive(c)
	}
	if !heard && c.Reply != "" {
		s.answer(c.Reply, []byte("NATS/1.0 503\r\nNats-Subject: "+c.Subject+"\r\n\r\n"), nil)
	}
}

// answer sends a message of the server itself.
func (s *Server) answer(subject string, header, data []byte) {
	if subject != "" {
		s.send(subject, &Command{Subject: subject, raw: header, Data: data})
	}
}

// send sends a message to those who have subscribed to a subject. It reports whether anybody has.
func (s *Server) send(subject string, c *Command) (any bool) {
	for sub := range s.subscribed(subject) {
		any = true
		s.out = append(s.out, Sent{To: sub.client, Subject: c.Subject, Reply: c.Reply, SID: sub.sid, Header: c.raw,
			Data: c.Data})
	}
	return any
}

func (s *Server) subscribed(subject string) func(yield func(*subscription) bool) {
	return func(yield func(*subscription) bool) {
		for _, key := range [2]string{subject, protocol.FirstTwo(subject)} {
			for _, sub := range s.subs[key] {
				if protocol.Match(sub.subject, subject) && !yield(sub) {
					return
				}
			}
		}
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

// Timers does what is due by now, and returns what the server sends: heartbeats, and the expiry
// of pull requests, of consumers, and of messages by their age.
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
		if slices.ContainsFunc(st.config.Subjects, func(filter string) bool {
			return protocol.Match(filter,
				subject)
		}) {
			return st
		}
	}
	return nil
}

// DeleteStream deletes a stream. The next call of Do, Append or Timers returns what the server
// sends because of that.
func (s *Server) DeleteStream(name string) {
	if st := s.Stream(name); st != nil {
		s.streams = slices.DeleteFunc(s.streams, func(other *Stream) bool { return other == st })
		for len(st.consumers) > 0 {
			st.consumers[0].delete()
		}
	}
}
