package natsmodel

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// get is a request for messages.
type get struct {
	Seq       uint64   `json:"seq"`
	Last      string   `json:"last_by_subj"`
	MultiLast []string `json:"multi_last"`
	MaxBytes  int      `json:"max_bytes"`
}

// decodeGet decodes a request, which must have no fields that get does not have.
func decodeGet(c *Command) (g get) {
	d := json.NewDecoder(strings.NewReader(string(c.Data)))
	d.DisallowUnknownFields()
	if err := d.Decode(&g); err != nil {
		panic(fmt.Sprintf("natsmodel: request to %s: %v", c.Subject, err))
	}
	return g
}

// leaderGet handles a request to the leader of a stream for a message.
func (s *Server) leaderGet(c *Command, stream string) {
	const kind = "stream_msg_get"
	g := decodeGet(c)
	st := s.Stream(stream)
	var m *Stored
	switch {
	case (g.Seq > 0) == (g.Last != "") || g.MaxBytes > 0:
		s.fail(c, kind, errBadRequest)
		return
	case st == nil:
		s.fail(c, kind, errNoStream)
		return
	case g.Seq > 0:
		m = st.get(g.Seq)
	default:
		m = st.lastOf(g.Last, st.last)
	}
	if m == nil {
		s.fail(c, kind, errNotFound)
		return
	}
	text, err := json.Marshal(struct {
		Subject string    `json:"subject"`
		Seq     uint64    `json:"seq"`
		Header  []byte    `json:"hdrs,omitempty"`
		Data    []byte    `json:"data,omitempty"`
		Time    time.Time `json:"time"`
	}{m.Subject, m.Seq, m.raw, m.Data, m.At})
	if err != nil {
		panic(err)
	}
	s.succeed(c, kind, `"message":%s`, text)
}

// directGet handles a direct request for messages, which any replica may answer.
func (s *Server) directGet(c *Command, stream string) (heard bool) {
	st := s.Stream(stream)
	if st == nil || !st.config.AllowDirect {
		return false
	}
	upTo := st.seen()
	var g get
	if _, g.Last, _ = strings.Cut(c.Subject, "$JS.API.DIRECT.GET."+stream+"."); g.Last == "" {
		if len(c.Data) == 0 {
			s.status(c.Reply, "408 Empty Request")
			return true
		}
		g = decodeGet(c)
	}
	var m *Stored
	switch {
	case len(g.MultiLast) > 0:
		st.multiLast(c, g, upTo)
		return true
	case g.Seq == 0 && g.Last == "":
		s.status(c.Reply, "408 Empty Request")
		return true
	case g.Seq > 0 && g.Last != "":
		s.status(c.Reply, "408 Bad Request")
		return true
	case g.Seq > upTo:
	case g.Seq > 0:
		m = st.get(g.Seq)
	default:
		m = st.lastOf(g.Last, upTo)
	}
	if m == nil {
		s.status(c.Reply, "404 Message Not Found")
	} else {
		s.answer(c.Reply, st.directHeader(m, ""), m.Data)
	}
	return true
}

// status sends a message of the server itself, which may have more headers.
func (s *Server) status(reply, status string, more ...any) {
	b := append([]byte("NATS/1.0 "), status...)
	for i := 0; i < len(more); i += 2 {
		b = fmt.Appendf(b, "\r\n%s: %v", more[i], more[i+1])
	}
	s.answer(reply, append(b, "\r\n\r\n"...), nil)
}

// directHeader is the header of an answer with a stored message.
func (st *Stream) directHeader(m *Stored, more string) []byte {
	h := []byte(headerLine)
	if len(m.raw) > 0 {
		h = slices.Clip(m.raw[:len(m.raw)-len("\r\n")])
	}
	return fmt.Appendf(h, "Nats-Stream: %s\r\nNats-Subject: %s\r\nNats-Sequence: %d\r\nNats-Time-Stamp: %s\r\n%s\r\n",
		st.config.Name, m.Subject, m.Seq, stamp(m.At), more)
}

// multiLast sends the last messages of the subjects that match a request.
func (st *Stream) multiLast(c *Command, g get, upTo uint64) {
	const most = 1024
	s := st.server
	chosen := make(map[uint64]bool)
	choose := func(subject string) {
		if m := st.lastOf(subject, upTo); m != nil && m.Seq >= g.Seq {
			chosen[m.Seq] = true
		}
	}
	for _, filter := range g.MultiLast {
		if !strings.ContainsAny(filter, "*>") {
			choose(filter)
			continue
		}
		for subject := range st.subjects {
			if match(filter, subject) {
				choose(subject)
			}
		}
	}
	seqs := make([]uint64, 0, len(chosen))
	for seq := range chosen {
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	switch {
	case len(seqs) == 0:
		s.status(c.Reply, "404 No Results")
		return
	case len(seqs) > most:
		s.status(c.Reply, "413 Too Many Results")
		return
	}
	room := g.MaxBytes
	if room == 0 {
		room = 64 << 20 // max_pending of the server
	}
	last, pending := uint64(0), len(seqs)
	for _, seq := range seqs {
		m := st.get(seq)
		pending--
		s.answer(c.Reply, st.directHeader(m, fmt.Sprintf("Nats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n", pending, last)), m.Data)
		last = seq
		if room -= len(m.Subject) + len(m.raw) + len(m.Data); room <= 0 {
			break
		}
	}
	s.status(c.Reply, "204 EOB", "Nats-Num-Pending", pending, "Nats-Last-Sequence", last, "Nats-UpTo-Sequence", upTo)
}
