package natsmodel

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/simulation/natsmodel/protocol"
)

// refusal is an error with which the server answers.
type refusal = jetstream.APIError

func refused(status, code int, format string, args ...any) *refusal {
	return &refusal{Code: status, ErrorCode: jetstream.ErrorCode(code), Description: fmt.Sprintf(format, args...)}
}

func tooMany(what string) *refusal { return refused(503, 10077, "maximum %s exceeded", what) }

func wrongLast(seq uint64) *refusal { return refused(400, 10071, "wrong last sequence: %d", seq) }

// Errors that are the same each time.
var (
	errTooLarge    = refused(400, 10054, "message size exceeds maximum allowed")
	errOtherStream = refused(400, 10060, "expected stream does not match")
	errSealed      = refused(400, 10109, "invalid operation on sealed stream")
	errInFlight    = refused(400, 10164, "wrong last sequence")
	errDuplicate   = refused(400, 10201, "atomic publish batch contains duplicate message id")
)

// flightTime is how long messages are in flight, if Timers is called in time.
const flightTime = time.Millisecond

// receive handles a message for the stream, and returns the answer; nil if there is none.
func (st *Stream) receive(c *Command) (ack []byte) {
	c = st.transformed(c)
	limit, id := int(st.config.MaxMsgSize), c.header("Nats-Batch-Id")
	switch {
	case st.config.Sealed:
		ack = st.nack(errSealed)
	case limit > 0 && len(c.raw)+len(c.Data) > limit:
		ack = st.nack(errTooLarge)
	case strings.HasSuffix(c.Reply, fastSuffix):
		ack = st.fast(c)
	case id != "":
		ack = st.atomic(c, id)
	default:
		ack = st.single(c)
	}
	if ack != nil {
		st.server.answer(c.Reply, nil, ack)
	}
	for _, o := range st.consumers {
		o.deliver()
	}
	return ack
}

// transformed is a message as the stream stores it. The only transform that is modelled puts the
// hash of the last of four tokens in its place.
func (st *Stream) transformed(c *Command) *Command {
	t := st.config.SubjectTransform
	tokens := strings.Split(c.Subject, ".")
	if t == nil || len(tokens) != 4 || tokens[0]+".*.*.*" != t.Source {
		return c
	}
	var buckets uint32
	if n, _ := fmt.Sscanf(t.Destination, tokens[0]+".{{wildcard(1)}}.{{wildcard(2)}}.{{partition(%d,3)}}",
		&buckets); n != 1 {
		panic("natsmodel: the transform is not modelled: " + t.Destination)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(tokens[3]))
	moved := *c
	moved.Subject = strings.Join(tokens[:3], ".") + "." + strconv.Itoa(int(h.Sum32()%buckets))
	return &moved
}

func (c *Command) header(key string) string {
	if v := c.Header[key]; v != nil {
		return v[0]
	}
	return ""
}

func (c *Command) number(key string) (n uint64, present bool) {
	n, err := strconv.ParseUint(c.header(key), 10, 64)
	return n, err == nil
}

// single stores a message that is in no batch.
func (st *Stream) single(c *Command) []byte {
	t := test{st: st, batch: st.config.Replicas > 1}
	duplicate, e := t.check(c)
	if duplicate > 0 {
		return append(st.ack(duplicate), `,"duplicate":true}`...)
	}
	if e != nil {
		return st.nack(e)
	}
	t.pass()
	if seq := st.put(c); seq > 0 {
		return append(st.ack(seq), '}')
	}
	return nil
}

// ack begins an answer.
func (st *Stream) ack(seq uint64) []byte {
	return strconv.AppendUint([]byte(`{"stream":"`+st.config.Name+`","seq":`), seq, 10)
}

func (st *Stream) nack(e *refusal) []byte {
	return []byte(`{"error":` + string(marshal(e)) + `,"stream":"` + st.config.Name + `","seq":0}`)
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// test finds out whether messages can be stored one after the other. The server does it in
// another order for batches and for replicas than for single messages.
type test struct {
	st       *Stream
	batch    bool
	messages uint64 // so far
	bytes    uint64
	ids      map[string]bool
	written  map[string]bool // subjects
	expected map[string]bool // subjects
}

// check adds a message. It returns the sequence of the message that this one is a duplicate of.
func (t *test) check(c *Command) (duplicate uint64, e *refusal) {
	if name := c.header(jetstream.ExpectedStreamHeader); name != "" && name != t.st.config.Name {
		return 0, errOtherStream
	}
	if !t.batch {
		if e := t.conditions(c); e != nil {
			return 0, e
		}
	}
	if id := c.header(jetstream.MsgIDHeader); id != "" {
		p, known := t.st.ids[id]
		if known = known && t.st.server.now().Sub(p.At) < t.st.config.Duplicates; known || t.ids[id] {
			return p.Seq, errDuplicate
		}
		note(&t.ids, id)
	}
	if t.batch {
		if e := t.conditions(c); e != nil {
			return 0, e
		}
		note(&t.written, c.Subject)
	}
	t.messages++
	t.bytes += protocol.Size(c.Subject, c.raw, c.Data)
	if f := &t.st.config; f.Discard == jetstream.DiscardNew {
		switch {
		case f.MaxMsgs > 0 && uint64(len(t.st.messages))+t.messages > uint64(f.MaxMsgs):
			return 0, tooMany("messages")
		case f.MaxBytes > 0 && t.st.bytes+t.bytes > uint64(f.MaxBytes):
			return 0, tooMany("bytes")
		}
	}
	return 0, t.st.permitted(c)
}

// conditions checks which sequences a message expects.
func (t *test) conditions(c *Command) *refusal {
	if seq, ok := c.number(jetstream.ExpectedLastSeqHeader); ok && seq != t.st.last+t.messages {
		return wrongLast(t.st.last + t.messages)
	} else if ok && t.messages > 0 {
		return errInFlight
	}
	seq, ok := c.number(jetstream.ExpectedLastSubjSeqHeader)
	if !ok {
		return nil
	}
	subject := c.header(jetstream.ExpectedLastSubjSeqSubjHeader)
	if subject == "" {
		subject = c.Subject
	}
	if t.written[subject] || t.st.flight[subject] {
		return errInFlight
	}
	var last uint64
	if m := t.st.lastOf(subject, t.st.last); m != nil {
		last = m.Seq
	}
	if seq != last {
		return wrongLast(last)
	}
	if t.batch {
		note(&t.expected, subject)
	}
	return nil
}

// pass lets the messages go into flight, if there are replicas.
func (t *test) pass() {
	st := t.st
	if st.config.Replicas <= 1 {
		return
	}
	if len(st.flight) == 0 {
		st.landing = st.server.steady().Add(flightTime)
	}
	for _, subjects := range [2]map[string]bool{t.written, t.expected} {
		for subject := range subjects {
			note(&st.flight, subject)
		}
	}
}

func note(set *map[string]bool, member string) {
	if *set == nil {
		*set = make(map[string]bool)
	}
	(*set)[member] = true
}

// permitted asks Server.Refuse.
func (st *Stream) permitted(c *Command) (e *refusal) {
	if st.server.Refuse != nil {
		if err := st.server.Refuse(st.config.Name, *c); err != nil && !errors.As(err, &e) {
			st.failed = err
		}
	}
	return e
}

// put stores a message, and returns its sequence; 0 if writes fail.
func (st *Stream) put(c *Command) uint64 {
	if st.failed != nil {
		return 0
	}
	st.remember()
	m := st.add(c, st.server.now().Round(0).UTC())
	seq := m.Seq
	if id := c.header(jetstream.MsgIDHeader); id != "" {
		st.ids[id] = *m
	}
	if seqs, most := st.subjects[c.Subject], st.config.MaxMsgsPerSubject; most > 0 && int64(len(seqs)) > most {
		st.remove(st.from(seqs[0]))
	}
	st.enforce()
	return seq
}
