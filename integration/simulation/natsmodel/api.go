package natsmodel

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"sort"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/simulation/natsmodel/protocol"
)

var errNoStream = refused(404, 10059, "stream not found")

// request handles a request of JetStream, by its subject behind $JS.API. It reports whether
// anybody hears it.
func (s *Server) request(c *Command, api string) (heard bool) {
	tokens := strings.Split(api, ".")
	n := len(tokens)
	switch verb := strings.Join(tokens[:min(n, 2)], "."); {
	case api == "INFO":
		domain := ""
		if s.domain != "" {
			domain = `"domain":"` + s.domain + `",`
		}
		s.succeed(c, "account_info", `%s"api":{"level":5,"total":0,"errors":0}`, domain)
	case verb == "STREAM.MSG" && n == 4 && tokens[2] == "GET":
		s.leaderGet(c, tokens[3])
	case verb == "STREAM.MSG" && n == 4 && tokens[2] == "DELETE":
		s.deleteMessage(c, tokens[3])
	case verb == "CONSUMER.MSG" && n == 5:
		return s.pull(c, tokens[3], tokens[4])
	case verb == "DIRECT.GET" && n > 2:
		return s.directGet(c, tokens[2], strings.Join(tokens[3:], "."))
	case api == "STREAM.NAMES":
		s.streamNames(c)
	case tokens[0] == "STREAM" && n == 3:
		s.streamRequest(c, tokens[1], tokens[2])
	case (verb == "CONSUMER.NAMES" || verb == "CONSUMER.LIST") && n == 3:
		s.consumers(c, tokens[1], tokens[2])
	case tokens[0] == "CONSUMER" && n == 4:
		s.consumerRequest(c, tokens[1], tokens[2], tokens[3])
	default:
		panic("natsmodel: the request is not modelled: " + c.Subject)
	}
	return true
}

// streamNames lists the streams that listen to a subject.
func (s *Server) streamNames(c *Command) {
	filter, names := decode[struct {
		Subject string
		Offset  int // all names are in the first answer
	}](c).Subject, []string{}
	for _, st := range s.streams {
		for _, subject := range st.config.Subjects {
			if protocol.Match(filter, subject) || protocol.Match(subject, filter) {
				names = append(names, st.config.Name)
				break
			}
		}
	}
	s.succeed(c, "stream_names", `"total":%d,"offset":0,"limit":1024,"streams":%s`, len(names), marshal(names))
}

// streamRequest handles a request about one stream.
func (s *Server) streamRequest(c *Command, verb, name string) {
	st, kind, e := s.Stream(name), "stream_"+strings.ToLower(verb), (*refusal)(nil)
	switch {
	case verb == "CREATE":
		st, e = s.create(decode[jetstream.StreamConfig](c))
	case st == nil:
		e = errNoStream
	case verb == "UPDATE":
		config := decode[jetstream.StreamConfig](c)
		if config.Mirror != nil && !reflect.DeepEqual(config.Mirror, st.config.Mirror) {
			e = refused(400, 10055, "stream mirror configuration can not be updated")
		} else if e = s.complete(&config); e == nil {
			st.SetConfig(func(c *jetstream.StreamConfig) { *c = config })
		}
	case verb == "DELETE":
		s.DeleteStream(name)
		s.succeed(c, kind, `"success":true`)
		return
	case verb == "PURGE" && st.config.Sealed:
		e = errSealed
	case verb == "PURGE" && st.failed != nil:
		e = refused(500, 10051, "%v", st.failed)
	case verb == "PURGE":
		p := decode[struct {
			Filter string
			Seq    uint64
		}](c)
		s.succeed(c, kind, `"success":true,"purged":%d`, st.purge(cmp.Or(p.Filter, ">"), cmp.Or(p.Seq, st.last+1)))
		return
	case verb != "INFO":
		panic("natsmodel: the request is not modelled: " + c.Subject)
	}
	if e != nil {
		s.fail(c, kind, e)
	} else if verb == "INFO" && decode[struct {
		Offset  int
		Details bool `json:"deleted_details"`
	}](c).Details {
		info := string(st.info(st.seen()))
		if all := st.deleted(st.seen()); all != nil { // of a new stream it is sequence 0
			info = numDeleted.ReplaceAllString(info, fmt.Sprintf(`"deleted":%s,"num_deleted":%d`, marshal(all),
				len(all)))
		}
		s.succeed(c, kind, "%s", info)
	} else if verb == "INFO" {
		s.succeed(c, kind, "%s", st.info(st.seen()))
	} else {
		s.succeed(c, kind, "%s", st.info(st.last))
	}
}

// deleteMessage handles a request to delete a message.
func (s *Server) deleteMessage(c *Command, name string) {
	const kind = "stream_msg_delete"
	seq := decode[struct {
		Seq     uint64
		NoErase bool `json:"no_erase"`
	}](c).Seq
	switch st := s.Stream(name); {
	case st == nil:
		s.fail(c, kind, errNoStream)
	case st.from(seq) == st.from(seq+1):
		s.fail(c, kind, refused(400, 10057, "no message found"))
	default:
		st.Delete(seq)
		s.succeed(c, kind, `"success":true`)
	}
}

// decode decodes a request. An empty one is zero. Fields that are not modelled are a panic.
func decode[T any](c *Command) (v T) {
	d := json.NewDecoder(bytes.NewReader(c.Data))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil && err != io.EOF {
		panic("natsmodel: " + c.Subject + ": " + err.Error())
	}
	return v
}

func (s *Server) succeed(c *Command, kind, format string, args ...any) {
	b := append(make([]byte, 0, 1024), `{"type":"io.nats.jetstream.api.v1.`+kind+`_response",`...)
	s.answer(c.Reply, nil, append(fmt.Appendf(b, format, args...), '}'))
}

func (s *Server) fail(c *Command, kind string, e *refusal) {
	s.succeed(c, kind, `"error":%s`, marshal(e))
}

var numDeleted = regexp.MustCompile(`"num_deleted":\d+`)

// deleted are the sequences between the first message and another that have none.
func (st *Stream) deleted(upTo uint64) (all []uint64) {
	for seq := st.first; seq <= upTo; seq++ {
		if st.from(seq) == st.from(seq+1) {
			all = append(all, seq)
		}
	}
	return all
}

// info tells of a stream what the messages up to a sequence show.
func (st *Stream) info(upTo uint64) []byte {
	if st.described == nil {
		st.described = marshal(st.config)
	}
	shown, total := st.messages[:st.from(upTo+1)], st.bytes
	for _, m := range st.messages[len(shown):] {
		total -= protocol.Size(m.Subject, m.raw, m.Data)
	}
	var firstAt, lastAt time.Time
	deleted := uint64(0)
	if n := len(shown); n > 0 {
		firstAt, lastAt, deleted = shown[0].At, shown[n-1].At, upTo+1-st.first-uint64(n)
	}
	return fmt.Appendf(
		make([]byte, 0, 1024),
		`"config":%s,"created":"%s","state":{"messages":%d,"bytes":%d,"first_seq":%d,"first_ts":"%s","last_seq":%d,"last_ts":"%s","num_subjects":%d,"num_deleted":%d,"consumer_count":%d},"ts":"%s"`,
		st.described,
		stamp(st.created),
		len(shown),
		total,
		st.first,
		stamp(firstAt),
		upTo,
		stamp(lastAt),
		len(st.subjects),
		deleted,
		len(st.consumers),
		stamp(st.server.now()),
	)
}

func stamp(t time.Time) []byte { return t.UTC().AppendFormat(nil, time.RFC3339Nano) }

// complete sets the defaults of a configuration.
func (s *Server) complete(c *jetstream.StreamConfig) *refusal {
	c.Replicas = max(c.Replicas, 1)
	c.MaxMsgs, c.MaxBytes, c.MaxMsgsPerSubject = cmp.Or(c.MaxMsgs, -1), cmp.Or(c.MaxBytes, -1),
		cmp.Or(c.MaxMsgsPerSubject, -1)
	c.MaxMsgSize, c.MaxConsumers = cmp.Or(c.MaxMsgSize, -1), cmp.Or(c.MaxConsumers, -1)
	if c.Duplicates == 0 {
		c.Duplicates = min(2*time.Minute, cmp.Or(c.MaxAge, time.Hour))
	}
	switch {
	case c.MaxAge != 0 && c.Duplicates > c.MaxAge:
		return refused(500, 10052, "duplicates window can not be larger then max age")
	case c.Replicas > s.replicas:
		return refused(500, 10074, "replicas > 1 not supported in non-clustered mode")
	}
	return nil
}

// CreateStream creates a stream as a client would.
func (s *Server) CreateStream(c jetstream.StreamConfig) error {
	if _, e := s.create(c); e != nil {
		return e
	}
	return nil
}

func (s *Server) create(c jetstream.StreamConfig) (*Stream, *refusal) {
	if e := s.complete(&c); e != nil {
		return nil, e
	}
	st := s.Stream(c.Name)
	if st == nil {
		st = &Stream{server: s, config: c, created: s.now().Round(0).UTC(), ids: make(map[string]Stored),
			content: content{subjects: make(map[string][]uint64)}, atomics: atomicBatches, fasts: fastBatches}
		s.streams = append(s.streams, st)
	} else if !reflect.DeepEqual(c, st.config) {
		return nil, refused(400, 10058, "stream name already in use with a different configuration")
	}
	return st, nil
}

// leaderGet handles a request to the leader of a stream for a message.
func (s *Server) leaderGet(c *Command, stream string) {
	const kind = "stream_msg_get"
	g := decode[struct {
		Seq  uint64 `json:"seq"`
		Last string `json:"last_by_subj"`
		Next string `json:"next_by_subj"`
	}](c)
	st := s.Stream(stream)
	if st == nil {
		s.fail(c, kind, errNoStream)
		return
	}
	m := st.lastOf(g.Last, st.last)
	switch i := st.from(g.Seq); {
	case g.Last == ">" && len(st.messages) > 0:
		m = &st.messages[len(st.messages)-1]
	case g.Next == ">" && i < len(st.messages):
		m = &st.messages[i]
	case g.Next != "" && g.Next != ">":
		for ; i < len(st.messages) && m == nil; i++ {
			if protocol.Match(g.Next, st.messages[i].Subject) {
				m = &st.messages[i]
			}
		}
	case g.Next == "" && g.Last == "" && i < st.from(g.Seq+1):
		m = &st.messages[i]
	}
	if m == nil {
		s.fail(c, kind, refused(404, 10037, "no message found"))
		return
	}
	s.succeed(c, kind, `"message":{"subject":%s,"seq":%d,"hdrs":%s,"data":%s,"time":"%s"}`, marshal(m.Subject), m.Seq,
		marshal(m.raw), marshal(m.Data), stamp(m.At))
}

// directGet handles a request for messages from a sequence on, or for the last message of a subject,
// which any replica may answer.
func (s *Server) directGet(c *Command, stream, subject string) (heard bool) {
	st := s.Stream(stream)
	if st == nil || !st.config.AllowDirect {
		return false
	}
	upTo := st.seen()
	if subject != "" {
		if m := st.lastOf(subject, upTo); m != nil {
			s.answer(c.Reply, st.directHeader(m, ""), m.Data)
		} else {
			s.status(c.Reply, "404 Message Not Found")
		}
		return true
	}
	g := decode[struct {
		MaxBytes int    `json:"max_bytes"`
		Seq      uint64 `json:"seq"`
		Batch    int    `json:"batch"`
	}](c)
	if i := st.from(g.Seq); g.Batch == 0 && g.Seq > 0 {
		if i < st.from(g.Seq+1) && g.Seq <= upTo {
			s.answer(c.Reply, st.directHeader(&st.messages[i], ""), st.messages[i].Data)
		} else {
			s.status(c.Reply, "404 Message Not Found")
		}
		return true
	}
	s.directBatch(c, st, g.Seq, upTo, g.Batch, g.MaxBytes)
	return true
}

// directBatch answers with messages from a sequence on.
func (s *Server) directBatch(c *Command, st *Stream, seq, upTo uint64, batch, maxBytes int) {
	if seq == 0 {
		s.status(c.Reply, "408 Empty Request")
		return
	}
	found := st.messages[st.from(seq):]
	found = found[:sort.Search(len(found), func(i int) bool { return found[i].Seq > upTo })]
	if len(found) == 0 {
		s.status(c.Reply, "404 Message Not Found")
		return
	}
	last, pending := uint64(0), len(found)
	for i := range found[:min(batch, len(found))] {
		m := &found[i]
		pending--
		s.answer(c.Reply, st.directHeader(m, fmt.Sprintf("Nats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n", pending,
			last)), m.Data)
		last = m.Seq
		if maxBytes -= len(m.Subject) + len(m.raw) + len(m.Data); maxBytes <= 0 {
			break
		}
	}
	s.status(c.Reply, "204 EOB", "Nats-Num-Pending", pending, "Nats-Last-Sequence", last)
}

// directHeader is the header of an answer with a stored message.
func (st *Stream) directHeader(m *Stored, more string) []byte {
	h := cmp.Or(strings.TrimSuffix(string(m.raw), "\r\n"), headerLine)
	return fmt.Appendf(nil, "%sNats-Stream: %s\r\nNats-Subject: %s\r\nNats-Sequence: %d\r\nNats-Time-Stamp: "+
		"%s\r\n%s\r\n",
		h, st.config.Name, m.Subject, m.Seq, stamp(m.At), more)
}

// status sends a message without data, with a status and more headers.
func (s *Server) status(reply, status string, more ...any) {
	b := []byte("NATS/1.0 " + status)
	for i := 0; i < len(more); i += 2 {
		b = fmt.Appendf(b, "\r\n%s: %v", more[i], more[i+1])
	}
	s.answer(reply, append(b, "\r\n\r\n"...), nil)
}
