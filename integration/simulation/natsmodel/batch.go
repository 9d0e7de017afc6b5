package natsmodel

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// batch is messages that the stream stores together: an atomic batch (ADR-50) all or none, a
// fast batch one by one, up to the first that it refuses.
type batch struct {
	id       string
	messages []Command // of an atomic batch, which are not stored yet
	count    uint64    // of a fast batch: messages that are dealt with
	last     uint64    // of a fast batch: sequence in the stream of the last one that was stored
	heard    time.Time // of the last message
}

// batchKind is the open batches of a kind, and its errors.
type batchKind struct {
	open                       []*batch
	most                       int
	disabled, unknown, tooMany *refusal
}

// The kinds of batches; each stream has a copy of its own.
var (
	atomicBatches = batchKind{most: 50, unknown: errIncomplete,
		disabled: refused(400, 10174, "atomic publish is disabled"),
		tooMany:  refused(429, 10210, "atomic publish too many inflight")}
	fastBatches = batchKind{most: 1000, unknown: refused(400, 10208, "batch publish ID unknown"),
		disabled: refused(400, 10205, "batch publish is disabled"),
		tooMany:  refused(429, 10211, "batch publish too many inflight")}
)

const (
	batchTimeout  = 10 * time.Second
	maxAtomicSize = 1000 // messages
)

var (
	errIncomplete = refused(400, 10176, "atomic publish batch is incomplete")
	errTooMany    = refused(400, 10199, "atomic publish batch is too large: %d", maxAtomicSize)
)

// find returns the batch of a message, and begins it with the first one.
func (k *batchKind) find(now time.Time, allowed bool, id string, seq uint64) (*batch, *refusal) {
	k.open = slices.DeleteFunc(k.open, func(b *batch) bool { return now.Sub(b.heard) >= batchTimeout })
	i := slices.IndexFunc(k.open, func(b *batch) bool { return b.id == id })
	switch {
	case !allowed:
		return nil, k.disabled
	case i < 0 && seq != 1:
		return nil, k.unknown
	case i < 0 && len(k.open) >= k.most:
		return nil, k.tooMany
	case i < 0:
		i = len(k.open)
		k.open = append(k.open, &batch{id: id})
	}
	k.open[i].heard = now
	return k.open[i], nil
}

func (k *batchKind) end(b *batch) {
	k.open = slices.DeleteFunc(k.open, func(other *batch) bool { return other == b })
}

// atomic adds a message to its batch, and stores the batch if it is the last. It returns the
// answer, nil if there is none.
func (st *Stream) atomic(c *Command, id string) []byte {
	seq, _ := c.number("Nats-Batch-Sequence")
	b, e := st.atomics.find(st.server.steady(), st.config.AllowAtomicPublish, id, seq)
	if e != nil {
		return st.nack(e)
	}
	b.messages = append(b.messages, *c)
	if seq != uint64(len(b.messages)) {
		e = errIncomplete
	} else if seq > maxAtomicSize {
		e = errTooMany
	} else if c.header("Nats-Batch-Commit") == "" {
		return []byte{}
	}
	st.atomics.end(b)
	t := test{st: st, batch: true}
	for i := 0; e == nil && i < len(b.messages); i++ {
		_, e = t.check(&b.messages[i])
	}
	if e != nil {
		return st.nack(e)
	}
	t.pass()
	for i := range b.messages {
		if b.last = st.put(&b.messages[i]); b.last == 0 {
			return nil
		}
	}
	return st.batchAck(b, seq)
}

func (st *Stream) batchAck(b *batch, count uint64) []byte {
	return fmt.Appendf(st.ack(b.last), `,"batch":%q,"count":%d}`, b.id, count)
}

const fastSuffix = ".$FI"

// fast stores a message of a fast batch, and returns the answer to the batch if that ends here.
// The reply subject is <inbox>.<id>.<flow>.<gap mode>.<sequence>.<operation>.$FI.
func (st *Stream) fast(c *Command) []byte {
	tokens := strings.Split(c.Reply, ".")
	tokens = tokens[max(0, len(tokens)-6):]
	if len(tokens) < 6 || tokens[2] != "fail" || tokens[4] > "2" {
		panic("natsmodel: the fast batch is not modelled: " + c.Reply)
	}
	seq, _ := strconv.ParseUint(tokens[3], 10, 64)
	b, e := st.fasts.find(st.server.steady(), st.config.AllowBatchPublish, tokens[0], seq)
	if e != nil {
		return st.nack(e)
	}
	if seq != b.count+1 {
		st.fasts.end(b)
		st.server.answer(c.Reply, nil, fmt.Appendf(nil, `{"type":"gap","last_seq":%d,"seq":%d}`, b.count+1, seq))
		return st.batchAck(b, b.count)
	}
	t := test{st: st, batch: true}
	duplicate, e := t.check(c)
	if e == nil {
		t.pass()
		last := st.put(c)
		if last == 0 {
			return nil
		}
		b.last = last
	}
	over := tokens[4] == "2"
	if b.count++; !over && (e == nil || duplicate > 0) {
		return nil
	}
	st.fasts.end(b)
	switch {
	case e == nil:
	case duplicate > 0 && seq == 1:
		return fmt.Appendf(st.ack(duplicate), `,"duplicate":true,"batch":%q,"count":1}`, b.id)
	case duplicate > 0:
	case seq == 1:
		return st.nack(e)
	default:
		b.count--
		st.server.answer(c.Reply, nil, fmt.Appendf(nil, `{"type":"err","seq":%d,"error":%s}`, seq, marshal(e)))
	}
	return st.batchAck(b, b.count)
}
