package natsmodel

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// refusal is an error with which the server answers.
type refusal = jetstream.APIError

func refused(status, code int, format string, args ...any) *refusal {
	return &refusal{Code: status, ErrorCode: jetstream.ErrorCode(code), Description: fmt.Sprintf(format, args...)}
}

func wrongLast(seq uint64) *refusal { return refused(400, 10071, "wrong last sequence: %d", seq) }

// Errors that are the same each time.
var (
	errTooLarge     = refused(400, 10054, "message size exceeds maximum allowed")
	errOtherStream  = refused(400, 10060, "expected stream does not match")
	errSealed       = refused(400, 10109, "invalid operation on sealed stream")
	errNotPermitted = refused(500, 10111, "rollup not permitted")
	errInFlight     = refused(400, 10164, "wrong last sequence")
	errNoSequence   = refused(400, 10193, "missing sequence for expected last sequence per subject")
	errDuplicate    = refused(400, 10201, "atomic publish batch contains duplicate message id")
)

// receive handles a message for the stream, and answers it.
func (st *Stream) receive(c *Command) {
	if strings.HasSuffix(c.Reply, fastSuffix) {
		st.fast(c)
	} else if id := c.header("Nats-Batch-Id"); id != "" {
		st.atomic(c, id)
	} else if ack := st.plain(c); ack != nil {
		st.server.answer(c.Reply, nil, ack)
	}
}

func (c *Command) header(key string) string {
	if v := c.Header[key]; v != nil {
		return v[0]
	}
	return ""
}

// number is the value of a header that is a number. present is false if there is none.
func (c *Command) number(key string) (n uint64, present bool) {
	n, err := strconv.ParseUint(c.header(key), 10, 64)
	return n, err == nil
}

// expectedSubject is the subject whose last sequence a message expects.
func (c *Command) expectedSubject() string {
	if subject := c.header(jetstream.ExpectedLastSubjSeqSubjHeader); subject != "" {
		return subject
	}
	return c.Subject
}

// plain stores a message that is not part of a batch, and returns the answer; nil if there is
// none.
func (st *Stream) plain(c *Command) []byte {
	e := st.takes(c)
	var duplicate uint64
	d := staged{st: st}
	if e == nil && st.config.Replicas > 1 {
		duplicate, e = d.check(c)
	} else if e == nil {
		duplicate, e = st.check(c)
	}
	if duplicate > 0 {
		return append(st.ack(duplicate), `,"duplicate": true}`...)
	}
	if e == nil {
		e = st.permitted(c)
	}
	if e != nil {
		return st.nack(e)
	}
	d.take()
	if seq := st.put(c); seq > 0 {
		return append(st.ack(seq), '}')
	}
	return nil
}

// ack is an answer, to be ended.
func (st *Stream) ack(seq uint64) []byte {
	b := make([]byte, 0, 128)
	b = append(append(append(b, `{"stream":"`...), st.config.Name...), `","seq":`...)
	return strconv.AppendUint(b, seq, 10)
}

func (st *Stream) nack(e *refusal) []byte {
	text, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return fmt.Appendf(nil, `{"error":%s,"stream":%q,"seq":0}`, text, st.config.Name)
}

// takes returns why the stream takes no message like this one.
func (st *Stream) takes(c *Command) *refusal {
	switch limit := int(st.config.MaxMsgSize); {
	case st.config.Sealed:
		return errSealed
	case limit > 0 && len(c.raw)+len(c.Data) > limit:
		return errTooLarge
	}
	return nil
}

// check checks the conditions of a message in the order of a stream without replicas. It
// returns the sequence of the message that this one is a duplicate of.
func (st *Stream) check(c *Command) (duplicate uint64, e *refusal) {
	if c.Header == nil {
		return 0, st.full(c)
	}
	if name := c.header(jetstream.ExpectedStreamHeader); name != "" && name != st.config.Name {
		return 0, errOtherStream
	}
	if seq, ok := c.number(jetstream.ExpectedLastSubjSeqHeader); ok {
		if last := st.lastSeqOf(c.expectedSubject()); last != seq {
			return 0, wrongLast(last)
		}
	} else if c.header(jetstream.ExpectedLastSubjSeqSubjHeader) != "" {
		return 0, errNoSequence
	}
	if seq, ok := c.number(jetstream.ExpectedLastSeqHeader); ok && seq != st.last {
		return 0, wrongLast(st.last)
	}
	if duplicate := st.known(c.header(jetstream.MsgIDHeader)); duplicate > 0 {
		return duplicate, nil
	}
	if c.header(jetstream.MsgRollup) != "" && (!st.config.AllowRollup || st.config.DenyPurge) {
		return 0, errNotPermitted
	}
	return 0, st.full(c)
}

// known is the sequence of the message that had an id, 0 if there was none in the duplicate
// window.
func (st *Stream) known(id string) uint64 {
	if p, ok := st.ids[id]; ok && time.Duration(st.server.now().UnixNano()-p.at) < st.config.Duplicates {
		return p.seq
	}
	return 0
}

// full returns why a stream that discards new messages does so with this one.
func (st *Stream) full(c *Command) *refusal {
	f := &st.config
	if f.Discard != jetstream.DiscardNew {
		return nil
	}
	replaces := uint64(0) // size of the message that goes because there are too many of its subject
	if t := st.subjects[c.Subject]; f.MaxMsgsPerSubject > 0 && t != nil && int64(t.count) >= f.MaxMsgsPerSubject {
		if f.DiscardNewPerSubject {
			return tooMany("messages per subject")
		}
		m := st.messages[st.firstOf(c.Subject)]
		replaces = size(m.Subject, m.raw, m.Data)
	}
	n := size(c.Subject, c.raw, c.Data)
	switch {
	case f.MaxMsgs > 0 && int64(len(st.messages)) >= f.MaxMsgs && replaces == 0:
		return tooMany("messages")
	case f.MaxBytes > 0 && st.bytes+n > uint64(f.MaxBytes) && replaces < n:
		return tooMany("bytes")
	}
	return nil
}

func tooMany(what string) *refusal { return refused(503, 10077, "maximum %s exceeded", what) }

// permitted asks Server.Refuse.
func (st *Stream) permitted(c *Command) *refusal {
	if st.server.Refuse == nil {
		return nil
	}
	err := st.server.Refuse(st.config.Name, *c)
	var e *refusal
	if err != nil && !errors.As(err, &e) {
		st.failed = err
	}
	return e
}

// put stores a message, and returns its sequence; 0 if writes fail.
func (st *Stream) put(c *Command) uint64 {
	if st.failed != nil {
		return 0
	}
	now := st.server.now().UnixNano()
	seq := st.add(c, now)
	if id := c.header(jetstream.MsgIDHeader); id != "" && st.config.Duplicates > 0 {
		st.ids[id] = published{seq, now}
	}
	f := &st.config
	if per := f.MaxMsgsPerSubject; per > 0 && int64(st.subjects[c.Subject].count) > per {
		st.remove(st.firstOf(c.Subject))
	}
	st.enforceTotals()
	if rollup := c.header(jetstream.MsgRollup); rollup == jetstream.MsgRollupSubject {
		st.purge(c.Subject, 0, 1)
	} else if rollup != "" {
		st.purge("", 0, 1)
	}
	return seq
}

// staged is what the messages of a batch before the present one will have changed. A message
// that goes to replicas is a batch of its own.
type staged struct {
	st       *Stream
	messages uint64
	bytes    uint64
	ids      map[string]bool
	subjects map[string]bool
	expected map[string]uint64
}

// check checks the conditions of a message in the order of batches and of replicas. It returns
// the sequence of the message that this one is a duplicate of.
func (d *staged) check(c *Command) (duplicate uint64, e *refusal) {
	st := d.st
	if name := c.header(jetstream.ExpectedStreamHeader); name != "" && name != st.config.Name {
		return 0, errOtherStream
	}
	if id := c.header(jetstream.MsgIDHeader); id != "" {
		if duplicate := st.known(id); duplicate > 0 || d.ids[id] {
			return duplicate, errDuplicate
		}
		note(&d.ids, id, true)
	}
	if seq, ok := c.number(jetstream.ExpectedLastSeqHeader); ok && seq != st.last+d.messages {
		return 0, wrongLast(st.last + d.messages)
	} else if ok && d.messages > 0 {
		return 0, errInFlight
	}
	if seq, ok := c.number(jetstream.ExpectedLastSubjSeqHeader); ok {
		subject := c.expectedSubject()
		if d.subjects[subject] || st.flight[subject] {
			return 0, errInFlight
		}
		if last := st.lastSeqOf(subject); last != seq {
			return 0, wrongLast(last)
		}
		note(&d.expected, subject, seq)
	} else if c.header(jetstream.ExpectedLastSubjSeqSubjHeader) != "" {
		return 0, errNoSequence
	}
	if c.header(jetstream.MsgRollup) != "" && (!st.config.AllowRollup || st.config.DenyPurge) {
		return 0, errNotPermitted
	}
	d.messages++
	d.bytes += size(c.Subject, c.raw, c.Data)
	note(&d.subjects, c.Subject, true)
	if f := &st.config; f.Discard == jetstream.DiscardNew {
		switch {
		case f.MaxMsgs > 0 && uint64(len(st.messages))+d.messages > uint64(f.MaxMsgs):
			return 0, tooMany("messages")
		case f.MaxBytes > 0 && st.bytes+d.bytes > uint64(f.MaxBytes):
			return 0, tooMany("bytes")
		}
	}
	return 0, nil
}

// take lets the messages that were checked go into flight, if there are replicas.
func (d *staged) take() {
	st := d.st
	if st.config.Replicas <= 1 {
		return
	}
	if len(st.flight) == 0 {
		st.landing = st.server.steady().Add(flightTime)
	}
	for subject := range d.subjects {
		note(&st.flight, subject, true)
	}
	for subject := range d.expected {
		note(&st.flight, subject, true)
	}
}

func note[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = make(map[string]V)
	}
	(*m)[key] = value
}
