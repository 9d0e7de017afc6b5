package natsmodel

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits of the server.
const (
	batchTimeout  = 10 * time.Second
	maxAtomic     = 50   // batches at a time
	maxAtomicSize = 1000 // messages
	maxFast       = 1000 // batches at a time
)

var (
	errIncomplete = refused(400, 10176, "atomic publish batch is incomplete")
	errTooMany    = refused(400, 10199, "atomic publish batch is too large: %d", maxAtomicSize)
)

// atomicBatch is messages that the stream stores together (ADR-50).
type atomicBatch struct {
	id       string
	messages []Command
	heard    time.Time // of the last message
}

// atomic adds a message to its batch, and stores the batch if it is the last. It returns the
// answer. After a refusal the batch is gone.
func (st *Stream) atomic(c *Command, id string) []byte {
	e := st.takes(c)
	now, seq := st.server.steady(), uint64(0)
	st.atomics = slices.DeleteFunc(st.atomics, func(b *atomicBatch) bool { return now.Sub(b.heard) >= batchTimeout })
	i := slices.IndexFunc(st.atomics, func(b *atomicBatch) bool { return b.id == id })
	switch seq, _ = c.number("Nats-Batch-Sequence"); {
	case e != nil:
	case !st.config.AllowAtomicPublish:
		e = refused(400, 10174, "atomic publish is disabled")
	case i < 0 && seq == 1 && len(st.atomics) >= maxAtomic:
		e = refused(429, 10210, "atomic publish too many inflight")
	case i < 0 && seq > maxAtomicSize:
		e = errTooMany
	case i < 0 && seq != 1:
		e = errIncomplete
	}
	if e != nil {
		return st.nack(e) // which leaves the batch as it is
	}
	if i < 0 {
		i = len(st.atomics)
		st.atomics = append(st.atomics, &atomicBatch{id: id})
	}
	b := st.atomics[i]
	b.messages, b.heard = append(b.messages, *c), now
	if seq != uint64(len(b.messages)) {
		e = errIncomplete
	} else if seq > maxAtomicSize {
		e = errTooMany
	} else if c.header("Nats-Batch-Commit") == "" {
		return []byte{}
	}
	st.atomics = slices.Delete(st.atomics, i, i+1)
	t := st.newTest(true)
	for i := 0; e == nil && i < len(b.messages); i++ {
		_, e = t.check(&b.messages[i])
	}
	if e != nil {
		return st.nack(e)
	}
	t.pass()
	last := uint64(0)
	for i := range b.messages {
		last = st.put(&b.messages[i])
	}
	if last == 0 {
		return nil
	}
	return st.batchAck(last, id, seq)
}

func (st *Stream) batchAck(last uint64, id string, count uint64) []byte {
	return fmt.Appendf(st.ack(last), `,"batch":%q,"count":%d}`, id, count)
}

// fastBatch is messages that the stream stores one by one, up to the first that it refuses.
type fastBatch struct {
	id    string
	count uint64 // messages that are dealt with
	last  uint64 // sequence in the stream of the last one that was stored
	heard time.Time
}

const fastSuffix = ".$FI"

// fast stores a message of a fast batch, and returns the answer to the batch if that ends here.
// The reply subject is <inbox>.<id>.<flow>.<gap mode>.<sequence>.<operation>.$FI.
func (st *Stream) fast(c *Command) []byte {
	tokens := strings.Split(c.Reply, ".")
	if len(tokens) < 7 || tokens[len(tokens)-4] != "fail" {
		panic("natsmodel: the fast batch is not modelled: " + c.Reply)
	}
	tokens = tokens[len(tokens)-6:]
	id, commit := tokens[0], tokens[4] == "2"
	seq, err := strconv.ParseUint(tokens[3], 10, 64)
	if err != nil || tokens[4] > "2" {
		panic("natsmodel: the fast batch is not modelled: " + c.Reply)
	}
	e := st.takes(c)
	now := st.server.steady()
	st.fasts = slices.DeleteFunc(st.fasts, func(b *fastBatch) bool { return now.Sub(b.heard) >= batchTimeout })
	i := slices.IndexFunc(st.fasts, func(b *fastBatch) bool { return b.id == id })
	switch {
	case e != nil:
	case !st.config.AllowBatchPublish:
		e = refused(400, 10205, "batch publish is disabled")
	case i < 0 && seq != 1:
		e = refused(400, 10208, "batch publish ID unknown")
	case i < 0 && len(st.fasts) >= maxFast:
		e = refused(429, 10211, "batch publish too many inflight")
	}
	if e != nil {
		return st.nack(e)
	}
	if i < 0 {
		i = len(st.fasts)
		st.fasts = append(st.fasts, &fastBatch{id: id})
	}
	b := st.fasts[i]
	b.heard = now
	if seq == b.count+1 {
		if answer, over := st.fastMessage(b, c, commit); !over {
			return answer
		} else if answer != nil {
			st.fasts = slices.Delete(st.fasts, i, i+1)
			return answer
		}
	} else {
		st.server.answer(c.Reply, nil, fmt.Appendf(nil, `{"type":"gap","last_seq":%d,"seq":%d}`, b.count+1, seq))
	}
	st.fasts = slices.Delete(st.fasts, i, i+1)
	return st.batchAck(b.last, id, b.count)
}

// fastMessage stores the next message of a batch. It reports whether the batch is over, with an
// answer if that is not the usual one.
func (st *Stream) fastMessage(b *fastBatch, c *Command, commit bool) (answer []byte, over bool) {
	t := st.newTest(true)
	duplicate, e := t.check(c)
	b.count++
	switch {
	case e == nil:
		t.pass()
		last := st.put(c)
		if last == 0 {
			return nil, false
		}
		b.last = last
		return nil, commit
	case duplicate > 0 && !commit:
		return nil, false
	case duplicate > 0 && b.count == 1:
		return fmt.Appendf(st.ack(duplicate), `,"duplicate":true,"batch":%q,"count":1}`, b.id), true
	case duplicate > 0:
		return nil, true
	case b.count == 1:
		return st.nack(e), true
	}
	st.server.answer(c.Reply, nil, fmt.Appendf(nil, `{"type":"err","seq":%d,"error":%s}`, b.count, marshal(e)))
	b.count--
	return nil, true
}
