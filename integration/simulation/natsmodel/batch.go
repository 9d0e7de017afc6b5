package natsmodel

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	batchTimeout  = 10 * time.Second
	maxAtomic     = 50   // batches at a time
	maxAtomicSize = 1000 // messages
	maxFast       = 1000 // batches at a time
	maxBatchID    = 64
)

// atomicBatch is messages that the stream stores together (ADR-50).
type atomicBatch struct {
	id       string
	messages []Command
	heard    time.Time // of the last message
}

// atomic handles a message of an atomic batch.
func (st *Stream) atomic(c *Command, id string) {
	ack, e := st.stage(c, id)
	if e != nil {
		ack = st.nack(e)
	}
	if ack != nil {
		st.server.answer(c.Reply, nil, ack)
	}
}

// stage adds a message to its batch, and stores the batch if it is the last. After a refusal
// the batch is gone. ack is nil if there is no answer.
func (st *Stream) stage(c *Command, id string) (ack []byte, e *refusal) {
	if e := st.takes(c); e != nil {
		return nil, e
	}
	seq, numbered := c.number("Nats-Batch-Sequence")
	switch {
	case !st.config.AllowAtomicPublish:
		return nil, refused(400, 10174, "atomic publish is disabled")
	case len(id) > maxBatchID:
		return nil, refused(400, 10179, "atomic publish batch ID is invalid")
	case !numbered:
		return nil, refused(400, 10175, "atomic publish sequence is missing")
	}
	now := st.server.steady()
	st.atomics = slices.DeleteFunc(st.atomics, func(b *atomicBatch) bool { return now.Sub(b.heard) >= batchTimeout })
	i := slices.IndexFunc(st.atomics, func(b *atomicBatch) bool { return b.id == id })
	switch {
	case i >= 0:
	case seq > maxAtomicSize:
		return nil, errBatchTooLarge
	case seq != 1:
		return nil, errBatchIncomplete
	case len(st.atomics) >= maxAtomic:
		return nil, refused(429, 10210, "atomic publish too many inflight")
	default:
		i = len(st.atomics)
		st.atomics = append(st.atomics, &atomicBatch{id: id})
	}
	b := st.atomics[i]
	commit := c.header("Nats-Batch-Commit")
	switch {
	case commit == "eob":
		panic("natsmodel: the end of a batch by eob is not modelled")
	case commit != "" && commit != "1":
		e = refused(400, 10200, "atomic publish batch commit is invalid")
	case seq != uint64(len(b.messages))+1:
		e = errBatchIncomplete
	case seq > maxAtomicSize:
		e = errBatchTooLarge
	}
	b.messages, b.heard = append(b.messages, *c), now
	if e == nil && commit == "" {
		return []byte{}, nil
	}
	st.atomics = slices.Delete(st.atomics, i, i+1)
	if e == nil {
		e = st.putAll(b.messages)
	}
	if e != nil || st.failed != nil {
		return nil, e
	}
	return fmt.Appendf(st.ack(st.last), `,"batch":%q,"count":%d}`, id, seq), nil
}

var (
	errBatchIncomplete = refused(400, 10176, "atomic publish batch is incomplete")
	errBatchTooLarge   = refused(400, 10199, "atomic publish batch is too large: %d", maxAtomicSize)
)

// putAll stores messages, all or none.
func (st *Stream) putAll(messages []Command) *refusal {
	d := staged{st: st}
	for i := range messages {
		const lastID = "Nats-Expected-Last-Msg-Id"
		if messages[i].header(lastID) != "" {
			return refused(400, 10177, "atomic publish unsupported header used: %s", lastID)
		}
		_, e := d.check(&messages[i])
		if e == nil {
			e = st.permitted(&messages[i])
		}
		if e != nil {
			return e
		}
	}
	d.take()
	for i := range messages {
		st.put(&messages[i])
	}
	return nil
}

// fastBatch is messages that the stream stores one by one, until it refuses one. What is stored
// is answered at once, so the counts of the server that lag behind are not needed.
type fastBatch struct {
	id    string
	gapOK bool
	flow  uint16 // the client wants a report after so many messages, at most
	every uint16 // the server reports after so many
	seq   uint64 // of the last message in the batch
	done  uint64 // of the last message that is dealt with
	told  uint64 // of the last report
	last  uint64 // sequence in the stream of the last message that was stored
	heard time.Time
}

const (
	fastSuffix    = ".$FI"
	mostPerReport = 500
)

// fastReply is what the reply subject of a message of a fast batch tells.
type fastReply struct {
	id     string
	flow   uint16
	gapOK  bool
	seq    uint64
	commit bool
	eob    bool // the message only ends the batch, and is not stored
}

// parseFast reads a subject <inbox>.<id>.<flow>.<gap mode>.<sequence>.<operation>.$FI.
func parseFast(subject string) (f fastReply, ok bool) {
	t := strings.Split(subject, ".")
	if t = t[:len(t)-1]; len(t) < 6 {
		return f, false
	}
	t = t[len(t)-5:]
	operation, err := strconv.Atoi(t[4])
	if err == nil && operation == 4 {
		panic("natsmodel: pings of fast batches are not modelled")
	}
	f.seq, ok = parseUint(t[3])
	flow, _ := strconv.Atoi(t[1])
	if flow <= 0 {
		flow = 10
	}
	f.id, f.flow, f.gapOK, f.eob = t[0], uint16(min(flow, math.MaxUint16)), t[2] == "ok", operation == 3
	f.commit = operation == 2 || f.eob
	ok = ok && err == nil && operation >= 0 && operation <= 3 && f.seq > 0 && (f.gapOK || t[2] == "fail") &&
		(operation != 0 || f.seq == 1) && (operation != 1 && operation != 3 || f.seq > 1)
	return f, ok
}

func parseUint(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}

// fast handles a message of a fast batch.
func (st *Stream) fast(c *Command) {
	e := st.takes(c)
	f, ok := parseFast(c.Reply)
	switch {
	case e != nil:
	case !st.config.AllowBatchPublish:
		e = refused(400, 10205, "batch publish is disabled")
	case !ok:
		e = refused(400, 10206, "batch publish pattern is invalid")
	case len(f.id) > maxBatchID:
		e = refused(400, 10207, "batch publish ID is invalid")
	}
	var b *fastBatch
	if e == nil {
		b, e = st.fastBatch(f)
	}
	if e != nil {
		st.server.answer(c.Reply, nil, st.nack(e))
		return
	}
	if f.seq != b.seq+1 {
		st.tell(c, `{"type":"gap","last_seq":%d,"seq":%d}`, b.seq+1, f.seq)
		if !b.gapOK || f.seq <= b.seq {
			st.endFast(b, c)
			return
		}
	}
	if f.eob {
		b.seq = f.seq - 1
		st.endFast(b, c)
		return
	}
	if f.seq == 1 && !f.commit {
		st.tell(c, flowReport, 0, b.every)
	}
	b.seq = f.seq
	st.putFast(b, f, c)
}

// flowReport tells up to which message a fast batch is stored.
const flowReport = `{"type":"ack","seq":%d,"msgs":%d}`

func (st *Stream) tell(c *Command, format string, args ...any) {
	st.server.answer(c.Reply, nil, fmt.Appendf(nil, format, args...))
}

// fastBatch finds the batch of a message, or begins it.
func (st *Stream) fastBatch(f fastReply) (*fastBatch, *refusal) {
	now := st.server.steady()
	st.fasts = slices.DeleteFunc(st.fasts, func(b *fastBatch) bool { return now.Sub(b.heard) >= batchTimeout })
	for _, b := range st.fasts {
		if b.id == f.id {
			b.heard = now
			return b, nil
		}
	}
	if f.seq != 1 {
		return nil, refused(400, 10208, "batch publish ID unknown")
	}
	if len(st.fasts) >= maxFast {
		return nil, refused(429, 10211, "batch publish too many inflight")
	}
	b := &fastBatch{id: f.id, gapOK: f.gapOK, flow: f.flow, every: min(mostPerReport, f.flow), heard: now}
	if len(st.fasts) > 0 {
		b.every = 1
	}
	st.fasts = append(st.fasts, b)
	return b, nil
}

// putFast stores a message of a fast batch, if nothing is against it.
func (st *Stream) putFast(b *fastBatch, f fastReply, c *Command) {
	d := staged{st: st}
	duplicate, e := d.check(c)
	if e == nil {
		e = st.permitted(c)
	}
	if e == nil {
		d.take()
		if b.last = st.put(c); st.failed != nil {
			return
		}
		b.done = b.seq
		if f.commit {
			st.endFast(b, c)
		} else {
			st.report(b, c)
		}
		return
	}
	if duplicate > 0 {
		b.done = f.seq
		st.report(b, c)
		if !f.commit {
			return
		}
	}
	if !b.gapOK && b.seq == 1 { // as for a message of its own
		st.dropFast(b)
		if duplicate > 0 {
			st.server.answer(c.Reply, nil, fmt.Appendf(st.ack(duplicate), `,"duplicate": true,"batch":%q,"count":%d}`, b.id, f.seq))
		} else {
			st.server.answer(c.Reply, nil, st.nack(e))
		}
		return
	}
	if duplicate == 0 {
		text, err := json.Marshal(e)
		if err != nil {
			panic(err)
		}
		st.tell(c, `{"type":"err","seq":%d,"error":%s}`, f.seq, text)
		if b.gapOK && !f.commit {
			return
		}
		b.seq--
	}
	st.endFast(b, c)
}

// report reports how much is stored, if it is time to.
func (st *Stream) report(b *fastBatch, c *Command) {
	every := uint64(b.every)
	if b.done < b.told+every {
		return
	}
	b.told += (b.done - b.told) / every * every
	most := min(uint16(max(mostPerReport/len(st.fasts), 1)), b.flow)
	if b.every < most {
		b.every = min(b.every*2, most)
	} else if b.every > most {
		b.every = max(b.every/2, most)
	}
	st.tell(c, flowReport, b.told, b.every)
}

// endFast ends a batch, and answers for all its messages.
func (st *Stream) endFast(b *fastBatch, c *Command) {
	st.dropFast(b)
	st.server.answer(c.Reply, nil, fmt.Appendf(st.ack(b.last), `,"batch":%q,"count":%d}`, b.id, b.seq))
}

func (st *Stream) dropFast(b *fastBatch) {
	st.fasts = slices.DeleteFunc(st.fasts, func(other *fastBatch) bool { return other == b })
}
